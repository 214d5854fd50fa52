"""The engine doubles as local processes on loopback: command lines, relay, load client, failures on demand."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import atomesh
import pytest
from atom.benchmarks import benchmark_serving
from atom.benchmarks.bench_flags import BENCH_FLAGS
from atom.entrypoints.metrics import metrics_text, mtp_stats
from atom.entrypoints.server_flags import SERVER_FLAGS
from double.engine import Engine
from double.failures import START_ERRORS, Failures
from double.flags import Flag, make_parser
from double.load import statistics
from double.numpy_random import NumpyRandom
from double.rates import Acceptance, Shape, prefill_seconds, step_seconds, tokens_per_second

from fleet.engines import atom
from fleet.loads import atom_bench
from fleet.routers import atomesh as fleet_router
from tests import build, interop
from tests.ports import free_ports

ROOT = Path(__file__).parents[2]
DOUBLES = ROOT / "fleet" / "lab" / "doubles"
SERVER = ("-m", "atom.entrypoints.openai_server")
BENCH = ("-m", "atom.benchmarks.benchmark_serving")
ROUTER = (str(DOUBLES / "atomesh.py"), "launch")
MTP3 = ("--method", "mtp", "--num-speculative-tokens", "3")
DEADLINE = 20.0


# ---------------------------------------------------------------------------------------------------- processes


class Process:
    """A double that runs; its output is in a file."""

    def __init__(self, argv: tuple[str, ...], log: Path, fail: str = "", **extra: str) -> None:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FLEET_DOUBLE")},
            "PYTHONPATH": str(DOUBLES),
            "ATOM_HOST_IP": "127.0.0.1",
            "FLEET_DOUBLE_START_SECONDS": "0.05",
            "FLEET_DOUBLE_SPEED": "4",
            "FLEET_DOUBLE_FAIL": fail,
            **extra,
        }
        self.log = log
        with log.open("wb") as sink:
            self.popen = subprocess.Popen(
                [sys.executable, "-S", *argv],
                stdout=sink,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
            )

    @property
    def text(self) -> str:
        return self.log.read_text()

    def wait(self) -> int:
        return self.popen.wait(DEADLINE)

    def until(self, true: Callable[[], bool]) -> None:
        """Wait for a condition; the process may not end before."""
        deadline = time.monotonic() + DEADLINE
        while not true():
            assert self.popen.poll() is None, self.text
            assert time.monotonic() < deadline, self.text
            time.sleep(0.02)

    def stop(self) -> int:
        if self.popen.poll() is None:
            self.popen.terminate()
        try:
            return self.popen.wait(5)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            raise


class Bench:
    """Starts doubles and stops them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = folder / "DeepSeek-V4-Pro"
        self.model.mkdir()
        self.running: list[Process] = []

    def process(self, *argv: str, fail: str = "", **extra: str) -> Process:
        started = Process(argv, self.folder / f"{len(self.running)}.log", fail, **extra)
        self.running.append(started)
        return started

    def server(self, role: str = "", *argv: str, fail: str = "", handshake: int = 0, **extra: str) -> Server:
        port = free_ports(2)
        handshake = handshake or free_ports(2)
        kv = {"kv_connector": "mooncake", "kv_role": f"kv_{role}", "handshake_port": handshake}
        words = ["--model", str(self.model), "--host", "127.0.0.1", "--server-port", str(port), "--port", str(port + 1)]
        words += ["-tp", "2", *(["--kv-transfer-config", json.dumps(kv)] if role else []), *argv]
        return Server(self.process(*SERVER, *words, fail=fail, **extra), port, handshake)

    def router(self, prefills: list[Server], decodes: list[Server], *argv: str) -> Server:
        port = free_ports(2)
        words = ["--host", "127.0.0.1", "--port", str(port), "--prometheus-host", "127.0.0.1"]
        words += ["--prometheus-port", str(port + 1), "--pd-disaggregation", "--backend", "atom", "--policy", "random"]
        words += [word for one in prefills for word in ("--prefill", one.url, "none")]
        words += [word for one in decodes for word in ("--decode", one.url)]
        return Server(self.process(*ROUTER, *words, *argv), port, 0)

    def pair(self, *argv: str, prefill_fail: str = "", decode_fail: str = "") -> tuple[Server, Server, Server]:
        """Prefill, decode and router; ready."""
        prefill = self.server("producer", *argv, fail=prefill_fail)
        decode = self.server("consumer", *argv, fail=decode_fail)
        router = self.router([prefill], [decode], "--retry-max-retries", "1")
        router.ready("/readiness")
        return prefill, decode, router

    def load(self, url: str, *argv: str) -> dict[str, Any]:
        """Run the load client; its result file."""
        words = ["--backend", "openai", "--base-url", url, "--model", str(self.model), "--dataset-name", "random"]
        words += ["--random-input-len", "64", "--random-output-len", "16", "--random-range-ratio", "0.8"]
        words += ["--num-prompts", "8", "--max-concurrency", "4", "--ignore-eos", "--save-result"]
        words += ["--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "90,99,99.9"]
        words += ["--result-dir", str(self.folder), "--result-filename", "result.json", *argv]
        client = self.process(*BENCH, *words)
        assert client.wait() == 0, client.text
        result: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return result

    def stop(self) -> None:
        for process in reversed(self.running):
            process.stop()


class Server:
    """A double that serves HTTP."""

    def __init__(self, process: Process, port: int, handshake: int) -> None:
        self.process = process
        self.port = port
        self.handshake = handshake
        self.url = f"http://127.0.0.1:{port}"

    def ready(self, path: str = "/health") -> Server:
        self.process.until(lambda: self.get(path)[0] == 200)
        return self

    def get(self, path: str) -> tuple[int, str]:
        return self.ask(path, None)

    def ask(self, path: str, body: Any, timeout: float = DEADLINE) -> tuple[int, str]:
        """Status and text; 0 where nothing listens or the answer breaks off."""
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, data), timeout=timeout) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except (urllib.error.URLError, ConnectionError):
            return 0, ""

    def json(self, path: str, body: Any = None) -> Any:
        status, text = self.ask(path, body)
        assert status == 200, text
        return json.loads(text)

    def complete(self, prompt: str = "a b c", tokens: int = 8, **more: Any) -> tuple[int, Any]:
        status, text = self.ask("/v1/completions", {"prompt": prompt, "max_tokens": tokens, **more})
        return status, json.loads(text or "{}")

    def metric(self, name: str) -> float:
        found = re.search(rf"^atom:{re.escape(name)} (\S+)$", self.get("/metrics")[1], re.M)
        assert found, name
        return float(found[1])


