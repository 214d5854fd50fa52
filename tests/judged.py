"""What the tests of results share: a disaggregated MTP arm, a single-node one, a point, its counters and its record."""

from __future__ import annotations

from typing import Any

from fleet.model.arm import Arm, Component, Point, Workers
from fleet.model.evidence import Counters, Measurement
from fleet.results.record import Figures, GateResult, Image, Record, Verdict, reproduce
from tests import build

ROLES = {"prefill0": "prefill", "decode0": "decode"}


def disagg_arm(**changes: Any) -> Arm:
    """1P1D, TP8, MTP depth 3."""
    prefill = Workers(role="prefill", count=1, tp=8, nodes=1)
    decode = Workers(role="decode", count=1, tp=8, nodes=1)
    facts: dict[str, Any] = {
        "key": "dsv4-mtp",
        "name": "1p1d-mtp3",
        "image": "rocm/atom-dev:n1",
        "workers": (prefill, decode),
        "router": Component(name="atomesh", version="087b"),
        "conc": (4, 8),
        "fingerprint": "66014bc38acde82c7a61827",
    }
    return build.arm(**(facts | changes))


def single_arm(**changes: Any) -> Arm:
    facts: dict[str, Any] = {
        "name": "tp8",
        "framework": "vllm",
        "multinode": False,
        "disagg": False,
        "workers": (Workers(role="server", count=1, tp=8),),
        "router": None,
        "kv_transfer": None,
    }
    return disagg_arm(**(facts | changes))


def a_point(**changes: Any) -> Point:
    """4 at a time, 40 prompts and 8 warm-ups of 8192/1024."""
    facts: dict[str, Any] = {
        "arm": "1p1d-mtp3",
        "conc": 4,
        "asked": 4,
        "isl": 8192,
        "osl": 1024,
        "prompts": 40,
        "warmups": 8,
        "chat": True,
    }
    return Point(**(facts | changes))


def a_measurement(**changes: Any) -> Measurement:
    """40 of 40 answers, every one 1000 tokens."""
    facts: dict[str, Any] = {
        "completed": 40,
        "requested": 40,
        "duration_s": 100.0,
        "total_input_tokens": 40 * 7000,
        "total_output_tokens": 40 * 1000,
        "input_lens": (7000,) * 40,
        "output_lens": (1000,) * 40,
    }
    return Measurement(**(facts | changes))


def before() -> dict[str, Counters]:
    zero = Counters(
        finished=2, prompt_tokens=20, generated_tokens=2, drafted=0, accepted=0, steps=0, cached_tokens=0
    )  # fmt: skip
    first = {"finished": 2, "prompt_tokens": 20, "generated_tokens": 64, "drafted": 60, "accepted": 40, "steps": 20}
    return {"prefill0": zero, "decode0": Counters(**first, cached_tokens=0)}


def after(**decode: float | None) -> dict[str, Counters]:
    """48 requests of 7000 tokens later: 48 000 tokens in 18 400 steps with 29 440 accepted, acceptance length 2.6."""
    facts: dict[str, float | None] = {
        "finished": 50,
        "prompt_tokens": 20 + 48 * 7000,
        "cached_tokens": 0,
        "generated_tokens": 48064,
        "drafted": 60 + 3 * 18400,
        "accepted": 40 + 29440,
        "steps": 20 + 18400,
    }
    return {"prefill0": prefilled(), "decode0": Counters(**(facts | decode))}


def prefilled(**changes: float | None) -> Counters:
    """The prefill worker at that time."""
    facts: dict[str, float | None] = {"finished": 50, "prompt_tokens": 20 + 48 * 7000, "generated_tokens": 50}
    facts |= {"drafted": 0, "accepted": 0, "steps": 0, "cached_tokens": 0}
    return Counters(**(facts | changes))


def a_record(**changes: Any) -> Record:
    facts: dict[str, Any] = {
        "run": "20261130-210405-dsv4-mtp-7f3a9c",
        "key": "dsv4-mtp",
        "plan": "7f3a9c0011",
        "arm": "1p1d-mtp3",
        "point": "1p1d-mtp3-c4",
        "conc": 4,
        "asked": 4,
        "started": "2026-11-30T21:04:05.000Z",
        "ended": "2026-11-30T21:05:45.000Z",
        "state": "done",
        "verdict": Verdict(valid=True),
        "gates": (GateResult(name="requests", ok=True, why="40 of 40 completed, 40 asked"),),
        "double": False,
        "trial": False,
        "chat": True,
        "isl": 8192,
        "osl": 1024,
        "prompts": 40,
        "warmups": 8,
        "seed": 0,
        "range_ratio": 0.8,
        "spec": "mtp",
        "depth": 3,
        "gpus": {"prefill": 8, "decode": 8},
        "image": Image(tag="rocm/atom-dev:n1", id="sha256:a41f"),
        "completed": 40,
        "requested": 40,
        "duration_s": 100.0,
        "total_input_tokens": 280000,
        "total_output_tokens": 40000,
        "figures": Figures(
            tput_per_gpu=200.0,
            output_tput_per_gpu=50.0,
            input_tput_per_gpu=350.0,
            median_intvty=96.15,
            median_ttft_ms=41.25,
            p99_ttft_ms=80.5,
            median_tpot_ms=10.4,
            acceptance_length=2.6,
        ),
        "raw": "raw/1p1d-mtp3-c4.json",
        "reproduce": reproduce("dsv4-mtp", "1p1d-mtp3", 4, "inventories/lab.yaml"),
    }
    return Record(**(facts | changes))


def invalid(*reasons: str, **changes: Any) -> Record:
    return a_record(verdict=Verdict(valid=False, reasons=reasons), **changes)
