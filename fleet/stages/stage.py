"""Images on every host: each that lacks one gets the layers that it lacks, all at once; after, all have the same image.

The stream of layers goes from one host that has the image, or from an archive here, through a chain of all that lack
some. A host that fails, is slow or is gone ends as its own failure; those behind it are fed anew, with what they lack.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from fleet import awake, docker
from fleet.docker import Image
from fleet.errors import FleetError, HostError, Interrupted, shown
from fleet.layers import BadArchive, Blueprint, Part
from fleet.session import Machine, Session, together
from fleet.stages import load, spool
from fleet.stages.chain import PATIENCE, Arrival, Chain, Stop
from fleet.stages.launch import image_on
from fleet.stages.spool import FileStore, Store
from fleet.stages.stock import Stock, stock
from fleet.stages.ways import Ways, pairs
from fleet.words import counted

ROUNDS_EACH = 3
"""How often a host is given the stream: as one of the chain, and again where it was cut off or failed."""

SPARE = 256 << 20
"""Bytes that stay free on an engine's disk beside what is loaded."""

GATHER = 0.3
"""Seconds in which hosts that are cut off one after the other are gathered for one new chain."""

ENDING_SECONDS = 5.0
"""How long a chain may take to end after ^C."""

AGAIN_SECONDS = 8.0
"""How long a host may take to tell what it has, after the stream to it was cut off."""

FULL = "no space left on device"

NOTHING = 1 << 20
"""Bytes: a disk with less is full."""

ENGINE_GONE = ("Cannot connect to the Docker daemon", "error during connect", "connection reset", "unexpected EOF")


def stage(session: Session, tag: str, hosts: Sequence[str], *, tar: Path | None = None) -> dict[str, Image]:
    """Have the same image behind `tag` on all hosts; those that have it do nothing. Images by host.

    tar: an archive here that has it, for the case that no host does. Raises HostError for the hosts that do not have it
    in the end, all of them at once, after the others have it; UsageError for an archive that cannot be used.
    """
    answers = session.each(hosts, lambda machine: image_on(machine, tag))
    failures = {host: answer for host, answer in answers.items() if isinstance(answer, FleetError)}
    found = {host: answer for host, answer in answers.items() if not isinstance(answer, FleetError)}
    if not found:
        raise together(list(failures.values()))
    archive = spool.opened(tar, tag) if tar else None
    wanted = _wanted(session, tag, found, archive)
    for host in [host for host, image in found.items() if image and image.id == wanted]:
        session.progress.host("stage", host, f"has {tag} ({short(wanted)})", done=True)
    lacking = [host for host, image in found.items() if image is None or image.id != wanted]
    if lacking:
        failures |= _spread(session, tag, wanted, found, lacking, archive)
    if failures:
        raise together([failures[host] for host in hosts if host in failures])
    missing = [host for host, image in found.items() if image is None or image.id != wanted]
    found |= session.all(missing, lambda machine: _arrived(machine, tag, wanted))
    return {host: image for host in hosts if (image := found[host])}


def short(image_id: str) -> str:
    return image_id.removeprefix("sha256:")[:12]


def named(tag: str) -> str:
    """An image's name as an archive has it: with its tag."""
    return tag if "@" in tag or ":" in tag.rpartition("/")[2] else f"{tag}:latest"


def _wanted(session: Session, tag: str, found: dict[str, Image | None], archive: FileStore | None) -> str:
    """The ID that all are to have. Where nobody has the image, one host pulls it, unless there is an archive."""
    there = {host: image for host, image in found.items() if image}
    ids = {image.id for image in there.values()} | ({archive.image.id} if archive else set())
    if len(ids) > 1:
        lines = [f"  {host}  {image.id}" for host, image in there.items()]
        lines += [f"  {archive.path}  {archive.image.id}"] if archive else []
        hint = f"remove the wrong one: docker rmi {tag}"
        raise HostError("\n".join([f"image {tag} is not the same on all hosts:", *lines]), hint=hint)
    if not ids:
        host = next(iter(found))
        found[host] = _pulled(session, tag, session.machine(host), list(found))
        return found[host].id  # type: ignore[union-attr]
    return ids.pop()