@contextmanager
def a_bench(folder: Path) -> Iterator[Bench]:
    bench = Bench(folder)
    try:
        yield bench
    finally:
        bench.stop()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with a_bench(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def mtp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bench, Server, Server, Server]]:
    """1P1D with draft depth 3, shared by the tests that break nothing."""
    with a_bench(tmp_path_factory.mktemp("mtp")) as made:
        yield made, *made.pair(*MTP3, "--max-model-len", "200")


# ---------------------------------------------------------------------------------------------------- command lines


def registered(path: Path) -> list[tuple[tuple[str, ...], str]]:
    """Names and the rest of each line of an interop flag file."""
    lines = (line for line in path.read_text().splitlines() if line.strip())
    return [
        (tuple(re.findall(r"(?<!\S)--?[a-z][\w-]*", line.partition("#")[0].partition("[also")[0])), line)
        for line in lines
    ]


def described(flag: Flag) -> str:
    """What an interop line says of a flag, from ours."""
    mark = {"?": " [VALUE]", "+": " VALUE…"}.get(flag.kind[-1], " VALUE")
    return " ".join(flag.names) + (mark if flag.takes_value else "")


@pytest.mark.parametrize(
    ("name", "flags"), [("flags/atom-server.ffdf3bb.txt", SERVER_FLAGS), ("flags/atom-bench.ffdf3bb.txt", BENCH_FLAGS)]
)
def test_flag_tables_are_the_registered_ones(name: str, flags: list[Flag]) -> None:
    lines = registered(interop.path(name))
    assert [flag.names for flag in flags] == [names for names, _ in lines]
    for flag, (_, line) in zip(flags, lines, strict=True):
        assert re.split(r"\s+(?:#|\[also|choices|default|required)", line)[0] == described(flag)
        assert ("[also --no-…]" in line) == (flag.kind == "bool")
        if literal := re.search(r"choices (\[.*?\])", line):
            assert list(flag.choices) == json.loads(literal[1].replace("'", '"')), line
        if (
            (default := re.search(r"default (\S.*)$", line))
            and not default[1].isupper()
            and "DEFAULT" not in default[1]
        ):
            assert repr(flag.default) == default[1].replace("float('inf')", "inf"), line


@pytest.mark.parametrize("program", [(*SERVER, "--model", "x"), (*BENCH, "--model", "x"), ROUTER])
def test_an_unknown_flag_exits_2(program: tuple[str, ...], bench: Bench) -> None:
    process = bench.process(*program, "--speculative-config", "{}")
    assert process.wait() == 2
    assert "unrecognized arguments: --speculative-config" in process.text


