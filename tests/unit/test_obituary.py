"""What is told of a death: its cause first, then at most a line of everybody else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fleet.stages import obituary, watch
from fleet.stages.deployment import Deployment
from fleet.stages.watch import Death, Deaths
from tests.world import World

DAY = "2026-11-30T21:14:0"
OOM = "HIP out of memory. Tried to allocate 3.12 GiB"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def up(world: World, tmp_path: Path) -> Deployment:
    return world.running(tmp_path)


def log(up: Deployment, seat: str, *lines: str) -> None:
    path = up.folder.log(up.arm.arm.name, seat)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{DAY}{line}\n" for line in lines))


def deaths(up: Deployment) -> tuple[Death, ...]:
    with pytest.raises(Deaths) as told:
        watch.alive(up)
    return told.value.deaths


def test_the_cause_comes_first_and_its_consequences_after_it(world: World, up: Deployment) -> None:
    """The router's clock is behind: by its own times it panicked, and ended, before decode ran out of memory."""
    log(up, "decode0", "6.0Z Engine kwargs", f"7.310000000Z   {OOM}", "7.320Z proc died unexpectedly (exitcode=1)")
    log(up, "router", "6.9Z all well", "7.2Z thread 'main' panicked at " + "x" * 80)
    log(up, "prefill0", "1.0Z Engine kwargs: {}")
    world.box("decode0").end(1, at=f"{DAY}7.4Z")
    world.box("router").end(101, at=f"{DAY}7.3Z")
    world.box("prefill0").end(0, at=f"{DAY}8.5Z")
    told = replace(up, clocks={"mi355x-01": -0.6})
    panic = ("died (exit 101: failed): thread 'main' panicked at " + "x" * 80)[:79] + "…"
    assert obituary.lines(told, deaths(told)) == [
        f"  21:14:07.310  decode 0 on mi355x-02   {OOM}   ← first fatal line",
        f"  21:14:07.800  router on mi355x-01   {panic}",
        "  21:14:09.100  prefill 0 on mi355x-01   died (exit 0: ended)",
    ]


def test_a_cause_that_logged_nothing_fatal_is_told_by_its_last_line(world: World, up: Deployment) -> None:
    """Somebody else's fatal line is not its cause, however early it came."""
    log(up, "decode0", "6.5Z \x1b[31mValueError\x1b[0m: no such thing", "6.6Z ")
    log(up, "router", "6.1Z thread 'main' panicked at x.rs")
    world.box("decode0").end(137)
    assert obituary.lines(up, deaths(up)) == [
        "  21:14:06.500  decode 0 on mi355x-02   ValueError: no such thing   ← its last line",
        "  21:14:06.100  router on mi355x-01   thread 'main' panicked at x.rs",
    ]


def test_where_nobody_died_the_earliest_fatal_line_is_the_cause(up: Deployment) -> None:
    log(up, "decode0", f"7.3Z {OOM}")
    log(up, "prefill0", "7.2Z Failed to CUDA calloc")
    assert obituary.lines(up, ()) == [
        "  21:14:07.200  prefill 0 on mi355x-01   Failed to CUDA calloc   ← first fatal line",
        f"  21:14:07.300  decode 0 on mi355x-02   {OOM}",
    ]
    assert obituary.lines(replace(up, clocks={"mi355x-02": 0.2}), ())[0].startswith("  21:14:07.100  decode 0")


def test_a_line_without_a_time_is_told_without_one(world: World, up: Deployment) -> None:
    path = up.folder.log(up.arm.arm.name, "decode0")
    path.parent.mkdir(parents=True)
    path.write_text(f"torn {OOM}\n")
    world.box("decode0").end(1)
    assert obituary.lines(up, deaths(up)) == [f"                decode 0 on mi355x-02   {OOM}   ← first fatal line"]


def test_no_log_no_line(world: World, up: Deployment) -> None:
    assert obituary.lines(up, ()) == []
    world.box("decode0").end(1)
    assert obituary.lines(up, deaths(up)) == []
