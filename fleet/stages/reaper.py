"""Clean up after runs that are dead: nobody holds a lease for them, and no process here drives them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fleet import docker
from fleet.docker import Container
from fleet.errors import FleetError
from fleet.results.store import RunFolder, is_plain
from fleet.session import Machine, Session
from fleet.stages import lease as leases
from fleet.stages import teardown
from fleet.stages.lease import Node
from fleet.stages.teardown import KEEP_SECONDS, STOP_SECONDS, Keep, everything, remove, saved
from fleet.words import counted

RUN = re.compile(r"\d{8}-\d{6}-[\w.+@=-]+")
"""What a run's scratch folder is called; other folders there are not ours."""


AGAIN = "if it lives it writes its lease anew; a minute after this one is removed invoke reap knows"


@dataclass(frozen=True)
class There:
    """What is on one host. Containers and folders were listed before the lease: a run that began meanwhile has one."""

    containers: tuple[Container, ...]
    folders: tuple[str, ...]
    node: Node

    @property
    def ours(self) -> list[Container]:
        """A label that fleet never gives (anyone can set one) makes a container nobody's of ours."""
        return [one for one in self.containers if one.ours and is_plain(one.labels["run"])]

    @property
    def runs(self) -> dict[str, str]:
        """Runs with something here and whose they are, "" where only a folder is left."""
        lease = self.node.answer.lease
        leased = {lease.run: lease.owner} if lease else {}
        labelled = {one.labels["run"]: one.labels.get("owner", "") for one in self.ours}
        return {**dict.fromkeys(self.folders, ""), **leased, **labelled}


@dataclass(frozen=True)
class Reaped:
    """By host what was done, or with `look` what would be; what was left alone and why; what could not be done."""

    done: Mapping[str, Sequence[str]]
    left: Sequence[str]
    errors: Sequence[FleetError] = field(default_factory=list)

    def to_json(self) -> dict[str, object]:
        return {
            "done": {host: list(what) for host, what in self.done.items()},
            "left_alone": list(self.left),
            "errors": [str(error) for error in self.errors],
        }


def reap(session: Session, results: Path, keep: Keep, *, look: bool = False) -> Reaped:
    """On all hosts of the session. keep: saves a container's log before it is removed. results: where runs here are."""
    found = session.each(session.names, there)
    good = {host: one for host, one in found.items() if isinstance(one, There)}
    alive = living(results, list(good.values()))

    again = shlex.join(["invoke", "reap", *(["--inventory", path] if (path := session.inventory.path) else [])])
    unsaved: list[FleetError] = []

    def act(machine: Machine) -> list[str]:
        there = good[machine.name]
        dead = [one for one in there.ours if one.labels["run"] not in alive]
        refused = {} if look else saved(machine, dead, keep)
        if refused:
            unsaved.append(teardown.unsaved(machine, refused, again))
        return list(_clean(machine, there, alive, dead, refused, look=look))

    done = session.each(good, act, timeout=KEEP_SECONDS + STOP_SECONDS)
    errors = [one for one in (*found.values(), *done.values(), *unsaved) if isinstance(one, FleetError)]
    worked = {host: one for host, one in done.items() if not isinstance(one, FleetError)}
    return Reaped(worked, list(_left(good, alive)), errors)


def there(machine: Machine) -> There:
    containers = everything(machine)
    listed = machine.run(["ls", "-1A", "--", machine.host.scratch], check=False)
    folders = [name for name in listed.out.splitlines() if RUN.fullmatch(name)] if listed.ok else []
    answer = leases.look(machine)
    return There(tuple(containers), tuple(folders), Node(machine.name, leases.state(answer), answer))


def living(results: Path, found: Sequence[There]) -> dict[str, str]:
    """Runs that live, and how that is known."""
    leased = leases.live([one.node for one in found])
    alive = {run: f"leased, driven from {lease.host}" for run, lease in leased.items()}
    runs = {run for one in found for run in one.runs}
    unknown = {run: f"{one.node.why}: {AGAIN}" for one in found if one.node.state == "damaged" for run in one.runs}
    return unknown | {run: "a process here drives it" for run in runs if driven(results, run)} | alive


def driven(results: Path, run: str) -> bool:
    """Whether a process here drives the run."""
    return RUN.fullmatch(run) is not None and RunFolder(results / run).driven()


def plain(run: str) -> str:
    """A run's name as part of a path here: anyone can set a label."""
    return re.sub(r"[^\w.+@=-]", "_", run).lstrip(".")[:200] or "unnamed"


def _clean(
    machine: Machine,
    found: There,
    alive: Mapping[str, str],
    dead: Sequence[Container],
    refused: Collection[str],
    *,
    look: bool,
) -> Iterator[str]:
    """refused: names of those whose logs could not be saved: they are only stopped, their runs keep their folders."""
    if not look:
        remove(machine, list(dead), keep=refused)
    gone = [one for one in dead if one.name not in refused]
    for run in dict.fromkeys(one.labels["run"] for one in gone):
        yield f"run {run}: {', '.join(one.name for one in gone if one.labels['run'] == run)}"
    busy = {*alive, *(one.labels["run"] for one in dead if one.name in refused)}
    for folder in found.folders:
        if folder not in busy:
            if not look:
                machine.run(["rm", "-rf", docker.scratch_path(machine.host, folder)])
            yield f"scratch folder of {folder}"
    if found.node.state in ("expired", "dead", "damaged"):
        yield from _forget_lease(machine, found.node, look=look)


def _forget_lease(machine: Machine, node: Node, *, look: bool) -> Iterator[str]:
    lease = node.answer.lease
    if look or leases.release(machine, node.answer.key):
        yield f"{node.state} lease" + (f" of {lease.run_of}" if lease else f": {node.why}")


def _left(found: Mapping[str, There], alive: Mapping[str, str]) -> Iterator[str]:
    for run, why in alive.items():
        hosts = [host for host, one in found.items() if run in one.runs]
        owner = next((one.runs[run] for one in found.values() if one.runs.get(run)), "somebody")
        if hosts:
            yield f"run {run} of {owner} on {', '.join(hosts)} ({why})"
    for host, one in found.items():
        if one.node.answer.odd and (lease := one.node.answer.lease):
            yield f"the lease of {lease.run_of} on {host}: {one.node.why}; if it is over: invoke down --run {lease.run}"
        if strangers := [c for c in one.containers if c not in one.ours]:
            yield f"{counted(len(strangers), 'container')} of strangers on {host}"
