"""How hosts and running services are: what was asked, what was found, and whether all is well."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fleet import docker, probes
from fleet.docker import Container
from fleet.errors import (
    CommandTimeout,
    FleetError,
    HostError,
    HostKeyError,
    LoginError,
    ServiceDied,
    Unreachable,
    shown,
)
from fleet.model.inventory import Host
from fleet.model.service import Service
from fleet.plan import ArmPlan, Plan
from fleet.session import Machine, Session
from fleet.stages import preflight
from fleet.stages.deployment import ANSWER_SECONDS, checks, get, typed
from fleet.stages.launch import START_SECONDS
from fleet.stages.preflight import Findings, Needs
from fleet.stages.teardown import STOP_SECONDS

Known = dict[tuple[str, str, str], tuple[ArmPlan, Service]]
"""A plan's services by arm, host and seat."""


@dataclass(frozen=True)
class HostHealth:
    """One host. `faults` is empty when all is well; `error`: why it could not be asked; `reached`: by SSH.

    `silence`: seconds since it last answered, while it is watched and does not.
    """

    name: str
    findings: Findings | None
    faults: tuple[str, ...]
    error: str = ""
    reached: bool = True
    strangers: tuple[str, ...] = ()
    silence: float | None = None

    @property
    def well(self) -> bool:
        return not self.faults and not self.error and self.silence is None


@dataclass(frozen=True)
class ServiceHealth:
    """One service of ours: the questions it was asked, and the first that was answered badly ("" if none).

    starting: why it does not serve yet, which is neither well nor a fault; ended: how it came to an end that is well.
    """

    host: str
    name: str
    run: str
    arm: str
    state: str
    asked: tuple[str, ...]
    fault: str
    starting: str = ""
    ended: str = ""

    @property
    def well(self) -> bool:
        return not self.fault and not self.starting

    @property
    def answer(self) -> str:
        return self.fault or (f"starting: {self.starting}" if self.starting else self.ended or "well")

    def lost(self, why: str) -> ServiceHealth:
        """The same, on a host that does not say how it is now."""
        return replace(self, fault=why, starting="", ended="")


@dataclass(frozen=True)
class Health:
    """key, unneeded: the plan's config, and the hosts of the inventory that it does not need and nobody asked."""

    hosts: tuple[HostHealth, ...]
    services: tuple[ServiceHealth, ...] = ()
    models: tuple[str, ...] = ()
    key: str = ""
    unneeded: tuple[str, ...] = ()

    @property
    def well(self) -> bool:
        return (
            all(host.well for host in self.hosts) and all(service.well for service in self.services) and not self.models
        )

    @property
    def code(self) -> int:
        """3 if a host is not well or models differ, else 4 if a service is not, or not yet."""
        if self.models or not all(host.well for host in self.hosts):
            return HostError.exit_code
        return 0 if self.well else ServiceDied.exit_code

    @property
    def ill(self) -> bool:
        """Something is wrong; false while services are only starting."""
        return self.code == HostError.exit_code or any(service.fault for service in self.services)

    @property
    def failed(self) -> tuple[str, ...]:
        """Hosts that are not well, or have a service that is ill."""
        ill = {service.host for service in self.services if service.fault}
        return tuple(host.name for host in self.hosts if not host.well or host.name in ill)

    def to_json(self) -> dict[str, Any]:
        return {
            "well": self.well,
            "hosts": [_host_json(host) for host in self.hosts],
            "services": [vars(service) | {"well": service.well} for service in self.services],
            "models": list(self.models),
            "not_needed": list(self.unneeded),
        }


def _host_json(host: HostHealth) -> dict[str, Any]:
    found = host.findings
    told: dict[str, Any] = {"name": host.name, "well": host.well, "error": host.error, "faults": list(host.faults)}
    if host.silence is not None:
        told["silent_s"] = round(host.silence)
    if found:
        told |= {
            "ssh_ms": round(found.seconds * 1000),
            "docker": found.docker,
            "sudo": found.sudo,
            "clock_offset_s": found.clock_offset_s,
            "gpus": [gpu.model_dump() for gpu in found.gpus],
            "disk": found.disk,
            "images": {tag: image.id if image else None for tag, image in found.images.items()},
            "models": {name: listing.model_dump() if listing else None for name, listing in found.models.items()},
            "strangers": list(found.strangers),
            "kernel": found.facts.get("kernel"),
        }
    return told


