"""Sweeps on real nodes: from a config key to a run folder of judged results, with nothing left on the nodes."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from fleet.results.record import Record
from fleet.results.store import RunFolder
from tests.lab.desk import FAST, MTP, STP, STRANGER, Desk, Said

pytestmark = [pytest.mark.lab, pytest.mark.timeout(240)]

TAGS = {STP: "rocm/atom-dev:nightly_202606101403", MTP: "rocm/atom-dev:nightly_202607201550"}
SERVICES = {"2p1d-dpa": ["decode0", "prefill0", "prefill1", "router"], "1p1d": ["decode0", "prefill0", "router"]}
NODES = ["node1", "node2", "node3"]


@dataclass(frozen=True)
class Swept:
    """A sweep that ended, and what its folder holds."""

    key: str
    said: Said
    folder: RunFolder
    records: tuple[Record, ...]
    facts: dict[str, Any]

    @property
    def suffix(self) -> str:
        return "-mtp3" if self.key == MTP else ""


def sweep(desk: Desk, key: str, *words: str) -> Swept:
    said = desk.invoke("sweep", "--config", key, *words, within=220)
    assert said.code == 0, said.all
    folder = desk.run()
    return Swept(key, said, folder, folder.records(), json.loads(folder.facts.read_text()))


def test_a_full_mtp_sweep(desk: Desk) -> None:
    """The main job, every point of it: staged, proven, swept, judged, cleared away."""
    desk.forget_images("node2", "node3")
    assert list(desk.image_ids(TAGS[MTP])) == ["node1"]
    small = desk.inventory(everyone=FAST, trial={"prompts_per_concurrency": 2})
    swept = sweep(desk, MTP, "--inventory", small)
    assert points(swept) == {"2p1d-dpa-mtp3": [64], "1p1d-mtp3": [4, 8, 16, 32, 64]}
    staged_everywhere(desk, swept)
    believed(swept)
    complete(swept)
    drafted(swept)
    told(swept)
    desk.nothing_left()


def test_a_full_stp_sweep(desk: Desk) -> None:
    """The same recipe without MTP, its load cut smaller: raw prompts, no drafting, another image."""
    desk.forget_images("node2", "node3")
    small = desk.inventory(everyone=FAST, trial={"max_concurrency": 8, "prompts_per_concurrency": 2, "output": 16})
    swept = sweep(desk, STP, "--inventory", small)
    assert points(swept) == {"2p1d-dpa": [8], "1p1d": [4, 8]}
    staged_everywhere(desk, swept)
    believed(swept)
    complete(swept)
    not_drafted(swept)
    desk.nothing_left()
    reproduces(desk, swept)


def points(swept: Swept) -> dict[str, list[int]]:
    """Concurrencies that ran, by arm, in the order in which they ran."""
    found: dict[str, list[int]] = {}
    for record in swept.records:
        found.setdefault(record.arm, []).append(record.conc)
    return found


def staged_everywhere(desk: Desk, swept: Swept) -> None:
    """Every node has the image that node1 had, and the records and facts say which."""
    tag = TAGS[swept.key]
    ids = desk.image_ids(tag)
    assert list(ids) == NODES
    assert len(set(ids.values())) == 1
    (one,) = set(ids.values())
    assert {record.image.id for record in swept.records} == {one}
    assert {record.image.tag for record in swept.records} == {tag}
    told = swept.facts["images"][tag]
    assert {host: (image["id"], image["double"]) for host, image in told.items()} == dict.fromkeys(NODES, (one, True))
    for node in NODES[1:]:
        assert f"{node}       {tag}: " in swept.said.out
        assert "from node1" in swept.said.out


def believed(swept: Swept) -> None:
    """Every record is valid, marked, and says what ran."""
    for record in swept.records:
        assert record.valid, record.verdict.reasons
        assert record.state == "done"
        assert (record.double, record.trial) == (True, True)
        assert record.completed == record.requested == record.prompts
        assert record.run == swept.folder.name
        assert {gate.name for gate in record.gates if gate.ok is False} == set()
        seats = [name for name in SERVICES[record.arm.removesuffix(swept.suffix)] if name != "router"]
        assert sorted(record.evidence) == seats
        for evidence in record.evidence.values():
            assert evidence.before
            assert evidence.after
            assert (evidence.after.finished or 0) > (evidence.before.finished or 0)
    (dpa, *rest) = swept.records
    assert (dpa.asked, dpa.gpus) == (256, {"prefill": 16, "decode": 8})
    assert {json.dumps(record.gpus) for record in rest} == {'{"prefill": 8, "decode": 8}'}


def complete(swept: Swept) -> None:
    """All that a run folder promises is there and says the same."""
    folder = swept.folder
    assert (folder.path.parent / "latest").resolve() == folder.path
    assert swept.key in yaml.safe_load(folder.recipe.read_text())
    assert list(yaml.safe_load(folder.inventory.read_text())["all"]["hosts"]) == NODES
    plan = json.loads(folder.plan_json.read_text())
    assert (plan["key"], plan["hash"][:6]) == (swept.key, folder.name[-6:])
    assert folder.plan_text.read_text().startswith(f"{swept.key}   plan {folder.name[-6:]}   2 arms")
    assert list(swept.facts["hosts"]) == NODES
    for arm, hosts in {"2p1d-dpa": NODES, "1p1d": NODES[:2]}.items():
        assert swept.facts["versions"][arm + swept.suffix] == {host: {"atom": "0.0+double"} for host in hosts}
    (stranger,) = swept.facts["hosts"]["node1"]["strangers"]
    assert stranger.startswith(f"{STRANGER} (")
    for line in folder.points.read_text().splitlines():
        assert line.startswith('{"schema_version":"1",')
    for kind in ("raw", "agg"):
        assert sorted(path.stem for path in (folder.path / kind).iterdir()) == sorted(r.point for r in swept.records)
    for record in swept.records:
        raw, agg = (json.loads((folder.path / str(name)).read_text()) for name in (record.raw, record.agg))
        assert raw["completed"] == record.completed
        assert agg["conc"] == record.conc
        assert agg["spec_decoding"] == record.spec
        assert agg["disagg"] is True
        assert agg["decode_num_workers"] == 1
        assert agg["output_tput_per_gpu"] == record.figures.output_tput_per_gpu
        assert agg["median_ttft"] == pytest.approx(raw["median_ttft_ms"] / 1000)
    logs(swept)
    summary = json.loads(folder.summary_json.read_text())
    assert summary["run"] == folder.name
    text = folder.summary_text.read_text()
    assert "**DOUBLE, TRIAL: not a measurement**" in text
    assert f"{len(swept.records)} of {len(swept.records)} points valid" in text


def logs(swept: Swept) -> None:
    """Every service and every client of every arm has its own, and nothing else is there."""
    arms = points(swept)
    for arm, concs in arms.items():
        expected = [*(f"client-c{conc}" for conc in concs), *SERVICES[arm.removesuffix(swept.suffix)]]
        found = sorted((swept.folder.path / "logs" / arm).iterdir())
        assert [path.name for path in found] == sorted(f"{name}.log" for name in expected)
        for path in found:
            assert path.stat().st_size, path
    assert sorted(path.name for path in (swept.folder.path / "logs").iterdir()) == sorted(arms)
    starts = (swept.folder.path / "logs" / f"1p1d{swept.suffix}" / "decode0.log").read_text()
    assert "Starting server on" in starts


def drafted(swept: Swept) -> None:
    for record in swept.records:
        assert (record.spec, record.depth, record.chat) == ("mtp", 3, True)
        assert record.figures.acceptance_length
        assert 1 < record.figures.acceptance_length <= 4


def not_drafted(swept: Swept) -> None:
    for record in swept.records:
        assert (record.spec, record.depth, record.chat) == ("none", 0, False)
        assert record.figures.acceptance_length is None
        assert not any(evidence.after and evidence.after.drafted for evidence in record.evidence.values())


def told(swept: Swept) -> None:
    """What an operator reads: marks, dropped points, proof of readiness, the table, where it is."""
    out = swept.said.out
    assert "TRIAL: not a measurement" in out
    assert "DOUBLE" in out
    for conc in (512, 768, 1024, 2048):
        assert f"not run: conc {conc}: capped at 64, as 256 is" in out
        assert f"not run: conc {conc}: capped at 64, as 256 is" in swept.folder.summary_text.read_text()
    assert "not run: conc 128: capped at 64, as 64 is" in out
    assert "2 of 2 pairs answered, router sees 3 of 3" in out
    assert "1 of 1 pairs answered, router sees 2 of 2" in out
    assert f"results: {swept.folder.path}" in out
    assert swept.said.err == ""


def reproduces(desk: Desk, swept: Swept) -> None:
    """The line in a record runs that very point again, in a run of its own."""
    record = next(record for record in swept.records if record.conc == 4)
    words = shlex.split(record.reproduce)
    assert words[0] == "invoke"
    said = desk.invoke(*words[1:])
    assert said.code == 0, said.all
    again = desk.run()
    assert again.path != swept.folder.path
    (other,) = again.records()
    same = (
        "key",
        "arm",
        "point",
        "conc",
        "asked",
        "prompts",
        "warmups",
        "seed",
        "isl",
        "osl",
        "trial",
        "double",
        "chat",
    )
    assert {name: getattr(other, name) for name in same} == {name: getattr(record, name) for name in same}
    assert other.image == record.image
