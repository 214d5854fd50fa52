"""What the public schema accepts and reality does not. Expansion does not ask these; planning does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleet.errors import Fault
from fleet.model.arm import Arm
from fleet.model.near import did_you_mean
from fleet.model.recipe import FIXED, Recipe, Scope, entries_of
from fleet.model.schema import Keys
from fleet.model.tuning import ModelFacts
from fleet.model.yamlfile import Document
from fleet.words import counted

IMAGE = re.compile(
    r"((localhost|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+(?=:\d+/))(:\d+)?/)?"
    r"[a-z0-9]+([._/-]+[a-z0-9]+)*(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
"""Docker's grammar of image names, distribution/reference: only a host may have upper case."""

DEPTH = "DECODE_MTP_SIZE"
SETTINGS = (DEPTH, "PREFILL_NODES", "DECODE_NODES")

LARGEST_GROUP = 1024
LARGEST_CONC = 65_536
LARGEST_DEPTH = 32
LARGEST = {"isl": 10_000_000, "osl": 10_000_000, "conc-start": LARGEST_CONC, "conc-end": LARGEST_CONC}
"""Above these a number is a slip of the hand; sizes and worker counts have LARGEST_GROUP."""

ROLES = ("prefill", "decode")


@dataclass(frozen=True)
class Hosts:
    """What is known of the hosts that answer to the runner. gpus: of each, None if they differ. spans: whether the
    engine's workers can span hosts.
    """

    gpus: int | None = None
    spans: bool = True


def contradictions(
    recipe: Recipe, arms: Sequence[Arm], facts: ModelFacts | None = None, *, hosts: Hosts = Hosts()
) -> list[Fault]:
    """Everything in a sound recipe that cannot run, or would run under a wrong name. Lines are of the recipe's file.

    `facts` brings the model's caps and depths; without them nothing is said of these.
    """
    found = declared(recipe.document, recipe.key, hosts=hosts)
    if facts:
        found += _hub(recipe, facts)
        for arm in arms:
            found += _arm_rules(recipe, arm, facts)
    return sorted(set(found))


def strangers(recipe: Recipe, frameworks: Sequence[str], routers: Sequence[str]) -> list[Fault]:
    """Names of frameworks and routers that fleet cannot run."""
    config = Scope(recipe.document, (recipe.key,))
    found = [*_stranger(config, ("framework",), frameworks, "no engine of fleet serves it")]
    for scope in (config, *entries_of(config)):
        found += _stranger(scope, ("router", "name"), routers, "no router of fleet")
    return found


def declared(document: Document, key: str, *, hosts: Hosts = Hosts()) -> list[Fault]:
    """The rules that need the file alone. They run on faulty files too and look only at what has the right type."""
    config = Scope(document, (key,))
    found = [*_image(config)]
    found += [fault for sequence in config.items(*FIXED) for fault in _bounded(sequence, "isl", "osl")]
    for entry in entries_of(config):
        found += _concurrency(entry)
        for scope in (entry, *(entry.below(role) for role in ROLES)):
            found += _bounded(scope, "tp", "ep", "num-worker", "pp", "dcp-size", "pcp-size")
            found += _fits(scope, hosts)
        for role in ROLES:
            found += _settings(entry, role)
            found += _nodes(entry, role, hosts)
        found += _equal_settings(entry)
        if entry.has("decode"):
            found += _depth(entry)
    return sorted(set(found))


def _stranger(scope: Scope, keys: Keys, known: Sequence[str], why: str) -> Iterator[Fault]:
    name = scope.get(*keys)
    if isinstance(name, str) and name not in known:
        yield scope.wrong(keys, f"{why}; there are: {', '.join(known)}{did_you_mean(name, known)}")


def _hub(recipe: Recipe, facts: ModelFacts) -> Iterator[Fault]:
    """Requests and records carry the recipe's model: the model's file must speak of the same checkpoint."""
    model = recipe.config.model
    if "/" in model and model != facts.hub:
        file = f"recipes/models/{recipe.model_basename}.yaml"
        text = f"model: {model}  is not the hub of {file} ({facts.hub}); two checkpoints of one name need two files"
        yield recipe.fault(("model",), text)


def _image(config: Scope) -> Iterator[Fault]:
    image = config.get("image")
    if isinstance(image, str) and not IMAGE.fullmatch(image):
        yield config.wrong(("image",), "an image as docker names it expected: [host/]name[:tag][@sha256:…]")


def _bounded(scope: Scope, *names: str) -> Iterator[Fault]:
    for name in names:
        if (value := scope.integer(name)) is not None and value <= 0:
            yield scope.wrong((name,), "must be at least 1")
        elif value is not None and value > LARGEST.get(name, LARGEST_GROUP):
            yield scope.wrong((name,), f"must be at most {LARGEST.get(name, LARGEST_GROUP)}")


