"""The public benchmark's result file names, made on export only: inside a run folder names are short. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.errors import FleetError
from fleet.model.arm import Arm, Workers
from fleet.results.record import Record

NAME_MAX = 255
"""Bytes in one file name, on every file system in use."""


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


def measurement(record: Record) -> Record:
    """The record itself, if it may leave as a measurement; FleetError for doubles, trials and invalid points."""
    if record.marks:
        raise FleetError(f"{', '.join(record.marks)}: not a measurement, so it is not exported", where=record.point)
    if not record.valid:
        reason = record.verdict.reasons[0] if record.verdict.reasons else record.state
        raise FleetError(f"invalid, so it is not exported: {reason}", where=record.point, hint=record.reproduce)
    return record


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
