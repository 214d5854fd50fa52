"""A model's folder copied from the host that has it whole to those that lack files of it: peer to peer, file by file.

What has arrived whole stays, whatever happens then: the next copy sends only what is missing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fleet import awake, checkpoint, parcel
from fleet.checkpoint import Checkpoint, fingerprint
from fleet.errors import FleetError, HostError, Interrupted, shown
from fleet.parcel import Load
from fleet.results.pace import spoken
from fleet.session import Machine, Session
from fleet.stages import weights
from fleet.stages.chain import Arrival, Chain, Spring, Stop
from fleet.stages.preflight import free
from fleet.stages.ways import Ways, pairs
from fleet.words import amount, counted

SPARE = 64 << 20
"""Bytes that are left free beside the files: a file system needs some for itself."""

TELL_EVERY = 0.5
"""Seconds between two words about a host."""


@dataclass(frozen=True)
class Copied:
    """What came of it. failed: hosts that do not have the model, each with why. sent: bytes that arrived, by host."""

    source: str
    failed: Mapping[str, FleetError]
    sent: Mapping[str, int]


def copy(session: Session, model: str, *, source: str = "", full: bool = False, again: str = "") -> Copied:
    """Have the same model on all hosts of the session. source: the host that is right, else one that has it whole.

    again: the line that goes on after ^C. Raises HostError where there is nothing to copy, or it cannot be read there,
    Interrupted after ^C.
    """
    try:
        return _Copy(session, model, full).run(source)
    except KeyboardInterrupt:
        hint = f"next: {again}" if again else ""
        raise Interrupted("interrupted; every file that arrived whole is kept", hint=hint) from None


class _Copy:
    def __init__(self, session: Session, model: str, full: bool) -> None:
        self.session, self.model, self.full = session, model, full
        self.failed: dict[str, FleetError] = {}
        self.slow: set[str] = set()
        self.tellers: dict[str, Teller] = {}

    def run(self, wanted_source: str) -> Copied:
        found = self._look(self.session.names)
        self.source = self._source(found, wanted_source)
        whole = self.whole = found[self.source] or Checkpoint()
        self._tell(self.source, f"has {shown(self.model)} whole: {_size(whole)}")
        lacking = {host: parcel.lacking(whole, one) for host, one in found.items() if host != self.source}
        self._barred({host: found[host] for host in lacking})
        wanted = self._fitting({host: files for host, files in lacking.items() if files and host not in self.failed})
        for host, files in wanted.items():
            self.tellers[host] = Teller(self.session, host, self.source, sum(files.values()))
        self._send(wanted)
        self._verify([host for host in lacking if host not in self.failed])
        sent = {host: teller.total for host, teller in self.tellers.items() if host not in self.failed}
        return Copied(self.source, self.failed, sent)

    def _look(self, hosts: Iterable[str]) -> dict[str, Checkpoint | None]:
        """Of the hosts that answer; the others have failed."""
        answers = weights.everywhere(self.session, {host: [self.model] for host in hosts}, full=self.full)
        self.failed |= {host: one for host, one in answers.items() if isinstance(one, FleetError)}
        return {host: one[self.model] for host, one in answers.items() if not isinstance(one, FleetError)}

    def _source(self, found: Mapping[str, Checkpoint | None], wanted: str) -> str:
        if wanted in self.failed:
            raise self.failed[wanted]
        if wanted:
            there = found[wanted]
            if there is None or there.halves:
                why = "\n".join(f"  {text}" for text in there.halves) if there else "  it is missing or empty"
                raise HostError(f"model {shown(self.model)} is not whole there:\n{why}", where=wanted, hint=HINT)
            return wanted
        good = {host: one for host, one in found.items() if one and not one.halves}
        if not good:
            told = "\n".join(_told_of(host, one) for host, one in found.items())
            errors = "\n".join(error.head for error in self.failed.values())
            what = f"model {shown(self.model)} is whole on no host"
            raise HostError("\n".join(filter(None, (what, told, errors))), hint=HINT)
        if not (covering := checkpoint.covering(good)):
            told = "\n".join(f"  {host}  {fingerprint(one)}" for host, one in good.items())
            what = f"model {shown(self.model)} is whole on several hosts, and not the same:\n{told}"
            raise HostError(what, hint="say which is right: --from HOST")
        return covering

    # ------------------------------------------------------------------ before

    def _barred(self, found: Mapping[str, Checkpoint | None]) -> None:
        """What is on a host already is never replaced: who has another file of that name there is told."""
        for host, one in found.items():
            if texts := parcel.in_the_way(self.whole, one):
                told = "\n".join(f"  {text}" for text in [*texts[:SHOWN], *_more(len(texts) - SHOWN)])
                what = f"model {shown(self.model)} is another one there, and nothing is replaced:\n{told}"
                where = weights.folder(self.session.machine(host), self.model)
                hint = f"if that of {self.source} is right, remove these files in {where} there"
                self._fail(host, HostError(what, where=host, hint=hint))

    def _fitting(self, lacking: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
        """Without hosts whose disk has no room for what they lack."""

        def act(machine: Machine) -> int | None:
            where = weights.folder(machine, self.model)
            return free(machine, where).get(where)

        for host, room in self.session.each(lacking, act).items():
            need = sum(lacking[host].values()) + SPARE
            if isinstance(room, FleetError):
                self._fail(host, room)
            elif room is not None and room < need:
                where = self.session.machine(host).host.models
                what = f"{amount(room)} free at {where}, {amount(need)} are needed for model {shown(self.model)}"
                self._fail(host, HostError(what, where=host, hint=f"see what is there: du -xh {where} | sort -h"))
        return {host: files for host, files in lacking.items() if host not in self.failed}

    # ------------------------------------------------------------------ the stream

    def _send(self, wanted: dict[str, dict[str, int]]) -> None:
        """Round after round, until nobody lacks a file who can still get one. A slow host is the last of its chain."""
        while wanted:
            troubles = self._round(dict(sorted(wanted.items(), key=lambda one: one[0] in self.slow)))
            again: dict[str, dict[str, int]] = {}
            for host, one in self._look(host for host in wanted if host in troubles).items():
                files = parcel.lacking(self.whole, one)
                if files and files == wanted[host]:
                    self._fail(host, troubles[host])
                elif files:
                    again[host] = files
                    self.tellers[host].back(sum(files.values()))
            wanted = again

    def _round(self, wanted: dict[str, dict[str, int]]) -> dict[str, FleetError]:
        """Everything once to everyone. Hosts whose stream broke off, and why."""
        troubles: dict[str, FleetError] = {}
        with Ways(self.session, [self.source, *wanted]) as ways:
            for host, error in ways.lost.items():
                self._fail(host, error)
            if self.source in self.failed:
                raise self.failed[self.source]
            for load in parcel.loads(wanted):
                hosts = [host for host in load.hosts if host not in self.failed and host not in troubles]
                if hosts:
                    troubles |= self._load(ways, Load(tuple(hosts), load.files))
        return troubles

    def _load(self, ways: Ways, load: Load) -> dict[str, FleetError]:
        ways.attempt(pairs([self.source, *load.hosts]))
        machines = {host: self.session.machine(host) for host in (self.source, *load.hosts)}
        folders = {host: weights.folder(machine, self.model) for host, machine in machines.items()}
        chain = Chain(
            self.session,
            ways,
            Spring(self.source, tuple(parcel.send_argv(folders[self.source], load.files))),
            [Stop(host, tuple(parcel.take_argv(folders[host]))) for host in load.hosts],
            within=self.session.settings.timeouts.stage_within,
            tell=lambda host, got: self.tellers[host].got(got),
        )
        troubles: dict[str, FleetError] = {}
        for host, arrival in chain.run().items():
            self.tellers[host].settle(load.size if arrival.state == "done" else 0)
            if arrival.state == "slow":
                self.slow.add(host)
            if arrival.state == "failed":
                self._fail(host, _why(arrival))
            elif arrival.state != "done":
                troubles[host] = arrival.error or HostError("the stream broke off before it", where=host)
        return troubles

    # ------------------------------------------------------------------ after

    def _verify(self, hosts: Sequence[str]) -> None:
        """Every host has now what the source has, and nothing else."""

        def done(machine: Machine) -> object:
            return machine.run(parcel.done_argv(weights.folder(machine, self.model)))

        self.session.each([host for host in hosts if host in self.tellers], done)
        found = self._look([self.source, *hosts])
        for host in hosts:
            if host in self.failed or self.source not in found:
                continue
            pair = {self.source: found[self.source], host: found[host]}
            told = [one.text for one in weights.reasons(self.model, pair, lambda *_: "")]
            if told:
                what = "\n".join(text.partition("\n")[0] for text in told)
                hint = "fleet removes only what is its own: remove what does not belong there, and repeat this"
                self._fail(host, HostError(what, where=host, hint=hint))
            else:
                self._tell(host, self._arrived(host))

    def _arrived(self, host: str) -> str:
        how = "every byte" if self.full else "sampled"
        if host not in self.tellers:
            return f"has {shown(self.model)} already, the same ({how})"
        return f"{shown(self.model)}: {self.tellers[host].summary()}, the same ({how})"

    def _fail(self, host: str, error: FleetError) -> None:
        self.failed[host] = error
        self._tell(host, f"failed: {shown(error.what.partition(chr(10))[0])}")

    def _tell(self, host: str, text: str) -> None:
        self.session.progress.host("model", host, text, done=True)


HINT = "download it whole to one of them first, or name the host that has it: --from HOST"

SHOWN = checkpoint.NAMED


def _more(number: int) -> list[str]:
    return [f"and {counted(number, 'more file')}"] if number > 0 else []


def _size(one: Checkpoint) -> str:
    return f"{counted(len(one.compared), 'file')}, {amount(one.size)}"


def _told_of(host: str, one: Checkpoint | None) -> str:
    if one is None:
        return f"  {host}  missing or empty"
    texts = [*one.halves[:SHOWN], *_more(len(one.halves) - SHOWN)]
    return "\n".join(f"  {host}  {text}" for text in texts)


def _why(arrival: Arrival) -> FleetError:
    """What the host itself said last, where it said something."""
    error = arrival.error or HostError("the copy failed", where=arrival.host)
    if type(error) is HostError and arrival.said:
        hint = "every file that arrived whole is kept: repeat this once it is mended"
        return HostError(arrival.said[-1], where=arrival.host, hint=hint)
    return error


@dataclass
class Teller:
    """How far a host is, told now and then. total: bytes that it lacked at the beginning."""

    session: Session
    host: str
    source: str
    total: int
    arrived: int = 0
    began: float = field(default_factory=awake.now)
    told: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def got(self, size: int) -> None:
        """Of the load under way."""
        now = awake.now()
        with self.lock:
            if now - self.told < TELL_EVERY:
                return
            self.told = now
        done = min(self.arrived + size, self.total)
        rate = done / (now - self.began) if now > self.began else 0.0
        self.session.progress.moved("model", self.host, done, self.total, rate)

    def settle(self, size: int) -> None:
        with self.lock:
            self.arrived += size

    def back(self, lacking: int) -> None:
        """After a stream that broke off: what is still lacking says how much there is."""
        with self.lock:
            self.arrived = self.total - lacking

    def summary(self) -> str:
        spent = max(awake.now() - self.began, 0.001)
        return f"{amount(self.total)} from {self.source} in {spoken(spent)} ({amount(self.total / spent)}/s)"
