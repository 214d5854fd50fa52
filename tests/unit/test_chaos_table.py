"""The chaos suite's table: wide enough, and nothing in it that is not there."""

from __future__ import annotations

from collections import Counter

from tests.chaos.cells import CELLS, SHORT
from tests.chaos.faults import FAULTS
from tests.chaos.stages import STAGES
from tests.chaos.table import family


def test_every_stage_meets_at_least_eight_faults_and_every_fault_three_stages() -> None:
    stages = {stage: {family(cell.fault) for cell in CELLS if cell.stage == stage} for stage in STAGES}
    assert {stage: len(faults) for stage, faults in stages.items() if len(faults) < 8} == {}
    faults = {name: {cell.stage for cell in CELLS if family(cell.fault) == name} for name in map(family, FAULTS)}
    assert {fault: stages for fault, stages in faults.items() if len(stages) < 3 and fault != "engine"} == {}


def test_cells_name_faults_and_stages_that_there_are_each_once() -> None:
    assert {cell.fault for cell in CELLS} == set(FAULTS)
    assert {cell.stage for cell in CELLS} == set(STAGES)
    assert [name for name, count in Counter(cell.name for cell in CELLS).items() if count > 1] == []


def test_the_short_suite_is_part_of_the_long_one_and_meets_most_stages() -> None:
    short = [cell for cell in CELLS if cell.name in SHORT]
    assert len(short) == len(SHORT)
    assert len({cell.stage for cell in short}) >= 7
