"""Every cell of fault × stage: the sweep ends in time, says what and where, loses nothing, and leaves nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.chaos.cell import Cell, run
from tests.chaos.cells import CELLS, SHORT
from tests.lab.desk import Desk

pytestmark = [pytest.mark.lab, pytest.mark.timeout(540)]


def parameters() -> Iterator[object]:
    for cell in CELLS:
        marks = [pytest.mark.chaos, *([pytest.mark.chaos_short] if cell.name in SHORT else [])]
        yield pytest.param(cell, id=cell.name.replace(" / ", "-").replace(" ", "_"), marks=marks)


@pytest.mark.parametrize("cell", list(parameters()))
def test_a_fault_in_a_stage(desk: Desk, cell: Cell) -> None:
    found = run(cell, desk)
    if folder := os.environ.get("FLEET_CHAOS"):
        name = f"{CELLS.index(cell):03}.json"
        (Path(folder) / name).write_text(json.dumps({**asdict(found), "said": ""}))
