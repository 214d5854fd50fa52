"""The one way of waiting: ask again and again until there is an answer, within a deadline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import RetryError, Retrying, retry_if_result, wait_fixed

from fleet import awake
from fleet.errors import HostError, NotReady
from fleet.hosts.base import Deadline

T = TypeVar("T")

RECOVERY = 60.0
"""Seconds that a network may need after this process was stopped and continued, as by a closed laptop."""


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
    Raises NotReady with the last reason; whatever the question raises ends the wait at once. Only just after
    this process was stopped for a while is a host that cannot be asked (its connections may be dead) asked again.
    """
    last = [""]
    deadline = Deadline(within)

    def asked() -> T | NotYet:
        try:
            answer = question()
        except HostError as lost:
            if awake.since() > RECOVERY:
                raise
            answer = NotYet(f"fleet itself was stopped for a while, and now: {lost.what}")
        if isinstance(answer, NotYet) and answer.why != last[0]:
            last[0] = answer.why
            if telling:
                telling(answer.why)
        return answer

    patience = Retrying(
        retry=retry_if_result(lambda answer: isinstance(answer, NotYet)),
        stop=lambda _: not deadline.left(),
        wait=wait_fixed(every),
    )
    try:
        answer = patience(asked)
    except RetryError:
        raise NotReady(f"{what}: not after {deadline.spent():.0f} s; last answer: {last[0]}", hint=hint) from None
    assert not isinstance(answer, NotYet)
    return answer
