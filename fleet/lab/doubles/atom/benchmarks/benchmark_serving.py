"""Double of ATOM's load client: `python3 -m atom.benchmarks.benchmark_serving`.

The load is real: a closed loop over HTTP with streaming answers and measured times, the lengths of the public benchmark
(numpy's sequence for the seed) and the result file of the real client. What is left out is the tokenizer: a word counts
as a token. The exit code is 0 however many requests failed, unless the client itself cannot run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from typing import Any

from double.flags import make_parser
from double.http import call, request_bytes, take_stream
from double.numpy_random import NumpyRandom

from atom.benchmarks.bench_flags import BENCH_FLAGS

PROGRAM = "benchmark_serving.py"
TEMPLATE = ("<｜begin▁of▁sentence｜> <｜User｜> ", " <｜Assistant｜> <think>")
TEMPLATE_TOKENS = 4
VOCABULARY = 129_280
REQUEST_TIMEOUT = 6 * 3600.0
DETAILS = ("ttfts", "itls", "generated_texts", "errors", "input_lens", "output_lens")


@dataclass(frozen=True)
class Prompt:
    text: str
    tokens: int
    output_tokens: int


@dataclass
class Outcome:
    """One request as the client saw it; times in seconds."""

    success: bool = False
    error: str = ""
    text: str = ""
    prompt_tokens: int = 0
    output_tokens: int = 0
    ttft: float = 0.0
    latency: float = 0.0
    itl: list[float] = field(default_factory=list)


def make_prompts(args: argparse.Namespace) -> list[Prompt]:
    """The run's prompts: draws in the real client's order (input lengths, output lengths, offsets)."""
    frame = TEMPLATE_TOKENS if args.use_chat_template else 0
    draw = NumpyRandom(args.seed)
    most = args.random_input_len - frame
    inputs = draw.randint(int(most * args.random_range_ratio), most + 1, args.num_prompts)
    longest = args.random_output_len
    outputs = draw.randint(int(longest * args.random_range_ratio), longest + 1, args.num_prompts)
    offsets = draw.randint(0, VOCABULARY, args.num_prompts)
    texts = (_text(offset + index, size) for index, (offset, size) in enumerate(zip(offsets, inputs, strict=True)))
    if frame:
        texts = (text.join(TEMPLATE) for text in texts)
    return [
        Prompt(text, size + args.random_prefix_len + frame, out)
        for text, size, out in zip((_prefixed(args, text) for text in texts), inputs, outputs, strict=True)
    ]


def _text(first: int, size: int) -> str:
    return " ".join([f"t{(first + j) % VOCABULARY}" for j in range(size)])


def _prefixed(args: argparse.Namespace, text: str) -> str:
    prefix: str = "t0 " * args.random_prefix_len
    return prefix + text


class Reading:
    """Takes one streamed answer apart as it arrives: server-sent events, of which each is one HTTP chunk."""

    def __init__(self, outcome: Outcome, begun: float) -> None:
        self.outcome = outcome
        self.begun = self.last = begun
        self.status = b""
        self.whole = False
        self.words: list[str] = []
        self._rest = b""

    def head(self, raw: bytes) -> None:
        self.status = raw.split(b"\r\n", 1)[0].split(b" ", 1)[1]

    def data(self, piece: bytes) -> None:
        now = time.perf_counter()
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if not self.status.startswith(b"200"):
            self._rest = self._rest or b"\n".join(lines)
            return
        for line in lines:
            if line.startswith(b"data: {"):
                self._event(json.loads(line[6:]), now)
            elif line == b"0\r":
                self.whole = True

    def _event(self, event: dict[str, Any], now: float) -> None:
        outcome = self.outcome
        if choices := event.get("choices"):
            if outcome.ttft:
                outcome.itl.append(now - self.last)
            else:
                outcome.ttft = now - self.begun
            self.last = now
            self.words.append(choices[0].get("text") or choices[0].get("delta", {}).get("content") or "")
        if usage := event.get("usage"):
            outcome.output_tokens = usage["completion_tokens"]

    def close(self) -> None:
        """The connection has ended: judge what came. An answer that breaks off is a failure, a short one is none."""
        outcome = self.outcome
        outcome.latency = self.last - self.begun
        outcome.text = "".join(self.words)
        outcome.output_tokens = outcome.output_tokens or len(outcome.text.split())
        if not self.status:
            outcome.error = "Server disconnected"
        elif not self.status.startswith(b"200"):
            outcome.error = f"{self.status.decode()}: {self._rest.decode('utf-8', 'replace')[:300]}"
        elif not self.whole:
            outcome.error = "Response payload is not completed"
        elif not outcome.ttft:
            outcome.error = "Never received a valid chunk to calculate TTFT."
        outcome.success = not outcome.error


class Client:
    """Sends prompts to one URL."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.url: str = args.base_url or f"http://{args.host}:{args.port}"
        self.model: str = args.served_model_name or args.model
        self.gate = asyncio.Semaphore(args.max_concurrency or 1_000_000)
        self.finished = 0

    def body(self, prompt: Prompt) -> bytes:
        chat = self.args.backend == "openai-chat"
        said = {"messages": [{"role": "user", "content": prompt.text}]} if chat else {"prompt": prompt.text}
        asked = {
            "model": self.model,
            **said,
            "temperature": 0.0,
            "best_of": self.args.best_of,
            "max_tokens": prompt.output_tokens,
            "logprobs": self.args.logprobs,
            "stream": True,
            "stream_options": {"include_usage": True},
            "ignore_eos": self.args.ignore_eos,
        }
        return json.dumps(asked, ensure_ascii=False).encode()

    async def send(self, prompt: Prompt) -> Outcome:
        """One request within the concurrency limit; the clock starts when its turn comes."""
        async with self.gate:
            outcome = Outcome(prompt_tokens=prompt.tokens)
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT):
                    await self._talk(prompt, outcome)
            except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError) as error:
                outcome.success, outcome.error = False, repr(error)
        self.finished += 1
        return outcome

    async def _talk(self, prompt: Prompt, outcome: Outcome) -> None:
        fields = {
            "content-type": "application/json",
            "authorization": f"Bearer {os.environ.get('OPENAI_API_KEY')}",
        }
        request = request_bytes(self.url, "POST", self.args.endpoint, self.body(prompt), fields)
        answer = Reading(outcome, time.perf_counter())
        await take_stream(self.url, request, answer.head, answer.data)
        answer.close()

    async def run(self, prompts: list[Prompt]) -> list[Outcome]:
        """All of them, in a closed loop or, with a finite --request-rate, as they arrive."""
        if self.args.request_rate == float("inf"):
            return await self._gather([self.send(prompt) for prompt in prompts])
        draw, tasks = NumpyRandom(self.args.seed), []
        for prompt, word in zip(prompts, draw.randint(0, 1 << 20, len(prompts)), strict=True):
            tasks.append(asyncio.ensure_future(self.send(prompt)))
            await asyncio.sleep(2 * word / (1 << 20) / self.args.request_rate)
        return await asyncio.gather(*tasks)

    async def _gather(self, jobs: list[Coroutine[Any, Any, Outcome]]) -> list[Outcome]:
        ticker = asyncio.ensure_future(self._tick(len(jobs)))
        try:
            return await asyncio.gather(*jobs)
        finally:
            ticker.cancel()

    async def _tick(self, total: int) -> None:
        begun, start = time.perf_counter(), self.finished
        while not self.args.disable_tqdm:
            await asyncio.sleep(1)
            done = self.finished - start
            print(f"{done}/{total} [{time.perf_counter() - begun:.0f}s]", file=sys.stderr, flush=True)


