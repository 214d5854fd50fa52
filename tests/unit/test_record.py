from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from fleet.errors import FleetError
from fleet.model.evidence import Counters
from fleet.results.record import Evidence, Figures, Record, latest, read, reproduce, utc
from tests.judged import a_record


def test_a_line_starts_with_the_schema_version_and_comes_back_equal() -> None:
    record = a_record(evidence={"decode0": Evidence(before=Counters(finished=2), after=None)})
    line = record.to_line()
    assert line.startswith('{"schema_version":"1",')
    assert line.count("\n") == 1
    assert line.endswith("\n")
    assert Record.from_line(line) == record


def test_what_was_not_measured_is_null_not_zero() -> None:
    found = json.loads(a_record(figures=Figures()).to_line())["figures"]
    assert set(found.values()) == {None}


def test_a_torn_last_line_is_set_aside() -> None:
    first, second = a_record(point="p-c4"), a_record(point="p-c8")
    points = read(first.to_line() + second.to_line()[:-40])
    assert points.records == (first,)
    assert points.torn == second.to_line()[:-40]


def test_a_last_line_that_lacks_only_its_newline_is_a_record() -> None:
    points = read(a_record().to_line().rstrip("\n"))
    assert points.records == (a_record(),)
    assert points.torn is None


def test_a_broken_line_in_the_middle_is_named_with_its_number() -> None:
    text = a_record().to_line() + "{not json\n" + a_record().to_line()
    with pytest.raises(FleetError, match=r"run/points\.jsonl:2: not a record of schema version 1"):
        read(text, where="run/points.jsonl")


def test_another_schema_version_is_refused_by_name() -> None:
    with pytest.raises(FleetError, match="schema_version"):
        read(a_record().to_line().replace('"schema_version":"1"', '"schema_version":"2"'))


def test_nothing_is_no_records() -> None:
    assert read("").records == ()
    assert read("").torn is None


def test_a_point_that_ran_again_counts_by_its_last_record_and_keeps_its_place() -> None:
    stopped, other = a_record(point="a", state="incomplete"), a_record(point="b")
    again = a_record(point="a")
    assert latest([stopped, other, again]) == (again, other)


def test_only_a_done_and_believed_record_is_valid() -> None:
    assert a_record().valid
    assert not a_record(state="incomplete").valid
    assert not a_record(verdict={"valid": False, "reasons": ("x",)}).valid


def test_marks_say_what_is_not_a_measurement() -> None:
    assert a_record().marks == ()
    assert a_record(double=True, trial=True).marks == ("DOUBLE", "TRIAL")


def test_times_are_utc() -> None:
    east = timezone(timedelta(hours=2))
    assert utc(datetime(2026, 11, 30, 23, 4, 5, 250_000, tzinfo=east)) == "2026-11-30T21:04:05.250Z"
    assert utc(datetime(2026, 11, 30, 21, 4, 5, tzinfo=UTC)) == "2026-11-30T21:04:05.000Z"
    with pytest.raises(ValueError, match="time zone"):
        utc(datetime(2026, 11, 30))


def test_the_line_that_reproduces_a_point() -> None:
    line = reproduce("k-mtp", "1p1d-mtp3", 128, "inventories/my lab.yaml", trial=True)
    assert (
        line == "invoke sweep --config k-mtp --arm 1p1d-mtp3 --conc 128 --inventory 'inventories/my lab.yaml' --trial"
    )
    assert not reproduce("k", "a", 4, "i.yaml").endswith("--trial")
