"""Numbers and nouns as messages say them."""

from __future__ import annotations


def counted(number: float, noun: str, plural: str = "") -> str:
    """`1 worker`, `2 workers`, `0 workers`. plural: where it is not the noun with an s."""
    return f"{number:.15g} {noun if number == 1 else plural or f'{noun}s'}"


def amount(size: float) -> str:
    """Bytes: `597 bytes`, `37.2 MB`, `900.1 GB`."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return counted(round(size), "byte")


def every(number: int, noun: str) -> str:
    """`the only worker`, `all 2 workers`: whom a thing is said of when it is said of everyone."""
    return f"the only {noun}" if number == 1 else f"all {counted(number, noun)}"
