"""The everyday verbs, as functions: what they print, what they end with, what they leave on the hosts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet import provision, verbs
from fleet.errors import Unreachable, UsageError
from fleet.hosts.fake import Fake
from fleet.settings import Settings

Hosts = dict[str, Fake]
RACK = """\
all:
  hosts:
    node[1-4]:
    login:
"""
LOST = Unreachable("connection refused", where="node3", hint="try:  ssh node3 true")


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Hosts:
    """Five scripted hosts that a session on the rack's inventory meets; the last line of a command is its answer."""
    found = {name: Fake(name, [("uptime", "up 9 days\n")]) for name in ("node1", "node2", "node3", "node4", "login")}
    monkeypatch.setitem(
        provision.PROVISIONERS, "static", lambda inventory, _: {host.name: found[host.name] for host in inventory.hosts}
    )
    return found


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    path = tmp_path / "rack.yaml"
    path.write_text(RACK)
    return Settings(inventory=path, results=tmp_path / "results")


Captured = pytest.CaptureFixture[str]


def test_equal_answers_are_shown_once(hosts: Hosts, settings: Settings, capsys: Captured) -> None:
    hosts["node2"].script = [("uptime", "up 2 days\n")]
    hosts["login"].script = [("uptime", (7, "", ""))]
    assert verbs.execute(settings, cmd="uptime") == 7
    assert capsys.readouterr().out == ("==> node1 node[3-4]  (3)\nup 9 days\n==> node2\nup 2 days\n==> login  exit 7\n")
    assert hosts["node1"].calls[0].argv == ["sh", "-c", 'exec "$@" 2>&1', "_", "sh", "-c", "uptime"]


def test_all_say_the_same(hosts: Hosts, settings: Settings, capsys: Captured) -> None:
    assert verbs.execute(settings, cmd="uptime", limit=["node*:!node4"]) == 0
    assert capsys.readouterr().out == "==> node[1-3]  (all 3)\nup 9 days\n"
    assert hosts["node4"].calls == hosts["login"].calls == []


@pytest.mark.parametrize(("code", "worst"), [(0, 3), (2, 3), (4, 4), (255, 255), (-1, 3)])
def test_a_host_that_cannot_be_asked(hosts: Hosts, settings: Settings, capsys: Captured, code: int, worst: int) -> None:
    hosts["node3"].script = [("uptime", LOST)]
    hosts["node4"].script = [("uptime", (code, "up 9 days"))]
    assert verbs.execute(settings, cmd="uptime") == worst
    said = capsys.readouterr()
    assert said.err == "node3: connection refused\ntry:  ssh node3 true\n"
    assert "node3" not in said.out


def test_exec_as_json(hosts: Hosts, settings: Settings, capsys: Captured) -> None:
    hosts["node3"].script = [("uptime", LOST)]
    assert verbs.execute(settings, cmd="uptime", limit=["node1,node3"], json=True) == 3
    assert json.loads(capsys.readouterr().out) == [
        {"host": "node1", "code": 0, "out": "up 9 days\n", "error": ""},
        {"host": "node3", "code": None, "out": "", "error": str(LOST)},
    ]


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda settings: verbs.execute(settings, cmd=" "), "exec needs a command"),
        (lambda settings: verbs.execute(settings, cmd="x", timeout="soon"), "--timeout soon: no duration"),
        (lambda settings: verbs.execute(settings, cmd="x", limit=["@last-failed"]), "no health or preflight"),
    ],
)
def test_exec_refuses(hosts: Hosts, settings: Settings, call: Callable[[Settings], object], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        call(settings)
    assert all(host.calls == [] for host in hosts.values())
