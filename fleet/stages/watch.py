"""Whether every serving container still runs. A serving container may not end, whatever its exit code."""

from __future__ import annotations

import threading
import time
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

EVERY = 0.2
"""Seconds between two looks at what the watcher has heard, or at the containers where nobody watches."""

VERDICT = 6.0
"""Seconds in which a host that did not answer turns out to be lost or alive."""

TICK = 0.1

STARVED = "a process of it was killed, out of memory; its container runs on"

PAUSED = "paused"

AWAKE = (
    "somebody paused it: waking it (docker unpause CONTAINER) is theirs to do; who it was:  "
    "docker events --since 1h --until 0s --filter event=pause  on that host"
)

DYING = 1.0
"""Seconds in which a container may end of that: docker tells of the memory first."""

LOOK_SECONDS = 5.0
"""For docker to list the containers of a host while the host is watched."""


@dataclass(frozen=True)
class Death:
    """A service that does not run any more, and how it ended. `ended`: UTC, by our clock; None if nobody knows."""

    service: Service
    cause: str
    ended: datetime | None = None

    def __str__(self) -> str:
        return f"{spoken(self.service)} {self.end}"

    @property
    def end(self) -> str:
        """In words, behind the service's name: one that is paused may be woken again by whoever paused it."""
        return f"is {PAUSED}" if self.cause == PAUSED else f"died ({self.cause})"

    @property
    def order(self) -> datetime:
        """Nobody's death pauses or removes another container: where no end is known, somebody did it first."""
        return self.ended or datetime.min.replace(tzinfo=UTC)


class Deaths(ServiceDied):
    """Services that ended, told as the one that ended first: the others may be consequences."""

    def __init__(self, deaths: Sequence[Death], *, where: str = "") -> None:
        self.deaths = tuple(sorted(deaths, key=lambda death: death.order))
        paused = self.deaths[0].cause == PAUSED
        super().__init__(str(self.deaths[0]), where=where, hint=AWAKE if paused else "")


class HostLost(ServiceDied):
    """A host with serving containers does not answer any more, or its Docker engine has stopped."""


def alive(deployment: Deployment, services: Sequence[Service] | None = None, *, surely: bool = False) -> None:
    """Raises HostLost, or Deaths of all that ended; HostError where nobody watches and a host does not answer.

    While the arm's watcher follows a host, only what that heard of is looked at; `surely`: every container is.
    """
    deployment.session.go_on()
    wanted = deployment.services if services is None else services
    vigil = deployment.vigil
    vigil.news.clear()
    heard = dict(vigil.told)
    _there(deployment)
    suspects = wanted if surely or not vigil.kept else _suspects(deployment, wanted)
    if not suspects:
        return
    try:
        found = deaths(deployment, suspects)
    except HostError:
        if surely or not vigil.kept:
            raise
        return  # its pulse tells whether the host is lost
    if not found:
        vigil.cleared(heard)
        return
    if all(one.cause == STARVED for one in found):
        vigil.news.wait(DYING)
    # Hosts are not looked at in the same instant: what ended before these may have been seen alive.
    with suppress(HostError):
        found = deaths(deployment, wanted) or found
    raise Deaths(found)


def told(deployment: Deployment, services: Sequence[Service]) -> None:
    """The same of containers that may not be there yet: only what the watcher heard of them counts."""
    _there(deployment)
    ours = [one for one in services if deployment.vigil.heard(one.host, deployment.named(one))]
    if ours and (found := deaths(deployment, ours)):
        raise Deaths(found)


def _suspects(deployment: Deployment, services: Sequence[Service]) -> list[Service]:
    vigil = deployment.vigil
    return [one for one in services if one.host not in vigil.following or vigil.heard(one.host, deployment.named(one))]


def _there(deployment: Deployment) -> None:
    """Raises HostLost for a host that is lost, or whose Docker engine has stopped; Deaths for engines of ours."""
    vigil = deployment.vigil
    for host, why in vigil.lost.items():
        raise HostLost(f"{host} is lost: {why}\n  it held {_seats(deployment, host)}", hint=_try(deployment, host))
    for host, why in vigil.engines.items():
        what = f"the Docker engine on {host} {why}: {_seats(deployment, host)} went with it"
        raise HostLost(what, hint=_try(deployment, host, ["docker", "version"]))
    if dead := [Death(one, *vigil.dead[one.name]) for one in deployment.services if one.name in vigil.dead]:
        raise Deaths(dead)


