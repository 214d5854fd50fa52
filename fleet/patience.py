"""How long one request may take before the load it belongs to is given up: from its length and the slowest so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleet.words import counted

TOKEN = 0.5
"""Seconds for each token of an answer while none has come yet: ten times slower than anyone would publish."""

TIMES = 3
"""How many times as long as the slowest so far a request may take."""


@dataclass
class Patience:
    """A load's requests, by the count of those that have finished.

    total: requests of the load. conc: how many are under way at once. osl: tokens of the longest answer.
    floor: seconds that every request may take, whatever was seen. Times are seconds from any beginning, on one clock.
    """

    total: int
    conc: int
    osl: int
    floor: float
    moves: list[tuple[float, int]] = field(default_factory=list)
    news: float = 0.0
    slowest: float | None = None

    def see(self, now: float, finished: float | None) -> None:
        """Look at the count. None: it cannot be read, and then nobody waits in vain for what may well be coming."""
        done = self.done if finished is None else max(self.done, int(finished))
        if finished is None or done > self.done or not self.moves:
            self.news = now
        if done > self.done and self.moves:
            self.slowest = max(self.slowest or 0.0, now - self._began(done))
        if done > self.done or not self.moves:
            self.moves.append((now, done))

    @property
    def limit(self) -> float:
        """Seconds without a finished request after which the load is given up."""
        if self.slowest is None:
            return self.floor + TOKEN * self.osl
        return max(self.floor, TIMES * self.slowest)

    def lost(self, now: float) -> str:
        """Why the load is given up; "" while it is not."""
        quiet = now - self.news
        if quiet < self.limit:
            return ""
        return f"{self._left()}: nothing has moved for {quiet:.0f} s, where {self._why()}"

    @property
    def done(self) -> int:
        """Requests that have finished, as last seen."""
        return self.moves[-1][1] if self.moves else 0

    def _left(self) -> str:
        left = self.total - self.done
        if left <= 0:
            return f"{counted(self.total, 'request')} served and the client does not end"
        return f"{left} of {counted(self.total, 'request')} not done"

    def _began(self, number: int) -> float:
        """Of `conc` under way at once, the one that finishes as this number began when number - conc had finished."""
        earlier = [when for when, count in self.moves if count <= max(0, number - self.conc)]
        return max(earlier, default=self.moves[0][0])

    def _why(self) -> str:
        if self.slowest is None:
            return f"an answer of {self.osl} tokens is given {self.limit:.0f} s at the beginning"
        if self.limit > self.floor:
            return f"the slowest so far took {self.slowest:.1f} s and one may take {TIMES} times as long"
        given = f"one may take {self.floor:.0f} s (timeouts.request_within)"
        return f"{given} and the slowest so far took {self.slowest:.1f} s"


ERRORS = 3
"""Failed KV transfers, and requests that got lost with them, from which on they explain a decode worker at rest."""

HUNGRY = 15.0
"""Seconds at rest after which they do: a single failure is tried again, and counters show what moves after seconds."""


@dataclass
class Hunger:
    """A decode worker during a load. since: when it last worked on a request or had finished one more, by the clock of
    whoever looks; errors: failed KV transfers that had surely been logged by then, by anyone: at the look before. last:
    those of the latest look, which may be later than what it saw finish.
    """

    seat: str
    last: int
    since: float | None = None
    finished: float | None = None
    errors: int = 0

    def see(self, now: float, finished: float | None, computing: float | None, errors: int) -> None:
        """None: cannot be read, and then nobody says that it is at rest."""
        unknown = finished is None or computing is None
        if self.since is None or unknown or computing or finished != self.finished:
            self.since, self.finished, self.errors = now, finished, self.last
        self.last = errors

    def starved(self, now: float, errors: int, lost: float, limit: float) -> str:
        """Why the load is given up; "" while it is not.

        lost: requests that prefill has finished and no decode worker has taken up. limit: seconds that a request may
        take.
        """
        quiet, failed = now - (now if self.since is None else self.since), errors - self.errors
        explained = failed >= ERRORS and lost >= ERRORS and quiet >= HUNGRY
        if not explained and (lost < (1 if failed else ERRORS) or quiet < limit):
            return ""  # a single request may hang for its own reasons
        handed = counted(lost, "request")
        why = counted(failed, "transfer error") if failed else f"{handed} handed over"
        return f"{self.seat} gets no KV: {why}, none finished for {quiet:.0f} s"
