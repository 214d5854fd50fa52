"""Line charts as SVG: one text a chart, for a page or a file of its own; light and dark. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

from fleet.errors import harmless

WIDTH, SMALL = 760, 560
PLOT = 340
LEFT, RIGHT, TOP = 70, 24, 58
LEGEND = 20
LETTER = 6.8
"""Pixels of a letter, about: a legend's line has so many as fit."""

COLOURS = ("#0068a8", "#c44e00", "#007a5a", "#a4447f", "#8a6d00", "#3a86c8", "#5d3a9b", "#4a4a4a")
DARK = ("#5cb3ee", "#ff9d5c", "#3ecf9f", "#e69bc6", "#e3c04a", "#9ccdf5", "#b79bea", "#c0c0c0")
SHAPES = ("circle", "square", "diamond", "triangle")

STYLE = (
    ".chart{--paper:#fff;--ink:#1c1c1c;--soft:#5c5c5c;--grid:#e2e2e2;--pale:#a8a8a8;--bad:#c62828;"
    + "".join(f"--c{at}:{colour};" for at, colour in enumerate(COLOURS))
    + "font:12px system-ui,'DejaVu Sans',sans-serif}"
    + "@media (prefers-color-scheme:dark){"
    ".chart{--paper:#16181c;--ink:#e8e8e8;--soft:#a4a8ae;--grid:#33373d;--pale:#6e7278;--bad:#ff7b72;"
    + "".join(f"--c{at}:{colour};" for at, colour in enumerate(DARK))
    + "}}"
    ".chart text{fill:var(--ink)}.chart .soft{fill:var(--soft)}.chart .title{font-size:15px;font-weight:600}"
    ".chart .mark{fill:var(--bad);font-weight:600}.chart .paper{fill:var(--paper)}"
    ".chart .grid{stroke:var(--grid)}.chart .axis{stroke:var(--soft)}"
    ".chart .near{paint-order:stroke;stroke:var(--paper);stroke-width:3px;font-size:11px}"
    ".chart .front{fill:none;stroke:var(--ink);stroke-opacity:.18;stroke-width:9;"
    "stroke-linejoin:round;stroke-linecap:round}"
    ".chart .line{fill:none;stroke-width:1.6}.chart .dashed{stroke-dasharray:5 4}"
    ".chart .spot{stroke:var(--paper);stroke-width:1}.chart .pale{fill:none;stroke:var(--pale);stroke-width:1.6}"
    + "".join(f".chart .l{at}{{stroke:var(--c{at})}}.chart .f{at}{{fill:var(--c{at})}}" for at in range(len(COLOURS)))
)


@dataclass(frozen=True)
class Spot:
    """A point: where, what stands beside it, and what is told when one points at it. pale: shown, and never counted."""

    x: float
    y: float
    near: str = ""
    tip: str = ""
    pale: bool = False


@dataclass(frozen=True)
class Series:
    """Spots of one kind, joined where they are not pale. look: which colour and shape; a name of "" has no legend."""

    name: str
    spots: tuple[Spot, ...]
    look: int = 0
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """mark: why it shows no measurement. front: places that a broad line joins. at: the only ticks of the x axis, which
    is then logarithmic. steep: the y axis is logarithmic. top: the y axis ends there. notes: lines below the legend.
    """

    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    mark: str = ""
    front: tuple[tuple[float, float], ...] = ()
    at: tuple[float, ...] = ()
    steep: bool = False
    top: float | None = None
    notes: tuple[str, ...] = ()
    width: int = WIDTH

    @property
    def right(self) -> int:
        """Where the plot ends."""
        return self.width - RIGHT


