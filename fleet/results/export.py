"""Results under the public benchmark's names, made on export only: inside a run folder names are short. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.errors import FleetError
from fleet.model.arm import Arm, Workers
from fleet.results.aggregate import aggregate
from fleet.results.record import Record

NAME_MAX = 255
"""Bytes in one file name, on every file system in use."""

INVALID = "INVALID_"
"""How the names of points begin that are not valid."""


def result_filename(arm: Arm, runner: str, conc: int | Sequence[int], fingerprint: str = "") -> str:
    """RESULT_FILENAME: without a directory, prefix or suffix.

    runner: the concrete runner ("mi355x-amds_06"), not the label. conc: the arm's whole list on multi-node, else one.
    fingerprint: the recipe fingerprint, "" for none; its first 16 digits are used. FleetError if it cannot be a name.
    """
    concs = (conc,) if isinstance(conc, int) else tuple(conc)
    if not arm.multinode and len(concs) != 1:
        raise FleetError("a single-node result is one concurrency", where=arm.name)
    parts = [arm.exp_name, arm.precision, arm.framework, *_topology(arm)]
    parts += [f"disagg-{_bool(arm.disagg)}", f"spec-{arm.spec}", "conc" + "x".join(map(str, concs)), runner]
    parts += [f"recipe-{fingerprint[:16]}"] if fingerprint else []
    return _fitting("_".join(parts))


def point_filename(arm: Arm, runner: str, conc: int, fingerprint: str = "") -> str:
    """The aggregate's file name of one point, `agg_….json`; multi-node readers take the GPU counts from it."""
    if not arm.multinode:
        return _fitting(f"agg_{result_filename(arm, runner, conc, fingerprint)}.json")
    prefill, decode = arm.gpus["prefill"], arm.gpus["decode"]
    tail = f"concurrency_{conc}_req_rate_inf_gpus_{prefill + decode}_ctx_{prefill}_gen_{decode}"
    return _fitting(f"agg_{result_filename(arm, runner, arm.conc, fingerprint)}_{tail}.json")


@dataclass(frozen=True)
class Exported:
    """One point's public files by name, and what the manifest says of them."""

    point: str
    raw_name: str
    files: Mapping[str, bytes]
    told: Mapping[str, Any]


def exported(record: Record, arm: Arm, raw: bytes, runner: str = "", *, include_invalid: bool = False) -> Exported:
    """The client's result as it is and its aggregate, under their public names. runner: default, the recipe's label.

    A point that is not valid is named INVALID_…, its aggregate says why in `invalid`; one without a figure has none.
    Raises FleetError for what is not exported.
    """
    if not (include_invalid and not record.valid):
        measurement(record)
    unmarked(record)
    before = "" if record.valid else INVALID
    agg_name = point_filename(arm, runner or arm.runner, record.conc)
    raw_name = before + agg_name.removeprefix("agg_")
    files = {raw_name: raw}
    made = _aggregate(record, arm, raw)
    if isinstance(made, bytes):
        files[before + agg_name] = made
    told = {
        "run": record.run,
        "plan": record.plan,
        "point": record.point,
        "valid": record.valid,
        "reasons": list(record.verdict.reasons),
        "image_id": record.image.id,
        "client": record.drawn.model_dump(mode="json") if record.drawn else None,
        "no_aggregate": None if isinstance(made, bytes) else made,
    }
    return Exported(record.point, raw_name, files, told)


def measurement(record: Record) -> Record:
    """The record itself, if it may leave as a measurement; FleetError for doubles, trials and invalid points."""
    unmarked(record)
    if not record.valid:
        reason = record.verdict.reasons[0] if record.verdict.reasons else record.state
        raise FleetError(f"invalid, so it is not exported: {reason}", where=record.point, hint=record.reproduce)
    return record


def unmarked(record: Record) -> None:
    """Raises FleetError for doubles and trials: they never leave."""
    if record.marks:
        raise FleetError(f"{', '.join(record.marks)}: not a measurement, so it is not exported", where=record.point)


def _aggregate(record: Record, arm: Arm, raw: bytes) -> bytes | str:
    """The aggregate's file; of a point that is not valid, why there may be none."""
    try:
        made = aggregate(_object(raw), arm, image=record.image.tag)
        made |= {} if record.valid else {"invalid": "; ".join(record.verdict.reasons) or record.state}
        return json.dumps(made, indent=2, ensure_ascii=False, allow_nan=False).encode()
    except FleetError as error:
        return error.what
    except ValueError as error:
        return f"the client's result holds what JSON cannot: {error}"


def _object(raw: bytes) -> dict[str, Any]:
    found = json.loads(raw)
    if not isinstance(found, dict):
        raise FleetError("the client's result is no JSON object")
    return found


def _topology(arm: Arm) -> list[str]:
    if not arm.multinode:
        workers = arm.workers[0]
        return [f"{_sizes(workers)}-dpa{_bool(workers.dp_attn)}"]
    return [
        f"{workers.role}-{_sizes(workers)}-dp{_bool(workers.dp_attn)}-nw{workers.count}"
        for workers in (arm.of("prefill"), arm.of("decode"))
    ]


def _sizes(workers: Workers) -> str:
    return f"tp{workers.tp}-pp{workers.pp}-dcp{workers.dcp}-pcp{workers.pcp}-ep{workers.ep}"


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _fitting(name: str) -> str:
    size = len(name.encode())
    if "/" in name or "\0" in name:
        raise FleetError(f"not a file name: {name!r}", where="export", hint="a runner, framework or prefix holds a /")
    if size > NAME_MAX:
        raise FleetError(
            f"the public name is {size} bytes long, {size - NAME_MAX} more than a file name may have: {name}",
            where="export",
            hint="export without the recipe fingerprint, or with a shorter runner name",
        )
    return name
