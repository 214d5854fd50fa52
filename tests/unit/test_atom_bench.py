from __future__ import annotations

import json

import pytest

from fleet.loads import atom_bench, load_for
from fleet.model.arm import Point
from tests import build, interop

ENDPOINT = "http://10.1.0.11:30000"


def service(point: Point | None = None):
    return atom_bench.service(point or build.point(), build.placement(), endpoint=ENDPOINT)


def test_an_mtp_point():
    assert list(service().argv) == [
        *("python3", "-m", "atom.benchmarks.benchmark_serving", "--backend", "vllm", "--base-url", ENDPOINT),
        *("--endpoint", "/v1/completions", "--model", "/models/DeepSeek-V4-Pro", "--trust-remote-code"),
        *("--dataset-name", "random", "--random-input-len", "8192", "--random-output-len", "1024"),
        *("--random-range-ratio", "0.8", "--seed", "0", "--ignore-eos", "--use-chat-template"),
        *("--num-prompts", "2560", "--num-warmups", "512", "--max-concurrency", "256", "--request-rate", "inf"),
        *("--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "90,99,99.9", "--save-result"),
        *("--save-detailed", "--result-dir", "/fleet/raw", "--result-filename", "2p1d-dpa-mtp3-c256.json"),
    ]


def test_an_stp_point_sends_raw_prompts():
    assert "--use-chat-template" not in service(build.point(chat=False)).argv


def test_every_flag_is_registered_and_has_an_origin():
    registered = interop.flags("atom-bench.ffdf3bb")
    made = service()
    flags = {word for word in made.argv if word.startswith("--")}
    assert flags <= set(registered)
    assert flags == set(made.origins)


def test_the_client_sits_with_the_router_and_reads_the_models():
    made = service()
    assert made.host == "n1"
    assert made.mounts[0].source == "/it-share/models"
    assert not made.gpu


def test_the_result_is_below_the_runs_mount():
    assert atom_bench.result_path(build.point(64, repeat=2)) == "/fleet/raw/2p1d-dpa-mtp3-c64-r2.json"


def test_a_captured_result():
    raw = json.loads(interop.path("captured/raw-bench.2p1d.json").read_text())
    found = load_for("atom-disagg").parse(raw)
    assert (found.completed, found.requested, found.duration_s) == (2560, 2560, 100.0)
    assert (found.total_input_tokens, found.total_output_tokens) == (18874368, 2359296)
    assert found.output_lens == (1,)
    assert found.raw is raw or found.raw == raw


def test_errors_are_counted_by_the_line_that_names_them():
    raw = {
        "completed": 1,
        "num_prompts": 4,
        "duration": 1.5,
        "total_input_tokens": 10,
        "total_output_tokens": 5,
        "output_lens": [5, 0, 0, 0],
        "errors": ["", "Traceback\n  File x\nTimeoutError", "Traceback\n  File y\nTimeoutError\n", "Bad Gateway"],
    }
    found = atom_bench.parse(raw)
    assert found.errors == {"TimeoutError": 2, "Bad Gateway": 1}
    assert found.output_lens == (5, 0, 0, 0)


def test_a_foreign_result_is_refused():
    with pytest.raises(KeyError):
        atom_bench.parse({"completed": 1})
