"""What a staging does to the machines meanwhile: bytes on each cable, disk and memory of each node, the processors.

For the benchmark alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from fleet.lab.lab import Lab
from fleet.lab.network import HERE

EVERY = 0.05
"""Seconds between two looks at the disks."""

EVERY_MEMORY = 8
"""Looks at the disks for one at the memory, which takes longer."""

ENGINES_OWN = "var/lib/docker/tmp"
"""Where an engine unpacks an archive that it loads, and the one that it saves."""


@dataclass
class Seen:
    """Of one staging. wire: bytes that arrived anywhere. cables: bytes by the way they took, "node1 out".

    cpu: share of all cores that was busy. By node, the most: engine, in its engine's own folder for archives; disk,
    beside that and beside what stays; memory, that its processes had more than before, files in memory with it. here:
    of files on this machine. All in bytes.
    """

    wire: int = 0
    cables: dict[str, int] = field(default_factory=dict)
    cpu: float = 0.0
    engine: dict[str, int] = field(default_factory=dict)
    disk: dict[str, int] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    here: int = 0


class Watch:
    """Looks at all nodes again and again, from a thread of its own."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._lab = lab
        self._folder = folder
        self._roots = {name: lab.node(name).root for name in lab.nodes()}
        self._disk: dict[str, list[int]] = {name: [] for name in self._roots}
        self._engine: dict[str, list[int]] = {name: [] for name in self._roots}
        self._memory: dict[str, list[int]] = {name: [] for name in self._roots}
        self._here = [0]

    @contextmanager
    def watching(self) -> Iterator[Seen]:
        """What was seen is in it at the end."""
        seen, stop = Seen(), threading.Event()
        self._look(memory=True)
        thread = threading.Thread(target=self._watch, args=(stop,), daemon=True)
        before, busy = cables(self._lab), processors()
        thread.start()
        try:
            yield seen
        finally:
            after, ended = cables(self._lab), processors()
            stop.set()
            thread.join()
        self._look(memory=True)
        seen.cables = {way: count - before[way] for way, count in after.items()}
        seen.wire = sum(count for way, count in seen.cables.items() if way.endswith(" in"))
        seen.cpu = (ended[0] - busy[0]) / max(1, ended[1] - busy[1])
        seen.engine = {name: max(values) for name, values in self._engine.items()}
        seen.disk = {name: max(values) - max(values[0], values[-1]) for name, values in self._disk.items()}
        seen.memory = {name: max(values) - values[0] for name, values in self._memory.items()}
        seen.here = max(self._here)

    def _watch(self, stop: threading.Event) -> None:
        looks = 0
        while not stop.wait(EVERY):
            looks += 1
            self._look(memory=looks % EVERY_MEMORY == 0)

    def _look(self, *, memory: bool) -> None:
        self._here.append(size(self._folder))
        for name, root in self._roots.items():
            # The engine's first: what it takes away between the two is then counted too little, never too much.
            own = size(root / ENGINES_OWN)
            self._engine[name].append(own)
            self._disk[name].append(used(root) - own)
            if memory:
                self._memory[name].append(held(root))


def cables(lab: Lab) -> dict[str, int]:
    """Bytes by way, since the cap."""
    found: dict[str, int] = {}
    for name in [*lab.nodes(), HERE]:
        found[f"{name} out"], found[f"{name} in"] = lab.network.carried(name)
    return found


def processors() -> tuple[int, int]:
    """Ticks of all cores together: busy, and all."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)


def used(root: Path) -> int:
    disk = os.statvfs(root)
    return (disk.f_blocks - disk.f_bfree) * disk.f_frsize


def size(folder: Path) -> int:
    """Bytes on disk of all files below."""
    total = 0
    for where, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                total += os.lstat(os.path.join(where, name)).st_blocks * 512
    return total


def held(root: Path) -> int:
    """Anonymous memory of the processes of the node with this root, and files that lie in memory."""
    total = sum(used(root / folder) for folder in ("run", "dev/shm"))
    for status in (root / "proc").glob("[0-9]*/status"):
        with suppress(OSError):
            lines = status.read_text(errors="replace").splitlines()
            total += sum(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
    return total
