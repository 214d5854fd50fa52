"""What the public schema accepts and reality does not. Expansion does not ask these; planning does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from fleet.errors import Fault
from fleet.model.arm import Arm
from fleet.model.recipe import FIXED, Recipe, Scope, entries_of
from fleet.model.tuning import ModelFacts
from fleet.model.yamlfile import Document

IMAGE = re.compile(
    r"((localhost|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+(?=:\d+/))(:\d+)?/)?"
    r"[a-z0-9]+([._/-]+[a-z0-9]+)*(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
"""Docker's grammar of image names, distribution/reference: only a host may have upper case."""

DEPTH = "DECODE_MTP_SIZE"
ROLES = ("prefill", "decode")


def contradictions(
    recipe: Recipe, arms: Sequence[Arm], facts: ModelFacts | None = None, *, gpus_per_host: int | None = None
) -> list[Fault]:
    """Everything in a sound recipe that cannot run, or would run under a wrong name. Lines are of the recipe's file.

    `facts` brings the model's caps; `gpus_per_host` (of the hosts that answer to the runner) what fits a node.
    """
    found = declared(recipe.document, recipe.key, gpus_per_host=gpus_per_host)
    for arm in arms:
        found += _arm_rules(recipe, arm, facts)
    return sorted(set(found))


def declared(document: Document, key: str, *, gpus_per_host: int | None = None) -> list[Fault]:
    """The rules that need the file alone. They run on faulty files too and look only at what has the right type."""
    config = Scope(document, (key,))
    found = [*_image(config)]
    found += [fault for sequence in config.items(*FIXED) for fault in _above_zero(sequence, "isl", "osl")]
    for entry in entries_of(config):
        found += _concurrency(entry)
        for scope in (entry, *(entry.below(role) for role in ROLES)):
            found += _above_zero(scope, "tp", "ep", "num-worker")
            found += _fits(scope, gpus_per_host)
        for role in ROLES:
            found += _settings(entry, role)
            found += _nodes(entry, role, gpus_per_host)
        if entry.has("decode"):
            found += _depth(entry)
    return sorted(set(found))


def _image(config: Scope) -> Iterator[Fault]:
    image = config.get("image")
    if isinstance(image, str) and not IMAGE.fullmatch(image):
        yield config.wrong(("image",), "an image as docker names it expected: [host/]name[:tag][@sha256:…]")


def _above_zero(scope: Scope, *names: str) -> Iterator[Fault]:
    for name in names:
        if (value := scope.integer(name)) is not None and value <= 0:
            yield scope.wrong((name,), "must be at least 1")


def _concurrency(entry: Scope) -> Iterator[Fault]:
    listed = entry.get("conc-list")
    if not isinstance(listed, list):
        return
    first: dict[int, int] = {}
    for index in range(len(listed)):
        value = entry.integer("conc-list", index)
        if value is not None and first.setdefault(value, index) != index:
            yield entry.wrong(("conc-list", index), f"stands twice in conc-list of {entry.name}; keep one")
    for name in ("conc-start", "conc-end"):
        other = "conc-end" if name == "conc-start" else "conc-start"
        if entry.has(name) and not entry.has(other):
            yield entry.wrong((name,), "stands alone beside conc-list and would be ignored; take it out")


def _gpus_each(scope: Scope) -> int | None:
    sizes = [scope.integer("tp"), *(scope.integer(name) if scope.has(name) else 1 for name in ("pp", "pcp-size"))]
    product = 1
    for size in sizes:
        if size is None or size <= 0:
            return None
        product *= size
    return product


def _fits(scope: Scope, gpus_per_host: int | None) -> Iterator[Fault]:
    gpus = _gpus_each(scope)
    if gpus and gpus_per_host and gpus > gpus_per_host and gpus % gpus_per_host:
        yield scope.wrong(("tp",), f"makes workers of {gpus} GPUs, which do not tile hosts of {gpus_per_host}")


def _named_settings(entry: Scope, role: str) -> list[tuple[int, str, str]]:
    """Place, name and value of a role's additional-settings."""
    listed = entry.get(role, "additional-settings")
    found = []
    for index, setting in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(setting, str) and "=" in setting:
            name, _, value = setting.partition("=")
            found.append((index, name, value))
    return found


