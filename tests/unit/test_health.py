"""How hosts and services are: every fault in words, whoever is lost, and 0 only if all is well."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.errors import Unreachable
from fleet.stages.deployment import Deployment
from fleet.stages.health import health, seat_of
from tests.world import Box, World

FIRST, SECOND = "mi355x-01", "mi355x-02"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def up(world: World, tmp_path: Path) -> Deployment:
    return world.running(tmp_path)


def test_an_idle_inventory_is_well(world: World) -> None:
    found = health(world.session, None)
    assert (found.well, found.code) == (True, 0)
    assert [host.name for host in found.hosts] == world.session.names
    assert found.services == ()


def test_a_plan_asks_its_own_hosts_for_what_it_needs(world: World) -> None:
    world.nodes[SECOND].images.clear()
    found = health(world.session, world.plan)
    assert [host.name for host in found.hosts] == [FIRST, SECOND]
    line = "invoke stage --config dsv4-fp4-mi355x-atom-disagg-mtp --inventory inventories/example-mi355x.yaml"
    assert found.hosts[1].faults == (f"image {world.tag} is not here; type: {line}",)
    assert found.code == 3
    assert (found.key, found.unneeded) == (world.plan.key, ("mi355x-03", "mi355x-04"))
    assert found.to_json()["not_needed"] == ["mi355x-03", "mi355x-04"]
    assert health(world.session, None).unneeded == ()


def test_running_services_are_asked_what_readiness_asks(world: World, up: Deployment) -> None:
    found = health(world.session, world.plan)
    assert {(one.host, one.name): one.asked for one in found.services} == {
        (FIRST, "prefill0"): ("running", "/health", "/v1/models", "/kv_transfer_info"),
        (FIRST, "router"): ("running", "/readiness", "/v1/models"),
        (SECOND, "decode0"): ("running", "/health", "/v1/models", "/kv_transfer_info"),
    }
    assert found.well, "ports and GPUs are taken by right"


def test_a_bad_answer_is_that_services_fault(world: World, up: Deployment) -> None:
    world.handlers["decode0"] = lambda path, body: (500, "x") if path == "/v1/models" else None
    world.handlers["prefill0"] = lambda path, body: "refused"
    faults = {one.name: one.fault for one in health(world.session, world.plan).services}
    assert faults == {
        "prefill0": "/health: http://198.51.100.11:8010/health: connection refused",
        "router": "",
        "decode0": "/v1/models: status 500",
    }


def test_an_ended_container_is_a_fault_and_is_not_asked(world: World, up: Deployment) -> None:
    world.box("decode0").end(1)
    (service,) = [one for one in health(world.session, world.plan).services if one.name == "decode0"]
    assert (service.fault, service.asked) == ("Exited (1) 2 seconds ago", ("running",))
    assert health(world.session, None).code == 3


def test_without_a_plan_running_is_all_that_can_be_asked(world: World, up: Deployment) -> None:
    assert {one.asked for one in health(world.session, None).services} == {("running",)}


def test_a_lost_host_is_that_hosts_result(world: World, up: Deployment) -> None:
    lost = Unreachable("connection refused at 192.0.2.12:22", where=SECOND, hint="try:  ssh")
    world.nodes[SECOND].first = [(lambda argv: True, lost)]
    found = health(world.session, world.plan)
    assert [host.well for host in found.hosts] == [True, False]
    assert found.hosts[1].error == f"{SECOND}: connection refused at 192.0.2.12:22\ntry:  ssh"
    assert [one.host for one in found.services] == [FIRST, FIRST]


def test_a_host_lost_after_it_was_looked_at_is_a_fault_of_its_services(world: World, up: Deployment) -> None:
    lost = Unreachable("connection lost", where=SECOND)
    world.nodes[SECOND].first = [(lambda argv: "/dev/tcp" in " ".join(argv), lost)]
    faults = {one.name: one.fault for one in health(world.session, world.plan).services}
    assert faults["decode0"] == "connection lost"


def test_models_are_compared_and_strangers_named(world: World) -> None:
    world.nodes[SECOND].files = ""
    world.nodes[FIRST].boxes["web"] = Box("web", image="nginx:1")
    found = health(world.session, world.plan)
    assert found.models == (f"model DeepSeek-V4-Pro: missing or empty on {SECOND}",)
    assert found.hosts[0].strangers == ("web (nginx:1)",)
    assert found.hosts[0].well


def test_json_says_the_same(world: World, up: Deployment) -> None:
    told = health(world.session, world.plan).to_json()
    assert told["well"] is True
    assert told["hosts"][0]["name"] == FIRST
    assert told["hosts"][0]["error"] == ""
    assert [service["name"] for service in told["services"]] == ["prefill0", "router", "decode0"]


def test_seats_are_named_from_labels() -> None:
    def box(**labels: str) -> str:
        from fleet.docker import Container

        return seat_of(Container(id="1", name="n", image="i", state="running", status="Up", labels=labels))

    assert box(role="prefill", rank="1") == "prefill1"
    assert box(role="router", rank="0") == "router"
    assert box(role="decode", rank="0", node="1") == "decode0.1"


def test_who_failed_is_named(world: World, up: Deployment) -> None:
    world.nodes["mi355x-03"].first = [(lambda _: True, Unreachable("refused", where="mi355x-03"))]
    world.box("decode0").end(1)
    assert health(world.session, world.plan).failed == (SECOND,)
    assert health(world.session, None).failed == (SECOND, "mi355x-03")
