from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fleet import probes
from fleet.docker import Container
from fleet.probes import Holder


def run(probe: probes.Probe):
    done = subprocess.run(probe.argv, capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL)
    return probe.parse(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("err", "cause"),
    [
        (
            "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
            "this user may not use the Docker socket (not in group docker)",
        ),
        ("sudo: a password is required", "sudo asks for a password"),
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", "the Docker daemon does not answer"),
        ("bash: line 1: docker: command not found", "docker is not installed"),
        ("something new\nmore", "something new"),
        ("", "docker version: exit 1, no output"),
    ],
)
def test_docker_causes(err: str, cause: str):
    assert probes.docker_access().parse(1, "", err) == probes.DockerAccess(usable=False, cause=cause)


def test_docker_prefix():
    good = probes.docker_access().parse(0, "20.10.24\n", "")
    assert good == probes.DockerAccess(usable=True, version="20.10.24")
    no = probes.DockerAccess(usable=False, cause="not in group docker")
    password = probes.DockerAccess(usable=False, cause="sudo asks for a password")
    assert probes.docker_prefix(good, no) == ((), "")
    assert probes.docker_prefix(no, good) == (("sudo", "-n"), "")
    assert probes.docker_prefix(no, password) == (None, "not in group docker; with sudo -n: sudo asks for a password")
    assert probes.docker_prefix(no, no) == (None, "not in group docker")
    assert probes.docker_access(sudo=True).argv[:3] == ("sudo", "-n", "docker")


def test_clock():
    assert probes.CLOCK.parse(0, "1796072647.250000000\n", "") == 1796072647.25
    assert probes.CLOCK.parse(127, "", "") is None
    offset, doubt = probes.clock_offset(110.0, 99.9, 100.1)
    assert offset == pytest.approx(10.0)
    assert doubt == pytest.approx(0.1)
    assert isinstance(run(probes.CLOCK), float)


SS = """\
LISTEN 0      128          0.0.0.0:22        0.0.0.0:*
LISTEN 0      4096       127.0.0.1:8010      0.0.0.0:*
LISTEN 0      128             [::]:22           [::]:*
LISTEN 0      2048               *:30000           *:*
LISTEN 0      10    fe80::1%eth0]:6301           [::]:*
"""


def test_ports_in_use():
    assert probes.PORTS.parse(0, SS, "") == {22, 8010, 30000, 6301}
    assert probes.PORTS.parse(0, "", "") == frozenset()
    assert probes.PORTS.parse(127, "", "ss: command not found") is None


def test_reaching_a_peer_for_real():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert run(probes.reach("127.0.0.1", port)).state == "open"
    found = run(probes.reach("127.0.0.1", port))
    assert found.state == "refused"
    assert found.reachable


def test_a_silent_peer():
    assert not probes.reach("10.0.0.1", 1).parse(124, "", "").reachable
    err = "bash: connect: No route to host\nbash: line 1: /dev/tcp/10.0.0.9/1: No route to host"
    assert probes.reach("10.0.0.9", 1).parse(1, "", err).state == "no route to host"
    assert probes.reach("nowhere", 1).parse(1, "", "bash: nowhere: Name or service not known").state == "unknown name"


DF = """\
Filesystem        1-blocks          Used     Available Capacity Mounted on
/dev/loop3      2040373248     104857600    1814106112       6% /var/lib/docker
"""


def test_disk():
    assert probes.disk("/var/lib/docker").parse(0, DF, "") == {"/var/lib/docker": 1814106112}
    missing = probes.disk("/nowhere", "/var/lib/docker")
    assert missing.parse(1, DF, "df: /nowhere: No such file or directory\n") == {"/var/lib/docker": 1814106112}


def test_disk_for_real(tmp_path: Path):
    free = run(probes.disk(str(tmp_path / "not there"), str(tmp_path)))
    assert list(free) == [str(tmp_path)]
    assert free[str(tmp_path)] > 0


def test_missing_devices_for_real(tmp_path: Path):
    (tmp_path / "a b").touch()
    assert run(probes.missing(str(tmp_path / "a b"), str(tmp_path / "kfd"))) == (str(tmp_path / "kfd"),)
    assert probes.missing("/x").parse(126, "", "") is None


