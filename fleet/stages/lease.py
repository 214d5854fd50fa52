"""Nodes are leased while a run works on them: all or none, renewed until the end, given back whatever happens."""

from __future__ import annotations

import os
import random
import secrets
import shlex
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from fleet import awake
from fleet.errors import CommandFailed, FleetError, HostError, Interrupted, LeaseHeld, shown
from fleet.hosts.base import Deadline
from fleet.model import lease as text
from fleet.model.lease import Answer, Claim, Lease
from fleet.session import Machine, Session, owner, together
from fleet.stages.teardown import ours

EVERY = 10.0
"""Seconds between two renewals."""

LOOK = 2.0
"""Seconds between two looks at a node that is waited for, and up to half of it more: two who wait shall not meet."""

RENEW_SECONDS = 20.0
"""For one renewal of all nodes."""

RELEASE_SECONDS = 10.0
"""A lease that is not given back by then ends by itself within a minute."""

GIVEN_UP_SECONDS = 180.0
"""How long a run that was taken its nodes may take to stop its containers: a renewal, and the longest stop."""

IN_VAIN = 2.0 * EVERY
"""How long a lease that is damaged or lasts too long is waited for: a run that lives has written it anew by then."""

RUNNING = ("running", "paused", "restarting")


@dataclass(frozen=True)
class Wish:
    """What to do with a node that somebody else has: wait for it, or take it; by default neither."""

    wait: bool = False
    steal: bool = False


def claim(run: str) -> Claim:
    """This process, asking for nodes for a run."""
    pid = os.getpid()
    token = secrets.token_hex(16)
    return Claim(owner=owner(), host=socket.gethostname(), run=run, token=token, pid=pid, process=process(pid) or "")


def process(pid: int) -> str | None:
    """Boot, process namespace and start time of a process here; None if there is none of that number."""
    try:
        # The command's name, in parentheses, may hold blanks; the start time is the 20th field behind it.
        started = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None
    return f"{_place()}/{started}"


def _place() -> str:
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    return ""


def dead(lease: Lease) -> bool:
    """Whether its holder was a process of the same owner on this machine that has ended. Of others nothing is known."""
    if lease.owner != owner() or lease.host != socket.gethostname() or lease.pid <= 0:
        return False
    place = _place()
    return bool(place) and lease.process.startswith(f"{place}/") and process(lease.pid) != lease.process


def ask(machine: Machine, argv: Sequence[str]) -> Answer:
    """Raises HostError where the node does not answer or its lease folder cannot be used."""
    try:
        outcome = machine.run(argv)
    except CommandFailed as problem:
        why = problem.what.rpartition("\n")[2].strip()
        hint = f"look at it:  {machine.transport.ssh_line(['ls', '-ld', text.FOLDER])}"
        raise HostError(f"the lease cannot be used: {why}", where=machine.name, hint=hint) from problem
    try:
        return text.parse(outcome.out)
    except ValueError as problem:
        raise HostError("the lease cannot be read", where=machine.name) from problem


def look(machine: Machine) -> Answer:
    return ask(machine, text.argv("look"))


def release(machine: Machine, key: str) -> bool:
    """Remove a node's lease if it is still the one of this key; whether it was."""
    return ask(machine, text.argv("release", token=key)).word == "released"


def see(inventory: str) -> str:
    return shlex.join(["invoke", "leases", *_on(inventory)])


def refused(found: Mapping[str, Answer], inventory: str) -> LeaseHeld:
    """Nodes that are taken: whose, since when, until when, and what can be done."""
    here = datetime.now(UTC)
    lines = [text.whose(node, one, here) for node, one in found.items()]
    choices = f"wait: --wait   ·   see it: {see(inventory)}   ·   take it: --steal"
    hints = [f"{choices} (their run will be stopped and keeps its finished points)"]
    if any(one.lease is None for one in found.values()):
        hints.append(f"a run that lives writes its lease anew within {EVERY:.0f} s; {mend(inventory)}")
    return LeaseHeld("\n".join(lines), hint="\n".join(hints))


def mend(inventory: str) -> str:
    """What removes a damaged lease."""
    return "remove one that is damaged: " + shlex.join(["invoke", "reap", *_on(inventory)])


def _on(inventory: str) -> list[str]:
    return ["--inventory", inventory] if inventory else []


