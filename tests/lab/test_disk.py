"""A disk under results/ that is full: nothing starts, or what was written is kept and no log is lost."""

from __future__ import annotations

import os
import re
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
    assert said.code == 3, said.all
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


@pytest.mark.parametrize("how", ["full", "read-only"])
def test_a_disk_that_takes_nothing_does_not_keep_the_hosts_from_being_cleaned(disk: Desk, how: str) -> None:
    inventory = disk.inventory(everyone={"env": {"FLEET_DOUBLE_SPEED": "0.2"}})
    with disk.started(*disk.small(STP, inventory=inventory, conc="4")) as running:
        until(lambda: disk.containers("node1", "label=dev.fleet.role=client"), "the load")
        running.process.kill()
        running.process.wait(10)
    run = disk.run().name
    if how == "full":
        fill(disk, 0)
    else:
        subprocess.run(["mount", "-o", "remount,ro", str(disk.results)], check=True, timeout=10)
    why = "No space left on device" if how == "full" else "Read-only file system"
    again = disk.invoke("sweep", "--resume", run)
    assert again.code == 3, again.all
    assert f"no run can be kept there: {why if how != 'full' else ''}" in again.err
    down = disk.invoke("down", "--run", run, "--inventory", inventory)
    assert down.code == 3, down.all
    for node, seat in (("node1", "prefill0"), ("node2", "decode0")):
        line = rf"{why}: the log of fleet-\w+-{seat} could not be saved as {disk.results}/{run}/logs/\S+/{seat}\.log"
        assert re.search(line, down.err), down.err
        assert disk.containers(node, "label=dev.fleet.run")
        assert not disk.containers(node, "label=dev.fleet.run", "status=running")
    assert f"removes the containers: invoke down --run {run} --inventory {inventory}" in down.err
    reap = disk.invoke("reap", "--inventory", inventory)
    assert (reap.code, f"removes the containers: invoke reap --inventory {inventory}" in reap.err) == (3, True), (
        reap.all
    )
    if how == "full":
        (disk.results / "ballast").unlink()
    else:
        subprocess.run(["mount", "-o", "remount,rw", str(disk.results)], check=True, timeout=10)
    assert disk.invoke("reap", "--inventory", inventory).code == 0
    assert {path.stem for path in (disk.run().path / "logs").glob("*/*.log")} >= {"prefill0", "decode0", "router"}
    disk.nothing_left()
