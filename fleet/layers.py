"""Images as archives of layers: what is in one, and the archives with only the layers that somebody lacks.

`docker load` skips the layers of an archive that the engine has, whether they are in it or not. It knows a layer by all
that lies below it, so what an engine has of an image is a number of layers from the bottom. An image may therefore be
loaded in parts: each makes an image of the layers so far, the last one the image itself, and what was loaded stays when
a later part is cut off. Nothing here runs.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Any, BinaryIO

PART = "dev.fleet.part"
"""The label of an image that is some layers of another one, with that one's ID."""

BLOCK = 512
END = b"\0" * 2 * BLOCK
"""What ends an archive: not part of a part, so that whoever loads it decides when it is complete."""

SMALLEST_PART, LARGEST_PART, PARTS = 8 << 20, 256 << 20, 12
"""Bytes below which a layer goes with the next one, at least and at most; and how many parts there are about."""

MOST_JSON = 16 << 20
"""Bytes of a manifest or a configuration."""


class BadArchive(ValueError):
    """It is no image archive that can be taken apart."""


@dataclass(frozen=True)
class Blueprint:
    """An image without its layers. `config` is what its ID is the hash of; `layers` are diff IDs, lowest first."""

    config: bytes
    layers: tuple[str, ...]
    tags: tuple[str, ...]

    @property
    def id(self) -> str:
        return f"sha256:{hashlib.sha256(self.config).hexdigest()}"


@dataclass(frozen=True)
class Layer:
    """A layer's bytes, in their place in a part."""

    number: int
    size: int


@dataclass(frozen=True)
class Part:
    """An archive of the layers from `first` to before `last`, without its end. id: of the image that it makes."""

    id: str
    first: int
    last: int
    pieces: tuple[bytes | Layer, ...]

    @property
    def size(self) -> int:
        return sum(piece.size if isinstance(piece, Layer) else len(piece) for piece in self.pieces)


def blueprint(config: bytes, tags: Sequence[str]) -> Blueprint:
    """Raises BadArchive for a configuration without layers."""
    try:
        read = json.loads(config)
        layers = read["rootfs"]["diff_ids"]
        assert read["rootfs"]["type"] == "layers"
        return Blueprint(config, tuple(map(str, layers)), tuple(tags))
    except (ValueError, TypeError, KeyError, AssertionError):
        raise BadArchive("an image's configuration cannot be read") from None


def shared(layers: Sequence[str], others: Iterable[Sequence[str]]) -> int:
    """How many layers from the bottom an engine has that has these other images."""
    return max((_common(layers, other) for other in others), default=0)


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def parts(image: Blueprint, sizes: Mapping[int, int], have: Iterable[int], mark: str = "") -> list[Part]:
    """The parts from the first layer that somebody lacks on, the last of which makes the image itself.

    sizes: bytes of each layer that is lacked, by its number. have: how many layers there are, on each who gets the
    image: a part begins at each of these. mark: tells the parts of two who work at the same time apart.
    """
    count = len(image.layers)
    begins = list(_begins(count, sizes, sorted(set(have))))
    return [_part(image, sizes, first, last, mark) for first, last in pairwise([*begins, count])]


