"""What one plan would run otherwise than another: their listings compared, equal changes told once."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleet import runbook
from fleet.steps import Plan, Step, steps

Lines = tuple[str, ...]


@dataclass(frozen=True)
class Listed:
    """A plan as it is compared: what it says of itself, and what it starts, by name in its order.

    Stopping and removing follow from what is started, and are left out.
    """

    hash6: str
    facts: Lines
    steps: Mapping[str, Lines]


def of_plan(plan: Plan) -> Listed:
    inventory = f"hosts {', '.join(host.name for host in plan.inventory.hosts)}"
    return _listed(plan.key, plan.hash6, [*runbook.notes(plan), inventory], plan.trial is not None, steps(plan))


def of_json(told: Mapping[str, object]) -> Listed:
    """From the JSON of a plan, of this version of fleet or an earlier one. Raises ValueError, KeyError or TypeError."""
    found = told["steps"]
    inventory, key, hash6 = told["inventory"], told["key"], told["hash6"]
    if not isinstance(found, list) or not isinstance(inventory, dict) or not isinstance(hash6, str):
        raise TypeError("no plan")
    groups = [told.get(name) or [] for name in ("deviations", "informational", "left_out")]
    notes = runbook.notes_of(*(tuple(map(str, group)) if isinstance(group, list) else () for group in groups))
    hosts = f"hosts {', '.join(str(host['name']) for host in inventory['hosts'])}"
    made = [Step.model_validate({**one, "argv": tuple(one["argv"])}) for one in found]
    return _listed(str(key), hash6, [*notes, hosts], told.get("trial") is not None, made)


def _listed(key: str, hash6: str, notes: Sequence[str], trial: bool, found: Sequence[Step]) -> Listed:
    kept = [step for step in found if step.argv[:2] == ("docker", "run")]
    names = [f"arm {step.arm}: {step.title.partition(', once ')[0]}" for step in kept]
    twice = {name for name, count in Counter(names).items() if count > 1}
    whole = {
        f"{name} on {step.host}" if name in twice else name: (
            f"on {step.host}",
            *(runbook.masked(group, hash6) for group in runbook.groups(step.argv)),
        )
        for name, step in zip(names, kept, strict=True)
    }
    return Listed(hash6, (f"config {key}", f"trial {'yes' if trial else 'no'}", *notes), whole)


def text(then: Listed, now: Listed, run: str) -> str:
    """The changes of the plan of `run`; what is in both in the same way is not shown."""
    blocks = [*_facts(then, now), *_changed(then, now), *_only("only then", then, now), *_only("only now", now, then)]
    common = [name for name in now.steps if name in then.steps]
    if common != [name for name in then.steps if name in now.steps]:
        blocks.append("the steps come in another order")
    if not blocks:
        return f"nothing would run otherwise than in {run} (plan {now.hash6})"
    return "\n\n".join([f"--- {run}   plan {then.hash6}\n+++ now   plan {now.hash6}", *blocks])


def _facts(then: Listed, now: Listed) -> list[str]:
    changes = _changes(then.facts, now.facts)
    return ["\n".join(["== the plan", *changes])] if changes else []


def _changed(then: Listed, now: Listed) -> list[str]:
    """Steps of both plans whose lines differ; steps that differ in the same way stand above one diff."""
    found: dict[Lines, list[str]] = {}
    for name, lines in now.steps.items():
        if name in then.steps and (changes := _changes(then.steps[name], lines)):
            found.setdefault(changes, []).append(name)
    return ["\n".join([*(f"== {name}" for name in names), *changes]) for changes, names in found.items()]


def _only(title: str, one: Listed, other: Listed) -> list[str]:
    names = [f"  {name}, {lines[0]}" for name, lines in one.steps.items() if name not in other.steps]
    return ["\n".join([f"== {title}", *names])] if names else []


def _changes(then: Lines, now: Lines) -> Lines:
    """The lines of a unified diff without its heads and context."""
    lines = list(difflib.unified_diff(then, now, lineterm="", n=0))[2:]
    return tuple(f"{line[0]}  {line[1:]}" for line in lines if not line.startswith("@@"))
