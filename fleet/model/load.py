"""Reading what people write: recipes and master files here; inventories in `roster`, model files in `tuning`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import yaml

from fleet.errors import Fault, FileFaults, Gathering, UsageError, cited, shown
from fleet.model import yamlfile
from fleet.model.limits import limit
from fleet.model.near import did_you_mean, nearest, ranked
from fleet.model.recipe import Hardware, Recipe, validated
from fleet.model.recipe_rules import declared
from fleet.model.roster import inventory
from fleet.model.roster import resolved as resolved_inventory
from fleet.model.schema import Keys, check
from fleet.model.tuning import ModelFacts, model_facts, tuning
from fleet.model.yamlfile import Document, Node

RESERVED = ("changelog",)
EXTENDS = "extends"
ELSEWHERE = "another folder: fleet.recipes in invoke.yaml, or INVOKE_FLEET_RECIPES=FOLDER before invoke"


def recipe_keys(folder: Path) -> list[str]:
    """The config keys that have a recipe, sorted. Raises UsageError if there is no such folder."""
    try:
        found = list(folder.iterdir())
    except OSError as error:
        why = f"recipes are looked for here: {error.strerror}"
        raise UsageError(why, where=str(folder), hint=ELSEWHERE) from None
    return sorted(one.stem for one in found if one.suffix == ".yaml" and one.stem not in RESERVED and one.is_file())


def recipe(key: str, folder: Path, *, rules: bool = False) -> Recipe:
    """The recipe of a config key, its `extends` resolved.

    Raises UsageError for an unknown key and FileFaults for a faulty file. With `rules` those faults bring along what
    planning would refuse in the same file (`recipe_rules`), so that everything is told at once.
    """
    known = recipe_keys(folder)
    if key not in known:
        _unknown(key, known, folder)
    document = yamlfile.parse(folder / f"{key}.yaml")
    faults = [*document.faults, *_one_key(document, key)]
    if faults and document.node(key) is None:
        raise FileFaults(document.path, faults)
    gathered = Gathering()
    with gathered.also():
        faults += _extend(document, key, folder)
    found = _recipe(document, key, faults, rules=rules)
    gathered.add(document.path, faults)
    gathered.tell()
    assert found is not None
    return found


def master(path: Path) -> dict[str, Recipe]:
    """All configs of a public master file, by key. A runners.yaml beside it says what hardware its runners have."""
    document = yamlfile.parse(path)
    faults = list(document.faults)
    hardware = runner_hardware(beside) if (beside := path.parent / "runners.yaml").is_file() else {}
    found = {}
    for key in document.root.entries:
        one = _recipe(document, key, faults, hardware=hardware)
        if one:
            found[key] = one
    if faults:
        raise FileFaults(document.path, faults)
    return found


def pick(recipes: dict[str, Recipe], key: str, path: Path) -> Recipe:
    """One config of a master file. Raises UsageError, nearest keys first."""
    if key not in recipes:
        _unknown(key, list(recipes), path)
    return recipes[key]


def runner_hardware(path: Path) -> dict[str, Hardware]:
    """What a public runners file says of its labels' machines."""
    document = yamlfile.parse(path, grouped_numbers=True)
    faults = list(document.faults)
    found = {}
    for key in document.root.entries:
        if key not in ("labels", "hardware"):
            faults.append(document.fault((key,), f"{key}  unknown key{did_you_mean(key, ('labels', 'hardware'))}"))
    if document.node("labels") is None:
        faults.append(Fault(0, "labels  missing in this file"))
    node = document.node("hardware")
    for label in node.entries if node else ():
        one, wrong = check(document, ("hardware", label), Hardware)
        faults += wrong
        if one:
            found[label] = one
    if faults:
        raise FileFaults(document.path, faults)
    return found


def _unknown(key: str, known: Sequence[str], place: Path) -> NoReturn:
    what = f"no config key {cited(key)} in {shown(place)}" if key else "a config key is needed: --config KEY"
    near = nearest(key, known) if key else None
    what += f"; did you mean {near}?" if near else ""
    listed = ranked(key, known) if key else list(known)
    raise UsageError(
        what, hint="\n".join(["config keys:", *(f"  {one}" for one in listed)]) if listed else "there are none"
    )


