"""Engines that are dead behind containers that run: what is believed, how soon, and what is never taken for a death."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fleet import plan
from fleet.errors import Unreachable
from fleet.model import load
from fleet.stages import corpse, watch
from fleet.stages.corpse import Inquest, certain, stale
from fleet.stages.deployment import Deployment
from fleet.stages.watch import Deaths
from tests.world import ROOT, World

AT = "2026-11-30T21:14:07.300000001Z"
DIED = f"{AT} [atom 21:14:07] EngineCore DP rank 0: proc died unexpectedly (exitcode=-9), shutting down.\n"
FINE = "2026-11-30T21:14:08.1Z INFO: 10.0.0.11 - GET /metrics HTTP/1.1 200\n"
BELIEVED = corpse.QUIET + 6.0
"""Seconds awake: ATOM's counters show after up to six what was done."""


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def up(world: World, tmp_path: Path) -> Deployment:
    made = world.running(tmp_path)
    made.vigil.serving, made.vigil.loaded = 1.0, True
    return made


def looks(up: Deployment, *times: float) -> Inquest:
    inquest = Inquest(up)
    for now in times:
        inquest.look(now)
    return inquest


def dead(up: Deployment) -> Deaths:
    with pytest.raises(Deaths) as told:
        watch.alive(up)
    return told.value


def test_a_fatal_line_after_which_nothing_moves_is_a_death(world: World, up: Deployment) -> None:
    world.box("decode0").log = DIED
    assert looks(up, 100, 100 + BELIEVED - 0.1).pause == corpse.EAGER
    watch.alive(up)
    looks(up, 100, 105, 100 + BELIEVED)
    error = dead(up)
    assert error.what == (
        "decode 0 on mi355x-02 died (its engine: nothing has moved for 11 seconds since it logged: [atom 21:14:07] "
        "EngineCore DP rank 0: proc died unexpectedly (exitcode=-9), shutting down.; its container runs on)"
    )
    assert (error.exit_code, error.deaths[0].ended) == (4, up.moment("mi355x-02", AT))


def test_a_fatal_line_is_forgiven_a_worker_that_works_on(world: World, up: Deployment) -> None:
    decode = world.counted["decode0"]
    world.box("decode0").log = DIED
    inquest = Inquest(up)
    for now in range(100, 200, 5):
        decode.finished += 1
        inquest.look(now)
    assert inquest.pause == corpse.EVERY, "forgiven"
    for now in range(200, 230, 5):
        inquest.look(now)
    watch.alive(up)


def test_what_was_under_way_may_still_end_in_the_counters(world: World, up: Deployment) -> None:
    world.box("decode0").log = DIED
    inquest = looks(up, 100, 103)
    world.counted["decode0"].finished = 9
    for now in (105, 104.9 + BELIEVED):
        inquest.look(now)
    watch.alive(up)
    inquest.look(105 + BELIEVED)
    assert "decode 0 on mi355x-02 died" in dead(up).what


def test_a_worker_with_nothing_to_do_is_not_judged_and_its_time_stands_still(world: World, up: Deployment) -> None:
    world.box("decode0").log = DIED
    up.vigil.loaded = False
    inquest = looks(up, 100, 200, 300)
    up.vigil.loaded = True
    inquest.look(305)
    watch.alive(up)
    inquest.look(300 + BELIEVED)
    assert dead(up).deaths[0].service.name == "decode0"


def test_one_that_rests_with_requests_is_judged(world: World, up: Deployment) -> None:
    world.box("decode0").log = DIED
    up.vigil.loaded, world.counted["decode0"].running = False, 3
    looks(up, 100, 100 + BELIEVED)
    assert dead(up).deaths[0].service.name == "decode0"


def test_a_worker_whose_counters_cannot_be_read_has_not_moved(world: World, up: Deployment) -> None:
    world.box("decode0").log = DIED
    world.handlers["decode0"] = lambda path, body: "refused"
    looks(up, 100, 100 + BELIEVED)
    assert dead(up).deaths[0].service.name == "decode0"