@contextmanager
def held(
    session: Session, hosts: Sequence[str], run: str, *, longest: float, wish: Wish, kept: Callable[[], str] = str
) -> Iterator[Hold]:
    """Hold the lease of all these nodes while the block runs. kept: what of the run is kept, for when it is stopped.

    longest: seconds after which it is over at the latest. Raises LeaseHeld, with none taken. A node that cannot be
    leased, or whose lease is lost meanwhile, makes `session.go_on` raise: a preflight in between has more to say.
    """
    hold = Hold(session, tuple(dict.fromkeys(hosts)), claim(run), longest, wish, kept)
    try:
        hold.take()
        hold.start()
        hold.wait_for_stolen()
        yield hold
    finally:
        hold.end()
        session.stops.clear()


@dataclass
class Hold:
    """The leases of one run. since: when each was taken, by the node's clock. stolen: whose they were before."""

    session: Session
    hosts: tuple[str, ...]
    claim: Claim
    longest: float
    wish: Wish = Wish()
    kept: Callable[[], str] = str
    since: dict[str, int] = field(default_factory=dict)
    stolen: dict[str, Lease] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None
    _troubled: set[str] = field(default_factory=set)

    # ------------------------------------------------------------------ taking

    def take(self) -> None:
        """All nodes, or none and LeaseHeld; with the wish to wait, for as long as it takes."""
        told: dict[str, str] = {}
        still: dict[str, Still] = {}
        while True:
            refusals = self._try()
            if not refusals:
                return
            self._give_back()
            problem = refused(refusals, self.session.inventory.path)
            still = {node: Still.of(answer, still.get(node)) for node, answer in refusals.items()}
            if not self.wish.wait or any(one.in_vain for one in still.values()):
                raise problem
            self._tell_waiting(refusals, told)
            time.sleep(LOOK * (1 + random.random() / 2))

    def _try(self) -> dict[str, Answer]:
        """Those that somebody else has."""
        answers = self.session.each([host for host in self.hosts if host not in self.since], self._take)
        problems = [answer for answer in answers.values() if isinstance(answer, FleetError)]
        self.session.stops[:] = [together(problems)] if problems else []
        return {
            host: answer for host, answer in answers.items() if isinstance(answer, Answer) and answer.word == "held"
        }

    def _take(self, machine: Machine) -> Answer:
        """Leases that hold nobody up are replaced: of this run, of a dead process of ours, and, if wished, any."""
        instead: list[str] = []
        while True:
            answer = ask(machine, text.argv("take", claim=self.claim, longest=self.longest, instead=instead))
            if answer.word != "held":
                self.since[machine.name] = answer.now
                self._tell_taken(machine.name, answer)
                return answer
            if answer.key in instead or not self._may_replace(answer.lease):
                return answer
            instead.append(answer.key)

    def _may_replace(self, lease: Lease | None) -> bool:
        """None: one that is damaged, which may be anybody's."""
        if lease is None:
            return self.wish.steal
        same = lease.run == self.claim.run and lease.owner == self.claim.owner
        return same or dead(lease) or self.wish.steal

    def _tell_taken(self, node: str, answer: Answer) -> None:
        before = answer.lease
        if before is None:
            if answer.damaged:
                why = f"{text.FILE} {answer.damaged}: taken over, whoever had it"
                self.session.progress.host("lease", node, why, done=True)
            return
        if before.run == self.claim.run:
            return
        old = text.age(answer.now - before.renewed)
        if answer.word == "expired":
            why = f"the lease of {before.run_of} has expired (renewed {old} ago): taken over"
        elif dead(before):
            why = f"the lease of {before.run_of} is stale, its process {before.pid} has ended: taken over"
        else:
            self.stolen[node] = before
            since = text.age(answer.now - before.since)
            why = f"taken from {before.run_of} (there for {since}, renewed {old} ago): it will be stopped"
        self.session.progress.host("lease", node, why, done=True)

    def _tell_waiting(self, refusals: Mapping[str, Answer], told: dict[str, str]) -> None:
        """Once for each holder."""
        here = datetime.now(UTC)
        for node, answer in refusals.items():
            if told.get(node) != answer.key:
                told[node] = answer.key
                self.session.progress.line(f"  waiting    {text.whose(node, answer, here)}; ^C leaves")

    def wait_for_stolen(self) -> None:
        """Until the run whose nodes were taken has stopped its containers. Raises HostError if it does not.

        Its own process saves logs and stops them; nobody else touches them.
        """
        deadline, told = Deadline(GIVEN_UP_SECONDS), False
        while left := self._left_by_stolen():
            if not deadline.left():
                what = "\n".join(f"{node}: {one.run_of} has not stopped: {names}" for node, one, names in left)
                runs = dict.fromkeys(one.run for _, one, _ in left)
                inventory = self.session.inventory.path
                lines = [shlex.join(["invoke", "down", "--run", run, "--inventory", inventory]) for run in runs]
                raise HostError(what, hint="\n".join(["is its controller gone?  stop it:", *lines]))
            if not told:
                for node, one, names in left:
                    self.session.progress.line(f"  lease      {node}: waiting until {one.run_of} has stopped {names}")
            told = True
            time.sleep(LOOK)

    def _left_by_stolen(self) -> list[tuple[str, Lease, str]]:
        def act(machine: Machine) -> str:
            there = ours(machine, run=self.stolen[machine.name].run)
            return ", ".join(one.name for one in there if one.state in RUNNING)

        answers = self.session.each(self.stolen, act)
        return [(node, self.stolen[node], one) for node, one in answers.items() if isinstance(one, str) and one]

    # ------------------------------------------------------------------ renewing

    def start(self) -> None:
        self._thread = threading.Thread(target=self._renew_all, name="fleet-lease", daemon=True)
        self._thread.start()

    def _renew_all(self) -> None:
        while not self._over.wait(EVERY):
            self.renew()

    def check(self) -> None:
        """Before containers are started: is it still ours? Who takes it sees those that run, not those to come."""
        self.renew()
        self.session.go_on()

    def renew(self) -> None:
        """Once, on all nodes that are ours. A node that does not answer is no loss."""
        with self._turn:
            self._renew()

    def _renew(self) -> None:
        since = dict(self.since)

        def act(machine: Machine) -> Answer:
            own = since[machine.name]
            return ask(machine, text.argv("renew", claim=self.claim, longest=self.longest, since=own))

        answers = self.session.each(since, act, timeout=RENEW_SECONDS)
        lost = {
            host: one for host, one in answers.items() if isinstance(one, Answer) and one.word in ("other", "absent")
        }
        for host in self._retaken({host: one for host, one in lost.items() if one.live is None}):
            del lost[host]
        for host in lost:
            self.since.pop(host, None)
        if lost and not self._over.is_set():
            self.session.stops.insert(0, self._lost(lost))
        for host, answer in answers.items():
            self._tell_trouble(host, answer)

    def _retaken(self, hosts: Mapping[str, Answer]) -> list[str]:
        """Hosts whose lease was gone, as files may be cleaned away, and that are ours again: nobody else has them."""
        since = dict(self.since)
        marks = {host: [one.mark] if one.damaged else [] for host, one in hosts.items()}

        def act(machine: Machine) -> Answer:
            own, instead = since[machine.name], marks[machine.name]
            return ask(machine, text.argv("take", claim=self.claim, longest=self.longest, since=own, instead=instead))

        if not hosts or self._over.is_set():
            return []
        answers = self.session.each(hosts, act, timeout=RENEW_SECONDS)
        written = ("taken", "expired", "instead")
        ours = [host for host, one in answers.items() if isinstance(one, Answer) and one.word in written]
        if self._over.is_set():  # it may have been given back meanwhile: not to be taken after that
            self._release(ours)
            return ours
        for host in ours:
            self.session.progress.line(f"  lease      {host}: its file was gone or damaged, and is written again")
        return ours

    def _tell_trouble(self, host: str, answer: Answer | FleetError) -> None:
        """Once until it is over."""
        if isinstance(answer, Answer):
            self._troubled.discard(host)
        elif host not in self._troubled and not self._over.is_set() and not isinstance(answer, Interrupted):
            self._troubled.add(host)
            why = answer.what.partition("\n")[0]
            self.session.progress.line(f"  lease      {host}: not renewed ({why}); asked again every {EVERY:.0f} s")

    def _lost(self, lost: Mapping[str, Answer]) -> LeaseHeld:
        whats = []
        for node, answer in lost.items():
            by = answer.lease
            who = (
                f"taken by {shown(by.owner)} for run {shown(by.run)}"
                if by
                else f"replaced: {text.FILE} {answer.damaged}"
                if answer.damaged
                else "removed by somebody (invoke down or reap?)"
            )
            whats.append(f"the lease of {node} was {who}: this run was stopped")
        hint = f"who has it: {see(self.session.inventory.path)}"
        return LeaseLost("\n".join(whats), kept=self.kept, hint=hint)

    # ------------------------------------------------------------------ the end

    def end(self) -> None:
        """Stop renewing and give back what is still ours; a node that does not answer keeps it for a minute."""
        self._over.set()
        if self._thread:
            self._thread.join(RENEW_SECONDS / 10)
        self._give_back()

    def _give_back(self) -> None:
        own, self.since = [host for host in self.since if host not in self.session.lost], {}
        self._release(own)

    def _release(self, hosts: Sequence[str]) -> None:
        argv = text.argv("release", claim=self.claim)
        if hosts:
            self.session.each(hosts, lambda machine: ask(machine, argv), timeout=RELEASE_SECONDS)


