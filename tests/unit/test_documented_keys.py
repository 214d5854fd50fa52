"""The docs explain every key that people can write, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from fleet import settings
from fleet.engines import atom, vllm
from fleet.model import recipe, roster, schema, tuning
from fleet.model.base import KebabModel
from fleet.model.inventory import Fabric, Trial
from tests.unit.describing import ROOT

Tables = list[list[str]]


def keys_of(*models: type[KebabModel]) -> set[str]:
    return {key for model in models for key in schema.keys_of(model)}


RECIPE = keys_of(*recipe.MODELS) | {"extends"}
CONFIG = keys_of(recipe.SingleConfig, recipe.MultiConfig) | {"extends"}
SINGLE, MULTI = keys_of(recipe.SingleEntry), keys_of(recipe.MultiEntry)
AGENTIC = keys_of(recipe.AgenticMulti, recipe.AgenticSingle, recipe.AgenticSingleEntry, recipe.Backend)
MODEL = keys_of(tuning.ModelFile)
HOST, WHOLE = set(roster.HOST_KEYS), set(roster.FLEET_KEYS)
NESTED = {*Fabric.model_fields, *Trial.model_fields}
SETTINGS = {*settings.Settings.model_fields, *settings.Timeouts.model_fields}


def section(page: str, title: str) -> str:
    """A page's text below a heading, to the next one."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", text, re.M | re.S)
    return str(found)


def codes(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def tables(text: str) -> Tables:
    """The keys of each table: what its first cells write as code."""
    found: Tables = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        cells = [line.split(" | ")[0] for line in block.splitlines()[2:]]
        found.append([key for cell in cells for key in codes(cell)])
    return found


def words(text: str) -> set[str]:
    return set(re.findall(r"[\w-]+", " ".join(codes(text))))


@pytest.mark.parametrize(
    ("page", "title", "number", "keys"),
    [
        ("files", "Model files: `recipes/models/<model>.yaml`", 0, MODEL),
        ("files", "Model files: `recipes/models/<model>.yaml`", 1, keys_of(atom.Options)),
        ("files", "Model files: `recipes/models/<model>.yaml`", 2, keys_of(vllm.Options)),
        ("files", "Inventories: `inventories/*.yaml`", 0, HOST),
        ("files", "Inventories: `inventories/*.yaml`", 1, WHOLE),
        ("files", "invoke.yaml", 0, SETTINGS),
        ("inventory", "Of a host", 0, HOST),
        ("inventory", "Of the whole inventory, in `all: vars:` only", 0, WHOLE),
        ("recipes", "A config", 0, CONFIG),
        ("recipes", "`fixed-seq-len`", 0, SINGLE | MULTI),
        ("recipes", "`fixed-seq-len`", 1, keys_of(recipe.Worker)),
    ],
)
def test_a_table_has_a_row_for_each_key_and_for_no_other(page: str, title: str, number: int, keys: set[str]) -> None:
    documented = tables(section(page, title))[number]
    assert sorted(documented) == sorted(keys)


@pytest.mark.parametrize(
    ("page", "title", "known"),
    [
        ("files", "Recipes: `recipes/<config key>.yaml`", RECIPE),
        ("recipes", "Model files", MODEL | {"mtp"}),
    ],
)
def test_a_table_of_many_places_has_no_row_for_a_key_that_does_not_exist(
    page: str, title: str, known: set[str]
) -> None:
    (documented,) = tables(section(page, title))
    assert len(documented) > 4
    assert sorted(set(documented) - known) == []


@pytest.mark.parametrize(
    ("page", "title", "keys"),
    [
        ("files", "Recipes: `recipes/<config key>.yaml`", RECIPE),
        (
            "files",
            "Model files: `recipes/models/<model>.yaml`",
            keys_of(tuning.Capacity, atom.Mtp, vllm.Mtp, vllm.Compilation),
        ),
        ("files", "Inventories: `inventories/*.yaml`", {*roster.ALIASES, *roster.GROUP_KEYS, *NESTED}),
        ("inventory", "Of a host", {*roster.ALIASES, *Fabric.model_fields}),
        ("inventory", "Of the whole inventory, in `all: vars:` only", set(Trial.model_fields)),
        ("recipes", "`fixed-seq-len`", keys_of(recipe.SingleSequence, recipe.MultiSequence)),
        ("recipes", "`agentic-coding`", AGENTIC - SINGLE - keys_of(recipe.MultiSequence) - {"kv-p2p-transfer"}),
        ("recipes", "Model files", MODEL | keys_of(tuning.Capacity, tuning.Draft)),
    ],
)
def test_every_key_that_has_no_row_of_its_own_is_explained_in_its_section(
    page: str, title: str, keys: Iterable[str]
) -> None:
    assert sorted(set(keys) - words(section(page, title))) == []


def test_the_reader_finds_a_key_too_many() -> None:
    made = "\n| key | what |\n|---|---|\n| `a`, `b` | like `c` |\n\ntext\n\n| key | what |\n|---|---|\n| `d` | |\n"
    assert tables(made) == [["a", "b"], ["d"]]
