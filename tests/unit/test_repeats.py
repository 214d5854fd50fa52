"""Points that are run several times: their plan, their order, what one start of the servers serves, and going on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet import plan as plans
from fleet import resumes, runbook
from fleet.errors import UsageError
from fleet.model import load
from fleet.model.arm import ONCE, Repeats
from fleet.plan import Plan
from fleet.results.store import RunFolder
from fleet.settings import Settings
from fleet.stages import sweep, watch
from fleet.stages.road import Road
from tests.judged import a_point
from tests.world import KEY, ROOT, RUN, World

THREE = Repeats(count=3)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "EVERY", 0.01)
    monkeypatch.setattr(watch, "EVERY", 0.01)


def made(repeats: Repeats = ONCE, conc: tuple[int, ...] = (4, 8, 16)) -> Plan:
    inventory = load.inventory(ROOT / "inventories" / "example-mi355x.yaml")
    recipe = load.recipe(KEY, ROOT / "recipes")
    return plans.build(recipe, inventory, ROOT / "recipes", arm="1p1d-mtp3", conc=conc, repeats=repeats)


def ids(plan: Plan) -> list[str]:
    return [planned.point.id.removeprefix("1p1d-mtp3-") for planned in plan.arms[0].points]


def test_each_round_has_every_point_once() -> None:
    found = ids(made(THREE))
    assert [sorted(found[at : at + 3]) for at in (0, 3, 6)] == [
        ["c16", "c4", "c8"], ["c16-r1", "c4-r1", "c8-r1"], ["c16-r2", "c4-r2", "c8-r2"],
    ]  # fmt: skip


def test_the_order_is_shuffled_with_a_seed_that_the_plan_keeps() -> None:
    one, again, other = made(THREE), made(THREE), made(Repeats(count=3, order_seed=7))
    assert ids(one) == ids(again)
    assert ids(one) != ids(other)
    assert sorted(ids(one)) == sorted(ids(other))
    assert (one.repeats.order_seed, other.repeats.order_seed) == (0, 7)
    assert one.hash == again.hash != other.hash
    assert plans.of_json(json.loads(plans.to_json(other))) == other


def test_rounds_differ_in_their_order() -> None:
    """Eight points in four rounds: the same order twice in a row would be one in 40320."""
    points = [a_point(conc=conc) for conc in range(1, 9)]
    found = [point.conc for point in plans.repeated(points, Repeats(count=4))]
    assert len({tuple(found[at : at + 8]) for at in (0, 8, 16, 24)}) == 4


def test_once_is_the_order_of_the_recipe_and_the_plan_it_always_was() -> None:
    assert ids(made()) == ["c4", "c8", "c16"]
    assert made().hash == made(Repeats(order_seed=7)).hash


def test_every_repeat_has_a_load_and_a_result_of_its_own() -> None:
    plan = made(THREE)
    files = {word for planned in plan.arms[0].points for word in planned.client.argv if word.endswith(".json")}
    assert len(files) == 9
    assert "1p1d-mtp3-c4-r2.json" in files
    titles = [step.title for step in plans.steps(plan) if step.title.startswith("load")]
    assert len(set(titles)) == 9
    assert any(title.startswith("load conc 4 #3") for title in titles)


def test_the_plan_says_so_in_words() -> None:
    text = runbook.text(made(THREE))
    assert "conc 4 8 16, each 3 times" in text
    assert "3 rounds of all points, each shuffled (order seed 0); servers kept between them" in text
    assert "servers started anew for each round" in runbook.text(made(Repeats(count=3, restarts=True)))
    assert "rounds of all points" not in runbook.text(made())


def test_servers_that_are_started_anew_are_steps_of_the_plan() -> None:
    kept, anew = made(THREE), made(Repeats(count=3, restarts=True))
    assert kept.hash != anew.hash
    starts = [[step.title for step in plans.steps(plan)].count("start decode 0") for plan in (kept, anew)]
    assert starts == [1, 3]
    titles = [step.title for step in plans.steps(anew)]
    assert titles.index("stop") < len(titles) - 1 - titles[::-1].index("start decode 0")
    assert anew.estimate.minutes > kept.estimate.minutes


# --- doing it -------------------------------------------------------------------------------------------------------


def a_road(tmp_path: Path, repeats: Repeats) -> tuple[World, Road]:
    world = World(made(repeats, (4, 8)))
    folder = RunFolder(tmp_path / RUN)
    folder.path.mkdir(exist_ok=True)
    return world, Road(world.session, world.plan, folder)


def started(world: World) -> list[str]:
    lines = [line for node in world.nodes.values() for line in node.asked("docker run ")]
    return [line.partition("--name ")[2].split()[0].removeprefix(f"fleet-{world.plan.hash6}-") for line in lines]


def test_a_record_a_raw_result_and_a_log_for_every_repeat(tmp_path: Path) -> None:
    world, road = a_road(tmp_path, Repeats(count=2))
    assert road.go() == 0
    records = road.folder.records()
    assert [record.point for record in records] == [planned.point.id for planned in world.plan.arms[0].points]
    assert sorted((record.conc, record.repeat, record.attempt) for record in records) == [
        (4, 0, 1), (4, 1, 1), (8, 0, 1), (8, 1, 1),
    ]  # fmt: skip
    assert len({record.raw for record in records}) == 4
    logs = {path.name for path in road.folder.logs("1p1d-mtp3").iterdir()}
    assert {"client-c4.log", "client-c4-r1.log", "client-c8.log", "client-c8-r1.log"} <= logs
    assert started(world).count("decode0") == 1


def test_servers_are_started_anew_where_asked(tmp_path: Path) -> None:
    world, road = a_road(tmp_path, Repeats(count=2, restarts=True))
    assert road.go() == 0
    assert len(road.folder.records()) == 4
    assert [started(world).count(name) for name in ("prefill0", "decode0", "router")] == [2, 2, 2]
    logs = {path.name for path in road.folder.logs("1p1d-mtp3").iterdir()}
    assert {"decode0.log", "decode0-1.log"} <= logs, "the first servers' logs are kept"
    assert [name for node in world.nodes.values() for name in node.boxes] == []


def test_what_is_missing_of_repeats_is_run(tmp_path: Path) -> None:
    _, road = a_road(tmp_path, Repeats(count=2))
    assert road.go() == 0
    lines = road.folder.points.read_text().splitlines(keepends=True)
    road.folder.points.write_text("".join(lines[:3]))
    world, again = a_road(tmp_path, Repeats(count=2))
    again.resumed = True
    assert again.go() == 0
    (last,) = world.plan.arms[0].points[3:]
    assert [name for name in started(world) if name.startswith("client")] == [f"client-{last.point.id}"]
    assert len(again.folder.records()) == 4


def test_what_was_not_run_is_named_with_its_repeat(tmp_path: Path) -> None:
    world, road = a_road(tmp_path, Repeats(count=2))
    road.fail_fast = True
    usual = world.client_ends

    def ends(node: object, box: object) -> None:
        usual(node, box)  # type: ignore[arg-type]
        box.code = 1  # type: ignore[attr-defined]

    world.client_ends = ends  # type: ignore[method-assign, assignment]
    assert road.go() == 1
    first, *others = (planned.point.title for planned in world.plan.arms[0].points)
    del first
    assert f"not run: 1p1d-mtp3 at conc {', '.join(others)}" in road.folder.summary_text.read_text()


# --- what is typed --------------------------------------------------------------------------------------------------


def test_the_state_of_a_run_keeps_what_was_asked_for() -> None:
    asked = Repeats(count=2, order_seed=7, restarts=True)
    assert resumes.state(made(asked), Settings()).repeats == asked


def test_the_flags_that_ask_for_it() -> None:
    assert resumes.said(ONCE) == {}
    assert resumes.said(Repeats(count=2, order_seed=7, restarts=True)) == {
        "repeats": "2", "order-seed": "7", "restart-between": "",
    }  # fmt: skip


@pytest.mark.parametrize(("seed", "restarts", "flag"), [(7, False, "--order-seed"), (0, True, "--restart-between")])
def test_what_means_nothing_for_one_repeat_is_refused(seed: int, restarts: bool, flag: str) -> None:
    with pytest.raises(UsageError, match=f"{flag}: each point runs once"):
        resumes.repeats(1, seed, restarts=restarts)
