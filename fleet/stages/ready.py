"""Ready means it answered: every server, the router with all workers, then real completions over every pair."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from fleet import docker
from fleet.errors import NotReady
from fleet.hosts.base import Deadline
from fleet.model.check import Check, Response
from fleet.model.evidence import Counters
from fleet.model.service import Service
from fleet.session import Machine
from fleet.stages import counters, watch
from fleet.stages.deployment import Deployment, by_host, spoken
from fleet.stages.launch import start
from fleet.stages.wait import NotYet, wait

TOKENS = 8
"""Tokens of one proving completion: several, so that decode really decodes."""

LARGEST_ROUND = 64
"""Completions sent through the router at most until every worker has counted one."""

REQUEST_SECONDS = 300.0
"""The first request of a fresh engine may compile kernels."""


def ready(deployment: Deployment, *, within: float) -> str:
    """Prove that the arm serves, watching its containers all the while; what was proven, in words.

    within: seconds for everything. Raises ServiceDied, NotReady or HostError.
    """
    deadline = Deadline(within)
    servers = deployment.arm.servers
    answering(deployment, counters.http_servers(deployment), deadline)
    if deployment.arm.router:
        start(deployment, [deployment.arm.router])
        answering(deployment, [deployment.arm.router], deadline, watched=servers)
    sent = through_the_front(deployment, deadline)
    pairs = prove_pairs(deployment, deadline)
    told = f"ready in {deadline.spent():.1f} s: {sent} completions counted by all {len(servers)} workers"
    if deployment.arm.router:
        told += f", {pairs} of {pairs} pairs answered, router sees {len(servers)} of {len(servers)}"
    return told


def answering(
    deployment: Deployment, services: Sequence[Service], deadline: Deadline, *, watched: Sequence[Service] = ()
) -> None:
    """Until every check of every service is answered well."""
    waiting = {service.name: service for service in services}

    def look() -> bool | NotYet:
        watch.alive(deployment, [*watched, *services])
        grouped = by_host(list(waiting.values()))
        answers = deployment.session.all(grouped, lambda machine: _reasons(machine, deployment, grouped[machine.name]))
        reasons = {name: why for answer in answers.values() for name, why in answer.items()}
        for name in [name for name, why in reasons.items() if not why]:
            service = waiting.pop(name)
            deployment.session.progress.host("ready", service.host, f"{name} answers after {deadline.spent():.1f} s")
        if not waiting:
            return True
        for name, service in waiting.items():
            deployment.session.progress.host(
                "ready", service.host, f"{name}: {reasons[name]}, {deadline.spent():.0f} s"
            )
        return NotYet("; ".join(f"{name}: {reasons[name]}" for name in waiting))

    names = ", ".join(map(spoken, services))
    wait(look, what=names, within=deadline.left(), every=0.5, hint="type: invoke logs")


def _reasons(machine: Machine, deployment: Deployment, services: Sequence[Service]) -> dict[str, str]:
    """Why each service is not ready yet, "" if it is."""
    return {service.name: _reason(machine, deployment, service) for service in services}


def _reason(machine: Machine, deployment: Deployment, service: Service) -> str:
    for check in checks(deployment, service):
        answer = deployment.get(machine, service, check.path)
        why = answer if isinstance(answer, str) else check.judge(answer)
        if why:
            return _milestone(machine, deployment, service) or f"{check.title}: {why}"
    return ""


def checks(deployment: Deployment, service: Service) -> tuple[Check, ...]:
    placement = deployment.arm.placement
    if service.kind == "router":
        return deployment.router.readiness(placement) if deployment.router else ()
    return deployment.engine.readiness(service.seat, placement)


def _milestone(machine: Machine, deployment: Deployment, service: Service) -> str:
    """How far a start has come, from the last lines of the log."""
    if service.kind == "router":
        return ""
    argv = ["sh", "-c", 'exec "$@" 2>&1', "_", *machine.docker_prefix()]
    lines = machine.run([*argv, *docker.logs_argv(deployment.named(service), tail=40)], check=False).out
    return deployment.milestone(lines)


def through_the_front(deployment: Deployment, deadline: Deadline) -> int:
    """Completions through the router until every worker's counter has moved; how many were sent."""
    before = counters.settled(deployment)
    sent = [0]

    def look() -> int | NotYet:
        watch.alive(deployment)
        if sent[0] < LARGEST_ROUND:
            why = _complete(deployment, sent[0], deadline)
            if why:
                return NotYet(why)
            sent[0] += 1
        idle = _unmoved(before, counters.at_once(deployment))
        return NotYet(f"no completion counted by {', '.join(idle)}") if idle else sent[0]

    within = deadline.left()
    return wait(look, what="completions through " + spoken(deployment.front), within=within, every=0.1)


