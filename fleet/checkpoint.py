"""A model's folder on a host: its files by name, size and hash; what shows that it is not whole; two of them compared.

The questions are sh scripts for a host that has GNU find, xargs, coreutils, grep and sed. Names may hold any byte.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from fleet.errors import HostError, shown
from fleet.model.base import Model
from fleet.words import counted

BLOCK = 64 * 1024
"""Bytes of one sample."""

SAMPLES = 16
"""Of each file: its first block, its last, and what lies evenly between. A file of so many blocks is read whole."""

ASIDE = ".fleet-part-"
"""How the names begin that files have while fleet copies them."""

ABSENT, CLOSED = 44, 45
"""Exit codes: no such folder; a folder that cannot be entered or read."""

OURS = (".cache/huggingface/", ".huggingface/", ".git/")
"""What downloads keep there for themselves, otherwise on each host: not compared."""

HALF = (".incomplete", ".part", ".partial", ".aria2", ".crdownload")
KEPT_BY_HUB = (".metadata", ".lock")
HEADER_LIMIT = 10**8
"""Bytes of a safetensors header, by the format's own rule."""

NAMED = 6
"""Files that a message names before it only counts."""

# One worker of xargs: pairs of `dev:inode size` and path. Each line is one short write, so that those of several
# workers do not mix. dd's `skip` counts from where its stdin stands, so each dd opens the file anew.
SAMPLE = r"""
exec 3>&1
while [ $# -gt 1 ]; do
  id=${1% *} size=${1#* } f=$2; shift 2
  if ! { : <"$f"; } 2>/dev/null; then echo "e $id"; continue; fi
  blocks=$(((size + 65535) / 65536)) i=0
  if [ "$blocks" -le 16 ]; then sum=$(sha256sum <"$f" || echo "e $id" >&3); else sum=$(
    while [ $i -lt 16 ]; do
      dd bs=65536 count=1 skip=$((i * (blocks - 1) / 15)) status=none <"$f" || { echo "e $id" >&3; break; }
      i=$((i + 1))
    done | sha256sum); fi
  echo "h $id ${sum%% *}"
  if [ "$size" -lt 256 ] && head -c 24 <"$f" | grep -q '^version https://git-lfs'; then echo "l $id"; continue; fi
  case $f in *.safetensors) ;; *) continue ;; esac
  n=$(od -An -t u8 -N 8 <"$f" | tr -d ' \n') end=-
  if [ "${#n}" -le 9 ] && [ "${n:-0}" -gt 0 ] && [ $((n + 8)) -le "$size" ]; then
    end=$(tail -c +9 <"$f" | head -c "$n" | tr -d ' \t\r\n' | grep -aoE '"data_offsets":\[[0-9]+,[0-9]+\]' |
      sed 's/.*,//; s/\]//' | sort -n | tail -n 1)
  fi
  echo "s $id ${n:--} ${end:-0}"
done
"""

# A link whose target is not there has type l under -L. What the folder's index files name comes last, file by file.
SURVEY = r"""
LC_ALL=C; export LC_ALL
[ -d "$1" ] || exit 44
cd "$1" || exit 45
find -L . ! -type d -printf '%y\0%P\0%s\0%T@\0%C@\0%D:%i\0%l\0' || exit 45
printf '=\0'
find -L . -type f -printf '%D:%i %s\0%p\0' | xargs -0 -r -n 64 -P 8 sh -c "$2" sh
find -L . -type f -name '*.index.json' -printf '%D:%i\0%p\0' | xargs -0 -r -n 2 sh -c '
  echo "i $1"; grep -aoE "\"[^\"\\\\]*\.(safetensors|bin)\"" <"$2" | tr -d "\\0" | sort -u | sed "s/^/n /"' sh
echo .
"""

# openssl hashes several times as fast as coreutils do, where the processor helps it; "x" has this hash.
SHA = """
sha=sha256sum
case $(printf x | openssl dgst -sha256 -r 2>/dev/null) in 2d711642b726b044*) sha="openssl dgst -sha256 -r" ;; esac
export sha
"""

