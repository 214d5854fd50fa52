"""Hosts that are there already: an SSH transport for each, as the inventory says."""

from __future__ import annotations

from fleet.hosts.base import Transport
from fleet.hosts.ssh import SSH
from fleet.model.inventory import Inventory


def transports(inventory: Inventory, connect: float) -> dict[str, Transport]:
    return {
        host.name: SSH(
            host.name,
            address=host.address,
            user=host.user,
            port=host.port,
            gateway=host.gateway,
            identity=host.identity,
            ssh_config=inventory.ssh_config,
            connect_timeout=connect,
            inventory=inventory.path,
        )
        for host in inventory.hosts
    }
