"""What the doing rooms tell while they work. `fleet.ui` shows it; tests and scripts may listen with their own."""

from __future__ import annotations

from typing import Protocol

from fleet.results.record import Record


class Progress(Protocol):
    """Safe to call from several threads."""

    def line(self, text: str) -> None:
        """One event, kept on the screen."""
        ...

    def host(self, stage: str, host: str, text: str, *, done: bool = False) -> None:
        """What a stage does on a host now; with `done`, what came of it."""
        ...

    def moved(self, stage: str, host: str, done: int, total: int, rate: float) -> None:
        """Bytes that have come to a host, of how many, and how many come a second now; 0 while that is not known."""
        ...

    def requests(self, what: str, finished: float, total: int) -> None:
        """Requests of an arm's points that have finished, warm-ups included; `what` names the point that runs."""
        ...

    def record(self, record: Record) -> None:
        """A point has ended and is on disk."""
        ...

    def clear(self) -> None:
        """Nothing is under way on any host now."""
        ...

    def close(self) -> None: ...


class Silent:
    """Shows nothing."""

    def line(self, text: str) -> None:
        pass

    def host(self, stage: str, host: str, text: str, *, done: bool = False) -> None:
        pass

    def moved(self, stage: str, host: str, done: int, total: int, rate: float) -> None:
        pass

    def requests(self, what: str, finished: float, total: int) -> None:
        pass

    def record(self, record: Record) -> None:
        pass

    def clear(self) -> None:
        pass

    def close(self) -> None:
        pass
