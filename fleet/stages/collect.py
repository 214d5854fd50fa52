"""Bring home what a deployment wrote, before anything is removed."""

from __future__ import annotations

from pathlib import Path

from fleet import docker
from fleet.docker import Container
from fleet.errors import FleetError, HostError, NotKept
from fleet.hosts.base import CHUNK, Tail
from fleet.results import store
from fleet.session import Machine
from fleet.stages import secret
from fleet.stages.deployment import Deployment
from fleet.stages.teardown import ours

LOG_SECONDS = 300.0


def collect(deployment: Deployment) -> list[FleetError]:
    """Every log into the run folder, that of a load client left behind, too.

    What could not be fetched is returned, not raised: teardown follows.
    """

    def act(machine: Machine) -> None:
        for service in deployment.on(machine.name):
            if deployment.named(service) in deployment.taken:
                continue
            path = deployment.folder.log(deployment.arm.arm.name, service.name)
            _save(machine, deployment, deployment.named(service), path)
        for client in ours(machine, run=deployment.labels.run, arm=deployment.labels.arm, role="client"):
            if client.name in deployment.taken:
                continue
            _save(machine, deployment, client.name, client_log(deployment, client.labels.get("point", "")))

    answers = deployment.session.each(deployment.reachable, act, timeout=LOG_SECONDS)
    return deployment.problems(answers)


def _save(machine: Machine, deployment: Deployment, container: str, path: Path) -> None:
    try:
        fetch_log(machine, container, path)
    except NotKept:
        deployment.unsaved.setdefault(machine.name, set()).add(container)


def client_log(deployment: Deployment, point: str) -> Path:
    arm = deployment.arm.arm.name
    return deployment.folder.log(arm, client_title(arm, point))


def client_title(arm: str, point: str) -> str:
    """client-c64 of arm A and point A-c64: what its log is called."""
    return "client" + point.removeprefix(arm)


def fetch_log(machine: Machine, container: str, path: Path) -> None:
    """Write a container's log to `path`: aside first, then renamed. A container that does not exist has no log.

    Raises HostError if the log of one that exists does not come, NotKept if the disk here does not take it.
    """
    aside = path.with_name(f".{path.name}.{machine.name}.part")
    last = Tail(CHUNK)
    try:
        with store.told(path.parents[2], path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with aside.open("wb") as file:

                def keep(data: bytes) -> None:
                    file.write(data)
                    last.add(data)

                argv = docker.logs_argv(container)
                outcome = machine.docker_stream(argv, timeout=LOG_SECONDS, sink=keep, both=True, check=False)
            if outcome.ok:
                aside.replace(path)
                return
    finally:
        aside.unlink(missing_ok=True)
    said = last.bytes().decode(errors="replace").strip()
    if "no such container" not in said.lower():
        why = said.rpartition("\n")[2] or f"docker logs: exit {outcome.code}"
        raise HostError(f"the log of {container} did not come: {why}", where=machine.name)


def tail(machine: Machine, container: Container, lines: int) -> str:
    """The last lines of a running container's log, with docker's times; 0: all of it."""
    kept: list[bytes] = []
    argv = docker.logs_argv(container.id, tail=lines or None)
    secret.knowing(machine, container).docker_stream(argv, timeout=LOG_SECONDS, sink=kept.append, both=True)
    return b"".join(kept).decode(errors="replace")


def last_lines(path: Path, lines: int) -> str:
    """The same of a log that was brought home."""
    text = path.read_text(errors="replace").splitlines()
    return "\n".join(text[-lines:] if lines else text)


def raw_result(machine: Machine, deployment: Deployment, inside: str) -> bytes | None:
    """What a load client wrote at `inside` (its own path below the run's mount), untouched; None: nothing."""
    path = deployment.scratch(machine.name) + inside.removeprefix(docker.SCRATCH)
    outcome = machine.run(["cat", path], timeout=LOG_SECONDS, check=False)
    return outcome.stdout if outcome.ok else None
