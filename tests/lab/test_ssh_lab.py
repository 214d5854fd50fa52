"""SSH to real nodes with real faults: what a cable, a frozen kernel or a killed sshd does to a call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from fleet.errors import CommandFailed, CommandTimeout, HostError, HostKeyError, Unreachable
from fleet.hosts.fan import each
from fleet.hosts.ssh import SSH
from fleet.lab.lab import Lab
from tests.sshd import until

pytestmark = pytest.mark.lab

Fault = Callable[..., None]
Make = Callable[..., SSH]


@pytest.fixture
def ssh(lab: Lab) -> Iterator[Make]:
    made: list[SSH] = []

    def make(node: str, **changes: object) -> SSH:
        given = {"ssh_config": str(lab.ssh_config), "connect_timeout": 2.0}
        made.append(SSH(node, **{**given, **changes}))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for transport in made:
        transport.close()


def running(lab: Lab, node: str, pattern: str) -> list[str]:
    """The processes of a node whose command line is exactly this, seen without ssh."""
    return lab.inside(node, ["pgrep", "-xf", pattern]).stdout.decode().split()


def took(begun: float) -> float:
    return time.monotonic() - begun


def test_nodes_answer_by_their_aliases(lab: Lab, ssh: Make) -> None:
    hosts = [ssh(node) for node in lab.nodes()]
    results = each(hosts, lambda host: host.run(["hostname"]).out.strip(), timeout=20)
    assert results == {node: node for node in lab.nodes()}


def test_an_address_with_everything_given(lab: Lab, ssh: Make, tmp_path: object) -> None:
    host = SSH(
        "anything", address=lab.address("node2"), user="ops", identity=str(lab.key), known_hosts=str(lab.known_hosts)
    )
    assert host.run(["hostname"]).out == "node2\n"
    host.close()


def test_a_cable_cut_before_connecting(lab: Lab, ssh: Make, healed: Fault) -> None:
    healed("cut", "node1")
    hosts = [ssh(node) for node in ("node1", "node2")]
    begun = time.monotonic()
    results = each(hosts, lambda host: host.run(["true"]).code, timeout=10)
    assert took(begun) < 8
    gone = results["node1"]
    assert isinstance(gone, Unreachable)
    assert f"at {lab.address('node1')}:22 as ops" in gone.what
    assert gone.hint == f"try:  ssh -F {lab.ssh_config} node1 true"
    assert results["node2"] == 0


def test_a_cable_cut_under_an_open_connection(lab: Lab, ssh: Make, healed: Fault) -> None:
    """Opening a channel has an end, too: Fabric's would come back as a success once the cable is back."""
    host = ssh("node1")
    host.run(["true"])
    healed("cut", "node1")
    begun = time.monotonic()
    with pytest.raises(Unreachable):
        host.run(["true"], timeout=3)
    assert took(begun) < 8
    lab.heal("node1")
    assert host.run(["echo", "back"], timeout=30).out == "back\n"


def test_a_cable_cut_during_a_command(lab: Lab, ssh: Make, healed: Fault) -> None:
    """The call ends at its deadline here, and the command ends there, although nothing can be told to it."""
    host = ssh("node1")
    begun = time.monotonic()
    with pytest.raises(CommandTimeout, match="may be running still"):
        host.stream(["sh", "-c", "echo up; exec sleep 4242"], timeout=4, sink=lambda _: healed("cut", "node1"))
    assert 4 <= took(begun) < 9
    until(lambda: not running(lab, "node1", "sleep 4242"), 12)
    lab.heal("node1")
    assert host.run(["echo", "back"], timeout=30).out == "back\n"


def test_a_host_that_falls_silent_is_lost_long_before_the_deadline(lab: Lab, ssh: Make, healed: Fault) -> None:
    host = ssh("node1")
    begun = time.monotonic()
    with pytest.raises(Unreachable, match="the connection was lost during `sh -c"):
        host.stream(["sh", "-c", "echo up; exec sleep 60"], timeout=60, sink=lambda _: healed("cut", "node1"))
    assert 14 <= took(begun) < 25


def test_a_cable_cut_during_an_upload_leaves_the_old_file(lab: Lab, ssh: Make, healed: Fault) -> None:
    host = ssh("node1")
    host.put(b"old", "/tmp/cut-file")
    healed("rate", "node1", 20)
    problems: list[BaseException] = []

    def upload() -> None:
        try:
            host.put(b"x" * 50_000_000, "/tmp/cut-file", timeout=6)
        except HostError as problem:
            problems.append(problem)

    thread = threading.Thread(target=upload)
    begun = time.monotonic()
    thread.start()
    until(lambda: lab.inside("node1", ["sh", "-c", "test -s /tmp/cut-file.tmp.*"]).returncode == 0, 15)
    healed("cut", "node1")
    thread.join(30)
    assert took(begun) < 15
    assert [type(problem) for problem in problems] == [CommandTimeout]
    until(lambda: lab.inside("node1", ["sh", "-c", "ls /tmp/cut-file.tmp.*"]).returncode != 0, 15)
    assert lab.inside("node1", ["cat", "/tmp/cut-file"]).stdout == b"old"


