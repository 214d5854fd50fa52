"""The whole chain of a sweep: preflight, stage, then for each arm launch, ready, its points, collect, teardown."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from fleet import docker, probes
from fleet.checkpoint import Checkpoint
from fleet.docker import Image
from fleet.errors import FleetError, HostError, Interrupted, NotKept, NotReady, ServiceDied
from fleet.plan import ArmPlan, Plan, PlannedPoint, rounds
from fleet.results import record as records
from fleet.results import report
from fleet.results.lock import Lock
from fleet.results.record import Record
from fleet.results.state import Rerun, to_run
from fleet.results.store import RunFolder
from fleet.session import Machine, Session
from fleet.stages import adopt, launch, obituary, prove, spool, weights
from fleet.stages import lease as leases
from fleet.stages.collect import client_log, collect
from fleet.stages.deployment import Deployment
from fleet.stages.preflight import Findings, held_gpus, preflight
from fleet.stages.ready import ready
from fleet.stages.rest import rest
from fleet.stages.stage import stage
from fleet.stages.sweep import run_point
from fleet.stages.teardown import teardown
from fleet.stages.watch import Deaths, HostLost
from fleet.stages.watcher import Bystander, Watcher
from fleet.words import counted

VALID, NOT_ALL_VALID, DIED = 0, 1, 4


@dataclass
class Road:
    """One run under way. `notes` are told in the summary: arms that ended early, points that were not run.

    resumed: an earlier process drove the run, and may have left containers. rerun: which points run again.
    allow_drift: go on though a tag names another image than when the run began.
    tar: an image archive here.
    """

    session: Session
    plan: Plan
    folder: RunFolder
    fail_fast: bool = False
    resumed: bool = False
    rerun: Rerun = ""
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    ended_early: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    code: int = VALID
    next: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    points: dict[str, tuple[PlannedPoint, ...]] = field(default_factory=dict)
    deployments: dict[str, Deployment] = field(default_factory=dict)
    wish: leases.Wish = field(default_factory=leases.Wish)
    beside_strangers: bool = False
    allow_drift: bool = False
    lock: Lock = field(default_factory=Lock)
    tar: Path | None = None

    def go(self) -> int:
        """The exit code: 0 all valid, 1 not all, 4 a service died or an arm never got ready.

        Raises PreflightError and HostError; Interrupted after ^C, when everything is home and down. The summary is
        written whatever happens.
        """
        earlier = self.folder.records()
        self.points = {arm.arm.name: to_run(arm, earlier, self.rerun) for arm in self.plan.arms}
        try:
            with leases.held(self.session, _hosts(self.plan), self.folder.name, **self._lease()) as lease:
                self._prepare()
                for arm in self.plan.arms:
                    lease.check()
                    if self.points[arm.arm.name] and not self._arm(arm):
                        break
        except KeyboardInterrupt:
            self.ended_early = ("interrupted",)
            raise self._between_arms() from None
        except FleetError as error:
            self.ended_early = _told_lines(error)
            ended = isinstance(error, Interrupted | prove.Drifted)
            if "images" in self.facts and not ended and (again := self._again()):
                error.hint = "\n".join(filter(None, (error.hint, f"next: {again}")))
            raise
        finally:
            self._not_run()
            self._summarize()
        return self.code or (VALID if self._all_valid() else NOT_ALL_VALID)

    def _between_arms(self) -> Interrupted:
        """^C where no arm is being worked on: what was adopted is not touched."""
        kept = [host for one in self.deployments.values() if one.adopted for host in one.hosts]
        what = f"interrupted; {self._kept()}"
        if kept:
            what += f"; containers of {self.folder.name} may still run on {', '.join(kept)}"
        again = self._again()
        lines = [f"next: {again}" if again else f"see: {self.folder.path}"]
        lines += [f"remove them: {_down(self.folder, self.plan)}"] * bool(kept)
        return Interrupted(what, hint="\n".join(lines))

    def _prepare(self) -> None:
        """Preflight, then every image on its hosts. A run that preflight refuses does not become the latest.

        Where no point is to be run, the hosts are only asked what an earlier process of the run left there.
        """
        if not any(self.points.values()):
            self._leftovers()
            return
        if self.resumed:
            self.facts.update(self.folder.read_facts())
            self.lock = self.folder.lock()
        own = self.folder.name if self.resumed else ""
        found = preflight(self.session, self.plan, own=own, beside_strangers=self.beside_strangers)
        self._unmoved(prove.seen(found))
        self.facts["hosts"] = _told(found)
        self._weights(found)
        if self.beside_strangers:
            shared = {host: held_gpus(one) for host, one in found.items() if not one.ours}
            self.notes += [f"{host} was shared: {why}" for host, why in shared.items() if why]
        self.session.go_on()
        self.folder.make_latest()
        self._leftovers()
        wanted = _images(self.plan)
        archives = spool.holding(self.tar, wanted) if self.tar else {}
        for tag, hosts in wanted.items():
            images = self._proven(tag, hosts, stage(self.session, tag, hosts, tar=archives.get(tag)))
            self.facts.setdefault("images", {})[tag] = _image_facts(images)
            if any(image.double for image in images.values()):
                self.session.progress.line(f"DOUBLE: {tag} plays an engine: not a measurement")
        self._write_facts()

    def _unmoved(self, found: Mapping[str, Mapping[str, str]]) -> None:
        """Raises HostError where the run began with another image. found: IDs by tag and host."""
        words = ["invoke", "sweep", "--resume", self.folder.name, *(["--rerun", self.rerun] if self.rerun else [])]
        self.lock = prove.unmoved(self.session, self.lock, found, again=words, allowed=self.allow_drift)

    def _proven(self, tag: str, hosts: Sequence[str], staged: Mapping[str, Image]) -> dict[str, Image]:
        """Each host's image as it is there. Where the run has proven it before it is not started again."""
        self._unmoved({tag: {host: image.id for host, image in staged.items()}})
        (id,) = {image.id for image in staged.values()}
        before = self.lock.proven(id)
        found = prove.prove(self.session, self.plan, tag, hosts, id, run=self.folder.name, before=before)
        self.lock = self.lock.with_image(tag, found.images, found.seconds)
        self.folder.write_lock(self.lock)
        return found.images

    def _weights(self, found: dict[str, Findings]) -> None:
        """Raises HostError where they are not those that the run began with: its points would not be of one model."""
        then, now = self.facts.get("weights", {}), weights.facts(weights.by_model(_weighed(found)))
        if why := weights.changed(then, now):
            hint = f"its points are kept; to start anew: invoke sweep --config {self.plan.key} --new"
            raise HostError("\n".join(why), where=self.folder.name, hint=hint)
        self.facts["weights"] = {**now, **then}

    def _leftovers(self) -> None:
        """Of a run that goes on: adopt what serves the arm that is next, clear away the rest."""
        if not self.resumed:
            return
        found = adopt.left(self.session, _hosts(self.plan), self.folder.name)
        deployments = [self._deployment(arm) for arm in self.plan.arms]
        for deployment in deployments:
            if self.points[deployment.arm.arm.name]:
                adopt.adopt(deployment, found)
                break
        if cleared := adopt.clear(deployments, self.session, found):
            what = counted(len(cleared), "container")
            self.session.progress.line(f"  removed what was left, logs are home: {what} ({', '.join(cleared)})")

    def _deployment(self, arm: ArmPlan) -> Deployment:
        if arm.arm.name not in self.deployments:
            hosts = self.facts.get("hosts", {}).items()
            clocks = {host: probes.lead(told["clock_offset_s"], told["clock_error_s"]) for host, told in hosts}
            self.deployments[arm.arm.name] = Deployment.of(self.session, self.folder, self.plan, arm, clocks)
        return self.deployments[arm.arm.name]

    def _lease(self) -> dict[str, Any]:
        starts = sum(len(rounds(arm.points, arm.restarts)) for arm in self.plan.arms)
        longest = self.session.settings.timeouts.longest(len(_images(self.plan)), starts, self.plan.points)
        return {"longest": longest, "wish": self.wish, "kept": self._kept}

    # ------------------------------------------------------------------ one arm

    def _arm(self, arm: ArmPlan) -> bool:
        """Whether to go on with the next arm."""
        self.session.progress.line(_heading(arm))
        there = len(arm.points) - len(self.points[arm.arm.name])
        if there:
            self.session.progress.line(f"  {there} of {counted(len(arm.points), 'point')} there already")
        for why in arm.dropped:
            self.session.progress.line(f"  not run: {why}")
        deployment = self._deployment(arm)
        try:
            for number, points in enumerate(rounds(self.points[arm.arm.name], arm.restarts)):
                if number:
                    del self.deployments[arm.arm.name]
                    deployment = self._deployment(arm)
                with self._up(deployment):
                    if not self._points(deployment, points):
                        return False
            return True
        except (ServiceDied, NotReady) as error:
            self.code = DIED
            self.notes.append(f"arm {arm.arm.name} ended early: {_headline(error)}")
            self.session.progress.line(self._obituary(deployment, error))
            return not self.fail_fast and not isinstance(error, HostLost)

    @contextmanager
    def _up(self, deployment: Deployment) -> Iterator[None]:
        """The arm's containers while the block runs; then their logs come home, and they are removed.

        Raises Interrupted after ^C: during the block or during the clearing, which is then begun anew.
        """
        try:
            try:
                with Watcher(deployment):
                    yield
            except FleetError as error:
                self.session.progress.line(f"  {_headline(error)}: bringing the logs of {_in_reach(deployment)} home")
                self._clear(deployment)
                raise
            except Exception:
                self._clear(deployment)
                raise
            self._clear(deployment)
        except KeyboardInterrupt:
            self._interrupted(deployment)

    def _clear(self, deployment: Deployment) -> None:
        with Bystander(deployment):
            problems = [*collect(deployment), *teardown(deployment), *self._unsaved(deployment)]
        self.session.progress.clear()
        for problem in problems:
            self.session.progress.line(f"  teardown: {problem}")
            self.notes.append(f"teardown of {deployment.arm.arm.name}: {_headline(problem)}")

    def _unsaved(self, deployment: Deployment) -> list[FleetError]:
        """What to do about containers whose logs the disk here did not take."""
        if not deployment.unsaved:
            return []
        many = counted(sum(map(len, deployment.unsaved.values())), "service")
        what = f"the logs of {many} could not be saved: their containers stay, stopped, on "
        hint = f"free some space; this brings the logs home and removes the containers: {_down(self.folder, self.plan)}"
        return [NotKept(what + ", ".join(sorted(deployment.unsaved)), where=str(self.folder.path), hint=hint)]

    def _interrupted(self, deployment: Deployment) -> NoReturn:
        left = f"containers of {self.folder.name} may still run on {', '.join(deployment.hosts)}"
        try:
            told = "interrupted: bringing logs home, then stopping our containers; ^C again leaves now"
            with suppress(OSError):  # the terminal or the pipe may be what is gone
                self.session.progress.line(told)
            self._clear(deployment)
        except KeyboardInterrupt:
            lines = [f"remove them: {_down(self.folder, self.plan)}"]
            lines += [f"or go on with them: {again}"] if (again := self._again()) else []
            raise Interrupted(f"left at once; {left}", hint="\n".join(lines)) from None
        again = self._again()
        raise Interrupted(self._kept(), hint=f"next: {again}" if again else f"see: {self.folder.path}") from None

    def _points(self, deployment: Deployment, points: tuple[PlannedPoint, ...]) -> bool:
        images = launch.images(deployment)
        if self.resumed or deployment.arm.restarts:
            adopt.set_logs_aside(deployment)
            adopt.fresh_folders(deployment)
        launch.launch(deployment)
        told = ready(deployment, within=self.session.settings.timeouts.ready_within)
        self.session.progress.line(f"  {told}")
        self._versions(deployment)
        record = None
        for planned in points:
            self._rest(deployment, record, planned)
            self.folder.room()
            self.folder.set_aside(client_log(deployment, planned.point.id))
            record = run_point(deployment, planned, images)
            self._summarize()
            if self.fail_fast and not record.valid:
                self.session.progress.line("stopped at the first point that is not valid (--fail-fast)")
                return False
        _same_at_the_end(images, launch.images(deployment))
        return True

    def _rest(self, deployment: Deployment, earlier: Record | None, planned: PlannedPoint) -> None:
        """Of a valid point nothing is under way: its every request has come back."""
        if earlier.valid if earlier else not deployment.adopted:
            return
        after = f"conc {earlier.conc}" if earlier else "what an earlier process had sent"
        before = f"conc {planned.point.conc}"
        rest(deployment, after=after, before=before, within=self.session.settings.timeouts.rest_within)

    def _versions(self, deployment: Deployment) -> None:
        """What the engine says of its versions, by seat, for the facts."""
        found = self.facts.setdefault("versions", {})

        def act(machine: Machine) -> dict[str, str]:
            service = deployment.on(machine.name, deployment.arm.servers)[0]
            argv = docker.exec_argv(deployment.named(service), deployment.engine.VERSIONS)
            return dict(
                line.split(" ", 1) for line in machine.docker(argv, check=False).out.splitlines() if " " in line
            )

        hosts = [service.host for service in deployment.arm.servers]
        answers = self.session.each(hosts, act)
        found[deployment.arm.arm.name] = {host: answer for host, answer in answers.items() if isinstance(answer, dict)}
        self._write_facts()

    # ------------------------------------------------------------------ what is told and written

    def _obituary(self, deployment: Deployment, error: FleetError) -> str:
        """Death in three parts: what, why as the logs tell it, what is kept and what to type."""
        deaths = error.deaths if isinstance(error, Deaths) else ()
        lines = [str(error), *obituary.lines(deployment, deaths)]
        logs = self.folder.logs(deployment.arm.arm.name)
        lines.append(f"logs of {_in_reach(deployment)} are in {logs}; {self._kept()}")
        if again := self._again(deployment.arm):
            lines.append(f"next: {again}")
        return "\n".join(lines)

    def _again(self, *arms: ArmPlan) -> str:
        """The line that runs what is not valid yet, of these arms or of all; "" where nothing is left."""
        wanted, earlier = arms or self.plan.arms, self.folder.records()
        words = ["invoke", "sweep", "--resume", self.folder.name]
        if any(to_run(arm, earlier) for arm in wanted):
            return shlex.join(words)
        failed = any(to_run(arm, earlier, "failed") for arm in wanted)
        return shlex.join([*words, "--rerun", "failed"]) if failed else ""

    def _kept(self) -> str:
        done = [record for record in records.latest(self.folder.records()) if record.state == "done"]
        return f"{counted(len(done), 'finished point')} kept in {self.folder.path}"

    def _not_run(self) -> None:
        ran = {record.point for record in self.folder.records()}
        for arm in self.plan.arms:
            missing = [planned.point.title for planned in arm.points if planned.point.id not in ran]
            between = ", " if self.plan.repeats.count > 1 else " "
            if missing:
                self.notes.append(f"not run: {arm.arm.name} at conc {between.join(missing)}")
        self.next = f"next: {again}" if (again := self._again()) else ""

    def _all_valid(self) -> bool:
        latest = records.latest(self.folder.records())
        return len(latest) == self.plan.points and all(record.valid for record in latest)

    def _write_facts(self) -> None:
        self.folder.write_json(self.folder.facts, self.facts)

    def _summarize(self) -> None:
        found = self.folder.read()
        facts = report.RunFacts(
            run=self.folder.name,
            key=self.plan.key,
            plan=self.plan.hash,
            image=", ".join(_images(self.plan)),
            hosts=_hosts(self.plan),
            started=records.utc(self.started),
            ended=records.utc(datetime.now(UTC)),
            planned=self.plan.points,
            torn=found.torn is not None,
            trial=self.plan.trial is not None,
            ended_early=self.ended_early,
            notes=(
                *(f"deviates from the public recipe: {line}" for line in self.plan.deviations),
                *(f"{arm.arm.name}: not run: {why}" for arm in self.plan.arms for why in arm.dropped),
                *map(str, self.lock.drifts),
                *self.folder.oddities(),
                *self.notes,
                *filter(None, (self.next,)),
            ),
        )
        self.folder.write_text(self.folder.summary_text, report.summary_markdown(facts, found.records))
        self.folder.write_json(self.folder.summary_json, report.summary_json(facts, found.records))


