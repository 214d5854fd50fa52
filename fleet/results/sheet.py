"""Runs as flat rows: one a point, for tables, CSV, JSON and plots. Pure.

A figure per GPU says in its name which GPUs it is divided by. Points that are not valid have rows, too, marked as such.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleet.errors import harmless
from fleet.results.record import SCHEMA_VERSION, Record, latest
from fleet.words import counted

METRICS = ("ttft", "tpot", "itl", "e2el")
RANKS = ("mean", "median", "p90", "p99", "p99.9")
Value = str | float | int | bool | None

NOT_COUNTED = "not valid: shown, and in no figure"


@dataclass(frozen=True)
class Run:
    """A run as reports see it. latency: by point, the client's latencies in ms by their names in its result.

    notes, ended_early: lines of its summary. texts: its plan, recipe, inventory and facts by title, as they were kept.
    """

    name: str
    key: str
    records: tuple[Record, ...]
    latency: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    ended_early: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def points(self) -> tuple[Record, ...]:
        """Each point once: its last record."""
        return latest(self.records)

    @property
    def valid(self) -> tuple[Record, ...]:
        return tuple(record for record in self.points if record.valid)


@dataclass(frozen=True)
class Kind:
    """What points must share to stand in one picture: their marks, and the lengths in tokens."""

    marks: tuple[str, ...]
    isl: int
    osl: int

    @property
    def mark(self) -> str:
        return mark(self.marks)

    @property
    def title(self) -> str:
        return f"{self.isl}/{self.osl}"

    @property
    def stem(self) -> str:
        """As part of a file name."""
        return "-".join((str(self.isl), str(self.osl), *map(str.lower, self.marks)))


def mark(marks: Sequence[str]) -> str:
    return f"{', '.join(marks)}: not a measurement" if marks else ""


def marks(runs: Sequence[Run]) -> tuple[str, ...]:
    """What keeps any point of the runs from being a measurement."""
    return tuple(sorted({one for run in runs for record in run.points for one in record.marks}))


def kinds(runs: Sequence[Run]) -> dict[Kind, list[tuple[Run, Record]]]:
    """Points by what they may be pictured with, in the order of the runs."""
    found: dict[Kind, list[tuple[Run, Record]]] = {}
    for run in runs:
        for record in run.points:
            found.setdefault(Kind(record.marks, record.isl, record.osl), []).append((run, record))
    return found


def latencies(raw: Mapping[str, Any]) -> dict[str, float]:
    """The client's latencies in ms, as it names them; what is not there, or no finite number, is left out."""
    names = [f"{rank}_{metric}_ms" for metric in METRICS for rank in RANKS]
    return {name: float(raw[name]) for name in names if _finite(raw.get(name))}


def interactivity(latency: Mapping[str, float]) -> dict[str, float]:
    """Tokens/s a user sees: each the reciprocal of that TPOT, so p90 is the slow tail, and mean is no mean of rates."""
    found = {f"{rank}_intvty": latency.get(f"{rank}_tpot_ms") for rank in RANKS}
    return {name: 1000 / tpot for name, tpot in found.items() if tpot}


def positions(record: Record) -> tuple[float, ...]:
    """The share of drafting steps whose draft token at each position was accepted, first position first; () where the
    engine does not count by position. Summed over the workers."""
    steps = 0.0
    accepted: list[float] = []
    for evidence in record.evidence.values():
        before, after = evidence.before, evidence.after
        if not before or not after or not after.by_position or before.steps is None or after.steps is None:
            continue
        first = before.by_position or (0.0,) * len(after.by_position)
        moved = [last - begun for begun, last in zip(first, after.by_position, strict=False)]
        steps += after.steps - before.steps
        accepted = [sum(pair) for pair in zip(accepted or [0.0] * len(moved), moved, strict=False)]
    return tuple(one / steps for one in accepted) if steps > 0 else ()


def denominators(record: Record) -> str:
    """Which GPUs the figures per GPU of a point are divided by."""
    roles = {str(role): gpus for role, gpus in record.gpus.items() if gpus}
    total = counted(sum(roles.values()), "GPU")
    if not {"prefill", "decode"} & set(roles):
        return f"total, output and input by all {total}"
    out = "decode" if roles.get("decode") else "prefill"
    parts = (f"output by {roles.get(out, 0)} {out}", f"input by {roles.get('prefill', 0)} prefill")
    return f"total by all {total}, {', '.join(parts)}"


