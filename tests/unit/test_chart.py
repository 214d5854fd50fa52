from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from fleet.results.chart import Axis, Chart, Series, Spot, figure, steep_ticks, svg, ticks

SVG = "{http://www.w3.org/2000/svg}"


def drawn(chart: Chart) -> ElementTree.Element:
    """The picture, which has to be well-formed XML."""
    return ElementTree.fromstring(svg(chart))


def texts(root: ElementTree.Element) -> list[str]:
    return [one.text or "" for one in root.iter(f"{SVG}text")]


def of(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [one for one in root.iter() if name in (one.get("class") or "").split()]


def a_chart(*spots: Spot, **changes: object) -> Chart:
    facts = {"title": "T", "x": "across", "y": "up", "series": (Series("arm", spots),)}
    return Chart(**(facts | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        (0, 3, (0, 0.5, 1, 1.5, 2, 2.5, 3)),
        (0, 2657.2, (0, 500, 1000, 1500, 2000, 2500, 3000)),
        (0, 1.0, (0, 0.2, 0.4, 0.6, 0.8, 1)),
        (0, 0, (0, 0.2)),
        (0, 0.00034, (0, 0.00005, 0.0001, 0.00015, 0.0002, 0.00025, 0.0003, 0.00035)),
    ],
)
def test_ticks_are_round_and_reach_both_ends(low: float, high: float, found: tuple[float, ...]) -> None:
    assert ticks(low, high) == found


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        (8.1, 486.8, (5, 10, 20, 50, 100, 200, 500)),
        (10, 100, (10, 20, 50, 100)),
        (7, 7, (5, 10)),
        (0.02, 90000, (0.01, 0.1, 1, 10, 100, 1000, 10000, 100000)),
    ],
)
def test_steep_ticks(low: float, high: float, found: tuple[float, ...]) -> None:
    assert steep_ticks(low, high) == found


def test_an_axis_places_values_evenly_or_by_their_ratio() -> None:
    assert [Axis(0, 10, (), 70, 100).place(one) for one in (0, 5, 10)] == [70, 120, 170]
    steep = Axis(1, 100, (), 400, -200, steep=True)
    assert [steep.place(one) for one in (1, 10, 100)] == [400, pytest.approx(300), 200]


def test_figures_of_ticks() -> None:
    assert [figure(one) for one in (0.0, 0.25, 1500.0, 2.5e6)] == ["0", "0.25", "1500", "2.5e+06"]


def test_spots_stand_where_their_values_are() -> None:
    root = drawn(a_chart(Spot(0, 0), Spot(100, 200)))
    circles = [(one.get("cx"), one.get("cy")) for one in of(root, "spot") if one.get("cx")]
    assert circles == [("70.0", "398.0"), ("736.0", "58.0"), ("84.0", "456.0")]  # the last one is the legend's
    assert len(of(root, "line")) == 2


def test_a_pale_spot_is_a_cross_that_nothing_joins() -> None:
    root = drawn(a_chart(Spot(1, 1), Spot(2, 2, pale=True), Spot(3, 3)))
    assert len(of(root, "pale")) == 1
    (line, _) = of(root, "line")
    assert str(line.get("d")).count("L") == 1


def test_the_front_is_a_broad_line_through_its_places() -> None:
    root = drawn(a_chart(Spot(1, 4), Spot(4, 1), front=((1.0, 4.0), (4.0, 1.0))))
    (front,) = of(root, "front")
    assert front.get("d") == "M236.5 58.0L736.0 313.0"
    assert of(drawn(a_chart(Spot(1, 4), front=((1.0, 4.0),))), "front") == []


def test_titles_axes_mark_notes_and_what_stands_beside() -> None:
    chart = a_chart(Spot(1, 1, near="64", tip="conc 64"), mark="DOUBLE: not a measurement", notes=("dashed: p99",))
    root = drawn(chart)
    assert {"T", "across", "up", "arm", "64", "DOUBLE: not a measurement", "dashed: p99"} <= set(texts(root))
    assert [one.text for one in root.iter(f"{SVG}title")] == ["conc 64"]
    (mark,) = of(root, "mark")
    assert mark.text == "DOUBLE: not a measurement"


def test_what_has_no_place_is_left_out() -> None:
    nan, endless = float("nan"), float("inf")
    root = drawn(a_chart(Spot(nan, 1), Spot(1, endless), Spot(1, 1)))
    assert len([one for one in of(root, "spot") if one.get("cx")]) == 2
    steep = drawn(a_chart(Spot(4, 0), Spot(0, 4), Spot(4, 4), at=(4.0,), steep=True))
    assert len([one for one in of(steep, "spot") if one.get("cx")]) == 2
    assert "nothing measured" in texts(drawn(a_chart(Spot(nan, nan))))


def test_concurrencies_are_the_only_ticks_and_stand_at_even_distances() -> None:
    root = drawn(a_chart(Spot(4, 1), Spot(8, 2), Spot(16, 1), at=(4.0, 16.0, 8.0, 8.0)))
    first, second, third = [float(str(one.get("cx"))) for one in of(root, "spot") if one.get("cx")][:3]
    assert second - first == pytest.approx(third - second, abs=0.2)
    assert [one for one in texts(root) if one in ("4", "8", "16")] == ["4", "8", "16"]


def test_texts_from_elsewhere_are_only_ever_text() -> None:
    bad = "</svg><script>alert(1)</script>\x1b[31m\"'&\x00"
    chart = a_chart(Spot(1, 1, near=bad, tip=bad), title=bad, mark=bad, x=bad, y=bad, notes=(bad,))
    made = svg(chart)
    root = ElementTree.fromstring(made)
    assert "<script" not in made
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", made)
    assert "</svg><script>alert(1)</script>\\x1b[31m\"'&\\x00" in texts(root)
    assert len(list(root.iter(f"{SVG}script"))) == 0


def test_a_long_name_keeps_both_ends_and_shapes_differ_where_colours_repeat() -> None:
    root = drawn(a_chart(series=(Series("begin-" + "x" * 200 + "-end", (Spot(1, 1),)),)))
    (name,) = [one for one in texts(root) if "…" in one]
    assert name.startswith("begin-")
    assert name.endswith("-end")
    assert len(name) < 100
    looks = drawn(a_chart(series=tuple(Series("", (Spot(1, 1),), look) for look in (0, 8))))
    first, second = [one for one in of(looks, "spot") if "f0" in str(one.get("class"))]
    assert (first.tag, second.tag) == (f"{SVG}circle", f"{SVG}path")


def test_it_stands_alone_in_light_and_dark_and_fetches_nothing() -> None:
    made = svg(a_chart(Spot(1, 1)))
    assert "prefers-color-scheme:dark" in made
    assert re.findall(r"https?://[^\"]*", made) == ["http://www.w3.org/2000/svg"]
    assert "url(" not in made
    assert "@import" not in made