@dataclass(frozen=True)
class Still:
    """A lease that is waited for and cannot be that of a run that renews it. since: when it was first seen so."""

    key: str
    renewed: int
    since: float
    strange: bool

    @classmethod
    def of(cls, answer: Answer, before: Still | None) -> Still:
        renewed = answer.lease.renewed if answer.lease else 0
        strange = bool(answer.damaged or answer.odd)
        same = before is not None and strange and (before.key, before.renewed) == (answer.key, renewed)
        return cls(answer.key, renewed, before.since if before and same else awake.now(), strange)

    @property
    def in_vain(self) -> bool:
        return self.strange and awake.now() - self.since > IN_VAIN


class LeaseLost(LeaseHeld):
    """The node is another's now. What is kept of the run is told as it is when the message is shown."""

    def __init__(self, what: str, *, kept: Callable[[], str], hint: str) -> None:
        super().__init__(what, hint=hint)
        self._kept = kept

    @property
    def head(self) -> str:
        return "; ".join(filter(None, (super().head, self._kept())))


@dataclass(frozen=True)
class Node:
    """One node of `leases`. state: free, live, expired, dead (its process here has ended) or damaged."""

    host: str
    state: str
    answer: Answer

    def to_json(self) -> dict[str, object]:
        lease = self.answer.lease
        told = {"host": self.host, "state": self.state, "now": self.answer.now, "lease": lease and lease.model_dump()}
        return told | ({"why": self.why} if self.why else {})

    @property
    def why(self) -> str:
        """What is strange about the lease; "" if nothing is."""
        return f"{text.FILE} {self.answer.damaged}" if self.answer.damaged else self.answer.odd


