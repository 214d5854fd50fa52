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

Metrics = dict[str, str]
"""Metrics by seat name."""

Texts = dict[str, str | None]
"""Metrics by seat name; None where they could not be read."""

GLANCE_SECONDS = 3.0
"""How long a worker may take to show its counters to a mere progress bar: a death is not to be overlooked for it."""


def settled(deployment: Deployment, *, within: float = 30.0) -> dict[str, Counters]:
    """Counters by seat name, of metrics that are `fresh`. within: seconds."""
    return counted(deployment, fresh(deployment, within=within))


def at_once(deployment: Deployment) -> dict[str, Counters]:
    """Counters by seat name as published last: good enough for a progress bar."""
    return counted(deployment, glance(deployment))


def glance(deployment: Deployment) -> Metrics:
    """Metrics by seat name as published last; a worker that does not show them soon has no entry."""
    grouped = by_host(http_servers(deployment))

    def act(machine: Machine) -> Texts:
        return {one.name: _text(machine, deployment, one, timeout=GLANCE_SECONDS) for one in grouped[machine.name]}

    return _merged(deployment.session.each(grouped, act, timeout=GLANCE_SECONDS))


def fresh(deployment: Deployment, *, within: float = 30.0) -> dict[str, str]:
    """Metrics by seat name, each published by its worker after this call began.

    A worker publishes its counters now and then (ATOM: every 5 s) and says when; one that does not say when is given
    the engine's settling time. A worker that cannot be read in time has no entry. within: seconds.
    """
    grouped = by_host(http_servers(deployment))

    def act(machine: Machine) -> Texts:
        deadline = Deadline(within)
        now = clock(machine)
        return {one.name: _fresh(machine, deployment, one, now, deadline.left()) for one in grouped[machine.name]}

    return _merged(deployment.session.each(grouped, act, timeout=within + deployment.engine.METRICS_SETTLE))


def clock(machine: Machine) -> float | None:
    """Unix seconds by the host's clock; None if it does not tell."""
    return machine.probe(probes.CLOCK)


def http_servers(deployment: Deployment) -> list[Service]:
    """Workers that answer HTTP: of one that spans hosts, its first seat."""
    return [service for service in deployment.arm.servers if service.http and service.seat.node == 0]


def counted(deployment: Deployment, texts: Metrics) -> dict[str, Counters]:
    return {seat: deployment.engine.counters(text) for seat, text in texts.items()}


def _merged(answers: dict[str, Texts | FleetError]) -> dict[str, str]:
    good = [answer for answer in answers.values() if not isinstance(answer, FleetError)]
    return {seat: text for answer in good for seat, text in answer.items() if text is not None}


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
