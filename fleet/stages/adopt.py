"""What an earlier process of this run left on the hosts: what serves as planned is kept, the rest is cleared away."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from fleet import docker
from fleet.docker import Container
from fleet.model.service import Service
from fleet.results.store import is_plain
from fleet.session import Machine, Session
from fleet.stages.collect import LOG_SECONDS, client_title, fetch_log
from fleet.stages.deployment import Deployment, by_host
from fleet.stages.health import seat_of
from fleet.stages.launch import image_on
from fleet.stages.teardown import STOP_SECONDS, ours, remove
from fleet.words import counted

IN_PATHS = ("arm", "role", "rank", "node", "point")
"""Labels that say where a container's log is kept."""

Left = Mapping[str, Sequence[Container]]
"""Containers of the run by host; hosts without any are left out."""


def left(session: Session, hosts: Sequence[str], run: str) -> dict[str, list[Container]]:
    """What of the run is on its hosts. Raises FleetError if one does not answer: what is there would be unknown.

    Anyone can set labels: containers with some that fleet never gives are left alone.
    """
    answers = session.all(hosts, lambda machine: [one for one in ours(machine, run=run) if _plain(one)])
    return {host: found for host, found in answers.items() if found}


def _plain(container: Container) -> bool:
    return all(is_plain(text) for name, text in container.labels.items() if name in IN_PATHS)


def adopt(deployment: Deployment, found: Left) -> None:
    """Fill `deployment.adopted` where the arm's containers serve as planned, and say so. A deployment is adopted whole:
    only what was not started yet may be missing. Otherwise nothing is, and the reason is told.
    """
    tell, name = deployment.session.progress.line, deployment.arm.arm.name
    present = {one.name for containers in found.values() for one in containers}
    there = [service for service in deployment.services if deployment.named(service) in present]
    if not there:
        return
    whys = [*_missing(deployment, there), *_differing(deployment, there)]
    if whys:
        tell(f"  arm {name} is started anew: {'; '.join(whys)}")
        return
    deployment.adopted.update(map(deployment.named, there))
    deployment.vigil.ids.update({(host, one.name): one.id for host, containers in found.items() for one in containers})
    tell(f"  {counted(len(there), 'container')} of arm {name} {'run' if len(there) > 1 else 'runs'} on, as planned")


def _missing(deployment: Deployment, there: Sequence[Service]) -> list[str]:
    """The router is started last: where it is, a server that is not there was there before."""
    if not any(service.kind == "router" for service in there):
        return []
    return [f"{service.name} is gone" for service in deployment.services if service not in there]


def unlike(machine: Machine, deployment: Deployment, services: Sequence[Service], image: str) -> list[str]:
    """What of a host's containers is not these services at work, a line each. image: the ID that they shall run."""
    rows = json.loads(machine.docker(docker.inspect_argv([deployment.named(one) for one in services])).out)
    whys = [
        (service.name, docker.unlike(row, service, machine.host, image))
        for service, row in zip(services, rows, strict=True)
    ]
    return [f"{name} {why}" for name, why in whys if why]


def _differing(deployment: Deployment, services: Sequence[Service]) -> list[str]:
    grouped = by_host(services)

    def act(machine: Machine) -> list[str]:
        image = image_on(machine, deployment.arm.arm.image)
        return unlike(machine, deployment, grouped[machine.name], image.id if image else "")

    return [why for answer in deployment.session.all(grouped, act).values() for why in answer]


def clear(deployments: Sequence[Deployment], session: Session, found: Left) -> list[str]:
    """Bring home the logs of all that is not adopted, then stop and remove it: load clients first. Its names.
    The run's scratch folders go, too, where nothing of it serves on.

    deployments: one of each arm of the run. Raises FleetError: nothing new may start beside what is left.
    """
    adopted = {name for one in deployments for name in one.adopted}
    doomed = {host: [one for one in there if one.name not in adopted] for host, there in found.items()}
    names = [one.name for there in doomed.values() for one in there]
    folder = deployments[0].folder
    for client in (True, False):
        chosen = {host: [one for one in there if _is_client(one) == client] for host, there in doomed.items()}

        def act(machine: Machine, chosen: Left = chosen) -> None:
            for one in chosen[machine.name]:
                path = folder.log(one.labels.get("arm", "unknown"), _title(one))
                folder.set_aside(path)
                fetch_log(machine, one.id, path)
            remove(machine, list(chosen[machine.name]))

        session.all([host for host, there in chosen.items() if there], act, timeout=LOG_SECONDS + STOP_SECONDS)
    _remove_folders(deployments, session)
    return names


def _remove_folders(deployments: Sequence[Deployment], session: Session) -> None:
    """The run's scratch folders on hosts where nothing of it serves on."""
    busy = {host for one in deployments if one.adopted for host in one.hosts}
    scratch = {host: one.scratch(host) for one in deployments for host in one.hosts if host not in busy}
    session.all(scratch, lambda machine: machine.run(["rm", "-rf", scratch[machine.name]]))


def _is_client(container: Container) -> bool:
    return container.labels.get("role") == "client"


def _title(container: Container) -> str:
    """What its log is called: decode0, router, client-c4; decode0.1 of a worker's second host."""
    point = container.labels.get("point")
    return client_title(container.labels.get("arm", ""), point) if point else seat_of(container)


def fresh_folders(deployment: Deployment) -> None:
    """No load client may find what an earlier one wrote."""

    def act(machine: Machine) -> None:
        machine.run(["rm", "-rf", f"{deployment.scratch(machine.name)}/raw"])

    deployment.session.all(deployment.hosts, act)


def set_logs_aside(deployment: Deployment) -> None:
    """Logs of containers that are gone keep their content under another name."""
    for service in deployment.services:
        if deployment.named(service) not in deployment.adopted:
            deployment.folder.set_aside(deployment.folder.log(deployment.arm.arm.name, service.name))
