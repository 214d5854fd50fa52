"""The console: live objects that show themselves, verbs as functions, errors as messages, what runs on at the end."""

from __future__ import annotations

import inspect
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tasks
from fleet import provision
from fleet.errors import CommandTimeout, FleetError, HostError, Unreachable, UsageError
from fleet.model import load
from fleet.results.store import RunFolder
from fleet.session import owner
from fleet.settings import Settings
from fleet.shell import console, farewell, faults, plain
from fleet.shell.calls import Code, Tasks, identifier
from fleet.shell.names import Ending, Names
from fleet.shell.opened import Opened
from fleet.shell.shown import Text, shown
from fleet.stages.deployment import Deployment
from tests.judged import a_record, invalid
from tests.world import KEY, ROOT, RUN, World

FIRST, SECOND = "mi355x-01", "mi355x-02"
EXAMPLE = ROOT / "inventories" / "example-mi355x.yaml"
LOST = Unreachable("refused", where=SECOND, hint="try:  ssh mi355x-02 true")

Captured = pytest.CaptureFixture[str]
Opens = Callable[..., Names]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def up(world: World, tmp_path: Path) -> Deployment:
    return world.running(tmp_path)


@pytest.fixture
def opens(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opens:
    """A console's names. Its verbs meet the world's hosts, too, and results are below the test's folder."""
    monkeypatch.chdir(ROOT)
    fakes = {name: node.fake for name, node in world.nodes.items()}
    monkeypatch.setitem(
        provision.PROVISIONERS, "static", lambda inventory, _: {host.name: fakes[host.name] for host in inventory.hosts}
    )
    context = SimpleNamespace(config={"fleet": {"results": str(tmp_path)}})
    settings = Settings(inventory=EXAMPLE, recipes=ROOT / "recipes", results=tmp_path)

    def names(config: str = "") -> Names:
        inventory = load.inventory(Path("inventories/example-mi355x.yaml"))
        return console.namespace(settings, Tasks(tasks.ns, context), inventory, lambda: world.session, config)

    return names


@pytest.fixture
def names(opens: Opens) -> Names:
    return opens()


# --- hosts ----------------------------------------------------------------------------------------------------------


def test_hosts_are_objects_that_run_commands(world: World, names: Names) -> None:
    world.nodes[FIRST].first = [("uptime", "up 9 days\n"), ("false", (1, "", "no")), ("true", 0)]
    hosts = names["hosts"]
    assert [host.name for host in hosts] == hosts.names == world.session.names
    answer = hosts[FIRST].run("uptime")
    assert (repr(answer), answer.out, answer.code, answer.ok) == ("up 9 days", "up 9 days\n", 0, True)
    assert repr(hosts[FIRST].run("false")) == "no\n(exit 1)"
    assert repr(hosts[FIRST].run("true")) == "(no output)"
    assert hosts[-4].name == FIRST
    assert repr(hosts[FIRST].ssh) == "ssh mi355x-01"
    assert repr(hosts[FIRST]) == "mi355x-01  amd@192.0.2.11  8 × mi355x  rack1  mi355x mi355x-disagg"


def test_hosts_show_themselves_as_the_inventory(names: Names) -> None:
    lines = repr(names["hosts"]["mi355x-[02-03]"]).splitlines()
    assert lines == [
        "host       login           GPUs        groups  runners",
        "mi355x-02  amd@192.0.2.12  8 × mi355x  rack1   mi355x mi355x-disagg",
        "mi355x-03  amd@192.0.2.13  8 × mi355x  rack2   mi355x mi355x-disagg",
    ]


def test_a_pattern_gives_hosts_and_only_they_are_asked(world: World, names: Names) -> None:
    for node in world.nodes.values():
        node.first = [("uptime", "up\n")]
    some = names["hosts"]["rack1:!mi355x-01"]
    assert list(some.each("uptime")) == [SECOND]
    assert [name for name, node in world.nodes.items() if node.lines] == [SECOND]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("mi355x-09", "mi355x-09: no such host or group in .*; did you mean mi355x-01"),
        (9, r"no hosts\[9\]: there are 4"),
        ("", "a name or a pattern expected"),
        (None, "a name or a pattern expected"),
    ],
)
def test_an_unknown_host_is_one_message(names: Names, wanted: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        names["hosts"][wanted]


def test_equal_answers_are_shown_once_and_a_lost_host_is_told(world: World, names: Names) -> None:
    for node in world.nodes.values():
        node.first = [("uptime", "fine\n")]
    world.nodes[SECOND].first = [("uptime", LOST)]
    world.nodes["mi355x-04"].first = [("uptime", (7, ""))]
    answers = names["hosts"].each("uptime")
    assert repr(answers) == (
        "==> mi355x-01 mi355x-03  (2)\nfine\n==> mi355x-04  exit 7\nmi355x-02: refused\ntry:  ssh mi355x-02 true"
    )
    assert answers[FIRST].out == "fine\n"
    assert answers[SECOND] is LOST
    assert (len(answers), answers.code) == (4, 7)
    assert [name for name, answer in answers.items() if isinstance(answer, FleetError)] == [SECOND]
    assert "mi355x-09" not in answers
    with pytest.raises(UsageError, match="no answer of mi355x-09 is here; did you mean mi355x-01"):
        answers["mi355x-09"]


@pytest.mark.parametrize("command", ["", "  ", 5, ["uptime"]])
def test_what_is_no_command_is_refused(names: Names, command: Any) -> None:
    for call in (names["hosts"].each, names["hosts"][FIRST].run):
        with pytest.raises(UsageError, match="a shell command in quotes expected"):
            call(command)


def test_a_timeout_is_a_number_or_a_duration(world: World, names: Names) -> None:
    world.nodes[FIRST].first = [("uptime", "up\n")]
    assert names["hosts"][FIRST].run("uptime", timeout="5m").ok
    with pytest.raises(UsageError, match=r"timeout 'soon': no duration; type seconds"):
        names["hosts"][FIRST].run("uptime", timeout="soon")


# --- what is up -----------------------------------------------------------------------------------------------------


def test_the_deployment_is_what_runs_now(world: World, up: Deployment, names: Names) -> None:
    live = names["deployment"]
    world.nodes[FIRST].boxes = dict(reversed(world.nodes[FIRST].boxes.items()))  # docker lists the newest first
    assert repr(live).splitlines() == [
        f"run {RUN} of ops@here",
        "host       seat      state         arm",
        "mi355x-01  prefill0  Up 2 minutes  1p1d-mtp3",
        "mi355x-01  router    Up 2 minutes  1p1d-mtp3",
        "mi355x-02  decode0   Up 2 minutes  1p1d-mtp3",
    ]
    seat = live.decode[0]
    assert repr(seat) == f"decode0 on {SECOND}  Up 2 minutes\nrun {RUN}"
    assert (seat.name, seat.host, seat.role, seat.run, seat.arm) == ("decode0", SECOND, "decode", RUN, "1p1d-mtp3")
    assert [one.name for one in live.prefill] == ["prefill0"]
    assert live.router.name == live["router"].name == live[1].name == "router"
    assert len(live.server) == 0
    world.box("decode0").log = "2026 hello\n"
    assert repr(live.decode[-1].logs()) == "2026 hello"
    world.box("decode0").end(1)
    assert live.decode[0].state == "Exited (1) 2 seconds ago"


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda live: live.decode[1], r"no decode\[1\] of ours runs on these hosts"),
        (lambda live: live.decode[-2], r"no decode\[-2\] of ours"),
        (lambda live: live.client, "no client of ours runs on these hosts"),
        (lambda live: live["decod0"], "no decod0 of ours runs on these hosts; did you mean decode0"),
    ],
)
def test_a_seat_that_is_not_up_is_one_message(
    up: Deployment, names: Names, ask: Callable[[Any], Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        ask(names["deployment"])


def test_nothing_running_is_said_and_who_could_not_be_asked(world: World, names: Names) -> None:
    live = names["deployment"]
    assert repr(live) == "nothing of ours runs on these hosts"
    world.nodes[SECOND].first = [(lambda argv: True, LOST)]
    assert repr(live) == f"nothing of ours runs on the hosts that answered\n{LOST}"
    with pytest.raises(UsageError, match=r"no decode\[0\] of ours runs on the hosts that answered") as told:
        live.decode[0]
    assert told.value.hint == str(LOST)


def test_a_console_opens_without_hosts_and_says_so_when_they_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(*_: object) -> Any:
        raise HostError("the lab is not up", where="lab.yaml", hint="try:  invoke lab.up")

    monkeypatch.setitem(provision.PROVISIONERS, "static", nobody)
    settings = Settings(inventory=EXAMPLE, results=tmp_path)
    opened = Opened(load.inventory(EXAMPLE), settings)
    names = console.namespace(settings, Tasks(tasks.ns, None), opened.inventory, opened)
    assert len(names["hosts"]) == 4
    assert repr(names["deployment"]) == "lab.yaml: the lab is not up\ntry:  invoke lab.up"
    with pytest.raises(HostError, match="the lab is not up"):
        names["hosts"].each("uptime")
    opened.close()


def test_a_session_is_opened_once_and_anew_after_it_was_closed(world: World, opens: Opens, tmp_path: Path) -> None:
    opened = Opened(load.inventory(EXAMPLE), Settings(results=tmp_path))
    first = opened()
    assert opened() is first
    opened.close()
    assert world.nodes[FIRST].fake.closed
    assert opened() is not first


# --- runs and recipes -----------------------------------------------------------------------------------------------


def a_run(root: Path, name: str, **told: Any) -> RunFolder:
    folder = RunFolder(root / name)
    folder.path.mkdir(parents=True)
    if told:
        folder.write_json(folder.summary_json, told)
    return folder


def test_runs_are_a_table_and_each_has_its_own(tmp_path: Path, names: Names) -> None:
    results = names["results"]
    assert repr(results) == f"no run yet in {tmp_path}"
    a_run(tmp_path, "20260101-000000-a-key-aaaaaa")
    run = a_run(tmp_path, "20260102-000000-a-key-bbbbbb", planned=3, points=2, valid=1, double=True, trial=True)
    no_files: dict[str, Any] = {"double": True, "raw": None, "agg": None}
    run.append_record(a_record(**no_files))
    run.append_record(invalid("requests: 3 of 4", point="1p1d-mtp3-c8", conc=8, asked=8, **no_files))
    assert repr(results).splitlines() == [
        "run                           valid",
        "20260101-000000-a-key-aaaaaa  -",
        "20260102-000000-a-key-bbbbbb  1 of 3  DOUBLE TRIAL",
    ]
    assert results.latest.name == results[-1].name == results["20260102"].name == run.name
    assert len(results.latest.records) == 2
    lines = repr(results.latest).splitlines()
    assert lines[:3] == ["run 20260102-000000-a-key-bbbbbb", "DOUBLE: not a measurement", "1 of 3 points valid"]
    assert lines[4].split() == ["conc", "verdict", "tok/s/GPU", "tok/s/user", "ms", "ms", "ms"]
    assert lines[5] == "arm 1p1d-mtp3"
    assert [line.split()[:2] for line in lines[6:8]] == [["4", "valid"], ["8", "invalid"]]
    assert lines[8] == "not shown at this width: in tok/s/GPU"
    assert lines[9:] == ["1p1d-mtp3-c8: requests: 3 of 4", f"in {run.path}"]
    assert max(map(len, lines[:9])) <= 80


def test_only_the_latest_runs_are_in_the_table(tmp_path: Path, names: Names) -> None:
    for day in range(1, 13):
        a_run(tmp_path, f"202601{day:02}-000000-a-key-aaaaaa")
    lines = repr(names["results"]).splitlines()
    assert lines[0] == "2 earlier: results.names"
    assert lines[2].startswith("20260103")
    assert len(lines) == 12


def test_a_run_without_points_or_with_a_broken_file_still_shows_itself(tmp_path: Path, names: Names) -> None:
    run = a_run(tmp_path, "20260101-000000-a-key-aaaaaa")
    assert repr(names["results"][0]) == f"run {run.name}\nno point has run\nin {run.path}"
    run.points.write_text("{}\n{}\n")
    run.summary_json.write_text("[")
    assert f"{run.points}:1: not a record" in repr(names["results"][0])
    assert names["results"][0]._row() == (run.name, "-", "")
    with pytest.raises(FleetError, match="No such file"):
        _ = names["results"][0].summary
    run.summary_text.write_text("# a-key\n")
    assert repr(names["results"][0].summary) == "# a-key"


@pytest.mark.parametrize(
    ("wanted", "message"), [("2027", "no run '2027'"), (3, r"no results\[3\]: there are 0"), (None, "a run's name")]
)
def test_a_run_that_is_not_there_is_one_message(names: Names, wanted: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        names["results"][wanted]


def test_recipes_are_a_table_and_each_is_its_text(names: Names) -> None:
    recipes = names["recipes"]
    assert KEY in recipes
    assert [line.split() for line in repr(recipes).splitlines()[:3]] == [
        ["recipe", "framework", "runner"],
        ["dsv4-fp4-mi355x-atom-disagg", "atom-disagg", "mi355x"],
        [KEY, "atom-disagg", "mi355x"],
    ]
    assert recipes[KEY].startswith(f"{KEY}:\n  image: rocm/atom-dev:nightly")
    with pytest.raises(UsageError, match="did you mean dsv4-fp4-mi355x-vllm"):
        recipes["dsv4-fp4-mi355x-vlm"]


def test_models_show_their_fields(names: Names) -> None:
    lines = shown(names["inventory"]).splitlines()
    assert lines[:2] == ["Inventory", "path        inventories/example-mi355x.yaml"]
    assert max(map(len, lines)) <= 80
    assert shown({"a": 1}) == "{'a': 1}"


# --- verbs ----------------------------------------------------------------------------------------------------------


def test_every_registered_verb_is_a_function(names: Names) -> None:
    verbs = {name for task, more in tasks.ns.task_names.items() for name in (task, *more)}
    expected = {identifier(name, taken=("results",)) for name in verbs} - {"shell"}
    assert {name for name in expected if callable(names[name])} == expected
    assert {"plan", "exec_", "cp", "inventory_check", "stage", "stage_image", "lab_up", "results_"} <= expected
    assert expected <= set(console.greeting(names, "").split())


@pytest.mark.parametrize(
    ("name", "expected"),
    [("plan", "plan"), ("lab.up", "lab_up"), ("exec", "exec_"), ("import", "import_"), ("hosts", "hosts_")],
)
def test_names_of_verbs_in_python(name: str, expected: str) -> None:
    assert identifier(name, ["hosts"]) == expected


def test_a_verb_tells_what_it_takes(names: Names) -> None:
    assert repr(names["exec_"]).splitlines()[:5] == [
        "exec_(cmd, limit, inventory, timeout, json)",
        "Run a shell command on all hosts at once; equal answers are shown once.",
        "",
        "The worst exit code is returned.",
        "",
    ]
    assert "\n  run        a run's name or its beginning, or latest (default: all runs of yours)\n" in repr(
        names["down"]
    )
    assert list(inspect.signature(names["down"]).parameters) == ["run", "limit", "inventory", "config"]
    assert names["down"].__doc__ in repr(names["down"])


def test_a_verb_prints_and_raises(names: Names, capsys: Captured) -> None:
    assert names["plan"](KEY, arm="1p1d-mtp3", conc=[4, 8]) is None
    out = capsys.readouterr().out
    assert out.startswith(KEY)
    assert "conc 4 8 " in out
    with pytest.raises(UsageError, match=f"did you mean {KEY}"):
        names["plan"](KEY[:-1])


def test_a_verb_that_does_not_end_well_returns_its_code(world: World, names: Names, capsys: Captured) -> None:
    for node in world.nodes.values():
        node.first = [("false", (7, ""))]
    code = names["exec_"]("false", names["hosts"]["rack1"])
    assert (code, repr(code)) == (7, "(exit 7)")
    assert isinstance(code, Code)
    assert capsys.readouterr().out == "==> mi355x-[01-02]  (all 2)  exit 7\n"


def test_values_are_taken_as_one_would_type_them(names: Names, capsys: Captured) -> None:
    for conc in (4, "4", [4], (4,), ["4"]):
        names["plan"](KEY, arm="1p1d-mtp3", conc=conc, trial=False, limit=None)
    plans = capsys.readouterr().out.split(f"{KEY}   plan")[1:]
    assert len(plans) == 5
    assert len(set(plans)) == 1
    names["ps"](names["hosts"][0])
    assert capsys.readouterr().out == f"no container on {FIRST}\n"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda names: names["plan"](cofig=KEY), "plan has no argument cofig; did you mean config\\?"),
        (lambda names: names["lab_down"](3), "lab_down: 1 values were given, it has 0"),
        (lambda names: names["plan"](KEY, config=KEY), "plan: config is given twice"),
        (lambda names: names["plan"](KEY, trial="yes"), "plan: trial is True or False, 'yes' was given"),
        (lambda names: names["logs"](tail="x"), "logs: tail takes a whole number from 0 to 1000000000, 'x' was given"),
        (lambda names: names["logs"](tail=True), "logs: tail takes a whole number .*, True was given"),
        (lambda names: names["lab_up"](nodes=0), "lab_up: nodes takes a whole number from 1 to 99, 0 was given"),
        (lambda names: names["logs"](run=True), "logs: run: a text expected, True was given"),
        (lambda names: names["down"](run=""), "down: run was given an empty value"),
        (lambda names: names["down"](limit=[]), "down: limit was given an empty list, which would mean all"),
        (lambda names: names["down"](limit=[""]), "down: limit was given an empty value"),
        (lambda names: names["plan"](KEY, conc=[0]), "--conc takes a whole number from 1 to 1000000, '0' was given"),
        (lambda names: names["plan"](), "a config key is needed"),
    ],
)
def test_a_wrong_call_is_one_message_and_nothing_is_done(
    world: World, names: Names, call: Callable[[Any], Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        call(names)
    assert not any(node.lines for node in world.nodes.values())


def test_the_consoles_own_key_and_inventory_are_used(opens: Opens, capsys: Captured) -> None:
    names = opens(KEY)
    names["plan"](arm="1p1d-mtp3")
    assert capsys.readouterr().out.startswith(KEY)
    names["plan"]("dsv4-fp4-mi355x-vllm")
    assert capsys.readouterr().out.startswith("dsv4-fp4-mi355x-vllm ")
    names["inventory_check"]()
    assert "inventories/example-mi355x.yaml is sound" in capsys.readouterr().out


def test_a_console_may_change_its_folder(
    opens: Opens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    names = opens(KEY)
    settings = console._from_anywhere(Settings(inventory=Path("inventories/lab.yaml"), recipes=Path("recipes")))
    assert (settings.inventory, settings.recipes) == (ROOT / "inventories/lab.yaml", ROOT / "recipes")
    monkeypatch.chdir(tmp_path)
    assert KEY in names["recipes"]
    names["plan"](arm="1p1d-mtp3")
    assert capsys.readouterr().out.startswith(KEY)


# --- errors ---------------------------------------------------------------------------------------------------------


def typed(line: str, names: Names) -> None:
    plain.Console(names, Ending()).push(line)


def fails() -> None:
    raise HostError("refused", where=FIRST, hint="try: ssh")


def interrupted() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("fails()", "mi355x-01: refused\ntry: ssh\n"),
        ("interrupted()", "\ninterrupted\n"),
        ("1 / 0", "ZeroDivisionError: division by zero\n"),
        ("json.loads('x')", "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)\n"),
        ("hots", "NameError: name 'hots' is not defined; did you mean hosts?\n"),
        ("deployment.decod", "AttributeError: 'Deployment' object has no attribute 'decod'; did you mean decode?\n"),
        ("hosts['mi355x-01'].run()", "TypeError: HostObject.run() missing 1 required positional argument: 'command'\n"),
    ],
)
def test_an_error_is_one_message(names: Names, capsys: Captured, line: str, said: str) -> None:
    names |= {"fails": fails, "interrupted": interrupted, "json": json}
    typed(line, names)
    assert capsys.readouterr() == ("", said)


def test_a_fault_of_fleet_says_so(names: Names, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("fleet.shell.hosts.Answer")
    typed("hosts[0].run('true')", names)
    assert capsys.readouterr().err.startswith("a fault in fleet itself: NameError: name 'Answer' is not defined\n")


def test_an_operators_own_function_has_a_traceback(names: Names, capsys: Captured) -> None:
    own = plain.Console(names, Ending())
    for line in ("def mine():", "    return 1 / 0", "", "mine()"):
        own.push(line)
    assert "in mine" in capsys.readouterr().err


def test_fleet_debug_shows_where_it_arose(names: Names, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_DEBUG", "1")
    typed("hosts['nod']", names)
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "no such host or group" in err


def test_what_is_shown_is_a_table_and_the_last_value_is_kept(names: Names, capsys: Captured) -> None:
    import builtins

    try:
        plain.display(None)
        plain.display(names["inventory"])
        assert vars(builtins)["_"] is names["inventory"]
    finally:
        del vars(builtins)["_"]
    assert capsys.readouterr().out.startswith("Inventory\npath ")


def test_text_is_shown_without_its_last_line_break() -> None:
    assert (repr(Text("a\nb\n")), str(Text("a\n"))) == ("a\nb", "a\n")


@pytest.mark.parametrize(("line", "code"), [("exit()", 0), ("exit(3)", 3), ("raise SystemExit('x')", 0)])
def test_leaving_with_a_code(
    names: Names, monkeypatch: pytest.MonkeyPatch, capsys: Captured, line: str, code: int
) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(close=lambda: None, isatty=lambda: False))
    lines = iter([line])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    assert console.interact(names, Ending(), "hello") == code
    assert capsys.readouterr().err == "hello\n"


# --- the end --------------------------------------------------------------------------------------------------------


@pytest.fixture
def ours(world: World, up: Deployment) -> None:
    """What runs was started by this owner."""
    for node in world.nodes.values():
        for box in node.boxes.values():
            box.labels["owner"] = owner()


def test_the_farewell_names_what_still_runs(world: World, ours: None, capsys: Captured) -> None:
    farewell.farewell(lambda: world.session, "rack.yaml")
    assert capsys.readouterr().out == (
        f"still running: run {RUN}\n"
        f"  {FIRST}  prefill0 router\n"
        f"  {SECOND}  decode0\n"
        f"  take it down: invoke down --run {RUN} --inventory rack.yaml\n"
    )


def test_the_farewell_is_silent_of_others_and_where_nothing_runs(
    world: World, up: Deployment, capsys: Captured
) -> None:
    farewell.farewell(lambda: world.session)
    assert capsys.readouterr().out == ""


def test_a_dead_host_does_not_hold_the_exit(
    world: World, ours: None, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, done = time.monotonic(), threading.Event()

    def silent(argv: list[str], stdin: bytes) -> int:
        return int(done.wait(60))

    world.nodes[SECOND].first = [(lambda argv: True, silent)]
    world.nodes["mi355x-03"].first = [(lambda argv: True, CommandTimeout("no answer", where="mi355x-03"))]
    monkeypatch.setattr(farewell, "WITHIN", 0.3)
    monkeypatch.setattr(farewell, "PATIENCE", 0.1)
    try:
        farewell.farewell(lambda: world.session)
    finally:
        done.set()
    assert time.monotonic() - begun < 10
    assert capsys.readouterr().out == (
        "asking the hosts what still runs; ^C leaves at once\n"
        f"still running: run {RUN}\n"
        f"  {FIRST}  prefill0 router\n"
        f"  take it down: invoke down --run {RUN}\n"
        "what still runs on mi355x-[02-03] could not be asked; later: invoke ps\n"
    )


def test_the_farewell_can_be_interrupted_and_needs_no_hosts(world: World, capsys: Captured) -> None:
    world.nodes[SECOND].first = [(lambda argv: True, KeyboardInterrupt())]
    farewell.farewell(lambda: world.session)
    assert capsys.readouterr().out == "\nleft without asking what still runs; see: invoke ps\n"

    def nobody() -> Any:
        raise HostError("the lab is not up")

    farewell.farewell(nobody)
    assert capsys.readouterr().out == ""


def test_the_message_of_an_error_that_passed_no_typed_line() -> None:
    assert faults.message(HostError("refused", where=FIRST), ()) == "mi355x-01: refused"
    assert faults.message(ValueError("x"), ()) is None


def test_a_run_that_goes_on_has_its_own_config(monkeypatch: pytest.MonkeyPatch) -> None:
    """`invoke shell --config KEY` is the key of verbs that are given none, but not of a run's."""
    from fleet import verbs

    given: list[dict[str, Any]] = []
    monkeypatch.setattr(verbs, "sweep", lambda _, **options: given.append(options))
    sweep = Tasks(tasks.ns, SimpleNamespace(config={"fleet": {}})).verbs({"config": lambda: "KEY"})["sweep"]
    sweep()
    sweep(resume="latest", rerun="failed")
    assert [(one["config"], one["resume"], one["rerun"]) for one in given] == [
        ("KEY", "", ""),
        ("", "latest", "failed"),
    ]
