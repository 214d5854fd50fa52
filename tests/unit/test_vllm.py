from __future__ import annotations

import json
import re
from typing import Any

import pytest

from fleet.engines import engine_for, vllm
from fleet.errors import NotReady
from fleet.model.arm import Arm, Workers
from fleet.model.check import Response
from fleet.model.placement import place
from fleet.model.seat import Placement
from fleet.model.service import Service
from tests import build, interop

OPTIONS = vllm.Options(
    kv_cache_dtype="fp8", memory_fraction=0.8, prefix_caching=False, async_scheduling=True, executor="mp",
    moe_backend="aiter", tokenizer_mode="deepseek_v4", reasoning_parser="deepseek_v4",
    compilation=vllm.Compilation(mode=3, cudagraph_mode="FULL_AND_PIECEWISE"),
    env={"VLLM_ROCM_USE_AITER": "1", "VLLM_ROCM_USE_AITER_MOE": "1"},
    mtp=vllm.Mtp(tokens=2),
)  # fmt: skip


def arm(*, depth: int = 2, **sizes: Any) -> Arm:
    """One server, TP8, MTP 2, unless told otherwise."""
    workers = Workers(**{"role": "server", "count": 1, "tp": 8, **sizes})
    return build.arm(
        depth=depth,
        name="tp8",
        framework="vllm",
        multinode=False,
        disagg=False,
        router=None,
        kv_transfer=None,
        workers=(workers,),
    )


def placement(of: Arm | None = None, **host: Any) -> Placement:
    return place(of or arm(), build.inventory(build.host(1, **host)))


def server(of: Arm | None = None, options: vllm.Options = OPTIONS, **host: Any) -> Service:
    placed = placement(of, **host)
    return vllm.service(placed.seats[0], placed, options)


def test_the_command_of_an_mtp_server() -> None:
    made = server()
    assert list(made.argv) == [
        *("vllm", "serve", "/models/DeepSeek-V4-Pro", "--served-model-name", "deepseek-ai/DeepSeek-V4-Pro"),
        *("--host", "0.0.0.0", "--port", "8888", "--tensor-parallel-size", "8", "--data-parallel-size", "1"),
        *("--max-model-len", "9472", "--trust-remote-code", "--async-scheduling", "--no-enable-prefix-caching"),
        *("--distributed-executor-backend", "mp", "--gpu-memory-utilization", "0.8", "--kv-cache-dtype", "fp8"),
        *("--moe-backend", "aiter", "--tokenizer-mode", "deepseek_v4", "--reasoning-parser", "deepseek_v4"),
        *("--compilation-config", '{"mode":3,"cudagraph_mode":"FULL_AND_PIECEWISE"}'),
        *("--speculative-config", '{"method":"mtp","num_speculative_tokens":2}'),
    ]
    assert made.env == {"PYTHONUNBUFFERED": "1", "VLLM_ROCM_USE_AITER": "1", "VLLM_ROCM_USE_AITER_MOE": "1"}
    assert (made.http, [port.number for port in made.ports], made.gpu) == (8888, [8888], True)
    assert made.mounts[0].source == "/it-share/models"


def test_without_speculation_there_is_no_speculative_config() -> None:
    assert server().argv[:-2] == server(arm(depth=0)).argv


def test_dp_attention_is_tp_1_and_a_rank_a_gpu() -> None:
    argv = server(arm(dp_attn=True, ep=8)).argv
    at = argv.index("--tensor-parallel-size")
    assert argv[at : at + 5] == ("--tensor-parallel-size", "1", "--data-parallel-size", "8", "--enable-expert-parallel")


def test_other_sizes_and_a_part_of_a_host() -> None:
    made = server(arm(tp=2, pp=2, dcp=2))
    sizes = ("--pipeline-parallel-size", "2", "--decode-context-parallel-size", "2")
    at = made.argv.index(sizes[0])
    assert made.argv[at : at + 4] == sizes
    assert made.env["HIP_VISIBLE_DEVICES"] == "0,1,2,3"
    assert "HIP_VISIBLE_DEVICES" not in server(arm(tp=4), accelerator="none").env


def test_options_that_are_not_given_keep_vllms_defaults() -> None:
    argv = server(arm(depth=0), vllm.Options()).argv
    assert argv[-3:] == ("--max-model-len", "9472", "--trust-remote-code")
    on = vllm.Options(prefix_caching=True, async_scheduling=False, block_size=16, flags=("--seed", "1"))
    assert server(arm(depth=0), on).argv[-6:] == (
        *("--no-async-scheduling", "--enable-prefix-caching", "--block-size", "16"),
        *("--seed", "1"),
    )


def test_every_flag_is_registered_and_has_an_origin() -> None:
    registered = interop.flags("vllm-serve-0.22.0")
    made = server(arm(dp_attn=True, ep=8))
    flags = {word for word in made.argv if word.startswith("--")}
    assert flags <= set(registered)
    assert {*flags, *made.env} == set(made.origins)
    assert {flag for flag in vllm.ORIGINS if flag.startswith("--")} <= set(registered)


