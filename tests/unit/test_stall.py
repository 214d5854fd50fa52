"""A start that logs or computes is never called stalled; one that does neither is, after its time."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from fleet.errors import NotReady
from fleet.hosts.fake import in_turn
from fleet.stages.stall import Stall
from tests.world import World

LINE = "2026-11-30T21:14:07.3Z loading weights 12/96\n"
LOG, TOP = "docker logs", ["docker", "top"]
BUSY = [f"PID TIME\n1 00:00:{number:02}\n" for number in range(60)]


def looked(tmp_path: Path, log: object, top: object, seconds: float = 1.0) -> None:
    world = World(stalled_after=0.3)
    up = world.running(tmp_path)
    decode = next(one for one in up.services if one.name == "decode0")
    world.nodes[decode.host].first = [(LOG, log), (TOP, top)]
    stall, end = Stall(), time.monotonic() + seconds
    while time.monotonic() < end:
        stall.look(world.session.machine(decode.host), up, decode)
        time.sleep(0.02)


def test_silence_without_cpu_is_told_with_the_last_line(tmp_path: Path) -> None:
    with pytest.raises(NotReady) as told:
        looked(tmp_path, LINE, BUSY[0])
    silent = r"no progress since \d\d:\d\d:\d\d \(\d s\): its log is silent and it uses no CPU"
    assert re.fullmatch(rf"decode 0 on mi355x-02: {silent}; last line: loading weights 12/96", told.value.what)


def test_a_start_that_computes_goes_on(tmp_path: Path) -> None:
    looked(tmp_path, LINE, in_turn(*BUSY))


def test_a_start_that_logs_goes_on(tmp_path: Path) -> None:
    looked(tmp_path, in_turn(*(LINE + str(number) for number in range(100))), BUSY[0])


def test_a_host_that_does_not_say_proves_nothing(tmp_path: Path) -> None:
    looked(tmp_path, LINE, (1, "", "permission denied"))
