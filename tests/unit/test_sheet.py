from __future__ import annotations

import csv
import io
import json

from fleet.results import sheet
from fleet.results.record import Figures
from fleet.results.sheet import Run
from tests.judged import a_record, invalid

LATENCY = {"median_tpot_ms": 10.0, "p90_tpot_ms": 20.0, "mean_ttft_ms": 3.5}
FIGURES = Figures(tput_per_gpu=9.0, output_tput_per_gpu=2.0, input_tput_per_gpu=7.0)


def a_run(*records: object, **changes: object) -> Run:
    return Run("r1", "dsv4-mtp", records or (a_record(),), **changes)  # type: ignore[arg-type]


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_figures_per_gpu_say_which_gpus() -> None:
    apart = sheet.row(a_run(), a_record(figures=FIGURES))
    named = {name: value for name, value in apart.items() if name.endswith("_gpu")}
    assert named == {
        "tokens_per_s_per_total_gpu": 9.0,
        "output_tokens_per_s_per_total_gpu": None,
        "input_tokens_per_s_per_total_gpu": None,
        "output_tokens_per_s_per_decode_gpu": 2.0,
        "input_tokens_per_s_per_prefill_gpu": 7.0,
    }
    whole = sheet.row(a_run(), a_record(figures=FIGURES, gpus={"server": 8}))
    assert (whole["output_tokens_per_s_per_total_gpu"], whole["output_tokens_per_s_per_decode_gpu"]) == (2.0, None)
    assert (apart["gpus_total"], apart["gpus_prefill"], whole["gpus_total"], whole["gpus_decode"]) == (16, 8, 8, None)


def test_denominators_in_words() -> None:
    assert sheet.denominators(a_record()) == "total by all 16 GPUs, output by 8 decode, input by 8 prefill"
    assert sheet.denominators(a_record(gpus={"server": 8})) == "total, output and input by all 8 GPUs"
    assert sheet.denominators(a_record(gpus={"server": 1})) == "total, output and input by all 1 GPU"


def test_interactivity_is_the_reciprocal_of_each_tpot() -> None:
    assert sheet.interactivity(LATENCY) == {"median_intvty": 100.0, "p90_intvty": 50.0}
    assert sheet.interactivity({"median_tpot_ms": 0.0}) == {}


def test_latencies_of_a_client_are_its_finite_numbers() -> None:
    raw = {"median_ttft_ms": 4, "p99.9_e2el_ms": 7.5, "p99_ttft_ms": float("nan"), "mean_itl_ms": True, "x_ms": 1}
    assert sheet.latencies(raw | {"p90_ttft_ms": "9"}) == {"median_ttft_ms": 4.0, "p99.9_e2el_ms": 7.5}


def test_csv_has_a_line_a_point_the_last_record_of_each_with_its_verdict_and_mark() -> None:
    records = (
        a_record(state="incomplete"),
        a_record(attempt=2, double=True, trial=True),
        invalid("requests: 39 of 40", "x", point="1p1d-mtp3-c8", conc=8),
    )
    first, second = read(sheet.csv_text([a_run(*records, latency={"1p1d-mtp3-c4": LATENCY})]))
    assert (first["point"], first["valid"], first["measurement"], first["mark"]) == (
        "1p1d-mtp3-c4", "true", "false", "DOUBLE TRIAL",
    )  # fmt: skip
    assert (first["p90_intvty"], first["median_tpot_ms"], first["p99_ttft_ms"]) == ("50.0", "10.0", "")
    assert (second["conc"], second["valid"], second["reasons"], second["mark"]) == (
        "8", "false", "requests: 39 of 40; x", "",
    )  # fmt: skip


def test_no_cell_of_a_csv_is_a_formula_or_two_lines() -> None:
    (row,) = read(sheet.csv_text([a_run(invalid('=HYPERLINK("x")\n', "y"))]))
    assert row["reasons"] == '\'=HYPERLINK("x")\\n; y'
    assert read(sheet.csv_text([a_run(invalid("-1"))]))[0]["reasons"] == "'-1"
    assert sheet.csv_text([]) == "run\n"


def test_json_says_everything_and_whether_it_is_a_measurement() -> None:
    found = sheet.as_json([a_run(a_record(), invalid("why", point="p2", conc=8), notes=("n",), ended_early=("e",))])
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["measurement"], found["mark"]) == (True, "")
    (run,) = found["runs"]
    assert (run["run"], run["points"], run["valid"], run["notes"], run["ended_early"]) == ("r1", 2, 1, ["n"], ["e"])
    assert [one["reasons"] for one in run["results"]] == [[], ["why"]]
    assert run["results"][0]["gates"] == [{"name": "requests", "ok": True, "why": "40 of 40 completed, 40 asked"}]
    marked = sheet.as_json([a_run(a_record(double=True))])
    assert (marked["measurement"], marked["mark"]) == (False, "DOUBLE: not a measurement")


def test_what_is_not_known_is_said_once_and_only_where_it_applies() -> None:
    whole = sheet.unknown([a_run(a_record(gpus={"server": 8}, spec="none", depth=0))])
    apart = sheet.unknown([a_run(), a_run()])
    assert len(set(apart)) == len(apart)
    assert [line.split(":")[0] for line in apart if line not in whole] == [
        "how many bytes of KV moved, and over which network",
        "acceptance by position, where it is not shown",
    ]
    assert any("throttling" in line for line in whole)
