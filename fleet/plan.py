"""A recipe on an inventory becomes a plan: arms, seats, services and points. Nothing here runs anything."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from fleet import declared, docker, engines, http, routers
from fleet.engines import engine_for
from fleet.errors import Gathering, PlanError, UsageError, cited
from fleet.loads import load_for
from fleet.model import load, matrix, placement, recipe_rules
from fleet.model.arm import ONCE, Arm, Point, Repeats
from fleet.model.inventory import Inventory, Trial
from fleet.model.near import nearest
from fleet.model.recipe import Recipe
from fleet.model.seat import Placement
from fleet.model.service import Service
from fleet.model.tuning import ModelFacts
from fleet.routers import router_for
from fleet.runbook import listing, text
from fleet.steps import (
    HELPERS,
    LEAST_PROMPTS,
    PROMPTS_PER_CONCURRENCY,
    WARMUPS_PER_CONCURRENCY,
    ArmPlan,
    Estimate,
    Plan,
    PlannedPoint,
    Step,
    rounds,
    steps,
)

__all__ = [
    "ArmPlan", "Estimate", "Plan", "PlannedPoint", "Step", "build", "listing", "of_json", "repeated", "rounds", "same",
    "steps", "text", "to_json",
]  # fmt: skip


def build(
    recipe: Recipe,
    inventory: Inventory,
    recipes_folder: Path,
    *,
    arm: str | None = None,
    conc: Sequence[int] = (),
    trial: Trial | None = None,
    repeats: Repeats = ONCE,
) -> Plan:
    """The plan of a recipe. arm, conc: only these. trial: a small load instead of the recipe's; servers stay the same.

    Raises UsageError (no such arm or concurrency), FileFaults (recipe or model file), PlanError (all reasons at once).
    """
    arms, facts, options = _described(recipe, inventory, recipes_folder)
    chosen = [one for one in _choose(arms, arm, conc) if not conc or set(conc) & set(one.conc)]
    plans, reasons = [], []
    causes: dict[str, list[str]] = {}
    for one in chosen:
        try:
            plans.append(_arm_plan(one, inventory, options, conc, trial, recipe.config.secrets, repeats))
        except PlanError as error:
            for reason in error.reasons or (error.what,):
                reasons.append(f"{_where(one)}arm {one.name}: {reason}")
                causes.setdefault(reason, []).append(one.name)
    if reasons:
        what = f"{recipe.key} cannot run on {inventory.path}"
        raise PlanError(what, reasons, causes=causes, arms=len(chosen))
    if not any(plan.points for plan in plans):
        raise PlanError(f"{recipe.key}: the plan is empty: no point is left to run")
    return _finish(recipe, inventory, plans, facts, trial, repeats)


def of_json(told: Any) -> Plan:
    """A plan from its JSON as `to_json` wrote it. Raises ValueError, LookupError or TypeError."""
    whole = {name: value for name, value in told.items() if name not in ("hash6", "steps")}
    return Plan.model_validate_json(json.dumps(whole))


def same(plan: Plan) -> bool:
    """Whether this version of fleet would start a stored plan's containers exactly as it was planned."""
    return _hash(list(plan.arms)) == plan.hash


def to_json(plan: Plan) -> str:
    """The plan with its steps, for scripts."""
    whole = plan.model_dump(mode="json") | {"hash6": plan.hash6}
    return json.dumps(whole | {"steps": [step.model_dump(mode="json") for step in steps(plan)]}, indent=2)


# --- which arms and points ------------------------------------------------------------------------------------------


def _described(recipe: Recipe, inventory: Inventory, folder: Path) -> tuple[list[Arm], ModelFacts, Any]:
    """The arms of a recipe, the facts of its model, and how its engine serves it. Raises FileFaults: what the schema
    accepts and reality does not, in the recipe and in the model's file.
    """
    gathered, framework, model = Gathering(), recipe.config.framework, recipe.config.model
    gathered.add(recipe.source, recipe_rules.strangers(recipe, engines.frameworks(), routers.names()))
    facts: ModelFacts | None = None
    with gathered.also():
        facts = load.model_facts(model, folder)
    options = _options(model, (framework, *(facts.frameworks if facts else ())), folder, gathered)
    arms = matrix.arms(recipe, depth_of=lambda _, conc: facts.depth(framework, conc) if facts else 0)
    gathered.add(recipe.source, recipe_rules.contradictions(recipe, arms, facts, hosts=_hosts(recipe, inventory)))
    gathered.tell()
    assert facts is not None
    return arms, facts, options[framework]


