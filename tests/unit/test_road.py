"""The whole chain on scripted hosts: exit codes, what is kept and told, and what ^C leaves behind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fleet.errors import Interrupted, PreflightError, Unreachable
from fleet.hosts.base import SILENT
from fleet.results.store import RunFolder
from fleet.stages import pulse, road, sweep, watch
from fleet.stages.road import Road
from tests.world import RUN, Box, Node, World, a_plan

NEVER = "not run: 1p1d-mtp3 at conc 4 8"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "EVERY", 0.01)
    monkeypatch.setattr(watch, "EVERY", 0.01)


def a_road(tmp_path: Path, world: World | None = None, *, fail_fast: bool = False) -> tuple[World, Road]:
    made = world or World(a_plan("1p1d-mtp3", (4, 8)))
    folder = RunFolder(tmp_path / RUN)
    folder.path.mkdir()
    return made, Road(made.session, made.plan, folder, fail_fast=fail_fast)


def left(world: World) -> list[str]:
    return [name for node in world.nodes.values() for name in node.boxes]


def summary(made: Road) -> str:
    return made.folder.summary_text.read_text()


def ends_badly(world: World, *bad: int) -> None:
    """These points' clients end with code 1; their results are as good as ever."""
    usual = world.client_ends

    def ends(node: Node, box: Box) -> None:
        usual(node, box)
        if any(box.labels["point"].endswith(f"-c{conc}") for conc in bad):
            box.code = 1

    world.client_ends = ends  # type: ignore[method-assign]


def test_all_valid_is_0_and_nothing_is_left(tmp_path: Path) -> None:
    world, made = a_road(tmp_path)
    assert made.go() == 0
    assert [record.valid for record in made.folder.records()] == [True, True]
    assert left(world) == []
    assert world.told.cleared == 1
    assert sorted(path.name for path in made.folder.logs("1p1d-mtp3").iterdir()) == [
        "client-c4.log", "client-c8.log", "decode0.log", "prefill0.log", "router.log",
    ]  # fmt: skip
    assert world.told.lines[0] == "arm 1p1d-mtp3   8192/1024   conc 4 8   16 GPUs"
    assert "not run" not in summary(made)


def test_an_invalid_point_is_1_and_the_rest_runs(tmp_path: Path) -> None:
    world, made = a_road(tmp_path)
    ends_badly(world, 4)
    assert made.go() == 1
    assert [record.valid for record in made.folder.records()] == [False, True]


def test_fail_fast_stops_at_the_first_invalid_point_and_says_what_was_not_run(tmp_path: Path) -> None:
    world, made = a_road(tmp_path, fail_fast=True)
    ends_badly(world, 4)
    assert made.go() == 1
    assert [record.conc for record in made.folder.records()] == [4]
    assert made.notes == ["not run: 1p1d-mtp3 at conc 8"]
    assert "not run: 1p1d-mtp3 at conc 8" in summary(made)
    assert left(world) == []


def dies_at(world: World, conc: int) -> None:
    """decode0 ends, with a word in its log, while the client of this point runs."""
    usual = world.client_ends

    def ends(node: Node, box: Box) -> None:
        usual(node, box)
        if box.labels["point"].endswith(f"1p1d-mtp3-c{conc}"):
            world.box("decode0").log = "2026-11-30T21:14:07.310000000Z   HIP out of memory. Tried to allocate 3 GiB\n"
            world.box("decode0").end(137, oom=True)

    world.client_ends = ends  # type: ignore[method-assign]


def test_a_death_is_4_with_its_first_fatal_line_and_logs_at_home(tmp_path: Path) -> None:
    world, made = a_road(tmp_path)
    dies_at(world, 8)
    assert made.go() == 4
    assert [record.state for record in made.folder.records()] == ["done", "incomplete"]
    death = "conc 8 stopped: decode 0 on mi355x-02 died (exit 137: killed, out of memory)"
    assert world.told.lines[-1] == (
        f"{death}\n"
        "  21:14:07.310  decode 0 on mi355x-02   HIP out of memory. Tried to allocate 3 GiB   ← first fatal line\n"
        f"logs of 3 services are in {made.folder.logs('1p1d-mtp3')}; 1 finished point kept in {made.folder.path}\n"
        f"next: invoke sweep --resume {RUN}"
    )
    assert made.notes == [f"arm 1p1d-mtp3 ended early: {death}"]
    assert left(world) == []


def test_a_death_is_told_by_our_clock(tmp_path: Path) -> None:
    """Decode's host is 0.8 s ahead of ours."""
    world, made = a_road(tmp_path)
    world.nodes["mi355x-02"].clock = 0.8
    dies_at(world, 8)
    assert made.go() == 4
    assert re.search(r"^  21:14:06\.[45]\d\d  decode 0 on mi355x-02   HIP out", world.told.lines[-1], re.M)


def test_keep_going_runs_the_next_arm_after_a_death_fail_fast_does_not(tmp_path: Path) -> None:
    both = a_plan(None, (4, 256))
    turned = both.model_copy(update={"arms": both.arms[::-1]})
    assert [arm.arm.name for arm in turned.arms] == ["1p1d-mtp3", "2p1d-dpa-mtp3"]
    for number, (fail_fast, ran) in enumerate([(False, ["1p1d-mtp3", "2p1d-dpa-mtp3"]), (True, ["1p1d-mtp3"])]):
        (tmp_path / str(number)).mkdir()
        world, made = a_road(tmp_path / str(number), World(turned), fail_fast=fail_fast)
        dies_at(world, 4)
        assert made.go() == 4
        assert [record.arm for record in made.folder.records()] == ran
        assert left(world) == []


