"""The workers' counters at a moment at which nothing is under way."""

from __future__ import annotations

import time

from fleet import probes
from fleet.errors import FleetError, NotReady
from fleet.hosts.base import Deadline
from fleet.model.evidence import Counters
from fleet.model.service import Service
from fleet.session import Machine
from fleet.stages.deployment import Deployment, by_host
from fleet.stages.wait import NotYet, wait

GLANCE_SECONDS = 3.0
"""How long a worker may take to show its counters to a mere progress bar: a death is not to be overlooked for it."""


def settled(deployment: Deployment, *, within: float = 30.0) -> dict[str, Counters]:
    """Counters by seat name, each refreshed by its worker after this call began.

    A worker publishes its counters now and then (ATOM: every 5 s) and says when; one that does not say when is given
    the engine's settling time. A worker that cannot be read in time has no entry. within: seconds.
    """
    grouped = by_host(http_servers(deployment))

    def act(machine: Machine) -> dict[str, Counters]:
        deadline = Deadline(within)
        now = machine.probe(probes.CLOCK)
        texts = {}
        for service in grouped[machine.name]:
            texts[service.name] = _fresh(machine, deployment, service, now, deadline.left())
        return _counted(deployment, texts)

    return _merged(deployment.session.each(grouped, act, timeout=within + deployment.engine.METRICS_SETTLE))


def at_once(deployment: Deployment) -> dict[str, Counters]:
    """Counters by seat name as published last: good enough for a progress bar."""
    grouped = by_host(http_servers(deployment))

    def act(machine: Machine) -> dict[str, Counters]:
        return _counted(
            deployment,
            {one.name: _text(machine, deployment, one, timeout=GLANCE_SECONDS) for one in grouped[machine.name]},
        )

    return _merged(deployment.session.each(grouped, act, timeout=GLANCE_SECONDS))


def http_servers(deployment: Deployment) -> list[Service]:
    """Workers that answer HTTP: of one that spans hosts, its first seat."""
    return [service for service in deployment.arm.servers if service.http and service.seat.node == 0]


def _counted(deployment: Deployment, texts: dict[str, str | None]) -> dict[str, Counters]:
    return {seat: deployment.engine.counters(text) for seat, text in texts.items() if text is not None}


def _merged(answers: dict[str, dict[str, Counters] | FleetError]) -> dict[str, Counters]:
    found: dict[str, Counters] = {}
    for answer in answers.values():
        if not isinstance(answer, FleetError):
            found |= answer
    return found


def _fresh(machine: Machine, deployment: Deployment, service: Service, now: float | None, within: float) -> str | None:
    """The metrics published after `now` (the host's own clock); None if there are none, or not in time."""
    first = _text(machine, deployment, service)
    if first is None:
        return None
    if now is None or deployment.engine.refreshed(first) is None:
        time.sleep(deployment.engine.METRICS_SETTLE)
        return _text(machine, deployment, service)

    def look() -> str | NotYet:
        text = _text(machine, deployment, service) or ""
        return text if (deployment.engine.refreshed(text) or 0) >= now else NotYet("counters are not refreshed yet")

    try:
        return wait(look, what=f"counters of {service.name}", within=within, every=0.3)
    except NotReady:
        return None


def _text(machine: Machine, deployment: Deployment, service: Service, *, timeout: float = 10.0) -> str | None:
    answer = deployment.get(machine, service, "/metrics", timeout=timeout)
    return None if isinstance(answer, str) or answer.status != 200 else answer.text
