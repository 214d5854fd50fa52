"""invoke.yaml, the file of `-f` and INVOKE_FLEET_… variables: what Invoke would choke on or pass over is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from invoke.config import Config

from fleet import sources
from fleet.errors import FileFaults
from fleet.front import ROOT
from fleet.sources import check, take, yaml_files


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "TAKEN", {})
    for name in sources.variables():
        monkeypatch.delenv(name)


def told(folder: Path, text: str, runtime: str = "") -> list[str]:
    """The message about an invoke.yaml, without the file's name."""
    path = folder / "invoke.yaml"
    path.write_text(text)
    try:
        check(folder, runtime)
    except FileFaults as error:
        return str(error).replace(f"{path}: ", "").splitlines()
    return []


@pytest.mark.parametrize(
    "text", ["", "\n# all comments\n  # …\n", "fleet: {}\n", "fleet:\n  results: x\nrun:\n  env: {A: b}\n"]
)
def test_a_sound_file(tmp_path: Path, text: str) -> None:
    assert told(tmp_path, text) == []


def test_no_file(tmp_path: Path) -> None:
    check(tmp_path)
    assert yaml_files(tmp_path) == []


UNKNOWN = "unknown key; known are fleet, run, runners, sudo, tasks, timeouts; did you mean fleet?"
FAULTS = [
    ("flet:\n  results: x\n", [f":1  flet  {UNKNOWN}"]),
    ("fleet: {}\nfleet: {}\n", [":2  fleet  written twice in one mapping, first on line 1"]),
    ("fleet:\n  results: a\n  results: b\n", [":3  results  written twice in one mapping, first on line 2"]),
    ("run: 5\n", [":1  run: 5  a mapping expected"]),
    ("run:\n  ecko: true\n  env: 5\n  shell: {a: b}\n", [
        ":2  ecko  unknown key in run; did you mean echo?",
        ":3  run.env: 5  a mapping expected",
        ":4  run.shell: {a: b}  a single value expected",
    ]),
    ("fleet:\n  timeouts:\n    connect: 010\n", [
        ':3  connect: 010  an octal number for some readers; type 10, or "010" for text',
    ]),
    ("fleet:\n\tresults: x\n", [":2  a tab indents this line; type spaces"]),
    ("- a\n- b\n", [":1  a mapping expected at the top, a list was written"]),
    ("flet: {}\nfleet:\n  resluts: x\n  timeouts:\n    conect: 5\n    command: soon\n  recipes:\n  results: 5\n", [
        f":1  flet  {UNKNOWN}",
        ":3  resluts  unknown key in fleet; did you mean results?",
        ":5  conect  unknown key in timeouts; did you mean connect?",
        ":6  command: soon  no duration; type seconds, or 90s, 40m, 2h",
        ":7  recipes:  no value is written; give one or take the key out",
        ":8  results: 5  a path expected",
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "faults"), FAULTS, ids=[case[0][:20] for case in FAULTS])
def test_all_faults_at_once_with_their_lines(tmp_path: Path, text: str, faults: list[str]) -> None:
    count = f"{len(faults)} fault{'s' if len(faults) > 1 else ''}"
    assert told(tmp_path, text) == [count, *(f"  {one}" for one in faults), "nothing was started"]


def test_what_only_the_schema_refuses_is_left_to_the_verbs(tmp_path: Path) -> None:
    """`--help` works on."""
    assert told(tmp_path, "fleet:\n  resluts: x\n") == []


def test_faults_of_files_and_variables_come_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = tmp_path / "more.yml"
    more.write_text('fleet: "\n')
    monkeypatch.setenv("INVOKE_FLEET_RECIPE", "x")
    assert told(tmp_path, "fleets: {}\n", str(more)) == [
        "1 fault",
        f"  :1  fleets  {UNKNOWN}",
        f"{more}: 1 fault",
        "  :2  not YAML: while scanning a quoted scalar (begun on line 1), found unexpected end of stream",
        "environment: 1 fault",
        "      INVOKE_FLEET_RECIPE  no such setting; did you mean INVOKE_FLEET_RECIPES?",
        "nothing was started",
    ]


@pytest.mark.parametrize("name", ["mroe.yaml", "folder"])
def test_a_file_of_f_that_is_not_there(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "more.yaml").write_text("")
    near = "; did you mean more.yaml?" if name == "mroe.yaml" else ""
    with pytest.raises(FileFaults) as error:
        check(tmp_path, str(tmp_path / name))
    assert str(error.value).splitlines() == [
        f"{tmp_path / name}: 1 fault",
        f"      no such file; -f and INVOKE_RUNTIME_CONFIG name a file of settings{near}",
        "nothing was started",
    ]


def test_only_the_first_file_is_read_as_invoke_does(tmp_path: Path) -> None:
    (tmp_path / "invoke.yml").write_text("flet: {}\n")
    (tmp_path / "invoke.json").write_text("{")
    assert yaml_files(tmp_path) == [tmp_path / "invoke.yml"]
    with pytest.raises(FileFaults):
        check(tmp_path)
    assert told(tmp_path, "fleet: {}\n") == []


def test_a_locale_that_cannot_read_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locale.getencoding", lambda: "ascii")
    assert told(tmp_path, "fleet: {}\n# …\n")[1] == (
        "  :2  a character that Invoke cannot read in this locale (ascii); type LC_ALL=C.UTF-8 before invoke"
    )


def test_our_invoke_yaml_can_be_read_in_every_locale() -> None:
    assert (ROOT / "invoke.yaml").read_bytes().isascii()
    check(ROOT)


def test_variables_are_kept_from_invoke() -> None:
    environment = {"INVOKE_FLEET_RESULTS": "x", "INVOKE_FLEETS": "y", "INVOKE_RUN_ECHO": "1", "PATH": "/bin"}
    take(environment)
    assert environment == {"INVOKE_RUN_ECHO": "1", "PATH": "/bin"}
    assert sources.variables() == {"INVOKE_FLEET_RESULTS": "x", "INVOKE_FLEETS": "y"}


def test_invoke_has_the_attributes_that_name_the_file_of_f(tmp_path: Path) -> None:
    """`front.settings` reads them."""
    path = tmp_path / "more.yaml"
    path.write_text("fleet: {results: x}\n")
    config = Config()
    config.set_runtime_path(str(path))
    config.load_runtime()
    assert (config._runtime_path, config._runtime) == (str(path), {"fleet": {"results": "x"}})
