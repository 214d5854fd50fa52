"""Hosts of this checkout's lab: addresses, keys and known hosts come from its own ssh_config."""

from __future__ import annotations

from fleet.errors import HostError
from fleet.hosts.base import Transport
from fleet.hosts.ssh import SSH
from fleet.lab.lab import Lab
from fleet.model.inventory import Inventory


def transports(inventory: Inventory, connect: float) -> dict[str, Transport]:
    """Raises HostError when the lab is not up."""
    lab = Lab()
    if not lab.ssh_config.exists():
        raise HostError("the lab is not up", where=inventory.path, hint="try:  invoke lab.up")
    return {
        host.name: SSH(
            host.name,
            user=host.user,
            ssh_config=str(lab.ssh_config),
            known_hosts=str(lab.known_hosts),
            connect_timeout=connect,
            inventory=inventory.path,
        )
        for host in inventory.hosts
    }
