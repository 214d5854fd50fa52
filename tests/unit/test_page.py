"""The page as a parser sees it, and as a browser does where there is one."""

from __future__ import annotations

import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fleet.results.page import POLICY, page
from fleet.results.record import Evidence, GateResult, Image
from fleet.results.sheet import Run
from tests.judged import a_record, after, before, invalid

BAD = "</pre></table><script>alert(1)</script><img src=//x onerror=alert(2)>\x1b[31m\"'&"
LATENCY = {"median_tpot_ms": 10.0, "p90_tpot_ms": 12.5, "median_ttft_ms": 41.25, "p99_ttft_ms": 80.5}
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Read(HTMLParser):
    """Tags, attributes and texts; whether every tag was closed where it should be."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def a_run(*records: object, name: str = "r1", **changes: object) -> Run:
    found = records or (a_record(),)
    return Run(name, "dsv4-mtp", found, {"1p1d-mtp3-c4": LATENCY}, **changes)  # type: ignore[arg-type]


def hostile() -> Run:
    """Everything that files, hosts and containers could put on the page."""
    gates = (GateResult(name=BAD, ok=False, why=BAD),)
    record = invalid(BAD, gates=gates, errors={BAD: 2}, image=Image(tag=BAD, id=BAD), evidence={BAD: Evidence()})
    record = record.model_copy(update={"arm": BAD, "key": BAD, "reproduce": BAD, "no_agg": BAD, "run": BAD})
    return Run(BAD, BAD, (record,), {}, notes=(BAD,), ended_early=(BAD,), texts={BAD: f"{BAD}\n\t{BAD}"})


def test_it_is_whole_and_closed() -> None:
    found = Read(page([a_run(), hostile()], made="now"))
    assert (found.open, found.wrong) == ([], [])
    assert found.tags[:2] == ["html", "head"]


def test_what_comes_from_elsewhere_is_only_ever_text() -> None:
    made = page([hostile()], made=BAD)
    found = Read(made)
    assert {"script", "img", "iframe", "object", "link"} & set(found.tags) == set()
    assert [name for name, _ in found.attributes if name.startswith("on")] == []
    assert "\x1b" not in made
    assert "alert(1)</script>" in found.text


def test_nothing_is_fetched_and_the_browser_is_told_so() -> None:
    made = page([a_run()], made="now")
    found = Read(made)
    assert ("content", POLICY) in found.attributes
    assert [value for name, value in found.attributes if name in ("src", "href") and value[:1] != "#"] == []
    assert set(re.findall(r"https?://[^\"]*", made)) == {"http://www.w3.org/2000/svg"}
    assert "url(" not in made
    assert "prefers-color-scheme:dark" in made


def test_the_mark_stands_on_the_page_on_its_run_and_in_each_picture() -> None:
    found = Read(page([a_run(a_record(double=True, trial=True)), a_run(name="r2")], made="now"))
    pictures = found.tags.count("svg")
    assert pictures == 8
    assert found.texts.count("DOUBLE, TRIAL: not a measurement") == 2 + pictures / 2
    assert "not a measurement" not in page([a_run()], made="now")


def test_a_point_shows_its_figures_its_gates_with_evidence_and_how_to_run_it_again() -> None:
    evidence = {seat: Evidence(before=before()[seat], after=after()[seat]) for seat in before()}
    text = Read(page([a_run(a_record(evidence=evidence))], made="now")).text
    for said in (
        "96.2", "80.0", "50.0", "conc 4: 1 of 1 gate passed", "40 of 40 completed, 40 asked", "336020",
        "per GPU: total by all 16 GPUs, output by 8 decode, input by 8 prefill",
        "invoke sweep --config dsv4-mtp --arm 1p1d-mtp3 --conc 4 --inventory inventories/lab.yaml", "sha256:a41f",
    ):  # fmt: skip
        assert said in text, said


def test_an_invalid_point_is_grey_struck_and_told_with_its_reasons() -> None:
    made = page([a_run(a_record(), invalid("requests: 39 of 40", point="p", conc=8, asked=8))], made="now")
    (row,) = re.findall(r'<tr class="pale"><td class="k">8</td>.*?</tr>', made)
    assert '<span class="bad">invalid</span>' in row
    assert "requests: 39 of 40" in row
    assert "tr.pale td.n{text-decoration:line-through}" in made


def test_plan_and_provenance_are_one_click_away() -> None:
    made = page([a_run(texts={"the plan": "docker run a\n\tb"}, notes=("deviates",))], made="now")
    assert "<details><summary>the plan</summary><div><pre>docker run a\n    b</pre></div></details>" in made
    assert "<summary>1 note</summary>" in made


def test_what_is_not_known_is_listed_once() -> None:
    assert page([a_run(), a_run(name="r2")], made="now").count("throttling, clocks") == 1


def test_a_run_without_points_says_so() -> None:
    assert "No point has run." in page([Run("r", "k", ())], made="now")


@pytest.mark.long
def test_a_browser_shows_it_and_has_nothing_to_complain_about(tmp_path: Path) -> None:
    at = tmp_path / "page.html"
    at.write_text(page([a_run(a_record(double=True)), hostile()], made="now"))
    quiet = ("disable-gpu", "disable-quic", "no-first-run", "disable-background-networking", "disable-sync")
    words = ["chromium", "--headless", "--no-sandbox", *(f"--{one}" for one in (*quiet, "disable-component-update"))]
    words += [f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--dump-dom", at.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert "CONSOLE" not in done.stderr
    found = Read(done.stdout)
    assert found.tags.count("svg") == 8
    assert {"script", "img"} & set(found.tags) == set()
