"""Both vLLM recipes swept on a real node and set against each other: where the doubles' MTP stops being faster is
known, and is found. And the noise floor of one point, repeated.
"""

from __future__ import annotations

import json

import pytest

from fleet.results import noise
from tests.lab.desk import Desk

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]

STP, MTP = "dsv4-fp4-mi355x-vllm", "dsv4-fp4-mi355x-vllm-mtp"
ARMS = {STP: "tp8-8k1k", MTP: "tp8-mtp2-8k1k"}
SLOW = {"env": {"FLEET_DOUBLE_SPEED": "0.5"}}
"""So that a busy machine's own delays are small beside the steps."""
TRIAL = {"prompts_per_concurrency": 2, "input": 16, "output": 20, "max_concurrency": 128}
CROSSOVER = 29.06
"""Where the doubles' rate model has the same output at depths 2 and 0: 2.2384 × (8 + 0.24 n) = 11.2 + 0.768 n."""


@pytest.mark.long
def test_the_crossover_of_the_doubles_is_found(desk: Desk) -> None:
    small, runs = desk.inventory(trial=TRIAL, everyone=SLOW), {}
    for key, arm in ARMS.items():
        said = desk.invoke("sweep", "--config", key, "--arm", arm, "--conc", "4,128", "--inventory", small)
        assert said.code == 0, said.all
        runs[key] = desk.run().name

    apart = desk.invoke("compare", "--a", runs[STP], "--b", runs[MTP])
    assert apart.code == 2
    assert "draft depth 0, there 2; framing raw prompts, there chat-framed prompts" in apart.out

    said = desk.invoke("compare", "--a", runs[STP], "--b", runs[MTP], "--across", "mtp")
    assert said.code == 0, said.all
    assert "DOUBLE, TRIAL: not a measurement" in said.out
    assert "MTP is faster up to about " in said.out

    found = desk.invoke("compare", "--a", runs[MTP], "--b", runs[STP], "--across", "mtp", "--json").json()
    (curve,) = found["curves"]
    crossover = curve["crossover"]
    assert (found["measurement"], crossover["kind"], crossover["interval"]) == (False, "crossover", [4, 128])
    # Loads as short as these end in a tail that costs MTP more than the model says, and nothing lies between 4 and 128.
    assert CROSSOVER / 2.5 < crossover["conc"] < CROSSOVER * 2.5
    assert crossover["sentence"] in said.out

    listed = desk.invoke("results", "--json").json()
    assert [(one["key"], one["valid"], one["marks"]) for one in listed] == [
        (key, 2, ["DOUBLE", "TRIAL"]) for key in (STP, MTP)
    ]
    desk.nothing_left()


def test_the_noise_of_a_point_that_is_repeated(desk: Desk) -> None:
    small = desk.inventory(trial={"prompts_per_concurrency": 2, "output": 16})
    words = ["--arm", ARMS[STP], "--conc", "4", "--repeats", "3", "--inventory", small]
    said = desk.invoke("noise", "--config", STP, *words)
    assert said.code == 0, said.all
    assert "tp8-8k1k   conc 4   3 measurements, servers kept" in said.out
    records = desk.run().records()
    assert [(record.point, record.valid) for record in records] == [
        (f"tp8-8k1k-c4{repeat}", True) for repeat in ("", "-r1", "-r2")
    ]
    (kept,) = noise.read((desk.results / "noise.jsonl").read_text())
    assert (kept.run, kept.concs, kept.measurements) == (desk.run().name, (4,), 3)
    assert kept.topology["kind"] == "double trial"
    outputs = [record.figures.output_tput_per_gpu for record in records]
    again = desk.invoke("compare", "--a", "latest", "--b", "latest", "--json").json()
    figure = again["curves"][0]["points"][0]["figures"]["output_tput_per_gpu"]
    assert figure["a"] == figure["b"] == outputs
    assert figure["verdict"] == "no difference seen"
    state = json.loads(desk.run().state_json.read_text())
    assert state["repeats"] == {"count": 3, "order_seed": 0, "restarts": False}
    desk.nothing_left()
