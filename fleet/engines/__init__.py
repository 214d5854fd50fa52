"""Engines, one file each: what a seat runs, how its readiness is proven, which log lines are fatal, what it counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from fleet.engines import atom, vllm
from fleet.errors import PlanError
from fleet.model.arm import Arm
from fleet.model.base import KebabModel
from fleet.model.check import Check
from fleet.model.evidence import Counters
from fleet.model.part import Help, Part
from fleet.model.seat import Placement, Seat
from fleet.model.service import Service


class Engine(Protocol):
    """What an engine's module offers.

    SPANS: whether one worker can span hosts. FATAL and TRANSFER_ERRORS: regular expressions over log lines.
    PROGRESS: (regular expression, what it means), in the order of a start. START_TIMEOUT: seconds a start may take.
    METRICS_SETTLE: seconds until the metrics show what has happened. HEALTH: asks whether the engine lives while the
    server runs; None if no answer tells.
    """

    @property
    def FRAMEWORKS(self) -> tuple[str, ...]: ...
    @property
    def Options(self) -> type[KebabModel]: ...
    @property
    def SPANS(self) -> bool: ...
    @property
    def FATAL(self) -> tuple[str, ...]: ...
    @property
    def TRANSFER_ERRORS(self) -> tuple[str, ...]: ...
    @property
    def PROGRESS(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def START_TIMEOUT(self) -> int: ...
    @property
    def METRICS_SETTLE(self) -> float: ...
    @property
    def HEALTH(self) -> Check | None: ...
    @property
    def VERSIONS(self) -> tuple[str, ...]: ...

    def refusals(self, arm: Arm, options: Any) -> tuple[str, ...]:
        """Why this engine cannot serve the arm; empty if it can."""
        ...

    def served_name(self, arm: Arm) -> str:
        """The model name that requests carry."""
        ...

    def service(self, seat: Seat, placement: Placement, options: Any) -> Service: ...

    def readiness(self, seat: Seat, placement: Placement) -> tuple[Check, ...]: ...

    def parts(self, service: Service, arm: Arm) -> tuple[Part, ...]:
        """What of the image a server needs, without which it would start in vain."""
        ...

    def manual(self, service: Service) -> Help:
        """How the server's program is asked for its flags."""
        ...

    def counters(self, metrics: str) -> Counters: ...

    def prefix_cache(self, argv: Sequence[str]) -> bool:
        """Whether a server with this command line keeps a prefix cache."""
        ...

    def refreshed(self, metrics: str) -> float | None: ...

    def under_way(self, metrics: str) -> float | None:
        """Requests that the worker has taken and not finished; None if its metrics do not say."""
        ...

    def computing(self, metrics: str) -> float | None:
        """Those of them that are computed: they wait for no KV from elsewhere. None if the metrics do not say."""
        ...

    def prefill_request(self, model: str, prompt: str, max_tokens: int) -> dict[str, Any]: ...

    def decode_request(
        self, model: str, prompt: str, max_tokens: int, answer: Mapping[str, Any], info: Mapping[str, Any]
    ) -> dict[str, Any]: ...

    def informational(self, arm: Arm) -> Mapping[str, str]:
        """Declared values that reach no flag, with the reason."""
        ...

    def deviations(self, arm: Arm) -> tuple[str, ...]:
        """What differs from the public recipe on purpose."""
        ...


_ENGINES: tuple[Engine, ...] = (atom, vllm)


def frameworks() -> tuple[str, ...]:
    return tuple(sorted(name for engine in _ENGINES for name in engine.FRAMEWORKS))


def find(framework: str) -> Engine | None:
    return next((engine for engine in _ENGINES if framework in engine.FRAMEWORKS), None)


def engine_for(framework: str) -> Engine:
    """Raises PlanError for a framework that no engine serves."""
    if engine := find(framework):
        return engine
    raise PlanError(f"framework {framework} cannot be planned; engines are there for: {', '.join(frameworks())}")
