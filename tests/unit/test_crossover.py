"""Where one way of serving stops being faster than another: curves whose crossing is known."""

from __future__ import annotations

from math import log, sqrt

import pytest

from fleet.results.crossover import Gain, crossover, sentence
from fleet.results.stats import Interval


def curve(*points: tuple[float, float], reach: float | None = 0.1) -> list[Gain]:
    """(conc, gain), each give or take `reach`."""
    return [
        Gain(conc, value, Interval(value - reach, value + reach) if reach is not None else None)
        for conc, value in points
    ]


def test_a_known_crossover_is_found() -> None:
    """From +0.2 at 16 to -0.2 at 64, straight in log(conc): 0 halfway, at 32; bounds a quarter from there."""
    found = crossover(curve((4, 0.4), (16, 0.2), (64, -0.2), (128, -0.4)))
    assert (found.kind, found.first, found.seen, found.unseen) == ("crossover", 1, (4, 16, 64, 128), ())
    assert found.conc == pytest.approx(32)
    assert found.interval
    assert found.interval.low == pytest.approx(16 * sqrt(2))
    assert found.interval.high == pytest.approx(32 * sqrt(2))
    assert sentence(found, "MTP") == "MTP is faster up to 32 (23–45) concurrent requests"


def test_the_public_figures_cross_between_8_and_32() -> None:
    """+75 % at 1, +38 % at 8, -37 % at 32: ln 1.38 = 0.322, ln 0.63 = -0.462, so 8 × 4^(0.322 / 0.784) = 14.1."""
    found = crossover(curve((1, log(1.75)), (8, log(1.38)), (32, log(0.63)), reach=0.05))
    assert found.conc == pytest.approx(14.14, abs=0.01)
    assert sentence(found, "MTP") == "MTP is faster up to 14 (13–15) concurrent requests"


def test_where_no_difference_is_seen_belongs_to_the_interval() -> None:
    """16 and 32 decide nothing; low bounds reach 0 between 8 and 16, high ones between 32 and 64."""
    found = crossover(curve((8, 0.3), (16, 0.05), (32, -0.05), (64, -0.3)))
    assert (found.seen, found.unseen) == ((8, 64), (16, 32))
    assert found.conc == pytest.approx(16 * sqrt(2))
    assert found.interval
    assert found.interval.low == pytest.approx(8 * 2 ** (0.2 / 0.25))
    assert found.interval.high == pytest.approx(32 * 2 ** (0.05 / 0.25))


def test_the_order_of_the_points_does_not_matter() -> None:
    points = curve((64, -0.2), (16, 0.2))
    assert crossover(points) == crossover(points[::-1])


def test_the_other_way_round() -> None:
    found = crossover(curve((16, -0.2), (64, 0.2)))
    assert (found.kind, found.first) == ("crossover", -1)
    assert sentence(found, "MTP") == "MTP is faster from 32 (23–45) concurrent requests on"


def test_no_crossover_where_one_is_always_faster() -> None:
    found = crossover(curve((4, 0.4), (16, 0.05), (64, 0.3)))
    assert (found.kind, found.conc, found.interval) == ("faster", None, None)
    assert sentence(found, "MTP") == (
        "MTP is faster at all of 4 64 concurrent requests; at 16 no difference is seen: no crossover was measured"
    )
    slower = crossover(curve((4, -0.4), (64, -0.3)))
    assert sentence(slower, "MTP") == "MTP is slower at all of 4 64 concurrent requests: no crossover was measured"


def test_no_difference_is_an_answer() -> None:
    found = crossover(curve((4, 0.05), (16, -0.05)))
    assert found.kind == "no difference"
    assert sentence(found, "MTP") == (
        "no difference is seen at 4 16 concurrent requests: MTP is neither faster nor slower there"
    )


def test_several_crossings_are_no_crossover() -> None:
    found = crossover(curve((4, 0.3), (16, -0.3), (64, 0.3)))
    assert (found.kind, found.conc) == ("mixed", None)
    assert "no single crossover" in sentence(found, "MTP")


def test_nothing_measured() -> None:
    assert crossover([]).kind == "nothing"
    assert sentence(crossover([]), "MTP") == "nothing was measured that tells whether MTP is faster"


def test_without_bounds_it_is_somewhere_between_two_measured_points() -> None:
    found = crossover(curve((4, 0.3), (16, 0.2), (64, -0.2), reach=None))
    assert not found.sure
    assert found.interval == Interval(16, 64)
    assert sentence(found, "MTP") == "MTP is faster up to about 32 (16–64) concurrent requests"