def _concurrency(entry: Scope) -> Iterator[Fault]:
    listed = entry.get("conc-list")
    if not isinstance(listed, list):
        yield from _bounded(entry, *(name for name in ("conc-start", "conc-end") if (entry.integer(name) or 0) > 0))
        return
    first: dict[int, int] = {}
    for index in range(len(listed)):
        value = entry.integer("conc-list", index)
        if value is not None and first.setdefault(value, index) != index:
            yield entry.wrong(("conc-list", index), f"stands twice in conc-list of {entry.name}; keep one")
        if value is not None and value > LARGEST_CONC:
            yield entry.wrong(("conc-list", index), f"must be at most {LARGEST_CONC}")
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


def _fits(scope: Scope, hosts: Hosts) -> Iterator[Fault]:
    gpus = _gpus_each(scope)
    if not gpus or not hosts.gpus or gpus <= hosts.gpus:
        return
    if not hosts.spans:
        why = f"hosts have {hosts.gpus}, and this engine's workers cannot span hosts"
        yield scope.wrong(("tp",), f"makes workers of {gpus} GPUs; {why}")
    elif gpus % hosts.gpus:
        yield scope.wrong(("tp",), f"makes workers of {gpus} GPUs, which do not tile hosts of {hosts.gpus}")


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
        at = (role, "additional-settings", index)
        if name in SETTINGS and not _is_whole(value):
            yield entry.fault(at, f"{name}={value}  whole number expected")
        elif name not in SETTINGS and (near := did_you_mean(name, SETTINGS)):
            yield entry.fault(at, f"{name}={value}  no setting that fleet reads{near}")


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


def _nodes(entry: Scope, role: str, hosts: Hosts) -> Iterator[Fault]:
    name = f"{role.upper()}_NODES"
    count = entry.integer(role, "num-worker")
    if not count or count < 0 or any(_fits(entry.below(role), hosts)):
        return
    gpus = _gpus_each(entry.below(role))
    each = -(-gpus // hosts.gpus) if gpus and hosts.gpus else None
    for at, index, nodes in _setting(entry, name):
        if each is not None and nodes != count * each:
            why = f"{count} × {gpus} GPUs fill {counted(count * each, 'host')} of {hosts.gpus}"
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
        if depth > LARGEST_DEPTH:
            yield entry.fault(at, f"{DEPTH}={depth}  must be at most {LARGEST_DEPTH}")


def _equal_settings(entry: Scope) -> Iterator[Fault]:
    """A setting may stand at either role, or at both with one value."""
    for name in SETTINGS:
        told = _setting(entry, name)
        if len({value for _, _, value in told}) > 1:
            (first, place, one), (role, index, other) = told[0], told[-1]
            where = entry.document.at(*entry.keys, first, "additional-settings", place)
            text = f"{name}={other} for {role}, {one} for {first} ({where}): it has one value, wherever it stands"
            yield entry.fault((role, "additional-settings", index), text)


def _mentions(entry: Scope) -> bool:
    return any(name == DEPTH for role in ROLES for _, name, _ in _named_settings(entry, role))


def _arm_rules(recipe: Recipe, arm: Arm, facts: ModelFacts) -> Iterator[Fault]:
    if not arm.multinode and arm.spec == "mtp" and arm.depth < 1:
        file = f"recipes/models/{arm.model_basename}.yaml"
        where = f"frameworks: {arm.framework} in {file}"
        text = f"spec-decoding: mtp ({arm.name}) has no depth: type mtp: {{tokens: N}} below {where}"
        yield _at_arm(recipe, arm, text)
    cap = facts.cap(arm.framework)
    ranks = decode_ranks(arm)
    if cap is not None and max(arm.conc) > cap * ranks:
        room = f"{cap} per decode rank × {counted(ranks, 'rank')}"
        yield _at_arm(
            recipe, arm, f"concurrency {max(arm.conc)} ({arm.name}) is above the {cap * ranks} that fit ({room})"
        )


def decode_ranks(arm: Arm) -> int:
    """Ranks that decode: one a worker, with DP attention one a GPU of its tensor-parallel group."""
    workers = arm.of("decode" if arm.multinode else "server")
    return workers.count * (workers.tp if workers.dp_attn else 1)


def _at_arm(recipe: Recipe, arm: Arm, text: str) -> Fault:
    return Fault(arm.line, text) if arm.source == recipe.source else Fault(0, f"{arm.source}:{arm.line}  {text}")
