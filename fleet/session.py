"""A session: an inventory with open transports, and Docker on each host as that host allows it."""

from __future__ import annotations

import getpass
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from fleet import http, probes
from fleet.errors import CommandTimeout, FleetError, HostError
from fleet.hosts.base import Argv, Outcome, Transport
from fleet.hosts.fan import each
from fleet.model.check import Response
from fleet.model.inventory import Host, Inventory
from fleet.progress import Progress
from fleet.provision import provision
from fleet.settings import Settings

T = TypeVar("T")

SUDO = ("sudo", "-n")


def owner() -> str:
    """Who starts things: user@machine, as the labels and messages name them."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


@dataclass
class Session:
    """Shared by threads. Host names are the inventory's."""

    inventory: Inventory
    transports: dict[str, Transport]
    settings: Settings
    progress: Progress
    _sudo: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def host(self, name: str) -> Host:
        return next(host for host in self.inventory.hosts if host.name == name)

    @property
    def names(self) -> list[str]:
        return [host.name for host in self.inventory.hosts]

    def run(self, host: str, argv: Argv, *, timeout: float | None = None, stdin: bytes | None = None,
            check: bool = True) -> Outcome:
        """A command on a host; `timeout` in seconds, by default the settings' for short commands."""
        return self.transports[host].run(argv, timeout=timeout or self.settings.timeouts.command, stdin=stdin, check=check)

    def sudo(self, host: str) -> tuple[str, ...]:
        """What goes before `docker` on this host: nothing, or `sudo -n`. Found out once. Raises HostError if neither works."""
        with self._lock:
            known = self._sudo.get(host)
        if known is None:
            known = self._find_docker(host)
            with self._lock:
                self._sudo[host] = known
        return known

    def _find_docker(self, host: str) -> tuple[str, ...]:
        refusals = []
        for prefix in ((), SUDO):
            outcome = self.run(host, [*prefix, *probes.docker_version.argv], check=False)
            answer = probes.docker_version.parse(outcome.code, outcome.out, outcome.err)
            if answer.usable:
                return prefix
            refusals.append(answer.why)
        raise HostError(
            f"Docker cannot be used: {refusals[0]}; with sudo -n: {refusals[1]}",
            where=host,
            hint=f"try:  {self.transports[host].ssh_line(probes.docker_version.argv)}",
        )

    def docker(self, host: str, argv: Argv, *, timeout: float | None = None, stdin: bytes | None = None,
               check: bool = True) -> Outcome:
        """A docker command, `argv` starting with "docker"."""
        return self.run(host, [*self.sudo(host), *argv], timeout=timeout, stdin=stdin, check=check)

    def ask(self, host: str, request: http.Request, *, timeout: float = 10.0) -> Response | str:
        """An HTTP request made by the host itself: the answer, or why there is none. timeout: seconds for all of it.

        Raises HostError only when the host does not answer SSH.
        """
        try:
            outcome = self.run(host, request.argv, stdin=request.stdin, timeout=timeout, check=False)
        except CommandTimeout:
            return f"{request.url}: no answer within {timeout:g} s"
        if outcome.code == http.NO_CONNECTION:
            return f"{request.url}: connection refused"
        try:
            return http.parse(outcome.stdout)
        except ValueError as error:
            return f"{request.url}: {error}"

    def each(self, names: Iterable[str], act: Callable[[str], T], *, timeout: float) -> dict[str, T | FleetError]:
        """`act` on every named host at once, one thread a host; a failure is that host's answer."""
        wanted = list(dict.fromkeys(names))
        return each({name: self.transports[name] for name in wanted}, lambda transport: act(transport.name), timeout=timeout)

    def all(self, names: Iterable[str], act: Callable[[str], T], *, timeout: float) -> dict[str, T]:
        """Like `each`, for work that must succeed on every host: raises the first failure, naming the others."""
        answers = self.each(names, act, timeout=timeout)
        failures = {name: answer for name, answer in answers.items() if isinstance(answer, FleetError)}
        if failures:
            raise worst(failures)
        return {name: answer for name, answer in answers.items() if not isinstance(answer, FleetError)}


def worst(failures: dict[str, FleetError]) -> FleetError:
    """One error for several hosts' failures: the only one, or all of them told at once with the highest exit code."""
    errors = list(failures.values())
    if len(errors) == 1:
        return errors[0]
    told = HostError("\n".join(str(error) for error in errors))
    told.exit_code = max(error.exit_code for error in errors)
    return told


@contextmanager
def connect(inventory: Inventory, settings: Settings, progress: Progress) -> Iterator[Session]:
    """A session on all hosts of the inventory; connections are opened when first used and closed at the end."""
    with provision(inventory, connect=settings.timeouts.connect) as transports:
        yield Session(inventory, transports, settings, progress)


