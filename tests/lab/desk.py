"""Where an operator sits: the front door as its own process, results in a folder of the test, a look at the nodes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fleet.docker import PREFIX
from fleet.lab.image import TAGS
from fleet.lab.lab import Lab
from fleet.model.lease import FOLDER
from fleet.results import store
from fleet.results.store import RunFolder

ROOT = Path(__file__).resolve().parents[2]
STP = "dsv4-fp4-mi355x-atom-disagg"
MTP = "dsv4-fp4-mi355x-atom-disagg-mtp"
STRANGER = "fleet-test-stranger"
DPA, PLAIN = "2p1d-dpa", "1p1d"
FAST = {"env": {"FLEET_DOUBLE_SPEED": "4"}}
"""For everyone, where it does not matter how long the doubles pretend to compute."""
SECONDS = 90.0
ENVIRONMENT = ("PATH", "HOME", "LANG", "USER", "FLEET_LAB_DIR", "FLEET_LAB_NAME")


@dataclass(frozen=True)
class Said:
    """A verb that ended."""

    code: int
    out: str
    err: str

    @property
    def all(self) -> str:
        return self.out + self.err

    def json(self) -> Any:
        return json.loads(self.out)


def _heeds_interrupts() -> None:
    """What a shell starts in the background ignores SIGINT, and so would all that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Running:
    """A verb under way. Its output is kept as it comes."""

    def __init__(self, argv: list[str], env: Mapping[str, str], folder: Path) -> None:
        number = len(list(folder.glob("out*")))
        self.out, self.err = folder / f"out{number}", folder / f"err{number}"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=dict(env), cwd=ROOT, start_new_session=True,
                preexec_fn=_heeds_interrupts,
            )  # fmt: skip

    def said(self) -> str:
        return self.out.read_text(errors="replace")

    def until(self, pattern: str, within: float = SECONDS) -> str:
        """Wait for a line of its output; the first that fits."""

        def look() -> str:
            found = re.search(pattern, self.said())
            assert found or self.process.poll() is None, (
                f"ended without {pattern!r}:\n{self.said()}{self.err.read_text()}"
            )
            return found[0] if found else ""

        return until(look, f"{pattern!r} in the output", within)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self, within: float = SECONDS) -> Said:
        code = self.process.wait(within)
        return Said(code, self.said(), self.err.read_text(errors="replace"))


