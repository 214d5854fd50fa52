"""Runs set against each other: which points take part, what differs beyond noise, and where MTP stops being faster."""

from __future__ import annotations

import json
from dataclasses import replace
from math import log, sqrt

import pytest

from fleet.errors import UsageError
from fleet.results import noise as noises
from fleet.results import telling
from fleet.results.compare import Comparison, compare, to_json
from fleet.results.noise import Noise
from fleet.results.record import Image
from fleet.results.sample import METRICS, Sample, of_aggregates, of_run
from fleet.results.topology import label
from tests.compared import INVALID, MTP, STP, a_plan, by, records, samples

OUTPUT = "output_tput_per_gpu"
BASE = {4: [100.0, 102.0, 98.0], 16: [300.0, 303.0, 297.0], 64: [800.0, 808.0, 792.0]}


def left_out(found: Comparison) -> list[tuple[str, tuple[int, ...], str]]:
    return [(one.side, one.concs, one.why) for one in found.left_out]


def changed(of: tuple[Sample, ...], **aspects: str) -> tuple[Sample, ...]:
    """The same points with another topology; _ stands for a blank."""
    other = {aspect.replace("_", " "): value for aspect, value in aspects.items()}
    return tuple(replace(one, topology={**one.topology, **other}) for one in of)


# --- what is compared -----------------------------------------------------------------------------------------------


def test_a_run_against_itself_shows_no_difference() -> None:
    found = compare(samples(STP, BASE), samples(STP, BASE))
    (curve,) = found.curves
    assert [row.conc for row in curve.rows] == [4, 16, 64]
    assert {one.verdict for row in curve.rows for one in row.contrasts.values()} == {"no difference seen"}
    assert curve.crossover is None
    assert (found.left_out, found.marks) == ((), ())


def test_a_difference_beyond_the_noise_is_seen_and_one_within_is_not() -> None:
    """Each point scatters by ±2 % or ±1 %; 10 % more is seen, 1 % more is not."""
    base = samples(STP, BASE)
    more = {4: 1.1, 16: 1.01, 64: 0.9}
    (curve,) = compare(base, samples(STP, by(lambda conc: more[conc], BASE))).curves
    told = {row.conc: row.contrasts[OUTPUT] for row in curve.rows}
    assert {conc: one.verdict for conc, one in told.items()} == {4: "better", 16: "no difference seen", 64: "worse"}
    assert told[4].gain == pytest.approx(log(1.1))
    assert told[16].a == (300.0, 303.0, 297.0)


def test_less_latency_is_better() -> None:
    """Made up so that TTFT falls as the output rises."""
    (curve,) = compare(samples(STP, BASE), samples(STP, by(lambda _: 1.25, BASE))).curves
    one = curve.rows[0].contrasts["median_ttft_ms"]
    assert (one.gain, one.verdict) == (pytest.approx(-log(1.25)), "better")


def test_no_interval_is_narrower_than_the_noise_floor() -> None:
    """Repeats 100 and 102, and twice the same: pooled over two points with one degree of freedom each. s² = (d²/2) / 2
    with d = ln 1.02, t(2) = 4.303: floor = 4.303 × √2 × d / 2."""
    a, b = samples(STP, {4: [100.0, 102.0]}), samples(STP, {4: [120.0, 120.0]})
    (curve,) = compare(a, b).curves
    floor = 4.303 * sqrt(2) * log(1.02) / 2
    assert curve.floors[OUTPUT].height == pytest.approx(floor)
    assert curve.floors[OUTPUT].source == "of their own repeats, 2 degrees of freedom"
    bounds = curve.rows[0].contrasts[OUTPUT].bounds
    assert bounds
    assert (bounds.low, bounds.high) == pytest.approx((log(120 / 101) - floor, log(120 / 101) + floor))


def test_one_measurement_each_leaves_it_open() -> None:
    (curve,) = compare(samples(STP, {4: [100.0]}), samples(STP, {4: [138.0]})).curves
    one = curve.rows[0].contrasts[OUTPUT]
    assert (one.bounds, one.seen, one.verdict) == (None, None, "better?")


def test_over_all_points_pairs_are_taken() -> None:
    (curve,) = compare(samples(STP, BASE), samples(STP, by(lambda _: 1.1, BASE))).curves
    gain, bounds = curve.overall[OUTPUT]
    assert gain == pytest.approx(log(1.1))
    assert bounds
    assert bounds.low > 0
    assert bounds.high - bounds.low == pytest.approx(2 * curve.floors[OUTPUT].height)