def _told_lines(error: BaseException) -> tuple[str, ...]:
    """What an error says without its hint."""
    if not isinstance(error, FleetError):
        return ("interrupted",)
    said = f"{error.where}: {error.what}" if error.where else error.what
    return tuple(line.strip() for line in said.splitlines())


def _in_reach(deployment: Deployment) -> str:
    """How many services are on hosts that are not lost."""
    return counted(sum(one.host in deployment.reachable for one in deployment.services), "service")


def _headline(error: BaseException) -> str:
    return "; ".join(_told_lines(error))


def _down(folder: RunFolder, plan: Plan) -> str:
    return shlex.join(["invoke", "down", "--run", folder.name, "--inventory", plan.inventory.path])


def _heading(arm: ArmPlan) -> str:
    one = arm.arm
    concs = " ".join(map(str, arm.concs))
    lengths = " ".join(dict.fromkeys(f"{planned.point.isl}/{planned.point.osl}" for planned in arm.points))
    return f"arm {one.name}   {lengths}   conc {concs}   {counted(sum(one.gpus.values()), 'GPU')}"


def _images(plan: Plan) -> dict[str, list[str]]:
    """Hosts by image tag, in the plan's order."""
    found: dict[str, list[str]] = {}
    for arm in plan.arms:
        hosts = found.setdefault(arm.arm.image, [])
        hosts += [seat.host for seat in arm.placement.seats if seat.host not in hosts]
    return found