def test_gpus_of_rocm():
    gpus = probes.ROCM_GPUS.parse(0, "card0 298844160 309220868096\ncard1 200000000000 309220868096\n", "")
    assert [gpu.name for gpu in gpus] == ["card0", "card1"]
    assert probes.not_idle(gpus, 2) == "GPU memory in use: card1 65%"
    assert probes.not_idle(gpus[:1], 1) == ""


def test_a_tool_that_says_nothing_does_not_pass():
    assert probes.not_idle(probes.ROCM_GPUS.parse(0, "", ""), 8) == "0 GPUs found, 8 in the inventory"
    assert probes.not_idle(probes.CUDA_GPUS.parse(127, "", "nvidia-smi: command not found"), 8) != ""
    assert probes.gpus_json("") == ()


def test_gpus_of_cuda_and_rocm_smi():
    (gpu,) = probes.CUDA_GPUS.parse(0, "0, 4, 81559\n", "")
    assert (gpu.name, gpu.used) == ("gpu0", 4 << 20)
    text = '{"card0": {"VRAM Total Memory (B)": "100", "VRAM Total Used Memory (B)": "50"}, "system": {}}'
    (card,) = probes.gpus_json(text)
    assert card.share == 0.5


def test_the_sysfs_command_runs_here():
    assert isinstance(run(probes.ROCM_GPUS), tuple)


def test_model_directories_for_real(tmp_path: Path):
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        (folder / "sub dir").mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "sub dir" / "w.safetensors").write_text("abc")
    first, second = run(probes.directory(str(one))), run(probes.directory(str(two)))
    assert first == second
    assert (first.files, first.size) == (2, 5)
    assert probes.differing({"n1": first, "n2": second}) == ""
    (two / "config.json").write_text("{ }")
    changed = run(probes.directory(str(two)))
    assert probes.differing({"n1": first, "n2": changed}).startswith("n1: 2 files, 5 bytes, ")
    assert run(probes.directory(str(tmp_path / "no"))) is None
    assert probes.differing({"n1": first, "n2": None}) == "missing or empty on n2"
    both = probes.differing({"n1": first, "n2": None, "n3": changed})
    assert re.fullmatch(r"missing or empty on n2; n1: 2 files, 5 bytes, \w+; n3: 2 files, 6 bytes, \w+", both)


def test_a_model_directory_that_was_read_in_part_is_not_listed():
    err = "find: '/models/m/private': Permission denied"
    assert probes.directory("/models/m").parse(1, "config.json\t2\n", err) is None
    assert probes.directory("/models/m").parse(0, "config.json\t2\n", "") is not None
    assert probes.directory("/models/m").parse(0, "", "") is None


def test_strangers_are_running_and_not_ours():
    def container(name: str, state: str, **labels: str) -> Container:
        return Container(id="1", name=name, image="x:1", state=state, status="", labels=labels)

    seen = [container("db", "running"), container("old", "exited"), container("fleet-1", "running", run="r")]
    assert probes.strangers(seen) == ("db (x:1)",)


def test_facts_for_real():
    facts = run(probes.FACTS)
    assert facts["kernel"]
    assert int(facts["cpus"]) > 0
    assert "" not in facts.values()


def test_an_offset_within_the_error_of_its_measurement_is_none() -> None:
    assert probes.lead(0.004, 0.005) == probes.lead(-0.005, 0.005) == probes.lead(None, 0.0) == 0.0
    assert (probes.lead(-2.0, 0.005), probes.lead(0.006, 0.005)) == (-2.0, 0.006)


CONTAINER = "ab" * 32
NAMED = f"""LISTEN 0 128 0.0.0.0:22 0.0.0.0:*
LISTEN 0 5 [::]:8010 [::]:* users:(("python3",pid=321,fd=4),("python3",pid=322,fd=4))
LISTEN 0 5 *:9000 *:* users:(("nc",pid=77,fd=3))
cgroup 321 {CONTAINER}
cgroup 77
"""


