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


def slip(word: str, choices: Iterable[str]) -> str | None:
    """The choice that `word` was meant to be: one letter too many, too few, wrong or swapped, two in a long one.

    Much stricter than `nearest`, for words that may as well be meant as they are.
    """
    counted = [(distance(_plain(word), _plain(choice)), choice) for choice in choices]
    meant = [(edits, choice) for edits, choice in counted if edits <= (1 if len(choice) < 8 else 2)]
    return min(meant, key=lambda one: one[0])[1] if meant else None


def distance(word: str, other: str) -> int:
    """Letters to add, take out, replace or swap with their neighbour to get from one word to the other."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word, start=1):
        before, above, row = row, before, [i]
        for j, wanted in enumerate(other, start=1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == wanted:
                cost = min(cost, above[j - 2] + 1)
            row.append(cost)
    return row[-1]
