"""When silence is a death: only after several ways were tried for long enough, and in which words."""

from __future__ import annotations

import threading
import time

import pytest

from fleet.errors import Unreachable
from fleet.hosts.base import MUTE, REFUSED, SILENT
from fleet.hosts.fake import Fake
from fleet.stages import pulse
from fleet.stages.pulse import Pulse, Silence

GONE = [(lambda argv: True, Unreachable("gone"))]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"BEAT": 0.02, "UNEASY": 0.1, "KNOCK": 0.05, "DEAD": 0.5, "TICK": 0.01}.items():
        monkeypatch.setattr(pulse, name, seconds)


def watched(host: Fake, seconds: float = 2.0) -> tuple[str, float]:
    """Why the host counts as lost, "" if it does not, and after how many seconds."""
    stopped, told = threading.Event(), [""]
    timer = threading.Timer(seconds, stopped.set)
    timer.start()
    began = time.monotonic()
    Pulse(host, stopped, lambda why: told.append(why), lambda now: None).watch()
    stopped.set()
    timer.cancel()
    return told[-1], time.monotonic() - began


def test_a_host_that_answers_is_not_lost() -> None:
    assert watched(Fake("n", [(["true"], "")]), 1.0)[0] == ""


def test_a_host_whose_old_connection_is_gone_and_that_greets_on_new_ones_is_not_lost() -> None:
    assert watched(Fake("n", GONE), 1.0)[0] == ""


def test_a_host_that_greets_and_carries_nothing_out_is_lost_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "USELESS", 0.8)
    assert watched(Fake("n", GONE))[0] == "its sshd greets, but no command has come back for 1 s"


@pytest.mark.parametrize(
    ("greets", "words"),
    [(SILENT, "does not answer at all"), (MUTE, "frozen, or its sshd hangs"), (REFUSED, "refuses SSH connections")],
)
def test_a_host_that_neither_way_answers_is_lost_in_its_own_words(greets: str, words: str) -> None:
    why, seconds = watched(Fake("n", GONE, greets=greets))
    assert words in why
    assert why.startswith("no answer for 0.5 s on open and on new connections; ")
    assert 0.5 <= seconds < 1.5


def test_time_in_which_nobody_looked_is_no_silence() -> None:
    silence = Silence(heard=100.0, worked=99.0, looked=100.0)
    assert silence.lasts(100.5) == 0.5
    assert silence.lasts(160.5) == 0.5
    assert silence.worked == 159.0, "no command could come back either"
    assert silence.lasts(161.0) == 1.0


def test_an_answer_ends_the_silence_and_forgets_the_knocks() -> None:
    silence = Silence(heard=100.0, worked=100.0, looked=104.0, knocks=[REFUSED])
    assert silence.how == REFUSED
    silence.answered(104.0)
    assert (silence.lasts(104.5), silence.how) == (0.5, SILENT)