def _unmoved(before: dict[str, Counters], now: dict[str, Counters]) -> list[str]:
    return [seat for seat, old in before.items() if not _moved(old, now.get(seat))]


def _moved(old: Counters, new: Counters | None) -> bool:
    return new is not None and new.finished is not None and new.finished > (old.finished or 0)


def _complete(deployment: Deployment, number: int, deadline: Deadline) -> str:
    """One completion of several tokens; why it was not one, or ""."""
    body = {
        "model": deployment.arm.arm.model_path,
        "prompt": f"fleet asks {number}: are you ready to answer with {TOKENS} tokens?",
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "stream": False,
    }
    machine = deployment.session.machine(deployment.front.host)
    timeout = min(REQUEST_SECONDS, max(1.0, deadline.left()))
    return _short_of(deployment.post(machine, deployment.front, "/v1/completions", body, timeout=timeout))


def _short_of(answer: Response | str) -> str:
    if isinstance(answer, str):
        return answer
    if answer.status != 200:
        return f"status {answer.status}: {' '.join(answer.text.split())[:200]}"
    usage = answer.table().get("usage") or {}
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return "" if tokens == TOKENS else f"{tokens} tokens instead of {TOKENS}"


def prove_pairs(deployment: Deployment, deadline: Deadline) -> int:
    """Play the router for each prefill → decode pair once. Raises NotReady naming the pair that does not answer."""
    servers = counters.http_servers(deployment)
    prefills = [service for service in servers if service.seat.role == "prefill"]
    decodes = [service for service in servers if service.seat.role == "decode"]
    pairs = list(itertools.product(prefills, decodes))
    for number, (prefill, decode) in enumerate(pairs):
        why = _relay(deployment, prefill, decode, number, deadline)
        if why:
            raise NotReady(
                f"pair {spoken(prefill)} → {spoken(decode)} does not answer: {why}", hint="type: invoke logs"
            )
    return len(pairs)


def _relay(deployment: Deployment, prefill: Service, decode: Service, number: int, deadline: Deadline) -> str:
    engine, model = deployment.engine, deployment.arm.arm.model_path
    machine = deployment.session.machine(deployment.front.host)
    prompt = f"fleet asks the pair {number}: does the cache of this prompt arrive?"
    timeout = min(REQUEST_SECONDS, max(1.0, deadline.left()))
    info = deployment.get(machine, prefill, "/kv_transfer_info")
    first = deployment.post(
        machine, prefill, "/v1/completions", engine.prefill_request(model, prompt, TOKENS), timeout=timeout
    )
    for answer in (info, first):
        if isinstance(answer, str):
            return answer
        if answer.status != 200:
            return f"prefill: status {answer.status}: {' '.join(answer.text.split())[:200]}"
    assert not isinstance(info, str)
    assert not isinstance(first, str)
    body = engine.decode_request(model, prompt, TOKENS, first.table(), info.table())
    return _short_of(deployment.post(machine, decode, "/v1/completions", body, timeout=timeout))