def test_who_listens_on_a_port() -> None:
    found = probes.holders().parse(0, NAMED, "")
    assert found == {
        8010: Holder(program="python3", pid=321, container=CONTAINER),
        9000: Holder(program="nc", pid=77),
    }
    web = Container(id=CONTAINER, name="web", image="nginx", state="running", status="Up")
    assert found[8010].said([web]) == "container web (a stranger's)"
    assert found[8010].said([web.model_copy(update={"labels": {"run": "r1"}})]) == "container web (run r1)"
    assert (found[9000].said([web]), Holder().said([web])) == ("nc (pid 77)", "")
    assert probes.holders().parse(127, "", "ss: not found") == {}
    assert probes.holders(("sudo", "-n")).argv[-2:] == ("sudo", "-n")


def test_who_has_gpu_memory() -> None:
    """Rows as the two scripts print them: no machine here has a GPU, so the kernel's and nvidia-smi's part is written
    from their documentation."""
    found = probes.ROCM_HOLDERS.parse(
        0, f"812 154618822656 python3 {CONTAINER}\n813 0 idle\n900 4096\nNo devices\n", ""
    )
    assert found == (Holder(pid=812, program="python3", container=CONTAINER), Holder(pid=900))
    web = Container(id=CONTAINER, name="web", image="nginx", state="running", status="Up")
    assert probes.held_by(found, [web]) == " by container web (a stranger's), a process (pid 900)"
    assert probes.held_by(found[:1], []) == " by python3 (pid 812)"
    assert probes.held_by((), []) == ""


def test_the_script_for_gpu_memory_reads_what_the_driver_writes(tmp_path: Path) -> None:
    """A folder like /sys/class/kfd/kfd/proc: one folder a process, in it vram_<gpu> with bytes."""
    for pid, values in {"1": ("700", "300"), "999999999": ("0", "0")}.items():
        (tmp_path / pid).mkdir()
        for number, value in enumerate(values):
            (tmp_path / pid / f"vram_{number}").write_text(f"{value}\n")
    script = probes.ROCM_HOLDERS.argv[2].replace("/sys/class/kfd/kfd/proc", str(tmp_path))
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    (row, _) = done.stdout.splitlines()
    assert row.split()[:2] == ["1", "1000"]
    assert [one.pid for one in probes.ROCM_HOLDERS.parse(0, done.stdout, "")] == [1]


@pytest.mark.parametrize(
    ("masks", "sign", "deaf"),
    [
        pytest.param(("0000000000000000", "0000000000000000"), "", True, id="nothing"),
        pytest.param(("0000000000000000", "0000000000004002"), "", False, id="handled"),
        pytest.param(("fffffffe7ffbfeff", "0000000000000000"), "SIGTERM", False, id="blocked, as tini does"),
        pytest.param(("0000000000000000", "0000000000000002"), "SIGINT", False, id="Python handles INT from the start"),
        pytest.param(("0000000000000000", "0000000000000002"), "TERM", True, id="and no TERM"),
        pytest.param(("0000000000000000", "0000000000000002"), "2", False, id="by number"),
        pytest.param(("0000000000000000", "0000000000000002"), "SIGRTMIN+3", False, id="unknown here: let docker try"),
    ],
)
def test_who_does_not_hear_a_signal(masks: tuple[str, str], sign: str, deaf: bool) -> None:
    out = f"/proc/71/status:SigBlk:\t{masks[0]}\n/proc/71/status:SigCgt:\t{masks[1]}\n"
    assert probes.deaf({71: sign, 72: sign}).parse(2, out, "") == ({71} if deaf else set())


@pytest.mark.parametrize(
    ("code", "deaf"),
    [
        ("pass", True),
        ("signal.signal(15, lambda *_: None)", False),
        ("signal.pthread_sigmask(signal.SIG_BLOCK, [15])", False),
    ],
)
def test_a_process_that_hears_for_real(code: str, deaf: bool) -> None:
    script = f"import signal; {code}; print(flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as one:
        assert one.stdout is not None
        one.stdout.readline()
        try:
            assert run(probes.deaf({one.pid: ""})) == ({one.pid} if deaf else set())
        finally:
            one.kill()
