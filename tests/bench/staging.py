"""An image to all nodes: fleet, the star that everybody writes, a registry on a node, and what the wire allows.

    python tests/bench/staging.py [--rounds N] [--nodes N] [--megabytes N] [--mbit N] [--json]        (Linux, root)

A lab of its own, every cable capped in both directions, this machine's too; one node has the image, the others get it.
All ways by turns. Exits with 1 past a limit. docs/bench.md has figures.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from fleet.lab import process
from fleet.lab.lab import Lab
from fleet.lab.network import HERE
from tests.bench import images
from tests.bench.images import Archive
from tests.bench.watching import Seen, Watch

BOUND, STAR, CHANGED, BUMP_STAR, NOTHING = 1.25, 4.0, 1.1, 8.0, 0.5
"""First copy: times the bound, times faster than the star. Bump: bytes on the wire for each changed byte, times faster
than the star. Seconds to find that there is nothing to do."""

COPY = 0.5
"""Archives that may lie on a disk beside what the engine unpacks itself: no whole one."""

LAYERS = 6
"""The uppermost is a tenth of the image. An engine takes a twentieth of a second of a core for each, however small:
with many layers of few bytes the two cores, and not the cables, would be what binds eight nodes.
"""

NOTHINGS = 5
"""Times in a round that there is nothing to do."""

SOURCE = "node1"
OLD, NEW = "bench/engine:nightly-1", "bench/engine:nightly-2"
PORT = 5055
SHELF = "/srv/registry"
SCRATCH = "/srv/fleet"
WITHIN = 300.0
SENDING = 3.0
"""Seconds that every cable is full, to measure its cap."""

SAVE_AND_LOAD = """
tag=$1
shift
for node in "$@"; do
    docker save "$tag" | ssh -o BatchMode=yes "$node" docker load >/dev/null &
    jobs="$jobs $!"
done
for job in $jobs; do wait "$job" || exit 1; done
"""


Carried = dict[str, tuple[tuple[int, int], float]]
"""Bytes from each machine and to it, and when they were read."""


@dataclass(frozen=True)
class Sample:
    """One staging: wall seconds, and what it did to the machines. memory: most bytes of fleet's own process."""

    seconds: float
    seen: Seen
    memory: int = 0


@dataclass(frozen=True)
class Measured:
    """All samples, by way. size, changed: bytes of layers that one node lacks. targets: nodes that lack them."""

    size: int
    changed: int
    targets: int
    mbit: float
    first: dict[str, list[Sample]]
    bump: dict[str, list[Sample]]
    nothing: list[float]

    def bound(self, size: int) -> float:
        """Seconds that one cable needs for so many bytes, without a header."""
        return size * 8 / (self.mbit * 1e6)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="of each way (default: 3)")
    parser.add_argument("--nodes", type=int, default=8, help="one of them has the image (default: 8)")
    parser.add_argument("--megabytes", type=float, default=40, help="of the image (default: 40)")
    parser.add_argument("--mbit", type=float, default=40, help="of every cable, each way (default: 40)")
    parser.add_argument("--json", action="store_true", help="print the ratios alone, as JSON")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        print(json.dumps(staged(options.stage, options.nodes, options.rounds)))
        return 0
    if os.geteuid() or sys.platform != "linux":
        print("staging.py makes a lab: it needs Linux and root", file=sys.stderr)
        return 2
    os.environ.setdefault("FLEET_LAB_NAME", "bench-staging")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="fleet-bench-") as folder, lab_of(options.nodes) as lab:
        bench = Bench(lab, Path(folder), options)
        measured = bench.run()
    if options.json:
        print(json.dumps(ratios(measured)))
    else:
        print(
            f"{os.cpu_count()} cores, load {load:.1f} before; {bench.cap}; medians of {options.rounds} rounds by turns"
        )
        print(table(measured))
    return 1 if missed(measured) else 0