def test_refused(lab: Lab, ssh: Make, healed: Fault) -> None:
    healed("refuse", "node1")
    begun = time.monotonic()
    with pytest.raises(Unreachable) as caught:
        ssh("node1").run(["true"])
    assert took(begun) < 2
    assert str(caught.value).startswith(f"node1: connection refused at {lab.address('node1')}:22 as ops\ntry:  ssh ")


def test_a_frozen_node(lab: Lab, ssh: Make, healed: Fault) -> None:
    fresh, open_ = ssh("node1"), ssh("node1")
    open_.run(["true"])
    healed("freeze", "node1")
    with pytest.raises(Unreachable, match="no SSH banner within 2 s"):
        fresh.run(["true"], timeout=20)
    begun = time.monotonic()
    with pytest.raises(Unreachable):
        open_.run(["true"], timeout=3)
    assert took(begun) < 8
    lab.heal("node1")
    assert open_.run(["echo", "back"], timeout=30).out == "back\n"


def test_sshd_killed_with_its_sessions(lab: Lab, ssh: Make, healed: Fault) -> None:
    """The command lives on when its session is killed: only its own bound ends it."""
    host = ssh("node1")
    begun = time.monotonic()
    with pytest.raises(Unreachable, match="the connection was lost during"):
        host.stream(
            ["sh", "-c", "echo up; exec sleep 4243"], timeout=8, sink=lambda _: healed("kill-sshd", "node1", "sessions")
        )
    assert took(begun) < 7
    with pytest.raises(Unreachable, match="connection refused"):
        host.run(["true"])
    assert running(lab, "node1", "sleep 4243") != []
    until(lambda: not running(lab, "node1", "sleep 4243"), 15)
    lab.heal("node1")
    assert host.run(["echo", "back"]).out == "back\n"


def test_sshd_killed_without_its_sessions(ssh: Make, healed: Fault) -> None:
    host = ssh("node1")
    host.run(["true"])
    healed("kill-sshd", "node1")
    assert host.run(["echo", "still here"]).out == "still here\n"


def test_a_swapped_host_key(ssh: Make, healed: Fault) -> None:
    healed("swap-hostkey", "node1")
    with pytest.raises(HostKeyError, match="the host key has changed"):
        ssh("node1").run(["true"])


def test_through_a_gateway(lab: Lab, ssh: Make, healed: Fault) -> None:
    behind = ssh("node2", gateway="node1")
    came_from = behind.run(["sh", "-c", "echo $SSH_CONNECTION"]).out.split()[0]
    assert came_from == lab.address("node1")
    assert behind.ssh_line(["true"]) == f"ssh -F {lab.ssh_config} -J node1 node2 true"
    healed("cut", "node1")
    begun = time.monotonic()
    with pytest.raises(HostError):
        behind.run(["true"], timeout=4)
    with pytest.raises(Unreachable, match="node3: gateway node1: "):
        ssh("node3", gateway="node1").run(["true"], timeout=20)
    assert took(begun) < 25
    lab.heal("node1")
    assert behind.run(["hostname"], timeout=30).out == "node2\n"


def test_a_host_behind_the_gateway_that_is_cut(ssh: Make, healed: Fault) -> None:
    healed("cut", "node2")
    with pytest.raises(Unreachable, match="node2: gateway node1: "):
        ssh("node2", gateway="node1").run(["true"], timeout=20)
    assert ssh("node3", gateway="node1").run(["hostname"], timeout=20).out == "node3\n"


def test_sudo_without_a_password(ssh: Make) -> None:
    nodock, sudopw = ssh("node1", user="nodock"), ssh("node1", user="sudopw")
    argv = ["docker", "version", "--format", "{{.Server.Os}}"]
    with pytest.raises(CommandFailed, match="permission denied"):
        nodock.run(argv)
    assert nodock.run(["sudo", "-n", *argv]).out == "linux\n"
    with pytest.raises(CommandFailed, match="a password is required"):
        sudopw.run(["sudo", "-n", *argv])


def test_a_timeout_under_sudo(lab: Lab, ssh: Make) -> None:
    """The login user may not signal root's docker; sudo passes the signal on."""
    host, seen = ssh("node1", user="nodock"), threading.Event()
    line = "docker events --filter label=never"

    def look() -> None:
        until(lambda: running(lab, "node1", line), 10)
        seen.set()

    watcher = threading.Thread(target=look)
    watcher.start()
    begun = time.monotonic()
    with pytest.raises(CommandTimeout):
        host.run(["sudo", "-n", *line.split()], timeout=4)
    assert took(begun) < 8
    watcher.join(15)
    assert seen.is_set()
    until(lambda: not running(lab, "node1", line), 15)
