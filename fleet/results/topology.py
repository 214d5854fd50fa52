"""What makes two points comparable: the deployment, its hardware and its load, aspect by aspect. Pure.

An aspect that one side does not tell is no difference: a public aggregate says nothing of drafts, client or framing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleet.model.arm import Arm, Workers
from fleet.model.inventory import Host
from fleet.results.record import Record
from fleet.words import counted

Topology = Mapping[str, str]
"""Values by aspect, as they are told to people."""

SPECULATION = ("speculation", "draft depth", "framing")
IMAGE = ("image", "image ID")
ACROSS: Mapping[str, tuple[str, ...]] = {"mtp": (*SPECULATION, *IMAGE), "image": IMAGE}
"""Named contrasts: what each may differ in."""
MACHINES = ("hardware", "accelerator", "GPU", "framework", "client")
"""What noise depends on first of all."""

LOAD = "load"
"""The aspect that follows from the concurrency."""

RAW, CHAT = "raw prompts", "chat-framed prompts"


def of_record(record: Record, arm: Arm, hosts: Sequence[Host]) -> Topology:
    """hosts: those that the arm was placed on."""
    return {
        "hardware": label(arm.runner),
        "accelerator": _one({host.accelerator for host in hosts}),
        "GPU": _one({host.gpu or "" for host in hosts}),
        "model": arm.model_basename,
        "precision": arm.precision,
        "framework": arm.framework,
        "workers": ", ".join(map(_workers, arm.workers)),
        "router": f"{arm.router.name} {arm.router.version}" if arm.router else "none",
        "KV transfer": arm.kv_transfer or "none",
        "settings": _settings(arm),
        "image": record.image.tag,
        "image ID": (record.image.id or "")[:19],
        "speculation": record.spec,
        "draft depth": str(record.depth),
        "framing": CHAT if record.chat else RAW,
        "client": record.drawn.client if record.drawn else "",
        "lengths": f"{record.isl}/{record.osl}",
        "context": counted(arm.max_model_len, "token"),
        LOAD: f"{counted(record.prompts, 'prompt')} after {counted(record.warmups, 'warm-up')}, seed {record.seed},"
        f" range {record.range_ratio:g}",
        "kind": " ".join(record.marks).lower() or "measurement",
    }


def of_aggregate(told: Mapping[str, Any]) -> Topology:
    """From a public aggregate: what its fields say, and nothing else."""
    found = {
        "hardware": label(str(told["hw"])) if "hw" in told else "",
        "model": str(told.get("model", "")).rsplit("/", 1)[-1],
        "precision": _text(told, "precision"),
        "framework": _text(told, "framework"),
        "workers": _told_workers(told),
        "router": _told_router(told),
        "KV transfer": _text(told, "kv_p2p_transfer"),
        "image": _text(told, "image"),
        "speculation": _text(told, "spec_decoding"),
        "lengths": f"{told['isl']}/{told['osl']}" if {"isl", "osl"} <= set(told) else "",
        "kind": "measurement",
    }
    return {aspect: value for aspect, value in found.items() if value}


def differing(a: Topology, b: Topology, across: str = "") -> tuple[str, ...]:
    """Aspects that both tell, and otherwise. across: the contrast whose own aspects may differ, "" for none."""
    waived = ACROSS[across] if across else ()
    return tuple(one for one in a if one not in waived and a[one] and b.get(one) and a[one] != b[one])


def untold(a: Topology, b: Topology) -> tuple[str, ...]:
    """Aspects that one of two says nothing of, so that nobody compared them."""
    return tuple(one for one in {**a, **b} if bool(a.get(one)) != bool(b.get(one)))


def label(runner: str) -> str:
    """A runner's label as hardware: pools of the same machines for one node and for several have different ones."""
    plain = runner.lower().removeprefix("cluster:")
    for end in ("-multinode", "-disagg", "-trt"):
        plain = plain.removesuffix(end)
    return plain


def _settings(arm: Arm) -> str:
    """additional-settings but for those that other aspects tell."""
    found = {name: value for workers in arm.workers for name, value in workers.settings.items()}
    told = ("PREFILL_NODES", "DECODE_NODES", "DECODE_MTP_SIZE")
    return " ".join(f"{name}={value}" for name, value in sorted(found.items()) if name not in told) or "none"


def _workers(workers: Workers) -> str:
    sizes = {"tp": workers.tp, "pp": workers.pp, "dcp": workers.dcp, "pcp": workers.pcp, "ep": workers.ep}
    return _spoken(workers.role, workers.count, sizes, workers.dp_attn)


def _told_workers(told: Mapping[str, Any]) -> str:
    def one(role: str, start: str, count: Any) -> str:
        names = {"tp": "tp", "pp": "pp", "dcp": "dcp_size", "pcp": "pcp_size", "ep": "ep"}
        sizes = {name: told.get(start + field, 1) for name, field in names.items()}
        return _spoken(role, count, sizes, str(told.get(f"{start}dp_attention")).lower() == "true")

    if told.get("is_multinode") and {"prefill_num_workers", "decode_num_workers"} <= set(told):
        return ", ".join(one(role, f"{role}_", told[f"{role}_num_workers"]) for role in ("prefill", "decode"))
    return one("server", "", 1) if not told.get("is_multinode") and "tp" in told else ""


def _told_router(told: Mapping[str, Any]) -> str:
    router = told.get("router")
    if isinstance(router, Mapping):
        return f"{router.get('name')} {router.get('version')}"
    return "" if told.get("is_multinode") else "none"


def _spoken(role: str, count: Any, sizes: Mapping[str, Any], attention: bool) -> str:
    """`2 prefill tp8`, `1 decode tp8 ep8 dpa`: sizes of 1 are left out but for tp."""
    kept = [f"{name}{size}" for name, size in sizes.items() if name == "tp" or size != 1]
    return " ".join([str(count), role, *kept, *(["dpa"] if attention else [])])


def _text(told: Mapping[str, Any], field: str) -> str:
    value = told.get(field)
    return "" if value is None else str(value)


def _one(values: set[str]) -> str:
    return " and ".join(sorted(filter(None, values)))
