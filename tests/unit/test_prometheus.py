from __future__ import annotations

from fleet.model.prometheus import by_label, parse, total

TEXT = """\
# HELP http_total requests
# TYPE http_total counter
http_total{method="post",code="200"} 1027 1395066363000
http_total{method="post",code="400",why="a \\"b\\", c\\n"}    3
plain 12.47
odd 1.5e+03
endless +Inf
no value here
"""


def test_samples_with_labels_times_and_escapes():
    samples = parse(TEXT)
    assert [sample.name for sample in samples] == ["http_total", "http_total", "plain", "odd", "endless"]
    assert samples[0].labels == {"method": "post", "code": "200"}
    assert samples[1].labels["why"] == 'a "b", c\n'
    assert samples[3].value == 1500
    assert samples[4].value == float("inf")


def test_totals_are_over_all_labels_and_absent_is_not_zero():
    assert total(parse(TEXT), "http_total") == 1030
    assert total(parse(TEXT), "other") is None
    assert parse("") == []


def test_a_metric_by_what_a_label_counts_up():
    text = 'a{p="1",e="0"} 2\na{p="0",e="0"} 5\na{p="1",e="1"} 1\na{p="999999999"} 1\na{p="x"} 1\na 9\nb{p="3"} 1\n'
    assert by_label(parse(text), "a", "p") == (5.0, 3.0)
    assert by_label(parse(text), "b", "p") == (0.0, 0.0, 0.0, 1.0)
    assert by_label(parse(text), "other", "p") is None
