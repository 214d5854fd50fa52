"""What a plan is made of, and its ordered steps: each the exact argv for one host."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from fleet import docker
from fleet.model.arm import Arm, Point, Repeats
from fleet.model.base import Model
from fleet.model.inventory import Inventory, Trial
from fleet.model.seat import Placement
from fleet.model.service import Service

RUN, OWNER = "$RUN", "$OWNER"
"""What stands for the run and its owner in steps that are printed, not run."""

PROMPTS_PER_CONCURRENCY = 10
LEAST_PROMPTS = 16
WARMUPS_PER_CONCURRENCY = 2

HELPERS = ("router", "client")
"""Roles that do not serve a model."""


class PlannedPoint(Model):
    point: Point
    client: Service


class ArmPlan(Model):
    """One deployment and the points it serves, in order. `dropped` names points that are not run, with the reason.
    restarts: its servers are started anew for each repeat.
    """

    arm: Arm
    placement: Placement
    servers: tuple[Service, ...]
    router: Service | None
    points: tuple[PlannedPoint, ...]
    dropped: tuple[str, ...] = ()
    restarts: bool = False

    @property
    def services(self) -> tuple[Service, ...]:
        """What stays up while points run: servers, then the router."""
        return (*self.servers, *((self.router,) if self.router else ()))

    @property
    def concs(self) -> tuple[int, ...]:
        """Each concurrency once, rising where points are repeated, else in the plan's order."""
        found = dict.fromkeys(planned.point.conc for planned in self.points)
        return tuple(sorted(found) if len(found) < len(self.points) else found)


def rounds(points: tuple[PlannedPoint, ...], restarts: bool) -> tuple[tuple[PlannedPoint, ...], ...]:
    """What one start of the servers serves: all points, or those of one repeat."""
    if not restarts:
        return (points,)
    return tuple(tuple(found) for _, found in groupby(points, key=lambda planned: planned.point.repeat))


class Step(Model):
    """One command on one host."""

    number: int
    arm: str
    host: str
    title: str
    argv: tuple[str, ...]


class Estimate(Model):
    """Rough figures: minutes for the whole plan; per host GB of logs and results; GB of weights that must be there."""

    minutes: int
    scratch_gb: float
    weights_gb: float | None = None


class Plan(Model):
    """hash: SHA-256 over all that decides behaviour; the same for every run and owner."""

    key: str
    hash: str
    arms: tuple[ArmPlan, ...]
    inventory: Inventory
    trial: Trial | None = None
    repeats: Repeats = Repeats()
    deviations: tuple[str, ...] = ()
    informational: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    estimate: Estimate

    @property
    def hash6(self) -> str:
        return self.hash[:6]

    @property
    def points(self) -> int:
        return sum(len(arm.points) for arm in self.arms)

    def labels(self, arm: ArmPlan, run: str, owner: str, point: str = "") -> docker.Labels:
        return docker.Labels(run=run, owner=owner, plan=self.hash6, arm=arm.arm.name, point=point)


def steps(plan: Plan, run: str = RUN, owner: str = OWNER) -> list[Step]:
    """Every command of the plan in its order: start servers, start the router, load point by point, stop, remove."""
    found: list[Step] = []
    for arm in plan.arms:
        rows = (row for points in rounds(arm.points, arm.restarts) for row in _arm_steps(plan, arm, points, run, owner))
        for host, title, argv in rows:
            found.append(Step(number=len(found) + 1, arm=arm.arm.name, host=host, title=title, argv=tuple(argv)))
    return found


def _arm_steps(
    plan: Plan, arm: ArmPlan, points: tuple[PlannedPoint, ...], run: str, owner: str
) -> Iterator[tuple[str, str, list[str]]]:
    names: dict[str, list[str]] = {}
    for service in arm.services:
        labels = plan.labels(arm, run, owner)
        names.setdefault(service.host, []).append(docker.container_name(service, labels))
        when = ", once all servers answer" if service.kind == "router" else ""
        yield service.host, f"start {seat_title(service)}{when}", _run(arm, service, labels)
    serving = {host: list(own) for host, own in names.items()}
    for planned in points:
        labels = plan.labels(arm, run, owner, planned.point.id)
        names.setdefault(planned.client.host, []).append(docker.container_name(planned.client, labels))
        when = ", once the deployment has proven ready" if planned is points[0] else ""
        yield planned.client.host, f"load conc {planned.point.title}{when}", _run(arm, planned.client, labels)
    for host, own in reversed(serving.items()):
        yield host, "stop", docker.stop_argv(own[::-1])
    for host, own in names.items():
        yield host, "remove, once logs and results are home", docker.rm_argv(own)


def _run(arm: ArmPlan, service: Service, labels: docker.Labels) -> list[str]:
    return docker.run_argv(service, arm.placement.host(service.host), labels)


def seat_title(service: Service) -> str:
    """`prefill 0`, `router`; `prefill 0, node 1` of a worker that spans hosts."""
    seat = service.seat
    base = seat.role if seat.role in HELPERS else f"{seat.role} {seat.rank}"
    return f"{base}, node {seat.node}" if seat.node else base
