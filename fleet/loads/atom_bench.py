"""ATOM's own load client, `python3 -m atom.benchmarks.benchmark_serving`: closed loop, streaming, temperature 0 always.

It has the public client's flags and JSON. Lengths are drawn from [int(ratio × L), L].
"""

from __future__ import annotations

from typing import Any

from fleet.loads.result import measurement
from fleet.model.arm import Arm, Point
from fleet.model.evidence import Drawn, Measurement
from fleet.model.seat import Placement
from fleet.model.service import Mount, Service

FRAMEWORKS = ("atom-disagg", "atom")
NAME = "atom.benchmarks.benchmark_serving"
RESULTS = "/fleet/raw"

ORIGINS = {
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
    "--percentile-metrics": "public recipe",
    "--metric-percentiles": "public recipe: 90, 99, 99.9",
    "--save-result": "public recipe",
    "--save-detailed": "fleet: without it, errors and lengths are lost",
    "--result-dir": "fleet: the run's own mount",
    "--result-filename": "fleet: a short name",
    "--use-chat-template": "public recipe: MTP points send chat-framed prompts, STP points raw ones",
}


def service(point: Point, placement: Placement, *, endpoint: str) -> Service:
    arm, seat = placement.arm, placement.of("client")[0]
    argv = (
        "python3", "-m", NAME,
        "--backend", "vllm", "--base-url", endpoint, "--endpoint", "/v1/completions",
        "--model", arm.model_path, "--trust-remote-code",
        *_dataset(point),
        *_pressure(point),
        "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "90,99,99.9",
        "--save-result", "--save-detailed", "--result-dir", RESULTS, "--result-filename", _filename(point),
    )  # fmt: skip
    return Service(
        seat=seat,
        kind="client",
        image=arm.image,
        argv=argv,
        env={"PYTHONUNBUFFERED": "1"},
        mounts=(Mount(source=placement.host(seat.host).models, target="/models"),),
        stop_timeout=10,
        origins={flag: ORIGINS[flag] for flag in argv if flag in ORIGINS},
        consumes=("image", "model", "framework", "isl", "osl", "conc", "depth", "disagg"),
    )


def result_path(point: Point) -> str:
    return f"{RESULTS}/{_filename(point)}"


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


def _pressure(point: Point) -> list[str]:
    return [
        "--num-prompts", str(point.prompts), "--num-warmups", str(point.warmups),
        "--max-concurrency", str(point.conc), "--request-rate", "inf",
    ]  # fmt: skip


def _filename(point: Point) -> str:
    return f"{point.id}.json"
