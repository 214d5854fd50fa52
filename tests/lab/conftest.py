"""The shared lab of this checkout: three nodes, brought up when the first test asks for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from fleet.errors import LabError
from fleet.lab.lab import Lab, require


@pytest.fixture(scope="session")
def able() -> None:
    """Skip, with the reason, where no lab is possible; under CI that is a failure."""
    try:
        require()
    except LabError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error).replace("\n", " "))


@pytest.fixture(scope="session")
def lab(able: None) -> Iterator[Lab]:
    """Three healthy nodes. Left up afterwards if it was up before, or if FLEET_LAB_KEEP=1."""
    shared = Lab()
    was_up = bool(shared.nodes())
    shared.up(3)
    yield shared
    if not was_up and os.environ.get("FLEET_LAB_KEEP") != "1":
        shared.down()


@pytest.fixture
def healed(lab: Lab) -> Iterator[Callable[..., None]]:
    """`healed(verb, node, *args)` brings a fault about; the nodes that had one are healed when the test ends."""
    hurt: list[str] = []

    def fault(verb: str, node: str, *args: str | int | float) -> None:
        hurt.append(node)
        lab.fault(verb, node, *args)

    yield fault
    for node in dict.fromkeys(hurt):
        lab.heal(node)
