import io
import tarfile
from pathlib import Path

import pytest

from fleet.errors import HostError
from fleet.hosts.archive import fetch_tree, tar_argv, unpack
from fleet.hosts.local import Local


def packed(*members: tuple[str, bytes, str]) -> io.BytesIO:
    """A tar of (name, kind, content or link target)."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            data = content.encode() if kind == tarfile.REGTYPE else b""
            member.linkname = "" if data else content
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    stream.seek(0)
    return stream


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_arrives_without_its_own_name(tmp_path: Path) -> None:
    stream = packed(("logs", tarfile.DIRTYPE, ""), ("logs/a", tarfile.REGTYPE, "1"), ("logs/x/b", tarfile.REGTYPE, "2"))
    assert unpack(stream, tmp_path) == [tmp_path / "a", tmp_path / "x/b"]
    assert tree(tmp_path) == {"a": b"1", "x/b": b"2"}


def test_a_file_alone_keeps_its_name(tmp_path: Path) -> None:
    assert unpack(packed(("a", tarfile.REGTYPE, "1")), tmp_path) == [tmp_path / "a"]


@pytest.mark.parametrize("name", ["/etc/passwd", "logs/../../x", "../x"])
def test_a_path_that_leads_out_ends_all_of_it(tmp_path: Path, name: str) -> None:
    stream = packed(("logs/good", tarfile.REGTYPE, "1"), (name, tarfile.REGTYPE, "2"))
    with pytest.raises(HostError, match="unsafe path"):
        unpack(stream, tmp_path / "in", where="n1")
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_only_files_and_folders_are_made(tmp_path: Path, kind: bytes) -> None:
    stream = packed(("logs/odd", kind, "/etc/passwd"), ("logs/a", tarfile.REGTYPE, "1"))
    assert unpack(stream, tmp_path) == [tmp_path / "a"]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_link_that_is_already_here_is_not_followed(tmp_path: Path) -> None:
    outside, inside = tmp_path / "out", tmp_path / "in"
    outside.mkdir()
    inside.mkdir()
    (inside / "x").symlink_to(outside)
    (inside / "file").symlink_to(outside / "file")
    with pytest.raises(HostError, match="symbolic link"):
        unpack(packed(("logs/x/b", tarfile.REGTYPE, "2")), inside)
    unpack(packed(("logs/file", tarfile.REGTYPE, "2")), inside)
    assert tree(outside) == {}
    assert (inside / "file").read_bytes() == b"2"


def test_a_damaged_stream_is_an_error(tmp_path: Path) -> None:
    whole = packed(("logs/a", tarfile.REGTYPE, "1" * 5000)).getvalue()
    with pytest.raises(HostError, match="damaged"):
        unpack(io.BytesIO(whole[:2000]), tmp_path)
    with pytest.raises(HostError, match="damaged"):
        unpack(io.BytesIO(b"no tar at all" * 100), tmp_path)


def test_hard_links_and_odd_names_arrive_as_files(tmp_path: Path) -> None:
    source, target = tmp_path / "-a folder\nüber", tmp_path / "target"
    source.mkdir()
    (source / "one").write_bytes(b"\x00\xff" * 70_000)
    (source / "two").hardlink_to(source / "one")
    fetch_tree(Local(), str(source), target, timeout=20)
    assert tree(target) == {"one": b"\x00\xff" * 70_000, "two": b"\x00\xff" * 70_000}


def test_the_name_is_never_an_option() -> None:
    assert tar_argv("/data/-x/") == ["tar", "-C", "/data", "--hard-dereference", "-cf", "-", "--", "-x"]
    assert tar_argv("relative")[:3] == ["tar", "-C", "."]
