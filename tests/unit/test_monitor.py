"""Hosts that are watched: silence is one host's row, the others go on, and the end leaves nothing under way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.errors import CommandTimeout, HostError, LoginError, Unreachable
from fleet.stages import monitor
from fleet.stages.health import Health
from fleet.stages.monitor import EVERY, PATIENCE, Monitor, Seen
from fleet.stages.preflight import Findings
from tests.world import Node, World

FIRST, SECOND = "mi355x-01", "mi355x-02"
WELL = Findings(0.01)
LOST = Unreachable("connection refused", where=SECOND)


@pytest.mark.parametrize(
    ("seen", "now", "silence"),
    [
        (Seen(100.0), 100.5, 0.5),
        (Seen(100.0, 0.2, WELL), 100.1 + EVERY + PATIENCE, None),
        (Seen(100.0, 0.2, WELL), 112.0, 12.0),
        (Seen(100.0, 20.0, WELL), 112.0, None),
        (Seen(100.0, 0.2, LOST), 100.5, 0.5),
        (Seen(100.0, 0.2, CommandTimeout("late", where=SECOND)), 130.0, 30.0),
        (Seen(100.0, 0.2, LoginError("refused", where=SECOND)), 100.5, None),
        (Seen(100.0, 0.2, HostError("no Docker", where=SECOND)), 100.5, None),
    ],
)
def test_silence_is_counted_from_the_last_answer(seen: Seen, now: float, silence: float | None) -> None:
    assert seen.silence(now) == (None if silence is None else pytest.approx(silence))


def test_only_an_answer_ends_silence() -> None:
    seen = Seen(100.0).then(WELL, 110.0, 110.5)
    assert seen == Seen(110.5, 0.5, WELL)
    assert seen.then(LOST, 111.5, 112.0) == Seen(110.5, 0.5, LOST)
    assert seen.then(LOST, 111.5, 112.0).then(WELL, 113.0, 113.1) == Seen(113.1, pytest.approx(0.1), WELL)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(monitor, "EVERY", 0.02)
    monkeypatch.setattr(monitor, "PATIENCE", 0.2)
    return World(command=2)


def until(rounds: Iterator[Health], right: Callable[[Health], bool], within: float = 10.0) -> Health:
    end = time.monotonic() + within
    for found in rounds:
        if right(found):
            return found
        assert time.monotonic() < end, found
    raise AssertionError("rounds ended")


class Hang:
    """From now on the node's commands with these words do not end until it is over."""

    def __init__(self, node: Node, words: str = "") -> None:
        self.begun, self._over, self._node = threading.Event(), threading.Event(), node
        node.first = [(lambda argv: words in " ".join(argv), self._answer)]

    def _answer(self, argv: list[str], stdin: bytes) -> Any:
        self.begun.set()
        self._over.wait(20)
        return self._node._usual(argv, stdin)

    def over(self) -> None:
        self._node.first = []
        self._over.set()


@pytest.fixture
def hang() -> Iterator[Callable[..., Hang]]:
    made: list[Hang] = []

    def begin(node: Node, words: str = "") -> Hang:
        made.append(Hang(node, words))
        return made[-1]

    yield begin
    for one in made:
        one.over()


def test_all_are_well_and_asked_again(world: World, tmp_path: Path) -> None:
    world.running(tmp_path)
    with Monitor(world.session, world.plan) as watch:
        found = until(watch.rounds(), lambda one: one.well and len(one.services) == 3)
        assert [host.name for host in found.hosts] == watch.hosts == [FIRST, SECOND]
        assert found.hosts[1].findings is not None
        world.box("decode0").end(1)
        found = until(watch.rounds(), lambda one: any(not service.well for service in one.services))
    assert [(one.name, one.fault) for one in found.services if not one.well] == [
        ("decode0", "Exited (1) 2 seconds ago")
    ]
    assert found.failed == (SECOND,)


def test_one_silent_host_holds_up_nobody(world: World, hang: Callable[..., Hang]) -> None:
    with Monitor(world.session, world.plan) as watch:
        rounds = watch.rounds()
        until(rounds, lambda one: one.well)
        stuck = hang(world.nodes[SECOND])
        found = until(rounds, lambda one: one.hosts[1].silence is not None)
        assert (found.hosts[1].findings, found.hosts[1].reached, found.code) == (None, False, 3)
        looks = len(world.nodes[FIRST].lines)
        later = until(rounds, lambda one: len(world.nodes[FIRST].lines) > looks + 50)
        assert (later.hosts[1].silence or 0) > (found.hosts[1].silence or 0)
        stuck.over()
        assert until(rounds, lambda one: one.well).hosts[1].silence is None


def test_a_host_that_never_answered_is_silent_since_the_beginning(world: World, hang: Callable[..., Hang]) -> None:
    stuck = hang(world.nodes[SECOND])
    began = time.monotonic()
    with Monitor(world.session, world.plan) as watch:
        found = next(watch.rounds())
        spent = time.monotonic() - began
        stuck.over()
        assert 0.2 <= (found.hosts[1].silence or 0) <= spent < 1.9, "the deadline of a command is 2 s"


def test_a_lost_hosts_services_have_that_as_their_fault(world: World, tmp_path: Path) -> None:
    world.running(tmp_path)
    with Monitor(world.session, world.plan) as watch:
        rounds = watch.rounds()
        until(rounds, lambda one: len(one.services) == 3)
        world.nodes[SECOND].first = [(lambda _: True, LOST)]
        found = until(rounds, lambda one: one.hosts[0].well and one.hosts[1].error != "")
    assert found.hosts[1].error == f"{SECOND}: connection refused"
    assert {one.name: one.fault for one in found.services if not one.well} == {"decode0": "its host does not answer"}


def test_a_service_that_hangs_does_not_hold_up_its_host(
    world: World, tmp_path: Path, hang: Callable[..., Hang]
) -> None:
    world.running(tmp_path)
    with Monitor(world.session, world.plan) as watch:
        rounds = watch.rounds()
        until(rounds, lambda one: len(one.services) == 3)
        stuck = hang(world.nodes[SECOND], "/dev/tcp")
        assert stuck.begun.wait(10)
        looks = len(world.nodes[SECOND].asked("docker info"))
        found = until(rounds, lambda one: len(world.nodes[SECOND].asked("docker info")) > looks + 5)
        stuck.over()
        assert [one.name for one in found.services] == ["prefill0", "router", "decode0"]


def test_the_end_ends_what_is_under_way(world: World, hang: Callable[..., Hang]) -> None:
    stuck, fake = hang(world.nodes[SECOND]), world.nodes[SECOND].fake
    cancelled: list[float] = []

    def cancel() -> None:
        cancelled.append(time.monotonic())
        stuck.over()

    fake.cancel = cancel  # type: ignore[method-assign]
    with Monitor(world.session, world.plan) as watch:
        next(watch.rounds())
        assert cancelled == []
    assert cancelled
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fleet-monitor")]


def test_a_fault_of_fleet_itself_is_raised(world: World) -> None:
    world.nodes[SECOND].first = [(lambda _: True, ZeroDivisionError("1/0"))]
    with Monitor(world.session, world.plan) as watch, pytest.raises(ZeroDivisionError):
        until(watch.rounds(), lambda _: False)
