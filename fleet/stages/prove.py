"""Images proven after staging: one ID behind the tag on every host, a first container that ends well, and what the plan
needs of the image is in it. And: a run that goes on has the images it began with.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from fleet import docker, proof
from fleet.docker import Image, short
from fleet.errors import CommandTimeout, FleetError, HostError, shown
from fleet.hosts.base import Outcome
from fleet.model.part import Part
from fleet.plan import Plan
from fleet.results.lock import Lock
from fleet.results.record import utc
from fleet.session import Machine, Session, owner
from fleet.stages.launch import image_on
from fleet.stages.preflight import Findings

LOOKS, LOOK = 5, 0.5
"""How often, and seconds apart, a container is looked for that was cut off while docker made it."""


@dataclass(frozen=True)
class Proven:
    """Images by host; and the seconds that the first container took, where one was started."""

    images: dict[str, Image]
    seconds: dict[str, float]


def prove(
    session: Session, plan: Plan, tag: str, hosts: Sequence[str], id: str, *, run: str, before: Collection[str] = ()
) -> Proven:
    """On all hosts at once. before: hosts where a container of this image has run already.

    Raises HostError: another image than `id` is there, or its container does not end well, or it lacks a part.
    """
    parts = proof.parts(plan, tag)
    within = session.settings.timeouts.proof_within

    def act(machine: Machine) -> tuple[Image, float | None, list[Part]]:
        image = _same(machine, tag, id)
        if machine.name in before:
            return image, None, []
        session.progress.host("prove", machine.name, f"a first container of {tag}")
        began = time.monotonic()
        lacking = _lacking(machine, tag, image, parts, run)
        seconds = time.monotonic() - began
        if not lacking:
            session.progress.host("prove", machine.name, _well(tag, image, seconds, len(parts)), done=True)
        return image, seconds, lacking

    with removing(session, {host: [proof.name(run, id)] for host in hosts if host not in before}):
        answers = session.all(hosts, act, timeout=within + 2 * session.settings.timeouts.command)
    if lacking := {host: missing for host, (_, _, missing) in answers.items() if missing}:
        raise _incomplete(plan, tag, id, lacking)
    seconds = {host: round(spent, 1) for host, (_, spent, _) in answers.items() if spent is not None}
    return Proven({host: image for host, (image, _, _) in answers.items()}, seconds)


def _same(machine: Machine, tag: str, id: str) -> Image:
    found = image_on(machine, tag)
    if found is None or found.id != id:
        got = found.id if found else "not here"
        raise HostError(f"image {tag} is {got}, the other hosts have {id}", where=machine.name)
    return found


def _well(tag: str, image: Image, seconds: float, parts: int) -> str:
    what = f", {parts} of {parts} parts are there" if parts else ""
    return f"{tag} ({short(image.id)}) starts, {seconds:.1f} s{what}"


def _lacking(machine: Machine, tag: str, image: Image, parts: Sequence[Part], run: str) -> list[Part]:
    command, name = proof.command(parts), proof.name(run, image.id)
    done = started(machine, image.id, command, run=run, name=name, env=machine.host.env)
    if done.code and not (parts and done.code == proof.NOT_FOUND):
        raise _failed(machine, tag, done)
    try:
        return proof.missing(done.code, done.out, parts)
    except ValueError:
        raise _failed(machine, tag, done) from None


def started(
    machine: Machine,
    image: str,
    command: Sequence[str],
    *,
    run: str,
    name: str,
    env: Mapping[str, str],
    devices: Sequence[str] = (),
) -> Outcome:
    """A container of an image that runs one short command, and is gone afterwards however it ends."""
    argv = proof.run_argv(image, command, proof.labels(run, owner()), name, env, devices)
    within = machine.settings.timeouts.proof_within
    try:
        return machine.docker(argv, timeout=within, check=False)
    except CommandTimeout:
        with suppress(FleetError):
            _remove(machine, name)
        what = f"a container of image {short(image)} did not end within {within:g} s ({shown(shlex.join(command[:3]))})"
        hint = "is the disk slow? more time: fleet.timeouts.proof_within in invoke.yaml"
        raise HostError(what, where=machine.name, hint=hint) from None


@contextmanager
def removing(session: Session, names: Mapping[str, Sequence[str]]) -> Iterator[None]:
    """After ^C the containers of these names, by host, are removed where they have not ended by then."""

    def act(machine: Machine) -> None:
        for name in names[machine.name]:
            _remove(machine, name, looks=2)

    try:
        yield
    except KeyboardInterrupt:
        session.each(names, act)
        raise


def _remove(machine: Machine, name: str, looks: int = LOOKS) -> None:
    """A container whose `docker run` was cut off may come into being after that: it is removed once it is there."""
    for look in range(looks):
        if name in machine.docker(["docker", "rm", "--force", name], check=False).out:
            return
        time.sleep(LOOK if look < looks - 1 else 0)


def _failed(machine: Machine, tag: str, done: Outcome) -> HostError:
    said = [line for line in (done.err or done.out).splitlines() if line.strip()] or ["it said nothing"]
    what = f"a first container of {tag} failed ({docker.cause(done.code)}): {shown(said[-1].strip())}"
    program, flag = proof.INIT
    again = [*machine.docker_prefix(), "docker", "run", "--rm", "--init", "--entrypoint", program, tag, flag]
    return HostError(what, where=machine.name, hint=f"try:  {machine.transport.ssh_line(again)}")


def _incomplete(plan: Plan, tag: str, id: str, lacking: Mapping[str, Sequence[Part]]) -> HostError:
    """All that is missing, once for the hosts that lack the same."""
    missing = {
        part: [host for host, parts in lacking.items() if part in parts] for parts in lacking.values() for part in parts
    }
    lines = [f"image {tag} ({short(id)}) lacks what {plan.key} needs:"]
    lines += [f"  {part}   ({part.why})   on {', '.join(hosts)}" for part, hosts in missing.items()]
    return HostError("\n".join(lines), hint=f"nothing was started; type another one: {written(plan, tag)}")


def written(plan: Plan, tag: str) -> str:
    """Where a plan's image is written."""
    arm = next(arm.arm for arm in plan.arms if arm.arm.image == tag)
    return f"image: of {arm.source or plan.key}"


