"""Command lines as data: a table of registered flags, and the argparse parser it makes.

One line a flag: `names | kind | choices | default`. Kinds: `str`, `int`, `float`, `json` (one value), `str?` (the value
may be left out), `str+` (one or more), `flag` (a switch), `bool` (a switch with a `--no-` twin). With a `!`: required.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CONVERTERS: dict[str, Callable[[str], Any]] = {"str": str, "int": int, "float": float, "json": json.loads}


@dataclass(frozen=True)
class Flag:
    """A registered option: all its spellings, what it takes, and its default as registered."""

    names: tuple[str, ...]
    kind: str
    choices: tuple[str, ...] = ()
    default: Any = None
    required: bool = False

    @property
    def takes_value(self) -> bool:
        return self.kind not in ("flag", "bool")


def read_table(text: str) -> list[Flag]:
    """Parse a flag table. Defaults: JSON-like literals, `-` or nothing for None, else the bare text."""
    return [_read_line(line) for line in text.strip().splitlines() if line.strip()]


def _read_line(line: str) -> Flag:
    names, kind, choices, default = ([part.strip() for part in line.split("|")] + ["", "", ""])[:4]
    base = kind.rstrip("!")
    return Flag(
        tuple(names.split()),
        base,
        tuple(choices.split()),
        _default(default, base),
        kind.endswith("!"),
    )


def _default(text: str, kind: str) -> Any:
    if kind == "bool":
        return text == "True"
    if text in ("", "-"):
        return False if kind == "flag" else None
    return CONVERTERS.get(kind.rstrip("?+"), str)(text)


def make_parser(prog: str, flags: list[Flag], *, both_spellings: bool = False) -> argparse.ArgumentParser:
    """An argparse parser that takes exactly these flags (prefix abbreviation included) and exits 2 on any other.

    both_spellings: every long flag also with `_` for `-` and the reverse, as ATOM's server registers them.
    FLEET_DOUBLE_LACKS names flags, with commas, that are left out, as of an image that does not have them yet.
    """
    parser = argparse.ArgumentParser(prog=prog)
    lacks = set(filter(None, os.environ.get("FLEET_DOUBLE_LACKS", "").split(",")))
    for flag in flags:
        if lacks & set(flag.names):
            continue
        names = _spellings(flag.names) if both_spellings else list(flag.names)
        parser.add_argument(*names, **_options(flag))
    return parser


def _spellings(names: tuple[str, ...]) -> list[str]:
    found = list(names)
    for name in names:
        if name.startswith("--"):
            body = name[2:]
            found += [n for n in ("--" + body.replace("_", "-"), "--" + body.replace("-", "_")) if n not in found]
    return found


def _options(flag: Flag) -> dict[str, Any]:
    long = next(name for name in flag.names if name.startswith("--"))
    options: dict[str, Any] = {"dest": long[2:].replace("-", "_"), "default": flag.default}
    if flag.kind == "flag":
        return options | {"action": "store_true"}
    if flag.kind == "bool":
        return options | {"action": argparse.BooleanOptionalAction}
    options["type"] = CONVERTERS[flag.kind.rstrip("?+")]
    if flag.choices:
        options["choices"] = list(flag.choices)
    if flag.required:
        options["required"] = True
    if flag.kind.endswith("+"):
        options["nargs"] = "+"
    if flag.kind.endswith("?"):
        options |= {"nargs": "?", "const": flag.choices[0] if flag.choices else None}
    return options
