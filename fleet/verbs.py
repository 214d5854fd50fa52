"""What each verb of the command line does: one function a verb, the same ones that the console offers.

Each returns an exit code (None is 0) or raises a FleetError. `settings` carries the inventory to use.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleet.errors import FleetError
from fleet.settings import Settings

_NOT_BUILT = "not built yet"


def plan(
    settings: Settings,
    *,
    config: str,
    arm: str = "",
    conc: Sequence[int] = (),
    limit: Sequence[str] = (),
    trial: bool = False,
    json: bool = False,
) -> int | None:
    raise FleetError(_NOT_BUILT)


def sweep(
    settings: Settings,
    *,
    config: str,
    arm: str = "",
    conc: Sequence[int] = (),
    limit: Sequence[str] = (),
    trial: bool = False,
    fail_fast: bool = False,
    keep_going: bool = False,
    json: bool = False,
) -> int | None:
    raise FleetError(_NOT_BUILT)


def health(settings: Settings, *, config: str = "", limit: Sequence[str] = (), json: bool = False) -> int | None:
    raise FleetError(_NOT_BUILT)


def ps(settings: Settings, *, limit: Sequence[str] = (), json: bool = False) -> int | None:
    raise FleetError(_NOT_BUILT)


def logs(settings: Settings, *, run: str = "", host: str = "", role: str = "", tail: int = 100) -> int | None:
    raise FleetError(_NOT_BUILT)


def down(settings: Settings, *, run: str = "", limit: Sequence[str] = (), config: str = "") -> int | None:
    raise FleetError(_NOT_BUILT)


def stage(settings: Settings, *, config: str, limit: Sequence[str] = ()) -> int | None:
    raise FleetError(_NOT_BUILT)


def shell(settings: Settings, *, config: str = "") -> int | None:
    raise FleetError(_NOT_BUILT)


def expand(
    settings: Settings, *, config: str, master: str = "", evals: str = "default", json: bool = False
) -> int | None:
    raise FleetError(_NOT_BUILT)


def lab_install(settings: Settings) -> int | None:
    raise FleetError(_NOT_BUILT)


def lab_up(settings: Settings, *, nodes: int = 3) -> int | None:
    raise FleetError(_NOT_BUILT)


def lab_down(settings: Settings) -> int | None:
    raise FleetError(_NOT_BUILT)


def lab_status(settings: Settings, *, json: bool = False) -> int | None:
    raise FleetError(_NOT_BUILT)