def test_each_line_is_read_once_and_what_a_router_logs_is_no_engine(world: World, up: Deployment) -> None:
    world.box("router").log = FINE.replace("INFO", "thread 'x' panicked at INFO")
    world.box("prefill0").log = f"{AT} [PRODUCER] transfer failed for req 7\n{FINE}"
    assert looks(up, 100, 105, 120).pause == corpse.EVERY
    assert up.vigil.transfers == 1
    asked = world.nodes["mi355x-01"].asked("docker logs .*prefill0")
    assert re.search(r"--since \d+s --tail 20000 ", asked[0])
    assert "--since 2026-11-30T21:14:08.1Z --tail 20000 " in asked[1]


def test_a_host_that_does_not_answer_is_not_the_inquests_affair(world: World, up: Deployment) -> None:
    world.nodes["mi355x-01"].first = [(lambda argv: True, Unreachable("gone", where="mi355x-01"))]
    world.box("decode0").log = DIED
    looks(up, 100, 100 + BELIEVED)
    assert up.vigil.dead.keys() == {"decode0"}


def test_health_that_is_a_constant_is_not_asked(world: World, up: Deployment) -> None:
    looks(up, 100, 105)
    assert [path for _, path, _ in world.heard] == []


@pytest.fixture
def vllm(tmp_path: Path) -> tuple[World, Deployment]:
    inventory = load.inventory(ROOT / "inventories" / "example-mi355x.yaml")
    recipe = load.recipe("dsv4-fp4-mi355x-vllm", ROOT / "recipes")
    world = World(plan.build(recipe, inventory, ROOT / "recipes", arm="tp8-1k1k", conc=(4,)))
    made = world.running(tmp_path)
    made.vigil.serving = 1.0
    return world, made


def test_health_that_tells_of_the_engine_is_believed_the_second_time(vllm: tuple[World, Deployment]) -> None:
    world, up = vllm
    assert looks(up, 100).pause == corpse.EVERY
    world.handlers["server0"] = lambda path, body: (503, "") if path == "/health" else None
    inquest = looks(up, 100)
    assert inquest.pause == corpse.EAGER
    watch.alive(up)
    world.box("server0").log = DIED.replace("EngineCore DP rank 0: proc", "Engine core proc EngineCore_DP0")
    inquest.look(101)
    error = dead(up)
    assert error.what.startswith("server 0 on mi355x-01 died (its engine: /health tells status 503 after it logged: ")
    assert error.deaths[0].ended == up.moment("mi355x-01", AT)


def test_health_that_was_bad_once_or_does_not_answer_is_no_death(vllm: tuple[World, Deployment]) -> None:
    world, up = vllm
    answers: list[tuple[int, object] | str] = [(503, ""), (200, ""), (503, ""), "refused"]
    world.handlers["server0"] = lambda path, body: answers.pop(0) if path == "/health" else None
    looks(up, 100, 101, 106, 107)
    watch.alive(up)


def test_failed_requests_are_not_passed_over_while_an_engine_is_in_doubt(
    world: World, up: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watcher's next look, made here by the wait itself."""
    world.box("decode0").log = DIED
    inquest, now = Inquest(up), [1e9]
    up.vigil.kept, up.vigil.loaded = True, False

    def next_look(_: float) -> None:
        assert up.vigil.loaded
        inquest.look(now[0])
        now[0] += 5

    monkeypatch.setattr(corpse.time, "sleep", next_look)
    with pytest.raises(Deaths):
        certain(up)
    assert now[0] == 1e9 + 20
    assert not up.vigil.loaded


def test_without_a_doubt_one_more_look_is_enough(up: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    inquest, looked = Inquest(up), []
    up.vigil.kept = True
    monkeypatch.setattr(corpse.time, "sleep", lambda _: looked.append(inquest.look(1e9)))
    certain(up)
    assert len(looked) == 1


def test_counters_that_are_not_refreshed_are_told_by_their_hosts_clock(world: World, up: Deployment) -> None:
    world.nodes["mi355x-02"].clock = -50.0
    world.counted["decode0"].late = 50.0
    assert stale(up) == ""
    world.counted["decode0"].late = 96.0
    assert re.fullmatch(r"the engine of decode0 has not refreshed its counters for 4[56] s", stale(up))
