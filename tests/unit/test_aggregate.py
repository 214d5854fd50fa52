from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleet.errors import FleetError
from fleet.model.arm import Arm, Component, Workers
from fleet.results.aggregate import aggregate, figures
from tests import interop
from tests.judged import a_point, disagg_arm, single_arm

GOLDEN = Path(__file__).parents[1] / "golden" / "aggregate"


def two_prefill(**changes: Any) -> Arm:
    """2P1D, TP8, data-parallel attention, no speculation."""
    prefill = Workers(role="prefill", count=2, tp=8, dp_attn=True)
    decode = Workers(role="decode", count=1, tp=8, dp_attn=True)
    facts = {"spec": "none", "depth": 0, "workers": (prefill, decode), "conc": (256,)}
    return disagg_arm(**(facts | changes))


def load(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def captured(name: str) -> dict[str, Any]:
    return load(interop.path(f"captured/{name}"))


def same(made: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Equal to the last digit, in the same order."""
    assert json.dumps(made, indent=2) == json.dumps(wanted, indent=2)


def test_the_captured_disaggregated_result() -> None:
    arm = two_prefill(
        image="rocm/atom-dev:nightly_202606101403",
        fingerprint="ab",
        router=Component(name="atomesh", version="087b"),
    )
    same(aggregate(captured("raw-bench.2p1d.json"), arm), captured("aggregate.2p1d.json"))


def test_the_captured_single_node_result() -> None:
    arm = single_arm(image="x", fingerprint="")
    same(aggregate(captured("raw-bench.2p1d.json"), arm), captured("aggregate.single-node.json"))


def test_our_own_disaggregated_pair() -> None:
    raw = load(GOLDEN / "raw.1p1d-mtp3-c4.json")
    same(aggregate(raw, disagg_arm(isl=1024), image="rocm/atom-dev:n2"), load(GOLDEN / "agg.1p1d-mtp3-c4.json"))


def test_input_and_output_have_their_own_gpus() -> None:
    found = aggregate(load(GOLDEN / "raw.1p1d-mtp3-c4.json"), two_prefill())
    assert (found["num_prefill_gpu"], found["num_decode_gpu"]) == (16, 8)
    assert found["tput_per_gpu"] == 1800.0 / 24
    assert found["output_tput_per_gpu"] == 200.0 / 8
    assert found["input_tput_per_gpu"] == 1600.0 / 16


def test_pipeline_and_prefill_context_ranks_are_gpus_decode_context_ranks_are_not() -> None:
    workers = Workers(role="server", count=1, tp=4, pp=2, dcp=4, pcp=2)
    found = aggregate(load(GOLDEN / "raw.1p1d-mtp3-c4.json"), single_arm(workers=(workers,)))
    assert found["tput_per_gpu"] == 1800.0 / 16
    assert (found["pp"], found["dcp_size"], found["pcp_size"]) == (2, 4, 2)


def test_without_decode_workers_all_gpus_make_the_output() -> None:
    prefill, decode = Workers(role="prefill", count=2, tp=8), Workers(role="decode", count=0, tp=8, ep=8)
    found = aggregate(load(GOLDEN / "raw.1p1d-mtp3-c4.json"), two_prefill(workers=(prefill, decode)))
    assert found["output_tput_per_gpu"] == 200.0 / 16
    assert (found["decode_tp"], found["decode_ep"], found["num_decode_gpu"]) == (0, 0, 0)


def test_an_arm_without_router_and_transfer_has_no_such_fields() -> None:
    found = aggregate(load(GOLDEN / "raw.1p1d-mtp3-c4.json"), two_prefill(router=None, kv_transfer=None))
    assert not {"router", "kv_p2p_transfer"} & set(found)


def test_hardware_of_each_role_where_the_config_names_it() -> None:
    entry = {"prefill": {"hardware": "mi355x"}, "decode": {"hardware": "mi325x"}}
    found = aggregate(load(GOLDEN / "raw.1p1d-mtp3-c4.json"), two_prefill(entry=entry))
    assert (found["prefill_hw"], found["decode_hw"]) == ("mi355x", "mi325x")


def test_a_trials_lengths_are_the_ones_that_ran() -> None:
    point = a_point(isl=256, osl=32, trial=True)
    found = aggregate(load(GOLDEN / "raw.1p1d-mtp3-c4.json"), disagg_arm(), point=point)
    assert (found["isl"], found["osl"]) == (256, 32)


@pytest.mark.parametrize("key", ["median_tpot_ms", "std_tpot_ms"])
def test_a_zero_tpot_is_told_not_divided_by(key: str) -> None:
    raw = load(GOLDEN / "raw.1p1d-mtp3-c4.json") | {key: 0.0}
    with pytest.raises(FleetError, match=f"{key} is 0, so it has no interactivity"):
        aggregate(raw, disagg_arm())


def test_a_missing_or_wrong_field_is_named() -> None:
    raw = load(GOLDEN / "raw.1p1d-mtp3-c4.json")
    with pytest.raises(FleetError, match="has no model_id"):
        aggregate({key: value for key, value in raw.items() if key != "model_id"}, disagg_arm())
    with pytest.raises(FleetError, match="output_throughput is not a number: 'fast'"):
        aggregate(raw | {"output_throughput": "fast"}, disagg_arm())


def test_no_gpus_no_figure() -> None:
    none = (Workers(role="prefill", count=0, tp=8), Workers(role="decode", count=1, tp=8))
    with pytest.raises(FleetError, match="no figure per GPU"):
        aggregate(load(GOLDEN / "raw.1p1d-mtp3-c4.json"), two_prefill(workers=none))


def test_disaggregated_and_single_node_exclude_each_other() -> None:
    with pytest.raises(FleetError, match="needs a multi-node recipe"):
        aggregate(load(GOLDEN / "raw.1p1d-mtp3-c4.json"), single_arm(disagg=True))


def test_figures_agree_with_the_aggregate() -> None:
    raw = load(GOLDEN / "raw.1p1d-mtp3-c4.json")
    found, made = figures(raw, disagg_arm(), 2.6), aggregate(raw, disagg_arm())
    assert found.output_tput_per_gpu == made["output_tput_per_gpu"] == 25.0
    assert found.median_intvty == made["median_intvty"] == 100.0
    assert (found.median_ttft_ms, found.p99_ttft_ms, found.median_tpot_ms) == (41.5, 80.25, 10.0)
    assert found.acceptance_length == 2.6


def test_figures_that_were_not_measured_are_none() -> None:
    found = figures({"median_tpot_ms": 0.0, "output_throughput": None}, disagg_arm())
    assert found.median_intvty is None
    assert found.tput_per_gpu is found.output_tput_per_gpu is found.median_ttft_ms is None
    assert found.median_tpot_ms == 0.0
