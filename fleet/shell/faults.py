"""What a console says of an error in a typed line: one message. Python's traceback is for the operator's own code."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from pathlib import Path

from fleet.errors import FleetError
from fleet.front import debugging, told
from fleet.model.near import did_you_mean

HERE = str(Path(__file__).resolve().parent.parent)
TYPED = ("<console>", "<ipython-input-")
"""What Python's console and IPython call the source of typed lines."""


def message(error: BaseException, names: Iterable[str]) -> str | None:
    """The message, or None where Python's traceback says more: in functions of the operator's, or asked for.

    names: those that the console knows.
    """
    if isinstance(error, KeyboardInterrupt):
        return f"\n{told(error)[0]}"  # a terminal has shown ^C where the line begins
    if debugging():
        return None
    files = _files(error)
    if isinstance(error, FleetError) or any(file.startswith(HERE) for file in files):
        return told(error)[0]
    if sum(file.startswith(TYPED) for file in files) != 1:
        return None
    said = "".join(traceback.format_exception_only(error)).strip()
    return said + _meant(error, names)


def _files(error: BaseException) -> list[str]:
    """Where it passed through: the typed line and all that it called, without the console above."""
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    begins = next((at for at, file in enumerate(files) if file.startswith(TYPED)), 0)
    return files[begins:]


def _meant(error: BaseException, names: Iterable[str]) -> str:
    if isinstance(error, NameError):
        return did_you_mean(error.name or "", names)
    if isinstance(error, AttributeError):
        return did_you_mean(error.name or "", (name for name in dir(error.obj) if not name.startswith("_")))
    return ""
