"""vLLM: `vllm serve`, one server on one node.

Where each flag comes from: ORIGINS, and docs/flags.md at length. Facts: vLLM 0.22.0, InferenceX 843c625.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from fleet.engines import flags
from fleet.errors import NotReady
from fleet.model import prometheus
from fleet.model.arm import Arm, Workers
from fleet.model.base import BlockSize, Fraction, KebabModel, Variables
from fleet.model.check import Check, Response, answered, serves
from fleet.model.evidence import Counters
from fleet.model.inventory import Host
from fleet.model.part import Help, Part
from fleet.model.seat import Placement, Seat
from fleet.model.service import Mount, Port, Service
from fleet.model.tuning import Draft

FRAMEWORKS = ("vllm",)
SPANS = False
START_TIMEOUT = 5000
# The counters are read when they are asked for.
METRICS_SETTLE = 0.0
# 503 once the engine core is dead.
HEALTH = Check("health", "/health", answered)

# Versions of what a container runs, one "name version" a line; packages that are not there are left out.
VERSIONS = (
    "python3", "-c",
    "import importlib.metadata as m\n"
    "for n in ('vllm', 'amd-aiter', 'aiter', 'torch', 'triton', 'transformers'):\n"
    "    try: print(n, m.version(n))\n"
    "    except m.PackageNotFoundError: pass",
)  # fmt: skip

PORT = 8888

# Texts of vLLM's source; those of torch, HIP, uvicorn and the hub are the libraries' own.
FATAL = (
    r"Engine core initialization failed\. See root cause above",
    r"Worker failed with error",
    r"WorkerProc failed to start",
    r"EngineCore encountered a fatal error",
    r"EngineCore failed to start",
    r"Engine core proc .* died unexpectedly",
    r"Worker proc .* died unexpectedly",
    r"EngineDeadError",
    r"No available memory for the cache blocks",
    r"Free memory on device .* is less than desired GPU memory utilization",
    r"KV cache is needed, which is larger than the available KV cache memory",
    r"HIP out of memory",
    r"hipErrorNoBinaryForGpu",
    r"HIP error:",
    r"is not a valid model identifier",
    r"RepositoryNotFound",
    r"[Aa]ddress already in use",
    r"vllm( serve)?: error: ",
)

TRANSFER_ERRORS: tuple[str, ...] = ()

PROGRESS = (
    (r"Initializing a V1 LLM engine", "starting the engine"),
    (r"Starting to load model", "loading weights"),
    (r"Loading weights took", "weights loaded"),
    (r"GPU KV cache size:", "KV cache sized"),
    (r"Capturing CUDA graphs", "capturing graphs"),
    (r"init engine \(profile, create kv cache, warmup model\) took", "engine ready"),
    (r"Starting vLLM (API )?server", "binding HTTP"),
    (r"Application startup complete", "serving"),
)

ORIGINS = {
    "--served-model-name": "config: model; the name that the public recipe's clients ask for",
    "--host": "fleet: all interfaces, said aloud",
    "--port": "public recipe: 8888 (there plus the last digit of the runner's name)",
    "--tensor-parallel-size": "config: tp (1 with dp-attn)",
    "--data-parallel-size": "config: tp with dp-attn, else 1",
    "--pipeline-parallel-size": "config: pp",
    "--prefill-context-parallel-size": "config: pcp-size",
    "--decode-context-parallel-size": "config: dcp-size",
    "--enable-expert-parallel": "config: ep (the flag takes no size)",
    "--max-model-len": "config: isl + osl + 256 (deviation: the public recipe never passes it)",
    "--trust-remote-code": "public recipe",
    "--speculative-config": "model file: mtp, iff the config says spec-decoding: mtp",
    "--kv-cache-dtype": "model file: kv-cache-dtype (public recipe: fp8)",
    "--block-size": "model file: block-size",
    "--gpu-memory-utilization": "model file: memory-fraction (public recipe: 0.8)",
    "--enable-prefix-caching": "model file: prefix-caching",
    "--no-enable-prefix-caching": "model file: prefix-caching (public recipe: off)",
    "--async-scheduling": "model file: async-scheduling (public recipe: on)",
    "--no-async-scheduling": "model file: async-scheduling",
    "--distributed-executor-backend": "model file: executor (public recipe: mp)",
    "--moe-backend": "model file: moe-backend (public recipe: aiter)",
    "--tokenizer-mode": "model file: tokenizer-mode (public recipe: the model's own)",
    "--reasoning-parser": "model file: reasoning-parser (public recipe: the model's own)",
    "--compilation-config": "model file: compilation (public recipe)",
    "HIP_VISIBLE_DEVICES": "fleet: only where a server has fewer GPUs than its host",
    "PYTHONUNBUFFERED": "fleet: log lines come when they are written",
}

# The same setting under another name, or one of whose parts fleet sets: not for `flags` either.
ALIASES = frozenset(
    (
        "--model", "-tp", "-dp", "-pp", "-pcp", "-dcp", "-ep", "-sc", "-cc", "--spec-method", "--spec-model",
        "--spec-tokens", "--no-trust-remote-code", "--no-enable-expert-parallel", "--uds", "--grpc", "--headless",
        "--api-key",
    )
)  # fmt: skip


class Mtp(Draft):
    """How the checkpoint drafts: by its own next-token layers unless told otherwise."""

    method: Literal["mtp"] = "mtp"


class Compilation(KebabModel):
    """vLLM's compilation config: mode 0 to 3, and which CUDA graphs."""

    mode: Annotated[int, Field(ge=0, le=3)]
    cudagraph_mode: Literal["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"]


