"""Routers: the service in front of a disaggregated deployment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from fleet.errors import PlanError
from fleet.model.arm import Arm
from fleet.model.check import Check
from fleet.model.part import Help, Part
from fleet.model.seat import Placement
from fleet.model.service import Service
from fleet.routers import atomesh


class Router(Protocol):
    """What a router's module offers."""

    @property
    def NAME(self) -> str: ...
    @property
    def FATAL(self) -> tuple[str, ...]: ...
    @property
    def TRANSFER_ERRORS(self) -> tuple[str, ...]: ...

    def service(self, placement: Placement, servers: Sequence[Service]) -> Service:
        """The router in front of these servers."""
        ...

    def readiness(self, placement: Placement) -> tuple[Check, ...]: ...

    def parts(self, service: Service, arm: Arm) -> tuple[Part, ...]:
        """What of the image the router needs."""
        ...

    def manual(self, service: Service) -> Help:
        """How the router's program is asked for its flags."""
        ...

    def deviations(self, arm: Arm) -> tuple[str, ...]: ...

    def informational(self, arm: Arm) -> Mapping[str, str]:
        """Declared values that reach no service, with the reason."""
        ...


_ROUTERS: tuple[Router, ...] = (atomesh,)


def names() -> tuple[str, ...]:
    return tuple(sorted(router.NAME for router in _ROUTERS))


def router_for(name: str) -> Router:
    """Raises PlanError for a router that fleet does not know."""
    for router in _ROUTERS:
        if name == router.NAME:
            return router
    raise PlanError(f"router {name} is not known; known are: {', '.join(names())}")
