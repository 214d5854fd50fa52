"""What the schema accepts and reality does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.model import load, matrix
from fleet.model.recipe_rules import Hosts, contradictions, decode_ranks, strangers
from fleet.model.tuning import Capacity, ModelFacts
from tests.unit.describing import INTEROP, MTP, MULTI, NO_INTEROP, RECIPES, SINGLE, STP, edited


def found(
    tmp_path: Path,
    text: str,
    *edits: tuple[str, str],
    cap: int | None = None,
    gpus: int | None = None,
    spans: bool = True,
    hub: str = "a/m",
) -> list[tuple[int, str]]:
    key = text.split(":")[0]
    (tmp_path / f"{key}.yaml").write_text(edited(text, *edits))
    recipe = load.recipe(key, tmp_path)
    framework = recipe.config.framework
    facts = ModelFacts(hub=hub, capacity={framework: Capacity(sequences_per_rank=cap)} if cap else {})
    faults = contradictions(recipe, matrix.arms(recipe), facts, hosts=Hosts(gpus=gpus, spans=spans))
    return [(fault.line, fault.text) for fault in faults]


@pytest.mark.parametrize("key", [STP, MTP])
def test_our_recipes_have_none(key: str) -> None:
    recipe = load.recipe(key, RECIPES, rules=True)
    facts = load.model_facts(recipe.config.model, RECIPES)
    assert contradictions(recipe, matrix.arms(recipe), facts, hosts=Hosts(gpus=8)) == []


PLAIN = ("        spec-decoding: mtp\n", "")
NO_DEPTH = ('          - "DECODE_MTP_SIZE=3"\n', "")
RULES = [
    ([("DECODE_MTP_SIZE=3", "DECODE_MTP_SIZE=0")], 32,
     "DECODE_MTP_SIZE=0 with spec-decoding: mtp (line 17): MTP needs a depth of at least 1"),
    ([NO_DEPTH], 17, "spec-decoding: mtp  needs a depth of at least 1: "
     'add "DECODE_MTP_SIZE=N" to additional-settings of decode (line 25)'),
    ([PLAIN], 31, "DECODE_MTP_SIZE=3 with no spec-decoding in search-space[0] (line 16): "
     "drafts would run under a plain label; type spec-decoding: mtp, or DECODE_MTP_SIZE=0"),
    ([("spec-decoding: mtp", "spec-decoding: none")], 32, "DECODE_MTP_SIZE=3 with spec-decoding: none (line 17): "
     "drafts would run under a plain label; type spec-decoding: mtp, or DECODE_MTP_SIZE=0"),
    ([("DECODE_MTP_SIZE=3", "DECODE_MTP_SIZE=three")], 32, "DECODE_MTP_SIZE=three  whole number expected"),
    ([('- "PREFILL_NODES=1"', '- "PREFILL_NODES=1"\n          - "DECODE_MTP_SIZE=1"')], 33,
     "DECODE_MTP_SIZE=3 for decode, 1 for prefill (line 25): it has one value, wherever it stands"),
    ([('- "DECODE_NODES=1"', '- "DECODE_NODES=1"\n          - "PREFILL_NODES=2"')], 32,
     "PREFILL_NODES=2 for decode, 1 for prefill (line 24): it has one value, wherever it stands"),
    ([("DECODE_NODES=1", "DECODE_NODE=1")], 31,
     "DECODE_NODE=1  no setting that fleet reads; did you mean DECODE_NODES?"),
    ([("DECODE_MTP_SIZE=3", "DECODE_MTP_SIZE=33")], 32, "DECODE_MTP_SIZE=33  must be at most 32"),
    ([("tp: 8", "tp: 100000000")], 20, "tp: 100000000  must be at most 1024"),
    ([("num-worker: 1", "num-worker: 1025"), ("PREFILL_NODES=1", "PREFILL_NODES=1025")], 19,
     "num-worker: 1025  must be at most 1024"),
    ([("isl: 8192", "isl: 10000001")], 13, "isl: 10000001  must be at most 10000000"),
    ([("[4, 8]", "[4, 65537]")], 16, "conc-list[1]: 65537  must be at most 65536"),
    ([("num-worker: 1", "num-worker: 2"), ("PREFILL_NODES=1", "PREFILL_NODES=3")], 24,
     "PREFILL_NODES=3 with num-worker: 2 (line 19): every worker needs as many nodes as the others, and at least one; "
     "type PREFILL_NODES=2"),
    ([("DECODE_NODES=1", "DECODE_NODES=0")], 31,
     "DECODE_NODES=0 with num-worker: 1 (line 26): every worker needs as many nodes as the others, and at least one; "
     "type DECODE_NODES=1"),
    ([("PREFILL_NODES=1", "PREFILL_NODES=1.5")], 24, "PREFILL_NODES=1.5  whole number expected"),
    ([('- "PREFILL_NODES=1"', '- "PREFILL_NODES=1"\n          - "PREFILL_NODES=1"')], 25,
     "PREFILL_NODES=1  stands twice for prefill; keep one"),
    ([("tp: 8", "tp: 0")], 20, "tp: 0  must be at least 1"),
    ([("num-worker: 1", "num-worker: 0")], 19, "num-worker: 0  must be at least 1"),
    ([("ep: 1", "ep: -1")], 21, "ep: -1  must be at least 1"),
    ([("isl: 8192", "isl: 0")], 13, "isl: 0  must be at least 1"),
    ([("osl: 1024", "osl: -5")], 14, "osl: -5  must be at least 1"),
    ([("[4, 8]", "[8, 4, 8]")], 16, "conc-list[2]: 8  stands twice in conc-list of search-space[0]; keep one"),
    ([("conc-list: [4, 8]", "conc-list: [4, 8]\n        conc-start: 4")], 17,
     "conc-start: 4  stands alone beside conc-list and would be ignored; take it out"),
]  # fmt: skip


@pytest.mark.parametrize(("edits", "line", "text"), RULES)
def test_one_rule(tmp_path: Path, edits: list[tuple[str, str]], line: int, text: str) -> None:
    assert found(tmp_path, MULTI, *edits) == [(line, text)]


def test_an_unsorted_list_is_no_fault(tmp_path: Path) -> None:
    assert found(tmp_path, MULTI, ("[4, 8]", "[64, 8, 16]")) == []


def test_nodes_and_sizes_must_fit_the_hosts(tmp_path: Path) -> None:
    assert found(tmp_path, MULTI, gpus=8) == []
    assert found(tmp_path, MULTI, ("PREFILL_NODES=1", "PREFILL_NODES=2"), gpus=8) == [
        (24, "PREFILL_NODES=2 with num-worker: 1 (line 19): 1 × 8 GPUs fill 1 host of 8; type PREFILL_NODES=1")
    ]
    assert found(tmp_path, MULTI, ("tp: 8", "tp: 16"), ("PREFILL_NODES=1", "PREFILL_NODES=2"), gpus=8) == []
    assert found(tmp_path, MULTI, ("tp: 8", "tp: 16"), ("PREFILL_NODES=1", "PREFILL_NODES=4"), gpus=8, spans=False) == [
        (20, "tp: 16  makes workers of 16 GPUs; hosts have 8, and this engine's workers cannot span hosts")
    ]
    assert found(tmp_path, MULTI, ("tp: 8", "tp: 12"), ("PREFILL_NODES=1", "PREFILL_NODES=2"), gpus=8) == [
        (20, "tp: 12  makes workers of 12 GPUs, which do not tile hosts of 8")
    ]


def test_a_double_without_end_is_bounded_too(tmp_path: Path) -> None:
    assert found(tmp_path, SINGLE, ("conc-end: 64", "conc-end: 70000")) == [
        (14, "conc-end: 70000  must be at most 65536")
    ]


def test_a_model_of_another_owner_is_another_checkpoint(tmp_path: Path) -> None:
    assert found(tmp_path, SINGLE, hub="b/m") == [
        (3, "model: a/m  is not the hub of recipes/models/m.yaml (b/m); two checkpoints of one name need two files")
    ]
    assert found(tmp_path, SINGLE, ("model: a/m", "model: m"), hub="b/m") == []


def test_frameworks_and_routers_that_fleet_cannot_run_are_told_with_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(
        edited(
            MULTI,
            ("f-disagg", "atom-disag"),
            ("      - conc-list", "      - router: {name: atommesh, version: v}\n        conc-list"),
        )
    )
    faults = strangers(load.recipe("two", tmp_path), ("atom-disagg", "vllm"), ("atomesh",))
    assert [(fault.line, fault.text) for fault in faults] == [
        (
            7,
            "framework: atom-disag  no engine of fleet serves it; there are: atom-disagg, vllm; "
            "did you mean atom-disagg?",
        ),
        (16, "name: atommesh  no router of fleet; there are: atomesh; did you mean atomesh?"),
    ]


def test_a_cap_counts_decode_ranks(tmp_path: Path) -> None:
    assert found(tmp_path, MULTI, cap=8) == []
    assert found(tmp_path, MULTI, cap=7) == [
        (16, "concurrency 8 (1p1d-mtp3) is above the 7 that fit (7 per decode rank × 1 rank)")
    ]
    assert found(tmp_path, SINGLE, ("tp: 8", "tp: 8, dp-attn: true"), cap=8) == []
    assert found(tmp_path, SINGLE, ("tp: 8", "tp: 8, dp-attn: true"), cap=7) == [
        (14, "concurrency 64 (tp8-dpa) is above the 56 that fit (7 per decode rank × 8 ranks)")
    ]


def test_decode_ranks() -> None:
    assert [decode_ranks(arm) for arm in matrix.arms(load.recipe(MTP, RECIPES))] == [8, 1]


def test_single_node_drafting_needs_a_depth_from_the_model_file(tmp_path: Path) -> None:
    assert found(tmp_path, SINGLE, ("tp: 8", "tp: 8, spec-decoding: mtp")) == [
        (
            14,
            "spec-decoding: mtp (tp8-mtp) has no depth: "
            "type mtp: {tokens: N} below frameworks: vllm in recipes/models/m.yaml",
        )
    ]


@pytest.mark.skipif(not INTEROP.is_dir(), reason=NO_INTEROP)
def test_public_multi_node_configs_have_none() -> None:
    for recipe in load.master(INTEROP / "amd-master-subset.yaml").values():
        if recipe.config.multinode and not matrix.unrunnable(recipe):
            assert contradictions(recipe, matrix.arms(recipe), hosts=Hosts(gpus=8)) == [], recipe.key


@pytest.mark.parametrize("image", ["--privileged", "rocm/atom dev:x", "Rocm/atom-dev:x", "a/b:", "a/b@sha256:12"])
def test_an_image_that_docker_could_not_name(tmp_path: Path, image: str) -> None:
    (written,) = [line for line in MULTI.splitlines() if line.strip().startswith("image:")]
    faults = found(tmp_path, MULTI, (written, f'  image: "{image}"'))
    assert [text for _, text in faults] == [
        f'image: "{image}"  an image as docker names it expected: [host/]name[:tag][@sha256:…]'
    ]


@pytest.mark.parametrize("image", ["localhost:5000/a/b:v1", "a", "h.io/a/b_c@sha256:" + "0" * 64, "a/b:v0.22.0-x_Y"])
def test_images_as_docker_names_them(tmp_path: Path, image: str) -> None:
    (written,) = [line for line in MULTI.splitlines() if line.strip().startswith("image:")]
    assert found(tmp_path, MULTI, (written, f'  image: "{image}"')) == []
