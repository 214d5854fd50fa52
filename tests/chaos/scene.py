"""What the stages and faults of a cell work on: a desk, the sweep that runs there, and how slow this machine is now."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.errors import LabError
from fleet.lab.image import ATOM_TAGS
from fleet.results.store import RunFolder
from tests.chaos.sweeping import Sweep
from tests.lab.desk import PLAIN, STP, Desk, until

CONC = (4, 8)
TAG = ATOM_TAGS[0]
IDLE = 0.06
"""Seconds for a Python that does nothing, on an idle machine of two cores."""
SLOWEST = 12.0
SECRET = "CHAOS_TOKEN"
LIMITS = {
    "connect": 3, "command": 8, "stage_within": 20, "ready_within": 60, "point_within": 60, "rest_within": 20,
}  # fmt: skip


def slowness() -> float:
    """How many times slower than idle this machine is now, 1 at least."""
    began = time.monotonic()
    for _ in range(4):
        subprocess.run([sys.executable, "-S", "-c", "import json"], check=True)
    return min(SLOWEST, max(1.0, (time.monotonic() - began) / 4 / IDLE))


def crowded() -> float:
    """The same for a deadline, which a moment of quiet must not make short: by those that wait for a processor, too."""
    return min(SLOWEST, max(slowness(), os.getloadavg()[0] / (os.cpu_count() or 1)))


@dataclass
class Scene:
    """prefill, router and client sit on node1, decode on node2."""

    desk: Desk
    slow: float = 1.0
    engine: dict[str, str] = field(default_factory=dict)
    """Failures for the doubles to play, by node."""
    environment: dict[str, str] = field(default_factory=dict)
    """Of the doubles."""
    terminal: bool = False
    key: str = STP
    sweep: Sweep | None = None
    struck: float = 0.0
    held: set[str] = field(default_factory=set)
    inventory: str = ""
    secret: str = field(default_factory=lambda: f"chaos-{secrets.token_hex(8)}")
    """What containers are given and nobody else may have."""
    seconds: dict[str, float] = field(default_factory=lambda: dict(LIMITS))

    # ------------------------------------------------------------------ the sweep

    def start(self) -> None:
        everyone = {"FLEET_DOUBLE_SPEED": "1", **self.environment}
        hosts = {node: {"env": {**everyone, "FLEET_DOUBLE_FAIL": what}} for node, what in self.engine.items()}
        trial = {"prompts_per_concurrency": 8, "output": 24}
        self.inventory = self.desk.inventory(everyone={"env": everyone, "secrets": [SECRET]}, trial=trial, **hosts)
        arm = PLAIN if self.key == STP else f"{PLAIN}-mtp3"
        words = ["sweep", "--config", self.key, "--arm", arm, "--conc", ",".join(map(str, CONC))]
        argv = self.desk.argv(*words, "--inventory", self.inventory)
        self.sweep = Sweep(
            argv, self.desk.environment(**self.limits(), **{SECRET: self.secret}), terminal=self.terminal
        )

    def limits(self) -> dict[str, str]:
        """The operator's time limits: short ones where a cell waits for them, longer where the machine is slow."""
        return {f"INVOKE_FLEET_TIMEOUTS_{k}".upper(): f"{v * self.slow:.1f}s" for k, v in self.seconds.items()}

    @property
    def running(self) -> Sweep:
        assert self.sweep is not None
        return self.sweep

    @property
    def patience(self) -> float:
        """Seconds for a stage to be reached."""
        return 30 * crowded()

    @property
    def folder(self) -> RunFolder | None:
        """The run's folder; None before there is one."""
        found = sorted(one for one in self.desk.results.glob("*") if one.is_dir() and not one.is_symlink())
        return RunFolder(found[-1]) if found else None

    def seat(self, node: str, name: str) -> str:
        """The container's name."""
        return str(until(lambda: "".join(self.desk.containers(node, f"name={name}")), name, self.patience))

    def running_client(self, conc: int) -> bool:
        return bool(self.desk.containers("node1", f"name=c{conc}$", "status=running"))

    # ------------------------------------------------------------------ the world

    def hold(self, node: str, words: str) -> None:
        self.held.add(node)
        self.desk.lab.fault("hold", node, words)

    def waits(self, node: str) -> Callable[[], list[str]]:
        return lambda: self.desk.lab.node(node).held()

    def let_go(self) -> None:
        """Nothing is held any more; a node that is down or stopped forgets by itself."""
        for node in self.held:
            with suppress(LabError):
                self.desk.lab.fault("release", node)
        self.held.clear()

    def fault(self, verb: str, node: str, *args: str) -> None:
        self.struck = time.time()
        self.desk.lab.fault(verb, node, *args)

    def mend(self) -> None:
        """Heal the nodes that need it, all at once the stages' holds, too."""
        self.let_go()
        for row in self.desk.lab.status():
            if row.state != "up" or row.faults or not row.docker or not row.sshd:
                self.desk.lab.heal(row.name)

    def spilt(self) -> list[str]:
        """Where the secret is, on nodes and here."""
        look = [
            "grep",
            "-rlsF",
            "--devices=skip",
            "--",
            self.secret,
            "/srv/fleet",
            "/tmp",
            "/dev/shm",
            "/home",
            "/run/user",
        ]
        found = [f"{node}:{path}" for node in self.desk.nodes for path in self.desk.lab.inside(node, look).out.split()]
        here = [path for path in self.desk.folder.rglob("*") if path.is_file() and self.secret in _text(path)]
        said = ["the output"] if self.secret in self.running.said else []
        return [*found, *map(str, here), *said]

    # ------------------------------------------------------------------ what is finished

    def finished(self) -> dict[str, bytes]:
        """Content by name of what finished points have left."""
        if self.folder is None:
            return {}
        paths = [self.folder.points, *(path for kind in ("raw", "agg") for path in self._of_records(kind))]
        return {path.name + path.parent.name: path.read_bytes() for path in paths if path.exists()}

    def _of_records(self, kind: str) -> Sequence[Path]:
        assert self.folder is not None
        names: list[Any] = [getattr(record, kind) for record in self.folder.records()]
        return [self.folder.path / name for name in names if name]


def _text(path: Path) -> str:
    return path.read_text(errors="replace")
