"""A read-only registry for one unpacked `docker save`, to pull from: `python registry.py FOLDER NAME PORT`.

Layers are served as they lie there, not compressed. It ends with its standard input. For the benchmark alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TYPES = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar"


@dataclass(frozen=True)
class Contents:
    """One image: its manifest, and the files of its blobs by digest."""

    manifest: bytes
    blobs: dict[str, Path]

    @classmethod
    def of(cls, folder: Path) -> Contents:
        saved = json.loads((folder / "manifest.json").read_bytes())[0]
        config = folder / saved["Config"]
        blobs = {digest(config.read_bytes()): config}
        diffs = json.loads(config.read_bytes())["rootfs"]["diff_ids"]
        blobs |= {diff: folder / name for diff, name in zip(diffs, saved["Layers"], strict=True)}
        first, *layers = ({"digest": name, "size": path.stat().st_size} for name, path in blobs.items())
        manifest = {
            "schemaVersion": 2,
            "mediaType": TYPES,
            "config": {"mediaType": CONFIG, **first},
            "layers": [{"mediaType": LAYER, **layer} for layer in layers],
        }
        return cls(json.dumps(manifest).encode(), blobs)


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def handler(contents: Contents, name: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            kind, _, wanted = self.path.removeprefix(f"/v2/{name}/").partition("/")
            if self.path == "/v2/":
                self.answer(b"{}", "application/json")
            elif kind == "manifests":
                self.answer(contents.manifest, TYPES)
            elif kind == "blobs" and wanted in contents.blobs:
                self.blob(wanted, contents.blobs[wanted])
            else:
                self.send_error(404)

        do_HEAD = do_GET

        def answer(self, body: bytes, kind: str) -> None:
            self.begin(len(body), kind, digest(body))
            if self.command == "GET":
                self.wfile.write(body)

        def blob(self, wanted: str, path: Path) -> None:
            size, sent = path.stat().st_size, 0
            self.begin(size, "application/octet-stream", wanted)
            with path.open("rb") as file:
                while self.command == "GET" and sent < size:
                    sent += os.sendfile(self.connection.fileno(), file.fileno(), sent, size - sent)

        def begin(self, size: int, kind: str, name: str) -> None:
            self.send_response(200)
            for header in (("Content-Length", str(size)), ("Content-Type", kind), ("Docker-Content-Digest", name)):
                self.send_header(*header)
            self.end_headers()
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


def main() -> None:
    folder, name, port = sys.argv[1:]
    server = ThreadingHTTPServer(("", int(port)), handler(Contents.of(Path(folder)), name))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
