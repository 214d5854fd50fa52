"""What runs say, for people and other programs: `invoke report` and `invoke export`."""

from __future__ import annotations

import json as codec
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fleet import plan as plans
from fleet import ui
from fleet.errors import FleetError, UsageError, shown
from fleet.model.arm import Arm
from fleet.model.near import did_you_mean
from fleet.results import chart, page, plot, sheet, store
from fleet.results import export as exports
from fleet.results.export import Exported
from fleet.results.record import Record, latest
from fleet.results.sheet import Run
from fleet.results.store import RunFolder
from fleet.settings import Settings, near
from fleet.words import counted

FORMATS = ("inferencex",)
MANIFEST = "fleet-export.jsonl"
"""What an export's folder holds, a line a file. Public collectors take every *.json."""

TEXTS = {
    "the plan: every step as the exact argv": "plan.txt",
    "provenance: what each host said of itself, images and versions": "facts.json",
    "the recipe as resolved": "recipe.yaml",
    "the inventory as resolved": "inventory.yaml",
    "how the run was asked for, and who drove it": "state.json",
}


def report(
    settings: Settings,
    *,
    runs: Sequence[str] = (),
    html: str = "",
    svg: str = "",
    json: bool = False,
    csv: bool = False,
) -> int | None:
    """runs: words that name runs, none for the latest. html: a file, svg: a folder, written beside what is printed."""
    if json and csv:
        raise UsageError("--json and --csv exclude each other", hint="each prints to stdout: run it twice")
    folders = {folder.name: folder for folder in (store.open(settings.results, word) for word in runs or ("latest",))}
    found = [read(folder) for folder in folders.values()]
    written = _pictures(found, Path(svg)) if svg else ""
    if html:
        made = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        _write(Path(html), page.page(found, made=made).encode())
    if json:
        ui.as_json(sheet.as_json(found))
    elif csv:
        ui.raw(sheet.csv_text(found))
    else:
        _tell(found)
        for line in filter(None, (html and f"page: {near(Path(html))}", written)):
            ui.say(line)
    return None


def read(folder: RunFolder) -> Run:
    """A run as it lies there; what is missing beside its records is left out. Raises FleetError."""
    records = folder.records()
    summary = _json(folder.summary_json) or {}
    key = records[0].key if records else str(summary.get("key") or folder.name)
    return Run(
        name=folder.name,
        key=key,
        records=records,
        latency={
            one.point: sheet.latencies(_json(folder.raw(one.point, one.attempt)) or {}) for one in latest(records)
        },
        notes=_lines(summary.get("notes")),
        ended_early=_lines(summary.get("ended_early")),
        texts={title: text for title, name in TEXTS.items() if (text := _text(folder.path / name))},
    )


def export(
    settings: Settings,
    *,
    run: str = "",
    form: str = FORMATS[0],
    to: str = "",
    runner: str = "",
    include_invalid: bool = False,
) -> int | None:
    """The results of a run in a public format. to: the folder, made where it is missing; default: in the run's."""
    if form not in FORMATS:
        what = f"--format {shown(form)}: one of {', '.join(FORMATS)} expected{did_you_mean(form, FORMATS)}"
        raise UsageError(what, hint=f"type: --format {FORMATS[0]}")
    folder = store.open(settings.results, run)
    arms = folder.planned(_arms, hint="its points cannot be exported without the plan")
    records = latest(folder.records())
    for record in records:
        exports.unmarked(record)
    made, left = _made(folder, arms, records, runner, include_invalid=include_invalid)
    if not made:
        raise FleetError("nothing to export", where=folder.name, hint="\n".join(left) or "no point has run")
    target = Path(to) if to else folder.path / "export"
    _lay(target, made)
    ui.say(f"{len(made)} of {counted(len(records), 'point')} as {form}: {near(target)}")
    for line in left:
        ui.say(f"left out: {line}")
    return None


# --- report -----------------------------------------------------------------------------------------------------


def _tell(runs: Sequence[Run]) -> None:
    for run in runs:
        ui.say(f"run {run.name}")
        ui.results(run.records)
        for arm, record in {record.arm: record for record in run.points}.items():
            ui.say(f"{arm}: {sheet.denominators(record)}")
        for line in run.ended_early:
            ui.say(f"ended early: {line}")
        ui.say("")
    ui.say("no point was judged by these, as nothing tells them:")
    for line in sheet.unknown(runs):
        ui.say(f"  {line}")


def _pictures(runs: Sequence[Run], target: Path) -> str:
    drawn = plot.charts(runs)
    with _writable(target):
        target.mkdir(parents=True, exist_ok=True)
    for name, one in drawn.items():
        _write(target / f"{name}.svg", chart.svg(one).encode())
    return f"{counted(len(drawn), 'picture')}: {near(target)}"


# --- export -----------------------------------------------------------------------------------------------------


def _arms(told: Any) -> dict[str, Arm]:
    return {arm.arm.name: arm.arm for arm in plans.of_json(told).arms}


def _made(
    folder: RunFolder, arms: dict[str, Arm], records: Iterable[Record], runner: str, *, include_invalid: bool
) -> tuple[list[Exported], list[str]]:
    """What is exported, and why the rest is not, a line each. Of points with one public name the first counts."""
    made: dict[str, Exported] = {}
    left: list[str] = []
    for record in sorted(records, key=lambda one: one.repeat):
        try:
            raw = folder.raw(record.point, record.attempt)
            one = exports.exported(record, _arm(arms, record), _bytes(raw), runner, include_invalid=include_invalid)
        except FleetError as error:
            left.append(f"{record.point}: {error.what}")
            continue
        if one.raw_name in made:
            left.append(f"{record.point}: {made[one.raw_name].point} has the same public name")
        else:
            made[one.raw_name] = one
    return list(made.values()), left


def _arm(arms: dict[str, Arm], record: Record) -> Arm:
    if record.arm not in arms:
        raise FleetError("its arm is not in the run's plan")
    return arms[record.arm]


def _lay(target: Path, made: Sequence[Exported]) -> None:
    """Write an export; what an earlier one left there goes. Raises UsageError for a folder with other things in it."""
    manifest = target / MANIFEST
    with _writable(target):
        target.mkdir(parents=True, exist_ok=True)
        earlier = {codec.loads(line)["file"] for line in (_text(manifest) or "").splitlines()} | {MANIFEST}
        if others := sorted({one.name for one in target.iterdir()} - earlier):
            what = f"holds other things ({', '.join(map(shown, others[:3]))}), which a collector would take for results"
            raise UsageError(what, where=str(target), hint="another folder: --to FOLDER")
        for old in list(target.iterdir()):
            old.unlink()
    for one in made:
        for name, data in one.files.items():
            _write(target / name, data)
    lines = [codec.dumps({"file": name, **one.told}, ensure_ascii=False) for one in made for name in one.files]
    _write(manifest, "".join(f"{line}\n" for line in lines).encode())


# --- files ------------------------------------------------------------------------------------------------------


def _write(path: Path, data: bytes) -> None:
    with _writable(path):
        store.replace(path, data)


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", where=shown(path), hint="name another place") from None
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{MANIFEST} there is damaged", where=shown(path), hint="name another place") from None


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FleetError(f"its raw result cannot be read: {error.strerror}") from None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _json(path: Path) -> dict[str, Any] | None:
    """The object in a file; None if there is none."""
    with suppress(ValueError, RecursionError):
        found = codec.loads(_text(path) or "null")
        return found if isinstance(found, dict) else None
    return None


def _lines(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()
