"""Collecting and removing: logs first, the router first, only what carries our labels, whatever a host does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from fleet.errors import HostError, NotKept, Unreachable, UsageError
from fleet.hosts.fake import in_turn
from fleet.session import Machine
from fleet.stages import collect, teardown
from fleet.stages.deployment import Deployment
from tests.world import GB, IDLE, RUN, Box, World

FIRST, SECOND = "mi355x-01", "mi355x-02"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def up(world: World, tmp_path: Path) -> Deployment:
    made = world.running(tmp_path)
    for seat in ("prefill0", "decode0", "router"):
        world.box(seat).log = f"2026-11-30T21:04:05Z {seat} says\n"
    return made


def stranger(world: World) -> Box:
    box = Box("web", image="nginx:1")
    world.nodes[FIRST].boxes["web"] = box
    return box


def test_every_log_comes_home(up: Deployment) -> None:
    assert collect.collect(up) == []
    logs = up.folder.logs("1p1d-mtp3")
    assert {path.name: path.read_text() for path in logs.iterdir()} == {
        f"{seat}.log": f"2026-11-30T21:04:05Z {seat} says\n" for seat in ("prefill0", "decode0", "router")
    }


def test_a_client_left_behind_is_collected_too(world: World, up: Deployment) -> None:
    labels = {"run": RUN, "arm": "1p1d-mtp3", "role": "client", "rank": "0", "point": "1p1d-mtp3-c4"}
    world.nodes[FIRST].boxes["c"] = Box("c", labels=labels, log="t bench\n")
    collect.collect(up)
    assert up.folder.log("1p1d-mtp3", "client-c4").read_text() == "t bench\n"


def test_a_container_that_never_was_has_no_log_and_is_no_problem(world: World, up: Deployment) -> None:
    world.nodes[FIRST].boxes.pop(world.box("router").name)
    assert collect.collect(up) == []
    assert not up.folder.log("1p1d-mtp3", "router").exists()


def test_a_log_that_does_not_come_is_a_problem_and_leaves_no_half_file(world: World, up: Deployment) -> None:
    world.nodes[SECOND].first = [("docker logs", (1, "half\nError: input/output error\n"))]
    (problem,) = collect.collect(up)
    name = world.box("decode0").name
    assert str(problem) == f"{SECOND}: the log of {name} did not come: Error: input/output error"
    assert [path.name for path in up.folder.logs("1p1d-mtp3").glob("*decode*")] == []
    assert up.folder.log("1p1d-mtp3", "prefill0").exists()


def test_the_router_goes_first_then_the_rest_then_the_scratch_folder(world: World, up: Deployment) -> None:
    router, prefill = world.box("router").id, world.box("prefill0").id
    assert teardown.teardown(up) == []
    asked = [line.split()[:2] for line in world.nodes[FIRST].lines]
    assert asked.index(["ss", "-Hltn"]) > asked.index(["rm", "-rf"]), "ports are looked at when all is gone"
    done = world.nodes[FIRST].asked("docker (stop|rm)|^rm")
    assert done[-5:] == [
        f"docker stop {router}", f"docker rm {router}", f"docker stop {prefill}", f"docker rm {prefill}",
        f"rm -rf /data/fleet/{RUN}",
    ]  # fmt: skip
    assert [node.boxes for node in world.nodes.values()] == [{}, {}, {}, {}]


def test_a_port_that_does_not_come_back_is_a_problem_that_names_its_holder(
    world: World, up: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teardown, "PORT_SECONDS", 0.0)
    world.nodes[SECOND].ports = {8020, 22}
    (problem,) = teardown.teardown(up)
    assert problem.what == "port 8020 (decode0) is still held by nc (pid 77)"
    assert problem.hint.startswith("who:  ssh ")
    assert world.nodes[SECOND].boxes == {}
    (again,) = teardown.teardown(up)
    assert again.what == problem.what, "twice is as good as once"


def test_gpu_memory_that_does_not_come_back_is_a_problem(
    world: World, up: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teardown, "GPU_SECONDS", 0.0)
    world.nodes[SECOND].gpus = IDLE.replace(f"card3 {GB}", f"card3 {144 * GB}")
    (problem,) = teardown.teardown(up)
    assert str(problem) == f"{SECOND}: GPU memory in use: card3 50% although our containers are gone"


def test_ports_and_gpus_that_come_back_late_are_waited_for(
    world: World, up: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teardown, "LOOK", 0.01)
    late = in_turn("LISTEN 0 9 *:8020 *:*\n", "LISTEN 0 9 *:8020 *:*\n", "")
    world.nodes[SECOND].first = [(["ss", "-Hltn"], late)]
    assert teardown.teardown(up) == []
    assert len(world.nodes[SECOND].asked("ss -Hltn$")) == 3


def test_only_our_labels_of_this_run_and_arm(world: World, up: Deployment) -> None:
    stranger(world)
    other = Box("fleet-other", labels={"run": "20261130-other", "arm": "1p1d-mtp3", "role": "prefill", "rank": "0"})
    world.nodes[FIRST].boxes[other.name] = other
    teardown.teardown(up)
    assert list(world.nodes[FIRST].boxes) == ["web", "fleet-other"]
    assert other.state == "running"


def test_a_paused_container_is_woken_so_that_it_can_stop(world: World, up: Deployment) -> None:
    world.box("decode0").state = "paused"
    assert teardown.teardown(up) == []
    verbs = [line.split()[1] for line in world.nodes[SECOND].asked("docker (unpause|stop|rm)")]
    assert verbs == ["unpause", "stop", "rm"]


def test_one_that_would_not_hear_the_signal_is_killed_at_once(world: World, up: Deployment) -> None:
    """Its stop timeout would pass in vain: an engine that still imports handles no signal."""
    decode = world.box("decode0")
    decode.deaf = True
    assert teardown.teardown(up) == []
    asked = world.nodes[SECOND].asked("docker (kill|stop|rm)")
    assert asked == [f"docker kill {decode.id}", f"docker stop {decode.id}", f"docker rm {decode.id}"]
    assert world.nodes[FIRST].asked("docker kill") == []


def test_a_lost_host_is_a_problem_and_the_others_are_cleared(world: World, up: Deployment) -> None:
    world.nodes[SECOND].first = [(lambda argv: True, Unreachable("gone", where=SECOND))]
    problems = teardown.teardown(up)
    assert [str(problem) for problem in problems] == [f"{SECOND}: gone"]
    assert world.nodes[FIRST].boxes == {}


def test_a_scratch_folder_that_stays_is_a_problem(world: World, up: Deployment) -> None:
    world.nodes[SECOND].first = [(["rm"], (1, "", "Permission denied"))]
    (problem,) = teardown.teardown(up)
    assert "Permission denied" in str(problem)


RUNS = {"20261130-a-x": "me@here", "20261201-a-y": "me@here", "20261201-b-z": "bob@there", "20261202-b": "bob@there"}


@pytest.mark.parametrize(
    ("asked", "meant"),
    [("20261201-a-y", "20261201-a-y"), ("20261130", "20261130-a-x"), ("20261202-b", "20261202-b"), ("x", "x")],
)
def test_which_run_is_meant(asked: str, meant: str) -> None:
    assert teardown.one_run(RUNS, asked, "me@here") == meant


def test_a_beginning_never_means_several_runs_nor_another_owners() -> None:
    with pytest.raises(UsageError, match="--run 20261201 could be 2 runs") as told:
        teardown.one_run(RUNS, "20261201", "me@here")
    assert told.value.hint.splitlines() == [
        "invoke down --run 20261201-a-y   (of me@here)",
        "invoke down --run 20261201-b-z   (of bob@there)",
    ]
    with pytest.raises(UsageError, match="is a run of bob@there: to remove it its whole name is needed"):
        teardown.one_run(RUNS, "20261202", "me@here")


def test_containers_that_were_there_before_ours_are_not_cleared_away(world: World, up: Deployment) -> None:
    """Two runs of one plan in the same second have the same name and labels."""
    taken = up.named(up.arm.servers[0])
    up.taken.add(taken)
    assert collect.collect(up) == []
    assert teardown.teardown(up) == []
    assert [name for node in world.nodes.values() for name in node.boxes] == [taken]
    assert not up.folder.log(up.arm.arm.name, up.arm.servers[0].name).exists()
    assert not any(node.asked("rm -rf") for node in world.nodes.values())


def test_down_saves_each_log_and_removes_what_is_wanted(world: World, up: Deployment) -> None:
    stranger(world)
    kept: list[tuple[str, str]] = []

    def keep(machine: Machine, container: teardown.Container) -> None:
        kept.append((machine.name, container.labels["role"]))

    answers = teardown.down(world.session, lambda container: container.labels["role"] != "router", keep)
    assert {host: names for host, names in answers.items() if names} == {
        FIRST: [f"fleet-{up.plan.hash6}-prefill0"],
        SECOND: [f"fleet-{up.plan.hash6}-decode0"],
    }
    assert sorted(kept) == [(FIRST, "prefill"), (SECOND, "decode")]
    assert sorted(world.nodes[FIRST].boxes) == [f"fleet-{up.plan.hash6}-router", "web"]


def test_down_removes_the_scratch_folder_of_a_run_that_is_over(world: World, up: Deployment) -> None:
    def keep(machine: Machine, container: teardown.Container) -> None: ...

    teardown.down(world.session, lambda container: container.labels["role"] != "router", keep)
    assert world.nodes[FIRST].asked("rm -rf") == [], "the router still has its folder mounted"
    assert world.nodes[SECOND].asked("rm -rf") == [f"rm -rf /data/fleet/{RUN}"]
    teardown.down(world.session, lambda container: True, keep)
    assert world.nodes[FIRST].asked("rm -rf") == [f"rm -rf /data/fleet/{RUN}"]


def test_down_removes_the_scratch_folder_of_a_run_whose_containers_never_were(world: World, up: Deployment) -> None:
    never = "20261130-210405-k-aaaaaa"
    answers = teardown.down(world.session, lambda container: False, lambda machine, container: None, run=never)
    assert answers[SECOND] == [f"/data/fleet/{never}"]
    assert world.nodes[SECOND].asked("rm -rf") == [f"rm -rf /data/fleet/{never}"]


@pytest.mark.parametrize("run", ["", "..", "../x", "a/b"])
def test_a_run_that_is_no_name_has_no_folder_to_remove(world: World, up: Deployment, run: str) -> None:
    world.nodes[SECOND].boxes = {"odd": Box("odd", labels={"run": run, "role": "decode"})}
    answers = teardown.down(world.session, lambda container: True, lambda machine, container: None)
    assert answers[SECOND] == ["odd"]
    assert world.nodes[SECOND].asked("rm -rf") == []


def test_down_removes_nothing_whose_log_could_not_be_saved(world: World, up: Deployment) -> None:
    def keep(machine: Machine, container: teardown.Container) -> None:
        raise HostError("no space", where=machine.name)

    answers = teardown.down(world.session, lambda container: True, keep)
    assert isinstance(answers[FIRST], HostError)
    assert world.box("prefill0").state == "running"


def test_down_stops_what_this_disk_takes_no_log_of_and_removes_the_rest(world: World, up: Deployment) -> None:
    def keep(machine: Machine, container: teardown.Container) -> None:
        if container.labels["role"] == "prefill":
            raise NotKept("No space left on device", where="results/r/logs/a/prefill0.log")

    refused: dict[str, Mapping[str, NotKept]] = {}
    answers = teardown.down(world.session, lambda container: True, keep, refused=refused)
    name = f"fleet-{up.plan.hash6}-prefill0"
    assert answers[FIRST] == [f"fleet-{up.plan.hash6}-router"]
    assert {host: list(kept) for host, kept in refused.items()} == {FIRST: [name]}
    assert world.box("prefill0").state == "exited"
    assert world.nodes[FIRST].asked("rm -rf") == [], "what it wrote is still wanted"
    told = teardown.unsaved(world.session.machine(FIRST), refused[FIRST], "invoke down")
    assert str(told).splitlines() == [
        f"{FIRST}: No space left on device: the log of {name} could not be saved as results/r/logs/a/prefill0.log",
        "its container stays, stopped",
        "free some space there, or name another folder: INVOKE_FLEET_RESULTS=FOLDER before invoke",
        "then this brings the logs home and removes the containers: invoke down",
    ]
    assert told.exit_code == 3


def test_the_last_lines_of_a_log_running_or_at_home(world: World, up: Deployment, tmp_path: Path) -> None:
    machine = world.session.machine(FIRST)
    (container,) = teardown.ours(machine, role="router")
    assert collect.tail(machine, container, 5) == "2026-11-30T21:04:05Z router says\n"
    assert world.nodes[FIRST].lines[-1].endswith(f"docker logs --timestamps --tail 5 {container.id}")
    collect.tail(machine, container, 0)
    assert "--tail" not in world.nodes[FIRST].lines[-1]
    path = tmp_path / "x.log"
    path.write_text("a\nb\nc\n")
    assert collect.last_lines(path, 2) == "b\nc"
    assert collect.last_lines(path, 0) == "a\nb\nc"
