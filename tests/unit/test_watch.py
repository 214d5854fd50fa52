"""Deaths: every way a container can stop serving, and which of several came first."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.errors import ServiceDied, Unreachable
from fleet.model.service import Service
from fleet.stages import watch
from fleet.stages.deployment import Deployment
from fleet.stages.watch import Deaths
from tests.world import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def up(world: World, tmp_path: Path) -> Deployment:
    return world.running(tmp_path)


def why(up: Deployment) -> str:
    with pytest.raises(ServiceDied) as told:
        watch.alive(up)
    return told.value.what


def test_all_is_well_while_all_run(up: Deployment) -> None:
    watch.alive(up)


@pytest.mark.parametrize(
    ("code", "oom", "cause"),
    [
        (0, False, "exit 0: ended"),
        (1, False, "exit 1: failed"),
        (137, False, "exit 137: killed"),
        (137, True, "exit 137: killed, out of memory"),
        (139, False, "exit 139: segmentation fault"),
    ],
)
def test_a_container_that_ended_is_a_death_whatever_its_code(
    world: World, up: Deployment, code: int, oom: bool, cause: str
) -> None:
    world.box("decode0").end(code, oom=oom)
    assert why(up) == f"decode 0 on mi355x-02 died ({cause})"


def test_a_paused_container_does_not_serve(world: World, up: Deployment) -> None:
    world.box("prefill0").state = "paused"
    assert why(up) == "prefill 0 on mi355x-01 died (paused)"


def test_a_container_that_is_gone_is_a_death(world: World, up: Deployment) -> None:
    world.nodes["mi355x-01"].boxes.pop(world.box("router").name)
    assert why(up) == "router on mi355x-01 died (its container is gone)"


def first(up: Deployment) -> list[str]:
    with pytest.raises(Deaths) as told:
        watch.alive(up)
    assert told.value.what == str(told.value.deaths[0])
    return [death.service.name for death in told.value.deaths]


EARLY, LATE = "2026-11-30T21:14:07.300000001Z", "2026-11-30T21:14:07.9Z"


def test_the_service_that_ended_first_is_told(world: World, up: Deployment) -> None:
    world.box("router").end(1, at=LATE)
    world.box("decode0").end(137, at=EARLY)
    assert first(up) == ["decode0", "router"]
    assert why(up) == "decode 0 on mi355x-02 died (exit 137: killed)"


def test_which_came_first_is_asked_of_one_clock(world: World, up: Deployment) -> None:
    """The clock of decode's host is 0.8 s ahead: what it calls late was early."""
    world.box("router").end(1, at=EARLY)
    world.box("decode0").end(137, at=LATE)
    assert first(up) == ["router", "decode0"]
    assert first(replace(up, clocks={"mi355x-02": 0.8})) == ["decode0", "router"]
    assert first(replace(up, clocks={"mi355x-01": -0.8})) == ["decode0", "router"]


@pytest.mark.parametrize("hand", ["pause", "rm"])
def test_what_somebody_paused_or_removed_came_first(world: World, up: Deployment, hand: str) -> None:
    world.box("router").end(1, at=EARLY)
    if hand == "pause":
        world.box("decode0").state = "paused"
    else:
        world.nodes["mi355x-02"].boxes.pop(world.box("decode0").name)
    assert first(up) == ["decode0", "router"]


def test_what_died_between_two_looks_is_seen(world: World, up: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode's host is looked at a moment before it dies, the router's a moment after."""
    real, looks = watch.deaths, [0]

    def look(deployment: Deployment, services: Sequence[Service]) -> list[watch.Death]:
        found = real(deployment, services)
        if looks[0] == 0:
            world.box("decode0").end(137, at=EARLY)
        looks[0] += 1
        return found

    world.box("router").end(1, at=LATE)
    monkeypatch.setattr(watch, "deaths", look)
    assert first(up) == ["decode0", "router"]


def test_a_host_that_is_lost_meanwhile_hides_no_death(
    world: World, up: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, looks = watch.deaths, [0]

    def look(deployment: Deployment, services: Sequence[Service]) -> list[watch.Death]:
        looks[0] += 1
        if looks[0] == 2:
            raise Unreachable("gone", where="mi355x-02")
        return real(deployment, services)

    world.box("router").end(1)
    monkeypatch.setattr(watch, "deaths", look)
    assert first(up) == ["router"]


def test_a_lost_host_is_a_host_error(world: World, up: Deployment) -> None:
    world.nodes["mi355x-02"].first = [(["docker", "ps"], Unreachable("gone", where="mi355x-02"))]
    with pytest.raises(Unreachable):
        watch.alive(up)


def test_meanwhile_gives_what_the_act_gave_or_raised(up: Deployment) -> None:
    assert watch.meanwhile(up, lambda: 42) == 42
    with pytest.raises(Unreachable):
        watch.meanwhile(up, _lost)


def _lost() -> None:
    raise Unreachable("gone")


def test_a_death_ends_what_is_under_way(world: World, up: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "EVERY", 0.01)
    never = threading.Event()
    world.box("decode0").end(1)
    with pytest.raises(ServiceDied):
        watch.meanwhile(up, lambda: never.wait(30))
    never.set()
