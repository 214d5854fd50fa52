"""Files for the tests of the describe step."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleet.errors import FileFaults, FleetError

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "recipes"
INVENTORIES = ROOT / "inventories"
GOLDEN = ROOT / "tests" / "golden" / "expand"
INTEROP = Path(os.environ.get("FLEET_INTEROP", ROOT.parent / "shared" / "interop"))
NO_INTEROP = f"no interop data at {INTEROP}; FLEET_INTEROP says where it is"

STP = "dsv4-fp4-mi355x-atom-disagg"
MTP = "dsv4-fp4-mi355x-atom-disagg-mtp"
VLLM = "dsv4-fp4-mi355x-vllm"
VLLM_MTP = "dsv4-fp4-mi355x-vllm-mtp"

SINGLE = """\
one:
  image: i:1
  model: a/m
  model-prefix: m
  runner: r
  precision: fp4
  framework: vllm
  multinode: false
  scenarios:
    fixed-seq-len:
    - isl: 8192
      osl: 1024
      search-space:
      - {tp: 8, conc-start: 4, conc-end: 64}
"""

MULTI = """\
two:
  image: i:1
  model: a/m
  model-prefix: m
  runner: r
  precision: fp4
  framework: f-disagg
  kv-p2p-transfer: mooncake
  multinode: true
  disagg: true
  scenarios:
    fixed-seq-len:
    - isl: 8192
      osl: 1024
      search-space:
      - conc-list: [4, 8]
        spec-decoding: mtp
        prefill:
          num-worker: 1
          tp: 8
          ep: 1
          dp-attn: false
          additional-settings:
          - "PREFILL_NODES=1"
        decode:
          num-worker: 1
          tp: 8
          ep: 1
          dp-attn: false
          additional-settings:
          - "DECODE_NODES=1"
          - "DECODE_MTP_SIZE=3"
"""

AGENTIC = """\
three:
  image: i:1
  model: a/m
  model-prefix: m
  runner: cluster:r
  precision: fp4
  framework: f
  multinode: false
  scenarios:
    agentic-coding:
    - dram-utilization: 0.8
      search-space:
      - {tp: 8, kv-offloading: none, conc-list: [1, 2]}
"""


def edited(text: str, *edits: tuple[str, str]) -> str:
    """The text with each first occurrence replaced; the occurrence must exist."""
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def told(read: Callable[..., Any], *args: Any, **options: Any) -> list[tuple[int, str]]:
    """Lines and texts of the faults that reading raises; empty if it raises none."""
    try:
        read(*args, **options)
    except FileFaults as error:
        return [(fault.line, fault.text) for fault in error.faults]
    return []


def message(read: Callable[..., Any], *args: Any, **options: Any) -> str:
    try:
        read(*args, **options)
    except FleetError as error:
        return str(error)
    return ""
