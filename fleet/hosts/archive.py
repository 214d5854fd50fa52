"""Folders as tar streams: how a host packs one, and how it is unpacked here without trusting it."""

from __future__ import annotations

import posixpath
import shutil
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from fleet.errors import HostError
from fleet.hosts.base import Transport

TAR_OK = (0, 1)
"""Exit codes of a good pack: GNU tar ends with 1 when a file changed while it was read, as a log does."""


def tar_argv(path: str) -> list[str]:
    """Pack one file or folder. Hard links are packed as the files they are."""
    folder, name = posixpath.split(path.rstrip("/") or "/")
    return ["tar", "-C", folder or ".", "--hard-dereference", "-cf", "-", "--", name or "."]


def fetch_tree(transport: Transport, remote_dir: str, local_dir: Path, *, timeout: float = 600.0) -> list[Path]:
    """Copy what is in a remote folder (or one remote file) into `local_dir`; returns the files written, sorted.

    The stream is kept on disk, not in memory. Raises what Transport.get raises, and HostError for an unsafe archive.
    """
    local_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=local_dir) as spool:
        transport.get(remote_dir, spool, timeout=timeout)
        spool.seek(0)
        return unpack(spool, local_dir, where=transport.name)


def unpack(stream: BinaryIO, local_dir: Path, *, where: str = "") -> list[Path]:
    """Write the files and folders of a tar stream below `local_dir`, without the name of the packed folder.

    Links, devices and sockets are left out. A path that leads outside ends everything with HostError before any file is
    written; an existing symbolic link is never followed.
    """
    try:
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            members = [member for member in archive if member.isreg() or member.isdir()]
            targets = [(member, local_dir / inner_path(member, where)) for member in members]
            folders = [target for member, target in targets if member.isdir()]
            files = [(member, target) for member, target in targets if member.isreg()]
            for folder in folders:
                make_folder(folder, local_dir, where)
            for member, target in files:
                make_folder(target.parent, local_dir, where)
                write_file(archive, member, target)
    except tarfile.TarError as problem:
        raise HostError(f"the archive is damaged: {problem}", where=where, hint="fetch it again") from problem
    return sorted(target for _, target in files)


def inner_path(member: tarfile.TarInfo, where: str) -> PurePosixPath:
    """The path below the packed folder; a file packed alone keeps its name. HostError for a path that leads out."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\0" in member.name:
        raise HostError(f"the archive holds an unsafe path: {member.name!r}", where=where, hint="nothing was unpacked")
    alone = member.isreg() and len(path.parts) == 1
    return path if alone else PurePosixPath(*path.parts[1:])


def make_folder(folder: Path, root: Path, where: str) -> None:
    for step in [*reversed(folder.relative_to(root).parents), folder.relative_to(root)]:
        if (root / step).is_symlink() and step != Path("."):
            raise HostError(f"{root / step} is a symbolic link here", where=where, hint="remove it and fetch again")
    folder.mkdir(parents=True, exist_ok=True)


def write_file(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    source = archive.extractfile(member)
    assert source is not None  # a regular file always has one
    target.unlink(missing_ok=True)
    with target.open("xb") as file:
        shutil.copyfileobj(source, file)
