"""Hosts in a console, and what they answer. They are asked at each use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from fleet import errors, ui
from fleet.errors import FleetError, UsageError
from fleet.hosts.base import Outcome
from fleet.model import load
from fleet.model.hostrange import folded
from fleet.model.inventory import Host, Inventory
from fleet.model.near import did_you_mean
from fleet.session import Session
from fleet.settings import duration
from fleet.shell.shown import Named, Text, at, said
from fleet.stages import everyone

Opener = Callable[[], Session]


class Answer:
    """What a command printed (`out`, `err`), and its exit code (`code`)."""

    code: int
    out: Text
    err: Text

    def __init__(self, outcome: Outcome) -> None:
        self.code, self.out, self.err = outcome.code, Text(outcome.out), Text(outcome.err)

    @property
    def ok(self) -> bool:
        return self.code == 0

    def __repr__(self) -> str:
        text = (self.out + self.err).rstrip()
        if self.ok:
            return text or "(no output)"
        return f"{text}\n(exit {self.code})".lstrip()


class Answers:
    """The answers of several hosts by name, what is written to stderr included; equal ones are shown once."""

    def __init__(self, found: Mapping[str, Outcome | FleetError]) -> None:
        self._found = found

    @property
    def code(self) -> int:
        """The worst exit code."""
        return everyone.worst(self._found)

    def __getitem__(self, host: str) -> Answer | FleetError:
        """What a host answered, or why it could not be asked."""
        if host not in self._found:
            near = did_you_mean(str(host), self._found)
            what = f"no answer of {errors.shown(host)} is here{near}"
            raise UsageError(what, hint=f"hosts: {folded([*self._found])}")
        answer = self._found[host]
        return answer if isinstance(answer, FleetError) else Answer(answer)

    def __contains__(self, host: object) -> bool:
        return host in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def items(self) -> list[tuple[str, Answer | FleetError]]:
        return [(host, self[host]) for host in self]

    def __len__(self) -> int:
        return len(self._found)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._found)

    def __repr__(self) -> str:
        groups = everyone.groups(self._found)
        return "\n".join([*(ui.group_text(one, asked=len(self)) for one in groups), *said(self._found.values())])


def _seconds(timeout: float | str, default: float) -> float:
    if not timeout:
        return default
    try:
        return duration(timeout)
    except ValueError as error:
        raise UsageError(
            f"timeout {errors.shown(repr(timeout))}: {error}", hint="type: timeout=90, or timeout='5m'"
        ) from None


def _command(command: object) -> str:
    if not isinstance(command, str) or not command.strip():
        raise UsageError(
            f"a shell command in quotes expected, {errors.shown(repr(command))} was given", hint='type: .run("uptime")'
        )
    return command


class HostObject(Named):
    """A host: `.run("uptime")`, `.ssh` (the line to type), `.host` (what the inventory says)."""

    host: Host

    def __init__(self, host: Host, opened: Opener) -> None:
        self.host = host
        self.name = host.name
        self._opened = opened

    def run(self, command: str, timeout: float | str = 0) -> Answer:
        """A shell command on the host. timeout: seconds, or "5m"; default: `timeouts.command` of invoke.yaml."""
        machine = self._opened().machine(self.name)
        within = _seconds(timeout, machine.settings.timeouts.command)
        return Answer(machine.run(["sh", "-c", _command(command)], timeout=within, check=False))

    @property
    def ssh(self) -> Text:
        return Text(self._opened().machine(self.name).transport.ssh_line())

    def __repr__(self) -> str:
        return "  ".join(cell for cell in ui.inventory_row(self.host) if cell != "-")


class Hosts:
    """`hosts["node1"]`, `hosts["rack1:!node2"]`, `hosts.each("uptime")`; iterating gives every host."""

    def __init__(self, inventory: Inventory, opened: Opener) -> None:
        self._inventory = inventory
        self._opened = opened

    @property
    def names(self) -> list[str]:
        return [host.name for host in self._inventory.hosts]

    def __getitem__(self, wanted: str | int) -> HostObject | Hosts:
        """A host by its name or place; hosts by any other pattern that --limit takes."""
        if isinstance(wanted, int):
            return at(list(self), wanted, "hosts")
        if not isinstance(wanted, str) or not wanted:
            raise UsageError(
                f"hosts[{errors.shown(repr(wanted))}]: a name or a pattern expected",
                hint=f"hosts: {folded(self.names)}",
            )
        for host in self._inventory.hosts:
            if host.name == wanted:
                return HostObject(host, self._opened)
        return Hosts(_limited(self._inventory, wanted), self._opened)

    def __iter__(self) -> Iterator[HostObject]:
        return (HostObject(host, self._opened) for host in self._inventory.hosts)

    def __len__(self) -> int:
        return len(self._inventory.hosts)

    def _ipython_key_completions_(self) -> list[str]:
        groups = dict.fromkeys(group for host in self._inventory.hosts for group in host.groups)
        return [*self.names, *(group for group in groups if group not in self.names)]

    def each(self, command: str, timeout: float | str = 0) -> Answers:
        """A shell command on all hosts at once. timeout: as of `run`, for each host."""
        session = replace(self._opened(), inventory=self._inventory)
        within = _seconds(timeout, session.settings.timeouts.command)
        return Answers(everyone.ask(session, _command(command), timeout=within))

    def __repr__(self) -> str:
        return ui.table_text(ui.INVENTORY, map(ui.inventory_row, self._inventory.hosts))


def _limited(inventory: Inventory, pattern: str) -> Inventory:
    try:
        return load.limit(inventory, [pattern])
    except UsageError as error:
        raise UsageError(error.what.removeprefix("--limit "), where=error.where, hint=error.hint) from None
