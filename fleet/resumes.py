"""Going on with a run: which plan it has, what is missing of it, who drives it, and earlier runs of a plan."""

from __future__ import annotations

import hashlib
import os
import shlex
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from fleet import plan as plans
from fleet.errors import FleetError, Interrupted, UsageError, shown
from fleet.model.arm import Repeats
from fleet.model.near import did_you_mean, nearest
from fleet.plan import Plan
from fleet.results import store
from fleet.results.record import utc
from fleet.results.state import Drive, Rerun, RunState, count_to_run
from fleet.results.store import RunFolder
from fleet.session import owner
from fleet.settings import Settings
from fleet.words import counted


def asked(rerun: str, resume: str) -> Rerun:
    """Raises UsageError for a word that --rerun does not know, and where no run is named."""
    choices: tuple[Rerun, ...] = get_args(Rerun)
    for choice in choices:
        if rerun == choice:
            if rerun and not resume:
                raise UsageError(
                    "--rerun needs a run", hint=f"type: invoke sweep --resume RUN --rerun {rerun}, or --resume latest"
                )
            return choice
    known = [choice for choice in choices if choice]
    what = f"--rerun {shown(rerun)}: one of {', '.join(known)} expected{did_you_mean(rerun, known)}"
    raise UsageError(what, hint=f"type: --rerun {nearest(rerun, known) or known[0]}")


def only_resumed(flags: Sequence[str], run: str) -> None:
    """Raises UsageError for flags that would make another plan."""
    if flags:
        what = f"{', '.join(flags)} cannot be given with --resume: the plan of the run is what goes on"
        raise UsageError(what, hint=f"type: {shlex.join(['invoke', 'sweep', '--resume', shown(run)])}")


def repeats(count: int, order_seed: int, *, restarts: bool) -> Repeats:
    """Raises UsageError for what means nothing where each point runs once."""
    found = Repeats(count=count, order_seed=order_seed, restarts=restarts)
    if count == 1 and said(found):
        alone = ", ".join(f"--{name}" for name in said(found))
        raise UsageError(f"{alone}: each point runs once", hint="type: --repeats 3 beside it, or leave it out")
    return found


def said(found: Repeats) -> dict[str, str]:
    """The flags, with their values, that ask for these repeats; none for what holds without."""
    words = {"repeats": str(found.count)} if found.count != 1 else {}
    words |= {"order-seed": str(found.order_seed)} if found.order_seed else {}
    return words | ({"restart-between": ""} if found.restarts else {})


def plan_of(folder: RunFolder) -> Plan:
    """The plan a run was started with. Raises UsageError, also for one that was changed since."""
    state = folder.state()
    anew = typed(state) if state else "invoke sweep --config KEY"
    hint = f"nothing was started; to start anew: {anew}"
    made = folder.planned(plans.of_json, hint=hint)
    if state and state.plan_file not in ("", _sum(folder)):
        what = "the run's plan.json was changed since the run began: its points would not be those of one plan"
        raise UsageError(what, where=str(folder.plan_json), hint=hint)
    return made


def _sum(folder: RunFolder) -> str:
    return hashlib.sha256(folder.plan_json.read_bytes()).hexdigest() if folder.plan_json.exists() else ""


def state(
    made: Plan, settings: Settings, *, arm: str = "", conc: Sequence[int] = (), fail_fast: bool = False
) -> RunState:
    return RunState(
        key=made.key,
        plan=made.hash,
        planned=made.points,
        arm=arm,
        conc=tuple(conc),
        trial=made.trial is not None,
        repeats=made.repeats,
        fail_fast=fail_fast,
        timeouts=settings.timeouts,
    )


MISSING = (
    "state.json is missing from the run's folder: who drove the run and its time limits are not known; it goes on with "
    "its own plan, the points that are there, and today's time limits"
)


def guessed(made: Plan, settings: Settings) -> RunState:
    """For a run without a state.json: how it can have been asked for, as its plan shows it."""
    arm = made.arms[0].arm.name if len(made.arms) == 1 else ""
    conc = sorted({planned.point.asked for one in made.arms for planned in one.points})
    return state(made, settings, arm=arm, conc=conc)


def typed(state: RunState, *, inventory: str = "", limit: Sequence[str] = ()) -> str:
    """The line that asks for the same as a run was asked for, with the files of today."""
    words = ["invoke", "sweep", "--config", state.key, *(["--arm", state.arm] if state.arm else [])]
    words += ["--conc", ",".join(map(str, state.conc))] if state.conc else []
    words += ["--limit", ",".join(limit)] if limit else []
    words += ["--inventory", inventory] if inventory else []
    words += [word for flag, value in said(state.repeats).items() for word in (f"--{flag}", value) if word]
    return shlex.join([*words, *["--trial"] * state.trial, *["--fail-fast"] * state.fail_fast])


