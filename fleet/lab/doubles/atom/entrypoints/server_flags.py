"""The flags that ATOM's server registers (commit ffdf3bb), in its order and with its defaults."""

from __future__ import annotations

from double.flags import read_table

SERVER_FLAGS = read_table(
    """
    --model | str | | Qwen/Qwen3-0.6B
    --served-model-name | str | |
    --trust-remote-code | flag
    --tensor-parallel-size -tp | int | | 1
    --pipeline-parallel-size -pp | int | | 1
    --prefill-context-parallel-size -pcp | int | | 1
    --data-parallel-size -dp | int | | 1
    --decode-context-parallel-size -dcp | int | | 1
    --enforce-eager | flag
    --enable_prefix_caching | bool | | True
    --port | int | | 8006
    --kv_cache_dtype | str | bf16 fp8 | bf16
    --index-cache-dtype --index_cache_dtype | str | bf16 fp8 fp4 |
    --block-size | int | | 16
    --max-model-len | int | |
    --cudagraph-capture-sizes | str | | [1,2,4,8,16,32,48,64,128,256,512]
    --level | int | | 3
    --cudagraph-mode | str | NONE PIECEWISE FULL FULL_AND_PIECEWISE AF_PIECEWISE | FULL
    --load_dummy | str? | empty zero xavier |
    --enable-expert-parallel | flag
    --fake-eplb | flag
    --torch-profiler-dir | str | |
    --enable-dp-attention | flag
    --dp-load-balance | str | round_robin least_requests least_tokens | least_requests
    --enable-tbo | str? | prefill all |
    --all2all-backend | str? | high-throughput low-latency |
    --moe-backend | str | standard mega | standard
    --method | str | mtp eagle3 dspark |
    --num-speculative-tokens | int | | 1
    --draft-model | str | |
    --spec-decode-acceptance-length | float | |
    --spec-decode-acceptance-rate | float | |
    --max-num-batched-tokens | int | | 16384
    --long-prefill-token-threshold | int | | 0
    --attn-prefill-chunk-size | int | | 16384
    --state-checkpoint-interval-tokens | int | | 8192
    --enable_chunked_prefill | bool | | True
    --max-num-seqs | int | | 512
    --gpu-memory-utilization | float | | 0.9
    --kv-transfer-config | str | | {}
    --scheduler-delay-factor | float | | 0.0
    --mark-trace | flag
    --enable-rapidserve | flag
    --disagg-prefill-max-num-seqs | int | |
    --disagg-constrained | flag
    --online_quant_config | json | |
    --hf-overrides | json | |
    --dspark-config | json | |
    --dcp-config | json | |
    --eplb-enable --enable-eplb | flag
    --eplb-config | json | |
    --host | str | | 0.0.0.0
    --server-port | int | | 8000
    --timeout-keep-alive | int | | 5
    --disable-uvicorn-access-log | flag
    --chat-template | str | |
    --default-chat-template-kwargs | str | |
    --request-log | str | |
    """
)
