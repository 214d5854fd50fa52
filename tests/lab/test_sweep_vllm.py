"""vLLM on one node, swept: STP and MTP, a few points of each, judged by the server's own live counters."""

from __future__ import annotations

import json

import pytest

from fleet.results.record import Record
from tests.lab.desk import FAST, Desk

pytestmark = [pytest.mark.lab, pytest.mark.timeout(120)]

STP, MTP = "dsv4-fp4-mi355x-vllm", "dsv4-fp4-mi355x-vllm-mtp"
TAG = "vllm/vllm-openai-rocm:v0.22.0"
NAME = "deepseek-ai/DeepSeek-V4-Pro"


def sweep(desk: Desk, key: str, *words: str) -> tuple[Record, ...]:
    small = desk.inventory(everyone=FAST, trial={"prompts_per_concurrency": 2, "output": 16, "max_concurrency": 16})
    said = desk.invoke("sweep", "--config", key, "--inventory", small, *words)
    assert said.code == 0, said.all
    assert "counted by the only worker\n" in said.out
    return desk.run().records()


def test_both_arms_without_speculation(desk: Desk) -> None:
    records = sweep(desk, STP, "--conc", "4,16")
    ran = [(record.arm, record.conc, record.isl, record.valid) for record in records]
    assert ran == [(arm, conc, 256, True) for arm in ("tp8-1k1k", "tp8-8k1k") for conc in (4, 16)]
    for record in records:
        believed(desk, record)
        assert (record.spec, record.depth, record.chat) == ("none", 0, False)
        after = record.evidence["server0"].after
        assert after
        assert (after.drafted, after.steps) == (None, None)
        assert record.figures.acceptance_length is None
    desk.nothing_left()


def test_one_arm_with_mtp(desk: Desk) -> None:
    records = sweep(desk, MTP, "--arm", "tp8-mtp2-8k1k", "--conc", "4,16")
    assert [(record.conc, record.valid) for record in records] == [(4, True), (16, True)]
    for record in records:
        believed(desk, record)
        assert (record.spec, record.depth, record.chat) == ("mtp", 2, True)
        assert record.figures.acceptance_length
        assert 1 < record.figures.acceptance_length <= 3
        raw = json.loads((desk.run().path / str(record.raw)).read_text())
        assert raw["endpoint_type"] == "openai-chat"
        assert raw["spec_decode_acceptance_length"] == pytest.approx(record.figures.acceptance_length, rel=0.3)
    log = (desk.run().path / "logs" / "tp8-mtp2-8k1k" / "server0.log").read_text()
    assert "POST /v1/chat/completions" in log
    assert "Application startup complete" in log
    desk.nothing_left()
    reported(desk)


def reported(desk: Desk) -> None:
    """The run as a page with all its plots, marked everywhere; as doubles' it is no measurement and never exported."""
    page = desk.folder / "page.html"
    said = desk.invoke("report", "--html", str(page), "--svg", str(desk.folder / "plots"))
    assert said.code == 0, said.all
    assert "DOUBLE, TRIAL: not a measurement" in said.out
    plots = {"acceptance", "e2el", "pareto", "tpot", "ttft"}
    stem = "256-16-double-trial.svg"
    assert {one.name for one in (desk.folder / "plots").iterdir()} == {f"{plot}-{stem}" for plot in plots}
    assert page.read_text().count("DOUBLE, TRIAL: not a measurement") == 2 + len(plots)
    told = json.loads(desk.invoke("report", "--json").out)
    assert (told["measurement"], told["mark"]) == (False, "DOUBLE, TRIAL: not a measurement")
    first, second = told["runs"][0]["results"][0]["acceptance_by_position"]
    assert 0 < second < first < 1
    refused = desk.invoke("export")
    assert refused.code == 1
    assert "DOUBLE, TRIAL: not a measurement, so it is not exported" in refused.err


def believed(desk: Desk, record: Record) -> None:
    """Judged by the server's counters, marked, and with the public aggregate of a single node."""
    assert record.verdict.reasons == ()
    assert (record.double, record.trial, record.image.tag) == (True, True, TAG)
    assert sorted(record.evidence) == ["server0"]
    assert record.drawn
    assert (record.drawn.client, record.drawn.public_sequence) == ("vllm bench serve", False)
    gates = {gate.name: gate.why for gate in record.gates if gate.ok}
    sent = record.prompts + record.warmups
    assert gates["server requests"] == f"{sent} finished, {sent} sent"
    assert gates["deployment"] == "each container runs the planned image and argv"
    assert gates["prefix cache"] == "off, 0 prompt tokens spared"
    assert {"numbers", "window", "workers", "prompt tokens"} <= set(gates)
    agg = json.loads((desk.run().path / str(record.agg)).read_text())
    assert (agg["model"], agg["framework"], agg["is_multinode"], agg["tp"]) == (NAME, "vllm", False, 8)
    assert agg["p99.9_ttft"] > 0
    (versions,) = json.loads(desk.run().facts.read_text())["versions"][record.arm].values()
    assert versions == {"vllm": "0.0+double"}
