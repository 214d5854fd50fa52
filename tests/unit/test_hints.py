"""What fleet tells people to type exists: every `invoke …` in its sources and pages names a verb and its flags."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tasks
from fleet.guard import verbs_of
from fleet.stages.deployment import typed
from tests.world import a_plan

ROOT = Path(__file__).resolve().parents[2]
LINE = re.compile(r"invoke ((?:[a-z]+\.)?[a-z]+)((?: --[a-z-]+(?: [A-Za-z0-9{}._,/-]+)?)*)")
WORDS = re.compile(r'"invoke", "([a-z.]+)"((?:, [^"\]]*"--[a-z-]+")*)')
NOT_VERBS = {"exceptions", "itself", "in", "does", "and", "is", "tasks", "collection"}


def said() -> Iterator[tuple[str, str, list[str]]]:
    for path in sorted((ROOT / "fleet").rglob("*.py")):
        if path.name in ("guard.py", "advice.py"):
            continue  # quotes what people mistype
        for pattern in (LINE, WORDS):
            for verb, flags in pattern.findall(path.read_text()):
                if verb.partition(".")[0] not in NOT_VERBS:
                    yield str(path.relative_to(ROOT)), verb, re.findall(r"--[a-z-]+", flags)


def without_hint() -> Iterator[str]:
    for path in sorted((ROOT / "fleet").rglob("*.py")):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        for call in calls:
            named = [keyword.arg for keyword in call.keywords]
            if getattr(call.func, "id", "") == "UsageError" and "hint" not in named:
                yield f"{path.relative_to(ROOT)}: {ast.unparse(call.args[0])}"


def test_a_wrong_word_is_answered_with_what_to_type() -> None:
    """Of arguments in the console the message itself says which value is expected."""
    found = [one for one in without_hint() if not one.startswith("fleet/shell/calls.py")]
    assert found == []


def flags_of(verb: str) -> set[str]:
    return set(verbs_of(tasks.ns)[verb].flags)  # get_arguments() of the task itself empties its help


@pytest.mark.parametrize(("path", "verb", "flags"), list(said()))
def test_a_hint_names_a_verb_and_its_flags(path: str, verb: str, flags: list[str]) -> None:
    names = {name.removesuffix(".image") for name in tasks.ns.task_names}
    assert verb in names | set(tasks.ns.task_names), path
    assert set(flags) <= flags_of(verb), path


def test_the_scan_sees_the_hints() -> None:
    found = {verb for _, verb, _ in said()}
    assert {"down", "logs", "lab.up", "sweep"} <= found


def test_a_hint_for_a_plan_carries_its_key_and_inventory() -> None:
    assert typed(a_plan(), "stage") == (
        "type: invoke stage --config dsv4-fp4-mi355x-atom-disagg-mtp --inventory inventories/example-mi355x.yaml"
    )
