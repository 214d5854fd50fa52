"""The lab itself: what its nodes are, what its faults do, what `up` mends and what `down` leaves."""

from __future__ import annotations

import hashlib
import io
import ipaddress
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fleet.errors import LabError, UsageError
from fleet.lab import process, weights
from fleet.lab.lab import Lab, mounts_under
from fleet.lab.network import HERE, is_namespace
from fleet.lab.node import loops

pytestmark = pytest.mark.lab

Fault = Callable[..., None]
BUSYBOX = "fleet-test/busybox:1"


def ssh(lab: Lab, node: str, *argv: str, user: str = "ops", connect: int = 5) -> subprocess.CompletedProcess[str]:
    """OpenSSH itself, as an operator would type it."""
    line = ["/usr/bin/ssh", "-F", str(lab.ssh_config), "-o", f"ConnectTimeout={connect}", "-l", user, node, *argv]
    return subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)


def said(lab: Lab, node: str, *argv: str, user: str = "ops") -> str:
    done = ssh(lab, node, *argv, user=user)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# ---------------------------------------------------------------------- what a node is


def test_an_operator_logs_in_with_strict_host_keys(lab: Lab) -> None:
    assert "StrictHostKeyChecking yes" in lab.ssh_config.read_text()
    for node in lab.nodes()[:3]:
        assert said(lab, node, "hostname; whoami; echo $SSH_CONNECTION").split()[:2] == [node, "ops"]
        assert said(lab, node, "echo $SSH_CONNECTION").split()[2] == lab.address(node)


def test_a_node_that_is_not_on_record_is_refused(lab: Lab, tmp_path: Path) -> None:
    empty = tmp_path / "known_hosts"
    empty.touch()
    line = ["/usr/bin/ssh", "-F", str(lab.ssh_config), "-o", f"UserKnownHostsFile={empty}", "node1", "true"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=30)
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr


def test_docker_by_group_by_sudo_by_password_and_not_at_all(lab: Lab) -> None:
    assert said(lab, "node1", "docker info -f '{{.Name}} {{.Driver}}'") == "node1 overlay2"
    assert said(lab, "node2", "sudo -n docker info -f '{{.Name}}'", user="nodock") == "node2"
    for user in ("nodock", "sudopw", "plain"):
        assert "permission denied" in ssh(lab, "node1", "docker ps", user=user).stderr
    for user in ("sudopw", "plain"):
        assert "a password is required" in ssh(lab, "node1", "sudo -n docker ps", user=user).stderr
    assert said(lab, "node1", "echo lab | sudo -S docker info -f '{{.Name}}'", user="sudopw") == "node1"
    assert said(lab, "node1", "id -u", user="root") == "0"


def test_nodes_reach_each_other_with_a_key_of_their_own(lab: Lab) -> None:
    assert said(lab, "node1", "ssh -o BatchMode=yes node2 hostname") == "node2"
    assert said(lab, "node3", f"ssh -o BatchMode=yes plain@{lab.address('node1')} whoami") == "plain"
    assert ssh(lab, "node1", "ssh -o BatchMode=yes root@node2 true").returncode == 255


def test_the_operators_key_is_nowhere_on_a_node(lab: Lab) -> None:
    secret = lab.key.read_text().splitlines()[2]
    node_secret = lab.inside("node1", ["sed", "-n", "3p", "/home/ops/.ssh/id_ed25519"]).out.strip()
    assert node_secret
    assert node_secret != secret

    def holders(text: str) -> str:
        places = ["/etc", "/home", "/root", "/run", "/srv", "/tmp", "/var/tmp", "/dev"]
        return lab.inside("node1", ["grep", "-rlsF", "--devices=skip", "--", text, *places], timeout=60).out

    assert holders(node_secret) == "/home/ops/.ssh/id_ed25519\n", "the search finds such a key"
    assert holders(secret) == ""
    assert lab.inside("node1", ["test", "-e", str(lab.parent)]).returncode == 1


