"""Recipes: what the public schema and the loader refuse, `extends`, and the words that tell it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.errors import FleetError, UsageError
from fleet.model import load, matrix, recipe, schema
from tests.unit.describing import AGENTIC, INTEROP, MTP, MULTI, NO_INTEROP, RECIPES, SINGLE, STP, edited, message, told


def faults(tmp_path: Path, text: str, *edits: tuple[str, str]) -> list[tuple[int, str]]:
    text = edited(text, *edits)
    key = text.split(":")[0]
    (tmp_path / f"{key}.yaml").write_text(text)
    return told(load.recipe, key, tmp_path)


@pytest.mark.parametrize("text", [SINGLE, MULTI, AGENTIC])
def test_sound_recipes_load(tmp_path: Path, text: str) -> None:
    assert faults(tmp_path, text) == []


SINGLE_FAULTS = [
    (("conc-start: 4", "conc_start: 4"), 14, "conc_start  unknown key in search-space[0]; did you mean conc-start?"),
    (("model-prefix", "model_prefix"), 4, "model_prefix  unknown key in one; did you mean model-prefix?"),
    (("  runner: r\n", ""), 1, "runner  missing in one"),
    (("tp: 8", "tp: '8'"), 14, "tp: '8'  whole number expected, quoted text was written; type 8"),
    (("tp: 8", "tp: true"), 14, "tp: true  whole number expected, true or false was written"),
    (("tp: 8", "tp: 8.0"), 14, "tp: 8.0  whole number expected, a number with a point was written; type 8"),
    (("tp: 8", "tp: eight"), 14, "tp: eight  whole number expected, text was written"),
    (("tp: 8", "tp: [8]"), 14, "tp: [8]  whole number expected, a list was written"),
    (("tp: 8", "tp: 8, pp: '1'"), 14, "pp: '1'  whole number expected, quoted text was written; type 1"),
    (("tp: 8", "tp: 8, pp: 0"), 14, "pp: 0  must be above 0"),
    (("tp: 8", "tp: 8, dp-attn: \"no\""), 14, 'dp-attn: "no"  true or false expected, text was written; type false'),
    (("tp: 8", "tp: 8, dp-attn: 1"), 14, "dp-attn: 1  true or false expected, a number was written"),
    (("tp: 8", "tp: 8, dcp-size: 3"), 14, "dcp-size: 3  must divide tp: 8"),
    (("tp: 8", "tp: 8, spec-decoding: eagle"), 14, "spec-decoding: eagle  one of mtp, draft_model, none expected"),
    (("tp: 8", "tp: 8, spec-decoding: mpt"), 14,
     "spec-decoding: mpt  one of mtp, draft_model, none expected; did you mean mtp?"),
    (("tp: 8", "tp: 8, conc-list: [4]"), 14,
     "conc-start, conc-end  written beside conc-list in search-space[0]; keep one of the two"),
    ((", conc-end: 64", ""), 14, "conc-start: 4  needs conc-end beside it"),
    ((", conc-start: 4, conc-end: 64", ""), 14,
     "search-space[0]  has no concurrency; type conc-list, or both conc-start and conc-end"),
    (("conc-start: 4, conc-end: 64", "conc-list: []"), 14, "conc-list: []  the list is empty"),
    (("conc-start: 4, conc-end: 64", "conc-list: ~"), 14,
     "conc-list: ~  no value is written; give one or take the key out"),
    (("conc-start: 4, conc-end: 64", "conc-list: 4"), 14, "conc-list: 4  a list expected, a number was written"),
    (("conc-start: 4, conc-end: 64", "conc-list: [4, \"8\"]"), 14,
     'conc-list[1]: "8"  whole number expected, quoted text was written; type 8'),
    (("conc-start: 4, conc-end: 64", "conc-list: [4, 0]"), 14, "conc-list[1]: 0  must be above 0"),
    (("conc-start: 4", "conc-start: 0"), 14, "conc-start: 0  must be above 0"),
    (("conc-start: 4", "conc-start: 65"), 14, "conc-start: 65  is above conc-end: 64"),
    (("  multinode: false", "  multinode: false\n  disagg: true"), 9, "disagg: true  must be false here"),
    (("multinode: false", "multinode: 'false'"), 8,
     "multinode: 'false'  true or false expected, text was written; type false"),
    (("multinode: false", "multinode: false\n  kv-p2p-transfer: mori"), 9, "kv-p2p-transfer  unknown key in one"),
    (("precision: fp4", "precision: 4"), 6, 'precision: 4  text expected, a number was written; type "4"'),
    (("precision: fp4", "precision: ''"), 6, "precision: ''  the text is empty"),
    (("precision: fp4", "precision:"), 6, "precision:  no value is written; give one or take the key out"),
    (("precision: fp4", "precision: no"), 6,
     'precision: no  false for some readers, text for others; type false, or "no" for text'),
    (("precision: fp4", "precision: fp4\n  router: {name: r, version: 0.3}"), 7,
     'version: 0.3  text expected, a number with a point was written; type "0.3"'),
    (("precision: fp4", "precision: fp4\n  router: {name: r}"), 7, "version  missing in router"),
    (("precision: fp4", "precision: fp4\n  router: {name: r, version: 'image:x'}"), 7,
     "version: 'image:x'  a release, package version or source commit expected, not an image"),
    (("isl: 8192", "isl: 8k"), 11, "isl: 8k  whole number expected, text was written"),
    (("\n      - {tp: 8, conc-start: 4, conc-end: 64}", " []"), 13, "search-space: []  the list is empty"),
    (("{tp: 8, conc-start: 4, conc-end: 64}", "8"), 14, "search-space[0]: 8  a mapping expected, a number was written"),
    (("fixed-seq-len:", "fixed_seq_len:"), 10, "fixed_seq_len  unknown key in scenarios; did you mean fixed-seq-len?"),
    (("one:", "one*:"), 1, "one*  a config key holds no *"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "line", "text"), SINGLE_FAULTS)
def test_single_node_faults(tmp_path: Path, edit: tuple[str, str], line: int, text: str) -> None:
    assert faults(tmp_path, SINGLE, edit) == [(line, text)]


MULTI_FAULTS = [
    (("conc-list: [4, 8]", "conc_list: [4, 8]"), 16,
     "conc_list  unknown key in search-space[0]; did you mean conc-list?"),
    (("  kv-p2p-transfer: mooncake\n", ""), 9,
     "disagg: true  needs kv-p2p-transfer, once for all entries or in each of them"),
    (("spec-decoding: mtp", "kv-p2p-transfer: mori"), 17,
     "kv-p2p-transfer  written in search-space[0] and for all entries (line 8); keep one"),
    (("          dp-attn: false\n", ""), 18, "dp-attn  missing in prefill"),
    (("num-worker: 1", "num-workers: 1"), 19, "num-workers  unknown key in prefill; did you mean num-worker?"),
    (("ep: 1", "ep: 1\n          hardware: h200"), 22,
     "hardware: h200  is written for one role; write it for prefill and decode, or for neither"),
    (('"PREFILL_NODES=1"', "PREFILL_NODES"), 24, "additional-settings[0]: PREFILL_NODES  KEY=VALUE expected"),
    (('"PREFILL_NODES=1"', "'A B=1'"), 24, "additional-settings[0]: 'A B=1'  KEY=VALUE expected"),
    (('"PREFILL_NODES=1"', "1"), 24, 'additional-settings[0]: 1  text expected, a number was written; type "1"'),
    (('\n          - "PREFILL_NODES=1"', " []"), 23, "additional-settings: []  the list is empty"),
    (('\n          - "PREFILL_NODES=1"', ""), 23,
     "additional-settings:  no value is written; give one or take the key out"),
    (("conc-list", "tp: 8\n        conc-list"), 16, "tp  unknown key in search-space[0]"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "line", "text"), MULTI_FAULTS)
def test_multi_node_faults(tmp_path: Path, edit: tuple[str, str], line: int, text: str) -> None:
    assert faults(tmp_path, MULTI, edit) == [(line, text)]


AGENTIC_FAULTS = [
    (("cluster:r", "r"), 5, "runner: r  agentic-coding needs a runner of the form cluster:<name>"),
    (("kv-offloading: none, ", ""), 13, "kv-offloading  missing in search-space[0]"),
    (("none", "dram"), 13, "kv-offloading: dram  needs a kv-offload-backend"),
    (("none", "none, kv-offload-backend: {name: x}"), 13, "kv-offload-backend  needs kv-offloading: dram"),
    (("0.8", "1.5"), 11, "dram-utilization: 1.5  must be at most 1.0"),
    (("dram-utilization: 0.8", "trace-source: x"), 11, "trace-source  unknown key in agentic-coding[0]"),
    (("agentic-coding:", "agentic: "), 10, "agentic  unknown key in scenarios; did you mean agentic-coding?"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "line", "text"), AGENTIC_FAULTS)
def test_agentic_faults(tmp_path: Path, edit: tuple[str, str], line: int, text: str) -> None:
    assert faults(tmp_path, AGENTIC, edit) == [(line, text)]


def test_dram_needs_a_utilization(tmp_path: Path) -> None:
    found = faults(
        tmp_path, AGENTIC, ("none", "dram, kv-offload-backend: {name: x}"), ("- dram-utilization: 0.8\n      ", "- ")
    )
    assert found == [(12, "kv-offloading: dram  needs dram-utilization beside search-space")]


def test_no_scenario(tmp_path: Path) -> None:
    text = SINGLE[: SINGLE.index("  scenarios:")] + "  scenarios: {}\n"
    assert faults(tmp_path, text) == [(9, "scenarios  at least one of fixed-seq-len and agentic-coding is needed")]


def test_a_misspelt_key_is_not_also_missing(tmp_path: Path) -> None:
    assert faults(tmp_path, SINGLE, ("runner:", "runer:")) == [(5, "runer  unknown key in one; did you mean runner?")]


def test_everything_at_once_and_what_planning_would_say(tmp_path: Path) -> None:
    text = edited(
        MULTI,
        ("conc-list", "conc_list"),
        ("dp-attn: false", 'dp-attn: "no"'),
        ("DECODE_MTP_SIZE=3", "DECODE_MTP_SIZE=0"),
    )
    (tmp_path / "two.yaml").write_text(text)
    assert message(load.recipe, "two", tmp_path, rules=True) == (
        f"{tmp_path}/two.yaml: 3 faults\n"
        "  :16  conc_list  unknown key in search-space[0]; did you mean conc-list?\n"
        '  :22  dp-attn: "no"  true or false expected, text was written; type false\n'
        "  :32  DECODE_MTP_SIZE=0 with spec-decoding: mtp (line 17): MTP needs a depth of at least 1\n"
        "nothing was started"
    )
    assert [line for line, _ in told(load.recipe, "two", tmp_path)] == [16, 22]


def test_faults_of_the_yaml_and_of_the_schema_come_together(tmp_path: Path) -> None:
    found = faults(tmp_path, SINGLE, ("precision: fp4", "precision: 012"), ("osl: 1024", "osl: '1024'"))
    assert [line for line, _ in found] == [6, 12]


# --- keys and files ---------------------------------------------------------------------------------------------


def test_keys_are_the_stems_but_for_reserved_names(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yaml", "changelog.yaml", "notes.txt"):
        (tmp_path / name).write_text("x: 1\n")
    (tmp_path / "models").mkdir()
    assert load.recipe_keys(tmp_path) == ["a", "b"]
    for nowhere in (tmp_path / "none", tmp_path / "a.yaml"):
        with pytest.raises(UsageError, match=r"recipes are looked for here: .*\nanother folder: fleet\.recipes"):
            load.recipe_keys(nowhere)


def test_an_unknown_key_lists_the_keys_nearest_first() -> None:
    with pytest.raises(UsageError) as caught:
        load.recipe("dsv4-fp4-mi355x-atom-disag-mtp", RECIPES)
    assert caught.value.exit_code == 2
    assert f"did you mean {MTP}?" in caught.value.what
    assert caught.value.hint.splitlines()[:3] == ["config keys:", f"  {MTP}", f"  {STP}"]
    assert message(load.recipe, "", RECIPES).startswith("a config key is needed: --config KEY\nconfig keys:\n  ")
    for reserved in ("changelog", "models", "../recipes/x", "models/DeepSeek-V4-Pro"):
        with pytest.raises(UsageError):
            load.recipe(reserved, RECIPES)


def test_a_recipe_file_holds_its_own_key_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(SINGLE)
    assert told(load.recipe, "other", tmp_path) == [
        (1, "one  is not the key that the file is named for (other); type other")
    ]
    assert faults(tmp_path, SINGLE + "more: 1\n") == [
        (15, "more  is not the key that the file is named for (one); a recipe file holds one config")
    ]
    (tmp_path / "flat.yaml").write_text("flat: 1\n")
    assert (1, "flat: 1  a mapping expected, a number was written") in told(load.recipe, "flat", tmp_path)


# --- extends ----------------------------------------------------------------------------------------------------


def extending(tmp_path: Path, text: str, base: str = SINGLE) -> Path:
    (tmp_path / "one.yaml").write_text(base)
    (tmp_path / "more.yaml").write_text(text)
    return tmp_path


def test_mappings_merge_lists_and_scalars_replace(tmp_path: Path) -> None:
    base = edited(SINGLE, ("  precision", "  router: {name: r, version: '1'}\n  precision"))
    folder = extending(tmp_path, "more:\n  extends: one\n  image: i:2\n  router: {version: '2'}\n", base)
    found = load.recipe("more", folder)
    assert found.data == {**load.recipe("one", folder).data, "image": "i:2", "router": {"name": "r", "version": "2"}}
    assert found.document.where("more", "image") == (str(folder / "more.yaml"), 3)
    assert found.document.where("more", "runner") == (str(folder / "one.yaml"), 5)
    lists = "  scenarios: {fixed-seq-len: [{isl: 1, osl: 1, search-space: [{tp: 1, conc-list: [1]}]}]}\n"
    folder = extending(tmp_path, f"more:\n  extends: one\n{lists}")
    assert [entry["conc"] for entry in matrix.entries(load.recipe("more", folder))] == [1]


def test_a_fault_of_a_merged_recipe_names_the_file_where_it_is_written(tmp_path: Path) -> None:
    folder = extending(tmp_path, "more:\n  extends: one\n  image: 5\n", edited(SINGLE, ("fp4", "4")))
    assert told(load.recipe, "more", folder) == [
        (0, f'{folder}/one.yaml:6  precision: 4  text expected, a number was written; type "4"'),
        (3, 'image: 5  text expected, a number was written; type "5"'),
    ]


EXTENDS = [
    ("extends: on1", "extends: on1  no such recipe in {folder}; did you mean one?"),
    ("extends: more", "extends: more  is this recipe itself"),
    ("extends: 5", "extends: 5  no such recipe in {folder}"),
    ("extends:", "extends:  no such recipe in {folder}"),
]


@pytest.mark.parametrize(("line", "text"), EXTENDS)
def test_a_base_that_is_not_there(tmp_path: Path, line: str, text: str) -> None:
    folder = extending(tmp_path, f"more:\n  {line}\n  image: i:2\n")
    found = told(load.recipe, "more", folder)
    assert [line for line, _ in found] == [2]
    assert found[0][1].startswith(text.format(folder=folder))


def test_one_level_only(tmp_path: Path) -> None:
    folder = extending(tmp_path, "more:\n  extends: one\n")
    (folder / "most.yaml").write_text("most:\n  extends: more\n")
    assert told(load.recipe, "most", folder) == [
        (2, "extends: more  extends one itself; one level only: type that one")
    ]


def test_a_base_that_cannot_be_read_is_the_one_to_mend(tmp_path: Path) -> None:
    folder = extending(tmp_path, "more:\n  extends: one\n", edited(SINGLE, ("fp4", "012")))
    assert message(load.recipe, "more", folder).startswith(f"{folder}/one.yaml: 1 fault\n  :6  precision: 012")


# --- master files -----------------------------------------------------------------------------------------------


def test_a_master_file_tells_the_faults_of_all_its_configs(tmp_path: Path) -> None:
    path = tmp_path / "master.yaml"
    path.write_text(edited(SINGLE, ("tp: 8", "tp: '8'")) + edited(MULTI, ("tp: 8", "tp: '8'")))
    assert [line for line, _ in told(load.master, path)] == [14, 34]
    path.write_text(SINGLE + MULTI)
    assert list(load.master(path)) == ["one", "two"]
    assert "did you mean two?" in message(load.pick, load.master(path), "twoo", path)


@pytest.mark.skipif(not INTEROP.is_dir(), reason=NO_INTEROP)
def test_the_public_configs_load() -> None:
    found = load.master(INTEROP / "amd-master-subset.yaml")
    assert len(found) == 21
    hicache = found["dsv4-fp4-mi355x-sglang-disagg-agentic-hicache-mtp"]
    assert hicache.hardware is not None
    assert hicache.hardware.gpus_per_node == 8
    assert found[STP].data == load.recipe(STP, RECIPES).data


def test_a_runners_file(tmp_path: Path) -> None:
    path = tmp_path / "runners.yaml"
    path.write_text("labels: {a: [b]}\nhardware:\n  a: {available-cpu-dram-mib: 2_063_837, gpus-per-node: 8}\n")
    assert load.runner_hardware(path)["a"].available_cpu_dram_mib == 2063837
    path.write_text("hardware:\n  a: {available-cpu-dram-mib: 0, gpus_per_node: 8}\nlabel: {}\n")
    assert told(load.runner_hardware, path) == [
        (0, "labels  missing in this file"),
        (2, "available-cpu-dram-mib: 0  must be above 0"),
        (2, "gpus_per_node  unknown key in a; did you mean gpus-per-node?"),
        (3, "label  unknown key; did you mean labels?"),
    ]


def test_every_key_of_the_schema_is_kebab_case() -> None:
    keys = {key for model in recipe.MODELS for key in schema.keys_of(model)}
    assert {"conc-list", "num-worker", "kv-p2p-transfer", "dram-utilization"} < keys
    assert not [key for key in keys if "_" in key]


# --- never a traceback ------------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    ["one", "image", "model", "multinode", "scenarios", "fixed-seq-len", "agentic-coding",
     "search-space", "tp", "isl", "osl",
     "conc-list", "conc-start", "prefill", "decode", "additional-settings", "router",
     "extends", "dcp-size", "kv-offloading"]
)  # fmt: skip
SCALARS = st.sampled_from(["1", "0", "-3", "'8'", "true", "false", "mtp", "dram", "~", "", "1.5", '"A=1"', "[]", "{}"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]"),
        st.dictionaries(WORDS, inner, max_size=4).map(
            lambda pairs: "{" + ", ".join(f"{key}: {value}" for key, value in pairs.items()) + "}"
        ),
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_values_are_a_recipe_or_faults(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([SINGLE, MULTI, AGENTIC]))
    lines = text.splitlines()
    number = data.draw(st.integers(1, len(lines) - 1))
    lines[number] = lines[number].split(":")[0] + ": " + data.draw(VALUES)
    folder = tmp_path_factory.mktemp("any")
    key = text.split(":")[0]
    (folder / f"{key}.yaml").write_text("\n".join(lines) + "\n")
    code = 2
    try:
        found = load.recipe(key, folder, rules=data.draw(st.booleans()))
        matrix.entries(found)
        matrix.arms(found)
    except FleetError as caught:
        code = caught.exit_code
    assert code == 2


def test_faults_of_a_base_come_with_those_of_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(MULTI + "stray: 1\n")
    (tmp_path / "three.yaml").write_text("three:\n  extends: two\nstray: 2\n")
    said = message(load.recipe, "three", tmp_path)
    assert f"{tmp_path}/two.yaml: 1 fault\n  :33  stray  is not the key" in said
    assert f"{tmp_path}/three.yaml: 1 fault\n  :3  stray  is not the key" in said
