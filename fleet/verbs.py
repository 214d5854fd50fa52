"""What each verb of the command line does: one function a verb, the same ones that the console offers.

Each returns an exit code (None is 0) or raises a FleetError. `settings` carries the inventory to use.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import get_args

from fleet import difference, resumes, ui
from fleet import plan as plans
from fleet.docker import Container
from fleet.errors import FleetError, HostError, Interrupted, NotKept, PlanError, PreflightError, UsageError, shown
from fleet.hosts import route
from fleet.hosts.base import Outcome
from fleet.lab import image, packages
from fleet.lab.lab import Lab
from fleet.lab.node import NodeStatus
from fleet.model import limits, load, matrix
from fleet.model.arm import ONCE, Repeats
from fleet.model.inventory import Inventory
from fleet.model.limits import LAST_FAILED
from fleet.model.near import did_you_mean, nearest
from fleet.model.remarks import remarks
from fleet.plan import Plan
from fleet.progress import Silent
from fleet.results import lastfailed, store
from fleet.results.record import latest
from fleet.results.state import Rerun, RunState
from fleet.results.store import RunFolder
from fleet.secret import Secrets
from fleet.session import Machine, Session, connect, owner
from fleet.settings import Settings, duration, near
from fleet.stages import collect, everyone, prove, reaper, secret, spool, teardown, verify
from fleet.stages import follow as follows
from fleet.stages import health as healths
from fleet.stages import lease as leasing
from fleet.stages import model as models
from fleet.stages import stage as stages
from fleet.stages.monitor import Monitor
from fleet.stages.road import Road
from fleet.words import counted

ROOT = Path(__file__).resolve().parent.parent
IN_PATHS = ("run", "arm", "role", "rank", "node", "point")
"""Labels that say where a container's log is kept. Anyone can set them."""

CACHE = ROOT / ".lab"
"""Where the archive of the doubles' image is kept between labs."""


def _inventory(settings: Settings, limit: Sequence[str], *, flag: str = "--limit") -> Inventory:
    """flag: the one that `limit` was typed behind."""
    failed = any(word.lstrip("&!") == f"@{LAST_FAILED}" for word in limits.words(limit))
    sets = {LAST_FAILED: lastfailed.read(settings.results)} if failed else {}
    return load.limit(read_inventory(settings.inventory), limit, sets, flag=flag)


def read_inventory(path: Path) -> Inventory:
    """Like `load.inventory`, aliases of ssh_config with the address that peers use; for a path that is no file
    UsageError names the inventories that are there."""
    if os.path.exists(path) and not os.path.isdir(path):
        return route.with_peer_addresses(load.inventory(path))
    folder = path if os.path.isdir(path) else path.parent
    there = dict.fromkeys([*_inventories(folder), *_inventories(near(ROOT / "inventories"))])
    names = {one.name: one for one in reversed(there)}
    meant = nearest(path.name, names)
    why = "a folder" if os.path.isdir(path) else "no such file" + (f"; did you mean {names[meant]}?" if meant else "")
    listed = ["inventories:", *(f"  {one}" for one in there)] if there else []
    hint = "\n".join([*listed, "type: --inventory FILE, or name it in invoke.yaml: fleet.inventory"])
    raise UsageError(f"{shown(path)}: {why}", where="inventory", hint=hint)


def _inventories(folder: Path) -> list[Path]:
    """The files there that can be inventories."""
    return sorted(one for one in folder.glob("*.y*ml") if one.stem != "invoke") if os.path.isdir(folder) else []


def _plan(
    settings: Settings,
    inventory: Inventory,
    config: str,
    *,
    arm: str = "",
    conc: Sequence[int] = (),
    trial: bool = False,
    repeats: Repeats = ONCE,
) -> Plan:
    recipe = load.recipe(config, settings.recipes, rules=True)
    small = inventory.trial_for(asked=trial)
    return plans.build(recipe, inventory, settings.recipes, arm=arm or None, conc=conc, trial=small, repeats=repeats)


def planned(
    settings: Settings,
    config: str,
    *,
    arm: str = "",
    conc: Sequence[int] = (),
    limit: Sequence[str] = (),
    trial: bool = False,
) -> Plan:
    """The plan of a config as a sweep would make it."""
    return _plan(settings, _inventory(settings, limit), config, arm=arm, conc=conc, trial=trial)


@contextmanager
def _session(
    settings: Settings, inventory: Inventory, *, json: bool = False, secrets: Secrets | None = None
) -> Iterator[Session]:
    progress = ui.progress(json=json)
    try:
        with connect(inventory, settings, progress, secrets=secrets) as session:
            yield session
    finally:
        progress.close()


