"""Every error a user can cause, and the exit code it ends with.

    FleetError                    1
    ├── NotKept                   1   the disk here takes no more: what was written before is kept
    ├── UsageError                2   a wrong word on the command line
    ├── FileFaults                2   a recipe, inventory or model file that cannot be used: all its faults at once
    ├── PlanError                 2   the files are sound, together they cannot run: all reasons at once
    ├── HostError                 3   a machine did not do what was asked
    │   ├── Unreachable           3   no connection: refused, timed out, name unknown
    │   ├── HostKeyError          3   the host key is unknown or is not the one on record
    │   ├── LoginError            3   the host answered and refused the login
    │   ├── CommandTimeout        3   a remote command did not end before its deadline
    │   └── CommandFailed         3   a remote command ended with a code that was not allowed
    ├── LabError                  3   the lab on this machine cannot be made, or a node of it does not do what it should
    ├── PreflightError            3   hosts answer, but the plan cannot run on them: all reasons at once
    ├── ServiceDied               4   a serving container ended, or its host or its Docker engine was lost
    ├── NotReady                  4   services run, and did not answer or come to rest before the deadline
    ├── LeaseHeld                 5   someone else has the node
    └── Interrupted             130   ^C

Each carries *what* happened, *where* (seat, host or file line) and a *hint*: what to type next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from fleet.words import counted

SHOWN = 200
"""Characters of a word or a path that a message repeats."""


def harmless(text: object, keep: str = "\n\t") -> str:
    """A text from anywhere, for a terminal or a file that people read: what does not print is escaped. keep: what else
    stays, by default the ends of lines and tabs.
    """
    return "".join(char if char.isprintable() or char in keep else ascii(char)[1:-1] for char in str(text))


def shown(text: object) -> str:
    """What somebody typed, for a message: on one line, what does not print escaped, cut where it is long."""
    plain = harmless(text, keep="")
    return plain if len(plain) <= SHOWN else f"{plain[:SHOWN]}… ({len(plain)} characters)"


def cited(text: object) -> str:
    """The same in quotes."""
    return f"'{shown(text)}'"


class FleetError(Exception):
    """Base of all errors that are told to the user as one message, without a traceback."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    @property
    def head(self) -> str:
        """Without the hint."""
        return f"{shown(self.where)}: {self.what}" if self.where else self.what

    def __str__(self) -> str:
        return f"{self.head}\n{self.hint}" if self.hint else self.head


class NotKept(FleetError):
    pass


class UsageError(FleetError):
    exit_code = 2


class Fault(NamedTuple):
    """One thing wrong in a file. `line` counts from 1; 0 means the file as a whole."""

    line: int
    text: str


class FileFaults(FleetError):
    """All faults of one file, sorted by line. `beside`: those of other files that were found with them."""

    exit_code = 2

    def __init__(
        self,
        path: str,
        faults: Sequence[Fault],
        *,
        beside: Sequence[FileFaults] = (),
        hint: str = "nothing was started",
    ) -> None:
        self.path = path
        self.faults = tuple(sorted(set(faults)))
        self.beside = tuple(beside)
        lines = [f"{shown(path)}: {counted(len(self.faults), 'fault')}"]
        width = max((len(str(fault.line)) for fault in self.faults), default=1) + 1
        lines += [f"  {':' + str(f.line) if f.line else '':<{width}}  {f.text}" for f in self.faults]
        super().__init__("\n".join([*lines, *(other.what for other in self.beside)]), hint=hint)


class Gathering:
    """Faults of several files, gathered to be told at once: each file once, in the order of its first fault."""

    def __init__(self) -> None:
        self._found: dict[str, list[Fault]] = {}

    def add(self, path: str, faults: Sequence[Fault]) -> None:
        if faults:
            self._found.setdefault(path, []).extend(faults)

    @contextmanager
    def also(self) -> Iterator[None]:
        """What the block raises as FileFaults is kept, and the block left."""
        try:
            yield
        except FileFaults as error:
            for one in (error, *error.beside):
                self.add(one.path, one.faults)

    def tell(self) -> None:
        """Raises FileFaults if there are any."""
        files = [FileFaults(path, faults) for path, faults in self._found.items()]
        if files:
            raise FileFaults(files[0].path, files[0].faults, beside=files[1:])


class PlanError(FleetError):
    """All reasons why a recipe cannot be planned on an inventory.

    causes: what the reasons come to, each with the arms it stops, none for the recipe as a whole. arms: how many there
    are.
    """

    exit_code = 2

    def __init__(
        self,
        what: str,
        reasons: Sequence[str] = (),
        *,
        causes: Mapping[str, Sequence[str]] | None = None,
        arms: int = 0,
        hint: str = "nothing was started",
    ) -> None:
        self.reasons = tuple(reasons)
        self.causes = dict(causes or dict.fromkeys(self.reasons or (what,), ()))
        self.arms = arms
        super().__init__("\n".join([what, *(f"  {reason}" for reason in self.reasons)]), hint=hint)


class HostError(FleetError):
    exit_code = 3


class Unreachable(HostError):
    pass


class HostKeyError(HostError):
    pass


class LoginError(HostError):
    pass


class CommandTimeout(HostError):
    pass


class CommandFailed(HostError):
    pass


class LabError(FleetError):
    exit_code = 3


class PreflightError(FleetError):
    """All reasons why the hosts cannot run the plan. `hosts`: those a reason is about."""

    exit_code = 3

    def __init__(self, reasons: Sequence[str], *, hosts: Sequence[str] = (), hint: str = "nothing was started") -> None:
        self.reasons = tuple(reasons)
        self.hosts = tuple(hosts)
        head = f"preflight: {counted(len(self.reasons), 'reason')} not to start"
        super().__init__("\n".join([head, *(f"  {reason}" for reason in self.reasons)]), hint=hint)


class ServiceDied(FleetError):
    exit_code = 4


class NotReady(FleetError):
    exit_code = 4


class LeaseHeld(FleetError):
    exit_code = 5


class Interrupted(FleetError):
    exit_code = 130


def joined(errors: Sequence[FleetError]) -> str:
    """What several errors say, each hint once: behind the last that has it."""
    lines = []
    for number, error in enumerate(errors, start=1):
        lines.append(error.head)
        if error.hint and error.hint not in [later.hint for later in errors[number:]]:
            lines.append(error.hint)
    return "\n".join(lines)
