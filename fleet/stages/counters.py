"""The workers' counters at a moment at which nothing is under way."""

from __future__ import annotations

import time

from fleet import probes
from fleet.errors import HostError
from fleet.model.evidence import Counters
from fleet.model.service import Service
from fleet.session import Machine
from fleet.stages.deployment import Deployment, by_host
from fleet.stages.wait import NotYet, wait


def settled(deployment: Deployment, *, within: float = 30.0) -> dict[str, Counters]:
    """Counters by seat name, each refreshed by its worker after this call began.

    A worker publishes its counters now and then (ATOM: every 5 s) and says when; one that does not say when is given
    the engine's settling time. A worker that cannot be read has no entry. within: seconds.
    """
    grouped = by_host(http_servers(deployment))

    def act(machine: Machine) -> dict[str, Counters]:
        now = machine.probe(probes.CLOCK)
        read = {}
        for service in grouped[machine.name]:
            text = _fresh(machine, deployment, service, now, within)
            if text is not None:
                read[service.name] = deployment.engine.counters(text)
        return read

    answers = deployment.session.each(grouped, act, timeout=within + 15)
    return {
        seat: counters for answer in answers.values() if isinstance(answer, dict) for seat, counters in answer.items()
    }


def at_once(deployment: Deployment) -> dict[str, Counters]:
    """Counters by seat name as published last: good enough for a progress bar."""
    grouped = by_host(http_servers(deployment))

    def act(machine: Machine) -> dict[str, Counters]:
        texts = {service.name: _text(machine, deployment, service) for service in grouped[machine.name]}
        return {name: deployment.engine.counters(text) for name, text in texts.items() if text is not None}

    answers = deployment.session.each(grouped, act)
    return {
        seat: counters for answer in answers.values() if isinstance(answer, dict) for seat, counters in answer.items()
    }


def http_servers(deployment: Deployment) -> list[Service]:
    """Workers that answer HTTP: of one that spans hosts, its first seat."""
    return [service for service in deployment.arm.servers if service.http and service.seat.node == 0]


def _fresh(machine: Machine, deployment: Deployment, service: Service, now: float | None, within: float) -> str | None:
    def look() -> str | NotYet:
        text = _text(machine, deployment, service)
        if text is None:
            return NotYet("no metrics")
        refreshed = deployment.engine.refreshed(text)
        return text if refreshed is None or now is None or refreshed >= now else NotYet("counters not refreshed yet")

    first = _text(machine, deployment, service)
    if first is None:
        return None
    if deployment.engine.refreshed(first) is None or now is None:
        time.sleep(deployment.engine.METRICS_SETTLE)
    try:
        return wait(look, what=f"{service.name} counters", within=within, every=0.3)
    except HostError:
        raise
    except Exception:
        return None


def _text(machine: Machine, deployment: Deployment, service: Service) -> str | None:
    answer = deployment.get(machine, service, "/metrics")
    return None if isinstance(answer, str) or answer.status != 200 else answer.text