@dataclass(frozen=True)
class Desk:
    """invoke, as typed in the project's folder. `ready`, `point`: the settings' time limits for this desk."""

    lab: Lab
    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def results(self) -> Path:
        return self.folder / "results"

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "invoke", *words]

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        return {**kept, "INVOKE_FLEET_RESULTS": str(self.results), **self.env, **more}

    def invoke(self, *words: str, within: float = SECONDS, stdin: str = "", **env: str) -> Said:
        done = subprocess.run(
            self.argv(*words),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=within,
            env=self.environment(**env),
            cwd=ROOT,
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def started(self, *words: str, **env: str) -> Iterator[Running]:
        """A verb that runs beside the test; killed at the end if it still does."""
        running = Running(self.argv(*words), self.environment(**env), self.folder)
        try:
            yield running
        finally:
            if running.process.poll() is None:
                running.process.kill()
                running.process.wait(10)

    def inventory(
        self, *, everyone: Mapping[str, Any] | None = None, trial: Mapping[str, int] | None = None, **hosts: Any
    ) -> str:
        """The lab's inventory with variables changed: for everyone, the trial's, or host by host (node1={…}).

        Engines start as fast as they can, whatever their failures: no test is about how long a double pretends to load.
        """
        read = yaml.safe_load((ROOT / "inventories/lab.yaml").read_text())
        read["all"]["vars"] |= dict(everyone or {})
        read["all"]["vars"]["env"] = {"FLEET_DOUBLE_START_SECONDS": "0.1", **read["all"]["vars"].get("env", {})}
        read["all"]["vars"]["trial"] |= dict(trial or {})
        for name, values in hosts.items():
            read["all"]["hosts"][name] = values
        path = self.folder / f"inventory{len(list(self.folder.glob('inventory*')))}.yaml"
        path.write_text(yaml.safe_dump(read))
        return str(path)

    def run(self) -> RunFolder:
        """The latest run's folder."""
        return store.open(self.results)

    def small(self, key: str, *words: str, inventory: str = "", arm: str = PLAIN, conc: str = "4") -> list[str]:
        """A sweep of one arm at one concurrency, as few requests as a verdict needs."""
        chosen = inventory or self.inventory()
        depth = "-mtp3" if key == MTP else ""
        return ["sweep", "--config", key, "--arm", arm + depth, "--conc", conc, "--inventory", chosen, *words]

    # ------------------------------------------------------------------ what is on the nodes

    def containers(self, node: str, *filters: str) -> list[str]:
        argv = ["ps", "-a", "--format", "{{.Names}}", *(word for one in filters for word in ("--filter", one))]
        return sorted(self.lab.docker(node, argv, check=True).out.split())

    def ours(self) -> dict[str, list[str]]:
        """Our containers by node, nodes without any left out."""
        found = {node: self.containers(node, f"label={PREFIX}.run") for node in self.lab.nodes()}
        return {node: names for node, names in found.items() if names}

    def scratch(self) -> dict[str, list[str]]:
        """What is in the nodes' scratch folders, nodes without anything left out."""
        found = {node: self.lab.inside(node, ["ls", "-A", "/srv/fleet"], check=True).out.split() for node in self.nodes}
        return {node: names for node, names in found.items() if names}

    def leased(self) -> dict[str, str]:
        """The nodes' leases as they are written, free nodes left out."""
        found = {node: self.lab.inside(node, ["sh", "-c", f"cat {FOLDER}/* 2>/dev/null"]).out for node in self.nodes}
        return {node: text for node, text in found.items() if text}

    @property
    def nodes(self) -> list[str]:
        return self.lab.nodes()

    def image_ids(self, tag: str) -> dict[str, str]:
        """The image's ID by node, nodes without it left out."""
        argv = ["image", "inspect", "--format", "{{.Id}}", tag]
        found = {node: self.lab.docker(node, argv).out.strip() for node in self.nodes}
        return {node: one for node, one in found.items() if one}

    def forget_images(self, *nodes: str) -> None:
        for node in nodes:
            self.lab.docker(node, ["rmi", "-f", *TAGS])
        for tag in TAGS:
            assert not set(self.image_ids(tag)) & set(nodes), "something still uses the image"

    def invite_stranger(self) -> None:
        """A container on node1 that is not ours: started once, and again after the node lost it."""
        if self.lab.docker("node1", ["start", STRANGER]).returncode != 0:
            run = ["run", "-d", "--init", "--name", STRANGER, "--network", "none", TAGS[0], "sleep", "86400"]
            self.lab.docker("node1", run, check=True)

    def nothing_left(self) -> None:
        """Nothing of ours is on any node, and the stranger still runs."""
        assert self.ours() == {}
        assert self.scratch() == {}
        assert self.leased() == {}
        assert self.containers("node1", "status=running") == [STRANGER]

    def clear(self) -> None:
        """Remove what a failed test left."""
        for node, names in self.ours().items():
            self.lab.docker(node, ["rm", "-f", *names])
        for node in self.scratch():
            self.lab.inside(node, ["find", "/srv/fleet", "-mindepth", "1", "-delete"])
        for node in self.leased():
            self.lab.inside(node, ["find", FOLDER, "-mindepth", "1", "-delete"])


def until(question: Callable[[], Any], what: str, within: float = SECONDS) -> Any:
    """Ask until the answer is true."""
    end = time.monotonic() + within
    while not (answer := question()):
        assert time.monotonic() < end, f"{what}: not within {within:g} s"
        time.sleep(0.1)
    return answer