# --- images that a run began with ------------------------------------------------------------------------------------


def seen(found: Mapping[str, Findings]) -> dict[str, dict[str, str]]:
    """By tag and host: the IDs that a preflight has seen."""
    told: dict[str, dict[str, str]] = {}
    for host, finding in found.items():
        for tag, image in finding.images.items():
            if image:
                told.setdefault(tag, {})[host] = image.id
    return told


class Drifted(HostError):
    """A tag names another image than when the run began. Its hint says how to go on."""


def unmoved(
    session: Session,
    lock: Lock,
    found: Mapping[str, Mapping[str, str]],
    *,
    again: Sequence[str],
    allowed: bool = False,
) -> Lock:
    """The run's lock, with tags that came to another image noted where that is allowed. found: IDs by tag and host.

    again: the command that goes on with the run. Raises Drifted with all of them where it is not allowed.
    """
    strange = {tag: there for tag, ids in found.items() if (there := lock.strange(tag, ids))}
    if strange and not allowed:
        raise _drifted(session, lock, strange, again)
    for tag, hosts in strange.items():
        now = next(iter(hosts.values()))
        lock = lock.moved(tag, now, tuple(hosts), utc(datetime.now(UTC)))
        session.progress.line(str(lock.drifts[-1]))
    return lock


def _drifted(session: Session, lock: Lock, strange: Mapping[str, Mapping[str, str]], again: Sequence[str]) -> Drifted:
    lines = ["the run began with another image than its tag names now:"]
    hints = []
    for tag, ids in strange.items():
        own = lock.images[tag]
        lines += [f"  {tag}", f"    the run's   {own.id}" + "".join(f"  {digest}" for digest in own.digests)]
        for id in dict.fromkeys(ids.values()):
            lines.append(f"    now         {id}  on {', '.join(host for host, one in ids.items() if one == id)}")
        hints += _back(session, tag, own.id, own.digests, list(ids))
    hints.append(f"or go on with today's: {shlex.join([*again, '--allow-drift'])}")
    return Drifted("\n".join(lines), hint="\n".join(hints))


def _back(session: Session, tag: str, id: str, digests: Sequence[str], hosts: Sequence[str]) -> list[str]:
    """What to type so that the tag names the run's image again."""
    answers = session.each(hosts, lambda machine: image_on(machine, id) is not None)
    there = [host for host, answer in answers.items() if answer is True]
    gone = [host for host in hosts if host not in there]
    lines = [f"bring it back: {shlex.join(['docker', 'tag', id, tag])}  (on {', '.join(there)})"] if there else []
    if gone and digests:
        pull = f"{shlex.join(['docker', 'pull', digests[0]])} && {shlex.join(['docker', 'tag', digests[0], tag])}"
        lines.append(f"bring it back: {pull}  (on {', '.join(gone)})")
    elif gone:
        rmi = f"{shlex.join(['docker', 'rmi', tag])}  there, the sweep brings it again"
        lines.append(f"it is no more on {', '.join(gone)}: {rmi if there else 'docker load a copy of it'}")
    return lines