class Options(KebabModel):
    """How vLLM serves one model: section `vllm` of recipes/models/<model>.yaml. What is not given keeps vLLM's default.

    memory_fraction: of GPU memory, 0 to 1. env: for the server. flags: passed as they are.
    """

    kv_cache_dtype: str | None = None
    block_size: BlockSize | None = None
    memory_fraction: Fraction | None = None
    prefix_caching: bool | None = None
    async_scheduling: bool | None = None
    executor: Literal["mp", "uni", "ray"] | None = None
    moe_backend: str | None = None
    tokenizer_mode: str | None = None
    reasoning_parser: str | None = None
    compilation: Compilation | None = None
    env: Variables = {}
    mtp: Mtp | None = None
    flags: tuple[str, ...] = ()


def refusals(arm: Arm, options: Options) -> tuple[str, ...]:
    reasons = []
    if arm.multinode or arm.disagg:
        reasons.append("framework: vllm: one server on one node; multinode and disagg need another framework")
    reasons += [why for workers in arm.workers for why in _worker_refusals(workers)]
    if arm.spec == "draft_model":
        reasons.append("spec-decoding: draft_model: fleet runs vLLM with the checkpoint's own drafts (mtp) only")
    if arm.depth > 0 and options.mtp is None:
        reasons.append(f"spec-decoding: mtp: the model file of {arm.model_basename} has no mtp for vLLM")
    if {"dummy", "--load-format=dummy"} & set(options.flags):
        reasons.append("flags: --load-format dummy: made-up weights give made-up figures")
    reasons += flags.variables(ORIGINS, env=options.env)
    return (*reasons, *flags.taken(options.flags, {*ORIGINS, *ALIASES}, others=("--tokenizer",)))


def served_name(arm: Arm) -> str:
    return arm.model


def service(seat: Seat, placement: Placement, options: Options) -> Service:
    arm, host = placement.arm, placement.host(seat.host)
    workers = arm.of(seat.role)
    argv = (
        "vllm", "serve", arm.model_path, "--served-model-name", served_name(arm),
        "--host", "0.0.0.0", "--port", str(PORT),
        *_parallel(workers),
        "--max-model-len", str(arm.max_model_len), "--trust-remote-code",
        *_tuned(options),
        *_speculation(arm, options),
        *options.flags,
    )  # fmt: skip
    env = _environment(seat, host, options)
    return Service(
        seat=seat,
        kind="server",
        image=arm.image,
        argv=argv,
        env=env,
        mounts=(Mount(source=host.models, target="/models"),),
        ports=(Port(name="http", number=PORT),),
        http=PORT,
        gpu=True,
        stop_timeout=60,
        origins=_origins(argv, env),
        consumes=(
            *("image", "model", "framework", "max_model_len", "disagg", "spec", "depth"),
            *(f"{workers.role}.{field}" for field in ("tp", "pp", "ep", "dcp", "pcp", "dp_attn")),
        ),
    )


def readiness(seat: Seat, placement: Placement) -> tuple[Check, ...]:
    """Nothing listens before the engine is built."""
    name = served_name(placement.arm)
    return (
        HEALTH,
        Check("model", "/v1/models", lambda r: serves(r, name)),
        Check("version", "/version", _versioned),
    )


def parts(service: Service, arm: Arm) -> tuple[Part, ...]:
    return (Part("program", "vllm", "the server"),)


def manual(service: Service) -> Help:
    """`--help` alone lists groups of flags only."""
    return Help(service.argv[:2], ask="--help=all", loose=True)


def counters(metrics: str) -> Counters:
    """Summed over all label sets (engines, reasons to finish). The speculation counters exist with speculation only."""
    samples = prometheus.parse(metrics)
    return Counters(
        finished=prometheus.total(samples, "vllm:request_success_total"),
        prompt_tokens=prometheus.total(samples, "vllm:prompt_tokens_total"),
        generated_tokens=prometheus.total(samples, "vllm:generation_tokens_total"),
        drafted=prometheus.total(samples, "vllm:spec_decode_num_draft_tokens_total"),
        accepted=prometheus.total(samples, "vllm:spec_decode_num_accepted_tokens_total"),
        steps=prometheus.total(samples, "vllm:spec_decode_num_drafts_total"),
        by_position=prometheus.by_label(samples, "vllm:spec_decode_num_accepted_tokens_per_pos_total", "position"),
        cached_tokens=prometheus.total(samples, "vllm:prefix_cache_hits_total"),
    )


