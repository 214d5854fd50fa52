"""The operator's console: inventory, hosts and what runs on them as live objects, and the verbs as functions."""

from __future__ import annotations

import code
import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from fleet import ui, verbs
from fleet.docker import Container
from fleet.errors import FleetError, UsageError
from fleet.hosts.base import Outcome
from fleet.model import load
from fleet.model.inventory import Inventory
from fleet.progress import Silent
from fleet.results import store
from fleet.session import Machine, Session, connect
from fleet.settings import Settings
from fleet.stages import collect, teardown
from fleet.stages.health import seat_of
from fleet.words import counted

VERBS = ("plan", "sweep", "health", "ps", "logs", "down", "stage", "expand")


class Seat:
    """A container of ours: `.logs()`, `.state`."""

    def __init__(self, machine: Machine, container: Container) -> None:
        self._machine = machine
        self.container = container
        self.name = seat_of(container)
        self.role = container.labels.get("role", "")

    @property
    def state(self) -> str:
        return self.container.status

    def logs(self, lines: int = 100) -> None:
        ui.say(collect.tail(self._machine, self.container, lines).rstrip())

    def __repr__(self) -> str:
        return f"{self.name} on {self._machine.name}  {self.state}  run {self.container.labels['run']}"


class Deployment:
    """What runs now, asked anew at each use: `deployment.prefill[0]`, `deployment.router`, `deployment.seats`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def seats(self) -> list[Seat]:
        def act(machine: Machine) -> list[Seat]:
            return [Seat(self._session.machine(machine.name), one) for one in teardown.ours(machine)]

        answers = self._session.each(self._session.names, act)
        return [seat for answer in answers.values() if isinstance(answer, list) for seat in answer]

    def _of(self, role: str) -> list[Seat]:
        return sorted((seat for seat in self.seats if seat.role == role), key=lambda seat: seat.name)

    @property
    def prefill(self) -> list[Seat]:
        return self._of("prefill")

    @property
    def decode(self) -> list[Seat]:
        return self._of("decode")

    @property
    def server(self) -> list[Seat]:
        return self._of("server")

    @property
    def router(self) -> Seat | None:
        return next(iter(self._of("router")), None)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.seats)) or "nothing of ours runs on these hosts"


class HostObject:
    """A host: `.run("uptime")`, `.ssh` (the line to type)."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.name = machine.name

    def run(self, command: str, timeout: float = 60.0) -> Answer:
        """A shell command on the host; its answer prints itself."""
        return Answer(self._machine.run(["sh", "-c", command], timeout=timeout, check=False))

    @property
    def ssh(self) -> str:
        return self._machine.transport.ssh_line()

    def __repr__(self) -> str:
        host = self._machine.host
        return f"{host.name}  {host.gpus} × {host.gpu or 'GPU'}  {', '.join(host.groups)}  {self.ssh}"


class Answer:
    """What a command printed, and its exit code."""

    def __init__(self, outcome: Outcome) -> None:
        self.code, self.out, self.err = outcome.code, outcome.out, outcome.err

    def __repr__(self) -> str:
        text = (self.out + self.err).rstrip()
        return text if self.code == 0 else f"{text}\n(exit {self.code})".lstrip()


class Hosts:
    """`hosts["node1"]`, `hosts.each("uptime")`; iterating gives every host."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __getitem__(self, name: str) -> HostObject:
        load.limit(self._session.inventory, [name])
        return HostObject(self._session.machine(name))

    def __iter__(self) -> Iterator[HostObject]:
        return (self[name] for name in self._session.names)

    def __len__(self) -> int:
        return len(self._session.names)

    def _ipython_key_completions_(self) -> list[str]:
        return self._session.names

    def each(self, command: str, timeout: float = 60.0) -> None:
        """A shell command on all hosts at once, answers as a table."""
        argv = ["sh", "-c", command]
        answers = self._session.each(
            self._session.names, lambda machine: machine.run(argv, timeout=timeout, check=False), timeout=timeout
        )
        ui.table(("host", "exit", "answer"), (_answer_row(name, answer) for name, answer in answers.items()))

    def __repr__(self) -> str:
        return "\n".join(map(repr, self))


def _answer_row(name: str, answer: Outcome | FleetError) -> tuple[str, str, str]:
    if isinstance(answer, FleetError):
        return name, "-", answer.what
    return name, str(answer.code), (answer.out + answer.err).strip()


def run(settings: Settings, *, config: str = "") -> int:
    """Open the console; IPython's where it is installed. config: the key that verbs use when they are given none."""
    if config:
        load.recipe(config, settings.recipes)
    inventory = verbs.read_inventory(settings.inventory)
    with connect(inventory, settings, Silent()) as session:
        names = namespace(settings, session, inventory, config)
        _interact(names, _greeting(settings, session, config))
        _farewell(session)
    return 0


def namespace(settings: Settings, session: Session, inventory: Inventory, config: str) -> dict[str, Any]:
    """The names a console starts with."""
    live = {
        "inventory": inventory,
        "settings": settings,
        "hosts": Hosts(session),
        "deployment": Deployment(session),
        "results": store.runs(settings.results),
        "recipes": load.recipe_keys(settings.recipes),
    }
    return live | {name: _told(getattr(verbs, name), settings, config) for name in VERBS}


def _told(verb: Callable[..., Any], settings: Settings, config: str) -> Callable[..., None]:
    """A verb for typing: settings and key filled in, an error is its message."""

    takes = inspect.signature(verb).parameters

    @functools.wraps(verb)
    def typed(key: str = "", /, **options: Any) -> None:
        chosen = settings
        if "inventory" in options:
            chosen = settings.model_copy(update={"inventory": Path(options.pop("inventory"))})
        try:
            if "config" in takes:
                options.setdefault("config", key or config)
            elif key:
                raise UsageError(f"{verb.__name__} takes no config key", hint=f"it takes: {', '.join([*takes][1:])}")
            verb(chosen, **options)
        except FleetError as error:
            ui.complain(error)

    return typed


def _greeting(settings: Settings, session: Session, config: str) -> str:
    shown = f", config {config}" if config else ""
    return (
        f"fleet console: {counted(len(session.names), 'host')} of {settings.inventory}{shown}\n"
        f'hosts["{session.names[0]}"].run("uptime")   hosts.each("docker ps")   '
        "deployment   deployment.decode[0].logs()\n"
        f'{"(…)   ".join(VERBS)}(…)   e.g. plan(config="KEY")   leave: Ctrl-D'
    )


def _interact(names: dict[str, Any], greeting: str) -> None:
    if importlib.util.find_spec("IPython") is None:
        _plain(names, greeting)
        return
    from IPython import start_ipython

    ui.say(greeting)
    start_ipython(argv=["--no-banner", "--no-confirm-exit"], user_ns=names)


def _plain(names: dict[str, Any], greeting: str) -> None:
    with suppress(ImportError):
        import readline
        import rlcompleter

        readline.set_completer(rlcompleter.Completer(names).complete)
        readline.parse_and_bind("tab: complete")
    console = Console(names)
    console.interact(banner=greeting, exitmsg="")


class Console(code.InteractiveConsole):
    """Python's own console, in which a FleetError is one message."""

    def showtraceback(self) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, FleetError):
            ui.complain(error)
        else:
            super().showtraceback()


def _farewell(session: Session) -> None:
    still = Deployment(session).seats
    if still:
        ui.say("still running:\n" + "\n".join(f"  {seat!r}" for seat in still) + "\nstop it: invoke down")
