"""Double of ATOM's load client: `python3 -m atom.benchmarks.benchmark_serving`.

The load is real: a closed loop over HTTP with streaming answers and measured times, the lengths of the public benchmark
(numpy's sequence for the seed) and the result file of the real client. What is left out is the tokenizer: a word counts
as a token. The exit code is 0 however many requests failed, unless the client itself cannot run.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from double.flags import make_parser
from double.http import call
from double.load import VOCABULARY, Client, Outcome, Prompt, details, latencies, report, save, token_text
from double.numpy_random import NumpyRandom

from atom.benchmarks.bench_flags import BENCH_FLAGS

PROGRAM = "benchmark_serving.py"
TEMPLATE = ("<｜begin▁of▁sentence｜> <｜User｜> ", " <｜Assistant｜> <think>")
TEMPLATE_TOKENS = 4


def make_prompts(args: argparse.Namespace) -> list[Prompt]:
    """The run's prompts: draws in the real client's order (input lengths, output lengths, offsets)."""
    frame = TEMPLATE_TOKENS if args.use_chat_template else 0
    draw = NumpyRandom(args.seed)
    most = args.random_input_len - frame
    inputs = draw.randint(int(most * args.random_range_ratio), most + 1, args.num_prompts)
    longest = args.random_output_len
    outputs = draw.randint(int(longest * args.random_range_ratio), longest + 1, args.num_prompts)
    offsets = draw.randint(0, VOCABULARY, args.num_prompts)
    texts = (token_text(offset + index, size) for index, (offset, size) in enumerate(zip(offsets, inputs, strict=True)))
    if frame:
        texts = (text.join(TEMPLATE) for text in texts)
    return [
        Prompt(text, size + args.random_prefix_len + frame, out)
        for text, size, out in zip((_prefixed(args, text) for text in texts), inputs, outputs, strict=True)
    ]


def _prefixed(args: argparse.Namespace, text: str) -> str:
    prefix: str = "t0 " * args.random_prefix_len
    return prefix + text


def body(args: argparse.Namespace) -> Callable[[Prompt, str], dict[str, Any]]:
    """What the client asks for one prompt."""

    def made(prompt: Prompt, model: str) -> dict[str, Any]:
        chat = args.backend == "openai-chat"
        said = {"messages": [{"role": "user", "content": prompt.text}]} if chat else {"prompt": prompt.text}
        return {
            "model": model,
            **said,
            "temperature": 0.0,
            "best_of": args.best_of,
            "max_tokens": prompt.output_tokens,
            "logprobs": args.logprobs,
            "stream": True,
            "stream_options": {"include_usage": True},
            "ignore_eos": args.ignore_eos,
        }

    return made


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
    return rates | details(outcomes) | latencies(args, good)


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
    client = Client(args, body(args))
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
