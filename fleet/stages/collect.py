"""Bring home what a deployment wrote, before anything is removed."""

from __future__ import annotations

from pathlib import Path

from fleet import docker
from fleet.docker import Container
from fleet.errors import FleetError
from fleet.model.service import Service
from fleet.session import Machine
from fleet.stages.deployment import Deployment, by_host

LOG_SECONDS = 300.0


def collect(deployment: Deployment) -> list[FleetError]:
    """Every service's log into the run folder. What could not be fetched is returned, not raised: teardown follows."""
    grouped = by_host(deployment.services)

    def act(machine: Machine) -> None:
        for service in grouped[machine.name]:
            save_log(machine, deployment, service, deployment.named(service))

    answers = deployment.session.each(grouped, act, timeout=LOG_SECONDS)
    return [answer for answer in answers.values() if isinstance(answer, FleetError)]


def save_log(machine: Machine, deployment: Deployment, service: Service, container: str, name: str = "") -> None:
    """One container's log, each line with docker's time, as logs/<arm>/<name or seat>.log."""
    path = deployment.folder.log(deployment.arm.arm.name, name or service.name)
    fetch_log(machine, container, path)


def fetch_log(machine: Machine, container: str, path: Path) -> None:
    """Write a container's log to `path`: aside first, then renamed. Containers that do not exist have no log."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.part")
    with aside.open("wb") as file:
        outcome = machine.docker_stream(
            docker.logs_argv(container), timeout=LOG_SECONDS, sink=file.write, both=True, check=False
        )
    if outcome.ok:
        aside.replace(path)
    else:
        aside.unlink()


def tail(machine: Machine, container: Container, lines: int) -> str:
    """The last lines of a running container's log, with docker's times; 0: all of it."""
    kept: list[bytes] = []
    argv = docker.logs_argv(container.id, tail=lines or None)
    machine.docker_stream(argv, timeout=LOG_SECONDS, sink=kept.append, both=True)
    return b"".join(kept).decode(errors="replace")


def last_lines(path: Path, lines: int) -> str:
    """The same of a log that was brought home."""
    text = path.read_text(errors="replace").splitlines()
    return "\n".join(text[-lines:] if lines else text)


def raw_result(machine: Machine, deployment: Deployment, inside: str) -> bytes | None:
    """The file a load client wrote at `inside` (its own path below the run's mount), byte for byte; None if there is none."""
    path = deployment.scratch(machine.name) + inside.removeprefix(docker.SCRATCH)
    outcome = machine.run(["cat", path], timeout=LOG_SECONDS, check=False)
    return outcome.stdout if outcome.ok else None
