"""Run one point: put the load on, watch, bring the result home, judge it, and write the record before anything else starts."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fleet import docker
from fleet.docker import Container, Image
from fleet.errors import FleetError, ServiceDied
from fleet.model.evidence import Counters, Measurement
from fleet.model.service import Service
from fleet.plan import PlannedPoint
from fleet.results import record as records
from fleet.results.aggregate import aggregate, figures
from fleet.results.judge import acceptance_length, judge
from fleet.results.record import Evidence, Figures, Record, State, Verdict
from fleet.session import Machine
from fleet.stages import counters, watch
from fleet.stages.collect import raw_result, save_log
from fleet.stages.deployment import Deployment, by_host, spoken
from fleet.stages.launch import start
from fleet.stages.teardown import remove
from fleet.stages.wait import NotYet, wait

EVERY = 1.0
"""Seconds between two looks at the containers and the counters while a load runs."""


@dataclass(frozen=True)
class Load:
    """How a load client ended. `code` is None if it was stopped; `why` then says for what reason."""

    code: int | None
    why: str
    raw: dict[str, Any] | None
    last_words: str
    deaths: tuple[str, ...] = ()


def run_point(deployment: Deployment, planned: PlannedPoint, images: dict[str, Image]) -> Record:
    """One point from start to record; the record is on disk when this returns. images: the arm's, by host.

    Raises ServiceDied after the record was written, HostError if a host is lost.
    """
    return PointRunner(deployment, planned, images).run()


class PointRunner:
    """The state of one running point."""

    def __init__(self, deployment: Deployment, planned: PlannedPoint, images: dict[str, Image]) -> None:
        self.deployment = deployment
        self.planned = planned
        self.point = planned.point
        self.image = images[planned.client.host]
        self.double = any(image.double for image in images.values())
        self.client = planned.client
        self.labelled = Deployment(
            deployment.session,
            deployment.folder,
            deployment.plan,
            deployment.arm,
            deployment.labels.model_copy(update={"point": self.point.id}),
        )

    def run(self) -> Record:
        started = datetime.now(UTC)
        before = counters.settled(self.deployment)
        start(self.labelled, [self.client])
        try:
            load = self._load(before)
        finally:
            self._remove_client()
        after = counters.settled(self.deployment) if not load.deaths else {}
        record = self._record(started, before, after, load)
        self.deployment.folder.append_record(record)
        self.deployment.session.progress.record(record)
        if load.deaths:
            raise ServiceDied("; ".join(load.deaths), where=f"conc {self.point.conc} stopped")
        return record

    # ------------------------------------------------------------------ load

    def _load(self, before: dict[str, Counters]) -> Load:
        machine = self.deployment.session.machine(self.client.host)
        try:
            ended = wait(
                lambda: self._look(machine, before),
                what=spoken(self.client),
                within=self.deployment.session.settings.timeouts.point_within,
                every=EVERY,
            )
        except ServiceDied as death:
            self._stop_client(machine)
            return self._brought_home(machine, None, "a service died", (str(death),))
        except FleetError as error:
            self._stop_client(machine)
            return self._brought_home(machine, None, str(error))
        return self._brought_home(machine, ended, "")

    def _look(self, machine: Machine, before: dict[str, Counters]) -> int | NotYet:
        code = self._exit_code(machine)
        watch.alive(self.deployment)
        if code is not None:
            return code
        done = _finished(self.deployment, before, counters.at_once(self.deployment))
        total = self.point.prompts + self.point.warmups
        self.deployment.session.progress.point(self.point.id, done, total)
        return NotYet(f"{done:.0f} of {total} requests")

    def _exit_code(self, machine: Machine) -> int | None:
        state = docker.parse_inspect(machine.docker(docker.inspect_argv([self.name])).out)[0]
        return None if state.running or state.status in ("created", "restarting") else state.exit_code

    def _brought_home(self, machine: Machine, code: int | None, why: str, deaths: tuple[str, ...] = ()) -> Load:
        save_log(machine, self.deployment, self.client, self.name, f"client-c{self.point.conc}")
        written = raw_result(machine, self.deployment, self.deployment.load.result_path(self.point))
        if written is not None:
            self.deployment.folder.write_bytes(self.deployment.folder.raw(self.point.id), written)
        return Load(code, why, _parsed(written), self._last_words(), deaths)

    def _last_words(self) -> str:
        path = self.deployment.folder.log(self.deployment.arm.arm.name, f"client-c{self.point.conc}")
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        said = [line.partition(" ")[2].strip() for line in lines if line.partition(" ")[2].strip()]
        return said[-1][:300] if said else ""

    @property
    def name(self) -> str:
        return self.labelled.named(self.client)

    def _stop_client(self, machine: Machine) -> None:
        machine.docker(docker.stop_argv([self.name]), timeout=60, check=False)

    def _remove_client(self) -> None:
        machine = self.deployment.session.machine(self.client.host)
        label = f"{docker.PREFIX}.run={self.deployment.labels.run}"
        found = docker.parse_ps(machine.docker(docker.ps_argv(label, f"{docker.PREFIX}.role=client")).out)
        remove(machine, [container for container in found if self._mine(container)])

    def _mine(self, container: Container) -> bool:
        return container.name == self.name

    # ------------------------------------------------------------------ record

    def _record(self, started: datetime, before: dict[str, Counters], after: dict[str, Counters], load: Load) -> Record:
        deployment, point, arm = self.deployment, self.point, self.deployment.arm.arm
        measurement, broken = self._measurement(load)
        roles = {service.name: service.seat.role for service in counters.http_servers(deployment)}
        errors = [] if load.deaths else transfer_errors(deployment, started)
        verdict, gates = judge(point, arm, measurement, before, after, roles, load.deaths, errors)
        verdict = _with_reasons(verdict, [*broken, *_client_reasons(load)])
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
            raw=folder.relative(folder.raw(point.id)) if load.raw is not None else None,
            agg=folder.relative(folder.agg(point.id)) if agg else None,
            no_agg=no_agg,
            logs=folder.relative(folder.logs(arm.name)),
            reproduce=records.reproduce(
                deployment.plan.key, arm.name, point.asked, deployment.plan.inventory.path, trial=point.trial
            ),
        )

    def _measurement(self, load: Load) -> tuple[Measurement | None, list[str]]:
        if load.raw is None:
            return None, []
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
        except FleetError as error:
            return None, str(error)
        self.deployment.folder.write_json(self.deployment.folder.agg(self.point.id), made)
        return made, None

    def _figures(self, load: Load, acceptance: float | None) -> Figures:
        """Headline numbers, of invalid points as well: they are shown, and never counted."""
        return figures(load.raw, self.deployment.arm.arm, acceptance) if load.raw else Figures()


def _parsed(written: bytes | None) -> dict[str, Any] | None:
    """A client's result; None for what is not a JSON object."""
    try:
        value = json.loads(written or b"")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _finished(deployment: Deployment, before: dict[str, Counters], now: dict[str, Counters]) -> float:
    """Requests that decode (or aggregated) workers have finished since the point began."""
    last = [s.name for s in counters.http_servers(deployment) if s.seat.role in ("decode", "server")]
    moves = [
        (now[seat].finished or 0) - (before[seat].finished or 0) for seat in last if seat in now and seat in before
    ]
    return sum(moves)


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


