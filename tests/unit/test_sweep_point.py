"""One point: what its record says for every way a load can end, and in which order things happen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fleet import patience
from fleet.docker import Image
from fleet.errors import HostError, NotReady, ServiceDied, Unreachable
from fleet.model.evidence import Counters
from fleet.results.record import Record
from fleet.stages import sweep
from fleet.stages.deployment import Deployment
from fleet.stages.launch import images
from fleet.stages.sweep import run_point
from fleet.stages.watch import Death, Deaths
from tests.world import Box, Counted, Node, World

CLIENT_HOST = "mi355x-01"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(sweep, "EVERY", 0.01)
    return World()


@pytest.fixture
def up(world: World, tmp_path: Path) -> Deployment:
    return world.running(tmp_path)


def run(up: Deployment, **found: Image) -> Record:
    return run_point(up, up.arm.points[0], images(up) | found)


def client_node(world: World) -> Node:
    return world.nodes[CLIENT_HOST]


def test_a_good_point_is_done_valid_and_on_disk(world: World, up: Deployment) -> None:
    record = run(up)
    assert (record.state, record.verdict.valid, record.verdict.reasons) == ("done", True, ())
    assert up.folder.records() == (record,)
    assert world.told.records == [record]
    assert record.raw == "raw/1p1d-mtp3-c4.json"
    assert record.agg == "agg/1p1d-mtp3-c4.json"
    assert record.figures.output_tput_per_gpu == 40 * 900 / 0.4 / 8
    assert record.figures.acceptance_length == pytest.approx(1 + 550 / 345)
    assert record.evidence["decode0"].after == record.evidence["decode0"].before.model_copy(  # type: ignore[union-attr]
        update={"finished": 48, "prompt_tokens": 48 * 8000, "generated_tokens": 43200,
                "drafted": 49680, "accepted": 26400, "steps": 16560}
    )  # fmt: skip
    assert record.double is False


def test_the_clients_log_is_home_before_it_is_removed_and_the_servers_stay(world: World, up: Deployment) -> None:
    world.client_log = "2026-11-30T21:04:05Z Serving Benchmark Result\n"
    run(up)
    lines = client_node(world).lines
    logs, removed = [next(i for i, line in enumerate(lines) if line.endswith(end)) for end in (
        "docker logs --timestamps fleet-" + up.plan.hash6 + "-client-1p1d-mtp3-c4",
        "docker rm fleet-" + up.plan.hash6 + "-client-1p1d-mtp3-c4",
    )]  # fmt: skip
    assert logs < removed
    assert up.folder.log("1p1d-mtp3", "client-c4").read_text() == world.client_log
    assert sorted(client_node(world).boxes) == [f"fleet-{up.plan.hash6}-{seat}" for seat in ("prefill0", "router")]


def test_a_client_that_someone_removed_ends_its_point_and_not_the_run(world: World, up: Deployment) -> None:
    def ends(node: Node, box: Box) -> None:
        del node.boxes[box.name]

    world.client_ends = ends  # type: ignore[method-assign]
    record = run(up)
    assert (record.state, record.verdict.valid) == ("incomplete", False)
    assert record.verdict.reasons[0] == "client: stopped: its container is gone"


def test_a_clients_exit_code_is_a_reason_with_its_last_words(world: World, up: Deployment) -> None:
    world.client_code, world.result = 2, None
    world.client_log = "2026-11-30T21:04:05Z starting\n2026-11-30T21:04:06Z error: unrecognized arguments: --x\n"
    record = run(up)
    assert record.state == "failed"
    assert record.verdict.reasons[0] == "client: exit 2: error: unrecognized arguments: --x"
    assert record.raw is None
    assert record.no_agg == "no result"


def test_a_good_result_of_a_client_that_failed_is_not_valid(world: World, up: Deployment) -> None:
    world.client_ends = _after(world, code=1)  # type: ignore[method-assign]
    record = run(up)
    assert (record.state, record.verdict.valid) == ("done", False)
    assert record.verdict.reasons[0].startswith("client: exit 1")
    assert record.no_agg == "the point is not valid"
    assert record.figures.median_ttft_ms == 41.5, "shown all the same"


def _after(world: World, *, code: int):  # type: ignore[no-untyped-def]
    usual = world.client_ends

    def ends(node: Node, box):  # type: ignore[no-untyped-def]
        usual(node, box)
        box.code = code

    return ends


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (b'{"completed": 4', "client: its result is not JSON: Expecting ',' delimiter: line 1 column 16 (char 15)"),
        (b"[]", "client: its result is not a JSON object"),
        (b"{}", "client: its result cannot be read: KeyError: 'completed'"),
    ],
)
def test_a_broken_result_fails_the_point_and_is_kept_untouched(
    world: World, up: Deployment, written: bytes, reason: str
) -> None:
    world.result = written
    record = run(up)
    assert record.state == "failed"
    assert record.verdict.reasons[0] == reason
    assert record.raw is not None
    assert (up.folder.path / record.raw).read_bytes() == written


def test_a_gate_that_says_no_makes_the_point_invalid(world: World, up: Deployment) -> None:
    world.result = {"completed": 39}
    record = run(up)
    assert (record.state, record.verdict.valid) == ("done", False)
    assert record.verdict.reasons == ("requests: 39 of 40 completed, 40 asked",)


def test_missing_counters_make_the_point_invalid(world: World, up: Deployment) -> None:
    world.handlers["decode0"] = lambda path, body: (404, "") if path == "/metrics" else None
    record = run(up)
    assert not record.verdict.valid
    assert (
        "decode requests: no evidence: decode0 showed no finished requests before and after" in record.verdict.reasons
    )


def test_a_death_stops_the_load_and_is_recorded_then_raised(world: World, up: Deployment) -> None:
    def dies(path: str, body: object) -> None:
        if client_node(world).asked("docker run .*client"):
            world.box("client").looks = 1000
            world.box("decode0").end(137, oom=True)

    world.handlers["decode0"] = dies
    with pytest.raises(ServiceDied) as told:
        run(up)
    death = "decode 0 on mi355x-02 died (exit 137: killed, out of memory)"
    assert str(told.value) == f"conc 4 stopped: {death}"
    (record,) = up.folder.records()
    assert record.state == "incomplete"
    assert record.verdict.reasons[0] == "client: stopped: decode 0 on mi355x-02 died (exit 137: killed, out of memory)"
    assert f"services: {death}" in record.verdict.reasons
    assert client_node(world).asked("docker (stop|rm) ") == [
        f"docker {verb} fleet-{up.plan.hash6}-client-1p1d-mtp3-c4" for verb in ("stop", "rm")
    ]


def test_a_death_before_the_load_is_recorded_too(world: World, up: Deployment) -> None:
    world.nodes["mi355x-02"].boxes.pop(world.box("decode0").name)
    with pytest.raises(ServiceDied) as told:
        run(up)
    death = "decode 0 on mi355x-02 died (its container is gone)"
    assert (told.value.head, told.value.exit_code) == (f"conc 4 stopped: {death}", 4)
    (record,) = up.folder.records()
    assert (record.state, record.verdict.valid, record.raw) == ("incomplete", False, None)
    assert record.verdict.reasons[0] == f"client: stopped: {death}"
    assert world.told.records == [record]
    assert client_node(world).asked("docker (run|stop|rm) ") == []


def test_a_server_that_is_paused_ends_the_load_and_is_called_so(world: World, up: Deployment) -> None:
    def paused(path: str, body: object) -> None:
        if client_node(world).asked("docker run .*client"):
            world.box("client").looks = 1000
            world.box("decode0").state = "paused"

    world.handlers["decode0"] = paused
    with pytest.raises(ServiceDied, match="conc 4 stopped: decode 0 on mi355x-02 is paused\nsomebody paused it"):
        run(up)
    (record,) = up.folder.records()
    assert record.verdict.reasons[0] == "client: stopped: decode 0 on mi355x-02 is paused"


def test_a_client_that_is_paused_ends_its_point_at_once_and_not_the_run(world: World, up: Deployment) -> None:
    def paused(path: str, body: object) -> None:
        if client_node(world).asked("docker run .*client"):
            world.box("client").state = "paused"
            world.handlers.clear()

    world.client_ends = lambda node, box: None  # type: ignore[method-assign,assignment]
    world.handlers["decode0"] = paused
    record = run(up)
    assert record.state == "incomplete"
    assert record.verdict.reasons[0] == (
        "client: stopped: client on mi355x-01 is paused: by whom?  docker events --filter event=pause"
    )


def test_a_client_that_fails_because_a_service_died_is_a_death(world: World, up: Deployment) -> None:
    usual = world.client_ends

    def ends(node: Node, box) -> None:  # type: ignore[no-untyped-def]
        usual(node, box)
        world.box("decode0").end(1)

    world.client_ends = ends  # type: ignore[method-assign]
    with pytest.raises(ServiceDied, match="decode 0 on mi355x-02 died"):
        run(up)
    assert up.folder.records()[0].state == "incomplete"


def test_a_lost_host_is_recorded_then_raised(world: World, up: Deployment) -> None:
    def lost(argv: list[str], stdin: bytes) -> str:
        raise Unreachable("connection lost", where="mi355x-02")

    def gone(path: str, body: object) -> None:
        if world.nodes[CLIENT_HOST].asked("docker run .*client"):
            world.nodes["mi355x-02"].first = [(lambda argv: True, lost)]

    world.handlers["prefill0"] = gone
    with pytest.raises(Unreachable):
        run(up)
    (record,) = up.folder.records()
    assert record.state == "incomplete"
    assert record.verdict.reasons[0] == "client: stopped: mi355x-02: connection lost"
    assert client_node(world).asked("docker rm .*client")


def test_a_lost_host_of_the_client_itself_is_recorded_too(world: World, up: Deployment) -> None:
    client_node(world).first = [("docker inspect", Unreachable("connection lost", where=CLIENT_HOST))]
    client_node(world).first += [("docker (stop|logs)", Unreachable("connection lost", where=CLIENT_HOST))]
    with pytest.raises(HostError):
        run(up)
    assert [record.state for record in up.folder.records()] == ["incomplete"]


def test_a_point_that_takes_too_long_is_stopped_and_the_next_may_run(tmp_path: Path) -> None:
    world = World(point_within=0.3)
    up = world.running(tmp_path)
    world.client_ends = lambda node, box: None  # type: ignore[method-assign]
    record = run(up)
    assert record.state == "incomplete"
    assert record.verdict.reasons[0].startswith("client: stopped: client on mi355x-01: not after ")
    assert client_node(world).asked("docker stop .*client")


def test_a_point_of_which_one_request_hangs_keeps_what_is_known_and_the_next_may_run(tmp_path: Path) -> None:
    world = World(request_within=0.2)
    up = world.running(tmp_path)

    def ends(node: Node, box: Box) -> None:
        world.counted["decode0"].finished = 47
        box.log = "2026-11-30T21:04:05Z 47 of 48\n"

    world.client_ends = ends  # type: ignore[method-assign]
    record = run(up)
    assert (record.state, record.verdict.valid) == ("incomplete", False)
    assert record.verdict.reasons[0].startswith("client: stopped: 1 of 48 requests not done: nothing has moved for ")
    after = record.evidence["decode0"].after
    assert after is not None
    assert after.finished == 47
    assert up.folder.log("1p1d-mtp3", "client-c4").read_text().endswith(" 47 of 48\n")


def test_a_decode_worker_that_gets_no_kv_ends_its_point_and_the_next_may_run(
    world: World, up: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(node: Node, box: Box) -> None:
        world.counted["prefill0"].finished, up.vigil.transfers = 4, 4

    monkeypatch.setattr(patience, "HUNGRY", 0.1)
    world.client_ends = ends  # type: ignore[method-assign]
    record = run(up)
    assert (record.state, record.verdict.valid) == ("incomplete", False)
    told = "client: stopped: decode 0 on mi355x-02 gets no KV: 4 transfer errors, none finished for 0 s"
    assert record.verdict.reasons[0] == told


def test_a_hang_is_told_with_whose_counters_stand_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(request_within=0.2)
    up = world.running(tmp_path)
    monkeypatch.setattr(sweep.counters, "settled", lambda _: {"decode0": Counters(finished=0)})

    def ends(node: Node, box: Box) -> None:
        world.counted["decode0"].finished, world.counted["decode0"].late = 47, 100

    world.client_ends = ends  # type: ignore[method-assign]
    reason = run(up).verdict.reasons[0]
    assert reason.startswith("client: stopped: 1 of 48 requests not done: ")
    assert re.search(r"; the engine of decode0 has not refreshed its counters for (99|100) s$", reason)


@pytest.mark.parametrize(("completed", "asked"), [(40, 0), (39, 1)])
def test_requests_that_failed_make_the_engines_be_asked(
    world: World, up: Deployment, monkeypatch: pytest.MonkeyPatch, completed: int, asked: int
) -> None:
    calls: list[Deployment] = []
    monkeypatch.setattr(sweep.corpse, "certain", calls.append)
    world.result = {"completed": completed}
    run(up)
    assert len(calls) == asked


def test_an_engine_found_dead_after_its_requests_failed_ends_the_arm(
    world: World, up: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead(_: Deployment) -> None:
        raise Deaths([Death(up.arm.servers[1], "its engine")])

    monkeypatch.setattr(sweep.corpse, "certain", dead)
    world.result = {"completed": 39}
    with pytest.raises(Deaths, match=r"conc 4 stopped: decode 0 on mi355x-02 died \(its engine\)"):
        run(up)
    (record,) = up.folder.records()
    assert (record.state, record.verdict.valid) == ("incomplete", False)
    assert "services: decode 0 on mi355x-02 died (its engine)" in record.verdict.reasons


@pytest.mark.parametrize(("during", "client"), [("wait", ["running"]), ("start", [])])
def test_an_interrupted_point_is_recorded_and_its_client_left_to_teardown(
    world: World, up: Deployment, monkeypatch: pytest.MonkeyPatch, during: str, client: list[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    found = images(up)
    monkeypatch.setattr(sweep, during, interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_point(up, up.arm.points[0], found)
    (record,) = up.folder.records()
    assert (record.state, record.verdict.reasons[0]) == ("incomplete", "client: stopped: interrupted")
    boxes = client_node(world).boxes.values()
    assert [box.state for box in boxes if box.labels.get("role") == "client"] == client


def test_transfer_errors_that_servers_and_router_logged_are_reasons(world: World, up: Deployment) -> None:
    world.box("prefill0").log = "t0 fine\nt1 [PRODUCER] transfer failed for req 7\n"
    world.box("router").log = "t2 decode_server_error http://10.0.0.13:8020"
    record = run(up)
    assert record.verdict.reasons == (
        "kv transfer: 2 errors logged: prefill 0 on mi355x-01: [PRODUCER] transfer failed for req 7",
    )
    assert client_node(world).asked(r"docker logs --timestamps --since \d+s fleet-\w+-prefill0")


def test_logs_that_cannot_be_read_are_no_proof_that_nothing_failed(world: World, up: Deployment) -> None:
    world.nodes["mi355x-02"].first = [("docker logs", (1, "", "Error: permission denied"))]
    record = run(up)
    assert record.state == "done"
    assert record.verdict.reasons[0].startswith("kv transfer: the logs of mi355x-02 cannot be read: ")


def test_a_double_is_marked(up: Deployment) -> None:
    double = Image(id="sha256:d", labels={"dev.fleet.double": "1"})
    assert run(up, **{"mi355x-02": double}).marks == ("DOUBLE",)


def test_progress_counts_what_decode_has_finished_since_the_point_began(world: World, up: Deployment) -> None:
    world.counted["decode0"] = Counted(finished=100)
    seen: list[tuple[str, float, int]] = []
    world.told.requests = lambda *told: seen.append(told)  # type: ignore[method-assign]
    run(up)
    assert seen == [("1p1d-mtp3 conc 4, point 1 of 1", 0, 48)]


def test_a_deadline_is_no_death_and_all_deaths_are_kept(up: Deployment) -> None:
    assert sweep.Load(None, error=NotReady("late")).deaths == ()
    died = Deaths([Death(one, "exit 1: failed") for one in (up.front, up.arm.servers[1])])
    assert died.what == "router on mi355x-01 died (exit 1: failed)"
    assert sweep.Load(None, error=died).deaths == (died.what, "decode 0 on mi355x-02 died (exit 1: failed)")


def test_a_router_that_counts_too_few_workers_ends_the_arm(world: World, up: Deployment) -> None:
    """Healthy when the arm got ready; one worker drops out while the load runs."""
    few = (200, {"healthy_workers": 1, "total_workers": 2})
    world.handlers["router"] = lambda path, body: few if path == "/readiness" else None
    start = Node._run

    def long(node: Node, argv: list[str]) -> str:
        made = start(node, argv)
        for box in node.boxes.values():
            box.looks = 1000
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Node, "_run", long)
        with pytest.raises(ServiceDied) as told:
            run(up)
    assert told.value.where == "conc 4 stopped"
    assert told.value.what.startswith("router on mi355x-01: ")
    (record,) = up.folder.records()
    assert (record.state, record.valid) == ("incomplete", False)
    assert record.verdict.reasons[0].startswith("client: stopped: router on mi355x-01: ")


def test_a_server_that_is_no_longer_the_planned_one_when_the_load_has_ended(
    world: World, up: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, swapped = Box.inspected, world.box("decode0")
    changed = {"Image": "sha256:other"}
    monkeypatch.setattr(Box, "inspected", lambda box: plain(box) | (changed if box is swapped else {}))
    record = run(up)
    assert record.state == "done"
    assert record.verdict.reasons == ("deployment: decode0 is of another image",)


def test_a_host_that_does_not_tell_what_runs_on_it_is_a_reason(world: World, up: Deployment) -> None:
    def ends(node: Node, box: Box) -> None:
        World.client_ends(world, node, box)
        decode = next(one for one in world.nodes.values() if any("decode0" in name for name in one.boxes))
        decode.first = [("docker inspect", (1, "", "Error: no such object"))]

    world.client_ends = ends  # type: ignore[method-assign]
    (reason,) = run(up).verdict.reasons
    assert reason.startswith("deployment: mi355x-02: ")
