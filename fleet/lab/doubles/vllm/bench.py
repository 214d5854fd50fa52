"""Double of vLLM's load client: `vllm bench serve`.

The load is real: a closed loop over HTTP with streaming answers and measured times, lengths ± around a mean, and the
result file of the real client. What is left out is the tokenizer: a word counts as a token. The exit code is 0 however
many requests failed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sys
import time
from collections.abc import Callable, Sequence
from math import ceil, floor
from typing import Any

from double.flags import make_parser
from double.http import call
from double.load import VOCABULARY, Client, Outcome, Prompt, details, latencies, report, save, token_text

from vllm.bench_flags import BENCH_FLAGS

PROGRAM = "vllm bench serve"
COMPLETIONS = ("vllm", "openai")
CHAT = "openai-chat"
COUNTED = ("drafts", "draft_tokens", "accepted_tokens")


def make_prompts(args: argparse.Namespace) -> list[Prompt]:
    """The run's prompts; for a seed always the same ones, though not numpy's."""
    dice, ratio = random.Random(args.seed), float(args.random_range_ratio)
    inputs = _lengths(dice, args.random_input_len, ratio, args.num_prompts)
    outputs = _lengths(dice, args.random_output_len, ratio, args.num_prompts)
    offsets = [dice.randrange(VOCABULARY) for _ in range(args.num_prompts)]
    return [
        Prompt(token_text(offset + index, size), size, out)
        for index, (offset, size, out) in enumerate(zip(offsets, inputs, outputs, strict=True))
    ]


def _lengths(dice: random.Random, mean: int, ratio: float, count: int) -> list[int]:
    low, high = max(1, floor(mean * (1 - ratio))), ceil(mean * (1 + ratio))
    return [dice.randint(low, high) for _ in range(count)]


def body(args: argparse.Namespace) -> Callable[[Prompt, str], dict[str, Any]]:
    """What the client asks for one prompt."""

    def made(prompt: Prompt, model: str) -> dict[str, Any]:
        asked: dict[str, Any] = {"model": model, "stream": True, "stream_options": {"include_usage": True}}
        if args.backend == CHAT:
            parts = [{"type": "text", "text": prompt.text}]
            asked |= {"messages": [{"role": "user", "content": parts}], "max_completion_tokens": prompt.output_tokens}
        else:
            asked |= {"prompt": prompt.text, "max_tokens": prompt.output_tokens, "logprobs": args.logprobs}
        if args.temperature is not None:
            asked["temperature"] = args.temperature
        return asked | ({"ignore_eos": True} if args.ignore_eos else {})

    return made


def summary(args: argparse.Namespace, outcomes: list[Outcome], seconds: float) -> dict[str, Any]:
    """Throughput and latency of the measured requests."""
    good = [outcome for outcome in outcomes if outcome.success]
    total_in, total_out = sum(one.prompt_tokens for one in good), sum(one.output_tokens for one in good)
    return {
        "duration": seconds,
        "completed": len(good),
        "failed": len(outcomes) - len(good),
        "total_input_tokens": total_in,
        "total_output_tokens": total_out,
        "request_throughput": len(good) / seconds,
        "request_goodput": None,
        "output_throughput": total_out / seconds,
        "total_token_throughput": (total_in + total_out) / seconds,
        **details(outcomes),
        "max_output_tokens_per_s": total_out / seconds,
        "max_concurrent_requests": min(len(outcomes), args.max_concurrency or len(outcomes)),
        "rtfx": 0.0,
        **latencies(args, good),
    }


def identity(args: argparse.Namespace) -> dict[str, Any]:
    rate = args.request_rate
    return {
        "date": time.strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": args.backend,
        "backend": args.backend,
        "label": args.label,
        "model_id": args.model,
        "tokenizer_id": args.tokenizer or args.model,
        "num_prompts": args.num_prompts,
        **dict(item.split("=", 1) for item in args.metadata or () if "=" in item),
        "request_rate": rate if rate < float("inf") else "inf",
        "burstiness": args.burstiness,
        "max_concurrency": args.max_concurrency,
    }


async def drafts(client: Client) -> dict[str, float]:
    """The server's speculation counters by short name, positions included; empty where it shows none."""
    try:
        text = (await call(client.url, "GET", "/metrics")).body.decode()
    except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
        return {}
    pattern = r'^vllm:spec_decode_num_(\w+)_total\{.*?(?:position="(\d+)")?\} (\S+)$'
    return {name + place: float(value) for name, place, value in re.findall(pattern, text, re.MULTILINE)}


def acceptance(before: dict[str, float], after: dict[str, float]) -> dict[str, Any]:
    """The spec_decode_* fields: rates of drafts in percent, of positions from 0 to 1."""
    moved = {name: after[name] - before[name] for name in after if name in before}
    if not moved.get("draft_tokens"):
        return {}
    places = sorted(name for name in moved if name.startswith("accepted_tokens_per_pos"))
    return {
        "spec_decode_acceptance_rate": 100 * moved["accepted_tokens"] / moved["draft_tokens"],
        "spec_decode_acceptance_length": 1 + moved["accepted_tokens"] / moved["drafts"],
        **{f"spec_decode_{'num_' * (name == 'drafts')}{name}": int(moved[name]) for name in COUNTED},
        "spec_decode_per_position_acceptance_rates": [moved[name] / moved["drafts"] for name in places],
    }


async def bench(args: argparse.Namespace) -> dict[str, Any]:
    """Warm up, measure, and put the result together. Raises ValueError if the ready check fails."""
    prompts = make_prompts(args)
    client = Client(args, body(args))
    print("Starting initial single prompt test run...", flush=True)
    if args.ready_check_timeout_sec > 0:
        (tested,) = await client.run(prompts[:1])
        if not tested.success:
            raise ValueError(f"Initial test run failed - {tested.error}")
    else:
        print("Skipping endpoint ready check.", flush=True)
    if args.num_warmups:
        print(f"Warming up with {args.num_warmups} requests...", flush=True)
        await client.run(prompts[:1] * args.num_warmups)
    print("Starting main benchmark run...", flush=True)
    print(f"Traffic request rate: {args.request_rate}", flush=True)
    print(f"Maximum request concurrency: {args.max_concurrency}", flush=True)
    before, begun = await drafts(client), time.perf_counter()
    outcomes = await client.run(prompts)
    measured = summary(args, outcomes, time.perf_counter() - begun)
    speculation = acceptance(before, await drafts(client))
    times = {name: measured.pop(name) for name in list(measured) if name.endswith("_ms")}
    return identity(args) | measured | speculation | times


def main(argv: Sequence[str]) -> int:
    parser = make_parser(PROGRAM, BENCH_FLAGS, both_spellings=True)
    args = parser.parse_args(argv)
    if args.backend not in (*COMPLETIONS, CHAT):
        parser.error(f"argument --backend: invalid choice: {args.backend!r}")
    if not 0 <= float(args.random_range_ratio) < 1:
        print("ValueError: range_ratio must be in [0, 1).", file=sys.stderr)
        return 1
    if args.backend == CHAT and not args.endpoint.endswith("chat/completions"):
        print("ValueError: OpenAI Chat API URL must end with one of: ('chat/completions',)", file=sys.stderr)
        return 1
    if args.dataset_name != "random":
        print(f"ValueError: Unknown dataset: {args.dataset_name}", file=sys.stderr)
        return 1
    try:
        result = asyncio.run(bench(args))
    except ValueError as error:
        print(f"ValueError: {error}", file=sys.stderr)
        return 1
    report(args, result)
    if args.save_result:
        save(args, result)
    return 0
