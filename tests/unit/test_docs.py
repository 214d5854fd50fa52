"""What an operator can type, write or meet stands in the docs."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from invoke.main import program

import fleet.engines
import fleet.loads
import fleet.model
import fleet.routers
import tasks
from fleet import errors, listing, settings
from fleet.advice import check
from fleet.argv import core_of, verbs_of
from fleet.docker import Labels
from fleet.lab.image import LABEL
from fleet.model import inventory, roster
from fleet.model.base import KebabModel, Model
from fleet.model.seat import Seat
from fleet.model.service import Service
from fleet.shell import hosts, runs, seats
from fleet.shell.tab import members

ROOT = Path(__file__).parents[2]
CLI = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
FILES = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHEET = (ROOT / "docs" / "cheatsheet.md").read_text(encoding="utf-8")
VERBS = verbs_of(tasks.ns)
CORE = core_of(program)
# Read from the public runners file, or computed: nobody writes these in a file of ours.
NOT_WRITTEN = {"Hardware", "ModelFacts"}


def rows(text: str) -> Iterator[list[str]]:
    """The cells of every table row."""
    for line in text.splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def codes(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def errors_of(kind: type[errors.FleetError]) -> Iterator[type[errors.FleetError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from errors_of(child)


def file_models() -> dict[str, list[str]]:
    """Every model that is read from a file, with its keys as they are written there."""
    for room in (fleet.model, fleet.engines, fleet.routers, fleet.loads):
        for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
            importlib.import_module(module.name)
    found: list[type[Model]] = [inventory.Fabric, inventory.Trial, settings.Settings, settings.Timeouts]
    pending: list[type[Model]] = [KebabModel]
    while pending:
        children = pending.pop().__subclasses__()
        pending += children
        found += [child for child in children if child.__module__.startswith("fleet.")]
    return {
        model.__name__: [field.alias or name for name, field in model.model_fields.items()]
        for model in found
        if model.__name__ not in NOT_WRITTEN
    }


def test_every_verb_has_its_row_with_exactly_its_flags() -> None:
    table = CLI[: CLI.index("\n## ")]
    documented = {name: set(codes(row[2])) for row in rows(table) if len(row) == 3 for name in codes(row[0])}
    assert {name: set(verb.flags) for name, verb in VERBS.items()} == {
        name: flags for name, flags in documented.items() if name in VERBS
    }


def test_every_flag_has_its_row() -> None:
    explained = {name for row in rows(CLI) if len(row) == 2 for name in codes(row[0])}
    assert {flag for verb in VERBS.values() for flag in verb.flags} - explained == set()


def typed(page: str) -> Iterator[list[str]]:
    """The commands of a page's code blocks, without their comments."""
    for block in re.findall(r"^```\n(.*?)^```", page, re.M | re.S):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if "invoke" in words and "…" not in words:
                yield words[words.index("invoke") :]


def test_every_verb_is_on_the_cheat_sheet_and_every_flag_there_or_in_the_manual() -> None:
    shown = {word for words in typed(SHEET) for word in words}
    assert {verb for verb in tasks.ns.task_names if verb not in SHEET} == set()
    assert {name for name in VERBS if name in shown} >= set(tasks.ns.task_names) - {"stage.image", "completion"}
    written = {*re.findall(r"--[a-z][a-z-]*", SHEET), *re.findall(r"--[a-z][a-z-]*", CLI)}
    assert {flag for verb in VERBS.values() for flag in verb.flags} - written == set()


@pytest.mark.parametrize("words", list(typed(SHEET)), ids=" ".join)
def test_what_the_cheat_sheet_says_to_type_is_accepted(words: list[str]) -> None:
    assert check(words, VERBS, CORE) is None


def test_the_cheat_sheet_is_one_page() -> None:
    assert len(SHEET.splitlines()) < 90
    assert max(map(len, SHEET.splitlines())) <= 150
    assert "docs/cheatsheet.md" in README


