"""Two runs point by point: which points are alike but for what is compared, and what differs beyond noise. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from fleet.errors import shown
from fleet.results import noise, stats, topology
from fleet.results.crossover import Crossover, Gain, crossover, sentence
from fleet.results.noise import Noise
from fleet.results.sample import FIRST, METRICS, Metric, Sample, values
from fleet.results.stats import Interval, percent
from fleet.results.topology import IMAGE

Side = Literal["a", "b"]
SPEC, NONE = "speculation", "none"


@dataclass(frozen=True)
class Floor:
    """A noise floor, as a logarithm, and what it was taken from."""

    height: float
    source: str


@dataclass(frozen=True)
class Contrast:
    """One figure of one point on both sides. gain: log of b over a; bounds: 95 %, never narrower than the noise floor,
    None where one measurement stands on each side and no floor is known.
    """

    metric: Metric
    a: tuple[float, ...]
    b: tuple[float, ...]
    gain: float
    bounds: Interval | None

    @property
    def seen(self) -> bool | None:
        """Whether a difference is seen; None if nothing tells."""
        return not self.bounds.holds(0.0) if self.bounds else None

    @property
    def verdict(self) -> str:
        return told(self.metric, self.gain, self.seen)


@dataclass(frozen=True)
class Row:
    """One concurrency."""

    conc: int
    contrasts: Mapping[str, Contrast]


@dataclass(frozen=True)
class Curve:
    """Points of one deployment on each side, by rising concurrency. first, second: which arms, of which runs.

    floors and overall by the figures' fields. overall: the median over the concurrencies of the paired gains.
    """

    first: tuple[Sample, ...]
    second: tuple[Sample, ...]
    rows: tuple[Row, ...]
    floors: Mapping[str, Floor]
    overall: Mapping[str, tuple[float, Interval | None]]
    notes: tuple[str, ...] = ()
    crossover: Crossover | None = None

    @property
    def workers(self) -> str:
        return self.first[0].topology.get("workers", "")

    @property
    def quote(self) -> str:
        """The sentence about the crossover; "" where none was looked for."""
        return sentence(self.crossover, self._contrasted) if self.crossover else ""

    @property
    def _contrasted(self) -> str:
        spec = self.second[0].topology.get(SPEC, "")
        return {"mtp": "MTP", "draft_model": "the draft model"}.get(spec, "b")


@dataclass(frozen=True)
class LeftOut:
    """Points that take no part, and why."""

    side: Side
    arm: str
    concs: tuple[int, ...]
    why: str


@dataclass(frozen=True)
class Comparison:
    """across: "" or the named contrast. marks: DOUBLE, TRIAL, FOREIGN of any point that takes part."""

    a: str
    b: str
    across: str
    curves: tuple[Curve, ...]
    left_out: tuple[LeftOut, ...]
    marks: tuple[str, ...]


Pair = tuple[list[Sample], list[Sample]]


def compare(a: Sequence[Sample], b: Sequence[Sample], *, across: str = "", kept: Sequence[Noise] = ()) -> Comparison:
    """a, b: all points of two sources, repeats included. across: a key of ACROSS. kept: noise measured earlier.

    Across "mtp" the first side of each pair is the one without speculation, whichever run it is of.
    """
    pairs, left_out = _matched(a, b, across)
    curves = [_curve(curve, across, kept) for curve in _curves(pairs, across)]
    taking = [sample for curve in curves for sample in (*curve.first, *curve.second)]
    marks = tuple(sorted({mark for sample in taking for mark in sample.marks}))
    excluded = [*_excluded("a", a), *_excluded("b", b)]
    return Comparison(_name(a), _name(b), across, tuple(curves), (*excluded, *left_out), marks)


def told(metric: Metric, gain: float, seen: bool | None) -> str:
    """`better`, `worse`, `no difference seen`; with a question mark where nothing tells how sure that is."""
    if seen is False:
        return "no difference seen"
    word = "the same" if gain == 0 else "better" if (gain > 0) == metric.more else "worse"
    return word if seen else f"{word}?"


# --- which points are compared --------------------------------------------------------------------------------------


def _matched(a: Sequence[Sample], b: Sequence[Sample], across: str) -> tuple[list[Pair], list[LeftOut]]:
    ours, theirs = list(noise.cells(a).values()), list(noise.cells(b).values())
    pairs: list[Pair] = []
    met: set[int] = set()
    for one in ours:
        for other in theirs:
            if not _why_not(one[0], other[0], across):
                pairs.append((one, other))
                met |= {id(one), id(other)}
    left = [*_lonely("a", ours, theirs, met, across), *_lonely("b", theirs, ours, met, across)]
    return [_oriented(pair, across) for pair in pairs], left


def _why_not(one: Sample, other: Sample, across: str) -> str:
    """Why two points are not compared, "" if they are."""
    different = _differing(one, other, across)
    if different:
        ends = [(aspect, shown(one.topology[aspect]), shown(other.topology[aspect])) for aspect in different]
        return "; ".join(f"{aspect} {ours}, there {theirs}" for aspect, ours, theirs in ends)
    if one.conc != other.conc:
        return "no such concurrency there"
    specs = one.topology.get(SPEC), other.topology.get(SPEC)
    if across == "mtp" and (specs[0] == NONE) == (specs[1] == NONE):
        return "speculation on both sides" if specs[0] != NONE else "no speculation on either side"
    return ""


def _differing(one: Sample, other: Sample, across: str) -> list[str]:
    """Aspects; the load, which follows from the concurrency, only where that is the same."""
    found = topology.differing(one.topology, other.topology, across)
    return [aspect for aspect in found if aspect != topology.LOAD or one.conc == other.conc]


def _lonely(
    side: Side, ours: list[list[Sample]], theirs: list[list[Sample]], met: set[int], across: str
) -> Iterator[LeftOut]:
    """Of the points without a counterpart the reason that is nearest to none, points of one arm told together."""
    found: dict[tuple[str, str], list[int]] = {}
    for one in (cell for cell in ours if id(cell) not in met):
        whys = [(len(_differing(one[0], other[0], across)), one[0].conc != other[0].conc,
                 _why_not(one[0], other[0], across)) for other in theirs]  # fmt: skip
        why = min(whys)[2] if whys else "no point there takes part"
        found.setdefault((one[0].arm, why), []).append(one[0].conc)
    for (arm, why), concs in found.items():
        yield LeftOut(side, arm, tuple(dict.fromkeys(concs)), why)


def _excluded(side: Side, samples: Sequence[Sample]) -> Iterator[LeftOut]:
    for sample in samples:
        if sample.excluded:
            yield LeftOut(side, sample.arm, (sample.conc,), sample.excluded)


def _oriented(pair: Pair, across: str) -> Pair:
    turned = across == "mtp" and pair[0][0].topology.get(SPEC) != NONE
    return (pair[1], pair[0]) if turned else pair


def _curves(pairs: Sequence[Pair], across: str) -> Iterator[list[Pair]]:
    """Pairs that differ in concurrency only. A draft depth that tapers with it is one curve, two at one are two."""
    waived = (topology.LOAD, *topology.ACROSS.get(across, ()))
    families: dict[object, list[Pair]] = {}
    for pair in pairs:
        families.setdefault(_but(waived, pair[0][0]), []).append(pair)
    for family in families.values():
        concs = [first[0].conc for first, _ in family]
        if len(set(concs)) == len(concs):
            yield family
            continue
        apart: dict[object, list[Pair]] = {}
        for pair in family:
            apart.setdefault(tuple(_but((topology.LOAD,), side[0]) for side in pair), []).append(pair)
        yield from apart.values()


def _but(aspects: Sequence[str], sample: Sample) -> object:
    return tuple((aspect, value) for aspect, value in sample.topology.items() if aspect not in aspects)


# --- what differs ---------------------------------------------------------------------------------------------------


def _curve(pairs: list[Pair], across: str, kept: Sequence[Noise]) -> Curve:
    pairs = sorted(pairs, key=lambda pair: pair[0][0].conc)
    first = tuple(sample for one, _ in pairs for sample in one)
    second = tuple(sample for _, other in pairs for sample in other)
    floors = {metric.field: floor for metric in METRICS if (floor := _floor(metric, first, second, kept))}
    rows = tuple(_row(pair, floors) for pair in pairs)
    overall = {metric.field: found for metric in METRICS if (found := _overall(metric, rows, floors))}
    gains = [Gain(row.conc, one.gain, one.bounds) for row in rows if (one := row.contrasts.get(FIRST.field))]
    crossing = crossover(gains) if across == "mtp" else None
    return Curve(first, second, rows, floors, overall, tuple(_notes(pairs, across)), crossing)


def _row(pair: Pair, floors: Mapping[str, Floor]) -> Row:
    found = {}
    for metric in METRICS:
        a, b = values(pair[0], metric), values(pair[1], metric)
        if a and b:
            gain = stats.gain(a, b)
            bounds = _widened(gain, stats.interval_of_gain(a, b), floors.get(metric.field))
            found[metric.field] = Contrast(metric, tuple(a), tuple(b), gain, bounds)
    return Row(pair[0][0].conc, found)


def _widened(gain: float, bounds: Interval | None, floor: Floor | None) -> Interval | None:
    """No interval is narrower than the noise floor, nor without the value itself."""
    if bounds is None and floor is None:
        return None
    reach = floor.height if floor else 0.0
    around = Interval(gain - reach, gain + reach)
    return bounds.over(around) if bounds else around


def _overall(metric: Metric, rows: Sequence[Row], floors: Mapping[str, Floor]) -> tuple[float, Interval | None] | None:
    found = [row.contrasts[metric.field] for row in rows if metric.field in row.contrasts]
    if len(found) < 2:
        return None
    pairs = [(median(one.a), median(one.b)) for one in found]
    gain = stats.paired(pairs)
    return gain, _widened(gain, stats.interval_of_paired(pairs), floors.get(metric.field))


def _floor(metric: Metric, first: Sequence[Sample], second: Sequence[Sample], kept: Sequence[Noise]) -> Floor | None:
    """The highest of what was kept for such points and of what the repeats of both sides tell."""
    found = []
    for side in (first, second):
        known = noise.matching(kept, side[0].topology)
        height = known.floor(metric) if known else None
        if known and height is not None:
            found.append(Floor(height, f"of {known.run}, {known.arm}{_kept_servers(known)}"))
    own = stats.spread(values(cell, metric) for side in (first, second) for cell in noise.cells(side).values())
    if own:
        found.append(Floor(own.floor, f"of their own repeats, {own.freedom} degrees of freedom"))
    return max(found, key=lambda floor: floor.height) if found else None


def _kept_servers(known: Noise) -> str:
    return "" if known.restarted else ", servers kept"


def _notes(pairs: Sequence[Pair], across: str) -> Iterator[str]:
    """What the points compared do not have in common, or do not tell."""
    ends = [(first[0].topology, second[0].topology) for first, second in pairs]
    for aspect in topology.ACROSS.get(across, ()):
        values = [dict.fromkeys(side.get(aspect, "") for side in sides) for sides in zip(*ends, strict=True)]
        a, b = (", ".join(filter(None, side)) for side in values)
        if a != b and a and b:
            yield f"{'another ' if aspect in IMAGE else ''}{aspect}: {a} against {b}"
    if lacking := dict.fromkeys(aspect for a, b in ends for aspect in topology.untold(a, b)):
        yield f"not told by one side, so not compared: {', '.join(lacking)}"


def _name(samples: Sequence[Sample]) -> str:
    return samples[0].source if samples else ""


# --- for programs ---------------------------------------------------------------------------------------------------


def to_json(found: Comparison) -> dict[str, Any]:
    """Gains are in percent, b against a; bounds are 95 %."""
    return {
        "a": found.a,
        "b": found.b,
        "across": found.across,
        "marks": list(found.marks),
        "measurement": not {"DOUBLE", "TRIAL"} & set(found.marks),
        "curves": [_curve_json(curve) for curve in found.curves],
        "left_out": [
            {"side": one.side, "arm": one.arm, "conc": list(one.concs), "why": one.why} for one in found.left_out
        ],
    }


def _curve_json(curve: Curve) -> dict[str, Any]:
    floors = {
        field: {"percent": percent(floor.height), "source": floor.source} for field, floor in curve.floors.items()
    }
    return {
        "a": _side_json(curve.first),
        "b": _side_json(curve.second),
        "units": {metric.field: metric.spoken(curve.workers) for metric in METRICS},
        "noise_floor": floors,
        "notes": list(curve.notes),
        "points": [_row_json(row) for row in curve.rows],
        "overall": {
            field: {"gain_percent": percent(gain), "bounds_percent": _bounds(bounds)}
            for field, (gain, bounds) in curve.overall.items()
        },
        "crossover": _crossover_json(curve),
    }


def _side_json(samples: Sequence[Sample]) -> dict[str, Any]:
    return {
        "source": samples[0].source,
        "arms": list(dict.fromkeys(sample.arm for sample in samples)),
        "topology": dict(samples[0].topology),
    }


def _row_json(row: Row) -> dict[str, Any]:
    figures = {
        field: {
            "a": list(one.a),
            "b": list(one.b),
            "gain_percent": percent(one.gain),
            "bounds_percent": _bounds(one.bounds),
            "seen": one.seen,
            "verdict": one.verdict,
        }
        for field, one in row.contrasts.items()
    }
    return {"conc": row.conc, "figures": figures}


def _crossover_json(curve: Curve) -> dict[str, Any] | None:
    found = curve.crossover
    if found is None:
        return None
    ends = [found.interval.low, found.interval.high] if found.interval else None
    return {
        "kind": found.kind,
        "conc": found.conc,
        "interval": ends,
        "sure": found.sure,
        "figure": FIRST.field,
        "sentence": curve.quote,
    }


def _bounds(bounds: Interval | None) -> list[float] | None:
    return [percent(bounds.low), percent(bounds.high)] if bounds else None
