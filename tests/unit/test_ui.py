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
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleet import ui
from fleet.docker import Container
from fleet.errors import HostError
from fleet.results import report
from fleet.stages.health import Health, HostHealth, health
from fleet.timeline import Line, Told
from tests.judged import a_record, invalid
from tests.world import KEY, RUN, World


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


def test_plain_tells_of_a_transfer_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 5.0, 15.0, 16.0, 31.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    stream = io.StringIO()
    plain = ui.Plain(stream)
    for done in (0, 10, 20, 30, 40):
        plain.moved("stage", "n1", done * 1_000_000, 41_000_000, 2e6)
    assert stream.getvalue() == (
        "  stage      n1          20 of 41 MB  2.0 MB/s  10 s left\n"
        "  stage      n1          40 of 41 MB  2.0 MB/s  0 s left\n"
    )


def test_a_transfer_in_words() -> None:
    assert ui.transfer(3_000_000, 37_000_000, 0) == "3 of 37 MB"
    assert ui.transfer(3_000_000, 0, 1e6) == "3 MB  1.0 MB/s"
    assert ui.transfer(612 * 10**9, 900 * 10**9, 480e6) == "612 of 900 GB  480.0 MB/s  10 m 0 s left"
    assert ui.meter(5, 10) == "██████░░░░░░  "
    assert ui.meter(50, 10) == "████████████  "
    assert ui.meter(5, 0) == ""


def test_a_record_is_a_line_with_its_numbers_or_its_first_reason() -> None:
    line = ui.record_line(a_record())
    assert line.startswith("conc    4  valid")
    assert "TTFT p50  41" in line
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


def test_of_many_reasons_the_first_are_told() -> None:
    rows = report.rows(
        [invalid("requests: 3 of 4", "services: x", "prefill requests: y", "more: z"), a_record(point="b-c4", arm="b")]
    )
    assert list(ui.reasons(rows)) == [
        "1p1d-mtp3-c4: requests: 3 of 4",
        "1p1d-mtp3-c4: services: x",
        "1p1d-mtp3-c4: 2 more reasons in the summary",
    ]


def test_points_stand_below_their_arms_with_the_columns_that_fit() -> None:
    other = a_record(point="2p1d-c64", arm="2p1d", conc=64, asked=256)
    rows = report.rows([a_record(), a_record(point="1p1d-mtp3-c8", conc=8, asked=8), other])
    wide = ui.points(rows, 100).splitlines()
    assert [line.split()[0] for line in wide[2:]] == ["arm", "4", "8", "arm", "64"]
    assert wide[0].split("  ")[-1] == "accept"
    assert "not shown" not in "\n".join(wide)
    narrow = ui.points(rows, 80).splitlines()
    assert max(map(len, narrow)) <= 80
    assert narrow[-1] == "not shown at this width: in tok/s/GPU, TPOT p50 ms"
    assert narrow[0].split() == ["out", "inter", "TTFT", "p50", "TTFT", "p99", "accept"]
    assert ui.points(rows, 10).splitlines()[-1] == "not shown at this width: in tok/s/GPU, TTFT p99 ms, TPOT p50 ms"


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
        f"2 more hosts of the inventory are not needed by {KEY}: mi355x-03, mi355x-04",
        "0 of 2 hosts healthy (exit 3)",
    ]


# --- health that is watched -----------------------------------------------------------------------------------------


AT = datetime(2026, 11, 30, 21, 14, 7, tzinfo=UTC)
STAMP = "2026-11-30T21:14:07Z"
SILENT = HostHealth("mi355x-02", None, (), reached=False, silence=12.4)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World()
    made.running(tmp_path)
    return made


def looked(world: World) -> Health:
    return health(world.session, world.plan)


def without(found: Health, silent: HostHealth = SILENT) -> Health:
    """The same with the second host silent."""
    return replace(found, hosts=(found.hosts[0], silent))


def test_a_short_row_may_run_on() -> None:
    assert ui.aligned([("a", "bb", "c"), ("1", "no answer since 12 s"), ("22", "3", "4")]) == [
        "a   bb  c",
        "1   no answer since 12 s",
        "22  3   4",
    ]


