"""Ready means it answered: every server, the router with all workers, then real completions over every pair."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from fleet import docker
from fleet.errors import NotReady
from fleet.hosts.base import Deadline
from fleet.model.check import Response
from fleet.model.evidence import Counters
from fleet.model.service import Service
from fleet.results.pace import spoken as spoken_pace
from fleet.session import Machine
from fleet.stages import counters, paces, watch
from fleet.stages.deployment import ANSWER_SECONDS, Deployment, by_host, checks, spoken
from fleet.stages.launch import start
from fleet.stages.stall import Stall
from fleet.stages.wait import NotYet, wait
from fleet.words import counted, every

TOKENS = 8
"""Tokens of one proving completion: several, so that decode really decodes."""

LARGEST_ROUND = 64
"""Completions sent through the router at most until every worker has counted one."""

REQUEST_SECONDS = 300.0
"""The first request of a fresh engine may compile kernels."""

COUNTING_SECONDS = 30.0
"""How long counters may take to show what was counted."""

LOGS = "type: invoke logs"


def ready(deployment: Deployment, *, within: float) -> str:
    """Prove that the arm serves, watching its containers all the while; what was proven, in words.

    within: seconds for everything; a look at the containers that has begun by then is finished. Raises ServiceDied,
    NotReady or HostError.
    """
    deadline = Deadline(within)
    workers = counters.http_servers(deployment)
    answering(deployment, workers, deadline, watched=deployment.arm.servers)
    if deployment.arm.router:
        start(deployment, [deployment.arm.router])
        answering(deployment, [deployment.arm.router], deadline, watched=deployment.services)
    sent = counted(through_the_front(deployment, deadline), "completion")
    pairs = prove_pairs(deployment, deadline)
    deployment.vigil.serving = time.time()
    told = f"ready in {deadline.spent():.1f} s: {sent} counted by {every(len(workers), 'worker')}"
    if deployment.arm.router:
        told += f", {pairs} of {pairs} pairs answered, router sees {len(workers)} of {len(workers)}"
    return told


# --- every service answers ------------------------------------------------------------------------------------------


def answering(
    deployment: Deployment, services: Sequence[Service], deadline: Deadline, *, watched: Sequence[Service]
) -> None:
    """Until every check of every service is answered well. watched: services whose end ends the wait."""
    waiting = {service.name: service for service in services}
    last = {service.name: paces.before(deployment, service) for service in services}
    stalls = {service.name: Stall() for service in services if service.kind == "server"}
    began = f"{datetime.now():%H:%M}"
    progress = deployment.session.progress

    def look() -> bool | NotYet:
        watch.alive(deployment, watched)
        reasons = _reasons(deployment, list(waiting.values()), deadline, stalls)
        for name, why in reasons.items():
            host = waiting[name].host
            if why:
                waited = f"since {began} ({spoken_pace(deadline.spent())})"
                progress.host("ready", host, f"waiting for {name} {waited}: {why}{last[name]}")
            else:
                paces.keep(deployment, waiting.pop(name), deadline.spent())
                progress.host("ready", host, f"{name} answers after {deadline.spent():.1f} s", done=True)
        return NotYet("; ".join(f"{name}: {reasons[name]}" for name in waiting)) if waiting else True

    looking = partial(watch.meanwhile, deployment, look, watched)
    wait(looking, what=", ".join(map(spoken, services)), within=deadline.left(), every=0.5, hint=LOGS)


def _reasons(
    deployment: Deployment, services: Sequence[Service], deadline: Deadline, stalls: dict[str, Stall]
) -> dict[str, str]:
    """Why each service is not ready yet, "" if it is. Raises HostError for a host that is lost."""
    grouped = by_host(services)
    most = max(len(own) for own in grouped.values())

    def act(machine: Machine) -> dict[str, str]:
        whys = {one.name: _reason(machine, deployment, one, deadline) for one in grouped[machine.name]}
        for one in grouped[machine.name]:
            if whys[one.name] and one.name in stalls:
                stalls[one.name].look(machine, deployment, one)
        return whys

    # Each service has its checks and a look into its log; all but one of the checks are answered at once.
    answers = deployment.session.all(grouped, act, timeout=4 * ANSWER_SECONDS * most)
    return {name: why for answer in answers.values() for name, why in answer.items()}


def _reason(machine: Machine, deployment: Deployment, service: Service, deadline: Deadline) -> str:
    for check in checks(deployment.arm, service):
        answer = deployment.get(machine, service, check.path, timeout=_at_most(ANSWER_SECONDS, deadline))
        if isinstance(answer, str):
            how_far = _milestone(machine, deployment, service)
            return f"{check.title}: {answer}" + (f" ({how_far})" if how_far else "")
        if why := check.judge(answer):
            return f"{check.title}: {why}"
    return ""


def _milestone(machine: Machine, deployment: Deployment, service: Service) -> str:
    """How far a server's start has come, from the last lines of its log; "" if they do not say."""
    if service.kind != "server":
        return ""
    lines: list[bytes] = []
    argv = docker.logs_argv(deployment.named(service), tail=40)
    machine.docker_stream(argv, timeout=ANSWER_SECONDS, sink=lines.append, both=True, check=False)
    return deployment.milestone(b"".join(lines).decode(errors="replace"))


# --- real completions through the front -----------------------------------------------------------------------------


