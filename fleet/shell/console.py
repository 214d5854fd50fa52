"""The console itself: the names it starts with, Python's own prompt or IPython's, and what it says at the end."""

from __future__ import annotations

import builtins
import code
import rlcompleter
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fleet import ui
from fleet.completion import names_of
from fleet.errors import FleetError
from fleet.front import ended_like_interrupted
from fleet.front import settings as settings_of
from fleet.model import load
from fleet.model.hostrange import folded
from fleet.model.inventory import Inventory
from fleet.session import owner
from fleet.settings import Settings, near
from fleet.shell import tab
from fleet.shell.calls import Tasks, Verb
from fleet.shell.faults import message
from fleet.shell.objects import Deployment, Hosts, Opener, Recipes, Results, Seats, seats, shown
from fleet.shell.opened import Opened
from fleet.verbs import read_inventory

FAREWELL = 5.0
"""Seconds that all hosts together have for saying what still runs on them."""

PATIENCE = 1.0
"""Seconds after which it is said that hosts are being asked."""

WIDTH = 80


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


def run(settings: Settings, tasks: Tasks, *, config: str = "") -> int:
    """Open the console; IPython's where it is installed and this is a terminal. The exit code.

    config: the key of verbs that are given none.
    """
    if config:
        load.recipe(config, settings.recipes)
    settings = _from_anywhere(settings)
    inventory = read_inventory(near(settings.inventory))
    opened, ending = Opened(inventory, settings), Ending()
    try:
        with ended_like_interrupted(ending.ask):
            names = namespace(settings, tasks, inventory, opened, config)
            status = interact(names, ending, greeting(names, config))
            if ending.asked:
                raise KeyboardInterrupt
            farewell(opened, "" if settings.inventory == _usual(tasks) else str(near(settings.inventory)))
            return status
    finally:
        opened.close()


def _from_anywhere(settings: Settings) -> Settings:
    """Whole paths: a console may change its folder."""
    paths = {name: Path.cwd() / getattr(settings, name) for name in ("inventory", "recipes", "results")}
    return settings.model_copy(update=paths)


def _usual(tasks: Tasks) -> Path:
    """The inventory that verbs use when they are given none."""
    return Path.cwd() / settings_of(tasks.context).inventory


def namespace(settings: Settings, tasks: Tasks, inventory: Inventory, opened: Opener, config: str = "") -> Names:
    """The names a console starts with. opened: gives the session."""
    live = {
        "hosts": Hosts(inventory, opened),
        "deployment": Deployment(opened),
        "results": Results(lambda: near(settings.results)),
        "recipes": Recipes(lambda: near(settings.recipes)),
        "inventory": inventory,
        "settings": settings,
    }
    defaults = {"config": lambda: config, "inventory": lambda: str(near(settings.inventory))}
    return Names(settings, live, tasks.verbs(defaults, taken=live))


def greeting(names: Names, config: str) -> str:
    """Where one is, and what can be typed."""
    inventory: Inventory = names["inventory"]
    key = f", config {config}" if config else ""
    first, count = inventory.hosts[0].name, len(inventory.hosts)
    verbs = "   ".join(name for name, value in names.ours.items() if isinstance(value, Verb))
    lines = [
        f"fleet console: {count} host{'s' * (count != 1)} of {near(names.settings.inventory)}{key}",
        f'  hosts   hosts["{first}"].run("uptime")   hosts.each("uptime")',
        "  deployment   deployment.decode[0].logs()   results   results.latest   recipes",
        *textwrap.wrap(verbs, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False),
        '  a verb: plan("KEY", conc=[4, 8])   what it takes: plan',
        "Tab completes, ^C ends a call, Ctrl-D leaves",
    ]
    return "\n".join(lines)


def interact(names: Names, ending: Ending, text: str) -> int:
    """Until it is left; the exit code."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        try:
            from fleet.shell import ipython
        except ImportError:
            with _tab_key(names):
                return plain(names, ending, text)
        ui.say(text)
        return ipython.interact(names, ending)
    return plain(names, ending, text)


# --- Python's own console ---------------------------------------------------------------------------------------


class Console(code.InteractiveConsole):
    """Python's own console, in which an error is one message."""

    def __init__(self, names: Names, ending: Ending) -> None:
        super().__init__(names)
        self._names, self._ending = names, ending

    def raw_input(self, prompt: str = "") -> str:
        shown = prompt if sys.stdin.isatty() else ""
        return self._ending.line(lambda: super(Console, self).raw_input(shown))

    def showtraceback(self) -> None:
        error = sys.exc_info()[1]
        told = message(error, self._names) if error else None
        if told is None:
            super().showtraceback()
        else:
            ui.complain(told)


def plain(names: Names, ending: Ending, text: str) -> int:
    before, sys.displayhook = sys.displayhook, _display
    try:
        Console(names, ending).interact(banner=text, exitmsg="")
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 0
    finally:
        sys.displayhook = before
    return 0


def _display(value: object) -> None:
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
def _tab_key(names: Names) -> Iterator[None]:
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


# --- the end ----------------------------------------------------------------------------------------------------


def farewell(opened: Opener, inventory: str = "") -> None:
    """Say what of this owner's still runs, and what takes it down; what a host did not say in time is said, too.

    inventory: the flag's value, "" where it is not needed.
    """
    flag = f" --inventory {inventory}" if inventory else ""
    waiting = threading.Timer(PATIENCE, ui.say, ["asking the hosts what still runs; ^C leaves at once"])
    waiting.start()
    try:
        still = seats(opened(), timeout=FAREWELL, owner=owner())
    except KeyboardInterrupt:
        ui.say(f"\nleft without asking what still runs; see: invoke ps{flag}")
        return
    except FleetError:
        return
    finally:
        waiting.cancel()
    for line in _still(still, flag):
        ui.say(line)


def _still(still: Seats, flag: str) -> Iterator[str]:
    for run in dict.fromkeys(seat.run for seat in still):
        yield f"still running: run {run}"
        yield from _by_host(seat for seat in still if seat.run == run)
        yield f"  take it down: invoke down --run {run}{flag}"
    if still.lost:
        silent = folded([error.where for error in still.lost])
        yield f"what still runs on {silent} could not be asked; later: invoke ps{flag}"


def _by_host(found: Iterable[Any]) -> Iterator[str]:
    hosts: dict[str, list[str]] = {}
    for seat in found:
        hosts.setdefault(seat.host, []).append(seat.name)
    width = max(map(len, hosts))
    yield from (f"  {host:<{width}}  {' '.join(names)}" for host, names in hosts.items())