def plan(
    settings: Settings,
    *,
    config: str = "",
    arm: str = "",
    conc: Sequence[int] = (),
    limit: Sequence[str] = (),
    trial: bool = False,
    diff: str = "",
    repeats: Repeats = ONCE,
    json: bool = False,
) -> int | None:
    """diff: a run. Without a config its own is planned; arm, conc, limit and trial are as given here, not as then."""
    if diff and json:
        raise UsageError("--diff and --json exclude each other", hint="the plan as JSON: --json; as of then: plan.json")
    folder = store.open(settings.results, diff) if diff else None
    then, key, tried = _stored_plan(folder) if folder else (None, "", False)
    inventory = _inventory(settings, limit)
    made = _plan(settings, inventory, config or key, arm=arm, conc=conc, trial=trial, repeats=repeats)
    if then and folder:
        ui.say(difference.text(then, difference.of_plan(made), folder.name))
        if tried and not made.trial:
            ui.say(f"that run was a trial; as a trial too: invoke plan --diff {folder.name} --trial")
        return None
    ui.say(plans.to_json(made) if json else plans.text(made))
    return None


def _stored_plan(folder: RunFolder) -> tuple[difference.Listed, str, bool]:
    """The plan a run was started with, its config key, and whether it was a trial."""
    others = [name for name in store.runs(folder.path.parent) if name != folder.name][-5:]
    hint = f"another run: invoke plan --diff {others[-1]}\nruns here: {'  '.join(others)}" if others else ""
    return folder.planned(
        lambda told: (difference.of_json(told), str(told["key"]), bool(told.get("trial"))),
        hint=hint or "no other run is here; the plan of now: invoke plan --config KEY",
    )


def sweep(
    settings: Settings,
    *,
    config: str = "",
    arm: str = "",
    conc: Sequence[int] = (),
    limit: Sequence[str] = (),
    trial: bool = False,
    fail_fast: bool = False,
    keep_going: bool = False,
    resume: str = "",
    rerun: str = "",
    new: bool = False,
    wait: bool = False,
    steal: bool = False,
    allow_strangers: bool = False,
    allow_drift: bool = False,
    tar: str = "",
    full_hash: bool = False,
    repeats: Repeats = ONCE,
    json: bool = False,
) -> int | None:
    settings = settings.model_copy(update={"full_hash": full_hash or settings.full_hash})
    if fail_fast and keep_going:
        whose = ["--resume", shown(resume)] if resume else ["--config", shown(config) or "KEY"]
        again = shlex.join(["invoke", "sweep", *whose])
        hint = f"to go on after an invalid point (the default): {again}\nto stop at the first: {again} --fail-fast"
        raise UsageError("--fail-fast and --keep-going exclude each other", hint=hint)
    if wait and steal:
        raise UsageError("--wait and --steal exclude each other", hint="see who has the nodes: invoke leases")
    if allow_drift and not resume:
        what = "--allow-drift is for a run that goes on: a new one takes the images that are there"
        raise UsageError(what, hint="leave it out, or: invoke sweep --resume RUN --allow-drift")
    archive = Path(tar).expanduser() if tar else None
    road = partial(
        Road,
        wish=leasing.Wish(wait, steal),
        beside_strangers=allow_strangers,
        allow_drift=allow_drift,
        tar=archive,
    )
    again = resumes.asked(rerun, resume)
    if resume:
        planned = {"--arm": arm, "--conc": conc, "--limit": limit, "--trial": trial, "--new": new}
        planned |= {f"--{word}": True for word in resumes.said(repeats)}
        resumes.only_resumed([flag for flag, value in planned.items() if value], resume)
        return _resume(settings, resume, config, again, road, fail_fast=fail_fast, keep_going=keep_going, json=json)
    inventory = _inventory(settings, limit)
    made = _plan(settings, inventory, config, arm=arm, conc=conc, trial=trial, repeats=repeats)
    if archive:
        spool.holding(archive, [one.arm.image for one in made.arms])
    store.usable(settings.results)
    state = resumes.state(made, settings, arm=arm, conc=conc, fail_fast=fail_fast)
    wish = state.model_copy(update={"trial": trial})
    anew = resumes.typed(wish, inventory=str(settings.inventory), limit=limit)
    notice = "" if new else resumes.earlier(settings.results, made, f"{anew} --new")
    secrets = secret.gathered(made)
    folder = store.create(settings.results, config, made.hash, datetime.now(UTC))
    _describe(settings, folder, made)
    with (
        resumes.driven(folder, state) as drive,
        _session(settings, inventory, json=json, secrets=secrets) as session,
    ):
        for line in filter(None, (_banner(made, folder), notice)):
            session.progress.line(line)
        drive.code = _driven(settings, road(session, made, folder, fail_fast=fail_fast), json)
    _tell_results(folder, json)
    return drive.code


