"""Host names written as one: `mi355x-[01-08]`, `node[a:c]`, with Ansible's colon or a dash, and a step (`[1:9:2]`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from string import ascii_lowercase, ascii_uppercase

MOST = 10_000
"""Names a range may stand for: a slip of the finger is told, not obeyed."""

_RANGE = re.compile(r"\[(?:([0-9]{1,9})[-:]([0-9]{1,9})|([a-z])[-:]([a-z])|([A-Z])[-:]([A-Z]))(?::([0-9]{1,9}))?\]")


def is_range(name: str) -> bool:
    return _RANGE.search(name) is not None


def expand(name: str) -> list[str]:
    """The names in the order of the range; a name without one is itself. Zeros in front are kept. Raises ValueError."""
    found = _RANGE.search(name)
    if not found:
        if "[" in name or "]" in name:
            raise ValueError("a range is written [01-08] or [a-c]")
        return [name]
    members, rest = list(_members(found)), expand(name[found.end() :])
    if len(members) * len(rest) > MOST:
        raise ValueError(f"more than {MOST} hosts in one range")
    return [f"{name[: found.start()]}{member}{tail}" for member in members for tail in rest]


def _members(found: re.Match[str]) -> Iterator[str]:
    first, last = next((low, high) for low, high in zip(found.groups()[::2], found.groups()[1::2], strict=False) if low)
    step = int(found[7] or 1)
    if not step:
        raise ValueError("a range cannot go on by steps of 0")
    if first.isdecimal():
        if first.startswith("0") and len(first) > 1 and len(first) != len(last):
            raise ValueError(f"{first} and {last} must have the same number of digits")
        start, end = int(first), int(last)
    else:
        letters = ascii_lowercase if first.islower() else ascii_uppercase
        start, end = letters.index(first), letters.index(last)
    if start > end:
        raise ValueError(f"{first} comes after {last}")
    if end - start > MOST * step:
        raise ValueError(f"more than {MOST} hosts in one range")
    for number in range(start, end + 1, step):
        yield f"{number:0{len(first)}}" if first.isdecimal() else letters[number]


def folded(names: Sequence[str]) -> str:
    """Names for a header, short: node1, node2, node3 and login are `login node[1-3]`. What it writes is read back."""
    runs: dict[tuple[str, str], list[str]] = {}
    order: list[str | tuple[str, str]] = []
    for name in names:
        found = re.fullmatch(r"(.*?)(\d+)(\D*)", name, re.DOTALL)
        if not found:
            order.append(name)
            continue
        key = (found[1], found[3])
        if key not in runs:
            order.append(key)
        runs.setdefault(key, []).append(found[2])
    return " ".join(one if isinstance(one, str) else _written(*one, runs[one]) for one in order)


def _written(before: str, after: str, digits: list[str]) -> str:
    return " ".join(
        f"{before}{first}{after}" if first == last else f"{before}[{first}-{last}]{after}"
        for first, last in _spans(sorted(digits, key=lambda text: (int(text), len(text))))
    )


def _spans(digits: Sequence[str]) -> list[tuple[str, str]]:
    """Numbers that follow each other and are written alike: 8, 9, 10 do; 08, 9 do not."""
    spans: list[tuple[str, str]] = []
    for text in digits:
        last = spans[-1][1] if spans else ""
        padded = text.startswith("0") or last.startswith("0")
        if last and int(text) == int(last) + 1 and (not padded or len(text) == len(last)):
            spans[-1] = (spans[-1][0], text)
        else:
            spans.append((text, text))
    return spans
