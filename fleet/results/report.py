"""Records as tables, summaries and comparisons. Pure; invalid points are shown and never counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.errors import harmless
from fleet.model.base import Model
from fleet.results.record import SCHEMA_VERSION, Figures, Record, latest


class RunFacts(Model):
    """What a summary says of the run itself. ended_early: why, a line each. notes: lines to show as they are
    (deviations, dropped points).
    """

    run: str
    key: str
    plan: str
    image: str
    hosts: tuple[str, ...] = ()
    started: str = ""
    ended: str = ""
    planned: int | None = None
    torn: bool = False
    trial: bool = False
    ended_early: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Column:
    """One column: its name and unit, where its figure is, and how many decimals it shows."""

    name: str
    unit: str
    field: str
    decimals: int

    @property
    def title(self) -> str:
        return f"{self.name} {self.unit}".strip()


COLUMNS = (
    Column("out", "tok/s/GPU", "output_tput_per_gpu", 1),
    Column("in", "tok/s/GPU", "input_tput_per_gpu", 1),
    Column("inter", "tok/s/user", "median_intvty", 1),
    Column("TTFT p50", "ms", "median_ttft_ms", 1),
    Column("TTFT p99", "ms", "p99_ttft_ms", 1),
    Column("TPOT p50", "ms", "median_tpot_ms", 2),
    Column("accept", "", "acceptance_length", 2),
)

SPARED = ("input_tput_per_gpu", "median_tpot_ms", "p99_ttft_ms")
"""Fields of the columns that a narrow screen goes without, the first to go first."""


@dataclass(frozen=True)
class Row:
    """One point as a table shows it. `cells` follow COLUMNS, "-" where nothing was measured. `counts`: not greyed."""

    arm: str
    point: str
    conc: str
    verdict: str
    counts: bool
    cells: tuple[str, ...]
    reasons: tuple[str, ...]
    figures: Figures


def rows(records: Sequence[Record]) -> tuple[Row, ...]:
    """A row for each point, of its last record, in the order the points first ran."""
    return tuple(_row(record) for record in latest(records))


def banner(records: Sequence[Record]) -> str:
    """ "DOUBLE, TRIAL: not a measurement" if any record is one, else ""."""
    found = {mark for record in records for mark in record.marks}
    return f"{', '.join(sorted(found))}: not a measurement" if found else ""


def best(records: Sequence[Record]) -> tuple[str, ...]:
    """For each arm with a valid point: its highest output per GPU and its highest interactivity, each with its conc."""
    arms = dict.fromkeys(record.arm for record in records)
    return tuple(line for arm in arms if (line := _best_of(arm, latest(records))))


def superseded(records: Sequence[Record]) -> tuple[str, ...]:
    """A line for each point that was run again: which of its records counts."""
    return tuple(
        f"{last.point}: attempt {last.attempt} counts, earlier ones are superseded (kept in points.jsonl)"
        for last in latest(records)
        if last.attempt > 1
    )


def comparable(a: Record, b: Record) -> str | None:
    """Why two points may not be compared, or None if they may."""
    for record in (a, b):
        if not record.valid:
            return f"{record.point} of {record.run} is {_verdict(record)}"
    if a.double != b.double:
        return f"{_which(a, b, a.double)} was served by a double, the other by a real engine"
    if a.trial != b.trial:
        return f"{_which(a, b, a.trial)} is a trial, the other a whole point"
    if (a.isl, a.osl) != (b.isl, b.osl):
        return f"different lengths: {a.isl}/{a.osl} and {b.isl}/{b.osl}"
    return None


def summary_markdown(facts: RunFacts, records: Sequence[Record]) -> str:
    """The run in a page: what ran, the table, the best valid points, and every invalid point with its reasons."""
    shown = rows(records)
    parts = [
        _head(facts, records),
        _list("Ended early", facts.ended_early),
        _table(shown, over=bool(facts.ended_early)),
    ]
    notes = (*superseded(records), *facts.notes)
    parts += [_list("Best valid points", best(records)), _invalid(shown), _list("Notes", notes)]
    return harmless("\n\n".join(part for part in parts if part)) + "\n"


def summary_json(facts: RunFacts, records: Sequence[Record]) -> dict[str, Any]:
    """The same for programs. `valid` and `points` count each point once; every point carries its verdict."""
    points = latest(records)
    return {
        "schema_version": SCHEMA_VERSION,
        **facts.model_dump(mode="json"),
        "measurement": not (banner(points) or facts.trial),
        "double": any(record.double for record in points),
        "trial": facts.trial or any(record.trial for record in points),
        "points": len(points),
        "valid": sum(record.valid for record in points),
        "results": [_result(record) for record in points],
    }


def _row(record: Record) -> Row:
    cells = tuple(_cell(getattr(record.figures, column.field), column.decimals) for column in COLUMNS)
    conc = str(record.conc) if record.conc == record.asked else f"{record.conc} (of {record.asked})"
    return Row(
        arm=record.arm,
        point=record.point,
        conc=conc + (f" #{record.repeat + 1}" if record.repeat else ""),
        verdict=_verdict(record),
        counts=record.valid,
        cells=cells,
        reasons=record.verdict.reasons,
        figures=record.figures,
    )


def _verdict(record: Record) -> str:
    if record.state != "done":
        return record.state
    return "valid" if record.verdict.valid else "invalid"


def _cell(value: float | None, decimals: int) -> str:
    return "-" if value is None else f"{value:.{decimals}f}"


def _head(facts: RunFacts, records: Sequence[Record]) -> str:
    points = latest(records)
    valid = sum(record.valid for record in points)
    lines = [f"# {facts.key}", "", f"run {facts.run}, plan {facts.plan[:6]}"]
    if warning := banner(points) or ("TRIAL: not a measurement" if facts.trial else ""):
        lines[2:2] = [f"**{warning}**", ""]
    lines += [f"image {facts.image}"]
    lines += [f"hosts {' '.join(facts.hosts)}"] if facts.hosts else []
    lines += [f"from {facts.started} to {facts.ended or 'now'}"] if facts.started else []
    lines += [f"{valid} of {len(points) if facts.planned is None else facts.planned} points valid"]
    lines += ["the last line of points.jsonl was cut off and is left out"] if facts.torn else []
    # Two blanks at the end of a line are Markdown's line break.
    return "\n".join(lines[:2] + [line + "  " if line and not line.startswith("*") else line for line in lines[2:]])


def _table(shown: Sequence[Row], *, over: bool) -> str:
    if not shown:
        return "No point has run." if over else "No point has run yet."
    titles = ["arm", "conc", "verdict", *(column.title for column in COLUMNS)]
    lines = [_line(titles), _line(["---", "---:", "---", *["---:"] * len(COLUMNS)])]
    return "\n".join(lines + [_line([row.arm, row.conc, row.verdict, *_greyed(row)]) for row in shown])


def _greyed(row: Row) -> list[str]:
    return [cell if row.counts or cell == "-" else f"~~{cell}~~" for cell in row.cells]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _invalid(shown: Sequence[Row]) -> str:
    lines = [f"{row.point} ({row.verdict}): {'; '.join(row.reasons) or row.verdict}" for row in shown if not row.counts]
    return _list("Not valid, and in no figure above", lines)


def _list(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"## {title}", "", *(f"- {harmless(line, keep='')}" for line in lines)]) if lines else ""


def _best_of(arm: str, records: Sequence[Record]) -> str:
    valid = [record for record in records if record.arm == arm and record.valid]
    wanted: tuple[tuple[str, Callable[[Figures], float | None]], ...] = (
        ("out tok/s/GPU", lambda figures: figures.output_tput_per_gpu),
        ("inter tok/s/user", lambda figures: figures.median_intvty),
    )
    found = [text for unit, value in wanted if (text := _top(valid, unit, value))]
    return f"{arm}: {', '.join(found)}" if found else ""


def _top(records: Sequence[Record], unit: str, value: Callable[[Figures], float | None]) -> str:
    having = [(number, record) for record in records if (number := value(record.figures)) is not None]
    if not having:
        return ""
    number, record = max(having, key=lambda pair: pair[0])
    return f"{number:.1f} {unit} at conc {record.conc}"


def _result(record: Record) -> dict[str, Any]:
    keep = {
        "point",
        "arm",
        "conc",
        "asked",
        "repeat",
        "attempt",
        "state",
        "double",
        "trial",
        "raw",
        "agg",
        "logs",
        "reproduce",
    }
    return {
        **record.model_dump(mode="json", include=keep),
        "valid": record.valid,
        "reasons": list(record.verdict.reasons),
        "figures": record.figures.model_dump(mode="json"),
    }


def _which(a: Record, b: Record, first: bool) -> str:
    record = a if first else b
    return f"{record.point} of {record.run}"
