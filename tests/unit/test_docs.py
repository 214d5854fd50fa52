"""What an operator can type, write or meet stands in the docs."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import fleet.engines
import fleet.loads
import fleet.model
import fleet.routers
import tasks
from fleet import errors, settings
from fleet.docker import Labels
from fleet.guard import verbs_of
from fleet.lab.image import LABEL
from fleet.model import inventory, roster
from fleet.model.base import KebabModel, Model
from fleet.model.seat import Seat
from fleet.model.service import Service

ROOT = Path(__file__).parents[2]
CLI = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
FILES = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
VERBS = verbs_of(tasks.ns)
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
    documented = {name: set(codes(row[2])) for row in rows(CLI) if len(row) == 3 for name in codes(row[0])}
    assert {name: set(verb.flags) for name, verb in VERBS.items()} == {
        name: flags for name, flags in documented.items() if name in VERBS
    }


def test_every_flag_has_its_row() -> None:
    explained = {name for row in rows(CLI) if len(row) == 2 for name in codes(row[0])}
    assert {flag for verb in VERBS.values() for flag in verb.flags} - explained == set()


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
    service = Service(seat=seat, kind="server", image="image", argv=("run",))
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
