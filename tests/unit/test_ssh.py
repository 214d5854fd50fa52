"""Each trap that docs/hosts.md lists, against a real sshd."""

import contextlib
import io
import logging
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import paramiko
import pytest

from fleet import awake
from fleet.errors import (
    CommandFailed,
    CommandTimeout,
    HostError,
    HostKeyError,
    Interrupted,
    LoginError,
    Unreachable,
)
from fleet.hosts.archive import fetch_tree
from fleet.hosts.base import Outcome, Transport
from fleet.hosts.fan import each
from fleet.hosts.ssh import SSH, settled
from fleet.hosts.wire import Wire
from tests import sshd
from tests.ports import free_ports
from tests.sshd import Sshd, until

ODD = [
    "",
    "a b",
    "'",
    '"',
    "$HOME",
    "`id`",
    "$(id)",
    "new\nline",
    "über 雪",
    "-n",
    "*",
    "a\\b",
    "!x",
    "\t",
    "~",
    "a;id",
]

Host = Callable[..., SSH]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with sshd.running(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The operator's home, empty, and no agent."""
    path = tmp_path / "operator"
    (path / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return path


@pytest.fixture
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    """Makes transports to a server (the shared one where none is given) and closes them."""
    with ExitStack() as stack:

        def make(to: Sshd | None = None, **changes: object) -> SSH:
            to = to or request.getfixturevalue("server")
            given = {
                "address": "127.0.0.1",
                "port": to.port,
                "user": "root",
                "identity": str(to.key),
                "known_hosts": str(to.known_hosts),
            }
            made = SSH("n1", **{**given, **changes})  # type: ignore[arg-type]
            stack.callback(made.close)
            return made

        yield make


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pid_in(path: Path) -> int:
    until(lambda: path.exists() and path.read_text().strip(), 15)
    return int(path.read_text())


def sleeper(path: Path) -> list[str]:
    """A command that writes its process id and then stays."""
    return ["sh", "-c", 'echo $$ >"$0"; exec sleep 120', str(path)]


# ---------------------------------------------------------------------------- bytes and arguments


def test_it_is_a_transport(host: Host) -> None:
    transport: Transport = host()
    outcome = transport.run(["sh", "-c", "echo out; echo err >&2; exit 3"], check=False)
    assert (outcome.host, outcome.code, outcome.stdout, outcome.stderr) == ("n1", 3, b"out\n", b"err\n")
    assert outcome.argv[0] == "sh"
    assert 0 < outcome.seconds < 30


@pytest.mark.parametrize("shell", ["/bin/bash", "/bin/dash"])
def test_arguments_arrive_as_they_are(tmp_path: Path, host: Host, shell: str) -> None:
    # The login shell is what /etc/passwd says; a ForceCommand passes the text on to the other one.
    extra = f'ForceCommand exec {shell} -c "$SSH_ORIGINAL_COMMAND"'
    with sshd.running(tmp_path / "sshd", extra=extra) as other:
        transport = host(other)
        expected = b"".join(word.encode() + b"\0" for word in ODD)
        assert transport.run(["printf", r"%s\0", *ODD]).stdout == expected
        transport.close()


def test_environment_goes_as_arguments_and_is_never_run(host: Host) -> None:
    assert host().run(["env", "A=a b;id", "sh", "-c", 'echo "$A"']).out == "a b;id\n"


def test_large_bytes_in_and_out_on_both_streams_without_a_deadlock(host: Host) -> None:
    data = os.urandom(5_000_000)
    outcome = host().run(["tee", "/dev/stderr"], stdin=data, timeout=60)
    assert outcome.stdout == data
    assert outcome.stderr == data


def test_stdin_is_at_its_end_unless_it_is_fed(host: Host) -> None:
    assert host().run(["cat"], timeout=10).stdout == b""
    assert host().run(["cat"], stdin=b"\x00\r\n\xff").stdout == b"\x00\r\n\xff"


def test_a_command_that_does_not_read_its_stdin_is_fine(host: Host) -> None:
    assert host().run(["true"], stdin=b"x" * 8_000_000, timeout=30).code == 0


def test_what_a_login_shell_prints_is_not_the_commands_output(tmp_path: Path, host: Host) -> None:
    with sshd.running(tmp_path / "sshd") as other:
        (other.home / ".bashrc").write_text("echo welcome to the cluster; head -c 30000 /dev/zero\n")
        transport = host(other)
        assert transport.run(["echo", "hi"]).out == "hi\n"
        transport.put(b"data", str(tmp_path / "file"))
        fetch_tree(transport, str(tmp_path / "file"), tmp_path / "got", timeout=20)
        assert (tmp_path / "got/file").read_bytes() == b"data"
        (other.home / ".bashrc").write_text("yes\n")
        with pytest.raises(LoginError, match="floods stdout"):
            transport.run(["true"], timeout=20)
        (other.home / ".bashrc").write_text("echo no shell for you; exit 1\n")
        with pytest.raises(LoginError, match=r"did not run the command \(code 1\): no shell for you"):
            transport.run(["true"], check=False)
        transport.close()


# ---------------------------------------------------------------------------- codes


def test_a_bad_code_is_an_error_with_the_last_lines_and_the_line_to_type(host: Host, server: Sshd) -> None:
    script = "for i in 1 2 3 4 5 6 7; do echo line $i >&2; done; exit 4"
    with pytest.raises(CommandFailed) as caught:
        host().run(["sh", "-c", script])
    assert caught.value.where == "n1"
    assert "ended with code 4\n  line 3\n" in caught.value.what
    assert caught.value.what.endswith("line 7")
    assert caught.value.hint.startswith(f"try:  ssh -i {server.key} ")


def test_death_by_a_signal_is_a_code(host: Host) -> None:
    assert host().run(["sh", "-c", "kill -9 $$"], check=False).code == 137
    assert host().run(["sh", "-c", "kill -SEGV $$"], check=False).code == 139


FISH = """#!/bin/sh
case "$1" in "sh -c "*) exec sh -c "exec $1" ;; esac
echo 'fish: $$ is not the pid' >&2; exit 127
"""


def test_a_login_shell_of_another_kind_is_asked_to_start_sh(tmp_path: Path, host: Host) -> None:
    shell = tmp_path / "fish"
    shell.write_text(FISH)
    shell.chmod(0o755)
    with sshd.running(tmp_path / "sshd", extra=f'ForceCommand {shell} "$SSH_ORIGINAL_COMMAND"') as other:
        fed, plain = host(other), host(other)
        assert fed.run(["cat"], stdin=b"sent once").stdout == b"sent once"
        outcome = plain.run(["sh", "-c", 'echo hi; kill -TERM "$$"'], check=False)
        assert (outcome.code, outcome.out, outcome.err) == (143, "hi\n", "")
        assert plain.run(["cat"], stdin=b"after that, too").stdout == b"after that, too"
        fed.close()
        plain.close()


def test_packets_are_checked_by_the_library(host: Host) -> None:
    transport = host()
    transport.run(["true"])
    assert transport._links[0].transport.remote_cipher == "aes128-gcm@openssh.com"


def test_the_configuration_that_all_connections_share_is_only_read(host: Host) -> None:
    """Fabric's own Connection writes into it, and threads lose each other's keys."""
    transport = host()
    transport.run(["true"])
    assert settled()._modifications == {}
    assert transport._links[0].connection.config is settled()


def test_keys_are_agreed_on_the_cheap_curve_unless_the_server_knows_a_safer_way() -> None:
    one, other = socket.socketpair()
    with one, other:
        offered = list(Wire(one).get_security_options().kex)
    assert offered[:3] == ["mlkem768x25519-sha256", "ecdh-sha2-nistp256", "curve25519-sha256@libssh.org"]
    assert set(offered) == set(paramiko.Transport._preferred_kex)


def test_codes_that_look_like_a_timeout_are_not_one(host: Host) -> None:
    assert host().run(["sh", "-c", "exit 124"], check=False).code == 124


def test_a_missing_command(host: Host) -> None:
    with pytest.raises(CommandFailed, match="code 127"):
        host().run(["no-such-command-here"])


# ---------------------------------------------------------------------------- time


def test_a_timeout_ends_the_remote_process(tmp_path: Path, host: Host) -> None:
    begun = time.monotonic()
    with pytest.raises(CommandTimeout, match="did not end within 2 s; ended there"):
        host().run(sleeper(tmp_path / "pid"), timeout=2)
    assert 2 <= time.monotonic() - begun < 8
    until(lambda: not alive(pid_in(tmp_path / "pid")), 2)


def test_a_command_that_ignores_the_polite_end_is_killed(tmp_path: Path, host: Host) -> None:
    script = f"trap '' TERM; echo $$ >{tmp_path}/pid; while :; do sleep 0.2; done"
    with pytest.raises(CommandTimeout):
        host().run(["sh", "-c", script], timeout=1)
    until(lambda: not alive(pid_in(tmp_path / "pid")), 12)


def test_connecting_is_inside_the_deadline() -> None:
    with silent_port() as port:
        begun = time.monotonic()
        with pytest.raises(Unreachable, match=rf"n1: no answer from 127.0.0.1:{port} as root within 1 s"):
            SSH("n1", address="127.0.0.1", port=port, user="root", connect_timeout=20).run(["true"], timeout=1)
        assert 1 <= time.monotonic() - begun < 5


class silent_port:
    """A listener that accepts, and then says nothing."""

    def __enter__(self) -> int:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=50)
        return int(self.listener.getsockname()[1])

    def __exit__(self, *_: object) -> None:
        self.listener.close()


def test_a_banner_that_never_comes() -> None:
    with silent_port() as port:
        transport = SSH("n1", address="127.0.0.1", port=port, user="root", connect_timeout=1)
        with pytest.raises(Unreachable, match=f"no SSH banner.* at 127.0.0.1:{port} as root"):
            transport.run(["true"], timeout=20)


def test_a_connection_that_is_not_taken() -> None:
    # On Linux a listener whose queue is full drops the handshake: to the client that is a host without a cable.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, ExitStack() as stack:
        port = listener.getsockname()[1]
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        begun = time.monotonic()
        with pytest.raises(Unreachable, match=f"no answer within 1 s at 127.0.0.1:{port}"):
            SSH("n1", address="127.0.0.1", port=port, user="root", connect_timeout=1).run(["true"], timeout=20)
        assert time.monotonic() - begun < 10


def test_a_frozen_server_on_an_open_connection(tmp_path: Path, host: Host) -> None:
    with sshd.running(tmp_path / "sshd") as other:
        transport = host(other, connect_timeout=1)
        transport.run(["true"])
        with frozen(other):
            begun = time.monotonic()
            with pytest.raises(Unreachable):
                transport.run(["true"], timeout=2)
            assert time.monotonic() - begun < 6
        assert transport.run(["echo", "back"], timeout=20).out == "back\n"
        transport.close()


def test_a_command_whose_server_freezes(tmp_path: Path, host: Host) -> None:
    with sshd.running(tmp_path / "sshd") as other:
        transport, seen = host(other), threading.Event()
        with ExitStack() as stack:

            def freeze(_: bytes) -> None:
                stack.enter_context(frozen(other))
                seen.set()

            begun = time.monotonic()
            with pytest.raises(CommandTimeout, match="may be running still"):
                transport.stream(["sh", "-c", "echo up; sleep 60"], timeout=2, sink=freeze)
            assert seen.is_set()
            assert time.monotonic() - begun < 8
        transport.close()


class frozen:
    """Every process of the server stopped, as on a hung host."""

    def __init__(self, server: Sshd) -> None:
        self.pids = [server.process.pid, *sshd.descendants(server.process.pid)]

    def __enter__(self) -> None:
        for pid in self.pids:
            os.kill(pid, signal.SIGSTOP)

    def __exit__(self, *_: object) -> None:
        for pid in self.pids:
            if alive(pid):
                os.kill(pid, signal.SIGCONT)


def test_a_stuck_upload_does_not_hold_a_short_call(tmp_path: Path, host: Host) -> None:
    with sshd.running(tmp_path / "sshd") as other:
        transport, flowing = host(other, connect_timeout=1), threading.Event()

        def endless() -> Iterator[bytes]:
            while True:
                flowing.set()
                yield b"x" * 65536

        ended: list[BaseException] = []

        def upload() -> None:
            try:
                transport.stream(["sh", "-c", "cat >/dev/null"], timeout=6, source=endless())
            except HostError as problem:
                ended.append(problem)

        thread = threading.Thread(target=upload)
        thread.start()
        assert flowing.wait(20)
        with frozen(other):
            time.sleep(0.5)  # not a wait for luck: the longer it lasts, the more surely the socket is full
            begun = time.monotonic()
            with pytest.raises(Unreachable):
                transport.run(["true"], timeout=2)
            assert time.monotonic() - begun < 6
            thread.join(20)
        assert len(ended) == 1
        transport.close()


# ---------------------------------------------------------------------------- ^C


def test_interrupt_ends_the_call_and_the_remote_process(tmp_path: Path, host: Host) -> None:
    transport = host()
    transport.run(["true"])
    pid = tmp_path / "pid"

    def press() -> None:
        pid_in(pid)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        transport.run(sleeper(pid), timeout=100)
    assert time.monotonic() - begun < 15
    until(lambda: not alive(pid_in(pid)), 5)
    assert transport.run(["echo", "on"]).out == "on\n"


def test_interrupt_as_a_user_presses_it(tmp_path: Path, server: Sshd) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(f"""
        from fleet.hosts.fan import each
        from fleet.hosts.ssh import SSH
        hosts = [SSH(n, address="127.0.0.1", port={server.port}, user="root", identity={str(server.key)!r},
                     known_hosts={str(server.known_hosts)!r}) for n in ("a", "b")]
        script = 'echo $$ >"$0"; exec sleep 120'
        each(hosts, lambda h: h.run(["sh", "-c", script, {str(tmp_path)!r} + "/" + h.name], timeout=100), timeout=100)
        """)
    )
    root = Path(__file__).parents[2]
    process = subprocess.Popen([sys.executable, str(program)], cwd=root, env={**os.environ, "PYTHONPATH": str(root)})
    pids = [pid_in(tmp_path / "a"), pid_in(tmp_path / "b")]
    process.send_signal(signal.SIGINT)
    assert process.wait(15) != 0
    until(lambda: not any(map(alive, pids)), 5)