def _resume(
    settings: Settings,
    word: str,
    config: str,
    rerun: Rerun,
    road: Callable[..., Road],
    *,
    fail_fast: bool,
    keep_going: bool,
    json: bool,
) -> int | None:
    """The run's own plan, options and time limits are what counts; what today's files say else is told."""
    folder = store.open(settings.results, word)
    made = resumes.plan_of(folder)
    if config and config != made.key:
        what = f"run {folder.name} is one of {made.key}, not of {shown(config)}"
        raise UsageError(what, hint=f"leave --config out: invoke sweep --resume {folder.name}")
    store.usable(settings.results)
    known = folder.state()
    state = known or resumes.guessed(made, settings)
    state = state.model_copy(update={"fail_fast": fail_fast or (state.fail_fast and not keep_going)})
    anew = resumes.typed(state, inventory=made.inventory.path, limit=_narrowed(made))
    notes = [
        "" if known else resumes.MISSING,
        resumes.drifted(made, lambda: _today(settings, made, state), anew),
        resumes.other_limits(state, settings),
        *folder.oddities(),
    ]
    settings = settings.model_copy(update={"timeouts": state.timeouts})
    secrets = secret.gathered(made)
    with (
        resumes.driven(folder, state) as drive,
        _session(settings, made.inventory, json=json, secrets=secrets) as session,
    ):
        for line in (f"{_banner(made, folder)}   {resumes.heading(made, folder, rerun)}", *filter(None, notes)):
            session.progress.line(line)
        begun = resumes.began(state)
        going = road(session, made, folder, fail_fast=state.fail_fast, resumed=True, rerun=rerun, **begun)
        drive.code = _driven(settings, going, json)
    _tell_results(folder, json)
    return drive.code


def _today(settings: Settings, made: Plan, state: RunState) -> Plan:
    """What the files of today would make of the same wish."""
    named = [host.name for host in made.inventory.hosts]
    inventory = load.limit(read_inventory(Path(made.inventory.path)), named)
    return _plan(
        settings, inventory, made.key, arm=state.arm, conc=state.conc, trial=state.trial, repeats=state.repeats
    )


def _narrowed(made: Plan) -> list[str]:
    """The hosts of a run that was to have less than the inventory of today has."""
    named = [host.name for host in made.inventory.hosts]
    with suppress(FleetError):
        if {host.name for host in read_inventory(Path(made.inventory.path)).hosts} > set(named):
            return named
    return []


def _driven(settings: Settings, road: Road, json: bool) -> int:
    try:
        with _preflight_kept(settings, road):
            return road.go()
    except FleetError:
        road.session.progress.close()
        if road.folder.records():
            _tell_results(road.folder, json)
        raise


@contextmanager
def _preflight_kept(settings: Settings, road: Road) -> Iterator[None]:
    """Keep which hosts a preflight refused, none if it passed, for `--limit @last-failed`."""
    try:
        yield
    except PreflightError as error:
        lastfailed.write(settings.results, "preflight", error.hosts)
        raise
    finally:
        if "hosts" in road.facts:
            lastfailed.write(settings.results, "preflight", ())


def _describe(settings: Settings, folder: RunFolder, made: Plan) -> None:
    """What was asked for goes into the run folder before anything is done."""
    folder.write_text(folder.plan_json, plans.to_json(made))
    folder.write_text(folder.plan_text, plans.text(made))
    folder.write_text(folder.inventory, load.resolved_inventory(made.inventory))
    folder.write_text(folder.recipe, load.resolved(load.recipe(made.key, settings.recipes)))


def _banner(made: Plan, folder: RunFolder) -> str:
    trial = "   TRIAL: not a measurement" if made.trial else ""
    return f"run {folder.name}{trial}"


def _tell_results(folder: RunFolder, json: bool) -> None:
    records = folder.records()
    if json:
        ui.as_json([record.model_dump(mode="json") for record in latest(records)])
        return
    ui.results(records)
    for line in folder.oddities():
        ui.say(line)
    ui.say(f"results: {near(folder.path)}\nsummary: {near(folder.summary_text)}")


def health(
    settings: Settings, *, config: str = "", limit: Sequence[str] = (), watch: bool = False, json: bool = False
) -> int | None:
    """0 only if all is well; 3: a host is not; 4: a service is not, or not yet. watch: every second, until ^C: 130."""
    inventory = _inventory(settings, limit)
    made = _plan(settings, inventory, config) if config else None
    if watch:
        return _watch(settings, inventory, made, json)
    with _session(settings, inventory, json=json) as session:
        found = healths.health(session, made)
    lastfailed.write(settings.results, "health", found.failed)
    if json:
        ui.as_json(found.to_json())
    else:
        ui.health(found)
    return found.code


def _watch(settings: Settings, inventory: Inventory, made: Plan | None, json: bool) -> int:
    """Whoever is not well at the end is who failed last."""
    failed: tuple[str, ...] = ()
    try:
        with (
            connect(inventory, settings, Silent()) as session,
            Monitor(session, made) as monitor,
            closing(ui.watched(len(monitor.hosts), json=json)) as shown,
        ):
            for found in monitor.rounds():
                failed = found.failed
                shown.show(found, datetime.now(UTC))
    except KeyboardInterrupt:
        pass
    finally:
        lastfailed.write(settings.results, "health", failed)
    return Interrupted.exit_code


