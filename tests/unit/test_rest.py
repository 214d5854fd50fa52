"""Between two points: a load that was cut short leaves requests, and the next one waits until none is under way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.errors import NotReady, ServiceDied
from fleet.results.store import RunFolder
from fleet.stages import rest as room
from fleet.stages import sweep, watch
from fleet.stages.deployment import Deployment
from fleet.stages.rest import rest
from fleet.stages.road import Road
from tests.world import RUN, Box, Node, World, a_plan


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "EVERY", 0.01)
    monkeypatch.setattr(sweep, "EVERY", 0.01)
    monkeypatch.setattr(watch, "EVERY", 0.01)


@pytest.fixture
def world() -> World:
    return World(a_plan("1p1d-mtp3", (4, 8)), point_within=0.3)


@pytest.fixture
def up(world: World, tmp_path: Path) -> Deployment:
    return world.running(tmp_path)


def at_rest(up: Deployment, within: float = 5.0) -> None:
    rest(up, after="conc 4", before="conc 8", within=within)


def looks(world: World, act: Callable[[int], None]) -> None:
    """`act` hears of each look at decode's metrics, from 1."""
    count = [0]

    def handler(path: str, body: object) -> None:
        count[0] += path == "/metrics"
        act(count[0])

    world.handlers["decode0"] = handler


def test_servers_at_rest_are_not_waited_for_and_nothing_is_said(world: World, up: Deployment) -> None:
    at_rest(up)
    assert (world.told.lines, world.told.hosts) == ([], [])
    assert {name for name, path, _ in world.heard if path == "/metrics"} == {"prefill0", "decode0"}


def test_requests_under_way_are_waited_for_and_told(world: World, up: Deployment) -> None:
    decode = world.counted["decode0"]
    decode.running = 3

    def done(look: int) -> None:
        decode.running = 0 if look > 4 else 1 if look > 2 else 3

    looks(world, done)
    at_rest(up)
    works = "decode 0 on mi355x-02 works on"
    assert world.told.lines == [f"  conc 8 waits until the servers have done with conc 4: {works} 3 requests"]
    assert [text for *_, text, done in world.told.hosts if not done] == [f"{works} 3 requests", f"{works} 1 request"]
    stage, host, text, over = world.told.hosts[-1]
    assert (stage, host, over) == ("rest", "mi355x-01", True)
    assert text.startswith("no request is under way after 0.")


def test_a_server_that_does_not_come_to_rest_is_told(world: World, up: Deployment) -> None:
    world.counted["prefill0"].running = 1
    with pytest.raises(NotReady) as told:
        at_rest(up, 0.1)
    assert told.value.what == (
        "conc 8 is not run: the servers had not done with conc 4 after 0 s: prefill 0 on mi355x-01 works on 1 request"
    )


def test_a_server_without_counters_is_not_at_rest(world: World, up: Deployment) -> None:
    world.handlers["decode0"] = lambda path, body: (500, "") if path == "/metrics" else None
    with pytest.raises(NotReady, match="decode 0 on mi355x-02 shows no counters"):
        at_rest(up, 0.1)


def test_a_death_ends_the_wait(world: World, up: Deployment) -> None:
    world.counted["decode0"].running = 3
    looks(world, lambda look: world.box("decode0").end(1) if look > 2 else None)
    with pytest.raises(ServiceDied, match="decode 0 on mi355x-02 died"):
        at_rest(up)


def test_without_a_count_of_requests_the_finished_ones_must_stand_still(
    world: World, up: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "STILL_SECONDS", 0.1)
    decode, seen = world.counted["decode0"], []
    decode.running = None

    def finishes(look: int) -> None:
        decode.finished = min(look, 9)
        seen.append(decode.finished)

    looks(world, finishes)
    at_rest(up)
    assert seen.count(9) > 2, "looked at again after it had stood still"
    assert world.told.lines[0].endswith("decode 0 on mi355x-02 does not say what it works on")


# --------------------------------------------------------------------- in a sweep


def a_road(tmp_path: Path, world: World) -> Road:
    folder = RunFolder(tmp_path / RUN)
    folder.path.mkdir()
    return Road(world.session, world.plan, folder)


def stalls(world: World, busy: float) -> None:
    """The client of conc 4 never ends; so many requests of it are under way when it is stopped."""
    usual = world.client_ends

    def ends(node: Node, box: Box) -> None:
        if box.labels["point"].endswith("-c8"):
            assert world.counted["decode0"].running == 0, "conc 8 began while the server worked on conc 4"
            usual(node, box)
        else:
            world.counted["decode0"].running = busy

    world.client_ends = ends  # type: ignore[method-assign]


def test_after_a_stalled_load_the_next_point_waits(tmp_path: Path, world: World) -> None:
    made = a_road(tmp_path, world)
    stalls(world, 2)
    waited = [0]

    def handler(path: str, body: object) -> None:
        if any("waits until" in line for line in world.told.lines):
            waited[0] += 1
            world.counted["decode0"].running = 0 if waited[0] > 3 else 2

    world.handlers["decode0"] = handler
    assert made.go() == 1
    assert [(record.conc, record.state) for record in made.folder.records()] == [(4, "incomplete"), (8, "done")]
    assert made.folder.records()[1].valid
    assert waited[0] > 3


def test_servers_that_stay_busy_end_their_arm_with_the_reason(tmp_path: Path, world: World) -> None:
    world = World(a_plan("1p1d-mtp3", (4, 8)), point_within=0.3, rest_within=0.1)
    made = a_road(tmp_path, world)
    stalls(world, 2)
    assert made.go() == 4
    assert [record.conc for record in made.folder.records()] == [4]
    why = "the servers had not done with conc 4 after 0 s: decode 0 on mi355x-02 works on 2 requests"
    assert made.notes == [
        f"arm 1p1d-mtp3 ended early: conc 8 is not run: {why}",
        "not run: 1p1d-mtp3 at conc 8",
    ]
    assert world.told.lines[-1].startswith(f"conc 8 is not run: {why}\n")


def test_after_a_valid_point_nobody_is_asked(tmp_path: Path, world: World) -> None:
    asked: list[str] = []
    made = a_road(tmp_path, world)
    real = room.Servers.look

    def look(self: room.Servers) -> object:
        asked.append("look")
        return real(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room.Servers, "look", look)
        assert made.go() == 0
    assert asked == []