def transfer_errors(deployment: Deployment, since: datetime) -> list[str]:
    """Lines about failed KV transfers that servers and router logged since then, with the seat that logged them."""
    grouped = by_host(deployment.services)

    def act(machine: Machine) -> list[str]:
        return [line for service in grouped[machine.name] for line in _matching(machine, deployment, service, since)]

    answers = deployment.session.all(grouped, act, timeout=120)
    return [line for lines in answers.values() for line in lines]


def _matching(machine: Machine, deployment: Deployment, service: Service, since: datetime) -> list[str]:
    router = deployment.router
    patterns = (
        deployment.engine.TRANSFER_ERRORS if service.kind == "server" else router.TRANSFER_ERRORS if router else ()
    )
    wanted = re.compile("|".join(f"(?:{pattern})" for pattern in patterns) or r"(?!)")
    found: list[str] = []
    rest = b""

    def look(data: bytes) -> None:
        nonlocal rest
        *lines, rest = (rest + data).split(b"\n")
        found.extend(text for line in lines if wanted.search(text := line.decode(errors="replace")))

    # The host's clock may be off: docker reads `--since` on that clock, so the time is told as a length.
    length = f"{time.time() - since.timestamp() + 1:.0f}s"
    argv = docker.logs_argv(deployment.named(service), since=length)
    machine.docker_stream(argv, timeout=100, sink=look, both=True)
    return [f"{spoken(service)}: {line.partition(' ')[2].strip()}" for line in found]