def prefix_cache(argv: Sequence[str]) -> bool:
    """The last flag counts; without one it is on."""
    said = [word for word in argv if word in ("--enable-prefix-caching", "--no-enable-prefix-caching")]
    return not said or not said[-1].startswith("--no-")


def refreshed(metrics: str) -> float | None:
    """Counters are live: no time is told, and none is needed."""
    return None


def under_way(metrics: str) -> float | None:
    """Running and waiting, over all engines."""
    return prometheus.sum_of(metrics, "vllm:num_requests_running", "vllm:num_requests_waiting")


def computing(metrics: str) -> float | None:
    """Running, over all engines."""
    return prometheus.sum_of(metrics, "vllm:num_requests_running")


def prefill_request(model: str, prompt: str, max_tokens: int) -> dict[str, Any]:
    """Raises NotReady: one server has no pairs."""
    raise NotReady("vLLM on one node has no prefill worker")


def decode_request(
    model: str, prompt: str, max_tokens: int, answer: Mapping[str, Any], info: Mapping[str, Any]
) -> dict[str, Any]:
    """Raises NotReady: one server has no pairs."""
    raise NotReady("vLLM on one node has no decode worker")


def informational(arm: Arm) -> dict[str, str]:
    sizes = {workers.role: workers.ep for workers in arm.workers if workers.ep != 1}
    return {f"{role}.ep size {ep}": "--enable-expert-parallel takes no size" for role, ep in sizes.items()}


def deviations(arm: Arm) -> tuple[str, ...]:
    return (
        "--max-model-len is passed (the public script requires the value and never gives it to the server, which then "
        "sizes its KV cache for the model's own length)",
        "the model is read from /models/<name> and served under its hub name (public: both are the hub name)",
    )


def _worker_refusals(workers: Workers) -> list[str]:
    reasons = flags.expert_parallel(workers)
    if workers.dp_attn and workers.dcp > 1:
        why = "ranks of one GPU have no decode context to share"
        reasons.append(f"{workers.role}: dp-attn with dcp-size: {workers.dcp}: {why}")
    return reasons


def _parallel(workers: Workers) -> list[str]:
    """With DP attention each rank is one GPU of the tensor-parallel group: TP 1, DP n."""
    tp, dp = (1, workers.tp) if workers.dp_attn else (workers.tp, 1)
    argv = ["--tensor-parallel-size", str(tp), "--data-parallel-size", str(dp)]
    for flag, size in (
        ("--pipeline-parallel-size", workers.pp),
        ("--prefill-context-parallel-size", workers.pcp),
        ("--decode-context-parallel-size", workers.dcp),
    ):
        argv += [flag, str(size)] if size != 1 else []
    return [*argv, "--enable-expert-parallel"] if workers.ep != 1 else argv


def _tuned(options: Options) -> list[str]:
    argv: list[str] = []
    for flag, switch in (
        ("async-scheduling", options.async_scheduling),
        ("enable-prefix-caching", options.prefix_caching),
    ):
        argv += [f"--{flag}" if switch else f"--no-{flag}"] if switch is not None else []
    for flag, value in (
        ("--distributed-executor-backend", options.executor),
        ("--gpu-memory-utilization", options.memory_fraction),
        ("--kv-cache-dtype", options.kv_cache_dtype),
        ("--block-size", options.block_size),
        ("--moe-backend", options.moe_backend),
        ("--tokenizer-mode", options.tokenizer_mode),
        ("--reasoning-parser", options.reasoning_parser),
    ):
        argv += [flag, str(value)] if value is not None else []
    if options.compilation:
        argv += ["--compilation-config", _json(options.compilation.model_dump())]
    return argv


def _speculation(arm: Arm, options: Options) -> list[str]:
    if not arm.depth or options.mtp is None:
        return []
    return ["--speculative-config", _json({"method": options.mtp.method, "num_speculative_tokens": arm.depth})]


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def _environment(seat: Seat, host: Host, options: Options) -> dict[str, str]:
    env = {"PYTHONUNBUFFERED": "1", **options.env}
    if host.accelerator == "rocm" and len(seat.gpus) < host.gpus:
        env["HIP_VISIBLE_DEVICES"] = ",".join(map(str, seat.gpus))
    return dict(sorted(env.items()))


def _origins(argv: tuple[str, ...], env: Mapping[str, str]) -> dict[str, str]:
    known = {name: ORIGINS[name] for name in (*argv, *env) if name in ORIGINS}
    return known | {name: "model file: env (public recipe)" for name in env if name not in ORIGINS}


def _versioned(response: Response) -> str:
    return answered(response) or ("" if response.table().get("version") else "tells no version")
