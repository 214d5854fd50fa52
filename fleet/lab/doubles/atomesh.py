"""Double of the atomesh router: `atomesh launch …`, ATOM backend.

It takes the flags of the real one, registers its workers before it binds HTTP, and relays a completion as the real one
does for ATOM: prefill first (max_tokens 1, no stream), then decode with the prefill's kv_transfer_params.
Regular mode (--worker-urls) passes requests through. The other backends are not played.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from double.flags import make_parser, read_table
from double.http import Answer, Exchange, Request, call, request_bytes, serve, take_stream
from double.openai import leave

FLAGS = read_table(
    """
    --host | str | | 0.0.0.0
    --port | int | | 30000
    --backend --runtime | str | sglang vllm atom | sglang
    --pd-disaggregation | flag
    --worker-urls | str+ | |
    --policy | str | cache_aware random round_robin dp_sticky power_of_two prefix_hash | cache_aware
    --prefill-policy | str | cache_aware random round_robin dp_sticky power_of_two prefix_hash |
    --decode-policy | str | cache_aware random round_robin dp_sticky power_of_two prefix_hash |
    --dp-aware | flag
    --atom-pd-rank-mapping-policy | str | none idx2idx | none
    --worker-startup-timeout-secs | int | | 1800
    --worker-startup-check-interval | int | | 30
    --prometheus-port | int | | 29000
    --prometheus-host | str | | 0.0.0.0
    --request-timeout-secs | int | | 1800
    --disable-health-check | flag
    --health-check-interval-secs | int | | 60
    --health-check-timeout-secs | int | | 5
    --health-failure-threshold | int | | 3
    --health-success-threshold | int | | 2
    --disable-circuit-breaker | flag
    --cb-failure-threshold | int | | 10
    --cb-timeout-duration-secs | int | | 60
    --retry-max-retries | int | | 5
    --disable-retries | flag
    --max-concurrent-requests | int | | -1
    --shutdown-grace-period-secs | int | | 180
    --log-dir | str | |
    --log-level | str | | info
    --json-log | flag
    --api-key | str | |
    """
)
STARTUP_SLACK = 60.0
POLL_SECONDS = 0.2
RETRIED = frozenset({408, 429, 500, 502, 503, 504})
BACKOFF = 0.05
BACKOFF_GROWTH = 1.5
PEER_ERRORS = (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError)


def log(text: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} INFO atomesh: {text}", flush=True)


@dataclass
class Worker:
    """A server behind the router."""

    url: str
    kind: str
    bootstrap: int | None = None
    healthy: bool = False
    model: str = ""
    dp_size: int = 1
    tp_size: int = 1
    active: int = 0
    failures: int = 0
    successes: int = 0
    id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def shown(self) -> dict[str, Any]:
        """Its entry in /workers."""
        return {
            "id": self.id,
            "url": self.url,
            "model_id": self.model,
            "worker_type": self.kind,
            "is_healthy": self.healthy,
            "load": self.active,
            "connection_mode": "HTTP",
        } | ({"bootstrap_port": self.bootstrap} if self.bootstrap else {})


class Failed(Exception):
    """A request that is answered with an error: status, code and text."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status, self.code = status, code


def split_workers(argv: Sequence[str]) -> tuple[list[str], list[Worker]]:
    """Take `--prefill URL [BOOTSTRAP|none]` and `--decode URL` out of argv, as atomesh does before its parser runs.

    Raises ValueError when a URL is missing.
    """
    rest, workers, words = [], [], list(argv)
    while words:
        word = words.pop(0)
        if word not in ("--prefill", "--decode"):
            rest.append(word)
            continue
        if not words or words[0].startswith("--"):
            raise ValueError(f"{word} needs a URL")
        worker = Worker(words.pop(0).rstrip("/"), word[2:])
        if word == "--prefill" and words and (words[0].isdigit() or words[0].lower() == "none"):
            port = words.pop(0)
            worker.bootstrap = int(port) if port.isdigit() else None
        workers.append(worker)
    return rest, workers


