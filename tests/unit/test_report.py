from __future__ import annotations

import json

import pytest

from fleet.results.record import Figures, Verdict
from fleet.results.report import RunFacts, banner, best, comparable, rows, summary_json, summary_markdown
from tests.judged import a_record, invalid

FACTS = RunFacts(
    run="20261130-210405-dsv4-mtp-7f3a9c",
    key="dsv4-mtp",
    plan="7f3a9c0011",
    image="rocm/atom-dev:n1",
    hosts=("node1", "node2"),
    planned=3,
    notes=("the router keeps its health checks",),
)


def at(conc: int, out: float, intvty: float) -> dict[str, object]:
    figures = Figures(output_tput_per_gpu=out, median_intvty=intvty)
    return {"point": f"1p1d-mtp3-c{conc}", "conc": conc, "asked": conc, "figures": figures}


def test_a_row_has_the_figures_in_their_units() -> None:
    (row,) = rows([a_record()])
    assert (row.arm, row.conc, row.verdict, row.counts) == ("1p1d-mtp3", "4", "valid", True)
    assert row.cells == ("50.0", "350.0", "96.2", "41.2", "80.5", "10.40", "2.60")


def test_absent_is_a_dash_and_a_measured_zero_is_a_zero() -> None:
    (row,) = rows([a_record(figures=Figures(acceptance_length=0.0))])
    assert row.cells == ("-",) * 6 + ("0.00",)


def test_a_capped_or_repeated_point_says_so() -> None:
    (row,) = rows([a_record(conc=64, asked=128, repeat=1)])
    assert row.conc == "64 (of 128) #2"


def test_a_point_that_ran_again_is_shown_once() -> None:
    assert [row.verdict for row in rows([a_record(state="incomplete"), a_record()])] == ["valid"]


def test_the_page() -> None:
    records = [a_record(**at(4, 50, 96)), invalid("requests: 79 of 80", **at(8, 500, 900))]
    assert summary_markdown(FACTS, records) == "\n".join(
        [
            "# dsv4-mtp",
            "",
            "run 20261130-210405-dsv4-mtp-7f3a9c, plan 7f3a9c  ",
            "image rocm/atom-dev:n1  ",
            "hosts node1 node2  ",
            "1 of 3 points valid  ",
            "",
            "| arm | conc | verdict | out tok/s/GPU | in tok/s/GPU | inter tok/s/user | TTFT p50 ms | TTFT p99 ms "
            "| TPOT p50 ms | accept |",
            "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
            "| 1p1d-mtp3 | 4 | valid | 50.0 | - | 96.0 | - | - | - | - |",
            "| 1p1d-mtp3 | 8 | invalid | ~~500.0~~ | - | ~~900.0~~ | - | - | - | - |",
            "",
            "## Best valid points",
            "",
            "- 1p1d-mtp3: 50.0 out tok/s/GPU at conc 4, 96.0 inter tok/s/user at conc 4",
            "",
            "## Not valid, and in no figure above",
            "",
            "- 1p1d-mtp3-c8 (invalid): requests: 79 of 80",
            "",
            "## Notes",
            "",
            "- the router keeps its health checks",
            "",
        ]
    )


def test_the_page_of_a_double_or_a_trial_begins_with_its_banner() -> None:
    page = summary_markdown(FACTS, [a_record(double=True, trial=True)])
    assert page.startswith("# dsv4-mtp\n\n**DOUBLE, TRIAL: not a measurement**\n\nrun ")
    assert "not a measurement" not in summary_markdown(FACTS, [a_record()])


def test_one_double_among_real_points_marks_the_run() -> None:
    assert banner([a_record(), a_record(point="p", double=True)]) == "DOUBLE: not a measurement"
    assert banner([a_record(trial=True)]) == "TRIAL: not a measurement"
    assert banner([a_record()]) == ""


def test_a_run_without_points_and_a_torn_line_are_told() -> None:
    page = summary_markdown(FACTS.model_copy(update={"torn": True}), [])
    assert "No point has run yet." in page
    assert "was cut off" in page


def test_the_best_points_are_each_arms_own_and_never_invalid() -> None:
    records = [
        a_record(**at(4, 50, 96)),
        a_record(**at(8, 90, 60)),
        invalid("x", **at(16, 500, 900)),
        a_record(**at(32, 600, 901), state="incomplete"),
        invalid("x", arm="2p1d", **at(64, 1, 1)),
    ]
    assert best(records) == ("1p1d-mtp3: 90.0 out tok/s/GPU at conc 8, 96.0 inter tok/s/user at conc 4",)


def test_a_point_that_became_invalid_when_run_again_is_no_longer_the_best() -> None:
    assert best([a_record(**at(4, 50, 96)), invalid("x", **at(4, 500, 900))]) == ()


def test_the_summary_for_programs() -> None:
    records = [a_record(), invalid("requests: 0 of 80", **at(8, 1, 1), double=True)]
    found = summary_json(FACTS, records)
    assert json.loads(json.dumps(found)) == found
    assert next(iter(found)) == "schema_version"
    assert (found["points"], found["valid"], found["planned"], found["measurement"]) == (2, 1, 3, False)
    assert [result["valid"] for result in found["results"]] == [True, False]
    assert found["results"][1]["reasons"] == ["requests: 0 of 80"]
    assert found["results"][0]["figures"]["p99_tpot_ms"] is None


def test_equals_may_be_compared_even_two_doubles_and_two_methods() -> None:
    assert comparable(a_record(), a_record(run="other")) is None
    assert comparable(a_record(double=True, trial=True), a_record(double=True, trial=True)) is None
    assert comparable(a_record(), a_record(spec="none", depth=0, chat=False)) is None


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"double": True}, "p of other was served by a double, the other by a real engine"),
        ({"trial": True}, "p of other is a trial, the other a whole point"),
        ({"state": "incomplete"}, "p of other is incomplete"),
        ({"verdict": Verdict(valid=False, reasons=("x",))}, "p of other is invalid"),
    ],
)
def test_what_may_not_be_compared(changes: dict[str, object], reason: str, swapped: bool) -> None:
    pair = [a_record(), a_record(run="other", point="p", **changes)]
    assert comparable(*reversed(pair) if swapped else pair) == reason


def test_different_lengths_are_not_compared() -> None:
    assert comparable(a_record(), a_record(isl=1024)) == "different lengths: 8192/1024 and 1024/1024"