def _settings(entry: Scope, role: str) -> Iterator[Fault]:
    settings = _named_settings(entry, role)
    counts = Counter(name for _, name, _ in settings)
    told: set[str] = set()
    for index, name, value in settings:
        if counts[name] > 1 and name in told:
            yield entry.fault(
                (role, "additional-settings", index), f"{name}={value}  stands twice for {role}; keep one"
            )
        told.add(name)
        if name in (DEPTH, "PREFILL_NODES", "DECODE_NODES") and not _is_whole(value):
            yield entry.fault((role, "additional-settings", index), f"{name}={value}  whole number expected")


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _setting(entry: Scope, name: str) -> list[tuple[str, int, int]]:
    """Role, place and number of a setting, wherever it stands."""
    return [
        (role, index, int(value))
        for role in ROLES
        for index, other, value in _named_settings(entry, role)
        if other == name and _is_whole(value)
    ]


def _nodes(entry: Scope, role: str, gpus_per_host: int | None) -> Iterator[Fault]:
    name = f"{role.upper()}_NODES"
    count = entry.integer(role, "num-worker")
    if not count or count < 0:
        return
    gpus = _gpus_each(entry.below(role))
    each = -(-gpus // gpus_per_host) if gpus and gpus_per_host else None
    for at, index, nodes in _setting(entry, name):
        if each is not None and nodes != count * each:
            hosts = f"{count * each} host{'s' if count * each > 1 else ''}"
            why = f"{count} × {gpus} GPUs fill {hosts} of {gpus_per_host}"
        elif nodes == 0 or nodes % count:
            why = "every worker needs as many nodes as the others, and at least one"
        else:
            continue
        place = entry.document.at(*entry.keys, role, "num-worker")
        text = f"{name}={nodes} with num-worker: {count} ({place}): {why}; type {name}={count * (each or 1)}"
        yield entry.fault((at, "additional-settings", index), text)


def _depth(entry: Scope) -> Iterator[Fault]:
    depths = _setting(entry, DEPTH)
    spec = entry.get("spec-decoding") if entry.has("spec-decoding") else "none"
    if not isinstance(spec, str):
        return
    place = entry.document.at(*entry.keys, "spec-decoding")
    if spec == "mtp" and not depths and not _mentions(entry):
        here = entry.document.at(*entry.keys, "decode")
        text = f'needs a depth of at least 1: add "{DEPTH}=N" to additional-settings of decode ({here})'
        yield entry.wrong(("spec-decoding",), text)
    for role, index, depth in depths:
        at = (role, "additional-settings", index)
        if spec == "mtp" and depth < 1:
            yield entry.fault(at, f"{DEPTH}={depth} with spec-decoding: mtp ({place}): MTP needs a depth of at least 1")
        if spec != "mtp" and depth > 0:
            label = f"spec-decoding: {spec}" if entry.has("spec-decoding") else f"no spec-decoding in {entry.name}"
            advice = f"type spec-decoding: mtp, or {DEPTH}=0"
            text = f"{DEPTH}={depth} with {label} ({place}): drafts would run under a plain label; {advice}"
            yield entry.fault(at, text)
    if len({depth for _, _, depth in depths}) > 1:
        role, index, depth = depths[-1]
        first = entry.document.at(*entry.keys, depths[0][0], "additional-settings", depths[0][1])
        yield entry.fault(
            (role, "additional-settings", index),
            f"{DEPTH}={depth} for {role}, {depths[0][2]} for {depths[0][0]} ({first}): both roles have the same depth",
        )


def _mentions(entry: Scope) -> bool:
    return any(name == DEPTH for role in ROLES for _, name, _ in _named_settings(entry, role))


def _arm_rules(recipe: Recipe, arm: Arm, facts: ModelFacts | None) -> Iterator[Fault]:
    if not arm.multinode and arm.spec == "mtp" and arm.depth < 1:
        file = f"recipes/models/{arm.model_basename}.yaml"
        where = f"frameworks: {arm.framework} in {file}"
        text = f"spec-decoding: mtp ({arm.name}) has no depth: type mtp: {{tokens: N}} below {where}"
        yield _at_arm(recipe, arm, text)
    cap = facts.cap(arm.framework) if facts else None
    ranks = decode_ranks(arm)
    if cap is not None and max(arm.conc) > cap * ranks:
        room = f"{cap} per decode rank × {ranks} rank{'s' if ranks != 1 else ''}"
        yield _at_arm(
            recipe, arm, f"concurrency {max(arm.conc)} ({arm.name}) is above the {cap * ranks} that fit ({room})"
        )


def decode_ranks(arm: Arm) -> int:
    """Ranks that decode: one a worker, with DP attention one a GPU of its tensor-parallel group."""
    workers = arm.of("decode" if arm.multinode else "server")
    return workers.count * (workers.tp if workers.dp_attn else 1)


def _at_arm(recipe: Recipe, arm: Arm, text: str) -> Fault:
    return Fault(arm.line, text) if arm.source == recipe.source else Fault(0, f"{arm.source}:{arm.line}  {text}")
