"""ATOM: `python3 -m atom.entrypoints.openai_server`, disaggregated (prefill and decode workers) or as one server.

Flags are spelled as the parser registers them (`--kv_cache_dtype`, not `--kv-cache-dtype`): older images know no other.
Where each flag comes from: ORIGINS, and docs/flags.md at length. Facts: ROCm/ATOM ffdf3bb, InferenceX 843c625.
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
from fleet.model.near import did_you_mean
from fleet.model.part import Help, Part
from fleet.model.seat import Placement, Seat
from fleet.model.service import Mount, Port, Service
from fleet.model.tuning import Draft

FRAMEWORKS = ("atom-disagg", "atom")
SPANS = False
START_TIMEOUT = 5000
METRICS_SETTLE = 6.0
# /health is a constant: it stays 200 after an engine core has died.
HEALTH: Check | None = None

# Versions of what a container runs, one "name version" a line; packages that are not there are left out.
VERSIONS = (
    "python3", "-c",
    "import importlib.metadata as m\n"
    "for n in ('atom', 'aiter', 'torch', 'triton', 'transformers', 'mooncake-transfer-engine', 'mori'):\n"
    "    try: print(n, m.version(n))\n"
    "    except m.PackageNotFoundError: pass",
)  # fmt: skip

MODULE = "atom.entrypoints.openai_server"

# By the beginning of a model's name: what drafts for it with `--method mtp`, as ATOM picks it by the checkpoint's type.
MTP_CLASSES = {
    "DeepSeek-V4": "atom.models.deepseek_v4_mtp.DeepseekV4MTP",
    "DeepSeek-V3": "atom.models.deepseek_mtp.DeepSeekMTP",
    "DeepSeek-R1": "atom.models.deepseek_mtp.DeepSeekMTP",
}

PORTS = {"prefill": 8010, "decode": 8020, "server": 8000}
ENGINE_PORT = 8006
HANDSHAKE_PORT = 6301
DP_MASTER_PORT = 29500
KV_ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}
CONNECTORS = ("mooncake", "moriio")

# Texts of ATOM's source; those of torch, HIP, uvicorn and zmq are the libraries' own.
FATAL = (
    r"Not enough memory for KV cache with block size\(",
    r"Per-request cache tensor \(.* exceeds available KV budget",
    r"is physically free on the GPU \(other processes may be holding memory\)",
    r"HIP out of memory",
    r"hipErrorNoBinaryForGpu",
    r"HIP error:",
    r"HIP err \d+ creating masked stream",
    r"Failed to CUDA calloc",
    r"default_weight_loader: shape mismatch",
    r"RepositoryNotFound",
    r"[Aa]ddress already in use",
    r"Mooncake is not installed but kv_connector=",
    r"Mooncake TransferEngine\.initialize\(\) failed \(ret=",
    r"batch_register_memory FAILED",
    r"MoRIIO is not available",
    r"Failed to initialize all EngineCores, cleaning up",
    r"Some processes failed to start, shutting down all",
    r"Failed to start all EngineCore processes",
    r"Received unexpected SHUTDOWN signal from DP rank",
    r"proc died unexpectedly \(exitcode=",
    r"openai_server(\.py)?: error: ",
)

TRANSFER_ERRORS = (
    r"\[PRODUCER\] Timed out waiting for prefill data",
    r"\[PRODUCER\] transfer failed for req",
    r"RDMA chunk error",
    r"batch_register_memory FAILED",
    r"Handshake with .* failed",
)

PROGRESS = (
    (r"Loading tokenizer from", "loading the tokenizer"),
    (r"Initializing engine with model", "starting the engine"),
    (r"Engine kwargs:", "loading weights"),
    (r"Memory budget: total_gpu=", "KV cache sized"),
    (r"EngineCores are fully initialized and ready", "engine ready"),
    (r"Starting server on ", "binding HTTP"),
    (r"Server started successfully and ready to accept requests", "serving"),
)

ORIGINS = {
    "--model": "config: model, below /models; the path is the served name, too (--served-model-name defaults to it)",
    "--host": "public recipe: all interfaces (peers and router come from other hosts)",
    "--server-port": "public recipe: prefill 8010, decode 8020 (ATOM's own default where aggregated: 8000)",
    "-tp": "config: tp",
    "-pp": "config: pp",
    "-pcp": "config: pcp-size",
    "-dcp": "config: dcp-size",
    "--trust-remote-code": "public recipe",
    "--kv_cache_dtype": "model file: kv-cache-dtype (public recipe: fp8)",
    "--block-size": "model file: block-size (public recipe: 16)",
    "--gpu-memory-utilization": "model file: memory-fraction (public recipe: 0.85)",
    "--enable_prefix_caching": "model file: prefix-caching",
    "--no-enable_prefix_caching": "model file: prefix-caching (public recipe: off)",
    "--max-model-len": "config: isl + osl + 256",
    "--max-num-seqs": "prefill: model file (public recipe: 256); decode: the arm's largest concurrency",
    "--cudagraph-capture-sizes": "public recipe: 1, 2, 4, then multiples of 8 to cudagraph-max; not on prefill",
    "--enable-dp-attention": "config: dp-attn",
    "--enable-tbo": "public recipe: on both roles of a DP attention arm",
    "--enable-expert-parallel": "config: ep (the flag takes no size)",
    "--method": "model file: mtp.method; on both roles, as the prefill must fill the draft layer's KV",
    "--num-speculative-tokens": "config: DECODE_MTP_SIZE",
    "--kv-transfer-config": "config: kv-p2p-transfer; role, own fast address and handshake port 6301",
    "ATOM_HOST_IP": "inventory: the address peers use for KV transfer",
    "HIP_VISIBLE_DEVICES": "fleet: only where a worker has fewer GPUs than its host",
    "PYTHONUNBUFFERED": "public recipe: log lines come when they are written",
}

# The same settings under another name, what would work against them, and what would make the figures up: not for
# `flags` either.
ALIASES = frozenset(
    (
        "--served-model-name", "--port", "--tensor-parallel-size", "--pipeline-parallel-size", "-dp",
        "--prefill-context-parallel-size", "--decode-context-parallel-size", "--data-parallel-size", "--draft-model",
        "--load_dummy", "--spec-decode-acceptance-length", "--spec-decode-acceptance-rate", "--fake-eplb",
    )
)  # fmt: skip


class Mtp(Draft):
    """How the checkpoint drafts."""

    method: Literal["mtp", "eagle3", "dspark"]


class Options(KebabModel):
    """How ATOM serves one model: section `atom` of recipes/models/<model>.yaml. What is not given keeps ATOM's default.

    memory_fraction: of GPU memory, 0 to 1. prefill_max_num_seqs: requests of one prefill worker.
    cudagraph_max: largest captured batch.
    env: for every worker; dpa_env: added on DP attention arms. flags: passed as they are.
    """

    kv_cache_dtype: Literal["bf16", "fp8"] | None = None
    block_size: BlockSize | None = None
    memory_fraction: Fraction | None = None
    prefix_caching: bool | None = None
    prefill_max_num_seqs: Annotated[int, Field(gt=0, le=65_536)] = 256
    cudagraph_max: Annotated[int, Field(gt=0, le=8192)] = 256
    env: Variables = {}
    dpa_env: Variables = {}
    mtp: Mtp | None = None
    flags: tuple[str, ...] = ()


def refusals(arm: Arm, options: Options) -> tuple[str, ...]:
    reasons = [why for workers in arm.workers for why in _worker_refusals(workers)]
    apart = any(workers.role == "prefill" for workers in arm.workers)
    if apart and not arm.disagg:
        reasons.append("prefill and decode workers with disagg: false hand over no KV cache; type disagg: true")
    if arm.framework == "atom-disagg" and not apart:
        reasons.append("framework: atom-disagg serves prefill and decode workers; one server is framework: atom")
    if arm.disagg and arm.kv_transfer not in CONNECTORS:
        near = did_you_mean(str(arm.kv_transfer), CONNECTORS)
        reasons.append(f"kv-p2p-transfer: {arm.kv_transfer}: ATOM has {', '.join(CONNECTORS)}{near}")
    if arm.spec == "draft_model":
        reasons.append("spec-decoding: draft_model: fleet runs ATOM with the checkpoint's own drafts (mtp) only")
    if arm.depth > 0 and options.mtp is None:
        reasons.append(f"spec-decoding: mtp: the model file of {arm.model_basename} has no mtp method for ATOM")
    reasons += flags.draft(arm, options.mtp)
    reasons += flags.variables(ORIGINS, env=options.env, dpa_env=options.dpa_env)
    return (*reasons, *flags.taken(options.flags, {*ORIGINS, *ALIASES}))


def served_name(arm: Arm) -> str:
    """ATOM serves under the value of --model."""
    return arm.model_path


def service(seat: Seat, placement: Placement, options: Options) -> Service:
    arm, host = placement.arm, placement.host(seat.host)
    workers = arm.of(seat.role)
    argv = (
        "python3", "-m", MODULE,
        *_model(arm),
        *_http(seat),
        *_parallel(workers),
        *_speculation(arm, options),
        *_memory(options),
        *_limits(seat, arm, options),
        *_kv_transfer(seat, arm, host),
        *options.flags,
    )  # fmt: skip
    env = _environment(seat, workers, arm, host, options)
    return Service(
        seat=seat,
        kind="server",
        image=arm.image,
        argv=argv,
        env=env,
        mounts=(Mount(source=host.models, target="/models"),),
        ports=_ports(seat, arm, workers),
        http=PORTS[seat.role],
        gpu=True,
        stop_timeout=60,
        origins=_origins(argv, env),
        consumes=_consumes(arm, workers),
    )


def readiness(seat: Seat, placement: Placement) -> tuple[Check, ...]:
    """Health says nothing of the engine (its answer is constant), so models and the transfer role are asked, too."""
    arm = placement.arm
    checks = [Check("health", "/health", answered), Check("model", "/v1/models", lambda r: serves(r, served_name(arm)))]
    if arm.disagg:
        workers = arm.of(seat.role)
        checks.append(Check("KV role", "/kv_transfer_info", lambda r: _transfers(r, workers)))
    return tuple(checks)


def parts(service: Service, arm: Arm) -> tuple[Part, ...]:
    """The server, and the class that drafts where `--method mtp` asks for it and the model's is known."""
    server = Part("module", MODULE, "the server")
    classes = [name for start, name in MTP_CLASSES.items() if arm.model_basename.startswith(start)]
    drafts = "--method" in service.argv and service.argv[service.argv.index("--method") + 1] == "mtp"
    return (server, *(Part("class", name, f"drafts for {arm.model_basename}") for name in classes if drafts))


