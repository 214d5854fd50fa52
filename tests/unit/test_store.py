from __future__ import annotations

import errno
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from fleet import plan as plans
from fleet.errors import FleetError, HostError, UsageError
from fleet.results import store
from fleet.results.record import Record
from tests.judged import a_record
from tests.world import a_plan

NOW = datetime(2026, 11, 30, 21, 4, 5, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path: Path) -> store.RunFolder:
    return store.create(tmp_path / "results", "dsv4-mtp", "7f3a9c0011", NOW)


def failing(code: int) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return fail


def test_a_run_is_named_by_time_key_and_plan(tmp_path: Path) -> None:
    east = NOW.astimezone(timezone(timedelta(hours=9)))
    assert store.create(tmp_path, "dsv4-mtp", "7f3a9c0011", east).name == "20261130-210405-dsv4-mtp-7f3a9c"


def test_two_runs_in_the_same_second_have_their_own_folders(tmp_path: Path) -> None:
    names = [store.create(tmp_path, "k", "7f3a9c", NOW).name for _ in range(3)]
    assert names == ["20261130-210405-k-7f3a9c", "20261130-210405-k-7f3a9c-2", "20261130-210405-k-7f3a9c-3"]
    assert store.open(tmp_path, names[0]).name == names[0]


def test_latest_is_the_run_that_began_last_and_leaves_nothing_aside(tmp_path: Path) -> None:
    store.create(tmp_path, "k", "aaaaaa", NOW).make_latest()
    newer = store.create(tmp_path, "k", "bbbbbb", NOW + timedelta(seconds=1))
    newer.make_latest()
    store.create(tmp_path, "k", "cccccc", NOW + timedelta(seconds=2))
    assert os.readlink(tmp_path / "latest") == newer.name
    assert store.open(tmp_path) == newer
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [*store.runs(tmp_path), "latest"]


def test_without_the_link_the_newest_name_is_the_latest(tmp_path: Path) -> None:
    store.create(tmp_path, "k", "aaaaaa", NOW)
    newer = store.create(tmp_path, "k", "bbbbbb", NOW + timedelta(seconds=1))
    assert store.open(tmp_path) == newer


@pytest.mark.parametrize("word", ["20261130-21", "20261130-210405-dsv4-mtp-7f3a9c", "results/latest/", "latest"])
def test_a_run_is_found_by_its_beginning_by_its_name_and_by_its_path(folder: store.RunFolder, word: str) -> None:
    assert store.open(folder.path.parent, word) == folder


def test_an_unknown_run_is_told_with_the_nearest(folder: store.RunFolder) -> None:
    with pytest.raises(UsageError, match=r"no run '20261130-210404'\ndid you mean 20261130-210405-dsv4-mtp-7f3a9c\?"):
        store.open(folder.path.parent, "20261130-210404")


def test_a_word_like_no_run_lists_the_newest(folder: store.RunFolder) -> None:
    with pytest.raises(UsageError, match=f"no run 'xyz'\nruns here: {folder.name}"):
        store.open(folder.path.parent, "xyz")


def test_an_unknown_run_without_any_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run yet"):
        store.open(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="none yet"):
        store.open(tmp_path, "2026")


def test_a_folder_for_runs_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    store.usable(tmp_path / "new" / "results")
    assert list((tmp_path / "new" / "results").iterdir()) == []