def test_changes_are_told_once(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    shown = ui.watched(2)
    first = looked(world)
    shown.show(first, AT)
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith(f"{STAMP}  ") for line in lines)
    told = [line.removeprefix(f"{STAMP}  ") for line in lines]
    image = f"image {first.hosts[0].findings.images[world.tag].id[7:13]}" if first.hosts[0].findings else ""
    assert told == [
        f"mi355x-01: well   docker 27.3, GPUs 8 idle, disk free 966 GB, {image}, model 2 files",
        f"mi355x-02: well   docker 27.3, GPUs 8 idle, disk free 966 GB, {image}, model 2 files",
        f"prefill0 on mi355x-01, run {RUN}: running, well",
        f"router on mi355x-01, run {RUN}: running, well",
        f"decode0 on mi355x-02, run {RUN}: running, well",
        "models: the same on all hosts that answer",
        f"hosts: 2 more hosts of the inventory are not needed by {KEY}: mi355x-03, mi355x-04",
        "2 of 2 hosts healthy; 3 of 3 services well",
    ]
    world.nodes["mi355x-01"].free["/var/lib/docker"] -= 10**10
    world.nodes["mi355x-01"].free["/"] -= 10**10
    shown.show(looked(world), AT)
    assert capsys.readouterr().out == "", "free space changes all the time"
    world.box("decode0").end(1)
    ended = looked(world)
    shown.show(ended, AT)
    host, *others = capsys.readouterr().out.splitlines()
    assert host.startswith(f"{STAMP}  mi355x-02: run {RUN} has containers here (fleet-")
    verdict = "1 of 2 hosts healthy; 1 of 3 services not well (exit 3)"
    lost = [f"decode0 on mi355x-02, run {RUN}: exited, Exited (1) 2 seconds ago", verdict]
    assert others == [f"{STAMP}  {line}" for line in lost]
    older = [replace(one, fault=one.fault.replace("2 seconds", "About a minute")) for one in ended.services]
    shown.show(replace(ended, services=tuple(older)), AT)
    assert capsys.readouterr().out == ""
    shown.show(replace(first, services=()), AT)
    gone = capsys.readouterr().out.splitlines()
    assert sum(line.endswith(": gone") for line in gone) == 3
    assert f"{STAMP}  2 of 2 hosts healthy" in gone


