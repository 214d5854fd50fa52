"""Deaths: every way a container can stop serving, and which of several came first."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.docker import Container, Event
from fleet.errors import HostError, ServiceDied, Unreachable
from fleet.model.service import Service
from fleet.stages import watch
from fleet.stages.deployment import Deployment
from fleet.stages.watch import Deaths, HostLost
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
    with pytest.raises(ServiceDied) as told:
        watch.alive(up)
    assert told.value.what == "prefill 0 on mi355x-01 is paused"
    assert told.value.hint == (
        "somebody paused it: waking it (docker unpause CONTAINER) is theirs to do; who it was:  "
        "docker events --since 1h --until 0s --filter event=pause  on that host"
    )
    assert told.value.exit_code == 4


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


# ---------------------------------------------------------------------- while a watcher follows


@pytest.fixture
def kept(up: Deployment) -> Deployment:
    """Every host's events are followed."""
    up.vigil.kept = True
    up.vigil.following.update(up.hosts)
    up.vigil.ids.update({(one.host, up.named(one)): f"id-{one.name}" for one in up.services})
    return up


def event(up: Deployment, seat: str, action: str, code: int | None = None) -> None:
    service = next(one for one in up.services if one.name == seat)
    box = Container(id=f"id-{seat}", name=up.named(service), image="", state="", status="")
    up.vigil.hear(service.host, Event(container=box, time=1000.0, code=code, action=action))


def test_without_news_no_host_is_asked(world: World, kept: Deployment) -> None:
    before = [len(node.lines) for node in world.nodes.values()]
    watch.alive(kept)
    assert [len(node.lines) for node in world.nodes.values()] == before


def test_what_docker_told_is_looked_at(world: World, kept: Deployment) -> None:
    world.box("decode0").end(0)
    event(kept, "decode0", "die", 0)
    assert why(kept) == "decode 0 on mi355x-02 died (exit 0: ended)"


def test_what_docker_tells_of_an_earlier_container_of_that_name_is_no_news(world: World, kept: Deployment) -> None:
    service = next(one for one in kept.services if one.name == "decode0")
    kept.vigil.ids[service.host, kept.named(service)] = "id-of-the-one-that-is-there-now"
    world.box("decode0").end(0)
    event(kept, "decode0", "destroy")
    watch.alive(kept)


def test_news_of_a_container_that_runs_is_forgotten(kept: Deployment) -> None:
    event(kept, "decode0", "pause")
    watch.alive(kept)
    assert kept.vigil.told == {}


def test_a_host_that_is_not_followed_is_asked(world: World, kept: Deployment) -> None:
    kept.vigil.following.discard("mi355x-02")
    world.box("decode0").end(1)
    assert why(kept) == "decode 0 on mi355x-02 died (exit 1: failed)"


def test_surely_asks_in_any_case(world: World, kept: Deployment) -> None:
    world.box("decode0").end(1)
    watch.alive(kept)
    with pytest.raises(Deaths):
        watch.alive(kept, surely=True)


def test_the_exit_code_of_a_container_that_was_removed_is_kept(world: World, kept: Deployment) -> None:
    world.nodes["mi355x-02"].boxes.pop(world.box("decode0").name)
    event(kept, "decode0", "die", 137)
    event(kept, "decode0", "destroy")
    assert why(kept) == "decode 0 on mi355x-02 died (exit 137: killed; somebody removed its container)"


def test_a_worker_that_the_kernel_killed_inside_a_running_container_is_a_death(kept: Deployment) -> None:
    event(kept, "decode0", "oom")
    cause = "a process of it was killed, out of memory; its container runs on"
    assert why(kept) == f"decode 0 on mi355x-02 died ({cause})"


def test_a_lost_host_is_told_with_its_seats_and_the_exit_code_of_a_death(kept: Deployment) -> None:
    kept.vigil.note(kept.vigil.lost, "mi355x-01", "no answer for 4.6 s")
    with pytest.raises(HostLost) as told:
        watch.meanwhile(kept, lambda: threading.Event().wait(5))
    assert told.value.what == "mi355x-01 is lost: no answer for 4.6 s\n  it held prefill0, router"
    assert told.value.exit_code == 4
    assert told.value.hint == "try:  ssh mi355x-01 true"


def test_a_stopped_engine_is_told_with_its_seats(kept: Deployment) -> None:
    kept.vigil.note(kept.vigil.engines, "mi355x-02", "stopped")
    assert why(kept) == "the Docker engine on mi355x-02 stopped: decode0 went with it"


def test_what_an_act_could_not_reach_waits_for_the_verdict_on_the_host(kept: Deployment) -> None:
    def act() -> None:
        timer = threading.Timer(0.3, kept.vigil.note, (kept.vigil.lost, "mi355x-02", "gone"))
        timer.start()
        raise Unreachable("reset", where="mi355x-02")

    with pytest.raises(HostLost):
        watch.meanwhile(kept, act)


def test_a_host_error_of_hosts_that_live_is_the_acts_own(kept: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.vigil.answered.update(dict.fromkeys(kept.hosts, float("inf")))
    with pytest.raises(HostError, match="reset"):
        watch.meanwhile(kept, _reset)


def _reset() -> None:
    raise Unreachable("reset", where="mi355x-02")