@pytest.mark.parametrize(
    ("call", "number", "why", "first", "code"),
    [
        ("mkdir", errno.EACCES, "Permission denied", "who owns it?  ls -ld {root}", 2),
        ("mkdir", errno.EROFS, "Read-only file system", "mounted read-only: use another results folder", 3),
        ("fsync", errno.ENOSPC, "No space left on device", "free some space there", 3),
        ("write", errno.EDQUOT, "Disk quota exceeded", "the quota is used up: free some space", 3),
        ("write", errno.EIO, "Input/output error", None, 3),
        ("mkdir", errno.ENAMETOOLONG, "File name too long", None, 2),
    ],
)
def test_a_folder_where_no_run_can_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, why: str, first: str | None, code: int
) -> None:
    """What the disk refuses is a machine's affair, what the folder refuses that of who named it."""
    monkeypatch.setattr(Path if call == "mkdir" else os, call, failing(number))
    with pytest.raises(FleetError) as told:
        store.usable(tmp_path)
    monkeypatch.undo()
    hints = ([first.format(root=tmp_path)] if first else []) + [store.ELSEWHERE]
    assert str(told.value).splitlines() == [f"{tmp_path}: no run can be kept there: {why}", *hints]
    assert told.value.exit_code == code
    assert list(tmp_path.iterdir()) == []


def test_too_little_room_is_told_before_a_run_and_before_each_point(
    folder: store.RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_free", lambda _: store.ROOM - 1)
    with pytest.raises(HostError, match=r"no run can be kept there: 64 MB are free, 64 MB are needed\nanother folder"):
        store.usable(folder.path.parent)
    with pytest.raises(FleetError, match=f"64 MB are free, 64 MB are needed\nfree some .* {folder.name} has finished"):
        folder.room()
    monkeypatch.setattr(store, "_free", lambda _: store.ROOM)
    store.usable(folder.path.parent)
    folder.room()


def test_a_file_is_no_folder_for_runs(tmp_path: Path) -> None:
    path = tmp_path / "results"
    path.write_text("")
    for root in (path, path / "below"):
        with pytest.raises(UsageError, match=r"no run can be kept there: not a folder\nanother folder: fleet\.results"):
            store.usable(root)
    with pytest.raises(UsageError, match=r"is not a folder, so no runs are kept there\nanother folder: fleet\.results"):
        store.open(path)
    with pytest.raises(UsageError, match=r"there is no such folder\nstart one: .*\nanother folder: fleet\.results"):
        store.open(tmp_path / "nowhere")


def test_an_ambiguous_beginning_lists_the_runs(tmp_path: Path) -> None:
    for digits in ("aaaaaa", "bbbbbb"):
        store.create(tmp_path, "k", digits, NOW)
    with pytest.raises(
        UsageError, match=r"could be 2 runs\none of: 20261130-210405-k-aaaaaa  20261130-210405-k-bbbbbb"
    ):
        store.open(tmp_path, "20261130")


def test_a_strangers_folder_is_not_a_run(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    assert store.runs(tmp_path) == []


def test_paths_are_short_and_relative_ones_go_into_records(folder: store.RunFolder) -> None:
    assert folder.relative(folder.raw("2p1d-dpa-mtp3-c256")) == "raw/2p1d-dpa-mtp3-c256.json"
    assert folder.relative(folder.agg("2p1d-dpa-mtp3-c256")) == "agg/2p1d-dpa-mtp3-c256.json"
    assert folder.relative(folder.log("2p1d-dpa-mtp3", "prefill0.1")) == "logs/2p1d-dpa-mtp3/prefill0.1.log"


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "a b"])
def test_a_name_that_would_leave_the_folder_is_refused(folder: store.RunFolder, name: str) -> None:
    with pytest.raises(FleetError, match="cannot be part of a file name"):
        folder.raw(name)


def test_files_are_written_whole_and_leave_nothing_aside(folder: store.RunFolder) -> None:
    folder.write_json(folder.agg("p"), {"b": 1, "a": "é"})
    assert folder.agg("p").read_text() == '{\n  "b": 1,\n  "a": "é"\n}\n'
    folder.write_text(folder.plan_text, "one")
    folder.write_text(folder.plan_text, "two")
    assert folder.plan_text.read_text() == "two"
    folder.write_bytes(folder.raw("p"), b"\x00raw")
    assert folder.raw("p").read_bytes() == b"\x00raw"
    assert folder.raw("p").stat().st_mode & 0o777 == 0o644
    assert [path for path in folder.path.rglob("*") if path.name.startswith(".")] == []


