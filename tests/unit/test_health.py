"""How hosts and services are: every fault in words, whoever is lost, and 0 only if all is well."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet import ui
from fleet.docker import lasted
from fleet.errors import Unreachable
from fleet.stages.deployment import Deployment
from fleet.stages.health import Health, health, seat_of
from tests.world import RUN, Box, World

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


# ---------------------------------------------------------------------- a good sweep from its start to its end


def answers(found: Health) -> dict[str, str]:
    return {one.name: one.answer for one in found.services}


def client(world: World, state: str = "running", up: str = "2 minutes") -> Box:
    box = Box("fleet-x-client", state=state, up=up, labels={"run": RUN, "arm": "1p1d-mtp3", "role": "client"})
    world.nodes[FIRST].boxes[box.name] = box
    return box


def without_router(world: World) -> None:
    world.nodes[FIRST].boxes.pop(world.box("router").name)


@pytest.mark.parametrize(
    ("age", "answer", "ill"),
    [
        ("39 minutes", "starting: /health: ", False),
        ("40 minutes", "/health: ", True),
        ("About an hour", "/health: ", True),
    ],
)
def test_a_server_that_loads_is_starting(world: World, up: Deployment, age: str, answer: str, ill: bool) -> None:
    without_router(world)
    world.handlers["prefill0"] = lambda path, body: "refused"
    world.box("prefill0").up = age
    found = health(world.session, world.plan)
    assert answers(found)["prefill0"].startswith(answer)
    assert (found.well, found.ill, found.code) == (False, ill, 4)
    assert found.failed == ((FIRST,) if ill else ())


def test_a_good_client_that_ended_is_well(world: World, up: Deployment) -> None:
    client(world).end(0)
    found = health(world.session, world.plan)
    assert (answers(found)["client"], found.well, found.code) == ("done (exit 0)", True, 0)
    client(world).end(1)
    found = health(world.session, world.plan)
    assert (answers(found)["client"], found.ill, found.code) == ("Exited (1) 2 seconds ago", True, 4)


def test_created_is_not_ill_for_a_short_time(world: World, up: Deployment) -> None:
    box = client(world, "created", "119 seconds")
    found = health(world.session, world.plan)
    assert (answers(found)["client"], found.ill, found.code) == ("starting: its container is created", False, 4)
    assert found.failed == ()
    box.up = "2 minutes"
    found = health(world.session, world.plan)
    assert (answers(found)["client"], found.ill, found.code) == ("created 2 minutes ago, never started", True, 4)


def test_a_service_that_served_before_is_ill_at_once(world: World, up: Deployment) -> None:
    """The router was started because its servers answered, the load because the router did."""
    world.handlers["prefill0"] = world.handlers["router"] = lambda path, body: "refused"
    found = health(world.session, world.plan)
    assert answers(found)["prefill0"].startswith("/health: ")
    assert answers(found)["router"].startswith("starting: /readiness: ")
    client(world)
    assert answers(health(world.session, world.plan))["router"].startswith("/readiness: ")


def test_what_is_taken_down_is_no_alarm(world: World, up: Deployment) -> None:
    for seat in ("prefill0", "decode0"):
        world.box(seat).end(0)
        world.box(seat).stopped = True
    world.box("router").stopped = True
    world.handlers["router"] = lambda path, body: "refused"
    found = health(world.session, world.plan)
    assert answers(found) == {
        "prefill0": "stopped (exit 0)",
        "router": "is being stopped",
        "decode0": "stopped (exit 0)",
    }
    assert (found.well, [host.faults for host in found.hosts]) == (True, [(), ()])


@pytest.mark.parametrize(("code", "stopped"), [(0, False), (137, True), (1, False)])
def test_a_service_that_ended_otherwise_is(world: World, up: Deployment, code: int, stopped: bool) -> None:
    world.box("decode0").end(code)
    world.box("decode0").stopped = stopped
    assert answers(health(world.session, world.plan))["decode0"] == f"Exited ({code}) 2 seconds ago"


def test_the_verdict_counts_hosts_and_services(world: World, up: Deployment) -> None:
    def verdict() -> str:
        return ui.states(health(world.session, world.plan))[""]

    assert verdict() == "2 of 2 hosts healthy; 3 of 3 services well"
    client(world).end(1)
    assert verdict() == "2 of 2 hosts healthy; 1 of 4 services not well (exit 4)"
    world.handlers["router"] = lambda path, body: "refused"
    client(world, "created", "1 second")
    assert verdict() == "2 of 2 hosts healthy; 1 of 4 services not well, 1 starting (exit 4)"
    world.handlers.clear()
    assert verdict() == "2 of 2 hosts healthy; 1 of 4 services still starting (exit 4)"
    world.nodes[SECOND].clock = 5.0
    assert verdict() == "1 of 2 hosts healthy; 1 of 4 services still starting (exit 3)"


def test_a_paused_service_is_called_so_with_what_wakes_it(tmp_path: Path) -> None:
    world = World()
    world.running(tmp_path)
    world.box("decode0").state = "paused"
    (bad,) = [one for one in health(world.session, world.plan).services if one.fault]
    assert bad.fault == f"Up 2 minutes (Paused); for whoever paused it: docker unpause {world.box('decode0').name}"


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Up Less than a second", 0),
        ("Exited (137) 5 seconds ago", 5),
        ("Up About a minute (Paused)", 60),
        ("39 minutes ago", 2340),
        ("Up About an hour", 3600),
        ("2 weeks ago", 1209600),
        ("Created", None),
    ],
)
def test_how_long_docker_says(words: str, seconds: float | None) -> None:
    assert lasted(words) == seconds
