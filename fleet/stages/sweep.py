"""Run one point: put the load on, watch, bring the result home, judge it, and write the record before going on."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from fleet import awake, docker
from fleet.docker import Image
from fleet.errors import FleetError, HostError, LeaseHeld, NotReady, ServiceDied
from fleet.model.evidence import Counters, Measurement
from fleet.model.service import Service
from fleet.patience import Hunger, Patience
from fleet.plan import PlannedPoint
from fleet.results import record as records
from fleet.results.aggregate import aggregate, figures
from fleet.results.judge import acceptance_length, judge
from fleet.results.record import Evidence, Figures, Record, State, Verdict
from fleet.session import Machine
from fleet.stages import adopt, collect, corpse, counters, watch
from fleet.stages.deployment import Deployment, by_host, checks, spoken
from fleet.stages.launch import start
from fleet.stages.teardown import STOP_SECONDS, ours
from fleet.stages.wait import NotYet, wait
from fleet.stages.watch import Deaths

EVERY = 1.0
"""Seconds between two looks at the containers and the counters while a load runs."""

ROUTER_SECONDS = 2.0
"""How long the router may take to say how many workers it sees, while a load runs."""

SHORT_LOOKS = 3
"""Looks in a row at which the router counts too few workers, until that ends the load."""

SCAN_SECONDS = 120.0
"""For reading what all services of a host logged during a point."""


@dataclass(frozen=True)
class Load:
    """How a load client ended. `code` is None if it was stopped; `why` then says for what reason.

    raw: the result it wrote, None if it wrote none; broken: why what it wrote is no result. error: what ended the load
    and shall end the arm, once the record is written.
    """

    code: int | None
    why: str = ""
    raw: dict[str, Any] | None = None
    broken: str = ""
    last_words: str = ""
    error: FleetError | None = None

    @property
    def deaths(self) -> tuple[str, ...]:
        if isinstance(self.error, Deaths):
            return tuple(map(str, self.error.deaths))
        return (self.error.what,) if isinstance(self.error, ServiceDied) else ()


def run_point(deployment: Deployment, planned: PlannedPoint, images: dict[str, Image]) -> Record:
    """One point from start to record; the record is on disk when this returns. images: the arm's, by host.

    Raises, after the record was written: ServiceDied, HostError if a host is lost, KeyboardInterrupt (the client is
    then left to teardown).
    """
    return PointRunner(deployment, planned, images).run()


class PointRunner:
    """The state of one running point."""

    def __init__(self, deployment: Deployment, planned: PlannedPoint, images: dict[str, Image]) -> None:
        self.deployment = deployment
        self.planned = planned
        self.point = planned.point
        self.image = images[planned.client.host]
        self.ids = {host: image.id for host, image in images.items()}
        self.unlike: list[str] | None = None
        self.double = any(image.double for image in images.values())
        self.client = planned.client
        self.machine = deployment.session.machine(planned.client.host)
        self.labelled = replace(deployment, labels=deployment.labels.model_copy(update={"point": self.point.id}))
        self.name = self.labelled.named(self.client)
        self.short = 0
        self.log = collect.client_log(deployment, self.point.id)
        self.patience = Patience(
            total=self.point.prompts + self.point.warmups,
            conc=self.point.conc,
            osl=self.point.osl,
            floor=deployment.session.settings.timeouts.request_within,
        )
        decoders = [one for one in counters.http_servers(deployment) if one.seat.role == "decode"]
        self.hunger = {one.name: Hunger(spoken(one), deployment.vigil.transfers) for one in decoders}
        earlier = deployment.folder.records()
        self.attempt = 1 + sum(record.point == self.point.id for record in earlier)

    def run(self) -> Record:
        started = datetime.now(UTC)
        before: dict[str, Counters] = {}
        try:
            before = watch.meanwhile(self.deployment, lambda: counters.settled(self.deployment))
            watch.alive(self.deployment)
        except FleetError as problem:
            load = Load(None, one_line(problem.head), error=problem)
        else:
            load = self._loaded(started, before)
        load, after = self._settled(load)
        record = self._record(started, before, after, load)
        self._keep(record)
        self._remove_client(load)
        if isinstance(load.error, Deaths):
            raise Deaths(load.error.deaths, where=f"conc {self.point.conc} stopped")
        if load.error:
            raise load.error
        return record

    def _loaded(self, started: datetime, before: dict[str, Counters]) -> Load:
        try:
            start(self.labelled, [self.client])
            self.deployment.vigil.loaded = True
            return self._load(before)
        except KeyboardInterrupt:
            self._keep(self._record(started, before, {}, Load(None, "interrupted")))
            raise
        except FleetError as problem:
            return self._not_started(problem)
        finally:
            self.deployment.vigil.loaded = False

    def _settled(self, load: Load) -> tuple[Load, dict[str, Counters]]:
        """The counters after the load; what dies meanwhile ends the arm, once the record is written."""
        if load.error is not None:
            return load, {}
        try:
            after = watch.meanwhile(self.deployment, lambda: counters.settled(self.deployment))
            if self._failures(load):
                corpse.certain(self.deployment)
            self.unlike = self._looked_at()
            return load, after
        except ServiceDied as death:
            return replace(load, code=None, why=death.what, error=death), {}

    def _looked_at(self) -> list[str]:
        """What of the running deployment is not as planned, or could not be asked."""
        deployment, grouped = self.deployment, by_host(self.deployment.services)

        def act(machine: Machine) -> list[str]:
            return adopt.unlike(machine, deployment, grouped[machine.name], self.ids[machine.name])

        answers = deployment.session.each(grouped, act).items()
        told = ([f"{host}: {one.what}"] if isinstance(one, FleetError) else one for host, one in answers)
        return [line for lines in told for line in lines]

    def _failures(self, load: Load) -> bool:
        """Whether the client ended by itself, and not every request was answered."""
        measurement, _ = self._measurement(load)
        return load.code is not None and (measurement is None or measurement.completed < measurement.requested)

    def _keep(self, record: Record) -> None:
        self.deployment.folder.append_record(record)
        self.deployment.session.progress.record(record)

    # ------------------------------------------------------------------ load

    def _load(self, before: dict[str, Counters]) -> Load:
        """Watch the client to its end, and bring home what it left."""
        within = self.deployment.session.settings.timeouts.point_within
        try:
            look = partial(watch.meanwhile, self.deployment, lambda: self._look(before))
            code = wait(look, what=spoken(self.client), within=within, every=EVERY)
        except Deaths as death:
            return self._stopped(Load(None, str(death.deaths[0]), error=death))
        except ServiceDied as death:
            return self._stopped(Load(None, one_line(death.what), error=death))
        except HostError as lost:
            return self._stopped(Load(None, one_line(lost.head), error=lost))
        except LeaseHeld as taken:
            return self._stopped(Load(None, one_line(taken.what), error=taken))
        except NotReady as late:
            return self._stopped(Load(None, f"{late.what} (timeouts.point_within: {within:.0f} s)"))
        except FleetError as error:
            return self._stopped(Load(None, error.what))
        return self._brought_home(Load(code))

    def _not_started(self, problem: FleetError) -> Load:
        load = Load(None, problem.what, error=problem)
        return load if self.name in self.deployment.taken else self._stopped(load)

    def _look(self, before: dict[str, Counters]) -> int | NotYet:
        # In this order: a client that failed because a service died is a death.
        state = self._container()
        watch.alive(self.deployment, surely=state is None or not state.running)
        self._router()
        if state is None:
            raise FleetError("its container is gone", where=spoken(self.client))
        if state.status == watch.PAUSED:
            self.machine.docker(["docker", "unpause", self.name], check=False)  # one that is paused cannot be stopped
            raise FleetError(f"{spoken(self.client)} is paused: by whom?  docker events --filter event=pause")
        if not state.running and state.status not in ("created", "restarting"):
            return state.exit_code
        metrics = counters.glance(self.deployment)
        now = counters.counted(self.deployment, metrics)
        self.patience.see(awake.now(), _finished(self.deployment, before, now))
        self._tell(self.patience.done)
        self._fed(before, now, metrics)
        if hung := self.patience.lost(awake.now()):
            raise FleetError("; ".join(filter(None, (hung, corpse.stale(self.deployment)))))
        return NotYet(f"{self.patience.done} of {self.patience.total} requests")

    def _fed(self, before: dict[str, Counters], now: dict[str, Counters], metrics: dict[str, str]) -> None:
        """Raises FleetError for a decode worker to which no KV comes: its requests would hang to the end."""
        clock, errors = awake.now(), self.deployment.vigil.transfers
        computing = {seat: self.deployment.engine.computing(metrics.get(seat, "")) for seat in self.hunger}
        for seat, hunger in self.hunger.items():
            hunger.see(clock, now.get(seat, Counters()).finished, computing[seat], errors)
        prefill = [one.name for one in counters.http_servers(self.deployment) if one.seat.role == "prefill"]
        handed = _risen(before, now, prefill)
        taken = _risen(before, now, list(self.hunger))
        if handed is None or taken is None:
            return
        lost = handed - taken - sum(filter(None, computing.values()))
        whys = [one.starved(clock, errors, lost, self.patience.limit) for one in self.hunger.values()]
        if told := "; ".join(filter(None, whys)):
            raise FleetError(told)

    def _router(self) -> None:
        """A router that counts fewer workers than planned measures another deployment. Raises ServiceDied."""
        router = self.deployment.arm.router
        if router is None:
            return
        machine = self.deployment.session.machine(router.host)
        whys = []
        for check in checks(self.deployment.arm, router):
            answer = self.deployment.get(machine, router, check.path, timeout=ROUTER_SECONDS)
            if not isinstance(answer, str) and (why := check.judge(answer)):
                whys.append(f"{check.title}: {why}")
        self.short = self.short + 1 if whys else 0
        if self.short >= SHORT_LOOKS:
            raise ServiceDied(f"{spoken(router)}: {'; '.join(whys)}", where=f"conc {self.point.conc} stopped")

    def _tell(self, done: float) -> None:
        """The bar is the arm's: earlier points count as done."""
        points = [planned.point for planned in self.deployment.arm.points]
        place = points.index(self.point)
        sizes = [point.prompts + point.warmups for point in points]
        what = f"{self.point.arm} conc {self.point.title}, point {place + 1} of {len(points)}"
        self.deployment.session.progress.requests(what, sum(sizes[:place]) + done, sum(sizes))

    def _container(self) -> docker.State | None:
        """The client's container; None if someone has removed it."""
        outcome = self.machine.docker(docker.inspect_argv([self.name]), check=False)
        return next(iter(docker.parse_inspect(outcome.out)), None)

    def _stopped(self, load: Load) -> Load:
        """Stop the client and keep what it left, as far as its host still answers."""
        if self.machine.name in self.deployment.vigil.lost:
            return load
        try:
            self.machine.docker(docker.stop_argv([self.name]), timeout=60, check=False)
            return self._brought_home(load)
        except HostError as lost:
            return replace(load, error=load.error or lost)

    def _brought_home(self, load: Load) -> Load:
        collect.fetch_log(self.machine, self.name, self.log)
        written = collect.raw_result(self.machine, self.deployment, self.deployment.load.result_path(self.point))
        if written is not None:
            self.deployment.folder.write_bytes(self.deployment.folder.raw(self.point.id, self.attempt), written)
        raw, broken = _read(written)
        return replace(load, raw=raw, broken=broken, last_words=self._last_words())

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        said = [text for line in lines if (text := line.partition(" ")[2].strip())]
        return said[-1][:300] if said else ""

    def _remove_client(self, load: Load) -> None:
        """After its log is home. On a lost host it stays for `down` to find."""
        if self.machine.name in self.deployment.vigil.lost:
            return
        try:
            there = ours(self.machine, run=self.labelled.labels.run, point=self.point.id)
            if there and self.name not in self.deployment.taken:
                self.machine.docker(docker.rm_argv([self.name]), timeout=STOP_SECONDS)
        except HostError:
            if load.error is None:
                raise

    # ------------------------------------------------------------------ record

    def _record(self, started: datetime, before: dict[str, Counters], after: dict[str, Counters], load: Load) -> Record:
        deployment, point, arm = self.deployment, self.point, self.deployment.arm.arm
        measurement, broken = self._measurement(load)
        roles = {service.name: service.seat.role for service in counters.http_servers(deployment)}
        errors, silent = transfer_errors(deployment, started) if load.code is not None else ([], [])
        drawn = deployment.load.drawn(point)
        cached = [deployment.engine.prefix_cache(service.argv) for service in deployment.arm.servers]
        verdict, gates = judge(
            point, arm, measurement, before, after, roles, load.deaths, errors, drawn,
            wall_s=(datetime.now(UTC) - started).total_seconds(), prefix_cache=any(cached), unlike=self.unlike,
        )  # fmt: skip
        verdict = _with_reasons(verdict, [*_client_reasons(load), *broken, *silent])
        agg, no_agg = self._aggregate(load, verdict)
        folder = deployment.folder
        return Record(
            run=folder.name,
            key=deployment.plan.key,
            plan=deployment.plan.hash,
            arm=arm.name,
            point=point.id,
            conc=point.conc,
            asked=point.asked,
            repeat=point.repeat,
            attempt=self.attempt,
            started=records.utc(started),
            ended=records.utc(datetime.now(UTC)),
            state=_state(load, measurement),
            verdict=verdict,
            gates=gates,
            double=self.double,
            trial=point.trial,
            chat=point.chat,
            isl=point.isl,
            osl=point.osl,
            prompts=point.prompts,
            warmups=point.warmups,
            seed=point.seed,
            range_ratio=point.range_ratio,
            drawn=drawn,
            spec=arm.spec,
            depth=arm.depth,
            gpus=arm.gpus,
            image=records.Image(tag=arm.image, id=self.image.id, digest=self.image.digest),
            completed=measurement.completed if measurement else None,
            requested=measurement.requested if measurement else None,
            duration_s=measurement.duration_s if measurement else None,
            total_input_tokens=measurement.total_input_tokens if measurement else None,
            total_output_tokens=measurement.total_output_tokens if measurement else None,
            errors=measurement.errors if measurement else {},
            figures=self._figures(load, acceptance_length(before, after, roles)),
            evidence={seat: Evidence(before=before.get(seat), after=after.get(seat)) for seat in roles},
            raw=folder.relative(folder.raw(point.id, self.attempt)) if load.raw is not None or load.broken else None,
            agg=folder.relative(folder.agg(point.id, self.attempt)) if agg else None,
            no_agg=no_agg,
            logs=folder.relative(folder.logs(arm.name)),
            reproduce=records.reproduce(
                deployment.plan.key, arm.name, point.asked, deployment.plan.inventory.path, trial=point.trial
            ),
        )

    def _measurement(self, load: Load) -> tuple[Measurement | None, list[str]]:
        if load.raw is None:
            return None, [load.broken] if load.broken else []
        try:
            return self.deployment.load.parse(load.raw), []
        except (KeyError, ValueError, TypeError) as error:
            return None, [f"client: its result cannot be read: {type(error).__name__}: {error}"]

    def _aggregate(self, load: Load, verdict: Verdict) -> tuple[dict[str, Any] | None, str | None]:
        """The public aggregate of a valid point, written beside its raw result; else why there is none."""
        if load.raw is None:
            return None, "no result"
        if not verdict.valid:
            return None, "the point is not valid"
        try:
            made = aggregate(load.raw, self.deployment.arm.arm, point=self.point)
            self.deployment.folder.write_json(self.deployment.folder.agg(self.point.id, self.attempt), made)
        except ValueError as error:
            return None, f"the client's result holds what JSON cannot: {error}"
        except FleetError as error:
            return None, str(error)
        return made, None

    def _figures(self, load: Load, acceptance: float | None) -> Figures:
        """Headline numbers, of invalid points as well: they are shown, and never counted."""
        return figures(load.raw, self.deployment.arm.arm, acceptance) if load.raw else Figures()


