"""The everyday verbs, as functions: what they print, what they end with, what they leave on the hosts."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from fleet import manual, provision, ui, verbs
from fleet import plan as plans
from fleet.errors import CommandFailed, FileFaults, HostError, PreflightError, Unreachable, UsageError
from fleet.hosts.fake import Fake
from fleet.model import load
from fleet.results import lastfailed
from fleet.results.store import RunFolder
from fleet.settings import Settings, near
from fleet.stages import follow as follows
from fleet.stages import monitor
from fleet.stages.health import Health
from fleet.timeline import Told
from tests.unit.describing import MTP, ROOT, VLLM, edited
from tests.wire import Wire
from tests.world import KEY, Box, World, a_plan
from tests.world import RUN as RUN_OF_WORLD

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


STEERING = "\x1b]0;owned\x07\x1b[31mred\x1b[0m\tx\n10%\r20%\r\nend\x9b2J\x08\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_what_steers_a_terminal_is_left_out_through_a_pipe_as_well(
    hosts: Hosts, settings: Settings, capsys: Captured, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    hosts["node1"].script = [("uptime", STEERING)]
    hosts["node2"].script = [("uptime", HostError("\x1b[2Jlost", where="node2"))]
    monkeypatch.setenv("CI", "1")  # no progress is drawn
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: terminal)
    assert verbs.execute(settings, cmd="uptime", limit=["node[1-2]"]) == 3
    said = capsys.readouterr()
    assert said.out == "==> node1\nred\tx\n20%\nend2J\n"
    assert said.err == "node2: lost\n"


def test_saved_logs_steer_no_terminal(settings: Settings, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "_running_logs", lambda *_: ([], []))
    log = settings.results / "20261130-210405-k-7f3a9c" / "logs" / "a" / "decode0.log"
    log.parent.mkdir(parents=True)
    log.write_text("\x1b[31mred\x1b[0m\n")
    for terminal in (True, False):
        monkeypatch.setattr(sys.stdout, "isatty", lambda terminal=terminal: terminal)
        verbs.logs(settings, run=log.parents[2].name)
        assert capsys.readouterr().out.endswith("==> logs/a/decode0.log\nred\n")


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
    (desk.results / RUN / "plan.json").unlink()
    with pytest.raises(UsageError, match="plan of this run is not there"):
        verbs.plan(desk, diff=RUN)


@pytest.mark.parametrize(
    "damage",
    [
        b"", b"{", b"[]", b"{}", b"null", b"\xff", b"[" * 100_000, b'{"steps": [1]}',
        b'{"steps": [], "inventory": {"hosts": 1}, "key": "k", "hash6": "h"}',
        b'{"steps": [{"argv": 1}], "inventory": {"hosts": []}, "key": "k", "hash6": "h"}',
    ],
    ids=range(10),
)  # fmt: skip
def test_a_damaged_plan_is_named_with_the_runs_nearby(desk: Settings, damage: bytes) -> None:
    path = desk.results / RUN / "plan.json"
    path.write_bytes(damage)
    what = f"{path}: the run's plan.json is not a plan (damaged?)\n"
    with pytest.raises(UsageError) as alone:
        verbs.plan(desk, diff=RUN)
    assert str(alone.value) == f"{what}no other run is here; the plan of now: invoke plan --config KEY"
    other = RUN.replace("20261130", "20261129")
    (desk.results / other).mkdir()
    with pytest.raises(UsageError) as beside:
        verbs.plan(desk, diff=RUN)
    assert str(beside.value) == f"{what}another run: invoke plan --diff {other}\nruns here: {other}"
    with pytest.raises(UsageError, match=re.escape("not a plan (damaged?)\nits logs of all hosts: leave --host out")):
        RunFolder(path.parent).hosts("a", "decode0")


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
        n3: {address: n0, user: amd, port: 22}
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
    assert ["n3", "amd@n0:22", "8", "×", "mi355x", "gpu", "-"] in rows
    assert ["login", "login", "-", "cpu", "mi355x"] in rows
    assert [VLLM, "mi355x", "login", "n[1-2]", "2", "arms,", "16", "points"] in [
        [*row[:2], *sorted(row[2:4]), *row[4:]] for row in rows if row[:1] == [VLLM]
    ]
    assert [line.removeprefix("note: ") for line in told.splitlines() if line.startswith("note: ")] == [
        f"{desk.inventory}:2  ansible_become is not used by fleet",
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
    assert (
        f"no host answers to runner mi300x {known}; did you mean mi355x?\n  stops: {VLLM}, {VLLM}-mtp\n"
        "  write: runners: [mi300x] at the hosts that should run them\n"
    ) in told
    assert told.count("no host answers") == 1
    assert [VLLM, "mi300x", "-", "no"] in [line.split() for line in told.splitlines()]
    assert f"{MTP}.yaml: 2 faults" in told or f"{MTP}.yaml: 1 fault" in told
    assert "is sound: 2 hosts, " in told


def test_one_cause_of_many_recipes_is_told_once(desk: Settings, capsys: Captured) -> None:
    desk.inventory.write_text("all:\n  vars: {runners: [mi355x]}\n  hosts: {'gpu-[1-3]': }\n")
    assert verbs.check_inventory(desk) is None
    told = capsys.readouterr().out
    keys = ", ".join(load.recipe_keys(desk.recipes))
    assert (
        f"gpu-1, gpu-2, gpu-3 have no GPUs in the inventory\n  stops: {keys}\n"
        "  write: gpus: 8, accelerator: rocm (or cuda) at these hosts, as many as they have\n"
    ) in told
    assert told.count(" have no GPUs") == 1
    assert told.count(" stops: ") == 1


def test_arms_are_named_where_not_all_are_stopped(capsys: Captured) -> None:
    ui.fits(
        [
            ui.Fit("k1", "r", ("n1",), arms=3, causes={"too few": ("a", "c")}),
            ui.Fit("k2", "r", ("n1",), arms=1, causes={"too few": ("a",), "odd": ()}),
        ]
    )
    assert capsys.readouterr().out.splitlines()[3:] == [
        "too few",
        "  stops: k1 (2 arms of 3: a, c), k2",
        "odd",
        "  stops: k2",
    ]


def test_a_faulty_inventory_is_only_its_faults(desk: Settings, capsys: Captured) -> None:
    change(desk.inventory, ("gpus: 8", "gpuss: 8"), ("accelerator: rocm", "accelerator: rocn"))
    with pytest.raises(FileFaults, match="2 faults"):
        verbs.check_inventory(desk)
    assert capsys.readouterr().out == ""


# --------------------------------------------------------------------- --limit @last-failed


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setitem(
        provision.PROVISIONERS,
        "static",
        lambda inventory, _: {one.name: made.nodes[one.name].fake for one in inventory.hosts},
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


class Impatient:
    """Somebody who presses ^C at the third look."""

    def __init__(self) -> None:
        self.seen: list[Health] = []
        self.closed = False

    def show(self, found: Health, at: datetime) -> None:
        self.seen.append(found)
        if len(self.seen) == 3:
            raise KeyboardInterrupt

    def close(self) -> None:
        self.closed = True


def test_watching_ends_with_130_and_keeps_who_failed(
    desk: Settings, world: World, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    world.nodes["mi355x-03"].first = [(lambda _: True, Unreachable("refused", where="mi355x-03"))]
    monkeypatch.setattr(monitor, "EVERY", 0.01)
    shown = Impatient()
    monkeypatch.setattr(ui, "watched", lambda hosts, json: shown)
    assert verbs.health(desk, watch=True, limit=["mi355x-03,mi355x-04"]) == 130
    assert ([len(one.hosts) for one in shown.seen], shown.closed) == ([2, 2, 2], True)
    assert lastfailed.read(desk.results) == ["mi355x-03"]
    assert capsys.readouterr() == ("", "")


def test_a_preflight_says_who_failed_last(desk: Settings, world: World, capsys: Captured) -> None:
    world.nodes["mi355x-02"].ports.add(8020)
    with pytest.raises(PreflightError):
        verbs.sweep(desk, config=KEY, arm="1p1d-mtp3", conc=[4])
    assert lastfailed.read(desk.results) == ["mi355x-02"]
    world.nodes["mi355x-02"].ports.clear()
    world.nodes["mi355x-01"].first = [(["docker", "run", "-d"], (125, "", "no such runtime"))]
    with pytest.raises(CommandFailed):
        verbs.sweep(desk, config=KEY, arm="1p1d-mtp3", conc=[4])
    with pytest.raises(UsageError, match="no host failed in the latest preflight"):
        lastfailed.read(desk.results)


def all_flags(world: World) -> None:
    """Every program knows every flag of a plan of KEY."""
    made = a_plan(None, (4, 256))
    known = {flag for line in manual.lines(made) for flag in line.flags}
    for node in world.nodes.values():
        node.helps = dict.fromkeys(
            ("atom.entrypoints.openai_server", "atom.benchmarks.benchmark_serving", "launch"),
            "".join(f"  {flag} X\n" for flag in sorted(known)),
        )


def test_verify_image_shows_images_seats_and_a_verdict(desk: Settings, world: World, capsys: Captured) -> None:
    all_flags(world)
    assert verbs.verify_image(desk, config=KEY, arm="1p1d-mtp3") is None
    images, seats = capsys.readouterr().out.split("\n\n")
    tag = world.tag
    assert [line.split()[:3] for line in images.splitlines() if line.startswith(tag)] == [
        [tag, "mi355x-01", "a4a4a4a4a4a4"],
        [tag, "mi355x-02", "a4a4a4a4a4a4"],
    ]
    router = r"^1p1d-mtp3  router     mi355x-01  /usr/local/bin/atomesh launch --help .* 10 of 10  -$"
    assert re.search(router, seats, re.M)
    assert seats.endswith("\n1 image proven; every flag is known on 4 of 4 seats\n")


def test_verify_image_ends_with_3_and_says_why_as_json_too(desk: Settings, world: World, capsys: Captured) -> None:
    all_flags(world)
    for node in world.nodes.values():
        node.helps["launch"] = node.helps["launch"].replace("  --policy X\n", "  --policies X\n")
    world.nodes["mi355x-02"].lacks = {"/usr/local/bin/atomesh"}
    assert verbs.verify_image(desk, config=KEY, arm="1p1d-mtp3", json=True) == 3
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert (told["well"], told["images"], len(told["faults"])) == (False, [], 1)
    assert "lacks what" in said.err
    world.nodes["mi355x-02"].lacks = set()
    assert verbs.verify_image(desk, config=KEY, arm="1p1d-mtp3") == 3
    said = capsys.readouterr()
    assert said.out.endswith("every flag is known on 3 of 4 seats (exit 3)\n")
    assert "  --policy   did you mean --policies?\n    step 3  router on mi355x-01 (arm 1p1d-mtp3)\n" in said.err


def test_a_drift_can_be_allowed_to_a_run_that_goes_on_only(desk: Settings, hosts: Hosts) -> None:
    with pytest.raises(UsageError, match="--allow-drift is for a run that goes on"):
        verbs.sweep(desk, config=KEY, allow_drift=True)


def test_stage_proves_what_it_brought(desk: Settings, world: World) -> None:
    verbs.stage(desk, config=KEY, limit=["mi355x-01,mi355x-02,mi355x-03"])
    for name in ("mi355x-01", "mi355x-02", "mi355x-03"):
        (line,) = world.nodes[name].asked("docker run --rm ")
        assert re.search(rf"dev\.fleet\.run=\d{{8}}-\d{{6}}-{KEY}-[0-9a-f]{{6}} ", line)


# --------------------------------------------------------------------- logs


HEAD = f"run {RUN} (logs of {{place}})\n"


def kept(desk: Settings, run: str, *names: str) -> Path:
    """A run's folder with a log of server0, and its own inventory of hosts with these names, the example's first."""
    folder = desk.results / run
    (folder / "logs" / "tp8-1k1k").mkdir(parents=True, exist_ok=True)
    (folder / "logs" / "tp8-1k1k" / "server0.log").write_text("one\n")
    inventory = load.inventory(desk.inventory)
    hosts = tuple(inventory.hosts[0].model_copy(update={"name": name, "address": name}) for name in names)
    (folder / "inventory.yaml").write_text(load.resolved_inventory(inventory.model_copy(update={"hosts": hosts})))
    return folder


def test_logs_say_which_run_they_are_of(desk: Settings, world: World, capsys: Captured, tmp_path: Path) -> None:
    folder = kept(desk, RUN, "mi355x-01", "mi355x-02")
    assert verbs.logs(desk) is None
    first = capsys.readouterr().out.splitlines()[0]
    assert first == f"run {RUN} (over; logs of {folder})"
    assert verbs.logs(desk, host="mi355x-01") is None
    assert capsys.readouterr().out.splitlines()[0] == f"run {RUN} (logs of {folder})", "not all its hosts were asked"
    world.running(tmp_path)
    world.box("decode0").log = "two\n"
    assert verbs.logs(desk, role="decode") is None
    assert capsys.readouterr().out == f"run {RUN_OF_WORLD} of ops@here (under way)\n==> mi355x-02 decode0\ntwo\n"
    for seat in ("prefill0", "decode0", "router"):
        world.box(seat).end(1)
    assert verbs.logs(desk, role="decode") is None
    assert capsys.readouterr().out.startswith(
        f"run {RUN_OF_WORLD} of ops@here (over; its containers are still there)\n"
    )


def test_a_run_that_started_nothing_is_named_before_an_older_one(
    desk: Settings, world: World, capsys: Captured
) -> None:
    kept(desk, RUN, "mi355x-01")
    refused = RUN.replace("20261130", "20261201")
    (desk.results / refused).mkdir()
    assert verbs.logs(desk) is None
    assert capsys.readouterr().out.splitlines()[:2] == [
        f"run {refused} has no logs, nothing of it was started; this is the latest run that has some:",
        f"run {RUN} (over; logs of {desk.results / RUN})",
    ]


def test_hosts_of_a_kept_run_are_those_of_its_own_inventory(desk: Settings, world: World, capsys: Captured) -> None:
    """The plan's host was renamed in the inventory of today."""
    kept(desk, RUN, "mi355x-01", "gone-7")
    change(desk.inventory, ("mi355x-01:", "mi355x-09:"))
    for run in (RUN, ""):
        assert verbs.logs(desk, run=run, host="mi355x-01") is None
        assert capsys.readouterr().out.endswith("server0 on mi355x-01\none\n")
    with pytest.raises(UsageError, match="no log fits"):
        verbs.logs(desk, run=RUN, host="gone-7")
    with pytest.raises(UsageError, match=r"^--host gone-8: no such host or group in .*/inventory.yaml; did you mean"):
        verbs.logs(desk, run=RUN, host="gone-8")
    with pytest.raises(UsageError, match=r"^--host mi355x-99: no such host or group in .*example-mi355x.yaml"):
        verbs.logs(desk, host="mi355x-99")
    with pytest.raises(UsageError, match=r"^--host mi355x-99: no such host or group"):
        verbs.logs(desk, host="mi355x-99", follow=True)


