"""vLLM's own load client, `vllm bench serve`: closed loop, streaming.

STP points go to the completions endpoint with raw prompts, MTP points to the chat endpoint, where the server frames.
The client draws lengths from [⌊m (1 - r)⌋, ⌈m (1 + r)⌉] around a mean m (tokenizer's special tokens apart), one r for
inputs and outputs. It exits 0 however many requests failed: the verdict is by what it counted, and by the servers.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor
from typing import Any

from fleet.loads import client
from fleet.loads.result import measurement
from fleet.model.arm import Arm, Point
from fleet.model.evidence import Drawn, Measurement
from fleet.model.part import Help, Part
from fleet.model.seat import Placement
from fleet.model.service import Service

FRAMEWORKS = ("vllm",)
NAME = "vllm bench serve"

ORIGINS = client.ORIGINS | {
    "--backend": "vllm for raw prompts (public recipe), openai-chat where the server frames them",
    "--base-url": "the plan's only server",
    "--endpoint": "public recipe: /v1/completions; MTP points: /v1/chat/completions, which frames as the model asks",
    "--model": "config: model; the served name",
    "--tokenizer": "config: model, below /models",
    "--trust-remote-code": "public recipe: for the tokenizer",
    "--dataset-name": "public recipe: random",
    "--random-input-len": "config: isl (or the trial's), as the mean of the public bounds",
    "--random-output-len": "config: osl (or the trial's), as the mean of the public bounds",
    "--random-range-ratio": "public recipe: 0.8, lengths from [0.8 L, L]; here ± around the mean",
    "--num-prompts": "public recipe: 10 × concurrency (or the trial's)",
    "--num-warmups": "public recipe: 2 × concurrency",
    "--max-concurrency": "config: conc",
    "--request-rate": "public recipe: inf",
    "--seed": "public recipe: 0",
    "--temperature": "public recipe: 0 (without the flag the server's own default holds)",
    "--ignore-eos": "public recipe: outputs as long as asked",
    "--ready-check-timeout-sec": "fleet: 0, no request that nobody asked for; readiness is proven before",
}


Ends = tuple[int, int]


@dataclass(frozen=True)
class Means:
    """What to ask of the client for one point: mean lengths in tokens, and the ratio ± around both."""

    input: int
    output: int
    ratio: float


def service(point: Point, placement: Placement, *, endpoint: str) -> Service:
    arm = placement.arm
    argv = (
        "vllm", "bench", "serve", *_target(point, endpoint),
        "--model", arm.model, "--tokenizer", arm.model_path, "--trust-remote-code",
        *_dataset(point),
        "--ready-check-timeout-sec", "0",
        *client.pressure(point),
        *client.reporting(point),
    )  # fmt: skip
    return client.service(argv, placement, ORIGINS)


def parts(service: Service, arm: Arm) -> tuple[Part, ...]:
    return (Part("program", "vllm", "the load client"),)


def manual(service: Service) -> Help:
    """`--help` alone lists groups of flags only."""
    return Help(service.argv[:3], ask="--help=all", loose=True)


result_path = client.result_path


def parse(raw: dict[str, Any]) -> Measurement:
    """Raises KeyError or ValueError if the result is not this client's."""
    return measurement(raw)


def drawn(point: Point) -> Drawn:
    asked = means(point)
    return Drawn(
        client=NAME,
        input=bounds(asked.input, asked.ratio),
        output=bounds(asked.output, asked.ratio),
        public_sequence=False,
    )


def deviations(arm: Arm) -> tuple[str, ...]:
    found = [
        "the load comes from vLLM's own client (public: the benchmark's own program)",
        "it draws lengths ± around a mean: the public bounds to a token, and another sequence than the public one",
    ]
    if arm.depth:
        found.append("the server frames MTP prompts, on the chat endpoint (public: the client, on the completions one)")
    return tuple(found)


def means(point: Point) -> Means:
    """The shortest ratio, and with it the means, that come nearest to the public bounds of both lengths.

    The client's bounds lie evenly around a whole mean, so where the public ones add up to an odd number they are met at
    one end and missed by a token at the other.
    """
    wanted = [(int(length * point.range_ratio), length) for length in (point.isl, point.osl)]
    ideal = (1 - point.range_ratio) / (1 + point.range_ratio)
    tried = [_means(wanted, round(ideal, digits)) for digits in range(3, 7)]
    return min(tried, key=lambda found: _worst(found, wanted))


def bounds(mean: int, ratio: float) -> tuple[int, int]:
    """What the client draws from, both ends included."""
    return max(1, floor(mean * (1 - ratio))), ceil(mean * (1 + ratio))


def _means(wanted: list[Ends], ratio: float) -> Means:
    inputs, outputs = (_mean(ends, ratio) for ends in wanted)
    return Means(inputs, outputs, ratio)


def _mean(wanted: Ends, ratio: float) -> int:
    middle = sum(wanted)
    return min((middle + 1) // 2, middle // 2, key=lambda mean: _miss(mean, ratio, wanted))


def _miss(mean: int, ratio: float, wanted: Ends) -> int:
    return max(abs(found - end) for found, end in zip(bounds(mean, ratio), wanted, strict=True))


def _worst(found: Means, wanted: list[Ends]) -> int:
    return max(_miss(found.input, found.ratio, wanted[0]), _miss(found.output, found.ratio, wanted[1]))


def _target(point: Point, endpoint: str) -> list[str]:
    backend, path = ("openai-chat", "/v1/chat/completions") if point.chat else ("vllm", "/v1/completions")
    return ["--backend", backend, "--base-url", endpoint, "--endpoint", path]


def _dataset(point: Point) -> list[str]:
    asked = means(point)
    return [
        "--dataset-name", "random",
        "--random-input-len", str(asked.input), "--random-output-len", str(asked.output),
        "--random-range-ratio", str(asked.ratio), "--seed", str(point.seed),
        "--temperature", "0", "--ignore-eos",
    ]  # fmt: skip