# --- what takes no part ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("aspects", "why"),
    [
        ({"workers": "2 server tp8"}, "workers 1 server tp8, there 2 server tp8"),
        ({"image": "vllm/other"}, "image vllm/vllm-openai-rocm:v0.22.0, there vllm/other"),
        ({"image_ID": "sha256:beef"}, "image ID sha256:a41f, there sha256:beef"),
        ({"client": "aiperf"}, "client vllm bench serve, there aiperf"),
        ({"framing": "chat-framed prompts"}, "framing raw prompts, there chat-framed prompts"),
        ({"draft_depth": "2"}, "draft depth 0, there 2"),
        ({"hardware": "mi300x"}, "hardware mi355x, there mi300x"),
        ({"accelerator": "cuda"}, "accelerator rocm, there cuda"),
        ({"kind": "double trial"}, "kind measurement, there double trial"),
        ({"lengths": "1024/1024"}, "lengths 8192/1024, there 1024/1024"),
    ],
)
def test_another_topology_takes_no_part(aspects: dict[str, str], why: str) -> None:
    found = compare(samples(STP, {4: [100.0]}), changed(samples(STP, {4: [100.0]}), **aspects))
    assert found.curves == ()
    assert left_out(found)[0] == ("a", (4,), why)
    assert [side for side, *_ in left_out(found)] == ["a", "b"]


def test_invalid_and_incomplete_points_take_no_part() -> None:
    a = samples(STP, {4: [100.0]})
    invalid = samples(STP, {4: [100.0]}, verdict=INVALID)
    incomplete = samples(STP, {8: [100.0]}, verdict=INVALID, state="incomplete")
    found = compare(a, (*invalid, *incomplete))
    assert found.curves == ()
    assert left_out(found) == [
        ("b", (4,), "invalid: requests: 39 of 40 completed, 40 asked"),
        ("b", (8,), "incomplete: requests: 39 of 40 completed, 40 asked"),
        ("a", (4,), "no point there takes part"),
    ]


def test_an_invalid_repeat_is_left_out_of_its_median() -> None:
    good, bad = samples(STP, {4: [100.0]}), samples(STP, {4: [900.0]}, verdict=INVALID, point="tp8-8k1k-c4-r1")
    (curve,) = compare((*good, *bad), samples(STP, {4: [100.0]})).curves
    assert curve.rows[0].contrasts[OUTPUT].a == (100.0,)


def test_a_concurrency_of_one_side_only_is_told() -> None:
    found = compare(samples(STP, {4: [100.0], 8: [150.0]}), samples(STP, {4: [100.0], 16: [200.0], 64: [300.0]}))
    assert [row.conc for row in found.curves[0].rows] == [4]
    gone = "no such concurrency there"
    assert left_out(found) == [("a", (8,), gone), ("b", (16, 64), gone)]


def test_the_last_attempt_of_a_point_counts() -> None:
    both = of_run([*records(STP, {4: [50.0]}), *records(STP, {4: [100.0]}, attempt=2)], a_plan(STP))
    (curve,) = compare(both, both).curves
    assert curve.rows[0].contrasts[OUTPUT].a == (100.0,)


# --- across mtp -----------------------------------------------------------------------------------------------------


def known(conc: int) -> float:
    """Faster up to 32: the logarithm of the gain falls straight in log(conc), from +0.6 at 4 to -0.2 at 64."""
    return float((conc / 32) ** -0.2885390081777927)


CURVE = {4: [100.0, 101.0, 99.0], 8: [180.0, 182.0, 178.0], 16: [300.0, 303.0, 297.0], 64: [800.0, 808.0, 792.0]}


def test_a_known_crossover_is_found() -> None:
    found = compare(samples(STP, CURVE), samples(MTP, by(known, CURVE)), across="mtp")
    (curve,) = found.curves
    assert curve.crossover
    assert curve.crossover.kind == "crossover"
    assert curve.crossover.conc == pytest.approx(32)
    assert curve.crossover.interval
    assert curve.crossover.interval.low < 32 < curve.crossover.interval.high
    assert curve.quote.startswith("MTP is faster up to 32 (2")
    assert found.left_out == ()


def test_whichever_side_is_named_first() -> None:
    stp, mtp = samples(STP, CURVE), samples(MTP, by(known, CURVE))
    one, other = compare(stp, mtp, across="mtp"), compare(mtp, stp, across="mtp")
    assert one.curves[0].crossover == other.curves[0].crossover
    assert one.curves[0].quote == other.curves[0].quote
    assert "b tp8-8k1k   a tp8-mtp2-8k1k" in telling.comparison(other)


