"""Images to move about: layers of bytes that nothing compresses, made without an engine. For the benchmark alone."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import random
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass

from fleet.lab.image import ARCHITECTURES, CREATED, STAMP


@dataclass(frozen=True)
class Archive:
    """What `docker load` reads. id: of the image that it becomes. layers: bytes of each layer's tar."""

    tag: str
    id: str
    layers: tuple[int, ...]
    data: bytes

    @property
    def size(self) -> int:
        """Bytes of all layers."""
        return sum(self.layers)


def archive(tag: str, sizes: Mapping[str, int]) -> Archive:
    """An image with a layer of so many random bytes for each seed: equal seeds are equal layers."""
    layers = [layer(seed, size) for seed, size in sizes.items()]
    digests = [hashlib.sha256(data).hexdigest() for data in layers]
    config = json.dumps(
        {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "created": CREATED,
            "config": {"Cmd": ["/none"]},
            "history": [{"created": CREATED, "created_by": digest} for digest in digests],
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        }
    ).encode()
    name = hashlib.sha256(config).hexdigest()
    paths = [f"{digest}/layer.tar" for digest in digests]
    manifest = json.dumps([{"Config": f"{name}.json", "RepoTags": [tag], "Layers": paths}]).encode()
    data = packed({"manifest.json": manifest, f"{name}.json": config, **dict(zip(paths, layers, strict=True))})
    return Archive(tag, f"sha256:{name}", tuple(map(len, layers)), data)


def layer(seed: str, size: int) -> bytes:
    return packed({f"srv/{seed}": random.Random(seed).randbytes(size)})


def packed(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), STAMP
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()