def test_cancel_ends_every_call(tmp_path: Path, host: Host) -> None:
    transport, seen = host(), []

    def work(path: Path) -> None:
        try:
            transport.run(sleeper(path), timeout=100)
        except Interrupted as problem:
            seen.append(problem)

    threads = [threading.Thread(target=work, args=(tmp_path / f"{i}",)) for i in range(3)]
    for thread in threads:
        thread.start()
    pids = [pid_in(tmp_path / f"{i}") for i in range(3)]
    transport.cancel()
    for thread in threads:
        thread.join(15)
    assert len(seen) == 3
    until(lambda: not any(map(alive, pids)), 5)
    assert transport.run(["echo", "on"]).out == "on\n"


# ---------------------------------------------------------------------------- streams


def test_stream_moves_much_and_holds_nothing(host: Host) -> None:
    total = 0

    def sink(data: bytes) -> None:
        nonlocal total
        total += len(data)

    outcome = host().stream(["cat"], timeout=60, source=(b"x" * 65536 for _ in range(320)), sink=sink)
    assert (total, outcome.stdout) == (320 * 65536, b"")


def test_a_slow_sink_slows_the_command(tmp_path: Path, host: Host) -> None:
    """While the sink stands still the command's output does, too: it is not gathered here."""
    written, go, seen = tmp_path / "written", threading.Event(), threading.Event()
    script = 'i=0; while [ $i -lt 400 ]; do head -c 65536 /dev/zero; i=$((i+1)); echo $i >"$0"; done'

    def sink(_: bytes) -> None:
        seen.set()
        go.wait(30)

    outcome: list[Outcome] = []
    transport = host()
    argv = ["sh", "-c", script, str(written)]
    thread = threading.Thread(target=lambda: outcome.append(transport.stream(argv, timeout=60, sink=sink)))
    thread.start()
    assert seen.wait(20)
    until(written.exists, 20)
    until(lambda: stands_still(written), 20)
    assert int(written.read_text() or 0) < 200
    go.set()
    thread.join(60)
    assert outcome[0].code == 0
    assert written.read_text() == "400\n"


