"""Counters are read when the worker has refreshed them, and a worker that cannot be read has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.engines import atom
from fleet.errors import Unreachable
from fleet.stages import counters
from fleet.stages.deployment import Deployment
from tests.world import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def up(world: World, tmp_path: Path) -> Deployment:
    return world.running(tmp_path)


def test_fresh_counters_are_read_at_once(world: World, up: Deployment) -> None:
    world.counted["decode0"].finished = 7
    found = counters.settled(up)
    assert {seat: one.finished for seat, one in found.items()} == {"prefill0": 0, "decode0": 7}
    assert [path for _, path, _ in world.heard] == ["/metrics"] * 4


def test_stale_counters_are_waited_for(world: World, up: Deployment) -> None:
    """The number changes together with the time of the refresh, at the third look."""
    decode = world.counted["decode0"]
    decode.late, looks = 100.0, [0]

    def handler(path: str, body: object) -> None:
        looks[0] += 1
        if looks[0] == 3:
            decode.late, decode.finished = 0.0, 9

    world.handlers["decode0"] = handler
    assert counters.settled(up)["decode0"].finished == 9


def test_counters_that_are_never_refreshed_are_no_evidence(world: World, up: Deployment) -> None:
    world.counted["decode0"].late = 100.0
    assert list(counters.settled(up, within=0.5)) == ["prefill0"]


def test_a_worker_that_does_not_say_when_is_given_its_time(
    world: World, up: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atom, "METRICS_SETTLE", 0.05)
    decode = world.counted["decode0"]
    decode.late, looks = None, [0]

    def handler(path: str, body: object) -> None:
        looks[0] += 1
        decode.finished = looks[0]

    world.handlers["decode0"] = handler
    assert counters.settled(up)["decode0"].finished == 2, "read again after the settling time"


def test_the_hosts_own_clock_is_what_counts(world: World, up: Deployment) -> None:
    """A worker whose host's clock is 50 s behind publishes times of that clock."""
    world.nodes["mi355x-02"].clock = -50.0
    world.counted["decode0"].late = 50.0
    assert "decode0" in counters.settled(up, within=2)


def test_a_worker_that_answers_badly_or_not_has_no_counters(world: World, up: Deployment) -> None:
    world.handlers["decode0"] = lambda path, body: (500, "busy")
    world.handlers["prefill0"] = lambda path, body: "refused"
    assert counters.settled(up) == {}
    assert counters.at_once(up) == {}


def test_a_lost_host_hides_nobody_else(world: World, up: Deployment) -> None:
    world.nodes["mi355x-02"].first = [(lambda argv: True, Unreachable("gone"))]
    assert list(counters.settled(up)) == ["prefill0"]


def test_at_once_takes_what_was_published_last(world: World, up: Deployment) -> None:
    world.counted["decode0"].late, world.counted["decode0"].finished = 100.0, 3
    assert counters.at_once(up)["decode0"].finished == 3
