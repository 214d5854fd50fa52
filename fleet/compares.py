"""What results/ holds, runs set against each other, and the noise floor that decides what is a difference."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from fleet import plan as plans
from fleet import ui, verbs
from fleet.errors import FleetError, UsageError, shown
from fleet.model.arm import Repeats
from fleet.model.near import did_you_mean, nearest
from fleet.results import compare as comparing
from fleet.results import ledger, sample, store, telling
from fleet.results import noise as noises
from fleet.results.ledger import Entry
from fleet.results.noise import Noise
from fleet.results.record import utc
from fleet.results.sample import Sample
from fleet.results.store import RunFolder
from fleet.results.topology import ACROSS
from fleet.settings import Settings, near

KEPT = "noise.jsonl"
"""Where results/ keeps the noise floors."""

MANY = Repeats(count=5)
NO_REPEATS = "a noise floor needs at least two valid repeats of a point"


def compare(settings: Settings, *, a: str = "", b: str = "", across: str = "", json: bool = False) -> int | None:
    """a, b: a run's name or its beginning, latest, or an aggregate's file. 2 if no point can be compared."""
    if across and across not in ACROSS:
        what = f"--across {shown(across)}: one of {', '.join(ACROSS)} expected{did_you_mean(across, ACROSS)}"
        raise UsageError(what, hint=f"type: --across {nearest(across, ACROSS) or 'mtp'}")
    ours, theirs = (_samples(settings, flag, word) for flag, word in (("--a", a), ("--b", b)))
    found = comparing.compare(ours, theirs, across=across, kept=kept(settings.results))
    if json:
        ui.as_json(comparing.to_json(found))
    else:
        ui.say(telling.comparison(found))
        others = [one for one in ACROSS if not found.curves and comparing.compare(ours, theirs, across=one).curves]
        for name in others[:1]:
            ui.say(f"\nthey can be with --across {name}: {', '.join(ACROSS[name])} may differ then")
    return None if found.curves else UsageError.exit_code


def _samples(settings: Settings, flag: str, word: str) -> tuple[Sample, ...]:
    if not word:
        names = store.runs(settings.results)[-5:]
        raise UsageError(
            f"{flag} is needed: a run, or the file of a public aggregate",
            hint=f"runs: {'  '.join(names) or 'none yet'}\ntype: invoke compare --a RUN --b RUN",
        )
    path = Path(word).expanduser()
    if word.endswith(".json") or (os.path.isfile(path) and not (settings.results / word).is_dir()):
        return _foreign(path, flag)
    return of_run(store.open(settings.results, word))


def _foreign(path: Path, flag: str) -> tuple[Sample, ...]:
    hint = "a run goes by its name: invoke results; a file is a public aggregate (agg_….json)"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{flag}: {error.strerror}", where=shown(str(path)), hint=hint) from None
    except UnicodeDecodeError:
        raise UsageError(f"{flag}: no text, so no aggregate", where=shown(str(path)), hint=hint) from None
    return sample.of_aggregates(text, shown(str(path)))


def of_run(folder: RunFolder) -> tuple[Sample, ...]:
    """The points of a run. Raises UsageError: it has none, or its plan is not there or is no plan."""
    records = folder.records()
    if not records:
        raise UsageError("no point of this run has ended yet", where=str(folder.path), hint="others: invoke results")
    return folder.planned(
        lambda told: sample.of_run(records, plans.of_json(told)),
        hint="without it nobody knows which workers served; another run: invoke results",
    )


# --- noise ----------------------------------------------------------------------------------------------------------


def noise(
    settings: Settings,
    *,
    config: str = "",
    run: str = "",
    arm: str = "",
    conc: Sequence[int] = (),
    limit: Sequence[str] = (),
    trial: bool = False,
    repeats: Repeats = MANY,
    json: bool = False,
) -> int | None:
    """What the repeats of a run tell; it is kept for later comparisons. config: sweep one point with repeats first."""
    if bool(config) == bool(run):
        what = "--config and --run exclude each other" if run else "--config or --run is needed"
        raise UsageError(what, hint="of repeats that ran: --run RUN; to run some: --config KEY")
    code = None
    if config:
        if json:
            raise UsageError("--json goes with --run", hint="run it without, then: invoke noise --run latest --json")
        arm, conc = _one_point(settings, config, arm, conc, limit, trial=trial)
        code = verbs.sweep(
            settings, config=config, arm=arm, conc=conc, limit=limit, trial=trial, new=True, repeats=repeats
        )
    folder = _just_run(settings.results) if config else store.open(settings.results, run)
    _tell_noise(settings, folder, json)
    return code


def _one_point(
    settings: Settings, config: str, arm: str, conc: Sequence[int], limit: Sequence[str], *, trial: bool
) -> tuple[str, Sequence[int]]:
    """Where none is named: the smallest concurrency of the first arm."""
    first = verbs.planned(settings, config, arm=arm, conc=conc, limit=limit, trial=trial).arms[0]
    return first.arm.name, conc or [min(planned.point.asked for planned in first.points)]


def _just_run(root: Path) -> RunFolder:
    """The run that this process drove last."""
    for name in reversed(store.runs(root)):
        state = RunFolder(root / name).state()
        if state and state.drives and state.drives[-1].pid == os.getpid():
            return RunFolder(root / name)
    return store.open(root)


def _tell_noise(settings: Settings, folder: RunFolder, json: bool) -> None:
    samples = of_run(folder)
    made = folder.planned(plans.of_json, hint="another run: invoke results")
    at = utc(datetime.now(UTC))
    found = noises.of_run(samples, run=folder.name, key=made.key, at=at, restarted=made.repeats.restarts)
    if not found:
        raise UsageError(NO_REPEATS, where=folder.name, hint=f"run some: invoke noise --config {made.key}")
    path = keep(settings.results, found)
    if json:
        ui.as_json([one.model_dump(mode="json") for one in found])
    else:
        ui.say(telling.noise(found, samples) + f"\nkept in {near(path)}, where compare finds it")


def keep(root: Path, found: Sequence[Noise]) -> Path:
    """Add to results/noise.jsonl; what the same run and arm said before is replaced. Raises NotKept."""
    path = root / KEPT
    ours = {(one.run, one.arm) for one in found}
    lines = [*(one for one in kept(root) if (one.run, one.arm) not in ours), *found]
    with store.told(root, path):
        store.replace(path, "".join(one.to_line() for one in lines).encode())
    return path


def kept(root: Path) -> tuple[Noise, ...]:
    try:
        return noises.read((root / KEPT).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ()


# --- what is there --------------------------------------------------------------------------------------------------


def results(settings: Settings, *, config: str = "", json: bool = False) -> int | None:
    """All runs under results/, or those of one config. Damaged ones are told as such; 2 if there is none."""
    entries = [_entry(RunFolder(settings.results / name)) for name in store.runs(settings.results)]
    chosen = [one for one in entries if config in ("", one.key)]
    if not chosen:
        keys = sorted({one.key for one in entries})
        what = f"no run of {shown(config)}{did_you_mean(config, keys)}" if config else "no run yet"
        hint = f"there are runs of: {'  '.join(keys)}" if keys else "start one: invoke sweep --config KEY"
        raise UsageError(what, where=str(settings.results), hint=hint)
    if json:
        ui.as_json([one.model_dump(mode="json") for one in chosen])
    else:
        ui.table(ledger.HEAD, ledger.table(chosen))
    return None


def _entry(folder: RunFolder) -> Entry:
    # 20261130-210405-KEY-7f3a9c, and -2 behind it for the second of a second
    key = re.sub(r"-[0-9a-f]{6}(-\d+)?$", "", folder.name[len("20261130-210405-") :])
    try:
        return ledger.entry(folder.name, key, folder.records(), folder.state(), driven=folder.driven())
    except FleetError as error:
        return ledger.damaged(folder.name, key, shown(error.what.partition("\n")[0]))
