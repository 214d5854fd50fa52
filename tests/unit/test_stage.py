"""An image on every host, as far as no bytes move: who has it, what is refused, what is asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleet.errors import HostError, Unreachable, UsageError
from fleet.stages import spool
from fleet.stages.pipe import AHEAD, Broken, Pipe
from fleet.stages.stage import Speed, named, stage
from fleet.stages.stock import parse
from tests import images
from tests.world import IMAGE_ID, Node, World

FIRST, SECOND, THIRD = "mi355x-01", "mi355x-02", "mi355x-03"
HOSTS = (FIRST, SECOND, THIRD)


@pytest.fixture
def world() -> World:
    return World()


def pulled(world: World, node: Node) -> Callable[[list[str], bytes], str]:
    def pull(argv: list[str], stdin: bytes) -> str:
        node.images[world.tag] = IMAGE_ID
        return world.tag

    return pull


def test_nothing_is_moved_where_all_have_it(world: World) -> None:
    assert {image.id for image in stage(world.session, world.tag, HOSTS).values()} == {IMAGE_ID}
    assert [node.asked("docker (save|load|pull)") for node in world.nodes.values()] == [[]] * 4
    assert world.told.hosts[0] == ("stage", FIRST, f"has {world.tag} (a4a4a4a4a4a4)", True)


def test_who_has_it_under_another_name_is_given_this_one(world: World) -> None:
    node = world.nodes[SECOND]
    world.nodes[FIRST].first = [("DriverStatus", "store []\n")]
    node.images = {"other:1": IMAGE_ID, IMAGE_ID: IMAGE_ID}
    node.first = [(["docker", "tag"], lambda argv, stdin: node.images.update({argv[3]: argv[2]}) or "")]
    assert stage(world.session, world.tag, HOSTS)[SECOND].id == IMAGE_ID
    assert node.asked("docker tag") == [f"docker tag {IMAGE_ID} {world.tag}"]


def test_different_images_behind_one_tag_are_refused_with_who_has_which(world: World) -> None:
    world.nodes[SECOND].images[world.tag] = "sha256:other"
    with pytest.raises(HostError) as told:
        stage(world.session, world.tag, HOSTS)
    assert f"  {SECOND}  sha256:other" in str(told.value)
    assert told.value.hint == f"remove the wrong one: docker rmi {world.tag}"


def test_an_image_that_nobody_has_is_pulled_by_one(world: World) -> None:
    for name in HOSTS:
        world.nodes[name].images.clear()
    world.nodes[FIRST].first = [(["docker", "pull"], pulled(world, world.nodes[FIRST]))]
    assert stage(world.session, world.tag, [FIRST])[FIRST].id == IMAGE_ID
    assert ("stage", FIRST, f"pulled {world.tag} (a4a4a4a4a4a4)", True) in world.told.hosts


def test_an_image_that_nobody_has_and_no_registry_gives(world: World) -> None:
    for name in HOSTS:
        world.nodes[name].images.clear()
    world.nodes[FIRST].first = [(["docker", "pull"], (1, "", "manifest unknown"))]
    with pytest.raises(
        HostError, match=f"is on none of {', '.join(HOSTS)}, and {FIRST} cannot pull it: manifest"
    ) as told:
        stage(world.session, world.tag, HOSTS)
    assert "--tar FILE" in told.value.hint


def test_a_host_that_does_not_answer_is_the_only_failure(world: World) -> None:
    world.nodes[THIRD].first = [("docker image inspect", Unreachable("connection refused", where=THIRD))]
    with pytest.raises(Unreachable) as told:
        stage(world.session, world.tag, HOSTS)
    assert told.value.where == THIRD
    assert [host for _, host, _, done in world.told.hosts if done] == [FIRST, SECOND]


def test_an_archive_of_another_image_than_the_hosts_have_is_refused(world: World, tmp_path: Path) -> None:
    made = images.Made((images.layer("a", 10),), world.tag)
    (tmp_path / "image.tar").write_bytes(made.archive())
    with pytest.raises(HostError, match="is not the same on all hosts") as told:
        stage(world.session, world.tag, HOSTS, tar=tmp_path / "image.tar")
    assert f"{tmp_path}/image.tar  {made.id}" in told.value.what


def test_an_archive_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"image\.tar cannot be read: No such file"):
        spool.opened(tmp_path / "image.tar", "x:1")
    (tmp_path / "image.tar").write_bytes(b"no tar")
    with pytest.raises(UsageError, match="no image archive") as told:
        spool.opened(tmp_path / "image.tar", "x:1")
    assert told.value.hint == "write it where the image is: docker save -o image.tar x:1"


def test_a_stream_from_an_archive_is_what_is_said_of_it(tmp_path: Path) -> None:
    made = images.Made(tuple(images.layer(str(number), 5 << 20) for number in range(3)), "x:1")
    (tmp_path / "image.tar").write_bytes(made.archive("oci"))
    store = spool.opened(tmp_path / "image.tar", "x:1")
    parts = spool.parts_of(store, [0, 2])
    data = b"".join(store.spring(parts).chunks())
    assert len(data) == spool.total(parts)
    assert data.endswith(b"end\ndone -\n")
    for part in parts:
        assert data[spool.starts(parts)[part.first] :].startswith(f"{part.size} {part.id}\n".encode())


def test_what_a_host_says_of_its_engine_and_its_disks() -> None:
    found = parse(
        'store [["Backing Filesystem","extfs"]]\nengine 2000\nscratch 1000\ntar gnu\n'
        'layers ["sha256:a","sha256:b"]\nlayers null\nlayers ["sha256:a"]\nsize 300\nsize 0\nsize 700\n'
    )
    assert (found.engine, found.scratch, found.parts, found.gnu_tar) == (2_048_000, 1_024_000, True, True)
    assert found.sizes == (700, 300)
    assert found.of(["sha256:a", "sha256:b", "sha256:c"]) == 2
    snapshots = parse('store [["driver-type","io.containerd.snapshotter.v1"]]\n')
    assert (snapshots.parts, snapshots.gnu_tar, snapshots.engine) == (False, False, None)


def test_a_name_has_a_tag_in_an_archive() -> None:
    assert named("reg.lab:5000/x/engine") == "reg.lab:5000/x/engine:latest"
    assert named("reg.lab:5000/x/engine:n1") == "reg.lab:5000/x/engine:n1"
    assert named(f"engine@sha256:{'a' * 64}") == f"engine@sha256:{'a' * 64}"


def test_speed_is_that_of_the_last_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 2.0, 9.0, 10.0])
    monkeypatch.setattr("fleet.awake.now", lambda: next(clock))
    speed = Speed()
    assert [speed.at(got) for got in (10, 30, 30, 90)] == [10.0, 15.0, 0.0, 60.0]


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