def row(run: Run, record: Record) -> dict[str, Value]:
    """A point, flat. Blank: not measured, or not of this kind of deployment."""
    figures, gpus = record.figures, {str(role): number for role, number in record.gpus.items()}
    apart = "decode" in gpus or "prefill" in gpus
    latency = run.latency.get(record.point, {})
    accepted = positions(record)
    return {
        "run": run.name,
        "config": record.key,
        "arm": record.arm,
        "point": record.point,
        "conc": record.conc,
        "asked_conc": record.asked,
        "repeat": record.repeat,
        "attempt": record.attempt,
        "state": record.state,
        "valid": record.valid,
        "measurement": not record.marks,
        "mark": " ".join(record.marks),
        "reasons": "; ".join(record.verdict.reasons),
        "isl": record.isl,
        "osl": record.osl,
        "spec": record.spec,
        "depth": record.depth,
        "image": record.image.tag,
        "image_id": record.image.id,
        "client": record.drawn.client if record.drawn else None,
        "requests_completed": record.completed,
        "requests_asked": record.prompts,
        "duration_s": record.duration_s,
        "gpus_total": sum(gpus.values()),
        "gpus_prefill": gpus.get("prefill"),
        "gpus_decode": gpus.get("decode"),
        "tokens_per_s_per_total_gpu": figures.tput_per_gpu,
        "output_tokens_per_s_per_total_gpu": None if apart else figures.output_tput_per_gpu,
        "input_tokens_per_s_per_total_gpu": None if apart else figures.input_tput_per_gpu,
        "output_tokens_per_s_per_decode_gpu": figures.output_tput_per_gpu if gpus.get("decode") else None,
        "input_tokens_per_s_per_prefill_gpu": figures.input_tput_per_gpu if gpus.get("prefill") else None,
        "acceptance_length": figures.acceptance_length,
        "acceptance_by_position": " ".join(f"{one:.4f}" for one in accepted),
        **{f"{rank}_intvty": interactivity(latency).get(f"{rank}_intvty") for rank in RANKS},
        **{f"{rank}_{metric}_ms": latency.get(f"{rank}_{metric}_ms") for metric in METRICS for rank in RANKS},
        "started": record.started,
        "ended": record.ended,
        "reproduce": record.reproduce,
    }


def csv_text(runs: Sequence[Run]) -> str:
    """The rows as CSV with a line of titles. No text in it is a formula to a spreadsheet."""
    rows = [row(run, record) for run in runs for record in run.points]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(rows[0] if rows else ("run",))
    writer.writerows([[_cell(value) for value in one.values()] for one in rows])
    return out.getvalue()


def as_json(runs: Sequence[Run]) -> dict[str, Any]:
    """Everything a report says, for programs. Each point carries its verdict, its gates and its marks."""
    found = marks(runs)
    return {
        "schema_version": SCHEMA_VERSION,
        "measurement": not found,
        "mark": mark(found),
        "unknown": list(unknown(runs)),
        "runs": [_run(run) for run in runs],
    }


def unknown(runs: Sequence[Run]) -> tuple[str, ...]:
    """What no point of these runs was judged by, as nothing tells it: a line each."""
    points = [record for run in runs for record in run.points]
    found = [
        "throttling, clocks, temperatures and power of the GPUs during a point: not read",
        "who else used the GPUs during a point: looked at before the run only",
        "whether the load client was the bottleneck: neither its CPU nor its queue is read",
        "the weights while the servers ran: looked at before the run only",
        "whether the answers are right: no evaluation ran",
    ]
    if any({"prefill", "decode"} <= set(record.gpus) for record in points):
        found += [
            "how many bytes of KV moved, and over which network: no counter tells. Judged instead: requests that both "
            "sides finished, and transfer errors that were logged"
        ]
    if any(record.spec != "none" and not positions(record) for record in points):
        found.append("acceptance by position, where it is not shown: the engine counts accepted tokens as a whole only")
    return tuple(found)


def _run(run: Run) -> dict[str, Any]:
    return {
        "run": run.name,
        "config": run.key,
        "points": len(run.points),
        "valid": len(run.valid),
        "notes": list(run.notes),
        "ended_early": list(run.ended_early),
        "results": [_point(run, record) for record in run.points],
    }


def _point(run: Run, record: Record) -> dict[str, Any]:
    flat = row(run, record) | {"acceptance_by_position": list(positions(record)), "reasons": record.verdict.reasons}
    gates = [gate.model_dump(mode="json") for gate in record.gates]
    return {**flat, "reasons": list(record.verdict.reasons), "denominators": denominators(record), "gates": gates}


def _cell(value: Value) -> Value:
    if not isinstance(value, str):
        return "" if value is None else str(value).lower() if isinstance(value, bool) else value
    plain = harmless(value, keep="")
    return f"'{plain}" if plain[:1] in ("=", "+", "-", "@") else plain


def _finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
