"""vLLM's /metrics, from the pretended engine's counters. Names: all that a real 0.22.0 shows, no other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from double.engine import Engine

HISTOGRAMS = (
    "e2e_request_latency_seconds", "inter_token_latency_seconds", "iteration_tokens_total",
    "request_decode_time_seconds", "request_generation_tokens", "request_inference_time_seconds",
    "request_max_num_generation_tokens", "request_params_max_tokens", "request_params_n",
    "request_prefill_kv_computed_tokens", "request_prefill_time_seconds", "request_prompt_tokens",
    "request_queue_time_seconds", "request_time_per_output_token_seconds", "time_to_first_token_seconds",
)  # fmt: skip
COUNTERS = (
    "estimated_flops_per_gpu", "estimated_read_bytes_per_gpu", "estimated_write_bytes_per_gpu",
    "external_prefix_cache_hits", "external_prefix_cache_queries", "generation_tokens", "mm_cache_hits",
    "mm_cache_queries", "num_preemptions", "prefix_cache_hits", "prefix_cache_queries", "prompt_tokens_cached",
    "prompt_tokens",
)  # fmt: skip
GAUGES = (
    "engine_sleep_state", "kv_cache_usage_perc", "num_requests_running", "num_requests_waiting",
    "num_requests_waiting_by_reason",
)  # fmt: skip
PROCESS = (
    ("process_cpu_seconds_total", "counter"), ("process_max_fds", "gauge"), ("process_open_fds", "gauge"),
    ("process_resident_memory_bytes", "gauge"), ("process_start_time_seconds", "gauge"),
    ("process_virtual_memory_bytes", "gauge"), ("python_gc_collections_total", "counter"),
    ("python_gc_objects_collected_total", "counter"), ("python_gc_objects_uncollectable_total", "counter"),
    ("python_info", "gauge"),
)  # fmt: skip
REASONS = ("stop", "length", "abort", "error", "repetition")
SEQUENCES = 1000.0


def metrics_text(engine: Engine, model: str, generated: int) -> str:
    """Prometheus text. generated: tokens so far, of answers under way as well."""
    labels = f'engine="0",model_name="{model}"'
    counters = engine.counters
    running = len(engine.running) + engine.prefilling
    values: dict[str, float] = {"generation_tokens": generated, "prompt_tokens": counters.prefill_tokens}
    values |= {"num_requests_running": running, "num_requests_waiting": len(engine.waiting)}
    values |= {"kv_cache_usage_perc": min(1, running / SEQUENCES)}
    return "\n".join(_lines(engine, labels, values)) + "\n"


def _lines(engine: Engine, labels: str, values: dict[str, float]) -> Iterator[str]:
    for name in HISTOGRAMS:
        yield from _histogram(f"vllm:{name}", labels, engine.counters.finished)
    for name in COUNTERS:
        yield from _counter(f"vllm:{name}", {labels: values.get(name, 0)})
    for name in GAUGES:
        yield from _family(f"vllm:{name}", "gauge", f"vllm:{name}{{{labels}}} {float(values.get(name, 0))}")
    yield from _family("vllm:cache_config_info", "gauge", f"vllm:cache_config_info{{{labels}}} 1.0")
    finished = engine.counters.finished
    done = {f'finished_reason="{reason}",{labels}': finished * (reason == "length") for reason in REASONS}
    yield from _counter("vllm:request_success", done)
    yield from _counter("vllm:prompt_tokens_by_source", {f'{labels},source="local_compute"': values["prompt_tokens"]})
    if engine.acceptance.depth:
        yield from _speculation(engine, labels)
    yield from _http()


def _speculation(engine: Engine, labels: str) -> Iterator[str]:
    counters, name = engine.counters, "vllm:spec_decode_num_"
    yield from _counter(f"{name}drafts", {labels: counters.decode_steps})
    yield from _counter(f"{name}draft_tokens", {labels: counters.drafted})
    yield from _counter(f"{name}accepted_tokens", {labels: counters.accepted})
    places = {
        f'{labels},position="{place}"': sum(steps for k, steps in counters.steps.items() if k > place)
        for place in range(engine.acceptance.depth)
    }
    yield from _counter(f"{name}accepted_tokens_per_pos", places)


def _http() -> Iterator[str]:
    yield from _histogram("http_request_duration_highr_seconds", "", 0)
    yield from _histogram("http_request_duration_seconds", 'handler="/v1/completions",method="POST"', 0)
    for name in ("http_request_size_bytes", "http_response_size_bytes"):
        yield from _family(name, "summary", f"{name}_count 0.0", f"{name}_sum 0.0", f"{name}_created 0.0")
    yield from _counter("http_requests", {'handler="/v1/completions",method="POST",status="2xx"': 0})
    for name, kind in PROCESS:
        yield from _family(name, kind, f"{name} 0.0")


def _family(name: str, kind: str, *samples: str) -> Iterator[str]:
    yield f"# HELP {name} Pretended."
    yield f"# TYPE {name} {kind}"
    yield from samples


def _counter(name: str, samples: Mapping[str, float]) -> Iterator[str]:
    yield from _family(f"{name}_total", "counter", *(f"{name}_total{{{of}}} {float(n)}" for of, n in samples.items()))
    yield from _family(f"{name}_created", "gauge", *(f"{name}_created{{{of}}} 0.0" for of in samples))


def _histogram(name: str, labels: str, count: int) -> Iterator[str]:
    """Observations are counted, not measured."""
    within = f"{labels},le" if labels else "le"
    of = f"{{{labels}}}" if labels else ""
    bucket = f'{name}_bucket{{{within}="+Inf"}} {float(count)}'
    yield from _family(name, "histogram", bucket, f"{name}_count{of} {float(count)}", f"{name}_sum{of} 0.0")
    yield from _family(f"{name}_created", "gauge", f"{name}_created{of} 0.0")
