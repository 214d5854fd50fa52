"""The everyday verbs, as functions: what they print, what they end with, what they leave on the hosts."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet import plan as plans
from fleet import provision, verbs
from fleet.errors import CommandFailed, FileFaults, FleetError, PreflightError, Unreachable, UsageError
from fleet.hosts.fake import Fake
from fleet.model import load
from fleet.results import lastfailed
from fleet.settings import Settings
from tests.unit.describing import MTP, ROOT, VLLM, edited
from tests.world import KEY, World

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


# --------------------------------------------------------------------- cp


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "tune.sh"
    path.write_bytes(b"#!/bin/sh\n")
    path.chmod(0o750)
    return path


@pytest.mark.parametrize(("target", "whole"), [("/opt/", "/opt/tune.sh"), ("/opt/t", "/opt/t")])
def test_a_file_goes_to_all_hosts(
    hosts: Hosts, settings: Settings, script: Path, capsys: Captured, target: str, whole: str
) -> None:
    assert verbs.cp(settings, source=str(script), target=target, limit=["node*:!node4"]) is None
    assert capsys.readouterr().out == "".join(f"node{n}: {whole}  10 bytes, mode 0750\n" for n in (1, 2, 3))
    assert [host.files for host in hosts.values()] == [{whole: b"#!/bin/sh\n"}] * 3 + [{}] * 2
    assert hosts["node1"].modes == {whole: 0o750}


class Full(Fake):
    """A host whose disk is full."""

    def put(self, data: bytes, path: str, *, mode: int = 0o644, timeout: float = 60.0) -> None:
        raise CommandFailed("no space left", where=self.name)


def test_a_host_that_does_not_take_the_file(hosts: Hosts, settings: Settings, script: Path, capsys: Captured) -> None:
    hosts["node2"] = Full("node2")
    assert verbs.cp(settings, source=str(script), target="/opt/t") == 3
    said = capsys.readouterr()
    assert said.err == "node2: no space left\n"
    assert [line.partition(":")[0] for line in said.out.splitlines()] == ["node1", "node3", "node4", "login"]


@pytest.mark.parametrize(
    ("source", "target", "what"),
    [
        ("", "/tmp/", "cp needs a file"),
        ("nothing", "/tmp/", "--source nothing: no such file"),
        (".", "/tmp/", "--source .: a folder"),
        (__file__, "", "cp needs a place on the hosts"),
        (__file__, "~/x", "--target ~/x: a path from / expected"),
    ],
)
def test_cp_refuses(hosts: Hosts, settings: Settings, source: str, target: str, what: str) -> None:
    with pytest.raises(UsageError, match=re.escape(what)):
        verbs.cp(settings, source=source, target=target)
    assert all(host.files == {} for host in hosts.values())


# --------------------------------------------------------------------- plan --diff


RUN = "20261130-210405-dsv4-fp4-mi355x-vllm-7f3a9c"


@pytest.fixture
def desk(tmp_path: Path) -> Settings:
    """A folder of recipes that a test may change, and a run of the one for vLLM as it was before."""
    for name in ("recipes", "inventories"):
        shutil.copytree(ROOT / name, tmp_path / name)
    example = tmp_path / "inventories" / "example-mi355x.yaml"
    settings = Settings(inventory=example, recipes=tmp_path / "recipes", results=tmp_path / "results")
    made = plans.build(load.recipe(VLLM, settings.recipes, rules=True), load.inventory(example), settings.recipes)
    (tmp_path / "results" / RUN).mkdir(parents=True)
    (tmp_path / "results" / RUN / "plan.json").write_text(plans.to_json(made))
    return settings


def change(path: Path, *edits: tuple[str, str]) -> None:
    path.write_text(edited(path.read_text(), *edits))


@pytest.mark.parametrize("word", ["latest", "20261130", RUN])
def test_nothing_would_run_otherwise(desk: Settings, capsys: Captured, word: str) -> None:
    assert verbs.plan(desk, diff=word) is None
    assert re.fullmatch(rf"nothing would run otherwise than in {RUN} \(plan \w{{6}}\)\n", capsys.readouterr().out)


def test_a_change_that_all_steps_share_is_told_once(desk: Settings, capsys: Captured) -> None:
    change(desk.recipes / f"{VLLM}.yaml", ("vllm-openai-rocm:v0.22.0", "vllm-openai-rocm:v0.23.0"))
    assert verbs.plan(desk, diff=RUN) is None
    head, block = capsys.readouterr().out.rstrip().split("\n\n")
    assert re.fullmatch(rf"--- {RUN}   plan \w{{6}}\n\+\+\+ now   plan \w{{6}}", head)
    lines = block.splitlines()
    assert lines[:2] == ["== arm tp8-1k1k: start server 0", "== arm tp8-1k1k: load conc 4"]
    assert all(line.startswith("== arm ") for line in lines[:-2])
    assert lines[-2:] == ["-  vllm/vllm-openai-rocm:v0.22.0", "+  vllm/vllm-openai-rocm:v0.23.0"]


def test_hosts_and_points_that_differ(desk: Settings, capsys: Captured) -> None:
    verbs.plan(desk, config=VLLM, arm="tp8-1k1k", conc=[4, 8], limit=["mi355x-02"], diff=RUN)
    told = capsys.readouterr().out
    assert "-  on mi355x-01\n+  on mi355x-02" in told
    assert "-  hosts mi355x-01, mi355x-02, mi355x-03, mi355x-04\n+  hosts mi355x-02" in told
    assert "  arm tp8-8k1k: start server 0, on mi355x-01" in told.partition("== only then")[2]
    assert "only now" not in told


def test_diff_refuses(desk: Settings) -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        verbs.plan(desk, diff=RUN, json=True)
    with pytest.raises(UsageError, match="no run 'yesterday'"):
        verbs.plan(desk, diff="yesterday")
    for text in ("{", "[]", "{}"):
        (desk.results / RUN / "plan.json").write_text(text)
        with pytest.raises(FleetError, match="plan of this run cannot be read"):
            verbs.plan(desk, diff=RUN)
    (desk.results / RUN / "plan.json").unlink()
    with pytest.raises(FleetError, match="plan of this run is not there"):
        verbs.plan(desk, diff=RUN)


# --------------------------------------------------------------------- what is a trial


@pytest.mark.parametrize(
    ("variables", "asked", "lengths"),
    [
        ("", False, (1024, 1024, False)),
        ("", True, (256, 32, True)),
        ("trial: {input: 100, output: 10}", False, (1024, 1024, False)),
        ("trial: {input: 100, output: 10}", True, (100, 10, True)),
        ("provision: lab, trial: {input: 100, output: 10}", False, (100, 10, True)),
        ("provision: lab", False, (256, 32, True)),
    ],
)
def test_an_inventory_says_what_a_trial_is_and_only_a_lab_makes_every_sweep_one(
    desk: Settings, capsys: Captured, variables: str, asked: bool, lengths: tuple[int, int, bool]
) -> None:
    desk.inventory.write_text(f"all:\n  vars: {{{variables}}}\n  hosts:\n    n1: {{gpus: 8, runners: [mi355x]}}\n")
    verbs.plan(desk, config=VLLM, arm="tp8-1k1k", conc=[4], trial=asked, json=True)
    (point,) = (planned["point"] for planned in json.loads(capsys.readouterr().out)["arms"][0]["points"])
    assert (point["isl"], point["osl"], point["trial"]) == lengths
    verbs.plan(desk, config=VLLM, arm="tp8-1k1k", conc=[4], trial=asked)
    assert capsys.readouterr().out.splitlines()[1].startswith("TRIAL: ") is lengths[2]


# --------------------------------------------------------------------- inventory.check


ODD = """\
all:
  vars: {ansible_become: true}
  children:
    gpu:
      vars: {gpus: 8, gpu: mi355x, accelerator: rocm}
      hosts:
        n[1-2]: {runners: [mi355x]}
        n3: {address: n2, user: amd, port: 22}
        n4: {accelerator: none, port: 2222}
    cpu:
      hosts:
        login: {gpus: 0, runners: [mi355x]}
