"""Python's own prompt, for where IPython is not installed or nobody sits at a terminal."""

from __future__ import annotations

import builtins
import code
import rlcompleter
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fleet import ui
from fleet.shell import tab
from fleet.shell.faults import message
from fleet.shell.names import Ending, Names
from fleet.shell.shown import shown


class Console(code.InteractiveConsole):
    """Python's own console, in which an error is one message."""

    def __init__(self, names: Names, ending: Ending) -> None:
        super().__init__(names)
        self._names, self._ending = names, ending

    def raw_input(self, prompt: str = "") -> str:
        asked = prompt if sys.stdin.isatty() else ""
        return self._ending.line(lambda: super(Console, self).raw_input(asked))

    def showtraceback(self) -> None:
        error = sys.exc_info()[1]
        told = message(error, self._names) if error else None
        if told is None:
            super().showtraceback()
        else:
            ui.complain(told)


def interact(names: Names, ending: Ending, text: str) -> int:
    """Say `text`, and go on until it is left; the exit code."""
    before, sys.displayhook = sys.displayhook, display
    try:
        Console(names, ending).interact(banner=text, exitmsg="")
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 0
    finally:
        sys.displayhook = before
    return 0


def display(value: object) -> None:
    """Show what a typed line gives, and keep it as `_`."""
    if value is not None:
        vars(builtins)["_"] = value
        ui.say(shown(value))


class Completer(rlcompleter.Completer):
    """For readline: our names first, where they can stand."""

    def __init__(self, names: Names, line: Any) -> None:
        super().__init__(names)
        self._names, self._line = names, line
        self._offered: list[str] | None = None

    def complete(self, text: str, state: int) -> str | None:
        if state == 0:
            self._offered = replacements(self._names.offer(self._line()), text)
        if self._offered is None:
            return super().complete(text, state)
        return self._offered[state] if state < len(self._offered) else None


def replacements(offer: tab.Offer | None, text: str) -> list[str] | None:
    """What may stand in place of `text`, the word that readline sees at the end of the line."""
    if offer is None:
        return None
    more, less = len(offer.typed) - len(text), len(text) - len(offer.typed)
    return [word[more:] if more > 0 else text[:less] + word for word in offer.words]


@contextmanager
def tab_key(names: Names) -> Iterator[None]:
    """Tab completes while the block runs, where Python has readline."""
    try:
        import readline
    except ImportError:
        yield
        return
    readline.set_completer(Completer(names, lambda: readline.get_line_buffer()[: readline.get_endidx()]).complete)
    readline.set_completer_delims(readline.get_completer_delims().replace("-", ""))
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        readline.set_completer(None)