def test_a_silent_host_is_told_then_why_then_that_it_is_back(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    shown, well = ui.Changes(), looked(world)
    shown.show(well, AT)
    capsys.readouterr()
    why = replace(SILENT, error="mi355x-02: no answer within 30 s\ntry:  ssh")
    for seconds, host in enumerate((SILENT, SILENT, why, replace(why, error="mi355x-02: connection refused"))):
        shown.show(without(well, replace(host, silence=12.0 + seconds)), AT)
    shown.show(well, AT)
    lines = [line.removeprefix(f"{STAMP}  ") for line in capsys.readouterr().out.splitlines()]
    assert lines[:3] == [
        "mi355x-02: no answer",
        "1 of 2 hosts healthy; 3 of 3 services well (exit 3)",
        "mi355x-02: no answer: no answer within 30 s; try:  ssh",
    ]
    assert [line[:15] for line in lines[3:]] == ["mi355x-02: well", "2 of 2 hosts he"]


def test_watched_health_as_json_is_an_object_a_line(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    shown = ui.watched(2, json=True)
    shown.show(looked(world), AT)
    shown.show(without(looked(world)), AT)
    shown.close()
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    whole = json.loads(json.dumps(looked(world).to_json()))
    assert first == {"time": STAMP, **whole} | {"hosts": first["hosts"]}
    assert (first["well"], "silent_s" in first["hosts"][1]) == (True, False)
    assert (second["well"], second["hosts"][1]["well"], second["hosts"][1]["silent_s"]) == (False, False, 12)


def plain(found: Health, width: int = 100, height: int = 30) -> list[str]:
    return [line.plain for line in ui.board(found, AT, width, height)]


def test_the_board_is_health_with_the_verdict_first(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    found = without(looked(world))
    ui.health(found)
    printed = [line for line in capsys.readouterr().out.splitlines() if line]
    shown = [line for line in plain(found, width=200) if line]
    assert shown[0] == "1 of 2 hosts healthy; 3 of 3 services well (exit 3)   21:14:07 UTC   ^C ends"
    assert shown[1:] == printed[:-1]
    assert "mi355x-02  no answer since 12 s" in shown
    red = [str(line.style) for line in ui.board(found, AT, 100, 30) if line.plain.startswith("mi355x-0")]
    assert red[:2] == ["", "red"]


def test_what_is_starting_is_yellow_and_no_alarm(world: World) -> None:
    found = looked(world)
    starting = replace(found, services=(replace(found.services[0], starting="/health: x"), *found.services[1:]))
    lines = [(line.plain, str(line.style)) for line in ui.board(starting, AT, 100, 30)]
    assert lines[0] == (
        "2 of 2 hosts healthy; 1 of 3 services still starting (exit 4)   21:14:07 UTC   ^C ends", "bold yellow",
    )  # fmt: skip
    assert [style for line, style in lines if "starting: /health" in line] == ["yellow"]


@pytest.mark.parametrize(("width", "height"), [(100, 30), (80, 24), (40, 10), (40, 6), (20, 3)])
def test_the_board_fits(world: World, width: int, height: int) -> None:
    why = replace(
        SILENT, error="mi355x-02: connection refused at 10.0.0.13:22 as amd; try:\nssh -p 22 amd@10.0.0.13 true"
    )
    lines = plain(without(looked(world), why), width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    if width >= 80:
        words = " ".join(lines)
        assert "ssh -p 22 amd@10.0.0.13 true" in words
        assert "decode0" in words


def test_what_a_service_answered_is_read_where_its_row_is_cut(world: World) -> None:
    found = looked(world)
    ill = replace(found.services[0], fault="/health: connection refused " + "x " * 40)
    lines = plain(replace(found, services=(ill,)), width=80)
    assert " ".join(lines).count("x " * 39 + "x") == 1
    assert "prefill0 on mi355x-01: /health: connection refused x x" in " ".join(lines)
    assert not any(line.startswith("prefill0 on") for line in plain(found, width=80))


def test_where_there_are_too_many_those_that_are_well_are_counted(world: World) -> None:
    found = looked(world)
    many = tuple(replace(found.hosts[0], name=f"n{number}") for number in range(60))
    lines = plain(replace(found, hosts=(*many, SILENT)))
    assert lines[0].startswith("60 of 61 hosts healthy")
    assert "mi355x-02  no answer since 12 s" in lines
    assert "… 63 more hosts and services are well" in lines
    assert len(lines) < 10


def test_a_terminal_shows_the_board_and_keeps_the_last_state(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    with terminal(monkeypatch) as found:
        shown = ui.watched(2)
        assert isinstance(shown, ui.Board)
        shown.show(without(looked(world)), AT)
        shown.show(looked(world), AT)
        shown.close()
    live, _, after = found[0].partition("\x1b[?1049l")
    assert "asking 2 hosts" in live
    assert "no answer since 12 s" in live
    assert "no answer" not in after
    assert "2 of 2 hosts healthy" in after


# --- logs that are followed -----------------------------------------------------------------------------------------


def told(text: str, seat: str = "decode0", host: str = "n2", *, note: bool = False, late: float = 0.0) -> Told:
    return Told(Line(AT.timestamp() + 0.3124, f"{host}{seat}", host, seat, text, note), late)


def test_a_followed_line_has_its_time_seat_and_host(capsys: pytest.CaptureFixture[str]) -> None:
    tape = ui.Tape()
    for one in (
        told("HIP out of memory"),
        told("", "prefill0.1", "node-10"),
        told("[red]error[/red]", "router", "n1"),
        told("late", late=1.26),
        told("ended (exit 137: killed)", note=True),
        told("lost: no answer", "", "n1", note=True),
        told("all services have ended", "", "", note=True),
    ):
        tape.tell(one)
    assert capsys.readouterr().out.splitlines() == [
        "21:14:07.312  decode0   n2  HIP out of memory",
        "21:14:07.312  prefill0.1  node-10",
        "21:14:07.312  router      n1       [red]error[/red]",
        "21:14:07.312  decode0     n2       (1.3 s late) late",
        "21:14:07.312  decode0     n2       ==> ended (exit 137: killed)",
        "21:14:07.312  -           n1       ==> lost: no answer",
        "21:14:07.312  -           -        ==> all services have ended",
    ]


def test_on_a_terminal_each_service_has_its_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch, columns=40) as found:
        tape = ui.Tape()
        for one in (told("x" * 60), told("y", "router", "n1"), told("z")):
            tape.tell(one)
    lines = [line for line in found[0].split("\r\n") if line]
    assert [re.sub(r"\x1b\[[\d;]*m", "", line) for line in lines] == [
        f"21:14:07.312  decode0   n2  {'x' * 60}",
        "21:14:07.312  router    n1  y",
        "21:14:07.312  decode0   n2  z",
    ]
    first, second, third = (re.findall(r"\x1b\[([\d;]+)m", line)[0] for line in lines)
    assert first == third != second


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
    assert shown == ["arm 1p1d", "  stage      n1          has it", "  conc    4  invalid  no", "the end"]


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


@pytest.mark.parametrize(("answer", "meant"), [("yes", True), (" Yes ", True), ("y", False), ("", False)])
def test_only_yes_is_yes(answer: str, meant: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.input", lambda question: answer)
    assert ui.confirm("sure? ") is meant


def test_the_end_of_stdin_is_no_answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert ui.confirm("sure? ") is False
    assert not ui.asks()