def health(session: Session, plan: Plan | None) -> Health:
    """All hosts of the inventory, or those of a plan with what it needs of them; then every running service of ours."""
    questions = Questions.about(session, plan)
    found = preflight.look(session, questions.wanted)
    return questions.told(found, _services(session, questions, found))


@dataclass(frozen=True)
class Questions:
    """What each host is asked, and what the answers come to. start_within: seconds a service may take to answer."""

    hosts: dict[str, Host]
    wanted: dict[str, Needs]
    known: Known
    stage: str
    start_within: float
    key: str = ""

    @classmethod
    def about(cls, session: Session, plan: Plan | None) -> Questions:
        wanted = preflight.needs(plan) if plan else {name: Needs() for name in session.names}
        hosts = {host.name: host for host in session.inventory.hosts}
        stage, key = (typed(plan, "stage"), plan.key) if plan else ("", "")
        return cls(hosts, wanted, _planned(plan), stage, session.settings.timeouts.ready_within, key)

    def host(self, name: str, finding: Findings | FleetError) -> HostHealth:
        return _host(self.hosts[name], self.wanted[name], finding, self.stage)

    def services(self, machine: Machine, containers: Sequence[Container]) -> list[ServiceHealth]:
        """Our containers on one host, asked one after the other."""
        return [_ask(machine, container, self) for container in containers]

    def told(self, found: Mapping[str, Findings | FleetError], services: Iterable[ServiceHealth]) -> Health:
        hosts = tuple(self.host(name, finding) for name, finding in found.items())
        unneeded = tuple(name for name in self.hosts if name not in self.wanted)
        return Health(hosts, settled(tuple(services)), tuple(models_apart(self.wanted, found)), self.key, unneeded)


def _host(host: Host, want: Needs, finding: Findings | FleetError, stage: str) -> HostHealth:
    if isinstance(finding, FleetError):
        reached = not isinstance(finding, (Unreachable, HostKeyError, LoginError, CommandTimeout))
        return HostHealth(host.name, None, (), error=str(finding), reached=reached)
    in_use = any(map(_at_work, finding.ours))
    faults = list(preflight.host_reasons(host, want, finding, in_use=in_use))
    faults += [f"image {tag} is not here; {stage}" for tag, image in finding.images.items() if not image]
    return HostHealth(host.name, finding, tuple(faults), strangers=finding.strangers)


def _at_work(container: Container) -> bool:
    """Whether it is there by right: it runs, or it is about to, or it has just ended well and is being removed."""
    if container.state == "created":
        return _within(container.created, START_SECONDS)
    just = container.state == "exited" and container.status.startswith("Exited (0)")
    return container.state in ("running", "removing") or (just and _within(container.status, STOP_SECONDS))


def _within(words: str, seconds: float) -> bool:
    age = docker.lasted(words)
    return age is not None and age < seconds


def models_apart(wanted: Mapping[str, Needs], found: Mapping[str, Findings | FleetError]) -> list[str]:
    """Models that are not the same on all hosts that answered."""
    good = {name: finding for name, finding in found.items() if not isinstance(finding, FleetError)}
    told = []
    for model in dict.fromkeys(name for need in wanted.values() for name in need.models):
        if why := probes.differing({name: finding.models.get(model) for name, finding in good.items()}):
            told.append(f"model {model}: {why}")
    return told


def _services(
    session: Session, questions: Questions, found: Mapping[str, Findings | FleetError]
) -> list[ServiceHealth]:
    """Our containers on the hosts that answer, each host asked at the same time."""
    ours = {host: one.ours for host, one in found.items() if not isinstance(one, FleetError) and one.ours}

    def act(machine: Machine) -> list[ServiceHealth]:
        return questions.services(machine, ours[machine.name])

    most = max(map(len, ours.values()), default=1)
    answers = session.each(ours, act, timeout=4 * ANSWER_SECONDS * most)
    return [one for host, answer in answers.items() for one in _or_lost(ours[host], host, answer)]