# Names come by stdin. What a file was when its hash was done is told with it.
HASH = (
    SHA
    + r"""
LC_ALL=C; export LC_ALL
cd "$1" || exit 45
jobs=$(nproc); [ "$jobs" -le 16 ] || jobs=16
xargs -0 -r -n 1 -P "$jobs" sh -c '
  sum=$($sha <"./$1") && echo "x $(stat -L -c "%d:%i %s %.9Y %.9Z" "./$1") ${sum%% *}"' sh
date "+. %s"
"""
)


@dataclass(frozen=True)
class Stamp:
    """What a file system knows of a file's content: the same stamp, the same bytes, if ctime is older than the reading.

    file: device and inode; mtime, ctime: nanoseconds since 1970. Nobody can set a ctime.
    """

    file: str
    size: int
    mtime: int
    ctime: int


@dataclass(frozen=True)
class File:
    """sample: SHA-256 of its samples; full: of all its bytes, "" where that was not asked."""

    stamp: Stamp
    sample: str
    full: str = ""

    @property
    def size(self) -> int:
        return self.stamp.size

    @property
    def content(self) -> tuple[int, str, str]:
        return self.size, self.sample, self.full


@dataclass(frozen=True)
class Checkpoint:
    """A model's folder. files: by path in it. halves: in words, what shows that a download or a copy did not end.

    broken: links that lead nowhere.
    """

    files: Mapping[str, File] = field(default_factory=dict)
    halves: tuple[str, ...] = ()
    broken: frozenset[str] = frozenset()

    @property
    def compared(self) -> dict[str, File]:
        return {path: file for path, file in self.files.items() if not path.startswith(OURS) and not is_half(path)}

    @property
    def size(self) -> int:
        return sum(file.size for file in self.compared.values())


class Print(Model):
    """What a checkpoint comes to: equal where names, sizes and samples are. full: over full hashes, if all have one."""

    files: int
    size: int
    digest: str
    full: str = ""

    def same(self, other: Print) -> bool:
        """Full hashes count where both have them."""
        pair = (self.full, other.full) if self.full and other.full else ("", "")
        return (self.files, self.size, self.digest, pair[0]) == (other.files, other.size, other.digest, pair[1])

    def __str__(self) -> str:
        return f"{counted(self.files, 'file')}, {counted(self.size, 'byte')}, {self.full or self.digest}"


def fingerprint(found: Checkpoint) -> Print:
    files = found.compared
    full = _digest((path, str(file.size), file.full) for path, file in files.items())
    return Print(
        files=len(files),
        size=found.size,
        digest=_digest((path, str(file.size), file.sample) for path, file in files.items()),
        full=full if files and all(file.full for file in files.values()) else "",
    )


def _digest(rows: Iterable[tuple[str, ...]]) -> str:
    whole = hashlib.sha256()
    for row in sorted(rows):
        whole.update("\0".join([*row, ""]).encode("utf-8", "surrogateescape"))
    return whole.hexdigest()[:16]


# --- asking ---------------------------------------------------------------------------------------------------------


def survey_argv(folder: str) -> list[str]:
    return ["sh", "-c", SURVEY, "fleet-weights", folder, SAMPLE]


def hash_argv(folder: str) -> list[str]:
    """Names of files in the folder are its stdin, each with a NUL behind it."""
    return ["sh", "-c", HASH, "fleet-weights-hash", folder]


def names(paths: Iterable[str]) -> bytes:
    return b"".join(path.encode("utf-8", "surrogateescape") + b"\0" for path in paths)


def parse_survey(code: int, out: bytes, err: str) -> Checkpoint | None:
    """None where there is no such folder, or nothing in it. Raises HostError where it could not be read."""
    if code == ABSENT:
        return None
    lines = err.strip().splitlines() or [f"exit {code}"]
    *cells, told = out.decode("utf-8", "surrogateescape").split("\0")
    if code == CLOSED or cells[-1:] != ["="] or not told.endswith(".\n"):
        raise HostError(f"it cannot be read: {shown(lines[-1])}")
    rows = [cells[start : start + 7] for start in range(0, len(cells) - 1, 7)]
    return _checkpoint(rows, _Told.read(told)) if rows else None


