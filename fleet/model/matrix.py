"""What a config expands to: the public generator's matrix entries, and arms.

Source of the rules: InferenceX's generator, mode `test-config`, as of its commit 843c6254.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, get_args

from fleet.errors import PlanError
from fleet.model.arm import Arm, Component, Role, Spec, Workers
from fleet.model.recipe import AGENTIC, FIXED, Recipe
from fleet.model.schema import Keys

Entry = dict[str, Any]
Evals = Literal["default", "none", "only", "all"]
EVALS: tuple[Evals, ...] = get_args(Evals)
DepthOf = Callable[[Recipe, int], int]

NAMED_LENGTHS = {(1024, 1024): "1k1k", (8192, 1024): "8k1k"}
EVAL_LENGTHS = (8192, 1024)
EVAL_FLOOR = 16
LENGTH_MARGIN = 256
AGENTIC_SECONDS = 3600
DRAM_CAP_MIB = 2_861_022
_NOT_IDENTITY = ("conc", "exp-name", "recipe-fingerprint")
_EVAL_FIELDS = ("run-eval", "eval-conc", "eval-only", "eval-all-concs")


@dataclass(frozen=True)
class Row:
    """An entry, and where its search-space entry stands in the config."""

    entry: Entry
    keys: Keys


def entries(recipe: Recipe, *, evals: Evals = "default") -> list[Entry]:
    """The public generator's output for one config, as it prints it.

    default: evaluations marked · none: unmarked · only: the marked rows alone · all: everything that can be evaluated.
    """
    found = [row.entry for row in rows(recipe)]
    if evals == "none":
        return found
    if evals == "all":
        return _all_evals(found)
    _mark(found, agentic=evals == "only")
    if evals == "default":
        return found
    return [{**entry, "eval-only": True} for entry in found if entry["run-eval"]]


def fingerprint(entry: Entry) -> str:
    """SHA-256 of an entry as canonical JSON, without concurrency and names."""
    identity = {key: value for key, value in entry.items() if key not in _NOT_IDENTITY}
    return hashlib.sha256(json.dumps(identity, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()


def length_name(isl: int, osl: int) -> str:
    return NAMED_LENGTHS.get((isl, osl), f"{isl}_{osl}")


def concurrencies(space: Entry) -> list[int]:
    """The list as written, or doubling from start to end, the end always included."""
    if "conc-list" in space:
        return list(space["conc-list"])
    value, end = space["conc-start"], space["conc-end"]
    found = [value]
    while value < end:
        value = min(value * 2, end)
        found.append(value)
    return found


def rows(recipe: Recipe) -> list[Row]:
    """All entries, unmarked, each with its place."""
    return [*_fixed(recipe), *_agentic(recipe)]


# --- entries ----------------------------------------------------------------------------------------------------


def _head(data: Entry) -> Entry:
    return {key: data[key] for key in ("image", "model", "model-prefix", "precision", "framework", "runner")}


def _ranks(space: Entry) -> Entry:
    return {key: space.get(key, 1) for key in ("pp", "dcp-size", "pcp-size")}


def _worker(worker: Entry) -> Entry:
    return {**worker, **_ranks(worker)}


def _declared(data: Entry, space: Entry, *names: str) -> Entry:
    """Values that stand in the search-space entry, else at the top."""
    return {name: space.get(name, data.get(name)) for name in names if name in space or name in data}


def _spaces(data: Entry, at: Keys) -> Iterator[tuple[Entry, Entry, Keys]]:
    for number, sequence in enumerate(data["scenarios"].get(at[-1], ())):
        for index, space in enumerate(sequence["search-space"]):
            yield sequence, space, (*at, number, "search-space", index)


def _fixed(recipe: Recipe) -> Iterator[Row]:
    data = recipe.data
    make = _fixed_multi if data["multinode"] else _fixed_single
    for sequence, space, keys in _spaces(data, FIXED):
        for entry in make(data, sequence["isl"], sequence["osl"], space):
            yield Row(entry, keys)


def _fixed_single(data: Entry, isl: int, osl: int, space: Entry) -> Iterator[Entry]:
    for conc in concurrencies(space):
        yield {
            **_head(data),
            "isl": isl,
            "osl": osl,
            "tp": space["tp"],
            **_ranks(space),
            "conc": conc,
            "max-model-len": isl + osl + LENGTH_MARGIN,
            "ep": space.get("ep", 1),
            "dp-attn": space.get("dp-attn", False),
            "spec-decoding": space.get("spec-decoding", "none"),
            "exp-name": f"{data['model-prefix']}_{length_name(isl, osl)}",
            "disagg": data.get("disagg", False),
            "run-eval": False,
            **_declared(data, space, "router"),
        }


def _fixed_multi(data: Entry, isl: int, osl: int, space: Entry) -> Iterator[Entry]:
    yield {
        **_head(data),
        "isl": isl,
        "osl": osl,
        "spec-decoding": space.get("spec-decoding", "none"),
        "prefill": _worker(space["prefill"]),
        "decode": _worker(space["decode"]),
        "conc": concurrencies(space),
        "max-model-len": isl + osl + LENGTH_MARGIN,
        "exp-name": f"{data['model-prefix']}_{length_name(isl, osl)}",
        "disagg": data.get("disagg", False),
        "run-eval": False,
        **_declared(data, space, "router", "kv-p2p-transfer"),
    }


def _agentic(recipe: Recipe) -> Iterator[Row]:
    data = recipe.data
    make = _agentic_multi if data["multinode"] else _agentic_single
    for sequence, space, keys in _spaces(data, AGENTIC):
        memory = _dram_gb(recipe, sequence, space)
        for conc in concurrencies(space):
            yield Row(make(data, space, conc, memory), keys)


def _agentic_single(data: Entry, space: Entry, conc: int, memory: int) -> Entry:
    spec = space.get("spec-decoding", "none")
    name = f"{data['model-prefix']}_tp{space['tp']}_conc{conc}_{_offload_name(space)}"
    return {
        **_head(data),
        "tp": space["tp"],
        **_ranks(space),
        "ep": space.get("ep", 1),
        "dp-attn": space.get("dp-attn", False),
        "spec-decoding": spec,
        "conc": conc,
        "kv-offloading": space["kv-offloading"],
        "total-cpu-dram-gb": memory,
        "duration": AGENTIC_SECONDS,
        "exp-name": name + (f"_spec-{spec}" if spec != "none" else ""),
        "scenario-type": "agentic-coding",
        **_declared({}, space, "kv-offload-backend"),
        **_declared(data, space, "router", "kv-p2p-transfer"),
    }


def _agentic_multi(data: Entry, space: Entry, conc: int, memory: int) -> Entry:
    kind = space.get("kv-offloading", "none")
    name = f"{data['model-prefix']}_p{_topology(space['prefill'])}_d{_topology(space['decode'])}_conc{conc}"
    return {
        **_head(data),
        "spec-decoding": space.get("spec-decoding", "none"),
        "prefill": _worker(space["prefill"]),
        "decode": _worker(space["decode"]),
        "conc": [conc],
        "kv-offloading": kind,
        "total-cpu-dram-gb": memory,
        "duration": AGENTIC_SECONDS,
        "exp-name": name + (f"_{_offload_name(space)}" if kind != "none" else ""),
        "disagg": data.get("disagg", False),
        "scenario-type": "agentic-coding",
        **_declared({}, space, "kv-offload-backend"),
        **_declared(data, space, "router", "kv-p2p-transfer"),
    }


def _topology(worker: Entry) -> str:
    ep = f"ep{worker['ep']}" if worker["ep"] != 1 else ""
    return f"{worker['num-worker']}x{worker['tp']}{ep}{'dpa' if worker['dp-attn'] else ''}"


def _offload_name(space: Entry) -> str:
    return f"kvdram-{space['kv-offload-backend']['name']}" if space.get("kv-offloading") == "dram" else "kvnone"


def _dram_gb(recipe: Recipe, sequence: Entry, space: Entry) -> int:
    """CPU memory for KV offloading in GB (10^9 bytes), by the share of a node's GPUs that are used."""
    if space.get("kv-offloading", "none") == "none":
        return 0
    hardware = recipe.hardware
    if hardware is None:
        raise PlanError(
            f"{recipe.key}: kv-offloading: dram needs to know the memory of runner {recipe.config.runner}",
            hint="put the public runners.yaml, with its hardware section, beside the file",
        )
    used, per_node = _gpus_used(space, hardware.gpus_per_node), hardware.gpus_per_node
    size = Decimal(min(hardware.available_cpu_dram_mib, DRAM_CAP_MIB)) * 2**20
    return int(size * Decimal(str(sequence["dram-utilization"])) * used / per_node / 10**9)


