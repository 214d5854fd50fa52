"""A plan's images proven on its hosts, and each flag of its command lines compared with what their `--help` knows."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleet import docker, manual, proof
from fleet.docker import Image, short
from fleet.errors import FleetError, HostError, shown
from fleet.hosts.base import Outcome
from fleet.manual import Line, Unknown
from fleet.model.part import Help
from fleet.plan import Plan
from fleet.session import Machine, Session
from fleet.stages import prove
from fleet.stages.launch import image_on
from fleet.stages.preflight import needs
from fleet.words import counted

Known = Mapping[str, bool]
Question = tuple[str, Help]
"""An image's tag, and how one of its programs is asked."""


@dataclass(frozen=True)
class Asked:
    """Where a question is put: to the image of this ID on this host, with the variables of this seat."""

    line: Line
    host: str
    id: str


@dataclass(frozen=True)
class Compared:
    """One seat. flags: how many its command lines have. why: what kept them from being compared, "" if nothing did."""

    line: Line
    flags: int
    unknown: tuple[Unknown, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Verified:
    """images: by tag and host, where they are proven. faults: of hosts and images. seats: in the plan's order."""

    images: dict[str, dict[str, Image]] = field(default_factory=dict)
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    parts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    seats: tuple[Compared, ...] = ()
    faults: tuple[FleetError, ...] = ()

    @property
    def well(self) -> bool:
        return not self.faults and not any(seat.unknown or seat.why for seat in self.seats)

    def image(self, line: Line) -> Image | None:
        """The image of a seat; None if it is not proven on any host."""
        return next(iter(self.images.get(line.image, {}).values()), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "well": self.well,
            "images": [
                {
                    "image": tag,
                    "host": host,
                    "id": image.id,
                    "digests": list(image.digests),
                    "double": image.double,
                    "seconds": self.seconds[tag].get(host),
                    "parts": list(self.parts[tag]),
                }
                for tag, hosts in self.images.items()
                for host, image in hosts.items()
            ],
            "seats": [self._seat_json(seat) for seat in self.seats],
            "faults": [str(fault) for fault in self.faults],
        }

    def _seat_json(self, seat: Compared) -> dict[str, Any]:
        line, image = seat.line, self.image(seat.line)
        return {
            "arm": line.arm,
            "seat": line.seat,
            "host": line.host,
            "image": line.image,
            "id": image.id if image else None,
            "double": bool(image and image.double),
            "asked": list(line.help.asked),
            "flags": seat.flags,
            "unknown": [{"flag": one.flag, "step": one.step, "nearest": one.nearest} for one in seat.unknown],
            "why": seat.why,
        }


def verify(session: Session, plan: Plan, *, run: str) -> Verified:
    """Nothing is staged and no lease is taken. run: what the containers carry as theirs."""
    images: dict[str, dict[str, Image]] = {}
    seconds: dict[str, dict[str, float]] = {}
    faults: list[FleetError] = []
    for tag, hosts in _hosts(plan).items():
        try:
            there = _there(session, plan, tag, hosts, faults)
            found = prove.prove(session, plan, tag, list(there), next(iter(there.values())), run=run)
        except FleetError as error:
            faults.append(error)
        else:
            images[tag], seconds[tag] = found.images, found.seconds
    parts = {tag: tuple(map(str, proof.parts(plan, tag))) for tag in images}
    return Verified(images, seconds, parts, tuple(_compared(session, plan, images, run)), tuple(faults))


def _hosts(plan: Plan) -> dict[str, list[str]]:
    """By image tag, in the plan's order."""
    found: dict[str, list[str]] = {}
    for host, need in needs(plan).items():
        for tag in need.images:
            found.setdefault(tag, []).append(host)
    return found


def _there(session: Session, plan: Plan, tag: str, hosts: Sequence[str], faults: list[FleetError]) -> dict[str, str]:
    """Hosts that have the image, with its one ID; those that lack it go into `faults`. Raises HostError: no host has
    it, or they have different ones.
    """
    found = session.all(hosts, lambda machine: image_on(machine, tag))
    there = {host: image.id for host, image in found.items() if image}
    lacking = [host for host, image in found.items() if image is None]
    stage = shlex.join(["invoke", "stage", "--config", plan.key, "--inventory", plan.inventory.path])
    if not there:
        hint = f"type: {shlex.join(['docker', 'pull', tag])} on one of them"
        raise HostError(f"image {tag} is on none of {', '.join(hosts)}", hint=hint)
    if lacking:
        faults.append(HostError(f"image {tag} is not on {', '.join(lacking)}", hint=f"type: {stage}"))
    if len(set(there.values())) > 1:
        lines = [f"  {host}  {id}" for host, id in there.items()]
        what = "\n".join([f"image {tag} is not the same on all hosts:", *lines])
        raise HostError(what, hint=f"remove the wrong one: docker rmi {tag}; then: {stage}")
    return there


def _compared(session: Session, plan: Plan, images: Mapping[str, Mapping[str, Image]], run: str) -> Iterator[Compared]:
    """Each program is asked once, on its seat's host or, where that lacks the image, on the first that has it."""
    lines = manual.lines(plan)
    questions: dict[Question, Asked] = {}
    for line in lines:
        if there := images.get(line.image):
            host = line.host if line.host in there else next(iter(there))
            questions.setdefault((line.image, line.help), Asked(line, host, there[host].id))
    answers = _ask(session, questions, run)
    for line in lines:
        answer = answers.get((line.image, line.help), HostError("its image is not proven"))
        if isinstance(answer, FleetError):
            yield Compared(line, len(line.flags), why=answer.head)
        else:
            yield Compared(line, len(line.flags), line.unknown(answer))


def _ask(session: Session, questions: Mapping[Question, Asked], run: str) -> dict[Question, Known | FleetError]:
    """All hosts at once, each its own questions one after the other."""
    own: dict[str, list[Question]] = {}
    for question, asked in questions.items():
        own.setdefault(asked.host, []).append(question)

    def act(machine: Machine) -> dict[Question, Known | FleetError]:
        return {one: _answer(machine, session, questions[one], run) for one in own[machine.name]}

    most = max(map(len, own.values()), default=0)
    within = most * (session.settings.timeouts.proof_within + session.settings.timeouts.command)
    names = {host: [_name(run, questions[one]) for one in ones] for host, ones in own.items()}
    with prove.removing(session, names):
        told = session.each(own, act, timeout=within)
    found: dict[Question, Known | FleetError] = {}
    for host, answer in told.items():
        found |= dict.fromkeys(own[host], answer) if isinstance(answer, FleetError) else answer
    return found


def _name(run: str, question: Asked) -> str:
    return proof.name(run, question.id, " ".join(question.line.help.asked))


def _answer(machine: Machine, session: Session, question: Asked, run: str) -> Known | FleetError:
    """The flags that the image's own program knows. Where it tells none it is asked again beside its host's GPUs: some
    engines look for one before they read their command line.
    """
    line, image, service = question.line, question.id, question.line.lines[0][1]
    asked, host = line.help.asked, machine.host
    command, env = shown(shlex.join(asked)), docker.environment(service, host)
    session.progress.host("verify", machine.name, command)
    try:
        name, devices = _name(run, question), docker.devices(service, host)
        done = prove.started(machine, image, asked, run=run, name=name, env=env)
        if devices and not _flags(done):
            done = prove.started(machine, image, asked, run=run, name=name, env=env, devices=devices)
    except FleetError as error:
        return error
    known = _flags(done)
    if not known:
        said = [text for text in (done.err or done.out).splitlines() if text.strip()] or ["nothing"]
        why = f"{command} in {line.image} tells no flags ({docker.cause(done.code)}): {shown(said[-1].strip())}"
        return HostError(why, where=machine.name)
    told = f"{command}: {counted(len(known), 'spelling')} of flags ({short(image)})"
    session.progress.host("verify", machine.name, told, done=True)
    return known


def _flags(done: Outcome) -> dict[str, bool]:
    return manual.read(done.out) if done.ok else {}


def fault(plan: Plan, found: Verified) -> FleetError | None:
    """All that is wrong with flags, told at once; None if nothing is."""
    strange: dict[tuple[str, str], list[str]] = {}
    for seat in found.seats:
        for one in seat.unknown:
            where = f"step {one.step}  {seat.line.seat} on {seat.line.host} (arm {seat.line.arm})"
            strange.setdefault((one.flag, one.nearest), []).append(where)
    unread = list(dict.fromkeys(seat.why for seat in found.seats if seat.why and found.image(seat.line)))
    lines = [f"flags that the image does not know, {_source(found)}:"] if strange else []
    for (flag, near), places in strange.items():
        lines.append(f"  {flag}" + (f"   did you mean {near}?" if near else ""))
        lines += [f"    {place}" for place in places]
    if not lines and not unread:
        return None
    tags = ", ".join(dict.fromkeys(prove.written(plan, seat.line.image) for seat in found.seats))
    steps = shlex.join(["invoke", "plan", "--config", plan.key, "--inventory", plan.inventory.path])
    hint = f"see the steps: {steps}\ncorrect `flags` of the model file, or take another {tags}"
    return HostError("\n".join([*lines, *unread]), hint=hint)


def _source(found: Verified) -> str:
    doubles = any(image.double for hosts in found.images.values() for image in hosts.values())
    return "as its --help tells (a double's, not the engine's)" if doubles else "as its --help tells"
