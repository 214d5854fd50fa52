"""Whether every serving container still runs. A serving container may not end, whatever its exit code."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from fleet import docker
from fleet.errors import HostError, ServiceDied
from fleet.model.service import Service
from fleet.session import Machine
from fleet.stages.deployment import Deployment, by_host, spoken

T = TypeVar("T")

EVERY = 0.5
"""Seconds between two looks at the containers while something else is under way."""


@dataclass(frozen=True)
class Death:
    """A service that does not run any more, and how it ended. `ended`: UTC, by our clock; None if nobody knows."""

    service: Service
    cause: str
    ended: datetime | None = None

    def __str__(self) -> str:
        return f"{spoken(self.service)} died ({self.cause})"

    @property
    def order(self) -> datetime:
        """Nobody's death pauses or removes another container: where no end is known, somebody did it first."""
        return self.ended or datetime.min.replace(tzinfo=UTC)


class Deaths(ServiceDied):
    """Services that ended, told as the one that ended first: the others may be consequences."""

    def __init__(self, deaths: Sequence[Death], *, where: str = "") -> None:
        self.deaths = tuple(sorted(deaths, key=lambda death: death.order))
        super().__init__(str(self.deaths[0]), where=where)


def alive(deployment: Deployment, services: Sequence[Service] | None = None) -> None:
    """Look at every container on every host. Raises Deaths of all that ended, or HostError."""
    deployment.session.go_on()
    wanted = deployment.services if services is None else services
    found = deaths(deployment, wanted)
    if not found:
        return
    # Hosts are not looked at in the same instant: what ended before these may have been seen alive.
    with suppress(HostError):
        found = deaths(deployment, wanted) or found
    raise Deaths(found)


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
    return [_death(machine, deployment, service) for service in ended]


def _death(machine: Machine, deployment: Deployment, service: Service) -> Death:
    outcome = machine.docker(docker.inspect_argv([deployment.named(service)]), check=False)
    states = docker.parse_inspect(outcome.out) if outcome.ok else []
    if not states:
        return Death(service, "its container is gone")
    (state,) = states
    if state.status == "paused":
        return Death(service, "paused")
    return Death(service, state.cause, deployment.moment(machine.name, state.finished))
