"""The everyday verbs on real nodes."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.lab.desk import Desk

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