def _hosts(plan: Plan) -> tuple[str, ...]:
    return tuple(dict.fromkeys(host for hosts in _images(plan).values() for host in hosts))


def _told(findings: dict[str, Findings]) -> dict[str, Any]:
    return {
        host: {
            **finding.facts,
            "docker": finding.docker,
            "clock_offset_s": finding.clock_offset_s,
            "clock_error_s": finding.seconds / 2,
            "gpus": [gpu.model_dump() for gpu in finding.gpus],
            "models": {name: listing.model_dump() for name, listing in finding.models.items() if listing},
            "strangers": list(finding.strangers),
        }
        for host, finding in findings.items()
    }


def _weighed(findings: dict[str, Findings]) -> dict[str, dict[str, Checkpoint | None]]:
    return {host: finding.weights for host, finding in findings.items()}


def _image_facts(images: dict[str, Image]) -> dict[str, Any]:
    return {
        host: {
            "id": image.id,
            "digest": image.digest,
            "digests": list(image.digests),
            "labels": image.labels,
            "double": image.double,
        }
        for host, image in images.items()
    }


def _same_at_the_end(before: dict[str, Image], after: dict[str, Image]) -> None:
    for host, image in before.items():
        if after[host].id != image.id:
            raise FleetError(f"the image changed while the arm ran: {image.id}, then {after[host].id}", where=host)