def test_logs_of_a_host_that_cannot_be_asked(desk: Settings, world: World, capsys: Captured) -> None:
    """The others' logs, or the kept ones, are shown; the error is told, and is the exit code."""
    lost = Unreachable("refused", where="mi355x-03", hint="try:  ssh mi355x-03 true")
    world.nodes["mi355x-03"].first = [(lambda _: True, lost)]
    assert verbs.logs(desk) == 3
    said = capsys.readouterr()
    assert said.err == "mi355x-03: refused\ntry:  ssh mi355x-03 true\n"
    assert said.out == ""
    log = desk.results / RUN / "logs" / "tp8-1k1k" / "server0.log"
    log.parent.mkdir(parents=True)
    log.write_text("one\ntwo\n")
    assert verbs.logs(desk, tail=1) == 3
    assert capsys.readouterr().out == f"{HEAD}==> logs/tp8-1k1k/server0.log   server0 on mi355x-01\ntwo\n".format(
        place=desk.results / RUN
    )
    assert verbs.logs(desk, run="not-here") == 3
    assert verbs.logs(desk, host="mi355x-01", role="server") is None
    with pytest.raises(UsageError, match="no run 'not-here'"):
        verbs.logs(desk, host="mi355x-01", run="not-here")
    with pytest.raises(UsageError, match=f"no log fits\nwhat runs: .*; what is kept: {desk.results}/latest/logs"):
        verbs.logs(desk, host="mi355x-01", role="decode")


