"""How soon a death or a lost host is known on real nodes, in what words, and what is never taken for one."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from tests.lab.desk import STP, Desk, Running, Said, until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(150)]

Fault = Callable[..., None]
ABOUT_A_SECOND = 3.0
LOST = 8.0


def loading(desk: Desk, running: Running) -> None:
    running.until("ready in")
    until(lambda: desk.containers("node1", "name=client", "status=running"), "a client")


def long(desk: Desk) -> list[str]:
    return desk.small(STP, inventory=desk.inventory(trial={"output": 64, "max_concurrency": 64}), conc="64")


def known(desk: Desk, running: Running, since: float, bound: float) -> float:
    """Seconds from the fault until the load was stopped: the record is written right after."""
    until(lambda: desk.run().records(), "the record", 60)
    spent = time.monotonic() - since
    print(f"\nknown after {spent:.2f} s")
    assert spent < bound, running.said()
    return spent


def died(desk: Desk, said: Said) -> None:
    assert said.code == 4, said.all
    (record,) = desk.run().records()
    assert (record.state, record.valid) == ("incomplete", False)
    assert "Traceback" not in said.all
    assert re.search(r"^next: invoke sweep ", said.out, re.M)


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (["kill"], r"decode 0 on node2 died \(exit 137: killed\)"),
        (["stop", "-t", "20"], r"decode 0 on node2 died \(exit (0: ended|143: terminated)\)"),
        (["pause"], r"decode 0 on node2 is paused"),
        (["rm", "-f"], r"decode 0 on node2 died \(exit 137: killed; somebody removed its container\)"),
    ],
)
def test_a_container_that_serves_no_more_is_known_in_about_a_second(desk: Desk, act: list[str], told: str) -> None:
    with desk.started(*long(desk)) as running:
        loading(desk, running)
        (decode,) = desk.containers("node2", "name=decode0")
        since = time.monotonic()
        desk.lab.docker("node2", [*act, decode], check=True)
        known(desk, running, since, ABOUT_A_SECOND)
        said = running.end()
    died(desk, said)
    assert re.search(told, said.out), said.out
    desk.nothing_left()


def test_an_engine_that_is_killed(desk: Desk, healed: Fault) -> None:
    with desk.started(*long(desk)) as running:
        loading(desk, running)
        since = time.monotonic()
        healed("kill-docker", "node2")
        known(desk, running, since, ABOUT_A_SECOND)
        said = running.end()
    desk.lab.heal("node2")
    desk.clear()
    died(desk, said)
    assert "the Docker engine on node2 stopped: decode0 went with it" in said.out


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("cut", "it does not answer at all: cable, power or network"),
        ("freeze", "it takes connections, but nothing on it answers: frozen"),
        ("refuse", "it refuses SSH connections"),
    ],
)
def test_a_host_that_is_lost(desk: Desk, healed: Fault, fault: str, told: str) -> None:
    with desk.started(*long(desk)) as running:
        loading(desk, running)
        since = time.monotonic()
        healed(fault, "node2")
        known(desk, running, since, LOST)
        said = running.end()
    desk.lab.heal("node2")
    desk.clear()
    died(desk, said)
    assert re.search(rf"node2 is lost: no answer for \d\.\d s on open and on new connections; {told}", said.out)
    assert "it held decode0" in said.out
    assert (desk.run().path / "logs/1p1d/prefill0.log").stat().st_size


@pytest.mark.parametrize(("fault", "much"), [("loss", 30), ("delay", 500)])
def test_a_bad_line_alone_is_no_death(desk: Desk, healed: Fault, fault: str, much: int) -> None:
    trial = {"output": 128, "max_concurrency": 64, "prompts_per_concurrency": 40}
    with desk.started(*desk.small(STP, inventory=desk.inventory(trial=trial), conc="64")) as running:
        loading(desk, running)
        healed(fault, "node2", much)
        time.sleep(20)
        assert running.process.poll() is None, running.said()
        assert desk.run().records() == ()
        desk.lab.heal("node2")
        running.interrupt()
        said = running.end()
    assert "is lost" not in said.all
    assert said.code == 130, said.all
    desk.nothing_left()


# ---------------------------------------------------------------------- starts


def playing(desk: Desk, what: str) -> str:
    return desk.inventory(node2={"env": {"FLEET_DOUBLE_FAIL": what}})


def test_an_engine_that_ends_well_is_dead(desk: Desk) -> None:
    said = desk.invoke(*desk.small(STP, inventory=playing(desk, "exit-after=20:0")))
    died(desk, said)
    assert "decode 0 on node2 died (exit 0: ended)" in said.out
    assert "proc died unexpectedly (exitcode=0)" in said.out
    desk.nothing_left()


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("kv-room", "Not enough memory for KV cache with block size(16)"),
        ("weights", "default_weight_loader: shape mismatch"),
        ("mooncake", "Mooncake TransferEngine.initialize() failed (ret=-1)"),
    ],
)
def test_a_start_that_fails_is_told_by_its_fatal_line(desk: Desk, kind: str, line: str) -> None:
    said = desk.invoke(*desk.small(STP, inventory=playing(desk, f"start-error={kind}")))
    assert said.code == 4, said.all
    assert "decode 0 on node2 died (exit 1: failed)" in said.out
    assert re.search(rf"decode 0 on node2   .*{re.escape(line)}.*   ← first fatal line", said.out), said.out
    desk.nothing_left()


def test_a_death_while_others_still_start(desk: Desk) -> None:
    with desk.started(*desk.small(STP, inventory=playing(desk, "slow-start=60"))) as running:
        (decode,) = until(lambda: desk.containers("node2", "name=decode0", "status=running"), "decode")
        since = time.monotonic()
        desk.lab.docker("node2", ["kill", decode], check=True)
        running.until(r"decode 0 on node2 died \(exit 137: killed\)")
        print(f"\ntold, with logs home and all cleared, after {time.monotonic() - since:.2f} s")
        said = running.end()
    assert said.code == 4, said.all
    desk.nothing_left()


def test_a_start_that_makes_no_progress(desk: Desk) -> None:
    words = desk.small(STP, inventory=playing(desk, "hang-before-ready"))
    said = desk.invoke(*words, INVOKE_FLEET_TIMEOUTS_STALLED_AFTER="4s")
    assert said.code == 4, said.all
    silent = r"no progress since \d\d:\d\d:\d\d \(\d s\): its log is silent and it uses no CPU"
    assert re.search(rf"decode 0 on node2: {silent}; last line: .*Memory budget", said.out), said.out
    desk.nothing_left()


# ---------------------------------------------------------------------- engines that are dead behind a container


ENGINE = 20.0


@pytest.mark.parametrize("fail", ["core-hangs-after=100", "core-dies-after=100"])
def test_a_core_of_atom_that_dies(desk: Desk, fail: str) -> None:
    """Health stays 200 and the container runs: only the log and the counters tell, long before request_within."""
    inventory = desk.inventory(
        trial={"output": 64, "max_concurrency": 64},
        node2={"env": {"FLEET_DOUBLE_FAIL": fail}},
    )
    with desk.started(*desk.small(STP, inventory=inventory, conc="64")) as running:
        loading(desk, running)
        core_died(desk, "node2", "decode0", "proc died unexpectedly")
        known(desk, running, time.monotonic(), ENGINE)
        said = running.end()
    died(desk, said)
    line = r"EngineCore DP rank 0: proc died unexpectedly \(exitcode=-9\), shutting down\."
    assert re.search(rf"conc 64 stopped: decode 0 on node2 died \(its engine: nothing has moved .*{line}", said.out)
    assert re.search(rf"decode 0 on node2   .*{line}   ← first fatal line", said.out), said.out
    assert re.search(r"logs of 3 services are in .*/logs/1p1d", said.out), said.out
    desk.nothing_left()


@pytest.mark.parametrize(
    ("fail", "told"),
    [
        ("core-dies-after=30", r"its engine: /health tells status 503"),
        ("core-hangs-after=30", r"its engine: nothing has moved for \d+ seconds"),
    ],
)
def test_a_core_of_vllm_that_dies(desk: Desk, fail: str, told: str) -> None:
    """Requests fail at once, or hang."""
    env = {"FLEET_DOUBLE_FAIL": fail}
    inventory = desk.inventory(everyone={"env": env}, trial={"output": 64, "max_concurrency": 16})
    words = ["sweep", "--config", "dsv4-fp4-mi355x-vllm", "--arm", "tp8-1k1k", "--conc", "16", "--inventory", inventory]
    with desk.started(*words) as running:
        loading(desk, running)
        core_died(desk, "node1", "server0", "EngineDeadError")
        known(desk, running, time.monotonic(), ENGINE)
        said = running.end()
    died(desk, said)
    assert re.search(rf"conc 16 stopped: server 0 on node1 died \({told}", said.out), said.out
    assert re.search(r"server 0 on node1   .*EngineCore encountered a fatal error\..*   ← first fatal line", said.out)
    desk.nothing_left()


def test_a_decode_worker_that_gets_no_kv_ends_its_point_and_the_next_one_runs(desk: Desk) -> None:
    inventory = desk.inventory(
        trial={"output": 16},
        node1={"env": {"FLEET_DOUBLE_FAIL": "hang-transfers=10:4"}},
        node2={"env": {"FLEET_DOUBLE_TRANSFER_SECONDS": "25"}},
    )
    said = desk.invoke(*desk.small(STP, inventory=inventory, conc="4,8"))
    print(said.out)
    assert said.code == 1, said.all
    records = desk.run().records()
    assert [(one.conc, one.state) for one in records] == [(4, "incomplete"), (8, "done")]
    told = r"client: stopped: decode 0 on node2 gets no KV: 4 transfer errors, none finished for \d+ s"
    assert re.fullmatch(told, records[0].verdict.reasons[0]), records[0].verdict.reasons
    assert "conc 8 waits until the servers have done with conc 4" in said.out
    desk.nothing_left()


def core_died(desk: Desk, node: str, seat: str, line: str) -> None:
    (box,) = desk.containers(node, f"name={seat}")

    def said() -> bool:
        logged = desk.lab.docker(node, ["logs", box])
        return line in logged.out + logged.err

    until(said, f"{line!r} in the log of {seat}")
