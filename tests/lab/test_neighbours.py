"""Several operators on the same real nodes: leases, stealing, waiting, what dead runs leave, and what never stops."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.docker import PREFIX
from fleet.model.lease import FOLDER
from tests.lab.desk import STP, STRANGER, Desk, Running, until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(200)]


@pytest.fixture
def other(desk: Desk, tmp_path: Path) -> Desk:
    """Somebody else, with a results folder of their own, who logs in as another user."""
    folder = tmp_path / "other"
    folder.mkdir()
    return replace(desk, folder=folder, env={"USER": "ops2", "LOGNAME": "ops2"})


def loading(desk: Desk, running: Running, conc: int) -> None:
    running.until("ready in")
    until(lambda: desk.containers("node1", f"name=c{conc}", "status=running"), f"the client at conc {conc}")


def long(desk: Desk, *words: str, conc: str = "4,64", output: int = 64, **everyone: str) -> list[str]:
    """With 64 tokens the point at conc 64 takes about ten seconds; everyone: variables of the inventory."""
    return desk.small(STP, *words, inventory=desk.inventory(trial={"output": output}, everyone=everyone), conc=conc)


def killed(running: Running) -> None:
    running.process.send_signal(signal.SIGKILL)
    running.process.wait(10)


def test_the_second_operator_is_told_and_waits(desk: Desk, other: Desk) -> None:
    with desk.started(*long(desk)) as first:
        loading(desk, first, 64)
        said = other.invoke(*long(other, conc="4", ansible_user="nodock"))
        assert said.code == 5, said.all
        run = desk.run().name
        for node in ("node1", "node2"):
            line = (
                rf"^{node} is leased by \S+@\S+ for run {run} since \d\d:\d\d, renewed \d+ s ago, "
                r"ends [\d: -]+ at the latest$"
            )
            assert re.search(line, said.err, re.M), said.err
        assert "wait: --wait   ·   see it: invoke leases" in said.err
        seen = other.invoke("leases", "--json", "--limit", "node1,node3")
        assert seen.code == 0, seen.all
        assert [(one["host"], one["state"]) for one in seen.json()] == [("node1", "live"), ("node3", "free")]
        with other.started(*long(other, "--wait", conc="4", ansible_user="nodock")) as second:
            second.until(rf"waiting    node1 is leased by .* for run {run}")
            assert first.end().code == 0
            assert second.end().code == 0, second.said()
    assert [record.conc for record in other.run().records()] == [4]
    desk.nothing_left()


def test_a_wait_that_is_interrupted_leaves_all_as_it_was(desk: Desk, other: Desk) -> None:
    with desk.started(*long(desk)) as first:
        loading(desk, first, 64)
        with other.started(*long(other, "--wait", conc="4")) as second:
            second.until("waiting    node1")
            second.interrupt()
            said = second.end(10)
        assert (said.code, "Traceback" in said.all) == (130, False)
        assert first.end().code == 0
    desk.nothing_left()


def test_a_run_whose_nodes_are_stolen_stops_and_keeps_its_points(desk: Desk, other: Desk) -> None:
    with desk.started(*long(desk, output=400)) as first:
        loading(desk, first, 64)
        run = desk.run().name
        with other.started(*long(other, "--steal", conc="4", ansible_user="nodock")) as second:
            stopped = first.end()
            done = second.end()
    assert stopped.code == 5, stopped.all
    assert re.search(rf"the lease of node[12] was taken by ops2@\S+ for run {other.run().name}", stopped.err)
    assert f"1 finished point kept in {desk.run().path}" in stopped.err
    assert "Traceback" not in stopped.all
    kept, cut = desk.run().records()
    assert (kept.conc, kept.state, kept.valid, cut.conc, cut.state) == (4, "done", True, 64, "incomplete")
    for seat in ("prefill0", "decode0", "router", "client-c64"):
        assert (desk.run().path / "logs/1p1d" / f"{seat}.log").stat().st_size
    assert done.code == 0, done.all
    assert re.search(rf"lease +node1 +taken from run {run} of .* renewed \d+ s ago\): it will be stopped", done.out)
    assert f"waiting until run {run} of" in done.out
    desk.nothing_left()


def test_what_a_killed_sweep_leaves_is_reaped_and_strangers_stay(desk: Desk, other: Desk) -> None:
    inventory = desk.inventory(trial={"output": 400})
    with desk.started(*desk.small(STP, inventory=inventory, conc="64")) as running:
        loading(desk, running, 64)
        alone = other.invoke("reap", "--inventory", inventory)
        assert alone.code == 0, alone.all
        assert re.search(rf"left alone: run {desk.run().name} of \S+ on node1, node2 \(leased, driven", alone.out)
        assert "left alone: 1 container of strangers on node1" in alone.out
        killed(running)
    run = desk.run().name
    held = other.invoke("leases", "--json", "--inventory", inventory).json()
    assert [one["state"] for one in held] == ["live", "live", "free"], "another owner cannot know that it is dead"
    own = desk.invoke("leases", "--json", "--inventory", inventory).json()
    assert [one["state"] for one in own] == ["dead", "dead", "free"]
    look = desk.invoke("reap", "--look", "--inventory", inventory)
    assert look.code == 0, look.all
    assert len(desk.ours()["node1"]) == 3
    said = desk.invoke("reap", "--inventory", inventory)
    assert said.code == 0, said.all
    assert said.out == look.out
    assert re.search(
        rf"node2: run {run}: fleet-\w+-decode0; scratch folder of {run}; dead lease of run {run}", said.out
    )
    for seat in ("prefill0", "decode0", "router", "client-c64"):
        assert (desk.results / run / "logs/1p1d" / f"{seat}.log").stat().st_size
    desk.nothing_left()
    again = desk.invoke("reap", "--inventory", inventory)
    assert (again.code, again.out.count("nothing to clean up")) == (0, 3), again.all
    assert desk.containers("node1", "status=running") == [STRANGER]


def expire(desk: Desk) -> None:
    """As if the leases had been renewed two minutes ago."""
    for node, text in desk.leased().items():
        lease = json.loads(text)
        lease |= {name: lease[name] - 120 for name in ("renewed", "expires")}
        line = json.dumps(lease, separators=(",", ":"))
        desk.lab.inside(node, ["sh", "-c", 'printf "%s\\n" "$1" > "$2"', "_", line, f"{FOLDER}/lease.json"], check=True)


def test_an_expired_lease_is_taken_over_with_a_word_and_reaped_from_another_machine(desk: Desk, other: Desk) -> None:
    inventory = desk.inventory(trial={"output": 400})
    with desk.started(*desk.small(STP, inventory=inventory, conc="64")) as running:
        loading(desk, running, 64)
        killed(running)
    expire(desk)
    run = desk.run().name
    said = other.invoke(*other.small(STP, inventory=inventory))
    assert said.code == 5, said.all
    assert re.search(rf"lease +node1 +the lease of run {run} of \S+ has expired .*: taken over", said.out)
    assert re.search(rf"node1 is in use by \S+ for run {run}, without a lease", said.err)
    reaped = other.invoke("reap", "--inventory", inventory)
    assert reaped.code == 0, reaped.all
    (aside,) = other.results.glob(f"reaped-*/{run}/logs/1p1d/decode0.log")
    assert aside.stat().st_size
    assert other.invoke(*other.small(STP, inventory=inventory)).code == 0
    desk.nothing_left()


@pytest.mark.long
def test_what_is_no_lease_is_told_and_can_be_removed_or_taken(desk: Desk, other: Desk) -> None:
    inventory, file = desk.inventory(), f"{FOLDER}/lease.json"

    def put(*argv: str) -> None:
        desk.lab.inside("node2", ["install", "-d", "-m", "0777", FOLDER], check=True)
        desk.lab.inside("node2", list(argv), check=True)

    put("mkfifo", file)
    said = other.invoke(*other.small(STP, inventory=inventory, conc="4"))
    assert (said.code, f"node2: {file} is a named pipe: nobody can tell who has the node" in said.err) == (5, True)
    assert f"remove one that is damaged: invoke reap --inventory {inventory}" in said.err
    seen = other.invoke("leases", "--inventory", inventory)
    assert (seen.code, f"node2: {file} is a named pipe; what removes it: invoke reap" in seen.out) == (0, True)
    waited = other.invoke(*other.small(STP, "--wait", inventory=inventory, conc="4"))
    assert (waited.code, "waiting    node2" in waited.out) == (5, True)
    reaped = other.invoke("reap", "--inventory", inventory)
    assert (reaped.code, f"node2: damaged lease: {file} is a named pipe" in reaped.out) == (0, True)
    put("mkdir", file)
    taken = other.invoke(*other.small(STP, "--steal", inventory=inventory, conc="4"))
    assert (taken.code, f"node2       {file} is a folder: taken over" in taken.out) == (0, True), taken.all
    desk.nothing_left()


def test_down_of_somebody_elses_live_run_needs_its_whole_name_and_says_so(desk: Desk, other: Desk) -> None:
    inventory = desk.inventory(trial={"output": 400})
    with desk.started(*desk.small(STP, inventory=inventory, conc="64")) as running:
        loading(desk, running, 64)
        run = desk.run().name
        part = other.invoke("down", "--run", run[:20], "--inventory", inventory)
        assert (part.code, "its whole name is needed" in part.err) == (2, True), part.all
        whole = other.invoke("down", "--run", run, "--inventory", inventory)
        assert whole.code == 0, whole.all
        assert re.search(rf"run {run} of \S+ is live on \S+: it is stopped now", whole.out)
        assert running.end().code in (4, 5)
    desk.nothing_left()


# ---------------------------------------------------------------------- what does not stop


def test_an_engine_that_ignores_term_is_killed_in_the_end(desk: Desk) -> None:
    said = desk.invoke(*desk.small(STP, inventory=desk.inventory(node2={"env": {"FLEET_DOUBLE_FAIL": "ignore-term"}})))
    assert said.code == 0, said.all
    desk.nothing_left()


def test_a_container_whose_first_process_hears_no_signal_is_killed_at_once(desk: Desk) -> None:
    """It says that it may take ten minutes to end; a teardown waits for three."""
    image = desk.lab.docker("node1", ["image", "ls", "-q", "--filter", "reference=rocm/*"], check=True).out.split()[0]
    labels = ["--label", f"{PREFIX}.run=20261201-000000-deaf-000000", "--label", f"{PREFIX}.arm=a"]
    argv = ["run", "-d", "--name", "fleet-deaf", *labels, "--stop-timeout", "600", "--entrypoint", "sh", image]
    desk.lab.docker("node1", [*argv, "-c", "while :; do sleep 1; done"], check=True)
    said = desk.invoke("down", "--run", "20261201-000000-deaf-000000", "--inventory", desk.inventory())
    assert said.code == 0, said.all
    desk.nothing_left()


@pytest.fixture
def squatter(desk: Desk) -> Iterator[None]:
    """A process of the login user on node2 that listens on decode's port as soon as it is free."""
    listen = "until busybox nc -l -p 8020 </dev/null >/dev/null 2>&1; do sleep 0.05; done"
    start = f"echo $$ >/tmp/squatter; while :; do {listen}; done"
    user = ["setpriv", "--reuid=ops", "--regid=ops", "--init-groups"]
    desk.lab.inside("node2", ["sh", "-c", 'setsid "$@" >/dev/null 2>&1 </dev/null &', "_", *user, "sh", "-c", start])
    yield
    desk.lab.inside("node2", ["sh", "-c", "kill -9 -$(cat /tmp/squatter) && rm /tmp/squatter"], check=True)


def test_a_port_that_somebody_holds_afterwards_is_named_with_the_holder(
    desk: Desk, request: pytest.FixtureRequest
) -> None:
    with desk.started(*long(desk, conc="64")) as running:
        loading(desk, running, 64)
        request.getfixturevalue("squatter")
        said = running.end()
    assert said.code == 0, said.all
    assert re.search(r"teardown: node2: port 8020 \(decode0\) is still held by busybox \(pid \d+\)", said.out), said.out
    again = desk.invoke(*desk.small(STP))
    assert again.code == 3, again.all
    assert re.search(r"node2: port 8020 \(decode0\) is taken by busybox \(pid \d+\)", again.err)
    desk.nothing_left()
