"""What a console shows and asks: hosts, what runs on them, runs and recipes. Each shows itself as a short table.

Nothing is remembered: hosts are asked, and folders are read, at each use.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from fleet import errors, ui
from fleet.docker import Container
from fleet.errors import FleetError, UsageError
from fleet.hosts.base import Outcome
from fleet.model import load
from fleet.model.base import Model
from fleet.model.hostrange import folded
from fleet.model.inventory import Host, Inventory
from fleet.model.near import did_you_mean
from fleet.results import report, store
from fleet.results.record import Record
from fleet.results.store import LATEST, RunFolder
from fleet.session import Machine, Session
from fleet.settings import duration
from fleet.stages import collect, everyone, teardown
from fleet.stages.health import seat_of

T = TypeVar("T")

SHOWN_RUNS = 10
"""So many of the latest runs are in the table of all."""

WIDEST_VALUE = 60
"""Characters of a field that is shown as a row."""

RUN_COLUMNS = ("output_tput_per_gpu", "median_intvty", "median_ttft_ms", "acceptance_length")
"""The figures of a run that stand beside each other in 80 columns; its summary has all."""


class Text(str):
    """Text that shows itself as it is."""

    def __repr__(self) -> str:
        return self.rstrip("\n")


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


# --- answers ----------------------------------------------------------------------------------------------------


class Answer:
    """What a command printed (`out`, `err`), and its exit code (`code`)."""

    code: int
    out: Text
    err: Text

    def __init__(self, outcome: Outcome) -> None:
        self.code, self.out, self.err = outcome.code, Text(outcome.out), Text(outcome.err)

    @property
    def ok(self) -> bool:
        return self.code == 0

    def __repr__(self) -> str:
        text = (self.out + self.err).rstrip()
        if self.ok:
            return text or "(no output)"
        return f"{text}\n(exit {self.code})".lstrip()


class Answers(Mapping[str, "Answer | FleetError"]):
    """The answers of several hosts by name, what is written to stderr included; equal ones are shown once."""

    def __init__(self, found: Mapping[str, Outcome | FleetError]) -> None:
        self._found = found

    @property
    def code(self) -> int:
        """The worst exit code."""
        return everyone.worst(self._found)

    def __getitem__(self, host: str) -> Answer | FleetError:
        answer = self._found[host]
        return answer if isinstance(answer, FleetError) else Answer(answer)

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._found)

    def __repr__(self) -> str:
        groups = everyone.groups(self._found)
        return "\n".join([*(ui.group_text(one, asked=len(self)) for one in groups), *_said(self._found.values())])


def _said(answers: Iterable[object]) -> list[str]:
    return [str(answer) for answer in answers if isinstance(answer, FleetError)]


def _seconds(timeout: float | str, default: float) -> float:
    if not timeout:
        return default
    try:
        return duration(timeout)
    except ValueError as error:
        raise UsageError(f"timeout {errors.shown(repr(timeout))}: {error}") from None


def _command(command: object) -> str:
    if not isinstance(command, str) or not command.strip():
        raise UsageError(
            f"a shell command in quotes expected, {errors.shown(repr(command))} was given", hint='type: .run("uptime")'
        )
    return command


# --- hosts ------------------------------------------------------------------------------------------------------

Opener = Callable[[], Session]


class HostObject(Named):
    """A host: `.run("uptime")`, `.ssh` (the line to type), `.host` (what the inventory says)."""

    host: Host

    def __init__(self, host: Host, opened: Opener) -> None:
        self.host = host
        self.name = host.name
        self._opened = opened

    def run(self, command: str, timeout: float | str = 0) -> Answer:
        """A shell command on the host. timeout: seconds, or "5m"; default: `timeouts.command` of invoke.yaml."""
        machine = self._opened().machine(self.name)
        within = _seconds(timeout, machine.settings.timeouts.command)
        return Answer(machine.run(["sh", "-c", _command(command)], timeout=within, check=False))

    @property
    def ssh(self) -> Text:
        return Text(self._opened().machine(self.name).transport.ssh_line())

    def __repr__(self) -> str:
        return "  ".join(cell for cell in ui.inventory_row(self.host) if cell != "-")


class Hosts:
    """`hosts["node1"]`, `hosts["rack1:!node2"]`, `hosts.each("uptime")`; iterating gives every host."""

    def __init__(self, inventory: Inventory, opened: Opener) -> None:
        self._inventory = inventory
        self._opened = opened

    @property
    def names(self) -> list[str]:
        return [host.name for host in self._inventory.hosts]

    def __getitem__(self, wanted: str | int) -> HostObject | Hosts:
        """A host by its name or place; hosts by any other pattern that --limit takes."""
        if isinstance(wanted, int):
            return _at(list(self), wanted, "hosts")
        if not isinstance(wanted, str) or not wanted:
            raise UsageError(
                f"hosts[{errors.shown(repr(wanted))}]: a name or a pattern expected",
                hint=f"hosts: {folded(self.names)}",
            )
        for host in self._inventory.hosts:
            if host.name == wanted:
                return HostObject(host, self._opened)
        return Hosts(_limited(self._inventory, wanted), self._opened)

    def __iter__(self) -> Iterator[HostObject]:
        return (HostObject(host, self._opened) for host in self._inventory.hosts)

    def __len__(self) -> int:
        return len(self._inventory.hosts)

    def _ipython_key_completions_(self) -> list[str]:
        groups = dict.fromkeys(group for host in self._inventory.hosts for group in host.groups)
        return [*self.names, *(group for group in groups if group not in self.names)]

    def each(self, command: str, timeout: float | str = 0) -> Answers:
        """A shell command on all hosts at once. timeout: as of `run`, for each host."""
        session = replace(self._opened(), inventory=self._inventory)
        within = _seconds(timeout, session.settings.timeouts.command)
        return Answers(everyone.ask(session, _command(command), timeout=within))

    def __repr__(self) -> str:
        return ui.table_text(ui.INVENTORY, map(ui.inventory_row, self._inventory.hosts))


def _limited(inventory: Inventory, pattern: str) -> Inventory:
    try:
        return load.limit(inventory, [pattern])
    except UsageError as error:
        raise UsageError(error.what.removeprefix("--limit "), where=error.where, hint=error.hint) from None


def _at(found: Sequence[T], place: int, what: str) -> T:
    if -len(found) <= place < len(found):
        return found[place]
    raise UsageError(f"no {what}[{place}]: there {'is' if len(found) == 1 else 'are'} {len(found)}")


# --- what is up -------------------------------------------------------------------------------------------------


class Seat(Named):
    """A container of ours: `.logs()`, `.state`, `.host`, `.run`, `.arm`."""

    container: Container
    role: str
    host: str
    run: str
    arm: str
    owner: str

    def __init__(self, machine: Machine, container: Container) -> None:
        labels = container.labels
        self._machine = machine
        self.container = container
        self.name = seat_of(container)
        self.host = machine.name
        self.role, self.run, self.arm = labels.get("role", ""), labels["run"], labels.get("arm", "")
        self.owner = labels.get("owner", "?")

    @property
    def state(self) -> str:
        """As it was when the host was asked."""
        return self.container.status

    def logs(self, lines: int = 100) -> Text:
        """The last lines of its log as it is now, with times; 0 is all of it."""
        return Text(collect.tail(self._machine, self.container, lines))

    def __repr__(self) -> str:
        return f"{self.name} on {self.host}  {self.state}\nrun {self.run}"


class Seats:
    """Containers of ours, by place (`[0]`) or name (`["decode0"]`), and why some hosts could not say theirs."""

    lost: tuple[FleetError, ...]

    def __init__(self, found: Sequence[Seat], lost: Sequence[FleetError] = (), what: str = "deployment") -> None:
        self._found, self._what = tuple(found), what
        self.lost = tuple(lost)

    def __getitem__(self, wanted: int | str) -> Seat:
        if isinstance(wanted, str):
            named = [seat for seat in self._found if seat.name == wanted]
            shown, near = wanted, did_you_mean(wanted, [seat.name for seat in self._found])
        else:
            named = list(self._found[wanted:][:1] if -len(self) <= wanted else ())
            shown, near = f"{self._what}[{wanted}]", ""
        if not named:
            raise UsageError(f"no {shown} of ours runs on {self._who()}{near}", hint="\n".join(_said(self.lost)))
        return named[0]

    def _who(self) -> str:
        return "the hosts that answered" if self.lost else "these hosts"

    def _of(self, role: str) -> Seats:
        found = sorted((seat for seat in self._found if seat.role == role), key=lambda seat: seat.name)
        return Seats(found, self.lost, role)

    def __iter__(self) -> Iterator[Seat]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        runs = dict.fromkeys((seat.run, seat.owner) for seat in self._found)
        blocks = [self._block(run, owner) for run, owner in runs]
        nothing = f"nothing of ours runs on {self._who()}"
        return "\n".join([*(blocks or [nothing]), *_said(self.lost)])

    def _block(self, run: str, owner: str) -> str:
        seats = [seat for seat in self._found if (seat.run, seat.owner) == (run, owner)]
        rows = ((seat.host, seat.name, seat.state, seat.arm) for seat in seats)
        return f"run {run} of {owner}\n" + ui.table_text(("host", "seat", "state", "arm"), rows)


class Deployment:
    """What runs now: `deployment.decode[0]`, `deployment["router"]`, `deployment.seats`; hosts are asked each time."""

    def __init__(self, opened: Opener) -> None:
        self._opened = opened

    @property
    def seats(self) -> Seats:
        return seats(self._opened())

    @property
    def prefill(self) -> Seats:
        return self.seats._of("prefill")

    @property
    def decode(self) -> Seats:
        return self.seats._of("decode")

    @property
    def server(self) -> Seats:
        return self.seats._of("server")

    @property
    def router(self) -> Seat:
        return self.seats["router"]

    @property
    def client(self) -> Seat:
        return self.seats["client"]

    def __getitem__(self, wanted: int | str) -> Seat:
        return self.seats[wanted]

    def __iter__(self) -> Iterator[Seat]:
        return iter(self.seats)

    def __len__(self) -> int:
        return len(self.seats)

    def __repr__(self) -> str:
        try:
            return repr(self.seats)
        except FleetError as error:
            return str(error)


def seats(session: Session, *, timeout: float = 0, **labels: str) -> Seats:
    """Our containers with these labels on all hosts of a session. timeout: seconds for all of them together."""

    def act(machine: Machine) -> list[Seat]:
        found = sorted(teardown.ours(machine, **labels), key=seat_of)
        return [Seat(session.machine(machine.name), one) for one in found]

    answers = session.each(session.names, act, timeout=timeout)
    lost = [answer for answer in answers.values() if isinstance(answer, FleetError)]
    return Seats([seat for answer in answers.values() if isinstance(answer, list) for seat in answer], lost)


# --- runs and recipes -------------------------------------------------------------------------------------------


class Run(Named):
    """A run under results/: `.records`, `.summary`, `.plan`, `.path`."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.name = folder.name

    @property
    def path(self) -> Path:
        return self._folder.path

    @property
    def records(self) -> tuple[Record, ...]:
        return self._folder.records()

    @property
    def summary(self) -> Text:
        return _read(self._folder.summary_text)

    @property
    def plan(self) -> Text:
        return _read(self._folder.plan_text)

    @property
    def _told(self) -> Mapping[str, Any]:
        """What summary.json says; nothing before the first point."""
        try:
            told = json.loads(self._folder.summary_json.read_text())
        except (OSError, ValueError):
            return {}
        return told if isinstance(told, dict) else {}

    def _row(self) -> tuple[str, str, str]:
        """Its name, how many of its points are valid, and what keeps it from being a measurement."""
        told = self._told
        planned = told.get("planned")
        points = told.get("points") if planned is None else planned
        marks = [mark for mark in ("double", "trial") if told.get(mark)]
        return self.name, f"{told['valid']} of {points}" if "valid" in told else "-", " ".join(marks).upper()

    def __repr__(self) -> str:
        try:
            records = self.records
        except FleetError as error:
            return f"run {self.name}\n{error}"
        return "\n".join([f"run {self.name}", *self._lines(records), f"in {self.path}"])

    def _lines(self, records: Sequence[Record]) -> Iterator[str]:
        if not records:
            yield "no point has run"
            return
        yield from filter(None, [report.banner(records)])
        yield f"{self._row()[1]} points valid"
        rows = report.rows(records)
        for arm in dict.fromkeys(row.arm for row in rows):
            yield f"arm {arm}"
            yield _points([row for row in rows if row.arm == arm])
        for row in rows:
            yield from (f"{row.point}: {reason}" for reason in row.reasons)


