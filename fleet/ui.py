"""The only module that prints: messages, tables, and the live view of a sweep."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from fleet.docker import Container, Image
from fleet.errors import FleetError
from fleet.model.hostrange import folded
from fleet.model.inventory import Host
from fleet.progress import Progress
from fleet.results import report
from fleet.results.record import Record
from fleet.stages import everyone
from fleet.stages import health as healths
from fleet.stages.health import Health, HostHealth
from fleet.stages.preflight import Findings
from fleet.words import counted

WIDTH = 100
UNBOUNDED = 10_000


def console(stream: TextIO | None = None) -> Console:
    """A console on stdout; 100 columns wide where no terminal says otherwise."""
    out = stream or sys.stdout
    return Console(file=out, highlight=False, soft_wrap=True, width=None if out.isatty() else WIDTH)


def say(text: str) -> None:
    print(text, flush=True)


def complain(error: FleetError) -> None:
    print(str(error), file=sys.stderr, flush=True)


def as_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False), flush=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Left-aligned columns with two spaces between, no lines, nothing cut off: as easy to read as to cut."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        shown.add_column(column, no_wrap=True)
    for row in rows:
        shown.add_row(*(Text(str(cell)) for cell in row))
    out = console()
    out.width = UNBOUNDED
    with out.capture() as text:
        out.print(shown)
    say("\n".join(line.rstrip() for line in text.get().rstrip("\n").split("\n")))


def record_line(record: Record) -> str:
    """A point in a line: what it is, whether it may be believed, its headline numbers or the first reason why not."""
    (row,) = report.rows([record])
    head = f"conc {row.conc:>4}  {row.verdict:<10}"
    if not record.valid:
        return f"{head}  {row.reasons[0] if row.reasons else ''}"
    out, _, inter, ttft, _, _, accept = row.cells
    told = f"{head}  out {out} tok/s/GPU   inter {inter} tok/s/user   TTFT p50 {ttft} ms"
    return told + (f"   accept {accept}" if record.depth else "")


def results(records: Sequence[Record]) -> None:
    """The result table of a run, and every reason of every point that is not valid."""
    if not records:
        say("no point has run")
        return
    shown = report.rows(records)
    if warning := report.banner(records):
        say(f"\n{warning}")
    titles = ("arm", "conc", "verdict", *(column.title for column in report.COLUMNS))
    table(titles, ((row.arm, row.conc, row.verdict, *row.cells) for row in shown))
    for row in shown:
        for reason in row.reasons:
            say(f"{row.point}: {reason}")


def containers(found: Sequence[tuple[str, Container]], asked: Sequence[str]) -> None:
    """What runs where: ours by run and seat, strangers' by name. asked: the hosts that answered."""
    if not found:
        say(f"no container on {', '.join(asked)}" if asked else "no host answered")
        return
    titles = ("host", "seat", "state", "run", "owner", "container", "image")
    table(titles, (_container_row(host, one) for host, one in found))


def _container_row(host: str, one: Container) -> tuple[str, ...]:
    labels = one.labels
    seat = healths.seat_of(one) if one.ours else "stranger"
    return host, seat, one.status, labels.get("run", "-"), labels.get("owner", "-"), one.name, one.image


def groups(found: Sequence[everyone.Group], *, asked: int) -> None:
    """Each answer once, below the hosts that gave it; what all say alike says so."""
    for group in found:
        count = "" if len(group.hosts) == 1 else f"  ({'all ' if len(group.hosts) == asked else ''}{len(group.hosts)})"
        code = f"  exit {group.code}" if group.code else ""
        say(f"==> {folded(group.hosts)}{count}{code}" + (f"\n{group.text}" if group.text else ""))


def hosts(found: Sequence[Host]) -> None:
    """An inventory: where each host is and what it is for."""
    table(("host", "login", "GPUs", "groups", "runners"), map(_inventory_row, found))


def _inventory_row(host: Host) -> tuple[str, ...]:
    login = f"{host.user}@" if host.user else ""
    port = f":{host.port}" if host.port else ""
    gpus = f"{host.gpus} × {host.gpu or host.accelerator}" if host.gpus else "-"
    groups, runners = " ".join(host.groups) or "-", " ".join(host.runners) or "-"
    return host.name, f"{login}{host.address or host.name}{port}", gpus, groups, runners


@dataclass(frozen=True)
class Fit:
    """A recipe on an inventory: the hosts of its runner, and what it comes to there or why it cannot run."""

    key: str
    runner: str
    hosts: tuple[str, ...]
    arms: int = 0
    points: int = 0
    reasons: tuple[str, ...] = ()


def fits(found: Sequence[Fit]) -> None:
    """Recipes against hosts, then the reasons of those that cannot run."""
    table(("recipe", "runner", "hosts", "runs"), map(_fit_row, found))
    for fit in found:
        for reason in fit.reasons:
            say(f"{fit.key}: {reason}")


def _fit_row(fit: Fit) -> tuple[str, ...]:
    runs = "no" if fit.reasons else f"{counted(fit.arms, 'arm')}, {counted(fit.points, 'point')}"
    return fit.key, fit.runner, folded(fit.hosts) or "-", runs


def entries(found: Sequence[dict[str, Any]]) -> None:
    """Matrix entries as a table; --json has all their fields."""
    titles = ("exp-name", "isl/osl", "conc", "prefill", "decode", "tp", "spec", "eval", "image")
    table(titles, map(_entry_row, found))
    say(f"{counted(len(found), 'entry', 'entries')}; all fields: --json")


