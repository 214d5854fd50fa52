"""How hosts and running services are: what was asked, what was found, and whether all is well."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fleet import docker, probes
from fleet.docker import Container
from fleet.errors import FleetError, HostError
from fleet.model.inventory import Host
from fleet.model.service import Service
from fleet.plan import ArmPlan, Plan
from fleet.session import Session
from fleet.stages import preflight, ready
from fleet.stages.deployment import Deployment
from fleet.stages.preflight import Findings, Needs


@dataclass(frozen=True)
class HostHealth:
    """One host. `faults` is empty when all is well; `error` is why it could not be asked at all."""

    name: str
    findings: Findings | None
    faults: tuple[str, ...]
    error: str = ""
    strangers: tuple[str, ...] = ()

    @property
    def well(self) -> bool:
        return not self.faults and not self.error


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
    hosts: tuple[HostHealth, ...]
    services: tuple[ServiceHealth, ...] = ()
    models: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def well(self) -> bool:
        return (
            all(host.well for host in self.hosts) and all(service.well for service in self.services) and not self.models
        )

    @property
    def code(self) -> int:
        return 0 if self.well else HostError.exit_code

    def to_json(self) -> dict[str, Any]:
        return {
            "well": self.well,
            "hosts": [_host_json(host) for host in self.hosts],
            "services": [vars(service) | {"well": service.well} for service in self.services],
            "models": list(self.models),
        }


def _host_json(host: HostHealth) -> dict[str, Any]:
    found = host.findings
    told: dict[str, Any] = {"name": host.name, "well": host.well, "error": host.error, "faults": list(host.faults)}
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
    wanted = preflight.needs(plan) if plan else {name: Needs() for name in session.names}
    found = preflight.look(session, wanted)
    by_name = {host.name: host for host in session.inventory.hosts}
    hosts = tuple(_host(by_name[name], wanted[name], finding) for name, finding in found.items())
    services = tuple(_services(session, plan, found))
    return Health(hosts, services, tuple(_models(wanted, found)))


def _host(host: Host, want: Needs, finding: Findings | FleetError) -> HostHealth:
    if isinstance(finding, FleetError):
        return HostHealth(host.name, None, (), error=str(finding))
    running = {container.labels.get("role") for container in finding.ours if container.state == "running"}
    faults = [why for why in preflight.host_reasons(host, want, finding, in_use=bool(running))]
    faults += [
        f"image {tag} is not here; type: invoke stage --config …" for tag, image in finding.images.items() if not image
    ]
    return HostHealth(host.name, finding, tuple(faults), strangers=finding.strangers)


def _models(wanted: dict[str, Needs], found: dict[str, Findings | FleetError]) -> list[str]:
    good = {name: finding for name, finding in found.items() if not isinstance(finding, FleetError)}
    told = []
    for model in dict.fromkeys(name for need in wanted.values() for name in need.models):
        if why := probes.differing({name: finding.models.get(model) for name, finding in good.items()}):
            told.append(f"model {model}: {why}")
    return told


def _services(session: Session, plan: Plan | None, found: dict[str, Findings | FleetError]) -> list[ServiceHealth]:
    containers = [
        (host, container)
        for host, finding in found.items()
        if not isinstance(finding, FleetError)
        for container in finding.ours
    ]
    known = (
        {(arm.arm.name, service.host, service.name): (arm, service) for arm in plan.arms for service in arm.services}
        if plan
        else {}
    )

    def ask(host: str, container: Container) -> ServiceHealth:
        arm, service = known.get((container.labels.get("arm", ""), host, seat_of(container)), (None, None))
        return _ask(session, plan, host, container, arm, service)

    return [ask(host, container) for host, container in containers]


def seat_of(container: Container) -> str:
    """The seat a container's labels name: prefill0, decode0, router, client."""
    role, rank = container.labels.get("role", "?"), container.labels.get("rank", "0")
    base = role if role in ("router", "client") else f"{role}{rank}"
    node = container.labels.get("node", "")
    return f"{base}.{node}" if node else base


def _ask(
    session: Session, plan: Plan | None, host: str, container: Container, arm: ArmPlan | None, service: Service | None
) -> ServiceHealth:
    asked, fault = ["running"], "" if container.state == "running" else container.status
    if not fault and plan and arm and service and service.http:
        fault = _answers(session, plan, host, container, arm, service, asked)
    labels = container.labels
    return ServiceHealth(
        host, seat_of(container), labels["run"], labels.get("arm", ""), container.state, tuple(asked), fault
    )


def _answers(
    session: Session, plan: Plan, host: str, container: Container, arm: ArmPlan, service: Service, asked: list[str]
) -> str:
    labels = docker.Labels(run=container.labels["run"], owner="", plan=plan.hash6, arm=arm.arm.name)
    deployment = Deployment(session, None, plan, arm, labels)  # type: ignore[arg-type]
    machine = session.machine(host)
    for check in ready.checks(deployment, service):
        asked.append(check.path)
        answer = deployment.get(machine, service, check.path)
        why = answer if isinstance(answer, str) else check.judge(answer)
        if why:
            return f"{check.path}: {why}"
    return ""
