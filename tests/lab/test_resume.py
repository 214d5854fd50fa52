"""Sweeps whose controller is killed or stopped on real nodes, and go on: `invoke sweep --resume`."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleet import awake
from fleet.docker import PREFIX
from fleet.results.record import latest
from fleet.words import counted
from tests.lab.desk import FAST, STP, Desk, Running, Said, until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

CONC = "4,8,16"
RESUMED = r"resumed: (\d) of 3 points to run"


@dataclass(frozen=True)
class Killed:
    """What was there when the controller had been killed: the files of the run folder, and our containers."""

    desk: Desk
    inventory: str
    run: str
    files: dict[str, bytes]
    ids: dict[str, str]

    def resume(self, *words: str) -> Said:
        return self.desk.invoke("sweep", "--resume", self.run, *words, within=200)


def sweep(desk: Desk, inventory: str) -> list[str]:
    return desk.small(STP, inventory=inventory, conc=CONC)


def killed(desk: Desk, when: Callable[[Running], object], *, speed: str = "4", start: str = "0.1") -> Killed:
    """A sweep of three points that gets SIGKILL at some moment."""
    env = {"FLEET_DOUBLE_SPEED": speed, "FLEET_DOUBLE_START_SECONDS": start}
    inventory = desk.inventory(everyone={"env": env}, trial={"output": 32})
    with desk.started(*sweep(desk, inventory)) as running:
        when(running)
        running.process.kill()
        running.process.wait(10)
    folder = desk.run()
    state = folder.state()
    assert state
    assert not state.ended, "the sweep had ended before it was killed"
    return Killed(desk, inventory, folder.name, files(folder.path), ids(desk))


def files(folder: Path) -> dict[str, bytes]:
    """What a resumed run may add to and never change: finished records, raw results and aggregates."""
    kept = [folder / "points.jsonl", *folder.glob("raw/*"), *folder.glob("agg/*")]
    return {str(one.relative_to(folder)): one.read_bytes() for one in kept if one.exists()}


def ids(desk: Desk) -> dict[str, str]:
    """Container IDs of our servers and routers that run, by name."""
    found = {}
    for node in desk.nodes:
        argv = ["ps", "--no-trunc", "--filter", f"label={PREFIX}.run", "--format", "{{.Names}} {{.ID}}"]
        lines = desk.lab.docker(node, argv, check=True).out.splitlines()
        found |= dict(line.split() for line in lines if "-client" not in line)
    return found


def complete(killed: Killed, said: Said) -> None:
    """The same set of points as of a run that nobody killed, and what was there is there byte for byte."""
    folder = killed.desk.run()
    assert said.code == 0, said.all
    assert folder.name == killed.run
    assert [record.conc for record in latest(folder.records())] == [4, 8, 16]
    assert all(record.valid for record in latest(folder.records()))
    for name, content in killed.files.items():
        now = (folder.path / name).read_bytes()
        if name == "points.jsonl":
            assert now.startswith(content)
        elif name in told_of(killed.files):
            assert now == content, name
    state = folder.state()
    assert state
    assert state.ended
    assert [drive.code for drive in state.drives] == [None, 0]
    assert "## Ended early" not in folder.summary_text.read_text()
    assert "Traceback" not in said.all
    killed.desk.nothing_left()


def told_of(kept: dict[str, bytes]) -> set[str]:
    """Files that a record names: those of a point that had none may be written again."""
    records = [json.loads(line) for line in kept.get("points.jsonl", b"").splitlines()]
    return {record[field] for record in records for field in ("raw", "agg") if record[field]}


def at_launch(desk: Desk) -> Callable[[Running], object]:
    def wait(running: Running) -> None:
        running.until(r"arm 1p1d ")
        until(desk.ours, "the first container")

    return wait


def client(desk: Desk, conc: int) -> Callable[[Running], object]:
    return lambda _: until(lambda: desk.containers("node1", f"name=c{conc}", "status=running"), f"a load at {conc}")


def router_is_gone(desk: Desk, last: int) -> Callable[[Running], object]:
    """Teardown begins with the router."""

    def wait(running: Running) -> None:
        running.until(rf"conc +{last}  valid")
        until(lambda: not desk.containers("node1", "name=router", "status=running"), "the router's end")

    return wait


def test_killed_at_launch(desk: Desk) -> None:
    """Engines that take their time: no router is there yet. What serves already runs on, the rest is started."""
    left = killed(desk, at_launch(desk), start="4")
    assert not any("router" in name for name in left.ids)
    said = left.resume()
    assert re.search(RESUMED, said.out).group(1) == "3"  # type: ignore[union-attr]
    complete(left, said)


def test_killed_before_it_was_ready(desk: Desk) -> None:
    left = killed(desk, lambda running: running.until(r"router answers after"))
    with desk.started("sweep", "--resume", left.run) as running:
        running.until(r"conc +4 ")
        assert left.ids.items() <= ids(desk).items()
        said = running.end(200)
    complete(left, said)


def test_killed_in_the_middle_of_a_point_its_servers_are_adopted_and_its_load_is_not(desk: Desk) -> None:
    left = killed(desk, client(desk, 16), speed="1")
    assert len(left.ids) == 3
    assert desk.containers("node1", "name=c16", "status=running")
    started_over = desk.invoke(*sweep(desk, left.inventory))
    assert started_over.code == 2, started_over.all
    assert f"invoke sweep --resume {left.run}" in started_over.err
    assert "--new" in started_over.err
    assert f"invoke down --run {left.run}" in started_over.err
    with desk.started("sweep", "--resume", "latest") as running:
        running.until(r"conc +16 ")
        assert ids(desk) == left.ids, "adopted: the very same containers"
        said = running.end(200)
    assert re.search(RESUMED, said.out).group(1) == "1"  # type: ignore[union-attr]
    assert "3 containers of arm 1p1d run on, as planned" in said.out
    assert "removed what was left, logs are home: 1 container" in said.out
    complete(left, said)


def test_killed_between_two_points(desk: Desk) -> None:
    left = killed(desk, lambda running: running.until(r"conc +8  valid"))
    said = left.resume()
    assert "3 containers of arm 1p1d run on, as planned" in said.out
    complete(left, said)


def test_killed_while_it_tears_down(desk: Desk) -> None:
    """All points are there: nothing is started, what was left is cleared away."""

    left = killed(desk, router_is_gone(desk, 16))
    said = left.resume()
    assert re.search(RESUMED, said.out).group(1) == "0"  # type: ignore[union-attr]
    assert "started" not in said.out
    complete(left, said)


def test_a_container_under_our_labels_that_runs_something_else_is_not_adopted(desk: Desk) -> None:
    left = killed(desk, lambda running: running.until(r"conc +4  valid"))
    (name,) = [one for one in left.ids if "decode0" in one]
    replace(desk, name)
    said = left.resume()
    assert "arm 1p1d is started anew: decode0 runs another command line" in said.out
    complete(left, said)
    kept = [log.name for log in desk.run().all_logs()]
    assert {"decode0.log", "decode0-1.log", "router.log", "router-1.log"} <= set(kept)


def replace(desk: Desk, name: str) -> None:
    """By hand: a container of the same name, labels and image that only sleeps."""
    (row,) = json.loads(desk.lab.docker("node2", ["inspect", name], check=True).out)
    labels = [word for key, value in row["Config"]["Labels"].items() for word in ("--label", f"{key}={value}")]
    desk.lab.docker("node2", ["rm", "-f", name], check=True)
    run = ["run", "-d", "--init", "--name", name, *labels, "--entrypoint", "sleep", row["Config"]["Image"], "86400"]
    desk.lab.docker("node2", run, check=True)


def test_a_run_that_is_under_way_is_not_driven_twice(desk: Desk) -> None:
    inventory = desk.inventory(trial={"output": 64})
    with desk.started(*desk.small(STP, inventory=inventory, conc="64")) as running:
        client(desk, 64)(running)
        second = desk.invoke("sweep", "--resume", "latest")
        assert second.code == 5, second.all
        assert re.search(rf"is under way: pid {running.process.pid} on \S+ \(", second.err)
        running.process.send_signal(signal.SIGTERM)
        said = running.end()
    assert said.code == 130, said.all
    assert f"next: invoke sweep --resume {desk.run().name}" in said.err
    desk.nothing_left()


@pytest.mark.parametrize("ended", [True, False], ids=["ended meanwhile", "goes on"])
def test_a_controller_that_was_stopped_keeps_the_point_under_way(desk: Desk, ended: bool) -> None:
    conc, output = (8, 16) if ended else (64, 128)
    inventory = desk.inventory(everyone={"env": {"FLEET_DOUBLE_SPEED": "1"}}, trial={"output": output})
    with desk.started(*desk.small(STP, inventory=inventory, conc=str(conc))) as running:
        client(desk, conc)(running)
        begun = time.monotonic()
        os.kill(running.process.pid, signal.SIGSTOP)
        runs = ("node1", f"name=c{conc}", "status=running")
        until(lambda: time.monotonic() > begun + awake.GAP + 1, "a pause that counts as one")
        if ended:
            until(lambda: not desk.containers(*runs), "the end of the load")
        else:
            assert desk.containers(*runs)
        os.kill(running.process.pid, signal.SIGCONT)
        said = running.end()
    assert said.code == 0, said.all
    (record,) = desk.run().records()
    assert (record.valid, record.conc) == (True, conc)
    desk.nothing_left()


STAGES: dict[str, Callable[[Desk], Callable[[Running], object]]] = {
    "preflight": lambda _: lambda running: running.until(r"^run \S+"),
    "launch": at_launch,
    "ready": lambda _: lambda running: running.until(r"prefill0 answers after"),
    "between points": lambda _: lambda running: running.until(r"conc +4  valid"),
    "teardown": lambda desk: router_is_gone(desk, 8),
}


@pytest.mark.parametrize(
    ("stage", "sign"),
    [
        ("preflight", signal.SIGINT),
        ("launch", signal.SIGTERM),
        ("ready", signal.SIGHUP),
        ("between points", signal.SIGINT),
        ("teardown", signal.SIGTERM),
    ],
)
def test_interrupted_at_any_step_it_clears_up_and_says_how_to_go_on(desk: Desk, stage: str, sign: int) -> None:
    inventory = desk.inventory(everyone=FAST, trial={"output": 16})
    with desk.started(*desk.small(STP, inventory=inventory, conc="4,8")) as running:
        STAGES[stage](desk)(running)
        running.process.send_signal(sign)
        said = running.end()
    assert said.code == 130, said.all
    assert "Traceback" not in said.all
    folder = desk.run()
    state = folder.state()
    assert state
    assert [drive.code for drive in state.drives] == [130]
    done = len(folder.records())
    assert f"{counted(len([one for one in folder.records() if one.valid]), 'finished point')} kept in" in said.err
    line = f"see: {folder.path}" if done == 2 else f"next: invoke sweep --resume {folder.name}"
    assert line in said.err
    desk.nothing_left()


def test_what_failed_is_run_again_and_the_earlier_attempt_is_kept(desk: Desk) -> None:
    inventory = desk.inventory(trial={"output": 16})
    words = desk.small(STP, inventory=inventory, conc="4,8")
    first = desk.invoke(*words)
    assert first.code == 0, first.all
    folder, before = desk.run(), files(desk.run().path)
    again = desk.invoke("sweep", "--resume", folder.name[:15], "--rerun", "all")
    assert again.code == 0, again.all
    assert desk.run().name == folder.name
    assert [(one.conc, one.attempt) for one in folder.records()] == [(4, 1), (8, 1), (4, 2), (8, 2)]
    after = files(folder.path)
    assert {name: after[name][: len(content)] for name, content in before.items()} == before
    assert "raw/1p1d-c4.attempt2.json" in after
    nothing = desk.invoke("sweep", "--resume", folder.name)
    assert nothing.code == 0, nothing.all
    assert "resumed: 0 of 2 points to run" in nothing.out
    desk.nothing_left()
