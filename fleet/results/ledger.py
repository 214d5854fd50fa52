"""What is in results/: of each run its config, image, date and verdicts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from fleet.model.base import Model
from fleet.results.record import Record, latest
from fleet.results.state import RunState
from fleet.words import counted

How = Literal["under way", "crashed", "ended", "damaged"]


class Entry(Model):
    """One run. started: UTC, ISO 8601, "" where nothing tells. planned: None where nothing tells. incomplete: points
    that were stopped or left no result. missing: points without a record. fault: why it cannot be read.
    """

    run: str
    key: str
    started: str
    how: How
    images: tuple[str, ...] = ()
    planned: int | None = None
    valid: int = 0
    invalid: int = 0
    incomplete: int = 0
    missing: int | None = None
    repeats: int = 1
    marks: tuple[str, ...] = ()
    fault: str = ""

    @property
    def verdicts(self) -> str:
        """`8 of 11 valid, 2 invalid, 1 missing`."""
        if self.fault:
            return f"damaged: {self.fault}"
        total = self.planned if self.planned is not None else self.valid + self.invalid + self.incomplete
        told = [f"{self.valid} of {total} valid"]
        told += [f"{self.invalid} invalid"] if self.invalid else []
        told += [f"{self.incomplete} incomplete"] if self.incomplete else []
        told += [f"{self.missing} missing"] if self.missing else []
        return ", ".join(told)


def entry(run: str, key: str, records: Sequence[Record], state: RunState | None, *, driven: bool) -> Entry:
    """key: as the folder's name tells. driven: a process holds the run."""
    points = latest(records)
    valid = sum(record.valid for record in points)
    done = sum(record.state == "done" for record in points)
    crashed = state is not None and not state.ended
    began = state.drives[0].begun if state and state.drives else ""
    trial = ("TRIAL",) if state and state.trial else ()
    return Entry(
        run=run,
        key=state.key if state else points[0].key if points else key,
        started=began or (points[0].started if points else ""),
        how="under way" if driven else "crashed" if crashed else "ended",
        images=tuple(dict.fromkeys(record.image.tag for record in points)),
        planned=state.planned if state else None,
        valid=valid,
        invalid=done - valid,
        incomplete=len(points) - done,
        missing=max(0, state.planned - len(points)) if state else None,
        repeats=state.repeats.count if state else 1,
        marks=tuple(sorted({*trial, *(mark for record in points for mark in record.marks)})),
    )


def damaged(run: str, key: str, why: str) -> Entry:
    return Entry(run=run, key=key, started="", how="damaged", fault=why)


def table(entries: Iterable[Entry]) -> list[tuple[str, ...]]:
    """Rows for HEAD; runs of one config stand together, the oldest first."""
    rows: list[tuple[str, ...]] = []
    for one in sorted(entries, key=lambda one: (one.key, one.run)):
        what = one.verdicts + (f", {counted(one.repeats, 'repeat')}" if one.repeats > 1 else "")
        when = one.started[:16].replace("T", " ")
        rows.append((one.key, when or "-", one.run, what, one.how, " ".join(one.marks), ", ".join(one.images) or "-"))
    return rows


HEAD = ("config", "started (UTC)", "run", "points", "how", "", "image")
