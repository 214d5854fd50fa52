"""The one wait: answers, deadlines and errors."""

from __future__ import annotations

import pytest

from fleet.errors import NotReady, ServiceDied
from fleet.stages.wait import NotYet, wait


def test_the_answer_ends_the_wait_and_each_new_reason_is_told_once() -> None:
    answers = iter([NotYet("loading"), NotYet("loading"), NotYet("warming up"), 42])
    told: list[str] = []
    assert wait(lambda: next(answers), what="prefill0", within=5, every=0, telling=told.append) == 42
    assert told == ["loading", "warming up"]


def test_the_deadline_names_what_was_waited_for_and_the_last_reason() -> None:
    with pytest.raises(NotReady, match=r"prefill0: not after 0 s; last answer: connection refused") as caught:
        wait(lambda: NotYet("connection refused"), what="prefill0", within=0, every=0, hint="invoke logs")
    assert caught.value.hint == "invoke logs"
    assert caught.value.exit_code == 4


def test_an_error_ends_the_wait_at_once() -> None:
    calls: list[int] = []

    def dying() -> NotYet:
        calls.append(1)
        raise ServiceDied("decode0 died")

    with pytest.raises(ServiceDied):
        wait(dying, what="decode0", within=60, every=0)
    assert len(calls) == 1
