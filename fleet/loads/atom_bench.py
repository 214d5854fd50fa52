"""ATOM's own load client, `python3 -m atom.benchmarks.benchmark_serving`: closed loop, streaming, temperature 0 always.

It has the public client's flags and JSON. Lengths are drawn from [int(ratio × L), L].
"""

from __future__ import annotations

from typing import Any

from fleet.loads import client
from fleet.loads.result import measurement
from fleet.model.arm import Arm, Point
from fleet.model.evidence import Drawn, Measurement
from fleet.model.part import Help, Part
from fleet.model.seat import Placement
from fleet.model.service import Service

FRAMEWORKS = ("atom-disagg", "atom")
NAME = "atom.benchmarks.benchmark_serving"

ORIGINS = client.ORIGINS | {
    "--backend": "ATOM's default: plain /v1/completions (public: openai, the same request function)",
    "--base-url": "the plan's router, or its only server",
    "--endpoint": "public recipe: /v1/completions",
    "--model": "config: model; the served name, and the tokenizer's folder",
    "--trust-remote-code": "public recipe: for the tokenizer",
    "--dataset-name": "public recipe: random",
    "--random-input-len": "config: isl (or the trial's)",
    "--random-output-len": "config: osl (or the trial's)",
    "--random-range-ratio": "public recipe: 0.8, lengths from [0.8 L, L]",
    "--num-prompts": "public recipe: 10 × concurrency, at least 16 when disaggregated (or the trial's)",
    "--num-warmups": "public recipe: 2 × concurrency",
    "--max-concurrency": "config: conc",
    "--request-rate": "public recipe: inf",
    "--seed": "public recipe: 0",
    "--ignore-eos": "public recipe: outputs as long as asked",
    "--use-chat-template": "public recipe: MTP points send chat-framed prompts, STP points raw ones",
}


def service(point: Point, placement: Placement, *, endpoint: str) -> Service:
    arm = placement.arm
    argv = (
        "python3", "-m", NAME,
        "--backend", "vllm", "--base-url", endpoint, "--endpoint", "/v1/completions",
        "--model", arm.model_path, "--trust-remote-code",
        *_dataset(point),
        *client.pressure(point),
        *client.reporting(point),
    )  # fmt: skip
    return client.service(argv, placement, ORIGINS)


def parts(service: Service, arm: Arm) -> tuple[Part, ...]:
    return (Part("module", NAME, "the load client"),)


def manual(service: Service) -> Help:
    return Help(service.argv[:3])


result_path = client.result_path


def parse(raw: dict[str, Any]) -> Measurement:
    """Raises KeyError or ValueError if the result is not this client's."""
    return measurement(raw)


def drawn(point: Point) -> Drawn:
    least = {length: int(length * point.range_ratio) for length in (point.isl, point.osl)}
    return Drawn(
        client=NAME,
        input=(max(1, least[point.isl]), point.isl),
        output=(max(1, least[point.osl]), point.osl),
        public_sequence=True,
    )


def deviations(arm: Arm) -> tuple[str, ...]:
    return ("the load comes from ATOM's own client (public: its own copy of the same program)",)


def _dataset(point: Point) -> list[str]:
    argv = ["--dataset-name", "random", "--random-input-len", str(point.isl), "--random-output-len", str(point.osl)]
    argv += ["--random-range-ratio", str(point.range_ratio), "--seed", str(point.seed), "--ignore-eos"]
    return [*argv, "--use-chat-template"] if point.chat else argv
