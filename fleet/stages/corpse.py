"""Engines that are dead behind a container that runs: by what they log, and by their health where that is true."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from fleet import awake, docker
from fleet.errors import FleetError, shown
from fleet.hosts.base import Deadline
from fleet.model.evidence import Counters
from fleet.model.service import Service
from fleet.session import Machine
from fleet.stages import counters, watch
from fleet.stages.deployment import Deployment, by_host
from fleet.timeline import Reader
from fleet.words import counted

EVERY = 4.0
"""Seconds between two looks at the logs and the health of all services."""

EAGER = 1.0
"""The same while something looks dead."""

QUIET = 5.0
"""Seconds without any progress, beside those the counters need to show it, after which a fatal line is believed."""

SICK = 2
"""Looks in a row at which health must be bad."""

ROUND_SECONDS = 10.0
"""For one look at all hosts."""

HEALTH_SECONDS = 3.0

TAIL = 20_000
"""Lines of a log that one look reads at most: docker reads a file from its beginning for --since, unless told."""

WIDTH = 120


@dataclass
class Suspect:
    """A seat that logged a fatal line. seen, moved: when that was read, and its counters last moved: seconds awake,
    without those in which it had nothing to do. looked: when it was last looked at.
    """

    line: str
    when: str
    seen: float
    moved: float
    looked: float
    counts: Counters | None = None


class Inquest:
    """One look after the other, of the arm's watcher's own thread. What is found is noted in the deployment's vigil."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._vigil = deployment.vigil
        self._workers = {one.name: one for one in counters.http_servers(deployment)}
        self._readers = {one.name: Reader() for one in deployment.services}
        self._suspects: dict[str, Suspect] = {}
        self._sick: dict[str, int] = {}

    @property
    def pause(self) -> float:
        """Seconds until the next look."""
        return EAGER if self._suspects or any(self._sick.values()) else EVERY

    def look(self, now: float | None = None) -> None:
        """now: seconds awake. A host that does not answer is its pulse's affair."""
        now = awake.now() if now is None else now
        grouped = by_host(self._deployment.services)
        reachable = [host for host in grouped if host in self._deployment.reachable]

        def act(machine: Machine) -> None:
            for service in grouped[machine.name]:
                self._read(machine, service, now)
                self._ask(machine, service)

        self._deployment.session.each(reachable, act, timeout=ROUND_SECONDS)
        if self._suspects:
            self._judge(now, counters.glance(self._deployment))
        self._vigil.doubts = len(self._suspects) + sum(self._sick.values())
        self._vigil.looked = now

    # ------------------------------------------------------------------ log

    def _read(self, machine: Machine, service: Service, now: float) -> None:
        """What a service logged since the last look; docker's clock is its host's, so the first time is a length."""
        reader = self._readers[service.name]
        reader.again()
        since = reader.last or f"{time.time() - (self._vigil.serving or time.time()) + 1:.0f}s"
        argv = docker.logs_argv(self._deployment.named(service), since=since, tail=TAIL)
        lines: list[tuple[str, str]] = []
        machine.docker_stream(
            argv, timeout=ROUND_SECONDS, sink=lambda data: lines.extend(reader.feed(data)), both=True, check=False
        )
        fatal, transfer = self._deployment.fatal(service), self._deployment.transfer_errors(service)
        for when, text in [*lines, *reader.end()]:
            if transfer.search(text):
                self._vigil.transfers += 1
            if service.name in self._workers and fatal.search(text):
                self._suspects.setdefault(service.name, Suspect(text.strip(), when, now, now, now))

    def _judge(self, now: float, metrics: dict[str, str]) -> None:
        engine = self._deployment.engine
        quiet = QUIET + engine.METRICS_SETTLE
        for name, suspect in list(self._suspects.items()):
            text = metrics.get(name)
            counts = engine.counters(text) if text else suspect.counts
            if text and not self._vigil.loaded and not engine.under_way(text):
                suspect.seen += now - suspect.looked
                suspect.moved += now - suspect.looked
            elif counts != suspect.counts:
                suspect.moved = now if suspect.counts else suspect.moved
                if suspect.moved - suspect.seen > quiet:
                    del self._suspects[name]
            elif now - suspect.moved >= quiet:
                self._dead(suspect, self._workers[name], now)
            suspect.counts, suspect.looked = counts, now

    def _dead(self, suspect: Suspect, worker: Service, now: float) -> None:
        line = shown(suspect.line[:WIDTH])
        quiet = counted(round(now - suspect.moved), "second")
        cause = f"its engine: nothing has moved for {quiet} since it logged: {line}; its container runs on"
        self._vigil.find(worker.name, cause, self._deployment.moment(worker.host, suspect.when))

    # ------------------------------------------------------------------ health

    def _ask(self, machine: Machine, service: Service) -> None:
        """A server that does not answer at all says nothing of its engine: it may be busy, or have ended."""
        check = self._deployment.engine.HEALTH
        if check is None or service.name not in self._workers:
            return
        answer = self._deployment.get(machine, service, check.path, timeout=HEALTH_SECONDS)
        why = "" if isinstance(answer, str) else check.judge(answer)
        self._sick[service.name] = self._sick.get(service.name, 0) + 1 if why else 0
        if self._sick[service.name] >= SICK:
            suspect = self._suspects.get(service.name)
            said = f" after it logged: {shown(suspect.line[:WIDTH])}" if suspect else ""
            ended = self._deployment.moment(service.host, suspect.when) if suspect else None
            cause = f"its engine: {check.path} tells {why}{said}; its container runs on"
            self._vigil.find(service.name, cause, ended or datetime.now(UTC))


def certain(deployment: Deployment, within: float = 40.0) -> None:
    """Requests of a load have failed: wait for the watcher to have looked once more, and to doubt nobody.

    within: seconds. Raises ServiceDied or HostError.
    """
    vigil, since, deadline = deployment.vigil, awake.now(), Deadline(within)
    vigil.loaded = True
    try:
        while vigil.kept and vigil.serving and (vigil.looked <= since or vigil.doubts) and deadline.left():
            watch.alive(deployment)
            time.sleep(watch.EVERY)
        watch.alive(deployment)
    finally:
        vigil.loaded = False


def stale(deployment: Deployment, after: float = 20.0) -> str:
    """Whose counters have not been refreshed for so long by their host's clock, where the engine tells; "" if none's.

    after: seconds.
    """
    metrics = counters.glance(deployment)
    told = []
    for one in counters.http_servers(deployment):
        refreshed = deployment.engine.refreshed(metrics.get(one.name, ""))
        try:
            now = counters.clock(deployment.session.machine(one.host)) if refreshed else None
        except FleetError:
            now = None
        if refreshed and now and now - refreshed > after:
            told.append(f"the engine of {one.name} has not refreshed its counters for {now - refreshed:.0f} s")
    return "; ".join(told)
