"""The console itself: what it starts with, and where it is typed into."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from fleet import ui
from fleet.front import ended_like_interrupted
from fleet.front import settings as settings_of
from fleet.model import load
from fleet.model.inventory import Inventory
from fleet.settings import Settings, near
from fleet.shell import plain
from fleet.shell.calls import Tasks, Verb
from fleet.shell.farewell import farewell
from fleet.shell.hosts import Hosts, Opener
from fleet.shell.names import Ending, Names
from fleet.shell.opened import Opened
from fleet.shell.runs import Recipes, Results
from fleet.shell.seats import Deployment
from fleet.verbs import read_inventory
from fleet.words import counted

WIDTH = 80


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
        f"fleet console: {counted(count, 'host')} of {near(names.settings.inventory)}{key}",
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
            with plain.tab_key(names):
                return plain.interact(names, ending, text)
        ui.say(text)
        return ipython.interact(names, ending)
    return plain.interact(names, ending, text)
