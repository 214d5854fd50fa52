"""The same for every host, outside of any run: one command, its answers grouped; one file, put there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.errors import FleetError
from fleet.hosts.base import GRACE, Outcome
from fleet.session import BOTH, Machine, Session

Answers = Mapping[str, Outcome | FleetError]


@dataclass(frozen=True)
class Group:
    """Hosts that ended with the same exit code and wrote the same."""

    hosts: tuple[str, ...]
    code: int
    text: str


def ask(session: Session, command: str, *, timeout: float) -> dict[str, Outcome | FleetError]:
    """A shell command on all hosts of the session at once; what it writes to stderr stands where it was written.

    timeout: seconds for each host, connecting included.
    """
    argv = [*BOTH, "sh", "-c", command]

    def act(machine: Machine) -> Outcome:
        return machine.run(argv, timeout=timeout, check=False)

    return session.each(session.names, act, timeout=timeout + GRACE)


def groups(answers: Answers) -> list[Group]:
    """In the order of their first host. Hosts that could not be asked are in none."""
    found: dict[tuple[int, str], list[str]] = {}
    for host, answer in answers.items():
        if isinstance(answer, Outcome):
            found.setdefault((answer.code, answer.out.rstrip()), []).append(host)
    return [Group(tuple(hosts), code, text) for (code, text), hosts in found.items()]


def worst(answers: Answers) -> int:
    """The highest exit code, an error's included; a code that no shell can end with counts as 1."""
    codes = (answer.exit_code if isinstance(answer, FleetError) else answer.code for answer in answers.values())
    return max((code if 0 <= code <= 255 else 1 for code in codes), default=0)


def put(session: Session, data: bytes, path: str, *, mode: int) -> dict[str, FleetError | None]:
    """A file on all hosts of the session at once, each written aside and renamed into place."""
    within = session.settings.timeouts.stage_within

    def act(machine: Machine) -> None:
        machine.transport.put(data, path, mode=mode, timeout=within)

    return session.each(session.names, act, timeout=within)
