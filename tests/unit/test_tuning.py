"""Model files: sections as the engine's own options, facts for planning."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from fleet.engines import atom, vllm
from fleet.model import load, tuning
from fleet.model.base import KebabModel
from tests.unit.describing import RECIPES, edited, told


class Mtp(tuning.Draft):
    method: Literal["mtp"]


class Options(KebabModel):
    kv_cache_dtype: str
    block_size: int
    memory_fraction: float
    prefix_caching: bool = False
    prefill_max_num_seqs: int | None = None
    cudagraph_max: int | None = None
    env: dict[str, str] = {}
    dpa_env: dict[str, str] = {}
    mtp: Mtp | None = None
    flags: tuple[str, ...] = ()


MODEL = """\
M-1:
  hub: a/M-1
  weights-gb: 12.5
  capacity:
    f: {sequences-per-rank: 64}
  frameworks:
    f:
      kv-cache-dtype: fp8
      block-size: 16
      memory-fraction: 0.85
      env: {A: "1"}
      mtp: {method: mtp, tokens: 2}
      flags: [--x, "3"]
    g: {kv-cache-dtype: auto, block-size: 1, memory-fraction: 1}
"""


def folder(tmp_path: Path, *edits: tuple[str, str]) -> Path:
    (tmp_path / "models").mkdir(parents=True)
    (tmp_path / "models" / "M-1.yaml").write_text(edited(MODEL, *edits))
    return tmp_path


def test_the_shipped_model_file() -> None:
    options = load.tuning("deepseek-ai/DeepSeek-V4-Pro", "atom-disagg", RECIPES, Options)
    assert options == Options(
        kv_cache_dtype="fp8",
        block_size=16,
        memory_fraction=0.85,
        prefill_max_num_seqs=256,
        cudagraph_max=256,
        env={"AITER_BF16_FP8_MOE_BOUND": "0", "ATOM_MOE_GU_ITLV": "1"},
        dpa_env={"GPU_MAX_HW_QUEUES": "5", "ATOM_CPU_AFFINITY": "1"},
        mtp=Mtp(method="mtp"),
    )
    facts = load.model_facts("deepseek-ai/DeepSeek-V4-Pro", RECIPES)
    assert (facts.hub, facts.mtp, facts.cap("atom-disagg")) == (
        "deepseek-ai/DeepSeek-V4-Pro",
        {"atom-disagg": "mtp"},
        None,
    )


def test_a_section_and_the_facts(tmp_path: Path) -> None:
    options = load.tuning("x/M-1", "f", folder(tmp_path), Options)
    assert (options.block_size, options.flags, options.mtp) == (16, ("--x", "3"), Mtp(method="mtp", tokens=2))
    facts = load.model_facts("M-1", tmp_path)
    assert (facts.weights_gb, facts.cap("f"), facts.cap("g"), facts.tokens) == (12.5, 64, None, {"f": 2})
    assert (facts.depth("f", 1), facts.depth("f", 4096), facts.depth("g", 1)) == (2, 2, 0)


def test_a_depth_that_tapers(tmp_path: Path) -> None:
    steps = 'mtp: {method: mtp, tokens: 3, by-conc: {"64": 2, "512": 1}}'
    at = folder(tmp_path, ("mtp: {method: mtp, tokens: 2}", steps))
    options = load.tuning("x/M-1", "f", at, Options)
    assert options.mtp == Mtp(method="mtp", tokens=3, by_conc={64: 2, 512: 1})
    facts = load.model_facts("M-1", at)
    assert [facts.depth("f", conc) for conc in (4, 63, 64, 511, 512, 2048)] == [3, 3, 2, 2, 1, 1]


TAPERS = [
    ("{64: 1}", 'a key is text; type "64"'),
    ('{"x": 1}', 'x: 1  a plain whole number expected as the key, "x" was written'),
    ('{"6_4": 1}', '6_4: 1  a plain whole number expected as the key, "6_4" was written; type "64"'),
    ('{" 64": 1}', ' 64: 1  a plain whole number expected as the key, " 64" was written; type "64"'),
    ('{"64": 1, "064": 2}', '064: 2  a plain whole number expected as the key, "064" was written; type "64"'),
    ('{"0": 1}', '0: 1  a plain whole number expected as the key, "0" was written'),
    ('{"-4": 1}', '-4: 1  a plain whole number expected as the key, "-4" was written'),
    ('{"4.0": 1}', '4.0: 1  a plain whole number expected as the key, "4.0" was written'),
    ('{"64": 0}', "must be above 0"),
    ('{"64": 33}', "must be at most 32"),
]


@pytest.mark.parametrize(("written", "text"), TAPERS)
def test_a_taper_that_makes_no_sense(tmp_path: Path, written: str, text: str) -> None:
    at = folder(tmp_path, ("tokens: 2}", f"tokens: 2, by-conc: {written}}}"))
    ((line, fault),) = told(load.tuning, "M-1", "f", at, Options)
    assert line == 12
    assert text in fault


SECTION = [
    (("block-size", "block_size"), 9, "block_size  unknown key in f; did you mean block-size?"),
    (("block-size: 16", "block-size: '16'"), 9,
     "block-size: '16'  whole number expected, quoted text was written; type 16"),
    (('"1"', "1"), 11, 'A: 1  text expected, a number was written; type "1"'),
    (("method: mtp", "method: mpt"), 12, "method: mpt  one of mtp expected; did you mean mtp?"),
    (('"3"', "3"), 13, 'flags[1]: 3  text expected, a number was written; type "3"'),
    (("fp8", ""), 8, "kv-cache-dtype:  no value is written; give one or take the key out"),
    (("hub", "hubb"), 2, "hubb  unknown key in M-1; did you mean hub?"),
    (("sequences-per-rank: 64", "sequences-per-rank: 0"), 5, "sequences-per-rank: 0  must be above 0"),
    (("M-1:", "M-2:"), 1, "M-2  is not the model that the file is named for (M-1)"),
    (("    f: {seq", "    h: {seq"), 5, "h  is none of the frameworks below"),
    (("    f: {seq", "    ff: {seq"), 5, "ff  is none of the frameworks below; did you mean f?"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "line", "text"), SECTION)
def test_faults(tmp_path: Path, edit: tuple[str, str], line: int, text: str) -> None:
    assert told(load.tuning, "M-1", "f", folder(tmp_path, edit), Options) == [(line, text)]


def test_a_model_without_a_file_names_the_near_ones(tmp_path: Path) -> None:
    assert told(load.model_facts, "a/M-11", folder(tmp_path)) == [(0, "no such file; did you mean M-1.yaml?")]


def test_a_framework_without_a_section_names_the_near_ones(tmp_path: Path) -> None:
    assert told(load.tuning, "M-1", "ff", folder(tmp_path), Options) == [
        (6, "ff  missing in frameworks; did you mean f?")
    ]


def test_variables_have_names_and_values_of_one_line(tmp_path: Path) -> None:
    edit = ('env: {A: "1"}', r'env: {"A B": "1", C: "a\nb", D: "x"}')
    for options in (atom.Options, vllm.Options):
        wrong = told(load.tuning, "a/M-1", "f", folder(tmp_path / options.__module__, edit), options)
        assert (11, 'A B: "1"  the name of a variable expected: letters, digits and _') in wrong
        assert (11, r'C: "a\nb"  a value of one line expected') in wrong
        assert not any(text.startswith("D:") for _, text in wrong)


def test_shares_and_sizes_of_the_engines_are_bounded(tmp_path: Path) -> None:
    sizes = ("block-size: 16", "block-size: 0"), ("memory-fraction: 0.85", "memory-fraction: 85")
    for options in (atom.Options, vllm.Options):
        wrong = told(load.tuning, "a/M-1", "f", folder(tmp_path / options.__module__, *sizes), options)
        assert (9, "block-size: 0  must be above 0") in wrong
        assert (10, "memory-fraction: 85  must be at most 1.0") in wrong
