"""What both prompts share: the names that can be typed, and whether the console was told to end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fleet.completion import names_of
from fleet.errors import FleetError
from fleet.settings import Settings
from fleet.shell import tab


class Names(dict[str, Any]):
    """The names of a console, and what the Tab key and its errors need to know of them."""

    def __init__(self, settings: Settings, *given: Mapping[str, Any]) -> None:
        super().__init__()
        self.settings = settings
        self.ours = {name: value for one in given for name, value in one.items()}
        self.update(self.ours)

    def offer(self, line: str) -> tab.Offer | None:
        """What Tab may make of a line."""
        try:
            return tab.offer(line, self, lambda verb, flag: names_of(flag, self.settings, verb))
        except (FleetError, OSError):
            return None


class Ending:
    """Whether SIGTERM or SIGHUP came: what is under way ends as after ^C, and then the console itself.

    stop: ends a prompt that must not be torn out of its event loop, and tells whether there is one.
    """

    def __init__(self) -> None:
        self.asked = False
        self.stop: Callable[[], bool] = lambda: False

    def ask(self) -> bool:
        self.asked = True
        return self.stop()

    def line(self, prompt: Callable[[], str]) -> str:
        """What the prompt gives; EOFError, as of Ctrl-D, once the end was asked for."""
        try:
            if not self.asked:
                return prompt()
        except KeyboardInterrupt:
            if not self.asked:
                raise
        raise EOFError
