"""The file beside the runs that remembers full hashes of model files: hours of reading are not done twice.

A hash counts for one host, folder, device, inode, size, mtime and ctime, and is kept only where the file was left alone
for a while before it was read: what is written later has another ctime, which nobody can set.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from fleet.checkpoint import File, Stamp
from fleet.model.base import Model

NAME = ".weights.jsonl"

SETTLED = 2 * 10**9
"""Nanoseconds: clocks of file systems go by ticks, and two writes in one tick have the same time."""


class Hashed(Model):
    """One file as it was hashed. mtime, ctime: nanoseconds since 1970 by the host's clock; file: device and inode."""

    host: str
    folder: str
    file: str
    size: int
    mtime: int
    ctime: int
    sha256: str

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.file, self.size, self.mtime, self.ctime)


def known(results: Path, host: str, folder: str) -> dict[Stamp, str]:
    """Hashes by stamp. A line that cannot be read is passed over."""
    found: dict[Stamp, str] = {}
    with suppress(OSError), (results / NAME).open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            with suppress(ValidationError):
                one = Hashed.model_validate_json(line)
                if (one.host, one.folder) == (host, folder):
                    found[one.stamp] = one.sha256
    return found


def keep(
    results: Path, host: str, folder: str, files: Mapping[str, File], hashes: Mapping[str, str], began: int
) -> None:
    """began: the host's clock when the reading began, seconds since 1970. A file that cannot be written is no loss."""
    settled = {path: files[path].stamp for path in hashes if files[path].stamp.ctime < began * 10**9 - SETTLED}
    lines = [
        Hashed(host=host, folder=folder, sha256=hashes[path], **vars(stamp)).model_dump_json() + "\n"
        for path, stamp in settled.items()
    ]
    with suppress(OSError), (results / NAME).open("a", encoding="utf-8") as file:
        file.write("".join(lines))
