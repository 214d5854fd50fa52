"""Files of a folder as one stream of bytes: the script that sends them, the one that takes them, and who gets what.

A line with size and name goes before each file's bytes, its SHA-256 behind them, and a single dot ends the stream. A
file is written under another name, on disk, and right in size and hash before it gets its own; none that is there is
replaced.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fleet.checkpoint import SHA, Checkpoint, File
from fleet.errors import shown

PLAIN = frozenset((string.ascii_letters + string.digits + "._-/=+,@").encode())
"""Bytes of a name that stand for themselves in a line."""

MOST_TEXT = 64 * 1024
"""Characters of names in one command: sshd hands it to the login shell as one argument, which may have 128 KiB."""

OPEN = ".fleet-part-open"
"""A file that is in a folder until all of it has come: half of a model can look like another, smaller one."""

# tee's stdout is the stream; the pipe to $sha is what it writes to beside it.
SEND = (
    SHA
    + r"""
LC_ALL=C; export LC_ALL
cd -- "$1" || exit 73
shift
exec 4>&1
for line; do
  size=${line%% *} name=$(printf '%b.' "${line#* }")
  f=./${name%.}
  printf '%s\n' "$line"
  sum=$({ { dd bs=1M count="$size" iflag=fullblock,count_bytes status=none <"$f" || echo bad >&6
    } | tee /dev/fd/5 5>&1 >&4 | $sha; } 6>&1)
  case $sum in bad*) echo "$f cannot be read" >&2; exit 65 ;; esac
  [ "$(stat -L -c %s "$f")" = "$size" ] || { echo "$f changed while it was sent" >&2; exit 65; }
  printf '%s\n' "${sum%% *}"
done
echo .
"""
)

# The lock is the folder's own: the kernel lets go of it when the script ends, however it does. A file is put on disk
# and named while the next one comes. Exit codes: 28 a file could not be written, 65 one arrived damaged, 73 the folder
# cannot be made or written to, 74 the stream ended too early, 75 another copy is under way.
TAKE = (
    SHA
    + r"""
LC_ALL=C; export LC_ALL
umask 022
mkdir -p -- "$1" && cd -- "$1" && [ -w . ] || { echo "$1 cannot be written to" >&2; exit 73; }
exec 9<. && flock -n 9 || { echo "another copy to $1 is under way, or flock (util-linux) is missing" >&2; exit 75; }
find . -name '.fleet-part-*' -type f -delete
: >.fleet-part-open
aside= number=0
gone() { [ -z "$aside" ] || rm -f "$aside"; }
trap gone EXIT
trap 'exit 74' HUP INT TERM PIPE
place() {
  trap '' HUP INT TERM
  sync "$1" && mv -nT "$1" "$2" && [ ! -e "$1" ] || { rm -f "$1"; echo "$2 could not be written" >&2; exit 28; }
}
job=
placed() { [ -z "$job" ] || { echo @busy; wait "$job" || exit 28; echo @idle; job=; }; }
while read -r size word; do
  if [ "$size" = . ]; then
    placed
    exit 0
  fi
  name=$(printf '%b.' "$word")
  f=./${name%.} number=$((number + 1))
  case $f/ in */../*) echo "$f leads out of the folder" >&2; exit 65 ;; esac
  if [ -e "$f" ] || [ -h "$f" ]; then
    dd bs=1M count="$size" iflag=fullblock,count_bytes status=none >/dev/null
    read -r want || break
    continue
  fi
  mkdir -p "${f%/*}" || exit 73
  aside=${f%/*}/.fleet-part-$number
  sum=$(dd bs=1M count="$size" iflag=fullblock,count_bytes status=none | tee "$aside" | $sha)
  there=$(stat -c %s "$aside")
  read -r want || break
  if [ "$there" != "$size" ]; then echo "$f could not be written: $there of $size bytes" >&2; exit 28; fi
  if [ "${sum%% *}" != "$want" ]; then echo "$f arrived damaged" >&2; exit 65; fi
  placed
  place "$aside" "$f" &
  job=$! aside=
done
placed
echo "the stream ended before its end" >&2
exit 74
"""
)


def send_argv(folder: str, files: Mapping[str, int]) -> list[str]:
    """files: sizes by path in the folder."""
    lines = [f"{size} {escaped(path)}" for path, size in files.items()]
    return ["sh", "-c", SEND, "fleet-model-send", folder, *lines]


def take_argv(folder: str) -> list[str]:
    return ["sh", "-c", TAKE, "fleet-model-take", folder]


def done_argv(folder: str) -> list[str]:
    """The copy has come to its end: what says that it had not goes."""
    return ["rm", "-f", "--", f"{folder}/{OPEN}"]


def escaped(path: str) -> str:
    """As printf's %b reads it, on one line without spaces."""
    return "".join(chr(byte) if byte in PLAIN else f"\\0{byte:03o}" for byte in path.encode("utf-8", "surrogateescape"))


# --- who gets what --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """Files that the same hosts lack: they go to all of these at once. files: sizes by path."""

    hosts: tuple[str, ...]
    files: Mapping[str, int]

    @property
    def size(self) -> int:
        return sum(self.files.values())


def lacking(source: Checkpoint, target: Checkpoint | None) -> dict[str, int]:
    """What the target has not, with sizes."""
    there = target.files if target else {}
    return {path: file.size for path, file in source.compared.items() if path not in there}


def in_the_way(source: Checkpoint, target: Checkpoint | None) -> list[str]:
    """Files of the target that have a name of the source's and other content, or are no files: in words."""
    if target is None:
        return []
    told = []
    for path, file in source.compared.items():
        other = target.files.get(path)
        if path in target.broken:
            told.append(f"{shown(path)} is a link that leads nowhere")
        elif other and _differ(file, other):
            told.append(f"{shown(path)} has {other.size} bytes there, {file.size} here" if other.size != file.size
                        else f"{shown(path)} has other content")  # fmt: skip
    return told


def _differ(one: File, other: File) -> bool:
    both = bool(one.full and other.full)
    return (one.size, one.sample, one.full if both else "") != (other.size, other.sample, other.full if both else "")


def loads(wanted: Mapping[str, Mapping[str, int]]) -> Iterator[Load]:
    """What goes to whom, one load after the other: each file once to all that lack it. wanted: by host, sizes by path.

    A load's names fit into one command. What goes to the most hosts goes first.
    """
    groups: dict[tuple[str, ...], dict[str, int]] = {}
    for path in dict.fromkeys(path for files in wanted.values() for path in files):
        hosts = tuple(host for host, files in wanted.items() if path in files)
        groups.setdefault(hosts, {})[path] = next(files[path] for files in wanted.values() if path in files)
    for hosts, files in sorted(groups.items(), key=lambda group: -len(group[0])):
        for part in _parts(files):
            yield Load(hosts, part)


def _parts(files: Mapping[str, int]) -> Iterator[dict[str, int]]:
    part: dict[str, int] = {}
    text = 0
    for path, size in files.items():
        long = 2 * len(escaped(path)) + 40
        if part and text + long > MOST_TEXT:
            yield part
            part, text = {}, 0
        part[path] = size
        text += long
    yield part