def ps(settings: Settings, *, limit: Sequence[str] = (), json: bool = False) -> int | None:
    inventory = _inventory(settings, limit)
    with _session(settings, inventory, json=json) as session:
        answers = session.each(session.names, teardown.everything)
    found = [(host, one) for host, answer in answers.items() if not isinstance(answer, FleetError) for one in answer]
    errors = [answer for answer in answers.values() if isinstance(answer, FleetError)]
    if json:
        ui.as_json([{"host": host, **one.model_dump()} for host, one in found])
    else:
        ui.containers(found, [host for host, answer in answers.items() if not isinstance(answer, FleetError)])
    for error in errors:
        ui.complain(error)
    return HostError.exit_code if errors else None


@dataclass(frozen=True)
class Found:
    """A container of ours that is there. log: its last lines; None if they are not wanted."""

    host: str
    container: Container
    log: str | None

    @property
    def run(self) -> str:
        return self.container.labels["run"]

    @property
    def runs(self) -> bool:
        return self.container.state in ("running", "paused", "restarting")


def logs(
    settings: Settings, *, run: str = "", host: str = "", role: str = "", tail: int = 100, follow: bool = False
) -> int | None:
    """From the hosts where containers of the run are there, else from its folder. 3 if a host could not be asked.

    follow: of the one run that is under way, until all its services have ended, or until ^C: 130.
    """
    if follow:
        return _follow(settings, run, host, role, tail)
    named = _named(settings, run)
    inventory, unknown = _asked(settings, host)
    found, errors = _running_logs(settings, inventory, named, role, tail) if inventory else ([], [])
    for error in errors:
        ui.complain(error)
    told = _tell_running(found)
    if not told:
        with suppress(*[UsageError] if errors else []):
            asked = inventory.hosts if inventory and not errors else ()
            told = _tell_saved(settings, run, host, role, tail, found, {one.name for one in asked}, unknown)
    if not told and not errors:
        raise UsageError("no log fits", hint=f"what runs: invoke ps; what is kept: {settings.results / 'latest/logs'}")
    return max((error.exit_code for error in errors), default=None)


def _asked(settings: Settings, host: str) -> tuple[Inventory | None, UsageError | None]:
    """The hosts to ask; or why there are none, as of a host that only an earlier inventory has."""
    read_inventory(settings.inventory)
    try:
        return _inventory(settings, [host] if host else [], flag="--host"), None
    except UsageError as error:
        return None, error


def _tell_running(found: Sequence[Found]) -> bool:
    """The logs of each run that is there, its name first; False if no log is wanted."""
    wanted = [one for one in found if one.log is not None]
    for run in dict.fromkeys(one.run for one in wanted):
        there = [one for one in found if one.run == run]
        state = "under way" if any(one.runs for one in there) else "over; its containers are still there"
        ui.say(f"run {run} of {there[0].container.labels.get('owner', '?')} ({state})")
        for one in wanted:
            if one.run == run:
                text = ui.visible((one.log or "").rstrip())
                ui.say(f"==> {one.host} {healths.seat_of(one.container)}\n{text}")
    return bool(wanted)


def _tell_saved(
    settings: Settings,
    run: str,
    host: str,
    role: str,
    tail: int,
    found: Sequence[Found],
    asked: Set[str],
    unknown: UsageError | None,
) -> bool:
    """The logs in a run's folder; False if none fits. found: what was there of runs on the hosts that were `asked`."""
    folder = _kept(settings, run or next((one.run for one in found if one.runs), ""))
    if unknown and not (run and folder.inventory.exists()) and not _has(folder, host):
        raise unknown
    saved = _saved_logs(folder, host, role, tail)
    if saved:
        ui.say(_whose(folder, found, asked))
    for title, text in saved:
        ui.say(f"==> {title}\n{ui.visible(text.rstrip())}")
    return bool(saved)


def _kept(settings: Settings, run: str) -> RunFolder:
    """The run's folder; without a name the newest with logs, and a word if a newer one has none."""
    if run:
        return store.open(settings.results, run)
    folders = [RunFolder(settings.results / name) for name in reversed(store.runs(settings.results))]
    folder = next((one for one in folders if one.all_logs()), None)
    if folder is None:
        return store.open(settings.results)
    if folder != folders[0]:
        ui.say(f"run {folders[0].name} has no logs, nothing of it was started; this is the latest run that has some:")
    return folder


def _whose(folder: RunFolder, found: Sequence[Found], asked: Set[str]) -> str:
    """Which run's saved logs these are. It is over if none of its hosts has a container of it that runs."""
    there = [one.container.labels.get("owner", "?") for one in found if one.run == folder.name and one.runs]
    hosts = {one.name for one in load.inventory(folder.inventory).hosts} if folder.inventory.exists() else None
    place = f"logs of {near(folder.path)}"
    if there:
        return f"run {folder.name} of {there[0]} (under way; {place})"
    return f"run {folder.name} ({'over; ' if hosts is not None and hosts <= asked else ''}{place})"


