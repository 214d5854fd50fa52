"""The logs of a run's containers as they are written, on one timeline, for as long as any of them runs."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import get_args

from fleet import docker
from fleet.docker import Container, Event, State
from fleet.errors import CommandFailed, CommandTimeout, FleetError, HostError, Interrupted, UsageError, shown
from fleet.hosts.base import GRACE
from fleet.model.arm import Role
from fleet.model.near import did_you_mean
from fleet.session import Machine, Session, together
from fleet.stages import collect, preflight, secret
from fleet.stages.health import seat_of
from fleet.stages.teardown import ours
from fleet.timeline import Arrival, Line, Offset, Reader, Told, merged, settled
from fleet.words import counted

WINDOW = 0.5
"""Seconds a line is held back, in case an earlier one of another host is still on its way."""

TURN = 5.0
"""Seconds between two looks at a host: its clock, its containers, whether it still answers."""

LINGER = 15.0
"""Seconds without a running container after which the run counts as over: the next arm may be about to start."""

STREAM_SECONDS = 600.0
"""For one stream of a log; the next one takes it up where it ended."""

ANSWER_SECONDS = 5.0
"""For a host's answer to a short question."""

DEATH_SECONDS = 2.0
"""How long the news of a death may come after the end of the log."""

FAR = 0.1
"""Seconds of a clock's offset that are worth a word."""

TICK = 0.1
MOST = 10_000
"""Lines that wait to be told; a faster log waits on its host."""


@dataclass(frozen=True)
class Look:
    """One host at the beginning: its clock, our containers on it, and when that was by its clock."""

    offset: Offset
    containers: tuple[Container, ...]
    there: float


def look(session: Session) -> dict[str, Look | FleetError]:
    """All hosts of the session at once."""

    def act(machine: Machine) -> Look:
        _measured(machine)  # the first command opens the connection
        offset = _measured(machine)
        return Look(offset, tuple(ours(machine)), time.time() + offset.seconds)

    return session.each(session.names, act, timeout=session.settings.timeouts.connect + ANSWER_SECONDS)


def _measured(machine: Machine) -> Offset:
    seconds, took = preflight.clock(machine, timeout=ANSWER_SECONDS)
    if seconds is None:
        raise HostError("its clock cannot be read", where=machine.name)
    return Offset(seconds, took / 2, time.monotonic())


def chosen(found: Mapping[str, Look | FleetError], asked: str) -> str:
    """The one run that is under way, its name beginning with `asked`. Raises UsageError, or the hosts' errors."""
    looks = [one for one in found.values() if isinstance(one, Look)]
    running = [one.labels for look in looks for one in look.containers if one.state in ("running", "paused")]
    runs = {labels["run"]: labels.get("owner", "?") for labels in running if labels["run"].startswith(asked)}
    if asked in runs or len(runs) == 1:
        return asked if asked in runs else next(iter(runs))
    if runs:
        told = ", ".join(f"{run} of {whose}" for run, whose in sorted(runs.items()))
        raise UsageError(
            f"{counted(len(runs), 'run')} are under way: {told}", hint=f"type: invoke logs --follow --run {max(runs)}"
        )
    if errors := [one for one in found.values() if isinstance(one, FleetError)]:
        raise together(errors)
    what = f"no running container of run {shown(asked)}" if asked else "nothing of ours runs"
    raise UsageError(f"{what} on {', '.join(found)}", hint="what is kept of runs that are over: invoke logs")


def check_role(role: str, found: Mapping[str, Look | FleetError], run: str) -> None:
    """Raises UsageError for a word that is no role and no seat that this run could have."""
    roles = list(get_args(Role))
    if role and role.rstrip("0123456789.") not in roles:
        there = [one for look in found.values() if isinstance(look, Look) for one in look.containers]
        seats = sorted({seat_of(one) for one in there if one.labels["run"] == run})
        near = did_you_mean(role, [*seats, *roles])
        raise UsageError(f"--role {shown(role)}: no such role or seat{near}", hint=f"there are: {', '.join(seats)}")


@dataclass
class Source:
    """A container of the run. shown: its log is wanted; death: what docker told of its end; trouble: why its log does
    not come, as it was told last."""

    container: Container
    host: str
    shown: bool
    reader: Reader = field(default_factory=Reader)
    tail: int | None = None
    reading: bool = False
    ended: bool = False
    death: Event | None = None
    died: threading.Event = field(default_factory=threading.Event)
    trouble: str = ""

    @property
    def seat(self) -> str:
        return seat_of(self.container)


