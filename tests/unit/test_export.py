from __future__ import annotations

import pytest

from fleet.errors import FleetError
from fleet.model.arm import Arm, Workers
from fleet.results.export import NAME_MAX, measurement, point_filename, result_filename
from tests.judged import a_record, disagg_arm, invalid, single_arm

CONCS = (256, 512, 768, 1024, 2048)


def public_2p1d(spec: str) -> Arm:
    prefill = Workers(role="prefill", count=2, tp=8, dp_attn=True)
    decode = Workers(role="decode", count=1, tp=8, dp_attn=True)
    return disagg_arm(spec=spec, workers=(prefill, decode), conc=CONCS)


@pytest.mark.parametrize("spec", ["none", "mtp"])
def test_the_public_multi_node_name_says_the_method_in_its_spec_segment_only(spec: str) -> None:
    assert result_filename(public_2p1d(spec), "mi355x-amds_06", CONCS) == (
        "dsv4_8k1k_fp4_atom-disagg_prefill-tp8-pp1-dcp1-pcp1-ep1-dptrue-nw2_decode-tp8-pp1-dcp1-pcp1-ep1-dptrue-nw1"
        f"_disagg-true_spec-{spec}_conc256x512x768x1024x2048_mi355x-amds_06"
    )


def test_the_public_name_of_a_multi_node_point() -> None:
    name = point_filename(public_2p1d("none"), "mi355x-amds_06", 256)
    assert name == (
        "agg_dsv4_8k1k_fp4_atom-disagg_prefill-tp8-pp1-dcp1-pcp1-ep1-dptrue-nw2_decode-tp8-pp1-dcp1-pcp1-ep1-dptrue-nw1"
        "_disagg-true_spec-none_conc256x512x768x1024x2048_mi355x-amds_06"
        "_concurrency_256_req_rate_inf_gpus_24_ctx_16_gen_8.json"
    )
    assert len(name) == 228


def test_the_public_single_node_name() -> None:
    name = result_filename(single_arm(), "mi355x-amds_06", 4)
    assert name == "dsv4_8k1k_fp4_vllm_tp8-pp1-dcp1-pcp1-ep1-dpafalse_disagg-false_spec-mtp_conc4_mi355x-amds_06"
    assert point_filename(single_arm(), "mi355x-amds_06", 4) == f"agg_{name}.json"


def test_a_fingerprint_adds_its_first_sixteen_digits() -> None:
    assert result_filename(single_arm(), "r", 4, "66014bc38acde82c7a61827").endswith("_r_recipe-66014bc38acde82c")
    assert len(point_filename(public_2p1d("none"), "mi355x-amds_06", 256, "66014bc38acde82c7a61827")) == 252


def test_a_name_that_no_file_can_have_is_told_with_its_length() -> None:
    arm = public_2p1d("none")
    assert len(point_filename(arm, "mi355x-amds_06" + "x" * 27, 256)) == NAME_MAX
    with pytest.raises(FleetError, match="256 bytes long, 1 more than a file name may have"):
        point_filename(arm, "mi355x-amds_06" + "x" * 28, 256)


def test_a_runner_with_a_slash_is_not_a_file_name() -> None:
    with pytest.raises(FleetError, match="not a file name"):
        result_filename(single_arm(), "lab/one", 4)


def test_a_single_node_result_is_one_concurrency() -> None:
    with pytest.raises(FleetError, match="one concurrency"):
        result_filename(single_arm(), "r", (4, 8))


def test_a_measurement_may_leave() -> None:
    assert measurement(a_record()) == a_record()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"double": True}, "DOUBLE: not a measurement"),
        ({"trial": True}, "TRIAL: not a measurement"),
        ({"double": True, "trial": True}, "DOUBLE, TRIAL: not a measurement"),
        ({"state": "incomplete"}, "invalid, so it is not exported: incomplete"),
    ],
)
def test_nothing_else_leaves(changes: dict[str, object], message: str) -> None:
    with pytest.raises(FleetError, match=message):
        measurement(a_record(**changes))


def test_an_invalid_point_stays_with_its_reason() -> None:
    with pytest.raises(FleetError, match="not exported: requests: 39 of 40"):
        measurement(invalid("requests: 39 of 40"))