@dataclass(frozen=True)
class Axis:
    """From `low` to `high` over `length` pixels that begin at `start`."""

    low: float
    high: float
    ticks: tuple[float, ...]
    start: float
    length: float
    steep: bool = False

    def place(self, value: float) -> float:
        low, high, value = (math.log(one) if self.steep else one for one in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * self.length


def svg(chart: Chart) -> str:
    """The whole document, one element. Spots that are not finite are left out, on a logarithmic axis also those ≤ 0."""
    chart = replace(chart, series=tuple(_drawable(one, chart) for one in chart.series))
    spots = [spot for series in chart.series for spot in series.spots]
    names = [series for series in chart.series if series.name]
    height = TOP + PLOT + 52 + LEGEND * (len(names) + len(chart.notes)) + 6
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" viewBox="0 0 {chart.width} {height}" '
        f'width="{chart.width}" height="{height}" aria-label="{text(chart.title)}"><style>{STYLE}</style>',
        f'<rect class="paper" width="{chart.width}" height="{height}"/>',
        f'<text class="title" x="{LEFT}" y="24">{text(chart.title)}</text>',
    ]
    if chart.mark:
        parts.append(f'<text class="mark" x="{LEFT}" y="44">{text(chart.mark)}</text>')
    parts += _plot(chart, spots) if spots else [f'<text class="soft" x="{LEFT}" y="{TOP + 40}">nothing measured</text>']
    parts += _legend(chart, names)
    return "\n".join([*parts, "</svg>"]) + "\n"


def text(value: object) -> str:
    """A text from anywhere as text of an SVG or HTML element or attribute."""
    return escape(harmless(value, keep=""), quote=True)


def ticks(low: float, high: float, most: int = 7) -> tuple[float, ...]:
    """Round numbers from `low` or less to `high` or more, about `most` steps of 1, 2 or 5 times a power of ten."""
    span = high - low or abs(high) or 1.0
    size = 10.0 ** math.floor(math.log10(span / most))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor * most >= span)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(float(f"{number * step:.12g}") for number in range(first, max(last, first + 1) + 1))