@dataclass(frozen=True)
class _Told:
    """The script's lines, by device and inode: hashes, safetensors headers (size, end of data), shards of an index."""

    hashes: dict[str, str] = field(default_factory=dict)
    headers: dict[str, tuple[str, str]] = field(default_factory=dict)
    pointers: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)
    indices: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> _Told:
        told, index = cls(), ""
        for kind, _, rest in (line.partition(" ") for line in text.splitlines()):
            words = rest.split(" ")
            if kind == "h":
                told.hashes[words[0]] = words[1]
            elif kind == "s":
                told.headers[words[0]] = (words[1], words[2])
            elif kind == "l":
                told.pointers.add(rest)
            elif kind == "e":
                told.closed.add(rest)
            elif kind == "i":
                index = rest
                told.indices[index] = []
            elif kind == "n":
                told.indices[index].append(str(json.loads(rest)))
        return told


def _checkpoint(rows: Sequence[Sequence[str]], told: _Told) -> Checkpoint:
    files: dict[str, File] = {}
    halves: list[str] = []
    for kind, path, size, mtime, ctime, ident, link in sorted(rows, key=lambda row: row[1]):
        if kind == "l":
            halves.append(f"{shown(path)} is a link to {shown(link)}, which is not there")
        elif kind == "f":
            stamp = Stamp(ident, int(size), nanoseconds(mtime), nanoseconds(ctime))
            files[path] = File(stamp, told.hashes.get(ident, ""))
            halves += filter(None, (_half(path, files[path], told),))
    indices = {path: told.indices[file.stamp.file] for path, file in files.items() if file.stamp.file in told.indices}
    broken = frozenset(row[1] for row in rows if row[0] == "l")
    return Checkpoint(files, (*halves, *_shards_missing(indices, files)), broken)


def nanoseconds(text: str) -> int:
    """Of seconds with a fraction of any length."""
    whole, _, fraction = text.partition(".")
    return int(whole) * 10**9 + int(f"{fraction:0<9}"[:9])


def is_half(path: str) -> bool:
    """Whether a file's name says that it is not done."""
    name = posixpath.basename(path)
    if name.startswith(ASIDE) or name.endswith(HALF):
        return True
    return re.match(r"(.*/)?\.(cache/)?huggingface/download/", path) is not None and not name.endswith(KEPT_BY_HUB)


def _half(path: str, file: File, told: _Told) -> str:
    ident, size = file.stamp.file, counted(file.size, "byte")
    if is_half(path):
        whose = "a copy by fleet" if posixpath.basename(path).startswith(ASIDE) else "a download"
        return f"{shown(path)} ({size}) is of {whose} that is under way or was cut off"
    if ident in told.closed or ident not in told.hashes:
        return f"{shown(path)} cannot be read"
    if ident in told.pointers:
        return f"{shown(path)} is a Git LFS pointer of {size}, not the file itself"
    return _header(path, file.size, *told.headers[ident]) if ident in told.headers else ""


def _header(path: str, size: int, header: str, end: str) -> str:
    """What is wrong with a safetensors file: eight bytes that say how long the header is, the header, the tensors."""
    length = int(header) if header.isdigit() else 0
    whole = 8 + length + int(end if end.isdigit() else "0")
    if not length or length > HEADER_LIMIT:
        return f"{shown(path)} ({counted(size, 'byte')}) does not begin as a safetensors file does"
    if whole == size:
        return ""
    least = "" if end.isdigit() else "at least "
    why = "it is cut off" if size < whole else "something is behind it"
    return f"{shown(path)} is {counted(size, 'byte')}, {least}{whole} by its own header: {why}"


def _shards_missing(indices: Mapping[str, Sequence[str]], files: Mapping[str, File]) -> Iterator[str]:
    """An index none of whose shards is there is of a form that was not fetched, if its folder has another one whole."""
    shards = {index: [_beside(index, name) for name in named] for index, named in indices.items()}
    missing = {index: [name for name in named if name not in files] for index, named in shards.items()}
    served = {posixpath.dirname(index) for index, named in shards.items() if named and not missing[index]}
    for index, lacking in missing.items():
        if lacking and not (posixpath.dirname(index) in served and len(lacking) == len(shards[index])):
            yield f"{listed(lacking, 'shard')} of {shown(index)} {'is' if len(lacking) == 1 else 'are'} missing"