def stands_still(path: Path) -> bool:
    before = path.read_text()
    time.sleep(0.5)
    return before != "" and before == path.read_text()


def test_a_fault_of_the_source_or_the_sink_ends_the_command(tmp_path: Path, host: Host) -> None:
    def broken() -> Iterator[bytes]:
        yield b"one"
        pid_in(tmp_path / "a")
        raise OSError("disk gone")

    def full(_: bytes) -> None:
        raise OSError("disk full")

    keep = 'echo $$ >"$0"; echo up; cat; exec sleep 120'
    with pytest.raises(OSError, match="disk gone"):
        host().stream(["sh", "-c", keep, str(tmp_path / "a")], timeout=60, source=broken())
    with pytest.raises(OSError, match="disk full"):
        host().stream(["sh", "-c", keep, str(tmp_path / "b")], timeout=60, sink=full)
    until(lambda: not alive(pid_in(tmp_path / "a")) and not alive(pid_in(tmp_path / "b")), 5)


def test_a_source_that_fails_at_once_leaves_no_command_behind(tmp_path: Path, host: Host) -> None:
    def broken() -> Iterator[bytes]:
        raise OSError("disk gone")
        yield b""

    def running() -> list[Path]:
        return [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in whole(path)]

    def whole(path: Path) -> bytes:
        with contextlib.suppress(OSError):
            return path.read_bytes()
        return b""

    machine = host()
    with pytest.raises(OSError, match="disk gone"):
        machine.stream(["sh", "-c", "sleep 120; true", str(tmp_path)], timeout=60, source=broken())
    machine.run(["true"])  # sshd takes one command after the other: the first one was started
    until(lambda: not running(), 5)


