"""A point as a comparison takes it: from a record of ours, or from an aggregate that someone else made. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.errors import UsageError, shown
from fleet.plan import Plan
from fleet.results import topology
from fleet.results.record import Figures, Record, latest
from fleet.results.topology import Topology


@dataclass(frozen=True)
class Metric:
    """One figure. per: which GPUs a throughput is divided by on a disaggregated arm, "" for what is no throughput.
    more: whether more of it is better.
    """

    field: str
    title: str
    unit: str
    per: str = ""
    more: bool = True
    decimals: int = 1

    def spoken(self, workers: str) -> str:
        """The unit with its denominator by name. Where prefill and decode are not apart, all GPUs do both."""
        if not self.per:
            return self.unit
        apart = "prefill" in workers and self.per != "total"
        return f"{self.unit} per {self.per} GPU" if apart else f"{self.unit} per GPU (total)"


METRICS = (
    Metric("output_tput_per_gpu", "output", "tok/s", "decode"),
    Metric("tput_per_gpu", "input and output", "tok/s", "total"),
    Metric("input_tput_per_gpu", "input", "tok/s", "prefill"),
    Metric("median_intvty", "interactivity p50", "tok/s/user"),
    Metric("median_ttft_ms", "TTFT p50", "ms", more=False),
    Metric("p99_ttft_ms", "TTFT p99", "ms", more=False),
    Metric("median_tpot_ms", "TPOT p50", "ms", more=False, decimals=2),
    Metric("median_e2el_ms", "E2E latency p50", "ms", more=False),
)
FIRST = METRICS[0]
"""What says which of two is faster."""


@dataclass(frozen=True)
class Sample:
    """source: the run or the file. excluded: why it takes no part, "" if it does. marks: DOUBLE, TRIAL, FOREIGN."""

    source: str
    point: str
    arm: str
    conc: int
    topology: Topology
    figures: Figures
    marks: tuple[str, ...] = ()
    excluded: str = ""


def of_run(records: Iterable[Record], plan: Plan) -> tuple[Sample, ...]:
    """The points of a run, of each its last record. A record whose arm the plan does not have raises LookupError."""
    arms = {arm.arm.name: arm for arm in plan.arms}
    found = []
    for record in latest(tuple(records)):
        arm = arms[record.arm]
        told = topology.of_record(record, arm.arm, arm.placement.hosts)
        why = "" if record.valid else _why(record)
        found.append(Sample(record.run, record.point, record.arm, record.conc, told, record.figures, record.marks, why))
    return tuple(found)


def of_aggregates(text: str, where: str) -> tuple[Sample, ...]:
    """The points of a public aggregate file: one object, or a list of them. Raises UsageError."""
    try:
        told = json.loads(text)
        rows = told if isinstance(told, list) else [told]
        samples = [_foreign(row, where, number) for number, row in enumerate(rows, 1)]
    except RecursionError:
        raise _no_aggregate(where, "nested too deep") from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _no_aggregate(where, str(error)) from None
    if not samples:
        raise _no_aggregate(where, "it is empty")
    return tuple(samples)


def _no_aggregate(where: str, why: str) -> UsageError:
    hint = "a file is read as a public aggregate (agg_….json): one object, or a list of them\na run goes by its name"
    return UsageError(f"not an aggregate: {shown(why)}", where=where, hint=hint)


def _foreign(row: Any, where: str, number: int) -> Sample:
    if not isinstance(row, Mapping):
        raise ValueError(f"entry {number} is no object")
    conc = row.get("conc")
    if isinstance(conc, bool) or not isinstance(conc, int) or conc < 1:
        raise ValueError(f"entry {number} has no conc")
    if row.get("scenario_type") == "agentic-coding" or "osl" not in row:
        raise ValueError(f"entry {number} has no isl and osl")
    told = topology.of_aggregate(row)
    return Sample(where, f"entry {number}", told.get("workers", ""), conc, told, _figures(row), ("FOREIGN",))


def _figures(row: Mapping[str, Any]) -> Figures:
    """Seconds become milliseconds; what is no finite number was not measured."""

    def number(field: str, scale: float = 1.0) -> float | None:
        value = row.get(field)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return None
        return value * scale

    return Figures(
        tput_per_gpu=number("tput_per_gpu"),
        output_tput_per_gpu=number("output_tput_per_gpu"),
        input_tput_per_gpu=number("input_tput_per_gpu"),
        median_intvty=number("median_intvty"),
        median_ttft_ms=number("median_ttft", 1000.0),
        p99_ttft_ms=number("p99_ttft", 1000.0),
        median_tpot_ms=number("median_tpot", 1000.0),
        p99_tpot_ms=number("p99_tpot", 1000.0),
        median_e2el_ms=number("median_e2el", 1000.0),
    )


def values(samples: Sequence[Sample], metric: Metric) -> list[float]:
    """What was measured, as far as it is above zero: a ratio needs that."""
    found = [getattr(sample.figures, metric.field) for sample in samples]
    return [value for value in found if value is not None and value > 0]


def _why(record: Record) -> str:
    told = "invalid" if record.state == "done" else record.state
    return f"{told}: {record.verdict.reasons[0]}" if record.verdict.reasons else told