def test_a_full_disk_keeps_the_old_file_and_says_what_to_do(
    folder: store.RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write_text(folder.plan_text, "old")
    monkeypatch.setattr(os, "fsync", failing(errno.ENOSPC))
    with pytest.raises(FleetError) as told:
        folder.write_text(folder.plan_text, "new")
    assert told.value.what == "No space left on device"
    assert told.value.where == str(folder.plan_text)
    assert told.value.hint == f"free some space there; what {folder.name} has finished is kept"
    assert folder.plan_text.read_text() == "old"
    assert [path.name for path in folder.path.iterdir()] == ["plan.txt"]


def test_a_folder_that_is_not_ours_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "mkdir", failing(errno.EACCES))
    with pytest.raises(FleetError, match=r"Permission denied\nwho owns it\?  ls -ld"):
        store.create(tmp_path / "results", "k", "7f3a9c", NOW)


def test_a_file_where_the_results_folder_should_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("")
    with pytest.raises(FleetError, match="File exists"):
        store.create(tmp_path / "results", "k", "7f3a9c", NOW)


def test_a_key_too_long_for_a_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(FleetError, match=r"too long[\s\S]*the config key is too long"):
        store.create(tmp_path, "k" * 250, "7f3a9c", NOW)


def test_records_are_appended_and_read_in_order(folder: store.RunFolder) -> None:
    assert folder.records() == ()
    first, second = a_record(point="p-c4"), a_record(point="p-c8")
    folder.append_record(first)
    folder.append_record(second)
    assert folder.records() == (first, second)
    assert folder.points.read_text() == first.to_line() + second.to_line()


def test_a_record_is_one_write_and_synced_before_it_returns(
    folder: store.RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    write, fsync = os.write, os.fsync

    def spy_write(descriptor: int, data: bytes) -> int:
        calls.append(f"write {len(data)}")
        return write(descriptor, data)

    def spy_fsync(descriptor: int) -> None:
        calls.append("fsync")
        fsync(descriptor)

    monkeypatch.setattr(os, "write", spy_write)
    monkeypatch.setattr(os, "fsync", spy_fsync)
    folder.append_record(a_record())
    assert calls[:2] == [f"write {len(a_record().to_line().encode())}", "fsync"]


def test_a_record_cut_off_by_a_full_disk_leaves_the_file_as_it_was(
    folder: store.RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.append_record(a_record())
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:100]))
    with pytest.raises(FleetError, match="No space left on device"):
        folder.append_record(a_record(point="p-c8"))
    monkeypatch.undo()
    assert folder.points.read_text() == a_record().to_line()


def test_a_torn_line_is_reported_and_set_aside_by_the_next_append(folder: store.RunFolder) -> None:
    folder.append_record(a_record())
    with folder.points.open("a") as file:
        file.write('{"schema_version":"1","ru')
    assert folder.read().torn == '{"schema_version":"1","ru'
    folder.append_record(a_record(point="p-c8"))
    assert [record.point for record in folder.records()] == ["1p1d-mtp3-c4", "p-c8"]
    assert folder.read().torn is None
    assert (folder.path / "points.torn").read_text() == '{"schema_version":"1","ru\n'


def test_a_file_that_is_one_torn_line_starts_anew(folder: store.RunFolder) -> None:
    folder.points.write_bytes(b"\xff\x00torn")
    folder.append_record(a_record())
    assert folder.records() == (a_record(),)
    assert (folder.path / "points.torn").read_bytes() == b"\xff\x00torn\n"


def test_a_line_that_lacks_only_its_newline_is_kept(folder: store.RunFolder) -> None:
    folder.points.write_text(a_record().to_line().rstrip("\n"))
    folder.append_record(a_record(point="p-c8"))
    assert [record.point for record in folder.records()] == ["1p1d-mtp3-c4", "p-c8"]
    assert not (folder.path / "points.torn").exists()


