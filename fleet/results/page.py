"""A report as one HTML page: no script, nothing fetched, light and dark. Pure.

Whatever comes from files, hosts or containers goes through `text`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fleet.results import chart, plot, sheet
from fleet.results.chart import text
from fleet.results.record import Evidence, GateResult, Record
from fleet.results.sheet import Run
from fleet.words import counted

STYLE = """
:root{--paper:#fff;--ink:#1c1c1c;--soft:#5c5c5c;--grid:#e2e2e2;--pale:#8a8a8a;--wash:#f5f6f8;--good:#1b7a3d;--bad:#c62828}
@media (prefers-color-scheme:dark){:root{--paper:#16181c;--ink:#e8e8e8;--soft:#a4a8ae;--grid:#33373d;--pale:#7d8187;
--wash:#1f2227;--good:#5bd18a;--bad:#ff7b72}}
*{box-sizing:border-box}
body{margin:0 auto;padding:24px 20px 60px;max-width:1180px;background:var(--paper);color:var(--ink);
font:15px/1.45 system-ui,'DejaVu Sans',sans-serif}
h1{font-size:24px;margin:0 0 4px}h2{font-size:19px;margin:34px 0 8px}h3{font-size:15px;margin:22px 0 4px}
p{margin:6px 0;max-width:80ch}.soft{color:var(--soft)}
.mark{display:inline-block;border:2px solid var(--bad);color:var(--bad);font-weight:700;padding:3px 10px;margin:6px 0}
.wide{overflow-x:auto}
table{border-collapse:collapse;margin:6px 0;font-variant-numeric:tabular-nums;font-size:14px}
th,td{padding:3px 12px 3px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--grid)}
th{font-weight:600;color:var(--soft);font-size:12.5px}
th.n,td.n,td.k{text-align:right;white-space:nowrap}
tr.pale td,.pale{color:var(--pale)}tr.pale td.n{text-decoration:line-through}
.good{color:var(--good)}.bad{color:var(--bad);font-weight:600}.pale .bad{color:var(--bad)}
details{margin:4px 0}summary{cursor:pointer;padding:2px 0}
details>div{margin:2px 0 10px 18px}
pre{background:var(--wash);padding:10px 12px;overflow:auto;max-height:70vh;font:12px/1.4 'DejaVu Sans Mono',monospace}
code{font:13px 'DejaVu Sans Mono',monospace;overflow-wrap:anywhere}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:14px;align-items:start}
.plots figure,.big{margin:0}.chart{width:100%;height:auto;border:1px solid var(--grid)}
.big .chart{max-width:900px}
@media print{details>div{display:block}}
"""

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What the page may do, told to the browser: be shown."""

READING = (
    "Interactivity is 1000 / TPOT in ms: tokens/s a user sees. Its percentiles are the reciprocals of the TPOT's, so "
    "p90 is the slow tail, and the mean is no mean of rates.",
    "A figure per GPU names its GPUs: total is all of an arm's. With prefill and decode apart, output is divided by "
    "the decode GPUs and input by the prefill GPUs; the two do not add up to the first.",
    "A point that is not valid is shown with its reasons, struck through, and enters no front and no aggregate.",
)

Cell = tuple[str, str]
"""A cell's class and its HTML."""

Title = str | Cell
"""The text of a left column's head, or a cell."""


def page(runs: Sequence[Run], *, made: str) -> str:
    """The whole document. made: when, for people."""
    names = ", ".join(dict.fromkeys(run.key for run in runs))
    body = [
        f"<h1>{text(names)}</h1>",
        *_mark(sheet.mark(sheet.marks(runs))),
        f'<p class="soft">{counted(len(runs), "run")}, made {text(made)}</p>',
        _runs(runs),
        *_plots(runs),
        *(part for run in runs for part in _run(run, alone=len(runs) == 1)),
        "<h2>How to read it</h2>",
        *(f"<p>{text(line)}</p>" for line in READING),
        "<h2>Not known</h2>",
        "<p>No point was judged by these: nothing here tells them.</p>",
        f"<ul>{''.join(f'<li>{text(line)}</li>' for line in sheet.unknown(runs))}</ul>",
    ]
    head = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{text(names)}</title><style>{STYLE}</style></head><body>"
    )
    return "\n".join([head, *body, "</body></html>"]) + "\n"


def table(titles: Sequence[Title], rows: Iterable[tuple[str, Sequence[Cell]]]) -> str:
    """titles: texts of left columns, or cells. rows: each its class and cells. Cells are HTML already."""
    heads: list[Cell] = [("", text(title)) if isinstance(title, str) else title for title in titles]
    lines = ["<tr>" + "".join(f"<th{_class(kind)}>{html}</th>" for kind, html in heads) + "</tr>"]
    for look, cells in rows:
        found = "".join(f"<td{_class(kind)}>{html}</td>" for kind, html in cells)
        lines.append(f"<tr{_class(look)}>{found}</tr>")
    return '<div class="wide"><table>' + "\n".join(lines) + "</table></div>"


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _mark(mark: str) -> list[str]:
    return [f'<p class="mark">{text(mark)}</p>'] if mark else []


