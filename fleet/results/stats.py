"""Medians, bootstrap intervals and noise, in plain Python; the dice are seeded. Pure.

Differences are ratios, so they are reckoned in logarithms: +25 % and -20 % are the same way there and back.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import fmean, median

SEED = 0
ROUNDS = 2000
LEVEL = 0.95
_MOST = 300.0
"""The logarithm of the largest ratio that is told; a float ends at 709."""

# Two-sided 95 % quantiles of Student's t by degrees of freedom; between two of them the larger one holds.
_STUDENT = {
    1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228,
    12: 2.179, 15: 2.131, 20: 2.086, 30: 2.042, 60: 2.000, 120: 1.980,
}  # fmt: skip


@dataclass(frozen=True)
class Interval:
    """Both ends included."""

    low: float
    high: float

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def over(self, other: Interval) -> Interval:
        """The least that holds both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))


def quantile(values: Sequence[float], share: float) -> float:
    """Between two values linearly. Raises ValueError for no value."""
    if not values:
        raise ValueError("no value has no quantile")
    ordered, place = sorted(values), share * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def interval_of_median(values: Sequence[float], *, seed: int = SEED) -> Interval | None:
    """The bootstrap's percentile interval of the median, 95 %; None for fewer than two values."""
    if len(values) < 2:
        return None
    dice = random.Random(seed)
    return _middle([median(dice.choices(values, k=len(values))) for _ in range(ROUNDS)])


def gain(a: Sequence[float], b: Sequence[float]) -> float:
    """log of the median of b over the median of a. All values are above zero."""
    return log(median(b) / median(a))


def interval_of_gain(a: Sequence[float], b: Sequence[float], *, seed: int = SEED) -> Interval | None:
    """The bootstrap's interval of `gain`, 95 %; None where a side has one value only."""
    if min(len(a), len(b)) < 2:
        return None
    dice = random.Random(seed)
    return _middle([gain(dice.choices(a, k=len(a)), dice.choices(b, k=len(b))) for _ in range(ROUNDS)])


def paired(pairs: Sequence[tuple[float, float]]) -> float:
    """The median over pairs (the same point of two runs) of log(second / first). Raises StatisticsError for none."""
    return median(log(b / a) for a, b in pairs)


def interval_of_paired(pairs: Sequence[tuple[float, float]], *, seed: int = SEED) -> Interval | None:
    """Pairs are drawn, not their halves: what two runs share at a point does not widen it. None for one pair."""
    return interval_of_median([log(b / a) for a, b in pairs], seed=seed)


def _middle(found: Sequence[float]) -> Interval:
    rest = (1 - LEVEL) / 2
    return Interval(quantile(found, rest), quantile(found, 1 - rest))


@dataclass(frozen=True)
class Spread:
    """How repeats of the same point scatter. deviation: standard deviation of the logarithms, pooled over points;
    freedom: its degrees of freedom, the repeats less one of each point.
    """

    deviation: float
    freedom: int

    @property
    def floor(self) -> float:
        """The noise floor: two measurements of the same point differ by less (as a logarithm) 19 times out of 20."""
        return student(self.freedom) * sqrt(2) * self.deviation


def spread(groups: Iterable[Sequence[float]]) -> Spread | None:
    """groups: the repeats of one point each, all above zero. None where no point has two."""
    squares, freedom = 0.0, 0
    for values in groups:
        if len(values) > 1:
            logs = [log(value) for value in values]
            mean = fmean(logs)
            squares += sum((one - mean) ** 2 for one in logs)
            freedom += len(logs) - 1
    return Spread(sqrt(squares / freedom), freedom) if freedom else None


def student(freedom: int) -> float:
    """Student's t, 95 % two-sided. Raises ValueError below one degree of freedom."""
    if freedom < 1:
        raise ValueError("no degree of freedom")
    return _STUDENT[max(known for known in _STUDENT if known <= freedom)]


def percent(ratio: float) -> float:
    """A logarithm of a ratio as a change in percent: log 1.25 is 25."""
    return (exp(min(ratio, _MOST)) - 1) * 100