def _pulled(session: Session, tag: str, machine: Machine, asked: Sequence[str]) -> Image:
    """Raises HostError with what to do where no registry gives it."""
    session.progress.host("stage", machine.name, f"pulls {tag}: no host has it")
    argv = [*machine.docker_prefix(), *docker.pull_argv(tag)]
    outcome = machine.run(argv, timeout=session.settings.timeouts.stage_within, check=False)
    image = image_on(machine, tag) if outcome.ok else None
    if image is None:
        said = (outcome.err.strip() or outcome.out.strip()).splitlines()[-1:] or [f"code {outcome.code}"]
        what = f"image {tag} is on none of {', '.join(asked)}, and {machine.name} cannot pull it: {shown(said[0])}"
        hint = f"type: docker pull {tag} on one of them, or give its archive: --tar FILE (docker save -o FILE {tag})"
        raise HostError(what, hint=hint)
    session.progress.host("stage", machine.name, f"pulled {tag} ({short(image.id)})", done=True)
    return image


def _arrived(machine: Machine, tag: str, wanted: str) -> Image:
    """Raises HostError where the tag is not what it should be."""
    arrived = image_on(machine, tag)
    if arrived is None or arrived.id != wanted:
        got = arrived.id if arrived else "nothing"
        raise HostError(f"after the transfer {tag} is {got} instead of {wanted}", where=machine.name)
    return arrived


def _spread(
    session: Session,
    tag: str,
    wanted: str,
    found: dict[str, Image | None],
    lacking: Sequence[str],
    archive: FileStore | None,
) -> dict[str, FleetError]:
    """What kept hosts from having it, by host."""
    holders = [host for host, image in found.items() if image and image.id == wanted]
    one = next((image for image in found.values() if image and image.id == wanted), None)
    layers = one.layers if one else archive.image.layers if archive else ()
    work = Staging(session, tag, wanted, layers, holders, archive, size=one.size if one else 0)
    failures = work.run(lacking)
    found |= {host: target.image for host, target in work.targets.items() if target.image}
    return failures


@dataclass
class Target:
    """A host that lacks the image. began, start: when and at which byte its stream began."""

    host: str
    stock: Stock = field(default_factory=Stock)
    rounds: int = 0
    alone: bool = False
    whole: bool = False
    sent: int = 0
    began: float = 0.0
    error: FleetError | None = None
    over: bool = False
    image: Image | None = None


class Speed:
    """Bytes a second over the last few seconds."""

    SECONDS = 5.0

    def __init__(self) -> None:
        self._past: deque[tuple[float, int]] = deque([(awake.now(), 0)])

    def at(self, got: int) -> float:
        now = awake.now()
        self._past.append((now, got))
        while len(self._past) > 2 and now - self._past[0][0] > self.SECONDS:
            self._past.popleft()
        (then, before) = self._past[0]
        return (got - before) / (now - then) if now > then else 0.0


