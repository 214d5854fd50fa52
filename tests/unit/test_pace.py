"""How long the last start took: by host, image, model and role, from a file that anybody may have cut."""

from __future__ import annotations

import pytest

from fleet.results import pace
from fleet.results.pace import Pace


def took(seconds: float, **other: str) -> Pace:
    facts = {"host": "n1", "image": "sha256:1", "model": "M", "role": "decode", "at": "2026-12-01T00:00:00.000Z"}
    return Pace(seconds=seconds, **(facts | other))  # type: ignore[arg-type]


def test_the_last_one_that_can_be_compared_counts() -> None:
    text = "".join(map(pace.line, (took(10), took(190.4), took(5, host="n2"), took(6, image="x"), took(7, role="y"))))
    assert pace.last(text, took(0)) == 190.4
    assert pace.last(text, took(0, model="other")) is None


@pytest.mark.parametrize("end", ['{"host": "n1', "\x00", "[]", '{"host": 3}', ""])
def test_a_line_that_cannot_be_read_is_passed_over(end: str) -> None:
    assert pace.last(pace.line(took(10)) + end, took(0)) == 10


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (42, "42 s"), (59.7, "1 m 0 s"), (190, "3 m 10 s"), (3725, "1 h 2 m")]
)
def test_durations_as_people_say_them(seconds: float, words: str) -> None:
    assert pace.spoken(seconds) == words
