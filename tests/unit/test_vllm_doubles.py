"""The doubles of `vllm serve` and `vllm bench serve` as local processes on loopback."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from double.engine import Engine
from double.flags import Flag, make_parser
from double.rates import Acceptance, Shape, tokens_per_second
from vllm import bench as client
from vllm import serve
from vllm.bench_flags import BENCH_FLAGS
from vllm.metrics import metrics_text
from vllm.serve_flags import SERVE_FLAGS

from fleet.engines import vllm
from fleet.loads import vllm_bench
from fleet.loads.client import RESULTS
from fleet.model.arm import Point
from tests import interop
from tests.unit.test_doubles import DOUBLES, Process, Server, free_ports
from tests.unit.test_vllm import arm, placement, server
from tests.unit.test_vllm_bench import point

CLI = (str(DOUBLES / "vllm" / "cli.py"),)
NAME = "deepseek-ai/DeepSeek-V4-Pro"
MTP2 = ("--speculative-config", '{"method":"mtp","num_speculative_tokens":2}')


class Desk:
    """Starts doubles by fleet's own command lines, moved to a free port and a folder of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = folder / "DeepSeek-V4-Pro"
        self.model.mkdir()
        self.running: list[Process] = []

    def process(self, *argv: str, fail: str = "", **extra: str) -> Process:
        started = Process((*CLI, *argv), self.folder / f"{len(self.running)}.log", fail, **extra)
        self.running.append(started)
        return started

    def server(self, *, depth: int = 0, fail: str = "") -> Server:
        placed = placement(arm(depth=depth))
        options = vllm.Options(mtp=vllm.Mtp(tokens=2), async_scheduling=True, kv_cache_dtype="fp8")
        argv = vllm.service(placed.seats[0], placed, options).argv
        port = free_ports(1)
        moved = {"/models/DeepSeek-V4-Pro": str(self.model), "8888": str(port), "0.0.0.0": "127.0.0.1"}
        return Server(self.process(*(moved.get(word, word) for word in argv[1:]), fail=fail), port, 0)

    def load(self, url: str, asked: Point, *more: str) -> dict[str, Any]:
        argv = vllm_bench.service(asked, placement(), endpoint=url).argv
        moved = {RESULTS: str(self.folder), "/models/DeepSeek-V4-Pro": str(self.model)}
        done = self.process(*(moved.get(word, word) for word in argv[1:]), *more)
        assert done.wait() == 0, done.text
        found: dict[str, Any] = json.loads((self.folder / f"{asked.id}.json").read_text())
        return found


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    sat = Desk(tmp_path)
    yield sat
    for process in sat.running:
        process.stop()


def small(**changes: Any) -> Point:
    return point(4, **{"isl": 64, "osl": 16, "prompts": 12, "warmups": 4, **changes})


# --- flags --------------------------------------------------------------------------------------------------------


ARTEFACTS = {"--json-arg", "--json-arg.key1", "--json-arg.key2.key3", "--json-arg.key4"}
"""Examples in vLLM's help that look like options, and are none."""


@pytest.mark.parametrize(
    ("name", "flags"), [("vllm-serve-0.22.0", SERVE_FLAGS), ("vllm-bench-serve-0.22.0", BENCH_FLAGS)]
)
def test_flag_tables_are_the_registered_ones(name: str, flags: list[Flag]) -> None:
    registered = interop.flags(name)
    ours = {spelling: flag for flag in flags for spelling in flag.names}
    twins = {"--no-" + flag.names[0].removeprefix("--") for flag in flags if flag.kind == "bool"}
    assert {*ours, *twins, "-h", "--help"} == set(registered) - ARTEFACTS
    for spelling, flag in ours.items():
        # A list of choices left no mark in that table; a switch's twin shows that it is one.
        assert flag.takes_value or not registered[spelling], spelling


def test_an_unknown_flag_exits_2(desk: Desk) -> None:
    for words in (("serve", "x", "--server-port", "1"), ("bench", "serve", "--use-chat-template"), ("benchmark",)):
        process = desk.process(*words)
        assert process.wait() == 2
        assert "error: " in process.text


def test_what_fleet_plans_is_accepted() -> None:
    taken = serve.parser().parse_args(server(arm(dp_attn=True, ep=8)).argv[2:])
    assert (taken.model_tag, taken.served_model_name, taken.port) == ("/models/DeepSeek-V4-Pro", [NAME], 8888)
    assert (taken.tensor_parallel_size, taken.data_parallel_size, taken.enable_expert_parallel) == (1, 8, True)
    assert taken.speculative_config == {"method": "mtp", "num_speculative_tokens": 2}
    assert (taken.async_scheduling, taken.enable_prefix_caching, taken.max_model_len) == (True, False, 9472)
    asked = vllm_bench.service(point(), placement(), endpoint="http://127.0.0.1:1").argv
    args = make_parser("x", BENCH_FLAGS).parse_args(asked[3:])
    assert (args.random_input_len, args.random_range_ratio, args.temperature) == (7373, "0.111", 0.0)


# --- metrics ------------------------------------------------------------------------------------------------------


def names(text: str) -> set[str]:
    return {re.split(r"[{ ]", line)[0] for line in text.splitlines() if line and not line.startswith("#")}


def test_metrics_are_all_of_vllms_and_no_other() -> None:
    captured = names(interop.path("captured/vllm-metrics-names.txt").read_text())
    engine = Engine(Shape(), Acceptance(2), 8)
    assert names(metrics_text(engine, "m", 0)) == captured
    plain = names(metrics_text(Engine(Shape(), Acceptance(), 8), "m", 0))
    assert plain == {name for name in captured if "spec_decode" not in name}


