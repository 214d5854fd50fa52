"""`invoke report` and `invoke export` on run folders."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from fleet import plan as plans
from fleet import reports
from fleet.errors import FleetError, UsageError
from fleet.results.record import Record
from fleet.results.store import RunFolder
from fleet.settings import Settings
from tests.judged import a_record, invalid
from tests.world import KEY, a_plan, raw_result

FIRST, SECOND = f"20261130-210405-{KEY}-7f3a9c", f"20261201-080000-{KEY}-0a1b2c"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(results=tmp_path / "results")


def a_folder(settings: Settings, name: str, *records: Record, conc: tuple[int, ...] = (4, 8)) -> RunFolder:
    """A run whose points each have their client's result."""
    folder = RunFolder(settings.results / name)
    folder.path.mkdir(parents=True)
    made = a_plan(conc=conc)
    folder.write_text(folder.plan_json, plans.to_json(made))
    folder.write_text(folder.plan_text, plans.text(made))
    folder.write_json(folder.summary_json, {"key": KEY, "notes": ["a note"], "ended_early": []})
    for record in records:
        folder.append_record(record.model_copy(update={"plan": made.hash}))
        folder.write_json(folder.raw(record.point, record.attempt), raw_result(record.prompts, record.conc))
    return folder


def at(conc: int, **changes: Any) -> dict[str, Any]:
    return {"key": KEY, "run": FIRST, "point": f"1p1d-mtp3-c{conc}", "conc": conc, "asked": conc, **changes}