def test_the_list_is_one_line_a_verb_in_the_order_of_a_day() -> None:
    listed = list(listing.lines(tasks.ns, tasks.DAY))
    assert [line for line in (listing.HEAD, *listed) if len(line) > 100] == []
    assert all("\n" not in line.strip() for line in listed)
    verbs = [line.split()[0] for line in listed if line.startswith("  ")]
    assert verbs == [verb for part in tasks.DAY.values() for verb in part]
    assert sorted(verbs) == sorted(tasks.ns.task_names)
    assert [line.strip() for line in listed if not line.startswith("  ")] == list(tasks.DAY)


def test_a_verb_without_a_place_in_the_day_is_listed_at_the_end() -> None:
    listed = list(listing.lines(tasks.ns, {"look": ["ps", "no-such-verb"]}))
    assert [listed[0], listed[1].split()[0], listed[2]] == ["\nlook", "ps", "\nmore"]
    assert {line.split()[0] for line in listed[3:]} == set(tasks.ns.task_names) - {"ps"}


def test_help_states_what_holds_without_a_flag() -> None:
    for name in tasks.ns.task_names:
        task = tasks.ns[name]
        for flag, parameter in list(inspect.signature(task.body).parameters.items())[1:]:
            said = task.help[flag]
            assert re.search(r"\((default: |needed|this is the default)[^()]*\)$", said), f"{name} --{flag}: {said}"
            if parameter.default:
                assert f"(default: {parameter.default}" in said


def test_every_error_stands_beside_its_exit_code() -> None:
    documented = {name: row[0] for row in rows(CLI) if len(row) == 3 for name in codes(row[2])}
    actual = {
        kind.__name__: str(kind.exit_code) for kind in errors_of(errors.FleetError) if kind.__module__ == "fleet.errors"
    }
    assert {name: documented.get(name) for name in actual} == actual


def test_readme_tells_every_exit_code() -> None:
    told = {row[0] for row in rows(README)}
    assert {str(kind.exit_code) for kind in errors_of(errors.FleetError)} | {"0"} <= told


@pytest.mark.parametrize(("model", "keys"), file_models().items(), ids=str)
def test_every_key_of_a_file_is_explained(model: str, keys: list[str]) -> None:
    words = set(re.findall(r"[\w-]+", " ".join(codes(FILES))))
    assert set(keys) - words == set(), f"keys of {model} that docs/files.md does not explain"


def test_every_key_of_an_inventory_is_explained() -> None:
    words = set(re.findall(r"[\w-]+", " ".join(codes(FILES))))
    assert {*roster.HOST_KEYS, *roster.FLEET_KEYS, *roster.GROUP_KEYS, *roster.ALIASES} - words == set()


def test_every_label_has_its_row() -> None:
    seat = Seat(role="prefill", rank=0, host="a", node=1, span=2)
    service = Service(seat=seat, kind="server", image="image", argv=("run",), secrets=("S",))
    labels = Labels(run="r", owner="o", plan="p", arm="a", point="c4").of(service, inventory.Host(name="a"))
    assert {*labels, LABEL} == {name for row in rows(CLI) for name in codes(row[0]) if name.startswith("dev.fleet.")}


def test_invoke_yaml_says_what_settings_default_to() -> None:
    values = yaml.safe_load((ROOT / "invoke.yaml").read_text(encoding="utf-8"))
    assert list(values) == ["fleet"]
    assert settings.read(values["fleet"], ROOT) == settings.read({}, ROOT)
    assert set(values["fleet"]) == set(settings.Settings.model_fields)
    assert set(values["fleet"]["timeouts"]) == set(settings.Timeouts.model_fields)


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def test_what_a_console_offers_is_explained() -> None:
    section = CLI[CLI.index("## The console") : CLI.index("## Exit codes")]
    words = set(re.findall(r"\w+", " ".join(codes(re.sub(r"(?s)```.*?```", "", section)))))
    shown = (hosts.Hosts, hosts.HostObject, hosts.Answer, hosts.Answers, seats.Deployment, seats.Seats, seats.Seat)
    read = (runs.Results, runs.Run, runs.Recipes)
    offered = {name for kind in (*shown, *read) for name in members(kind) if not name.startswith("_")}
    assert offered | {"hosts", "deployment", "results", "recipes", "inventory", "settings"} <= words
