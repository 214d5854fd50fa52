"""Data of the public benchmark and of real engines, for tests; found through FLEET_INTEROP, skipped where absent."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("FLEET_INTEROP") or Path(__file__).resolve().parents[2] / "shared" / "interop")


def path(name: str) -> Path:
    found = ROOT / name
    if not found.exists():
        pytest.skip(f"no interop data at {found} (FLEET_INTEROP)")
    return found


def flags(name: str) -> dict[str, bool]:
    """The options that a parser registers, each spelling → whether it takes a value."""
    table = {}
    for line in path(f"flags/{name}.txt").read_text().splitlines():
        spellings = [word for word in line.split() if word.startswith("-")]
        words = line.split()
        takes = any(word.startswith(("VALUE", "[VALUE")) for word in words)
        for spelling in spellings:
            table[spelling] = takes
        if "[also --no-…]" in line:
            table["--no-" + spellings[0].removeprefix("--")] = False
    return table


def spellings(name: str) -> list[tuple[str, ...]]:
    """The flags of a parser, each with all its names."""
    lines = (line.split("#")[0].split() for line in path(f"flags/{name}.txt").read_text().splitlines())
    return [names for line in lines if (names := tuple(word for word in line if re.fullmatch(r"--?[\w-]+", word)))]
