"""Nothing declared is dropped: what an arm declares, and whether something carries it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fleet.model.arm import Arm
from fleet.model.base import kebab
from fleet.model.service import Service

_FIELDS = (
    "image", "model", "model_prefix", "precision", "framework", "runner", "isl", "osl", "max_model_len", "exp_name",
    "multinode", "disagg", "spec", "depth", "kv_transfer", "conc",
)  # fmt: skip
_SIZES = ("count", "tp", "ep", "dp_attn", "pp", "dcp", "pcp", "nodes")

INFORMATIONAL = {
    "precision": "part of the checkpoint",
    "model_prefix": "part of result names",
    "exp_name": "part of result names",
    "multinode": "the number of hosts follows from the workers",
}
"""Declared values that no service carries whatever the engine, with the reason."""

# Keys of a public matrix entry that are fields of an arm, or say which rows are evaluated.
_ENTRY_KEYS = frozenset(
    (
        "image", "model", "model-prefix", "precision", "framework", "runner", "isl", "osl", "conc", "max-model-len",
        "exp-name", "disagg", "spec-decoding", "router", "kv-p2p-transfer", "prefill", "decode", "tp", "pp", "dcp-size",
        "pcp-size", "ep", "dp-attn", "run-eval", "eval-conc", "eval-only", "eval-all-concs", "recipe-fingerprint",
    )
)  # fmt: skip
_WORKER_KEYS = frozenset(
    ("num-worker", "tp", "pp", "dcp-size", "pcp-size", "ep", "dp-attn", "additional-settings", "hardware")
)


def declared(arm: Arm) -> dict[str, Any]:
    """All values that reach the arm, as `field`, `role.field` or `role.settings.KEY`. What is not said is absent."""
    values = {name: getattr(arm, name) for name in _FIELDS}
    if arm.router:
        values |= {"router.name": arm.router.name, "router.version": arm.router.version}
    for workers in arm.workers:
        values |= {f"{workers.role}.{name}": getattr(workers, name) for name in _SIZES}
        values |= {f"{workers.role}.settings.{name}": value for name, value in workers.settings.items()}
        values[f"{workers.role}.hardware"] = (arm.entry.get(workers.role) or {}).get("hardware")
    return {name: value for name, value in (values | dict(_unknown(arm))).items() if value is not None}


def shown(name: str) -> str:
    """A declared name as it is written in recipes; keys of settings are upper case and stay."""
    return ".".join(part if part.isupper() else kebab(part) for part in name.split("."))


def dropped(
    arm: Arm, services: Iterable[Service], placed: Iterable[str], informational: Mapping[str, str]
) -> list[str]:
    """Declared values that neither a service nor placement carries, and nobody gives a reason for."""
    carried = {*placed, *informational, *INFORMATIONAL}
    carried.update(name for service in services for name in service.consumes)
    return [
        f"{shown(name)}: {value} would be dropped: no service, and nothing else, reads it"
        for name, value in declared(arm).items()
        if name not in carried
    ]


def _unknown(arm: Arm) -> Iterator[tuple[str, Any]]:
    """Keys of the matrix entry that no field of the arm holds."""
    for key, value in arm.entry.items():
        if key not in _ENTRY_KEYS:
            yield key, value
    for role in ("prefill", "decode"):
        for key, value in (arm.entry.get(role) or {}).items():
            if key not in _WORKER_KEYS:
                yield f"{role}.{key}", value
