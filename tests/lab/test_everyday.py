"""The everyday verbs on real nodes."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from fleet.docker import PREFIX
from fleet.lab.image import TAGS, BuiltImage, ensure
from fleet.results import lastfailed
from tests.lab.desk import Desk, Running, until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(150)]


def test_exec_groups_what_real_nodes_answer(desk: Desk) -> None:
    said = desk.invoke("exec", "--cmd", "echo out; echo err >&2; uname -s")
    assert (said.code, said.out) == (0, "==> node[1-3]  (all 3)\nout\nerr\nLinux\n"), said.all
    said = desk.invoke("exec", "--cmd", 'test "$(hostname)" != node2', "--limit", "node*:!node3")
    assert (said.code, said.out) == (1, "==> node1\n==> node2  exit 1\n"), said.all
    said = desk.invoke("exec", "--cmd", "sleep 60", "--timeout", "1s", "--limit", "node1")
    assert said.code == 3, said.all
    assert "node1: " in said.err


def test_cp_puts_a_file_on_real_nodes(desk: Desk, tmp_path: Path) -> None:
    source = tmp_path / "tune.sh"
    source.write_text("#!/bin/sh\necho tuned\n")
    source.chmod(0o750)
    try:
        said = desk.invoke("cp", "--source", str(source), "--target", "/srv/fleet/")
        assert said.code == 0, said.all
        assert said.out == "".join(f"node{n}: /srv/fleet/tune.sh  21 bytes, mode 0750\n" for n in (1, 2, 3))
        said = desk.invoke("exec", "--cmd", "cd /srv/fleet; ls; stat -c %a tune.sh; ./tune.sh")
        assert said.out == "==> node[1-3]  (all 3)\ntune.sh\n750\ntuned\n"
        desk.invoke("exec", "--cmd", "rm /srv/fleet/tune.sh; mkdir /srv/fleet/tune.sh", "--limit", "node2")
        said = desk.invoke("cp", "--source", str(source), "--target", "/srv/fleet/tune.sh")
        assert (said.code, said.out.count("tune.sh  21 bytes")) == (3, 2), said.all
        assert "node2: " in said.err
    finally:
        desk.invoke("exec", "--cmd", "rm -rf /srv/fleet/tune.sh")


def test_inventory_add_looks_at_real_nodes(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    before = f"""\
# Mine.
all:
  vars:   {{ssh_config: {desk.lab.ssh_config}, scratch: /srv/fleet}}   # the lab's
  hosts:
    node1:   # the first

  # the end
"""
    path.write_text(before)
    add = ("inventory.add", "--inventory", str(path))
    said = desk.invoke(*add, "--host", "nodock@node[2-3],nowhere", "--group", "spare", "--runner", "mi355x")
    assert said.code == 3, said.all
    assert said.err == (
        "nowhere: name unknown: nowhere (Name or service not known)\n"
        f"try:  ssh -F {desk.lab.ssh_config} -p 22 root@nowhere true\n"
    )
    node = "\n          user: nodock\n          models: /srv/models\n          runners: [mi355x]\n"
    spare = f"  children:\n    spare:\n      hosts:\n        node2:{node}        node3:{node}"
    assert path.read_text() == before.replace("first\n", f"first\n{spare}")
    rows = [line.split() for line in said.out.splitlines()]
    (row,) = [row for row in rows if row[:2] == ["node2", "none"]]
    assert (row[3], row[5:7]) == ("sudo", ["/srv/models", "(1)"])
    (line,) = [line.removeprefix("next: invoke ") for line in said.out.splitlines() if line.startswith("next: ")]
    assert shlex.split(line) == ["health", "--inventory", str(path), "--limit", "node[2-3]"]
    said = desk.invoke(*shlex.split(line))
    assert (said.code, said.out.splitlines()[-1]) == (0, "2 of 2 hosts healthy"), said.all
    said = desk.invoke(*add, "--host", "node1", "--dry-run")
    assert (said.code, said.out) == (0, ""), said.all
    assert "it says models: /models (found: /srv/models)" in said.err


def ours_left(desk: Desk, node: str) -> list[str]:
    """Commands of ours that still run on a node: each is bounded by coreutils' timeout."""
    lines = desk.lab.inside(node, ["ps", "-eo", "args"], check=True).out.splitlines()
    return [line for line in lines if line.startswith("timeout -k ")]


def connections(desk: Desk, node: str) -> set[str]:
    """Addresses and ports from which a node's sshd is connected."""
    out = desk.lab.inside(node, ["ss", "-Htn", "state", "established", "( sport = :22 )"], check=True).out
    return {line.split()[-1] for line in out.splitlines()}


def ended_by_interrupt(desk: Desk, running: Running, *nodes: str) -> None:
    running.interrupt()
    said = running.end(15)
    assert (said.code, said.err) == (130, ""), said.all
    for node in nodes:
        until(lambda node=node: not ours_left(desk, node), f"no command of ours on {node}", 10)  # type: ignore[misc]


# ---------------------------------------------------------------------- health --watch


