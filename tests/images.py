"""Image archives as different engines save them, small, with layers that differ as a test wants."""

from __future__ import annotations

import hashlib
import io
import json
import random
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Layout = Literal["old", "links", "oci"]


def layer(name: str, size: int, seed: object = "") -> bytes:
    """A layer's tar with one file of bytes that do not compress."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as tar:
        info = tarfile.TarInfo(name)
        info.size = size
        tar.addfile(info, io.BytesIO(random.Random(f"{name} {size} {seed}").randbytes(size)))
    return made.getvalue()


@dataclass(frozen=True)
class Made:
    """An image: its layers' bytes, lowest first, and its name."""

    layers: tuple[bytes, ...]
    tag: str

    @property
    def diff_ids(self) -> list[str]:
        return [f"sha256:{digest(one)}" for one in self.layers]

    @property
    def config(self) -> bytes:
        root = {"type": "layers", "diff_ids": self.diff_ids}
        read = {"architecture": "amd64", "os": "linux", "config": {"Cmd": ["/none"]}, "rootfs": root}
        return json.dumps(read).encode()

    @property
    def id(self) -> str:
        return f"sha256:{digest(self.config)}"

    def archive(self, layout: Layout = "old") -> bytes:
        """old: a folder a layer. links: a layer that comes again is a link to the first. oci: files by their hash."""
        files = {"old": self._old, "links": self._links, "oci": self._oci}[layout]()
        return packed(files)

    def _manifest(self, config: str, paths: Sequence[str]) -> bytes:
        return json.dumps([{"Config": config, "RepoTags": [self.tag], "Layers": list(paths)}]).encode()

    def _old(self) -> list[tuple[str, bytes | str]]:
        paths = [f"{digest(b'%d' % number)}/layer.tar" for number, _ in enumerate(self.layers)]
        name = f"{digest(self.config)}.json"
        layers = sorted(zip(paths, self.layers, strict=True))
        return [(name, self.config), *layers, ("manifest.json", self._manifest(name, paths))]

    def _links(self) -> list[tuple[str, bytes | str]]:
        first: dict[bytes, str] = {}
        files: list[tuple[str, bytes | str]] = []
        for name, data in self._old():
            if isinstance(data, bytes) and name.endswith("layer.tar"):
                known = first.setdefault(data, name)
                files.append((name, data if known == name else f"../{known}"))
            else:
                files.append((name, data))
        return files

    def _oci(self) -> list[tuple[str, bytes | str]]:
        blobs = {f"blobs/sha256/{digest(data)}": data for data in [*self.layers, self.config]}
        paths = [f"blobs/sha256/{digest(data)}" for data in self.layers]
        manifest = self._manifest(f"blobs/sha256/{digest(self.config)}", paths)
        extra = [("index.json", b"{}"), ("manifest.json", manifest), ("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')]
        return [*sorted(blobs.items()), *extra]


def packed(files: Sequence[tuple[str, bytes | str]]) -> bytes:
    """A tar; a text is where a symbolic link leads."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            if isinstance(data, str):
                info.type, info.linkname = tarfile.SYMTYPE, data
                tar.addfile(info)
            else:
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return made.getvalue()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
