"""Both vLLM recipes swept with repeats on a real node, and set against each other: where the doubles' MTP stops being
faster is known, and is found.
"""

from __future__ import annotations

from math import log

import pytest

from tests.lab.desk import Desk

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]

STP, MTP = "dsv4-fp4-mi355x-vllm", "dsv4-fp4-mi355x-vllm-mtp"
TRIAL = {"prompts_per_concurrency": 2, "input": 16, "output": 24, "max_concurrency": 128}


def test_the_crossover_of_the_doubles_is_found(desk: Desk) -> None:
    small = desk.inventory(trial=TRIAL, everyone={"env": {"FLEET_DOUBLE_SPEED": "0.7"}})
    runs = []
    for key, arm in ((STP, "tp8-8k1k"), (MTP, "tp8-mtp2-8k1k")):
        said = desk.invoke(
            "sweep", "--config", key, "--arm", arm, "--conc", "4,128", "--repeats", "2", "--inventory", small
        )
        assert said.code == 0, said.all
        runs.append(desk.run().name)
    said = desk.invoke("compare", "--a", runs[0], "--b", runs[1], "--across", "mtp")
    print(said.all)
