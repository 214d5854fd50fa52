"""Texts of hosts, containers and files that would steer a terminal, forge lines or run commands: nowhere do they."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from invoke.exceptions import Exit

from fleet import completion, docker, front, plan, provision, runbook, streams, ui, verbs
from fleet.docker import Container
from fleet.errors import FileFaults, FleetError, HostError, UsageError
from fleet.hosts.fake import Fake
from fleet.hosts.local import Local
from fleet.hosts.ssh import SSH
from fleet.model import load
from fleet.results import report
from fleet.session import owner
from fleet.settings import Settings
from fleet.shell.shown import Text
from fleet.stages import everyone, launch
from fleet.stages.health import Health, HostHealth
from fleet.stages.road import Road
from fleet.timeline import Line, Told
from tests import sshd
from tests.judged import a_record, invalid
from tests.world import World

Captured = pytest.CaptureFixture[str]

STEER = "a\x1b[31mb\x1b]0;title\x07\rc\x9b2Jd\x08\x7fe\u202ef\u2066g\u2028h\x85i\x00j"
FORGE = "k\nnode1: all is well\n"
RUN = "'\"; touch {0}; $(touch {0}) `touch {0}` | touch {0} & \\"
HOSTILE = STEER + FORGE + RUN.format("/tmp/fleet-hostile")


def sane(text: str) -> bool:
    return all(char.isprintable() or char in "\n\t" for char in text)


def forged(text: str) -> bool:
    """Whether a line begins with what the text made up."""
    return re.search(r"^node1: all is well", text, re.M) is not None


def box(text: str) -> Container:
    return Container(id=text, name=text, image=text, state=text, status=text, labels={"run": text, "owner": text})


def unwell(text: str) -> Health:
    return Health((HostHealth(text, None, (), error=text, strangers=(text,)),), (), (text,))


ERROR = HostError(HOSTILE, where=HOSTILE, hint=HOSTILE)
AT = datetime(2026, 12, 1, tzinfo=UTC)

PRINTED: dict[str, Callable[[], object]] = {
    "say": lambda: ui.say(HOSTILE),
    "complain": lambda: ui.complain(ERROR),
    "table": lambda: ui.table(("a", "b"), [(HOSTILE, HOSTILE)]),
    "json": lambda: ui.as_json({HOSTILE: HOSTILE}),
    "ps": lambda: ui.containers([(HOSTILE, box(HOSTILE))], [HOSTILE]),
    "ps, nothing there": lambda: ui.containers([], [HOSTILE]),
    "exec": lambda: ui.groups([everyone.Group((HOSTILE,), 0, HOSTILE)], asked=1),
    "health": lambda: ui.health(unwell(HOSTILE)),
    "health --watch": lambda: ui.Changes().show(unwell(HOSTILE), AT),
    "health --watch --json": lambda: ui.Rounds().show(unwell(HOSTILE), AT),
    "health --watch on a terminal": lambda: [print(line.plain) for line in ui.board(unwell(HOSTILE), AT, 100, 40)],
    "results": lambda: ui.results([a_record(), invalid(HOSTILE, point="p2")]),
    "logs --follow": lambda: ui.Tape().tell(Told(Line(0.0, HOSTILE, HOSTILE, HOSTILE, HOSTILE))),
    "progress, a line": lambda: ui.Plain().line(HOSTILE),
    "progress, a host": lambda: ui.Plain().host("stage", "n1", HOSTILE, done=True),
    "progress, a record": lambda: ui.Plain().record(invalid(HOSTILE)),
    "screen": lambda: screen(HOSTILE),
    "console": lambda: print(repr(Text(HOSTILE))),
    "Invoke's own faults": lambda: streams.complain(HOSTILE),
}
ONE_LINE = ("table", "ps", "results", "progress, a host", "progress, a record")
"""Where what is told is a cell, or a line of many: it may not begin a line of its own."""


def screen(text: str) -> None:
    shown = ui.Screen()
    shown.line(text)
    shown.host("stage", "n1", text)
    shown.host("stage", "n1", text, done=True)
    shown.requests(text, 1, 2)
    shown.record(invalid(text))
    shown.close()


@pytest.mark.parametrize("place", PRINTED)
def test_what_is_printed_steers_nothing(place: str, capsys: Captured) -> None:
    PRINTED[place]()
    said = capsys.readouterr()
    assert said.out + said.err
    assert sane(said.out + said.err)
    if place in ONE_LINE:
        assert not forged(said.out)


@pytest.mark.parametrize("debug", ["", "1"])
@pytest.mark.parametrize("error", [ERROR, UsageError(HOSTILE), RuntimeError(HOSTILE), OSError(5, HOSTILE)])
def test_what_ends_a_verb_steers_nothing(error: Exception, debug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_DEBUG", debug)
    with pytest.raises(Exit) as caught, front.answered():
        raise error
    assert sane(caught.value.message)


def test_json_is_the_same_text_for_a_program(capsys: Captured) -> None:
    ui.as_json({HOSTILE: HOSTILE})
    assert json.loads(capsys.readouterr().out) == {HOSTILE: HOSTILE}


def test_a_summary_and_a_plan_steer_nothing_when_they_are_read() -> None:
    facts = report.RunFacts(
        run="r", key=HOSTILE, plan="p", image=HOSTILE, hosts=(HOSTILE,), started="", ended="", planned=1,
        ended_early=(HOSTILE,), notes=(HOSTILE,),
    )  # fmt: skip
    text = report.summary_markdown(facts, [invalid(HOSTILE)])
    assert sane(text)
    world = World()
    arm = world.plan.arms[0]
    servers = tuple(one.model_copy(update={"argv": (*one.argv, HOSTILE)}) for one in arm.servers)
    made = world.plan.model_copy(update={"arms": (arm.model_copy(update={"servers": servers}),)})
    assert sane(runbook.text(made))
    assert plan.text is runbook.text


def test_a_file_with_it_is_told_and_steers_nothing(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(f"all:\n  hosts:\n    {json.dumps(HOSTILE, ensure_ascii=True)}: {{gpus: {json.dumps(HOSTILE)}}}\n")
    with pytest.raises(FileFaults) as caught:
        load.inventory(path)
    assert sane(front.told(caught.value)[0].encode("unicode_escape").decode())
    with pytest.raises(Exit) as ended, front.answered():
        raise caught.value
    assert sane(ended.value.message)


# --- whole verbs ----------------------------------------------------------------------------------------------------


def test_what_strangers_are_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    row = {"ID": HOSTILE, "Names": HOSTILE, "Image": HOSTILE, "State": HOSTILE, "Status": HOSTILE, "Labels": HOSTILE}
    fake = Fake("node1", [("docker ps", json.dumps(row)), ("docker", ""), ("uptime", (1, HOSTILE, HOSTILE))])
    monkeypatch.setitem(provision.PROVISIONERS, "static", lambda *_: {"node1": fake})
    path = tmp_path / "rack.yaml"
    path.write_text("all: {hosts: {node1: }}\n")
    settings = Settings(inventory=path, results=tmp_path / "results")
    monkeypatch.setattr("fleet.session.Machine.docker_prefix", lambda self: ())
    assert verbs.ps(settings) is None
    assert verbs.ps(settings, json=True) is None
    verbs.execute(settings, cmd="uptime")
    verbs.execute(settings, cmd="uptime", json=True)
    said = capsys.readouterr()
    assert "touch" in said.out
    assert sane(said.out + said.err)
    assert all(HOSTILE not in asked.line for asked in fake.calls)


@pytest.mark.parametrize("label", ["run", "arm", "rank", "point"])
def test_labels_that_lead_out_of_the_results_folder(
    label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    labels = {"run": "r1", "arm": "a", "role": "decode", "rank": "0", "owner": owner(), label: "../../../escaped"}
    row = {"ID": "i", "Names": "x", "Image": "m", "State": "running", "Status": "Up"}
    row["Labels"] = ",".join(f"dev.fleet.{name}={value}" for name, value in labels.items())
    fake = Fake("node1", [("docker ps", json.dumps(row)), ("fleet-lease look", "absent 1\n")])
    monkeypatch.setitem(provision.PROVISIONERS, "static", lambda *_: {"node1": fake})
    monkeypatch.setattr("fleet.session.Machine.docker_prefix", lambda self: ())
    (tmp_path / "rack.yaml").write_text("all: {hosts: {node1: }}\n")
    results = tmp_path / "a" / "b" / "results"
    assert verbs.down(Settings(inventory=tmp_path / "rack.yaml", results=results)) is None
    assert "container x has labels that fleet never gives: it is left alone" in capsys.readouterr().out
    assert [asked.argv[:2] for asked in fake.calls if "fleet-lease" not in asked.argv] == [["docker", "ps"]]
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["a", "b", "rack.yaml", "results"]


def answer(error: FleetError) -> str:
    with pytest.raises(Exit) as caught, front.answered():
        raise error
    return str(caught.value.message)


def told(world: World, tmp_path: Path) -> str:
    """All that a sweep tells and writes for people."""
    folder = world.deployment(tmp_path).folder
    road = Road(world.session, world.plan, folder)
    said = ""
    try:
        road.go()
    except FleetError as error:
        said = answer(error)
    for line in world.told.lines:
        ui.say(line)
    for record in world.told.records:
        ui.Plain().record(record)
    return f"{said}\n{folder.summary_text.read_text()}"


def test_a_docker_that_says_it(tmp_path: Path, capsys: Captured) -> None:
    world = World()
    world.nodes["mi355x-01"].first = [("docker run", (125, "", HOSTILE))]
    text = told(world, tmp_path) + capsys.readouterr().out
    assert "touch" in text
    assert sane(text)


def test_an_engine_that_says_it(tmp_path: Path, capsys: Captured) -> None:
    world = World(ready_within=0.5)
    world.handlers["prefill0"] = lambda path, body: (500, HOSTILE)
    text = told(world, tmp_path) + capsys.readouterr().out
    assert sane(text)


def test_a_client_that_says_it(tmp_path: Path, capsys: Captured) -> None:
    world = World()
    world.client_code, world.client_log = 1, f"2026-12-01T00:00:00.000000000Z {HOSTILE}\n"
    world.result = {"completed": HOSTILE, "errors": [HOSTILE] * 40}
    text = told(world, tmp_path) + capsys.readouterr().out
    assert sane(text)


# --- nothing is run -------------------------------------------------------------------------------------------------


def runs(marker: Path) -> str:
    return f"a b {RUN.format(marker)}\n*.py ~ $HOME"


def test_no_argument_and_no_path_is_run_over_ssh(tmp_path: Path) -> None:
    text = runs(Path("executed"))
    with sshd.running(tmp_path / "sshd") as server:
        host = SSH(
            "n1", address="127.0.0.1", port=server.port, user="root", identity=str(server.key),
            known_hosts=str(server.known_hosts),
        )  # fmt: skip
        assert host.run(["printf", "%s", text]).out == text
        folder = f"{tmp_path}/{text}"
        host.run(["mkdir", "-p", folder])
        host.put(b"data", f"{folder}/{text}")
        assert [(one.name, one.read_bytes()) for one in Path(folder).iterdir()] == [(text, b"data")]
        host.close()
        assert list(tmp_path.rglob("executed")) == []


def test_no_argument_is_run_here(tmp_path: Path) -> None:
    text = runs(tmp_path / "executed")
    assert Local().run(["printf", "%s", text]).out == text
    assert not (tmp_path / "executed").exists()


def test_what_a_service_is_told_is_one_word_of_docker(tmp_path: Path) -> None:
    world = World()
    text = runs(tmp_path / "executed")
    arm = world.plan.arms[0]
    servers = tuple(one.model_copy(update={"argv": (*one.argv, text), "env": {"X": text}}) for one in arm.servers)
    world.plan = world.plan.model_copy(update={"arms": (arm.model_copy(update={"servers": servers}),)})
    launch.launch(world.deployment(tmp_path))
    for node in world.nodes.values():
        for asked in node.fake.calls:
            if "run" in asked.argv:
                assert asked.argv[-1] == text
                assert f"X={text}" in asked.argv
    assert docker.stop_argv([text]) == ["docker", "stop", text]


def test_tab_offers_no_name_that_a_shell_would_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipes = tmp_path / "recipes"
    recipes.mkdir()
    for name in ("good-1.0", "x$(touch executed)", "a b", "c;id", "d\x1b[2J", "e`id`"):
        (recipes / f"{name}.yaml").write_text("")
    monkeypatch.setattr(completion, "_settings", lambda line: SimpleNamespace(recipes=recipes))
    assert list(completion.names_here(["invoke", "sweep"])("--config")) == ["good-1.0"]
