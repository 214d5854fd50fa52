"""The Prometheus text format, as far as counters and gauges need it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$")
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
_ESCAPE = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}


@dataclass(frozen=True)
class Sample:
    name: str
    value: float
    labels: dict[str, str] = field(default_factory=dict)


def parse(text: str) -> list[Sample]:
    """All samples of an exposition. Comments, blank lines and lines that are no samples are left out."""
    samples = []
    for line in text.splitlines():
        match = _SAMPLE.match(line.strip())
        if not match or line.startswith("#"):
            continue
        name, labels, value = match.groups()
        try:
            number = float(value)
        except ValueError:
            continue
        samples.append(Sample(name, number, _labels(labels or "")))
    return samples


def total(samples: Iterable[Sample], name: str) -> float | None:
    """The sum over all label sets of one metric; None if the metric is not there (absent is not zero)."""
    values = [sample.value for sample in samples if sample.name == name]
    return sum(values) if values else None


def by_label(samples: Iterable[Sample], name: str, label: str) -> tuple[float, ...] | None:
    """One metric summed for each number that a label counts up, 0 to 99; None if the metric is not there."""
    found: dict[int, float] = {}
    for sample in samples:
        if sample.name == name and re.fullmatch("[0-9]{1,2}", sample.labels.get(label, "")):
            place = int(sample.labels[label])
            found[place] = found.get(place, 0.0) + sample.value
    return tuple(found.get(place, 0.0) for place in range(max(found) + 1)) if found else None


def sum_of(text: str, *names: str) -> float | None:
    """The sum of several metrics of an exposition; None if it has none of them."""
    samples = parse(text)
    found = [value for name in names if (value := total(samples, name)) is not None]
    return sum(found) if found else None


def _labels(text: str) -> dict[str, str]:
    return {key: re.sub(r"\\.", lambda m: _ESCAPE.get(m[0], m[0]), value) for key, value in _LABEL.findall(text)}