def _follow(settings: Settings, run: str, host: str, role: str, tail: int) -> int:
    """3 if a host is lost at the end, or never answered."""
    try:
        with connect(_inventory(settings, [host] if host else [], flag="--host"), settings, Silent()) as session:
            found = follows.look(session)
            chosen = follows.chosen(found, _named(settings, run))
            follows.check_role(role, found, chosen)
            for answer in found.values():
                if isinstance(answer, FleetError):
                    ui.complain(answer)
            with follows.Follow(session, chosen, found, wanted=lambda one: _fits(one, role), tail=tail) as follow:
                ui.say(follow.heading)
                tape = ui.Tape()
                for told in follow.lines():
                    tape.tell(told)
                return follow.code
    except KeyboardInterrupt:
        return Interrupted.exit_code


def _named(settings: Settings, run: str) -> str:
    """`latest` as the name it stands for."""
    return store.open(settings.results).name if run == store.LATEST else run


def _running_logs(
    settings: Settings, inventory: Inventory, run: str, role: str, tail: int
) -> tuple[list[Found], list[FleetError]]:
    """Our containers of the run, and the errors of hosts that could not be asked."""

    def act(machine: Machine) -> list[Found]:
        there = [one for one in teardown.ours(machine) if one.labels["run"].startswith(run)]
        return [
            Found(machine.name, one, collect.tail(machine, one, tail) if _fits(one, role) else None) for one in there
        ]

    try:
        with _session(settings, inventory) as session:
            answers = session.each(session.names, act).values()
    except HostError as error:
        return [], [error]
    errors = [answer for answer in answers if isinstance(answer, FleetError)]
    return [one for answer in answers if not isinstance(answer, FleetError) for one in answer], errors


def _fits(container: Container, role: str) -> bool:
    return not role or role in (container.labels.get("role"), healths.seat_of(container))


def _saved_logs(folder: RunFolder, host: str, role: str, tail: int) -> list[tuple[str, str]]:
    """What each log is of, and its last lines. host: one of the run's own inventory, or a pattern of several."""
    chosen = [path for path in folder.all_logs() if not role or role in _seat_and_role(path)]
    seated = {path: folder.hosts(path.parent.name, path.stem) for path in chosen}
    if host:
        wanted = _of_run(folder, host)
        chosen = [path for path in chosen if wanted & seated[path]]
    return [(_titled(folder, path, seated[path]), collect.last_lines(path, tail)) for path in chosen]


def _titled(folder: RunFolder, path: Path, hosts: Set[str]) -> str:
    place = f"   {_seat_and_role(path)[0]} on {', '.join(sorted(hosts))}" if hosts else ""
    return f"{path.relative_to(folder.path)}{place}"


def _of_run(folder: RunFolder, host: str) -> set[str]:
    """The hosts that a word means in the inventory a run was started with. Raises UsageError."""
    if not folder.inventory.exists():
        return {host}
    return {one.name for one in load.limit(load.inventory(folder.inventory), [host], flag="--host").hosts}


def _has(folder: RunFolder, host: str) -> bool:
    """Whether a run's own inventory knows this host."""
    with suppress(UsageError):
        return folder.inventory.exists() and bool(_of_run(folder, host))
    return False


def _seat_and_role(log: Path) -> tuple[str, str]:
    """client-c4.log → client, client; decode0.log → decode0, decode."""
    seat = log.stem.partition("-")[0]
    return seat, seat.rstrip("0123456789.")


def down(settings: Settings, *, run: str = "", limit: Sequence[str] = (), config: str = "") -> int | None:
    """Logs go to the run's folder under results/, or to results/<run>/ where that folder is not here.

    Without a run only what the same owner started is removed; runs of others are named.
    """
    inventory, run = _inventory(settings, limit), _named(settings, run)
    if config:
        load.recipe(config, settings.recipes)
    _try_disk(settings)
    refused: dict[str, Mapping[str, NotKept]] = {}

    me, others, touched = owner(), set[str](), set[str]()

    def wanted(container: Container) -> bool:
        name, whose = container.labels["run"], container.labels.get("owner", "?")
        if not all(store.is_plain(text) for label, text in container.labels.items() if label in IN_PATHS):
            others.add(f"container {shown(container.name)} has labels that fleet never gives: it is left alone")
            return False
        if (run and name != chosen) or (config and not store.is_of(name, config)):
            return False
        if not run and store.RunFolder(settings.results / name).driven():
            others.add(f"run {name} is under way here and left alone; ^C there ends it, or: invoke down --run {name}")
            return False
        if not run and whose != me:
            others.add(f"run {name} of {whose} is left alone; to remove it: invoke down --run {name}")
        if run or whose == me:
            touched.add(name)
        return name in touched

    def keep(machine: Machine, container: Container) -> None:
        _keep(machine, container, settings.results / container.labels["run"])

    with _session(settings, inventory) as session:
        nodes, _ = leasing.leases(session)
        chosen = teardown.one_run(_runs(session, nodes), run, me) if run else ""
        for one in [leasing.live(nodes).get(chosen)] if chosen else []:
            if one and one.owner != me:
                ui.say(f"run {shown(chosen)} of {shown(one.owner)} is live on {shown(one.host)}: it is stopped now")
        answers = teardown.down(session, wanted, keep, run=chosen, refused=refused)
        again = shlex.join(["invoke", "down", *(["--run", chosen] if run else []), "--inventory", inventory.path])
        stay = {host: teardown.unsaved(session.machine(host), kept, again) for host, kept in refused.items()}
        gone = leasing.over(session, nodes, touched | {chosen})
    for line in (*sorted(others), *gone):
        ui.say(line)
    if run and not gone and not stay and not any(answers.values()):
        raise UsageError(f"no container of run {shown(run)} on {', '.join(answers)}", hint="what runs there: invoke ps")
    return _tell_removed(answers, stay)