def _beside(path: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), name))


def listed(paths: Sequence[str], noun: str) -> str:
    """`1 shard (a)`, `9 shards (a, b …)`."""
    told = ", ".join(shown(path) for path in islice(paths, NAMED))
    return f"{counted(len(paths), noun)} ({told}{' …' if len(paths) > NAMED else ''})"


def parse_hashes(out: str, files: Mapping[str, File]) -> tuple[dict[str, str], int]:
    """Full hashes by path, and the node's clock at the end (seconds since 1970). What changed meanwhile is left out."""
    by_file = {row[1]: row for row in (line.split(" ") for line in out.splitlines()) if row[0] == "x" and len(row) == 6}
    ended = next((line[2:] for line in out.splitlines() if line.startswith(". ")), "")
    if not ended.isdigit():
        raise HostError("the files could not be hashed")
    found = {}
    for path, file in files.items():
        row = by_file.get(file.stamp.file)
        if row and Stamp(row[1], int(row[2]), nanoseconds(row[3]), nanoseconds(row[4])) == file.stamp:
            found[path] = row[5]
    return found, int(ended)


def hashed_bytes(out: str) -> int:
    """Of the files whose hash has come so far."""
    rows = (line.split(" ") for line in out.splitlines() if line.startswith("x "))
    return sum(int(row[2]) for row in rows if len(row) == 6)


# --- comparing ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Apart:
    """A file that is not the same on all hosts. versions: hosts by what they have; None: nothing."""

    path: str
    versions: Mapping[tuple[int, str, str] | None, tuple[str, ...]]

    @property
    def few(self) -> tuple[str, ...]:
        """The hosts that have something else than most have."""
        most = max(self.versions, key=lambda version: len(self.versions[version]))
        return tuple(host for version, hosts in self.versions.items() if version != most for host in hosts)

    def __str__(self) -> str:
        sizes = [version[0] for version in self.versions if version]
        same_size = len(set(sizes)) < len(sizes)
        told = [f"{_version(version, same_size)} on {', '.join(hosts)}" for version, hosts in self.versions.items()]
        return f"{shown(self.path)}: {'; '.join(told)}"


def _version(version: tuple[int, str, str] | None, hashed: bool) -> str:
    if version is None:
        return "missing"
    size, sample, full = version
    return f"{counted(size, 'byte')}{f' of content {(full or sample)[:8]}' if hashed else ''}"


def apart(found: Mapping[str, Checkpoint]) -> list[Apart]:
    """Every file that differs between hosts, by name. Full hashes count where all hosts have one."""
    told = []
    files = {host: one.compared for host, one in found.items()}
    for path in sorted({path for one in files.values() for path in one}):
        there = {host: one.get(path) for host, one in files.items()}
        whole = all(file is None or file.full for file in there.values())
        versions: dict[tuple[int, str, str] | None, tuple[str, ...]] = {}
        for host, file in there.items():
            version = (file.size, file.sample, file.full if whole else "") if file else None
            versions[version] = (*versions.get(version, ()), host)
        if len(versions) > 1:
            told.append(Apart(path, versions))
    return told


def covering(found: Mapping[str, Checkpoint | None]) -> str:
    """The first host whose folder shows no fault and has all that such folders have, with that content; "" if none."""
    good = {host: _contents(one) for host, one in found.items() if one and not one.halves}
    return next((host for host, own in good.items() if all(own >= other for other in good.values())), "")


def whole_one(found: Mapping[str, Checkpoint | None]) -> str:
    """The same, else one that shows no fault and that most hosts agree with; "" if there is none."""
    good = {host: _contents(one) for host, one in found.items() if one and not one.halves}
    contents = list(good.values())
    return covering(found) or max(good, key=lambda host: contents.count(good[host]), default="")


def _contents(one: Checkpoint) -> frozenset[tuple[str, int, str]]:
    return frozenset((path, file.size, file.full or file.sample) for path, file in one.compared.items())
