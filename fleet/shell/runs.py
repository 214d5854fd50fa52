"""Runs and recipes in a console. Their folders are read at each use."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fleet import errors, ui
from fleet.errors import FleetError, UsageError
from fleet.model import load
from fleet.results import report, store
from fleet.results.record import Record
from fleet.results.store import LATEST, RunFolder
from fleet.shell.shown import Named, Text, at

SHOWN_RUNS = 10
"""So many of the latest runs are in the table of all."""

WIDTH = 80
"""What a run shows of itself fits a narrow screen."""
"""The figures of a run that stand beside each other in 80 columns; its summary has all."""


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
        return "\n".join([f"run {self.name}", *self._lines(records), *self._folder.oddities(), f"in {self.path}"])

    def _lines(self, records: Sequence[Record]) -> Iterator[str]:
        if not records:
            yield "no point has run"
            return
        yield from filter(None, [report.banner(records)])
        valid = self._row()[1]
        yield f"{valid} points valid"
        rows = report.rows(records)
        yield ui.points(rows, WIDTH)
        yield from ui.reasons(rows)


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
            wanted = at(self.names, wanted, "results")
        if not isinstance(wanted, str):
            raise UsageError(
                f"results[{errors.shown(repr(wanted))}]: a run's name, the beginning of it, or its place expected",
                hint="type: results.latest, or results[-1]",
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
            key = at(self.names, key, "recipes")
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
