"""A session: the machines of an inventory with open transports, and Docker on each as that host allows it."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from fleet import http, probes
from fleet.errors import CommandTimeout, FleetError, HostError, joined
from fleet.hosts.base import Argv, Outcome, Transport
from fleet.hosts.fan import each
from fleet.model.check import Response
from fleet.model.inventory import Host, Inventory
from fleet.progress import Progress
from fleet.provision import provision
from fleet.secret import Secrets
from fleet.settings import Settings

T = TypeVar("T")

SUDO = ("sudo", "-n")
NO_SECRETS = Secrets()

# Docker writes a container's stderr to its own stderr: one file wants both, in order.
BOTH = ("sh", "-c", 'exec "$@" 2>&1', "_")


def owner() -> str:
    """Who starts things: user@machine, as labels and messages name them."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


@dataclass(frozen=True)
class Machine:
    """One host and the ways to talk to it. `sudo` remembers, for all machines of a session, how Docker is used.

    secrets: masked in all text that comes from the host.
    """

    host: Host
    transport: Transport
    settings: Settings
    sudo: dict[str, tuple[str, ...]]
    secrets: Secrets = NO_SECRETS

    @property
    def name(self) -> str:
        return self.host.name

    def run(self, argv: Argv, *, timeout: float = 0, stdin: bytes | None = None, check: bool = True) -> Outcome:
        """A command; timeout: seconds, by default the settings' for short commands."""
        limit = timeout or self.settings.timeouts.command
        with self._masked():
            outcome = self.transport.run(argv, timeout=limit, stdin=stdin, check=check)
        return self._told(outcome)

    def docker(self, argv: Argv, *, timeout: float = 0, check: bool = True) -> Outcome:
        """A docker command, `argv` starting with "docker"."""
        return self.run([*self.docker_prefix(), *argv], timeout=timeout, check=check)

    def docker_stream(
        self,
        argv: Argv,
        *,
        timeout: float,
        source: Iterable[bytes] | None = None,
        sink: Callable[[bytes], object] | None = None,
        both: bool = False,
        check: bool = True,
    ) -> Outcome:
        """A docker command with streamed stdin or stdout; `both`: stderr goes where stdout goes."""
        whole = [*(BOTH if both else ()), *self.docker_prefix(), *argv]
        # An image on its way must not change; what both streams write is text.
        masking = self.secrets.stream(sink) if sink and both and self.secrets else None
        with self._masked():
            outcome = self.transport.stream(whole, timeout=timeout, source=source, sink=masking or sink, check=check)
        if masking:
            masking.end()
        return self._told(outcome)

    @contextmanager
    def _masked(self) -> Iterator[None]:
        try:
            yield
        except FleetError as error:
            self.secrets.told(error)
            raise

    def _told(self, outcome: Outcome) -> Outcome:
        if not self.secrets:
            return outcome
        return replace(outcome, stdout=self.secrets.masked(outcome.stdout), stderr=self.secrets.masked(outcome.stderr))

    def docker_prefix(self) -> tuple[str, ...]:
        """Nothing, or `sudo -n`: found out at the first use. Raises HostError if Docker cannot be used either way."""
        if self.name not in self.sudo:
            self.sudo[self.name] = self._find_docker()
        return self.sudo[self.name]

    def _find_docker(self) -> tuple[str, ...]:
        plain = self.probe(probes.docker_access())
        sudo = plain if plain.usable else self.probe(probes.docker_access(sudo=True))
        prefix, cause = probes.docker_prefix(plain, sudo)
        if prefix is None:
            hint = f"try:  {self.transport.ssh_line(['docker', 'version'])}"
            raise HostError(f"Docker cannot be used: {cause}", where=self.name, hint=hint)
        return prefix

    def probe(self, probe: probes.Probe[T], *, timeout: float = 0) -> T:
        outcome = self.run(probe.argv, timeout=timeout, check=False)
        return probe.parse(outcome.code, outcome.out, outcome.err)

    def ask(self, request: http.Request, *, timeout: float = 10.0) -> Response | str:
        """An HTTP request made by the machine itself: the answer, or why there is none. timeout: seconds for all of it.

        Raises HostError only when the machine does not answer SSH.
        """
        try:
            outcome = self.run(request.argv, stdin=request.stdin, timeout=timeout, check=False)
        except CommandTimeout:
            return f"{request.url}: no answer within {timeout:g} s"
        if outcome.code == http.NO_CONNECTION:
            return f"{request.url}: connection refused"
        try:
            return http.parse(outcome.stdout)
        except ValueError as error:
            return f"{request.url}: {error}"


@dataclass(frozen=True)
class Session:
    """Machines by the inventory's names. Shared by threads."""

    inventory: Inventory
    transports: dict[str, Transport]
    settings: Settings
    progress: Progress
    sudo: dict[str, tuple[str, ...]] = field(default_factory=dict)
    secrets: Secrets = NO_SECRETS
    stops: list[FleetError] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)
    """Why the work under way may not go on, put here by whoever watches over it."""

    def go_on(self) -> None:
        """Raises the first of `stops`: asked between two steps and in every wait."""
        for stop in self.stops[:1]:
            raise stop

    @property
    def names(self) -> list[str]:
        return [host.name for host in self.inventory.hosts]

    def machine(self, name: str) -> Machine:
        return self._around(self.transports[name])

    def each(
        self, names: Iterable[str], act: Callable[[Machine], T], *, timeout: float = 0
    ) -> dict[str, T | FleetError]:
        """`act` on every named machine at once; a failure is that machine's answer.

        timeout: seconds for all of them, by default twice the settings' for one short command.
        """
        wanted = [self.transports[name] for name in dict.fromkeys(names)]
        limit = timeout or 2 * self.settings.timeouts.command
        return each(wanted, lambda transport: act(self._around(transport)), timeout=limit)

    def all(self, names: Iterable[str], act: Callable[[Machine], T], *, timeout: float = 0) -> dict[str, T]:
        """Like `each`, for work that must succeed everywhere: raises the failures as one error."""
        answers = self.each(names, act, timeout=timeout)
        failures = [answer for answer in answers.values() if isinstance(answer, FleetError)]
        if failures:
            raise together(failures)
        return {name: answer for name, answer in answers.items() if not isinstance(answer, FleetError)}

    def _around(self, transport: Transport) -> Machine:
        host = next(host for host in self.inventory.hosts if host.name == transport.name)
        return Machine(host, transport, self.settings, self.sudo, self.secrets)


def together(errors: list[FleetError]) -> FleetError:
    """One error for several: the only one, or all of them told at once with the highest exit code."""
    if len(errors) == 1:
        return errors[0]
    told = HostError(joined(errors))
    told.exit_code = max(error.exit_code for error in errors)
    return told


@contextmanager
def connect(
    inventory: Inventory, settings: Settings, progress: Progress, *, secrets: Secrets | None = None
) -> Iterator[Session]:
    """A session on all hosts of the inventory; connections are opened when first used and closed at the end."""
    with provision(inventory, connect=settings.timeouts.connect) as transports:
        yield Session(inventory, transports, settings, progress, secrets=secrets or NO_SECRETS)