def test_health_is_watched(desk: Desk, healed: Callable[..., None]) -> None:
    patience = {"INVOKE_FLEET_TIMEOUTS_CONNECT": "2s", "INVOKE_FLEET_TIMEOUTS_COMMAND": "5s"}
    with desk.started("health", "--watch", "--limit", "node1,node2", **patience) as running:
        running.until(r"Z  2 of 2 hosts healthy\n")
        assert re.findall(r"Z  (node\d): well ", running.said()) == ["node1", "node2"]
        before = connections(desk, "node1")
        assert before
        healed("cut", "node2")
        running.until(r"Z  node2: no answer\n", 15)
        desk.lab.heal("node2")
        running.until(r"(?s)no answer.*Z  node2: well .*Z  2 of 2 hosts healthy\n", 40)
        assert connections(desk, "node1") == before, "connections stay open between rounds"
        assert not re.search("node1: (?!well)", running.said())
        healed("cut", "node2")
        running.until(r"(?s)well.*no answer.*well.*no answer", 15)
        ended_by_interrupt(desk, running, "node1")
    assert lastfailed.read(desk.results) == ["node2"]


def test_health_is_watched_as_json(desk: Desk) -> None:
    with desk.started("health", "--watch", "--json") as running:
        running.until(r"(.*\n){3}")
        ended_by_interrupt(desk, running, *desk.nodes)
    rounds = [json.loads(line) for line in running.said().splitlines()]
    assert [one["well"] for one in rounds] == [True] * len(rounds)
    assert {len(one["hosts"]) for one in rounds} == {3}
    seconds = [int(one["time"][17:19]) for one in rounds]
    assert {(after - before) % 60 for before, after in pairwise(seconds)} <= {1, 2}


# ---------------------------------------------------------------------- logs --follow


TICKER = """\
import itertools, sys, time
phase = int(sys.argv[1])
for slot in itertools.count(int(time.time() / 0.4) + 1):
    time.sleep(max(0, (slot + phase / 2) * 0.4 - time.time()))
    print("slot", 2 * slot + phase, flush=True)
"""
"""Two of them on two nodes take turns, 0.2 s each: slots are counted through both."""


def ticking(desk: Desk, node: str, role: str, phase: int, **labels: str) -> str:
    """A container as a sweep would start it, which prints its slots."""
    told = {"run": "20261130-follow", "owner": "ops@here", "arm": "1p1d", "rank": "0", "role": role, **labels}
    words = [word for name, value in told.items() for word in ("--label", f"{PREFIX}.{name}={value}")]
    run = ["run", "-d", "--init", "--network", "none", *words, "--entrypoint", "python3", TAGS[0]]
    return desk.lab.docker(node, [*run, "-c", TICKER, str(phase)], check=True).out.split()[-1]


def test_logs_are_followed_on_one_timeline(desk: Desk, doubles: BuiltImage, healed: Callable[..., None]) -> None:
    ensure(desk.lab, "node2", doubles)
    ticking(desk, "node1", "prefill", 0)
    decode = ticking(desk, "node2", "decode", 1)
    inventory = desk.inventory(node2={"user": "nodock"})
    with desk.started("logs", "--follow", "--tail", "2", "--inventory", inventory) as running:
        running.until(r"(?s)(prefill0.*decode0.*){4}")
        desk.lab.docker("node2", ["rm", "-f", decode], check=True)
        running.until(r"decode0   node2  ==> ended \(exit 137: killed\)", 15)
        client = ticking(desk, "node2", "client", 1, point="1p1d-c4")
        running.until(r"(?s)client    node2  ==> started \(1p1d-c4\)(.*client    node2  slot){3}", 15)
        healed("kill-sshd", "node2", "sessions")
        running.until(r"node2  ==> lost: ", 20)
        running.until(r"(?s)==> lost: (.*prefill0  node1  slot){3}", 15)
        desk.lab.heal("node2")
        running.until(r"(?s)node2  ==> answers again(.*client    node2  slot){3}", 30)
        ended_by_interrupt(desk, running, "node1")
    said = running.said()
    assert said.startswith("run 20261130-follow\nprefill0 on node1; decode0 on node2   times are UTC")
    in_time, _, after = said.partition("==> lost: ")
    slots = [int(slot) for slot in re.findall(r" slot (\d+)\n", in_time)]
    assert slots == sorted(set(slots))
    assert " late) " not in in_time
    times = re.findall(r"^(\d\d:\d\d:\d\d\.\d{3})  \w+ +node\d  slot", in_time, re.M)
    assert times == sorted(times)
    missed = [int(slot) for slot in re.findall(r"client    node2  .*slot (\d+)\n", said)]
    assert missed == list(range(missed[0], missed[-1] + 2, 2)), "without gap or repeat, though the host was lost"
    assert "prefill0" in after
    with desk.started("logs", "--follow", "--role", "client", "--host", "node2") as running:
        running.until("client    node2  slot")
        desk.lab.docker("node2", ["kill", client], check=True)
        running.until(r"client    node2  ==> ended \(exit 137: killed\)\n\S+  - +- +==> all services have ended", 10)
        ended_by_interrupt(desk, running)
    assert "prefill0" not in running.said()
    desk.clear()
