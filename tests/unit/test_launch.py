"""Starting containers: whose they are, and that they run the image that the seats have."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.errors import CommandFailed, HostError
from fleet.stages import launch
from fleet.stages.deployment import Deployment
from tests.world import IMAGE_ID, World

FIRST = "mi355x-01"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def up(world: World, tmp_path: Path) -> Deployment:
    return world.running(tmp_path)


def test_a_container_of_another_image_is_refused(world: World, up: Deployment) -> None:
    launch.images(up)
    assert set(up.images.values()) == {IMAGE_ID}
    launch.start(up, [up.arm.servers[0]])
    up.images[FIRST] = "sha256:old"
    with pytest.raises(
        HostError, match=f"is a container of image {IMAGE_ID[:19]}, the seats of this arm have sha256:old: .* was moved"
    ):
        launch.start(up, [up.arm.servers[0]])


def test_a_name_that_is_taken_is_noted_and_told(world: World, up: Deployment) -> None:
    said = 'docker: Error response from daemon: Conflict. The container name "/x" is already in use by container "ab".'
    world.nodes[FIRST].first = [("docker run", (125, said))]
    with pytest.raises(HostError, match="is here already: another run of this plan") as told:
        launch.start(up, [up.arm.servers[0]])
    assert told.value.hint == "whose: invoke ps --inventory inventories/example-mi355x.yaml"
    assert up.taken == {up.named(up.arm.servers[0])}


def test_another_refusal_of_docker_is_its_own(world: World, up: Deployment) -> None:
    world.nodes[FIRST].first = [("docker run", (125, "docker: invalid mount config"))]
    with pytest.raises(CommandFailed, match="invalid mount config"):
        launch.start(up, [up.arm.servers[0]])
    assert up.taken == set()
