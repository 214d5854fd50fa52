"""The file beside the runs that remembers how long services took to get ready."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from fleet.model.service import Service
from fleet.results import pace
from fleet.results.pace import Pace
from fleet.results.record import utc
from fleet.stages.deployment import Deployment

NAME = ".ready.jsonl"


def before(deployment: Deployment, service: Service) -> str:
    """`; last time 3 m 10 s`, or "" where there was none."""
    with suppress(OSError):
        seconds = pace.last(_path(deployment).read_text(errors="replace"), _pace(deployment, service, 0.0))
        return "" if seconds is None else f"; last time {pace.spoken(seconds)}"
    return ""


def keep(deployment: Deployment, service: Service, seconds: float) -> None:
    """A file that cannot be written is not worth a run."""
    with suppress(OSError), _path(deployment).open("a", encoding="utf-8") as file:
        file.write(pace.line(_pace(deployment, service, seconds)))


def _path(deployment: Deployment) -> Path:
    return deployment.folder.path.parent / NAME


def _pace(deployment: Deployment, service: Service, seconds: float) -> Pace:
    arm = deployment.arm.arm
    image = deployment.images.get(service.host, arm.image)
    model, role = deployment.arm.arm.model_path, service.seat.role
    return Pace(
        host=service.host, image=image, model=model, role=role, seconds=round(seconds, 1), at=utc(datetime.now(UTC))
    )
