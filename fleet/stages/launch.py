"""Start the containers of an arm, and know what image each of them really runs."""

from __future__ import annotations

from collections.abc import Sequence

from fleet import docker
from fleet.docker import Image
from fleet.errors import FleetError, HostError
from fleet.model.service import Service
from fleet.session import Machine
from fleet.stages.deployment import Deployment, by_host

START_SECONDS = 120.0
"""For one container: a cold engine image may take its time to mount."""


def launch(deployment: Deployment) -> None:
    """Folders for the run on every host, then all servers at once. The router follows when they are ready."""
    deployment.session.all(deployment.hosts, lambda machine: make_folders(machine, deployment))
    start(deployment, deployment.arm.servers)


def make_folders(machine: Machine, deployment: Deployment) -> None:
    """The run's folder, and the one below it that a load client writes to; they belong to the login user."""
    machine.run(["mkdir", "-p", f"{deployment.scratch(machine.name)}/raw"])


def start(deployment: Deployment, services: Sequence[Service]) -> None:
    """Start services, all hosts at once. Raises the hosts' refusals as one error."""
    grouped = by_host(services)

    def act(machine: Machine) -> None:
        for service in grouped[machine.name]:
            argv = docker.run_argv(service, machine.host, deployment.labels)
            machine.docker(argv, timeout=START_SECONDS)
            deployment.session.progress.host("launch", machine.name, f"{service.name} started")

    deployment.session.all(grouped, act, timeout=START_SECONDS * max(map(len, grouped.values())))


def image_on(machine: Machine, tag: str) -> Image | None:
    """The image behind a tag on this host; None if it is not there."""
    outcome = machine.docker(docker.image_argv([tag]), check=False)
    found = docker.parse_image(outcome.out) if outcome.ok else []
    return found[0] if found else None


def images(deployment: Deployment) -> dict[str, Image]:
    """The arm's image on each of its hosts. Raises HostError where it is missing or differs."""
    tag = deployment.arm.arm.image

    def act(machine: Machine) -> Image:
        found = image_on(machine, tag)
        if found is None:
            raise HostError(f"image {tag} is not here", where=machine.name, hint=deployment.typed("stage"))
        return found

    answers = deployment.session.all(deployment.hosts, act)
    ids = {image.id for image in answers.values()}
    if len(ids) > 1:
        told = "\n".join(f"  {host}  {image.id}" for host, image in answers.items())
        raise FleetError(f"image {tag} is not the same on all hosts:\n{told}", hint=deployment.typed("stage"))
    return answers
