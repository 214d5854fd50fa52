"""What the product promises of a fault: seconds on an idle machine, and what is left behind."""

from __future__ import annotations

from collections.abc import Sequence

from tests.lab.desk import Desk

DEATH = 2.0
"""From a service's end to the line that names it."""

LOST = 6.0
"""From the silence of a host with serving containers to the line that names it."""

SILENT = 17.0
"""The same of a host that nothing serves on yet."""


def leases(desk: Desk) -> dict[str, Sequence[str]]:
    """Files of leases by node, nodes without any left out."""
    look = ["find", "/var/tmp", "-name", "lease*.json*"]
    found = {node: desk.lab.inside(node, look).out.split() for node in desk.nodes}
    return {node: names for node, names in found.items() if names}
