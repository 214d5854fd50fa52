"""`invoke --list`: one line a verb, in the order in which a day needs them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

HEAD = "invoke VERB --flag VALUE …   its flags: invoke VERB --help   a page by purpose: docs/cheatsheet.md"
LATER = "more"
"""What verbs stand below that have no place in the day."""


def show(collection: Any, day: Mapping[str, Sequence[str]]) -> None:
    sys.stdout.write("\n".join([HEAD, *lines(collection, day), ""]))
    sys.stdout.flush()


def lines(collection: Any, day: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """day: verbs by what they are for. Each line is a verb and the first line of what it says of itself."""
    names = collection.task_names
    placed = {verb for verbs in day.values() for verb in verbs}
    rest = [name for name in names if name not in placed]
    width = max(map(len, names))
    for purpose, verbs in {**day, **({LATER: rest} if rest else {})}.items():
        yield f"\n{purpose}"
        for name in verbs:
            if name in names:
                yield f"  {name:<{width}}  {(collection[name].__doc__ or '').strip().partition(chr(10))[0]}"
