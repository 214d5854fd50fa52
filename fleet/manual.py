"""What a program's `--help` says of its flags, and which flags of a plan's command lines it does not know.

Help texts are argparse's or clap's: an option begins a line, its spellings stand apart by `, `, two spaces end them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fleet.engines import Engine, engine_for
from fleet.loads import Load, load_for
from fleet.model.near import nearest
from fleet.model.part import Help
from fleet.model.service import Service
from fleet.routers import Router, router_for
from fleet.steps import ArmPlan, Plan, seat_title, steps

# Options are indented by 2 to 6 columns; what they do by 10 (clap) or 14 and more (argparse), where a dash is prose.
_OPTION = re.compile(r"^ {2,8}(-\S.*)$")
_SPELLING = re.compile(r"^(--?[A-Za-z0-9][\w.-]*)(.*)$")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FLAG = re.compile(r"--?[A-Za-z]")


def read(text: str) -> dict[str, bool]:
    """The flags that a help text lists, in its order: each spelling, and whether it takes a value. Empty if none."""
    found: dict[str, bool] = {}
    for line in _COLOUR.sub("", text).splitlines():
        if option := _OPTION.match(line):
            _option(re.split(r" {2,}", option[1].strip(), maxsplit=1)[0], found)
    return found


def _option(head: str, found: dict[str, bool]) -> None:
    """`-tp N, --tensor-parallel-size N`, `--x [{a,b}]`, `--y, --no-y`, `-p, --port <PORT>`."""
    read = [spelling for part in re.split(r", (?=-)", head) if (spelling := _SPELLING.match(part))]
    takes = any(spelling[2].strip() for spelling in read)
    for spelling in read:
        found[spelling[1]] = found.get(spelling[1], False) or takes


def flags_of(argv: Sequence[str]) -> list[str]:
    """The flags of a command line as they are written, without values, each once."""
    return list(dict.fromkeys(word.partition("=")[0] for word in argv if _FLAG.match(word)))


def knows(known: Collection[str], flag: str, asked: Help) -> bool:
    """Whether a program with these flags takes one that is spelled so."""
    if flag in known or flag in asked.unlisted:
        return True
    if asked.loose:
        plain = flag.split(".")[0].replace("_", "-")
        return plain != flag and knows(known, plain, asked)
    return asked.beginnings and flag.startswith("--") and sum(one.startswith(flag) for one in known) == 1


@dataclass(frozen=True)
class Unknown:
    """A flag that a program does not know. step: where the plan has it first. nearest: one it knows and is not given;
    "" if none is alike.
    """

    flag: str
    step: int
    nearest: str


@dataclass(frozen=True)
class Line:
    """One seat's command lines of an arm: `lines` are numbers of steps of the plan, each with what it runs."""

    arm: str
    seat: str
    host: str
    image: str
    help: Help
    lines: tuple[tuple[int, Service], ...]

    @property
    def flags(self) -> dict[str, int]:
        """Each flag, and the first step that has it."""
        found: dict[str, int] = {}
        for number, service in self.lines:
            for flag in flags_of(service.argv[len(self.help.argv) :]):
                found.setdefault(flag, number)
        return found

    def unknown(self, known: Mapping[str, bool]) -> tuple[Unknown, ...]:
        strange = [(flag, step) for flag, step in self.flags.items() if not knows(known, flag, self.help)]
        free = [flag for flag in known if flag not in self.flags]
        return tuple(Unknown(flag, step, nearest(flag, free) or "") for flag, step in strange)


def lines(plan: Plan) -> list[Line]:
    """Every seat of the plan, arm by arm; a load client's points are one seat."""
    starts = iter([step.number for step in steps(plan) if step.argv[:2] == ("docker", "run")])
    found = []
    for arm in plan.arms:
        served = [_line(arm, [(next(starts), service)]) for service in arm.services]
        loads = [(next(starts), planned.client) for planned in arm.points]
        found += [*served, *([_line(arm, loads)] if loads else [])]
    return found


def _line(arm: ArmPlan, those: Sequence[tuple[int, Service]]) -> Line:
    service = those[0][1]
    return Line(
        arm=arm.arm.name,
        seat=seat_title(service),
        host=service.host,
        image=service.image,
        help=help_of(arm, service),
        lines=tuple(those),
    )


def help_of(arm: ArmPlan, service: Service) -> Help:
    """How the program of a seat is asked for its flags."""
    return said_by(arm, service).manual(service)


def said_by(arm: ArmPlan, service: Service) -> Engine | Router | Load:
    """Who describes this service: its engine, its router or its load client."""
    if service.kind == "router" and arm.arm.router:
        return router_for(arm.arm.router.name)
    return load_for(arm.arm.framework) if service.kind == "client" else engine_for(arm.arm.framework)
