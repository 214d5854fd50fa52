"""Arms, hosts and placements for tests of everything between an arm and a command line."""

from __future__ import annotations

from typing import Any

from fleet.engines import atom
from fleet.model.arm import Arm, Component, Point, Workers
from fleet.model.inventory import Fabric, Host, Inventory
from fleet.model.placement import place
from fleet.model.seat import Placement

NICS = tuple(f"rdma{index}" for index in range(8))
OPTIONS = atom.Options(
    kv_cache_dtype="fp8",
    block_size=16,
    memory_fraction=0.85,
    prefix_caching=False,
    env={"ATOM_MOE_GU_ITLV": "1", "AITER_BF16_FP8_MOE_BOUND": "0"},
    dpa_env={"GPU_MAX_HW_QUEUES": "5", "ATOM_CPU_AFFINITY": "1"},
    mtp=atom.Mtp(method="mtp"),
)


def host(number: int, **changes: Any) -> Host:
    base = {
        "name": f"n{number}",
        "address": f"10.0.0.{10 + number}",
        "gpus": 8,
        "accelerator": "rocm",
        "fabric": Fabric(address=f"10.1.0.{10 + number}", nics=NICS),
        "models": "/it-share/models",
        "scratch": "/var/tmp/fleet",
        "runners": ("mi355x",),
    }
    return Host(**{**base, **changes})


def inventory(*hosts: Host, **changes: Any) -> Inventory:
    return Inventory(path="inventories/test.yaml", hosts=hosts or (host(1), host(2), host(3)), **changes)


def arm(prefills: int = 2, *, dpa: bool = True, depth: int = 3, **changes: Any) -> Arm:
    """2P1D with DP attention and MTP 3, unless told otherwise."""
    decode_settings = {"DECODE_NODES": "1"} | ({"DECODE_MTP_SIZE": str(depth)} if depth else {})
    prefill = Workers(
        role="prefill",
        count=prefills,
        tp=8,
        dp_attn=dpa,
        nodes=prefills,
        settings={"PREFILL_NODES": str(prefills)},
    )
    decode = Workers(role="decode", count=1, tp=8, dp_attn=dpa, nodes=1, settings=decode_settings)
    base = {
        "key": "dsv4-fp4-mi355x-atom-disagg-mtp",
        "name": f"{prefills}p1d{'-dpa' if dpa else ''}{f'-mtp{depth}' if depth else ''}",
        "image": "rocm/atom-dev:nightly_202607201550",
        "model": "deepseek-ai/DeepSeek-V4-Pro",
        "model_prefix": "dsv4",
        "precision": "fp4",
        "framework": "atom-disagg",
        "runner": "mi355x",
        "isl": 8192,
        "osl": 1024,
        "max_model_len": 9472,
        "exp_name": "dsv4_8k1k",
        "multinode": True,
        "disagg": True,
        "spec": "mtp" if depth else "none",
        "depth": depth,
        "workers": (prefill, decode),
        "router": Component(name="atomesh", version="087b82d"),
        "kv_transfer": "mooncake",
        "conc": (256, 512, 768, 1024, 2048),
        "fingerprint": "",
        "entry": {},
    }
    return Arm(**{**base, **changes})


def placement(of: Arm | None = None, *hosts: Host) -> Placement:
    return place(of or arm(), inventory(*hosts))


def point(conc: int = 256, **changes: Any) -> Point:
    base = {
        "arm": "2p1d-dpa-mtp3",
        "conc": conc,
        "asked": conc,
        "isl": 8192,
        "osl": 1024,
        "prompts": 10 * conc,
        "warmups": 2 * conc,
        "chat": True,
    }
    return Point(**{**base, **changes})