def manual(service: Service) -> Help:
    return Help(service.argv[:3])


def counters(metrics: str) -> Counters:
    """Summed over all label sets. MTP counters are 0 when MTP is off. For freshness see METRICS_SETTLE."""
    samples = prometheus.parse(metrics)
    return Counters(
        finished=prometheus.total(samples, "atom:requests_finished_total"),
        prompt_tokens=prometheus.total(samples, "atom:prompt_tokens_total"),
        generated_tokens=prometheus.total(samples, "atom:generation_tokens_total"),
        drafted=prometheus.total(samples, "atom:mtp_draft_tokens_total"),
        accepted=prometheus.total(samples, "atom:mtp_accepted_tokens_total"),
        steps=prometheus.total(samples, "atom:mtp_decode_steps_total"),
        cached_tokens=prometheus.total(samples, "atom:prefix_cache_cached_tokens_total"),
    )


def prefix_cache(argv: Sequence[str]) -> bool:
    """The last flag counts; without one it is on."""
    said = [word for word in argv if word in ("--enable_prefix_caching", "--no-enable_prefix_caching")]
    return not said or not said[-1].startswith("--no-")


def refreshed(metrics: str) -> float | None:
    """When the counters were last published, Unix seconds of the worker's host; None if the metrics do not say."""
    return prometheus.total(prometheus.parse(metrics), "atom:metrics_last_refresh_timestamp_seconds")


