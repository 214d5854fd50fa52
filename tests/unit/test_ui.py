"""What is printed: one event a line without a terminal, whole tables, and a live view that leaves nothing behind."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fleet import ui
from fleet.docker import Container
from fleet.errors import HostError
from fleet.stages.health import health
from tests.judged import a_record, invalid
from tests.world import World


def test_plain_is_one_line_an_event_and_silent_while_it_goes_on() -> None:
    stream = io.StringIO()
    plain = ui.Plain(stream)
    plain.line("arm 1p1d")
    plain.host("stage", "n1", "3 of 37 MB")
    plain.requests("1p1d conc 4", 3, 48)
    plain.host("stage", "n1", "has it", done=True)
    plain.clear()
    plain.close()
    assert stream.getvalue() == "arm 1p1d\n  stage      n1          has it\n"


def test_a_record_is_a_line_with_its_numbers_or_its_first_reason() -> None:
    line = ui.record_line(a_record())
    assert line.startswith("conc    4  valid")
    assert "TTFT p50 41" in line
    assert "accept 2.6" in line
    assert ui.record_line(invalid("requests: 3 of 4", "more")).endswith("requests: 3 of 4")
    assert "accept" not in ui.record_line(a_record(depth=0, spec="none"))


def test_tables_are_not_cut_whatever_the_width(capsys: pytest.CaptureFixture[str]) -> None:
    wide = "x" * 300
    ui.table(("a", "b"), [(wide, 1), ("[red]y[/red]", wide)])
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"a{'':299}  b", f"{wide}  1", f"[red]y[/red]{'':288}  {wide}"]


def test_results_tell_every_reason(capsys: pytest.CaptureFixture[str]) -> None:
    ui.results([a_record(), invalid("requests: 3 of 4", "services: x", point="1p1d-mtp3-c8", conc=8)])
    out = capsys.readouterr().out
    assert "1p1d-mtp3-c8: requests: 3 of 4\n1p1d-mtp3-c8: services: x\n" in out
    ui.results([])
    assert capsys.readouterr().out == "no point has run\n"


def test_containers_name_ours_by_seat_and_strangers(capsys: pytest.CaptureFixture[str]) -> None:
    labels = {"run": "r1", "role": "decode", "rank": "0", "owner": "ops@here"}
    found = [Container(id="1", name="fleet-1", image="i:1", state="running", status="Up 2 m", labels=labels)]
    found += [Container(id="2", name="web", image="nginx:1", state="running", status="Up 9 d")]
    ui.containers([("n1", one) for one in found], ["n1"])
    rows = [line.split("  ") for line in re.sub(" {2,}", "  ", capsys.readouterr().out).splitlines()]
    assert rows[1] == ["n1", "decode0", "Up 2 m", "r1", "ops@here", "fleet-1", "i:1"]
    assert rows[2] == ["n1", "stranger", "Up 9 d", "-", "-", "web", "nginx:1"]


def test_no_container_is_said_of_the_hosts_that_answered(capsys: pytest.CaptureFixture[str]) -> None:
    ui.containers([], ["n1", "n3"])
    ui.containers([], [])
    assert capsys.readouterr().out == "no container on n1, n3\nno host answered\n"


def test_health_is_a_table_then_words(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    world.nodes["mi355x-02"].clock = 5.0
    world.nodes["mi355x-01"].first = [(lambda argv: True, HostError("refused", where="mi355x-01"))]
    ui.health(health(world.session, world.plan))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["mi355x-01", "yes", *["-"] * 6]
    assert "8 idle" in lines[2]
    assert "a4a4a4" in lines[2]
    assert lines[3:] == [
        "mi355x-01: refused",
        "mi355x-02: its clock is off by +5.0 s; type: chronyc makestep there",
        "0 of 2 hosts healthy (exit 3)",
    ]


def test_lines_go_to_stderr_where_stdout_is_for_json(capsys: pytest.CaptureFixture[str]) -> None:
    ui.progress(json=True).line("arm")
    ui.as_json({"größe": 1})
    captured = capsys.readouterr()
    assert captured.err == "arm\n"
    assert json.loads(captured.out) == {"größe": 1}


# --- a terminal -----------------------------------------------------------------------------------------------------


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch, columns: int = 100) -> Iterator[list[str]]:
    """stdout is a pseudo-terminal; what arrived on it is in the list at the end."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (30, columns))
    received, out = bytearray(), os.fdopen(theirs, "w")

    def read() -> None:
        try:
            while data := os.read(ours, 65536):
                received.extend(data)
        except OSError:
            return

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    found: list[str] = []
    for name in ("CI", "LINES", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stdout", out)
    try:
        yield found
    finally:
        monkeypatch.undo()
        out.close()
        reader.join(5)
        os.close(ours)
        found.append(received.decode())


def screen(text: str, columns: int = 100) -> list[str]:
    """The lines a terminal shows after all that was written: enough of one for what the live view uses."""
    rows, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
        if part == "\r":
            column = 0
        elif part == "\n":
            row += 1
            rows += [""] * (row - len(rows) + 1)
        elif part.startswith("\x1b["):
            count = int(re.sub(r"\D", "", part) or 1)
            if part.endswith("A"):
                row = max(0, row - count)
            elif part == "\x1b[2K":
                rows[row] = ""
        else:
            for start in range(0, len(part), columns):
                piece = part[start : start + columns]
                if start:
                    row, column = row + 1, 0
                    rows += [""] * (row - len(rows) + 1)
                rows[row] = rows[row][:column].ljust(column) + piece + rows[row][column + len(piece) :]
                column += len(piece)
    return [line.rstrip() for line in rows]


def test_a_terminal_has_the_live_view_ci_has_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch):
        live = ui.progress()
        live.close()
        monkeypatch.setenv("CI", "1")
        assert isinstance(ui.progress(), ui.Plain)
    assert isinstance(live, ui.Screen)
    assert isinstance(ui.progress(), ui.Plain)