def test_private_paths_of_this_machine_are_not_on_a_node(other: Lab) -> None:
    lab = other
    for path in (lab.parent, lab.checkout, Path("/etc/ssh/ssh_host_rsa_key"), Path("/etc/ssl/private")):
        assert lab.inside("node1", ["test", "-e", str(path)]).returncode == 1, path
    assert lab.inside("node1", ["ls", "-A", "/root"]).out.split() == [".ssh"]
    assert lab.inside("node1", ["ls", "-A", "/root/.ssh"]).out.split() == ["authorized_keys"]
    assert "/dev/vda" not in lab.inside("node1", ["find", "/dev", "-type", "b"]).out
    assert lab.inside("node1", ["umount", str(lab.parent)]).returncode != 0, "nothing to be lifted off"


def test_no_word_of_the_callers_environment_reaches_a_node(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_TEST_TOKEN", "s3cret")
    lab.fault("crash", "node3")
    lab.heal("node3")
    for argv in (["env"], ["cat", "/proc/1/environ"]):
        assert "s3cret" not in lab.inside("node3", argv).out


def test_passwords_of_this_machine_are_not_on_a_node(lab: Lab) -> None:
    rows = [row.split(":") for row in lab.inside("node1", ["cat", "/etc/shadow"]).out.splitlines()]
    assert {row[0] for row in rows if row[1] != "*"} == {"sudopw"}


def test_the_model_folder_is_the_same_everywhere_and_says_what_it_is(lab: Lab) -> None:
    listing = f"cd {weights.FOLDER} && sha256sum *"
    once = said(lab, "node1", listing, user="plain")
    assert said(lab, "node2", listing) == once == said(lab, "node3", listing)
    expected = {name: hashlib.sha256(data).hexdigest() for name, data in weights.files().items()}
    assert {line.split()[1]: line.split()[0] for line in once.splitlines()} == expected
    assert "not a model" in json.loads(said(lab, "node1", f"cat {weights.FOLDER}/config.json"))["fleet_lab_double"]
    # The login user may copy models there; nobody else may write to them.
    assert ssh(lab, "node1", f"touch {weights.FOLDER}/x", user="plain").returncode == 1


def test_scratch_is_writable_by_every_user(lab: Lab) -> None:
    for user in ("ops", "nodock", "sudopw", "plain"):
        said(lab, "node2", f"touch /srv/fleet/{user} && rm /srv/fleet/{user}", user=user)


def test_status_tells_what_is(lab: Lab) -> None:
    rows = lab.status()[:3]
    assert [row.name for row in rows] == ["node1", "node2", "node3"]
    for row in rows:
        assert (row.address, row.state, row.sshd, row.docker, row.faults) == (
            lab.address(row.name),
            "up",
            True,
            True,
            (),
        )
        assert row.memory is not None
        assert 5 < row.memory < 2000
        assert row.disk is not None
        assert 7000 < row.disk < 8192


def test_wrong_words_are_told(lab: Lab) -> None:
    with pytest.raises(UsageError, match="no such node: node99"):
        lab.inside("node99", ["true"])
    with pytest.raises(UsageError, match="unknown fault: ctu"):
        lab.fault("ctu", "node1")
    with pytest.raises(UsageError, match="rate takes MBIT, not: nothing"):
        lab.fault("rate", "node1")


# ---------------------------------------------------------------------- faults, and that heal undoes them


def connects(lab: Lab, node: str) -> str:
    """What ssh says; empty when it works."""
    done = ssh(lab, node, "true", connect=1)
    return "" if done.returncode == 0 else done.stderr


@pytest.mark.parametrize(
    ("verb", "complaint"),
    [
        ("cut", "timed out"),
        ("refuse", "Connection refused"),
        ("kill-sshd", "Connection refused"),
        ("freeze", "timed out"),
        ("swap-hostkey", "Host key verification failed"),
        ("crash", "timed out"),
    ],
)
def test_a_fault_of_the_login_and_its_end(lab: Lab, healed: Fault, verb: str, complaint: str) -> None:
    healed(verb, "node2")
    assert complaint in connects(lab, "node2")
    assert lab.status()[1].faults == (verb,)
    assert connects(lab, "node3") == "", "the others do not notice"
    lab.heal("node2")
    assert connects(lab, "node2") == ""
    assert lab.status()[1].faults == ()


@pytest.mark.parametrize(
    ("verb", "undo"), [("cut", "uncut"), ("refuse", "unrefuse"), ("kill-sshd", "start-sshd"), ("freeze", "thaw")]
)
def test_a_fault_has_an_opposite(lab: Lab, healed: Fault, verb: str, undo: str) -> None:
    healed(verb, "node2")
    lab.fault(undo, "node2")
    assert connects(lab, "node2") == ""
    assert lab.status()[1].faults == ()


def test_open_sessions_outlive_the_listener_unless_they_are_killed_too(lab: Lab, healed: Fault) -> None:
    line = ["/usr/bin/ssh", "-F", str(lab.ssh_config), "node2", "echo on; exec sleep 60"]
    with subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as session:
        assert session.stdout is not None
        assert session.stdout.readline() == b"on\n"
        healed("kill-sshd", "node2")
        assert "refused" in connects(lab, "node2")
        assert session.poll() is None
        lab.fault("kill-sshd", "node2", "sessions")
        assert session.wait(10) == 255


def test_an_engine_that_is_killed(lab: Lab, healed: Fault) -> None:
    healed("kill-docker", "node2")
    assert "Cannot connect to the Docker daemon" in ssh(lab, "node2", "docker ps").stderr
    assert not lab.status()[1].docker
    lab.heal("node2")
    assert said(lab, "node2", "docker info -f '{{.Name}}'") == "node2"


def test_a_full_disk(lab: Lab, healed: Fault) -> None:
    healed("fill-disk", "node2")
    write = "dd if=/dev/zero of=/srv/fleet/big bs=1M count=1"
    assert "No space left on device" in ssh(lab, "node2", write).stderr
    assert (lab.state / "nodes/node2/disk.img").stat().st_blocks * 512 < 1 << 30, "this machine's disk is not filled"
    lab.heal("node2")
    said(lab, "node2", f"{write} && rm /srv/fleet/big")


def test_a_full_disk_with_something_left(lab: Lab, healed: Fault) -> None:
    healed("fill-disk", "node2", 64)
    available = int(lab.inside("node2", ["df", "--output=avail", "-m", "/"]).out.split()[1])
    assert 48 <= available <= 65


def test_docker_commands_are_held_by_their_words(lab: Lab, healed: Fault) -> None:
    path = said(lab, "node2", "command -v docker")
    inode = said(lab, "node2", f"stat -c %i {path}")
    healed("hold", "node2", "ps * --quiet")
    assert said(lab, "node2", "docker ps -a") != "", "other words go through"
    line = ["/usr/bin/ssh", "-F", str(lab.ssh_config), "node2", "docker ps --all --quiet && echo done"]
    with subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as waiting:
        process.wait(lambda: lab.node("node2").held() == ["ps --all --quiet"], 15, "not held")
        assert waiting.poll() is None
        lab.fault("release", "node2")
        assert waiting.communicate(timeout=15)[0].endswith("done\n")
    assert lab.node("node2").held() == []
    lab.fault("hold", "node2", "ps")
    lab.heal("node2")
    assert said(lab, "node2", f"stat -c %i {path}") == inode, "the client is as it was"
    assert lab.status()[1].faults == ()


def test_a_capped_wire(lab: Lab, healed: Fault) -> None:
    healed("rate", "node2", 16)
    started = time.monotonic()
    assert len(said(lab, "node2", "head -c 3000000 /dev/zero | tr '\\0' a")) == 3_000_000
    assert time.monotonic() - started > 3_000_000 * 8 / 16e6 * 0.8


def test_all_wires_are_capped_and_count_what_they_carry(lab: Lab) -> None:
    lab.cap(16)
    try:
        lab.fault("unrate", "node1")  # between here and node1 only this machine's end is left
        takes, gives = ["cat >/dev/null"], ["head -c 3000000 /dev/zero"]
        assert [carried(lab, "node1", HERE, argv) for argv in (takes, gives)] == [(True, False), (False, True)]
        assert [row.faults for row in lab.status()[1:3]] == [("rate 16",), ("rate 16",)]
        lab.fault("unrate", "node2")
        argv = ["head -c 3000000 /dev/zero | ssh -o BatchMode=yes node3 'cat >/dev/null'"]
        assert carried(lab, "node2", "node3", argv) == (False, True)
    finally:
        lab.uncap()
    assert [row.faults for row in lab.status()] == [(), (), ()]
    assert carried(lab, "node1", HERE, gives) == (False, False), "nothing is counted where nothing is capped"


def carried(lab: Lab, node: str, wire: str, argv: list[str]) -> tuple[bool, bool]:
    """Run a command that moves 3 MB: whether so much left and reached the wire's machine, and as slow as 16 Mbit."""
    before, started = lab.network.carried(wire), time.monotonic()
    line = ["/usr/bin/ssh", "-F", str(lab.ssh_config), node, *argv]
    fed = bytes(3_000_000 if argv == ["cat >/dev/null"] else 0)
    subprocess.run(line, input=fed, stdout=subprocess.DEVNULL, check=True, timeout=30)
    took = time.monotonic() - started
    counted = [after - earlier for after, earlier in zip(lab.network.carried(wire), before, strict=True)]
    much = tuple(3_000_000 < count < 3_000_000 * 1.1 for count in counted)
    assert not any(much) or took > 3_000_000 * 8 / 16e6 * 0.8, f"faster than the cap: {took:.2f} s"
    return much[0], much[1]


def test_a_long_wire(lab: Lab, healed: Fault) -> None:
    def connecting() -> float:
        started = time.monotonic()
        with_banner = lab.node("node2").ssh_answers()
        assert with_banner
        return time.monotonic() - started

    healed("delay", "node2", 100)
    assert connecting() >= 0.2, "one round trip"
    lab.fault("undelay", "node2")
    assert min(connecting() for _ in range(5)) < 0.2


def test_lost_packets(lab: Lab, healed: Fault) -> None:
    healed("loss", "node2", 100)
    assert "timed out" in connects(lab, "node2")


def busybox() -> bytes:
    """The smallest image: one static program, as a root file system's tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(os.path.realpath(shutil.which("busybox") or "/bin/busybox"), "bin/busybox")
    return buffer.getvalue()


@pytest.fixture
def container(lab: Lab) -> Iterator[str]:
    """A web server in a container on node2, on its port 8000."""
    lab.docker("node2", ["import", "-", BUSYBOX], stdin=busybox(), check=True)
    serve = ["/bin/busybox", "httpd", "-f", "-p", "8000", "-h", "/bin"]
    lab.docker("node2", ["run", "-d", "--init", "--network", "host", "--name", "web", BUSYBOX, *serve], check=True)
    yield "web"
    lab.docker("node2", ["rm", "-f", "web"])
    lab.docker("node2", ["rmi", BUSYBOX])


def test_containers_are_paused_and_survive_on_disk(lab: Lab, healed: Fault, container: str) -> None:
    fetch = ["python3", "-c", "import sys, urllib.request as u; u.urlopen(sys.argv[1], timeout=2).read(1)"]
    fetch.append(f"http://{lab.address('node2')}:8000/busybox")
    process.wait(lambda: lab.inside("node1", fetch).returncode == 0, 10, "the web server did not answer")
    assert lab.inside("node3", [*fetch[:-1], "http://127.0.0.1:8000/busybox"]).returncode != 0, "a port of its own"
    assert lab.status()[1].containers == 1
    healed("pause-container", "node2", container)
    assert lab.inside("node1", fetch).returncode != 0
    lab.heal("node2")
    assert lab.inside("node1", fetch).returncode == 0

    healed("crash", "node2")
    with pytest.raises(LabError, match="down"):
        lab.inside("node2", ["true"])
    lab.fault("boot", "node2")
    state = lab.docker("node2", ["inspect", "-f", "{{.State.Status}}", container]).out.strip()
    assert state == "exited"
    assert lab.docker("node2", ["image", "inspect", BUSYBOX]).returncode == 0


@pytest.mark.parametrize(("verb", "oom"), [("kill-container", "false"), ("oom-container", "true")])
def test_a_container_that_is_killed(lab: Lab, healed: Fault, container: str, verb: str, oom: str) -> None:
    healed(verb, "node2", container)
    state = ["inspect", "-f", "{{.State.Status}} {{.State.ExitCode}} {{.State.OOMKilled}}", container]
    process.wait(lambda: lab.docker("node2", state).out.split() == ["exited", "137", oom], 15, "not killed")


# ---------------------------------------------------------------------- up, mending, down


def test_a_second_up_does_nothing_and_is_quick(lab: Lab) -> None:
    before = [lab.node(node).pid for node in lab.nodes()]
    lines: list[str] = []
    started = time.monotonic()
    lab.up(3, say=lines.append)
    assert time.monotonic() - started < 1
    assert lines == []
    assert [lab.node(node).pid for node in lab.nodes()] == before


def pid_of(lab: Lab, node: str) -> int:
    pid = lab.node(node).pid
    assert pid is not None
    return pid


@pytest.fixture
def other(able: None, tmp_path: Path) -> Iterator[Lab]:
    """A lab of one node for another checkout, with nothing left of it afterwards."""
    lab = Lab(tmp_path)
    lab.up(1)
    yield lab
    lab.down()


def test_a_killed_node_is_started_again(other: Lab) -> None:
    os.kill(pid_of(other, "node1"), signal.SIGKILL)
    process.wait(lambda: other.node("node1").pid is None, 10, "the node did not end")
    other.up(1)
    assert said(other, "node1", "hostname") == "node1"


def test_lost_namespaces_are_made_again(other: Lab) -> None:
    pid = pid_of(other, "node1")
    subprocess.run(["ip", "netns", "del", f"{other.prefix}-sw"], check=True)
    subprocess.run(["ip", "netns", "del", f"{other.prefix}-node1"], check=True)
    assert not other.node("node1").ssh_answers()
    other.up(1)
    assert said(other, "node1", "hostname") == "node1"
    assert other.node("node1").pid == pid, "mended without a restart"
    other.fault("rate", "node1", 100)
    other.heal("node1")


def test_a_half_made_namespace_is_made_again(other: Lab) -> None:
    space = f"{other.prefix}-node1"
    os.kill(pid_of(other, "node1"), signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", space], check=True)
    Path("/run/netns", space).touch()
    subprocess.run(["ip", "netns", "del", other.network.switch], check=True)
    Path("/run/netns", other.network.switch).touch()
    (other.state / "nodes/node2.making").mkdir()
    other.up(1)
    assert is_namespace(space)
    assert said(other, "node1", "hostname") == "node1"
    assert not (other.state / "nodes/node2.making").exists()


def test_a_pid_of_another_process_is_not_mistaken_for_the_node(other: Lab) -> None:
    node = other.node("node1")
    os.kill(pid_of(other, "node1"), signal.SIGKILL)
    process.wait(lambda: node.pid is None, 10, "the node did not end")
    with subprocess.Popen(["sleep", "60"]) as stranger:
        boot, _, rest = node.record.read_text().split(" ", 2)
        node.record.write_text(f"{boot} {stranger.pid} {rest}")
        assert node.pid is None
        other.up(1)
        assert stranger.poll() is None
        stranger.kill()
    assert said(other, "node1", "hostname") == "node1"


def test_a_record_of_another_boot_is_stale(other: Lab) -> None:
    node = other.node("node1")
    _, rest = node.record.read_text().split(" ", 1)
    node.record.write_text(f"00000000-0000-0000-0000-000000000000 {rest}")
    assert node.pid is None
    other.up(1)
    assert said(other, "node1", "hostname") == "node1"
    inits = [
        pid
        for pid in process.marked(other.id)
        if "sleep infinity" in process.title(pid) and process.name(pid) != "sleep"
    ]
    assert inits == [node.pid], "the old node has ended"


def test_a_node_without_a_root_of_its_own_is_not_entered(other: Lab) -> None:
    node = other.node("node1")
    true_record = node.record.read_text()
    with subprocess.Popen(["sleep", "60"]) as starting:
        node.record.write_text(f"{process.boot_id()} {Path(f'/proc/{starting.pid}/stat').read_text()}")
        try:
            with pytest.raises(LabError, match="not started yet"):
                node.inside(["touch", "/this-would-be-on-the-machine"])
        finally:
            starting.kill()
            node.record.write_text(true_record)


def test_faults_are_mended_and_nodes_are_added(other: Lab) -> None:
    other.fault("freeze", "node1")
    other.fault("rate", "node1", 10)
    other.up(2)
    assert other.nodes() == ["node1", "node2"]
    assert said(other, "node1", "ssh -o BatchMode=yes node2 hostname") == "node2"
    assert [row.faults for row in other.status()] == [(), ()]
    told: list[str] = []
    other.up(1, say=told.append)
    assert other.nodes() == ["node1", "node2"], "up takes nothing away"
    assert told == [
        "2 nodes are there (node1, node2), and up takes none away; "
        "for a lab of 1: invoke lab.down, then invoke lab.up --nodes 1"
    ]


def test_two_checkouts_share_nothing(lab: Lab, other: Lab) -> None:
    assert other.id != lab.id
    assert not ipaddress.IPv4Network(other.net).overlaps(ipaddress.IPv4Network(lab.net))
    assert said(other, "node1", "hostname") == said(lab, "node1", "hostname") == "node1"
    assert (
        other.inside("node1", ["cat", "/etc/ssh/ssh_host_ed25519_key.pub"]).out
        != lab.inside("node1", ["cat", "/etc/ssh/ssh_host_ed25519_key.pub"]).out
    )
    other.down()
    assert said(lab, "node1", "hostname") == "node1"


def remains(lab: Lab) -> list[str]:
    """What is left of a lab on this machine."""
    left = [f"process {pid}" for pid in process.marked(lab.id)]
    left += [str(path) for path in Path("/run/netns").glob(f"{lab.prefix}*")]
    left += [str(path) for path in Path("/sys/class/net").glob(f"{lab.prefix}*")]
    left += [str(path) for path in Path("/sys/fs/cgroup").glob(f"*{lab.cgroup}")]
    left += [str(path) for path in Path("/sys/fs/cgroup").glob(lab.cgroup.strip("/"))]
    left += mounts_under(lab.state)
    left += [line for line in subprocess.check_output(["losetup", "-a"], text=True).splitlines() if lab.id in line]
    left += [str(path) for path in lab.parent.glob(f"{lab.id}*")]
    return left


def test_down_leaves_nothing(able: None, tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.up(1)
    lab.docker("node1", ["import", "-", BUSYBOX], stdin=busybox(), check=True)
    run = ["run", "-d", "--network", "host", BUSYBOX, "/bin/busybox", "sleep", "1000"]
    lab.docker("node1", run, check=True)
    lab.fault("delay", "node1", 5)
    assert len(remains(lab)) > 10, "the search finds what a lab is made of"
    told: list[str] = []
    lab.down(say=told.append)
    assert remains(lab) == []
    lab.down(say=told.append)
    assert told == [
        "node1 removed, with all images, containers and files",
        "no lab was up: nothing to remove",
    ]


def test_an_up_that_was_killed_is_taken_up_again(able: None, tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    code = "import sys; from pathlib import Path; from fleet.lab.lab import Lab; Lab(Path(sys.argv[1])).up(1)"
    try:
        line = [sys.executable, "-c", code, str(tmp_path)]
        with subprocess.Popen(line, cwd=Path(__file__).parents[2]) as up:
            process.wait((lab.state / "nodes/node1/init").exists, 30, "no node was started")
            up.kill()
        lab.up(1)
        assert said(lab, "node1", "hostname") == "node1"
        assert len([pid for pid in process.marked(lab.id) if process.name(pid) in ("tini", "docker-init")]) == 1
    finally:
        lab.down()
    assert remains(lab) == []


def test_ups_at_once_take_turns(able: None, tmp_path: Path) -> None:
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda _: Lab(tmp_path).up(1), range(3)))
        inits = [pid for pid in process.marked(Lab(tmp_path).id) if process.name(pid) in ("tini", "docker-init")]
        assert inits == [pid_of(Lab(tmp_path), "node1")]
    finally:
        Lab(tmp_path).down()


def test_down_ends_what_has_lost_its_records(able: None, tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.up(1)
    image = lab.state / "nodes/node1/disk.img"
    assert loops(image)
    shutil.rmtree(lab.state / "nodes/node1/ctl", ignore_errors=True)
    (lab.state / "lab.json").unlink()
    (lab.state / "nodes/node1/init").unlink()
    for space in ("sw", "node1"):
        subprocess.run(["ip", "netns", "del", f"{lab.prefix}-{space}"], check=True)
    assert lab.nodes() == []
    told: list[str] = []
    lab.down(say=told.append)
    assert remains(lab) == []
    assert told == ["no lab was up; what was left of an earlier one is removed"]


def test_up_after_lost_records_begins_anew(able: None, tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.up(1)
    try:
        lost = pid_of(lab, "node1")
        (lab.state / "lab.json").unlink()
        lab.up(1)
        assert process.find(lost) is None
        assert said(lab, "node1", "hostname") == "node1"
    finally:
        lab.down()
    assert remains(lab) == []