def under_way(metrics: str) -> float | None:
    """Running, waiting, and waiting for KV from elsewhere, over all ranks."""
    return prometheus.sum_of(metrics, "atom:requests_running", "atom:requests_waiting", "atom:requests_parked_kv_load")


def computing(metrics: str) -> float | None:
    """Running, over all ranks: those whose KV has not come yet are counted as parked."""
    return prometheus.sum_of(metrics, "atom:requests_running")


def prefill_request(model: str, prompt: str, max_tokens: int) -> dict[str, Any]:
    """What a router sends to prefill: one token, no stream. `max_tokens` is decode's affair."""
    body = _completion(model, prompt, 1)
    return {**body, "kv_transfer_params": {"do_remote_decode": True, "do_remote_prefill": False}}


def decode_request(
    model: str, prompt: str, max_tokens: int, answer: Mapping[str, Any], info: Mapping[str, Any]
) -> dict[str, Any]:
    """What a router sends to decode, from prefill's `answer` and prefill's /kv_transfer_info.

    Raises NotReady if prefill handed over no transfer parameters.
    """
    handed = answer.get("kv_transfer_params")
    if not isinstance(handed, Mapping):
        raise NotReady("prefill answered without kv_transfer_params: decode would wait for ever")
    params = dict(handed)
    params["remote_tp_size"] = info.get("tp_size", 1)
    params["remote_dp_size"] = info.get("dp_size", 1)
    if isinstance(params.get("dp_rank"), int):
        params["remote_dp_rank"] = params["dp_rank"]
    return {**_completion(model, prompt, max_tokens), "kv_transfer_params": params}


