"""Going on with a run whose process has died: what is run, what is adopted, what is cleared away, and who may."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleet import docker, resumes, verbs
from fleet import plan as plans
from fleet.errors import HostError, Interrupted, LeaseHeld, UsageError
from fleet.plan import Plan
from fleet.results import store
from fleet.results.record import latest
from fleet.results.report import superseded
from fleet.results.state import Drive, Rerun, RunState
from fleet.results.store import RunFolder
from fleet.session import Session, owner
from fleet.settings import Settings, Timeouts
from fleet.stages import road, sweep, watch
from fleet.stages.deployment import Deployment
from fleet.stages.road import Road
from tests.world import ROOT, RUN, Box, Listener, Node, World, a_plan

ME = Drive(begun="2026-12-01T10:00:00.000Z", pid=4711, machine="here", owner="ops@here")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "EVERY", 0.01)
    monkeypatch.setattr(watch, "EVERY", 0.01)


class Killed(BaseException):
    """What no code of ours catches: the process is gone."""


def folder_of(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / RUN)
    folder.path.mkdir(exist_ok=True)
    return folder


def killed(world: World, folder: RunFolder, monkeypatch: pytest.MonkeyPatch, *, load: int) -> None:
    """The controller dies while the load at this concurrency runs: nobody clears anything away."""
    usual = world.client_ends

    def ends(node: Node, box: Box) -> None:
        if box.labels["point"].endswith(f"-c{load}"):
            raise Killed
        usual(node, box)

    with monkeypatch.context() as patched:
        patched.setattr(world, "client_ends", ends)
        patched.setattr(Road, "_interrupted", lambda *_: None)
        with pytest.raises(Killed):
            Road(world.session, world.plan, folder).go()


def resumed(world: World, folder: RunFolder, rerun: Rerun = "") -> Road:
    return Road(world.session, world.plan, folder, resumed=True, rerun=rerun)


def started(world: World) -> list[str]:
    """The containers that were started, host by host."""
    lines = [line for node in world.nodes.values() for line in node.asked("docker run -d ")]
    names = [line.partition("--name ")[2].split()[0] for line in lines]
    return [name.removeprefix(f"fleet-{world.plan.hash6}-") for name in names]


def forget(world: World) -> None:
    for node in world.nodes.values():
        node.fake.calls.clear()


def boxes(world: World) -> dict[str, Box]:
    return {name: box for node in world.nodes.values() for name, box in node.boxes.items()}


@pytest.fixture
def world() -> World:
    return World(a_plan("1p1d-mtp3", (4, 8)))


def test_the_servers_run_on_the_load_is_stopped_and_only_its_point_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    folder = folder_of(tmp_path)
    killed(world, folder, monkeypatch, load=8)
    before, raw = folder.points.read_bytes(), folder.raw("1p1d-mtp3-c4").read_bytes()
    assert len(boxes(world)) == 4
    forget(world)
    assert resumed(world, folder).go() == 0
    assert started(world) == ["client-1p1d-mtp3-c8"]
    assert [(one.point, one.attempt, one.valid) for one in folder.records()] == [
        ("1p1d-mtp3-c4", 1, True), ("1p1d-mtp3-c8", 1, True),
    ]  # fmt: skip
    assert folder.points.read_bytes().startswith(before)
    assert folder.raw("1p1d-mtp3-c4").read_bytes() == raw
    assert "  3 containers of arm 1p1d-mtp3 run on, as planned" in world.told.lines
    assert boxes(world) == {}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda box: box.end(137), "decode0 is exited"),
        (lambda box: setattr(box, "state", "paused"), "decode0 is paused"),
        (lambda box: box.argv.append("--other"), "decode0 runs another command line"),
        (lambda box: box.labels.update(spec="0" * 12), "decode0 was started otherwise than planned"),
    ],
)
def test_what_is_not_as_planned_is_not_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: World, change: object, why: str
) -> None:
    folder = folder_of(tmp_path)
    killed(world, folder, monkeypatch, load=8)
    change(world.box("decode0"))  # type: ignore[operator]
    forget(world)
    assert resumed(world, folder).go() == 0
    assert f"  arm 1p1d-mtp3 is started anew: {why}" in world.told.lines
    assert sorted(started(world)) == ["client-1p1d-mtp3-c8", "decode0", "prefill0", "router"]
    logs = {path.name for path in folder.logs("1p1d-mtp3").iterdir()}
    assert {"decode0.log", "decode0-1.log", "client-c8.log", "client-c8-1.log"} <= logs


def test_another_image_is_not_adopted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    folder = folder_of(tmp_path)
    killed(world, folder, monkeypatch, load=8)
    plain, left = Box.inspected, world.box("prefill0")
    with monkeypatch.context() as patched:
        patched.setattr(Box, "inspected", lambda box: plain(box) | ({"Image": "sha256:old"} if box is left else {}))
        assert resumed(world, folder).go() == 0
    assert "  arm 1p1d-mtp3 is started anew: prefill0 is of another image" in world.told.lines


def test_a_server_that_was_not_started_yet_is_started_beside_the_adopted_one(tmp_path: Path, world: World) -> None:
    folder, arm = folder_of(tmp_path), world.plan.arms[0]
    world.start(Deployment.of(world.session, folder, world.plan, arm, {}), arm.servers[0])
    assert resumed(world, folder).go() == 0
    assert "  1 container of arm 1p1d-mtp3 runs on, as planned" in world.told.lines
    anew = ["client-1p1d-mtp3-c4", "client-1p1d-mtp3-c8", "decode0", "router"]
    assert sorted(started(world)) == anew


def test_a_server_that_is_gone_behind_the_router_means_a_new_deployment(tmp_path: Path, world: World) -> None:
    folder, arm = folder_of(tmp_path), world.plan.arms[0]
    deployment = Deployment.of(world.session, folder, world.plan, arm, {})
    for service in (arm.servers[0], *filter(None, [arm.router])):
        world.start(deployment, service)
    assert resumed(world, folder).go() == 0
    assert "  arm 1p1d-mtp3 is started anew: decode0 is gone" in world.told.lines


def test_an_arm_whose_points_are_all_there_is_not_started_and_its_containers_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = a_plan(None, (4, 256))
    world = World(both)
    folder = folder_of(tmp_path)
    first, second = (arm.arm.name for arm in both.arms)
    killed(world, folder, monkeypatch, load=both.arms[1].points[0].point.conc)
    forget(world)
    assert resumed(world, folder).go() == 0
    assert not [line for line in world.told.lines[-6:] if line.startswith(f"arm {first}")]
    assert [record.arm for record in folder.records()] == [first, second]
    assert boxes(world) == {}


def test_all_points_there_asks_for_nothing_but_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    """Killed between the last point and the end of teardown."""
    folder = folder_of(tmp_path)

    def gone(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Road, "_clear", gone)
        with pytest.raises(Killed):
            Road(world.session, world.plan, folder).go()
    assert len(boxes(world)) == 3
    forget(world)
    assert resumed(world, folder).go() == 0
    assert started(world) == []
    assert boxes(world) == {}
    assert any(asked.line.startswith("rm -rf") for node in world.nodes.values() for asked in node.fake.calls)


def test_the_next_load_waits_until_what_was_sent_before_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    folder = folder_of(tmp_path)
    killed(world, folder, monkeypatch, load=8)
    heard: list[tuple[str, str]] = []
    monkeypatch.setattr(road, "rest", lambda _, *, after, before, within: heard.append((after, before)))
    assert resumed(world, folder).go() == 0
    assert heard == [("what an earlier process had sent", "conc 8")]


# --- which points ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rerun", "ran"), [("", []), ("incomplete", []), ("failed", [("c4", 2)]), ("all", [("c4", 2), ("c8", 2)])]
)
def test_rerun_keeps_the_earlier_records(
    tmp_path: Path, world: World, rerun: Rerun, ran: list[tuple[str, int]]
) -> None:
    folder = folder_of(tmp_path)
    usual = world.client_ends

    def ends(node: Node, box: Box) -> None:
        usual(node, box)
        box.code = 1 if box.labels["point"].endswith("-c4") else 0

    world.client_ends = ends  # type: ignore[method-assign]
    assert Road(world.session, world.plan, folder).go() == 1
    before = folder.points.read_bytes()
    raw = folder.raw("1p1d-mtp3-c4").read_bytes()
    world.client_ends = usual  # type: ignore[method-assign]
    assert resumed(world, folder, rerun).go() == (0 if ran else 1)
    assert folder.points.read_bytes().startswith(before)
    again = folder.records()[2:]
    assert [(one.point.rpartition("-")[2], one.attempt) for one in again] == ran
    for one in again:
        assert one.raw == f"raw/{one.point}.attempt2.json"
        assert (folder.path / one.raw).exists()
    assert folder.raw("1p1d-mtp3-c4").read_bytes() == raw
    assert len(latest(folder.records())) == 2
    assert len(superseded(folder.records())) == len(ran)


def test_an_interrupted_point_is_run_again_by_a_plain_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    folder = folder_of(tmp_path)
    usual = world.client_ends

    def ends(node: Node, box: Box) -> None:
        if box.labels["point"].endswith("-c8"):
            raise KeyboardInterrupt
        usual(node, box)

    with monkeypatch.context() as patched:
        patched.setattr(world, "client_ends", ends)
        with pytest.raises(Interrupted, match="1 finished point kept"):
            Road(world.session, world.plan, folder).go()
    assert f"- next: invoke sweep --resume {RUN}" in folder.summary_text.read_text()
    assert resumed(world, folder).go() == 0
    assert [(one.conc, one.state, one.attempt) for one in folder.records()] == [
        (4, "done", 1), (8, "incomplete", 1), (8, "done", 2),
    ]  # fmt: skip
    assert json.loads(folder.summary_json.read_text())["valid"] == 2
    assert "attempt 2 counts" in folder.summary_text.read_text()
    assert "next:" not in folder.summary_text.read_text()


def test_a_summary_says_which_attempt_counts(tmp_path: Path, world: World) -> None:
    folder = folder_of(tmp_path)
    Road(world.session, world.plan, folder).go()
    resumed(world, folder, "all").go()
    told = json.loads(folder.summary_json.read_text())
    assert [one["attempt"] for one in told["results"]] == [2, 2]
    assert told["points"] == 2


def test_a_lost_host_is_told_with_the_line_that_goes_on(tmp_path: Path, world: World) -> None:
    usual = world.client_ends

    def ends(node: Node, box: Box) -> None:
        usual(node, box)
        world.nodes["mi355x-02"].first = [(lambda argv: True, HostError("connection lost", where="mi355x-02"))]

    world.client_ends = ends  # type: ignore[method-assign]
    with pytest.raises(HostError) as told:
        Road(world.session, world.plan, folder_of(tmp_path)).go()
    assert told.value.hint.endswith(f"next: invoke sweep --resume {RUN}")


@pytest.mark.parametrize("where", ["preflight", "stage"])
def test_ctrl_c_before_an_arm_is_130_and_says_what_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: World, where: str
) -> None:
    def act(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(road, where, act)
    with pytest.raises(Interrupted, match="interrupted; 0 finished points kept in") as told:
        Road(world.session, world.plan, folder_of(tmp_path)).go()
    assert told.value.hint == f"next: invoke sweep --resume {RUN}"
    assert boxes(world) == {}


# --- the plan of a run ----------------------------------------------------------------------------------------------


def test_a_plan_comes_back_from_its_json_as_it_was() -> None:
    made = a_plan(None, ())
    again = plans.of_json(json.loads(plans.to_json(made)))
    assert again == made
    assert plans.same(again)


def test_files_of_today_that_would_plan_otherwise_are_told() -> None:
    made, other = a_plan(conc=(4,)), a_plan(conc=(8,))
    assert resumes.drifted(made, lambda: made, "X") == ""
    assert resumes.drifted(made, lambda: other, "invoke sweep --config KEY --conc 4") == (
        f"today's files make another plan, {other.hash6}; the run goes on with its own plan {made.hash6}; "
        "to run today's: invoke sweep --config KEY --conc 4"
    )

    def no_plan() -> Plan:
        raise UsageError("no such file", where="recipes")

    assert "today's files do not make a plan (recipes: no such file)" in resumes.drifted(made, no_plan, "")
    older = made.model_copy(update={"hash": "0" * 64})
    assert "this version of fleet starts containers otherwise" in resumes.drifted(older, lambda: made, "")


def test_the_line_for_todays_files_has_all_words_of_the_run() -> None:
    made = a_plan(conc=(4, 8))
    state = resumes.state(made, Settings(), arm="1p1d-mtp3", conc=(4, 8), fail_fast=True)
    state = state.model_copy(update={"trial": True})
    assert resumes.typed(state, inventory="rack 1.yaml", limit=("a", "b")) == (
        f"invoke sweep --config {made.key} --arm 1p1d-mtp3 --conc 4,8 --limit a,b --inventory 'rack 1.yaml' "
        "--trial --fail-fast"
    )
    assert resumes.typed(resumes.state(made, Settings())) == f"invoke sweep --config {made.key}"


class Reached(Exception):
    pass


def resumes_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Plan, *, state: bool) -> list[str]:
    """What `sweep --resume` tells before it goes on."""
    folder = an_earlier(tmp_path, made, ended=True)
    folder.write_text(folder.plan_json, plans.to_json(made))
    if not state:
        folder.state_json.unlink()
    told = Listener()

    @contextmanager
    def session(*_: object, **__: object) -> Iterator[Session]:
        yield Session(made.inventory, {}, Settings(), told)

    def reached(*_: object) -> int:
        raise Reached

    monkeypatch.setattr(verbs, "_session", session)
    monkeypatch.setattr(verbs, "_driven", reached)
    with pytest.raises(Reached):
        verbs.sweep(Settings(results=tmp_path, recipes=(ROOT / "recipes")), resume=folder.name)
    return told.lines[1:]


def test_a_run_without_its_state_says_that_and_not_that_the_files_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    made = a_plan(conc=(4,))
    (told,) = resumes_with(tmp_path / "with", monkeypatch, made, state=True)
    assert told.endswith(
        f"to run today's: invoke sweep --config {made.key} --inventory inventories/example-mi355x.yaml"
    ), "its state says that all of the config was asked for"
    assert resumes_with(tmp_path / "without", monkeypatch, made, state=False) == [resumes.MISSING]
    (folder,) = (tmp_path / "without").glob("2*")
    kept = RunFolder(folder).state()
    assert kept is not None
    assert (kept.arm, kept.conc, len(kept.drives)) == ("1p1d-mtp3", (4,), 1)


def test_a_foreign_record_does_not_keep_a_run_from_being_valid_and_is_told(tmp_path: Path, world: World) -> None:
    folder = folder_of(tmp_path)
    folder.write_text(folder.plan_json, plans.to_json(world.plan))
    assert Road(world.session, world.plan, folder).go() == 0
    first = folder.records()[0]
    folder.append_record(first.model_copy(update={"point": "1p1d-mtp3-c9999"}))
    folder.raw(first.point).unlink()
    assert resumed(world, folder).go() == 0
    said = folder.summary_text.read_text()
    assert "- points.jsonl:3 is set aside and counts for nothing: the plan has no point 1p1d-mtp3-c9999" in said
    assert f"- raw/{first.point}.json is missing, which the record of {first.point} names" in said
    assert len(json.loads(folder.summary_json.read_text())["results"]) == 2


def test_what_is_strange_about_a_run_is_told_when_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(RunFolder, "oddities", lambda self: ["points.jsonl:1 is set aside"])
    assert resumes_with(tmp_path, monkeypatch, a_plan(), state=True)[-1] == "points.jsonl:1 is set aside"


def test_a_run_of_some_hosts_goes_on_being_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    made = a_plan()
    assert verbs._narrowed(made) == []
    fewer = made.inventory.model_copy(update={"hosts": made.inventory.hosts[:2]})
    assert verbs._narrowed(made.model_copy(update={"inventory": fewer})) == ["mi355x-01", "mi355x-02"]


def test_time_limits_are_the_runs_own() -> None:
    made = a_plan()
    then = resumes.state(made, Settings(timeouts=Timeouts(ready_within=60.0)))
    assert resumes.other_limits(then, Settings(timeouts=Timeouts(ready_within=60.0))) == ""
    assert resumes.other_limits(then, Settings()) == "time limits are the run's own: ready_within 60 s (today 2400 s)"


# --- who drives it --------------------------------------------------------------------------------------------------


def hold(path: str, ready: multiprocessing.synchronize.Event) -> None:
    with RunFolder(Path(path)).held(ME):
        ready.set()
        multiprocessing.Event().wait(60)


def test_a_held_run_names_its_holder_and_a_killed_holder_lets_go(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    other = context.Process(target=hold, args=(str(folder.path), ready), daemon=True)
    other.start()
    assert ready.wait(30)
    assert folder.driven()
    with pytest.raises(LeaseHeld) as told, folder.held(ME):
        pass
    assert told.value.exit_code == 5
    assert told.value.what == f"run {RUN} is under way: {ME} drives it"
    other.kill()
    other.join(10)
    assert not folder.driven()
    with folder.held(ME):
        pass


def test_begun_and_ended_are_kept_and_a_death_leaves_no_end(tmp_path: Path) -> None:
    folder, wanted = folder_of(tmp_path), resumes.state(a_plan(), Settings())
    with pytest.raises(UsageError), resumes.driven(folder, wanted):
        raise UsageError("a reason", where="here")
    with resumes.driven(folder, wanted) as drive:
        seen = folder.state()
        assert seen
        assert not seen.ended
        drive.code = 0
    state = folder.state()
    assert state
    assert state.ended
    assert [(one.why, one.code) for one in state.drives] == [("here: a reason", 2), ("", 0)]
    assert all(one.owner == owner() for one in state.drives)


def test_a_damaged_state_is_told(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    assert folder.state() is None
    folder.state_json.write_text('{"schema_version": "1"')
    with pytest.raises(UsageError, match="damaged"):
        folder.state()


# --- earlier runs of the plan ---------------------------------------------------------------------------------------


def an_earlier(root: Path, made: Plan, *, ended: bool, day: int = 1) -> RunFolder:
    folder = store.create(root, made.key, made.hash, datetime(2026, 11, day, tzinfo=UTC))
    state: RunState = resumes.state(made, Settings()).begun(ME)
    folder.write_state(state.over("2026-12-01T11:00:00.000Z", "interrupted", 130) if ended else state)
    return folder


def test_a_crashed_run_of_this_plan_is_not_started_over(tmp_path: Path) -> None:
    made = a_plan("1p1d-mtp3", (4, 8))
    folder = an_earlier(tmp_path, made, ended=False)
    with pytest.raises(UsageError) as told:
        resumes.earlier(tmp_path, made, "invoke sweep --config x --new")
    assert told.value.what.startswith(
        f"a run of this plan is unfinished: {folder.name}\n  {ME} ended without a word; 2 of"
    )
    assert told.value.hint.splitlines() == [
        f"go on with it:  invoke sweep --resume {folder.name}",
        "start anew:     invoke sweep --config x --new",
        f"remove what it left on the hosts:  invoke down --run {folder.name} --inventory {made.inventory.path}",
    ]
    assert resumes.earlier(tmp_path, a_plan("1p1d-mtp3", (4,)), "") == "", "another plan's is nobody's business"
    an_earlier(tmp_path, made, ended=True, day=2)
    assert resumes.earlier(tmp_path, made, "") == "", "a newer run of the plan came to its own end"


def test_a_run_that_is_under_way_is_no_crashed_one(tmp_path: Path) -> None:
    made = a_plan()
    folder = an_earlier(tmp_path, made, ended=False)
    with folder.held(ME):
        assert resumes.earlier(tmp_path, made, "") == ""


def test_a_run_that_ended_with_points_missing_is_a_notice(tmp_path: Path, world: World) -> None:
    (tmp_path / "elsewhere").mkdir()
    ran = folder_of(tmp_path / "elsewhere")
    Road(world.session, world.plan, ran).go()
    folder = an_earlier(tmp_path, world.plan, ended=True)
    assert resumes.earlier(tmp_path, world.plan, "") == "", "nothing of it is kept"
    folder.append_record(ran.records()[0])
    told = resumes.earlier(tmp_path, world.plan, "")
    assert told == f"an earlier run of this plan has 1 of 2 points missing: invoke sweep --resume {folder.name}"
    folder.append_record(ran.records()[1])
    assert resumes.earlier(tmp_path, world.plan, "") == ""


# --- the verb's words -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ({"rerun": "failed"}, "--rerun needs a run"),
        (
            {"rerun": "faild", "resume": "latest"},
            "--rerun faild: one of failed, incomplete, all expected; did you mean",
        ),
        ({"resume": "latest", "arm": "x", "trial": True}, "--arm, --trial cannot be given with --resume"),
        ({"resume": "latest", "conc": (4,)}, "--conc cannot be given with --resume"),
        ({"resume": "latest"}, "no run yet"),
        ({"fail_fast": True, "keep_going": True}, "--fail-fast and --keep-going exclude each other"),
    ],
)
def test_words_that_do_not_go_together(tmp_path: Path, words: dict[str, object], what: str) -> None:
    settings = Settings(results=tmp_path)
    with pytest.raises(UsageError) as told:
        verbs.sweep(settings, **{"config": "", **words})  # type: ignore[arg-type]
    assert told.value.what.startswith(what)
    assert told.value.hint


@pytest.mark.parametrize(
    ("words", "again"),
    [({"config": "k"}, "invoke sweep --config k"), ({"resume": "2026"}, "invoke sweep --resume 2026")],
)
def test_both_of_fail_fast_and_keep_going(words: dict[str, str], again: str) -> None:
    with pytest.raises(UsageError) as told:
        verbs.sweep(Settings(), fail_fast=True, keep_going=True, **words)  # type: ignore[arg-type]
    assert told.value.hint.splitlines() == [
        f"to go on after an invalid point (the default): {again}",
        f"to stop at the first: {again} --fail-fast",
    ]


def test_a_config_that_is_not_the_runs_and_a_damaged_plan(tmp_path: Path) -> None:
    made = a_plan()
    folder = an_earlier(tmp_path, made, ended=True)
    folder.write_text(folder.plan_json, "{}")
    with pytest.raises(UsageError, match=r"plan\.json is not a plan"):
        verbs.sweep(Settings(results=tmp_path), resume=folder.name)
    folder.write_text(folder.plan_json, plans.to_json(made))
    with pytest.raises(UsageError) as told:
        verbs.sweep(Settings(results=tmp_path), config="another", resume="latest")
    assert told.value.what == f"run {folder.name} is one of {made.key}, not of another"


def test_a_plan_that_was_changed_since_is_not_gone_on_with(tmp_path: Path) -> None:
    made = a_plan()
    folder = an_earlier(tmp_path, made, ended=False)
    folder.write_text(folder.plan_json, plans.to_json(made))
    state = folder.state()
    assert state is not None
    folder.write_state(
        state.model_copy(update={"plan_file": hashlib.sha256(folder.plan_json.read_bytes()).hexdigest()})
    )
    assert resumes.plan_of(folder).hash == made.hash
    folder.write_text(folder.plan_json, plans.to_json(made).replace("0.85", "0.55"))
    with pytest.raises(UsageError, match=r"the run's plan\.json was changed since the run began"):
        resumes.plan_of(folder)


@pytest.mark.parametrize("secrets", [(), ("TOKEN",)])
def test_what_was_started_is_what_is_adopted(tmp_path: Path, world: World, secrets: tuple[str, ...]) -> None:
    """Of a service with secrets, too, whose command reads them from a file first."""
    deployment = world.deployment(tmp_path)
    service = deployment.services[0].model_copy(update={"secrets": secrets})
    world.start(deployment, service)
    row, host = world.box("prefill0").inspected(), deployment.arm.placement.host(service.host)
    assert docker.unlike(row, service, host, row["Image"]) == ""
    assert docker.unlike(row, service, host, "") == "is of another image"


def test_labels_that_fleet_never_gives_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    folder = folder_of(tmp_path)
    killed(world, folder, monkeypatch, load=8)
    stray = Box("stray", labels={"run": RUN, "arm": "../../etc", "role": "decode", "rank": "0"})
    world.nodes["mi355x-01"].boxes["stray"] = stray
    assert resumed(world, folder).go() == 0
    assert list(boxes(world)) == ["stray"]


def test_weights_that_changed_since_the_run_began_are_refused_and_its_points_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(a_plan("1p1d-mtp3", (4, 8)))
    folder = folder_of(tmp_path)
    killed(world, folder, monkeypatch, load=8)
    (before,) = folder.read_facts()["weights"].values()
    assert (before["files"], before["size"], before["hosts"]) == (2, 1010, ["mi355x-01", "mi355x-02"])
    for node in world.nodes.values():
        node.contents = {"model-1.safetensors": "5e1f" * 16}
    with pytest.raises(HostError) as told:
        resumed(world, folder).go()
    assert told.value.head.startswith(f"{RUN}: model DeepSeek-V4-Pro was 2 files, 1010 bytes, {before['digest']} when ")
    assert told.value.hint.startswith("its points are kept; to start anew: invoke sweep --config dsv4-fp4")
    assert (told.value.exit_code, len(folder.records())) == (3, 1)
    for node in world.nodes.values():
        node.contents = {}
    assert resumed(world, folder).go() == 0
    assert folder.read_facts()["weights"]["DeepSeek-V4-Pro"] == before
