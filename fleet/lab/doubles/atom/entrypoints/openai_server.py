"""Double of ATOM's server: `python3 -m atom.entrypoints.openai_server`.

It takes the real command line, starts as slowly, occupies the same ports, speaks the same HTTP and relays KV over real
TCP; it computes nothing. A word of a prompt counts as a token. Environment: FLEET_DOUBLE_START_SECONDS (0.8),
FLEET_DOUBLE_SPEED (1: every rate times this), FLEET_DOUBLE_METRICS_REFRESH (seconds; unset: fresh at each scrape),
FLEET_DOUBLE_TRANSFER_SECONDS (5: patience of a KV fetch), FLEET_DOUBLE_FAIL (see double/failures.py).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from double.engine import Engine
from double.failures import Failures
from double.flags import make_parser
from double.http import Exchange, Request, serve
from double.openai import COMPLETIONS, BadRequest, Job, Writer, model_context, understood, until_told
from double.rates import Acceptance, Shape

from atom.entrypoints.metrics import metrics_text, mtp_line, mtp_stats
from atom.entrypoints.server_flags import SERVER_FLAGS
from atom.kv_transfer import KvConfig, Parked, bind_ports, fetch, host_ip, read_kv_config, wanted_transfer

PROGRAM = "openai_server.py"
STEPS_PER_LOG = 1000


def log(text: str) -> None:
    print(f"[atom {time.strftime('%H:%M:%S')}] {text}", flush=True)


class StartError(Exception):
    """The server cannot start; its text is what ATOM would have logged."""


@dataclass(frozen=True)
class Setup:
    """The command line, understood."""

    args: argparse.Namespace
    kv: KvConfig
    acceptance: Acceptance
    shape: Shape
    context: int

    @property
    def name(self) -> str:
        return str(self.args.served_model_name or self.args.model)

    @property
    def ranks(self) -> int:
        return int(self.args.tensor_parallel_size * self.args.data_parallel_size)

    @property
    def seats(self) -> int:
        """Sequences that may run at once: --max-num-seqs holds for each data-parallel rank."""
        each = self.ranks if self.args.enable_dp_attention else self.args.data_parallel_size
        return int(self.args.max_num_seqs * each)


def understand(args: argparse.Namespace) -> Setup:
    """Check what ATOM checks at start. Raises StartError."""
    model = Path(args.model)
    log(f"Loading tokenizer from {args.model}")
    if not model.is_dir():
        raise StartError(
            f"OSError: Incorrect path_or_model_id: '{args.model}'. Please provide either the path to a local directory "
            "or the repo_id of a model on the Hub."
        )
    log(f"Initializing engine with model {args.model}")
    try:
        kv = read_kv_config(args.kv_transfer_config)
        acceptance = _acceptance(args)
    except ValueError as error:
        raise StartError(f"ValueError: {error}") from None
    if args.enable_dp_attention and (args.pipeline_parallel_size > 1 or args.prefill_context_parallel_size > 1):
        raise StartError("ValueError: DP attention does not support pipeline or prefill context parallelism")
    speed = float(os.environ.get("FLEET_DOUBLE_SPEED", "1"))
    shape = Shape(args.tensor_parallel_size, args.data_parallel_size, args.enable_dp_attention, speed)
    return Setup(args, kv, acceptance, shape, args.max_model_len or model_context(model))


def _acceptance(args: argparse.Namespace) -> Acceptance:
    depth = args.num_speculative_tokens if args.method else 0
    length, rate = args.spec_decode_acceptance_length, args.spec_decode_acceptance_rate
    if args.method == "eagle3" and not args.draft_model:
        raise ValueError("--draft-model is required for --method eagle3")
    if args.method == "mtp" and args.draft_model:
        raise ValueError("--draft-model is not supported with --method mtp")
    if length is not None and rate is not None:
        raise ValueError("--spec-decode-acceptance-length and --spec-decode-acceptance-rate are mutually exclusive")
    if length is not None and not 1 <= length <= depth + 1:
        raise ValueError(f"--spec-decode-acceptance-length must be in [1, {depth + 1}]")
    if rate is not None and not 0 <= rate <= 1:
        raise ValueError("--spec-decode-acceptance-rate must be in [0, 1]")
    return Acceptance(depth, length if rate is None else 1 + rate * depth)


class Server:
    """One server process: engine, HTTP and KV transfer."""

    def __init__(self, setup: Setup, failures: Failures) -> None:
        self.setup = setup
        self.failures = failures
        self.engine = Engine(setup.shape, setup.acceptance, setup.seats, count_drafts="no-accept" not in failures)
        self.engine.on_steps = self._log_steps
        self.parked = Parked(lambda nth: failures.number("fail-transfer") == nth, failures.hangs, log)
        self.ending: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.held: list[socket.socket] = []
        self.loading = 0
        self.arrived = 0
        self._logged_steps = 0
        self._snapshot = (0.0, "")
        self._transfers = itertools.count(1)
        self._address = host_ip() if setup.kv.role else ""
        self._patience = float(os.environ.get("FLEET_DOUBLE_TRANSFER_SECONDS", "5"))
        self._refresh = float(os.environ.get("FLEET_DOUBLE_METRICS_REFRESH", "0"))
        self._most = int(failures.number("short-output") or 0) or None
        self._pages: dict[tuple[str, str], Callable[[], Any]] = {
            ("GET", "/health"): lambda: {"status": "ok"},
            ("GET", "/v1/models"): self._models,
            ("GET", "/kv_transfer_info"): self._kv_info,
            ("GET", "/server_info"): self._server_info,
            ("GET", "/debug/mtp_stats"): lambda: mtp_stats(self.engine),
            ("GET", "/debug/cache_stats"): self._cache_stats,
        }

    def end(self, code: int) -> None:
        if not self.ending.done():
            self.ending.set_result(code)

    def core_ended(self, core: asyncio.Future[None]) -> None:
        """The step loop never ends by itself: an error of the double."""
        if not core.cancelled():
            log(f"the double failed: {core.exception()!r}")
            self.end(1)

    # -- pages -------------------------------------------------------------------------------------------------------

    def _models(self) -> Any:
        return {"object": "list", "data": [{"id": self.setup.name, "object": "model", "owned_by": "atom"}]}

    def _kv_info(self) -> Any:
        return {
            "tp_size": self.setup.args.tensor_parallel_size,
            "dp_size": self.setup.args.data_parallel_size,
            "kv_role": self.setup.kv.role,
            "handshake_port": self.setup.kv.handshake_port,
        }

    def _server_info(self) -> Any:
        name, args = self.setup.name, self.setup.args
        sizes = {"tp_size": args.tensor_parallel_size, "dp_size": args.data_parallel_size}
        return {"model_id": name, "served_model_name": name, **sizes}

    def _cache_stats(self) -> Any:
        counters = self.engine.counters
        return {
            "total_requests": counters.prefills,
            "total_cached_tokens": 0,
            "total_full_tokens": counters.prefill_tokens,
            "overall_hit_rate": 0.0,
        }

    def _metrics(self) -> str:
        taken, text = self._snapshot
        if not text or time.time() - taken >= self._refresh:
            self._snapshot = (time.time(), metrics_text(self.engine, self.loading, time.time()))
        return self._snapshot[1]

    def _log_steps(self) -> None:
        if (steps := self.engine.counters.decode_steps) >= self._logged_steps + STEPS_PER_LOG:
            self._logged_steps = steps
            log(mtp_line(self.engine))

    # -- requests ----------------------------------------------------------------------------------------------------

    async def handle(self, request: Request, exchange: Exchange) -> None:
        page = self._pages.get((request.method, request.path))
        if page:
            exchange.json(200, page())
        elif (request.method, request.path) == ("GET", "/metrics"):
            exchange.text(200, self._metrics())
        elif request.method == "POST" and request.path in COMPLETIONS:
            await self._complete(request, exchange)
        else:
            exchange.json(404, {"detail": "Not Found"})
        if not self.setup.args.disable_uvicorn_access_log:
            print(
                f'INFO:     {request.peer} - "{request.method} {request.path} HTTP/1.1" {exchange.status}', flush=True
            )

    async def _complete(self, request: Request, exchange: Exchange) -> None:
        self.arrived += 1
        number = self.arrived
        if self.failures.number("oom-after") == number:
            log("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has 0 bytes free.")
            self.end(1)
        if self.failures.number("stall-request") == number or self._core_gone("core-hangs-after"):
            await asyncio.Event().wait()
        try:
            if self._core_gone("core-dies-after"):
                raise BadRequest(500, "Engine core is dead")
            await self._run(understood(request, number, self.setup.name, self.setup.context, self._most), exchange)
        except BadRequest as error:
            log(f"request {number}: {error.status} {error}")
            exchange.json(error.status, {"error": {"message": str(error), "code": error.status}})

    def _core_gone(self, name: str) -> bool:
        return self.failures.reached(name, self.engine.counters.finished)

    async def _run(self, job: Job, exchange: Exchange) -> None:
        await self._prompt(job)
        writer = Writer(job, exchange, self.setup.name)
        writer.emit(1, job.max_tokens == 1)
        await self.engine.decode(job.max_tokens - 1, job.framed, writer.emit)
        if not exchange.gone:
            self._finish(job)
        writer.end(self._kv_output(job))
        await exchange.writer.drain()

    async def _prompt(self, job: Job) -> None:
        """The first token: by a prefill here, or with the KV of a prefill elsewhere."""
        if self.setup.kv.role != "kv_consumer":
            await self.engine.prefill(job.prompt_tokens)
            return
        wanted = wanted_transfer(job.kv)
        if wanted is None:
            raise BadRequest(400, "kv_consumer: the request carries no kv_transfer_params of a finished prefill")
        self.loading += 1
        try:
            await fetch(*wanted, job.id, self._patience)
        except (OSError, TimeoutError, ValueError) as error:
            host, port, transfer = wanted
            log(f"[CONSUMER] transfer failed for req {job.id} (transfer_id={transfer}) from {host}:{port}: {error!r}")
            raise BadRequest(500, f"KV transfer from {host}:{port} failed") from None
        finally:
            self.loading -= 1

    def _kv_output(self, job: Job) -> dict[str, Any] | None:
        """What a prefill hands to the router: where the KV is."""
        asked = self.setup.kv.role == "kv_producer" and (job.kv or {}).get("do_remote_decode")
        if not asked or "no-kv-params" in self.failures:
            return None
        transfer = next(self._transfers)
        self.parked.park(transfer, job.prompt_tokens)
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": list(range(-(-job.prompt_tokens // self.setup.args.block_size))),
            "remote_engine_id": f"{self._address}:{self.setup.kv.handshake_port}",
            "remote_host": self._address,
            "remote_port": self.setup.kv.handshake_port,
            "remote_handshake_port": self.setup.kv.handshake_port,
            "tp_size": self.setup.args.tensor_parallel_size,
            "dp_rank": 0,
            "transfer_id": transfer,
            "first_token_id": 0,
            "draft_token_ids": [0] * self.setup.acceptance.depth,
        }

    def _finish(self, job: Job) -> None:
        counters = self.engine.counters
        counters.finished += 1
        counters.prompt_tokens += job.prompt_tokens
        counters.generation_tokens += job.max_tokens
        if counters.finished == (self.failures.number("core-dies-after") or self.failures.number("core-hangs-after")):
            if "core-hangs-after" in self.failures:
                self.engine.lose()
            log("EngineCore DP rank 0: proc died unexpectedly (exitcode=-9), shutting down.")
        if self.failures.reached("exit-after", counters.finished):
            log(f"proc died unexpectedly (exitcode={self.failures.code('exit-after')}), shutting down.")
            self.end(self.failures.code("exit-after"))


async def start(args: argparse.Namespace, failures: Failures) -> Server:
    """Everything before HTTP is bound. Raises StartError."""
    setup = understand(args)
    log(f"Engine kwargs: {vars(args)}")
    server = Server(setup, failures)
    try:
        server.held = bind_ports(args.port, 1, "127.0.0.1")
        handshake = bind_ports(setup.kv.handshake_port, setup.ranks) if setup.kv.role else []
    except OSError as error:
        log("Failed to initialize all EngineCores, cleaning up")
        raise StartError(f"zmq.error.ZMQError: {error.strerror}") from None
    for listener in handshake:
        await asyncio.start_server(server.parked.answer, sock=listener)
    log("Memory budget: total_gpu=288.00GB (pretended)")
    if "oom-at-start" in failures:
        raise StartError("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 20.00 GiB.")
    if failures.start_error:
        raise StartError(failures.start_error)
    if "hang-before-ready" in failures:
        await asyncio.Event().wait()
    await asyncio.sleep(failures.number("slow-start") or float(os.environ.get("FLEET_DOUBLE_START_SECONDS", "0.8")))
    log("Engine Core Mgr: All EngineCores are fully initialized and ready")
    return server


async def live(args: argparse.Namespace, failures: Failures) -> int:
    """Start, bind HTTP and serve; the exit code."""
    server = await start(args, failures)
    log(f"Starting server on {args.host}:{args.server_port} (loop=asyncio)")
    try:
        await serve(server.handle, args.host, args.server_port)
    except OSError:
        where = (args.host, args.server_port)
        raise StartError(
            f"[Errno 98] error while attempting to bind on address {where}: address already in use"
        ) from None
    log("Server started successfully and ready to accept requests")
    steps = asyncio.ensure_future(server.engine.run())
    steps.add_done_callback(server.core_ended)
    return await server.ending


def main(argv: Sequence[str]) -> int:
    args = make_parser(PROGRAM, SERVER_FLAGS, both_spellings=True).parse_args(argv)
    try:
        return asyncio.run(until_told(live(args, Failures.from_environment())))
    except (StartError, ValueError) as error:
        log(str(error))
        return 1


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
