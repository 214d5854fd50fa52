"""A plan as text: for people to read, and one argument a line for golden files to be reviewed like any diff."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from fleet.errors import harmless
from fleet.model.seat import Seat
from fleet.steps import (
    LEAST_PROMPTS,
    PROMPTS_PER_CONCURRENCY,
    WARMUPS_PER_CONCURRENCY,
    ArmPlan,
    Plan,
    Step,
    seat_title,
    steps,
)
from fleet.words import counted

WIDTH = 100
_PLAIN = re.compile(r"^[\w@%+=:,./$-]+$")


def text(plan: Plan) -> str:
    lines = [*_head(plan), ""]
    for arm in plan.arms:
        lines += _arm(arm, plan)
    lines += ["", *notes(plan), ""]
    found = steps(plan)
    number = len(str(found[-1].number))
    for step in found:
        lines += _step(step, number)
    return harmless("\n".join(lines)) + "\n"


def listing(plan: Plan) -> str:
    """One option a line, the plan's own hash masked: the form of golden plans."""
    lines = [f"# {plan.key}", *(f"# {line}" for line in notes(plan))]
    for step in steps(plan):
        lines += ["", f"== {step.number} {step.arm} {step.host}: {step.title}"]
        lines += ["  " + masked(group, plan.hash6) for group in groups(step.argv)]
    return "\n".join(lines) + "\n"


def groups(argv: Sequence[str]) -> list[str]:
    """Quoted words, an option with its values on one line; the image and the command begin lines of their own."""
    return [line for line, _ in _groups(argv)]


def _groups(argv: Sequence[str]) -> list[tuple[str, bool]]:
    """Each group, and whether it must begin a line."""
    image = _image_at(argv)
    hard = {image, image + 1} if image else set()
    found: list[tuple[list[str], bool]] = []
    for index, word in enumerate(argv):
        if not found or index in hard or _is_option(word):
            found.append(([word], index in hard))
        else:
            found[-1][0].append(word)
    return [(" ".join(quote(word) for word in group), begins) for group, begins in found]


def quote(word: str) -> str:
    """For a shell, with $RUN and $OWNER left to it."""
    return word if _PLAIN.match(word) else shlex.quote(word)


def _is_option(word: str) -> bool:
    return re.match(r"^--?[A-Za-z]", word) is not None


def _image_at(argv: Sequence[str]) -> int:
    """Where a `docker run` names its image: after --entrypoint and its value. 0: this is no docker run."""
    return argv.index("--entrypoint") + 2 if "--entrypoint" in argv else 0


def masked(line: str, hash6: str) -> str:
    """A line of a listing with what every plan has of its own, its hashes, taken out."""
    line = line.replace(f"fleet-{hash6}-", "fleet-$PLAN-").replace(f"plan={hash6}", "plan=$PLAN")
    return re.sub(r"dev\.fleet\.spec=\w+", "dev.fleet.spec=$SPEC", line)


def _head(plan: Plan) -> Iterator[str]:
    points = f"{counted(len(plan.arms), 'arm')}, {counted(plan.points, 'point')}"
    figures = f"about {duration(plan.estimate.minutes)}, {plan.estimate.scratch_gb} GB of logs and results"
    yield f"{plan.key}   plan {plan.hash6}   {points}   {figures}"
    if plan.trial:
        yield f"TRIAL: a small load, not a measurement: {_why_trial(plan)}"
    images = {arm.arm.image for arm in plan.arms}
    weights = plan.estimate.weights_gb
    there = f" ({weights:g} GB must be on each serving host)" if weights else ""
    yield f"image {', '.join(sorted(images))}   model {plan.arms[0].arm.model}{there}"
    if names := {name for arm in plan.arms for service in arm.services for name in service.secrets}:
        yield f"secrets {', '.join(sorted(names))}: values are asked for when a sweep starts"
    point = plan.arms[0].points[0].point
    lengths = f"lengths from [{point.range_ratio} L, L], seed {point.seed}, temperature 0, EOS ignored"
    prompts = plan.trial.prompts_per_concurrency if plan.trial else PROMPTS_PER_CONCURRENCY
    yield f"load: random tokens, {lengths}"
    yield f"      {prompts} × concurrency prompts{_floor(plan)}, after {WARMUPS_PER_CONCURRENCY} × concurrency warm-ups"
    yield from _repeats(plan)