def test_a_table_an_arm_what_it_is_divided_by_and_what_is_not_known(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    a_folder(settings, FIRST, a_record(**at(4)), invalid("requests: 39 of 40", **at(8)))
    assert reports.report(settings) is None
    out = capsys.readouterr().out
    assert out.startswith(f"run {FIRST}\n")
    assert "arm 1p1d-mtp3\n4     valid    50.0" in out
    assert "1p1d-mtp3-c8: requests: 39 of 40\n" in out
    assert "1p1d-mtp3: total by all 16 GPUs, output by 8 decode, input by 8 prefill\n" in out
    assert out.count("throttling") == 1


def test_several_runs_by_beginnings_each_once(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    a_folder(settings, FIRST, a_record(**at(4)))
    a_folder(settings, SECOND, a_record(**at(4, run=SECOND)))
    reports.report(settings, runs=("20261130", "latest", FIRST), json=True)
    found = json.loads(capsys.readouterr().out)
    assert [run["run"] for run in found["runs"]] == [FIRST, SECOND]
    assert found["runs"][0]["notes"] == ["a note"]
    assert found["runs"][0]["results"][0]["p90_tpot_ms"] == 12.5
    with pytest.raises(UsageError, match="could be 2 runs"):
        reports.report(settings, runs=("2026",))


def test_csv_is_all_that_is_printed(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    a_folder(settings, FIRST, a_record(**at(4, double=True)))
    reports.report(settings, csv=True)
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["run"], row["mark"], row["p90_intvty"]) == (FIRST, "DOUBLE", "80.0")
    with pytest.raises(UsageError, match="exclude each other"):
        reports.report(settings, csv=True, json=True)


def test_a_page_and_pictures_are_written_and_named(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = a_folder(settings, FIRST, a_record(**at(4)))
    folder.write_text(folder.facts, '{"hosts": {"node1": "<b>"}}\n')
    page, pictures = tmp_path / "page.html", tmp_path / "deep" / "plots"
    reports.report(settings, html=str(page), svg=str(pictures))
    out = capsys.readouterr().out
    assert f"page: {page}\n4 pictures: {pictures}\n" in out
    assert sorted(one.name for one in pictures.iterdir()) == [
        "e2el-8192-1024.svg", "pareto-8192-1024.svg", "tpot-8192-1024.svg", "ttft-8192-1024.svg",
    ]  # fmt: skip
    html = page.read_text()
    assert "&lt;b&gt;" in html
    assert "docker run -d" in html
    assert "a note" in html


@pytest.mark.parametrize("words", [{"html": "{0}/none/page.html"}, {"svg": "{0}/file/plots"}, {"html": "{0}"}])
def test_a_place_that_cannot_be_written_is_told(settings: Settings, tmp_path: Path, words: dict[str, str]) -> None:
    a_folder(settings, FIRST, a_record(**at(4)))
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written: "):
        reports.report(settings, **{name: word.format(tmp_path) for name, word in words.items()})


def test_a_run_with_nothing_but_its_folder(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    (settings.results / FIRST).mkdir(parents=True)
    reports.report(settings, html=str(settings.results / "page.html"))
    assert "no point has run" in capsys.readouterr().out
    assert "No point has run." in (settings.results / "page.html").read_text()


def test_damaged_files_beside_the_records_are_left_out(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    folder = a_folder(settings, FIRST, a_record(**at(4)))
    folder.write_text(folder.raw("1p1d-mtp3-c4"), "[" * 100_000)
    folder.write_text(folder.summary_json, "[]")
    reports.report(settings, json=True)
    assert json.loads(capsys.readouterr().out)["runs"][0]["results"][0]["median_ttft_ms"] is None


# --- export -----------------------------------------------------------------------------------------------------


def files(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


def test_an_export_holds_raw_aggregate_and_a_manifest(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    folder = a_folder(settings, FIRST, a_record(**at(4)), invalid("requests: 39 of 40", **at(8)))
    reports.export(settings)
    out = capsys.readouterr().out
    assert out.startswith(f"1 of 2 points as inferencex: {folder.path / 'export'}\n")
    assert "left out: 1p1d-mtp3-c8: invalid, so it is not exported: requests: 39 of 40\n" in out
    agg, raw, manifest = files(folder.path / "export")
    assert agg == f"agg_{raw}"
    assert (folder.path / "export" / raw).read_bytes() == folder.raw("1p1d-mtp3-c4").read_bytes()
    assert json.loads((folder.path / "export" / agg).read_text())["conc"] == 4
    told = [json.loads(line) for line in (folder.path / "export" / manifest).read_text().splitlines()]
    assert [(one["file"], one["point"], one["valid"]) for one in told] == [
        (raw, "1p1d-mtp3-c4", True),
        (agg, "1p1d-mtp3-c4", True),
    ]
    assert manifest == "fleet-export.jsonl"


def test_an_export_replaces_the_earlier_one_and_nothing_else(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_folder(settings, FIRST, a_record(**at(4)), invalid("x", **at(8)))
    target = tmp_path / "out"
    reports.export(settings, to=str(target), include_invalid=True)
    assert [name[:8] for name in files(target)] == ["INVALID_", "INVALID_", "agg_dsv4", "dsv4_8k1", "fleet-ex"]
    reports.export(settings, to=str(target))
    assert [name[:8] for name in files(target)] == ["agg_dsv4", "dsv4_8k1", "fleet-ex"]
    (target / "mine.json").write_text("{}")
    with pytest.raises(UsageError, match=r"holds other things \(mine.json\)"):
        reports.export(settings, to=str(target))
    assert (target / "mine.json").exists()
    assert len(files(target)) == 4


def test_a_run_of_doubles_is_refused_as_a_whole(settings: Settings, tmp_path: Path) -> None:
    a_folder(settings, FIRST, a_record(**at(4)), a_record(**at(8, trial=True)))
    for include in (False, True):
        with pytest.raises(FleetError, match="TRIAL: not a measurement, so it is not exported"):
            reports.export(settings, to=str(tmp_path / "out"), include_invalid=include)
    assert not (tmp_path / "out").exists()


def test_nothing_to_export_says_why(settings: Settings) -> None:
    folder = a_folder(settings, FIRST, invalid("requests: 39 of 40", **at(4)))
    with pytest.raises(FleetError, match=r"nothing to export\n1p1d-mtp3-c4: invalid.*39 of 40"):
        reports.export(settings)
    folder.raw("1p1d-mtp3-c4").unlink()
    with pytest.raises(FleetError, match="raw result cannot be read: No such file"):
        reports.export(settings, include_invalid=True)
    assert not (folder.path / "export").exists()


def test_of_points_with_one_public_name_the_first_repeat_leaves(
    settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunFolder, "_stranger", lambda *_: "")  # the plan of this test has no repeats
    again = a_record(**at(4, point="1p1d-mtp3-c4-r1", repeat=1))
    a_folder(settings, FIRST, again, a_record(**at(4)))
    reports.export(settings)
    assert "left out: 1p1d-mtp3-c4-r1: 1p1d-mtp3-c4 has the same public name\n" in capsys.readouterr().out


def test_an_unknown_format_or_arm(settings: Settings) -> None:
    a_folder(settings, FIRST, a_record(**at(4, arm="other")))
    with pytest.raises(UsageError, match="did you mean inferencex"):
        reports.export(settings, form="inferencx")
    with pytest.raises(FleetError, match="its arm is not in the run's plan"):
        reports.export(settings)