def _entry_row(entry: dict[str, Any]) -> tuple[str, ...]:
    conc = entry.get("conc", "-")
    shown = " ".join(map(str, conc)) if isinstance(conc, list) else str(conc)
    marked = entry.get("eval-conc", entry.get("run-eval", "-"))
    lengths = f"{entry.get('isl', '-')}/{entry.get('osl', '-')}"
    roles = tuple(_workers(entry.get(role)) for role in ("prefill", "decode"))
    return (
        str(entry.get("exp-name", "-")), lengths, shown, *roles, str(entry.get("tp", "-")),
        str(entry.get("spec-decoding", "-")), str(marked), str(entry.get("image", "-")),
    )  # fmt: skip


def _workers(block: Any) -> str:
    if not isinstance(block, dict):
        return "-"
    return f"{block['num-worker']} × tp{block['tp']}" + (" dpa" if block.get("dp-attn") else "")


def health(found: Health) -> None:
    """Hosts, then running services, then what is wrong in words."""
    titles = ("host", "ssh", "docker", "GPUs", "disk free", "image", "model", "running")
    table(titles, (_host_row(host, found) for host in found.hosts))
    if found.services:
        say("")
        rows = [
            (one.host, one.name, one.state, one.fault or "well", ", ".join(one.asked), one.run)
            for one in found.services
        ]
        table(("host", "service", "state", "answer", "asked", "run"), rows)
    for host in found.hosts:
        for why in (*((host.error,) if host.error else ()), *(f"{host.name}: {fault}" for fault in host.faults)):
            say(why)
        if host.strangers:
            say(f"{host.name}: strangers (not touched): {', '.join(host.strangers)}")
    for why in found.models:
        say(why)
    well = sum(host.well for host in found.hosts)
    apart = ", models are not the same" if found.models else ""
    say(f"{well} of {len(found.hosts)} hosts healthy{apart}" + ("" if found.well else f" (exit {found.code})"))


def _host_row(host: HostHealth, found: Health) -> tuple[str, ...]:
    finding = host.findings
    if finding is None:
        return (host.name, "yes" if host.reached else "no", *["-"] * 6)
    images = list(finding.images.values())
    image = "-" if not images else " ".join(_image(one) for one in images)
    models = list(finding.models.values())
    model = "-" if not models else ", ".join(counted(one.files, "file") if one else "missing" for one in models)
    ours = [healths.seat_of(one) for one in finding.ours]
    return (
        host.name, f"{finding.seconds * 1000:.0f} ms", finding.docker + (" sudo" if finding.sudo else ""),
        _gpus(finding), f"{max(finding.disk.values(), default=0) / 1e9:.0f} GB", image, model, " ".join(ours) or "-",
    )  # fmt: skip


def _image(one: Image | None) -> str:
    if one is None:
        return "missing"
    return one.id.removeprefix("sha256:")[:6] + (" DOUBLE" if one.double else "")


def _gpus(finding: Findings) -> str:
    if not finding.gpus:
        return "none"
    busy = sum(gpu.share > 0.1 for gpu in finding.gpus)
    return f"{len(finding.gpus)} idle" if not busy else f"{busy} of {len(finding.gpus)} busy"


class Plain:
    """One event, one line: for pipes, logs and CI."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._lock = threading.Lock()

    def line(self, text: str) -> None:
        with self._lock:
            print(text, file=self._stream, flush=True)

    def host(self, stage: str, host: str, text: str, *, done: bool = False) -> None:
        if done:
            self.line(f"  {stage:<9}  {host:<10}  {text}")

    def requests(self, what: str, finished: float, total: int) -> None:
        pass

    def record(self, record: Record) -> None:
        self.line(f"  {record_line(record)}")

    def clear(self) -> None:
        pass

    def close(self) -> None:
        pass


class Screen:
    """A terminal: what is over scrolls up, below it one live line a host and one bar for the arm."""

    def __init__(self) -> None:
        self._console = console()
        self._lock = threading.Lock()
        self._hosts: dict[str, str] = {}
        self._bars = Bars(
            TextColumn("  {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("requests"),
            TimeRemainingColumn(),
        )
        self._live = Live(Group(), console=self._console, refresh_per_second=4, transient=True)
        self._live.start()

    def _redraw(self) -> None:
        lines = [Text(line, no_wrap=True, overflow="ellipsis") for line in self._hosts.values()]
        self._live.update(Group(*lines, self._bars) if self._bars.tasks else Group(*lines))

    def line(self, text: str) -> None:
        with self._lock:
            self._live.console.print(Text(text))

    def host(self, stage: str, host: str, text: str, *, done: bool = False) -> None:
        shown = f"  {stage:<9}  {host:<10}  {text}"
        with self._lock:
            if done:
                self._hosts.pop(host, None)
                self._live.console.print(Text(shown))
            else:
                self._hosts[host] = shown
            self._redraw()

    def requests(self, what: str, finished: float, total: int) -> None:
        with self._lock:
            if not self._bars.tasks:
                self._bars.add_task(what, total=total)
            self._bars.update(self._bars.tasks[0].id, description=what, completed=int(finished), total=total)
            self._redraw()

    def _forget_bars(self) -> None:
        for task in list(self._bars.tasks):
            self._bars.remove_task(task.id)

    def record(self, record: Record) -> None:
        with self._lock:
            self._live.console.print(Text(f"  {record_line(record)}"))
            self._redraw()

    def clear(self) -> None:
        with self._lock:
            self._forget_bars()
            self._hosts.clear()
            self._redraw()

    def close(self) -> None:
        self.clear()
        self._live.stop()


def progress(*, json: bool = False) -> Progress:
    """Live on a terminal, plain lines elsewhere and under CI=1. json: stdout is for JSON, so lines go to stderr."""
    if json:
        return Plain(sys.stderr)
    return Screen() if sys.stdout.isatty() and not os.environ.get("CI") else Plain()
