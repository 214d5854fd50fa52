"""How the objects of a console show themselves, and what stands for a name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from fleet import ui
from fleet.errors import FleetError, UsageError, harmless
from fleet.model.base import Model

T = TypeVar("T")

WIDEST_VALUE = 60
"""Characters of a field that is shown as a row."""


class Text(str):
    """Text that shows itself as it is."""

    def __repr__(self) -> str:
        return harmless(ui.visible(self.rstrip("\n")))


class Named:
    """What stands for its name where a verb takes one: `logs(run=results.latest)`."""

    name: str


def shown(value: object) -> str:
    """How a console shows a value: models as their fields, all else as it shows itself."""
    if not isinstance(value, Model):
        return repr(value)
    return ui.table_text((type(value).__name__, ""), ((name, _short(field)) for name, field in value))


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= WIDEST_VALUE else f"{text[: WIDEST_VALUE - 2]} …"


def said(answers: Iterable[object]) -> list[str]:
    return [str(answer) for answer in answers if isinstance(answer, FleetError)]


def at(found: Sequence[T], place: int, what: str) -> T:
    if -len(found) <= place < len(found):
        return found[place]
    there = f"there {'is' if len(found) == 1 else 'are'} {len(found)}"
    hint = f"the last one: {what}[-1]" if found else ""
    raise UsageError(f"no {what}[{place}]: {there}", hint=hint)
