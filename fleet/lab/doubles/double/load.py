"""What load clients share: a closed loop over HTTP with streaming answers, measured times, and their statistics."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from typing import Any

from double.http import request_bytes, take_stream
from double.numpy_random import NumpyRandom

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


def token_text(first: int, size: int) -> str:
    """So many words in a row, each a token."""
    return " ".join([f"t{(first + j) % VOCABULARY}" for j in range(size)])


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
    """Sends prompts to one URL. body: the JSON that asks for one of them, with the model's name."""

    def __init__(self, args: argparse.Namespace, body: Callable[[Prompt, str], dict[str, Any]]) -> None:
        self.args = args
        self._body = body
        self.url: str = args.base_url or f"http://{args.host}:{args.port}"
        self.model: str = args.served_model_name or args.model
        self.gate = asyncio.Semaphore(args.max_concurrency or 1_000_000)
        self.finished = 0

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
        asked = json.dumps(self._body(prompt, self.model), ensure_ascii=False).encode()
        request = request_bytes(self.url, "POST", self.args.endpoint, asked, fields)
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


def details(outcomes: list[Outcome]) -> dict[str, Any]:
    return {
        "input_lens": [one.prompt_tokens for one in outcomes],
        "output_lens": [one.output_tokens if one.success else 0 for one in outcomes],
        "ttfts": [one.ttft for one in outcomes],
        "itls": [one.itl for one in outcomes],
        "generated_texts": [one.text for one in outcomes],
        "errors": [one.error for one in outcomes],
    }


def latencies(args: argparse.Namespace, good: list[Outcome]) -> dict[str, float]:
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
    """The result file, without per-request lists unless they are asked for."""
    kept = {name: value for name, value in result.items() if args.save_detailed or name not in DETAILS}
    rate = "inf" if args.request_rate == float("inf") else args.request_rate
    limit = f"-concurrency{args.max_concurrency}" if args.max_concurrency else ""
    default = f"{args.backend}-{rate}qps{limit}-{Path(args.model).name}-{result['date']}.json"
    path = Path(args.result_dir or ".") / (args.result_filename or default)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept))
