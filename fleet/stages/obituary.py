"""What an arm's logs say of its end, once they are home: the cause first, then at most a line of each other service."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fleet.model.service import Service
from fleet.stages.deployment import Deployment, spoken
from fleet.stages.watch import Death
from fleet.timeline import seen

CAUSE_WIDTH = 160
CONSEQUENCE_WIDTH = 80


@dataclass(frozen=True)
class Said:
    """What one service has to say. `time`: UTC, by our clock; None if the line does not tell."""

    service: Service
    time: datetime | None
    text: str
    mark: str = ""

    def __str__(self) -> str:
        clock = f"{self.time:%H:%M:%S}.{self.time.microsecond // 1000:03}" if self.time else " " * 12
        return f"  {clock}  {spoken(self.service)}   {self.text}" + (f"   ← {self.mark}" if self.mark else "")


def lines(deployment: Deployment, deaths: Sequence[Death]) -> list[str]:
    """deaths: in the order in which the services ended; empty if none did, then the first fatal line is the cause."""
    fatal = {said.service.name: said for said in _fatal_lines(deployment)}
    first = deaths[0].service.name if deaths else next(iter(fatal), "")
    cause = _cause(deployment, deaths, fatal.get(first))
    others = [said for said in _consequences(deaths, fatal) if said.service.name != first]
    return [*map(str, cause), *map(str, sorted(others, key=_when))]


def _cause(deployment: Deployment, deaths: Sequence[Death], fatal: Said | None) -> Iterator[Said]:
    """The fatal line of what ended first; where it logged none, the last thing that it said."""
    if fatal:
        yield Said(fatal.service, fatal.time, _cut(fatal.text, CAUSE_WIDTH), "first fatal line")
    elif deaths and (last := _last_line(deployment, deaths[0].service)):
        yield Said(last.service, last.time, _cut(last.text, CAUSE_WIDTH), "its last line")


def _consequences(deaths: Sequence[Death], fatal: dict[str, Said]) -> Iterator[Said]:
    ended = {death.service.name: death for death in deaths}
    for name in dict.fromkeys([*ended, *fatal]):
        death, said = ended.get(name), fatal.get(name)
        if said:
            end = f"{death.end}: " if death else ""
            yield Said(said.service, said.time, _cut(end + said.text, CONSEQUENCE_WIDTH))
        elif death:
            yield Said(death.service, death.ended, death.end)


def _fatal_lines(deployment: Deployment) -> list[Said]:
    """The first line of each log that an engine or router calls fatal, earliest first."""
    found = [_first_fatal(deployment, one) for one in deployment.services]
    return sorted((said for said in found if said), key=_when)


def _first_fatal(deployment: Deployment, service: Service) -> Said | None:
    fatal: re.Pattern[str] = deployment.fatal(service)
    return next((said for said in _log(deployment, service) if fatal.search(said.text)), None)


def _last_line(deployment: Deployment, service: Service) -> Said | None:
    last = None
    for said in _log(deployment, service):
        last = said if said.text else last
    return last


def _log(deployment: Deployment, service: Service) -> Iterator[Said]:
    path: Path = deployment.folder.log(deployment.arm.arm.name, service.name)
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            time, _, text = line.rstrip("\n").partition(" ")
            yield Said(service, deployment.moment(service.host, time), seen(text).strip())


def _when(said: Said) -> datetime:
    return said.time or datetime.max.replace(tzinfo=UTC)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