def steep_ticks(low: float, high: float) -> tuple[float, ...]:
    """1, 2 and 5 times powers of ten, from `low` or less to `high` or more; only powers where those are many."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if len(exponents) <= 4 else (1,)
    found = [float(f"{factor}e{exponent}") for exponent in exponents for factor in factors]
    first = max(one for one in found if one <= low * (1 + 1e-9))
    last = min((one for one in found if one >= high * (1 - 1e-9)), default=found[-1])
    return tuple(one for one in found if first <= one <= last) if first < last else (first, first * 10)


def figure(value: float) -> str:
    """A number as a tick says it: 0, 0.25, 1500, 2.5e+06."""
    return f"{value:.6g}"


def _drawable(series: Series, chart: Chart) -> Series:
    def fine(spot: Spot) -> bool:
        both = math.isfinite(spot.x) and math.isfinite(spot.y)
        return both and (not chart.at or spot.x > 0) and (not chart.steep or spot.y > 0)

    return replace(series, spots=tuple(spot for spot in series.spots if fine(spot)))


def _axes(chart: Chart, spots: Sequence[Spot]) -> tuple[Axis, Axis]:
    xs, ys = [spot.x for spot in spots], [spot.y for spot in spots]
    across = tuple(sorted(set(chart.at))) or ticks(0, max(xs))
    up = steep_ticks(min(ys), max(ys)) if chart.steep else ticks(0, chart.top or max(ys))
    wide = chart.right - LEFT
    low, high = (across[0] / 1.2, across[-1] * 1.2) if chart.at else (across[0], across[-1])
    x = Axis(low, high, across, LEFT, wide, bool(chart.at))
    return x, Axis(up[0], up[-1], up, TOP + PLOT, -PLOT, chart.steep)


def _plot(chart: Chart, spots: Sequence[Spot]) -> list[str]:
    x, y = _axes(chart, spots)
    parts = [part for tick in x.ticks for part in _upright(x.place(tick), figure(tick))]
    parts += [part for tick in y.ticks for part in _level(y.place(tick), chart.right, figure(tick))]
    base = TOP + PLOT
    parts += [
        f'<path class="axis" fill="none" d="M{LEFT} {TOP}V{base}H{chart.right}"/>',
        f'<text class="soft" x="{(LEFT + chart.right) / 2:g}" y="{base + 38}" text-anchor="middle">'
        f"{text(chart.x)}</text>",
        f'<text class="soft" transform="translate(16 {TOP + PLOT / 2:g}) rotate(-90)" text-anchor="middle">'
        f"{text(chart.y)}</text>",
    ]
    if len(chart.front) > 1:
        parts.append(f'<path class="front" d="{_path([(x.place(a), y.place(b)) for a, b in chart.front])}"/>')
    for series in chart.series:
        parts += _joined(series, x, y)
    for series in chart.series:
        parts += [_spot(series, spot, x.place(spot.x), y.place(spot.y)) for spot in series.spots]
    return [*parts, *_beside(chart, x, y)]


def _upright(at: float, label: str) -> tuple[str, str]:
    base = TOP + PLOT
    return (
        f'<path class="grid" d="M{at:.1f} {TOP}V{base}"/>',
        f'<text class="soft" x="{at:.1f}" y="{base + 18}" text-anchor="middle">{label}</text>',
    )


def _level(at: float, right: int, label: str) -> tuple[str, str]:
    return (
        f'<path class="grid" d="M{LEFT} {at:.1f}H{right}"/>',
        f'<text class="soft" x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{label}</text>',
    )


def _joined(series: Series, x: Axis, y: Axis) -> list[str]:
    places = [(x.place(spot.x), y.place(spot.y)) for spot in series.spots if not spot.pale]
    dashed = " dashed" if series.dashed else ""
    return [f'<path class="line l{_colour(series)}{dashed}" d="{_path(places)}"/>'] if len(places) > 1 else []


def _path(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{across:.1f} {up:.1f}" for across, up in places)


def _spot(series: Series, spot: Spot, across: float, up: float) -> str:
    tip = f"<title>{text(spot.tip)}</title>" if spot.tip else ""
    if spot.pale:
        cross = f"M{across - 4:.1f} {up - 4:.1f}l8 8m0 -8l-8 8"
        return f'<path class="pale" d="{cross}">{tip}</path>'
    return _shape(series, across, up, tip)


def _shape(series: Series, across: float, up: float, tip: str = "") -> str:
    kind = SHAPES[(series.look + series.look // len(COLOURS)) % len(SHAPES)]
    look = f'class="spot f{_colour(series)}"'
    if kind == "circle":
        return f'<circle {look} cx="{across:.1f}" cy="{up:.1f}" r="4.5">{tip}</circle>'
    outline = {"square": "m-4 -4h8v8h-8z", "diamond": "m0 -6l6 6l-6 6l-6 -6z", "triangle": "m0 -5.5l5.5 10h-11z"}[kind]
    return f'<path {look} d="M{across:.1f} {up:.1f}{outline}">{tip}</path>'


def _beside(chart: Chart, x: Axis, y: Axis) -> list[str]:
    """What stands beside spots; left of them where the right edge is near."""
    found = []
    for spot in (spot for series in chart.series for spot in series.spots if spot.near):
        across, up = x.place(spot.x), y.place(spot.y)
        near_edge = across > chart.right - 40
        at, anchor = (across - 8, "end") if near_edge else (across + 8, "start")
        found.append(
            f'<text class="near{" soft" if spot.pale else ""}" x="{at:.1f}" y="{up - 5:.1f}" text-anchor="{anchor}">'
            f"{text(spot.near)}</text>"
        )
    return found


def _legend(chart: Chart, names: Sequence[Series]) -> list[str]:
    found = []
    top = TOP + PLOT + 62
    for at, series in enumerate(names):
        up = top + LEGEND * at
        line = f'<path class="line l{_colour(series)}" d="M{LEFT} {up - 4}h28"/>'
        found.append(line + _shape(series, LEFT + 14, up - 4))
        found.append(f'<text x="{LEFT + 38}" y="{up}">{text(_short(series.name, chart.right - LEFT - 38))}</text>')
    for at, note in enumerate(chart.notes):
        found.append(f'<text class="soft" x="{LEFT}" y="{top + LEGEND * (len(names) + at)}">{text(note)}</text>')
    return found


def _colour(series: Series) -> int:
    return series.look % len(COLOURS)


def _short(name: str, width: int) -> str:
    """Both ends of a name that is too long for its line of so many pixels."""
    most = int(width / LETTER)
    half = most // 2 - 1
    return name if len(name) <= most else f"{name[:half]}…{name[-half:]}"
