"""A lab of its own for staging, with more nodes than the shared one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from fleet.lab.lab import Lab
from fleet.model.inventory import Host, Inventory
from fleet.progress import Progress, Silent
from fleet.session import Session, connect
from fleet.settings import Settings, Timeouts

Opened = AbstractContextManager[Session]
NODES = ("node1", "node2", "node3", "node4", "node5")


@contextmanager
def own_lab() -> Iterator[Lab]:
    """Five nodes under a name of their own; taken down afterwards."""
    before = os.environ.get("FLEET_LAB_NAME")
    os.environ["FLEET_LAB_NAME"] = f"{before or 'lab'}-staging"
    lab = Lab()
    try:
        lab.up(len(NODES))
        yield lab
    finally:
        if os.environ.get("FLEET_LAB_KEEP") != "1":
            lab.down()
        os.environ.pop("FLEET_LAB_NAME")
        if before is not None:
            os.environ["FLEET_LAB_NAME"] = before


@contextmanager
def session(
    hosts: Mapping[str, Mapping[str, Any]], progress: Progress | None = None, **timeouts: float
) -> Iterator[Session]:
    """On these nodes, as ops where nothing else is said."""
    listed = tuple(Host(**{"name": name, "scratch": "/srv/fleet", **more}) for name, more in hosts.items())
    inventory = Inventory(path="inventories/lab.yaml", hosts=listed, provision="lab")
    limits = Timeouts(**{"connect": 5.0, "command": 20.0, "stage_within": 60.0, **timeouts})
    with connect(inventory, Settings(timeouts=limits), progress or Silent()) as made:
        yield made
