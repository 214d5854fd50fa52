"""Hosts and services that are watched: each is asked again and again by threads of its own, so one that is silent
holds up nobody. Connections stay open in between."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TypeVar

from fleet.errors import CommandTimeout, FleetError, Unreachable
from fleet.hosts.base import GRACE
from fleet.plan import Plan
from fleet.session import Machine, Session
from fleet.stages import preflight
from fleet.stages.health import Health, HostHealth, Questions, ServiceHealth
from fleet.stages.preflight import Findings
from fleet.stages.teardown import ours

T = TypeVar("T")

EVERY = 1.0
"""Seconds between two looks, and between a host's answer and its next question."""

PATIENCE = 3.0
"""Seconds that an answer may take longer than the one before it until its host counts as silent."""


@dataclass(frozen=True)
class Seen:
    """The latest of one host. answered: when it last did, on the monotonic clock; seconds: what that answer took."""

    answered: float
    seconds: float = 0.0
    finding: Findings | FleetError | None = None

    def then(self, finding: Findings | FleetError, began: float, ended: float) -> Seen:
        """After one more round. A host that was not reached has not answered."""
        if isinstance(finding, (Unreachable, CommandTimeout)):
            return replace(self, finding=finding)
        return Seen(ended, ended - began, finding)

    def silence(self, now: float) -> float | None:
        """Seconds since the host last answered; None while it does."""
        spent = now - self.answered
        lost = self.finding is None or isinstance(self.finding, (Unreachable, CommandTimeout))
        return spent if lost or spent > EVERY + self.seconds + PATIENCE else None


class Monitor:
    """Watches all hosts of a session, or those of a plan, while the block runs."""

    def __init__(self, session: Session, plan: Plan | None = None) -> None:
        self._session = session
        self._questions = Questions.about(session, plan)
        self._seen = dict.fromkeys(self._questions.wanted, Seen(time.monotonic()))
        self._services: dict[str, tuple[ServiceHealth, ...]] = {}
        self._stopped = threading.Event()
        self._faults: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Monitor:
        within = self._session.settings.timeouts.command
        for name in self._seen:
            self._start(name, self._find, self._keep, within)
            self._start(name, self._ask, self._keep_services, 2 * within)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End every command in flight, here and on the hosts."""
        self._stopped.set()
        end = time.monotonic() + 3 * GRACE
        while any(thread.is_alive() for thread in self._threads) and time.monotonic() < end:
            for name in self._seen:
                self._session.transports[name].cancel()
            self._threads[-1].join(0.1)
            self._threads = [thread for thread in self._threads if thread.is_alive()]

    @property
    def hosts(self) -> list[str]:
        return [*self._seen]

    def rounds(self) -> Iterator[Health]:
        """How all are, once a second, without end; at first when every host has answered or is overdue."""
        due = time.monotonic()
        while any(seen.finding is None for seen in self._seen.values()) and time.monotonic() < due + PATIENCE:
            self._stopped.wait(0.05)
            self._check()
        due = time.monotonic()
        while True:
            yield self.look(time.monotonic())
            due = max(due + EVERY, time.monotonic())
            self._stopped.wait(due - time.monotonic())

    def look(self, now: float) -> Health:
        """How all are at this time of the monotonic clock. Raises what a thread has met that is no FleetError."""
        self._check()
        seen = dict(self._seen)
        silent = {name: seconds for name, one in seen.items() if (seconds := one.silence(now)) is not None}
        answers = {name: one.finding for name, one in seen.items() if one.finding is not None and name not in silent}
        told = self._questions.told(answers, self._all_services(silent))
        hosts = {host.name: host for host in told.hosts}
        hosts |= {name: _silent(name, seen[name], seconds) for name, seconds in silent.items()}
        return replace(told, hosts=tuple(hosts[name] for name in seen))

    def _check(self) -> None:
        if self._faults:
            raise self._faults[0]

    def _all_services(self, silent: dict[str, float]) -> list[ServiceHealth]:
        """Those of a silent host as they were last seen, with that as their fault."""
        found = dict(self._services)
        lost = "its host does not answer"
        return [one.lost(lost) if name in silent else one for name in self._seen for one in found.get(name, ())]

    # ------------------------------------------------------------------ what the threads do

    def _start(self, name: str, act: Callable[[Machine], T], keep: Callable[..., None], within: float) -> None:
        def work() -> None:
            try:
                while not self._stopped.is_set():
                    began = time.monotonic()
                    answer = self._session.each([name], act, timeout=within)[name]
                    keep(name, answer, began)
                    self._stopped.wait(EVERY)
            except BaseException as fault:
                self._faults.append(fault)

        thread = threading.Thread(target=work, name=f"fleet-monitor-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _find(self, machine: Machine) -> Findings:
        return preflight.find(machine, self._questions.wanted[machine.name])

    def _keep(self, name: str, answer: Findings | FleetError, began: float) -> None:
        self._seen[name] = self._seen[name].then(answer, began, time.monotonic())

    def _ask(self, machine: Machine) -> list[ServiceHealth]:
        return self._questions.services(machine, ours(machine))

    def _keep_services(self, name: str, answer: list[ServiceHealth] | FleetError, _: float) -> None:
        if isinstance(answer, FleetError):
            before = self._services.get(name, ())
            self._services[name] = tuple(one.lost(answer.what) for one in before)
        else:
            self._services[name] = tuple(answer)


def _silent(name: str, seen: Seen, seconds: float) -> HostHealth:
    why = str(seen.finding) if isinstance(seen.finding, FleetError) else ""
    return HostHealth(name, None, (), error=why, reached=False, silence=seconds)
