"""Load clients: the argv for a point, and its raw output as a measurement."""

from __future__ import annotations

from typing import Any, Protocol

from fleet.errors import PlanError
from fleet.loads import atom_bench, vllm_bench
from fleet.model.arm import Arm, Point
from fleet.model.evidence import Drawn, Measurement
from fleet.model.part import Help, Part
from fleet.model.seat import Placement
from fleet.model.service import Service


class Load(Protocol):
    """What a load client's module offers."""

    @property
    def FRAMEWORKS(self) -> tuple[str, ...]: ...

    def service(self, point: Point, placement: Placement, *, endpoint: str) -> Service:
        """The client's container for one point; `endpoint` is the base URL it loads."""
        ...

    def result_path(self, point: Point) -> str:
        """The raw result as the container sees it, below the run's own mount."""
        ...

    def parts(self, service: Service, arm: Arm) -> tuple[Part, ...]:
        """What of the image the client needs."""
        ...

    def manual(self, service: Service) -> Help:
        """How the client's program is asked for its flags."""
        ...

    def parse(self, raw: dict[str, Any]) -> Measurement: ...

    def drawn(self, point: Point) -> Drawn:
        """The lengths it draws for a point."""
        ...

    def deviations(self, arm: Arm) -> tuple[str, ...]:
        """What differs from the public recipe on purpose."""
        ...


_LOADS: tuple[Load, ...] = (atom_bench, vllm_bench)


def load_for(framework: str) -> Load:
    """Raises PlanError for a framework without a load client."""
    for load in _LOADS:
        if framework in load.FRAMEWORKS:
            return load
    known = ", ".join(sorted(name for load in _LOADS for name in load.FRAMEWORKS))
    raise PlanError(f"no load client for framework {framework}; there is one for: {known}")