def _points(rows: Sequence[report.Row]) -> str:
    places = [at for at, column in enumerate(report.COLUMNS) if column.field in RUN_COLUMNS]
    titles = ("conc", "verdict", *(report.COLUMNS[at].title for at in places))
    return ui.table_text(titles, ((row.conc, row.verdict, *(row.cells[at] for at in places)) for row in rows))


def _read(path: Path) -> Text:
    try:
        return Text(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FleetError(error.strerror or str(error), where=str(path)) from None


class Results:
    """All runs, oldest first: `results.latest`, `results["20261201"]` (the beginning of a name), `results[-1]`."""

    def __init__(self, root: Callable[[], Path]) -> None:
        self._root = root

    @property
    def names(self) -> list[str]:
        return store.runs(self._root())

    @property
    def latest(self) -> Run:
        return self[LATEST]

    def __getitem__(self, wanted: str | int) -> Run:
        if isinstance(wanted, int):
            wanted = _at(self.names, wanted, "results")
        if not isinstance(wanted, str):
            raise UsageError(
                f"results[{errors.shown(repr(wanted))}]: a run's name, the beginning of it, or its place expected"
            )
        return Run(store.open(self._root(), wanted))

    def __iter__(self) -> Iterator[Run]:
        return (self[name] for name in self.names)

    def __len__(self) -> int:
        return len(self.names)

    def _ipython_key_completions_(self) -> list[str]:
        names = self.names
        return [LATEST, *names] if names else []

    def __repr__(self) -> str:
        names = self.names
        if not names:
            return f"no run yet in {self._root()}"
        runs = [self[name] for name in names[-SHOWN_RUNS:]]
        table = ui.table_text(("run", "valid", ""), (run._row() for run in runs))
        earlier = len(names) - len(runs)
        return f"{earlier} earlier: results.names\n{table}" if earlier else table


class Recipes:
    """All config keys; `recipes["KEY"]` is the recipe with its `extends` resolved."""

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._folder = folder

    @property
    def names(self) -> list[str]:
        return load.recipe_keys(self._folder())

    def __getitem__(self, key: str | int) -> Text:
        if isinstance(key, int):
            key = _at(self.names, key, "recipes")
        return Text(load.resolved(load.recipe(str(key), self._folder())))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def _ipython_key_completions_(self) -> list[str]:
        return self.names

    def __repr__(self) -> str:
        return ui.table_text(("recipe", "framework", "runner"), map(self._row, self.names)) if self.names else "none"

    def _row(self, key: str) -> tuple[str, str, str]:
        try:
            config = load.recipe(key, self._folder()).config
        except FleetError:
            return key, "faulty", f'plan("{key}") tells'
        return key, config.framework, config.runner
