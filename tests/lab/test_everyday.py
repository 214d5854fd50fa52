"""The everyday verbs on real nodes."""

from __future__ import annotations

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
