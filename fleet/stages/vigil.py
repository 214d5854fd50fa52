"""What the watcher of an arm has found out: written by its threads, read by whoever waits for something."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from fleet.docker import Event


@dataclass
class Vigil:
    """Empty, and `kept` False, while nobody watches.

    ids: of the arm's containers that were started or adopted, by host and name: of others that had their names before,
    an engine may still tell. told: the last thing that docker told of a container, by host and id. lost: why a host
    counts as lost. engines: what the Docker engine of a host said when it went. following: hosts whose events are being
    read. answered: when a host last answered, by our monotonic clock.

    serving: since when the arm is ready, Unix seconds. loaded: whether a load runs. dead: why the engine of a seat is
    dead although its container runs, and since when. looked: when all engines were last looked at, seconds awake;
    doubts: at how many something was amiss then. transfers: lines about failed KV transfers that all services logged
    since the arm is ready.
    """

    kept: bool = False
    ids: dict[tuple[str, str], str] = field(default_factory=dict)
    told: dict[tuple[str, str], Event] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    engines: dict[str, str] = field(default_factory=dict)
    following: set[str] = field(default_factory=set)
    answered: dict[str, float] = field(default_factory=dict)
    serving: float | None = None
    loaded: bool = False
    dead: dict[str, tuple[str, datetime | None]] = field(default_factory=dict)
    looked: float = 0.0
    doubts: int = 0
    transfers: int = 0
    news: threading.Event = field(default_factory=threading.Event)

    def hear(self, host: str, event: Event) -> None:
        """An end is not forgotten for the removal that comes after it."""
        key = host, event.container.id
        if event.action != "destroy" or key not in self.told:
            self.told[key] = event
        self.news.set()

    def heard(self, host: str, name: str) -> Event | None:
        """The last thing that docker told of the container that has this name now."""
        return self.told.get((host, self.ids.get((host, name), "")))

    def note(self, book: dict[str, str], host: str, why: str) -> None:
        book.setdefault(host, why)
        self.news.set()

    def find(self, seat: str, why: str, since: datetime | None) -> None:
        self.dead.setdefault(seat, (why, since))
        self.news.set()

    def cleared(self, keys: Mapping[tuple[str, str], Event]) -> None:
        """What was told of these containers turned out to be no end."""
        for key, event in keys.items():
            if self.told.get(key) is event:
                del self.told[key]
