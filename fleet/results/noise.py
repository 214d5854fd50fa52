"""The fleet's own noise floor: how much two measurements of the same point differ by chance. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import ValidationError

from fleet.model.base import Model
from fleet.results.sample import METRICS, Metric, Sample, values
from fleet.results.stats import Spread, spread
from fleet.results.topology import MACHINES, Topology, differing


class Scatter(Model):
    """Of one figure: the standard deviation of its logarithms, and the degrees of freedom."""

    deviation: float
    freedom: int

    @property
    def spread(self) -> Spread:
        return Spread(self.deviation, self.freedom)


class Noise(Model):
    """Of one arm of a run. at: UTC, ISO 8601. measurements: valid points behind it. restarted: servers were started
    anew for each repeat; else what differs from start to start is not in it. scatters: by the figures' fields.
    """

    run: str
    key: str
    arm: str
    at: str
    concs: tuple[int, ...]
    measurements: int
    restarted: bool
    topology: dict[str, str]
    scatters: dict[str, Scatter]

    def floor(self, metric: Metric) -> float | None:
        """As a logarithm; None where the figure was not measured often enough."""
        found = self.scatters.get(metric.field)
        return found.spread.floor if found else None

    def to_line(self) -> str:
        return self.model_dump_json() + "\n"


Cell = tuple[tuple[tuple[str, str], ...], int]


def cell(sample: Sample) -> Cell:
    """Samples of the same cell are repeats of one point."""
    return tuple(sample.topology.items()), sample.conc


def cells(samples: Iterable[Sample]) -> dict[Cell, list[Sample]]:
    """Those that take part, by what they repeat, in order."""
    found: dict[Cell, list[Sample]] = {}
    for sample in samples:
        if not sample.excluded:
            found.setdefault(cell(sample), []).append(sample)
    return found


def own(samples: Iterable[Sample], metric: Metric) -> Spread | None:
    """How the repeats among these scatter, pooled; None where there are none."""
    return spread(values(repeats, metric) for repeats in cells(samples).values())


def of_run(samples: Sequence[Sample], *, run: str, key: str, at: str, restarted: bool) -> tuple[Noise, ...]:
    """The noise of each arm that has repeats."""
    found = []
    for arm in dict.fromkeys(sample.arm for sample in samples):
        repeats = [group for group in cells(one for one in samples if one.arm == arm).values() if len(group) > 1]
        flat = [sample for group in repeats for sample in group]
        scatters = {metric.field: scatter for metric in METRICS if (scatter := own(flat, metric))}
        if flat and scatters:
            found.append(
                Noise(
                    run=run, key=key, arm=arm, at=at, restarted=restarted, measurements=len(flat),
                    concs=tuple(dict.fromkeys(sample.conc for sample in flat)), topology=dict(flat[0].topology),
                    scatters={
                        field: Scatter(deviation=one.deviation, freedom=one.freedom) for field, one in scatters.items()
                    },
                )
            )  # fmt: skip
    return tuple(found)


def read(text: str) -> tuple[Noise, ...]:
    """What a noise.jsonl holds, oldest first. A line that cannot be read is passed over."""
    found = []
    for line in text.splitlines():
        try:
            found.append(Noise.model_validate_json(line))
        except ValidationError:
            continue
    return tuple(found)


def matching(kept: Iterable[Noise], wanted: Topology) -> Noise | None:
    """The one that says most of such points: of the same machines, framework and client, a double where that is one.
    Of several the one that is alike in most; of those the latest.
    """
    best, score = None, -1
    for one in kept:
        different = differing(one.topology, wanted)
        if one.topology.get("kind") != wanted.get("kind") or set(different) & set(MACHINES):
            continue
        alike = -len(different)
        if best is None or alike >= score:
            best, score = one, alike
    return best
