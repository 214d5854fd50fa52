"""The layers of an image where they can be read in any order: as files on a host that has it, or in an archive here.

`docker save` writes layers in no order that anybody could load them in, and its engine makes a copy of its own first.
So it is asked once; the layers that somebody lacks are kept as files until the image is staged, and no other.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from fleet import docker, layers
from fleet.errors import HostError, UsageError, shown
from fleet.hosts.base import CHUNK
from fleet.layers import Archive, BadArchive, Blueprint, Layer, Part
from fleet.session import Machine
from fleet.stages.chain import Spring
from fleet.stages.kept import Kept

# One file of the archive: kept under its hash where that is wanted. What it is called there does not matter; older
# engines have two small ones beside each layer, which are left out for the time that a command for each would take.
KEEP = """
name=$(mktemp "$FLEET_SPOOL/new.XXXXXX") || exit
sum=$(tee -- "$name" | sha256sum) || exit
sum=${sum%% *}
if grep -qx -- "$sum" "$FLEET_SPOOL/wanted"; then mv -f -- "$name" "$FLEET_SPOOL/$sum"; else rm -f -- "$name"; fi
"""

# What is kept goes with the connection.
FILL = """
folder=$1 length=$2 image=$3; shift 3
mkdir -p -- "${folder%/*}" && umask 077 && mkdir -- "$folder" || exit
trap 'trap "" HUP INT TERM; rm -rf -- "$folder"' EXIT
trap 'trap "" HUP INT TERM; exit 143' HUP INT TERM
head -c "$length" >"$folder/wanted" || exit
export FLEET_SPOOL="$folder"
{ "$@" save "$image"; echo $? >"$folder/code"; } |
    tar -xf - --exclude=VERSION --exclude=json --to-command="$FLEET_KEEP" || exit
read -r code <"$folder/code" && [ "$code" = 0 ] || exit 1
while read -r sum; do
    [ -f "$folder/$sum" ] && echo "$sum $(wc -c <"$folder/$sum")"
done <"$folder/wanted"
echo @ready
cat >/dev/null
"""

POUR = """
cd -- "$1" || exit
exec 3<"heads.$2" 4<"order.$2"
while read -r kind what <&4; do
    case $kind in
        bytes) head -c "$what" <&3 ;;
        file) cat <"$what" ;;
    esac || exit
done
"""


class Store(Protocol):
    """Where an image's layers are. host: "" for this machine. sizes: bytes by layer, of those that can be had."""

    @property
    def host(self) -> str: ...
    @property
    def image(self) -> Blueprint: ...
    @property
    def sizes(self) -> Mapping[int, int]: ...

    def spring(self, parts: Sequence[Part]) -> Spring:
        """A stream of these parts, one after the other, as `frames` has them."""
        ...

    def whole(self) -> Spring:
        """The image as `docker save` writes it."""
        ...

    def there(self) -> bool: ...
    def close(self) -> None: ...


def parts_of(store: Store, have: Iterable[int], mark: str = "") -> list[Part]:
    """See layers.parts."""
    return layers.parts(store.image, store.sizes, have, mark)


def frames(parts: Sequence[Part]) -> Iterator[bytes | Layer]:
    """What a stream of parts is made of: before each a line with its size and the ID of its image, behind it `end`."""
    for part in parts:
        yield f"{part.size} {part.id}\n".encode()
        yield from part.pieces
        yield b"end\n"
    yield b"done -\n"


def length(piece: bytes | Layer) -> int:
    return piece.size if isinstance(piece, Layer) else len(piece)


def starts(parts: Sequence[Part]) -> dict[int, int]:
    """Where in the stream the part begins that has a layer as its first."""
    found, at = {}, 0
    for part in parts:
        found[part.first] = at
        at += len(f"{part.size} {part.id}\n") + part.size + len(b"end\n")
    return found


def total(parts: Sequence[Part]) -> int:
    return sum(map(length, frames(parts)))


