"""The pretended KV transfer: prefill parks a request's KV, decode fetches it over TCP from the handshake port.

The wire is our own (one JSON line each way, then that many bytes); the ports, and who connects to whom, are ATOM's.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CONNECTORS = ("moriio", "mooncake", "multi")
ROLES = ("kv_producer", "kv_consumer")
BYTES_PER_TOKEN = 16
MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class KvConfig:
    """What the server needs to know of --kv-transfer-config. role None: not disaggregated."""

    role: str | None = None
    connector: str = ""
    handshake_port: int = 6301


def read_kv_config(text: str) -> KvConfig:
    """Raises ValueError when the JSON is broken, or names a connector or role that does not exist."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"kv_transfer_config is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError("kv_transfer_config must be a JSON object")
    if not value:
        return KvConfig()
    connector = str(value.get("kv_connector", "moriio")).lower()
    if connector not in CONNECTORS:
        raise ValueError(f"Unsupported connector: {connector}. Available: {', '.join(CONNECTORS)}")
    if connector == "multi" and "kv_role" not in value:
        value = _producer_first(value.get("connectors", [])) | {"kv_connector": "multi"}
    role = value.get("kv_role", "kv_producer")
    if role not in ROLES:
        raise ValueError(f"Unsupported kv_role: {role}. Available: {', '.join(ROLES)}")
    return KvConfig(role, connector, int(value.get("handshake_port", 6301)))


def _producer_first(connectors: list[dict[str, Any]]) -> dict[str, Any]:
    ordered = sorted(connectors, key=lambda one: one.get("kv_role") != "kv_producer")
    if not ordered:
        raise ValueError("kv_connector 'multi' needs a list of connectors")
    return ordered[0]


def host_ip() -> str:
    """ATOM_HOST_IP, else the address of the default route, else what the host name resolves to."""
    if fixed := os.environ.get("ATOM_HOST_IP"):
        return fixed
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostbyname(socket.gethostname())


def bind_ports(first: int, count: int, host: str = "0.0.0.0") -> list[socket.socket]:
    """Listening sockets on `count` ports from `first`. Raises OSError that names the port when one is taken."""
    bound: list[socket.socket] = []
    for port in range(first, first + count):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(1024)
        except OSError as error:
            for other in [*bound, listener]:
                other.close()
            raise OSError(error.errno, f"Address already in use (addr='tcp://*:{port}')") from None
        bound.append(listener)
    return bound


class Parked:
    """KV of finished prefills that no decode has fetched yet: transfer id → tokens."""

    def __init__(self, fails: Callable[[int], bool], hangs: Callable[[int], bool], log: Callable[[str], None]) -> None:
        self.tokens: dict[int, int] = {}
        self.served = 0
        self._fails = fails
        self._hangs = hangs
        self._log = log

    def park(self, transfer: int, tokens: int) -> None:
        self.tokens[transfer] = tokens

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of a decode worker."""
        try:
            wanted = json.loads(await asyncio.wait_for(reader.readline(), 10))
            if self._hangs(self.served + 1):
                self.served += 1
                self._log(f"[PRODUCER] RDMA chunk error for req {wanted.get('request_id')}; not sending write-done")
                await reader.read()
                return
            writer.write(self._serve(int(wanted["transfer_id"]), wanted.get("request_id")))
            await writer.drain()
        except (ValueError, KeyError, TypeError, OSError, TimeoutError):
            pass
        finally:
            writer.close()

    def _serve(self, transfer: int, request: object) -> bytes:
        tokens = self.tokens.pop(transfer, None)
        self.served += 1
        if tokens is None or self._fails(self.served):
            self._log(f"[PRODUCER] transfer failed for req {request} (transfer_id={transfer}); not sending write-done")
            return b'{"ok": false}\n'
        size = min(MOST_BYTES, BYTES_PER_TOKEN * tokens)
        return b'{"ok": true, "bytes": %d}\n' % size + bytes(size)


def wanted_transfer(params: object) -> tuple[str, int, int] | None:
    """Host, port and transfer id out of kv_transfer_params, or None when they don't name a finished prefill."""
    if not isinstance(params, dict) or not params.get("do_remote_prefill"):
        return None
    host, port = params.get("remote_host"), params.get("remote_handshake_port", params.get("remote_port"))
    transfer = params.get("transfer_id")
    if not (isinstance(host, str) and host and isinstance(port, int) and isinstance(transfer, int)):
        return None
    return host, port, transfer


async def fetch(host: str, port: int, transfer: int, request: str, timeout: float) -> int:
    """Fetch a request's KV from its prefill; bytes fetched. Raises OSError or TimeoutError."""
    async with asyncio.timeout(timeout):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(json.dumps({"transfer_id": transfer, "request_id": request}).encode() + b"\n")
            answer = json.loads(await reader.readline() or b"{}")
            if not answer.get("ok"):
                raise OSError(f"prefill {host}:{port} does not send transfer {transfer}")
            await reader.readexactly(answer["bytes"])
        except asyncio.IncompleteReadError:
            raise OSError(f"prefill {host}:{port} hung up during transfer {transfer}") from None
        finally:
            writer.close()
        return int(answer["bytes"])