def percentile(ordered: list[float], percent: float) -> float:
    """Linear interpolation between closest ranks, as numpy's default."""
    if not ordered:
        return 0.0
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def statistics(name: str, values: list[float], percents: list[float]) -> dict[str, float]:
    """mean, median, std and percentiles in ms of values in seconds; zeros where there are none."""
    ordered = sorted(value * 1000 for value in values)
    mean = sum(ordered) / len(ordered) if ordered else 0.0
    spread = sqrt(sum((value - mean) ** 2 for value in ordered) / len(ordered)) if ordered else 0.0
    fields = {f"mean_{name}_ms": mean, f"median_{name}_ms": percentile(ordered, 50), f"std_{name}_ms": spread}
    for percent in percents:
        text = str(int(percent)) if int(percent) == percent else str(percent)
        fields[f"p{text}_{name}_ms"] = percentile(ordered, percent)
    return fields


def summary(args: argparse.Namespace, outcomes: list[Outcome], seconds: float) -> dict[str, Any]:
    """Throughput and latency of the measured requests."""
    good = [outcome for outcome in outcomes if outcome.success]
    total_in, total_out = sum(one.prompt_tokens for one in good), sum(one.output_tokens for one in good)
    rates = {
        "duration": seconds,
        "completed": len(good),
        "total_input_tokens": total_in,
        "total_output_tokens": total_out,
        "request_throughput": len(good) / seconds,
        "request_goodput:": None,
        "output_throughput": total_out / seconds,
        "total_token_throughput": (total_in + total_out) / seconds,
    }
    return rates | _details(outcomes) | _latencies(args, good)


def _details(outcomes: list[Outcome]) -> dict[str, Any]:
    return {
        "input_lens": [one.prompt_tokens for one in outcomes],
        "output_lens": [one.output_tokens if one.success else 0 for one in outcomes],
        "ttfts": [one.ttft for one in outcomes],
        "itls": [one.itl for one in outcomes],
        "generated_texts": [one.text for one in outcomes],
        "errors": [one.error for one in outcomes],
    }