def _try_disk(settings: Settings) -> None:
    """Raises UsageError for a results folder that is none. A disk that takes nothing is no reason not to clean up."""
    with suppress(HostError):
        store.usable(settings.results, room=0)


def _keep(machine: Machine, container: Container, folder: Path) -> None:
    """A container's log into a run's folder."""
    found = container.labels
    arm, point = found.get("arm", "unknown"), found.get("point")
    arm, name = map(reaper.plain, (arm, collect.client_title(arm, point) if point else healths.seat_of(container)))
    machine = secret.knowing(machine, container)
    collect.fetch_log(machine, container.id, folder / "logs" / arm / f"{name}.log")


def _runs(session: Session, nodes: Sequence[leasing.Node]) -> dict[str, str]:
    """Runs with containers or leases on the hosts that answer, and whose they are."""
    answers = session.each(session.names, teardown.ours).values()
    found = [one for answer in answers if not isinstance(answer, FleetError) for one in answer]
    leased = {one.answer.lease.run: one.answer.lease.owner for one in nodes if one.answer.lease}
    return {**leased, **{one.labels["run"]: one.labels.get("owner", "?") for one in found}}


def leases(settings: Settings, *, limit: Sequence[str] = (), json: bool = False) -> int | None:
    """3 if a host could not be asked, else 0, whoever has the nodes."""
    with _session(settings, _inventory(settings, limit), json=json) as session:
        nodes, errors = leasing.leases(session)
    if json:
        ui.as_json([node.to_json() for node in nodes])
    elif nodes:
        ui.leases(nodes, datetime.now(UTC))
    for error in errors:
        ui.complain(error)
    return HostError.exit_code if errors else None


def reap(settings: Settings, *, limit: Sequence[str] = (), look: bool = False, json: bool = False) -> int | None:
    """3 if something could not be done on a host, else 0. look: tell what would be done, and do nothing."""
    inventory = _inventory(settings, limit)
    _try_disk(settings)
    aside = settings.results / f"reaped-{datetime.now(UTC):%Y%m%d-%H%M%S}"

    def keep(machine: Machine, container: Container) -> None:
        run = reaper.plain(container.labels["run"])
        own = settings.results / run
        _keep(machine, container, own if own.is_dir() else aside / run)

    with _session(settings, inventory, json=json) as session:
        found = reaper.reap(session, settings.results, keep, look=look)
    if json:
        ui.as_json(found.to_json())
    else:
        ui.reaped(found)
        if aside.is_dir():
            ui.say(f"logs of runs that have no folder here: {near(aside)}")
    for error in found.errors:
        ui.complain(error)
    return HostError.exit_code if found.errors else None


def _tell_removed(answers: dict[str, list[str] | FleetError], stay: Mapping[str, FleetError]) -> int | None:
    """stay: by host, why containers of ours are still there, stopped."""
    for host, answer in answers.items():
        if isinstance(answer, FleetError):
            ui.complain(answer)
        elif answer or host not in stay:
            ui.say(f"{host}: {', '.join(answer) or 'nothing of ours was there'}{' removed' if answer else ''}")
    for error in stay.values():
        ui.complain(error)
    failed = any(isinstance(answer, FleetError) for answer in answers.values())
    return HostError.exit_code if stay or failed else None


def execute(
    settings: Settings, *, cmd: str, limit: Sequence[str] = (), timeout: str = "", json: bool = False
) -> int | None:
    """The exit code of the worst: the highest of the command's codes, and 3 for a host that could not be asked."""
    if not cmd.strip():
        raise UsageError("exec needs a command", hint="type: invoke exec --cmd 'uptime'")
    within = _seconds(timeout) if timeout else settings.timeouts.command
    with _session(settings, _inventory(settings, limit), json=json) as session:
        answers = everyone.ask(session, cmd, timeout=within)
    if json:
        ui.as_json([_answer_json(host, answer) for host, answer in answers.items()])
    else:
        ui.groups(everyone.groups(answers), asked=len(answers))
    for answer in answers.values():
        if isinstance(answer, FleetError):
            ui.complain(answer)
    return everyone.worst(answers)


def _seconds(timeout: str) -> float:
    try:
        return duration(timeout)
    except ValueError as error:
        raise UsageError(f"--timeout {shown(timeout)}: {error}", hint="type: --timeout 90s") from None