def _runs(runs: Sequence[Run]) -> str:
    titles: list[Title] = ["run", "config", "image", ("n", "points"), ("n", "valid"), "mark"]
    return table(titles, [("", _run_cells(run)) for run in runs])


def _run_cells(run: Run) -> list[Cell]:
    images = ", ".join(dict.fromkeys(record.image.tag for record in run.points)) or "-"
    mark = " ".join(sheet.marks([run])) or "-"
    name = f'<a href="#{text(run.name)}">{text(run.name)}</a>'
    numbers: list[Cell] = [("n", str(len(run.points))), ("n", str(len(run.valid)))]
    return [("", name), ("", text(run.key)), ("", text(images)), *numbers, ("", text(mark))]


def _plots(runs: Sequence[Run]) -> Iterator[str]:
    drawn = plot.charts(runs)
    for kind in sheet.kinds(runs):
        yield f"<h2>{text(kind.title)}, in and out</h2>"
        yield f'<figure class="big">{chart.svg(drawn[f"pareto-{kind.stem}"])}</figure>'
        others = [one for name, one in drawn.items() if name.partition("-")[2] == kind.stem and name[:6] != "pareto"]
        yield '<div class="plots">' + "".join(f"<figure>{chart.svg(one)}</figure>" for one in others) + "</div>"


# --- one run ----------------------------------------------------------------------------------------------------


def _run(run: Run, *, alone: bool) -> Iterator[str]:
    yield f'<h2 id="{text(run.name)}">{text(run.key if alone else f"{run.key}: {run.name}")}</h2>'
    yield from _mark(sheet.mark(sheet.marks([run])))
    if run.ended_early:
        yield f'<p class="bad">ended early: {text("; ".join(run.ended_early))}</p>'
    if not run.points:
        yield "<p>No point has run.</p>"
    for arm in dict.fromkeys(record.arm for record in run.points):
        records = [record for record in run.points if record.arm == arm]
        yield f"<h3>{text(arm)}</h3>"
        yield f'<p class="soft">per GPU: {text(sheet.denominators(records[0]))}</p>'
        yield _points(run, records)
        yield from (_evidence(run, record) for record in records)
    if run.notes:
        yield _folded(
            counted(len(run.notes), "note"), f"<ul>{''.join(f'<li>{text(one)}</li>' for one in run.notes)}</ul>"
        )
    for title, kept in run.texts.items():
        yield _folded(title, f"<pre>{text_lines(kept)}</pre>")


def text_lines(kept: str) -> str:
    """A text of several lines, for <pre>."""
    return "\n".join(text(line.expandtabs(4)) for line in kept.splitlines())


def _points(run: Run, records: Sequence[Record]) -> str:
    apart = "decode" in records[0].gpus or "prefill" in records[0].gpus
    titles: list[Title] = [
        ("n", "conc"), "verdict",
        ("n", "tok/s per<br>total GPU"),
        ("n", f"output tok/s<br>per {'decode' if apart else 'total'} GPU"),
        ("n", f"input tok/s<br>per {'prefill' if apart else 'total'} GPU"),
        ("n", "tok/s/user<br>median"), ("n", "tok/s/user<br>p90"),
        ("n", "TTFT ms<br>median"), ("n", "TTFT ms<br>p99"),
        ("n", "TPOT ms<br>median"), ("n", "TPOT ms<br>p99"), ("n", "accepted<br>length"), "why not",
    ]  # fmt: skip
    return table(titles, [("" if record.valid else "pale", _point_cells(run, record)) for record in records])


def _point_cells(run: Run, record: Record) -> list[Cell]:
    figures, latency = record.figures, run.latency.get(record.point, {})
    slow = sheet.interactivity(latency).get("p90_intvty")
    numbers = [
        (figures.tput_per_gpu, 1), (figures.output_tput_per_gpu, 1), (figures.input_tput_per_gpu, 1),
        (figures.median_intvty, 1), (slow, 1),
        (figures.median_ttft_ms, 1), (figures.p99_ttft_ms, 1), (figures.median_tpot_ms, 2), (figures.p99_tpot_ms, 2),
        (figures.acceptance_length, 2),
    ]  # fmt: skip
    conc = str(record.conc) + (f" (of {record.asked})" if record.conc != record.asked else "")
    conc += f" #{record.repeat + 1}" if record.repeat else ""
    word = "valid" if record.valid else record.state if record.state != "done" else "invalid"
    verdict = ("", f'<span class="{"good" if record.valid else "bad"}">{word}</span>')
    cells = [("n", _number(value, decimals)) for value, decimals in numbers]
    return [("k", conc), verdict, *cells, ("", text("; ".join(record.verdict.reasons)))]


