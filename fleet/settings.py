"""The operator's defaults: what stands under `fleet:` in invoke.yaml. The environment wins over it, flags over both."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, ValidationError

from fleet import sources
from fleet.errors import Fault, FileFaults, Gathering, shown
from fleet.model import schema
from fleet.model.base import Model
from fleet.model.near import did_you_mean, nearest

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
LONGEST = 30 * 24 * 3600.0
"""Seconds; what is longer is a slip of the finger."""


def duration(value: object) -> float:
    """Seconds from a positive number of seconds or a text such as "90s", "40m", "2h". Raises ValueError."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smh]?)", str(value).strip())
    if isinstance(value, bool) or not match or float(match[1]) == 0:
        raise ValueError("no duration; type seconds, or 90s, 40m, 2h")
    seconds = float(match[1]) * _UNITS[match[2]]
    if seconds > LONGEST:
        raise ValueError(f"longer than {LONGEST / 3600:.0f}h; type seconds, or 90s, 40m, 2h")
    return seconds


def _path(value: object) -> str:
    if not isinstance(value, str | Path) or not str(value).strip():
        raise ValueError("a path expected")
    return str(Path(value).expanduser())


Duration = Annotated[float, BeforeValidator(duration)]
Place = Annotated[Path, BeforeValidator(_path)]


class Timeouts(Model):
    """Seconds. connect: TCP, banner and login together. command: a short remote command.

    stage_within: one image or model to one host. proof_within: the first container of an image on a host, or its
    `--help`. ready_within: from the start of an arm's containers to the first
    completion of every pair. request_within: the least that one request of a load is given; more, where requests are
    slow. point_within: one point, warm-ups included. rest_within: from the end of a load that was cut short to servers
    with no request under way. stalled_after: silence of a starting server that uses no CPU.
    """

    connect: Duration = 10.0
    command: Duration = 30.0
    stage_within: Duration = 3600.0
    proof_within: Duration = 300.0
    ready_within: Duration = 2400.0
    request_within: Duration = 300.0
    point_within: Duration = 7200.0
    rest_within: Duration = 600.0
    stalled_after: Duration = 600.0

    def longest(self, images: int, arms: int, points: int) -> float:
        """Seconds that a sweep takes at most: every step as long as it may, and an hour for all else."""
        staging, starting = images * (self.stage_within + self.proof_within), arms * self.ready_within
        return staging + starting + points * (self.point_within + self.rest_within) + 3600.0


class Settings(Model):
    """Paths as one would type them where one stands; in invoke.yaml they are relative to the project's folder.

    full_hash: models are compared by every byte, not by samples.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    inventory: Place = Path("inventories/lab.yaml")
    recipes: Place = Path("recipes")
    results: Place = Path("results")
    full_hash: bool = False
    timeouts: Timeouts = Timeouts()


Nested = Mapping[str, Any]


def read(
    values: object,
    root: Path,
    *,
    inventory: str = "",
    variables: Mapping[str, str] | None = None,
    over: object = None,
    files: Sequence[Path] = (),
) -> Settings:
    """Settings from the `fleet:` mapping of all files together.

    inventory: the flag's value. variables: INVOKE_FLEET_…, which win over `values`. over: the mapping of the file that
    `-f` names, which wins over those. files: where the values are written, to name the lines. Raises FileFaults.
    """
    wrong = Gathering()
    for path in files:
        wrong.add(str(path), faults(path))
    wrong.add(sources.ENVIRONMENT, variable_faults(variables or {}))
    wrong.tell()
    settings = _settings(root, values, _nested(variables or {}), over or {})
    return Settings(
        inventory=Path(inventory).expanduser() if inventory else near(root / settings.inventory),
        recipes=near(root / settings.recipes),
        results=near(root / settings.results),
        full_hash=settings.full_hash,
        timeouts=settings.timeouts,
    )


def near(path: Path) -> Path:
    """A path as one would type it here: relative where it lies below the working directory."""
    try:
        here = Path.cwd()
    except FileNotFoundError:
        return path
    return path.relative_to(here) if path.is_relative_to(here) else path


def faults(path: Path) -> list[Fault]:
    """What is wrong below `fleet:` of a YAML file. Of one that cannot be read nothing is known."""
    try:
        found = sources.document(path)
    except FileFaults:
        return []
    if not found or not found.node(sources.OURS):
        return []
    return schema.check(found, (sources.OURS,), Settings)[1]


def variable_faults(variables: Mapping[str, str]) -> list[Fault]:
    """What is wrong with INVOKE_FLEET_… variables."""
    known = dict(_names(Settings))
    told = list(_unknown(variables, known))
    try:
        Settings.model_validate(_nested(variables))
    except ValidationError as error:
        names = {keys: name for name, keys in known.items()}
        for one in error.errors():
            name = names[tuple(map(str, one["loc"]))]
            told.append(f"{name}={shown(variables[name])}  {_said(one)}")
    return [Fault(0, text) for text in told]


def _unknown(variables: Mapping[str, str], known: Mapping[str, object]) -> Iterator[str]:
    for name, value in variables.items():
        below = [one for one in known if one.startswith(f"{name}_")]
        bare = {one.removeprefix(sources.PREFIX): one for one in known}
        near = nearest(name.removeprefix(sources.PREFIX), bare)
        if name not in known:
            there = f"did you mean {bare[near]}?" if near and not below else f"there are {', '.join(below or known)}"
            yield f"{shown(name)}  no such setting; {there}"
        elif not value.strip():
            yield f"{name}  is empty; is a shell variable not set?"


def _names(model: type[Model], *above: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each setting's variable, with its keys."""
    for name, info in model.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, Model):
            yield from _names(kind, *above, name)
        else:
            yield "_".join((sources.PREFIX, *above, name)).upper(), (*above, name)


def _nested(variables: Mapping[str, str]) -> dict[str, Any]:
    """The values of variables that name a setting, as a file would hold them."""
    found: dict[str, Any] = {}
    for name, keys in _names(Settings):
        if variables.get(name, "").strip():
            place = found
            for key in keys[:-1]:
                place = place.setdefault(key, {})
            place[keys[-1]] = variables[name]
    return found


def _settings(root: Path, *layers: object) -> Settings:
    """Mappings, the later over the earlier."""
    merged: dict[str, Any] = {}
    try:
        for layer in layers:
            merged = _merged(merged, layer)
        return Settings.model_validate(merged)
    except ValidationError as error:
        told = [_fault(list(map(str, one["loc"])), one) for one in error.errors()]
    except TypeError as error:
        told = [Fault(0, f"fleet: {shown(error)}  a mapping expected")]
    raise FileFaults(str(root / "invoke.yaml"), told)


def _merged(below: Nested, over: object) -> dict[str, Any]:
    """Raises TypeError where `over` is no mapping."""
    if not isinstance(over, Mapping):
        raise TypeError(over)
    both = [key for key, value in over.items() if isinstance(value, Mapping) and isinstance(below.get(key), Mapping)]
    return {**below, **over, **{key: _merged(below[key], over[key]) for key in both}}


def _fault(keys: list[str], told: Mapping[str, Any]) -> Fault:
    place = ".".join(["fleet", *keys])
    if told["type"] != "extra_forbidden":
        return Fault(0, f"{place}: {shown(told['input'])}  {_said(told)}")
    known = Timeouts.model_fields if keys[0] == "timeouts" else Settings.model_fields
    return Fault(0, f"{place}  unknown key{did_you_mean(keys[-1], known)}")


def _said(told: Mapping[str, Any]) -> str:
    return str(told["msg"]).removeprefix("Value error, ")