def _answer_json(host: str, answer: Outcome | FleetError) -> dict[str, object]:
    if isinstance(answer, FleetError):
        return {"host": host, "code": None, "out": "", "error": str(answer)}
    return {"host": host, "code": answer.code, "out": answer.out, "error": ""}


MOST_BYTES = 1 << 30
"""A file that `cp` takes is read as a whole."""


def cp(settings: Settings, *, source: str, target: str, limit: Sequence[str] = ()) -> int | None:
    """3 if the file did not get to one of the hosts; there, what stood at the target before still does."""
    path, whole = _source(source), _target(source, target)
    try:
        data, mode = path.read_bytes(), path.stat().st_mode & 0o7777
    except OSError as error:
        raise UsageError(f"--source {shown(source)}: {error.strerror}", hint=_ls(path)) from None
    with _session(settings, _inventory(settings, limit)) as session:
        answers = everyone.put(session, data, whole, mode=mode)
    for host, answer in answers.items():
        if isinstance(answer, FleetError):
            ui.complain(answer)
        else:
            ui.say(f"{host}: {whole}  {counted(len(data), 'byte')}, mode {mode:04o}")
    return HostError.exit_code if any(answers.values()) else None


def _source(word: str) -> Path:
    if not word:
        raise UsageError("cp needs a file", hint="type: invoke cp --source FILE --target /PATH")
    path = Path(word).expanduser()
    if not os.path.isfile(path):
        if os.path.isdir(path):
            packed = shlex.join(["tar", "-cf", f"{shown(path.name or 'folder')}.tar", shown(word)])
            raise UsageError(f"--source {shown(word)}: a folder", hint=f"pack it first: {packed}")
        why = "no plain file" if os.path.lexists(path) else "no such file"
        raise UsageError(f"--source {shown(word)}: {why}", hint=_ls(path if os.path.lexists(path) else path.parent))
    if path.stat().st_size > MOST_BYTES:
        raise UsageError(f"--source {shown(word)}: more than 1 GiB", hint="for large files: rsync")
    return path


def _ls(path: Path) -> str:
    return f"look:  {shlex.join(['ls', '-l', '--', shown(path)])}"


def _target(source: str, word: str) -> str:
    """The file's whole path on the hosts; `/folder/` means below it."""
    if not word.startswith("/"):
        what = f"--target {shown(word)}: a path from / expected" if word else "cp needs a place on the hosts"
        raise UsageError(what, hint=f"type: invoke cp --source {shown(source)} --target /tmp/")
    return f"{word}{Path(source).name}" if word.endswith("/") else word


def check_inventory(settings: Settings, *, limit: Sequence[str] = (), about: Sequence[str] = ()) -> int | None:
    """0 if the file is sound. No host is asked. Recipes that find no hosts are told; a lab need not serve them all.

    about: hosts; only what concerns them is told then, recipes as they run on the whole inventory.
    """
    inventory = _inventory(settings, limit)
    found = [_fit(settings, inventory, key) for key in load.recipe_keys(settings.recipes)]
    served, known = sum(not fit.causes for fit in found), len(found)
    shown = inventory
    if about:
        found = [fit for fit in found if set(fit.hosts) & set(about)]
        hosts = tuple(host for host in inventory.hosts if host.name in about)
        shown = inventory.model_copy(update={"hosts": hosts, "notes": ()})
    ui.hosts(shown.hosts)
    ui.say("")
    ui.fits(found)
    for remark in remarks(shown):
        ui.say(f"note: {remark}")
    there = counted(len(inventory.hosts), "host")
    ui.say(f"{inventory.path} is sound: {there}, {served} of {known} recipes can run on them")
    return None


def _fit(settings: Settings, inventory: Inventory, key: str) -> ui.Fit:
    """Whether a recipe can be planned on these hosts."""
    runner, names = "-", []
    try:
        runner = load.recipe(key, settings.recipes).config.runner
        names = [host.name for host in inventory.hosts if runner in host.runners]
        made = _plan(settings, inventory, key)
    except FleetError as error:
        causes, arms = (error.causes, error.arms) if isinstance(error, PlanError) else ({error.what: ()}, 0)
        return ui.Fit(key, runner, tuple(names), arms=arms, causes=causes)
    return ui.Fit(key, runner, tuple(names), arms=len(made.arms), points=made.points)


def stage(settings: Settings, *, config: str, limit: Sequence[str] = (), tar: str = "") -> int | None:
    inventory = _inventory(settings, limit)
    made = _plan(settings, inventory, config)
    tags = list(dict.fromkeys(arm.arm.image for arm in made.arms))
    archives = spool.holding(Path(tar).expanduser(), tags) if tar else {}
    with _session(settings, inventory) as session:
        for tag in tags:
            images = stages.stage(session, tag, session.names, tar=archives.get(tag))
            prove.prove(session, made, tag, session.names, images[session.names[0]].id, run=_unkept(made))
    return None


