"""Who gives us hosts: a context manager that yields one transport a host, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from fleet.hosts.base import Transport
from fleet.model.inventory import Inventory
from fleet.provision import lab, static

Provisioner = Callable[[Inventory, float], dict[str, Transport]]

PROVISIONERS: dict[str, Provisioner] = {"static": static.transports, "lab": lab.transports}


@contextmanager
def _provisioned(inventory: Inventory, connect: float) -> Iterator[dict[str, Transport]]:
    transports = PROVISIONERS[inventory.provision](inventory, connect)
    try:
        yield transports
    finally:
        for transport in transports.values():
            transport.close()


def provision(inventory: Inventory, *, connect: float = 10.0) -> AbstractContextManager[dict[str, Transport]]:
    """Transports of all hosts; none is connected yet. connect: seconds for one SSH connection."""
    return _provisioned(inventory, connect)
