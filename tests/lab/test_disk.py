"""A disk under results/ that is full: nothing starts, or what was written is kept and no log is lost."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from fleet.results import store
from tests.lab.desk import STP, Desk, until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(200)]


@pytest.fixture
def disk(desk: Desk) -> Iterator[Desk]:
    """The desk's results on a disk of their own, of 80 MB."""
    desk.results.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", str(desk.results)], check=True, timeout=10)
    try:
        yield desk
    finally:
        subprocess.run(["umount", "--lazy", str(desk.results)], check=True, timeout=10)


def fill(desk: Desk, leave: int) -> None:
    """Take what is free but `leave` bytes."""
    free = store._free(desk.results)
    with (desk.results / "ballast").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, free - leave))


def test_too_little_room_starts_nothing(disk: Desk) -> None:
    fill(disk, 8 << 20)
    said = disk.invoke(*disk.small(STP))
    assert said.code == 2, said.all
    assert "no run can be kept there: 8 MB are free, 64 MB are needed" in said.err
    disk.nothing_left()


def test_a_disk_that_fills_during_a_point(disk: Desk) -> None:
    slow = disk.inventory(everyone={"env": {"FLEET_DOUBLE_SPEED": "0.2"}})
    fast = disk.inventory()
    assert disk.invoke(*disk.small(STP, inventory=fast)).code == 0
    before = disk.run().points.read_bytes()
    first = disk.run().name
    with disk.started(*disk.small(STP, inventory=slow, conc="4,8")) as running:
        until(lambda: disk.containers("node1", "label=dev.fleet.role=client"), "the load")
        fill(disk, 0)
        said = running.end()
    assert said.code == 1, said.all
    assert "No space left on device" in said.all
    assert "could not be saved: their containers stay, stopped, on node1, node2" in said.all
    assert f"invoke down --run {disk.run().name}" in said.all
    assert (disk.results / first / "points.jsonl").read_bytes() == before
    assert disk.run().records() == ()
    left = disk.containers("node2", "label=dev.fleet.run")
    assert left
    assert not disk.containers("node2", "label=dev.fleet.run", "status=running")
    (disk.results / "ballast").unlink()
    down = disk.invoke("down", "--run", disk.run().name, "--inventory", slow)
    assert down.code == 0, down.all
    assert all(path.stat().st_size for path in (disk.run().path / "logs").glob("*/*.log"))
    assert {path.stem for path in (disk.run().path / "logs").glob("*/*.log")} >= {"prefill0", "decode0", "router"}
    disk.nothing_left()
