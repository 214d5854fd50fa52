"""A client's raw result as the public benchmark's aggregate: its field names, its order and its arithmetic. Pure.

Recipe facts come from the arm, never from environment variables or file names. Times in the aggregate are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet.errors import FleetError
from fleet.model.arm import Arm, Point, Workers
from fleet.results.record import Figures

POWER_SCHEMA = 2


def aggregate(
    raw: Mapping[str, Any], arm: Arm, *, image: str | None = None, point: Point | None = None
) -> dict[str, Any]:
    """The aggregate of one point. `image` replaces the arm's, `point` its lengths: a trial cuts them.

    Raises FleetError where the arithmetic has no answer: a field is missing or not a number, a TPOT is zero, no GPUs.
    """
    return {
        **_identity(raw, arm, image or arm.image, point or arm),
        **(_multi_node(arm) if arm.multinode else _single_node(arm)),
        **_throughput(raw, arm),
        **_latency(raw),
        # Nobody measures power yet: the public reader takes 0 as "not measured".
        "power_metric_schema_version": POWER_SCHEMA,
        "power_valid": 0,
    }


def figures(raw: Mapping[str, Any], arm: Arm, acceptance_length: float | None = None) -> Figures:
    """A record's headline numbers; what the client did not measure is None. Throughput as in `aggregate`."""
    tpot = _maybe(raw, "median_tpot_ms")
    try:
        per_gpu: dict[str, float] = _throughput(raw, arm)
    except FleetError:
        per_gpu = {}
    return Figures(
        **per_gpu,
        median_intvty=1000.0 / tpot if tpot else None,
        median_ttft_ms=_maybe(raw, "median_ttft_ms"),
        p99_ttft_ms=_maybe(raw, "p99_ttft_ms"),
        median_tpot_ms=tpot,
        p99_tpot_ms=_maybe(raw, "p99_tpot_ms"),
        median_e2el_ms=_maybe(raw, "median_e2el_ms"),
        acceptance_length=acceptance_length,
    )


def _identity(raw: Mapping[str, Any], arm: Arm, image: str, lengths: Arm | Point) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "hw": arm.runner,
        "conc": int(_number(raw, "max_concurrency")),
        "image": image,
        "model": _field(raw, "model_id"),
        "infmax_model_prefix": arm.model_prefix,
        "framework": arm.framework,
        "precision": arm.precision,
        "spec_decoding": arm.spec,
        "disagg": arm.disagg,
        "recipe_fingerprint": arm.fingerprint,
        "isl": lengths.isl,
        "osl": lengths.osl,
    }
    if arm.router:
        facts["router"] = {"name": arm.router.name, "version": arm.router.version}
    if arm.kv_transfer:
        facts["kv_p2p_transfer"] = arm.kv_transfer
    return facts


def _single_node(arm: Arm) -> dict[str, Any]:
    if arm.disagg:
        raise FleetError("a disaggregated arm needs a multi-node recipe", where=arm.name)
    return {"is_multinode": False, **_topology(arm.workers[0])}


def _multi_node(arm: Arm) -> dict[str, Any]:
    prefill, decode = arm.of("prefill"), arm.of("decode")
    facts: dict[str, Any] = {"is_multinode": True}
    for workers in (prefill, decode):
        facts |= {f"{workers.role}_{name}": value for name, value in _topology(workers).items()}
        facts[f"{workers.role}_num_workers"] = workers.count
    if not decode.count:
        facts |= {"decode_tp": 0, "decode_pp": 1, "decode_dcp_size": 1, "decode_pcp_size": 1, "decode_ep": 0}
    return facts | {"num_prefill_gpu": arm.gpus["prefill"], "num_decode_gpu": arm.gpus["decode"]} | _hardware(arm)


def _hardware(arm: Arm) -> dict[str, str]:
    blocks = {role: arm.entry.get(role) or {} for role in ("prefill", "decode")}
    return {f"{role}_hw": block["hardware"] for role, block in blocks.items() if block.get("hardware")}


def _topology(workers: Workers) -> dict[str, Any]:
    return {
        "tp": workers.tp,
        "pp": workers.pp,
        "dcp_size": workers.dcp,
        "pcp_size": workers.pcp,
        "ep": workers.ep,
        "dp_attention": "true" if workers.dp_attn else "false",
    }


def _throughput(raw: Mapping[str, Any], arm: Arm) -> dict[str, float]:
    """Tokens/s per GPU. Multi-node: output by decode GPUs (all, if there are none), input by prefill GPUs."""
    total, output = _number(raw, "total_token_throughput"), _number(raw, "output_throughput")
    if arm.multinode:
        prefill, decode = arm.gpus["prefill"], arm.gpus["decode"]
        everything, producers, readers = prefill + decode, decode or prefill, prefill
    else:
        everything = producers = readers = sum(arm.gpus.values())
    if min(everything, producers, readers) <= 0:
        raise FleetError(f"no figure per GPU: the arm's GPUs are {dict(arm.gpus)}", where=arm.name)
    return {
        "tput_per_gpu": total / everything,
        "output_tput_per_gpu": output / producers,
        "input_tput_per_gpu": (total - output) / readers,
    }


def _latency(raw: Mapping[str, Any]) -> dict[str, float]:
    """Each *_ms in seconds; each TPOT also as interactivity, its reciprocal in tokens/s: so is the one of std."""
    found: dict[str, float] = {}
    for key in (key for key in raw if key.endswith("_ms")):
        name, value = key.removesuffix("_ms"), _number(raw, key)
        found[name] = value / 1000.0
        if "tpot" in name:
            if value == 0:
                raise FleetError(
                    f"{key} is 0, so it has no interactivity",
                    where="aggregate",
                    hint="answers of one token, a single request or equal requests have no spread to publish",
                )
            found[name.replace("tpot", "intvty")] = 1000.0 / value
    return found


def _field(raw: Mapping[str, Any], key: str) -> Any:
    if raw.get(key) is None:
        raise FleetError(f"the client's result has no {key}", where="aggregate")
    return raw[key]


def _number(raw: Mapping[str, Any], key: str) -> float:
    value = _field(raw, key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise FleetError(f"the client's {key} is not a number: {value!r}", where="aggregate")
    return float(value)


def _maybe(raw: Mapping[str, Any], key: str) -> float | None:
    try:
        return _number(raw, key)
    except FleetError:
        return None
