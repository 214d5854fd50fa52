"""Deaths: every way a container can stop serving, and the line that explains it first."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fleet.errors import ServiceDied, Unreachable
from fleet.stages import watch
from fleet.stages.deployment import Deployment
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


def test_several_deaths_are_told_together(world: World, up: Deployment) -> None:
    world.box("decode0").end(1)
    world.box("router").end(1)
    assert why(up) == "router on mi355x-01 died (exit 1: failed); decode 0 on mi355x-02 died (exit 1: failed)"


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


def log(up: Deployment, seat: str, *lines: str) -> None:
    path = up.folder.log(up.arm.arm.name, seat)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def test_the_first_fatal_line_of_each_log_earliest_first(up: Deployment) -> None:
    log(
        up,
        "decode0",
        "2026-11-30T21:14:07.310000000Z   HIP out of memory. Tried to allocate 3.12 GiB",
        "2026-11-30T21:14:07.320000000Z proc died unexpectedly (exitcode=1)",
    )
    log(up, "router", "2026-11-30T21:14:07.1Z all well", "2026-11-30T21:14:07.2Z thread 'main' panicked at x.rs")
    log(up, "prefill0", "2026-11-30T21:14:01.0Z Engine kwargs: {}")
    assert [(line.service.name, line.text) for line in watch.fatal_lines(up)] == [
        ("router", "thread 'main' panicked at x.rs"),
        ("decode0", "HIP out of memory. Tried to allocate 3.12 GiB"),
    ]


def test_no_log_no_line(up: Deployment) -> None:
    assert watch.fatal_lines(up) == []
