"""Expansion: the public generator's output, fingerprints, and the arms made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleet.errors import PlanError
from fleet.model import load, matrix
from fleet.model.recipe import Recipe
from tests.unit.describing import (
    AGENTIC,
    GOLDEN,
    INTEROP,
    MTP,
    MULTI,
    NO_INTEROP,
    RECIPES,
    SINGLE,
    STP,
    VLLM,
    VLLM_MTP,
    edited,
)

MODES: dict[matrix.Evals, str] = {"default": "", "none": "-no-evals", "only": "-evals-only", "all": "-all-evals"}
interop = pytest.mark.skipif(not INTEROP.is_dir(), reason=NO_INTEROP)


def recipe(tmp_path: Path, text: str, *edits: tuple[str, str]) -> Recipe:
    path = tmp_path / "master.yaml"
    path.write_text(edited(text, *edits))
    return next(iter(load.master(path).values()))


def public(key: str) -> Recipe:
    return load.master(INTEROP / "amd-master-subset.yaml")[key]


# --- against our own goldens, and the public ones ---------------------------------------------------------------


@pytest.mark.parametrize("key", [STP, MTP, VLLM, VLLM_MTP])
def test_our_recipes_expand_to_their_goldens(key: str) -> None:
    golden = json.loads((GOLDEN / f"{key}.json").read_text())
    found = load.recipe(key, RECIPES)
    assert {mode: matrix.entries(found, evals=mode) for mode in MODES} == golden


@interop
def test_the_goldens_are_what_the_public_generator_makes() -> None:
    for mode, suffix in MODES.items():
        expected = json.loads((INTEROP / f"expected-matrix{suffix}.json").read_text())
        assert json.loads((GOLDEN / f"{STP}.json").read_text())[mode] == expected[STP]
    expected = json.loads((INTEROP / f"expected-matrix.{MTP}.json").read_text())
    assert json.loads((GOLDEN / f"{MTP}.json").read_text())["default"] == expected


@interop
@pytest.mark.parametrize("mode", MODES)
def test_public_configs_expand_as_the_public_generator_does(mode: matrix.Evals) -> None:
    expected = json.loads((INTEROP / f"expected-matrix{MODES[mode]}.json").read_text())
    recipes = load.master(INTEROP / "amd-master-subset.yaml")
    found = {key: matrix.entries(recipes[key], evals=mode) for key in expected}
    assert len(found) == 21
    assert json.dumps(found) == json.dumps(expected)


@interop
def test_an_older_public_expansion_but_for_its_missing_sizes() -> None:
    expected = json.loads((INTEROP / f"expected-matrix.{VLLM_MTP}.v0.22.0.json").read_text())
    newer = ("pp", "dcp-size", "pcp-size")
    made = matrix.entries(load.recipe(VLLM_MTP, RECIPES))
    assert {entry[key] for entry in made for key in newer} == {1}
    assert [{key: value for key, value in entry.items() if key not in newer} for entry in made] == expected


# --- single rules -----------------------------------------------------------------------------------------------

RANGES = [
    ("conc-start: 4, conc-end: 512", [4, 8, 16, 32, 64, 128, 256, 512]),
    ("conc-start: 6, conc-end: 100", [6, 12, 24, 48, 96, 100]),
    ("conc-start: 4, conc-end: 4", [4]),
    ("conc-list: [64, 8, 8]", [64, 8, 8]),
]


@pytest.mark.parametrize(("written", "expected"), RANGES)
def test_concurrency(tmp_path: Path, written: str, expected: list[int]) -> None:
    one = recipe(tmp_path, SINGLE, ("conc-start: 4, conc-end: 64", written))
    assert [entry["conc"] for entry in matrix.entries(one)] == expected
    two = recipe(
        tmp_path, MULTI, ("conc-list: [4, 8]", written.replace(", ", "\n        ") if "start" in written else written)
    )
    assert [entry["conc"] for entry in matrix.entries(two)] == [expected]


def test_injected_values(tmp_path: Path) -> None:
    (first, *_) = matrix.entries(recipe(tmp_path, SINGLE, ("osl: 1024", "osl: 512")))
    assert (first["max-model-len"], first["exp-name"]) == (8192 + 512 + 256, "m_8192_512")
    assert (first["ep"], first["dp-attn"], first["pp"], first["spec-decoding"]) == (1, False, 1, "none")
    router = "\n        router: {name: r, version: '1'}"
    two = recipe(tmp_path, MULTI, ("conc-list: [4, 8]", f"conc-list: [4, 8]{router}"))
    (entry,) = matrix.entries(two)
    assert entry["router"] == {"name": "r", "version": "1"}
    assert entry["kv-p2p-transfer"] == "mooncake"


def marked(entries: list[dict[str, Any]]) -> list[Any]:
    return [entry["conc"] for entry in entries if entry["run-eval"]]


def test_evaluations_of_a_single_node(tmp_path: Path) -> None:
    one = recipe(tmp_path, SINGLE, ("conc-end: 64", "conc-end: 512"))
    assert marked(matrix.entries(one)) == [128, 512]
    assert marked(matrix.entries(one, evals="none")) == []
    assert marked(matrix.entries(one, evals="only")) == [128, 512]
    assert len(matrix.entries(one, evals="all")) == 8
    assert marked(matrix.entries(recipe(tmp_path, SINGLE, ("conc-end: 64", "conc-end: 8")))) == []
    assert matrix.entries(recipe(tmp_path, SINGLE, ("osl: 1024", "osl: 512")), evals="all") == []


def test_evaluations_of_multi_node_rows(tmp_path: Path) -> None:
    assert marked(matrix.entries(recipe(tmp_path, MULTI))) == []
    two = recipe(tmp_path, MULTI, ("[4, 8]", "[64, 4]"))
    assert [entry.get("eval-conc") for entry in matrix.entries(two)] == [64]
    (merged,) = matrix.entries(two, evals="all")
    assert (merged["conc"], merged["eval-all-concs"], "eval-conc" in merged) == ([4, 64], True, False)


def test_expansion_asks_the_public_schema_only(tmp_path: Path) -> None:
    one = recipe(tmp_path, SINGLE, ("tp: 8", "tp: 0, spec-decoding: mtp"), ("isl: 8192", "isl: 0"))
    assert [entry["tp"] for entry in matrix.entries(one)] == [0] * 5


def test_memory_for_offloading_needs_to_be_known(tmp_path: Path) -> None:
    edit = ("kv-offloading: none", "kv-offloading: dram, kv-offload-backend: {name: x}")
    with pytest.raises(PlanError, match=r"memory of runner cluster:r(.|\n)*runners.yaml"):
        matrix.entries(recipe(tmp_path, AGENTIC, edit))
    (tmp_path / "runners.yaml").write_text(
        "labels: {}\nhardware:\n  cluster:r: {available-cpu-dram-mib: 3_095_781, gpus-per-node: 8}\n"
    )
    assert {entry["total-cpu-dram-gb"] for entry in matrix.entries(recipe(tmp_path, AGENTIC, edit))} == {2399}


# --- fingerprints -----------------------------------------------------------------------------------------------


def test_fingerprints_of_our_recipes() -> None:
    found = [matrix.fingerprint(entry) for entry in matrix.entries(load.recipe(STP, RECIPES), evals="none")]
    assert [one[:16] for one in found] == ["66014bc38acde82c", "3780d6a9536b3cd2"]
    assert found[0].endswith("7a61827")
    assert found[1].endswith("edab2aea")
    assert [arm.fingerprint for arm in matrix.arms(load.recipe(STP, RECIPES))] == found


@interop
def test_fingerprint_of_a_single_node_config() -> None:
    rows = matrix.entries(public("dsv4-fp4-mi355x-vllm-mtp"), evals="none")
    assert {matrix.fingerprint(row)[:16] for row in rows} == {"372aab69c9cd52cf"}


# --- arms -------------------------------------------------------------------------------------------------------


def test_arms_of_our_recipes() -> None:
    two_p, one_p = matrix.arms(load.recipe(MTP, RECIPES))
    assert (two_p.name, two_p.conc, two_p.depth) == ("2p1d-dpa-mtp3", (256, 512, 768, 1024, 2048), 3)
    assert (one_p.name, one_p.conc, one_p.depth) == ("1p1d-mtp3", (4, 8, 16, 32, 64, 128), 3)
    assert (two_p.gpus, one_p.gpus) == ({"prefill": 16, "decode": 8}, {"prefill": 8, "decode": 8})
    assert two_p.of("prefill").dp_attn
    assert (two_p.of("prefill").nodes, two_p.of("decode").nodes) == (2, 1)
    assert two_p.of("decode").settings == {"DECODE_NODES": "1", "DECODE_MTP_SIZE": "3"}
    assert two_p.router is not None
    assert (two_p.router.name, two_p.kv_transfer, two_p.max_model_len) == ("atomesh", "mooncake", 9472)
    assert two_p.image == "rocm/atom-dev:nightly_202607201550"
    assert (Path(two_p.source).name, two_p.line, one_p.line) == (f"{MTP}.yaml", 10, 27)
    assert two_p.entry == matrix.entries(load.recipe(MTP, RECIPES), evals="none")[0]
    assert [arm.name for arm in matrix.arms(load.recipe(STP, RECIPES))] == ["2p1d-dpa", "1p1d"]


def names(tmp_path: Path, space: str, *edits: tuple[str, str]) -> list[str]:
    one = recipe(tmp_path, SINGLE, ("      - {tp: 8, conc-start: 4, conc-end: 64}", space), *edits)
    return [arm.name for arm in matrix.arms(one, depth_of=lambda recipe, conc: 2)]


def test_another_depth_is_another_deployment(tmp_path: Path) -> None:
    space = "      - {tp: 8, conc-start: 4, conc-end: 64, spec-decoding: mtp}\n      - {tp: 4, conc-list: [4, 64]}"
    one = recipe(tmp_path, SINGLE, ("      - {tp: 8, conc-start: 4, conc-end: 64}", space))
    tapered = matrix.arms(one, depth_of=lambda recipe, conc: 1 if conc >= 32 else 2)
    assert [(arm.name, arm.depth, arm.conc) for arm in tapered] == [
        ("tp8-mtp2", 2, (4, 8, 16)),
        ("tp8-mtp1", 1, (32, 64)),
        ("tp4", 0, (4, 64)),
    ]
    assert tapered[0].fingerprint == tapered[1].fingerprint
    assert [(arm.name, arm.depth) for arm in matrix.arms(one)] == [("tp8-mtp", 0), ("tp4", 0)]


SPACES = [
    (["{tp: 8, conc-list: [4]}"], ["tp8"]),
    (["{tp: 8, conc-list: [4], spec-decoding: mtp}"], ["tp8-mtp2"]),
    (["{tp: 8, ep: 8, dp-attn: true, conc-list: [4]}"], ["tp8-ep8-dpa"]),
    (["{tp: 8, pp: 2, conc-list: [4]}", "{tp: 8, conc-list: [4]}"], ["tp8-pp2", "tp8"]),
    (["{tp: 8, conc-list: [4]}", "{tp: 8, conc-list: [8]}"], ["tp8"]),
    (
        [
            "{tp: 8, conc-list: [4], router: {name: a, version: '1'}}",
            "{tp: 8, conc-list: [4], router: {name: b, version: '1'}}",
        ],
        ["tp8-a", "tp8-b"],
    ),
    (
        [
            "{tp: 8, conc-list: [4], router: {name: a, version: '1'}}",
            "{tp: 8, conc-list: [4], router: {name: a, version: '2'}}",
        ],
        ["tp8", "tp8-2"],
    ),
]


@pytest.mark.parametrize(("spaces", "expected"), SPACES)
def test_names_of_single_node_arms(tmp_path: Path, spaces: list[str], expected: list[str]) -> None:
    assert names(tmp_path, "\n".join(f"      - {space}" for space in spaces)) == expected


def test_rows_that_differ_only_in_concurrency_are_one_arm(tmp_path: Path) -> None:
    (arm,) = matrix.arms(recipe(tmp_path, SINGLE))
    assert (arm.conc, arm.line, arm.depth, arm.multinode) == ((4, 8, 16, 32, 64), 14, 0, False)
    assert arm.of("server").gpus_each == 8


def test_lengths_are_named_where_there_are_several(tmp_path: Path) -> None:
    more = "      - {tp: 8, conc-list: [4]}\n    - {isl: 1024, osl: 1024, search-space: [{tp: 8, conc-list: [4]}]}\n"
    more += "    - {isl: 100, osl: 50, search-space: [{tp: 8, conc-list: [4]}]}"
    assert names(tmp_path, more) == ["tp8-8k1k", "tp8-1k1k", "tp8-100_50"]


@interop
def test_names_of_multi_node_arms_are_unique() -> None:
    found = [arm.name for arm in matrix.arms(public("dsr1-fp4-mi355x-sglang-disagg-8k1k-mtp"))]
    assert found == ["1p1d-mtp3", "1p2d-mtp3", "1p2d-mtp3-2", "1p1d-dpa-mtp3", "1p1d-dpa-mtp3-2", "1p1d-dpa-mtp3-3",
                     "1p1d-dpa-mtp3-4", "2p1d-dpa-mtp1"]  # fmt: skip
    for one in load.master(INTEROP / "amd-master-subset.yaml").values():
        if not matrix.unrunnable(one):
            arms = matrix.arms(one)
            assert len({arm.name for arm in arms}) == len(arms)


def test_sizes_tell_multi_node_arms_apart(tmp_path: Path) -> None:
    block = MULTI[MULTI.index("      - conc-list") :]
    two = recipe(tmp_path, MULTI + block.replace("tp: 8", "tp: 4", 1).replace("ep: 1", "ep: 4", 1))
    assert [arm.name for arm in matrix.arms(two)] == ["1p1d-mtp3-ptp8-dtp8", "1p1d-mtp3-ptp4ep4-dtp8"]


def test_a_depth_is_part_of_an_arm(tmp_path: Path) -> None:
    block = MULTI[MULTI.index("      - conc-list") :]
    two = recipe(tmp_path, MULTI + block.replace("DECODE_MTP_SIZE=3", "DECODE_MTP_SIZE=1"))
    assert [(arm.name, arm.depth) for arm in matrix.arms(two)] == [("1p1d-mtp3", 3), ("1p1d-mtp1", 1)]
    half = recipe(tmp_path, MULTI, ("dp-attn: false", "dp-attn: true"))
    assert [arm.name for arm in matrix.arms(half)] == ["1p1d-pdpa-mtp3"]


def test_agentic_entries_are_named_and_left_out(tmp_path: Path) -> None:
    agentic = recipe(tmp_path, AGENTIC)
    words = (
        "agentic-coding (line 10, 1 search-space entry) cannot be run by fleet: it drives fixed sequence lengths only"
    )
    assert matrix.unrunnable(agentic) == [words]
    with pytest.raises(PlanError) as caught:
        matrix.arms(agentic)
    assert caught.value.reasons == (words,)
    both = recipe(
        tmp_path,
        AGENTIC + "    fixed-seq-len: [{isl: 8, osl: 8, search-space: [{tp: 1, conc-list: [1]}]}]\n",
    )
    assert [arm.name for arm in matrix.arms(both)] == ["tp1"]
    assert len(matrix.unrunnable(both)) == 1
    assert matrix.unrunnable(recipe(tmp_path, SINGLE)) == []