def _repeats(plan: Plan) -> Iterator[str]:
    if plan.repeats.count > 1:
        kept = "started anew for each round" if plan.repeats.restarts else "kept between them"
        order = f"each shuffled (order seed {plan.repeats.order_seed})"
        yield f"      {plan.repeats.count} rounds of all points, {order}; servers {kept}"


def _why_trial(plan: Plan) -> str:
    if plan.inventory.always_trial:
        return "every sweep on provision: lab is a trial, its nodes have no GPUs"
    return "asked for by --trial; the servers are the real ones"


def _floor(plan: Plan) -> str:
    disagg = any(arm.arm.disagg for arm in plan.arms)
    return f" (at least {LEAST_PROMPTS})" if disagg and not plan.trial else ""


def duration(minutes: int) -> str:
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest:02} m" if hours else f"{rest} m"


def _arm(plan: ArmPlan, whole: Plan) -> Iterator[str]:
    arm = plan.arm
    first = plan.points[0].point
    concs = " ".join(map(str, plan.concs))
    prompts = "chat-framed prompts" if first.chat else "raw prompts"
    gpus = counted(sum(arm.gpus.values()), "GPU")
    yield f"arm {arm.name}   {first.isl}/{first.osl}   conc {concs}{_times(whole)}   {gpus}   {prompts}"
    width = max(len(host.name) for host in plan.placement.hosts)
    for service in plan.servers:
        extra = _beside(plan, service.seat)
        yield f"  {service.host:<{width}}  {seat_title(service):<9}  :{service.http}{extra}"
    for dropped in plan.dropped:
        yield f"  not run: {dropped}"


def _times(plan: Plan) -> str:
    return f", each {plan.repeats.count} times" if plan.repeats.count > 1 else ""


def _beside(plan: ArmPlan, seat: Seat) -> str:
    """Router and client, shown with the seat they share a host with."""
    client = plan.points[0].client
    if seat.node or client.host != seat.host or seat != plan.servers[0].seat:
        return ""
    return f"   + router :{plan.router.http}, client" if plan.router else "   + client"


def notes(plan: Plan) -> list[str]:
    return notes_of(plan.deviations, plan.informational, plan.left_out)


def notes_of(deviations: Sequence[str], informational: Sequence[str], left_out: Sequence[str]) -> list[str]:
    return [
        *_listed("deviates from the public recipe", deviations),
        *_listed("informational only", informational),
        *_listed("left out", left_out),
    ]


def _listed(title: str, lines: Sequence[str]) -> list[str]:
    if len(lines) < 2:
        return [f"{title}: {line}" for line in lines]
    return [f"{title}:", *(f"  {line}" for line in lines)]


def _step(step: Step, number: int) -> Iterator[str]:
    yield f"{step.number:>{number}}  {step.host}  {step.title}   ({step.arm})"
    indent = " " * (number + 6)
    lines = list(wrapped(step.argv, WIDTH - len(indent) - 4))
    for index, line in enumerate(lines):
        yield indent + "  " * (index > 0) + line + (" \\" if index + 1 < len(lines) else "")


def wrapped(argv: Sequence[str], width: int) -> Iterator[str]:
    """Options packed into lines; the image and the command begin lines of their own."""
    line = ""
    for group, begins in _groups(argv):
        if line and (begins or len(line) + 1 + len(group) > width):
            yield line
            line = group
        else:
            line = f"{line} {group}".lstrip()
    yield line
