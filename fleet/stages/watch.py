"""Whether every serving container still runs. A serving container may not end, whatever its exit code."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from fleet import docker
from fleet.errors import ServiceDied
from fleet.model.service import Service
from fleet.session import Machine
from fleet.stages.deployment import Deployment, by_host, spoken

T = TypeVar("T")

EVERY = 0.5
"""Seconds between two looks at the containers while something else is under way."""


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
    """Look once at every container on every host. Raises ServiceDied naming all that ended, or HostError."""
    wanted = deployment.services if services is None else services
    found = deaths(deployment, wanted)
    if found:
        raise ServiceDied("; ".join(map(str, found)))


def meanwhile(deployment: Deployment, act: Callable[[], T]) -> T:
    """What `act` returns or raises, unless a container ends before: then ServiceDied, and `act` is left behind.

    `act` must end by itself some time: it runs in a thread of its own that is not waited for.
    """
    doing: Future[T] = Future()

    def work() -> None:
        try:
            doing.set_result(act())
        except BaseException as problem:
            doing.set_exception(problem)

    threading.Thread(target=work, name="fleet-meanwhile", daemon=True).start()
    while not wait([doing], timeout=EVERY).done:
        alive(deployment)
    return doing.result()


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
    """Lines that an engine or router calls fatal, from the logs brought home: the first of each, earliest first."""
    logs = [(deployment.folder.log(deployment.arm.arm.name, one.name), one) for one in deployment.services]
    found = [_first(path, service, deployment.fatal(service)) for path, service in logs if path.exists()]
    return sorted((line for line in found if line), key=lambda line: line.time)


def _first(path: Path, service: Service, fatal: re.Pattern[str]) -> LogLine | None:
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            time, _, text = line.rstrip("\n").partition(" ")
            if fatal.search(text):
                return LogLine(time, service, text.strip())
    return None
