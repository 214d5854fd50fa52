"""The one way of waiting: ask again and again until there is an answer, within a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from fleet.errors import NotReady

T = TypeVar("T")


@dataclass(frozen=True)
class NotYet:
    """An answer that is not there yet, and why."""

    why: str


def wait(
    question: Callable[[], T | NotYet],
    *,
    what: str,
    within: float,
    every: float = 0.5,
    hint: str = "",
    telling: Callable[[str], None] | None = None,
) -> T:
    """Ask until the question is answered with something else than `NotYet`.

    within, every: seconds. telling hears each new reason for waiting.
    Raises NotReady with the last reason; whatever the question raises ends the wait at once.
    """
    last = [""]
    began = time.monotonic()

    def asked() -> T | NotYet:
        answer = question()
        if isinstance(answer, NotYet) and answer.why != last[0]:
            last[0] = answer.why
            if telling:
                telling(answer.why)
        return answer

    patience = Retrying(
        retry=retry_if_result(lambda answer: isinstance(answer, NotYet)),
        stop=stop_after_delay(within),
        wait=wait_fixed(every),
    )
    try:
        answer = patience(asked)
    except RetryError:
        waited = time.monotonic() - began
        raise NotReady(f"{what}: not after {waited:.0f} s; last answer: {last[0]}", hint=hint) from None
    assert not isinstance(answer, NotYet)
    return answer
