from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from fleet.loads import load_for, vllm_bench
from fleet.model.arm import Point
from fleet.model.service import Service
from fleet.results.aggregate import aggregate, figures
from tests import build, interop
from tests.judged import single_arm
from tests.unit.test_vllm import placement

ENDPOINT = "http://10.1.0.11:8888"
CAPTURED = ("bench-mtp-docker-t0", "bench-mtp-docker-t1", "bench1", "pd-conc4")


def point(conc: int = 64, **changes: Any) -> Point:
    return build.point(conc, **{"arm": "tp8-mtp2", **changes})


def client(of: Point | None = None) -> Service:
    return vllm_bench.service(of or point(), placement(), endpoint=ENDPOINT)


def test_an_mtp_point_asks_the_server_to_frame() -> None:
    assert list(client().argv) == [
        *("vllm", "bench", "serve", "--backend", "openai-chat", "--base-url", ENDPOINT),
        *("--endpoint", "/v1/chat/completions", "--model", "deepseek-ai/DeepSeek-V4-Pro"),
        *("--tokenizer", "/models/DeepSeek-V4-Pro", "--trust-remote-code", "--dataset-name", "random"),
        *("--random-input-len", "7373", "--random-output-len", "922", "--random-range-ratio", "0.111"),
        *("--seed", "0", "--temperature", "0", "--ignore-eos", "--ready-check-timeout-sec", "0"),
        *("--num-prompts", "640", "--num-warmups", "128", "--max-concurrency", "64", "--request-rate", "inf"),
        *("--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "90,99,99.9", "--save-result"),
        *("--save-detailed", "--result-dir", "/fleet/raw", "--result-filename", "tp8-mtp2-c64.json"),
    ]


def test_an_stp_point_sends_raw_prompts_to_the_completions_endpoint() -> None:
    argv = client(point(chat=False)).argv
    assert argv[3:9] == ("--backend", "vllm", "--base-url", ENDPOINT, "--endpoint", "/v1/completions")


def test_every_flag_is_registered_and_has_an_origin() -> None:
    made = client()
    flags = {word for word in made.argv if word.startswith("--")}
    assert flags <= set(interop.flags("vllm-bench-serve-0.22.0"))
    assert flags == set(made.origins)


def test_the_result_is_below_the_runs_mount() -> None:
    assert vllm_bench.result_path(point(8, repeat=1)) == "/fleet/raw/tp8-mtp2-c8-r1.json"


# --- lengths ----------------------------------------------------------------------------------------------------


def test_the_lengths_of_the_public_benchmark_to_a_token() -> None:
    drawn = vllm_bench.drawn(point())
    assert (drawn.input, drawn.output) == ((6554, 8192), (819, 1025))
    assert (drawn.client, drawn.public_sequence) == ("vllm bench serve", False)


def test_lengths_whose_bounds_add_up_to_an_even_number_are_exact() -> None:
    """200 and 250 have the middle 225, so both ends can be met."""
    asked = vllm_bench.means(point(isl=250, osl=250))
    assert (asked.input, asked.output, asked.ratio) == (225, 225, 0.111)
    assert vllm_bench.drawn(point(isl=250, osl=250)).output == (200, 250)


LENGTHS = (16, 32, 100, 128, 256, 1000, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)


def test_no_bound_of_any_two_lengths_is_off_by_more_than_a_token() -> None:
    for isl, osl in product(LENGTHS, LENGTHS):
        drawn = vllm_bench.drawn(point(isl=isl, osl=osl))
        for (least, most), length in ((drawn.input, isl), (drawn.output, osl)):
            assert abs(least - int(0.8 * length)) <= 1, (isl, osl)
            assert abs(most - length) <= 1, (isl, osl)


def test_other_ratios_and_none() -> None:
    assert vllm_bench.drawn(point(range_ratio=1.0)).output == (1024, 1024)
    assert vllm_bench.means(point(range_ratio=1.0)).ratio == 0
    half = vllm_bench.drawn(point(range_ratio=0.5))
    assert (half.input, half.output) == ((4096, 8192), (512, 1024))


# --- results ----------------------------------------------------------------------------------------------------


def captured(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(interop.path(f"captured/vllm-bench-serve.{name}.json").read_text())
    return found


@pytest.mark.parametrize("name", CAPTURED)
def test_captured_results(name: str) -> None:
    raw = captured(name)
    found = load_for("vllm").parse(raw)
    assert (found.completed, found.requested) == (40, 40)
    assert (found.total_output_tokens, found.duration_s) == (raw["total_output_tokens"], raw["duration"])
    assert (found.errors, found.output_lens) == ({}, ())


def test_a_captured_result_as_the_public_aggregate() -> None:
    raw = captured("bench1")
    made = aggregate(raw, single_arm(), point=point(4, isl=128, osl=32))
    assert (made["is_multinode"], made["tp"], made["dp_attention"], made["framework"]) == (False, 8, "false", "vllm")
    assert (made["model"], made["conc"], made["isl"]) == ("tiny-llama", 4, 128)
    assert made["tput_per_gpu"] == raw["total_token_throughput"] / 8
    assert made["p90_ttft"] == raw["p90_ttft_ms"] / 1000
    assert made["median_intvty"] == 1000 / raw["median_tpot_ms"]
    assert not any(name.startswith("spec_decode") for name in made)
    assert figures(raw, single_arm()).median_e2el_ms == raw["median_e2el_ms"]


def test_all_requests_failed_and_the_client_said_nothing_of_it() -> None:
    raw = {
        "num_prompts": 3, "completed": 0, "failed": 3, "duration": 0.1, "total_input_tokens": 0,
        "total_output_tokens": 0, "input_lens": [10, 11, 12], "output_lens": [0, 0, 0],
        "errors": ["Traceback\n  …\nClientError: Cannot connect", "Service Unavailable", "Service Unavailable"],
    }  # fmt: skip
    found = vllm_bench.parse(raw)
    assert (found.completed, found.requested) == (0, 3)
    assert found.errors == {"ClientError: Cannot connect": 1, "Service Unavailable": 2}


def test_a_foreign_result_is_refused() -> None:
    with pytest.raises(KeyError):
        vllm_bench.parse({"completed": 1})
