"""What is odd about an inventory without being wrong."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.model.hostrange import folded
from fleet.model.inventory import Host, Inventory


def remarks(inventory: Inventory) -> list[str]:
    """What the file says and fleet does not use, then what hosts lack to be of use."""
    return [*inventory.notes, *_idle(inventory)]


def _idle(inventory: Inventory) -> Iterator[str]:
    def named(hosts: list[Host]) -> str:
        return folded([host.name for host in hosts])

    unlabelled = [host for host in inventory.hosts if host.gpus and not host.runners]
    if unlabelled:
        yield f"GPUs and no runner label, so no recipe finds them: {named(unlabelled)}"
    empty = [host for host in inventory.hosts if host.runners and not host.gpus]
    if empty:
        yield f"runner labels and no GPUs, so nothing can be placed there: {named(empty)}"
    plain = [host for host in inventory.hosts if host.gpus and host.accelerator == "none"]
    if plain and inventory.provision != "lab":
        yield f"GPUs and accelerator none, so containers get no GPU devices: {named(plain)}"
