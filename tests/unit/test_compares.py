"""The verbs compare, noise and results: what they read, print, keep and end with."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from invoke.main import program
from invoke.parser import ParserContext

import tasks
from fleet import argv, compares, resumes, verbs
from fleet.advice import check
from fleet.argv import core_of, verbs_of
from fleet.errors import FleetError, UsageError
from fleet.model.arm import Repeats
from fleet.results import store
from fleet.results.record import Verdict
from fleet.results.state import Drive, RunState
from fleet.settings import Settings
from tests.compared import INVALID, MTP, STP, a_plan, by, kept, records
from tests.unit.test_compare import AGG, CURVE, OUTPUT, known

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(results=tmp_path / "results", inventory=Path("inventories/example-mi355x.yaml"))


# --- compare --------------------------------------------------------------------------------------------------------


def test_two_runs_across_mtp(settings: Settings, capsys: Captured) -> None:
    kept(settings.results, STP, CURVE, run="20261201-100000-stp-aaaaaa")
    kept(settings.results, MTP, by(known, CURVE), run="20261201-110000-mtp-bbbbbb")
    assert compares.compare(settings, a="20261201-10", b="20261201-11", across="mtp") is None
    out = capsys.readouterr().out
    assert "a  20261201-100000-stp-aaaaaa\nb  20261201-110000-mtp-bbbbbb\n" in out
    assert "\nMTP is faster up to 32 (2" in out
    assert compares.compare(settings, a="20261201-10", b="latest", across="mtp", json=True) is None
    told = json.loads(capsys.readouterr().out)
    assert told["curves"][0]["crossover"]["conc"] == pytest.approx(32)


def test_where_nothing_is_alike_the_code_is_2(settings: Settings, capsys: Captured) -> None:
    kept(settings.results, STP, CURVE, run="20261201-100000-stp-aaaaaa")
    kept(settings.results, MTP, CURVE, run="20261201-110000-mtp-bbbbbb")
    assert compares.compare(settings, a="20261201-10", b="20261201-11") == 2
    out = capsys.readouterr().out
    assert "no point of a can be compared with one of b" in out
    why = "speculation none, there mtp; draft depth 0, there 2; framing raw prompts, there chat-framed prompts"
    assert f"  a  tp8-8k1k conc 4 8 16 64: {why}" in out
    assert "they can be with --across mtp: speculation, draft depth" in out
    kept(settings.results, STP, CURVE, run="20261201-120000-other-cccccc", isl=1024)
    assert compares.compare(settings, a="20261201-10", b="20261201-12") == 2
    assert "--across" not in capsys.readouterr().out


def test_an_aggregates_file_stands_for_a_run(settings: Settings, tmp_path: Path, capsys: Captured) -> None:
    kept(settings.results, STP, {4: [100.0]})
    path = tmp_path / "agg_bmk.json"
    path.write_text(json.dumps([AGG]))
    assert compares.compare(settings, a="latest", b=str(path)) is None
    out = capsys.readouterr().out
    assert f"b  {path}" in out
    assert "FOREIGN: an aggregate that somebody else made; no verdict of ours is behind it" in out
    assert "+10.0 %  better?" in out


def test_what_is_hostile_in_a_file_is_harmless(settings: Settings, tmp_path: Path, capsys: Captured) -> None:
    kept(settings.results, STP, {4: [100.0]})
    path = tmp_path / "agg.json"
    path.write_text(json.dumps({**AGG, "framework": "\x1b]0;owned\x07"}))
    assert compares.compare(settings, a="latest", b=str(path)) == 2
    assert "\x1b" not in capsys.readouterr().out


def test_a_file_that_is_no_text_is_refused(settings: Settings, tmp_path: Path) -> None:
    kept(settings.results, STP, {4: [100.0]})
    (tmp_path / "agg.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="--b: no text, so no aggregate") as caught:
        compares.compare(settings, a="latest", b=str(tmp_path / "agg.json"))
    assert "invoke results" in caught.value.hint


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"a": "", "b": "x"}, "--a is needed: a run, or the file of a public aggregate"),
        ({"a": "latest", "b": ""}, "--b is needed"),
        ({"a": "latest", "b": "nobody"}, "no run 'nobody'"),
        ({"a": "latest", "b": "gone.json"}, "--b: No such file"),
        ({"a": "latest", "b": "latest", "across": "mpt"}, "--across mpt: one of mtp, image expected; did you mean mtp"),
    ],
)
def test_what_cannot_be_meant_is_refused(settings: Settings, words: dict[str, str], told: str) -> None:
    kept(settings.results, STP, {4: [100.0]})
    with pytest.raises(UsageError, match=told):
        compares.compare(settings, **words)  # type: ignore[arg-type]


def test_a_run_without_points_or_plan_is_told(settings: Settings) -> None:
    folder = kept(settings.results, STP, {4: [100.0]})
    folder.plan_json.write_text("{}")
    with pytest.raises(UsageError, match="not a plan"):
        compares.compare(settings, a="latest", b="latest")
    folder.points.unlink()
    with pytest.raises(UsageError, match="no point of this run has ended yet"):
        compares.compare(settings, a="latest", b="latest")


def test_the_flags_of_one_letter_have_two_dashes() -> None:
    known_verbs = verbs_of(tasks.ns)
    assert set(known_verbs["compare"].flags) == {"--a", "--b", "--across", "--json"}
    line = ["invoke", "compare", "--a", "latest", "--b=latest", "--across", "mtp"]
    assert check(line, known_verbs, core_of(program)) is None
    assert check(["invoke", "compare", "-a", "latest"], known_verbs, core_of(program))
    context = ParserContext(args=argv._arguments(tasks.ns["compare"]))
    assert set(context.flags) == {"--a", "--b", "--across", "--json"}
    assert context.as_kwargs.keys() == {"a", "b", "across", "json"}


# --- noise ----------------------------------------------------------------------------------------------------------


def test_the_noise_of_a_run_is_kept_where_compare_finds_it(settings: Settings, capsys: Captured) -> None:
    kept(settings.results, STP, {4: [100.0, 102.0, 98.0]}, run="20261201-090000-noise-aaaaaa")
    assert compares.noise(settings, run="20261201-09") is None
    out = capsys.readouterr().out
    assert "tp8-8k1k   conc 4   3 measurements, servers kept" in out
    assert f"kept in {settings.results / 'noise.jsonl'}, where compare finds it" in out
    compares.noise(settings, run="20261201-09", json=True)
    assert json.loads(capsys.readouterr().out)[0]["measurements"] == 3
    assert len((settings.results / "noise.jsonl").read_text().splitlines()) == 1, "the same run is kept once"
    kept(settings.results, STP, {4: [100.0]}, run="20261201-100000-stp-bbbbbb")
    kept(settings.results, STP, {4: [105.0]}, run="20261201-110000-stp-cccccc")
    compares.compare(settings, a="20261201-10", b="20261201-11")
    out = capsys.readouterr().out
    assert "(of 20261201-090000-noise-aaaaaa, tp8-8k1k, servers kept)" in out
    assert "no difference seen" in out


def test_a_run_without_repeats_tells_no_noise(settings: Settings) -> None:
    kept(settings.results, STP, {4: [100.0], 8: [150.0]})
    with pytest.raises(UsageError, match="at least two valid repeats") as caught:
        compares.noise(settings, run="latest")
    assert f"invoke noise --config {STP}" in caught.value.hint


@pytest.mark.parametrize(("words", "told"), [({}, "is needed"), ({"run": "latest", "config": STP}, "exclude")])
def test_one_of_run_and_config_is_needed(settings: Settings, words: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        compares.noise(settings, **words)  # type: ignore[arg-type]


def test_with_a_config_it_sweeps_one_point_first(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    asked: dict[str, object] = {}

    def swept(_: Settings, **words: object) -> int:
        asked.update(words)
        folder = kept(settings.results, STP, {4: [100.0, 101.0]}, run="20261201-090000-noise-aaaaaa")
        me = Drive(begun="2026-12-01T09:00:00.000Z", pid=os.getpid(), machine="here", owner="ops@here")
        folder.write_state(RunState(key=STP, plan="7f", planned=2, drives=(me,)))
        kept(settings.results, STP, {4: [1.0]}, run="20261201-090001-other-bbbbbb")
        return 1

    monkeypatch.setattr(verbs, "sweep", swept)
    assert compares.noise(settings, config=STP) == 1, "as the sweep ended"
    assert (asked["config"], asked["arm"], asked["conc"]) == (STP, "tp8-1k1k", [4])
    assert asked["repeats"] == Repeats(count=5)
    assert "noise of 20261201-090000-noise-aaaaaa" in capsys.readouterr().out


# --- results --------------------------------------------------------------------------------------------------------


def test_runs_are_listed_by_config_and_date_with_their_verdicts(settings: Settings, capsys: Captured) -> None:
    kept(settings.results, MTP, {4: [1.0]}, run=f"20261201-120000-{MTP}-aaaaaa", double=True, trial=True)
    one = kept(settings.results, STP, {4: [1.0], 8: [1.0]}, run=f"20261201-110000-{STP}-bbbbbb")
    one.append_record(records(STP, {16: [1.0]}, run=one.name, verdict=INVALID)[0])
    one.append_record(records(STP, {32: [1.0]}, run=one.name, state="incomplete", verdict=Verdict(valid=False))[0])
    drive = Drive(begun="2026-12-01T11:00:00.000Z", pid=1, machine="here", owner="ops@here")
    asked = Repeats(count=2)
    one.write_state(RunState(key=STP, plan="7f", planned=6, repeats=asked, drives=(drive,)))
    broken = kept(settings.results, STP, {4: [1.0]}, run=f"20261201-130000-{STP}-cccccc")
    broken.points.write_text('{"schema_version": "9"}\n')
    assert compares.results(settings) is None
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["config", STP, STP, MTP]
    assert "2026-12-01 11:00" in lines[1]
    assert "2 of 6 valid, 1 invalid, 1 incomplete, 2 missing, 2 repeats" in lines[1]
    assert "crashed" in lines[1]
    assert "vllm/vllm-openai-rocm:v0.22.0" in lines[1]
    assert "damaged: not a record of schema version 1" in lines[2]
    assert "1 of 1 valid" in lines[3]
    assert "DOUBLE TRIAL" in lines[3]


def test_runs_of_one_config_and_as_json(settings: Settings, capsys: Captured) -> None:
    kept(settings.results, MTP, {4: [1.0]}, run=f"20261201-120000-{MTP}-aaaaaa")
    kept(settings.results, STP, {4: [1.0]}, run=f"20261201-110000-{STP}-bbbbbb-2")
    compares.results(settings, config=MTP, json=True)
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["run"], one["key"], one["valid"], one["how"]) == (f"20261201-120000-{MTP}-aaaaaa", MTP, 1, "ended")
    with pytest.raises(UsageError, match="no run of dsv4-fp4-mi355x-vlm; did you mean dsv4-fp4-mi355x-vllm") as caught:
        compares.results(settings, config="dsv4-fp4-mi355x-vlm")
    assert caught.value.hint == f"there are runs of: {STP}  {MTP}"


def test_without_a_run_it_says_how_to_start_one(settings: Settings) -> None:
    with pytest.raises(UsageError, match="no run yet") as caught:
        compares.results(settings)
    assert "invoke sweep --config KEY" in caught.value.hint


def test_a_folder_without_a_record_has_the_key_of_its_name(settings: Settings, capsys: Captured) -> None:
    (settings.results / f"20261201-110000-{STP}-bbbbbb-2").mkdir(parents=True)
    compares.results(settings, json=True)
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["key"], one["valid"], one["planned"]) == (STP, 0, None)


# --- repeats of a sweep that goes on --------------------------------------------------------------------------------


def test_repeats_cannot_be_asked_of_a_run_that_goes_on(settings: Settings) -> None:
    with pytest.raises(UsageError, match="--repeats cannot be given with --resume"):
        verbs.sweep(settings, resume="latest", repeats=Repeats(count=2))


def test_the_line_that_starts_anew_asks_for_the_same_repeats() -> None:
    asked = Repeats(count=3, order_seed=7, restarts=True)
    line = resumes.typed(RunState(key=STP, plan="7f", planned=3, conc=(4,), repeats=asked), inventory="inv.yaml")
    tail = "--conc 4 --inventory inv.yaml --repeats 3 --order-seed 7 --restart-between"
    assert line == f"invoke sweep --config {STP} {tail}"


def test_a_file_that_cannot_be_written_is_told(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(settings.results, STP, {4: [100.0, 102.0]})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "replace", full)
    with pytest.raises(FleetError, match="No space left"):
        compares.noise(settings, run="latest")


def test_the_plans_of_the_tests_are_those_of_the_recipes() -> None:
    assert (a_plan(STP).arms[0].arm.depth, a_plan(MTP).arms[0].arm.depth) == (0, 2)
    assert OUTPUT in records(STP, {4: [1.0]})[0].figures.model_dump()
