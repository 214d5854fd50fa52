"""What state.json says of a run: how it was asked for, and each process that drove it."""

from __future__ import annotations

from typing import Literal

from fleet.model.arm import Repeats
from fleet.model.base import Model
from fleet.results.record import Record, latest
from fleet.settings import Timeouts
from fleet.steps import ArmPlan, Plan, PlannedPoint

Rerun = Literal["", "failed", "incomplete", "all"]


class Drive(Model):
    """One process that drove the run. Times are UTC, ISO 8601. ended: None until it has ended in its own words, so
    also of one that was killed. why: what ended it, "" if every point had its turn. code: its exit code.
    """

    begun: str
    pid: int
    machine: str
    owner: str
    ended: str | None = None
    why: str = ""
    code: int | None = None

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.machine} ({self.owner}, since {self.begun})"


class RunState(Model):
    """arm, conc: as they were asked for, empty for all. planned: how many points the plan has. plan_file: SHA-256 of
    plan.json, "" where it was not noted. drives: oldest first.
    """

    schema_version: Literal["1"] = "1"
    key: str
    plan: str
    planned: int
    arm: str = ""
    conc: tuple[int, ...] = ()
    trial: bool = False
    repeats: Repeats = Repeats()
    fail_fast: bool = False
    timeouts: Timeouts = Timeouts()
    plan_file: str = ""
    drives: tuple[Drive, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether the last process that drove the run came to an end of its own."""
        return bool(self.drives) and self.drives[-1].ended is not None

    def begun(self, drive: Drive) -> RunState:
        return self.model_copy(update={"drives": (*self.drives, drive)})

    def over(self, ended: str, why: str, code: int | None) -> RunState:
        last = self.drives[-1].model_copy(update={"ended": ended, "why": why, "code": code})
        return self.model_copy(update={"drives": (*self.drives[:-1], last)})


def to_run(arm: ArmPlan, records: tuple[Record, ...], rerun: Rerun = "") -> tuple[PlannedPoint, ...]:
    """The points of an arm that are to be run, in the plan's order: those that never came to their end. rerun: also
    "failed" ones, which means all that are not valid, or "all".
    """
    last = {record.point: record for record in latest(records)}
    return tuple(one for one in arm.points if _wanted(last.get(one.point.id), rerun))


def count_to_run(plan: Plan, records: tuple[Record, ...], rerun: Rerun = "") -> int:
    return sum(len(to_run(arm, records, rerun)) for arm in plan.arms)


def _wanted(record: Record | None, rerun: Rerun) -> bool:
    if record is None or record.state == "incomplete" or rerun == "all":
        return True
    return rerun == "failed" and not record.valid