def _latencies(args: argparse.Namespace, good: list[Outcome]) -> dict[str, float]:
    samples = {
        "ttft": [one.ttft for one in good],
        "tpot": [(one.latency - one.ttft) / (one.output_tokens - 1) for one in good if one.output_tokens > 1],
        "itl": [gap for one in good for gap in one.itl],
        "e2el": [one.latency for one in good],
    }
    percents = [float(text) for text in args.metric_percentiles.split(",")]
    fields: dict[str, float] = {}
    for name in args.percentile_metrics.split(","):
        fields |= statistics(name, samples[name], percents)
    return fields


def identity(args: argparse.Namespace) -> dict[str, Any]:
    rate = args.request_rate
    return {
        "date": time.strftime("%Y%m%d-%H%M%S"),
        "backend": args.backend,
        "model_id": args.model,
        "tokenizer_id": args.tokenizer or args.model,
        "best_of": args.best_of,
        "num_prompts": args.num_prompts,
        **dict(item.split("=", 1) for item in args.metadata or () if "=" in item),
        "request_rate": rate if rate < float("inf") else "inf",
        "burstiness": args.burstiness,
        "max_concurrency": args.max_concurrency,
        "concurrency": args.max_concurrency,
    }


async def acceptance(client: Client) -> dict[str, float]:
    """accept_length and acceptance_rate from the server's /debug/mtp_stats; nothing where there is none (a router)."""
    try:
        stats = (await call(client.url, "GET", "/debug/mtp_stats")).json()
        if stats.get("enabled"):
            rate = stats["acceptance_rate"]
            return {"accept_length": stats["average_tokens_per_forward"], "acceptance_rate": rate}
    except (OSError, TimeoutError, ValueError, KeyError, AttributeError, asyncio.IncompleteReadError):
        pass
    return {}


async def bench(args: argparse.Namespace) -> dict[str, Any]:
    """Warm up, measure, and put the result together."""
    prompts = make_prompts(args)
    client = Client(args)
    if args.num_warmups:
        print(f"Warming up with {args.num_warmups} requests...", flush=True)
        await client.run(prompts[:1] * args.num_warmups)
    print("Starting main benchmark run...", flush=True)
    print(f"Traffic request rate: {args.request_rate}", flush=True)
    print(f"Maximum request concurrency: {args.max_concurrency}", flush=True)
    unix, begun = time.time(), time.perf_counter()
    outcomes = await client.run(prompts)
    seconds = time.perf_counter() - begun
    window = {"benchmark_start_time_unix": unix, "benchmark_end_time_unix": unix + seconds}
    return identity(args) | window | summary(args, outcomes, seconds) | await acceptance(client)


def report(args: argparse.Namespace, result: dict[str, Any]) -> None:
    """The table at the end."""
    print(f"{' Serving Benchmark Result ':=^50}")
    for label, name in (
        ("Successful requests:", "completed"),
        ("Benchmark duration (s):", "duration"),
        ("Total input tokens:", "total_input_tokens"),
        ("Total generated tokens:", "total_output_tokens"),
        ("Request throughput (req/s):", "request_throughput"),
        ("Output token throughput (tok/s):", "output_throughput"),
        ("Total Token throughput (tok/s):", "total_token_throughput"),
        *((f"Mean {name.upper()} (ms):", f"mean_{name}_ms") for name in args.percentile_metrics.split(",")),
    ):
        value = result[name]
        print(f"{label:<40} {value:<10}" if isinstance(value, int) else f"{label:<40} {value:<10.2f}")
    print("=" * 50, flush=True)


def save(args: argparse.Namespace, result: dict[str, Any]) -> None:
    kept = {name: value for name, value in result.items() if args.save_detailed or name not in DETAILS}
    rate = "inf" if args.request_rate == float("inf") else args.request_rate
    limit = f"-concurrency{args.max_concurrency}" if args.max_concurrency else ""
    default = f"{args.backend}-{rate}qps{limit}-{Path(args.model).name}-{result['date']}.json"
    path = Path(args.result_dir or ".") / (args.result_filename or default)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept))


def main(argv: Sequence[str]) -> int:
    parser = make_parser(PROGRAM, BENCH_FLAGS)
    args = parser.parse_args(argv)
    if args.dataset_name != "random":
        print(f"ValueError: Unknown dataset: {args.dataset_name}", file=sys.stderr)
        return 1
    if unknown := set(args.percentile_metrics.split(",")) - {"ttft", "tpot", "itl", "e2el"}:
        parser.error(f"unknown metrics: {', '.join(sorted(unknown))}")
    result = asyncio.run(bench(args))
    report(args, result)
    if args.save_result:
        save(args, result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