def _seats(deployment: Deployment, host: str) -> str:
    return ", ".join(one.name for one in deployment.on(host)) or "no serving container"


def _try(deployment: Deployment, host: str, argv: Sequence[str] = ("true",)) -> str:
    return f"try:  {deployment.session.machine(host).transport.ssh_line(argv)}"


def meanwhile(
    deployment: Deployment,
    act: Callable[[], T],
    services: Sequence[Service] | None = None,
    *,
    look: Callable[[Deployment, Sequence[Service]], None] = alive,
) -> T:
    """What `act` returns or raises, unless a container ends before: then ServiceDied, and `act` is left behind.

    `act` must end by itself some time: it runs in a thread of its own that is not waited for. services: those whose
    end counts. A host that `act` found unreachable is given the time in which its pulse tells whether it is lost.
    """
    doing: Future[T] = Future()
    wanted = deployment.services if services is None else services

    def work() -> None:
        try:
            doing.set_result(act())
        except BaseException as problem:
            doing.set_exception(problem)

    threading.Thread(target=work, name="fleet-meanwhile", daemon=True).start()
    while not wait([doing], timeout=EVERY).done:
        look(deployment, wanted)
    if isinstance(doing.exception(), HostError) and deployment.vigil.kept:
        _verdict(deployment, time.monotonic())
    return doing.result()


def _verdict(deployment: Deployment, since: float) -> None:
    """Wait until every host has answered after `since`, or one is lost: then HostLost."""
    vigil, end = deployment.vigil, since + VERDICT
    while time.monotonic() < end:
        _there(deployment)
        if all(vigil.answered.get(host, 0.0) > since for host in deployment.hosts):
            return
        time.sleep(TICK)


def deaths(deployment: Deployment, services: Sequence[Service]) -> list[Death]:
    grouped = by_host(services)
    answers = deployment.session.all(grouped, lambda machine: _dead(machine, deployment, grouped[machine.name]))
    return [death for answer in answers.values() for death in answer]


def _dead(machine: Machine, deployment: Deployment, services: Sequence[Service]) -> list[Death]:
    limit = LOOK_SECONDS if deployment.vigil.kept else 0
    out = machine.docker(docker.ps_argv(f"{docker.PREFIX}.run={deployment.labels.run}"), timeout=limit).out
    states = {container.name: container.state for container in docker.parse_ps(out)}
    ended = [service for service in services if states.get(deployment.named(service)) != "running"]
    starved = [service for service in services if service not in ended and _starved(machine, deployment, service)]
    return [*(_death(machine, deployment, service) for service in ended), *_starved_deaths(starved)]


def _starved(machine: Machine, deployment: Deployment, service: Service) -> bool:
    """Whether the kernel killed a process of a container that runs on: what is left of it does not serve."""
    event = deployment.vigil.heard(machine.name, deployment.named(service))
    return event is not None and event.action == "oom"


def _starved_deaths(services: Sequence[Service]) -> list[Death]:
    return [Death(one, STARVED) for one in services]


def _death(machine: Machine, deployment: Deployment, service: Service) -> Death:
    outcome = machine.docker(docker.inspect_argv([deployment.named(service)]), check=False)
    states = docker.parse_inspect(outcome.out) if outcome.ok else []
    if not states:
        return _gone(machine, deployment, service)
    (state,) = states
    if state.status == "paused":
        return Death(service, PAUSED)
    return Death(service, state.cause, deployment.moment(machine.name, state.finished))


def _gone(machine: Machine, deployment: Deployment, service: Service) -> Death:
    """A container that is removed: how it ended before, if the watcher heard of it."""
    event = deployment.vigil.heard(machine.name, deployment.named(service))
    if event is None or event.code is None:
        return Death(service, "its container is gone")
    ahead = deployment.clocks.get(machine.name, 0.0)
    ended = datetime.fromtimestamp(event.time - ahead, UTC)
    return Death(service, f"{docker.cause(event.code)}; somebody removed its container", ended)
