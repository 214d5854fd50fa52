"""What an inventory should say of a machine that was looked at, and what it leaves for people to decide."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.hardware import SECONDS, Hardware, Nic, picked
from fleet.model.hostrange import folded
from fleet.model.inventory import Host

ENOUGH_SCRATCH = 1 << 30
"""Bytes that must be free where a run's files go: they are megabytes."""


@dataclass(frozen=True)
class Wishes:
    """What the operator asked for. fabric: a device, an interface, an address or a network; labels: known runners."""

    runners: tuple[str, ...] = ()
    models: str = ""
    fabric: str = ""
    labels: tuple[str, ...] = ()


def entry(host: Host, found: Hardware, wish: Wishes) -> dict[str, Any]:
    """The keys that the inventory should have for this host, `host` being what it says now. What it says right is left
    out."""
    wanted: dict[str, Any] = {"gpus": found.gpus, "accelerator": found.accelerator}
    if found.gpus and found.gpu:
        wanted["gpu"] = found.gpu
    wanted["fabric"] = _fabric(host, found, wish)
    wanted["models"] = wish.models or model_folder(host, found)
    wanted["scratch"] = scratch_folder(host, found)
    wanted["runners"] = wish.runners or host.runners or _runners(found, wish.labels)
    says = host.model_dump()
    order = ("gpus", "gpu", "accelerator", "fabric", "models", "scratch", "runners")
    return {key: _lists(wanted[key]) for key in order if key in wanted and wanted[key] != says[key]}


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(one) for key, one in value.items() if one}
    return list(value) if isinstance(value, tuple) else value


def _fabric(host: Host, found: Hardware, wish: Wishes) -> dict[str, Any]:
    """What is there stays where nothing else is known: a link may be down for now."""
    choices = addresses(found, wish)
    address = choices[0] if len(choices) == 1 else host.fabric.address
    return {"address": address, "nics": tuple(nic.name for nic in found.active) or host.fabric.nics}


def addresses(found: Hardware, wish: Wishes) -> list[str]:
    """The addresses of the fast network that are in question: ordinary ones only as they are asked for."""
    if not wish.fabric:
        return list(found.addresses)
    devices = found.active if found.addresses else found.interfaces
    return list(dict.fromkeys(address for nic in devices for address in picked(nic, wish.fabric)))


def eligible(found: Hardware) -> list[str]:
    """What --fabric may choose: addresses with the device and the interface that have them."""
    return [f"{address} ({_carrier(nics[0])})" for address, nics in found.eligible.items()]


def _carrier(nic: Nic) -> str:
    return " ".join(dict.fromkeys((nic.name, nic.interfaces[0])))


def model_folder(host: Host, found: Hardware) -> str:
    """The inventory's folder if it has models, else the one with the most; the inventory's if none has any."""
    folders = found.models or {}
    if folders.get(host.models):
        return host.models
    best = max(folders, key=lambda folder: len(folders[folder]), default=host.models)
    return best if folders.get(best) else host.models


def scratch_folder(host: Host, found: Hardware) -> str:
    """The inventory's folder if there is room, else the one with the most; the inventory's if none has enough."""
    if found.scratch.get(host.scratch, 0) >= ENOUGH_SCRATCH:
        return host.scratch
    best = max(found.scratch, key=lambda folder: found.scratch[folder], default=host.scratch)
    return best if found.scratch.get(best, 0) >= ENOUGH_SCRATCH else host.scratch


def _runners(found: Hardware, labels: Sequence[str]) -> tuple[str, ...]:
    """The label that names these GPUs: one that recipes or hosts have already, else the model itself."""
    if not found.gpus or not found.gpu:
        return ()
    begins = [label for label in labels if re.match(rf"{re.escape(found.gpu)}(?![a-z0-9])", label)]
    return (found.gpu,) if found.gpu in labels or not begins else (min(begins, key=len),)


def hints(name: str, host: Host, found: Hardware, wish: Wishes, *, inventory: str) -> Iterator[str]:
    """What was not clear, or will not do, and what to type."""
    more = f"invoke inventory.add --inventory {shlex.quote(inventory)} --host {name} --update"
    if not found.docker.usable:
        yield f"Docker cannot be used: {found.docker_cause}"
    if found.gpus and not found.gpu:
        yield "the driver does not say what its GPUs are; write gpu: and runners: by hand"
    if found.nics and not found.active:
        yield f"RDMA devices without a link: {folded([nic.name for nic in found.nics])}"
    choices = addresses(found, wish)
    if len(choices) > 1 and (wish.fabric or host.fabric.address not in choices):
        listed = ", ".join(f"{address} ({_carrier(nics[0])})" for address, nics in _of(choices, found))
        nic = found.eligible[choices[0]][0]
        yield f"which address do its peers use? {listed}; type: {more} --fabric {nic.interfaces[0]}"
    if found.active and not found.addresses and not choices:
        yield f"no address on {folded([nic.name for nic in found.active])}: KV transfer would use the host's own"
    if wish.models and not (found.models or {}).get(wish.models):
        yield f"no model is in {wish.models}"
    elif not wish.models:
        yield from _model_hints(host, found, more)
    if found.scratch.get(scratch_folder(host, found), 0) < ENOUGH_SCRATCH:
        yield f"no folder with {ENOUGH_SCRATCH / 1e9:.1f} GB free that this user may write to; write scratch: by hand"


def _of(choices: Sequence[str], found: Hardware) -> list[tuple[str, list[Nic]]]:
    return [(address, nics) for address, nics in found.eligible.items() if address in choices]


def _model_hints(host: Host, found: Hardware, more: str) -> Iterator[str]:
    if found.models is None:
        yield f"looking for models took more than {SECONDS} s; where are they? type: {more} --models DIR"
        return
    full = {folder: names for folder, names in found.models.items() if names}
    if not full and found.gpus:
        where = ", ".join(found.models) or "the usual folders"
        yield f"no model found in {where}; where are they? type: {more} --models DIR"
    if len(full) > 1:
        told = ", ".join(
            f"{folder} ({', '.join(names[:3])}{' …' * (len(names) > 3)})" for folder, names in full.items()
        )
        yield f"models in several folders: {told}; taken: {model_folder(host, found)}"
