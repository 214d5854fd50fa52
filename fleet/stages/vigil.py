"""What the watcher of an arm has found out: written by its threads, read by whoever waits for something."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.docker import Event


@dataclass
class Vigil:
    """Empty, and `kept` False, while nobody watches.

    ids: of the arm's containers that were started or adopted, by host and name: of others that had their names before,
    an engine may still tell. told: the last thing that docker told of a container, by host and id. lost: why a host
    counts as lost. engines: what the Docker engine of a host said when it went. following: hosts whose events are being
    read. answered: when a host last answered, by our monotonic clock.
    """

    kept: bool = False
    ids: dict[tuple[str, str], str] = field(default_factory=dict)
    told: dict[tuple[str, str], Event] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    engines: dict[str, str] = field(default_factory=dict)
    following: set[str] = field(default_factory=set)
    answered: dict[str, float] = field(default_factory=dict)
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

    def cleared(self, keys: Mapping[tuple[str, str], Event]) -> None:
        """What was told of these containers turned out to be no end."""
        for key, event in keys.items():
            if self.told.get(key) is event:
                del self.told[key]
