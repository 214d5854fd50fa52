"""The operator's defaults, and how flags become values."""

from __future__ import annotations

from pathlib import Path

import pytest
from invoke.config import Config
from invoke.exceptions import Exit

from fleet.errors import FileFaults, UsageError
from fleet.front import check_settings_file, numbers, words
from fleet.settings import Settings, Timeouts, duration, read


@pytest.mark.parametrize(
    ("written", "seconds"), [(10, 10.0), (0.5, 0.5), ("90", 90.0), ("90s", 90.0), ("40m", 2400.0), ("1.5h", 5400.0)]
)
def test_durations(written: object, seconds: float) -> None:
    assert duration(written) == seconds


@pytest.mark.parametrize("written", ["", "soon", "-5", 0, "0s", "5 d", True, None, "nan"])
def test_what_is_no_duration(written: object) -> None:
    with pytest.raises(ValueError, match="type seconds, or 90s, 40m, 2h"):
        duration(written)


def test_paths_are_of_the_project_and_the_flags_of_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = read({"recipes": "mine", "timeouts": {"connect": "3s"}}, Path("/project"), inventory="here.yaml")
    assert found == Settings(
        inventory=Path("here.yaml"),
        recipes=Path("/project/mine"),
        results=Path("/project/results"),
        timeouts=Timeouts(connect=3.0),
    )
    assert read({}, tmp_path).recipes == Path("recipes")
    assert read({}, Path("/project")).inventory == Path("/project/inventories/lab.yaml")
    assert read({}, Path("/project"), inventory="/etc/hosts.yaml").inventory == Path("/etc/hosts.yaml")


def test_all_faults_are_told_with_the_nearest_key() -> None:
    with pytest.raises(FileFaults) as told:
        read({"inventroy": "x", "timeouts": {"connect": "soon", "reddy_within": 5}}, Path("/project"))
    assert str(told.value).splitlines() == [
        "/project/invoke.yaml: 3 faults",
        "      fleet.inventroy  unknown key; did you mean inventory?",
        "      fleet.timeouts.connect: soon  no duration; type seconds, or 90s, 40m, 2h",
        "      fleet.timeouts.reddy_within  unknown key; did you mean ready_within?",
        "nothing was started",
    ]
    with pytest.raises(FileFaults, match="a mapping expected"):
        read(["x"], Path("/project"))


@pytest.mark.parametrize("text", ["fleet: [", "- a\n- b\n", "fleet:\n\tx: 1\n"])
def test_a_settings_file_invoke_would_choke_on_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "invoke.yaml"
    path.write_text(text)
    with pytest.raises(Exit) as told:
        check_settings_file(path)
    assert told.value.code == 2
    assert str(path) in (told.value.message or "")


def test_keys_given_twice_are_refused_with_both_lines(tmp_path: Path) -> None:
    path = tmp_path / "invoke.yaml"
    path.write_text("fleet:\n  inventory: a\n  timeouts: {connect: 3, command: 9, connect: 4}\n  inventory: b\n")
    with pytest.raises(Exit) as told:
        check_settings_file(path)
    assert told.value.code == 2
    assert (told.value.message or "").splitlines() == [
        f"{path}: 2 faults",
        "  :3  connect  is given twice (line 3); keep one",
        "  :4  inventory  is given twice (line 2); keep one",
        "nothing was started",
    ]


def test_the_environment_wins_where_the_file_has_the_key_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "invoke.yaml").write_text("fleet: {inventory: mine.yaml}\n")
    for name in ("INVENTORY", "RECIPES", "TIMEOUTS_CONNECT"):
        monkeypatch.setenv(f"INVOKE_FLEET_{name}", "9s")
    config = Config(project_location=str(tmp_path))
    config.load_project()
    config.load_shell_env()
    assert config.fleet == {"inventory": "9s"}


@pytest.mark.parametrize("text", [None, "", "fleet: {}\n"])
def test_a_settings_file_may_be_missing_or_empty(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "invoke.yaml"
    if text is not None:
        path.write_text(text)
    check_settings_file(path)


def test_lists_of_values() -> None:
    assert words(None) == ()
    assert words(["a,b", "c", " d , "]) == ("a", "b", "c", "d")
    assert numbers("--conc", ["4,8", "16"]) == (4, 8, 16)
    for wrong in ("x", "0", "-4", "4.5", "1e3"):
        with pytest.raises(UsageError, match=f"--conc takes whole numbers of at least 1, {wrong!r} was given"):
            numbers("--conc", ["4", wrong])