def test_refusals_are_told_together() -> None:
    assert vllm.refusals(arm(), OPTIONS) == ()
    many = arm(dp_attn=True, dcp=2).model_copy(update={"disagg": True})
    bare = OPTIONS.model_copy(
        update={
            "mtp": None,
            "flags": ("--speculative-config={}", "-tp", "4", "--seed", "1"),
            "env": {"PYTHONUNBUFFERED": "0", "VLLM_X": "1"},
        }
    )
    assert vllm.refusals(many, bare) == (
        "framework: vllm: one server on one node; multinode and disagg need another framework",
        "server: dp-attn with dcp-size: 2: ranks of one GPU have no decode context to share",
        "spec-decoding: mtp: the model file of DeepSeek-V4-Pro has no mtp for vLLM",
        "env: PYTHONUNBUFFERED is fleet's own to set",
        "flags: --speculative-config={} is fleet's own to set",
        "flags: -tp is fleet's own to set",
    )
    draft = arm(depth=0).model_copy(update={"spec": "draft_model"})
    assert vllm.refusals(draft, OPTIONS)[0].startswith("spec-decoding: draft_model: ")


def ask(path: str, table: object, status: int = 200) -> str:
    placed = placement()
    (check,) = [one for one in vllm.readiness(placed.seats[0], placed) if one.path == path]
    return check.judge(Response(status, json.dumps(table).encode()))


def test_readiness() -> None:
    placed = placement()
    assert [check.path for check in vllm.readiness(placed.seats[0], placed)] == ["/health", "/v1/models", "/version"]
    assert ask("/health", None) == ""
    assert ask("/health", None, 503) == "status 503"
    assert ask("/v1/models", {"data": [{"id": "deepseek-ai/DeepSeek-V4-Pro"}]}) == ""
    assert ask("/v1/models", {"data": [{"id": "/models/x"}]}) == (
        "serves /models/x instead of deepseek-ai/DeepSeek-V4-Pro"
    )
    assert ask("/version", {"version": "0.22.0"}) == ""
    assert ask("/version", []) == "tells no version"


METRICS = """\
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 2.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 38.0
vllm:request_success_total{engine="1",finished_reason="length",model_name="m"} 8.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 294050.0
vllm:generation_tokens_total{engine="0",model_name="m"} 36805.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 1000.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 2000.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 1500.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 900.0
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 2.0
"""


def test_counters_are_summed_over_engines_and_reasons() -> None:
    found = vllm.counters(METRICS)
    assert (found.finished, found.prompt_tokens, found.generated_tokens) == (48, 294050, 36805)
    assert (found.drafted, found.accepted, found.steps) == (2000, 1500, 1000)
    plain = vllm.counters("".join(line for line in METRICS.splitlines(True) if "spec_decode" not in line))
    assert (plain.finished, plain.drafted, plain.accepted, plain.steps) == (48, None, None, None)


def test_requests_under_way_are_running_or_waiting() -> None:
    assert vllm.under_way(METRICS) == 6
    assert vllm.under_way("vllm:request_success_total 40\n") is None


def test_counter_names_are_vllms() -> None:
    names = set(re.findall(r"vllm:\w+", interop.path("captured/vllm-metrics-names.txt").read_text()))
    assert set(re.findall(r"vllm:\w+", METRICS)) <= names


def test_counters_are_live() -> None:
    assert vllm.refreshed(METRICS) is None
    assert vllm.METRICS_SETTLE == 0


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        "ERROR [multiproc_executor.py:800] Worker failed with error 'HIP out of memory. Tried to allocate 2 GiB'",
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
        "[Errno 98] error while attempting to bind on address ('0.0.0.0', 8888): address already in use",
        "vllm serve: error: unrecognized arguments: --num-speculative-tokens 2",
        "vllm: error: unrecognized arguments: --server-port 8888",
    ],
)
def test_fatal_lines(line: str) -> None:
    assert any(re.search(pattern, line) for pattern in vllm.FATAL)


def test_ordinary_lines_are_not_fatal() -> None:
    for line in ("INFO:     Application startup complete.", "SpecDecoding metrics: Mean acceptance length: 2.31"):
        assert not any(re.search(pattern, line) for pattern in vllm.FATAL)


def test_one_server_has_no_pairs() -> None:
    assert engine_for("vllm").served_name(arm()) == "deepseek-ai/DeepSeek-V4-Pro"
    with pytest.raises(NotReady):
        vllm.prefill_request("m", "p", 1)
    with pytest.raises(NotReady):
        vllm.decode_request("m", "p", 1, {}, {})


def test_a_prefix_cache_is_there_unless_it_was_turned_off() -> None:
    assert vllm.prefix_cache(("serve", "--no-enable-prefix-caching")) is False
    assert vllm.prefix_cache(("serve",)) is True
    assert vllm.prefix_cache(("serve", "--no-enable-prefix-caching", "--enable-prefix-caching")) is True


def test_accepted_tokens_by_position_and_tokens_from_the_prefix_cache() -> None:
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    text = f'{name}{{engine="0",position="0"}} 7.0\n{name}{{engine="0",position="1"}} 4.0\n'
    text += "vllm:prefix_cache_hits_total 64\n"
    found = vllm.counters(text)
    assert (found.by_position, found.cached_tokens) == ((7.0, 4.0), 64.0)
    assert vllm.counters("").by_position is None
