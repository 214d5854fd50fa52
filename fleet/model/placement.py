"""Roles to seats: which rank of which role sits on which host.

Hosts are taken in inventory order, prefill workers first, then decode. A worker has its hosts for itself; one that is
larger than a host spans several equal ones, with one seat on each. Router and client sit with the first serving seat.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from fleet.errors import PlanError
from fleet.model.arm import Arm, Role, Workers
from fleet.model.inventory import Host, Inventory
from fleet.model.near import did_you_mean
from fleet.model.seat import Placement, Seat
from fleet.words import counted

NODES = {"prefill": "PREFILL_NODES", "decode": "DECODE_NODES"}


def place(arm: Arm, inventory: Inventory, *, spans: bool = True) -> Placement:
    """Seats for all roles of an arm. `spans`: whether the engine's workers can span hosts.

    Raises PlanError with all reasons at once.
    """
    reasons = [reason for workers in arm.workers for reason in _sizes(workers)]
    hosts = [host for host in inventory.hosts if arm.runner in host.runners]
    if not hosts:
        reasons.append(_no_runner(arm, inventory))
    if reasons:
        raise PlanError(_head(arm), reasons)
    seats: list[Seat] = []
    free = list(hosts)
    for workers in arm.workers:
        for rank in range(workers.count):
            seats += _seat_worker(workers, rank, free, reasons, spans)
    needed = len(seats) + sum(1 for reason in reasons if reason == _NO_HOST)
    if _NO_HOST in reasons:
        reasons = [reason for reason in reasons if reason != _NO_HOST]
        reasons.append(_too_few(arm, needed, hosts))
    if any(host.gpus < 1 and host not in free for host in hosts):
        reasons.append(_no_gpus(hosts))
    reasons += [reason for workers in arm.workers for reason in _nodes(workers, seats)]
    if reasons:
        raise PlanError(_head(arm), list(dict.fromkeys(reasons)))
    return Placement(arm=arm, seats=(*seats, *_helpers(arm, seats[0])), hosts=_used(seats, hosts))


def consumes(arm: Arm) -> tuple[str, ...]:
    """Declared values that placement turns into seats."""
    names = ["runner"]
    for workers in arm.workers:
        names += [f"{workers.role}.count", f"{workers.role}.nodes"]
        names += [f"{workers.role}.settings.{name}" for name in NODES.values() if name in workers.settings]
    return tuple(names)


_NO_HOST = "no host left"
_NO_RUNNER = "no host answers to runner"
_NO_GPUS = "no GPUs in the inventory"


def remedy(reason: str) -> str:
    """What to write into the inventory against a reason of `place`; "" for those that lie elsewhere."""
    if reason.startswith(_NO_RUNNER):
        return f"runners: [{reason.removeprefix(_NO_RUNNER).split()[0]}] at the hosts that should run them"
    if reason.endswith(_NO_GPUS):
        return "gpus: 8, accelerator: rocm (or cuda) at these hosts, as many as they have"
    return ""


def _sizes(workers: Workers) -> Iterator[str]:
    sizes = {"tp": workers.tp, "pp": workers.pp, "ep": workers.ep, "dcp-size": workers.dcp, "pcp-size": workers.pcp}
    for name, value in {"num-worker": workers.count, **sizes}.items():
        if value < 1:
            yield f"{workers.role}: {name}: {value}: at least 1 is needed"


def _no_runner(arm: Arm, inventory: Inventory) -> str:
    known = sorted({runner for host in inventory.hosts for runner in host.runners})
    answer = ", ".join(known) if known else "no runner at all"
    near = did_you_mean(arm.runner, known)
    return f"{_NO_RUNNER} {arm.runner} (hosts of {inventory.path} answer to: {answer}){near}"


def _no_gpus(hosts: list[Host]) -> str:
    """Names all that have none, so that arms that meet some of them have one reason."""
    bare = [host.name for host in hosts if host.gpus < 1]
    return f"{', '.join(bare)} {'has' if len(bare) == 1 else 'have'} {_NO_GPUS}"


def _seat_worker(workers: Workers, rank: int, free: list[Host], reasons: list[str], spans: bool) -> list[Seat]:
    """Takes the worker's hosts off `free`; adds to `reasons` what stands in the way."""
    if not free:
        reasons.append(_NO_HOST)
        return []
    first, need = free[0], workers.gpus_each
    if first.gpus < 1:
        free.pop(0)
        return []
    span = ceil(need / first.gpus)
    if span > 1 and (why := _no_span(workers, first, spans)):
        reasons.append(why)
    hosts = [free.pop(0) for _ in range(min(span, len(free)))]
    unequal = [host.name for host in hosts if host.gpus != first.gpus]
    if unequal:
        reasons.append(f"{workers.role} {rank} spans hosts with unequal GPUs: {first.name} and {', '.join(unequal)}")
    reasons += [_NO_HOST] * (span - len(hosts))
    gpus = tuple(range(min(need, first.gpus)))
    return [
        Seat(role=workers.role, rank=rank, host=host.name, gpus=gpus, node=node, span=span)
        for node, host in enumerate(hosts)
    ]


def _no_span(workers: Workers, host: Host, spans: bool) -> str:
    need = f"{workers.role}: a worker needs {_product(workers)}"
    if not spans:
        return f"{need}, {host.name} has {host.gpus}, and this engine's workers cannot span hosts"
    if workers.gpus_each % host.gpus:
        return f"{need}: they do not fit hosts of {counted(host.gpus, 'GPU')} ({host.name})"
    return ""


def _product(workers: Workers) -> str:
    factors = {"tp": workers.tp, "pp": workers.pp, "pcp": workers.pcp}
    named = " × ".join(f"{name} {size}" for name, size in factors.items() if size != 1)
    return f"{workers.gpus_each} ({named}) GPUs" if named else counted(workers.gpus_each, "GPU")


def _too_few(arm: Arm, needed: int, hosts: list[Host]) -> str:
    roles = " + ".join(f"{workers.count} {workers.role}" for workers in arm.workers)
    names = ", ".join(host.name for host in hosts)
    are = "is" if len(hosts) == 1 else "are"
    return f"{counted(needed, 'host')} needed ({roles}), {len(hosts)} {are} there for runner {arm.runner}: {names}"


def _nodes(workers: Workers, seats: list[Seat]) -> Iterator[str]:
    """What the config says of nodes against what the workers come to."""
    mine = [seat for seat in seats if seat.role == workers.role]
    if workers.nodes is None or not mine:
        return
    span = mine[0].span
    if workers.nodes != workers.count * span:
        each = f"{counted(span, 'host')} each"
        name = NODES.get(workers.role, f"{workers.role} nodes")
        gpus = counted(workers.gpus_each, "GPU")
        yield f"{name}={workers.nodes} does not fit num-worker: {workers.count} of {gpus} ({each})"


def _helpers(arm: Arm, first: Seat) -> list[Seat]:
    roles: list[Role] = ["router", "client"] if arm.router else ["client"]
    return [Seat(role=role, rank=0, host=first.host) for role in roles]


def _used(seats: list[Seat], hosts: list[Host]) -> tuple[Host, ...]:
    names = {seat.host for seat in seats}
    return tuple(host for host in hosts if host.name in names)


def _head(arm: Arm) -> str:
    where = f"{arm.source}:{arm.line}: " if arm.source and arm.line else ""
    return f"{where}arm {arm.name} cannot be placed"
