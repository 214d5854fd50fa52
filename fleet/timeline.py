"""Logs of several containers on one timeline. Nothing here reads a clock or a stream: all of it can be tried out."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

NEVER = float("-inf")
KNOWN_FOR = 60.0
"""Seconds after which a measured clock offset is taken anew, exact or not: clocks drift."""

_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")
_UNSEEN = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Line:
    """A line of a source. time: seconds since 1970, corrected for the host's clock; note: fleet's own word of it."""

    time: float
    source: str
    host: str
    seat: str
    text: str
    note: bool = False


@dataclass(frozen=True)
class Arrival:
    """When a line came, in seconds since 1970 of a clock that never jumps; without a line: none came until then."""

    at: float
    line: Line | None = None


@dataclass(frozen=True)
class Told:
    """A line in its turn. late: by how many seconds lines that were told before it are younger."""

    line: Line
    late: float = 0.0


def merged(arrivals: Iterable[Arrival], window: float) -> Iterator[Told]:
    """The lines in the order of their times. Each is held back for `window` seconds after it came, in case an earlier
    one of another host is still on its way; one that comes later than that is told at once, as late.

    Lines of one source keep their order whatever their times say, and no line is younger than its arrival. Equal times
    are told in the order of arrival. What is held at the end of the arrivals is told then.
    """
    held: list[tuple[float, int, Line]] = []
    waiting: deque[tuple[float, float]] = deque()
    latest: dict[str, float] = {}
    due, told = NEVER, NEVER
    for number, arrival in enumerate(arrivals):
        if line := arrival.line:
            time = max(min(line.time, arrival.at), latest.get(line.source, NEVER))
            latest[line.source] = time
            heappush(held, (time, number, line))
            waiting.append((arrival.at, time))
        while waiting and waiting[0][0] + window <= arrival.at:
            due = max(due, waiting.popleft()[1])
        while held and held[0][0] <= due:
            time, _, line = heappop(held)
            yield Told(line, max(0.0, told - time))
            told = max(told, time)
    for time, _, line in sorted(held):
        yield Told(line, max(0.0, told - time))
        told = max(told, time)


@dataclass(frozen=True)
class Offset:
    """How many seconds a host's clock is ahead, by how much that may be wrong, and when it was measured."""

    seconds: float
    doubt: float
    at: float


def settled(known: Offset | None, measured: Offset) -> Offset:
    """The more exact of two measurements; the new one where the other is old, or they contradict each other."""
    if known is None or measured.at - known.at > KNOWN_FOR or measured.doubt <= known.doubt:
        return measured
    apart = abs(measured.seconds - known.seconds)
    return measured if apart > measured.doubt + known.doubt else known


class Reader:
    """What `docker logs --timestamps` says of one container, as it comes, over as many streams as it takes.

    last: docker's time of the youngest line, the `--since` of the next stream. said: docker's own last word, if any.
    """

    def __init__(self) -> None:
        self.last = ""
        self.said = ""
        self._bearing_last = 0
        self._known = 0
        self._rest = b""

    def again(self) -> None:
        """A new stream begins. Docker repeats the lines of the time `last`; half a line of the old stream is void."""
        self._known, self._rest, self.said = self._bearing_last, b"", ""

    def feed(self, data: bytes) -> list[tuple[str, str]]:
        """Docker's time and the text of every line that is complete now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [found for line in lines if (found := self._line(line))]

    def end(self) -> list[tuple[str, str]]:
        """The last line, where it does not end as a line."""
        rest, self._rest = self._rest, b""
        found = self._line(rest) if rest else None
        return [found] if found else []

    def _line(self, line: bytes) -> tuple[str, str] | None:
        time, _, text = line.partition(b" ")
        if not _TIME.match(time):
            self.said = line.decode(errors="replace").strip() or self.said
            return None
        when = time.decode()
        if when == self.last and self._known:
            self._known -= 1
            return None
        if when >= self.last:
            self._bearing_last = self._bearing_last + 1 if when == self.last else 1
            self.last = when
        return when, seen(text.decode(errors="replace"))


def seen(text: str) -> str:
    """What a terminal would show of a line: of a progress bar its last state, and no colours or other controls."""
    return _UNSEEN.sub("", text.rstrip("\r").rpartition("\r")[2])