class Follow:
    """Follows a run while the block runs. A thread for each host looks after it, a thread for each log reads it."""

    def __init__(
        self,
        session: Session,
        run: str,
        found: Mapping[str, Look | FleetError],
        *,
        wanted: Callable[[Container], bool] = lambda _: True,
        tail: int = 100,
    ) -> None:
        """found: what `look` returned; tail: so many last lines of what runs already, 0 is all."""
        self.run = run
        self._session = session
        self._wanted = wanted
        self._tail = tail or None
        self._began = time.time() - time.monotonic()
        self._offsets = {name: one.offset for name, one in found.items() if isinstance(one, Look)}
        self._lost = {name for name, one in found.items() if isinstance(one, FleetError)}
        self._asked_until = {name: one.there for name, one in found.items() if isinstance(one, Look)}
        self._sources: dict[str, Source] = {}
        self._lock = threading.Lock()
        self._arrived: queue.Queue[Arrival | BaseException] = queue.Queue(MOST)
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        for name, one in found.items():
            if isinstance(one, Look):
                for container in one.containers:
                    if container.labels["run"] == run:
                        self._source(name, container, tail=self._tail)

    @property
    def code(self) -> int:
        """3 while a host is lost, else 0."""
        return HostError.exit_code if self._lost else 0

    @property
    def sources(self) -> list[Source]:
        with self._lock:
            return list(self._sources.values())

    @property
    def heading(self) -> str:
        """What is followed where, and whose clocks are put right."""
        seats: dict[str, list[str]] = {}
        for source in self.sources:
            if source.shown:
                seats.setdefault(source.host, []).append(source.seat)
        told = "; ".join(f"{', '.join(names)} on {host}" for host, names in seats.items()) or "none of its services yet"
        ahead = {name: offset.seconds for name, offset in self._offsets.items() if abs(offset.seconds) >= FAR}
        clocks = "".join(f"; clock of {name} {seconds:+.1f} s, put right" for name, seconds in ahead.items())
        return f"run {self.run}\n{told}   times are UTC{clocks}"

    def __enter__(self) -> Follow:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End every command in flight, here and on the hosts."""
        self._stopped.set()
        end = time.monotonic() + 3 * GRACE
        while (alive := [thread for thread in self._threads if thread.is_alive()]) and time.monotonic() < end:
            for transport in self._session.transports.values():
                transport.cancel()
            alive[0].join(TICK)

    def lines(self) -> Iterator[Told]:
        """Every line in its turn; ends when no container of the run has run for a while."""
        return merged(self._arrivals(), WINDOW)

    def _arrivals(self) -> Iterator[Arrival]:
        yield from self._backlog()
        for name in self._session.names:
            self._start(self._attend, name)
        idle: float | None = None
        while True:
            try:
                arrived = self._arrived.get(timeout=TICK)
            except queue.Empty:
                arrived = Arrival(self._now())
            if isinstance(arrived, BaseException):
                raise arrived
            yield arrived
            now = time.monotonic()
            if not self._over():
                idle = None
            elif idle is None:
                idle = now
                yield Arrival(self._now(), self._note("", f"{self._left()}; waiting {LINGER:g} s for more"))
            elif now - idle > LINGER and self._arrived.empty():
                return

    def _over(self) -> bool:
        return all(one.ended or one.host in self._lost for one in self.sources)

    def _left(self) -> str:
        away = sorted({one.host for one in self.sources if not one.ended})
        return f"what has not ended is on {', '.join(away)}" if away else "all services have ended"

    def _now(self) -> float:
        return self._began + time.monotonic()

    # ------------------------------------------------------------------ the beginning

    def _backlog(self) -> Iterator[Arrival]:
        """The last lines of what is there already, as if they all came at once. What a host does not give in time comes
        with its streams."""

        def act(machine: Machine) -> list[Line]:
            mine = [one for one in self.sources if one.host == machine.name and one.shown]
            return [line for one in mine for line in self._until_now(machine, one)]

        answers = self._session.each({one.host for one in self.sources}, act)
        at = self._now()
        for answer in answers.values():
            yield from (Arrival(at, line) for line in (answer if isinstance(answer, list) else []))

    def _until_now(self, machine: Machine, source: Source) -> list[Line]:
        """A log's last lines, and how its container ended, if it has; nothing if they do not come."""
        reader = Reader()
        try:
            said = collect.tail(machine, source.container, source.tail or 0)
            death = None if source.container.state == "running" else self._death(machine, source)
        except CommandFailed:
            return []
        lines = [self._line(source, when, text) for when, text in [*reader.feed(said.encode()), *reader.end()]]
        source.reader, source.ended = reader, death is not None
        return [*lines, *([death] if death else [])]

    # ------------------------------------------------------------------ one host

    def _attend(self, name: str) -> None:
        """Look at a host turn by turn. While it is lost its streams are ended here; they go on when it answers."""
        machine = self._session.machine(name)
        if name in self._lost:
            self._put(self._note(name, "does not answer; goes on when it does"))
        while not self._stopped.is_set():
            try:
                self._turn(machine)
            except Interrupted:
                continue
            except HostError as error:
                self._lose(machine, error)
                self._stopped.wait(TURN)

    def _lose(self, machine: Machine, error: HostError) -> None:
        if machine.name not in self._lost and not self._stopped.is_set():
            self._lost.add(machine.name)
            said = "no answer" if isinstance(error, CommandTimeout) else error.what
            why = "; ".join(line.strip() for line in said.splitlines())
            self._put(self._note(machine.name, f"lost: {why}; goes on when it answers"))
            machine.transport.cancel()

    def _turn(self, machine: Machine) -> None:
        name = machine.name
        offset = self._offsets[name] = settled(self._offsets.get(name), _measured(machine))
        there = time.time() + offset.seconds
        ended = [one for one in self.sources if one.ended]
        found = ours(machine, run=self.run)
        if name in self._lost:
            self._lost.discard(name)
            self._put(self._note(name, "answers again"))
        self._reconcile(machine, found, ended)
        self._events(machine, self._asked_until.get(name, there), there + TURN)
        self._asked_until[name] = there + TURN

    def _reconcile(self, machine: Machine, found: list[Container], ended: list[Source]) -> None:
        """What runs is read; what is there no more, or has ended, is read to its end. ended: before it was looked."""
        states = {one.id: one.state for one in found}
        for container in found:
            if not self._known(container.id):
                self._appeared(machine, container)
        for source in ended:
            if states.get(source.container.id) == "running":
                source.ended = False
                source.died.clear()
        for source in self.sources:
            if source.host == machine.name and not source.ended:
                if source.shown:
                    self._read(machine, source)
                else:
                    source.ended = states.get(source.container.id) not in ("running", "paused")

    def _events(self, machine: Machine, since: float, until: float) -> None:
        """Starts and deaths, as docker tells them."""
        rest = b""

        def hear(data: bytes) -> None:
            nonlocal rest
            lines, _, rest = (rest + data).rpartition(b"\n")
            for event in docker.parse_events(lines.decode(errors="replace")):
                self._heard(machine, event)

        argv = docker.events_argv(self.run, since, until)
        machine.docker_stream(argv, timeout=TURN + ANSWER_SECONDS, sink=hear)

    def _heard(self, machine: Machine, event: Event) -> None:
        source = self._known(event.container.id)
        if event.code is None and source is None:
            source = self._appeared(machine, event.container, event.time)
            if source.shown:
                self._read(machine, source)
        elif event.code is not None and source is not None:
            source.death = event
            source.ended = source.ended or not source.shown
            source.died.set()

    def _appeared(self, machine: Machine, container: Container, there: float | None = None) -> Source:
        """A container that was not there before. there: when it was started, by its host's clock."""
        source = self._source(machine.name, container)
        if source.shown and container.state == "running":
            what = container.labels.get("point") or f"arm {container.labels.get('arm', '?')}"
            self._put(self._about(source, f"started ({what})", there))
        return source

    def _known(self, id: str) -> Source | None:
        with self._lock:
            return self._sources.get(id)

    def _source(self, host: str, container: Container, *, tail: int | None = None) -> Source:
        with self._lock:
            return self._sources.setdefault(container.id, Source(container, host, self._wanted(container), tail=tail))

    # ------------------------------------------------------------------ one log

    def _read(self, machine: Machine, source: Source) -> None:
        """Begin to read a log, unless that is being done."""
        with self._lock:
            if source.reading or source.ended or self._stopped.is_set():
                return
            source.reading = True
        self._start(self._follow, machine, source)

    def _follow(self, machine: Machine, source: Source) -> None:
        """Read a log until its container has ended. A host that is lost meanwhile is its own thread's to tell."""
        try:
            while not self._stopped.is_set():
                with suppress(CommandTimeout):
                    self._stream(machine, source)
                    self._ended(machine, source)
                    break
        except (HostError, Interrupted):
            pass
        finally:
            source.reading = False

    def _stream(self, machine: Machine, source: Source) -> None:
        reader = source.reader
        reader.again()

        def tell(lines: list[tuple[str, str]]) -> None:
            for when, text in lines:
                self._put(self._line(source, when, text))

        tail = None if reader.last else source.tail
        argv = docker.logs_argv(source.container.id, since=reader.last or None, follow=True, tail=tail)
        sink = lambda data: tell(reader.feed(data))  # noqa: E731
        masking = secret.knowing(machine, source.container)
        masking.docker_stream(argv, timeout=STREAM_SECONDS, sink=sink, both=True, check=False)
        tell(reader.end())

    def _ended(self, machine: Machine, source: Source) -> None:
        """At the end of a log: tell how its container ended, if it has."""
        if death := self._death(machine, source):
            self._put(death)
            source.ended = True
        else:
            self._troubled(source)

    def _death(self, machine: Machine, source: Source) -> Line | None:
        """How a container ended. Of one that is removed already docker knows it by the news of its death alone."""
        state = _state(machine, source)
        if state is None:
            source.died.wait(DEATH_SECONDS)
            death = source.death if source.died.is_set() else None
            cause = docker.cause(death.code or 0) if death else "its container is gone"
            there = death.time if death else None
        elif state.status in ("running", "paused", "created", "restarting"):
            return None
        else:
            finished = docker.when(state.finished)
            cause, there = state.cause, finished.timestamp() if finished else None
        return self._about(source, f"ended ({cause.removesuffix(': ended')})", there)

    def _troubled(self, source: Source) -> None:
        """The log of a container that runs came to an end: it is asked for anew at the host's next turn."""
        if source.reader.said not in ("", source.trouble):
            source.trouble = source.reader.said
            self._put(self._about(source, f"its log does not come: {source.trouble}"))

    # ------------------------------------------------------------------ what is told

    def _line(self, source: Source, when: str, text: str) -> Line:
        there = docker.when(when)
        at = self._here(source.host, there.timestamp() if there else None)
        return Line(at, source.container.id, source.host, source.seat, text)

    def _about(self, source: Source, text: str, there: float | None = None) -> Line:
        """What is to be said of a container. Without a time it is no part of the order of its lines."""
        order = source.host if there is None else source.container.id
        return Line(self._here(source.host, there), order, source.host, source.seat, text, note=True)

    def _note(self, host: str, text: str) -> Line:
        return Line(self._now(), host, host, "", text, note=True)

    def _here(self, host: str, there: float | None) -> float:
        """A time of a host's clock by ours; now, where there is none."""
        return self._now() if there is None else there - self._offsets[host].seconds

    def _put(self, line: Line) -> None:
        """Hand a line over. Where they are told more slowly than they come, the log's host waits, too."""
        while not self._stopped.is_set():
            with suppress(queue.Full):
                self._arrived.put(Arrival(self._now(), line), timeout=TICK)
                break

    def _start(self, act: Callable[..., None], *args: object) -> None:
        def work() -> None:
            try:
                act(*args)
            except BaseException as fault:
                self._arrived.put(fault)

        thread = threading.Thread(target=work, name="fleet-follow", daemon=True)
        with self._lock:
            self._threads = [one for one in self._threads if one.is_alive()] + [thread]
            thread.start()


def _state(machine: Machine, source: Source) -> State | None:
    """None if the container is removed. Raises HostError if docker does not say."""
    argv = docker.inspect_argv([source.container.id])
    outcome = machine.docker(argv, check=False)
    if outcome.ok:
        return docker.parse_inspect(outcome.out)[0]
    if "no such" not in outcome.err.lower():
        raise HostError(outcome.err.strip() or f"docker inspect: exit {outcome.code}", where=machine.name)
    return None
