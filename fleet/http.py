"""HTTP without tools on the node: the one place where URLs are made, requests that bash can send, and their answers.

A node need not have curl. Bash opens the connection (/dev/tcp); the request goes in by stdin, the answer out by stdout.
"""

from __future__ import annotations

import http.client
import io
import json
from dataclasses import dataclass

from fleet.model.check import Response
from fleet.words import counted

NO_CONNECTION = 7
SCRIPT = 'exec 3<>"/dev/tcp/$1/$2" || exit 7; cat >&3; exec cat <&3'


@dataclass(frozen=True)
class Request:
    """A command for the host that shall ask, and the bytes to feed it. Exit code 7: no connection."""

    argv: tuple[str, ...]
    stdin: bytes
    url: str


def url(address: str, port: int, path: str = "") -> str:
    """The URL of a service. IPv6 addresses are put in brackets; `path` starts with a slash or is empty."""
    return f"http://{authority(address, port)}{path}"


def authority(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def get(address: str, port: int, path: str) -> Request:
    return _request("GET", address, port, path, b"")


def post(address: str, port: int, path: str, body: object) -> Request:
    return _request("POST", address, port, path, json.dumps(body).encode())


def parse(raw: bytes) -> Response:
    """The answer to a `Request`. Raises ValueError if it is not HTTP or was cut short."""
    reader = http.client.HTTPResponse(_Bytes(raw))  # type: ignore[arg-type]
    try:
        reader.begin()
        return Response(reader.status, reader.read())
    except http.client.IncompleteRead as error:
        raise ValueError(f"answer cut short after {counted(len(error.partial), 'byte')}") from error
    except (http.client.HTTPException, ValueError) as error:
        raise ValueError(f"not an HTTP answer: {raw[:80]!r}") from error


def _request(method: str, address: str, port: int, path: str, body: bytes) -> Request:
    head = [f"{method} {path} HTTP/1.1", f"Host: {authority(address, port)}", "Connection: close", "Accept: */*"]
    if method == "POST":
        head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    stdin = "\r\n".join([*head, "", ""]).encode() + body
    return Request(("bash", "-c", SCRIPT, "_", address, str(port)), stdin, url(address, port, path))


class _Bytes:
    """What http.client needs of a socket."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self.raw)