# ---------------------------------------------------------------------------- files


def test_put_is_whole_and_has_its_mode(tmp_path: Path, host: Host) -> None:
    data, path = os.urandom(2_000_000), tmp_path / "a 'b' $c"
    path.write_bytes(b"old")
    host().put(data, str(path), mode=0o600)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (data, 0o600)
    host().put(b"", str(path), mode=0o755)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"", 0o755)
    assert [entry.name for entry in tmp_path.iterdir() if "tmp" in entry.name] == []


def test_put_that_fails_leaves_nothing(tmp_path: Path, host: Host) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(CommandFailed):
        host().put(b"data", str(tmp_path / "folder"))
    with pytest.raises(CommandFailed):
        host().put(b"data", str(tmp_path / "missing/file"))
    assert list((tmp_path / "folder").iterdir()) == []
    assert [entry.name for entry in tmp_path.iterdir() if "tmp" in entry.name] == []


def test_put_that_is_cut_leaves_the_old_file(tmp_path: Path, host: Host) -> None:
    """sshd ends the stdin of a command whose connection broke, as if all of it had arrived."""
    with sshd.running(tmp_path / "sshd") as other:
        path, transport = tmp_path / "file", host(other)
        path.write_bytes(b"old")
        transport.run(["true"])
        problems: list[BaseException] = []

        def work() -> None:
            try:
                transport.put(b"x" * 100_000_000, str(path), timeout=60)
            except HostError as problem:
                problems.append(problem)

        thread = threading.Thread(target=work)
        thread.start()
        until(lambda: any(entry.stat().st_size > 0 for entry in tmp_path.glob("file.tmp.*")), 20)
        other.cut_sessions()
        thread.join(30)
        assert [type(problem) for problem in problems] == [Unreachable]
        until(lambda: not list(tmp_path.glob("file.tmp.*")), 10)
        assert path.read_bytes() == b"old"
        transport.close()