def _options(model: str, frameworks: Sequence[str], folder: Path, gathered: Gathering) -> dict[str, Any]:
    """How each framework that has an engine serves the model; all are read, for their faults."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(frameworks):
        if engine := engines.find(name):
            with gathered.also():
                found[name] = load.tuning(model, name, folder, engine.Options)
    return found


def _hosts(recipe: Recipe, inventory: Inventory) -> recipe_rules.Hosts:
    sizes = {host.gpus for host in inventory.hosts if recipe.config.runner in host.runners and host.gpus}
    engine = engines.find(recipe.config.framework)
    return recipe_rules.Hosts(gpus=sizes.pop() if len(sizes) == 1 else None, spans=engine is None or engine.SPANS)


def _choose(arms: Sequence[Arm], name: str | None, concs: Sequence[int]) -> list[Arm]:
    names = [arm.name for arm in arms]
    if name is not None and name not in names:
        near = nearest(name, names)
        hint = f"; did you mean {near}?" if near else ""
        raise UsageError(f"no arm {cited(name)}{hint}", hint=f"arms: {', '.join(names)}")
    chosen = [arm for arm in arms if name in (None, arm.name)]
    there = {conc for arm in chosen for conc in arm.conc}
    if strange := [conc for conc in concs if conc not in there]:
        what = f"no point with concurrency {', '.join(map(str, strange))}" + (f" in arm {name}" if name else "")
        listed = "\n".join(f"arm {arm.name}: {' '.join(map(str, arm.conc))}" for arm in chosen)
        raise UsageError(what, hint=listed)
    return chosen


def _points(arm: Arm, concs: Sequence[int], trial: Trial | None) -> tuple[list[Point], list[str]]:
    """Points in the order of the recipe; those that would be run twice are dropped by name."""
    points: dict[int, Point] = {}
    dropped = []
    for asked in arm.conc:
        if concs and asked not in concs:
            continue
        point = _trial_point(arm, asked, trial) if trial else _point(arm, asked)
        if point.conc in points:
            first = points[point.conc].asked
            why = f"capped at {point.conc}, as {first} is" if first != asked else "listed twice"
            dropped.append(f"conc {asked}: {why}")
        else:
            points[point.conc] = point
    return list(points.values()), dropped


def _point(arm: Arm, conc: int) -> Point:
    prompts = PROMPTS_PER_CONCURRENCY * conc
    return Point(
        arm=arm.name,
        conc=conc,
        asked=conc,
        isl=arm.isl,
        osl=arm.osl,
        prompts=max(LEAST_PROMPTS, prompts) if arm.disagg else prompts,
        warmups=WARMUPS_PER_CONCURRENCY * conc,
        chat=arm.depth > 0,
    )


def repeated(points: Sequence[Point], repeats: Repeats) -> list[Point]:
    """Every point `repeats.count` times: each round has all of them, so that what drifts with time touches all alike,
    in an order of its own. Once is the order of the recipe.
    """
    if repeats.count == 1:
        return list(points)
    dice, found = random.Random(repeats.order_seed), []
    for number in range(repeats.count):
        found += dice.sample([point.model_copy(update={"repeat": number}) for point in points], len(points))
    return found


def _trial_point(arm: Arm, asked: int, trial: Trial) -> Point:
    conc = min(asked, trial.max_concurrency)
    small = {"conc": conc, "isl": trial.input, "osl": trial.output, "warmups": WARMUPS_PER_CONCURRENCY * conc}
    return _point(arm, asked).model_copy(
        update={**small, "prompts": trial.prompts_per_concurrency * conc, "trial": True}
    )


# --- one arm --------------------------------------------------------------------------------------------------------


def _arm_plan(
    arm: Arm,
    inventory: Inventory,
    options: Any,
    concs: Sequence[int],
    trial: Trial | None,
    secrets: Sequence[str],
    repeats: Repeats,
) -> ArmPlan:
    engine, client = engine_for(arm.framework), load_for(arm.framework)
    reasons = [*engine.refusals(arm, options), *_trial_refusals(arm, trial)]
    if arm.disagg and not arm.router:
        reasons.append("disaggregated, and no router is declared")
    try:
        placed = placement.place(arm, inventory, spans=engine.SPANS)
    except PlanError as error:
        raise PlanError(error.args[0], [*reasons, *error.reasons]) from None
    servers = tuple(
        _with_secrets(engine.service(seat, placed, options), placed, secrets)
        for seat in placed.seats
        if seat.role not in HELPERS
    )
    router = None
    if arm.router:
        router = _with_secrets(router_for(arm.router.name).service(placed, servers), placed, secrets)
    endpoint = _endpoint(placed, router or servers[0])
    points, dropped = _points(arm, concs, trial)
    points = repeated(points, repeats)
    loads = (client.service(point, placed, endpoint=endpoint) for point in points)
    planned = tuple(
        PlannedPoint(point=point, client=_with_secrets(load, placed, secrets))
        for point, load in zip(points, loads, strict=True)
    )
    made = ArmPlan(
        arm=arm,
        placement=placed,
        servers=servers,
        router=router,
        points=planned,
        dropped=tuple(dropped),
        restarts=repeats.restarts,
    )
    reasons += declared.dropped(arm, _services(made), placement.consumes(arm), _informational(arm))
    reasons += [*_env_clashes(made), *_secret_clashes(made)]
    if reasons:
        raise PlanError(f"arm {arm.name}", reasons)
    return made


def _trial_refusals(arm: Arm, trial: Trial | None) -> Iterator[str]:
    if trial and trial.input + trial.output > arm.max_model_len:
        yield f"the trial's {trial.input} + {trial.output} tokens are more than max-model-len {arm.max_model_len}"


def _endpoint(placed: Placement, front: Service) -> str:
    return http.url(placed.host(front.host).fast_address, front.http or 0)


def _services(arm: ArmPlan) -> list[Service]:
    return [*arm.services, *(planned.client for planned in arm.points)]


def _env_clashes(arm: ArmPlan) -> list[str]:
    """A variable that model file and inventory set differently: fleet does not choose."""
    found = []
    for service in arm.services:
        host = arm.placement.host(service.host)
        for name, value in service.env.items():
            if host.env.get(name, value) != value:
                found.append(f"{name} is {value!r} for {service.name} and {host.env[name]!r} in {host.name}'s env")
    return found


def _with_secrets(service: Service, placed: Placement, names: Sequence[str]) -> Service:
    """The secrets of the recipe and of the host go to every container, as the host's variables do."""
    wanted = sorted({*placed.host(service.host).secrets, *names})
    return service.model_copy(update={"secrets": tuple(wanted)}) if wanted else service


