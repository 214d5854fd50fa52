"""Files as a stream, sent and taken by the real scripts: whole or not at all, and nothing that is there is touched."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet import parcel
from fleet.checkpoint import Checkpoint, File, Stamp
from fleet.parcel import Load, in_the_way, lacking, loads
from tests.world import LOCAL

FILES = {
    "config.json": b"{}",
    "sub dir/w-1.safetensors": os.urandom(3_000_001),
    "empty": b"",
    "a\nb '$(x)' \\ \udcff": b"odd\n",
    "-rf": b"\0" * 70_000,
    ".": b"",
}
del FILES["."]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    for name, data in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def sent(source: Path, *names: str) -> bytes:
    sizes = {name: len(FILES[name]) for name in names or FILES}
    return LOCAL.run(parcel.send_argv(str(source), sizes)).stdout


def take(target: Path, stream: bytes) -> tuple[int, str]:
    done = LOCAL.run(parcel.take_argv(str(target)), stdin=stream, check=False)
    return done.code, done.err.strip()


def there(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != parcel.OPEN)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_what_is_sent_arrives_byte_for_byte_under_any_name(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "-new target"
    assert take(target, sent(source)) == (0, "")
    assert there(target) == FILES
    assert {path.stat().st_mode & 0o777 for path in target.rglob("*") if path.is_file()} == {0o644}


def test_what_is_there_is_neither_written_nor_replaced(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "config.json").write_bytes(b"mine")
    (target / "-rf").symlink_to("nowhere")
    assert take(target, sent(source)) == (0, "")
    assert there(target) == {**{name: data for name, data in FILES.items() if name != "-rf"}, "config.json": b"mine"}
    assert os.readlink(target / "-rf") == "nowhere"


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_a_stream_that_is_cut_leaves_whole_files_only_and_the_rest_comes_later(
    source: Path, tmp_path: Path, share: float
) -> None:
    target, stream = tmp_path / "target", sent(source)
    code, said = take(target, stream[: int(share * len(stream))])
    assert (code, said) == (74, "the stream ended before its end")
    assert there(target).items() <= FILES.items()
    assert take(target, stream) == (0, "")
    assert there(target) == FILES


def test_what_arrives_damaged_gets_no_name(source: Path, tmp_path: Path) -> None:
    stream = bytearray(sent(source, "sub dir/w-1.safetensors", "config.json"))
    stream[1_000_000] ^= 1
    assert take(tmp_path / "target", bytes(stream)) == (65, "./sub dir/w-1.safetensors arrived damaged")
    assert there(tmp_path / "target") == {}


@pytest.mark.parametrize("name", ["../out", "a/../../out", "..", "../target/../out"])
def test_a_name_that_leads_out_is_not_written(tmp_path: Path, name: str) -> None:
    stream = f"1 {parcel.escaped(name)}\nx2d71\n.\n".encode()
    assert take(tmp_path / "target", stream) == (65, f"./{name} leads out of the folder")
    assert sorted(path.name for path in tmp_path.rglob("*")) == [parcel.OPEN, "target"]


def test_what_an_earlier_copy_left_goes_and_nothing_else(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    (target / "sub dir").mkdir(parents=True)
    for name in (".fleet-part-3", "sub dir/.fleet-part-1", "x.part", ".other"):
        (target / name).write_bytes(b"x")
    assert take(target, sent(source, "config.json"))[0] == 0
    assert sorted(there(target)) == [".other", "config.json", "x.part"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_a_full_disk_is_told_and_leaves_what_arrived_whole(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(target)], check=True, timeout=10)
    try:
        code, said = take(target, sent(source))
        assert code == 28
        assert "could not be written: " in said
        assert there(target) == {"config.json": FILES["config.json"]}
    finally:
        subprocess.run(["umount", str(target)], check=True, timeout=10)


def test_two_copies_to_one_folder_do_not_meet(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    first = subprocess.Popen(parcel.take_argv(str(target)), stdin=subprocess.PIPE)
    assert first.stdin
    stream = sent(source)
    first.stdin.write(stream[:1000])
    first.stdin.flush()
    while not list(target.rglob(".fleet-part-[0-9]*")):
        assert first.poll() is None
    code, said = take(target, stream)
    assert (code, said.partition(", or")[0]) == (75, f"another copy to {target} is under way")
    first.stdin.write(stream[1000:])
    first.stdin.close()
    assert first.wait(20) == 0
    assert there(target) == FILES


@pytest.mark.parametrize("change", [lambda path: path.unlink(), lambda path: path.write_bytes(b"short")])
def test_a_file_that_is_gone_or_changed_ends_the_sending(
    source: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    change(source / "sub dir/w-1.safetensors")
    done = LOCAL.run(parcel.send_argv(str(source), {name: len(data) for name, data in FILES.items()}), check=False)
    assert done.code == 65
    assert "sub dir/w-1.safetensors c" in done.err
    code, _ = take(tmp_path / "target", done.stdout)
    assert code in (65, 74)
    assert there(tmp_path / "target") == {"config.json": b"{}"}


def test_a_folder_says_that_it_is_not_done_until_it_is(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    assert take(target, sent(source, "config.json")) == (0, "")
    assert (target / parcel.OPEN).exists()
    LOCAL.run(parcel.done_argv(str(target)))
    assert not (target / parcel.OPEN).exists()


# --- who gets what ---


def a_checkpoint(broken: tuple[str, ...] = (), **files: tuple[int, str]) -> Checkpoint:
    made = {path: File(Stamp(path, size, 1, 1), sample) for path, (size, sample) in files.items()}
    return Checkpoint(made, broken=frozenset(broken))


def test_what_a_host_lacks_and_what_is_in_the_way() -> None:
    source = a_checkpoint(a=(1, "x"), b=(2, "x"), c=(3, "x"), d=(4, "x"))
    target = a_checkpoint(("d",), a=(1, "x"), b=(2, "y"), c=(9, "x"), other=(7, "x"))
    assert lacking(source, target) == {"d": 4}
    assert lacking(source, None) == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert in_the_way(source, target) == [
        "b has other content", "c has 9 bytes there, 3 here", "d is a link that leads nowhere"
    ]  # fmt: skip
    assert in_the_way(source, None) == []


def test_each_file_goes_once_to_all_that_lack_it() -> None:
    wanted = {"n2": {"a": 1, "b": 2, "c": 3}, "n3": {"b": 2}, "n4": {"a": 1, "b": 2, "c": 3}}
    assert list(loads(wanted)) == [Load(("n2", "n3", "n4"), {"b": 2}), Load(("n2", "n4"), {"a": 1, "c": 3})]
    assert list(loads({"n2": {}})) == []


def test_names_of_a_load_fit_into_one_command() -> None:
    wanted = {"n2": {f"{number:04}-{'x' * 90} ": number for number in range(1000)}}
    made = list(loads(wanted))
    assert {path: size for load in made for path, size in load.files.items()} == wanted["n2"]
    assert all(len(" ".join(parcel.send_argv("/m", load.files))) < 100_000 for load in made)
    assert 1 < len(made) < 6
