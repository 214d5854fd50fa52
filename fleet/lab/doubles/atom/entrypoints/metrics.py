"""ATOM's /metrics and /debug pages, from the pretended engine's counters. Names: all that ATOM has, no other."""

from __future__ import annotations

from typing import Any

from double.engine import Engine

COUNTERS = (
    "generation_tokens",
    "lmcache_load_failures",
    "lmcache_load_requests",
    "lmcache_loaded_tokens",
    "lmcache_save_requests",
    "lmcache_saved_tokens",
    "metrics_refresh_errors",
    "mtp_accepted_tokens",
    "mtp_draft_tokens",
    "preemptions",
    "prefix_cache_cached_tokens",
    "prefix_cache_checkpoints_dropped",
    "prefix_cache_checkpoints_evicted",
    "prefix_cache_checkpoints_kept",
    "prefix_cache_checkpoints_orphaned",
    "prefix_cache_compressed_tokens",
    "prefix_cache_full_tokens",
    "prefix_cache_requests",
    "prefix_cache_wanted_tokens",
    "prompt_tokens",
    "requests_finished",
)
GAUGES = (
    "kv_cache_blocks_free",
    "kv_cache_blocks_indexed",
    "kv_cache_blocks_total",
    "kv_cache_blocks_used",
    "kv_cache_usage_ratio",
    "lmcache_loads_pending",
    "lmcache_saves_pending",
    "metrics_last_refresh_timestamp_seconds",
    "metrics_snapshot_available",
    "mtp_acceptance_rate",
    "mtp_average_tokens_per_forward",
    "prefix_cache_compressed_hit_ratio",
    "prefix_cache_hit_ratio",
    "prefix_cache_lost_to_checkpoint_ratio",
    "prefix_cache_lost_unrecoverable_ratio",
    "requests_parked_kv_load",
    "requests_partial_prefill",
    "requests_running",
    "requests_waiting",
)
BLOCKS = 100_000
BLOCKS_PER_SEQUENCE = 64


def metrics_text(engine: Engine, parked: int, now: float) -> str:
    """Prometheus text. parked: requests whose KV is being loaded; now: seconds since the epoch."""
    values = _values(engine, parked, now)
    lines = []
    for name in COUNTERS:
        lines += _family(f"atom:{name}_total", "counter", f" {float(values.get(name, 0))}")
    for name in GAUGES:
        lines += _family(f"atom:{name}", "gauge", f" {float(values.get(name, 0))}")
    steps = (f'{{accepted_tokens="{k}"}} {float(v)}' for k, v in _distribution(engine).items())
    lines += _family("atom:mtp_decode_steps_total", "counter", *steps)
    return "\n".join(lines) + "\n"


def _family(name: str, kind: str, *samples: str) -> list[str]:
    return [f"# HELP {name} Pretended.", f"# TYPE {name} {kind}", *(name + sample for sample in samples)]


def _values(engine: Engine, parked: int, now: float) -> dict[str, float]:
    counters = engine.counters
    used = min(BLOCKS, BLOCKS_PER_SEQUENCE * len(engine.running))
    return {
        "generation_tokens": counters.generation_tokens,
        "prompt_tokens": counters.prompt_tokens,
        "requests_finished": counters.finished,
        "prefix_cache_requests": counters.prefills,
        "prefix_cache_full_tokens": counters.prefill_tokens,
        "mtp_draft_tokens": counters.drafted,
        "mtp_accepted_tokens": counters.accepted,
        "mtp_acceptance_rate": counters.acceptance_rate,
        "mtp_average_tokens_per_forward": counters.tokens_per_forward,
        "kv_cache_blocks_total": BLOCKS,
        "kv_cache_blocks_used": used,
        "kv_cache_blocks_free": BLOCKS - used,
        "kv_cache_usage_ratio": used / BLOCKS,
        "metrics_last_refresh_timestamp_seconds": now,
        "metrics_snapshot_available": 1,
        "requests_parked_kv_load": parked,
        "requests_partial_prefill": engine.prefilling,
        "requests_running": len(engine.running) + engine.prefilling,
        "requests_waiting": len(engine.waiting),
    }


def _distribution(engine: Engine) -> dict[int, int]:
    """Steps by accepted drafts, 0 … depth; empty without speculation."""
    depth = engine.acceptance.depth
    return {k: engine.counters.steps.get(k, 0) for k in range(depth + 1)} if depth else {}


def mtp_stats(engine: Engine) -> dict[str, Any]:
    """/debug/mtp_stats: cumulative since start; rates from 0 to 1."""
    counters, steps = engine.counters, _distribution(engine)
    total = counters.decode_steps
    return {
        "enabled": engine.acceptance.depth > 0,
        "total_draft_tokens": counters.drafted,
        "total_accepted_tokens": counters.accepted,
        "acceptance_rate": counters.acceptance_rate,
        "average_tokens_per_forward": counters.tokens_per_forward,
        "distribution": {str(k): v for k, v in steps.items()},
        "distribution_percent": {str(k): v / total if total else 0.0 for k, v in steps.items()},
    }


def mtp_line(engine: Engine) -> str:
    """The line that ATOM logs each 1000 decode steps."""
    c = engine.counters
    return (
        f"[MTP Stats         ] Average toks/fwd: {c.tokens_per_forward:.2f}, "
        f"Accepted/Total Draft tokens: {c.accepted}/{c.drafted}, Acceptance rate: {100 * c.acceptance_rate:.2f}%"
    )