def _number(value: float | None, decimals: int) -> str:
    return "-" if value is None else f"{value:.{decimals}f}"


# --- the evidence of a point ------------------------------------------------------------------------------------


def _evidence(run: Run, record: Record) -> str:
    asked = [gate for gate in record.gates if gate.ok is not None]
    passed = sum(bool(gate.ok) for gate in asked)
    title = f"conc {record.conc}" + (f" #{record.repeat + 1}" if record.repeat else "")
    parts = [
        _gates(record.gates),
        _latencies(run.latency.get(record.point, {})),
        _positions(sheet.positions(record)),
        _counters(record.evidence),
        _errors(record.errors),
        _provenance(record),
    ]
    found = f"{title}: {passed} of {counted(len(asked), 'gate')} passed"
    return _folded(found, "".join(filter(None, parts)))


def _folded(title: str, html: str) -> str:
    return f"<details><summary>{text(title)}</summary><div>{html}</div></details>"


def _gates(gates: Sequence[GateResult]) -> str:
    words = {True: '<span class="good">yes</span>', False: '<span class="bad">no</span>', None: "does not apply"}
    rows = [
        ("pale" if gate.ok is None else "", [("", text(gate.name)), ("", words[gate.ok]), ("", text(gate.why))])
        for gate in gates
    ]
    return table(["gate", "passed", "what it saw"], rows) if rows else ""


def _latencies(latency: Mapping[str, float]) -> str:
    rows = []
    for metric in sheet.METRICS:
        values = [latency.get(f"{rank}_{metric}_ms") for rank in sheet.RANKS]
        if any(value is not None for value in values):
            rows.append(("", [("", f"{metric.upper()} ms"), *(("n", _number(value, 2)) for value in values)]))
    if speed := sheet.interactivity(latency):
        cells = [("n", _number(speed.get(f"{rank}_intvty"), 1)) for rank in sheet.RANKS]
        rows.append(("", [("", "tok/s/user"), *cells]))
    return table(["", *(("n", rank) for rank in sheet.RANKS)], rows) if rows else ""


def _positions(shares: Sequence[float]) -> str:
    if not shares:
        return ""
    titles: list[Title] = ["draft position", *(("n", str(place)) for place in range(1, len(shares) + 1))]
    return table(titles, [("", [("", "accepted"), *(("n", f"{share:.3f}") for share in shares)])])


COUNTERS = ("finished", "prompt_tokens", "generated_tokens", "drafted", "accepted", "steps", "cached_tokens")


def _counters(evidence: Mapping[str, Evidence]) -> str:
    rows: list[tuple[str, Sequence[Cell]]] = []
    for seat, one in evidence.items():
        for side, counters in (("before", one.before), ("after", one.after)):
            values = [getattr(counters, name) if counters else None for name in COUNTERS]
            cells = [("n", "-" if value is None else f"{value:.15g}") for value in values]
            rows.append(("", [("", text(seat)), ("", side), *cells]))
    titles: list[Title] = ["worker", "", *(("n", text(name.replace("_", " "))) for name in COUNTERS)]
    return table(titles, rows) if rows else ""


def _errors(errors: Mapping[str, int]) -> str:
    rows = [("", [("n", str(times)), ("", text(error))]) for error, times in errors.items()]
    return table([("n", "times"), "error"], rows) if rows else ""


def _provenance(record: Record) -> str:
    facts = {
        "image": f"{record.image.tag}  {record.image.id or ''}  {record.image.digest or 'no digest: never pushed'}",
        "load": _load(record),
        "client": _client(record),
        "speculation": f"{record.spec}, depth {record.depth}",
        "time": f"{record.started} to {record.ended}, attempt {record.attempt}",
        "plan": record.plan,
        "files": "  ".join(filter(None, (record.raw, record.agg, record.logs))) or "-",
        "again": record.reproduce,
    }
    return table(["", ""], [("", [("", name), ("", f"<code>{text(value)}</code>")]) for name, value in facts.items()])


def _load(record: Record) -> str:
    many = f"{counted(record.prompts, 'prompt')} and {counted(record.warmups, 'warm-up')}"
    lengths = f"of {record.isl}/{record.osl}, lengths from {record.range_ratio:g} of that, seed {record.seed}"
    return f"{many} {lengths}" + (", chat-framed" if record.chat else "")


def _client(record: Record) -> str:
    if record.drawn is None:
        return "-"
    (low, high), (least, most) = record.drawn.input, record.drawn.output
    return f"{record.drawn.client}, input {low} to {high}, output {least} to {most}"