def test_a_broken_line_in_the_middle_is_told_with_its_path(folder: store.RunFolder) -> None:
    folder.points.write_text("broken\n" + a_record().to_line())
    with pytest.raises(FleetError, match=r"points\.jsonl:1: not a record"):
        folder.records()


def test_not_a_number_is_not_written(folder: store.RunFolder) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        folder.write_json(folder.facts, {"x": float("nan")})
    assert not folder.facts.exists()


def test_a_runs_name_tells_its_key() -> None:
    assert store.is_of("20261130-210405-dsv4-atom-7f3a9c-2", "dsv4-atom")
    assert not store.is_of("20261130-210405-dsv4-atom-mtp-7f3a9c", "dsv4-atom")


def planned(folder: store.RunFolder) -> Record:
    """The folder gets a plan of one point; a record of it."""
    made = a_plan(conc=(4,))
    folder.write_text(folder.plan_json, plans.to_json(made))
    return a_record(run=folder.name, plan=made.hash, point="1p1d-mtp3-c4", raw=None, agg=None)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"run": "20261130-210405-k-abcdef"}, "a record of run 20261130-210405-k-abcdef"),
        ({"plan": "ab" * 32}, "a record of plan ababab, the run's is {hash6}"),
        ({"point": "1p1d-mtp3-c64"}, "the plan has no point 1p1d-mtp3-c64"),
        ({"point": "x\n\x1b[31m"}, "the plan has no point x\\n\\x1b[31m"),
    ],
)
def test_a_record_of_something_else_is_set_aside_and_named(
    folder: store.RunFolder, change: dict[str, str], why: str
) -> None:
    mine = planned(folder)
    for record in (mine.model_copy(update=change), mine, mine.model_copy(update=change)):
        folder.append_record(record)
    assert folder.records() == (mine,)
    said = why.format(hash6=mine.plan[:6])
    assert folder.oddities() == [f"points.jsonl:{line} is set aside and counts for nothing: {said}" for line in (1, 3)]


def test_without_a_plan_that_can_be_read_no_record_is_a_strangers(folder: store.RunFolder) -> None:
    mine = planned(folder).model_copy(update={"run": "another"})
    folder.append_record(mine)
    for text in ("{", "{}", '{"hash": 1, "arms": [{"points": [7]}]}'):
        folder.plan_json.write_text(text)
        os.utime(folder.plan_json, ns=(len(text), len(text)))
        assert folder.records() == (mine,)
    folder.plan_json.unlink()
    assert (folder.records(), folder.oddities()) == ((mine,), [])


def test_files_that_records_name_and_that_are_gone_are_named(folder: store.RunFolder) -> None:
    mine = planned(folder).model_copy(update={"raw": "raw/1p1d-mtp3-c4.json", "agg": "agg/1p1d-mtp3-c4.json"})
    folder.append_record(mine)
    for path in ("raw", "agg"):
        folder.write_text(folder.path / path / "1p1d-mtp3-c4.json", "{}")
    assert folder.oddities() == []
    folder.raw("1p1d-mtp3-c4").unlink()
    folder.agg("1p1d-mtp3-c4").unlink()
    assert folder.oddities() == [
        f"{path}/1p1d-mtp3-c4.json is missing, which the record of 1p1d-mtp3-c4 names" for path in ("raw", "agg")
    ]


def test_results_without_their_records_are_told(folder: store.RunFolder) -> None:
    folder.write_text(folder.raw("1p1d-mtp3-c4"), "{}")
    folder.write_text(folder.raw("1p1d-mtp3-c8"), "{}")
    assert folder.oddities() == ["points.jsonl is missing: no point counts as run, whatever raw/ holds (2 files)"]


@pytest.mark.timeout(20)
def test_a_lock_that_is_a_named_pipe_holds_nobody_up(folder: store.RunFolder) -> None:
    os.mkfifo(folder.path / store.LOCK)
    assert not folder.driven()
