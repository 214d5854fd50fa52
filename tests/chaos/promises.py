"""What the product promises of a fault, in seconds on an idle machine, and what of it is there yet.

A promise that is not there yet is None, or False: its check is left out until it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleet.results.store import RunFolder
from tests.lab.desk import Desk, Said

DEATH: float | None = None
"""From a service's end to the line that names it."""

LOST: float | None = None
"""From a host's silence to the line that names it."""

RESUME = False
"""`sweep --resume RUN` runs what is missing, in the same folder."""

LEASES = False
"""A node is leased: another operator is refused with exit 5 from the preflight on."""

REAP = False
"""`reap` removes what runs without a controller left on the nodes."""


def resumed(desk: Desk, folder: RunFolder, inventory: str, within: float, **env: str) -> Said | None:
    """The run taken up again; None where that is not there yet. within: seconds."""
    if not RESUME:
        return None
    return desk.invoke("sweep", "--resume", folder.name, "--inventory", inventory, within=within, **env)


def reaped(desk: Desk, inventory: str) -> Said | None:
    """Until there is `reap`, scratch folders of a host that was lost before it had a container go by hand."""
    if REAP:
        return desk.invoke("reap", "--inventory", inventory)
    for node in desk.scratch():
        desk.lab.inside(node, ["find", "/srv/fleet", "-mindepth", "1", "-delete"])
    return None


def leases(desk: Desk) -> dict[str, Sequence[str]]:
    """Files of leases by node, nodes without any left out."""
    if not LEASES:
        return {}
    look = ["find", "/srv/fleet", "/tmp", "/run/lock", "-name", "*lease*"]
    found = {node: desk.lab.inside(node, look).out.split() for node in desk.nodes}
    return {node: names for node, names in found.items() if names}
