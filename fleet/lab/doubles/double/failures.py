"""Failures on demand, from the environment variable FLEET_DOUBLE_FAIL: a comma-separated list of

    slow-start=SECONDS    the start takes so long instead of FLEET_DOUBLE_START_SECONDS
    hang-before-ready     never gets ready, never ends
    oom-at-start          `HIP out of memory` before it is ready, exit 1
    exit-after=N[:CODE]   ends with CODE (default 1) when N requests have finished
    oom-after=N           `HIP out of memory` when the Nth request arrives, exit 1
    core-dies-after=N     an engine core dies when N requests have finished: requests get 500, /health stays 200 (ATOM)
                          or becomes 503 (vLLM)
    core-hangs-after=N    the same, but requests are never answered, nor those under way, and no /health shows it
    stall-request=N       the Nth request is never answered, all others are
    short-output=N        every answer ends after N tokens
    no-accept             the speculation counters do not move
    no-kv-params          prefill answers without kv_transfer_params
    fail-transfer=N       the Nth KV transfer that a prefill serves fails
    hang-transfers=N[:M]  M KV transfers from the Nth on (default: all) are logged as failed and never answered
    start-error=KIND      logs the fatal line of that kind before it is ready, exit 1: kv-room, kv-state, gpu-taken,
                          gpu-binary, hip, hip-stream, weights, tokenizer, port, cores, some-cores, all-cores, dp-rank,
                          worker, mooncake, mooncake-missing, mooncake-memory, moriio, handshake, shm
    print-environment     logs its variables when it starts, as programs do that are being debugged
    ignore-term           SIGTERM and SIGINT do nothing, as in a process that hangs in a driver

Requests are counted from 1 over completions of this process, a warm-up or a prefill as much as any.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

START_ERRORS = {
    "kv-room": "AssertionError: Not enough memory for KV cache with block size(16)",
    "kv-state": "RuntimeError: Per-request cache tensor (8.00GB) exceeds available KV budget (2.00GB)",
    "gpu-taken": "RuntimeError: only 12.00GB is physically free on the GPU (other processes may be holding memory)",
    "gpu-binary": "RuntimeError: hipErrorNoBinaryForGpu: Unable to find code object for all current devices!",
    "hip": "RuntimeError: HIP error: invalid device function",
    "hip-stream": "RuntimeError: HIP err 801 creating masked stream",
    "weights": "RuntimeError: default_weight_loader: shape mismatch",
    "tokenizer": "huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error",
    "port": "OSError: [Errno 98] error while attempting to bind on address: address already in use",
    "cores": "RuntimeError: Failed to start all EngineCore processes",
    "some-cores": "Some processes failed to start, shutting down all",
    "all-cores": "Failed to initialize all EngineCores, cleaning up",
    "dp-rank": "RuntimeError: Received unexpected SHUTDOWN signal from DP rank 1",
    "worker": "ModelRunner0: proc died unexpectedly (exitcode=1), shutting down.",
    "mooncake-missing": "RuntimeError: Mooncake is not installed but kv_connector='mooncake'",
    "mooncake-memory": "RuntimeError: batch_register_memory FAILED (ret=-1)",
    "handshake": "RuntimeError: Handshake with 10.0.0.2:6301 failed",
    "mooncake": "RuntimeError: Mooncake TransferEngine.initialize() failed (ret=-1)",
    "moriio": "RuntimeError: MoRIIO is not available",
    "shm": "RuntimeError: Failed to CUDA calloc 8388608 bytes",
}
"""Fatal lines as ATOM and what lies below it write them."""

KNOWN = {
    "slow-start": True,
    "hang-before-ready": False,
    "oom-at-start": False,
    "exit-after": True,
    "oom-after": True,
    "core-dies-after": True,
    "core-hangs-after": True,
    "stall-request": True,
    "short-output": True,
    "no-accept": False,
    "no-kv-params": False,
    "fail-transfer": True,
    "hang-transfers": True,
    "start-error": True,
    "print-environment": False,
    "ignore-term": False,
}


class Failures:
    """The failures asked for. Raises ValueError for one that does not exist: a typo must not pass for health."""

    def __init__(self, text: str) -> None:
        self.asked: dict[str, str] = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = item.partition("=")
            if name not in KNOWN or KNOWN[name] != bool(equals):
                raise ValueError(f"FLEET_DOUBLE_FAIL: {item!r} is none of {', '.join(KNOWN)}")
            self.asked[name] = value
            if name == "start-error":
                if value not in START_ERRORS:
                    raise ValueError(f"FLEET_DOUBLE_FAIL: {item!r} is none of {', '.join(START_ERRORS)}")
            else:
                float(value.partition(":")[0] or "0")

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Failures:
        found = cls(environ.get("FLEET_DOUBLE_FAIL", ""))
        if "print-environment" in found:
            print("environment:", dict(environ), flush=True)
            print(*(f"{name}={value}" for name, value in environ.items()), sep="\n", flush=True)
        return found

    def __contains__(self, name: str) -> bool:
        return name in self.asked

    @property
    def start_error(self) -> str:
        """What is logged instead of getting ready; "" if that was not asked for."""
        return START_ERRORS.get(self.asked.get("start-error", ""), "")

    def number(self, name: str) -> float | None:
        value = self.asked.get(name)
        return None if value is None else float(value.partition(":")[0])

    def code(self, name: str, default: int = 1) -> int:
        return int(self.asked.get(name, "").partition(":")[2] or default)

    def hangs(self, nth: int) -> bool:
        """Whether a prefill never answers its nth KV transfer."""
        first = self.number("hang-transfers")
        return first is not None and first <= nth < first + self.code("hang-transfers", 1 << 62)

    def reached(self, name: str, count: int) -> bool:
        number = self.number(name)
        return number is not None and count >= number
