"""What goes wrong on real nodes: the exit code, what is told, logs brought home, and nothing left behind."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from fleet.results.record import Record
from tests.lab.desk import MTP, STP, Desk, Running, Said, until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(150)]

Fault = Callable[..., None]
TAG = "rocm/atom-dev:nightly_202606101403"
SSH_LINE = re.compile(r"ssh -F \S+ .*node\d")


def fail(what: str) -> dict[str, dict[str, str]]:
    """Variables of a host whose engine shall play a failure."""
    return {"env": {"FLEET_DOUBLE_FAIL": what}}


def only(desk: Desk) -> Record:
    (record,) = desk.run().records()
    return record


def logged(desk: Desk, *names: str) -> None:
    """These logs of the only arm are home, and say something."""
    for name in names:
        (path,) = (desk.run().path / "logs").glob(f"*/{name}.log")
        assert path.stat().st_size, path


def notes(desk: Desk) -> str:
    return desk.run().summary_text.read_text()


# ---------------------------------------------------------------------- services that die


def both_arms(desk: Desk, **hosts: object) -> list[str]:
    """A sweep of both arms, a point each."""
    small = desk.inventory(trial={"max_concurrency": 4, "prompts_per_concurrency": 8}, **hosts)
    return ["sweep", "--config", STP, "--conc", "256,4", "--inventory", small]


def test_a_decode_killed_in_the_middle_of_a_point_ends_its_arm_and_the_next_one_runs(desk: Desk) -> None:
    with desk.started(*both_arms(desk)) as running:
        loading(desk, running)
        (decode,) = desk.containers("node3", "name=decode0")
        desk.lab.docker("node3", ["kill", decode], check=True)
        said = running.end()
    assert said.code == 4, said.all
    assert "conc 4 stopped: decode 0 on node3 died (exit 137: killed)" in said.out
    assert re.search(r"^  \d\d:\d\d:\d\d\.\d{3}  decode 0 on node3   \S.*   ← its last line$", said.out, re.M)
    assert "0 finished points kept in" in said.out
    died, ran = desk.run().records()
    assert (died.arm, died.state, died.valid) == ("2p1d-dpa", "incomplete", False)
    assert "services: decode 0 on node3 died (exit 137: killed)" in died.verdict.reasons
    assert (ran.arm, ran.state, ran.valid) == ("1p1d", "done", True)
    assert re.search(rf"^next: invoke sweep --resume {desk.run().name}$", said.out, re.M)
    assert "arm 2p1d-dpa ended early" in notes(desk)
    for name in ("prefill0", "prefill1", "decode0", "router", "client-c4"):
        assert (desk.run().path / "logs/2p1d-dpa" / f"{name}.log").stat().st_size
    desk.nothing_left()


@pytest.mark.parametrize(("verb", "end"), [("rm", "died"), pytest.param("pause", "is paused", marks=pytest.mark.long)])
def test_a_decode_that_goes_right_after_it_was_ready_leaves_the_record_of_the_first_point(
    desk: Desk, verb: str, end: str
) -> None:
    small = desk.inventory(trial={"max_concurrency": 4, "prompts_per_concurrency": 8})
    with desk.started(*desk.small(STP, inventory=small, conc="4")) as running:
        running.until("ready in")
        (decode,) = desk.containers("node2", "name=decode0")
        desk.lab.docker("node2", [verb, *["-f"] * (verb == "rm"), decode], check=True)
        said = running.end()
    assert said.code == 4, said.all
    assert f"decode 0 on node2 {end}" in said.out, said.all
    assert ("somebody paused it" in said.out) == (verb == "pause")
    (record,) = desk.run().records()
    assert (record.state, record.valid) == ("incomplete", False)
    assert f"decode 0 on node2 {end}" in record.verdict.reasons[0]
    desk.nothing_left()


def test_a_decode_out_of_memory_and_fail_fast(desk: Desk) -> None:
    words = both_arms(desk, node3=fail("oom-after=24"))
    said = desk.invoke(*words, "--fail-fast")
    assert said.code == 4, said.all
    assert "decode 0 on node3 died (exit 1: failed)" in said.out
    (fatal,) = re.findall(r"  \d\d:\d\d:\d\d\.\d{3}  (.*)   ← first fatal line", said.out)
    assert re.fullmatch(r"decode 0 on node3   .*HIP out of memory.*", fatal)
    assert [record.arm for record in desk.run().records()] == ["2p1d-dpa"]
    assert "not run: 1p1d at conc 4" in notes(desk)
    desk.nothing_left()


def test_an_engine_that_never_gets_ready(desk: Desk) -> None:
    words = desk.small(STP, inventory=desk.inventory(node2=fail("hang-before-ready")))
    said = desk.invoke(*words, INVOKE_FLEET_TIMEOUTS_READY_WITHIN="4s")
    assert said.code == 4, said.all
    assert re.search(r"decode 0 on node2: not after \d+ s; last answer: decode0: ", said.out)
    assert "invoke logs" in said.out
    assert desk.run().records() == ()
    assert "not run: 1p1d at conc 4" in notes(desk)
    logged(desk, "prefill0", "decode0")
    desk.nothing_left()


def loading(desk: Desk, running: Running) -> str:
    """Wait until a load client runs; its name."""
    running.until("ready in")
    return str(until(lambda: "".join(desk.containers("node1", "name=client", "status=running")), "a client"))


# ---------------------------------------------------------------------- points that are not valid


def test_a_draft_that_nobody_accepts_and_fail_fast(desk: Desk) -> None:
    small = desk.inventory(node2=fail("no-accept"))
    said = desk.invoke(*desk.small(MTP, "--fail-fast", inventory=small, conc="4,8"))
    assert said.code == 1, said.all
    record = only(desk)
    assert (record.conc, record.state, record.valid) == (4, "done", False)
    assert record.verdict.reasons == ("acceptance: 0 decode steps drafted: speculation did not run",)
    assert record.verdict.reasons[0] in said.out
    assert (record.agg, record.no_agg) == (None, "the point is not valid")
    assert "stopped at the first point that is not valid (--fail-fast)" in said.out
    assert "not run: 1p1d-mtp3 at conc 8" in notes(desk)
    desk.nothing_left()


def test_answers_that_are_too_short_do_not_end_the_sweep(desk: Desk) -> None:
    small = desk.inventory(trial={"prompts_per_concurrency": 2}, node2=fail("short-output=9"))
    said = desk.invoke(*desk.small(STP, "--keep-going", inventory=small, conc="4,8"))
    assert said.code == 1, said.all
    records = desk.run().records()
    assert [record.conc for record in records] == [4, 8]
    for record in records:
        assert not record.valid
        assert f"output tokens: {record.prompts} of {record.prompts} outside 25..32 (9)" in record.verdict.reasons
    desk.nothing_left()


def test_a_request_that_is_never_answered(desk: Desk) -> None:
    words = desk.small(STP, inventory=desk.inventory(node2=fail("stall-request=20")))
    said = desk.invoke(*words, INVOKE_FLEET_TIMEOUTS_POINT_WITHIN="6s")
    assert said.code == 1, said.all
    record = only(desk)
    assert (record.state, record.valid) == ("incomplete", False)
    assert re.match(
        r"client: stopped: client on node1: not after \d+ s; last answer: \d+ of 24 requests "
        r"\(timeouts.point_within: 6 s\)",
        record.verdict.reasons[0],
    )
    assert record.verdict.reasons[0] in said.out
    logged(desk, "client-c4", "decode0")
    desk.nothing_left()


def test_a_point_of_which_one_request_hangs_ends_and_the_next_one_runs(desk: Desk) -> None:
    words = desk.small(STP, conc="4,8", inventory=desk.inventory(node2=fail("stall-request=20")))
    said = desk.invoke(*words, INVOKE_FLEET_TIMEOUTS_REQUEST_WITHIN="9s", INVOKE_FLEET_TIMEOUTS_REST_WITHIN="20s")
    assert said.code == 1, said.all
    hung, ran = desk.run().records()
    assert (hung.conc, hung.state, hung.valid) == (4, "incomplete", False)
    why = r"client: stopped: 1 of 24 requests not done: nothing has moved for \d+ s, where one may take 9 s "
    assert re.match(why + r"\(timeouts.request_within\)", hung.verdict.reasons[0]), hung.verdict.reasons
    assert (ran.conc, ran.state, ran.valid) == (8, "done", True)
    logged(desk, "client-c4", "decode0")
    desk.nothing_left()


def test_nodes_that_lose_each_other_while_they_serve(desk: Desk) -> None:
    """The handshake ports of prefill refuse decode: neither node nor container is ill, the transfers are."""
    try:
        with desk.started(*desk.small(STP)) as running:
            running.until("ready in")
            rule = ["-p", "tcp", "--dport", "6301:6400", "-j", "REJECT", "--reject-with", "tcp-reset"]
            desk.lab.inside("node1", ["iptables", "-w", "-I", "INPUT", *rule], check=True)
            said = running.end()
    finally:
        desk.lab.heal("node1")
    assert said.code == 1, said.all
    record = only(desk)
    assert not record.valid
    reasons = {reason.partition(":")[0]: reason for reason in record.verdict.reasons}
    assert re.search(r"\d+ of 16 completed, 16 asked; \d+ × ", reasons["requests"])
    assert re.search(
        r"\d+ errors? logged: .*KV transfer from node1:6301 f|\[CONSUMER\] transfer failed", reasons["kv transfer"]
    )
    desk.nothing_left()


# ---------------------------------------------------------------------- reasons not to start


def refused(desk: Desk, said: Said) -> None:
    """Exit 3, and nothing was started anywhere."""
    assert said.code == 3, said.all
    assert "nothing was started" in said.err
    assert said.err.count("Traceback") == 0
    assert not (desk.run().path / "logs").exists()
    desk.nothing_left()


def test_all_reasons_not_to_start_are_told_at_once(desk: Desk) -> None:
    model = "/srv/models/DeepSeek-V4-Pro"
    image = desk.image_ids(TAG)["node1"]
    inside = desk.lab.inside
    try:
        inside(
            "node1",
            ["sh", "-c", "busybox nc -l -p 8010 >/dev/null 2>&1 </dev/null & echo $! >/tmp/listener"],
            check=True,
        )
        inside("node2", ["mv", model, f"{model}.away"], check=True)
        inside("node3", ["sh", "-c", f"echo other >> {model}/config.json"], check=True)
        desk.forget_images("node2", "node3")
        desk.lab.docker("node1", ["tag", TAG, "fleet-test/kept:1"], check=True)
        desk.lab.docker("node1", ["rmi", TAG], check=True)
        said = desk.invoke("sweep", "--config", STP, "--inventory", desk.inventory())
    finally:
        desk.lab.docker("node1", ["tag", image, TAG], check=True)
        desk.lab.docker("node1", ["rmi", "fleet-test/kept:1"])
        inside("node1", ["sh", "-c", "kill $(cat /tmp/listener)"])
        for node in ("node2", "node3"):
            inside(node, ["rm", "-rf", f"{model}.away"])
            desk.lab.heal(node)
    refused(desk, said)
    assert "preflight: 4 reasons not to start" in said.err
    assert "node1: port 8010 (prefill0) is taken; who: ss -ltnp 'sport = :8010'" in said.err
    assert "model DeepSeek-V4-Pro: missing or empty on node2\n" in said.err
    assert re.search(
        r"model DeepSeek-V4-Pro: config.json: \d+ bytes on node1; \d+ bytes on node3\n"
        rf" +if that of node1 is the right one: invoke stage.model --config {STP} --from node1 --limit node2,node3 ",
        said.err,
    )
    assert f"image {TAG}: on none of node1, node2, node3; type: docker pull {TAG} on one of them" in said.err


@pytest.mark.parametrize("verb", ["cut", "refuse"])
def test_a_node_that_is_gone(desk: Desk, healed: Fault, verb: str) -> None:
    healed(verb, "node2")
    said = desk.invoke(*desk.small(STP), INVOKE_FLEET_TIMEOUTS_CONNECT="2s")
    desk.lab.heal("node2")
    refused(desk, said)
    assert "node2" in said.err
    assert SSH_LINE.search(said.err), said.err


# ---------------------------------------------------------------------- who may use Docker


def test_docker_by_sudo_serves_a_whole_point(desk: Desk) -> None:
    desk.forget_images("node2")
    said = desk.invoke(*desk.small(MTP, inventory=desk.inventory(everyone={"ansible_user": "nodock"})))
    assert said.code == 0, said.all
    assert only(desk).valid
    logged(desk, "prefill0", "decode0", "router", "client-c4")
    desk.nothing_left()


def test_a_user_who_may_not_use_docker(desk: Desk) -> None:
    said = desk.invoke(*desk.small(STP, inventory=desk.inventory(everyone={"ansible_user": "plain"})))
    refused(desk, said)
    for node in ("node1", "node2"):
        assert f"{node}: Docker cannot be used: " in said.err
    assert "may not use the Docker socket" in said.err
    assert SSH_LINE.search(said.err)


# ---------------------------------------------------------------------- the operator changes their mind


def test_fail_fast_and_keep_going_exclude_each_other(desk: Desk) -> None:
    said = desk.invoke(*desk.small(STP, "--fail-fast", "--keep-going"))
    assert said.code == 2
    assert "--fail-fast and --keep-going exclude each other" in said.err
    assert not desk.results.exists()


def slow(desk: Desk, conc: str) -> list[str]:
    """Points of one arm, that at conc 64 a long one."""
    return desk.small(STP, inventory=desk.inventory(trial={"output": 64}), conc=conc)


def loads_64(desk: Desk) -> None:
    until(lambda: desk.containers("node1", "name=c64", "status=running"), "the client at conc 64")


def test_interrupted_once_in_the_middle_of_a_point(desk: Desk) -> None:
    with desk.started(*slow(desk, "4,64")) as running:
        loads_64(desk)
        running.interrupt()
        said = running.end()
    assert said.code == 130, said.all
    assert "interrupted: bringing logs home, then stopping our containers; ^C again leaves now" in said.out
    assert "1 finished point kept in" in said.err
    assert "Traceback" not in said.all
    done, stopped = desk.run().records()
    assert (done.conc, done.state, done.valid) == (4, "done", True)
    assert (stopped.conc, stopped.state, stopped.valid) == (64, "incomplete", False)
    assert stopped.verdict.reasons[0] == "client: stopped: interrupted"
    logged(desk, "prefill0", "decode0", "router", "client-c4", "client-c64")
    assert "1 of 2 points valid" in notes(desk)
    desk.nothing_left()


def test_interrupted_twice_then_refused_then_cleared_away(desk: Desk) -> None:
    with desk.started(*slow(desk, "64")) as running:
        loads_64(desk)
        running.interrupt()
        running.until("again leaves now")
        running.interrupt()
        said = running.end(10)
    run = desk.run().name
    assert said.code == 130, said.all
    assert f"containers of {run} may still run on node1, node2" in said.err
    assert f"invoke down --run {run}" in said.err
    assert "Traceback" not in said.all
    left = desk.ours()
    assert left
    again = desk.invoke(*desk.small(STP))
    assert again.code == 3, again.all
    for node in left:
        held = rf"{node}: run {run} has containers here \(.*\); if nobody needs it any more: invoke down --run {run}"
        assert re.search(held, again.err)
    gone = desk.invoke("down", "--run", run)
    assert gone.code == 0, gone.all
    assert "removed" in gone.out
    assert len(list((desk.results / run / "logs/1p1d").glob("*.log"))) >= 4
    assert json.loads((desk.results / run / "facts.json").read_text())["hosts"]["node1"]
    desk.nothing_left()