def staged(tag: str, nodes: int, rounds: int) -> dict[str, Any]:
    """What the child process measures: `rounds` times from no connection to all images proven, imports not counted."""
    from fleet.model.inventory import Host, Inventory
    from fleet.progress import Silent
    from fleet.session import connect
    from fleet.settings import Settings
    from fleet.stages.stage import stage

    hosts = tuple(Host(name=f"node{number}", scratch=SCRATCH) for number in range(1, nodes + 1))
    inventory = Inventory(path="bench", hosts=hosts, provision="lab")
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        with connect(inventory, Settings(), Silent()) as session:
            stage(session, tag, session.names)
        seconds.append(time.perf_counter() - began)
    return {"seconds": seconds, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


@contextmanager
def lab_of(nodes: int) -> Iterator[Lab]:
    lab = Lab()
    was_up = bool(lab.nodes())
    try:
        lab.up(nodes, say=say)
        yield lab
    finally:
        if was_up:
            lab.uncap()
        else:
            lab.down(say=say)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Bench:
    """The ways, and the state of the nodes before each."""

    def __init__(self, lab: Lab, folder: Path, options: Any) -> None:
        self.lab = lab
        self.folder = folder
        self.options = options
        self.nodes = lab.nodes()[: options.nodes]
        self.targets = [node for node in self.nodes if node != SOURCE]
        size = int(options.megabytes * 1e6)
        kept = {f"layer{number}": size * 9 // 10 // (LAYERS - 1) for number in range(1, LAYERS)}
        self.old = images.archive(OLD, {**kept, "yesterday": size // 10})
        self.new = images.archive(NEW, {**kept, "tonight": size // 10})
        self.cap = ""
        self._empty = 0

    def run(self) -> Measured:
        first: dict[str, list[Sample]] = {"fleet": [], "star": [], "registry": []}
        bump: dict[str, list[Sample]] = {"fleet": [], "star": []}
        nothing: list[float] = []
        self._empty = max(self._layers(node) for node in self.targets)
        self.load(SOURCE, self.old)
        self.load(SOURCE, self.new)
        self.lab.cap(self.options.mbit)
        self.cap = self.measured_cap()
        say(self.cap)
        with self.registry():
            for number in range(self.options.rounds):
                for way in turned(list(first), number):
                    self.forget(OLD, NEW)
                    first[way].append(self.sample(way, self.old))
                self.forget(OLD, NEW)
                self.everywhere(lambda node: self.load(node, self.old))
                for way in turned(list(bump), number):
                    self.forget(NEW)
                    bump[way].append(self.sample(way, self.new))
                nothing += self.fleet(NEW, NOTHINGS)["seconds"]
        changed = self.new.layers[-1]
        return Measured(self.old.size, changed, len(self.targets), self.options.mbit, first, bump, nothing)

    def sample(self, way: str, image: Archive) -> Sample:
        """One staging, proven by the image's ID on every node."""
        ways: dict[str, Callable[[str], dict[str, Any] | None]]
        ways = {"fleet": self.fleet, "star": self.star, "registry": self.pull}
        with Watch(self.lab, self.folder).watching() as seen:
            began = time.perf_counter()
            found = ways[way](image.tag)
            seconds = found["seconds"][0] if found else time.perf_counter() - began
        for node in self.targets:
            name = self.pulled(image.tag) if way == "registry" else image.tag
            if (there := self.id_of(node, name)) != image.id:
                raise SystemExit(f"{way} left {there or 'nothing'} on {node} instead of {image.id}")
        say(f"{image.tag}  {way:8}  {seconds:6.2f} s  {seen.wire / 1e6:6.1f} MB on the wire")
        return Sample(seconds, seen, found["memory"] if found else 0)

    # ------------------------------------------------------------------ the ways

    def fleet(self, tag: str, rounds: int = 1) -> dict[str, Any]:
        words = ["--stage", tag, "--nodes", str(self.options.nodes), "--rounds", str(rounds)]
        argv = [sys.executable, __file__, *words]
        env = {**os.environ, "TMPDIR": str(self.folder)}
        ran = subprocess.run(argv, stdout=subprocess.PIPE, timeout=WITHIN, env=env)
        if ran.returncode:
            raise SystemExit(f"fleet did not stage {tag}")
        found: dict[str, Any] = json.loads(ran.stdout)
        return found

    def star(self, tag: str) -> None:
        argv = [*self.ssh(SOURCE), "sh", "-s", tag, *self.targets]
        subprocess.run(argv, input=SAVE_AND_LOAD.encode(), check=True, timeout=WITHIN)

    def pull(self, tag: str) -> None:
        self.everywhere(lambda node: self.docker(node, "pull", "--quiet", self.pulled(tag)))

    def pulled(self, tag: str) -> str:
        return f"{self.lab.address(SOURCE)}:{PORT}/{tag}"

    @contextmanager
    def registry(self) -> Iterator[None]:
        """One on the source, for the old image, and engines that take it from there without TLS."""
        self.lab.inside(SOURCE, ["mkdir", "-p", SHELF], check=True)
        self.lab.inside(SOURCE, ["tar", "-x", "-C", SHELF], stdin=self.old.data, check=True)
        program = Path(__file__).with_name("registry.py").read_bytes()
        put = ["install", "-m", "644", "/dev/stdin", f"{SHELF}/registry.py"]
        self.lab.inside(SOURCE, put, stdin=program, check=True)
        self.everywhere(self.trust)
        name = OLD.partition(":")[0]
        argv = [*self.ssh(SOURCE), "python3", f"{SHELF}/registry.py", SHELF, name, str(PORT)]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            assert server.stdin
            assert server.stdout
            if server.stdout.readline() != b"ready\n":
                raise SystemExit("the registry did not start")
            yield
            server.stdin.close()

    def trust(self, node: str) -> None:
        path = self.lab.node(node).root / "etc/docker/daemon.json"
        address = f"{self.lab.address(SOURCE)}:{PORT}"
        path.write_text(json.dumps({**json.loads(path.read_text()), "insecure-registries": [address]}))
        for engine in self.lab.node(node).processes("dockerd"):
            os.kill(engine, signal.SIGHUP)
        asked = ["info", "--format", "{{json .RegistryConfig.IndexConfigs}}"]
        process.wait(lambda: address in self.docker(node, *asked), 10, f"{node} does not know the registry")

    # ------------------------------------------------------------------ the state before

    def load(self, node: str, image: Archive) -> None:
        """Not over the wire."""
        if self.id_of(node, image.tag) != image.id:
            self.lab.docker(node, ["load", "--quiet"], stdin=image.data, timeout=WITHIN, check=True)

    def forget(self, *tags: str) -> None:
        """No target has these, nor a layer of theirs; no node has anything of fleet's."""
        everything = set(tags) == {OLD, NEW}
        self.everywhere(lambda node: self._forget(node, [*tags, *map(self.pulled, tags)], everything))
        self.lab.inside(SOURCE, ["find", SCRATCH, "-mindepth", "1", "-delete"], check=True)

    def _forget(self, node: str, tags: Sequence[str], everything: bool) -> None:
        self.lab.docker(node, ["image", "rm", "--force", *tags])
        self.lab.inside(node, ["find", SCRATCH, "-mindepth", "1", "-delete"], check=True)
        if everything and (left := self._layers(node)) > self._empty:
            raise SystemExit(f"{node} still has {left - self._empty} layers of what was removed")

    def _layers(self, node: str) -> int:
        found = (self.lab.node(node).root / "var/lib/docker/overlay2").glob("*/diff")
        return len(list(found))

    def id_of(self, node: str, tag: str) -> str:
        return self.lab.docker(node, ["image", "inspect", "--format", "{{.Id}}", tag]).out.strip()

    def measured_cap(self) -> str:
        """Every cable in both directions at once: each machine sends to the next. Ends the program above the cap."""
        zeros, nowhere = f"head -c {int(self.options.mbit * 1e6 / 8 * SENDING)} /dev/zero", "cat >/dev/null"
        nexts = zip(self.nodes, self.nodes[1:], strict=False)
        ring = [[*self.ssh(node), f"{zeros} | ssh -o BatchMode=yes {other} '{nowhere}'"] for node, other in nexts]
        ring += [[*self.ssh(self.nodes[-1]), zeros], ["sh", "-c", f'{zeros} | "$@"', "_", *self.ssh(SOURCE), nowhere]]
        silent: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        running = [subprocess.Popen(argv, **silent) for argv in ring]
        time.sleep(SENDING / 3)
        before = self.carried_at()
        time.sleep(SENDING / 3)
        after = self.carried_at()
        if any(one.wait(WITHIN) for one in running):
            raise SystemExit("the cables could not be measured")
        found = list(mbits(before, after))
        if max(found) > self.options.mbit * 1.1:
            raise SystemExit(f"a cable is not capped: {max(found):.0f} Mbit/s")
        return f"every cable {self.options.mbit:g} Mbit/s each way, {min(found):.0f} to {max(found):.0f} measured"

    def carried_at(self) -> Carried:
        """Bytes by cable, each with its own time: to read them all takes a while."""
        return {name: (self.lab.network.carried(name), time.perf_counter()) for name in [*self.nodes, HERE]}

    # ------------------------------------------------------------------ small things

    def docker(self, node: str, *argv: str) -> str:
        return self.lab.docker(node, argv, timeout=WITHIN, check=True).out

    def ssh(self, node: str) -> list[str]:
        return ["ssh", "-F", str(self.lab.ssh_config), node]

    def everywhere(self, act: Callable[[str], object]) -> None:
        """On all targets at once."""
        with ThreadPoolExecutor(len(self.targets)) as pool:
            list(pool.map(act, self.targets))


# ---------------------------------------------------------------------- what comes of it


def turned(ways: list[str], number: int) -> list[str]:
    """Every round begins with another one."""
    start = number % len(ways)
    return ways[start:] + ways[:start]


def mbits(before: Carried, after: Carried) -> Iterator[float]:
    """The rate of each cable, both ways, between two readings."""
    for name, (counts, start) in before.items():
        later, end = after[name]
        yield from ((now - count) * 8 / 1e6 / (end - start) for now, count in zip(later, counts, strict=True))


def seconds(samples: Sequence[Sample]) -> float:
    return statistics.median(sample.seconds for sample in samples)


def wire(samples: Sequence[Sample]) -> float:
    return statistics.median(sample.seen.wire for sample in samples)


def ratios(found: Measured) -> dict[str, Any]:
    """The figures that the limits are about. vs_star, vs_registry: how many times faster."""
    ours, bumped = seconds(found.first["fleet"]), seconds(found.bump["fleet"])
    return {
        "first_copy": {
            "vs_bound": round(ours / found.bound(found.size), 3),
            "vs_star": round(seconds(found.first["star"]) / ours, 2),
            "vs_registry": round(seconds(found.first["registry"]) / ours, 2),
        },
        "bump": {
            "vs_changed_bytes": round(wire(found.bump["fleet"]) / (found.targets * found.changed), 3),
            "vs_star": round(seconds(found.bump["star"]) / bumped, 2),
        },
        "noop_s": round(statistics.median(found.nothing), 3),
    }


@dataclass(frozen=True)
class Limit:
    """A figure that may not be above (or, with `least`, below) its limit."""

    what: str
    value: float
    limit: float
    least: bool = False
    binds: str = ""

    @property
    def kept(self) -> bool:
        return self.value >= self.limit if self.least else self.value <= self.limit


def limits(found: Measured) -> list[Limit]:
    ratio = ratios(found)
    first, bump, sent = found.first["fleet"], found.bump["fleet"], ratio["bump"]["vs_changed_bytes"]
    copied = max(most(sample.seen.disk, given=True) for sample in (*first, *bump)) / found.size
    here = max(sample.seen.here for sample in (*first, *bump)) / found.size
    binds, bump_binds = what_binds(first, found, found.size), what_binds(bump, found, found.changed)
    return [
        Limit("first copy, times the bound", ratio["first_copy"]["vs_bound"], BOUND, binds=binds),
        Limit("first copy, times faster than the star", ratio["first_copy"]["vs_star"], STAR, True, binds),
        Limit("bump, bytes on the wire for a changed one", sent, CHANGED, binds=bump_binds),
        Limit("bump, times faster than the star", ratio["bump"]["vs_star"], BUMP_STAR, True, bump_binds),
        Limit("nothing to do, seconds", ratio["noop_s"], NOTHING, binds="connections, and one docker command a node"),
        Limit("copies of the archive on the disk of a node that is given it", copied, COPY),
        Limit("copies of the archive on this machine's disk", here, COPY),
    ]


def missed(found: Measured) -> list[Limit]:
    return [limit for limit in limits(found) if not limit.kept]


def what_binds(samples: Sequence[Sample], found: Measured, size: int) -> str:
    """Of the middle one: the cores, a cable, bytes that were not needed, or none of these."""
    middle = sorted(samples, key=lambda sample: sample.seconds)[len(samples) // 2]
    way, use = busiest(middle, found.mbit)
    sent = middle.seen.wire / (found.targets * size)
    if middle.seen.cpu > 0.9:
        return f"the cores, busy {middle.seen.cpu:.0%} of the time"
    if sent > 1.2:
        return f"bytes: {sent:.1f} for each that is needed; {way} is the busiest way, {use:.0%}"
    if use > 0.85:
        return f"a cable: {way}, busy {use:.0%} of the time"
    return f"waiting: the busiest way, {way}, is idle {1 - use:.0%} of the time, the cores {1 - middle.seen.cpu:.0%}"


def busiest(sample: Sample, mbit: float) -> tuple[str, float]:
    """The way that carried most, and which share of its rate."""
    way, count = max(sample.seen.cables.items(), key=lambda item: item[1], default=("no way", 0))
    return way, count * 8 / (mbit * 1e6 * sample.seconds)


HEAD = f"{'s':>19}{'× bound':>9}{'MB on wire':>12}{'busiest way':>18}{'CPU':>6}{'disk':>12}{'engine':>12}{'memory':>12}"


def table(found: Measured) -> str:
    size, changed = found.size / 1e6, found.changed / 1e6
    lines = [
        f"first copy: {size:.1f} MB in {LAYERS} layers to {found.targets} nodes; bound {found.bound(found.size):.2f} s",
        HEAD,
        *(row(way, samples, found, found.size) for way, samples in found.first.items()),
        f"bump: {changed:.1f} MB of it changed; bound {found.bound(found.changed):.2f} s",
        HEAD,
        *(row(way, samples, found, found.changed) for way, samples in found.bump.items()),
        "  most MB that a node had, beside what stays: a node that is given the image / the one that gives it;",
        "  engine: in its engine's own folder for archives; disk: elsewhere; memory: of all its processes",
        "limits",
    ]
    for limit in limits(found):
        sign = "≥" if limit.least else "≤"
        told = "kept" if limit.kept else f"MISSED: {limit.binds}" if limit.binds else "MISSED"
        lines.append(f"  {limit.what:64}{limit.value:7.2f}  ({sign} {limit.limit:g})  {told}")
    return "\n".join(lines)


def most(peaks: Mapping[str, int], *, given: bool) -> int:
    """Of the nodes that are given the image, or of the one that gives it."""
    return max((peak for node, peak in peaks.items() if (node != SOURCE) == given), default=0)


def peaked(samples: Sequence[Sample], kind: str) -> str:
    given, gives = (max(most(getattr(one.seen, kind), given=side) for one in samples) for side in (True, False))
    return f"{given / 1e6:.1f}/{gives / 1e6:.1f}"


def row(way: str, samples: Sequence[Sample], found: Measured, size: int) -> str:
    took = seconds(samples)
    middle = sorted(samples, key=lambda sample: sample.seconds)[len(samples) // 2]
    name, use = busiest(middle, found.mbit)
    peaks = "".join(f"{peak:>12}" for peak in map(partial(peaked, samples), ("disk", "engine", "memory")))
    share = f"{name} {use:.0%}"
    start = f"  {way:10}{took:7.2f}{took / found.bound(size):9.2f}{wire(samples) / 1e6:12.1f}"
    return f"{start}{share:>18}{middle.seen.cpu:6.0%}{peaks}"


if __name__ == "__main__":
    sys.exit(main())
