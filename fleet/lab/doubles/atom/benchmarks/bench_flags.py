"""The flags that ATOM's load client registers (commit ffdf3bb), in its order and with its defaults."""

from __future__ import annotations

from double.flags import read_table

BENCH_FLAGS = read_table(
    """
    --backend | str | tgi vllm lmdeploy deepspeed-mii openai openai-chat tensorrt-llm scalellm sglang | vllm
    --base-url | str | |
    --host | str | | 127.0.0.1
    --port | int | | 8000
    --endpoint | str | | /v1/completions
    --dataset-name | str | random | sharegpt
    --dataset-path | str | |
    --max-concurrency | int | |
    --model | str! | |
    --tokenizer | str | |
    --best-of | int | | 1
    --use-beam-search | flag
    --num-prompts | int | | 1000
    --logprobs | int | |
    --request-rate | float | | inf
    --burstiness | float | | 1.0
    --seed | int | | 0
    --trust-remote-code | flag
    --disable-tqdm | flag
    --profile | flag
    --save-result | flag
    --save-detailed | flag
    --metadata | str+ | |
    --result-dir | str | |
    --result-filename | str | |
    --ignore-eos | flag
    --percentile-metrics | str | | ttft,tpot,itl
    --metric-percentiles | str | | 99
    --goodput | str+ | |
    --sonnet-input-len | int | | 550
    --sonnet-output-len | int | | 150
    --sonnet-prefix-len | int | | 200
    --sharegpt-output-len | int | |
    --random-input-len | int | | 1024
    --random-output-len | int | | 128
    --random-range-ratio | float | | 1.0
    --random-prefix-len | int | | 0
    --use-chat-template | flag
    --hf-subset | str | |
    --hf-split | str | |
    --hf-output-len | int | |
    --tokenizer-mode | str | auto slow mistral custom | auto
    --served-model-name | str | |
    --lora-modules | str+ | |
    --num-warmups | int | | 1
    """
)
