"""A small HTTP/1.1 on asyncio streams: what the doubles need and no more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

LIMIT = 1 << 20


@dataclass(frozen=True)
class Request:
    """One request, read to its end. Header names are lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    peer: str

    def json(self) -> Any:
        return json.loads(self.body or b"null")


class Exchange:
    """The answering side of one request."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.status = 0
        self.keep = True

    @property
    def gone(self) -> bool:
        """The client hung up."""
        return self.writer.transport.is_closing()

    def reply(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.status = status
        self.writer.write(head(status, {"content-type": kind, "content-length": str(len(body))}) + body)

    def json(self, status: int, value: Any) -> None:
        self.reply(status, json.dumps(value).encode())

    def text(self, status: int, value: str) -> None:
        self.reply(status, value.encode(), "text/plain; version=0.0.4; charset=utf-8")

    def start_stream(self) -> None:
        self.status = 200
        fields = {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"}
        self.writer.write(head(200, fields))

    def event(self, data: bytes) -> None:
        """One server-sent event as one HTTP chunk."""
        if not self.gone:
            self.writer.write(b"%x\r\ndata: %b\n\n\r\n" % (len(data) + 8, data))

    def end_stream(self) -> None:
        if not self.gone:
            self.writer.write(b"0\r\n\r\n")


Handler = Callable[[Request, Exchange], Awaitable[None]]


def head(status: int, fields: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in fields.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def serve(handler: Handler, host: str, port: int) -> asyncio.Server:
    """Bind and answer until the server is closed. Raises OSError when the port is taken."""

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _talk(handler, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(connection, host, port, limit=LIMIT, backlog=4096)


async def _talk(handler: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    peer = writer.get_extra_info("peername") or ("?", 0)
    while True:
        request = await _read_request(reader, f"{peer[0]}:{peer[1]}")
        if request is None:
            return
        exchange = Exchange(writer)
        await handler(request, exchange)
        await writer.drain()
        if not exchange.keep or request.headers.get("connection", "").lower() == "close":
            return


async def _read_request(reader: asyncio.StreamReader, peer: str) -> Request | None:
    try:
        first, headers = await read_head(reader)
    except asyncio.IncompleteReadError as end:
        if end.partial:
            raise
        return None
    method, target, _ = first.split(" ", 2)
    return Request(method, urlsplit(target).path, headers, await read_body(reader, headers, request=True), peer)


async def read_head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    """The first line and the headers (names in lower case)."""
    raw = await reader.readuntil(b"\r\n\r\n")
    return parse_head(raw)


def parse_head(raw: bytes) -> tuple[str, dict[str, str]]:
    first, *rest = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
    pairs = (line.partition(":") for line in rest)
    return first, {name.strip().lower(): value.strip() for name, _, value in pairs}


async def read_body(reader: asyncio.StreamReader, headers: dict[str, str], *, request: bool = False) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        parts = []
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            parts.append((await reader.readexactly(size + 2))[:-2])
        await reader.readuntil(b"\r\n")
        return b"".join(parts)
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"]))
    return b"" if request else await reader.read()


@dataclass(frozen=True)
class Answer:
    """A response, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def address(url: str) -> tuple[str, int]:
    parts = urlsplit(url if "//" in url else "//" + url)
    return parts.hostname or "127.0.0.1", parts.port or 80


async def open_request(
    url: str, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect and send one request; the connection is closed by the server after its answer."""
    host, port = address(url)
    reader, writer = await asyncio.open_connection(host, port, limit=LIMIT)
    writer.write(request_bytes(url, method, path, body, headers))
    return reader, writer


def request_bytes(url: str, method: str, path: str, body: bytes, headers: dict[str, str] | None = None) -> bytes:
    host, port = address(url)
    fields = {"host": f"{host}:{port}", "connection": "close", "content-length": str(len(body))} | (headers or {})
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


class Stream(asyncio.Protocol):
    """The client's end of one request whose answer is taken as it comes: cheaper than a reader and a task for it.

    `head` is called once with the raw head, `data` with each piece of the body; `ended` is done at the end of the
    connection.
    """

    def __init__(self, head: Callable[[bytes], object], data: Callable[[bytes], object]) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._head = head
        self._data = data
        self._early: bytes | None = b""

    def data_received(self, data: bytes) -> None:
        if self._early is None:
            self._data(data)
            return
        self._early += data
        head, blank, rest = self._early.partition(b"\r\n\r\n")
        if blank:
            self._early = None
            self._head(head + blank)
            if rest:
                self._data(rest)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


async def take_stream(
    url: str, request: bytes, head: Callable[[bytes], object], data: Callable[[bytes], object]
) -> None:
    """Send a request and hand its answer on until the peer closes. Raises OSError when it does not listen."""
    host, port = address(url)
    transport, stream = await asyncio.get_running_loop().create_connection(lambda: Stream(head, data), host, port)
    try:
        transport.write(request)
        await stream.ended
    finally:
        transport.close()


async def call(url: str, method: str, path: str, value: Any = None, *, timeout: float = 5.0) -> Answer:
    """One whole request. Raises OSError, TimeoutError or asyncio.IncompleteReadError when the peer does not answer."""
    async with asyncio.timeout(timeout):
        body = b"" if value is None else json.dumps(value).encode()
        reader, writer = await open_request(url, method, path, body, {"content-type": "application/json"})
        try:
            first, headers = await read_head(reader)
            return Answer(int(first.split(" ", 2)[1]), headers, await read_body(reader, headers))
        finally:
            writer.close()
