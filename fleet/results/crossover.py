"""From which concurrency on one way of serving is no longer faster than another. Pure.

The interval is where no difference can be told: from where the lower bound of the gain reaches zero to where the upper
bound does. Between two concurrencies that were measured gains are taken as linear in log(concurrency).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from typing import Literal

from fleet.results.stats import Interval

Kind = Literal["crossover", "faster", "slower", "no difference", "mixed", "nothing"]


@dataclass(frozen=True)
class Gain:
    """At one concurrency: log of the ratio, above 0 is faster. bounds: None where nothing tells how sure it is."""

    conc: float
    value: float
    bounds: Interval | None = None

    @property
    def sign(self) -> int:
        """1: surely faster, -1: surely slower, 0: no difference seen. Without bounds the value is taken as it is."""
        low, high = (self.bounds.low, self.bounds.high) if self.bounds else (self.value, self.value)
        return (low > 0) - (high < 0)


@dataclass(frozen=True)
class Crossover:
    """conc, interval: where it is, for kind "crossover" only. first: which is faster at few requests, 1 or -1.

    seen, unseen: the concurrencies that decided it, and those at which no difference was seen. sure: whether every gain
    had bounds; without, the interval is only between which measured concurrencies it lies.
    """

    kind: Kind
    seen: tuple[float, ...] = ()
    unseen: tuple[float, ...] = ()
    first: int = 0
    conc: float | None = None
    interval: Interval | None = None
    sure: bool = True


def crossover(gains: Sequence[Gain]) -> Crossover:
    """gains: one for each concurrency, in any order."""
    curve = sorted(gains, key=lambda gain: gain.conc)
    seen = tuple(gain.conc for gain in curve if gain.sign)
    unseen = tuple(gain.conc for gain in curve if not gain.sign)
    signs = [gain.sign for gain in curve if gain.sign]
    turns = sum(one != after for one, after in pairwise(signs))
    sure = all(gain.bounds for gain in curve)
    if not curve:
        return Crossover("nothing")
    if not signs:
        return Crossover("no difference", seen, unseen, sure=sure)
    if not turns:
        return Crossover("faster" if signs[0] > 0 else "slower", seen, unseen, signs[0], sure=sure)
    if turns > 1:
        return Crossover("mixed", seen, unseen, signs[0], sure=sure)
    conc, interval = _where(curve, signs[0])
    return Crossover("crossover", seen, unseen, signs[0], conc, interval, sure)


def _where(curve: Sequence[Gain], first: int) -> tuple[float, Interval]:
    """In the stretch from the last concurrency at which the first is surely faster to the first where the other is."""
    last = max(index for index, gain in enumerate(curve) if gain.sign == first)
    after = next(index for index, gain in enumerate(curve) if gain.sign == -first)
    stretch = curve[last : after + 1]
    middle = _zeros(stretch, lambda gain: gain.value * first)
    conc = exp((log(middle[0]) + log(middle[-1])) / 2)
    if not all(gain.bounds for gain in stretch):
        return conc, Interval(stretch[0].conc, stretch[-1].conc)
    low = _zeros(stretch, lambda gain: _worst(gain, first))[0]
    high = _zeros(stretch, lambda gain: _best(gain, first))[-1]
    return conc, Interval(low, high)


def _worst(gain: Gain, first: int) -> float:
    assert gain.bounds
    return gain.bounds.low if first > 0 else -gain.bounds.high


def _best(gain: Gain, first: int) -> float:
    assert gain.bounds
    return gain.bounds.high if first > 0 else -gain.bounds.low


def _zeros(stretch: Sequence[Gain], value: Callable[[Gain], float]) -> list[float]:
    """Concurrencies at which a curve that begins above zero and ends below crosses it, upwards or downwards."""
    found = []
    for one, after in pairwise(stretch):
        left, right = value(one), value(after)
        if left > 0 >= right or left <= 0 < right:
            share = left / (left - right)
            found.append(exp(log(one.conc) + share * (log(after.conc) - log(one.conc))))
    return found


def sentence(found: Crossover, what: str, unit: str = "concurrent requests") -> str:
    """What one can quote: `MTP is faster up to 32 (24–48) concurrent requests`. what: whose gains they are."""
    if found.kind == "crossover":
        assert found.conc is not None
        assert found.interval is not None
        ends = f"({round(found.interval.low)}–{round(found.interval.high)})"
        about = "" if found.sure else "about "
        if found.first > 0:
            return f"{what} is faster up to {about}{round(found.conc)} {ends} {unit}"
        return f"{what} is faster from {about}{round(found.conc)} {ends} {unit} on"
    if found.kind in ("faster", "slower"):
        where = f"at all of {_listed(found.seen)}" if len(found.seen) > 1 else f"at {_listed(found.seen)}"
        tail = f"; at {_listed(found.unseen)} no difference is seen" if found.unseen else ""
        return f"{what} is {found.kind} {where} {unit}{tail}: no crossover was measured"
    if found.kind == "no difference":
        return f"no difference is seen at {_listed(found.unseen)} {unit}: {what} is neither faster nor slower there"
    if found.kind == "mixed":
        return (
            f"{what} is faster at some of {_listed(found.seen)} {unit} and slower at others, with no single crossover"
        )
    return f"nothing was measured that tells whether {what} is faster"


def _listed(concs: Sequence[float]) -> str:
    return " ".join(f"{conc:g}" for conc in concs)