def test_acceptance_by_position_adds_up() -> None:
    engine = Engine(Shape(), Acceptance(2), 8)
    engine.counters.steps = {0: 5, 1: 3, 2: 2}
    engine.counters.drafted, engine.counters.accepted = 20, 7
    text = metrics_text(engine, "m", 0)
    found = re.findall(r'accepted_tokens_per_pos_total\{.*position="(\d)"\} (\S+)', text)
    assert found == [("0", "5.0"), ("1", "2.0")]
    assert vllm.counters(text).steps == 10


# --- server -------------------------------------------------------------------------------------------------------


def test_a_server_tells_what_readiness_asks(desk: Desk) -> None:
    up = desk.server().ready()
    assert up.json("/version") == {"version": "0.22.0"}
    assert up.json("/v1/models")["data"][0]["id"] == NAME
    text = up.process.text
    told = [next(i for i, line in enumerate(text.splitlines()) if re.search(p, line)) for p, _ in vllm.PROGRESS[:3]]
    assert told == sorted(told)
    assert not any(re.search(pattern, text) for pattern in vllm.FATAL)


def test_the_counters_are_live(desk: Desk) -> None:
    up = desk.server(depth=2).ready()
    result = desk.load(up.url, small())
    counted = vllm.counters(up.get("/metrics")[1])
    assert counted.finished == 16
    first = result["output_lens"][0]
    assert counted.generated_tokens == result["total_output_tokens"] + 4 * first
    assert counted.steps
    assert counted.accepted


def test_start_failures(desk: Desk) -> None:
    for fail, text in (
        ("oom-at-start", "Engine core initialization failed. See root cause above"),
        ("nonsense", "FLEET_DOUBLE_FAIL"),
    ):
        broken = desk.server(fail=fail).process
        assert broken.wait() == 1
        assert text in broken.text
    gone = desk.process("serve", str(desk.folder / "nothing"))
    assert gone.wait() == 1
    assert any(re.search(pattern, gone.text) for pattern in vllm.FATAL)


def test_a_dead_engine_fails_health(desk: Desk) -> None:
    up = desk.server(fail="core-dies-after=1").ready()
    assert up.get("/health")[0] == 200
    assert up.complete(model=NAME, tokens=1)[0] == 200
    assert up.get("/health")[0] == 503
    dead = [line for line in up.process.text.splitlines() if line.startswith("ERROR")]
    assert [pattern for line in dead for pattern in vllm.FATAL if re.search(pattern, line)] == [
        "EngineCore encountered a fatal error", "Engine core proc .* died unexpectedly", "EngineDeadError"
    ]  # fmt: skip
    assert up.complete(model=NAME, tokens=1)[0] == 500


# --- load client --------------------------------------------------------------------------------------------------


def test_the_result_has_the_real_keys(desk: Desk) -> None:
    up = desk.server(depth=2).ready()
    result = desk.load(up.url, small())
    captured = json.loads(interop.path("captured/vllm-bench-serve.bench1.json").read_text())
    details = {"input_lens", "output_lens", "errors", "ttfts", "itls", "generated_texts"}
    percents = {f"p99.9_{name}_ms" for name in ("ttft", "tpot", "itl", "e2el")}
    wanted = {name for name in captured if not name.startswith("p50_")} - {"conc"}
    assert set(result) == wanted | details | percents
    assert (result["model_id"], result["completed"], result["failed"]) == (NAME, 12, 0)
    low, high = vllm_bench.drawn(small()).output
    assert all(low <= length <= high for length in result["output_lens"])
    assert 1 < result["spec_decode_acceptance_length"] <= 3
    assert 0 < result["spec_decode_acceptance_rate"] <= 100
    assert len(result["spec_decode_per_position_acceptance_rates"]) == 2


def test_the_server_frames_chat_prompts_and_accepts_them_well(desk: Desk) -> None:
    up = desk.server(depth=2).ready()
    framed = desk.load(up.url, small(arm="framed"))
    raw = desk.load(up.url, small(arm="raw", chat=False))
    assert framed["spec_decode_acceptance_length"] > 1.6 > 1.4 > raw["spec_decode_acceptance_length"]


def test_without_speculation_there_are_no_acceptance_fields(desk: Desk) -> None:
    result = desk.load(desk.server().ready().url, small(chat=False))
    assert not any(name.startswith("spec_decode") for name in result)


def test_the_exit_code_is_0_though_every_request_failed(desk: Desk) -> None:
    result = desk.load(f"http://127.0.0.1:{free_ports(1)}", small())
    found = vllm_bench.parse(result)
    assert (found.completed, found.requested, result["failed"]) == (0, 12, 12)
    assert sum(found.errors.values()) == 12


def test_a_ready_check_would_be_one_request_more(desk: Desk) -> None:
    up = desk.server().ready()
    desk.load(up.url, small(chat=False), "--ready-check-timeout-sec", "5")
    assert vllm.counters(up.get("/metrics")[1]).finished == 17


def test_lengths_are_the_same_for_a_seed() -> None:
    args = make_parser("x", BENCH_FLAGS).parse_args(["--random-range-ratio", "0.111", "--num-prompts", "9"])
    assert client.make_prompts(args) == client.make_prompts(args)


def test_mtp_wins_when_few_run_and_loses_when_many_do() -> None:
    gain = {n: tokens_per_second(n, Shape(), 2) / tokens_per_second(n, Shape()) for n in (1, 4, 8, 16, 64, 512)}
    assert gain[1] > gain[4] > gain[8] > 1
    assert gain[64] < 1
    assert gain[512] < gain[64]
