"""An image on every host: who has it does nothing, who lacks it gets the same one, and no side waits for a dead one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fleet.errors import CommandFailed, HostError, Unreachable
from fleet.hosts.base import CHUNK, Argv, Outcome
from fleet.hosts.fake import Fake
from fleet.stages.pipe import AHEAD, Broken, Pipe
from fleet.stages.stage import stage
from tests.world import IMAGE_ID, Node, World

FIRST, SECOND, THIRD = "mi355x-01", "mi355x-02", "mi355x-03"
HOSTS = (FIRST, SECOND, THIRD)
DATA = b"layer" * 100_000


@pytest.fixture
def world() -> World:
    return World()


def lacking(world: World, *names: str) -> None:
    for node in world.nodes.values():
        node.first = [(["docker", "save"], DATA)]
    for name in names:
        world.nodes[name].images.clear()
        world.nodes[name].first = [(["docker", "load"], loaded(world, world.nodes[name]))]


def loaded(world: World, node: Node) -> Callable[[list[str], bytes], str]:
    def load(argv: list[str], stdin: bytes) -> str:
        assert stdin == DATA
        node.images[world.tag] = IMAGE_ID
        return "Loaded image"

    return load


def test_nothing_is_moved_where_all_have_it(world: World) -> None:
    assert {image.id for image in stage(world.session, world.tag, HOSTS).values()} == {IMAGE_ID}
    assert [node.asked("docker (save|load)") for node in world.nodes.values()] == [[]] * 4
    assert world.told.hosts[0] == ("stage", FIRST, f"has {world.tag} (a4a4a4a4a4a4)", True)


def test_who_lacks_it_gets_it_from_who_has_it_and_the_id_is_verified(world: World) -> None:
    lacking(world, SECOND)
    assert stage(world.session, world.tag, HOSTS)[SECOND].id == IMAGE_ID
    assert world.nodes[FIRST].asked("docker save") == [f"docker save {world.tag}"]
    assert world.nodes[THIRD].asked("docker (save|load)") == []
    (told,) = [text for _, host, text, done in world.told.hosts if host == SECOND and done]
    assert told.startswith(f"{world.tag}: 0 MB from mi355x-01 in ")
    assert told.endswith("same image ID (a4a4a4a4a4a4)")


def test_another_image_than_the_one_that_was_sent_is_an_error(world: World) -> None:
    lacking(world, SECOND)
    world.nodes[SECOND].first = [(["docker", "load"], "Loaded image")]
    with pytest.raises(HostError, match=f"{SECOND}: after the transfer {world.tag} is nothing instead of {IMAGE_ID}"):
        stage(world.session, world.tag, HOSTS)


def test_different_images_behind_one_tag_are_refused_with_who_has_which(world: World) -> None:
    world.nodes[SECOND].images[world.tag] = "sha256:other"
    with pytest.raises(HostError) as told:
        stage(world.session, world.tag, HOSTS)
    assert f"  {SECOND}  sha256:other" in str(told.value)
    assert told.value.hint == f"remove the wrong one: docker rmi {world.tag}"


def test_an_image_that_nobody_has(world: World) -> None:
    lacking(world, *HOSTS)
    with pytest.raises(HostError, match="is on none of mi355x-01, mi355x-02, mi355x-03"):
        stage(world.session, world.tag, HOSTS)


def test_a_sender_that_fails_midway_is_the_error_and_nothing_looks_complete(world: World) -> None:
    lacking(world, SECOND)
    world.nodes[FIRST].first = [(["docker", "save"], (1, DATA, "write error: no space"))]
    with pytest.raises(CommandFailed) as told:
        stage(world.session, world.tag, HOSTS)
    assert told.value.where == FIRST
    assert "no space" in told.value.what
    assert world.tag not in world.nodes[SECOND].images


class Lost(Fake):
    """Takes one chunk, then the connection is gone."""

    def stream(self, argv: Argv, **options: Any) -> Outcome:
        if "load" in argv:
            next(iter(options["source"]))
            raise Unreachable("connection lost", where=self.name)
        return super().stream(argv, **options)


def test_a_receiver_that_is_lost_midway_is_the_error_and_the_sender_ends(world: World) -> None:
    lacking(world, SECOND)
    more_than_waits = bytes((AHEAD + 30) * CHUNK)
    world.nodes[FIRST].first = [(["docker", "save"], more_than_waits)]
    world.session.transports[SECOND] = Lost(SECOND, world.nodes[SECOND].fake.script)
    with pytest.raises(Unreachable) as told:
        stage(world.session, world.tag, HOSTS)
    assert told.value.where == SECOND
    for thread in threading.enumerate():
        if thread.name == f"fleet-save-{SECOND}":
            thread.join(3)
            assert not thread.is_alive()


def test_a_writer_does_not_wait_for_a_reader_that_is_gone() -> None:
    pipe = Pipe()
    for _ in range(AHEAD):
        pipe.put(b"x")
    threading.Timer(0.1, pipe.abandon).start()
    with pytest.raises(Broken, match="the receiving side is gone"):
        pipe.put(b"x")


def test_a_reader_does_not_take_a_failure_for_the_end() -> None:
    pipe = Pipe()
    pipe.put(b"x")
    chunks: Iterator[bytes] = iter(pipe)
    assert next(chunks) == b"x"
    threading.Timer(0.1, pipe.fail).start()
    with pytest.raises(Broken, match="the sending side failed"):
        next(chunks)


def test_all_that_was_written_is_read_before_the_end() -> None:
    pipe = Pipe()
    pipe.put(b"a")
    pipe.put(b"b")
    pipe.end()
    assert list(pipe) == [b"a", b"b"]
    assert pipe.sent == 2