def _recipe(
    document: Document,
    key: str,
    faults: list[Fault],
    *,
    hardware: dict[str, Hardware] | None = None,
    rules: bool = False,
) -> Recipe | None:
    """One config; its faults are added to `faults`."""
    config, wrong = validated(document, key)
    faults += wrong
    if rules and faults:
        faults += declared(document, key)
    if config is None:
        return None
    return Recipe(key, document.path, config, document, (hardware or {}).get(config.runner))


def _one_key(document: Document, key: str) -> list[Fault]:
    """A recipe file holds exactly its own key."""
    faults = []
    for name in document.root.entries:
        if name != key:
            hint = f"; type {key}" if document.node(key) is None else "; a recipe file holds one config"
            faults.append(document.fault((name,), f"{name}  is not the key that the file is named for ({key}){hint}"))
    return faults


# --- extends ----------------------------------------------------------------------------------------------------


def _extend(document: Document, key: str, folder: Path) -> list[Fault]:
    """Puts the base of an `extends` below the config. Mappings merge, lists and scalars replace."""
    own = document.node(key)
    if own is None or own.kind != "mapping" or EXTENDS not in own.entries:
        return []
    at: Keys = (key, EXTENDS)
    base_key = own.entries[EXTENDS].value
    known = [one for one in recipe_keys(folder) if one != key]
    if not isinstance(base_key, str) or base_key not in known:
        why = "is this recipe itself" if base_key == key else f"no such recipe in {folder}"
        hint = did_you_mean(str(base_key or ""), known)
        fault = document.fault(at, f"extends: {document.written(*at)}".rstrip() + f"  {why}{hint}")
        return [fault, *_bury(document, own)]
    own.bad = True
    base = _base(folder / f"{base_key}.yaml", base_key)
    own.bad = False
    if EXTENDS in base.entries:
        fault = document.fault(
            at, f"extends: {base_key}  extends {base.entries[EXTENDS].value} itself; one level only: type that one"
        )
        return [fault, *_bury(document, own)]
    del own.entries[EXTENDS]
    document.root.entries[key] = merge(base, own)
    return []


def _base(path: Path, key: str) -> Node:
    """The config that another one extends. Raises FileFaults of its file."""
    document = yamlfile.parse(path)
    base = document.node(key)
    sound = base is not None and base.kind == "mapping"
    faults = [*document.faults, *_one_key(document, key)]
    if not sound and not faults:
        faults = [document.fault((key,), f"{key}  is not a mapping")]
    if faults or base is None:
        raise FileFaults(document.path, faults)
    return base


def _bury(document: Document, own: Node) -> list[Fault]:
    """Without its base a config cannot be judged: nothing more is told about it."""
    own.bad = True
    return []


def merge(base: Node, over: Node) -> Node:
    """A mapping over another; every value keeps the file and line where it is written."""
    merged = Node("mapping", over.source, over.line, over.written)
    for key, node in base.entries.items():
        merged.put(key, node, base.where(key)[1], base.where(key)[0])
    for key, node in over.entries.items():
        below = merged.entries.get(key)
        both = below is not None and below.kind == node.kind == "mapping"
        merged.put(key, merge(below, node) if both and below else node, over.where(key)[1], over.where(key)[0])
    return merged


def resolved(recipe: Recipe) -> str:
    """A recipe as YAML with its `extends` resolved: what a run folder keeps."""
    return yaml.safe_dump(
        {recipe.key: recipe.document.data[recipe.key]}, sort_keys=False, allow_unicode=True, width=120
    )


__all__ = [
    "ModelFacts",
    "inventory",
    "limit",
    "master",
    "merge",
    "model_facts",
    "pick",
    "recipe",
    "recipe_keys",
    "resolved",
    "resolved_inventory",
    "runner_hardware",
    "tuning",
]
