"""The word that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

LONGEST = 200
"""Characters of a word that are looked at."""


def _plain(word: str) -> str:
    return word[:LONGEST].casefold().replace("_", "-").strip()


def _likeness(word: str, choice: str) -> float:
    return SequenceMatcher(None, _plain(word), _plain(choice)).ratio()


def ranked(word: str, choices: Iterable[str]) -> list[str]:
    """All choices, the most alike first; equals keep their order."""
    return sorted(choices, key=lambda choice: -_likeness(word, choice))


def nearest(word: str, choices: Iterable[str], least: float = 0.6) -> str | None:
    """The choice most like `word` (case, `_` and `-` do not count), None if none is alike. least: how much, 0 to 1."""
    best = next(iter(ranked(word, choices)), None)
    return best if best is not None and _likeness(word, best) >= least else None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """`; did you mean x?`, or nothing."""
    best = nearest(word, choices)
    return f"; did you mean {best}?" if best else ""