def through_the_front(deployment: Deployment, deadline: Deadline) -> int:
    """Completions through the router, in rounds, until every worker's counter has moved; how many were sent."""
    seats = [service.name for service in counters.http_servers(deployment)]
    before = _settled(deployment, deadline)
    sent, idle = 0, seats
    while sent < LARGEST_ROUND and deadline.left():
        for number in range(sent, min(sent + 2 * len(seats), LARGEST_ROUND)):
            _completed(deployment, number, deadline)
            sent += 1
        idle = _unmoved(seats, before, _settled(deployment, deadline))
        if not idle:
            return sent
    when = f"{deadline.spent():.0f} s and {counted(sent, 'completion')} through {spoken(deployment.front)}"
    raise NotReady(f"{when}: none counted by {', '.join(idle)}", hint=LOGS)


def _completed(deployment: Deployment, number: int, deadline: Deadline) -> None:
    """One completion; a refusal is tried again, with another prompt, as long as there is time."""
    tries = itertools.count()

    def look() -> bool | NotYet:
        prompt = f"{number}.{next(tries)}: fleet asks, are you ready to answer with {TOKENS} tokens?"
        why = watch.meanwhile(deployment, lambda: _complete(deployment, prompt, deadline))
        return NotYet(why) if why else True

    what = f"completions through {spoken(deployment.front)}"
    wait(look, what=what, within=deadline.left(), every=0.5, hint=LOGS)


def _settled(deployment: Deployment, deadline: Deadline) -> dict[str, Counters]:
    within = _at_most(COUNTING_SECONDS, deadline)
    return watch.meanwhile(deployment, lambda: counters.settled(deployment, within=within))


def _unmoved(seats: Sequence[str], before: dict[str, Counters], now: dict[str, Counters]) -> list[str]:
    """Seats that have not shown to have finished a request; one without counters has not."""
    return [seat for seat in seats if not _moved(before.get(seat), now.get(seat))]


def _moved(old: Counters | None, new: Counters | None) -> bool:
    return bool(old and new and new.finished is not None and new.finished > (old.finished or 0))


def _complete(deployment: Deployment, prompt: str, deadline: Deadline) -> str:
    """One completion of several tokens; why it was not one, or ""."""
    body = {
        "model": deployment.engine.served_name(deployment.arm.arm),
        "prompt": prompt,
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "stream": False,
    }
    return _short_of(_post(deployment, deployment.front, body, deadline))


def _post(deployment: Deployment, service: Service, body: object, deadline: Deadline) -> Response | str:
    """A completion asked for by the machine that the load will come from."""
    machine = deployment.session.machine(deployment.front.host)
    return deployment.post(machine, service, "/v1/completions", body, timeout=_at_most(REQUEST_SECONDS, deadline))


def _short_of(answer: Response | str) -> str:
    good = _good(answer)
    if isinstance(good, str):
        return good
    usage = good.table().get("usage") or {}
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    told = counted(tokens, "token") if isinstance(tokens, int) else "no count of tokens"
    return "" if tokens == TOKENS else f"{told} instead of {TOKENS}"


def _good(answer: Response | str) -> Response | str:
    """An answer with status 200, or what came instead."""
    if isinstance(answer, str) or answer.status == 200:
        return answer
    return f"status {answer.status}: {' '.join(answer.text.split())[:200]}"


def _at_most(seconds: float, deadline: Deadline) -> float:
    """A limit within the deadline; a second at least, so that the answer says more than that there was no time."""
    return min(seconds, max(1.0, deadline.left()))


# --- every pair -----------------------------------------------------------------------------------------------------


def prove_pairs(deployment: Deployment, deadline: Deadline) -> int:
    """Play the router for each prefill → decode pair once. Raises NotReady naming the pair that does not answer."""
    workers = counters.http_servers(deployment)
    prefills = [service for service in workers if service.seat.role == "prefill"]
    decodes = [service for service in workers if service.seat.role == "decode"]
    pairs = list(itertools.product(prefills, decodes))
    for number, (prefill, decode) in enumerate(pairs):
        if not deadline.left():
            raise NotReady(f"{number} of {len(pairs)} pairs answered within {deadline.seconds:.0f} s", hint=LOGS)
        why = watch.meanwhile(deployment, partial(_relay, deployment, prefill, decode, number, deadline))
        if why:
            raise NotReady(f"pair {spoken(prefill)} → {spoken(decode)} does not answer: {why}", hint=LOGS)
    return len(pairs)


def _relay(deployment: Deployment, prefill: Service, decode: Service, number: int, deadline: Deadline) -> str:
    """What a router does for one request; why decode did not answer it, or ""."""
    engine, model = deployment.engine, deployment.engine.served_name(deployment.arm.arm)
    prompt = f"{number}: fleet asks the pair, does the cache of this prompt arrive?"
    machine = deployment.session.machine(deployment.front.host)
    info = _good(deployment.get(machine, prefill, "/kv_transfer_info", timeout=_at_most(ANSWER_SECONDS, deadline)))
    if isinstance(info, str):
        return f"prefill: {info}"
    first = _good(_post(deployment, prefill, engine.prefill_request(model, prompt, TOKENS), deadline))
    if isinstance(first, str):
        return f"prefill: {first}"
    try:
        body = engine.decode_request(model, prompt, TOKENS, first.table(), info.table())
    except NotReady as error:
        return error.what
    why = _short_of(_post(deployment, decode, body, deadline))
    return f"decode: {why}" if why else ""
