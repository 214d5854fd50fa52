"""The operator's defaults: what stands under `fleet:` in invoke.yaml. A flag of a verb wins over it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, ValidationError

from fleet.errors import Fault, FileFaults
from fleet.model.base import Model
from fleet.model.near import did_you_mean

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration(value: object) -> float:
    """Seconds from a positive number of seconds or a text such as "90s", "40m", "2h". Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", str(value).strip())
    if isinstance(value, bool) or not match or float(match[1]) == 0:
        raise ValueError("no duration; type seconds, or 90s, 40m, 2h")
    return float(match[1]) * _UNITS[match[2]]


Duration = Annotated[float, BeforeValidator(duration)]


class Timeouts(Model):
    """Seconds. connect: TCP, banner and login together. command: a short remote command.

    stage_within: one image or model to one host. ready_within: from the start of an arm's containers to the first
    completion of every pair. point_within: one point, warm-ups included. rest_within: from the end of a load that was
    cut short to servers with no request under way.
    """

    connect: Duration = 10.0
    command: Duration = 30.0
    stage_within: Duration = 3600.0
    ready_within: Duration = 2400.0
    point_within: Duration = 7200.0
    rest_within: Duration = 600.0


class Settings(Model):
    """Paths as one would type them where one stands; in invoke.yaml they are relative to the project's folder."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    inventory: Path = Path("inventories/lab.yaml")
    recipes: Path = Path("recipes")
    results: Path = Path("results")
    timeouts: Timeouts = Timeouts()


def read(values: object, root: Path, *, inventory: str = "") -> Settings:
    """Settings from the `fleet:` mapping. `inventory` is the flag's value. Raises FileFaults with every bad key."""
    if not isinstance(values, Mapping):
        raise FileFaults(str(root / "invoke.yaml"), [Fault(0, f"fleet: {values}  a mapping expected")])
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        faults = [_fault(list(map(str, told["loc"])), told) for told in error.errors()]
        raise FileFaults(str(root / "invoke.yaml"), faults) from None
    return Settings(
        inventory=Path(inventory) if inventory else near(root / settings.inventory),
        recipes=near(root / settings.recipes),
        results=near(root / settings.results),
        timeouts=settings.timeouts,
    )


def near(path: Path) -> Path:
    """A path as one would type it here: relative where it lies below the working directory."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _fault(keys: list[str], told: Mapping[str, Any]) -> Fault:
    place = ".".join(["fleet", *keys])
    if told["type"] != "extra_forbidden":
        return Fault(0, f"{place}: {told['input']}  {str(told['msg']).removeprefix('Value error, ')}")
    known = Timeouts.model_fields if keys[0] == "timeouts" else Settings.model_fields
    return Fault(0, f"{place}  unknown key{did_you_mean(keys[-1], known)}")