@dataclass
class HostStore:
    """Layers as files on a host that has the image."""

    machine: Machine
    image: Blueprint
    folder: str
    name: str
    sizes: dict[int, int] = field(default_factory=dict)
    kept: Kept | None = None

    @property
    def host(self) -> str:
        return self.machine.name

    def spring(self, parts: Sequence[Part]) -> Spring:
        """Raises HostError when the host does not take the small files that it needs for it."""
        mark = secrets.token_hex(4)
        heads, order = b"", ""
        for piece in frames(parts):
            if isinstance(piece, Layer):
                order += f"file {_hex(self.image.layers[piece.number])}\n"
            else:
                heads += piece
                order += f"bytes {len(piece)}\n"
        self.machine.transport.put(heads, f"{self.folder}/heads.{mark}")
        self.machine.transport.put(order.encode(), f"{self.folder}/order.{mark}")
        return Spring(self.host, ("sh", "-c", POUR, "sh", self.folder, mark))

    def whole(self) -> Spring:
        return Spring(self.host, (*self.machine.docker_prefix(), *docker.save_argv([self.name])))

    def there(self) -> bool:
        try:
            return self.machine.run(["test", "-d", self.folder], timeout=10, check=False).ok
        except HostError:
            return False

    def close(self) -> None:
        if self.kept:
            self.kept.close()


def fill(machine: Machine, name: str, image_id: str, diff_ids: Sequence[str], first: int, within: float) -> HostStore:
    """Have the layers from `first` on as files on a host. name: what its engine calls the image.

    Raises HostError; BadArchive where its archive has other files than layers by that name.
    """
    folder = f"{machine.host.scratch.rstrip('/')}/.stage-{secrets.token_hex(6)}"
    wanted = [_hex(image_id), *map(_hex, dict.fromkeys(diff_ids[first:]))]
    data = "".join(f"{one}\n" for one in wanted).encode()
    words = [folder, str(len(data)), name, *machine.docker_prefix(), "docker"]
    kept = Kept(machine, ["env", f"FLEET_KEEP={KEEP}", "sh", "-c", FILL, "sh", *words], data, within=2 * within)
    try:
        there = dict(_listed(kept.await_ready(within)))
        if missing := [one for one in wanted if one not in there]:
            raise BadArchive(f"{len(missing)} of {len(wanted)} files are not in what the engine saves")
        config = machine.run(["cat", f"{folder}/{_hex(image_id)}"]).stdout
        image = layers.blueprint(config, [name] if "@" not in name else [])
    except BaseException:
        kept.close(0)
        raise
    sizes = {number: there[_hex(one)] for number, one in enumerate(image.layers) if number >= first}
    return HostStore(machine, image, folder, name, sizes, kept)


def _listed(lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    for line in lines:
        name, _, size = line.partition(" ")
        if size.strip().isdigit():
            yield name, int(size)


def _hex(digest: str) -> str:
    return digest.removeprefix("sha256:")


@dataclass
class FileStore:
    """An image archive on this machine."""

    path: Path
    archive: Archive
    host: str = ""

    @property
    def image(self) -> Blueprint:
        return self.archive.image

    @property
    def sizes(self) -> dict[int, int]:
        return {number: place.size for number, place in enumerate(self.archive.layers)}

    def spring(self, parts: Sequence[Part]) -> Spring:
        return Spring(chunks=lambda: self._chunks(parts))

    def whole(self) -> Spring:
        return Spring(chunks=lambda: self._read(0, self.path.stat().st_size))

    def there(self) -> bool:
        return self.path.is_file()

    def close(self) -> None:
        """The file is not ours."""

    def _chunks(self, parts: Sequence[Part]) -> Iterator[bytes]:
        for piece in frames(parts):
            if isinstance(piece, Layer):
                place = self.archive.layers[piece.number]
                yield from self._read(place.offset, place.size)
            else:
                yield piece

    def _read(self, offset: int, size: int) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            file.seek(offset)
            while size:
                chunk = file.read(min(CHUNK, size))
                if not chunk:
                    raise HostError(f"{shown(self.path)} became shorter while it was read")
                size -= len(chunk)
                yield chunk


def holding(path: Path, tags: Iterable[str]) -> dict[str, Path]:
    """The archive for each of the images that it holds. Raises UsageError where it cannot be used or holds none."""
    found: dict[str, Path] = {}
    problem: UsageError | None = None
    for tag in dict.fromkeys(tags):
        try:
            opened(path, tag)
            found[tag] = path
        except UsageError as error:
            problem = error
    if problem and not found:
        raise problem
    return found


def opened(path: Path, tag: str) -> FileStore:
    """An archive that `docker save` wrote here. Raises UsageError."""
    try:
        with path.open("rb") as file:
            return FileStore(path, layers.read(file, tag))
    except OSError as problem:
        raise UsageError(f"{shown(path)} cannot be read: {problem.strerror}", hint="type the path of a file") from None
    except BadArchive as problem:
        hint = f"write it where the image is: docker save -o {path.name} {tag}"
        raise UsageError(f"{shown(path)}: {problem}", hint=hint) from None