@pytest.mark.parametrize("columns", [100, 40])
def test_what_is_over_stays_and_nothing_else(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    with terminal(monkeypatch, columns) as found:
        live = ui.Screen()
        live.line("arm 1p1d")
        live.host("stage", "n1", "3 of 37 MB, which is a long story that goes on and on beyond the edge of a terminal")
        live.host("stage", "n2", "1 of 37 MB")
        live._live.refresh()
        live.host("stage", "n1", "has it", done=True)
        live.requests("1p1d conc 4", 12, 48)
        live._live.refresh()
        live.record(invalid("no"))
        live.line("the end")
        live.close()
    shown = [line for line in screen(found[0], columns) if line]
    assert shown == ["arm 1p1d", "  stage      n1          has it", "  conc    4  invalid     no", "the end"]


def test_while_it_goes_on_there_is_a_line_a_host_and_one_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as found:
        live = ui.Screen()
        live.host("ready", "n1", "loading weights")
        live.host("ready", "n2", "connection refused")
        live.host("ready", "n1", "engine ready")
        live.requests("1p1d conc 4, point 1 of 2", 1, 148)
        live.requests("1p1d conc 8, point 2 of 2", 41, 148)
        live._live.refresh()
        now = [*live._hosts.values()], [(task.description, task.completed, task.total) for task in live._bars.tasks]
        live.clear()
        assert (live._hosts, list(live._bars.tasks)) == ({}, [])
        live.close()
    assert now == (
        ["  ready      n1          engine ready", "  ready      n2          connection refused"],
        [("1p1d conc 8, point 2 of 2", 41, 148)],
    )
    assert "41/148" in found[0]
    assert [line for line in screen(found[0]) if line] == []


def test_several_threads_may_tell_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as found:
        live = ui.Screen()

        def tell(name: str) -> None:
            for number in range(20):
                live.host("stage", name, f"{number}")
            live.host("stage", name, "has it", done=True)

        threads = [threading.Thread(target=tell, args=(f"n{number}",)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        live.close()
    shown = sorted(line for line in screen(found[0]) if line)
    assert shown == [f"  stage      n{number}          has it" for number in range(8)]


def test_a_path_is_no_markup(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ui.say("[bold]/x[/bold]")
    assert capsys.readouterr().out == "[bold]/x[/bold]\n"