# --- who drives it --------------------------------------------------------------------------------------------------


@dataclass
class Driving:
    """The exit code that this process ends the run with; None until it is known."""

    code: int | None = None


@contextmanager
def driven(folder: RunFolder, wanted: RunState) -> Iterator[Driving]:
    """Hold the run, and write into its state.json that it began and, however the block ends, how it ended.

    Raises LeaseHeld if another process drives it. Killed, no end is written: that is how a crash is known.
    """
    me = Drive(begun=_now(), pid=os.getpid(), machine=socket.gethostname(), owner=owner())
    driving = Driving()
    with folder.held(me):
        # Between its reading and the lock another process may have driven the run to an end.
        kept = folder.state()
        update = {"drives": kept.drives if kept else wanted.drives, "plan_file": _sum(folder)}
        begun = wanted.model_copy(update=update).begun(me)
        folder.write_state(begun)
        try:
            yield driving
        except BaseException as error:
            with suppress(FleetError):
                folder.write_state(begun.over(_now(), _why(error), _code(error)))
            raise
        folder.write_state(begun.over(_now(), "", driving.code))


def _why(error: BaseException) -> str:
    if isinstance(error, FleetError):
        return shown(error.head.partition("\n")[0])
    return "interrupted" if isinstance(error, KeyboardInterrupt) else f"a fault in fleet: {type(error).__name__}"


def _code(error: BaseException) -> int | None:
    if isinstance(error, KeyboardInterrupt):
        return Interrupted.exit_code
    return error.exit_code if isinstance(error, FleetError) else None


def _now() -> str:
    return utc(datetime.now(UTC))


def began(found: RunState) -> dict[str, Any]:
    """When the run's first process began, as `Road` takes it."""
    return {"started": datetime.fromisoformat(found.drives[0].begun)} if found.drives else {}


# --- what is told ---------------------------------------------------------------------------------------------------


def heading(made: Plan, folder: RunFolder, rerun: Rerun) -> str:
    left = count_to_run(made, folder.records(), rerun)
    return f"resumed: {left} of {counted(made.points, 'point')} to run"


def drifted(made: Plan, today: Callable[[], Plan], anew: str) -> str:
    """A line where the files of today, or this version of fleet, would make another plan; "" if they would not.

    anew: what runs today's.
    """
    ours = f"the run goes on with its own plan {made.hash6}"
    if not plans.same(made):
        return f"this version of fleet starts containers otherwise than the run's did; {ours}"
    try:
        now = today()
    except FleetError as error:
        return f"today's files do not make a plan ({shown(error.head.partition(chr(10))[0])}); {ours}"
    if now.hash == made.hash:
        return ""
    return f"today's files make another plan, {now.hash6}; {ours}; to run today's: {anew}"


def other_limits(found: RunState, settings: Settings) -> str:
    then, now = found.timeouts.model_dump(), settings.timeouts.model_dump()
    differing = [f"{name} {then[name]:g} s (today {now[name]:g} s)" for name in then if then[name] != now[name]]
    return f"time limits are the run's own: {', '.join(differing)}" if differing else ""


# --- earlier runs of a plan -----------------------------------------------------------------------------------------


def earlier(root: Path, made: Plan, anyway: str) -> str:
    """A line if the newest run of this plan that nobody drives has a part of its points; "" if there is none to tell.

    anyway: the line that starts a new run all the same. Raises UsageError if that run's process ended without a word.
    """
    for name in reversed(store.runs(root)):
        folder = RunFolder(root / name)
        if not store.is_of(name, made.key) or f"-{made.hash6}" not in name or folder.driven():
            continue
        found = folder.state()
        if found is None or found.plan != made.hash:
            continue
        missing = count_to_run(made, folder.records())
        if not found.ended:
            raise _crashed(folder, found, missing, made, anyway)
        whole = counted(made.points, "point")
        told = f"an earlier run of this plan has {missing} of {whole} missing: invoke sweep --resume {name}"
        return told if 0 < missing < made.points else ""
    return ""


def _crashed(folder: RunFolder, found: RunState, missing: int, made: Plan, anyway: str) -> UsageError:
    who = str(found.drives[-1]) if found.drives else "its process"
    what = (
        f"a run of this plan is unfinished: {folder.name}\n"
        f"  {who} ended without a word; {missing} of {counted(made.points, 'point')} missing, containers may still run"
    )
    down = shlex.join(["invoke", "down", "--run", folder.name, "--inventory", made.inventory.path])
    lines = [
        f"go on with it:  invoke sweep --resume {folder.name}",
        f"start anew:     {anyway}",
        f"remove what it left on the hosts:  {down}",
    ]
    return UsageError(what, hint="\n".join(lines))
