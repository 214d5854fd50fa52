"""The lab's model directory: the files of a model, small, the same on every node, and marked as a double."""

from __future__ import annotations

import json
import struct

NAME = "DeepSeek-V4-Pro"
FOLDER = f"/srv/models/{NAME}"
WEIGHTS = "model-00001-of-00001.safetensors"


def files() -> dict[str, bytes]:
    """File name → content, byte-identical at every call."""
    return {
        "config.json": _json(
            {
                "architectures": ["DeepseekV4ForCausalLM"],
                "model_type": "deepseek_v4",
                "max_position_embeddings": 1048576,
                "num_nextn_predict_layers": 1,
                "fleet_lab_double": "not a model: a stand-in without weights; numbers from it measure nothing",
            }
        ),
        "tokenizer_config.json": _json({"tokenizer_class": "PreTrainedTokenizerFast", "fleet_lab_double": True}),
        "model.safetensors.index.json": _json({"metadata": {"total_size": 64}, "weight_map": {"double": WEIGHTS}}),
        WEIGHTS: _safetensors(),
    }


def _json(content: dict[str, object]) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()


def _safetensors() -> bytes:
    """One tensor of 64 zero bytes: the header's length (u64, little-endian), the header, the data."""
    header = json.dumps({"double": {"dtype": "U8", "shape": [64], "data_offsets": [0, 64]}}).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + bytes(64)
