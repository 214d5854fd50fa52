"""Medians, bootstrap intervals and noise: values that a pencil gives."""

from __future__ import annotations

from math import exp, log, sqrt

import pytest

from fleet.results import stats
from fleet.results.stats import Interval, Spread


def test_a_quantile_lies_between_its_neighbours() -> None:
    assert [stats.quantile([4, 1, 3, 2], share) for share in (0, 0.5, 1)] == [1, 2.5, 4]
    assert stats.quantile([10, 20], 0.25) == 12.5
    assert stats.quantile([7], 0.975) == 7
    with pytest.raises(ValueError, match="no value"):
        stats.quantile([], 0.5)


def test_the_interval_of_two_values_is_from_one_to_the_other() -> None:
    """Resampled medians of {1, 3} are 1, 2 and 3 with chances 1/4, 1/2, 1/4: both ends hold 2.5 %."""
    assert stats.interval_of_median([3.0, 1.0]) == Interval(1.0, 3.0)


def test_the_interval_of_five_values_leaves_the_ends_in() -> None:
    """The median of a resample is the least value with chance P(at least 3 of 5 draws are it) = 0.058: above 2.5 %."""
    assert stats.interval_of_median([5.0, 1.0, 2.0, 4.0, 3.0]) == Interval(1.0, 5.0)


def test_the_interval_of_seven_values_leaves_the_ends_out() -> None:
    """P(the least is drawn 4 times of 7 or more) = 0.010, one of the two least 0.108: it begins at the second."""
    assert stats.interval_of_median([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]) == Interval(2.0, 6.0)


def test_one_value_has_no_interval() -> None:
    assert stats.interval_of_median([1.0]) is None
    assert stats.interval_of_gain([1.0], [2.0, 3.0]) is None
    assert stats.interval_of_paired([(1.0, 2.0)]) is None


def test_the_dice_are_seeded() -> None:
    values = [9.0, 1.5, 4.0, 7.25, 3.0, 8.0, 2.0, 6.5]
    assert stats.interval_of_median(values) == stats.interval_of_median(values)
    assert stats.interval_of_median(values, seed=1) is not None


def test_a_gain_is_the_logarithm_of_the_ratio_of_medians() -> None:
    assert stats.gain([90.0, 100.0, 400.0], [125.0]) == pytest.approx(log(1.25))
    assert stats.percent(log(1.25)) == pytest.approx(25.0)
    assert stats.percent(-log(1.25)) == pytest.approx(-20.0), "the same way back"


def test_equal_repeats_leave_no_doubt_about_the_gain() -> None:
    bounds = stats.interval_of_gain([100.0, 100.0], [138.0, 138.0])
    assert bounds
    assert (bounds.low, bounds.high) == pytest.approx((log(1.38), log(1.38)))


def test_the_interval_of_a_gain_is_between_the_extremes() -> None:
    bounds = stats.interval_of_gain([100.0, 110.0], [121.0, 132.0])
    assert bounds
    assert (bounds.low, bounds.high) == pytest.approx((log(1.1), log(1.32)))


def test_pairs_cancel_what_two_runs_share() -> None:
    """Each point is 5 % faster, though the points themselves are far apart."""
    pairs = [(100.0, 105.0), (1000.0, 1050.0), (10.0, 10.5)]
    bounds = stats.interval_of_paired(pairs)
    assert stats.paired(pairs) == pytest.approx(log(1.05))
    assert bounds
    assert (bounds.low, bounds.high) == pytest.approx((log(1.05), log(1.05)))


def test_repeats_of_several_points_are_pooled() -> None:
    """ln: 0, 2 around 1 (squares 2, one degree) and 5, 6, 7 around 6 (squares 2, two degrees): sqrt(4 / 3)."""
    found = stats.spread([[exp(0.0), exp(2.0)], [exp(5.0), exp(6.0), exp(7.0)], [42.0]])
    assert found
    assert found.deviation == pytest.approx(sqrt(4 / 3))
    assert found.freedom == 3
    assert found.floor == pytest.approx(3.182 * sqrt(2) * sqrt(4 / 3))


def test_without_repeats_nobody_knows_the_noise() -> None:
    assert stats.spread([[1.0], [2.0]]) is None
    assert stats.spread([]) is None


def test_equal_repeats_make_no_noise() -> None:
    assert stats.spread([[5.0, 5.0, 5.0]]) == Spread(0.0, 2)


@pytest.mark.parametrize(("freedom", "quantile"), [(1, 12.706), (4, 2.776), (11, 2.228), (12, 2.179), (10_000, 1.980)])
def test_students_t_is_never_taken_too_small(freedom: int, quantile: float) -> None:
    assert stats.student(freedom) == quantile


def test_no_degree_of_freedom_has_no_quantile() -> None:
    with pytest.raises(ValueError, match="no degree"):
        stats.student(0)