class Router:
    """Worker registry and relay."""

    def __init__(self, args: argparse.Namespace, workers: list[Worker]) -> None:
        self.args = args
        self.workers = workers
        self.retries = 0 if args.disable_retries else args.retry_max_retries
        self.counts: dict[tuple[str, int], int] = {}
        self._turns: dict[str, itertools.count[int]] = {}
        self._dice = random.Random()

    def of(self, *kinds: str) -> list[Worker]:
        return [worker for worker in self.workers if worker.kind in kinds]

    # -- start -------------------------------------------------------------------------------------------------------

    async def register(self) -> None:
        """Wait for the workers, then ask the prefills what they are. Raises ValueError when they won't do."""
        patience = self.args.worker_startup_timeout_secs + STARTUP_SLACK
        deadline = asyncio.get_running_loop().time() + patience
        await asyncio.gather(*(self._await_health(worker, deadline) for worker in self.workers))
        for worker in [worker for worker in self.workers if not worker.healthy]:
            log(f"WARN worker {worker.url} did not become healthy within {patience:.0f} s, going on without it")
        self.workers = [worker for worker in self.workers if worker.healthy]
        if self.args.pd_disaggregation and not self.of("prefill"):
            raise ValueError("no prefill worker available")
        for worker in self.of("prefill") if self.args.backend == "atom" else []:
            await self._ask_role(worker)
        for worker in self.workers:
            answer = await call(worker.url, "GET", "/v1/models")
            worker.model = answer.json()["data"][0]["id"]

    async def _await_health(self, worker: Worker, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        pause = min(POLL_SECONDS, self.args.worker_startup_check_interval)
        while not worker.healthy and loop.time() < deadline:
            worker.healthy = await self._healthy(worker)
            if not worker.healthy:
                await asyncio.sleep(pause)
        if worker.healthy:
            log(f"registered {worker.kind} worker {worker.url}")

    async def _healthy(self, worker: Worker) -> bool:
        try:
            return (await call(worker.url, "GET", "/health", timeout=self.args.health_check_timeout_secs)).status == 200
        except PEER_ERRORS:
            return False

    async def _ask_role(self, worker: Worker) -> None:
        info = (await call(worker.url, "GET", "/kv_transfer_info")).json()
        if info.get("kv_role") != "kv_producer":
            raise ValueError(f"prefill {worker.url} reports kv_role {info.get('kv_role')!r}, expected 'kv_producer'")
        worker.tp_size, worker.dp_size = info.get("tp_size", 1), info.get("dp_size", 1)

    async def watch(self) -> None:
        """Health checks for ever: so many bad answers in a row bring a worker down, so many good ones up."""
        while True:
            await asyncio.sleep(self.args.health_check_interval_secs)
            await asyncio.gather(*(self._check(worker) for worker in self.workers))

    async def _check(self, worker: Worker) -> None:
        good = await self._healthy(worker)
        worker.successes, worker.failures = (worker.successes + 1, 0) if good else (0, worker.failures + 1)
        if worker.healthy and worker.failures >= self.args.health_failure_threshold:
            worker.healthy = False
            log(f"WARN worker {worker.url} is unhealthy")
        elif not worker.healthy and worker.successes >= self.args.health_success_threshold:
            worker.healthy = True
            log(f"worker {worker.url} is healthy again")

    # -- pages -------------------------------------------------------------------------------------------------------

    async def handle(self, request: Request, exchange: Exchange) -> None:
        route = (request.method, request.path)
        if route in (("GET", "/health"), ("GET", "/liveness")):
            exchange.text(200, "OK")
        elif route == ("GET", "/readiness"):
            self._readiness(exchange)
        elif route == ("GET", "/workers"):
            shown = [worker.shown() for worker in self.workers]
            exchange.json(200, {"workers": shown, "total": len(shown)})
        elif route == ("GET", "/v1/models"):
            await self._models(exchange)
        elif route == ("GET", "/health_generate"):
            good = all(await asyncio.gather(*(self._healthy(worker) for worker in self.workers)))
            exchange.text(200 if good else 503, "OK" if good else "unhealthy workers")
        elif route == ("GET", "/engine_metrics"):
            await self._engine_metrics(exchange)
        elif request.method == "POST" and request.path in ("/v1/completions", "/v1/chat/completions"):
            await self._relay(request, exchange)
        else:
            exchange.json(404, {"error": {"code": "not_found", "message": f"no route {request.path}"}})
        key = (request.path, exchange.status)
        self.counts[key] = self.counts.get(key, 0) + 1

    def _readiness(self, exchange: Exchange) -> None:
        healthy = [worker for worker in self.workers if worker.healthy]
        kinds = {worker.kind for worker in healthy}
        ready = {"prefill", "decode"} <= kinds if self.args.pd_disaggregation else bool(healthy)
        counts = {"healthy_workers": len(healthy), "total_workers": len(self.workers)}
        exchange.json(200 if ready else 503, {"status": "ready" if ready else "not ready"} | counts)

    async def _models(self, exchange: Exchange) -> None:
        """Passed on to the first prefill (or worker)."""
        for worker in self.of("prefill", "regular")[:1]:
            try:
                answer = await call(worker.url, "GET", "/v1/models")
                exchange.reply(answer.status, answer.body)
                return
            except PEER_ERRORS:
                break
        exchange.json(503, {"error": {"code": "no_workers", "message": "no worker answers"}})

    async def _engine_metrics(self, exchange: Exchange) -> None:
        lines: list[str] = []
        for worker in self.workers:
            try:
                lines += _labelled((await call(worker.url, "GET", "/metrics")).body.decode(), worker.url)
            except PEER_ERRORS:
                continue
        exchange.text(200, "\n".join(lines) + "\n")

    async def own_metrics(self, request: Request, exchange: Exchange) -> None:
        """The Prometheus port."""
        if request.path != "/metrics":
            exchange.json(404, {})
            return
        lines = ["# TYPE mesh_http_requests_total counter"]
        for (path, status), count in sorted(self.counts.items()):
            lines.append(f'mesh_http_requests_total{{path="{path}",status="{status}"}} {count}')
        lines.append("# TYPE mesh_worker_health gauge")
        lines += [f'mesh_worker_health{{worker="{w.url}"}} {int(w.healthy)}' for w in self.workers]
        lines.append("# TYPE mesh_worker_requests_active gauge")
        lines += [f'mesh_worker_requests_active{{worker="{w.url}"}} {w.active}' for w in self.workers]
        exchange.text(200, "\n".join(lines) + "\n")

    # -- relay -------------------------------------------------------------------------------------------------------

    def choose(self, kind: str) -> Worker:
        """A healthy worker of the kind, by its policy. Raises Failed when there is none."""
        able = [worker for worker in self.of(kind) if worker.healthy]
        if not able:
            raise Failed(503, f"no_{kind}_workers", f"no healthy {kind} worker")
        policy = getattr(self.args, f"{kind}_policy", None) or self.args.policy
        if policy == "round_robin":
            turn = next(self._turns.setdefault(kind, itertools.count()))
            return able[turn % len(able)]
        if policy == "random":
            return self._dice.choice(able)
        return min(able, key=lambda worker: worker.active)

    async def _relay(self, request: Request, exchange: Exchange) -> None:
        pause = BACKOFF
        for attempt in range(self.retries + 1):
            try:
                await self._once(request, exchange)
                return
            except Failed as failure:
                log(f"WARN {failure.status} {failure.code}: {failure} (attempt {attempt + 1})")
                if attempt == self.retries or failure.status not in RETRIED:
                    exchange.json(failure.status, {"error": {"code": failure.code, "message": str(failure)}})
                    return
            await asyncio.sleep(pause)
            pause *= BACKOFF_GROWTH

    async def _once(self, request: Request, exchange: Exchange) -> None:
        if not self.args.pd_disaggregation:
            await self._pass(self.choose("regular"), request.path, request.body, exchange)
            return
        try:
            body = request.json()
        except ValueError as error:
            raise Failed(400, "bad_request", f"not JSON: {error}") from None
        prefill, decode = self.choose("prefill"), self.choose("decode")
        params = await self._prefill(prefill, request.path, body)
        params |= {"remote_dp_size": prefill.dp_size, "remote_tp_size": prefill.tp_size}
        params["remote_dp_rank"] = params.get("dp_rank", 0)
        await self._pass(decode, request.path, json.dumps(body | {"kv_transfer_params": params}).encode(), exchange)

    async def _prefill(self, worker: Worker, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Have the prompt computed; where its KV is."""
        asked = {name: value for name, value in body.items() if name not in ("stream_options", "max_completion_tokens")}
        asked |= {"max_tokens": 1, "stream": False, "kv_transfer_params": {"do_remote_decode": True}}
        worker.active += 1
        try:
            answer: Answer = await call(worker.url, "POST", path, asked, timeout=self.args.request_timeout_secs)
        except PEER_ERRORS as error:
            raise Failed(502, "prefill_error", f"prefill {worker.url}: {error!r}") from None
        finally:
            worker.active -= 1
        if answer.status != 200:
            raise Failed(answer.status, "prefill_error", f"prefill {worker.url}: {answer.body.decode()[:300]}")
        params = answer.json().get("kv_transfer_params")
        if not isinstance(params, dict):
            raise Failed(502, "prefill_missing_kv_transfer_params", "Prefill response missing kv_transfer_params")
        return params

    async def _pass(self, worker: Worker, path: str, body: bytes, exchange: Exchange) -> None:
        """Send the request on and its answer back, byte by byte. Raises Failed unless the answer is a 200."""
        worker.active += 1
        try:
            async with asyncio.timeout(self.args.request_timeout_secs):
                await self._pipe(worker, path, body, exchange)
        except PEER_ERRORS as error:
            if exchange.status:
                log(f"WARN {worker.kind} {worker.url} broke off: {error!r}")
                exchange.writer.transport.abort()
                return
            raise Failed(502, "decode_server_error", f"{worker.kind} {worker.url}: {error!r}") from None
        finally:
            worker.active -= 1

    async def _pipe(self, worker: Worker, path: str, body: bytes, exchange: Exchange) -> None:
        client, refused = exchange.writer.transport, bytearray()
        status = 0

        def head(raw: bytes) -> None:
            nonlocal status
            status = int(raw.split(b" ", 2)[1])
            if status == 200:
                exchange.status, exchange.keep = status, False
                client.write(raw[:-2] + b"connection: close\r\n\r\n")

        def data(piece: bytes) -> None:
            if status == 200:
                client.write(piece)
            else:
                refused.extend(piece)

        request = request_bytes(worker.url, "POST", path, body, {"content-type": "application/json"})
        await take_stream(worker.url, request, head, data)
        if status == 0:
            raise ConnectionError("closed without an answer")
        if status != 200:
            text = refused.decode("utf-8", "replace")[:300]
            raise Failed(status, "decode_server_error", f"{worker.kind} {worker.url}: {text}")


def _labelled(text: str, url: str) -> list[str]:
    """Each sample with a worker_addr label."""
    lines = []
    for line in text.splitlines():
        if line.startswith("#"):
            lines.append(line)
            continue
        name, _, value = line.rpartition(" ")
        bare, _, labels = name.partition("{")
        lines.append(f'{bare}{{worker_addr="{url}"{"," + labels if labels else "}"} {value}')
    return lines


async def live(args: argparse.Namespace, workers: list[Worker]) -> int:
    router = Router(args, workers)
    try:
        await serve(router.own_metrics, args.prometheus_host, args.prometheus_port)
        await router.register()
        await serve(router.handle, args.host, args.port)
    except (OSError, ValueError, TimeoutError) as error:
        log(f"ERROR {error}")
        return 1
    log(f"Router ready, listening on {args.host}:{args.port} with {len(router.workers)} workers")
    if not args.disable_health_check:
        await router.watch()
    await asyncio.Event().wait()
    return 0


async def until_told(args: argparse.Namespace, workers: list[Worker]) -> int:
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, leave)
    return await live(args, workers)


def main(argv: Sequence[str]) -> int:
    parser = make_parser("atomesh launch", FLAGS)
    if not argv or argv[0] != "launch":
        parser.error("the only command is `launch`")
    try:
        rest, workers = split_workers(argv[1:])
    except ValueError as error:
        parser.error(str(error))
    args = parser.parse_args(rest)
    if workers and not args.pd_disaggregation:
        parser.error("--prefill and --decode need --pd-disaggregation")
    if args.pd_disaggregation and args.backend != "atom":
        parser.error(f"this double plays --backend atom only, not {args.backend}")
    workers += [Worker(url.rstrip("/"), "regular") for url in args.worker_urls or ()]
    return asyncio.run(until_told(args, workers))


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
