"""The operator's other verbs on real nodes: what they show of hosts, of a running deployment and of what is kept."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy

import pytest
import yaml

from tests.lab.desk import MTP, ROOT, STP, STRANGER, Desk, Running, until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(150)]

Fault = Callable[..., None]
TAG = "rocm/atom-dev:nightly_202606101403"
SEATS = {("node1", "prefill0"), ("node1", "router"), ("node1", "client"), ("node2", "decode0")}


@contextmanager
def serving(desk: Desk) -> Iterator[Running]:
    """A sweep whose only point takes longer than the test."""
    small = desk.inventory(trial={"prompts_per_concurrency": 32, "output": 512})
    with desk.started(*desk.small(STP, inventory=small, conc="8")) as running:
        running.until("ready in")
        until(lambda: desk.containers("node1", "name=client", "status=running"), "a client")
        yield running


# ---------------------------------------------------------------------- while a deployment runs


def test_verbs_beside_a_running_sweep(desk: Desk) -> None:
    assert desk.invoke("stage", "--config", STP).code == 0
    with serving(desk) as running:
        run = desk.run().name
        services_are_asked(desk, run)
        ps_names_seats_and_strangers(desk, run)
        logs_come_from_the_hosts(desk, run)
        the_console_has_them_live(desk, run)
        down_saves_logs_and_leaves_strangers(desk, run)
        said = running.end()
    assert said.code == 4, said.all
    desk.nothing_left()
    assert re.search(r"died \(exit \d+: \w+; somebody removed its container\)", said.out)
    logs_come_from_the_folder(desk, run)


def services_are_asked(desk: Desk, run: str) -> None:
    said = desk.invoke("health", "--config", STP, "--json")
    assert said.code == 0, said.all
    found = said.json()
    assert found["well"] is True
    assert {(one["host"], one["name"]) for one in found["services"]} == SEATS
    asked = {one["name"]: one["asked"] for one in found["services"]}
    assert asked["decode0"][0] == "running"
    assert {"/health", "/kv_transfer_info"} <= set(asked["decode0"]) & set(asked["prefill0"])
    assert len(asked["router"]) > 1
    for one in found["services"]:
        assert (one["well"], one["run"], one["arm"], one["state"]) == (True, run, "1p1d", "running")
    table = desk.invoke("health", "--config", STP)
    assert table.code == 0, table.all
    assert re.search(r"node2 +decode0 +running +well +running, /health", table.out)
    assert "3 of 3 hosts healthy" in table.out
    assert f"node1: strangers (not touched): {STRANGER}" in table.out


def ps_names_seats_and_strangers(desk: Desk, run: str) -> None:
    said = desk.invoke("ps")
    assert said.code == 0, said.all
    rows = [line.split() for line in said.out.splitlines()]
    assert {(row[0], row[1]) for row in rows[1:]} == {*SEATS, ("node1", "stranger")}
    assert sum(run in row for row in rows) == 4
    found = desk.invoke("ps", "--json", "--limit", "node2").json()
    assert [(one["host"], one["labels"]["role"], one["labels"]["run"]) for one in found] == [("node2", "decode", run)]


def logs_come_from_the_hosts(desk: Desk, run: str) -> None:
    said = desk.invoke("logs", "--role", "decode", "--tail", "3")
    assert said.code == 0, said.all
    whose, head, *lines = said.out.splitlines()
    assert re.fullmatch(rf"run {run} of \S+ \(under way\)", whose)
    assert head == "==> node2 decode0"
    assert len(lines) == 3
    assert re.match(r"\d{4}-\d\d-\d\dT", lines[0])
    everything = desk.invoke("logs", "--run", run, "--tail", "0").out
    titles = re.findall(r"^==> (\S+) (\S+)$", everything, re.M)
    assert set(titles) == SEATS
    assert "Starting server on" in everything
    assert re.findall(r"^==> .*$", desk.invoke("logs", "--host", "node1", "--role", "router").out, re.M) == [
        "==> node1 router"
    ]


def the_console_has_them_live(desk: Desk, run: str) -> None:
    typed = [
        "deployment",
        'hosts.each("hostname")',
        "deployment.decode[0].logs(1)",
        'hosts["node2"].run("false")',
        'hosts["nod"]',
        "health()",
        'plan("no-such-key")',
    ]
    said = desk.invoke("shell", stdin="\n".join(typed) + "\n")
    assert said.code == 0, said.all
    assert "fleet console: 3 hosts of " in said.all
    assert re.search(rf"run {run} of .*\nhost +seat .*\n(node1 .*\n)+node2 +decode0 +Up ", said.out)
    assert "".join(f"==> {node}\n{node}\n" for node in desk.nodes) in said.out
    assert "(exit 1)" in said.out
    assert "did you mean" in said.all
    assert "3 of 3 hosts healthy" in said.out
    assert "no-such-key" in said.err
    assert "Traceback" not in said.all
    assert said.out.splitlines()[-4:] == [
        f"still running: run {run}",
        "  node1  client prefill0 router",
        "  node2  decode0",
        f"  take it down: invoke down --run {run}",
    ]


def down_saves_logs_and_leaves_strangers(desk: Desk, run: str) -> None:
    alone = desk.invoke("down")
    assert alone.code == 0, alone.all
    assert f"run {run} is under way here and left alone; ^C there ends it, or: invoke down --run {run}" in alone.out
    said = desk.invoke("down", "--run", run)
    assert said.code == 0, said.all
    assert re.search(r"node1: .*prefill0.* removed", said.out)
    assert re.search(r"node2: \S*decode0\S* removed", said.out)
    assert "node3: nothing of ours was there" in said.out
    saved = {path.stem for path in (desk.results / run / "logs/1p1d").glob("*.log")}
    assert saved >= {"prefill0", "decode0", "router", "client-c8"}
    # The sweep may write its leases anew as long as it runs.
    assert (desk.ours(), desk.scratch()) == ({}, {})


def logs_come_from_the_folder(desk: Desk, run: str) -> None:
    said = desk.invoke("logs", "--role", "decode", "--tail", "2")
    assert said.code == 0, said.all
    whose, head, *lines = said.out.splitlines()
    assert whose == f"run {run} (over; logs of {desk.results / run})"
    assert head == "==> logs/1p1d/decode0.log   decode0 on node2"
    assert len(lines) == 2
    client = desk.invoke("logs", "--run", run, "--role", "client").out.splitlines()
    assert client[1] == "==> logs/1p1d/client-c8.log   client on node1"
    wrong = desk.invoke("logs", "--run", run, "--role", "decod")
    assert wrong.code == 2
    assert "no log fits" in wrong.err


# ---------------------------------------------------------------------- health of hosts


def test_health_of_idle_hosts(desk: Desk) -> None:
    said = desk.invoke("health")
    assert said.code == 0, said.all
    assert "3 of 3 hosts healthy" in said.out
    assert re.search(r"^node3 +\d+ ms +\d+\.\S+ +none +\d+ GB", said.out, re.M)


def test_health_names_what_is_missing_and_staging_brings_it(desk: Desk) -> None:
    desk.forget_images("node2", "node3")
    said = desk.invoke("health", "--config", STP)
    assert said.code == 3, said.all
    for node in ("node2", "node3"):
        assert f"{node}: image {TAG} is not here; type: invoke stage --config" in said.out
    assert "1 of 3 hosts healthy (exit 3)" in said.out
    staged = desk.invoke("stage", "--config", STP)
    assert staged.code == 0, staged.all
    ids = desk.image_ids(TAG)
    assert list(ids) == ["node1", "node2", "node3"]
    assert len(set(ids.values())) == 1
    again = desk.invoke("stage", "--config", STP)
    assert re.findall(r"stage +(node\d) +has ", again.out) == ["node1", "node2", "node3"]
    well = desk.invoke("health", "--config", STP, "--json")
    assert well.code == 0, well.all
    for host in well.json()["hosts"]:
        assert host["well"]
        assert set(host["images"].values()) == set(ids.values())
        assert host["models"]["DeepSeek-V4-Pro"]["files"] > 1
    (stranger,) = well.json()["hosts"][0]["strangers"]
    assert stranger.startswith(f"{STRANGER} (")


def test_health_with_a_node_that_is_cut_off(desk: Desk, healed: Fault) -> None:
    healed("cut", "node2")
    said = desk.invoke("health", INVOKE_FLEET_TIMEOUTS_CONNECT="1s")
    assert said.code == 3, said.all
    assert re.search(r"^node2 +no +-", said.out, re.M)
    assert re.search(r"^node2: .*\n.*ssh -F ", said.out, re.M)
    assert "2 of 3 hosts healthy (exit 3)" in said.out
    as_json = desk.invoke("health", "--json", INVOKE_FLEET_TIMEOUTS_CONNECT="1s")
    assert as_json.code == 3
    assert [host["well"] for host in as_json.json()["hosts"]] == [True, False, True]
    ps = desk.invoke("ps", INVOKE_FLEET_TIMEOUTS_CONNECT="1s")
    assert ps.code == 3
    assert STRANGER in ps.out
    assert "node2: " in ps.err
    logs = desk.invoke("logs", INVOKE_FLEET_TIMEOUTS_CONNECT="1s")
    assert logs.code == 3
    assert logs.err.startswith("node2: ")


def test_down_where_nothing_runs(desk: Desk) -> None:
    said = desk.invoke("down")
    assert said.code == 0, said.all
    assert said.out.splitlines() == [f"{node}: nothing of ours was there" for node in desk.nodes]


# ---------------------------------------------------------------------- verbs that ask no host


def test_a_plan_as_json_is_the_text_plan(desk: Desk) -> None:
    said = desk.invoke("plan", "--config", MTP, "--json", "--inventory", "inventories/lab.yaml")
    assert said.code == 0, said.all
    plan = said.json()
    assert [arm["arm"]["name"] for arm in plan["arms"]] == ["2p1d-dpa-mtp3", "1p1d-mtp3"]
    text = desk.invoke("plan", "--config", MTP).out
    assert text.startswith(f"{MTP}   plan {plan['hash'][:6]}")


def test_a_config_of_a_master_file_expands_like_the_recipe(desk: Desk) -> None:
    master = desk.folder / "master.yaml"
    own = yaml.safe_load((ROOT / "recipes" / f"{STP}.yaml").read_text())
    master.write_text(yaml.safe_dump({"another": deepcopy(own[STP]), **own}))
    words = ("config.expand", "--config", STP, "--json")
    said = desk.invoke(*words, "--from", str(master))
    assert said.code == 0, said.all
    assert json.loads(said.out) == desk.invoke(*words).json()
    wrong = desk.invoke("config.expand", "--config", "anothre", "--from", str(master))
    assert wrong.code == 2
    assert "another" in wrong.err