def test_without_a_crossover_it_says_so() -> None:
    faster = compare(samples(STP, CURVE), samples(MTP, by(lambda _: 1.3, CURVE)), across="mtp").curves[0].quote
    assert faster == "MTP is faster at all of 4 8 16 64 concurrent requests: no crossover was measured"
    same = compare(samples(STP, CURVE), samples(MTP, CURVE), across="mtp").curves[0].quote
    assert same == "no difference is seen at 4 8 16 64 concurrent requests: MTP is neither faster nor slower there"


def test_speculation_depth_and_framing_are_waived_and_another_image_is_noted() -> None:
    mtp = samples(MTP, by(known, CURVE), image=Image(tag="vllm/vllm-openai-rocm:v0.23.0", id="sha256:beef"))
    assert compare(samples(STP, CURVE), mtp).curves == ()
    (curve,) = compare(samples(STP, CURVE), mtp, across="mtp").curves
    assert curve.notes == (
        "speculation: none against mtp",
        "draft depth: 0 against 2",
        "framing: raw prompts against chat-framed prompts",
        "another image: vllm/vllm-openai-rocm:v0.22.0 against vllm/vllm-openai-rocm:v0.23.0",
        "another image ID: sha256:a41f against sha256:beef",
    )


def test_across_mtp_nothing_else_is_waived() -> None:
    mtp = changed(samples(MTP, by(known, CURVE)), workers="2 server tp8")
    found = compare(samples(STP, CURVE), mtp, across="mtp")
    assert found.curves == ()
    assert left_out(found)[0] == ("a", (4, 8, 16, 64), "workers 1 server tp8, there 2 server tp8")


def test_the_same_speculation_on_both_sides_is_no_contrast() -> None:
    found = compare(samples(STP, {4: [100.0]}), samples(STP, {4: [100.0]}), across="mtp")
    assert (found.curves, left_out(found)[0]) == ((), ("a", (4,), "no speculation on either side"))


def test_a_depth_that_tapers_is_one_curve_and_two_depths_at_once_are_two() -> None:
    low, high = samples(MTP, {4: [150.0]}), changed(samples(MTP, {64: [700.0]}), draft_depth="1")
    stp = samples(STP, CURVE)
    (curve,) = compare(stp, (*low, *high), across="mtp").curves
    assert [row.conc for row in curve.rows] == [4, 64]
    assert "draft depth: 0 against 2, 1" in curve.notes
    both = changed(samples(MTP, {4: [150.0], 64: [700.0]}), draft_depth="1")
    assert len(compare(stp, (*samples(MTP, {4: [150.0], 64: [700.0]}), *both), across="mtp").curves) == 2


def test_across_image_waives_the_image_alone() -> None:
    other = changed(samples(STP, BASE), image="vllm/other", image_ID="sha256:beef")
    (curve,) = compare(samples(STP, BASE), other, across="image").curves
    assert curve.notes[0] == "another image: vllm/vllm-openai-rocm:v0.22.0 against vllm/other"
    assert curve.crossover is None
    assert compare(samples(STP, BASE), changed(other, client="aiperf"), across="image").curves == ()


# --- noise ----------------------------------------------------------------------------------------------------------


def kept(key: str, **changes: object) -> Noise:
    """A run whose repeats were 100 and 110."""
    (found,) = noises.of_run(
        samples(key, {4: [100.0, 110.0]}), run="20261130-210405-noise-7f3a9c", key=key, at="2026-11-30T21:04:05.000Z",
        restarted=False,
    )  # fmt: skip
    return found.model_copy(update=changes)


def test_the_noise_of_a_run_follows_from_its_repeats() -> None:
    """ln 100 and ln 110 are d = ln 1.1 apart: a deviation of d / √2, one degree of freedom, t = 12.706."""
    found = kept(STP)
    assert (found.arm, found.concs, found.measurements, found.restarted) == ("tp8-8k1k", (4,), 2, False)
    assert found.scatters[OUTPUT].deviation == pytest.approx(log(1.1) / sqrt(2))
    assert found.floor(METRICS[0]) == pytest.approx(12.706 * log(1.1))
    assert "p99_ttft_ms" not in found.scatters, "nobody measured it"