def _begins(count: int, sizes: Mapping[int, int], starts: Sequence[int]) -> Iterator[int]:
    """The first layer of each part. Who has all layers gets a part without any, as it lacks the image's name only."""
    total = sum(sizes[number] for number in range(starts[0], count))
    least = min(max(total // PARTS, SMALLEST_PART), LARGEST_PART)
    filled = least
    for number in range(starts[0], count):
        if filled >= least or number in starts:
            yield number
            filled = 0
        filled += sizes[number]
    if count in starts:
        yield count


def _part(image: Blueprint, sizes: Mapping[int, int], first: int, last: int, mark: str) -> Part:
    whole = last == len(image.layers)
    config = image.config if whole else _config(image, last, mark)
    name = hashlib.sha256(config).hexdigest()
    paths = [f"{number}/layer.tar" for number in range(last)]
    tags = (list(image.tags) if whole else None) or None
    manifest = json.dumps([{"Config": f"{name}.json", "RepoTags": tags, "Layers": paths}]).encode()
    pieces: list[bytes | Layer] = [_file(f"{name}.json", config), _file("manifest.json", manifest)]
    for number in range(first, last):
        size = sizes[number]
        pieces += [_header(paths[number], size), Layer(number, size), b"\0" * (-size % BLOCK)]
    return Part(f"sha256:{name}", first, last, tuple(_together(pieces)))


def _config(image: Blueprint, last: int, mark: str) -> bytes:
    """Of an image of the lowest layers."""
    read = json.loads(image.config)
    kept = {key: read[key] for key in ("architecture", "os", "variant", "os.version") if key in read}
    labels = {PART: image.id, f"{PART}.mark": mark}
    root = {"type": "layers", "diff_ids": list(image.layers[:last])}
    return json.dumps({**kept, "config": {"Labels": labels}, "rootfs": root}, sort_keys=True).encode()


def _together(pieces: Iterable[bytes | Layer]) -> Iterator[bytes | Layer]:
    """The same with bytes that follow each other as one."""
    waiting = b""
    for piece in pieces:
        if isinstance(piece, bytes):
            waiting += piece
            continue
        yield from ([waiting] if waiting else [])
        yield piece
        waiting = b""
    yield from ([waiting] if waiting else [])


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)


def _file(name: str, data: bytes) -> bytes:
    return _header(name, len(data)) + data + b"\0" * (-len(data) % BLOCK)


# --- archives -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where bytes stand in an archive."""

    offset: int
    size: int


@dataclass(frozen=True)
class Archive:
    """An image archive taken apart. layers: where each stands, lowest first."""

    image: Blueprint
    layers: tuple[Place, ...]


def read(stream: BinaryIO, tag: str = "") -> Archive:
    """What is in a file that `docker save` wrote, whichever its layout: paths come from its manifest. tag: which of
    several images is meant.

    Raises BadArchive.
    """
    try:
        with tarfile.open(fileobj=stream, mode="r:") as opened:
            members = {posixpath.normpath(member.name): member for member in opened}
            entry = _entry(_json(opened, members, "manifest.json"), tag)
            config = _bytes(opened, _member(members, entry["Config"]))
            places = tuple(_place(members, path) for path in entry["Layers"])
    except (tarfile.TarError, OSError, KeyError, TypeError, ValueError) as problem:
        raise problem if isinstance(problem, BadArchive) else BadArchive(f"no image archive: {problem}") from None
    image = blueprint(config, [tag] if tag else [str(one) for one in entry.get("RepoTags") or ()])
    if len(places) != len(image.layers):
        raise BadArchive(f"it has {len(places)} of {len(image.layers)} layers")
    return Archive(image, places)


def _entry(manifest: Any, tag: str) -> dict[str, Any]:
    """The image that is meant: the one of that name or, where names are not asked for or not there, the only one."""
    if not isinstance(manifest, list) or not all(isinstance(one, dict) for one in manifest):
        raise BadArchive("its manifest is no list of images")
    names = [[_familiar(str(name)) for name in one.get("RepoTags") or ()] for one in manifest]
    fits = [one for one, known in zip(manifest, names, strict=True) if _familiar(tag) in known]
    if not fits and len(manifest) == 1 and not (tag and names[0]):
        fits = manifest
    if fits:
        return dict(fits[0])
    there = ", ".join(name for known in names for name in known) or f"{len(manifest)} images without a name"
    raise BadArchive(f"it does not have {tag}; it has {there}" if tag else f"it has several images: {there}")


def _familiar(name: str) -> str:
    """A name as docker writes it."""
    short = name.removeprefix("docker.io/").removeprefix("library/")
    return short if ":" in short.rpartition("/")[2] else f"{short}:latest"


def _member(members: Mapping[str, tarfile.TarInfo], path: str) -> tarfile.TarInfo:
    """A file of the archive; links to others of its files are followed: a layer that comes twice is stored once."""
    name = posixpath.normpath(path)
    for _ in range(10):
        member = members.get(name)
        if member is None:
            raise BadArchive(f"{path} is not in it")
        if member.isreg():
            return member
        if not (member.issym() or member.islnk()):
            break
        target = posixpath.join(posixpath.dirname(name), member.linkname) if member.issym() else member.linkname
        name = posixpath.normpath(target)
    raise BadArchive(f"{path} is no file in it")


def _place(members: Mapping[str, tarfile.TarInfo], path: str) -> Place:
    member = _member(members, path)
    return Place(member.offset_data, member.size)


def _bytes(opened: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    if member.size > MOST_JSON:
        raise BadArchive(f"{member.name} is too large: {member.size} bytes")
    found = opened.extractfile(member)
    assert found is not None  # a regular file always has one
    return found.read()


def _json(opened: tarfile.TarFile, members: Mapping[str, tarfile.TarInfo], name: str) -> Any:
    return json.loads(_bytes(opened, _member(members, name)))
