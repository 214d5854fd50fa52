"""The only module that prints: messages, tables, and the live view of a sweep."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from fleet.errors import FleetError
from fleet.progress import Progress
from fleet.results.record import Record
from fleet.results.report import record_line

WIDTH = 100


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
    """Left-aligned columns with two spaces between, no lines: as easy to read as to cut."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", collapse_padding=True)
    for column in columns:
        shown.add_column(column, no_wrap=True, overflow="ignore")
    for row in rows:
        shown.add_row(*(Text(str(cell)) for cell in row))
    out = console()
    if not sys.stdout.isatty():
        out.width = max(WIDTH, out.measure(shown).maximum)
    out.print(shown)


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

    def point(self, point: str, finished: float, total: int) -> None:
        pass

    def record(self, record: Record) -> None:
        self.line(f"  {record_line(record)}")

    def close(self) -> None:
        pass


class Screen:
    """A terminal: what is over scrolls up, below it one live line a host and one bar for the running point."""

    def __init__(self) -> None:
        self._console = console()
        self._lock = threading.Lock()
        self._hosts: dict[str, str] = {}
        self._bars = Bars(
            TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("requests"), TimeRemainingColumn()
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

    def point(self, point: str, finished: float, total: int) -> None:
        with self._lock:
            task = next((task for task in self._bars.tasks if task.description == point), None)
            if task is None:
                self._forget_bars()
                self._bars.add_task(point, total=total, completed=int(finished))
            else:
                self._bars.update(task.id, completed=int(finished))
            self._redraw()

    def _forget_bars(self) -> None:
        for task in list(self._bars.tasks):
            self._bars.remove_task(task.id)

    def record(self, record: Record) -> None:
        with self._lock:
            self._forget_bars()
            self._live.console.print(Text(f"  {record_line(record)}"))
            self._redraw()

    def close(self) -> None:
        with self._lock:
            self._forget_bars()
            self._hosts.clear()
            self._redraw()
        self._live.stop()


def progress() -> Progress:
    """Live on a terminal, plain lines elsewhere and under CI=1."""
    return Screen() if sys.stdout.isatty() and not os.environ.get("CI") else Plain()