def test_points_without_repeats_tell_no_noise() -> None:
    assert noises.of_run(samples(STP, {4: [100.0], 8: [1.0]}), run="r", key=STP, at="", restarted=False) == ()


def test_noise_that_was_kept_decides_what_is_seen() -> None:
    a, b = samples(STP, {4: [100.0]}), samples(STP, {4: [138.0]})
    (curve,) = compare(a, b, kept=[kept(STP)]).curves
    one = curve.rows[0].contrasts[OUTPUT]
    assert one.verdict == "no difference seen"
    assert curve.floors[OUTPUT].source == "of 20261130-210405-noise-7f3a9c, tp8-8k1k, servers kept"
    (curve,) = compare(a, b, kept=[kept(STP, scatters={})]).curves
    assert curve.rows[0].contrasts[OUTPUT].verdict == "better?"


def test_noise_of_other_machines_or_of_doubles_says_nothing() -> None:
    wanted = samples(STP, {4: [100.0]})[0].topology
    for aspect, value in (("hardware", "mi300x"), ("kind", "double"), ("framework", "atom"), ("client", "aiperf")):
        other = kept(STP, topology={**wanted, aspect: value})
        assert noises.matching([other], wanted) is None, aspect


def test_of_several_the_most_alike_and_then_the_latest_counts() -> None:
    wanted = samples(STP, {4: [100.0]})[0].topology
    near, later, far = kept(STP, run="near"), kept(STP, run="later"), kept(MTP, run="far")
    assert noises.matching([near, later, far], wanted) == later
    assert noises.matching([far], wanted) == far


def test_lines_that_cannot_be_read_are_passed_over() -> None:
    one = kept(STP)
    assert noises.read(one.to_line() + "{}\nno json\n" + one.to_line()) == (one, one)


# --- what someone else made -----------------------------------------------------------------------------------------

AGG = {
    "hw": "mi355x", "conc": 4, "image": "vllm/vllm-openai-rocm:v0.22.0", "model": "deepseek-ai/DeepSeek-V4-Pro",
    "framework": "vllm", "precision": "fp4", "spec_decoding": "none", "disagg": False, "isl": 8192, "osl": 1024,
    "is_multinode": False, "tp": 8, "pp": 1, "dcp_size": 1, "pcp_size": 1, "ep": 1, "dp_attention": "false",
    "output_tput_per_gpu": 110.0, "tput_per_gpu": 990.0, "input_tput_per_gpu": 880.0, "median_intvty": 220.0,
    "median_ttft": 0.0364, "p99_ttft": 0.05,
}  # fmt: skip


def test_an_aggregate_is_compared_and_marked() -> None:
    foreign = of_aggregates(json.dumps([AGG, {**AGG, "conc": 8}]), "theirs.json")
    found = compare(samples(STP, {4: [100.0]}), foreign)
    (curve,) = found.curves
    assert found.marks == ("FOREIGN",)
    assert curve.rows[0].contrasts[OUTPUT].gain == pytest.approx(log(1.1))
    assert curve.rows[0].contrasts["median_ttft_ms"].b == pytest.approx((36.4,))
    assert curve.notes == (
        "not told by one side, so not compared: accelerator, GPU, KV transfer, settings, image ID, draft depth,"
        " framing, client, context, load",
    )
    assert left_out(found) == [("b", (8,), "no such concurrency there")]
    assert "FOREIGN: an aggregate that somebody else made" in telling.comparison(found)


def test_an_aggregate_of_other_workers_takes_no_part() -> None:
    found = compare(samples(STP, {4: [100.0]}), of_aggregates(json.dumps({**AGG, "tp": 4}), "theirs.json"))
    assert left_out(found)[0] == ("a", (4,), "workers 1 server tp8, there 1 server tp4")


def test_a_disaggregated_aggregate_tells_its_workers() -> None:
    sizes = {"tp": 8, "pp": 1, "dcp_size": 1, "pcp_size": 1, "ep": 8, "dp_attention": "true"}
    both = {f"{role}_{name}": value for role in ("prefill", "decode") for name, value in sizes.items()}
    multi = {"is_multinode": True, "prefill_num_workers": 2, "decode_num_workers": 1, "hw": "cluster:mi355x-disagg"}
    router = {"router": {"name": "atomesh", "version": "087b"}, "kv_p2p_transfer": "mooncake"}
    (one,) = of_aggregates(json.dumps({**AGG, **both, **multi, **router}), "theirs.json")
    told = one.topology
    assert (told["workers"], told["hardware"]) == ("2 prefill tp8 ep8 dpa, 1 decode tp8 ep8 dpa", "mi355x")
    assert (told["router"], told["KV transfer"]) == ("atomesh 087b", "mooncake")


