from __future__ import annotations

from fleet.model.evidence import Counters
from fleet.results import plot, sheet
from fleet.results.record import Evidence, Figures, Record
from fleet.results.sheet import Run
from tests.judged import a_record, invalid

WINDOW = {"p99_ttft_ms": 90.0, "median_ttft_ms": 40.0, "median_tpot_ms": 10.0, "median_e2el_ms": 1000.0}


def at(conc: int, total: float, inter: float, **changes: object) -> dict[str, object]:
    figures = Figures(tput_per_gpu=total, median_intvty=inter)
    return {"point": f"1p1d-mtp3-c{conc}", "conc": conc, "asked": conc, "figures": figures, **changes}


def a_run(*records: Record, name: str = "r1") -> Run:
    return Run(name, "dsv4-mtp", records, latency={one.point: WINDOW for one in records})


def positioned(*by: float, steps: float = 100) -> dict[str, object]:
    first = Counters(steps=50, by_position=(10.0,) * len(by))
    last = Counters(steps=50 + steps, by_position=tuple(10 + one for one in by))
    return {"evidence": {"decode0": Evidence(before=first, after=last)}}


def test_the_front_is_what_no_other_beats() -> None:
    places = [(10.0, 100.0), (20.0, 90.0), (15.0, 80.0), (20.0, 95.0), (5.0, 100.0), (30.0, 10.0), (29.0, 10.0)]
    assert plot.front(places) == ((10.0, 100.0), (20.0, 95.0), (30.0, 10.0))
    assert plot.front([]) == ()
    assert plot.front([(1.0, 1.0), (1.0, 1.0)]) == ((1.0, 1.0),)


def test_the_front_goes_over_arms_and_runs_and_leaves_out_what_is_not_valid() -> None:
    first = a_run(a_record(**at(4, 100, 90)), a_record(**at(8, 200, 50)))
    second = a_run(
        a_record(arm="2p1d", **at(4, 150, 60)),
        invalid("x", **at(8, 900, 900)),
        a_record(state="incomplete", **at(16, 950, 950)),
        name="r2",
    )
    chart = plot.charts([first, second])["pareto-8192-1024"]
    assert chart.front == ((50.0, 200.0), (60.0, 150.0), (90.0, 100.0))
    assert [series.name for series in chart.series] == ["1p1d-mtp3  r1", "2p1d  r2", "1p1d-mtp3  r2"]
    assert [[spot.pale for spot in series.spots] for series in chart.series] == [[False] * 2, [False], [True] * 2]
    assert chart.series[0].spots[0].tip == "1p1d-mtp3 conc 4: 90.0 tok/s/user, 100.0 tok/s per total GPU"
    assert chart.series[2].spots[1].tip.startswith("1p1d-mtp3 conc 16, incomplete: 950.0")
    assert chart.notes[-1].startswith("× grey")


def test_doubles_trials_and_other_lengths_each_have_their_own_pictures() -> None:
    run = a_run(
        a_record(**at(4, 1, 1)),
        a_record(**at(8, 1, 1, double=True)),
        a_record(**at(16, 1, 1, double=True, trial=True)),
        a_record(**at(32, 1, 1, isl=1024)),
    )
    charts = plot.charts([run])
    assert [name for name in charts if name.startswith("pareto")] == [
        "pareto-8192-1024",
        "pareto-8192-1024-double",
        "pareto-8192-1024-double-trial",
        "pareto-1024-1024",
    ]
    assert charts["pareto-8192-1024"].mark == ""
    assert charts["ttft-8192-1024-double-trial"].mark == "DOUBLE, TRIAL: not a measurement"
    assert charts["pareto-1024-1024"].mark == ""


def test_points_go_by_concurrency_whatever_their_order_was() -> None:
    run = a_run(a_record(**at(16, 3, 1)), a_record(**at(4, 1, 3)), a_record(**at(8, 2, 2)))
    (series,) = plot.charts([run])["pareto-8192-1024"].series
    assert [spot.near for spot in series.spots] == ["4", "8", "16"]


def test_latencies_are_the_median_and_p99_of_each_arm() -> None:
    chart = plot.charts([a_run(a_record(**at(4, 1, 1)))])["ttft-8192-1024"]
    assert [(one.name, one.dashed, one.spots[0].y) for one in chart.series] == [
        ("1p1d-mtp3  r1", False, 40.0),
        ("", True, 90.0),
    ]
    assert (chart.at, chart.steep) == ((4.0,), True)
    assert plot.charts([a_run(a_record(**at(4, 1, 1)))])["tpot-8192-1024"].series[1].spots == ()


def test_acceptance_by_position_comes_from_the_workers_counters() -> None:
    record = a_record(**at(4, 1, 1), **positioned(80, 50, 20))
    chart = plot.charts([a_run(record)])["acceptance-8192-1024"]
    (series,) = chart.series
    assert [(spot.x, spot.y) for spot in series.spots] == [(1.0, 0.8), (2.0, 0.5), (3.0, 0.2)]
    assert chart.at == (1.0, 2.0, 3.0)
    assert "acceptance-8192-1024" not in plot.charts([a_run(a_record(**at(4, 1, 1)))])


def test_a_point_without_figures_is_in_no_picture_and_no_fault() -> None:
    chart = plot.charts([Run("r", "k", (a_record(figures=Figures()),))])["pareto-8192-1024"]
    assert [series.spots for series in chart.series] == [()]


def test_shares_are_of_all_workers_together() -> None:
    one = positioned(80, 40)["evidence"]["decode0"]  # type: ignore[index]
    two = positioned(20, 0, steps=300)["evidence"]["decode0"]  # type: ignore[index]
    record = a_record(evidence={"decode0": one, "decode1": two, "prefill0": Evidence()})
    assert sheet.positions(record) == (0.25, 0.1)
    assert sheet.positions(a_record()) == ()
