"""Double of vLLM: `vllm serve` and `vllm bench serve`."""
