"""The operator's defaults, and how flags become values."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.errors import FileFaults, UsageError
from fleet.front import numbers, words
from fleet.settings import Settings, Timeouts, duration, near, read


@pytest.mark.parametrize(
    ("written", "seconds"), [(10, 10.0), (0.5, 0.5), ("90", 90.0), ("90s", 90.0), ("40m", 2400.0), ("1.5h", 5400.0)]
)
def test_durations(written: object, seconds: float) -> None:
    assert duration(written) == seconds


@pytest.mark.parametrize(
    "written", ["", "soon", "-5", 0, "0s", "5 d", True, None, "nan", "９s", "1e3", "721h", 10**9, "9" * 5000, 10**400]
)
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
    monkeypatch.setenv("HOME", "/home/ops")
    assert read({"results": "~/runs"}, Path("/project")).results == Path("/home/ops/runs")
    assert read({}, Path("/project"), inventory="~/rack.yaml").inventory == Path("/home/ops/rack.yaml")


def test_a_path_below_a_folder_that_is_gone_stays_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert near(Path("/project/results")) == Path("/project/results")
    monkeypatch.chdir(tmp_path)


def test_the_environment_wins_over_files_and_the_file_of_f_over_it() -> None:
    values = {"results": "a", "recipes": "b", "timeouts": {"connect": 1, "command": 2}}
    given = {"INVOKE_FLEET_RESULTS": "/c", "INVOKE_FLEET_TIMEOUTS_CONNECT": "5s", "INVOKE_FLEET_INVENTORY": "/i.yaml"}
    found = read(values, Path("/project"), variables=given, over={"results": "/d"})
    assert found == Settings(
        inventory=Path("/i.yaml"),
        recipes=Path("/project/b"),
        results=Path("/d"),
        timeouts=Timeouts(connect=5.0, command=2.0),
    )
    assert read(values, Path("/project"), variables=given, inventory="/j.yaml").inventory == Path("/j.yaml")


def test_variables_that_cannot_take_effect_are_told_all_at_once() -> None:
    given = {
        "INVOKE_FLEET_INVENTROY": "x",
        "INVOKE_FLEET_TIMEOUTS": "5",
        "INVOKE_FLEET_TIMEOUTS_CONNECT": "soon",
        "INVOKE_FLEET_RESULTS": " ",
        "INVOKE_FLEETX_YZ": "x",
    }
    with pytest.raises(FileFaults) as told:
        read({}, Path("/project"), variables=given)
    paths = [f"INVOKE_FLEET_{name}" for name in ("INVENTORY", "RECIPES", "RESULTS", "FULL_HASH")]
    timeouts = [f"INVOKE_FLEET_TIMEOUTS_{name.upper()}" for name in Timeouts.model_fields]
    assert str(told.value).splitlines() == [
        "environment: 5 faults",
        f"      INVOKE_FLEETX_YZ  no such setting; there are {', '.join([*paths, *timeouts])}",
        "      INVOKE_FLEET_INVENTROY  no such setting; did you mean INVOKE_FLEET_INVENTORY?",
        "      INVOKE_FLEET_RESULTS  is empty; is a shell variable not set?",
        f"      INVOKE_FLEET_TIMEOUTS  no such setting; there are {', '.join(timeouts)}",
        "      INVOKE_FLEET_TIMEOUTS_CONNECT=soon  no duration; type seconds, or 90s, 40m, 2h",
        "nothing was started",
    ]


@pytest.mark.parametrize("value", [5, "", "  ", None, ["x"]])
def test_what_is_no_path(value: object) -> None:
    with pytest.raises(FileFaults, match=r"fleet.results: .*a path expected"):
        read({"results": value}, Path("/project"))


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


def test_lists_of_values() -> None:
    assert words(None) == ()
    assert words(["a,b", "c", " d , "]) == ("a", "b", "c", "d")
    assert numbers("--conc", ["4,8", "16"]) == (4, 8, 16)
    for wrong in ("x", "0", "-4", "4.5", "1e3", "1000001", "１２８", "²", "1_0", "9" * 5000):
        with pytest.raises(UsageError) as told:
            numbers("--conc", ["4", wrong])
        assert str(told.value).startswith(f"--conc takes a whole number from 1 to 1000000, '{wrong[:200]}")
        assert told.value.hint == "type: --conc 4,8"
        assert len(str(told.value)) < 350
