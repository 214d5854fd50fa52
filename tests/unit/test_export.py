from __future__ import annotations

import json

import pytest

from fleet.errors import FleetError
from fleet.model.arm import Arm, Component, Workers
from fleet.results.export import NAME_MAX, exported, measurement, point_filename, result_filename
from fleet.results.record import Image
from tests import interop
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


TAG = "rocm/atom-dev:nightly_202606101403"


def test_the_captured_pair_leaves_to_the_last_byte() -> None:
    raw = interop.path("captured/raw-bench.2p1d.json").read_bytes()
    arm = public_2p1d("none").model_copy(
        update={"fingerprint": "ab", "depth": 0, "router": Component(name="atomesh", version="087b")}
    )
    record = a_record(conc=256, asked=256, spec="none", depth=0, image=Image(tag=TAG))
    found = exported(record, arm, raw, "mi355x-amds_06")
    name = point_filename(arm, "mi355x-amds_06", 256)
    assert list(found.files) == [name.removeprefix("agg_"), name]
    assert found.files[name.removeprefix("agg_")] == raw
    assert found.files[name] == interop.path("captured/aggregate.2p1d.json").read_bytes()


def raw_of(**changes: object) -> bytes:
    facts = {"model_id": "m", "max_concurrency": 4, "output_throughput": 8.0, "total_token_throughput": 16.0}
    return json.dumps({**facts, "median_tpot_ms": 10.0, **changes}).encode()


def test_a_point_that_is_not_valid_leaves_only_when_asked_and_marked_in_name_and_content() -> None:
    record = invalid("requests: 39 of 40", "window: x")
    with pytest.raises(FleetError, match="invalid, so it is not exported: requests: 39 of 40"):
        exported(record, disagg_arm(), raw_of())
    found = exported(record, disagg_arm(), raw_of(), include_invalid=True)
    assert [name.startswith(("INVALID_dsv4_", "INVALID_agg_dsv4_")) for name in found.files] == [True, True]
    assert json.loads(found.files[list(found.files)[1]])["invalid"] == "requests: 39 of 40; window: x"
    assert (found.told["valid"], found.told["reasons"]) == (False, ["requests: 39 of 40", "window: x"])


def test_a_valid_point_has_the_public_keys_only() -> None:
    found = exported(a_record(), disagg_arm(), raw_of(), include_invalid=True)
    (agg,) = [json.loads(data) for name, data in found.files.items() if name.startswith("agg_")]
    assert "invalid" not in agg
    assert (agg["image"], agg["median_intvty"], agg["output_tput_per_gpu"]) == ("rocm/atom-dev:n1", 100.0, 1.0)
    assert found.told["client"] is None


@pytest.mark.parametrize("changes", [{"double": True}, {"trial": True}])
def test_doubles_and_trials_never_leave(changes: dict[str, object]) -> None:
    for record in (a_record(**changes), invalid("x", **changes)):
        with pytest.raises(FleetError, match="not a measurement, so it is not exported"):
            exported(record, disagg_arm(), raw_of(), include_invalid=True)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (raw_of(median_tpot_ms=0), "median_tpot_ms is 0, so it has no interactivity"),
        (raw_of(mean_tpot_ms=float("nan")), "the client's result holds what JSON cannot"),
        (b"[1]", "the client's result is no JSON object"),
        (b"{", "the client's result holds what JSON cannot"),
    ],
)
def test_a_result_that_has_no_aggregate_says_why(raw: bytes, why: str) -> None:
    found = exported(invalid("x"), disagg_arm(), raw, include_invalid=True)
    assert list(found.files.values()) == [raw]
    assert str(found.told["no_aggregate"]).startswith(why)


def test_the_runner_is_the_recipes_label_unless_one_is_named() -> None:
    assert "_mi355x_concurrency_" in exported(a_record(), disagg_arm(), raw_of()).raw_name
    assert "_amds_06_concurrency_" in exported(a_record(), disagg_arm(), raw_of(), "amds_06").raw_name
