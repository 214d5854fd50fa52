"""Values put into a text that people wrote: what they mean, and that nothing else moves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from fleet.model.yamledit import Unchangeable, add, put

WRITTEN = """\
---
# Who we have.   Two spaces,  kept.
all:
  vars:   { user: "amd", gpus: 8 }   # aligned by hand

  hosts:
    # the first
    a:   # of all
      gpus:   8
      note: |
        # no comment
        text
      # port: 22

    # before b
    'b': { gpus: 4, mounts: [ /x:/x ] }
    # spare: c

  # between
  children:
    rack1:
    rack2: {}   # empty
    rack3:
      hosts: {d: {gpus: 1}, e: , "f"}
    rack4:
      vars: {models: /m}
...
"""


def loaded(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def added_lines(before: str, after: str) -> list[str]:
    """The lines that came; fails where one that was there is not there as it was, in its order."""
    left = after.splitlines()
    came = []
    for line in before.splitlines():
        while left and left[0] != line:
            came.append(left.pop(0))
        assert left, f"lost: {line}"
        left.pop(0)
    return came + left


NEW = {"x": {"gpus": 8, "fabric": {"address": "192.0.2.1", "nics": ["r0", "r1"]}, "user": "no"}, "z": {}}

ADDED = [
    (("all", "hosts"), [
        '    x: {gpus: 8, fabric: {address: 192.0.2.1, nics: [r0, r1]}, user: "no"}',
        "    z:",
    ]),
    (("all", "children", "rack1", "hosts"), [
        "      hosts:",
        "        x:",
        "          gpus: 8",
        "          fabric: {address: 192.0.2.1, nics: [r0, r1]}",
        '          user: "no"',
        "        z:",
    ]),
    (("all", "children", "rack4", "hosts"), [
        "      hosts:",
        "        x:",
        "          gpus: 8",
        "          fabric: {address: 192.0.2.1, nics: [r0, r1]}",
        '          user: "no"',
        "        z:",
    ]),
    (("all", "children", "new", "hosts"), [
        "    new:",
        "      hosts:",
        "        x:",
        "          gpus: 8",
        "          fabric: {address: 192.0.2.1, nics: [r0, r1]}",
        '          user: "no"',
        "        z:",
    ]),
    (("beside", "hosts"), [
        "beside:",
        "  hosts:",
        "    x:",
        "      gpus: 8",
        "      fabric: {address: 192.0.2.1, nics: [r0, r1]}",
        '      user: "no"',
        "    z:",
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "lines"), ADDED, ids=[".".join(keys) for keys, _ in ADDED])
def test_what_is_added_is_only_lines(keys: tuple[str, ...], lines: list[str]) -> None:
    after = add(WRITTEN, keys, NEW)
    assert added_lines(WRITTEN, after) == lines
    expected = loaded(WRITTEN)
    at = expected
    for key in keys:
        if at.get(key) is None:
            at[key] = {}
        at = at[key]
    at |= {"x": NEW["x"], "z": None}
    assert loaded(after) == expected


def test_comments_stay_with_what_they_stand_at() -> None:
    after = add(WRITTEN, ("all", "hosts"), {"x": {}})
    assert "    # spare: c\n    x:\n\n  # between\n" in after
    text = "all:\n  hosts:\n    a:\n  # of children\n  children:\n"
    assert add(text, ("all", "hosts"), {"x": {}}) == text.replace("    a:\n", "    a:\n    x:\n")


ONE_LINE = [
    ("all: {hosts: {}}\n", "all: {hosts: {x: {gpus: 8}}}\n"),
    ("all: {hosts: {a: , b}} # c\n", "all: {hosts: {a: , b, x: {gpus: 8}}} # c\n"),
    ("all: {hosts: {a: 1,\n  b: {}, }\n  }\n", "all: {hosts: {a: 1,\n  b: {}, x: {gpus: 8}, }\n  }\n"),
    ("all: {hosts: }\n", "all: {hosts: {x: {gpus: 8}} }\n"),
    ("all: {vars: {}}\n", "all: {vars: {}, hosts: {x: {gpus: 8}}}\n"),
    ("all: {}  # none\n", "all:  # none\n  hosts:\n    x:\n      gpus: 8\n"),
    ("all: ~ # none\n", "all: # none\n  hosts:\n    x:\n      gpus: 8\n"),
    ("all:", "all:\n  hosts:\n    x:\n      gpus: 8\n"),
    ("", "all:\n  hosts:\n    x:\n      gpus: 8\n"),
    ("# c", "# c\nall:\n  hosts:\n    x:\n      gpus: 8\n"),
    ("all:\n    vars: {a: 1}\n", "all:\n    vars: {a: 1}\n    hosts:\n        x:\n            gpus: 8\n"),
    ("all:\n  hosts:\n    a:", "all:\n  hosts:\n    a:\n    x:\n      gpus: 8\n"),
    ("all:\n hosts:\n  a: {g: &g 1}\n  b: {g: *g}\n", "all:\n hosts:\n  a: {g: &g 1}\n  b: {g: *g}\n  x: {gpus: 8}\n"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), ONE_LINE)
def test_a_host_more(before: str, after: str) -> None:
    assert add(before, ("all", "hosts"), {"x": {"gpus": 8}}) == after


PUT = [
    (("a", "gpus"), 4, "      gpus:   8\n", "      gpus:   4\n"),
    (("a", "note"), "new", "      note: |\n        # no comment\n        text\n", "      note: new\n"),
    (("a", "port"), 22, "      # port: 22\n", "      # port: 22\n      port: 22\n"),
    (("b", "gpus"), 8, "{ gpus: 4, ", "{ gpus: 8, "),
    (("b", "mounts"), ["/y:/y"], "[ /x:/x ]", "[/y:/y]"),
    (("b", "fabric"), {"nics": ["r0"]}, "[ /x:/x ] }", "[ /x:/x ], fabric: {nics: [r0]} }"),
    (("b",), {"gpus": 1}, "{ gpus: 4, mounts: [ /x:/x ] }", "{gpus: 1}"),
]


@pytest.mark.parametrize(("keys", "value", "old", "new"), PUT)
def test_a_value_is_replaced_where_it_stands(keys: tuple[str, ...], value: Any, old: str, new: str) -> None:
    assert WRITTEN.count(old) == 1
    assert put(WRITTEN, ("all", "hosts", *keys), value) == WRITTEN.replace(old, new)


def test_a_block_is_replaced_by_one_line() -> None:
    text = "a:\n  nics:\n  - x # c\n  -\n    y\n\n  # tail\n  b: 1\nc:\n"
    assert put(text, ("a", "nics"), ["z"]) == "a:\n  nics: [z]\n\n  # tail\n  b: 1\nc:\n"
    assert put(text, ("c",), 1) == text.replace("c:\n", "c: 1\n")
    assert put(text, ("c", "d"), 1) == text.replace("c:\n", "c:\n  d: 1\n")


@pytest.mark.parametrize("text", ["a: &x {b: 1}\nc: *x\n", "a: &x\n  b: 1\nc: *x\n", "c: 5\n", "c: [1]\n"])
def test_what_would_change_more_is_refused(text: str) -> None:
    with pytest.raises(Unchangeable):
        put(text, ("c", "d"), 1)


@pytest.mark.parametrize("word", ["no", "1e3", "012", "2024-01-01", "12:30", "", "null", "8", "a: b", "#x", "~", "* "])
def test_a_text_stays_a_text_for_every_reader(word: str) -> None:
    import yaml

    written = put("a:\n", ("a",), {"k": [word]})
    assert yaml.safe_load(written) == loaded(written) == {"a": {"k": [word]}}


KEYS = st.sampled_from(["a", "b1", "'c d'", '"e"'])
SCALARS = st.sampled_from(["1", "x", "'#'", "", "~", "|\n{}  # no\n{}  text", "[a,  b]", "{ a: 1 }", "{}", ">-\n{}  z"])
TREES = st.recursive(SCALARS, lambda inner: st.dictionaries(KEYS, inner, min_size=1, max_size=3), max_leaves=8)
TAILS = st.sampled_from(["", "", "\n", "{}# c\n", "\n{}# c\n", "{}  # deeper\n"])


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A mapping as people write it: comments and empty lines wherever they may be."""
    step = draw(st.integers(1, 4))

    def written(tree: dict[str, Any], depth: int) -> str:
        pad, lines = " " * (step * depth), ""
        for key, value in tree.items():
            lines += draw(TAILS).replace("{}", pad)
            note = draw(st.sampled_from(["", " # c"]))
            if isinstance(value, dict):
                lines += f"{pad}{key}:{note}\n{written(value, depth + 1)}"
            else:
                comment = "" if value[:1] in ("|", ">") else note
                lines += (
                    f"{pad}{key}: {value.replace('{}', pad) if value[:1] in '|>' else value}".rstrip() + f"{comment}\n"
                )
        return lines + draw(TAILS).replace("{}", pad)

    return written(draw(st.dictionaries(KEYS, TREES, min_size=1, max_size=3)), 0)


@settings(max_examples=300, deadline=None)
@given(texts(), st.lists(st.sampled_from(["a", "b1", "c d", "e", "new"]), min_size=1, max_size=3))
def test_whatever_people_write_means_the_same_with_a_host_more(text: str, keys: list[str]) -> None:
    before = loaded(text)
    expected = loaded(text)
    at = expected
    for key in keys:
        if not isinstance(at.setdefault(key, {}), dict):
            if at[key] is not None:
                with pytest.raises(Unchangeable):
                    add(text, keys, {"x": {"gpus": 8}})
                return
            at[key] = {}
        at = at[key]
    at["x"] = {"gpus": 8}
    after = add(text, keys, {"x": {"gpus": 8}})
    assert loaded(after) == expected != before
    for line in (line for line in text.splitlines() if "{}" not in line and "~" not in line and "{ a" not in line):
        assert line in after.splitlines()
