"""atomesh, ATOM's router: relays prefill's answer to decode, one after the other.

Facts: the crate atom/mesh of ROCm/ATOM ffdf3bb; ports and policy as InferenceX 843c625 starts it.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleet import http
from fleet.model.arm import Arm
from fleet.model.check import Check, Response, answered
from fleet.model.part import Help, Part
from fleet.model.seat import Placement
from fleet.model.service import Port, Service

NAME = "atomesh"
PROGRAM = "/usr/local/bin/atomesh"
PORT = 30000
PROMETHEUS_PORT = 29100

FATAL = (
    r"[Aa]ddress already in use",
    r"ATOM PD mode requires at least one prefill worker",
    r"thread '.*' panicked at",
    r"error: unexpected argument",
)

TRANSFER_ERRORS = (
    r"prefill_missing_kv_transfer_params",
    r"missing kv_transfer_params",
    r"prefill_server_error",
    r"prefill_error",
    r"decode_server_error",
    r"ATOM prefill \S+ request_id=\S+ (failed|status=)",
    r"ATOM decode (request failed|\S+ returned error)",
)

ORIGINS = {
    "--host": "public recipe: all interfaces",
    "--port": "public recipe: 30000",
    "--pd-disaggregation": "config: disagg",
    "--prefill": "the plan's prefill workers",
    "--decode": "the plan's decode workers",
    "--policy": "public recipe: random",
    "--backend": "public recipe: atom (sequential relay of kv_transfer_params)",
    "--log-level": "public recipe: info",
    "--disable-circuit-breaker": "public recipe, and ATOM's own set-up: off",
    "--prometheus-port": "public recipe: 29100",
}


def service(placement: Placement, servers: Sequence[Service]) -> Service:
    arm, seat = placement.arm, placement.of("router")[0]
    argv = (
        PROGRAM, "launch",
        "--host", "0.0.0.0", "--port", str(PORT),
        "--pd-disaggregation",
        *_workers("--prefill", "prefill", placement, servers),
        *_workers("--decode", "decode", placement, servers),
        "--policy", "random",
        "--backend", "atom",
        "--log-level", "info",
        "--disable-circuit-breaker",
        "--prometheus-port", str(PROMETHEUS_PORT),
    )  # fmt: skip
    return Service(
        seat=seat,
        kind="router",
        image=arm.image,
        argv=argv,
        ports=(Port(name="http", number=PORT), Port(name="prometheus", number=PROMETHEUS_PORT, public=False)),
        http=PORT,
        stop_timeout=30,
        origins={flag: ORIGINS[flag] for flag in argv if flag in ORIGINS},
        consumes=("image", "router.name", "disagg"),
    )


def readiness(placement: Placement) -> tuple[Check, ...]:
    """`/readiness` says ready with one healthy worker of each role: the counts are what tells."""
    planned = len(placement.of("prefill")) + len(placement.of("decode"))
    return (
        Check("workers", "/readiness", lambda response: _all_healthy(response, planned)),
        Check("model", "/v1/models", answered),
    )


def parts(service: Service, arm: Arm) -> tuple[Part, ...]:
    return (Part("path", PROGRAM, "the router"),)


def manual(service: Service) -> Help:
    """Workers are taken from the command line before its parser sees it, so that its help may not list their flags."""
    return Help(service.argv[:2], unlisted=frozenset(("--prefill", "--decode")), beginnings=False)


def healthy(response: Response) -> tuple[int, int]:
    """Healthy and known workers, from an answer of `/readiness`; zeros where it does not say."""
    table = response.table()
    return _count(table.get("healthy_workers")), _count(table.get("total_workers"))


def workers(response: Response) -> list[str]:
    """URLs of the workers that `/workers` lists."""
    listed = response.table().get("workers", [])
    return [str(worker.get("url")) for worker in listed if isinstance(worker, dict)]


def deviations(arm: Arm) -> tuple[str, ...]:
    return ("the router keeps its health checks (public: off; the circuit breaker is off in both)",)


def informational(arm: Arm) -> dict[str, str]:
    return {"router.version": "a source commit: the image brings its own atomesh, whose commit is not checked"}


def _workers(flag: str, role: str, placement: Placement, servers: Sequence[Service]) -> list[str]:
    """A worker that spans hosts is reached at its first one."""
    argv = []
    for server in servers:
        if server.seat.role == role and server.seat.node == 0 and server.http:
            argv += [flag, http.url(placement.host(server.host).fast_address, server.http)]
    return argv


def _all_healthy(response: Response, planned: int) -> str:
    good, known = healthy(response)
    if response.status == 200 and good == known == planned:
        return ""
    return f"sees {good} healthy of {known} workers, {planned} are planned (status {response.status})"


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
