"""A stream through real hosts: each has all of it, and one that is gone, slow or not to be reached harms no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from hashlib import sha256

import pytest

from fleet.errors import FleetError
from fleet.lab.lab import Lab
from fleet.session import Session
from fleet.stages.chain import Arrival, Chain, Spring, Stop
from fleet.stages.ways import Ways, pairs
from tests.lab import staging

pytestmark = [pytest.mark.lab, pytest.mark.timeout(120)]

SIZE = 24_000_000
STREAM = bytes(range(256)) * (SIZE // 256)
SPRING = Spring("node1", ("sh", "-c", "exec cat /tmp/stream"))
EAT = ("sh", "-c", "sha256sum | cut -c 1-64")
BEHIND = staging.NODES[1:]


@pytest.fixture(scope="module")
def lab(able: None) -> Iterator[Lab]:
    with staging.own_lab() as own:
        own.inside("node1", ["sh", "-c", "cat >/tmp/stream"], stdin=STREAM, check=True)
        yield own


@pytest.fixture
def hurt(lab: Lab) -> Iterator[Callable[..., None]]:
    nodes: list[str] = []

    def fault(verb: str, node: str, *args: float) -> None:
        nodes.append(node)
        lab.fault(verb, node, *args)

    yield fault
    for node in dict.fromkeys(nodes):
        lab.heal(node)


@pytest.fixture
def session(lab: Lab) -> Iterator[Session]:
    with staging.session({name: {"user": "ops"} for name in staging.NODES}) as made:
        yield made


def stops(*hosts: str, **start: int) -> list[Stop]:
    return [Stop(host, EAT, start.get(host, 0)) for host in hosts or BEHIND]


def flow(session: Session, spring: Spring = SPRING, to: list[Stop] | None = None, **more: object) -> dict[str, Arrival]:
    wanted = to or stops()
    with Ways(session, staging.NODES) as ways:
        ways.attempt(pairs([*filter(None, [spring.host]), *(stop.host for stop in wanted)]))
        return Chain(session, ways, spring, wanted, within=60, **more).run()  # type: ignore[arg-type]


def states(found: dict[str, Arrival]) -> dict[str, str]:
    return {host: one.state for host, one in found.items()}


def had(found: dict[str, Arrival], start: int = 0) -> list[str]:
    """Who has the stream from a byte on, by what the hosts hashed."""
    want = sha256(STREAM[start:]).hexdigest()
    return [host for host, one in found.items() if one.state == "done" and want in one.said]


def clean(lab: Lab) -> None:
    for node in staging.NODES:
        assert lab.inside(node, ["sh", "-c", "ls -d /tmp/.fleet-chain-*"]).returncode != 0, node


def test_all_have_it_and_nothing_stays_behind(lab: Lab, session: Session) -> None:
    found = flow(session)
    assert had(found) == list(BEHIND)
    clean(lab)


def test_each_takes_only_what_it_wants(session: Session) -> None:
    found = flow(session, to=stops("node2", "node3", "node4", node3=5_000_000, node4=20_000_001))
    assert had(found) == ["node2"]
    assert had(found, 5_000_000) == ["node3"]
    assert had(found, 20_000_001) == ["node4"]


def test_from_this_machine(session: Session) -> None:
    chunks = [STREAM[at : at + 65536] for at in range(0, len(STREAM), 65536)]
    assert had(flow(session, Spring(chunks=lambda: chunks))) == list(BEHIND)


def test_where_hosts_may_not_log_in_to_each_other_it_comes_through_this_machine(lab: Lab) -> None:
    nodock = staging.session({name: {"user": "nodock"} for name in staging.NODES})
    with nodock as made, Ways(made, staging.NODES) as ways:
        ways.attempt(pairs(staging.NODES))
        chain = Chain(made, ways, SPRING, stops(), within=60)
        assert chain.through_here == list(BEHIND)
        assert had(chain.run()) == list(BEHIND)


def test_a_command_that_fails_takes_nobody_with_it(session: Session) -> None:
    some = [
        stop if stop.host != "node3" else Stop("node3", ("sh", "-c", "head -c 9; echo full; exit 7"))
        for stop in stops()
    ]
    found = flow(session, to=some)
    assert states(found) == {"node2": "done", "node3": "failed", "node4": "done", "node5": "done"}
    assert had(found) == ["node2", "node4", "node5"]
    assert "ended with code 7" in str(found["node3"].error)
    assert "full" in str(found["node3"].error)


def test_a_cable_cut_at_the_first_host(lab: Lab, session: Session, hurt: Callable[..., None]) -> None:
    node = BEHIND[0]
    for name in staging.NODES:
        hurt("rate", name, 60)
    cut = threading.Event()

    def tell(host: str, got: int) -> None:
        if host == node and got > SIZE // 4 and not cut.is_set():
            cut.set()
            lab.fault("cut", node)

    found = flow(session, tell=tell)
    assert cut.is_set()
    assert states(found) == {node: "failed", **dict.fromkeys(BEHIND[1:], "cut off")}
    assert isinstance(found[node].error, FleetError)


@pytest.mark.long
def test_a_slow_host_is_taken_out(session: Session, hurt: Callable[..., None]) -> None:
    for name in staging.NODES:
        hurt("rate", name, 40)

    def tell(host: str, got: int) -> None:
        if host == "node3" and not slow.is_set() and got > SIZE // 4:
            slow.set()
            hurt("rate", "node3", 1)

    slow = threading.Event()
    began = time.monotonic()
    found = flow(session, tell=tell, patience=3.0)
    # Of bytes that wait between two hosts nobody can say whose end of the cable is the slow one: node4 may be held for
    # it, too, and be fed by itself.
    assert states(found) | {"node4": "cut off"} == {
        "node2": "done", "node3": "slow", "node4": "cut off", "node5": "cut off",
    }  # fmt: skip
    assert found["node4"].state in ("slow", "cut off")
    assert time.monotonic() - began < 40
    assert "held back the others" in str(found["node3"].error)