def test_an_arm_that_never_gets_ready_is_4(tmp_path: Path) -> None:
    world = World(a_plan("1p1d-mtp3", (4, 8)), ready_within=0.3)
    world.handlers["decode0"] = lambda path, body: (503, "loading")
    _, made = a_road(tmp_path, world)
    assert made.go() == 4
    assert made.notes[0].startswith(
        "arm 1p1d-mtp3 ended early: prefill 0 on mi355x-01, decode 0 on mi355x-02: not after"
    )
    assert made.notes[1] == NEVER
    assert left(world) == []


def test_preflight_is_3_starts_nothing_and_is_in_the_summary(tmp_path: Path) -> None:
    world, made = a_road(tmp_path)
    world.nodes["mi355x-02"].ports.add(8020)
    with pytest.raises(PreflightError) as told:
        made.go()
    assert told.value.exit_code == 3
    first, second = made.ended_early
    assert (first, second[:35]) == ("preflight: 1 reason not to start", "mi355x-02: port 8020 (decode0) is t")
    page = made.folder.summary_text.read_text()
    assert page.index("## Ended early") < page.index("No point has run.")
    assert made.notes == [NEVER]
    assert "port 8020" in summary(made)
    assert not (made.folder.path.parent / "latest").exists()
    assert world.nodes["mi355x-01"].asked("docker run") == []


def test_a_lost_host_is_4_and_the_others_are_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "BEAT", 0.05)
    monkeypatch.setattr(pulse, "DEAD", 1.0)
    world, made = a_road(tmp_path)
    usual = world.client_ends

    def ends(node: Node, box: Box) -> None:
        usual(node, box)
        lost = Unreachable("connection lost", where="mi355x-02")
        world.nodes["mi355x-02"].first = [(lambda argv: True, lost)]
        world.nodes["mi355x-02"].fake.greets = SILENT

    world.client_ends = ends  # type: ignore[method-assign]
    assert made.go() == 4
    assert world.nodes["mi355x-01"].boxes == {}
    early, told = [line for line in world.told.lines if "mi355x-02 is lost" in line]
    assert early.endswith(": bringing the logs of 2 services home")
    assert re.search(r"it does not answer at all: cable, power or network\n  it held decode0\n", told)
    left = "mi355x-02: lost: its containers and their logs are left there; when it is back: invoke down --run "
    assert any(note.startswith(f"teardown of 1p1d-mtp3: {left}") for note in made.notes)
    assert [record.state for record in made.folder.records()] == ["incomplete"]


def test_an_image_that_changes_meanwhile_is_an_error(tmp_path: Path) -> None:
    world, made = a_road(tmp_path)
    usual = world.client_ends

    def ends(node: Node, box: Box) -> None:
        usual(node, box)
        world.nodes["mi355x-02"].images[world.tag] = "sha256:new"
        world.nodes["mi355x-01"].images[world.tag] = "sha256:new"

    world.client_ends = ends  # type: ignore[method-assign]
    with pytest.raises(Exception, match="the image changed while the arm ran"):
        made.go()
    assert left(world) == []


def interrupted(monkeypatch: pytest.MonkeyPatch, name: str, *times: bool) -> list[int]:
    """`road.<name>` is interrupted at those of its calls that are True."""
    usual, plan, calls = getattr(road, name), list(times), [0]

    def act(*args: object, **options: object) -> object:
        calls[0] += 1
        if plan and plan.pop(0):
            raise KeyboardInterrupt
        return usual(*args, **options)

    monkeypatch.setattr(road, name, act)
    return calls


@pytest.mark.parametrize("where", ["ready", "run_point", "collect", "teardown"])
def test_ctrl_c_anywhere_brings_logs_home_and_stops_our_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    world, made = a_road(tmp_path)
    interrupted(monkeypatch, where, True)
    with pytest.raises(Interrupted) as told:
        made.go()
    assert told.value.exit_code == 130
    again = f"next: invoke sweep --resume {RUN}"
    assert told.value.hint == (again if where in ("ready", "run_point") else f"see: {made.folder.path}")
    assert "interrupted: bringing logs home" in world.told.lines[-1]
    assert left(world) == []
    assert made.folder.log("1p1d-mtp3", "decode0").exists()
    assert made.folder.summary_json.exists()


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), OSError(5, "Input/output error")], ids=str)
def test_a_terminal_or_pipe_that_is_gone_keeps_no_container_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """`invoke sweep | tee log` and ^C: tee is gone before we are."""
    world, made = a_road(tmp_path)
    interrupted(monkeypatch, "ready", True)
    tell = world.told.line

    def line(text: str) -> None:
        tell(text)
        if text.startswith("interrupted"):
            raise error

    monkeypatch.setattr(world.told, "line", line)
    with pytest.raises(Interrupted):
        made.go()
    assert left(world) == []
    assert made.folder.log("1p1d-mtp3", "decode0").exists()


def test_a_second_ctrl_c_leaves_at_once_and_says_how_to_clear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, made = a_road(tmp_path)
    interrupted(monkeypatch, "ready", True)
    interrupted(monkeypatch, "teardown", True)
    with pytest.raises(Interrupted) as told:
        made.go()
    assert told.value.what == f"left at once; containers of {RUN} may still run on mi355x-01, mi355x-02"
    assert told.value.hint.splitlines() == [
        f"remove them: invoke down --run {RUN} --inventory inventories/example-mi355x.yaml",
        f"or go on with them: invoke sweep --resume {RUN}",
    ]
    assert left(world) != []
    assert made.folder.summary_text.exists()


def test_facts_are_written_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, made = a_road(tmp_path)
    interrupted(monkeypatch, "ready", True)
    with pytest.raises(Interrupted):
        made.go()
    assert '"kernel": "6.8.0"' in made.folder.facts.read_text()