def test_kept_logs_need_no_lab(desk: Settings, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def down(*_: object) -> None:
        raise HostError("the lab is not up", hint="try:  invoke lab.up")

    monkeypatch.setitem(provision.PROVISIONERS, "static", down)
    log = desk.results / RUN / "logs" / "tp8-1k1k" / "server0.log"
    log.parent.mkdir(parents=True)
    log.write_text("one\n")
    assert verbs.logs(desk, run="latest") == 3
    said = capsys.readouterr()
    assert (said.out, said.err) == (
        HEAD.format(place=desk.results / RUN) + "==> logs/tp8-1k1k/server0.log   server0 on mi355x-01\none\n",
        "the lab is not up\ntry:  invoke lab.up\n",
    )


# --------------------------------------------------------------------- files and folders that are not there


def test_a_wrong_inventory_names_those_that_are_there(desk: Settings) -> None:
    folder = desk.inventory.parent
    wrong = desk.model_copy(update={"inventory": folder / "exmaple-mi355x.yaml"})
    there = sorted(map(str, folder.glob("*.yaml")))
    ours = sorted(str(path) for path in near(ROOT / "inventories").glob("*.yaml"))
    with pytest.raises(UsageError) as told:
        verbs.health(wrong)
    first, title, *listed, last = str(told.value).splitlines()
    assert first == f"inventory: {wrong.inventory}: no such file; did you mean {desk.inventory}?"
    assert title == "inventories:"
    assert listed == [f"  {path}" for path in [*there, *ours]]
    assert last == "type: --inventory FILE, or name it in invoke.yaml: fleet.inventory"
    with pytest.raises(UsageError, match="inventories: a folder\ninventories:\n"):
        verbs.check_inventory(desk.model_copy(update={"inventory": folder}))
    with pytest.raises(UsageError, match=f"no such file.*\ninventories:\n  {ours[0]}"):
        verbs.ps(desk.model_copy(update={"inventory": Path("/no/where.yaml")}))
    with pytest.raises(UsageError, match=f"no such file; did you mean {near(ROOT / 'inventories/lab.yaml')}?"):
        verbs.ps(desk.model_copy(update={"inventory": Path("/no/lab.yml")}))


def test_a_folder_of_recipes_that_is_not_there(desk: Settings) -> None:
    wrong = desk.model_copy(update={"recipes": desk.recipes / "none"})
    for ask in (lambda: verbs.plan(wrong, config=VLLM), lambda: verbs.check_inventory(wrong)):
        with pytest.raises(UsageError, match=f"^{wrong.recipes}: recipes are looked for here: No such file"):
            ask()


def test_results_that_cannot_be_kept_are_told_before_a_host_is_asked(desk: Settings, hosts: Hosts) -> None:
    """`hosts` has none of these: asking one would fail otherwise."""
    wrong = desk.model_copy(update={"results": desk.inventory})
    with pytest.raises(UsageError, match="no run can be kept there: not a folder"):
        verbs.sweep(wrong, config=VLLM)
    with pytest.raises(UsageError, match="no run can be kept there: not a folder"):
        verbs.down(wrong)


# --------------------------------------------------------------------- logs --follow


@pytest.fixture
def running(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A deployment that runs until somebody is told the first line of its logs: then all of it ends with code 1."""
    world.running(tmp_path)
    wires = [Wire(node) for node in world.nodes.values()]
    for name, seconds in {"TURN": 0.05, "LINGER": 0.1, "WINDOW": 0.05, "TICK": 0.01}.items():
        monkeypatch.setattr(follows, name, seconds)
    world.box("decode0").log = world.box("router").log = "2026-11-30T21:14:07.312000000Z out of memory\n"
    tell = ui.Tape.tell

    def told(tape: ui.Tape, one: Told) -> None:
        tell(tape, one)
        for wire in wires:
            for box in wire.node.boxes.values():
                if not one.line.note and box.state == "running":
                    wire.end(box, 1)

    monkeypatch.setattr(ui.Tape, "tell", told)
    return world


def test_follow_tells_what_it_follows_and_ends_with_the_run(desk: Settings, running: World, capsys: Captured) -> None:
    assert verbs.logs(desk, follow=True, role="decode") == 0
    said = capsys.readouterr()
    assert re.fullmatch(
        rf"run {RUN_OF_WORLD}\ndecode0 on mi355x-02   times are UTC\n"
        r"21:14:07\.3\d\d  decode0   mi355x-02  out of memory\n"
        r"\S+  decode0   mi355x-02  ==> ended \(exit 1: failed\)\n"
        r"\S+  -         -          ==> all services have ended; waiting 0.1 s for more\n",
        said.out,
    ), said.out
    assert said.err == ""


def test_follow_with_a_host_that_cannot_be_asked(desk: Settings, running: World, capsys: Captured) -> None:
    running.nodes["mi355x-02"].first = [(lambda _: True, Unreachable("refused", where="mi355x-02", hint="try:  ssh"))]
    assert verbs.logs(desk, follow=True, role="router") == 3
    said = capsys.readouterr()
    assert said.err == "mi355x-02: refused\ntry:  ssh\n"
    assert "mi355x-02  ==> does not answer; goes on when it does" in said.out
    assert "router    mi355x-01  out of memory" in said.out


def test_follow_of_one_host(desk: Settings, running: World, capsys: Captured) -> None:
    assert verbs.logs(desk, follow=True, host="mi355x-02", run=RUN_OF_WORLD[:12]) == 0
    assert capsys.readouterr().out.startswith(f"run {RUN_OF_WORLD}\ndecode0 on mi355x-02   ")


def test_an_interrupted_follow_says_nothing(
    desk: Settings, running: World, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ui.Tape, "tell", pressed)
    assert verbs.logs(desk, follow=True) == 130
    said = capsys.readouterr()
    assert (said.out.count("\n"), said.err) == (2, "")


def test_follow_refuses(desk: Settings, world: World) -> None:
    with pytest.raises(UsageError, match="nothing of ours runs on mi355x-01, "):
        verbs.logs(desk, follow=True)
    world.nodes["mi355x-01"].boxes["x"] = Box("x", labels={"run": "r", "role": "decode", "rank": "0"})
    with pytest.raises(UsageError, match="--role decod: no such role"):
        verbs.logs(desk, follow=True, role="decod")
