"""What a load client is, whichever it is: a container beside the router that writes one JSON file a point."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.model.arm import Point
from fleet.model.seat import Placement
from fleet.model.service import Mount, Service

RESULTS = "/fleet/raw"

ORIGINS = {
    "--percentile-metrics": "public recipe",
    "--metric-percentiles": "public recipe: 90, 99, 99.9",
    "--save-result": "public recipe",
    "--save-detailed": "fleet: without it, errors and lengths are lost",
    "--result-dir": "fleet: the run's own mount",
    "--result-filename": "fleet: a short name",
}


def service(argv: tuple[str, ...], placement: Placement, origins: Mapping[str, str]) -> Service:
    arm, seat = placement.arm, placement.of("client")[0]
    return Service(
        seat=seat,
        kind="client",
        image=arm.image,
        argv=argv,
        env={"PYTHONUNBUFFERED": "1"},
        mounts=(Mount(source=placement.host(seat.host).models, target="/models"),),
        stop_timeout=10,
        origins={flag: origins[flag] for flag in argv if flag in origins},
        consumes=("image", "model", "framework", "isl", "osl", "conc", "depth", "disagg"),
    )


def pressure(point: Point) -> tuple[str, ...]:
    return (
        "--num-prompts", str(point.prompts), "--num-warmups", str(point.warmups),
        "--max-concurrency", str(point.conc), "--request-rate", "inf",
    )  # fmt: skip


def reporting(point: Point) -> tuple[str, ...]:
    return (
        "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "90,99,99.9",
        "--save-result", "--save-detailed", "--result-dir", RESULTS, "--result-filename", _filename(point),
    )  # fmt: skip


def result_path(point: Point) -> str:
    """The raw result as the container sees it, below the run's own mount."""
    return f"{RESULTS}/{_filename(point)}"


def _filename(point: Point) -> str:
    return f"{point.id}.json"