def test_the_server_takes_both_spellings_and_prefixes() -> None:
    parser = make_parser("x", SERVER_FLAGS, both_spellings=True)
    args = parser.parse_args(
        ["--kv-cache-dtype", "fp8", "--server_port", "1", "--no-enable-prefix-caching", "-tp", "8"]
    )
    assert (args.kv_cache_dtype, args.server_port, args.enable_prefix_caching) == ("fp8", 1, False)
    assert (args.tensor_parallel_size, args.enable_tbo, args.port) == (8, None, 8006)
    assert parser.parse_args(["--gpu-mem", "0.5", "--enable-tbo"]).gpu_memory_utilization == 0.5
    assert parser.parse_args(["--enable-tbo"]).enable_tbo == "prefill"
    assert parser.parse_args(["--index_cache_dtype", "fp4"]).index_cache_dtype == "fp4"


@pytest.mark.parametrize("words", [["--kv_cache_dtype", "int4"], ["--block-size", "x"], ["--method", "eagle"]])
def test_the_server_refuses_wrong_values(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        make_parser("x", SERVER_FLAGS).parse_args(words)
    assert ended.value.code == 2


def test_what_fleet_plans_is_accepted() -> None:
    for arm in (build.arm(2, dpa=True, depth=3), build.arm(1, dpa=False, depth=0)):
        placed = build.placement(arm)
        servers = [
            atom.service(seat, placed, build.OPTIONS) for seat in placed.seats if seat.role in ("prefill", "decode")
        ]
        for planned in servers:
            assert planned.argv[:3] == ("python3", *SERVER)
            make_parser("x", SERVER_FLAGS).parse_args(planned.argv[3:])
        planned = fleet_router.service(placed, servers)
        assert planned.argv[:2] == ("/usr/local/bin/atomesh", "launch")
        rest, workers = atomesh.split_workers(planned.argv[2:])
        make_parser("x", atomesh.FLAGS).parse_args(rest)
        assert len(workers) == len(servers)
        load = atom_bench.service(build.point(), placed, endpoint="http://a:1")
        assert load.argv[:3] == ("python3", *BENCH)
        make_parser("x", BENCH_FLAGS).parse_args(load.argv[3:])


def test_router_workers_are_split_off_by_hand() -> None:
    words = [
        "--port",
        "1",
        "--prefill",
        "http://a:1",
        "none",
        "--prefill",
        "http://b:1",
        "8998",
        "--decode",
        "http://c:1/",
    ]
    rest, workers = atomesh.split_workers(words)
    assert rest == ["--port", "1"]
    assert [(one.kind, one.url, one.bootstrap) for one in workers] == [
        ("prefill", "http://a:1", None),
        ("prefill", "http://b:1", 8998),
        ("decode", "http://c:1", None),
    ]
    with pytest.raises(ValueError, match="--decode needs a URL"):
        atomesh.split_workers(["--decode", "--port", "1"])


def test_a_misspelt_failure_is_refused() -> None:
    with pytest.raises(ValueError, match="oom-afer"):
        Failures("oom-afer=3")
    with pytest.raises(ValueError, match="no-accept=1"):
        Failures("no-accept=1")
    asked = Failures("exit-after=3:7, no-accept")
    assert (asked.number("exit-after"), asked.code("exit-after"), "no-accept" in asked) == (3, 7, True)


# ---------------------------------------------------------------------------------------------------- pure models


def test_speculation_wins_when_few_run_and_loses_when_many_do() -> None:
    shape = Shape()
    gain = {n: tokens_per_second(n, shape, 3) / tokens_per_second(n, shape) for n in range(1, 129)}
    assert gain[1] > 1.3
    assert gain[8] > 1.1
    assert 16 <= next(n for n in gain if gain[n] < 1) <= 32
    assert gain[64] < 0.85
    assert all(a > b for a, b in zip(gain.values(), list(gain.values())[1:], strict=False))


def test_raw_prompts_make_speculation_a_loss() -> None:
    assert all(tokens_per_second(n, Shape(), 3, framed=False) < tokens_per_second(n, Shape()) for n in (1, 8, 64))


def test_dp_attention_pays_off_at_high_concurrency_only() -> None:
    dpa, tp = Shape(dp_attention=True), Shape()
    assert step_seconds(1, dpa) > step_seconds(1, tp)
    assert step_seconds(256, dpa) < step_seconds(256, tp)


def test_rates_scale_with_gpus_and_speed() -> None:
    assert step_seconds(4, Shape(tp=2)) == pytest.approx(2 * step_seconds(4, Shape(tp=8)))
    assert prefill_seconds(1000, Shape(speed=4)) == pytest.approx(0.003)


def test_acceptance_lengths() -> None:
    assert Acceptance(3).length(framed=True) == pytest.approx(2.6, abs=0.05)
    assert Acceptance(3).length(framed=False) == pytest.approx(1.1, abs=0.01)
    assert Acceptance(0).length(framed=True) == 1
    assert Acceptance(3, forced=2.5).length(framed=False) == 2.5


async def decode_all(engine: Engine, jobs: int, tokens: int, framed: bool = True) -> tuple[list[int], int]:
    """Run sequences to their end; tokens each emitted, and the most that ran at once."""
    emitted, most = [0] * jobs, 0

    def emit_into(index: int) -> Callable[[int, bool], bool]:
        def emit(count: int, last: bool) -> bool:
            nonlocal most
            most = max(most, len(engine.running))
            emitted[index] += count
            assert last == (emitted[index] == tokens)
            return True

        return emit

    core = asyncio.ensure_future(engine.run())
    await asyncio.gather(*(engine.decode(tokens, framed, emit_into(index)) for index in range(jobs)))
    core.cancel()
    return emitted, most


@pytest.mark.parametrize(("forced", "expected"), [(None, 2.6), (2.5, 2.5), (1.0, 1.0), (4.0, 4.0)])
def test_mtp_counters_are_the_tokens_streamed(forced: float | None, expected: float) -> None:
    engine = Engine(Shape(speed=1000), Acceptance(3, forced), 8)
    emitted, _ = asyncio.run(decode_all(engine, jobs=8, tokens=400))
    counters = engine.counters
    assert emitted == [400] * 8
    assert sum((1 + k) * steps for k, steps in counters.steps.items()) == 3200
    assert sum(k * steps for k, steps in counters.steps.items()) == counters.accepted
    assert counters.drafted == 3 * counters.decode_steps
    assert counters.tokens_per_forward == pytest.approx(expected, rel=0.05)
    assert mtp_stats(engine)["average_tokens_per_forward"] == counters.tokens_per_forward


def test_max_num_seqs_limits_what_runs() -> None:
    emitted, most = asyncio.run(decode_all(Engine(Shape(speed=1000), Acceptance(), 3), jobs=7, tokens=9))
    assert emitted == [9] * 7
    assert most == 3


def names_in(text: str) -> dict[str, str]:
    return dict(line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE"))


def test_metrics_are_all_of_atoms_and_no_other() -> None:
    listed = dict(
        line.split() for line in interop.path("captured/atom-metrics-names.ffdf3bb.txt").read_text().splitlines()
    )
    for depth in (0, 3):
        assert names_in(metrics_text(Engine(Shape(), Acceptance(depth), 8), 0, 0.0)) == listed


def test_mtp_metrics_are_zero_without_speculation() -> None:
    text = metrics_text(Engine(Shape(), Acceptance(), 8), 0, 0.0)
    assert "atom:mtp_draft_tokens_total 0.0" in text
    assert "accepted_tokens=" not in text


@pytest.mark.parametrize(
    ("count", "outputs", "sums"),
    [
        (40, [1012, 828, 1004, 946, 851, 850], (294050, 36805)),
        (2560, [983, 991, 932, 1019, 930, 985], (18877524, 2360454)),
    ],
)
def test_lengths_are_the_public_benchmarks(count: int, outputs: list[int], sums: tuple[int, int]) -> None:
    draw = NumpyRandom(0)
    first, second = draw.randint(6553, 8193, count), draw.randint(819, 1025, count)
    assert first[:6] == [7237, 7112, 7769, 7388, 7316, 7936]
    assert second[:6] == outputs
    assert (sum(first), sum(second)) == sums


def test_percentiles_interpolate() -> None:
    found = statistics("ttft", [0.001, 0.002, 0.003, 0.004], [90.0, 99.9])
    assert {name: round(value, 9) for name, value in found.items()} == {
        "mean_ttft_ms": 2.5,
        "median_ttft_ms": 2.5,
        "std_ttft_ms": 1.118033989,
        "p90_ttft_ms": 3.7,
        "p99.9_ttft_ms": 3.997,
    }


# ---------------------------------------------------------------------------------------------------- relay


def test_the_router_relays_a_stream(mtp: tuple[Bench, Server, Server, Server]) -> None:
    _, prefill, decode, router = mtp
    before = [server.metric("requests_finished_total") for server in (prefill, decode)]
    ask = {"prompt": "a b c", "max_tokens": 9, "stream": True, "stream_options": {"include_usage": True}}
    status, text = router.ask("/v1/completions", ask)
    assert status == 200
    events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    assert events.pop() == "[DONE]"
    chunks = [json.loads(event) for event in events]
    assert chunks[-1]["usage"] == {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12}
    words = "".join(chunk["choices"][0]["text"] for chunk in chunks if chunk["choices"]).split()
    assert words == [f"w{n}" for n in range(9)]
    after = [server.metric("requests_finished_total") for server in (prefill, decode)]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1]


def test_chat_is_framed_and_accepted_well_raw_prompts_are_not(mtp: tuple[Bench, Server, Server, Server]) -> None:
    _, prefill, decode, router = mtp

    def length(run: Callable[[], Any]) -> float:
        before = decode.json("/debug/mtp_stats")
        run()
        after = decode.json("/debug/mtp_stats")
        steps = sum(after["distribution"].values()) - sum(before["distribution"].values())
        assert after["total_draft_tokens"] - before["total_draft_tokens"] == 3 * steps
        return 1 + float(after["total_accepted_tokens"] - before["total_accepted_tokens"]) / steps

    said = {"messages": [{"role": "user", "content": "a b"}], "max_tokens": 120}
    assert 2.1 < length(lambda: router.json("/v1/chat/completions", said)) < 3.1
    assert 1.0 <= length(lambda: router.complete(tokens=120)) < 1.3
    assert prefill.metric("mtp_draft_tokens_total") == 0


def test_decode_refuses_what_no_prefill_prepared(mtp: tuple[Bench, Server, Server, Server]) -> None:
    _, _, decode, _ = mtp
    for params in (
        None,
        {},
        {"do_remote_prefill": True},
        {"do_remote_prefill": True, "remote_host": "h", "transfer_id": 1},
    ):
        status, answer = decode.complete(kv_transfer_params=params)
        assert status == 400
        assert "kv_transfer_params" in answer["error"]["message"]


def test_a_pair_can_be_driven_by_hand_and_a_transfer_serves_once(mtp: tuple[Bench, Server, Server, Server]) -> None:
    _, prefill, decode, _ = mtp
    _, answer = prefill.complete(tokens=1, kv_transfer_params={"do_remote_decode": True})
    params = answer["kv_transfer_params"]
    assert params["remote_host"] == "127.0.0.1"
    assert params["remote_handshake_port"] == prefill.handshake
    assert decode.complete(tokens=5, kv_transfer_params=params)[1]["usage"]["completion_tokens"] == 5
    assert decode.complete(tokens=5, kv_transfer_params=params)[0] == 500
    assert "[CONSUMER] transfer failed for req" in decode.process.text
    assert "[PRODUCER] transfer failed for req" in prefill.process.text


def test_info_pages(mtp: tuple[Bench, Server, Server, Server]) -> None:
    made, prefill, decode, router = mtp
    assert prefill.json("/kv_transfer_info") == {
        "tp_size": 2,
        "dp_size": 1,
        "kv_role": "kv_producer",
        "handshake_port": prefill.handshake,
    }
    assert decode.json("/kv_transfer_info")["kv_role"] == "kv_consumer"
    for server in (prefill, decode, router):
        assert server.json("/v1/models")["data"][0]["id"] == str(made.model)
    assert router.json("/readiness") == {"status": "ready", "healthy_workers": 2, "total_workers": 2}
    shown = router.json("/workers")["workers"]
    assert [(w["url"], w["worker_type"], w["is_healthy"]) for w in shown] == [
        (prefill.url, "prefill", True),
        (decode.url, "decode", True),
    ]
    assert router.get("/metrics")[0] == 404
    assert router.get("/debug/mtp_stats")[0] == 404
    assert f'atom:requests_running{{worker_addr="{decode.url}"}} 0.0' in router.get("/engine_metrics")[1]
    with urllib.request.urlopen(f"http://127.0.0.1:{router.port + 1}/metrics", timeout=5) as answer:
        assert f'mesh_worker_health{{worker="{decode.url}"}} 1' in answer.read().decode()


def test_what_is_too_long_is_the_prefills_error(mtp: tuple[Bench, Server, Server, Server]) -> None:
    _, prefill, _, router = mtp
    assert prefill.complete("a " * 150, 60)[0] == 400
    status, answer = router.complete("a " * 250)
    assert status == 400
    assert answer["error"]["code"] == "prefill_error"


def test_a_router_refuses_a_prefill_that_is_none(mtp: tuple[Bench, Server, Server, Server]) -> None:
    made, _, decode, _ = mtp
    router = made.router([decode], [decode])
    assert router.process.wait() == 1
    assert "expected 'kv_producer'" in router.process.text


def test_a_router_binds_http_only_when_all_workers_answer(bench: Bench) -> None:
    prefill = bench.server("producer").ready()
    decode = bench.server("consumer", fail="hang-before-ready")
    router = bench.router([prefill], [decode])
    router.process.until(lambda: "registered prefill" in router.process.text)
    assert router.get("/health")[0] == 0
    assert decode.get("/health")[0] == 0


def test_a_router_gives_up_waiting_and_says_so(bench: Bench) -> None:
    parser = make_parser("x", atomesh.FLAGS)
    args = parser.parse_args(["--pd-disaggregation", "--worker-startup-timeout-secs", str(-int(atomesh.STARTUP_SLACK))])
    workers = [atomesh.Worker(f"http://127.0.0.1:{free_ports(1)}", "prefill")]
    with pytest.raises(ValueError, match="no prefill worker"):
        asyncio.run(atomesh.Router(args, workers).register())


def test_missing_kv_params_and_a_dead_decode_are_502(bench: Bench) -> None:
    prefill, _, router = bench.pair(prefill_fail="no-kv-params")
    status, answer = router.complete()
    assert (status, answer["error"]["code"]) == (502, "prefill_missing_kv_transfer_params")
    assert "kv_transfer_params" not in prefill.complete(kv_transfer_params={"do_remote_decode": True}, tokens=1)[1]


def test_a_dead_worker_is_seen_by_health_checks_and_by_requests(bench: Bench) -> None:
    prefill, decode, other = bench.server("producer"), bench.server("consumer"), bench.server("consumer")
    checks = ("--health-check-interval-secs", "1", "--health-failure-threshold", "1", "--disable-retries")
    router = bench.router([prefill], [decode, other], *checks).ready("/readiness")
    decode.process.popen.kill()
    codes = set()
    while len(codes) < 2 and router.json("/readiness")["healthy_workers"] == 3:
        status, answer = router.complete(tokens=1)
        codes.add((status, answer.get("error", {}).get("code")))
    assert codes <= {(200, None), (502, "decode_server_error")}
    router.process.until(lambda: router.json("/readiness")["healthy_workers"] == 2)
    assert router.json("/readiness")["status"] == "ready"
    assert router.complete(tokens=1)[0] == 200


# ---------------------------------------------------------------------------------------------------- load client


RAW_KEYS = set(
    """date backend model_id tokenizer_id best_of num_prompts request_rate burstiness max_concurrency duration
    benchmark_start_time_unix benchmark_end_time_unix completed total_input_tokens total_output_tokens
    request_throughput request_goodput: output_throughput total_token_throughput input_lens output_lens""".split()  # noqa: SIM905
) | {f"{s}_{m}_ms" for s in ("mean", "median", "std", "p90", "p99", "p99.9") for m in ("ttft", "tpot", "itl", "e2el")}


def test_the_keys_are_those_of_a_captured_result() -> None:
    assert set(json.loads(interop.path("captured/raw-bench.2p1d.json").read_text())) == RAW_KEYS


def test_the_client_writes_the_real_result(mtp: tuple[Bench, Server, Server, Server]) -> None:
    made, _, decode, router = mtp
    before = decode.metric("generation_tokens_total")
    result = made.load(router.url, "--save-detailed", "--use-chat-template", "--num-warmups", "3")
    assert set(result) == RAW_KEYS | {"concurrency", "ttfts", "itls", "generated_texts", "errors"}
    assert (result["completed"], result["num_prompts"], result["request_rate"]) == (8, 8, "inf")
    assert result["request_goodput:"] is None
    draw = NumpyRandom(0)
    inputs, outputs = draw.randint(48, 61, 8), draw.randint(12, 17, 8)
    assert result["input_lens"] == [size + 4 for size in inputs]
    assert result["output_lens"] == outputs
    assert [len(text.split()) for text in result["generated_texts"]] == outputs
    assert result["total_output_tokens"] == sum(outputs)
    assert decode.metric("generation_tokens_total") - before == sum(outputs) + 3 * outputs[0]
    assert result["errors"] == [""] * 8
    assert all(len(gaps) < size for gaps, size in zip(result["itls"], outputs, strict=True))
    assert 0 < result["mean_ttft_ms"] < result["mean_e2el_ms"]
    assert result["p99.9_e2el_ms"] >= result["p90_e2el_ms"]


def test_without_details_lists_are_dropped(mtp: tuple[Bench, Server, Server, Server]) -> None:
    made, _, _, router = mtp
    result = made.load(router.url, "--percentile-metrics", "ttft")
    assert not set(result) & {"input_lens", "output_lens", "errors", "ttfts", "itls", "generated_texts"}
    assert "mean_ttft_ms" in result
    assert "mean_tpot_ms" not in result


def test_acceptance_fields_come_from_the_server_itself(bench: Bench) -> None:
    server = bench.server("", *MTP3, "--spec-decode-acceptance-rate", "1").ready()
    result = bench.load(server.url)
    assert result["accept_length"] == pytest.approx(4, abs=0.8)
    assert result["acceptance_rate"] == pytest.approx(1, abs=0.3)


def test_prompts_count_the_same_on_both_sides(mtp: tuple[Bench, Server, Server, Server]) -> None:
    args = make_parser("x", BENCH_FLAGS).parse_args(
        ["--model", "m", "--random-input-len", "40", "--num-prompts", "5", "--use-chat-template"]
    )
    for prompt in benchmark_serving.make_prompts(args):
        assert prompt.tokens == 40
        answer = mtp[3].complete(prompt.text, 1)[1]
        assert answer["usage"]["prompt_tokens"] == 40


# ---------------------------------------------------------------------------------------------------- failures


def test_failed_requests_do_not_fail_the_client(bench: Bench) -> None:
    server = bench.server("", fail="core-dies-after=4").ready()
    result = bench.load(server.url, "--save-detailed", "--num-warmups", "1")
    assert 3 <= result["completed"] < 8
    failed = [error for error in result["errors"] if error]
    assert len(failed) == 8 - result["completed"]
    assert all("Engine core is dead" in error for error in failed)
    assert result["output_lens"].count(0) == len(failed)
    assert server.get("/health")[0] == 200
    assert "proc died unexpectedly (exitcode=-9)" in server.process.text


def test_answers_that_break_off_are_failures(bench: Bench) -> None:
    server = bench.server("", fail="exit-after=3", FLEET_DOUBLE_SPEED="1").ready()
    result = bench.load(server.url, "--save-detailed", "--num-warmups", "0")
    assert 3 <= result["completed"] < 8
    failed = [error for error in result["errors"] if error]
    assert len(failed) == 8 - result["completed"]
    draw = NumpyRandom(0)
    _, outputs = draw.randint(51, 65, 8), draw.randint(12, 17, 8)
    for asked, came, error in zip(outputs, result["output_lens"], result["errors"], strict=True):
        assert came == (0 if error else asked)
    expected = ("Response payload is not completed", "Server disconnected", "Connection")
    assert all(error.startswith(expected) for error in failed), failed


def test_short_output(bench: Bench) -> None:
    server = bench.server("", fail="short-output=5").ready()
    result = bench.load(server.url, "--save-detailed")
    assert result["completed"] == 8
    assert result["output_lens"] == [5] * 8


@pytest.mark.parametrize(
    ("fail", "second", "code", "text"),
    [
        ("oom-after=2", 0, 1, "HIP out of memory. Tried to allocate"),
        ("exit-after=2:7", 200, 7, "proc died unexpectedly (exitcode=7)"),
    ],
)
def test_a_server_that_ends_under_load(bench: Bench, fail: str, second: int, code: int, text: str) -> None:
    server = bench.server("", fail=fail).ready()
    assert [server.complete()[0], server.complete()[0]] == [200, second]
    assert server.process.wait() == code
    assert text in server.process.text


def test_a_stalled_request_holds_nobody_else(bench: Bench) -> None:
    server = bench.server("", fail="stall-request=2").ready()
    assert server.complete()[0] == 200
    with pytest.raises(TimeoutError):
        server.ask("/v1/completions", {"prompt": "a", "max_tokens": 1}, timeout=0.5)
    assert server.complete()[0] == 200


def test_no_accept(bench: Bench) -> None:
    server = bench.server("", *MTP3, fail="no-accept").ready()
    server.complete(tokens=20)
    assert server.metric("generation_tokens_total") == 20
    assert server.metric("mtp_draft_tokens_total") == server.metric("mtp_accepted_tokens_total") == 0


def test_a_failed_transfer_is_logged_though_the_retry_hides_it(bench: Bench) -> None:
    prefill, decode, router = bench.pair(prefill_fail="fail-transfer=1")
    assert router.complete()[0] == 200
    assert prefill.metric("requests_finished_total") == 2
    assert decode.metric("requests_finished_total") == 1
    assert "[PRODUCER] transfer failed for req" in prefill.process.text
    assert "[CONSUMER] transfer failed for req" in decode.process.text


def test_transfers_that_hang_are_logged_and_never_answered(bench: Bench) -> None:
    prefill, decode, router = bench.pair(prefill_fail="hang-transfers=2")
    assert router.complete()[0] == 200
    with pytest.raises(TimeoutError):
        router.ask("/v1/completions", {"prompt": "a", "max_tokens": 1}, timeout=1)
    assert re.search(r"\[PRODUCER\] RDMA chunk error for req cmpl-\d+", prefill.process.text)
    assert decode.metric("requests_finished_total") == 1
    assert (decode.metric("requests_parked_kv_load"), decode.metric("requests_running")) == (1, 0)


def test_a_core_that_hangs_logs_it_and_answers_nobody_any_more(bench: Bench) -> None:
    server = bench.server("", fail="core-hangs-after=1").ready()
    assert server.complete()[0] == 200
    with pytest.raises(TimeoutError):
        server.ask("/v1/completions", {"prompt": "a", "max_tokens": 1}, timeout=0.5)
    assert server.get("/health")[0] == 200
    assert "proc died unexpectedly (exitcode=-9), shutting down." in server.process.text


@pytest.mark.parametrize("kind", sorted(START_ERRORS))
def test_start_errors_are_lines_that_explain_a_death(kind: str) -> None:
    known = atom.TRANSFER_ERRORS if kind == "handshake" else atom.FATAL
    assert any(re.search(pattern, START_ERRORS[kind]) for pattern in known)


def test_a_prefill_that_is_gone_fails_the_transfer(bench: Bench) -> None:
    decode = bench.server("consumer").ready()
    params = {"do_remote_prefill": True, "remote_host": "127.0.0.1", "remote_port": free_ports(1), "transfer_id": 1}
    assert decode.complete(kv_transfer_params=params)[0] == 500
    assert "[CONSUMER] transfer failed for req cmpl-1" in decode.process.text


def test_start_failures_and_milestones(bench: Bench) -> None:
    first = bench.server("producer").ready()
    clash = bench.server("consumer", handshake=first.handshake + 1)
    http = bench.server("", "--server-port", str(first.port))
    engine = bench.server("", "--port", str(first.port + 1))
    oom = bench.server("", fail="oom-at-start")
    missing = bench.server("", "--model", "/nowhere/model")
    connector = bench.process(*SERVER, "--model", str(bench.model), "--kv-transfer-config", '{"kv_connector": "nixl"}')
    broken = bench.process(*SERVER, "--model", str(bench.model), "--kv-transfer-config", "{kv_role")
    draft = bench.server("", *MTP3, "--draft-model", "x")
    for process, text in (
        (clash.process, f"Address already in use (addr='tcp://*:{first.handshake + 1}')"),
        (http.process, f"('127.0.0.1', {first.port}): address already in use"),
        (engine.process, f"Address already in use (addr='tcp://*:{first.port + 1}')"),
        (oom.process, "HIP out of memory. Tried to allocate"),
        (missing.process, "OSError: Incorrect path_or_model_id: '/nowhere/model'"),
        (connector, "Unsupported connector: nixl. Available: moriio, mooncake, multi"),
        (broken, "not valid JSON"),
        (draft.process, "--draft-model is not supported with --method mtp"),
    ):
        assert process.wait() == 1, process.text
        assert text in process.text
    places = [
        first.process.text.find(text)
        for text in (
            "Loading tokenizer from",
            "Initializing engine with model",
            "Engine kwargs:",
            "Memory budget: total_gpu=",
            "All EngineCores are fully initialized and ready",
            f"Starting server on 127.0.0.1:{first.port} (loop=",
            "Server started successfully and ready to accept requests",
        )
    ]
    assert places == sorted(places)
    assert places[0] >= 0


def test_metrics_may_lag_as_the_real_ones_do(bench: Bench) -> None:
    server = bench.server("", FLEET_DOUBLE_METRICS_REFRESH="60").ready()
    assert server.metric("requests_finished_total") == 0
    server.complete()
    assert server.metric("requests_finished_total") == 0


def test_told_to_stop_they_end_well_and_at_once(bench: Bench) -> None:
    prefill, decode, router = bench.pair()
    begun = time.monotonic()
    for server, sign in ((router, signal.SIGTERM), (decode, signal.SIGINT), (prefill, signal.SIGTERM)):
        server.process.popen.send_signal(sign)
    assert [server.process.wait() for server in (router, decode, prefill)] == [0, 0, 0]
    assert time.monotonic() - begun < 5
