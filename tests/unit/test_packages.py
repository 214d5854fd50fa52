"""What the lab needs of this machine, and how its absence is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.errors import LabError
from fleet.lab import lab, packages


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine that has only what is put into this folder."""
    monkeypatch.setattr(packages, "PATH", str(tmp_path))
    return tmp_path


def provide(folder: Path, *commands: str) -> None:
    for command in commands:
        (folder / command).touch(0o755)


def test_a_bare_machine_lacks_every_package(bare: Path) -> None:
    assert packages.missing(packages.NODE) == list(packages.NODE)


def test_commands_prove_a_package_whoever_installed_it(bare: Path) -> None:
    provide(bare, "docker-init", "ip")
    lacking = packages.missing(packages.NODE)
    assert "tini" not in lacking, "docker-init is the same program"
    assert "iproute2" in lacking, "tc is part of it"


def test_an_impossible_lab_says_what_is_missing_and_what_works(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(LabError) as caught:
        lab.require()
    assert caught.value.exit_code == 3
    assert "root" in caught.value.what
    assert "docker.io" in caught.value.what
    assert "invoke plan" in caught.value.hint
    with pytest.raises(LabError, match="without root they cannot be installed"):
        packages.install(lambda line: None)


def test_another_system_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    with pytest.raises(LabError, match=r"Linux \(this is Darwin\)"):
        lab.require(tools=False)
