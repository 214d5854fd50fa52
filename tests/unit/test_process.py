"""A process is its boot, its pid and its start time, never its pid alone."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.errors import LabError
from fleet.lab import process

STAT = "4242 (a) b (c) S 1 4242 4242 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 987654 2445312 220 1844 1"


def test_a_command_name_may_hold_parentheses_and_spaces() -> None:
    assert process.parse("boot", STAT) == process.Process("boot", 4242, 987654)


def test_a_record_is_read_or_there_is_none(tmp_path: Path) -> None:
    record = tmp_path / "init"
    assert process.recorded(record) is None
    for text in ("", "boot", "boot 12", "boot x (y) z"):
        record.write_text(text)
        assert process.recorded(record) is None, text
    record.write_text(f"boot {STAT}\n")
    assert process.recorded(record) == process.Process("boot", 4242, 987654)


def test_only_the_very_process_is_alive() -> None:
    me = process.find(os.getpid())
    assert me is not None
    assert me.alive
    assert not replace(me, start=me.start + 1).alive
    assert not replace(me, boot="an earlier one").alive
    assert not replace(me, pid=1).alive


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen(["true"])
    process.wait(lambda: process.find(child.pid) is None, 10, "still there")
    assert Path(f"/proc/{child.pid}").exists()
    child.wait()


def test_what_carries_the_mark_is_found_and_ended() -> None:
    environment = {"FLEET_LAB": "unit0/node7", "PATH": os.environ["PATH"]}
    with subprocess.Popen(["sleep", "60"], env=environment) as child:
        process.wait(lambda: process.marked("unit0", "node7") == [child.pid], 10, "not found")
        assert process.marked("unit0") == [child.pid]
        assert process.marked("unit0", "node") == []
        assert process.marked("unit") == []
        process.kill([child.pid])
        assert child.wait(1) == -9


def test_a_wait_ends() -> None:
    with pytest.raises(LabError, match=r"it did not come within 0\.05 s"):
        process.wait(lambda: False, 0.05, "it did not come")
