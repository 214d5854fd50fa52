"""What is typed is repeated in messages, and never at length."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from invoke import Context
from invoke.config import Config
from invoke.exceptions import Exit

import tasks
from fleet import provision, sources
from fleet.argv import verbs_of
from fleet.errors import FleetError, cited, joined, shown
from fleet.hosts.fake import Fake
from tests.unit.describing import ROOT, VLLM

NEEDED = {
    "plan": {"config": VLLM},
    "sweep": {"config": VLLM},
    "stage.image": {"config": VLLM},
    "config.expand": {"config": VLLM},
    "exec": {"cmd": "true"},
    "inventory.add": {"host": ["n9"]},
    "cp": {"source": __file__, "target": "/tmp/"},
}
HUGE = {"one word": "x" * 5000, "words": "ab " * 1700, "lines": "a\n" * 2500, "deep": "x/" * 2500}
NOT_ASKED = ("lab.install", "lab.up", "lab.down", "lab.status")


def flags() -> Iterator[tuple[str, str, bool]]:
    """Verbs with each of their flags that take text, and whether it is a list."""
    for name, verb in verbs_of(tasks.ns).items():
        for flag in verb.flags.values():
            if flag.takes_value and not flag.number and name in tasks.ns.task_names and name not in NOT_ASKED:
                yield name, flag.name, flag.many


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """Settings of the example, whose hosts have no answers; nobody's terminal."""
    monkeypatch.setitem(
        provision.PROVISIONERS,
        "static",
        lambda inventory, _: {host.name: Fake(host.name, [(lambda _: True, "")]) for host in inventory.hosts},
    )
    monkeypatch.setattr("fleet.shell.console.interact", lambda *_: 0)
    monkeypatch.setattr(sources, "variables", dict)
    inventory = tmp_path / "example.yaml"
    shutil.copy(ROOT / "inventories" / "example-mi355x.yaml", inventory)
    return Context(Config({"fleet": {"inventory": str(inventory), "results": str(tmp_path / "results")}}))


@pytest.mark.parametrize("kind", HUGE)
@pytest.mark.parametrize(("verb", "flag", "many"), list(flags()))
def test_a_huge_value(
    context: Context, capsys: pytest.CaptureFixture[str], verb: str, flag: str, many: bool, kind: str
) -> None:
    task, name = tasks.ns[verb], flag[2:].replace("-", "_")
    name = f"{name}_" if name in ("from", "format") else name
    given = {**NEEDED.get(verb, {}), name: [HUGE[kind]] if many else HUGE[kind]}
    code, message = outcome(task, context, given)
    assert code in (0, 2, 3), message
    said = message + capsys.readouterr().err
    assert "fault in fleet" not in said
    assert max(map(len, said.splitlines()), default=0) < 600
    assert len(said) < 5000


def outcome(task: Any, context: Context, given: dict[str, Any]) -> tuple[int, str]:
    try:
        task(context, **given)
    except Exit as end:
        return end.code, end.message or ""
    return 0, ""


def test_what_is_shown() -> None:
    assert shown("dsv4") == "dsv4"
    assert shown("a\nb\x1b\udc80ü") == "a\\nb\\x1b\\udc80ü"
    assert shown("x" * 200) == "x" * 200
    assert shown("x" * 201) == "x" * 200 + "… (201 characters)"
    assert cited("it") == "'it'"


def test_a_hint_that_several_errors_share_is_told_once() -> None:
    errors = [FleetError("a", hint="h"), FleetError("b", where="n1", hint="own"), FleetError("c", hint="h")]
    assert joined(errors) == "a\nn1: b\nown\nc\nh"