def test_doubles_are_never_set_against_an_aggregate() -> None:
    found = compare(samples(STP, {4: [100.0]}, double=True, trial=True), of_aggregates(json.dumps(AGG), "theirs.json"))
    assert left_out(found)[0] == ("a", (4,), "kind double trial, there measurement")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("[]", "it is empty"),
        ("[1]", "entry 1 is no object"),
        ("{}", "entry 1 has no conc"),
        (json.dumps({**AGG, "conc": "4"}), "entry 1 has no conc"),
        (json.dumps([AGG, {"conc": 4}]), "entry 2 has no isl and osl"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_what_is_no_aggregate_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        of_aggregates(text, "theirs.json")
    assert caught.value.where == "theirs.json"


def test_labels_of_pools_of_the_same_machines() -> None:
    assert {label(one) for one in ("mi355x", "MI355X-disagg", "cluster:mi355x-multinode")} == {"mi355x"}
    assert label("cluster:mi355x-amds") == "mi355x-amds"


# --- text and JSON --------------------------------------------------------------------------------------------------


def test_the_text_of_a_comparison() -> None:
    a = samples(STP, {4: [100.0, 100.0, 100.0], 64: [800.0, 800.0, 800.0]}, double=True, trial=True)
    b = samples(MTP, {4: [140.0, 140.0, 140.0], 64: [700.0, 700.0, 700.0]}, double=True, trial=True)
    text = telling.comparison(compare(a, b, across="mtp")).splitlines()
    assert text[:4] == [
        f"a  20261201-100000-{STP}-{a_plan(STP).hash6}",
        f"b  20261201-100000-{MTP}-{a_plan(MTP).hash6}",
        "across mtp: speculation, draft depth, framing, image, image ID may differ",
        "DOUBLE, TRIAL: not a measurement",
    ]
    assert "a tp8-8k1k   b tp8-mtp2-8k1k   8192/1024, 1 server tp8, vllm" in text
    at = text.index("  output, tok/s per GPU (total)   noise floor 0.0 % (of their own repeats, 8 degrees of freedom)")
    assert text[at + 1 : at + 4] == [
        "    conc         a         b              b against a",
        "       4  100.0 ×3  140.0 ×3  +40.0 % (+40.0 … +40.0)  better",
        "      64  800.0 ×3  700.0 ×3  -12.5 % (-12.5 … -12.5)  worse",
    ]
    # ln 1.4 = 0.3365, ln 0.875 = -0.1335: 4 × 16^0.7159 = 29.1
    assert "MTP is faster up to 29 (29–29) concurrent requests." in text


def test_denominators_have_names() -> None:
    apart, together = "1 prefill tp8, 1 decode tp8", "1 server tp8"
    assert [one.spoken(apart) for one in METRICS[:4]] == [
        "tok/s per decode GPU", "tok/s per GPU (total)", "tok/s per prefill GPU", "tok/s/user",
    ]  # fmt: skip
    assert {one.spoken(together) for one in METRICS[:3]} == {"tok/s per GPU (total)"}


def test_json_is_for_programs() -> None:
    found = to_json(compare(samples(STP, CURVE), samples(MTP, by(known, CURVE)), across="mtp"))
    json.dumps(found, allow_nan=False)
    (curve,) = found["curves"]
    assert found["measurement"] is True
    assert curve["crossover"]["conc"] == pytest.approx(32)
    assert curve["points"][0]["figures"][OUTPUT]["gain_percent"] == pytest.approx((8**0.2885390081777927 - 1) * 100)
    assert curve["units"][OUTPUT] == "tok/s per GPU (total)"
    assert curve["noise_floor"][OUTPUT]["percent"] > 0


def test_the_text_of_noise() -> None:
    made = samples(STP, {4: [100.0, 110.0]})
    text = telling.noise([kept(STP)], made).splitlines()
    assert text[0] == "noise of 20261130-210405-noise-7f3a9c"
    told = "tp8-8k1k   conc 4   2 measurements, servers kept: what differs from start to start is not in it"
    assert told in text
    line = next(line for line in text if line.strip().startswith("output,"))
    assert " ".join(line.split()) == "output, tok/s per GPU (total) 105.0 (100.0 … 110.0) 6.7 % 235.7 %"
