"""How hosts and running services are: what was asked, what was found, and whether all is well."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet import probes
from fleet.docker import Container
from fleet.errors import CommandTimeout, FleetError, HostError, HostKeyError, LoginError, Unreachable
from fleet.model.inventory import Host
from fleet.model.service import Service
from fleet.plan import ArmPlan, Plan
from fleet.session import Machine, Session
from fleet.stages import preflight
from fleet.stages.deployment import ANSWER_SECONDS, checks, get, typed
from fleet.stages.preflight import Findings, Needs

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
    """One running service of ours: the questions it was asked, and the first that was answered badly ("" if none)."""

    host: str
    name: str
    run: str
    arm: str
    state: str
    asked: tuple[str, ...]
    fault: str

    @property
    def well(self) -> bool:
        return not self.fault


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
        return 0 if self.well else HostError.exit_code

    @property
    def failed(self) -> tuple[str, ...]:
        """Hosts that are not well, or have a service that is not."""
        ill = {service.host for service in self.services if not service.well}
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
    """What each host is asked, and what the answers come to."""

    hosts: dict[str, Host]
    wanted: dict[str, Needs]
    known: Known
    stage: str
    key: str = ""

    @classmethod
    def about(cls, session: Session, plan: Plan | None) -> Questions:
        wanted = preflight.needs(plan) if plan else {name: Needs() for name in session.names}
        hosts = {host.name: host for host in session.inventory.hosts}
        return cls(hosts, wanted, _planned(plan), typed(plan, "stage") if plan else "", plan.key if plan else "")

    def host(self, name: str, finding: Findings | FleetError) -> HostHealth:
        return _host(self.hosts[name], self.wanted[name], finding, self.stage)

    def services(self, machine: Machine, containers: Sequence[Container]) -> list[ServiceHealth]:
        """Our containers on one host, asked one after the other."""
        return [_ask(machine, container, self.known) for container in containers]

    def told(self, found: Mapping[str, Findings | FleetError], services: Iterable[ServiceHealth]) -> Health:
        hosts = tuple(self.host(name, finding) for name, finding in found.items())
        unneeded = tuple(name for name in self.hosts if name not in self.wanted)
        return Health(hosts, tuple(services), tuple(models_apart(self.wanted, found)), self.key, unneeded)


def _host(host: Host, want: Needs, finding: Findings | FleetError, stage: str) -> HostHealth:
    if isinstance(finding, FleetError):
        reached = not isinstance(finding, (Unreachable, HostKeyError, LoginError, CommandTimeout))
        return HostHealth(host.name, None, (), error=str(finding), reached=reached)
    in_use = any(container.state == "running" for container in finding.ours)
    faults = list(preflight.host_reasons(host, want, finding, in_use=in_use))
    faults += [f"image {tag} is not here; {stage}" for tag, image in finding.images.items() if not image]
    return HostHealth(host.name, finding, tuple(faults), strangers=finding.strangers)


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
    return [_service(host, container, (), answer.what) for container in ours]


def _planned(plan: Plan | None) -> Known:
    arms = plan.arms if plan else ()
    return {(arm.arm.name, one.host, one.name): (arm, one) for arm in arms for one in arm.services}


def seat_of(container: Container) -> str:
    """The seat a container's labels name: prefill0, decode0, router, client."""
    role, rank = container.labels.get("role", "?"), container.labels.get("rank", "0")
    base = role if role in ("router", "client") else f"{role}{rank}"
    node = container.labels.get("node", "")
    return f"{base}.{node}" if node else base


def _ask(machine: Machine, container: Container, known: Known) -> ServiceHealth:
    if container.state != "running":
        return _service(machine.name, container, ("running",), container.status)
    planned = known.get((container.labels.get("arm", ""), machine.name, seat_of(container)))
    if planned is None or planned[1].http is None:
        return _service(machine.name, container, ("running",), "")
    asked = ["running"]
    return _service(machine.name, container, asked, _answers(machine, *planned, asked))


def _answers(machine: Machine, arm: ArmPlan, service: Service, asked: list[str]) -> str:
    """The first check that is answered badly, and how; `asked` gets the paths that were asked."""
    for check in checks(arm, service):
        asked.append(check.path)
        answer = get(arm, machine, service, check.path)
        if why := answer if isinstance(answer, str) else check.judge(answer):
            return f"{check.path}: {why}"
    return ""


def _service(host: str, container: Container, asked: Sequence[str], fault: str) -> ServiceHealth:
    labels = container.labels
    return ServiceHealth(
        host, seat_of(container), labels["run"], labels.get("arm", ""), container.state, tuple(asked), fault
    )
