"""A clock that stands still while the process is stopped, and what waits by it."""

from __future__ import annotations

import pytest

from fleet import awake
from fleet.awake import Clock
from fleet.errors import NotReady, Unreachable
from fleet.hosts.base import Deadline
from fleet.hosts.fake import Fake
from fleet.hosts.fan import each
from fleet.stages.wait import NotYet, wait


class Hand:
    """A monotonic clock that is set by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> Hand:
    """This process's clock, by hand."""
    made = Hand()
    clock = Clock(made)
    monkeypatch.setattr(clock, "_watch", lambda: None)
    monkeypatch.setattr(awake, "CLOCK", clock)
    return made


def test_most_readings_wait_for_nobody() -> None:
    """With the thread that looks: what it has seen last is enough, and a leap since is nobody's but a pause's."""
    hand = Hand()
    clock = Clock(hand)
    clock._watched = True
    with clock._lock:
        hand.seconds += 4
        assert clock.now() == 104
    hand.seconds += 3600
    assert (clock.now(), clock.pauses) == (104, 1)
    hand.seconds += 4
    with clock._lock:
        assert (clock.now(), clock.pauses) == (108, 1)


def test_a_pause_noticed_during_a_reading_is_not_read_into_it() -> None:
    hand = Hand()
    clock = Clock(hand)
    clock._watched = True

    def interrupted() -> float:
        clock._read = hand
        early = hand()
        hand.seconds += 3600
        clock._noticed()
        return early

    clock._read = interrupted
    assert (clock.now(), clock.pauses) == (100, 1)


def test_small_steps_are_time_and_a_leap_is_none(hand: Hand) -> None:
    begun = awake.now()
    hand.seconds += 4
    assert awake.now() - begun == 4
    assert awake.since() == float("inf")
    hand.seconds += 3600
    assert awake.now() - begun == 4
    hand.seconds += 2
    assert awake.now() - begun == 6
    assert awake.since() == 2


def test_a_deadline_does_not_pass_during_a_pause(hand: Hand) -> None:
    deadline = Deadline(10)
    hand.seconds += 3600
    assert deadline.left() == 10
    for _ in range(3):
        hand.seconds += 4
        left = deadline.left()
    assert left == 0


def test_a_wait_goes_on_after_a_pause(hand: Hand) -> None:
    answers: list[str | NotYet] = [NotYet("loading"), NotYet("loading"), "here"]

    def look() -> str | NotYet:
        hand.seconds += 3600
        return answers.pop(0)

    assert wait(look, what="it", within=60, every=0.01) == "here"


def test_a_wait_still_ends(hand: Hand) -> None:
    def look() -> str | NotYet:
        hand.seconds += 4
        return NotYet("loading")

    with pytest.raises(NotReady, match=r"it: not after 12 s; last answer: loading"):
        wait(look, what="it", within=10, every=0.01)


def test_a_connection_that_a_pause_has_cut_is_made_again(hand: Hand) -> None:
    """Just after a pause a lost host is asked again; long after it, or without one, it is lost."""
    lost: list[object] = [
        Unreachable("connection lost", where="n1"),
        Unreachable("connection lost", where="n1"),
        "here",
    ]

    def look() -> object:
        answer = lost.pop(0)
        if isinstance(answer, Unreachable):
            raise answer
        return answer

    hand.seconds += 3600
    assert wait(look, what="it", within=60, every=0.01) == "here"
    lost[:] = [Unreachable("connection lost", where="n1")]
    for _ in range(16):
        hand.seconds += 4
        awake.now()
    with pytest.raises(Unreachable):
        wait(look, what="it", within=60, every=0.01)


def test_what_hosts_answered_during_a_pause_is_read(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system's timeout is over when the process goes on; the answer comes a moment later."""
    from fleet.hosts import fan

    usual, calls = fan.wait, []

    def wait_(futures: object, timeout: float) -> object:
        calls.append(timeout)
        return usual(futures, timeout=0 if len(calls) == 1 else timeout)  # type: ignore[call-overload]

    monkeypatch.setattr(fan, "wait", wait_)

    def slow(_: object) -> str:
        while len(calls) < 2:
            pass
        return "here"

    assert each([Fake("n1", [])], slow, timeout=5) == {"n1": "here"}
    assert len(calls) == 2
