"""The console: live objects, verbs whose errors are one message, and what still runs at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleet import shell
from fleet.errors import HostError, Unreachable, UsageError
from fleet.settings import Settings
from fleet.stages.deployment import Deployment
from tests.world import KEY, ROOT, RUN, World

FIRST, SECOND = "mi355x-01", "mi355x-02"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def up(world: World, tmp_path: Path) -> Deployment:
    return world.running(tmp_path)


@pytest.fixture
def names(world: World, tmp_path: Path) -> dict[str, Any]:
    inventory = ROOT / "inventories" / "example-mi355x.yaml"
    settings = Settings(inventory=inventory, recipes=ROOT / "recipes", results=tmp_path)
    return shell.namespace(settings, world.session, world.plan.inventory, "")


def test_hosts_are_objects_that_run_commands(world: World, names: dict[str, Any]) -> None:
    world.nodes[FIRST].first = [(["sh", "-c", "uptime"], "up 9 days\n"), (["sh", "-c", "false"], (1, "", "no"))]
    hosts = names["hosts"]
    assert len(hosts) == 4
    assert [host.name for host in hosts] == world.session.names
    assert repr(hosts[FIRST].run("uptime")) == "up 9 days"
    assert repr(hosts[FIRST].run("false")) == "no\n(exit 1)"
    assert hosts[FIRST].ssh == "ssh mi355x-01"
    assert repr(hosts[FIRST]) == "mi355x-01  8 × mi355x  rack1  ssh mi355x-01"


def test_an_unknown_host_is_one_message(names: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="mi355x-09"):
        names["hosts"]["mi355x-09"]


def test_each_is_a_table_in_which_a_lost_host_has_a_row(
    world: World, names: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for node in world.nodes.values():
        node.first = [(["sh"], "fine")]
    world.nodes[SECOND].first = [(["sh"], Unreachable("refused", where=SECOND, hint="try: ssh"))]
    names["hosts"].each("uptime")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[:3] == [["host", "exit", "answer"], [FIRST, "0", "fine"], [SECOND, "-", "refused"]]


def test_the_deployment_is_what_runs_now(
    world: World, up: Deployment, names: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    live = names["deployment"]
    assert repr(live.decode[0]) == f"decode0 on {SECOND}  Up 2 minutes  run {RUN}"
    assert [seat.name for seat in live.prefill] == ["prefill0"]
    assert live.router.state == "Up 2 minutes"
    assert live.server == []
    world.box("decode0").log = "2026 hello\n"
    live.decode[0].logs()
    assert capsys.readouterr().out == "2026 hello\n"
    world.box("decode0").end(1)
    assert live.decode[0].state == "Exited (1) 2 seconds ago"


def test_nothing_running_is_said(names: dict[str, Any]) -> None:
    assert repr(names["deployment"]) == "nothing of ours runs on these hosts"
    assert names["deployment"].router is None


def test_all_verbs_are_there_with_their_names(names: dict[str, Any]) -> None:
    assert all(names[verb].__name__ == verb for verb in shell.VERBS)
    assert names["recipes"] == ["dsv4-fp4-mi355x-atom-disagg", KEY, "dsv4-fp4-mi355x-vllm", "dsv4-fp4-mi355x-vllm-mtp"]
    assert names["results"] == []


def test_a_verb_prints_and_a_wrong_key_is_one_message(
    names: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    names["plan"](KEY, arm="1p1d-mtp3", conc=[4])
    assert capsys.readouterr().out.startswith(KEY)
    names["plan"](KEY[:-1])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert KEY in captured.err
    assert "Traceback" not in captured.err


def test_no_key_at_all_lists_them(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    names["plan"]()
    assert KEY in capsys.readouterr().err


def test_a_key_for_a_verb_that_takes_none_is_refused(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    names["ps"](KEY)
    assert capsys.readouterr().err.startswith("ps takes no config key\nit takes: limit, json")


def test_the_consoles_own_key_is_used(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inventory = ROOT / "inventories" / "example-mi355x.yaml"
    settings = Settings(inventory=inventory, recipes=ROOT / "recipes", results=tmp_path)
    names = shell.namespace(settings, world.session, world.plan.inventory, KEY)
    names["plan"](arm="1p1d-mtp3")
    assert capsys.readouterr().out.startswith(KEY)


def test_errors_of_typed_lines_are_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        raise HostError("refused", where=FIRST, hint="try: ssh")

    console = shell.Console({"fails": fails})
    console.push("fails()")
    assert capsys.readouterr().err == "mi355x-01: refused\ntry: ssh\n"
    console.push("1 / 0")
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_the_farewell_names_what_still_runs(world: World, up: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    shell._farewell(world.session)
    out = capsys.readouterr().out
    assert out.startswith(f"still running:\n  prefill0 on {FIRST}")
    assert out.endswith("stop it: invoke down\n")


def test_the_farewell_is_silent_where_nothing_runs(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    shell._farewell(world.session)
    assert capsys.readouterr().out == ""
