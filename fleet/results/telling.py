"""Comparisons and noise as text for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from fleet.results import stats
from fleet.results.compare import Comparison, Contrast, Curve, Floor, LeftOut, told
from fleet.results.noise import Noise, cells
from fleet.results.sample import FIRST, METRICS, Metric, Sample, values
from fleet.results.stats import Interval, percent
from fleet.results.topology import ACROSS, Topology
from fleet.words import counted

SHOWN = ("output_tput_per_gpu", "median_intvty", "median_ttft_ms")
"""The figures that the text tells; JSON has all."""

FLOOR_MEANS = "two measurements of the same point differ by less than the noise floor 19 times out of 20"


def comparison(found: Comparison) -> str:
    lines = [f"a  {found.a}", f"b  {found.b}"]
    if found.across:
        lines.append(f"across {found.across}: {', '.join(ACROSS[found.across])} may differ")
    lines += [warning] if (warning := banner(found.marks)) else []
    for curve in found.curves:
        lines += ["", *_curve(curve, found)]
    if not found.curves:
        lines += ["", "no point of a can be compared with one of b"]
    if found.left_out:
        lines += ["", "left out:", *(f"  {_left(one)}" for one in _together(found.left_out))]
    return "\n".join(lines)


def banner(marks: Sequence[str]) -> str:
    """What keeps figures from being measurements of ours."""
    ours = [mark for mark in marks if mark != "FOREIGN"]
    lines = [f"{', '.join(ours)}: not a measurement"] if ours else []
    lines += ["FOREIGN: an aggregate that somebody else made; no verdict of ours is behind it"] * ("FOREIGN" in marks)
    return "\n".join(lines)


def _together(left_out: Sequence[LeftOut]) -> Iterator[LeftOut]:
    """Points of one arm with one reason, told once."""
    found: dict[tuple[str, str, str], list[LeftOut]] = {}
    for one in left_out:
        found.setdefault((one.side, one.arm, one.why), []).append(one)
    for same in found.values():
        concs = dict.fromkeys(conc for one in same for conc in one.concs)
        yield LeftOut(same[0].side, same[0].arm, tuple(concs), same[0].why)


def _left(one: LeftOut) -> str:
    return f"{one.side}  {one.arm} conc {' '.join(map(str, one.concs))}: {one.why}"


def _curve(curve: Curve, found: Comparison) -> Iterator[str]:
    topology = curve.first[0].topology
    turned = curve.first[0].source != found.a and curve.first[0].source == found.b
    first, second = ("b", "a") if turned else ("a", "b")
    yield f"{first} {_arms(curve.first)}   {second} {_arms(curve.second)}   {_told(topology)}"
    for note in curve.notes:
        yield f"  {note}"
    for metric in METRICS:
        if metric.field in SHOWN and any(metric.field in row.contrasts for row in curve.rows):
            yield from _metric(curve, metric, first, second)
    if curve.quote:
        measured = " ".join(str(row.conc) for row in curve.rows)
        yield f"{curve.quote}."
        yield f"  by {FIRST.title}, {FIRST.spoken(curve.workers)}; measured at {measured}, linear in log(conc) between"


def _told(topology: Topology) -> str:
    return ", ".join(filter(None, (topology.get("lengths"), topology.get("workers"), topology.get("framework"))))


def _arms(samples: Sequence[Sample]) -> str:
    return ", ".join(dict.fromkeys(sample.arm for sample in samples)) or "?"


def _metric(curve: Curve, metric: Metric, first: str, second: str) -> Iterator[str]:
    yield f"  {metric.title}, {metric.spoken(curve.workers)}   {_floor(curve.floors.get(metric.field))}"
    rows = [("conc", first, second, f"{second} against {first}", "")]
    for row in curve.rows:
        if one := row.contrasts.get(metric.field):
            rows.append((str(row.conc), _side(one.a, metric), _side(one.b, metric), change(one), one.verdict))
    if not curve.crossover and (overall := curve.overall.get(metric.field)):
        gain, bounds = overall
        seen = not bounds.holds(0.0) if bounds else None
        rows.append(("all", "", "", _change(gain, bounds), told(metric, gain, seen)))
    widths = [max(len(row[at]) for row in rows) for at in range(4)]
    for line in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(line[:4], widths, strict=True)]
        yield f"    {'  '.join(cells)}  {line[4]}".rstrip()


def _floor(floor: Floor | None) -> str:
    if floor is None:
        return "noise floor unknown: invoke noise tells"
    return f"noise floor {percent(floor.height):.1f} % ({floor.source})"


def _side(found: Sequence[float], metric: Metric) -> str:
    repeats = f" ×{len(found)}" if len(found) > 1 else ""
    return f"{median(found):.{metric.decimals}f}{repeats}"


def change(one: Contrast) -> str:
    return _change(one.gain, one.bounds)


def _change(gain: float, bounds: Interval | None) -> str:
    """`+38.1 % (+35.0 … +41.2)`."""
    ends = f" ({percent(bounds.low):+.1f} … {percent(bounds.high):+.1f})" if bounds else ""
    return f"{percent(gain):+.1f} %{ends}"


def noise(found: Sequence[Noise], samples: Sequence[Sample]) -> str:
    """samples: all points of the run."""
    marks = sorted({mark for sample in samples if not sample.excluded for mark in sample.marks})
    lines = [f"noise of {found[0].run}", *filter(None, [banner(marks)])]
    for one in found:
        kept = (
            "started anew for each repeat" if one.restarted else "kept: what differs from start to start is not in it"
        )
        concs = " ".join(map(str, one.concs))
        lines += ["", f"{one.arm}   conc {concs}   {counted(one.measurements, 'measurement')}, servers {kept}"]
        rows = [("", "median (95 %)" if len(one.concs) == 1 else "", "scatter", "noise floor")]
        for metric in METRICS:
            if metric.field in one.scatters:
                rows.append(_scattered(one, metric, [sample for sample in samples if sample.arm == one.arm]))
        widths = [max(len(row[at]) for row in rows) for at in range(4)]
        for row in rows:
            lines.append("  " + "  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)).rstrip())
    return "\n".join([*lines, "", FLOOR_MEANS])


def _scattered(one: Noise, metric: Metric, samples: Sequence[Sample]) -> tuple[str, str, str, str]:
    scatter, floor = one.scatters[metric.field], one.floor(metric)
    assert floor is not None
    middle = ""
    if len(one.concs) == 1:
        (repeats,) = [group for group in cells(samples).values() if len(group) > 1]
        measured = values(repeats, metric)
        bounds = stats.interval_of_median(measured)
        middle = f"{median(measured):.{metric.decimals}f}"
        middle += f" ({bounds.low:.{metric.decimals}f} … {bounds.high:.{metric.decimals}f})" if bounds else ""
    name = f"{metric.title}, {metric.spoken(one.topology.get('workers', ''))}"
    return name, middle, f"{scatter.deviation * 100:.1f} %", f"{percent(floor):.1f} %"