def one_line(text: str) -> str:
    return "; ".join(map(str.strip, text.splitlines()))


def _finished(deployment: Deployment, before: dict[str, Counters], now: dict[str, Counters]) -> float | None:
    """Requests that decode (or aggregated) workers have finished since the point began; None if not all of them say."""
    last = [s.name for s in counters.http_servers(deployment) if s.seat.role in ("decode", "server")]
    return _risen(before, now, last)


def _risen(before: dict[str, Counters], now: dict[str, Counters], seats: Sequence[str]) -> float | None:
    """Requests that these seats have finished since then; None if not all of them say."""
    ends = [(before.get(seat, Counters()).finished, now.get(seat, Counters()).finished) for seat in seats]
    moves = [after - earlier for earlier, after in ends if earlier is not None and after is not None]
    return sum(moves) if len(moves) == len(seats) else None


def _state(load: Load, measurement: Measurement | None) -> State:
    if load.code is None:
        return "incomplete"
    return "done" if measurement is not None else "failed"


def _client_reasons(load: Load) -> list[str]:
    if load.code is None:
        return [f"client: stopped: {load.why}"]
    if load.code != 0:
        return [f"client: exit {load.code}: {load.last_words}"]
    return []


def _with_reasons(verdict: Verdict, more: Sequence[str]) -> Verdict:
    return Verdict(valid=False, reasons=(*more, *verdict.reasons)) if more else verdict


