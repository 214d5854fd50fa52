"""One noun, many nouns: messages count with one helper."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from fleet.words import counted, every
from tests.unit.test_imports import FILES, MODULES, ROOT

NOUNS = "arm|byte|completion|container|deployment|draft|entrie|error|fault|file|GPU|group|host|length|line|log|node|"
NOUNS += "pair|point|prompt|reason|recipe|request|result|run|second|server|service|step|token|worker"
COUNT = re.compile(rf" (?:more |finished |running )?({NOUNS})s\b")
SAID_OF_ANY = (" of ", " + ", " × ")
NOT_COUNTED = ("role", "size")


@pytest.mark.parametrize(("number", "told"), [(0, "0 workers"), (1, "1 worker"), (2, "2 workers"), (1.0, "1 worker")])
def test_a_noun_fits_its_number(number: float, told: str) -> None:
    assert counted(number, "worker") == told


def test_a_plural_of_its_own() -> None:
    assert [counted(number, "entry", "entries") for number in (1, 2)] == ["1 entry", "2 entries"]


def test_everyone_may_be_one() -> None:
    assert [every(number, "worker") for number in (1, 3)] == ["the only worker", "all 3 workers"]


def uncounted(source: str) -> Iterator[tuple[int, str]]:
    """F-strings that put a plural behind a number that may be 1; `2 of 1 points` and `3 + 1 tokens` are fine."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.JoinedStr):
            continue
        shown = [ast.unparse(one.value) for one in node.values if isinstance(one, ast.FormattedValue)]
        yield from ((node.lineno, f"{{{end}}}") for end in shown if "'s'" in end)
        before = ""
        for value, after in zip(node.values, node.values[1:], strict=False):
            if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant):
                number = ast.unparse(value.value)
                fine = (
                    number.isupper()
                    or number.startswith("shown(")
                    or number.endswith(NOT_COUNTED)
                    or before.endswith(SAID_OF_ANY)
                )
                if not fine and COUNT.match(str(after.value)):
                    yield node.lineno, f"{{{number}}}{after.value}"
            before = str(value.value) if isinstance(value, ast.Constant) else ""


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('f"{n} points"', ["{n} points"]),
        ('f"all {len(a)} running services are"', ["{len(a)} running services are"]),
        ("f\"{n} point{'s' * (n != 1)}\"", ["{'s' * (n != 1)}"]),
        ('f"{a} of {b} points"', []),
        ('f"{MOST} hosts"', []),
        ("f\"{counted(n, 'point')}: {n} left\"", []),
    ],
)
def test_the_search_finds_what_it_should(source: str, found: list[str]) -> None:
    assert [text for _, text in uncounted(source)] == found


def test_no_message_says_1_points() -> None:
    assert [
        f"{FILES[module].relative_to(ROOT)}:{line}  {text}"
        for module in MODULES
        for line, text in uncounted(FILES[module].read_text(encoding="utf-8"))
    ] == []
