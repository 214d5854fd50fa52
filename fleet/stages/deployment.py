"""One arm on its machines for one run: what every stage needs to know to work on it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleet import http
from fleet.docker import Labels, container_name, scratch_path
from fleet.engines import Engine, engine_for
from fleet.loads import Load, load_for
from fleet.model.check import Response
from fleet.model.service import Service
from fleet.plan import ArmPlan, Plan
from fleet.results.store import RunFolder
from fleet.routers import Router, router_for
from fleet.session import Machine, Session, owner


@dataclass(frozen=True)
class Deployment:
    session: Session
    folder: RunFolder
    plan: Plan
    arm: ArmPlan
    labels: Labels

    @classmethod
    def of(cls, session: Session, folder: RunFolder, plan: Plan, arm: ArmPlan) -> Deployment:
        return cls(session, folder, plan, arm, plan.labels(arm, folder.name, owner()))

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
    def engine(self) -> Engine:
        return engine_for(self.arm.arm.framework)

    @property
    def router(self) -> Router | None:
        return router_for(self.arm.arm.router.name) if self.arm.arm.router and self.arm.router else None

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

    def named(self, service: Service) -> str:
        return container_name(service, self.labels)

    def on(self, host: str, services: Iterable[Service] | None = None) -> list[Service]:
        return [service for service in (self.services if services is None else services) if service.host == host]

    def address(self, service: Service) -> str:
        """The address under which peers reach a service."""
        return self.arm.placement.host(service.host).fast_address

    def scratch(self, host: str) -> str:
        return scratch_path(self.arm.placement.host(host), self.folder.name)

    def get(self, machine: Machine, service: Service, path: str, *, timeout: float = 10.0) -> Response | str:
        """A GET that `machine` makes of a service."""
        assert service.http is not None
        return machine.ask(http.get(self.address(service), service.http, path), timeout=timeout)

    def post(self, machine: Machine, service: Service, path: str, body: object, *, timeout: float) -> Response | str:
        assert service.http is not None
        return machine.ask(http.post(self.address(service), service.http, path, body), timeout=timeout)


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