def test_get_is_a_tar_stream(tmp_path: Path, host: Host) -> None:
    source = tmp_path / "-logs ü"
    source.mkdir()
    (source / "one").write_bytes(b"\x00\xff" * 1_000_000)
    (source / "link").symlink_to("/etc/passwd")
    sink = io.BytesIO()
    host().get(str(source), sink)
    with tarfile.open(fileobj=io.BytesIO(sink.getvalue())) as archive:
        assert sorted(archive.getnames()) == ["-logs ü", "-logs ü/link", "-logs ü/one"]
    fetch_tree(host(), str(source), tmp_path / "got", timeout=30)
    assert [path.name for path in (tmp_path / "got").iterdir()] == ["one"]
    with pytest.raises(CommandFailed, match="No such file"):
        host().get(str(tmp_path / "missing"), io.BytesIO())


# ---------------------------------------------------------------------------- connections


def test_twenty_threads_on_a_fresh_transport(tmp_path: Path, host: Host) -> None:
    """sshd takes ten channels on one connection (MaxSessions): more need further connections."""
    with sshd.running(tmp_path / "sshd", extra="MaxStartups 100") as other:
        transport = host(other)
        together, outcomes = threading.Barrier(20, timeout=20), []

        def work(number: int) -> None:
            together.wait()
            outcomes.append(transport.run(["sh", "-c", f"sleep 0.5; echo {number}"], timeout=60).out.strip())

        threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(outcomes, key=int) == [str(number) for number in range(20)]
        assert other.sessions() <= 3
        transport.close()


def test_one_connection_serves_many_calls(tmp_path: Path, host: Host) -> None:
    with sshd.running(tmp_path / "sshd") as other:
        transport = host(other)
        for _ in range(15):
            transport.run(["true"])
        assert other.sessions() == 1
        transport.close()
        until(lambda: other.sessions() == 0, 10)
        assert transport.run(["echo", "again"]).out == "again\n"
        transport.close()


def test_a_server_that_takes_one_channel_a_connection(tmp_path: Path, host: Host) -> None:
    with sshd.running(tmp_path / "sshd", extra="MaxSessions 1") as other:
        transport = host(other)
        results = {}

        def work(number: int) -> None:
            results[number] = transport.run(["sh", "-c", f"sleep 0.5; echo {number}"], timeout=60).out

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert results == {number: f"{number}\n" for number in range(4)}
        transport.close()