"""


def test_an_odd_inventory_is_told(desk: Settings, hosts: Hosts, capsys: Captured) -> None:
    desk.inventory.write_text(ODD)
    assert verbs.check_inventory(desk) is None
    told = capsys.readouterr().out
    rows = [line.split() for line in told.splitlines()]
    assert ["n3", "amd@n2:22", "8", "×", "mi355x", "gpu", "-"] in rows
    assert ["login", "login", "-", "cpu", "mi355x"] in rows
    assert [VLLM, "mi355x", "login", "n[1-2]", "2", "arms,", "16", "points"] in [
        [*row[:2], *sorted(row[2:4]), *row[4:]] for row in rows if row[:1] == [VLLM]
    ]
    assert [line.removeprefix("note: ") for line in told.splitlines() if line.startswith("note: ")] == [
        f"{desk.inventory}:2  ansible_become is not used by fleet",
        "n[2-3] are one machine: n2 port 22",
        "GPUs and no runner label, so no recipe finds them: n[3-4]",
        "runner labels and no GPUs, so nothing can be placed there: login",
        "GPUs and accelerator none, so containers get no GPU devices: n4",
    ]


def test_a_recipe_whose_runner_finds_no_host(desk: Settings, capsys: Captured) -> None:
    change(desk.recipes / f"{VLLM}.yaml", ("runner: mi355x", "runner: mi300x"))
    change(desk.recipes / f"{MTP}.yaml", ("image:", "imaje:"))
    assert verbs.check_inventory(desk, limit=["rack1"]) is None
    told = capsys.readouterr().out
    known = f"(hosts of {desk.inventory} answer to: mi355x, mi355x-disagg)"
    assert f"arm tp8-1k1k: no host answers to runner mi300x {known}" in told
    assert [VLLM, "mi300x", "-", "no"] in [line.split() for line in told.splitlines()]
    assert f"{MTP}.yaml: 2 faults" in told or f"{MTP}.yaml: 1 fault" in told
    assert "is sound: 2 hosts, " in told


def test_a_faulty_inventory_is_only_its_faults(desk: Settings, capsys: Captured) -> None:
    change(desk.inventory, ("gpus: 8", "gpuss: 8"), ("accelerator: rocm", "accelerator: rocn"))
    with pytest.raises(FileFaults, match="2 faults"):
        verbs.check_inventory(desk)
    assert capsys.readouterr().out == ""


# --------------------------------------------------------------------- --limit @last-failed


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    transports = {name: node.fake for name, node in made.nodes.items()}
    monkeypatch.setitem(
        provision.PROVISIONERS,
        "static",
        lambda inventory, _: {one.name: transports[one.name] for one in inventory.hosts},
    )
    return made


def test_health_says_who_failed_last(desk: Settings, world: World, capsys: Captured) -> None:
    world.nodes["mi355x-03"].first = [("uptime", "up\n"), (lambda _: True, Unreachable("refused", where="mi355x-03"))]
    assert verbs.health(desk) == 3
    capsys.readouterr()
    assert verbs.execute(desk, cmd="uptime", limit=["@last-failed"]) == 0
    assert capsys.readouterr().out == "==> mi355x-03\nup\n"
    assert verbs.health(desk, limit=["rack1"]) == 0
    with pytest.raises(UsageError, match="no host failed in the latest health"):
        verbs.health(desk, limit=["@last-failed"])


def test_a_preflight_says_who_failed_last(desk: Settings, world: World, capsys: Captured) -> None:
    world.nodes["mi355x-02"].ports.add(8020)
    with pytest.raises(PreflightError):
        verbs.sweep(desk, config=KEY, arm="1p1d-mtp3", conc=[4])
    assert lastfailed.read(desk.results) == ["mi355x-02"]
    world.nodes["mi355x-02"].ports.clear()
    world.nodes["mi355x-01"].first = [(["docker", "run"], (125, "", "no such runtime"))]
    with pytest.raises(CommandFailed):
        verbs.sweep(desk, config=KEY, arm="1p1d-mtp3", conc=[4])
    with pytest.raises(UsageError, match="no host failed in the latest preflight"):
        lastfailed.read(desk.results)
