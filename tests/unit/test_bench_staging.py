"""What the staging benchmark makes of its samples: ratios, limits, the table; and the images that it moves."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from tests.bench import images, registry, staging
from tests.bench.staging import Measured, Sample
from tests.bench.watching import Seen

MB = 1_000_000
PEAKS = ["2.0/21.0", "20.0/0.0", "0.0/30.0"]


def sample(seconds: float, wire: int = 0, *, way: str = "node1 out", carried: int = 0, cpu: float = 0.5) -> Sample:
    peaks = {"disk": {"node1": 21 * MB, "node2": 2 * MB}, "engine": {"node2": 20 * MB}, "memory": {"node1": 30 * MB}}
    return Sample(seconds, Seen(wire=wire, cables={way: carried}, cpu=cpu, **peaks))


def measured(**changes: object) -> Measured:
    values: dict[str, object] = {
        "size": 20 * MB,
        "changed": 2 * MB,
        "targets": 7,
        "mbit": 40,
        "first": {
            "fleet": [sample(5.0), sample(4.8), sample(9.9)],
            "star": [sample(30.0), sample(31.0), sample(29.0)],
            "registry": [sample(25.0), sample(26.0), sample(24.0)],
        },
        "bump": {
            "fleet": [sample(1.0, 15 * MB), sample(2.0, 15 * MB), sample(0.5, 99 * MB)],
            "star": [sample(30.0), sample(30.0), sample(30.0)],
        },
        "nothing": [0.3, 0.2, 0.9],
    }
    return Measured(**{**values, **changes})  # type: ignore[arg-type]


def test_the_ratios_are_of_medians() -> None:
    assert json.loads(json.dumps(staging.ratios(measured()))) == {
        "first_copy": {"vs_bound": 1.25, "vs_star": 6.0, "vs_registry": 5.0},
        "bump": {"vs_changed_bytes": 1.071, "vs_star": 30.0},
        "noop_s": 0.3,
    }


def test_a_run_within_all_limits_misses_none() -> None:
    assert staging.missed(measured()) == []


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"size": 19 * MB}, "first copy, times the bound"),
        ({"first": {**measured().first, "star": [sample(19.9)]}}, "first copy, times faster than the star"),
        ({"changed": 1_900_000}, "bump, bytes on the wire for a changed one"),
        ({"bump": {**measured().bump, "star": [sample(7.9)]}}, "bump, times faster than the star"),
        ({"nothing": [0.51]}, "nothing to do, seconds"),
        ({"size": 3 * MB, "mbit": 4.0}, "copies of the archive on the disk of a node that is given it"),
    ],
)
def test_each_limit_can_be_missed(changes: dict[str, object], what: str) -> None:
    assert what in [limit.what for limit in staging.missed(measured(**changes))]


@pytest.mark.parametrize(
    ("one", "told"),
    [
        (sample(5, 140 * MB, carried=24 * MB, cpu=0.95), "the cores, busy 95% of the time"),
        (sample(5, 280 * MB, carried=24 * MB), "bytes: 2.0 for each that is needed; node1 out is the busiest way, 96%"),
        (sample(5, 140 * MB, way="node3 in", carried=24 * MB), "a cable: node3 in, busy 96% of the time"),
        (
            sample(5, 140 * MB, way="node3 in", carried=10 * MB),
            "waiting: the busiest way, node3 in, is idle 60% of the time, the cores 50%",
        ),
    ],
)
def test_what_binds_is_said(one: Sample, told: str) -> None:
    assert staging.what_binds([sample(1), one, sample(9)], measured(), 20 * MB) == told


def test_the_table() -> None:
    lines = staging.table(measured(nothing=[0.7])).splitlines()
    assert lines[0] == "first copy: 20.0 MB in 6 layers to 7 nodes; bound 4.00 s"
    assert lines[2].split() == ["fleet", "5.00", "1.25", "0.0", "node1", "out", "0%", "50%", *PEAKS]
    assert lines[5] == "bump: 2.0 MB of it changed; bound 0.40 s"
    assert lines[7].split()[:4] == ["fleet", "1.00", "2.50", "15.0"]
    assert [line.split(")")[1].strip() for line in lines if line.endswith("kept")] == ["kept"] * 6
    assert lines[-3].endswith(
        "0.70  (≤ 0.5)  MISSED: connections, and one docker command a node",
    )
    assert max(map(len, lines[:9])) <= 100


def test_the_rate_of_a_cable() -> None:
    before, after = {"node1": ((1 * MB, 0), 10.0)}, {"node1": ((11 * MB, 5 * MB), 12.0)}
    assert list(staging.mbits(before, after)) == [40.0, 20.0]


def test_every_round_begins_with_another_way() -> None:
    assert [staging.turned(["a", "b", "c"], number)[0] for number in range(4)] == ["a", "b", "c", "a"]


def test_a_bump_is_the_same_image_but_for_its_last_layer() -> None:
    old, new = images.archive("x:1", {"a": 1000, "b": 90}), images.archive("x:2", {"a": 1000, "c": 90})
    names = [members(image) for image in (old, new)]
    assert len([name for name in names[0] & names[1] if name.endswith("layer.tar")]) == 1
    assert old.id != new.id
    assert images.archive("x:1", {"a": 1000, "b": 90}) == old
    assert old.size == sum(old.layers) >= 1090


def members(image: images.Archive) -> set[str]:
    with tarfile.open(fileobj=io.BytesIO(image.data)) as tar:
        return set(tar.getnames())


def test_the_registry_serves_what_was_saved(tmp_path: Path) -> None:
    saved = images.archive("x:1", {"a": 1000, "b": 90})
    with tarfile.open(fileobj=io.BytesIO(saved.data)) as tar:
        tar.extractall(tmp_path, filter="data")
    contents = registry.Contents.of(tmp_path)
    manifest = json.loads(contents.manifest)
    assert manifest["config"]["digest"] == saved.id
    assert [layer["size"] for layer in manifest["layers"]] == list(saved.layers)
    for blob in (manifest["config"], *manifest["layers"]):
        data = contents.blobs[blob["digest"]].read_bytes()
        assert (registry.digest(data), len(data)) == (blob["digest"], blob["size"])
