"""What a report pictures: throughput against interactivity with its Pareto front, latencies, acceptance. Pure.

Only points of the same marks and lengths stand in one picture. Points that are not valid are crosses in grey, joined
with nothing and in no front.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fleet.results import sheet
from fleet.results.chart import SMALL, Chart, Series, Spot
from fleet.results.record import Record
from fleet.results.sheet import Kind, Run

Pair = tuple[Run, Record]
Place = tuple[float, float]
Looks = Mapping[tuple[str, str], int]

LATENCIES = {"ttft": "Time to first token", "tpot": "Time per output token", "e2el": "Whole request"}
CROSS = "× grey: not valid, joined with nothing and in no front"


def charts(runs: Sequence[Run]) -> dict[str, Chart]:
    """Every picture of the runs by the stem of its file: `pareto-8192-1024`."""
    looks = _looks(runs)
    found: dict[str, Chart] = {}
    for kind, pairs in sheet.kinds(runs).items():
        found[f"pareto-{kind.stem}"] = pareto(kind, pairs, looks)
        for metric in LATENCIES:
            found[f"{metric}-{kind.stem}"] = latency(kind, pairs, looks, metric)
        if any(sheet.positions(record) for _, record in pairs):
            found[f"acceptance-{kind.stem}"] = acceptance(kind, pairs, looks)
    return found


def front(places: Sequence[Place]) -> tuple[Place, ...]:
    """Places that no other one beats: none has as much of both and more of one. From the lowest first value up."""
    found: list[Place] = []
    for place in sorted(set(places), key=lambda one: (-one[0], -one[1])):
        if not found or place[1] > found[-1][1]:
            found.append(place)
    return tuple(reversed(found))


def pareto(kind: Kind, pairs: Sequence[Pair], looks: Looks) -> Chart:
    series = [
        Series(name, tuple(_traded(record) for record in records if _trades(record)), look)
        for name, look, records in _series(pairs, looks)
    ]
    counted = [(spot.x, spot.y) for one in series for spot in one.spots if not spot.pale]
    return Chart(
        title=f"Throughput per GPU against interactivity, {kind.title}",
        x="interactivity: tokens/s a user sees (1000 / median TPOT in ms)",
        y="all tokens/s per total GPU (prefill and decode)",
        series=tuple(series),
        mark=kind.mark,
        front=front(counted),
        notes=("numbers: concurrency. Broad line: Pareto front of the valid points", *_cross(pairs)),
    )


def latency(kind: Kind, pairs: Sequence[Pair], looks: Looks, metric: str) -> Chart:
    series: list[Series] = []
    for name, look, records in _series(pairs, looks):
        of = next(run for run, record in pairs if record is records[0])
        for rank, dashed in (("median", False), ("p99", True)):
            spots = tuple(_timed(of, record, rank, metric) for record in records if _time(of, record, rank, metric))
            series.append(Series("" if dashed else name, spots, look, dashed))
    return Chart(
        title=f"{LATENCIES[metric]}, {kind.title}",
        x="concurrency",
        y=f"{metric.upper()} in ms",
        series=tuple(series),
        mark=kind.mark,
        at=tuple(float(record.conc) for _, record in pairs),
        steep=True,
        width=SMALL,
        notes=("whole line: median; dashed: p99", *_cross(pairs)),
    )


def acceptance(kind: Kind, pairs: Sequence[Pair], looks: Looks) -> Chart:
    series: list[Series] = []
    for name, look, records in _series(pairs, looks):
        lines = [(record, sheet.positions(record)) for record in records]
        drawn = [Series("", tuple(_accepted(record, shares)), look) for record, shares in lines if shares]
        series += [Series(name, drawn[0].spots, look), *drawn[1:]] if drawn else []
    places = max((len(one.spots) for one in series), default=1)
    return Chart(
        title=f"Draft tokens accepted by position, {kind.title}",
        x="position in the draft",
        y="share of drafting steps",
        series=tuple(series),
        mark=kind.mark,
        at=tuple(float(place) for place in range(1, places + 1)),
        top=1.0,
        width=SMALL,
        notes=("a line for each point, from the workers' own counters", *_cross(pairs)),
    )


def _looks(runs: Sequence[Run]) -> dict[tuple[str, str], int]:
    """A look for each arm of each run, the same in all pictures."""
    names = dict.fromkeys((run.name, record.arm) for run in runs for record in run.points)
    return {name: look for look, name in enumerate(names)}


def _series(pairs: Sequence[Pair], looks: Looks) -> Iterator[tuple[str, int, list[Record]]]:
    """Name, look and records of each arm of each run, by concurrency."""
    grouped: dict[tuple[str, str], list[Record]] = {}
    for run, record in pairs:
        grouped.setdefault((run.name, record.arm), []).append(record)
    for (name, arm), records in grouped.items():
        yield f"{arm}  {name}", looks[name, arm], sorted(records, key=lambda one: (one.conc, one.repeat))


def _trades(record: Record) -> bool:
    return record.figures.median_intvty is not None and record.figures.tput_per_gpu is not None


def _traded(record: Record) -> Spot:
    x, y = record.figures.median_intvty or 0.0, record.figures.tput_per_gpu or 0.0
    tip = f"{_what(record)}: {x:.1f} tok/s/user, {y:.1f} tok/s per total GPU"
    return Spot(x, y, str(record.conc), tip, pale=not record.valid)


def _time(run: Run, record: Record, rank: str, metric: str) -> float:
    """Milliseconds, 0 if they were not measured."""
    return run.latency.get(record.point, {}).get(f"{rank}_{metric}_ms", 0.0)


def _timed(run: Run, record: Record, rank: str, metric: str) -> Spot:
    value = _time(run, record, rank, metric)
    tip = f"{_what(record)}: {rank} {metric.upper()} {value:.4g} ms"
    return Spot(float(record.conc), value, tip=tip, pale=not record.valid)


def _accepted(record: Record, shares: Sequence[float]) -> Iterator[Spot]:
    for place, share in enumerate(shares, 1):
        tip = f"{_what(record)}: {share:.3f} at position {place}"
        yield Spot(float(place), share, tip=tip, pale=not record.valid)


def _what(record: Record) -> str:
    repeat = f" #{record.repeat + 1}" if record.repeat else ""
    state = "" if record.valid else f", {record.state if record.state != 'done' else 'invalid'}"
    return f"{record.arm} conc {record.conc}{repeat}{state}"


def _cross(pairs: Sequence[Pair]) -> tuple[str, ...]:
    return () if all(record.valid for _, record in pairs) else (CROSS,)
