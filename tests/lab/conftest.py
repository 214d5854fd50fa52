"""The shared lab of this checkout: three nodes, brought up when the first test asks for them.

Where tests run side by side (pytest -n 2) each worker has a lab of its own, named like the worker.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleet.errors import LabError
from fleet.lab import image
from fleet.lab.lab import Lab, require
from tests.lab.desk import ROOT, Desk

if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    os.environ["FLEET_LAB_NAME"] = worker


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


@pytest.fixture(scope="session")
def doubles(able: None) -> image.BuiltImage:
    """The doubles' image, built once a checkout."""
    return image.build(ROOT / ".lab")


@pytest.fixture
def desk(lab: Lab, doubles: image.BuiltImage, tmp_path: Path) -> Iterator[Desk]:
    """An operator's desk; the image is on node1, where a stranger's container runs.

    What a test leaves on the nodes makes it fail, and is removed.
    """
    sat = Desk(lab, tmp_path)
    sat.clear()
    image.ensure(lab, "node1", doubles)
    sat.invite_stranger()
    yield sat
    try:
        sat.nothing_left()
    finally:
        sat.clear()
