"""One arm on its machines for one run: what every stage needs to know to work on it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fleet import http
from fleet.docker import Labels, container_name, scratch_path, when
from fleet.engines import Engine, engine_for
from fleet.errors import FleetError
from fleet.loads import Load, load_for
from fleet.model.check import Check, Response
from fleet.model.service import Service
from fleet.plan import ArmPlan, Plan
from fleet.results.store import RunFolder
from fleet.routers import Router, router_for
from fleet.session import Machine, Session, owner
from fleet.stages.vigil import Vigil

ANSWER_SECONDS = 10.0
"""How long a service may take to answer a question about itself."""


@dataclass(frozen=True)
class Deployment:
    """clocks: seconds that the clock of each host is ahead of ours, 0 where nobody looked. images: the ID behind the
    arm's tag on each host, once it was read. taken: names that containers of somebody else had before ours could.
    adopted: names of containers of this run that an earlier process started, and that serve on. unsaved: by host, names
    of containers whose logs could not be saved here: they are stopped and stay. vigil: what the arm's watcher heard.
    """

    session: Session
    folder: RunFolder
    plan: Plan
    arm: ArmPlan
    labels: Labels
    clocks: Mapping[str, float] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    adopted: set[str] = field(default_factory=set)
    unsaved: dict[str, set[str]] = field(default_factory=dict)
    vigil: Vigil = field(default_factory=Vigil, compare=False)

    @classmethod
    def of(
        cls, session: Session, folder: RunFolder, plan: Plan, arm: ArmPlan, clocks: Mapping[str, float]
    ) -> Deployment:
        return cls(session, folder, plan, arm, plan.labels(arm, folder.name, owner()), clocks)

    def problems(self, answers: Mapping[str, object]) -> list[FleetError]:
        """What went wrong on hosts that are not lost: of those that is all there is to say."""
        reachable = self.reachable
        return [one for host, one in answers.items() if isinstance(one, FleetError) and host in reachable]

    def moment(self, host: str, written: str) -> datetime | None:
        """A time that docker wrote on a host, by our clock; None if it is none."""
        try:
            there = when(written)
        except ValueError:
            return None
        return there and there - timedelta(seconds=self.clocks.get(host, 0.0))

    @property
    def services(self) -> tuple[Service, ...]:
        """Everything that serves: servers, and the router where there is one."""
        return self.arm.services

    @property
    def front(self) -> Service:
        """What the load client talks to: the router, or the only server."""
        return self.arm.router or self.arm.servers[0]

    @property
    def hosts(self) -> list[str]:
        """Machines with a seat of this arm, in the plan's order."""
        return list(dict.fromkeys(seat.host for seat in self.arm.placement.seats))

    @property
    def reachable(self) -> list[str]:
        """The same without those that were lost."""
        return [host for host in self.hosts if host not in self.vigil.lost]

    @property
    def engine(self) -> Engine:
        return engine_for(self.arm.arm.framework)

    @property
    def router(self) -> Router | None:
        return router_of(self.arm)

    @property
    def load(self) -> Load:
        return load_for(self.arm.arm.framework)

    def milestone(self, log: str) -> str:
        """What the last telling line of a server's log means; "" if none tells anything."""
        for line in reversed(log.splitlines()):
            for pattern, meaning in self.engine.PROGRESS:
                if re.search(pattern, line):
                    return meaning
        return ""

    def fatal(self, service: Service) -> re.Pattern[str]:
        """What a line of this service's log looks like that explains its death."""
        return _any_of(self.router.FATAL if service.kind == "router" and self.router else self.engine.FATAL)

    def transfer_errors(self, service: Service) -> re.Pattern[str]:
        """What a line of this service's log looks like that tells of a failed KV transfer."""
        router = self.router if service.kind == "router" else None
        return _any_of(router.TRANSFER_ERRORS if router else self.engine.TRANSFER_ERRORS)

    def named(self, service: Service) -> str:
        return container_name(service, self.labels)

    def on(self, host: str, services: Iterable[Service] | None = None) -> list[Service]:
        return [service for service in (self.services if services is None else services) if service.host == host]

    def scratch(self, host: str) -> str:
        return scratch_path(self.arm.placement.host(host), self.folder.name)

    def get(self, machine: Machine, service: Service, path: str, *, timeout: float = ANSWER_SECONDS) -> Response | str:
        """A GET that `machine` makes of a service: the answer, or why there is none. timeout: seconds."""
        return get(self.arm, machine, service, path, timeout=timeout)

    def post(self, machine: Machine, service: Service, path: str, body: object, *, timeout: float) -> Response | str:
        assert service.http is not None
        return machine.ask(http.post(address(self.arm, service), service.http, path, body), timeout=timeout)

    def typed(self, verb: str) -> str:
        """The line that runs another verb on this plan."""
        return typed(self.plan, verb)


def get(
    arm: ArmPlan, machine: Machine, service: Service, path: str, *, timeout: float = ANSWER_SECONDS
) -> Response | str:
    """See Deployment.get; for an arm that is not this run's own."""
    assert service.http is not None
    return machine.ask(http.get(address(arm, service), service.http, path), timeout=timeout)


def address(arm: ArmPlan, service: Service) -> str:
    """The address under which peers reach a service."""
    return arm.placement.host(service.host).fast_address


def checks(arm: ArmPlan, service: Service) -> tuple[Check, ...]:
    """What a service must answer well before it counts as ready, in the order to ask."""
    router = router_of(arm)
    if service.kind == "router":
        return router.readiness(arm.placement) if router else ()
    return engine_for(arm.arm.framework).readiness(service.seat, arm.placement)


def router_of(arm: ArmPlan) -> Router | None:
    return router_for(arm.arm.router.name) if arm.arm.router and arm.router else None


def typed(plan: Plan, verb: str) -> str:
    """A hint: the line that runs a verb on this plan's config and inventory."""
    return "type: " + shlex.join(["invoke", verb, "--config", plan.key, "--inventory", plan.inventory.path])


def _any_of(patterns: Sequence[str]) -> re.Pattern[str]:
    """Matches what one of the patterns matches; nothing where there are none."""
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns) or r"(?!)")


def spoken(service: Service) -> str:
    """A seat in words: `decode 0 on mi355x-03`."""
    seat = service.seat
    rank = "" if seat.role in ("router", "client") else f" {seat.rank}"
    part = f" part {seat.node}" if seat.node else ""
    return f"{seat.role}{rank}{part} on {seat.host}"


def by_host(services: Sequence[Service]) -> dict[str, list[Service]]:
    grouped: dict[str, list[Service]] = {}
    for service in services:
        grouped.setdefault(service.host, []).append(service)
    return grouped