def _gpus_used(space: Entry, per_node: int) -> int:
    """GPUs in use on a node: of the server, or of one prefill worker."""
    unit = space.get("prefill", space)
    gpus: int = unit["tp"] * unit.get("pp", 1) * unit.get("pcp-size", 1)
    if "prefill" in space and max(gpus, per_node) % max(1, min(gpus, per_node)):
        raise PlanError(f"a prefill worker of {gpus} GPUs does not tile nodes of {per_node} GPUs")
    return min(gpus, per_node)


# --- evaluations ------------------------------------------------------------------------------------------------


def _is_agentic(entry: Entry) -> bool:
    return entry.get("scenario-type") == "agentic-coding"


def _is_multi(entry: Entry) -> bool:
    return "prefill" in entry


def _evaluable(entry: Entry) -> bool:
    return _is_agentic(entry) or (entry["isl"], entry["osl"]) == EVAL_LENGTHS


def _groups(found: list[Entry], key: Callable[[Entry], str]) -> list[list[Entry]]:
    groups: dict[str, list[Entry]] = {}
    for entry in found:
        groups.setdefault(key(entry), []).append(entry)
    return list(groups.values())


def _by(*names: str) -> Callable[[Entry], str]:
    return lambda entry: json.dumps([entry[name] for name in names])


