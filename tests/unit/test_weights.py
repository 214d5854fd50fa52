"""Models on several hosts: full hashes that are remembered and never believed of a changed file, and what is told."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fleet.checkpoint import Checkpoint, fingerprint
from fleet.errors import HostError
from fleet.hosts.base import Argv, Outcome
from fleet.hosts.local import Local
from fleet.lab import weights as stand_ins
from fleet.model.inventory import Host
from fleet.session import Machine
from fleet.settings import Settings
from fleet.stages import hashes, weights

MODEL = "M"


class Counting(Local):
    """Keeps what was hashed."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.hashed: list[bytes] = []

    def stream(self, argv: Argv, **options: object) -> Outcome:  # type: ignore[override]
        self.hashed.append(b"".join(options["source"]))  # type: ignore[call-overload]
        options["source"] = self.hashed[-1:]
        return super().stream(argv, **options)  # type: ignore[arg-type]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """One whose model was written long ago, as file systems count."""
    (tmp_path / "results").mkdir()
    (tmp_path / MODEL).mkdir()
    for name, data in stand_ins.files().items():
        (tmp_path / MODEL / name).write_bytes(data)
    monkeypatch.setattr(hashes, "SETTLED", -(10**10))
    return Machine(Host(name="n1", models=str(tmp_path)), Counting("n1"), Settings(results=tmp_path / "results"), {})


def look(machine: Machine) -> Checkpoint:
    found = weights.look(machine, MODEL, full=True)
    assert found
    return found


def hashed(machine: Machine) -> list[bytes]:
    """The files whose bytes were read since the last time, sorted."""
    assert isinstance(machine.transport, Counting)
    names = sorted(b"".join(machine.transport.hashed).split(b"\0")[:-1])
    machine.transport.hashed.clear()
    return names


def test_full_hashes_are_done_once_and_again_for_what_changed(machine: Machine) -> None:
    first = look(machine)
    assert hashed(machine) == sorted(name.encode() for name in stand_ins.files())
    assert fingerprint(first).full
    assert look(machine) == first
    assert hashed(machine) == []
    path = Path(machine.host.models) / MODEL / "config.json"
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"deepseek_v4", b"deepseek_v5"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    again = look(machine)
    assert hashed(machine) == [b"config.json"]
    assert fingerprint(again).full != fingerprint(first).full


def test_another_host_or_folder_has_hashes_of_its_own(machine: Machine, tmp_path: Path) -> None:
    look(machine)
    folder = str(tmp_path / MODEL)
    assert len(hashes.known(tmp_path / "results", "n1", folder)) == 4
    assert hashes.known(tmp_path / "results", "n2", folder) == {}
    assert hashes.known(tmp_path / "results", "n1", folder + "2") == {}


def test_what_was_just_written_is_not_kept_and_a_damaged_line_is_passed_over(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashes, "SETTLED", 2 * 10**9)
    for path in (tmp_path / MODEL).iterdir():
        path.touch()
    look(machine)
    assert len(hashed(machine)) == 4
    look(machine)
    assert len(hashed(machine)) == 4
    monkeypatch.setattr(hashes, "SETTLED", -(10**10))
    look(machine)
    hashed(machine)
    kept = tmp_path / "results" / hashes.NAME
    kept.write_text("{}\nno json\n" + kept.read_text())
    look(machine)
    assert hashed(machine) == []


def test_a_file_that_is_written_while_it_is_hashed_is_an_error(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = machine.transport.stream

    def slow(argv: Argv, **options: object) -> Outcome:
        (tmp_path / MODEL / "config.json").write_text(str(time.time_ns()))
        return usual(argv, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(machine.transport, "stream", slow)
    with pytest.raises(HostError) as told:
        look(machine)
    assert told.value.head == "n1: model M: 1 file (config.json) changed while being read, or cannot be read"


def test_reasons_name_at_most_six_files_and_count_the_rest() -> None:
    def of(*paths: str) -> Checkpoint:
        files = {path: weights.checkpoint.File(weights.checkpoint.Stamp(path, 5, 1, 1), path) for path in paths}
        return Checkpoint(files)

    names = [f"{number}.bin" for number in range(9)]
    found = {"n1": of("config.json", *names), "n2": of("config.json")}
    told = weights.reasons("M", found, lambda source, hosts: f"copy {source} {hosts}")
    assert [one.text for one in told[:2]] == [
        "model M: 0.bin: 5 bytes on n1; missing on n2",
        "model M: 1.bin: 5 bytes on n1; missing on n2",
    ]
    assert told[-1].text.startswith("model M: 3 more files that differ\n")
    assert len(told) == 7
    assert {host for one in told for host in one.hosts} == {"n2"}


def test_what_most_hosts_are_half_with_is_told_once_and_who_has_it_whole_is_named() -> None:
    half, whole = Checkpoint(halves=("x.part (1 byte) is half",)), Checkpoint()
    found = {"n1": half, "n2": whole, "n3": half, "n4": None}
    first, second = weights.reasons("M", found, lambda source, hosts: f"copy {source} {','.join(hosts)}")
    assert (first.text, first.hosts) == ("model M: missing or empty on n4", ("n4",))
    assert second.text == "model M: on n1, n3 x.part (1 byte) is half\n    copy it from n2: copy n2 n1,n3,n4"
    assert second.hosts == ("n1", "n3")
    (only,) = weights.reasons("M", {"n1": half}, lambda source, hosts: "")
    assert only.text.endswith("whole on none of them: download it again on one, or finish what is under way there")
    assert weights.reasons("M", {"n1": whole, "n2": whole}, lambda source, hosts: "") == []


def test_what_a_run_remembers_and_what_counts_as_changed() -> None:
    then = {"M": {"files": 4, "size": 9, "digest": "aa", "full": "", "hosts": ["n1"]}}
    same = {"M": then["M"] | {"full": "ff", "hosts": ["n1", "n2"]}}
    assert weights.changed(then, same) == []
    assert weights.changed(same, {"M": same["M"] | {"full": "f0"}}) == [
        "model M was 4 files, 9 bytes, ff when the run began, and is 4 files, 9 bytes, f0 now"
    ]
    assert weights.changed(then, {"M": then["M"] | {"digest": "ab"}}) == [
        "model M was 4 files, 9 bytes, aa when the run began, and is 4 files, 9 bytes, ab now"
    ]
    assert weights.changed({}, then) == []