class Staging:
    """One image on its way to all hosts that lack it."""

    def __init__(
        self,
        session: Session,
        tag: str,
        wanted: str,
        layers: tuple[str, ...],
        holders: Sequence[str],
        archive: FileStore | None,
        *,
        size: int = 0,
    ) -> None:
        self.session, self.tag, self.wanted, self.layers, self.size = session, tag, wanted, layers, size
        self.holders, self.archive = list(holders), archive
        self.within = session.settings.timeouts.stage_within
        self.targets: dict[str, Target] = {}
        self.events: queue.Queue[Arrival | tuple[list[str], BaseException | None]] = queue.Queue()
        self.store: Store | None = None
        self.ways: Ways | None = None
        self.source_stock: Stock | None = None
        self.threads: list[threading.Thread] = []
        self.closing = ExitStack()

    # ------------------------------------------------------------------ all of it

    def run(self, lacking: Sequence[str]) -> dict[str, FleetError]:
        """Why hosts do not have it in the end."""
        self.targets = {host: Target(host) for host in lacking}
        with self.closing:
            try:
                self._survey()
                if self._open():
                    self._rounds()
            except BaseException:
                self._give_up()
                raise
        return {host: target.error for host, target in self.targets.items() if target.error}

    def _give_up(self) -> None:
        """End what is under way, here and there, before what it needs is removed."""
        for host in dict.fromkeys([*self.open_hosts(), *self.holders]):
            self.session.machine(host).transport.cancel()
        for thread in self.threads:
            thread.join(ENDING_SECONDS)

    def open_hosts(self) -> list[str]:
        return [host for host, target in self.targets.items() if not target.over]

    def _fail(self, host: str, error: FleetError) -> None:
        target = self.targets[host]
        target.error, target.over = error, True
        said = error.what if error.where in ("", host) else error.head
        self.session.progress.host("stage", host, f"{self.tag}: {said.splitlines()[0]}", done=True)

    def _survey(self) -> None:
        """What each has; those that have the image under another name are done."""

        def act(machine: Machine) -> Stock | None:
            if machine.name in self.holders:
                return stock(machine, self.wanted)
            if image_on(machine, self.wanted) is not None and "@" not in self.tag:
                machine.docker(["docker", "tag", self.wanted, self.tag])
                return None
            if "@" in self.tag:
                self._pull_digest(machine)
                return None
            return stock(machine)

        within = self.within if "@" in self.tag else 0
        for host, answer in self.session.each([*self.targets, *self.holders[:1]], act, timeout=within).items():
            if host not in self.targets:
                self.source_stock = answer if isinstance(answer, Stock) else None
            elif isinstance(answer, FleetError):
                self._fail(host, answer)
            elif answer is None:
                self.targets[host].over = True
                told = f"had {short(self.wanted)}, now also as {self.tag}" if "@" not in self.tag else "pulled it"
                self.session.progress.host("stage", host, told, done=True)
            else:
                self.targets[host].stock = answer

    def _pull_digest(self, machine: Machine) -> None:
        """A name with a digest comes from a registry alone: an engine gives it to no image that was loaded."""
        argv = [*machine.docker_prefix(), *docker.pull_argv(self.tag)]
        outcome = machine.run(argv, timeout=self.within, check=False)
        if not outcome.ok:
            said = (outcome.err.strip().splitlines() or [f"code {outcome.code}"])[-1]
            what = f"{self.tag} cannot be pulled: {shown(said)}; a digest is given by a registry alone, not by a copy"
            hint = f"name the image by a tag in the recipe, or:  {machine.transport.ssh_line(argv)}"
            raise HostError(what, where=machine.name, hint=hint)

    # ------------------------------------------------------------------ where it comes from

    def _open(self) -> bool:
        """A source, and the ways between hosts, tried while the source gets ready. Whether there is anything to do."""
        targets = self.open_hosts()
        if not targets:
            return False
        self.ways = Ways(self.session, [*self.holders[:1], *targets])
        trying = threading.Thread(target=self._open_ways, args=(self.ways,), daemon=True)
        trying.start()
        try:
            self._source()
        finally:
            trying.join(2 * self.session.settings.timeouts.command)
            self.closing.push(self.ways)
        for host in [host for host in self.open_hosts() if host in self.ways.lost]:
            self._fail(host, self.ways.lost[host])
        return bool(self.open_hosts())

    def _open_ways(self, ways: Ways) -> None:
        ways.__enter__()
        order = [host for host in self._order(self.open_hosts()) if host not in ways.lost]
        ways.attempt(pairs([*self.holders[:1], *order] if not self.archive else order))

    def _source(self) -> None:
        """The next host that can give the layers; all that still lack the image fail where there is none."""
        if self.archive:
            self.store = self.archive
            return
        problem: FleetError | None = None
        while self.holders:
            host = self.holders[0]
            try:
                self.store = self._filled(self.session.machine(host))
                return
            except HostError as error:
                problem = error
                self.holders.pop(0)
        for host in self.open_hosts():
            self._fail(host, problem or HostError(f"no host that has {self.tag} is left", where=host))

    def _filled(self, machine: Machine) -> Store:
        """Layers in files where its engine and its disk allow that, else the archive as it is."""
        has, self.source_stock = self.source_stock or stock(machine, self.wanted), None
        first = min((self.targets[host].stock.of(self.layers) for host in self.open_hosts()), default=0)
        size = self._about(has, first)
        roomy = has.scratch is None or size is None or has.scratch > size + SPARE
        if has.parts and has.gnu_tar and roomy and self.layers:
            self._say_plan(machine.name, has)
            self.session.progress.host("stage", machine.name, f"reads {self.tag} ({short(self.wanted)})")
            try:
                store = spool.fill(machine, named(self.tag), self.wanted, self.layers, first, self.within)
            except BadArchive:
                pass
            else:
                self.closing.callback(_quietly, store.close)
                self.session.progress.host("stage", machine.name, f"has {self.tag} read", done=False)
                return store
        for target in self.targets.values():
            target.whole = True
        return spool.HostStore(machine, Blueprint(b"", self.layers, (self.tag,)), "", named(self.tag))

    def _say_plan(self, source: str, has: Stock) -> None:
        """Who will get how much, in one line for each amount."""
        groups: dict[int, list[str]] = {}
        for host in self.open_hosts():
            groups.setdefault(self.targets[host].stock.of(self.layers), []).append(host)
        for there, hosts in sorted(groups.items()):
            size = self._about(has, there)
            amount = f"about {size / 1e6:.0f} MB" if size is not None else "an unknown amount"
            lacked = counted(len(self.layers) - there, "layer")
            told = f"{', '.join(hosts)}: {lacked} of {len(self.layers)}, {amount} each, from {source}"
            self.session.progress.line(f"  stage      {told}")

    def _about(self, has: Stock, first: int) -> int | None:
        """Bytes of the layers from `first` on, as the engine tells of them; None where that cannot be told."""
        if len(has.sizes) == len(self.layers):
            return sum(has.sizes[first:])
        return self.size if not first else None

    # ------------------------------------------------------------------ rounds

    def _rounds(self) -> None:
        """Chains until every host has the image or has failed for good."""
        running, again = 0, self.open_hosts()
        quiet_since = 0.0
        while again or running:
            if again and awake.now() - quiet_since > GATHER:
                running += self._start(again)
                again = []
            try:
                event = self.events.get(timeout=0.1)
            except queue.Empty:
                self.session.go_on()
                continue
            if isinstance(event, Arrival):
                if self._settle(event):
                    again.append(event.host)
                    quiet_since = awake.now()
                continue
            running -= 1
            hosts, problem = event
            if problem is not None and not isinstance(problem, FleetError):
                raise problem
            if isinstance(problem, Interrupted):
                raise problem
            again += [host for host in hosts if not self.targets[host].over and host not in again]

    def _start(self, hosts: Sequence[str]) -> int:
        """Chains for these hosts: one for all, and one for each that must be alone. How many."""
        ready = self._ready(hosts)
        together_ = [host for host in ready if not (self.targets[host].alone or self.targets[host].whole)]
        wholes = [host for host in ready if self.targets[host].whole and not self.targets[host].alone]
        groups = [group for group in (together_, wholes) if group]
        groups += [[host] for host in ready if self.targets[host].alone]
        for group in groups:
            self.threads.append(threading.Thread(target=self._chain, args=(group,), name="fleet-staging", daemon=True))
            self.threads[-1].start()
        return len(groups)

    def _ready(self, hosts: Sequence[str]) -> list[str]:
        """Those that may be given the stream, with what they have now. A source that is gone is replaced."""
        for host in hosts:
            self.targets[host].rounds += 1
            if self.targets[host].rounds > ROUNDS_EACH:
                error = self.targets[host].error or HostError("the stream was cut off again and again", where=host)
                self._fail(host, error)
        if any(self.targets[host].rounds > 1 for host in hosts):
            self._restock([host for host in hosts if not self.targets[host].over])
            if self.store and not self.store.there() and not isinstance(self.store, FileStore):
                self.holders = [host for host in self.holders if host != self.store.host]
                self._source()
        return [host for host in hosts if not self.targets[host].over]

    def _restock(self, hosts: Sequence[str]) -> None:
        """Anew, of those that are still there: nobody waits long for one that is not."""
        asked = self.session.each(hosts, lambda machine: stock(machine, timeout=AGAIN_SECONDS), timeout=AGAIN_SECONDS)
        for host, answer in asked.items():
            if isinstance(answer, FleetError):
                self._fail(host, answer)
            else:
                self.targets[host].stock = answer

    def _order(self, hosts: Iterable[str]) -> list[str]:
        """Who lacks most first: those behind want no earlier part of the stream."""
        return sorted(hosts, key=lambda host: self.targets[host].stock.of(self.layers))

    def _chain(self, hosts: list[str]) -> None:
        """Tells at its end which hosts it has told nothing of, and what went wrong."""
        seen: set[str] = set()
        looks: list[threading.Thread] = []
        problem: BaseException | None = None
        try:
            self._stream(hosts, partial(self._settled, seen, looks))
        except BaseException as error:
            problem = error
        for look in looks:
            look.join()
        self.events.put(([host for host in hosts if host not in seen], problem))

    def _stream(self, hosts: list[str], settled: Callable[[Arrival], object]) -> None:
        assert self.store is not None
        assert self.ways is not None
        hosts = self._order(hosts)
        whole = self.targets[hosts[0]].whole
        stops, size, made = self._stops(hosts, whole=whole)
        hosts = [stop.host for stop in stops]
        if not stops:
            return
        self.ways.attempt(pairs([*filter(None, [self.store.host]), *hosts]))
        speeds = {stop.host: Speed() for stop in stops}
        for stop in stops:
            target = self.targets[stop.host]
            target.began, target.sent = time.monotonic(), size - stop.start if size else 0

        def tell(host: str, got: int) -> None:
            target = self.targets[host]
            if not size:
                target.sent = got
            self.session.progress.moved("stage", host, got, target.sent if size else 0, speeds[host].at(got))

        spring = self.store.whole() if whole else self.store.spring(made)
        patience = PATIENCE if len(stops) > 1 else self.within
        chain = Chain(
            self.session, self.ways, spring, stops,
            within=self.within, tell=tell, settled=settled, patience=patience,
        )  # fmt: skip
        if self.store.host and chain.through_here:
            told = f"{', '.join(chain.through_here)}: through this machine, as no host before it may log in there"
            self.session.progress.line(f"  stage      {told}")
        chain.run()

    def _stops(self, hosts: Sequence[str], *, whole: bool) -> tuple[list[Stop], int, list[Part]]:
        """The hosts with room for what they get; the stream's bytes, 0 where they are not known; its parts."""
        assert self.store is not None
        machines = {host: self.session.machine(host) for host in hosts}
        if whole:
            return [Stop(host, load.whole_argv(machine)) for host, machine in machines.items()], 0, []
        have = {host: self.targets[host].stock.of(self.layers) for host in hosts}
        sizes = self.store.sizes
        roomy = [host for host in hosts if self._room(host, sum(sizes[n] for n in range(have[host], len(self.layers))))]
        if not roomy:
            return [], 0, []
        mark = self.ways.folder.rpartition("-")[2] if self.ways else ""
        made = spool.parts_of(self.store, [have[host] for host in roomy], mark)
        begins = spool.starts(made)
        stops = [Stop(host, load.parts_argv(machines[host]), begins[have[host]]) for host in roomy]
        return stops, spool.total(made), made

    def _room(self, host: str, size: int) -> bool:
        """Whether the engine's disk takes it; where it does not, the host has failed."""
        free = self.targets[host].stock.engine
        if free is None or free > size + min(SPARE, size):
            return True
        room = f"{size / 1e6:.0f} MB are to come, {free / 1e6:.0f} MB are free on the engine's disk"
        what = f"no room for {self.tag}: {room}"
        hint = f"free some:  {self.session.machine(host).transport.ssh_line(['docker', 'image', 'prune'])}"
        self._fail(host, HostError(what, where=host, hint=hint))
        return False

    # ------------------------------------------------------------------ one host

    def _settled(self, seen: set[str], looks: list[threading.Thread], arrival: Arrival) -> None:
        """Called by a chain, which does not wait: what is loaded is looked at beside it."""
        seen.add(arrival.host)
        if arrival.state != "done":
            self.events.put(arrival)
            return

        def look() -> None:
            machine = self.session.machine(arrival.host)
            try:
                self.targets[arrival.host].image = _arrived(machine, self.tag, self.wanted)
                load.tidy(machine, self.wanted)
            except FleetError as error:
                self.events.put(replace(arrival, error=error))
            else:
                self.events.put(arrival)

        looks.append(threading.Thread(target=look, name=f"fleet-arrived-{arrival.host}", daemon=True))
        looks[-1].start()

    def _settle(self, arrival: Arrival) -> bool:
        """Whether the host is to be given the stream again."""
        target = self.targets[arrival.host]
        if arrival.state == "cut off":
            return True
        if arrival.state == "slow":
            target.alone, target.error = True, None
            self.session.progress.line(f"  stage      {arrival.error}; it goes on by itself")
            return True
        if arrival.state == "done":
            return self._loaded(target, arrival.error)
        return self._failed(target, arrival)

    def _loaded(self, target: Target, error: FleetError | None) -> bool:
        if error:
            if target.whole:
                self._fail(target.host, error)
                return False
            target.whole = True
            return True
        target.over, target.error = True, None
        spent = time.monotonic() - target.began
        source = (self.store.host if self.store else "") or "this machine"
        told = f"{target.sent / 1e6:.0f} MB from {source} in {spent:.1f} s, same image ID ({short(self.wanted)})"
        self.session.progress.host("stage", target.host, f"{self.tag}: {told}", done=True)
        return False

    def _failed(self, target: Target, arrival: Arrival) -> bool:
        """Its own failure; after one of a load in parts that says nothing of the disk or the engine, the whole once."""
        error = arrival.error or HostError("the load failed", where=target.host)
        said = "\n".join([*arrival.said, error.what])
        own = not isinstance(error, HostError) or type(error) is not HostError or not arrival.said
        if FULL in said or (type(error) is HostError and not arrival.said and self._full(target.host)):
            load.tidy(self.session.machine(target.host), self.wanted)
            what = f"no space left on device: the engine's disk is full, and nothing of {self.tag} stays there"
            self._fail(target.host, HostError(what, where=target.host, hint="free some space and type the same again"))
            return False
        if own:
            self._fail(target.host, error)
            return False
        if target.whole or any(word in said for word in ENGINE_GONE):
            what = f"{self.tag} did not load: {error.what}\n  layers that came whole stay, and are not sent again"
            self._fail(target.host, HostError(what, where=target.host, hint=error.hint))
            return False
        target.whole, target.error = True, error
        return True

    def _full(self, host: str) -> bool:
        """Whether an engine's disk has no room, not even for what the engine had to say of it."""
        try:
            free = stock(self.session.machine(host)).engine
        except HostError:
            return False
        return free is not None and free < NOTHING


def _quietly(act: Callable[[], object]) -> None:
    try:
        act()
    except FleetError:
        return
