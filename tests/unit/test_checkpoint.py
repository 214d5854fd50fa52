"""A model's folder, asked by the real scripts: what is in it, what is half in it, and how two are told apart."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet import checkpoint
from fleet.checkpoint import BLOCK, SAMPLES, Checkpoint, apart, covering, fingerprint, whole_one
from fleet.errors import HostError
from fleet.lab import weights
from tests.world import LOCAL

INDEX = "model.safetensors.index.json"
WHOLE = weights.files()[weights.WEIGHTS]


def survey(folder: Path) -> Checkpoint | None:
    done = LOCAL.run(checkpoint.survey_argv(str(folder)), check=False)
    return checkpoint.parse_survey(done.code, done.stdout, done.err)


def full(folder: Path) -> dict[str, str]:
    found = survey(folder)
    assert found
    done = LOCAL.run(checkpoint.hash_argv(str(folder)), stdin=checkpoint.names(found.files))
    return checkpoint.parse_hashes(done.out, found.files)[0]


def a_model(folder: Path) -> Path:
    folder.mkdir()
    for name, data in weights.files().items():
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return a_model(tmp_path / "model")


def halves(folder: Path) -> list[str]:
    found = survey(folder)
    assert found
    return list(found.halves)


def test_a_whole_model_and_its_copy_are_the_same(model: Path, tmp_path: Path) -> None:
    one, two = survey(model), survey(a_model(tmp_path / "copy"))
    assert one
    assert two
    assert (one.halves, two.halves) == ((), ())
    assert fingerprint(one) == fingerprint(two)
    assert (fingerprint(one).files, fingerprint(one).size) == (4, sum(map(len, weights.files().values())))
    assert apart({"n1": one, "n2": two}) == []


def test_what_is_not_there_or_empty_or_no_folder_is_none(tmp_path: Path) -> None:
    (tmp_path / "empty" / "sub").mkdir(parents=True)
    (tmp_path / "file").write_text("x")
    assert [survey(tmp_path / name) for name in ("no", "empty", "file")] == [None, None, None]


def test_names_may_hold_anything_and_a_folder_may_be_called_like_a_flag(tmp_path: Path) -> None:
    folder = tmp_path / "-L $(touch x) '\n"
    folder.mkdir()
    names = [b"a\nb", b"=", b"-rf", b"'; touch y; '", b'"q"', b"\xff\xfe", "é ü".encode()]
    for name in names:
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(name)
    found = survey(folder)
    assert found
    assert sorted(os.fsencode(path) for path in found.files) == sorted(names)
    assert len({file.sample for file in found.files.values()}) == len(names)
    assert sorted(full(folder)) == sorted(found.files)
    assert sorted(os.listdir(tmp_path)) == [folder.name]


def test_links_of_a_snapshot_are_the_files_they_lead_to(tmp_path: Path) -> None:
    plain, hub = a_model(tmp_path / "plain"), tmp_path / "hub"
    (hub / "blobs").mkdir(parents=True)
    (hub / "snapshots" / "abc").mkdir(parents=True)
    for name, data in weights.files().items():
        (hub / "blobs" / f"sha-{name}").write_bytes(data)
        (hub / "snapshots" / "abc" / name).symlink_to(f"../../blobs/sha-{name}")
    (tmp_path / "linked").symlink_to(hub / "snapshots" / "abc")
    one, two = survey(plain), survey(tmp_path / "linked")
    assert one
    assert two
    assert fingerprint(one) == fingerprint(two)
    (hub / "blobs" / "sha-config.json").unlink()
    assert halves(tmp_path / "linked") == ["config.json is a link to ../../blobs/sha-config.json, which is not there"]


def put(name: str, data: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)

    return change


def an_index(*shards: str) -> bytes:
    return json.dumps({"weight_map": {f"t{n}": shard for n, shard in enumerate(shards)}}).encode()


HUB = ".cache/huggingface/download"
NO_BEGINNING = "does not begin as a safetensors file does"
HALF = "is of a download that is under way or was cut off"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("model.bin.part", b"abc"), [f"model.bin.part (3 bytes) {HALF}"]),
        (put("w.safetensors.aria2", b""), [f"w.safetensors.aria2 (0 bytes) {HALF}"]),
        (put(f"{HUB}/x.ab12.incomplete", b"x"), [f"{HUB}/x.ab12.incomplete (1 byte) {HALF}"]),
        (put(f"{HUB}/config.json.metadata", b"x"), []),
        (put(f"{HUB}/config.json.lock", b""), []),
        (put(".fleet-part-1", b"x"), [".fleet-part-1 (1 byte) is of a copy by fleet that is under way or was cut off"]),
        (put(weights.WEIGHTS, WHOLE[:-1]), [f"{weights.WEIGHTS} is 143 bytes, 144 by its own header: it is cut off"]),
        (put(weights.WEIGHTS, WHOLE[:40]),
         [f"{weights.WEIGHTS} is 40 bytes, at least 80 by its own header: it is cut off"]),
        (put(weights.WEIGHTS, WHOLE + b"x"),
         [f"{weights.WEIGHTS} is 145 bytes, 144 by its own header: something is behind it"]),
        (put(weights.WEIGHTS, b""), [f"{weights.WEIGHTS} (0 bytes) does not begin as a safetensors file does"]),
        (put(weights.WEIGHTS, bytes(500)), [f"{weights.WEIGHTS} (500 bytes) {NO_BEGINNING}"]),
        (put(weights.WEIGHTS, b"\xff" * 500), [f"{weights.WEIGHTS} (500 bytes) {NO_BEGINNING}"]),
        (put(weights.WEIGHTS, struct.pack("<Q", 2) + b"{}"), []),
        (put(weights.WEIGHTS, b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 5\n"),
         [f"{weights.WEIGHTS} is a Git LFS pointer of 66 bytes, not the file itself"]),
        (put(INDEX, an_index("a.safetensors", weights.WEIGHTS)), [f"1 shard (a.safetensors) of {INDEX} is missing"]),
        (put(INDEX, an_index(*(f"{n}.safetensors" for n in range(8)))),
         [f"8 shards (0.safetensors, 1.safetensors, 2.safetensors, 3.safetensors, 4.safetensors, 5.safetensors …) of "
          f"{INDEX} are missing"]),
        (put("pytorch_model.bin.index.json", an_index("pytorch_model-00001-of-00001.bin")), []),
        (put(f"sub/{INDEX}", an_index("b.safetensors", "c.safetensors")),
         [f"2 shards (sub/b.safetensors, sub/c.safetensors) of sub/{INDEX} are missing"]),
        (put("sub dir/b.bin.index.json", an_index("../" + weights.WEIGHTS, "b.bin")),
         ["1 shard (sub dir/b.bin) of sub dir/b.bin.index.json is missing"]),
    ],
)  # fmt: skip
def test_what_shows_that_a_folder_is_not_whole(model: Path, change: Callable[[Path], None], said: list[str]) -> None:
    change(model)
    assert halves(model) == said


def test_what_downloads_keep_for_themselves_is_not_compared(model: Path, tmp_path: Path) -> None:
    other = a_model(tmp_path / "other")
    put(f"{HUB}/config.json.metadata", b"1796140647.9")(model)
    put(f"{HUB}/config.json.metadata", b"1796140647.95")(other)
    found = {"n1": survey(model) or Checkpoint(), "n2": survey(other) or Checkpoint()}
    assert apart(found) == []
    assert fingerprint(found["n1"]) == fingerprint(found["n2"])


def test_a_byte_in_a_sampled_place_differs_one_beside_it_only_by_the_full_hash(model: Path, tmp_path: Path) -> None:
    data = bytearray(os.urandom((4 * SAMPLES - 3) * BLOCK - 7))
    other = a_model(tmp_path / "other")
    for folder in (model, other):
        (folder / "w.bin").write_bytes(data)

    def differs(at: int) -> bool:
        changed = bytearray(data)
        changed[at] ^= 1
        (other / "w.bin").write_bytes(changed)
        return bool(apart({"n1": survey(model) or Checkpoint(), "n2": survey(other) or Checkpoint()}))

    step = (len(data) // BLOCK) // (SAMPLES - 1)
    assert [differs(at * step * BLOCK) for at in range(SAMPLES)] == [True] * SAMPLES
    assert [differs(at) for at in (0, BLOCK - 1, BLOCK, 2 * BLOCK, len(data) - 1)] == [True, True, False, False, True]
    assert not differs(2 * BLOCK)
    one, two = full(model), full(other)
    assert {path for path in one if one[path] != two[path]} == {"w.bin"}


def test_a_file_of_a_few_blocks_is_read_whole(model: Path, tmp_path: Path) -> None:
    other = a_model(tmp_path / "other")
    (model / "w.bin").write_bytes(bytes(SAMPLES * BLOCK))
    (other / "w.bin").write_bytes(bytes(SAMPLES * BLOCK - BLOCK - 5) + b"x" + bytes(BLOCK + 4))
    (told,) = apart({"n1": survey(model) or Checkpoint(), "n2": survey(other) or Checkpoint()})
    assert told.path == "w.bin"


def test_a_file_that_changes_while_it_is_hashed_has_no_hash(model: Path) -> None:
    found = survey(model)
    assert found
    (model / "config.json").write_text("other")
    done = LOCAL.run(checkpoint.hash_argv(str(model)), stdin=checkpoint.names(found.files))
    assert set(found.files) - set(checkpoint.parse_hashes(done.out, found.files)[0]) == {"config.json"}


def test_a_folder_that_cannot_be_read_is_an_error_and_never_none(model: Path) -> None:
    said = LOCAL.run(checkpoint.survey_argv(str(model)))
    for code, out, err in (
        (45, b"", "cd: permission denied"),
        (0, said.stdout[:-2], "Killed"),
        (0, said.stdout[:30], ""),
    ):
        with pytest.raises(HostError, match="it cannot be read: "):
            checkpoint.parse_survey(code, out, err)


def test_the_one_to_copy_from_is_whole_and_what_most_have(model: Path, tmp_path: Path) -> None:
    good = survey(model)
    put("README.md", b"other")(model)
    other = survey(model)
    put("x.part", b"")(model)
    half = survey(model)
    (model / "x.part").unlink()
    put("config.json", b"another")(model)
    another = survey(model)
    assert whole_one({"n1": half, "n2": None, "n3": good, "n4": other, "n5": good}) == "n4", (
        "has all that the others have"
    )
    assert whole_one({"n1": half, "n3": another, "n4": good, "n5": good}) == "n4", "what most have"
    assert covering({"n1": half, "n3": another, "n4": good, "n5": good}) == ""
    assert whole_one({"n1": half, "n2": None}) == ""


def test_what_differs_is_told_with_sizes_and_hosts(model: Path) -> None:
    good = survey(model)
    put("README.md", b"abc")(model)
    more = survey(model)
    assert good
    assert more
    (told,) = apart({"n1": good, "n2": more, "n3": good})
    assert str(told) == "README.md: missing on n1, n3; 3 bytes on n2"
    assert told.few == ("n2",)
