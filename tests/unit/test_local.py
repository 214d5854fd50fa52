import os
import signal
import stat
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fleet.errors import CommandFailed, CommandTimeout, Interrupted
from fleet.hosts.base import Transport
from fleet.hosts.local import Local
from tests.sshd import until

ODD = ["", "a b", "'", '"', "$HOME", "`id`", "new\nline", "über 雪", "-n", "*", "a\\b", "!x"]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pid_in(path: Path) -> int:
    until(lambda: path.exists() and path.read_text().strip(), 10)
    return int(path.read_text())


def test_it_is_a_transport() -> None:
    host: Transport = Local()
    assert host.run(["echo", "hi"]).out == "hi\n"


def test_arguments_arrive_as_they_are() -> None:
    assert Local().run(["printf", r"%s\0", *ODD]).stdout == b"".join(word.encode() + b"\0" for word in ODD)


def test_bytes_go_in_and_come_out_without_a_deadlock() -> None:
    data = os.urandom(3_000_000)
    outcome = Local().run(["sh", "-c", "tee /dev/stderr"], stdin=data)
    assert (outcome.stdout, outcome.stderr) == (data, data)


def test_stdin_is_at_its_end_unless_it_is_fed() -> None:
    assert Local().run(["cat"], timeout=10).stdout == b""


def test_a_command_that_does_not_read_its_stdin_is_fine() -> None:
    assert Local().run(["true"], stdin=b"x" * 1_000_000).code == 0


def test_codes() -> None:
    host = Local()
    assert host.run(["sh", "-c", "exit 3"], check=False).code == 3
    assert host.run(["sh", "-c", "kill -9 $$"], check=False).code == 137
    assert host.run(["no-such-command-here"], check=False).code == 127
    with pytest.raises(CommandFailed, match=r"(?s)local: .*ended with code 3\n  why"):
        host.run(["sh", "-c", "echo why >&2; exit 3"])


def test_a_timeout_ends_the_whole_group(tmp_path: Path) -> None:
    script = f"sleep 60 & echo $! >{tmp_path}/pid; wait"
    begun = time.monotonic()
    with pytest.raises(CommandTimeout, match="did not end within 1 s"):
        Local().run(["sh", "-c", script], timeout=1)
    assert 1 <= time.monotonic() - begun < 5
    until(lambda: not alive(pid_in(tmp_path / "pid")), 5)


def test_cancel_ends_a_command(tmp_path: Path) -> None:
    host, seen = Local(), []

    def work() -> None:
        try:
            host.run(["sh", "-c", f"echo $$ >{tmp_path}/pid; exec sleep 60"], timeout=60)
        except Interrupted as problem:
            seen.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    pid = pid_in(tmp_path / "pid")
    host.cancel()
    thread.join(10)
    assert len(seen) == 1
    until(lambda: not alive(pid), 5)


def test_a_cancel_while_the_process_starts_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    host, cancels = Local(), []

    class Slow(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            cancels.append(threading.Thread(target=host.cancel))
            cancels[0].start()
            cancels[0].join(0.2)

    monkeypatch.setattr(subprocess, "Popen", Slow)
    with pytest.raises(Interrupted):
        host.run(["sleep", "60"], timeout=20)
    cancels[0].join()


def test_interrupt_ends_a_command(tmp_path: Path) -> None:
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        Local().run(["sh", "-c", f"echo $$ >{tmp_path}/pid; exec sleep 60"], timeout=60)
    until(lambda: not alive(pid_in(tmp_path / "pid")), 5)


def test_stream_holds_nothing_back_and_keeps_nothing() -> None:
    total = 0

    def sink(data: bytes) -> None:
        nonlocal total
        total += len(data)

    outcome = Local().stream(["cat"], timeout=30, source=(b"x" * 65536 for _ in range(200)), sink=sink)
    assert (total, outcome.stdout) == (200 * 65536, b"")


def test_a_fault_of_the_source_or_the_sink_is_raised() -> None:
    def broken() -> object:
        yield b"one"
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        Local().stream(["cat"], timeout=10, source=broken())  # type: ignore[arg-type]

    def full(_: bytes) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        Local().stream(["yes"], timeout=10, sink=full)


def test_put_is_whole_and_has_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    Local().put(b"\x00\xff", str(path), mode=0o600)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"\x00\xff", 0o600)
    with pytest.raises(CommandFailed, match="cannot write"):
        Local().put(b"", str(tmp_path / "missing/x"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["secret"]


def test_the_line_to_type_is_the_command() -> None:
    assert Local().ssh_line(["docker", "ps", "a b"]) == "docker ps 'a b'"
