"""Start the containers of an arm, and know what image each of them really runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial

from fleet import docker
from fleet.docker import Image
from fleet.errors import CommandFailed, FleetError, HostError
from fleet.model.service import Service
from fleet.session import Machine
from fleet.stages import secret, watch
from fleet.stages.deployment import Deployment, by_host

NAME_TAKEN = "is already in use by container"
"""What docker says where a container of this name exists."""

START_SECONDS = 120.0
"""For one container: a cold engine image may take its time to mount."""


def launch(deployment: Deployment) -> None:
    """Folders for the run on every host, then all servers at once. The router follows when they are ready."""
    deployment.session.all(deployment.hosts, lambda machine: make_folders(machine, deployment))
    deployment.session.all(deployment.hosts, lambda machine: secret.bring(machine, deployment))
    start(deployment, deployment.arm.servers)


def make_folders(machine: Machine, deployment: Deployment) -> None:
    """The run's folder, and the one below it that a load client writes to; they belong to the login user."""
    machine.run(["mkdir", "-p", f"{deployment.scratch(machine.name)}/raw"])


def start(deployment: Deployment, services: Sequence[Service]) -> None:
    """Start services, all hosts at once. Raises the hosts' refusals as one error, HostError for another image."""
    grouped = by_host(services)

    def act(machine: Machine) -> None:
        for service in grouped[machine.name]:
            told = "runs on" if deployment.named(service) in deployment.adopted else "started"
            if told == "started":
                _run(machine, deployment, service)
            deployment.session.progress.host("launch", machine.name, f"{service.name} {told}")
        _verify(machine, deployment, grouped[machine.name])

    limit = START_SECONDS * max(map(len, grouped.values()))
    everywhere = partial(deployment.session.all, grouped, act, timeout=limit)
    watch.meanwhile(deployment, everywhere, look=watch.told)


def _run(machine: Machine, deployment: Deployment, service: Service) -> None:
    """A name that is taken is somebody else's container: it is noted, so that it is not cleared away with ours."""
    name = deployment.named(service)
    try:
        started = machine.docker(docker.run_argv(service, machine.host, deployment.labels), timeout=START_SECONDS)
        deployment.vigil.ids[machine.name, name] = started.out.strip()
    except CommandFailed as problem:
        if NAME_TAKEN not in problem.what:
            raise
        deployment.taken.add(name)
        what = f"a container named {name} is here already: another run of this plan, begun at the same time?"
        raise HostError(what, where=machine.name, hint=f"whose: {_ps(deployment)}") from problem


def _ps(deployment: Deployment) -> str:
    return shlex.join(["invoke", "ps", "--inventory", deployment.plan.inventory.path])


def _verify(machine: Machine, deployment: Deployment, services: Sequence[Service]) -> None:
    """A tag can be moved at any time: what counts is the image of each container."""
    planned = deployment.images.get(machine.name)
    names = [deployment.named(service) for service in services]
    if not planned:
        return
    for name, image in docker.parse_images_of(machine.docker(docker.images_of_argv(names)).out).items():
        if image != planned:
            what = f"{name} is a container of image {image[:19]}, the seats of this arm have {planned[:19]}"
            raise HostError(f"{what}: {deployment.arm.arm.image} was moved meanwhile", where=machine.name)


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
    deployment.images.update({host: image.id for host, image in answers.items()})
    return answers
