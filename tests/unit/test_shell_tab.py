"""What the Tab key offers in a console, without a terminal; in one: test_shell_terminal.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import tasks
from fleet.errors import FleetError
from fleet.model import load
from fleet.settings import Settings
from fleet.shell import console, plain, tab
from fleet.shell.calls import Tasks
from fleet.shell.names import Names
from tests.world import ROOT

NAMES = {
    "--config": ["dsv4-a", "dsv4-a-mtp", "qwen"],
    "--limit": ["n1", "n2", "rack"],
    "--run": ["latest", "2026-x"],
    "--diff": ["latest", "2026-x"],
    "--host": ["n1", "n2"],
}
ALIASES = ["spare1"]


def unasked() -> Any:
    raise AssertionError("Tab asked a host")


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Names:
    results = tmp_path_factory.mktemp("results")
    (results / "20260101-000000-key-abcdef").mkdir()
    settings = Settings(recipes=ROOT / "recipes", results=results)
    inventory = load.inventory(ROOT / "inventories" / "example-mi355x.yaml")
    context = SimpleNamespace(config={})
    return console.namespace(settings, Tasks(tasks.ns, context), inventory, unasked)


def offered(line: str, known: Names) -> list[str] | None:
    found = tab.offer(
        line, known, lambda verb, flag: ALIASES if (verb, flag) == ("inventory.add", "--host") else NAMES.get(flag, [])
    )
    assert found is None or line.endswith(found.typed)
    return None if found is None else sorted(found.words)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('plan("', ["dsv4-a", "dsv4-a-mtp", "qwen"]),
        ('plan("q', ["qwen"]),
        ("plan('dsv4-a-", ["dsv4-a-mtp"]),
        ('plan(config="', ["dsv4-a", "dsv4-a-mtp", "qwen"]),
        ('plan(arm="x", config = "q', ["qwen"]),
        ('x = plan("q', ["qwen"]),
        ('plan(diff="l', ["latest"]),
        ('plan(arm="', []),
        ('plan("a", "b", limit="', ["n1", "n2", "rack"]),
        ('plan("a", "b", 4, "r', ["rack"]),
        ('ps("', ["n1", "n2", "rack"]),
        ('ps(limit="n1,', ["n1,n2", "n1,rack"]),
        ('ps(limit=["n1", "', ["n1", "n2", "rack"]),
        ('logs(run=results.latest, host="n', ["n1", "n2"]),
        ('inventory_add("', ["spare1"]),
        ('logs(nosuch="', None),
        ('print("', None),
        ('"', None),
        ('len(ps("', ["n1", "n2", "rack"]),
        ('plan(config="a\\"b, "', None),
        ('hosts["', ["mi355x-01", "mi355x-02", "mi355x-03", "mi355x-04", "rack1", "rack2"]),
        ("hosts['mi355x-01'].run(hosts['rack", ["rack1", "rack2"]),
        ('results["', ["20260101-000000-key-abcdef", "latest"]),
        ('recipes["dsv4-fp4-mi355x-v', ["dsv4-fp4-mi355x-vllm", "dsv4-fp4-mi355x-vllm-mtp"]),
        ('settings["', None),
        ('other["', None),
    ],
)
def test_inside_quotes(known: Names, line: str, expected: list[str] | None) -> None:
    assert offered(line, known) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("plan(con", ["conc=", "config="]),
        ("plan(config='a', con", ["conc="]),
        ("plan('a', con", ["conc="]),
        ("cp(", ["inventory=", "limit=", "source=", "target="]),
        ("lab_down(", None),
        ("plan(confx", None),
        ("plan(config=", None),
        ("plan(config=res", None),
        ("plan", None),
        ("", None),
        ("print(con", None),
        ("plan('a') + (con", None),
    ],
)
def test_arguments_of_verbs(known: Names, line: str, expected: list[str] | None) -> None:
    assert offered(line, known) == expected


SEAT = ["arm", "container", "host", "logs", "name", "owner", "role", "run", "state"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("deployment.de", ["decode"]),
        ("deployment.decode[0].", SEAT),
        ("x = deployment.router.", SEAT),
        ('deployment["decode0"].lo', ["logs"]),
        ("deployment.decode[-1].logs(1).upp", ["upper"]),
        ("print(deployment.seats.", ["lost"]),
        ('hosts["mi355x-01"].', ["host", "name", "run", "ssh"]),
        ('hosts["mi355x-01"].run("df -h").', ["code", "err", "ok", "out"]),
        ('hosts.each("uptime").c', ["code"]),
        ("results.latest.", ["name", "path", "plan", "records", "summary"]),
        ("deployment.nosuch.", None),
        ("settings.", None),
        ("elsewhere.", None),
    ],
)
def test_attributes_without_asking_a_host(known: Names, line: str, expected: list[str] | None) -> None:
    assert offered(line, known) == expected


def test_files_that_cannot_be_read_offer_nothing(known: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Any:
        raise FleetError("cannot be read")

    monkeypatch.setattr("fleet.shell.names.names_of", broken)
    assert known.offer('plan("') is None


def test_the_projects_own_names_are_offered(known: Names) -> None:
    assert known.offer('logs(run="20') == tab.Offer("20", ("20260101-000000-key-abcdef",))


@pytest.mark.parametrize(
    ("typed", "words", "text", "expected"),
    [
        ("q", ["qwen"], "q", ["qwen"]),
        ("n1,n", ["n1,n2"], "n", ["n2"]),
        ("lo", ["logs"], ".lo", [".logs"]),
        ("", ["logs"], ".", [".logs"]),
        ("", ["latest"], "", ["latest"]),
    ],
)
def test_readline_is_told_what_stands_in_place_of_its_word(
    typed: str, words: list[str], text: str, expected: list[str]
) -> None:
    assert plain.replacements(tab.Offer(typed, tuple(words)), text) == expected
    assert plain.replacements(None, text) is None


def test_where_nothing_of_ours_fits_python_completes(known: Names) -> None:
    line = "heal"
    completer = plain.Completer(known, lambda: line)
    assert completer.complete("heal", 0) == "health("
    line = 'hosts["mi355x-0'
    assert [completer.complete("mi355x-0", state) for state in (0, 3, 4)] == ["mi355x-01", "mi355x-04", None]