def _secret_clashes(arm: ArmPlan) -> list[str]:
    """A name that is a secret and a plain variable of the same container."""
    found = []
    for service in _services(arm):
        plain = docker.environment(service, arm.placement.host(service.host))
        found += [
            f"{name} is a secret and a plain variable of {service.name}" for name in service.secrets if name in plain
        ]
    return list(dict.fromkeys(found))


def _informational(arm: Arm) -> dict[str, str]:
    notes = dict(engine_for(arm.framework).informational(arm))
    if arm.router:
        notes |= router_for(arm.router.name).informational(arm)
    hardware = [f"{workers.role}.hardware" for workers in arm.workers]
    return notes | {name: "part of results" for name in hardware if name in declared.declared(arm)}


def _deviations(arm: Arm) -> list[str]:
    router = router_for(arm.router.name).deviations(arm) if arm.router else ()
    return [*engine_for(arm.framework).deviations(arm), *router, *load_for(arm.framework).deviations(arm)]


def _where(arm: Arm) -> str:
    return f"{arm.source}:{arm.line} " if arm.source and arm.line else ""


# --- the whole ------------------------------------------------------------------------------------------------------


def _finish(
    recipe: Recipe,
    inventory: Inventory,
    plans: list[ArmPlan],
    facts: ModelFacts,
    trial: Trial | None,
    repeats: Repeats,
) -> Plan:
    return Plan(
        key=recipe.key,
        hash=_hash(plans),
        arms=tuple(plans),
        inventory=inventory,
        trial=trial,
        repeats=repeats,
        deviations=_unique([line for plan in plans for line in (*_deviations(plan.arm), *_unprivileged(plan))]),
        informational=_noted(plans),
        left_out=tuple(matrix.unrunnable(recipe)),
        estimate=_estimate(plans, facts),
    )


