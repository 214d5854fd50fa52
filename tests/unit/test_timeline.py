"""Lines of several hosts in the order of their corrected times: what is held back, what is late, what is told twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.timeline import KNOWN_FOR, Arrival, Line, Offset, Reader, Told, merged, seen, settled


def line(time: float, text: str, source: str = "a", **more: bool) -> Line:
    return Line(time, source, f"host-{source}", source, text, **more)


def told(arrivals: Sequence[Arrival], window: float = 0.5) -> list[tuple[str, float]]:
    return [(one.line.text, round(one.late, 6)) for one in merged(arrivals, window)]


def at(moment: float, time: float, text: str, source: str = "a") -> Arrival:
    return Arrival(moment, line(time, text, source))


def test_lines_of_two_hosts_are_told_in_the_order_of_their_times() -> None:
    arrivals = [at(10.1, 10.0, "2", "b"), at(10.2, 9.9, "1", "a"), at(10.3, 10.2, "3", "a"), Arrival(11.0)]
    assert told(arrivals) == [("1", 0), ("2", 0), ("3", 0)]


def test_a_line_is_held_for_the_window_and_no_longer() -> None:
    heard: list[float] = []

    def arrivals() -> Iterator[Arrival]:
        yield at(10.0, 10.0, "1")
        for moment in (10.2, 10.4, 10.5, 10.6):
            heard.append(moment)
            yield Arrival(moment)

    first = next(merged(arrivals(), 0.5))
    assert (first.line.text, heard) == ("1", [10.2, 10.4, 10.5])


def test_what_is_older_than_a_due_line_goes_with_it() -> None:
    heard = []
    for one in merged([at(10.0, 10.0, "2"), at(10.4, 9.8, "1", "b"), at(10.45, 10.4, "3", "b"), Arrival(10.5)], 0.5):
        heard.append(one.line.text)
        if one.line.text == "2":
            break
    assert heard == ["1", "2"]


def test_a_late_line_is_told_at_once_and_by_how_much() -> None:
    arrivals = [at(10.0, 10.0, "2"), Arrival(10.5), at(10.7, 9.0, "1", "b"), at(10.7, 10.6, "3", "b")]
    found = merged([*arrivals, Arrival(10.8)], 0.5)
    assert [next(found), next(found)] == [Told(line(10.0, "2")), Told(line(9.0, "1", "b"), late=1.0)]
    assert told([*arrivals, Arrival(12)]) == [("2", 0), ("1", 1.0), ("3", 0)]


def test_equal_times_are_told_in_the_order_of_arrival() -> None:
    arrivals = [at(10.0 + n / 100, 10.0, str(n), source) for n, source in enumerate("bacab")]
    assert told([*arrivals, Arrival(11)]) == [(str(n), 0) for n in range(5)]


def test_lines_of_one_source_keep_their_order_whatever_their_times_say() -> None:
    arrivals = [at(10.0, 10.0, "1"), at(10.01, 9.2, "2"), at(10.02, 9.5, "x", "b"), at(10.03, 10.01, "3")]
    assert told([*arrivals, Arrival(11)]) == [("x", 0), ("1", 0), ("2", 0), ("3", 0)]


def test_no_line_is_younger_than_its_arrival() -> None:
    """A clock that is far ahead holds up its own lines only: those that follow are in order again."""
    arrivals = [at(10.0, 99.0, "ahead"), at(10.1, 10.1, "2", "b"), Arrival(10.6), at(10.7, 10.7, "4", "a")]
    arrivals += [at(10.8, 10.65, "3", "b"), Arrival(12)]
    assert told(arrivals) == [("ahead", 0), ("2", 0), ("3", 0), ("4", 0)]


def test_the_end_tells_what_is_held() -> None:
    assert told([at(10.0, 10.0, "2"), at(10.1, 9.0, "1", "b")]) == [("1", 0), ("2", 0)]
    assert told([]) == []


def test_without_a_window_lines_are_told_as_they_come() -> None:
    assert told([at(10.0, 10.0, "2"), at(10.1, 9.0, "1", "b")], window=0) == [("2", 0), ("1", 1.0)]


ARRIVALS = st.lists(st.tuples(st.floats(0, 0.4), st.sampled_from("abc"), st.floats(-0.3, 3.0)), min_size=1, max_size=40)


@given(ARRIVALS)
def test_whatever_comes_is_told_once_and_in_order(steps: list[tuple[float, str, float]]) -> None:
    moment, arrivals = 100.0, []
    for number, (pause, source, age) in enumerate(steps):
        moment += pause
        arrivals.append(at(moment, moment - age, f"{number}", source))
    found = list(merged([*arrivals, Arrival(moment + 9)], 0.5))
    numbers = [int(one.line.text) for one in found]
    assert sorted(numbers) == list(range(len(steps)))
    for source in "abc":
        own = [number for number in numbers if steps[number][1] == source]
        assert own == sorted(own)
    if all(age <= 0.5 for _, _, age in steps):
        assert max(one.late for one in found) < 1e-6, "nothing that comes within the window is late"


# ---------------------------------------------------------------------- clocks


@pytest.mark.parametrize(
    ("known", "measured", "kept"),
    [
        (None, Offset(1.0, 0.2, 5), Offset(1.0, 0.2, 5)),
        (Offset(1.0, 0.01, 5), Offset(1.1, 0.2, 10), Offset(1.0, 0.01, 5)),
        (Offset(1.0, 0.2, 5), Offset(1.1, 0.01, 10), Offset(1.1, 0.01, 10)),
        (Offset(1.0, 0.01, 5), Offset(3.0, 0.2, 10), Offset(3.0, 0.2, 10)),
        (Offset(1.0, 0.01, 5), Offset(1.1, 0.2, 6 + KNOWN_FOR), Offset(1.1, 0.2, 6 + KNOWN_FOR)),
    ],
)
def test_the_more_exact_offset_is_kept_unless_it_is_old_or_wrong(
    known: Offset | None, measured: Offset, kept: Offset
) -> None:
    assert settled(known, measured) == kept


# ---------------------------------------------------------------------- what docker says


def stamp(number: int) -> str:
    return f"2026-11-30T21:14:07.{number:09}Z"


def said(*numbers: int) -> bytes:
    return b"".join(f"{stamp(number)} line {number}\n".encode() for number in numbers)


def test_lines_come_in_pieces() -> None:
    reader, data = Reader(), said(1, 2) + f"{stamp(3)} größe".encode()
    found = [one for at in range(len(data)) for one in reader.feed(data[at : at + 1])]
    assert found == [(stamp(1), "line 1"), (stamp(2), "line 2")]
    assert reader.end() == [(stamp(3), "größe")]
    assert reader.end() == []
    assert reader.last == stamp(3)


def test_the_next_stream_goes_on_without_gap_or_repeat() -> None:
    reader = Reader()
    reader.feed(said(1, 2, 2) + stamp(3).encode() + b" half of")
    reader.again()
    assert reader.last == stamp(2)
    assert reader.feed(said(2, 2, 2, 3)) == [(stamp(2), "line 2"), (stamp(3), "line 3")]
    reader.again()
    assert reader.feed(said(3, 4)) == [(stamp(4), "line 4")]


def test_a_time_that_goes_back_is_read_and_not_asked_for_again() -> None:
    reader = Reader()
    assert len(reader.feed(said(5, 4, 6, 5))) == 4
    assert reader.last == stamp(6)


def test_dockers_own_words_are_no_line() -> None:
    reader = Reader()
    assert reader.feed(said(1) + b"Error response from daemon: No such container: x\n") == [(stamp(1), "line 1")]
    assert reader.said == "Error response from daemon: No such container: x"
    reader.again()
    assert reader.said == ""


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("plain", "plain"),
        ("10%\r20%\r30%", "30%"),
        ("done\r", "done"),
        ("\x1b[1;32mgreen\x1b[0m text", "green text"),
        ("\x1b]0;title\x07text\x08", "text"),
        ("tab\tstays", "tab\tstays"),
        ("\x9b2Jgröße\x85", "2Jgröße"),
    ],
)
def test_a_line_is_what_a_terminal_would_show(raw: str, text: str) -> None:
    assert seen(raw) == text
