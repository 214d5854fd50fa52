"""Double of vLLM's server: `vllm serve MODEL`.

It takes the real command line, starts as slowly, binds HTTP as late and speaks the same HTTP; it computes nothing. A
word of a prompt counts as a token. Environment: FLEET_DOUBLE_START_SECONDS (0.8), FLEET_DOUBLE_SPEED (1: every rate
times this), FLEET_DOUBLE_FAIL (see double/failures.py). Once its engine core is dead /health is
503, as the real one's.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from double.engine import Engine
from double.failures import Failures
from double.flags import make_parser
from double.http import Exchange, Request, serve
from double.openai import COMPLETIONS, BadRequest, Job, Writer, model_context, understood, until_told
from double.rates import Acceptance, Shape

from vllm.metrics import metrics_text
from vllm.serve_flags import SERVE_FLAGS

PROGRAM = "vllm serve"
VERSION = "0.22.0"
METHODS = ("mtp", "ngram", "eagle", "eagle3", "draft_model", "deepseek_mtp")
MAX_NUM_SEQS = 1024
DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."


def log(text: str, level: str = "INFO") -> None:
    print(f"{level} {time.strftime('%m-%d %H:%M:%S')} {text}", flush=True)


class StartError(Exception):
    """The server cannot start; its text is what vLLM would have logged."""


@dataclass(frozen=True)
class Setup:
    """The command line, understood."""

    args: argparse.Namespace
    acceptance: Acceptance
    shape: Shape
    context: int
    name: str
    seats: int


def understand(args: argparse.Namespace) -> Setup:
    """Check what vLLM checks at start. Raises StartError."""
    model = str(args.model_tag or args.model)
    if not Path(model).is_dir():
        raise StartError(f"OSError: {model} is not a local folder and is not a valid model identifier")
    longest = model_context(Path(model))
    context = int(args.max_model_len or longest)
    if context > longest:
        raise StartError(f"ValueError: User-specified max_model_len ({context}) is greater than the derived {longest}")
    dp = int(args.data_parallel_size)
    speed = float(os.environ.get("FLEET_DOUBLE_SPEED", "1"))
    return Setup(
        args,
        _acceptance(args),
        Shape(args.tensor_parallel_size, dp, dp > 1, speed),
        context,
        (args.served_model_name or [model])[0],
        int(args.max_num_seqs or MAX_NUM_SEQS) * dp,
    )


def _acceptance(args: argparse.Namespace) -> Acceptance:
    config = args.speculative_config
    if config is None:
        return Acceptance()
    if not isinstance(config, dict) or config.get("method") not in METHODS:
        raise StartError(f"ValueError: speculative_config: method is none of {', '.join(METHODS)}")
    depth = config.get("num_speculative_tokens")
    if not isinstance(depth, int) or depth < 1:
        raise StartError("ValueError: num_speculative_tokens must be a positive integer")
    if args.async_scheduling and config["method"] == "ngram":
        raise StartError("ValueError: Async scheduling is not supported with ngram speculative decoding")
    return Acceptance(depth, config.get("synthetic_acceptance_length"))


class Server:
    """One server process: engine and HTTP."""

    def __init__(self, setup: Setup, failures: Failures) -> None:
        self.setup = setup
        self.failures = failures
        self.engine = Engine(setup.shape, setup.acceptance, setup.seats, count_drafts="no-accept" not in failures)
        self.ending: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.arrived = 0
        self.generated = 0
        self._most = int(failures.number("short-output") or 0) or None

    def end(self, code: int) -> None:
        if not self.ending.done():
            self.ending.set_result(code)

    def core_ended(self, core: asyncio.Future[None]) -> None:
        """The step loop never ends by itself: an error of the double."""
        if not core.cancelled():
            log(f"the double failed: {core.exception()!r}", "ERROR")
            self.end(1)

    async def handle(self, request: Request, exchange: Exchange) -> None:
        await self._answer(request, exchange)
        print(f'INFO:     {request.peer} - "{request.method} {request.path} HTTP/1.1" {exchange.status}', flush=True)

    async def _answer(self, request: Request, exchange: Exchange) -> None:
        asked = (request.method, request.path)
        if asked == ("GET", "/health"):
            exchange.reply(503 if self._core_gone("core-dies-after") else 200, b"")
        elif asked == ("GET", "/version"):
            exchange.json(200, {"version": VERSION})
        elif asked == ("GET", "/v1/models"):
            exchange.json(200, self._models())
        elif asked == ("GET", "/metrics"):
            exchange.text(200, metrics_text(self.engine, self.setup.name, self.generated))
        elif request.method == "POST" and request.path in COMPLETIONS:
            await self._complete(request, exchange)
        else:
            exchange.json(404, {"detail": "Not Found"})

    def _models(self) -> Any:
        card = {"id": self.setup.name, "object": "model", "owned_by": "vllm", "max_model_len": self.setup.context}
        return {"object": "list", "data": [card]}

    async def _complete(self, request: Request, exchange: Exchange) -> None:
        self.arrived += 1
        number = self.arrived
        if self.failures.number("oom-after") == number:
            log("Worker failed with error 'HIP out of memory. Tried to allocate 2.00 GiB.'", "ERROR")
            self.end(1)
        if self.failures.number("stall-request") == number or self._core_gone("core-hangs-after"):
            await asyncio.Event().wait()
        try:
            if self._core_gone("core-dies-after"):
                raise BadRequest(500, DEAD)
            job = understood(request, number, self.setup.name, self.setup.context, self._most)
            await self._run(job, exchange)
        except BadRequest as error:
            kind = {400: "BadRequestError", 404: "NotFoundError"}.get(error.status, "InternalServerError")
            exchange.json(error.status, {"error": {"message": str(error), "type": kind, "code": error.status}})

    def _core_gone(self, name: str) -> bool:
        return self.failures.reached(name, self.engine.counters.finished)

    async def _run(self, job: Job, exchange: Exchange) -> None:
        await self.engine.prefill(job.prompt_tokens)
        writer = Writer(job, exchange, self.setup.name)

        def emit(tokens: int, last: bool) -> bool:
            self.generated += tokens
            return writer.emit(tokens, last)

        emit(1, job.max_tokens == 1)
        await self.engine.decode(job.max_tokens - 1, job.framed, emit)
        if not exchange.gone:
            self._finish(job)
        writer.end(None)
        await exchange.writer.drain()

    def _finish(self, job: Job) -> None:
        counters = self.engine.counters
        counters.finished += 1
        if counters.finished == (self.failures.number("core-dies-after") or self.failures.number("core-hangs-after")):
            if "core-hangs-after" in self.failures:
                self.engine.lose()
            log("EngineCore encountered a fatal error.", "ERROR")
            log("Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.", "ERROR")
            log(f"vllm.v1.engine.exceptions.EngineDeadError: {DEAD}", "ERROR")
        if self.failures.reached("exit-after", counters.finished):
            log("Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.", "ERROR")
            self.end(self.failures.code("exit-after"))


async def start(args: argparse.Namespace, failures: Failures) -> Server:
    """Everything before HTTP is bound. Raises StartError."""
    setup = understand(args)
    log(f"Initializing a V1 LLM engine (v{VERSION}) with config: model={args.model_tag or args.model!r}")
    server = Server(setup, failures)
    log(f"Starting to load model {args.model_tag or args.model}...")
    if "oom-at-start" in failures:
        log("Worker failed with error 'HIP out of memory. Tried to allocate 20.00 GiB.'", "ERROR")
        raise StartError(
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
        )
    log("Loading weights took 0.10 seconds (pretended)")
    if failures.start_error:
        raise StartError(failures.start_error)
    if "hang-before-ready" in failures:
        await asyncio.Event().wait()
    await asyncio.sleep(failures.number("slow-start") or float(os.environ.get("FLEET_DOUBLE_START_SECONDS", "0.8")))
    log("GPU KV cache size: 6,400,000 tokens (pretended)")
    log("init engine (profile, create kv cache, warmup model) took 0.80 seconds")
    return server


async def live(args: argparse.Namespace, failures: Failures) -> int:
    """Start, bind HTTP and serve; the exit code."""
    server = await start(args, failures)
    where = (args.host or "0.0.0.0", args.port)
    log(f"Starting vLLM server on http://{where[0]}:{where[1]}")
    try:
        await serve(server.handle, *where)
    except OSError:
        raise StartError(
            f"[Errno 98] error while attempting to bind on address {where}: address already in use"
        ) from None
    print("INFO:     Application startup complete.", flush=True)
    steps = asyncio.ensure_future(server.engine.run())
    steps.add_done_callback(server.core_ended)
    return await server.ending


def parser() -> argparse.ArgumentParser:
    """As vLLM's: dashes and underscores are the same, the model stands first."""
    made = make_parser(PROGRAM, SERVE_FLAGS, both_spellings=True)
    made.add_argument("model_tag", nargs="?")
    return made


def main(argv: Sequence[str]) -> int:
    args = parser().parse_args(argv)
    try:
        return asyncio.run(until_told(live(args, Failures.from_environment())))
    except (StartError, ValueError) as error:
        log(str(error), "ERROR")
        return 1
