"""A stream of bytes through a chain of hosts: each gives it to a command of its own and, meanwhile, to the next host.

The stream comes from a command on a host, or from this machine. Where a host may log in to the next one, bytes go that
way; where it may not, they come through this machine, which reads the stream once. A host that is slow, silent or gone
is taken out; those behind it are `cut off`, at once, and may be given the stream anew.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from fleet import awake
from fleet.errors import FleetError, HostError, shown
from fleet.hosts.base import Outcome
from fleet.session import Session
from fleet.stages.pipe import Broken, Pipe
from fleet.stages.relay import Hop, Lines, feed_argv, hang_up_argv, stop_argv
from fleet.stages.ways import Ways

LOOK = 0.1
"""Seconds between two looks at the hosts of a chain."""

SILENT = 5.0
"""Seconds without a word after which a host is given up: it says several times a second how far it is."""

PATIENCE = 15.0
"""Seconds in which one host may hold back the others."""

SLOWER = 5.0
"""Times: a host that takes the stream so much slower than it went before holds the others back."""

LEAST = 512 * 1024
"""Bytes between a host and the one before it: as many wait there only where that host does not take them. ssh and the
kernels hold some millions then.
"""

HANG_UP_SECONDS = 8.0
KEPT_LINES = 20

State = Literal["done", "failed", "slow", "cut off"]


@dataclass(frozen=True)
class Stop:
    """A host on the way, and the command there that reads the stream.

    start: the first byte that it wants; those behind it want no earlier one. The command may say, each on a line of its
    own, `@busy` and `@idle`: while it is busy nobody minds that it reads nothing.
    """

    host: str
    argv: tuple[str, ...]
    start: int = 0


@dataclass(frozen=True)
class Spring:
    """Where the stream begins: a command on a host or, where `host` is "", the chunks that this machine makes."""

    host: str = ""
    argv: tuple[str, ...] = ()
    chunks: Callable[[], Iterable[bytes]] = tuple


@dataclass(frozen=True)
class Arrival:
    """What came of it on one host. got: bytes, None where the host does not count. said: its command's last lines.

    done: the command ended with 0. failed: it did not though the stream came whole, or the host is lost: `error` tells.
    slow: taken out, as it held back the others. cut off: the stream ended early, and not because of this host.
    """

    host: str
    state: State
    got: int | None = None
    error: FleetError | None = None
    said: tuple[str, ...] = ()


@dataclass
class Leg:
    """A host while the stream is under way."""

    stop: Stop
    before: Leg | None
    hop: Hop | None = None
    pipe: Pipe | None = None
    got: int | None = 0
    heard: float = 0.0
    busy: bool = False
    code: int | None = None
    link: int | None = None
    said: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    ended: Future[Outcome] = field(default_factory=Future)
    arrival: Arrival | None = None
    past: deque[tuple[float, int]] = field(default_factory=deque)

    @property
    def host(self) -> str:
        return self.stop.host

    @property
    def at(self) -> int:
        """How far it is in the whole stream."""
        return self.stop.start + (self.got or 0)


class Chain:
    """One stream. `tell` hears how many bytes a host has, `line` what its command says, `settled` what came of it.

    within: seconds for all of it. patience: see PATIENCE.
    """

    def __init__(
        self,
        session: Session,
        ways: Ways,
        spring: Spring,
        stops: Sequence[Stop],
        *,
        within: float,
        tell: Callable[[str, int], object] = lambda host, got: None,
        line: Callable[[str, str], object] = lambda host, text: None,
        settled: Callable[[Arrival], object] = lambda arrival: None,
        patience: float = PATIENCE,
    ) -> None:
        self.session, self.ways, self.spring = session, ways, spring
        self.within, self.patience = within, patience
        self._tell, self._line, self._settled = tell, line, settled
        self._run = secrets.token_hex(4)
        self._lock = threading.Lock()
        self._made: Outcome | FleetError | None = None
        self._source_link: int | None = None
        self._source_at: int | None = 0
        self._source_ended: Future[Outcome] = Future()
        self._best = 0.0
        self._moved = awake.now()
        self._legs = self._joined(list(stops))

    def _joined(self, stops: list[Stop]) -> list[Leg]:
        """Legs in order; those that no host reaches are fed from here."""
        legs: list[Leg] = []
        for stop in stops:
            before = legs[-1] if legs else None
            hop = self.ways.hop(before.host, stop.host) if before else None
            if before and hop:
                before.hop = hop
            legs.append(Leg(stop, before if hop else None))
        heads = [leg for leg in legs if leg.before is None]
        self._first = self._from_source(heads)
        if not self._first:
            for leg in heads:
                leg.pipe = Pipe()
        return legs

    def _from_source(self, heads: list[Leg]) -> Hop | None:
        """The way from the host where the stream begins, where it goes to one host alone and needs no other way."""
        if not self.spring.host or len(heads) != 1:
            return None
        return self.ways.hop(self.spring.host, heads[0].host)

    @property
    def through_here(self) -> list[str]:
        """The hosts to which the stream goes through this machine."""
        return [leg.host for leg in self._legs if leg.pipe]

    # ------------------------------------------------------------------ the stream

    def run(self) -> dict[str, Arrival]:
        """Returns when it is known of every host what came of it. Raises the error of the host where it begins."""
        try:
            for leg in self._legs:
                leg.heard = awake.now()
                self._thread(f"stop-{leg.host}", self._receive, leg)
            self._thread("spring", self._pour)
            self._watch()
        except BaseException:
            self._give_up()
            raise
        arrivals = {leg.host: leg.arrival for leg in self._legs if leg.arrival}
        if isinstance(self._made, FleetError) and not any(one.state == "done" for one in arrivals.values()):
            raise self._made
        return arrivals

    def _thread(self, name: str, act: Callable[..., None], *args: object) -> None:
        threading.Thread(target=act, args=args, name=f"fleet-{name}", daemon=True).start()

    def _receive(self, leg: Leg) -> None:
        lines = Lines()
        skip = self._behind(leg).stop.start - leg.stop.start if leg.hop else 0
        argv = stop_argv(self.ways.folder, self._run, leg.stop.argv, hop=leg.hop, skip=skip, stdin=leg.pipe is not None)
        try:
            outcome = self.session.machine(leg.host).transport.stream(
                argv,
                timeout=self.within,
                source=leg.pipe,
                sink=lambda data: self._heard(leg, lines.of(data)),
                check=False,
            )
            leg.ended.set_result(outcome)
        except Broken:
            leg.ended.set_exception(HostError("the stream broke off", where=leg.host))
        except BaseException as problem:
            leg.ended.set_exception(problem)
        finally:
            if leg.pipe:
                leg.pipe.abandon()

    def _pour(self) -> None:
        try:
            if self._first:
                outcome = self._feed(self._first)
            elif self.spring.host:
                outcome = self._fetch()
            else:
                outcome = self._make()
            self._source_ended.set_result(outcome)
        except BaseException as problem:
            for leg in self._legs:
                if leg.pipe:
                    leg.pipe.fail()
            self._source_ended.set_exception(problem)

    def _feed(self, hop: Hop) -> Outcome:
        lines = Lines()
        machine = self.session.machine(self.spring.host)
        argv = feed_argv(self.ways.folder, self._run, self.spring.argv, hop)
        sink = lambda data: self._source_heard(lines.of(data))  # noqa: E731
        return machine.transport.stream(argv, timeout=self.within, sink=sink, check=False)

    def _fetch(self) -> Outcome:
        machine = self.session.machine(self.spring.host)
        outcome = machine.transport.stream(self.spring.argv, timeout=self.within, sink=self._give, check=True)
        self._end()
        return outcome

    def _make(self) -> Outcome:
        for chunk in self.spring.chunks():
            self._give(chunk)
        self._end()
        return Outcome("", (), 0, b"", b"", 0.0)

    def _give(self, chunk: bytes) -> None:
        """One chunk to all that are fed from here. Raises Broken when nobody is left."""
        assert self._source_at is not None
        at, self._source_at = self._source_at, self._source_at + len(chunk)
        left = False
        for leg in self._legs:
            if leg.pipe and leg.arrival is None:
                with suppress(Broken):
                    if wanted := chunk[max(0, leg.stop.start - at) :]:
                        leg.pipe.put(wanted)
                    left = True
        if not left:
            raise Broken("nobody takes the stream any more")

    def _end(self) -> None:
        for leg in self._legs:
            if leg.pipe:
                with suppress(Broken):
                    leg.pipe.end()

    # ------------------------------------------------------------------ what hosts say

    def _heard(self, leg: Leg, lines: Iterable[str]) -> None:
        for text in lines:
            leg.heard = awake.now()
            word, _, rest = text.partition(" ")
            if word == "@got":
                self._count(leg, rest)
            elif word in ("@busy", "@idle"):
                leg.busy = word == "@busy"
                self._moved = awake.now()
            elif word == "@done":
                leg.code, leg.busy = number(rest), False
            elif word == "@link":
                leg.link = number(rest)
            elif word == "@said":
                leg.said.append(shown(rest))
            else:
                leg.said.append(shown(text))
                self._line(leg.host, text)

    def _count(self, leg: Leg, text: str) -> None:
        got = number(text)
        if got is None:
            leg.got = leg.got or None
            return
        if got > (leg.got or 0):
            self._moved = awake.now()
            leg.got = got
            self._tell(leg.host, got)

    def _source_heard(self, lines: Iterable[str]) -> None:
        for text in lines:
            word, _, rest = text.partition(" ")
            if word == "@got":
                self._source_at = number(rest) if rest != "-" else self._source_at
            elif word == "@link":
                self._source_link = number(rest)

    # ------------------------------------------------------------------ who is through, and who holds the others back

    def _watch(self) -> None:
        deadline = awake.now() + self.within
        patience = threading.Event()
        while unsettled := [leg for leg in self._legs if leg.arrival is None]:
            self.session.go_on()
            self._source()
            for leg in unsettled:
                self._look(leg)
            self._slowest()
            if awake.now() > deadline:
                for leg in unsettled:
                    self._take_out(leg, "failed", f"not through after {self.within:g} s")
            patience.wait(LOOK)

    def _source(self) -> None:
        """Whether the stream has ended where it begins, and how."""
        if self._made is not None or not self._source_ended.done():
            return
        try:
            made = self._source_ended.result()
        except FleetError as problem:
            self._made = problem
        except Broken:
            self._made = Outcome(self.spring.host, self.spring.argv, 1, b"", b"", 0.0)
        else:
            self._made = made
        if isinstance(self._made, FleetError) or (self._made.code and self._source_link in (0, None)):
            if not isinstance(self._made, FleetError):
                self._made = failed(self.spring.host, self._made, self._made.err.splitlines())
            for leg in self._legs:
                if leg.arrival is None:
                    self._take_out(leg, "cut off", "")

    def _look(self, leg: Leg) -> None:
        if leg.arrival is not None:
            return
        if leg.ended.done():
            self._settle(leg)
        elif awake.now() - leg.heard > SILENT and awake.since() > SILENT:
            self.ways.given_up.add(leg.host)
            self._take_out(leg, "failed", f"no answer for {SILENT:g} s while the stream was under way: lost")

    def _settle(self, leg: Leg) -> None:
        """A host whose script has ended."""
        try:
            outcome = leg.ended.result()
        except FleetError as problem:
            self._conclude(leg, "failed" if self._whole(leg) is not False else "cut off", problem)
            return
        if outcome.ok:
            self._conclude(leg, "done")
            return
        whole = self._whole(leg)
        if whole is not None:
            self._conclude(leg, "failed" if whole else "cut off", failed(leg.host, outcome, leg.said))

    def _whole(self, leg: Leg) -> bool | None:
        """Whether the stream came whole to a host, as far as those before it know; None until they do."""
        if leg.pipe:
            return None if self._made is None else not isinstance(self._made, FleetError) and self._made.ok
        if leg.before is None:
            ended = self._made
            if ended is None:
                return None
            return not isinstance(ended, FleetError) and ended.ok and self._source_link == 0
        if leg.before.link is None and not leg.before.ended.done():
            return None
        return leg.before.link == 0 and self._whole(leg.before)

    def _conclude(self, leg: Leg, state: State, error: FleetError | None = None) -> None:
        leg.arrival = Arrival(leg.host, state, leg.got, None if state == "done" else error, tuple(leg.said))
        self._moved = awake.now()
        self._settled(leg.arrival)

    def _slowest(self) -> None:
        """Take out the host that has held back the others for as long as may be."""
        now = awake.now()
        under_way = [leg for leg in self._legs if leg.arrival is None and leg.code is None]
        for leg in under_way:
            if leg.got is None:
                return
            leg.past.append((now, leg.at))
            while now - leg.past[0][0] > self.patience:
                leg.past.popleft()
            self._best = max(self._best, rate(leg.past, self.patience / 5))
        if len(under_way) < 2 or any(leg.busy for leg in under_way):
            self._moved = now
            for leg in under_way:
                leg.past.clear()
            return
        # Before the one that does not take it, all that can hold bytes is full; behind it, all is empty.
        full = [leg for leg in under_way if self._ahead(leg) - leg.at > LEAST]
        if not full or now - full[-1].past[0][0] < 0.9 * self.patience:
            return
        worst = full[-1]
        slow = rate(worst.past, 0)
        if now - self._moved > self.patience or self._best > SLOWER * slow:
            told = f"{slow / 1e6:.1f} MB/s where {self._best / 1e6:.1f} MB/s went before"
            self._take_out(worst, "slow", f"held back the others: {told}")

    def _ahead(self, leg: Leg) -> int:
        """How far the stream is before it came to a host."""
        if leg.before:
            return leg.before.at
        if leg.pipe:
            return leg.stop.start + leg.pipe.sent
        return self._source_at or 0

    # ------------------------------------------------------------------ ends

    def _take_out(self, leg: Leg, state: State, why: str) -> None:
        """A host is over; so is the stream for all that it feeds."""
        error = HostError(why, where=leg.host) if why else None
        behind = list(self._fed_by(leg))
        self._conclude(leg, state, error)
        for one in behind:
            if one.arrival is None:
                self._conclude(one, "cut off")
        self._cut(leg)
        for one in [leg, *behind]:
            self._hang_up(one.host, "pid")

    def _cut(self, leg: Leg) -> None:
        """Whoever feeds it feeds it no more."""
        if leg.pipe:
            leg.pipe.fail()
            leg.pipe.abandon()
        elif leg.before:
            self._hang_up(leg.before.host, "link")
        elif self.spring.host:
            self._hang_up(self.spring.host, "link")

    def _hang_up(self, host: str, which: str) -> None:
        """End a script, or its way to the next host. Nobody waits for it: the host may be gone."""

        def act() -> None:
            with suppress(FleetError):
                argv = hang_up_argv(self.ways.folder, self._run, which)
                self.session.machine(host).run(argv, timeout=HANG_UP_SECONDS, check=False)

        self._thread(f"hang-up-{host}", act)

    def _fed_by(self, leg: Leg) -> Iterator[Leg]:
        """All that the stream reaches through a host, in order."""
        for one in self._legs:
            if one.before is leg:
                yield one
                yield from self._fed_by(one)

    def _behind(self, leg: Leg) -> Leg:
        return next(one for one in self._legs if one.before is leg)

    def _give_up(self) -> None:
        """After ^C or a fault: end all that is under way, here and there."""
        hosts = [leg.host for leg in self._legs if not leg.ended.done()]
        for leg in self._legs:
            if leg.pipe:
                leg.pipe.fail()
                leg.pipe.abandon()
        for host in dict.fromkeys([*hosts, *([self.spring.host] if self.spring.host else [])]):
            self.session.machine(host).transport.cancel()


def number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def rate(past: Sequence[tuple[float, int]], least: float) -> float:
    """Bytes a second over all that is remembered; 0 where that is less than `least` seconds."""
    if len(past) < 2 or past[-1][0] - past[0][0] <= least:
        return 0.0
    return (past[-1][1] - past[0][1]) / (past[-1][0] - past[0][0])


def failed(host: str, outcome: Outcome, said: Iterable[str]) -> HostError:
    """What a command left, in its own words."""
    words = [line for line in said if line.strip()][-5:]
    told = [f"ended with code {outcome.code}", *(f"  {shown(line)}" for line in words)]
    return HostError("\n".join(told), where=host)