def state(answer: Answer) -> str:
    if answer.lease is None:
        return "damaged" if answer.damaged else "free"
    if answer.live is None:
        return "expired"
    return "dead" if dead(answer.lease) else "live"


def leases(session: Session) -> tuple[list[Node], list[FleetError]]:
    """Every node's, and the errors of those that could not be asked."""
    answers = session.each(session.names, look)
    nodes = [Node(host, state(one), one) for host, one in answers.items() if isinstance(one, Answer)]
    return nodes, [one for one in answers.values() if isinstance(one, FleetError)]


def over(session: Session, nodes: Sequence[Node], runs: Collection[str]) -> list[str]:
    """Remove the leases of these runs from nodes where no container of theirs is left; what was removed, in words."""
    there = {one.host: one.answer.lease for one in nodes if one.answer.lease and one.answer.lease.run in runs}

    def act(machine: Machine) -> bool:
        lease = there[machine.name]
        return not ours(machine, run=lease.run) and release(machine, lease.token)

    gone = session.each(there, act)
    return [f"{host}: the lease of {there[host].run_of} removed" for host, one in gone.items() if one is True]


def live(nodes: Sequence[Node]) -> dict[str, Lease]:
    """Runs that hold a node now, each with one of its leases."""
    return {one.answer.lease.run: one.answer.lease for one in nodes if one.state == "live" and one.answer.lease}
