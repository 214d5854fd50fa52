"""Every key that people can write is explained in the docs."""

from __future__ import annotations

import pytest

from fleet.model import recipe, roster, schema, tuning
from fleet.model.inventory import Fabric, Trial
from tests.unit.describing import ROOT

RECIPE_KEYS = {key for model in recipe.MODELS for key in schema.keys_of(model)} | {"extends"}
MODEL_KEYS = {key for model in (tuning.ModelFile, tuning.Capacity, tuning.Draft) for key in schema.keys_of(model)}
INVENTORY_KEYS = {*roster.HOST_KEYS, *roster.ALIASES, *roster.FLEET_KEYS, *Fabric.model_fields, *Trial.model_fields}


@pytest.mark.parametrize(
    ("page", "keys"), [("recipes", RECIPE_KEYS | MODEL_KEYS), ("inventory", INVENTORY_KEYS | set(roster.GROUP_KEYS))]
)
def test_every_key_is_documented(page: str, keys: set[str]) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    assert len(keys) > 20
    assert sorted(key for key in keys if f"`{key}`" not in text) == []