def informational(arm: Arm) -> dict[str, str]:
    notes = {"kv-transfer proxy_ip": "no engine reads it"} if arm.disagg else {}
    for workers in arm.workers:
        if workers.ep != 1:
            notes[f"{workers.role}.ep size {workers.ep}"] = "--enable-expert-parallel takes no size"
    return notes


def deviations(arm: Arm) -> tuple[str, ...]:
    return ()


def _worker_refusals(workers: Workers) -> list[str]:
    sizes = {"pp": workers.pp, "pcp-size": workers.pcp} if workers.dp_attn else {}
    wide = [f"dp-attn with {name}: {size}: ATOM refuses it" for name, size in sizes.items() if size > 1]
    return [*flags.expert_parallel(workers), *(f"{workers.role}: {why}" for why in wide)]


def _model(arm: Arm) -> list[str]:
    return ["--model", arm.model_path, "--trust-remote-code"]


def _http(seat: Seat) -> list[str]:
    return ["--host", "0.0.0.0", "--server-port", str(PORTS[seat.role])]


def _parallel(workers: Workers) -> list[str]:
    argv = ["-tp", str(workers.tp)]
    for flag, size in (("-pp", workers.pp), ("-pcp", workers.pcp), ("-dcp", workers.dcp)):
        argv += [flag, str(size)] if size != 1 else []
    argv += ["--enable-expert-parallel"] if workers.ep != 1 else []
    argv += ["--enable-dp-attention", "--enable-tbo"] if workers.dp_attn else []
    return argv


def _speculation(arm: Arm, options: Options) -> list[str]:
    if not arm.depth or options.mtp is None:
        return []
    return ["--method", options.mtp.method, "--num-speculative-tokens", str(arm.depth)]


def _memory(options: Options) -> list[str]:
    argv = ["--kv_cache_dtype", options.kv_cache_dtype] if options.kv_cache_dtype else []
    argv += ["--block-size", str(options.block_size)] if options.block_size else []
    if options.memory_fraction is not None:
        argv += ["--gpu-memory-utilization", str(options.memory_fraction)]
    if options.prefix_caching is not None:
        argv.append("--enable_prefix_caching" if options.prefix_caching else "--no-enable_prefix_caching")
    return argv


def _limits(seat: Seat, arm: Arm, options: Options) -> list[str]:
    argv = ["--max-model-len", str(arm.max_model_len), "--max-num-seqs", str(_max_num_seqs(seat, arm, options))]
    if seat.role != "prefill":
        argv += ["--cudagraph-capture-sizes", json.dumps(capture_sizes(options.cudagraph_max), separators=(",", ":"))]
    return argv


