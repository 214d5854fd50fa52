"""When a load is given up: tables of what was seen, and the right answer by hand."""

from __future__ import annotations

import pytest

from fleet.patience import Hunger, Patience

Seen = list[tuple[float, float | None]]


def patience(*seen: tuple[float, float | None], total: int = 1024, conc: int = 4, osl: int = 100) -> Patience:
    made = Patience(total=total, conc=conc, osl=osl, floor=60)
    for now, finished in seen:
        made.see(now, finished)
    return made


@pytest.mark.parametrize(
    ("seen", "slowest", "limit"),
    [
        pytest.param([(0, 0)], None, 60 + 50, id="nothing yet: half a second a token"),
        pytest.param([(0, 0), (10, 1)], 10, 60, id="the first, under the floor"),
        pytest.param([(0, 0), (30, 1)], 30, 90, id="three times the slowest"),
        pytest.param([(0, 0), (30, 4), (50, 8)], 30, 90, id="later ones began when the earlier ended"),
        pytest.param([(0, 0), (30, 4), (75, 8)], 45, 135, id="a slower one later"),
        pytest.param([(0, 0), (5, 5)], 5, 60, id="more than conc at one look"),
        pytest.param([(0, 0), (30, 4), (40, 3)], 30, 90, id="a count that falls is no news"),
        pytest.param([(7, 9), (17, 10)], 10, 60, id="first seen under way"),
    ],
)
def test_the_limit_comes_from_the_slowest_so_far(seen: Seen, slowest: float | None, limit: float) -> None:
    made = patience(*seen)
    assert (made.slowest, made.limit) == (slowest, limit)


def test_one_that_hangs_is_given_up_and_the_others_are_counted() -> None:
    made = patience((0, 0), (40, 512), (80, 1023))
    assert made.lost(199.9) == ""
    assert made.lost(201) == (
        "1 of 1024 requests not done: nothing has moved for 121 s, "
        "where the slowest so far took 40.0 s and one may take 3 times as long"
    )
    assert made.done == 1023


def test_the_least_that_a_request_is_given_is_the_operators() -> None:
    made = patience((0, 0), (2, 8))
    assert made.lost(61.9) == ""
    assert made.lost(62) == (
        "1016 of 1024 requests not done: nothing has moved for 60 s, "
        "where one may take 60 s (timeouts.request_within) and the slowest so far took 2.0 s"
    )


def test_a_load_of_which_nothing_ever_comes_is_given_up_too() -> None:
    made = patience((0, 0), (50, 0), (109, 0))
    assert made.lost(109) == ""
    assert made.lost(110) == (
        "1024 of 1024 requests not done: nothing has moved for 110 s, "
        "where an answer of 100 tokens is given 110 s at the beginning"
    )


def test_a_client_that_does_not_end_is_given_up() -> None:
    made = patience((0, 0), (10, 1024))
    assert made.lost(69) == ""
    assert made.lost(70).startswith("1024 requests served and the client does not end: nothing has moved for 60 s")


def test_a_slow_load_that_moves_is_never_given_up() -> None:
    made = patience((0, 0))
    for number in range(1, 200):
        assert made.lost(number * 100 - 1) == ""
        made.see(number * 100, number)
    assert made.done == 199


def test_a_count_that_cannot_be_read_is_no_hang() -> None:
    made = patience((0, 0), (10, 8))
    for second in range(11, 1000, 10):
        made.see(second, None)
        assert made.lost(second + 9) == ""
    assert (made.done, made.slowest) == (8, 10)


def test_looks_that_saw_nothing_do_not_make_requests_seem_quick() -> None:
    made = patience((0, 0), (10, 4), (50, None), (70, 8))
    assert made.slowest == 60


# --- a decode worker without KV -------------------------------------------------------------------------------------


def hungry(*seen: tuple[float, float | None, float | None, int]) -> Hunger:
    made = Hunger("decode 0 on node3", last=2)
    for now, finished, computing, errors in seen:
        made.see(now, finished, computing, errors)
    return made


REST: tuple[tuple[float, float | None, float | None, int], ...] = ((0, 5, 0, 2), (10, 5, 0, 6))


@pytest.mark.parametrize(
    ("now", "errors", "lost", "why"),
    [
        (15, 6, 4, "decode 0 on node3 gets no KV: 4 transfer errors, none finished for 15 s"),
        (14, 6, 4, ""),
        (15, 4, 4, ""),
        (15, 6, 2, ""),
        (60, 2, 3, "decode 0 on node3 gets no KV: 3 requests handed over, none finished for 60 s"),
        (60, 2, 2, ""),
        (60, 3, 1, "decode 0 on node3 gets no KV: 1 transfer error, none finished for 60 s"),
        (60, 2, 0, ""),
        (59, 2, 4, ""),
    ],
)
def test_a_decode_worker_that_gets_no_kv_is_told(now: float, errors: int, lost: float, why: str) -> None:
    assert hungry(*REST).starved(now, errors, lost, limit=60) == why


@pytest.mark.parametrize("last", [(10, 6, 0, 9), (10, 5, 1, 9), (10, None, 0, 9), (10, 5, None, 9)])
def test_one_that_works_or_cannot_be_read_is_not_starved(last: tuple[float, float | None, float | None, int]) -> None:
    assert hungry(REST[0], last).starved(24.9, 12, 9, limit=14) != ""
    assert hungry(REST[0], last).starved(23.9, 12, 9, limit=14) == ""


def test_errors_seen_together_with_the_last_that_finished_may_have_come_after_it() -> None:
    """Four requests hang and three finish between two looks."""
    made = hungry((0, 5, 0, 2), (1, 8, 0, 6), (2, 8, 0, 6))
    assert made.starved(16, 6, 4, limit=60) == "decode 0 on node3 gets no KV: 4 transfer errors, none finished for 15 s"
    later = hungry((0, 5, 0, 2), (1, 8, 0, 6), (2, 9, 0, 6))
    assert later.starved(17, 6, 4, limit=60) == ""
