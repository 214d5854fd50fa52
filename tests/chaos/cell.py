"""One cell: a sweep is brought to a stage, a fault strikes, and what comes of it is looked at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from tests.chaos import promises
from tests.chaos.faults import FAULTS
from tests.chaos.scene import CONC, SECRET, Scene, crowded, slowness
from tests.chaos.stages import STAGES
from tests.lab.desk import Desk

BETWEEN = 0.2
"""Seconds by which a line may seem to come before its fault: the containers' clock and ours are one, the engine's log
and our output have no common order."""


@dataclass(frozen=True)
class Cell:
    """What is expected of a sweep that a fault strikes in a stage.

    code: the exit code, -9 for one that was killed. says: the line that names seat or host and cause; "" where the
    sweep is to go on as if nothing had been. points: states of all points that have a record, in order. within:
    seconds from the fault to the end, on an idle machine. promise: seconds from the fault to the line.
    """

    fault: str
    stage: str
    code: int
    says: str = ""
    points: tuple[str, ...] = ("valid", "valid")
    within: float = 20.0
    promise: float | None = None

    @property
    def name(self) -> str:
        return f"{self.fault} / {self.stage}"


@dataclass(frozen=True)
class Outcome:
    """named, ended: seconds from the fault to the line that names it and to the sweep's end; None: never, unknown."""

    fault: str
    stage: str
    code: int
    named: float | None
    ended: float | None
    points: tuple[str, ...]
    slow: float
    said: str = ""


def play(cell: Cell, scene: Scene) -> Outcome:
    """The sweep from its start to its end, and the stages' holds let go."""
    fault, stage = FAULTS[cell.fault], STAGES[cell.stage]
    before: dict[str, bytes] = {}
    itself = fault.early or bool(fault.telltale)
    if not itself:
        stage.prepare(scene)
    fault.prepare(scene)
    scene.start()
    try:
        if not itself:
            stage.reach(scene)
            before = scene.finished()
            fault.strike(scene)
            scene.let_go()
            fault.ease(scene)
        code = scene.running.end((cell.within + 25) * crowded())
    finally:
        scene.let_go()
        scene.running.close()
    kept(before, scene.finished())
    if fault.telltale:
        scene.struck = told_at(scene, fault.telltale)
    return outcome(cell, scene, code)


def outcome(cell: Cell, scene: Scene, code: int) -> Outcome:
    struck, sweep = scene.struck, scene.running
    line = sweep.first(cell.says, since=struck - BETWEEN) if cell.says else None
    return Outcome(
        cell.fault,
        cell.stage,
        code,
        named=max(0.0, line.at - struck) if line and struck else None,
        ended=sweep.ended - struck if struck else None,
        points=states(scene),
        slow=scene.slow,
        said=sweep.said,
    )


def states(scene: Scene) -> tuple[str, ...]:
    """Of each point that has a record: valid, or what its record says instead."""
    if scene.folder is None:
        return ()
    last = {record.point: record for record in scene.folder.records()}
    return tuple("valid" if one.valid else "invalid" if one.state == "done" else one.state for one in last.values())


def told_at(scene: Scene, telltale: str) -> float:
    """When an engine said it, by its log that came home; 0 if it never did."""
    assert scene.folder is not None
    for log in scene.folder.all_logs():
        for line in log.read_text(errors="replace").splitlines():
            clock, _, text = line.partition(" ")
            if re.search(telltale, text) and log.name.startswith(("decode", "prefill")):
                return datetime.fromisoformat(clock[:26].rstrip("Z") + "+00:00").timestamp()
    return 0.0


def kept(before: dict[str, bytes], after: dict[str, bytes]) -> None:
    """What was finished when the fault struck is there, byte for byte; of records more may follow."""
    for name, content in before.items():
        assert name in after, f"{name} is gone"
        whole = after[name][: len(content)] if name.startswith("points.jsonl") else after[name]
        assert whole == content, f"{name} is not what it was"


def judge(cell: Cell, found: Outcome, factor: float) -> None:
    """factor: by how much the machine was slower than idle at its slowest."""
    assert "Traceback" not in found.said, found.said
    assert "a fault in fleet itself" not in found.said, found.said
    assert found.code == cell.code, found.said
    assert found.points == cell.points, found.said
    if cell.says:
        assert found.named is not None, f"no line says {cell.says!r}:\n{found.said}"
    if found.ended is not None:
        assert found.ended < cell.within * factor, f"ended after {found.ended:.1f} s:\n{found.said}"
    if cell.promise is not None and found.named is not None:
        assert found.named < cell.promise * factor, f"named after {found.named:.1f} s:\n{found.said}"


def cleared(scene: Scene) -> None:
    """Nodes mended, what a sweep had to leave behind goes with `down` and `reap`; finished points stay."""
    scene.mend()
    before = scene.finished()
    if scene.desk.ours():
        gone = scene.desk.invoke("down", "--inventory", scene.inventory)
        assert gone.code == 0, gone.all
    reaped = scene.desk.invoke("reap", "--inventory", scene.inventory)
    assert reaped.code == 0, reaped.all
    kept(before, scene.finished())
    scene.desk.nothing_left()
    assert promises.leases(scene.desk) == {}
    assert scene.spilt() == []


def completed(scene: Scene, found: Outcome) -> None:
    """Taken up again the run has all its points, and what was finished is as it was. An engine that fails by its plan
    would fail again; a point that has ended and is not valid is a result.
    """
    if scene.folder is None or FAULTS[found.fault].telltale or {"invalid", "failed"} & set(found.points):
        return
    before = scene.finished()
    env = {SECRET: scene.secret, **scene.limits()}
    words = ["sweep", "--resume", scene.folder.name, "--inventory", scene.inventory]
    said = scene.desk.invoke(*words, within=3 * scene.patience, **env)
    kept(before, scene.finished())
    assert said.code == 0, said.all
    assert states(scene) == ("valid",) * len(CONC), said.all


def run(cell: Cell, desk: Desk) -> Outcome:
    """Play the cell, judge it, clear up behind it. Raises AssertionError."""
    scene = Scene(desk, slowness())
    found: Outcome | None = None
    try:
        found = play(cell, scene)
        judge(cell, found, max(scene.slow, crowded()))
    finally:
        if found is None:
            scene.mend()
        else:
            cleared(scene)
    completed(scene, found)
    return found