def _noted(plans: list[ArmPlan]) -> tuple[str, ...]:
    """Declared values that reach no service: `name: value (reason)`, with the values of all arms."""
    found: dict[tuple[str, str], list[str]] = {}
    for plan in plans:
        values = declared.declared(plan.arm)
        for name, why in (_informational(plan.arm) | declared.INFORMATIONAL).items():
            told = found.setdefault((declared.shown(name) if name in values else name, why), [])
            told += [_written(values[name])] if name in values else []
    return tuple(
        f"{name}{': ' if values else ''}{', '.join(dict.fromkeys(values))} ({why})"
        for (name, why), values in found.items()
    )


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unprivileged(plan: ArmPlan) -> list[str]:
    if any(host.accelerator == "rocm" and not host.privileged for host in plan.placement.hosts):
        return ["containers are not privileged (public: --privileged)"]
    return []


def _unique(lines: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(lines))


def _hash(plans: list[ArmPlan]) -> str:
    """Of every container's command, every seat and every point, with nothing of a run in it."""
    content = []
    for plan in plans:
        labels = docker.Labels(run="", owner="", plan="", arm=plan.arm.name)
        commands = [docker.run_argv(service, plan.placement.host(service.host), labels) for service in _services(plan)]
        seats = [seat.model_dump(mode="json") for seat in plan.placement.seats]
        points = [planned.point.model_dump(mode="json") for planned in plan.points]
        restarts = {"restarts": True} if plan.restarts else {}
        content.append({"arm": plan.arm.name, "seats": seats, "commands": commands, "points": points, **restarts})
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


# --- rough figures --------------------------------------------------------------------------------------------------

_LOAD_GB_PER_SECOND = 1.0
_WARM_UP_SECONDS = 300
_SECONDS_PER_TOKEN = 0.025
_PREFILL_TOKENS_PER_SECOND = 50_000
_BYTES_PER_OUTPUT_TOKEN = 24
_LOG_GB_PER_SERVICE = 0.1


def _estimate(plans: list[ArmPlan], facts: ModelFacts) -> Estimate:
    """Weights at 1 GB/s and five minutes of warm-up an arm; then rounds of `concurrency` requests one after the other,
    each as long as its prefill (50,000 tokens/s a worker) and its decode (25 ms a token). No measurement is behind it.
    """
    started = sum(len(rounds(plan.points, plan.restarts)) for plan in plans)
    starts = started * ((facts.weights_gb or 0) / _LOAD_GB_PER_SECOND + _WARM_UP_SECONDS)
    loads = sum(_seconds(plan, planned.point) for plan in plans for planned in plan.points)
    tokens = sum(planned.point.prompts * planned.point.osl for plan in plans for planned in plan.points)
    logs = sum(len(_services(plan)) for plan in plans) * _LOG_GB_PER_SERVICE
    return Estimate(
        minutes=ceil((starts + loads) / 60),
        scratch_gb=round(tokens * _BYTES_PER_OUTPUT_TOKEN / 1e9 + logs, 1),
        weights_gb=facts.weights_gb,
    )


def _seconds(plan: ArmPlan, point: Point) -> float:
    mean = (1 + point.range_ratio) / 2
    prefills = len(plan.placement.of("prefill")) or 1
    prefill = mean * point.isl * point.conc / (_PREFILL_TOKENS_PER_SECOND * prefills)
    return (point.prompts + point.warmups) / point.conc * (prefill + mean * point.osl * _SECONDS_PER_TOKEN)