def _unkept(made: Plan) -> str:
    """What containers carry as their run where there is no run folder: in its form, so that `down` finds them."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{made.key}-{made.hash6}"


def verify_image(
    settings: Settings, *, config: str, arm: str = "", limit: Sequence[str] = (), json: bool = False
) -> int | None:
    """3 unless every image is the same on all its hosts, starts, has what the plan needs, and knows every flag."""
    inventory = _inventory(settings, limit)
    made = _plan(settings, inventory, config, arm=arm)
    with _session(settings, inventory, json=json) as session:
        found = verify.verify(session, made, run=_unkept(made))
    if json:
        ui.as_json(found.to_json())
    else:
        ui.verified(found)
    for error in filter(None, (*found.faults, verify.fault(made, found))):
        ui.complain(error)
    return None if found.well else HostError.exit_code


def stage_model(
    settings: Settings, *, config: str, limit: Sequence[str] = (), source: str = "", full_hash: bool = False
) -> int | None:
    """3 if a host does not have the model in the end. source: a host of the inventory, whether or not limit has it."""
    recipe = load.recipe(config, settings.recipes)
    chosen = _inventory(settings, limit)
    targets = tuple(host for host in chosen.hosts if recipe.config.runner in host.runners)
    if not targets:
        what = f"no host of {chosen.path} answers to runner {shown(recipe.config.runner)} of {config}"
        raise UsageError(what, hint="see which hosts there are: invoke inventory.check")
    first = _inventory(settings, [source], flag="--from").hosts if source else ()
    if len(first) > 1:
        what = f"--from {shown(source)}: one host expected, it means {counted(len(first), 'host')}"
        raise UsageError(what, hint=f"one of them: --from {first[0].name}")
    hosts = (*first, *(host for host in targets if host not in first))
    words = ["invoke", "stage.model", "--config", config, *(["--from", source] if source else [])]
    words += [*(["--limit", ",".join(limit)] if limit else []), "--inventory", chosen.path]
    words += ["--full-hash"] * full_hash
    with _session(settings, chosen.model_copy(update={"hosts": hosts})) as session:
        wanted = first[0].name if first else ""
        full = full_hash or settings.full_hash
        done = models.copy(session, recipe.model_basename, source=wanted, full=full, again=shlex.join(words))
    for error in done.failed.values():
        ui.complain(error)
    return HostError.exit_code if done.failed else None


def expand(
    settings: Settings, *, config: str, master: str = "", evals: str = "default", json: bool = False
) -> int | None:
    """Reading a config asks only the public schema; what cannot run is planning's to say."""
    mode = _evals(evals)
    if master:
        path = Path(master)
        recipe = load.pick(load.master(path), config, path)
    else:
        recipe = load.recipe(config, settings.recipes)
    entries = matrix.entries(recipe, evals=mode)
    if json:
        ui.as_json(entries)
    else:
        ui.entries(entries)
    return None


def _evals(word: str) -> matrix.Evals:
    choices: tuple[matrix.Evals, ...] = get_args(matrix.Evals)
    for choice in choices:
        if word == choice:
            return choice
    raise UsageError(
        f"--evals {shown(word)}: one of {', '.join(choices)} expected{did_you_mean(word, choices)}",
        hint=f"type: --evals {nearest(word, choices) or choices[0]}",
    )


def lab_install(settings: Settings) -> int | None:
    if not packages.missing():
        ui.say("all Debian packages that the lab needs are installed")
    packages.install(ui.say)
    return None


def lab_up(settings: Settings, *, nodes: int = 3) -> int | None:
    lab = Lab()
    lab.up(nodes, say=ui.say)
    first, *others = lab.nodes()
    doubles = image.build(CACHE)
    image.ensure(lab, first, doubles)
    for node in image.forget_others(lab, others, doubles):
        ui.say(f"{node}: an earlier image of the doubles is forgotten")
    up = counted(len(lab.nodes()), "node")
    ui.say(f"the lab is up with {up}; see them: invoke lab.status; take it down: invoke lab.down")
    return None


def lab_down(settings: Settings) -> int | None:
    Lab().down(say=ui.say)
    return None


def lab_status(settings: Settings, *, json: bool = False) -> int | None:
    """0 only if there is a lab and each of its nodes answers, else 3."""
    nodes = Lab().status()
    if json:
        ui.as_json([asdict(node) for node in nodes])
    elif nodes:
        ui.table(("node", "address", "state", "sshd", "docker", "containers", "disk", "faults"), map(_lab_row, nodes))
    else:
        ui.say("the lab is not up; bring it up: invoke lab.up")
    return 0 if nodes and all(node.sshd and node.docker for node in nodes) else HostError.exit_code


def _lab_row(node: NodeStatus) -> tuple[str, ...]:
    return (
        node.name,
        node.address,
        node.state,
        "answers" if node.sshd else "silent",
        "answers" if node.docker else "silent",
        "-" if node.containers is None else str(node.containers),
        "-" if node.disk is None else f"{node.disk_used}/{node.disk} MB",
        ", ".join(node.faults) or "-",
    )