def _or_lost(ours: Sequence[Container], host: str, answer: list[ServiceHealth] | FleetError) -> list[ServiceHealth]:
    """What a host said of its services; if it is lost meanwhile, that of each of them."""
    if not isinstance(answer, FleetError):
        return answer
    return [_service(host, container, (), fault=answer.what) for container in ours]


def _planned(plan: Plan | None) -> Known:
    arms = plan.arms if plan else ()
    return {(arm.arm.name, one.host, one.name): (arm, one) for arm in arms for one in arm.services}


def seat_of(container: Container) -> str:
    """The seat a container's labels name: prefill0, decode0, router, client."""
    role, rank = container.labels.get("role", "?"), container.labels.get("rank", "0")
    base = role if role in ("router", "client") else f"{role}{rank}"
    node = container.labels.get("node", "")
    return f"{base}.{node}" if node else base


def _ask(machine: Machine, container: Container, questions: Questions) -> ServiceHealth:
    asked = ["running"]
    if container.state != "running":
        return _service(machine.name, container, asked, **_not_running(machine, container))
    planned = questions.known.get((container.labels.get("arm", ""), machine.name, seat_of(container)))
    if planned is None or planned[1].http is None:
        return _service(machine.name, container, asked)
    why = _answers(machine, *planned, asked)
    if why and _told_to_stop(machine, container):
        return _service(machine.name, container, asked, ended="is being stopped")
    if why and _within(container.status, questions.start_within):
        return _service(machine.name, container, asked, starting=why)
    return _service(machine.name, container, asked, fault=why)


def _not_running(machine: Machine, container: Container) -> dict[str, str]:
    """What a container comes to that does not run: about to start, ended as it should, or a fault."""
    if container.state == "created":
        if _within(container.created, START_SECONDS):
            return {"starting": "its container is created"}
        return {"fault": f"created {container.created}, never started".replace("  ", " ")}
    if container.state == "removing":
        return {"ended": "is being removed"}
    if container.status.startswith("Exited (0)"):
        if container.labels.get("role") == "client":
            return {"ended": "done (exit 0)"}
        if _told_to_stop(machine, container):
            return {"ended": "stopped (exit 0)"}
    if container.state == "paused":
        return {"fault": f"{container.status}; for whoever paused it: docker unpause {shown(container.name)}"}
    return {"fault": container.status}


def _told_to_stop(machine: Machine, container: Container) -> bool:
    """Whether somebody has just asked it to end, as a teardown does; one that ends by itself gets no signal."""
    argv = docker.stops_argv(container.id, STOP_SECONDS)
    return '"signal":"15"' in machine.docker(argv, timeout=ANSWER_SECONDS, check=False).out.replace(" ", "")


def settled(services: Sequence[ServiceHealth]) -> tuple[ServiceHealth, ...]:
    """A service that served before is not starting, whatever its age: the router starts when all servers answer, the
    load when the router does."""
    there = {(one.run, one.arm, one.name) for one in services}

    def served(one: ServiceHealth) -> bool:
        later = ("client",) if one.name == "router" else ("client", "router")
        return one.state == "running" and any((one.run, one.arm, name) in there for name in later)

    return tuple(one.lost(one.starting) if one.starting and served(one) else one for one in services)


def _answers(machine: Machine, arm: ArmPlan, service: Service, asked: list[str]) -> str:
    """The first check that is answered badly, and how; `asked` gets the paths that were asked."""
    for check in checks(arm, service):
        asked.append(check.path)
        answer = get(arm, machine, service, check.path)
        if why := answer if isinstance(answer, str) else check.judge(answer):
            return f"{check.path}: {why}"
    return ""


def _service(
    host: str, container: Container, asked: Sequence[str], *, fault: str = "", starting: str = "", ended: str = ""
) -> ServiceHealth:
    labels = container.labels
    arm = labels.get("arm", "")
    return ServiceHealth(
        host, seat_of(container), labels["run"], arm, container.state, tuple(asked), fault, starting, ended
    )