def _max_num_seqs(seat: Seat, arm: Arm, options: Options) -> int:
    if seat.role == "prefill":
        return options.prefill_max_num_seqs
    return max(arm.conc)


def capture_sizes(largest: int) -> list[int]:
    """1, 2, 4, then multiples of 8."""
    return [size for size in (1, 2, 4) if size <= largest] + list(range(8, largest + 1, 8))


def _kv_transfer(seat: Seat, arm: Arm, host: Host) -> list[str]:
    if not arm.disagg:
        return []
    config = {
        "kv_role": KV_ROLES[seat.role],
        "kv_connector": arm.kv_transfer,
        "proxy_ip": host.fast_address,
        "handshake_port": HANDSHAKE_PORT,
    }
    return ["--kv-transfer-config", json.dumps(config, separators=(",", ":"))]


def _environment(seat: Seat, workers: Workers, arm: Arm, host: Host, options: Options) -> dict[str, str]:
    env = {"PYTHONUNBUFFERED": "1", **options.env, **(options.dpa_env if workers.dp_attn else {})}
    if arm.disagg:
        env["ATOM_HOST_IP"] = host.fast_address
    if host.accelerator == "rocm" and len(seat.gpus) < host.gpus:
        env["HIP_VISIBLE_DEVICES"] = ",".join(map(str, seat.gpus))
    return dict(sorted(env.items()))


def _ports(seat: Seat, arm: Arm, workers: Workers) -> tuple[Port, ...]:
    """A handshake port a rank, 6301 + pp_rank × (dp × tp) + dp_rank × tp + tp_rank: as many as the worker has GPUs."""
    ports = [
        Port(name="http", number=PORTS[seat.role]),
        Port(name="engine", number=ENGINE_PORT, public=False),
    ]
    if workers.dp_attn:
        ports.append(Port(name="dp-master", number=DP_MASTER_PORT, public=False))
    if arm.disagg:
        ranks = range(workers.gpus_each)
        ports += [Port(name=f"handshake{rank}", number=HANDSHAKE_PORT + rank) for rank in ranks]
    return tuple(ports)


def _origins(argv: tuple[str, ...], env: Mapping[str, str]) -> dict[str, str]:
    known = {name: ORIGINS[name] for name in (*argv, *env) if name in ORIGINS}
    return known | {name: "model file: env (public recipe)" for name in env if name not in ORIGINS}


def _consumes(arm: Arm, workers: Workers) -> tuple[str, ...]:
    names = ["image", "model", "framework", "max_model_len", "conc", "disagg", "spec", "depth"]
    names += ["kv_transfer"] if arm.disagg else []
    names += [f"{workers.role}.{field}" for field in ("tp", "pp", "ep", "dcp", "pcp", "dp_attn")]
    if "DECODE_MTP_SIZE" in workers.settings:
        names.append(f"{workers.role}.settings.DECODE_MTP_SIZE")
    return tuple(names)


def _transfers(response: Response, workers: Workers) -> str:
    """Role, sizes and port as planned. Under DP attention -tp n becomes n data-parallel ranks: either view is right."""
    if why := answered(response):
        return why
    info = response.table()
    faults = []
    if info.get("kv_role") != KV_ROLES[workers.role]:
        faults.append(f"kv_role is {info.get('kv_role')} instead of {KV_ROLES[workers.role]}")
    sizes = (info.get("tp_size"), info.get("dp_size"))
    tp = workers.tp
    planned = {(tp, 1), (1, tp), (tp, tp)} if workers.dp_attn else {(tp, 1)}
    if sizes not in planned:
        faults.append(f"tp_size {sizes[0]}, dp_size {sizes[1]} instead of a worker with tp {tp}")
    if info.get("handshake_port") != HANDSHAKE_PORT:
        faults.append(f"handshake_port is {info.get('handshake_port')} instead of {HANDSHAKE_PORT}")
    return "; ".join(faults)


def _completion(model: str, prompt: str, max_tokens: int) -> dict[str, Any]:
    return {
        "model": model,
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": False,
    }