def test_a_refusal_whose_reason_another_thread_took_is_one_all_the_same(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_session(*_: object, **__: object) -> paramiko.Channel:
        raise paramiko.SSHException("Unable to open channel.")

    monkeypatch.setattr(paramiko.Transport, "open_session", open_session)
    with pytest.raises(Unreachable, match="sshd opens no session: refused"):
        host().run(["true"], timeout=20)


def test_a_server_that_takes_no_channel(tmp_path: Path, host: Host) -> None:
    with (
        sshd.running(tmp_path / "sshd", extra="MaxSessions 0") as other,
        pytest.raises(Unreachable, match="sshd opens no session"),
    ):
        host(other).run(["true"], timeout=20)


def test_a_lost_connection_is_opened_again(tmp_path: Path, host: Host) -> None:
    with sshd.running(tmp_path / "sshd") as other:
        transport = host(other)
        transport.run(["true"])
        other.cut_sessions()
        until(lambda: other.sessions() == 0, 10)
        assert transport.run(["echo", "back"]).out == "back\n"
        transport.close()


def test_connections_from_before_a_pause_are_not_used_again(
    tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be dead without a word; what runs on one is left to its end."""
    with sshd.running(tmp_path / "sshd") as other:
        transport = host(other)
        transport.run(["true"])
        (before,) = transport._links
        monkeypatch.setattr(awake.CLOCK, "pauses", awake.pauses() + 1)
        assert transport.run(["echo", "back"]).out == "back\n"
        (after,) = transport._links
        assert after is not before
        until(lambda: other.sessions() == 1, 10)
        transport.close()


def test_a_command_that_was_started_is_not_started_twice(tmp_path: Path, host: Host) -> None:
    with sshd.running(tmp_path / "sshd") as other:
        transport, count = host(other), tmp_path / "count"
        script = 'echo x >>"$0"; echo up; sleep 60'
        with pytest.raises(Unreachable, match=r"connection was lost during .* it may have done its work"):
            transport.stream(["sh", "-c", script, str(count)], timeout=60, sink=lambda _: other.cut_sessions())
        assert transport.run(["echo", "back"]).out == "back\n"
        assert count.read_text() == "x\n"
        transport.close()


def test_a_server_that_is_gone_is_told_as_such(tmp_path: Path, host: Host) -> None:
    with sshd.running(tmp_path / "sshd") as other:
        transport = host(other)
        transport.run(["true"])
    with pytest.raises(Unreachable) as caught:
        transport.run(["true"])
    assert caught.value.what == f"connection refused at 127.0.0.1:{other.port} as root"
    assert caught.value.hint == f"try:  {transport.ssh_line(['true'])}"


def test_one_silent_host_is_one_result(host: Host) -> None:
    with silent_port() as port:
        silent = SSH("silent", address="127.0.0.1", port=port, user="root", connect_timeout=30)
        begun = time.monotonic()
        results = each([host(), silent], lambda one: one.run(["echo", one.name]).out, timeout=2)
        assert time.monotonic() - begun < 6
    assert results["n1"] == "n1\n"
    assert isinstance(results["silent"], Unreachable)


def test_nothing_is_written_to_stderr(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """paramiko logs tracebacks of its threads; Python prints them where no handler is set."""
    with silent_port() as port:
        code = textwrap.dedent(f"""
        from fleet.errors import Unreachable
        from fleet.hosts.ssh import SSH
        try:
            SSH("n1", address="127.0.0.1", port={port}, user="root", connect_timeout=1).run(["true"], timeout=10)
        except Unreachable:
            print("told")
        """)
        root = Path(__file__).parents[2]
        done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("told\n", "")
    assert not logging.getLogger("paramiko").propagate


# ---------------------------------------------------------------------------- host keys


def test_an_unknown_key_is_refused_whatever_ssh_config_says(tmp_path: Path, host: Host, server: Sshd) -> None:
    config = tmp_path / "config"
    config.write_text("Host *\n  StrictHostKeyChecking no\n")
    empty = tmp_path / "empty"
    with pytest.raises(HostKeyError) as caught:
        host(known_hosts=str(empty), ssh_config=str(config)).run(["true"])
    shown = subprocess.run(
        ["ssh-keygen", "-lf", str(server.folder / "hostkey.pub")], capture_output=True, text=True, timeout=10
    ).stdout.split()[1]
    assert caught.value.where == "n1"
    assert f"the host key is unknown: no key of [127.0.0.1]:{server.port} in {empty}" in caught.value.what
    assert shown in caught.value.what
    assert caught.value.hint == "compare the fingerprint with the host's own, then:  invoke trust --limit n1"
    assert not empty.exists()


def test_a_changed_key_is_refused(tmp_path: Path, host: Host, server: Sshd) -> None:
    with sshd.running(tmp_path / "sshd") as other:
        label = f"[127.0.0.1]:{server.port}"
        wrong = tmp_path / "known_hosts"
        wrong.write_text(f"# comment\n{label} {' '.join((other.folder / 'hostkey.pub').read_text().split()[:2])}\n")
        with pytest.raises(HostKeyError, match=f"the host key has changed: .* on record at {wrong}:2") as caught:
            host(known_hosts=str(wrong)).run(["true"])
        assert caught.value.hint.endswith("invoke trust --limit n1")


def test_a_changed_key_of_the_operators_own_file(home: Path, host: Host, server: Sshd) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / "k")], check=True, timeout=20)
    (home / ".ssh/known_hosts").write_text(f"[127.0.0.1]:{server.port} {(home / 'k.pub').read_text()}")
    with pytest.raises(HostKeyError, match="the host key has changed") as caught:
        host(known_hosts=None).run(["true"])
    assert caught.value.hint.endswith("invoke trust --limit n1")


def test_a_key_of_another_kind_on_record_is_a_changed_key(tmp_path: Path, host: Host, server: Sshd) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", str(tmp_path / "ec")], check=True, timeout=20)
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{server.port} {(tmp_path / 'ec.pub').read_text()}")
    with pytest.raises(HostKeyError, match="no key of the kind on record") as caught:
        host(known_hosts=str(known)).run(["true"])
    assert caught.value.hint.endswith("invoke trust --limit n1")


def test_the_kind_on_record_is_asked_for(tmp_path: Path, host: Host) -> None:
    rsa = tmp_path / "rsa"
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", str(rsa)], check=True, timeout=60)
    with sshd.running(tmp_path / "sshd", extra=f"HostKey {rsa}") as other:
        known = tmp_path / "known_hosts"
        known.write_text(f"[127.0.0.1]:{other.port} {(tmp_path / 'rsa.pub').read_text()}")
        transport = host(other, known_hosts=str(known))
        assert transport.run(["echo", "hi"]).out == "hi\n"
        transport.close()


def test_known_hosts_of_the_operator_hashed_too(home: Path, host: Host, server: Sshd) -> None:
    known = home / ".ssh/known_hosts"
    known.write_text(server.known_hosts.read_text())
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known)], check=True, timeout=10, capture_output=True)
    assert known.read_text().startswith("|1|")
    assert host(known_hosts=None).run(["echo", "hi"]).out == "hi\n"


def test_a_revoked_key_is_refused(tmp_path: Path, host: Host, server: Sshd) -> None:
    known = tmp_path / "known_hosts"
    line = server.known_hosts.read_text()
    known.write_text(f"{line}@revoked {line}")
    with pytest.raises(HostKeyError, match="revoked") as caught:
        host(known_hosts=str(known)).run(["true"])
    assert "trust" not in caught.value.hint


# ---------------------------------------------------------------------------- login


def test_a_refused_login_names_the_keys(tmp_path: Path, host: Host, server: Sshd) -> None:
    other = sshd.keygen(tmp_path / "other")
    with pytest.raises(LoginError) as caught:
        host(identity=str(other)).run(["true"])
    at = f"127.0.0.1:{server.port} as root"
    assert caught.value.what == f"login refused at {at}: authentication failed; keys tried: {other}"
    (tmp_path / "garbage").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nnot a key\n")
    with pytest.raises(LoginError, match=r"login refused at .*: invalid key; keys tried: .*garbage"):
        host(identity=str(tmp_path / "garbage")).run(["true"])
    with pytest.raises(LoginError, match="no such identity file: /nowhere/key"):
        host(identity="/nowhere/key").run(["true"])
    with pytest.raises(LoginError, match=r"keys tried: the keys in ~/.ssh"):
        host(identity=None).run(["true"])


def test_files_that_change_are_read_anew(tmp_path: Path, host: Host, server: Sshd) -> None:
    identity, known = tmp_path / "key", tmp_path / "known_hosts"
    identity.write_bytes(server.key.read_bytes())
    identity.chmod(0o600)
    known.write_text(server.known_hosts.read_text())

    def said() -> str:
        return host(identity=str(identity), known_hosts=str(known)).run(["echo", "hi"]).out

    assert said() == "hi\n"
    identity.write_bytes(sshd.keygen(tmp_path / "other").read_bytes())
    with pytest.raises(LoginError, match="login refused"):
        said()
    identity.write_bytes(server.key.read_bytes())
    known.write_text("")
    with pytest.raises(HostKeyError, match="the host key is unknown"):
        said()


def test_an_agent_that_does_not_answer_is_left_out(tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(tmp_path / "agent"))
        agent.listen(5)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        begun = time.monotonic()
        with pytest.raises(LoginError, match="SSH_AUTH_SOCK does not answer"):
            host(identity=None).run(["true"])
        assert time.monotonic() - begun < 15


def test_a_locked_key_comes_from_the_agent(
    tmp_path: Path, host: Host, server: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(tmp_path / "agent")], stdout=subprocess.DEVNULL)
    try:
        until((tmp_path / "agent").exists, 10)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        subprocess.run(["ssh-add", "-q", str(server.key)], check=True, timeout=10, capture_output=True)
        locked = tmp_path / "locked"
        locked.write_bytes(server.key.read_bytes())
        locked.chmod(0o600)
        change = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", str(locked)]
        subprocess.run(change, check=True, timeout=10, capture_output=True)
        assert host(identity=str(locked)).run(["echo", "hi"]).out == "hi\n"
    finally:
        agent.terminate()
        agent.wait(5)


def test_an_unknown_name() -> None:
    with pytest.raises(Unreachable, match=r"n1: name unknown: no-such-host\.invalid"):
        SSH("n1", address="no-such-host.invalid", user="root").run(["true"], timeout=30)


# ---------------------------------------------------------------------------- ssh_config, gateways, the line to type


def write_config(path: Path, server: Sshd, *more: str) -> Path:
    path.write_text(
        "\n".join(
            [
                "Host n1",
                "  HostName 127.0.0.1",
                f"  Port {server.port}",
                "  User root",
                f"  IdentityFile {server.key}",
                f"  UserKnownHostsFile {server.known_hosts}",
                *more,
                "",
            ]
        )
    )
    return path


def test_an_alias_of_a_given_ssh_config(tmp_path: Path, server: Sshd) -> None:
    config = write_config(tmp_path / "config", server)
    transport = SSH("n1", ssh_config=str(config))
    assert transport.run(["echo", "hi"]).out == "hi\n"
    assert str(transport.route) == f"127.0.0.1:{server.port} as root"
    assert transport.ssh_line(["docker", "ps"]) == f"ssh -F {config} n1 'docker ps'"
    transport.close()


def test_an_alias_of_the_operators_ssh_config_with_include(home: Path, server: Sshd) -> None:
    (home / ".ssh/config.d").mkdir()
    write_config(home / ".ssh/config.d/lab", server)
    (home / ".ssh/config").write_text("Include config.d/*\nUser nobody\n")
    transport = SSH("first", address="n1")
    assert transport.run(["whoami"]).out == "root\n"
    assert transport.ssh_line(["true"]) == "ssh n1 true"
    transport.close()


def test_given_values_win(tmp_path: Path, server: Sshd) -> None:
    config = write_config(tmp_path / "config", server)
    transport = SSH("n1", ssh_config=str(config), user="amd", port=2222, identity=str(server.key))
    assert str(transport.route) == "127.0.0.1:2222 as amd"
    assert transport.route.identities == (str(server.key),)
    assert transport.ssh_line(["true"]) == f"ssh -F {config} -i {server.key} -p 2222 amd@n1 true"


def test_a_missing_ssh_config_is_told() -> None:
    with pytest.raises(HostError, match="n1: no such ssh_config file: /nowhere/config"):
        SSH("n1", ssh_config="/nowhere/config").run(["true"])


def test_the_line_to_type_for_an_address() -> None:
    assert SSH("n1", address="10.0.0.13", user="amd").ssh_line(["true"]) == "ssh -p 22 amd@10.0.0.13 true"
    behind = SSH("n1", address="10.0.0.13", user="amd", gateway="ops@bastion:2200")
    assert behind.ssh_line(["true"]) == "ssh -J ops@bastion:2200 -p 22 amd@10.0.0.13 true"


def test_the_line_to_type_does_the_same(tmp_path: Path, host: Host, home: Path) -> None:
    with sshd.running(tmp_path / "gate") as gate:
        both = tmp_path / "known_hosts"
        server = host().route.port
        both.write_text(gate.known_hosts.read_text() + Path(host().route.known_hosts[0]).read_text())
        (gate.folder / "key.pub").write_text(Path(f"{host().route.identities[0]}.pub").read_text())
        transport = host(known_hosts=str(both), gateway=f"root@127.0.0.1:{gate.port}")
        assert transport.run(["echo", "a b"]).out == "a b\n"
        line = transport.ssh_line(["echo", "a  b", "$HOME"])
        assert f"-p {server} root@127.0.0.1" in line
        words = shlex.split(line)
        words[1:1] = ["-o", "BatchMode=yes"]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
        assert (done.returncode, done.stdout) == (0, "a  b $HOME\n")
        transport.close()


def test_a_gateway_is_opened_once_and_closed_after_the_last_host(tmp_path: Path, server: Sshd) -> None:
    with sshd.running(tmp_path / "gate") as gate:
        config = write_config(
            tmp_path / "config",
            server,
            "  ProxyJump gate",
            "Host gate",
            "  HostName 127.0.0.1",
            f"  Port {gate.port}",
            "  User root",
            f"  IdentityFile {gate.key}",
            f"  UserKnownHostsFile {gate.known_hosts}",
        )
        hosts = [SSH(f"h{i}", address="n1", ssh_config=str(config)) for i in range(5)]
        results = each(hosts, lambda one: one.run(["echo", one.name]).out, timeout=60)
        assert results == {f"h{i}": f"h{i}\n" for i in range(5)}
        assert gate.sessions() == 1
        for one in hosts[1:]:
            one.close()
        assert hosts[0].run(["echo", "on"]).out == "on\n"
        hosts[0].close()
        until(lambda: gate.sessions() == 0, 10)


def test_faults_at_and_behind_the_gateway(tmp_path: Path, server: Sshd) -> None:
    with sshd.running(tmp_path / "gate") as gate, silent_port() as silent:
        common = {"user": "root", "identity": str(gate.key), "known_hosts": str(gate.known_hosts)}
        gateway = f"root@127.0.0.1:{gate.port}"
        closed = free_ports()
        with pytest.raises(Unreachable, match=f"n1: gateway 127.0.0.1: cannot reach 127.0.0.1:{closed} from there"):
            SSH("n1", address="127.0.0.1", port=closed, gateway=gateway, **common).run(["true"], timeout=20)
        with pytest.raises(Unreachable, match="no SSH banner"):
            SSH("n1", address="127.0.0.1", port=silent, gateway=gateway, connect_timeout=1, **common).run(
                ["true"], timeout=20
            )
        with pytest.raises(HostKeyError, match=r"n1: gateway 127.0.0.1: the host key is unknown"):
            SSH("n1", address="10.0.0.1", gateway=f"root@127.0.0.1:{server.port}", **common).run(["true"], timeout=20)
    with pytest.raises(Unreachable, match=r"n1: gateway 127.0.0.1: connection refused"):
        SSH("n1", address="10.0.0.1", gateway=gateway, **common).run(["true"], timeout=20)