def _by_topology(entry: Entry) -> str:
    left_out = (*_NOT_IDENTITY, *_EVAL_FIELDS)
    return json.dumps({key: value for key, value in entry.items() if key not in left_out}, sort_keys=True)


def _mark(found: list[Entry], *, agentic: bool) -> None:
    """Sets run-eval (and eval-conc) on the rows that the default selection evaluates."""
    for entry in found:
        entry.setdefault("run-eval", False)
    chosen = [entry for entry in found if _evaluable(entry) and (agentic or not _is_agentic(entry))]
    single = [entry for entry in chosen if not _is_multi(entry)]
    fixed = [entry for entry in single if not _is_agentic(entry) and entry["conc"] >= EVAL_FLOOR]
    by = _by("model", "runner", "framework", "precision", "isl", "osl", "spec-decoding", "dp-attn")
    for group in _groups(fixed, by):
        concs = sorted({entry["conc"] for entry in group})
        _mark_at(group, {concs[-1], concs[len(concs) // 2]})
    by = _by("model", "runner", "framework", "precision")
    for group in _groups([entry for entry in single if _is_agentic(entry)], by):
        _mark_at(group, {max(entry["conc"] for entry in group)})
    for group in _groups([entry for entry in chosen if _is_multi(entry)], _by_topology):
        best = max(group, key=lambda entry: max(entry["conc"]))
        if max(best["conc"]) >= EVAL_FLOOR:
            best["run-eval"], best["eval-conc"] = True, max(best["conc"])


def _mark_at(group: list[Entry], concs: set[int]) -> None:
    for entry in group:
        if entry["conc"] in concs:
            entry["run-eval"] = True


def _all_evals(found: list[Entry]) -> list[Entry]:
    """Every row that can be evaluated; multi-node rows of one topology become one."""
    chosen = [entry for entry in found if _evaluable(entry)]
    single = [{**entry, "run-eval": True, "eval-only": True} for entry in chosen if not _is_multi(entry)]
    multi = [_merged(group) for group in _groups([entry for entry in chosen if _is_multi(entry)], _by_topology)]
    return single + multi


def _merged(group: list[Entry]) -> Entry:
    concs = sorted({conc for entry in group for conc in entry["conc"]})
    how: Entry = {"eval-conc": concs[-1]} if _is_agentic(group[0]) else {"eval-all-concs": True}
    return {**group[0], "conc": concs, "run-eval": True, **how, "eval-only": True}


# --- arms -------------------------------------------------------------------------------------------------------


def unrunnable(recipe: Recipe) -> list[str]:
    """What of the config fleet cannot run, each with where it is written."""
    count = sum(len(sequence["search-space"]) for sequence in recipe.data["scenarios"].get("agentic-coding", ()))
    if not count:
        return []
    what = f"{count} search-space entr{'y' if count == 1 else 'ies'}"
    return [
        f"agentic-coding ({recipe.at(*AGENTIC)}, {what}) cannot be run by fleet: it drives fixed sequence lengths only"
    ]


def arms(recipe: Recipe, *, depth_of: DepthOf | None = None) -> list[Arm]:
    """The deployments of a config, in file order.

    Rows that differ only in concurrency are one arm on a single node; a multi-node row is an arm of its own.
    `depth_of` gives the draft depth of single-node MTP at a concurrency, which no config says (see `recipes/models`); 0
    without it. Another depth is another arm.
    Raises PlanError if nothing of the config can be run.
    """
    groups = _deployments(recipe, depth_of)
    if not groups:
        raise PlanError(f"{recipe.key}: nothing to run", unrunnable(recipe))
    lengths = {(group[0].entry["isl"], group[0].entry["osl"]) for group in groups}
    plain = [_arm(recipe, group, depth_of) for group in groups]
    names = _unique([_name(arm, lengths=len(lengths) > 1) for arm in plain], [_details(arm) for arm in plain])
    return [arm.model_copy(update={"name": name}) for arm, name in zip(plain, names, strict=True)]


def _deployments(recipe: Recipe, depth_of: DepthOf | None) -> list[list[Row]]:
    groups: dict[tuple[str, int], list[Row]] = {}
    for number, row in enumerate(_fixed(recipe)):
        alone = _is_multi(row.entry)
        key = (str(number), 0) if alone else (fingerprint(row.entry), _depth(recipe, row.entry, (), depth_of))
        groups.setdefault(key, []).append(row)
    return list(groups.values())


def _arm(recipe: Recipe, group: list[Row], depth_of: DepthOf | None) -> Arm:
    entry, multi = group[0].entry, _is_multi(group[0].entry)
    workers = _roles(entry)
    spec: Spec = entry["spec-decoding"]
    router = entry.get("router")
    source, line = recipe.document.where(recipe.key, *group[0].keys)
    return Arm(
        key=recipe.key,
        name="",
        image=entry["image"],
        model=entry["model"],
        model_prefix=entry["model-prefix"],
        precision=entry["precision"],
        framework=entry["framework"],
        runner=entry["runner"],
        isl=entry["isl"],
        osl=entry["osl"],
        max_model_len=entry["max-model-len"],
        exp_name=entry["exp-name"],
        multinode=multi,
        disagg=entry["disagg"],
        spec=spec,
        depth=_depth(recipe, entry, workers, depth_of),
        workers=workers,
        router=Component(**router) if router else None,
        kv_transfer=entry.get("kv-p2p-transfer"),
        conc=tuple(entry["conc"]) if multi else tuple(row.entry["conc"] for row in group),
        fingerprint=fingerprint(entry),
        entry=entry,
        source=source,
        line=line,
    )


def _depth(recipe: Recipe, entry: Entry, workers: tuple[Workers, ...], depth_of: DepthOf | None) -> int:
    if entry["spec-decoding"] == "none":
        return 0
    if not _is_multi(entry):
        return depth_of(recipe, entry["conc"]) if depth_of else 0
    return max(_whole(worker.settings.get("DECODE_MTP_SIZE")) or 0 for worker in workers)


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None


def _roles(entry: Entry) -> tuple[Workers, ...]:
    if not _is_multi(entry):
        return (_workers("server", {**entry, "num-worker": 1}, {}),)
    settings = {role: settings_of(entry[role]) for role in ("prefill", "decode")}
    everywhere = {**settings["prefill"], **settings["decode"]}
    return (_workers("prefill", entry["prefill"], everywhere), _workers("decode", entry["decode"], everywhere))


def settings_of(worker: Entry) -> dict[str, str]:
    """additional-settings as a mapping, values as written."""
    pairs = (setting.partition("=") for setting in worker.get("additional-settings", ()))
    return {name: value for name, _, value in pairs}


def _workers(role: Role, worker: Entry, everywhere: dict[str, str]) -> Workers:
    own = settings_of(worker)
    nodes = f"{role.upper()}_NODES"
    return Workers(
        role=role,
        count=worker["num-worker"],
        tp=worker["tp"],
        ep=worker["ep"],
        dp_attn=worker["dp-attn"],
        pp=worker["pp"],
        dcp=worker["dcp-size"],
        pcp=worker["pcp-size"],
        nodes=_whole(own.get(nodes, everywhere.get(nodes))),
        settings=own,
    )


# --- names ------------------------------------------------------------------------------------------------------


def _name(arm: Arm, *, lengths: bool) -> str:
    """1p1d-mtp3, 2p1d-dpa, tp8-ep8-dpa, with the lengths if a recipe has several."""
    parts = [_shape(arm), _attention(arm), _speculation(arm), length_name(arm.isl, arm.osl) if lengths else ""]
    return "-".join(part for part in parts if part)


def _shape(arm: Arm) -> str:
    if arm.multinode:
        return f"{arm.of('prefill').count}p{arm.of('decode').count}d"
    return _sizes(arm.of("server"), "-")


def _sizes(workers: Workers, between: str) -> str:
    sizes = (("ep", workers.ep), ("pp", workers.pp), ("dcp", workers.dcp), ("pcp", workers.pcp))
    return between.join([f"tp{workers.tp}", *(f"{name}{size}" for name, size in sizes if size != 1)])


def _attention(arm: Arm) -> str:
    roles = [workers.role for workers in arm.workers if workers.dp_attn]
    if not roles:
        return ""
    return "dpa" if len(roles) == len(arm.workers) else f"{roles[0][0]}dpa"


def _speculation(arm: Arm) -> str:
    if arm.spec == "none":
        return ""
    return ("mtp" if arm.spec == "mtp" else "draft") + (str(arm.depth) if arm.depth else "")


def _details(arm: Arm) -> str:
    if arm.multinode:
        return f"p{_sizes(arm.of('prefill'), '')}-d{_sizes(arm.of('decode'), '')}"
    return arm.router.name if arm.router else ""


def _unique(names: list[str], details: list[str]) -> list[str]:
    """Names that occur once: told apart by their details where those differ, else by a number."""
    found = list(names)
    for name in set(names):
        same = [index for index, other in enumerate(names) if other == name]
        if len({details[index] for index in same}) > 1:
            for index in same:
                found[index] = "-".join(filter(None, (name, details[index])))
    taken: set[str] = set()
    for index, name in enumerate(found):
        number, unique = 1, name
        while unique in taken or (number > 1 and unique in found):
            number += 1
            unique = f"{name}-{number}"
        taken.add(unique)
        found[index] = unique
    return found