def _read(written: bytes | None) -> tuple[dict[str, Any] | None, str]:
    """A client's result, or why what it wrote is none."""
    if written is None:
        return None, ""
    try:
        value = json.loads(written)
    except ValueError as error:
        return None, f"client: its result is not JSON: {error}"
    return (value, "") if isinstance(value, dict) else (None, "client: its result is not a JSON object")


def transfer_errors(deployment: Deployment, since: datetime) -> tuple[list[str], list[str]]:
    """Lines about failed KV transfers that servers and router logged since then, with the seat that logged them.

    Second: whose log could not be read, and why. Silence there would not mean that nothing failed.
    """
    grouped = by_host(deployment.services)

    def act(machine: Machine) -> list[str]:
        return [line for service in grouped[machine.name] for line in _matching(machine, deployment, service, since)]

    answers = deployment.session.each(grouped, act, timeout=SCAN_SECONDS)
    lines = [line for answer in answers.values() if not isinstance(answer, FleetError) for line in answer]
    silent = {host: answer for host, answer in answers.items() if isinstance(answer, FleetError)}
    return lines, [f"kv transfer: the logs of {host} cannot be read: {error.what}" for host, error in silent.items()]


def _matching(machine: Machine, deployment: Deployment, service: Service, since: datetime) -> list[str]:
    wanted = deployment.transfer_errors(service)
    found: list[str] = []
    rest = b""

    def look(data: bytes) -> None:
        nonlocal rest
        *lines, rest = (rest + data).split(b"\n")
        found.extend(text for line in lines if wanted.search(text := line.decode(errors="replace")))

    # The host's clock may be off: docker reads `--since` on that clock, so the time is told as a length.
    length = f"{time.time() - since.timestamp() + 1:.0f}s"
    argv = docker.logs_argv(deployment.named(service), since=length)
    machine.docker_stream(argv, timeout=SCAN_SECONDS, sink=look, both=True)
    look(b"\n")
    return [f"{spoken(service)}: {line.partition(' ')[2].strip()}" for line in found]
