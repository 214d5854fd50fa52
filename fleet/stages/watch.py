"""Whether every serving container still runs. A serving container may not end, whatever its exit code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet import docker
from fleet.errors import ServiceDied
from fleet.model.service import Service
from fleet.session import Machine
from fleet.stages.deployment import Deployment, by_host, spoken


@dataclass(frozen=True)
class Death:
    """A service that does not run any more, and how it ended."""

    service: Service
    cause: str

    def __str__(self) -> str:
        return f"{spoken(self.service)} died ({self.cause})"


@dataclass(frozen=True)
class LogLine:
    """One line of a service's log. `time` is docker's: UTC, of that host's clock."""

    time: str
    service: Service
    text: str


def alive(deployment: Deployment, services: Sequence[Service] | None = None) -> None:
    """Look once at every container on every host. Raises ServiceDied naming all that ended; HostError for a lost host."""
    wanted = deployment.services if services is None else services
    found = deaths(deployment, wanted)
    if found:
        raise ServiceDied("; ".join(map(str, found)))


def deaths(deployment: Deployment, services: Sequence[Service]) -> list[Death]:
    grouped = by_host(services)
    answers = deployment.session.all(grouped, lambda machine: _dead(machine, deployment, grouped[machine.name]))
    return [death for answer in answers.values() for death in answer]


def _dead(machine: Machine, deployment: Deployment, services: Sequence[Service]) -> list[Death]:
    out = machine.docker(docker.ps_argv(f"{docker.PREFIX}.run={deployment.labels.run}")).out
    states = {container.name: container.state for container in docker.parse_ps(out)}
    ended = [service for service in services if states.get(deployment.named(service)) != "running"]
    return [Death(service, _cause(machine, deployment.named(service))) for service in ended]


def _cause(machine: Machine, name: str) -> str:
    outcome = machine.docker(docker.inspect_argv([name]), check=False)
    states = docker.parse_inspect(outcome.out) if outcome.ok else []
    if not states:
        return "its container is gone"
    return states[0].status if states[0].status == "paused" else states[0].cause


def fatal_lines(deployment: Deployment) -> list[LogLine]:
    """Lines of the logs brought home that an engine or router calls fatal: the first of each service, earliest first."""
    found = []
    for service in deployment.services:
        line = _first(
            deployment.folder.log(deployment.arm.arm.name, service.name), service, _patterns(deployment, service)
        )
        found += [line] if line else []
    return sorted(found, key=lambda line: line.time)


def _patterns(deployment: Deployment, service: Service) -> tuple[str, ...]:
    if service.kind == "router":
        return deployment.router.FATAL if deployment.router else ()
    return deployment.engine.FATAL


def _first(path: Path, service: Service, patterns: tuple[str, ...]) -> LogLine | None:
    if not path.exists() or not patterns:
        return None
    matching = re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            time, _, text = line.rstrip("\n").partition(" ")
            if matching.search(text):
                return LogLine(time, service, text.strip())
    return None
