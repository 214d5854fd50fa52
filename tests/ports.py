"""Free TCP ports for servers that tests start: below those the kernel gives to connections, and never twice."""

from __future__ import annotations

import os
import socket

# Linux hands out 32768 and above to connections: a port of those may be taken between looking and listening.
LOWEST, HIGHEST, WORKERS = 12_000, 32_000, 8
_SHARE = (HIGHEST - LOWEST) // WORKERS
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
_begin = LOWEST + _worker * _SHARE
_next = _begin + os.getpid() * 7 % _SHARE


def free_ports(count: int = 1) -> int:
    """The first of `count` neighbouring free ports; each worker of a parallel run has a range of its own."""
    global _next
    for _ in range(_SHARE):
        if _next + count > _begin + _SHARE:
            _next = _begin
        first, _next = _next, _next + count
        if all(_free(port) for port in range(first, first + count)):
            return first
    raise AssertionError(f"no {count} free ports between {_begin} and {_begin + _SHARE}")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
