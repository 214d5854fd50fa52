"""The doubles' image as an archive: no Docker needed."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fleet.engines import Engine as Speaks
from fleet.engines import atom, vllm
from fleet.errors import LabError
from fleet.lab.image import TAGS, BuiltImage, build, doubles, ensure, forget_others


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> BuiltImage:
    return build(tmp_path_factory.mktemp("cache"))


def read_json(archive: tarfile.TarFile, name: str) -> Any:
    member = archive.extractfile(name)
    assert member is not None
    return json.load(member)


def test_the_archive_is_what_docker_load_reads(image: BuiltImage) -> None:
    with tarfile.open(image.tar) as archive:
        (entry,) = read_json(archive, "manifest.json")
        config = read_json(archive, entry["Config"])
        raw = archive.extractfile(entry["Config"])
        assert raw is not None
        assert image.id == "sha256:" + hashlib.sha256(raw.read()).hexdigest()
        assert entry["RepoTags"] == list(TAGS)
        assert config["config"]["Labels"] == {"dev.fleet.double": "1"}
        assert "PYTHONPATH=/opt/doubles" in config["config"]["Env"]
        assert "Entrypoint" not in config["config"]
        for path, digest in zip(entry["Layers"], config["rootfs"]["diff_ids"], strict=True):
            layer = archive.extractfile(path)
            assert layer is not None
            assert "sha256:" + hashlib.file_digest(layer, "sha256").hexdigest() == digest  # type: ignore[arg-type]


def test_layers_hold_python_and_the_doubles(image: BuiltImage) -> None:
    with tarfile.open(image.tar) as archive:
        names: list[set[str]] = []
        for path in read_json(archive, "manifest.json")[0]["Layers"]:
            layer = archive.extractfile(path)
            assert layer is not None
            with tarfile.open(fileobj=layer) as inner:
                names.append(set(inner.getnames()))
                assert {(member.uid, member.mtime) for member in inner} == {(0, 1_577_836_800)}
    base, ours = names
    assert {"usr/bin/python3", "usr/bin/busybox", "bin", "usr/bin/sh", "usr/bin/grep", "etc/group", "tmp"} <= base
    assert {"usr/local/bin/atomesh", "opt/doubles/atom/entrypoints/openai_server.py"} <= ours
    assert any(name.startswith("opt/doubles/double/__pycache__/http.") for name in ours)
    assert len([name for name in ours if name.endswith(".py")]) == len(doubles())
    assert not any("/test/" in name or "ensurepip" in name for name in base)


@pytest.mark.parametrize(("engine", "told"), [(atom, "atom 0.0+double\n"), (vllm, "vllm 0.0+double\n")])
def test_the_doubles_have_a_version_that_says_what_they_are(
    image: BuiltImage, tmp_path: Path, engine: Speaks, told: str
) -> None:
    with tarfile.open(image.tar) as archive:
        layer = archive.extractfile(read_json(archive, "manifest.json")[0]["Layers"][1])
        assert layer is not None
        with tarfile.open(fileobj=layer) as inner:
            for name in (name for name in inner.getnames() if name.endswith("METADATA")):
                (tmp_path / name).parent.mkdir(parents=True)
                (tmp_path / name).write_bytes(inner.extractfile(name).read())  # type: ignore[union-attr]
    asked = [sys.executable, "-S", *engine.VERSIONS[1:]]
    done = subprocess.run(
        asked, env={"PYTHONPATH": str(tmp_path / "opt/doubles")}, capture_output=True, text=True, check=True
    )
    assert done.stdout == told


def test_equal_contents_give_an_equal_id_under_any_tags(image: BuiltImage, tmp_path: Path) -> None:
    other = build(tmp_path, ["a/b:c"])
    assert other.id == image.id
    assert other.tags == ("a/b:c",)
    assert other.tar.name != image.tar.name


def test_it_is_built_once(image: BuiltImage) -> None:
    before = image.tar.stat().st_mtime_ns
    assert build(image.tar.parent) == image
    assert image.tar.stat().st_mtime_ns == before
    assert [path.name for path in image.tar.parent.iterdir()] == [image.tar.name]


@dataclass
class Ran:
    returncode: int = 0
    out: str = ""
    err: str = ""


@dataclass
class Engine:
    """An engine that knows nothing but tags and IDs."""

    loads_as: str
    code: int = 0
    images: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def docker(self, node: str, argv: Sequence[str], *, timeout: float = 30.0, check: bool = False) -> Ran:
        self.asked.append(f"{node}: {argv[0]}")
        if argv[0] == "load":
            self.images |= dict.fromkeys(("a:1", "a:2"), self.loads_as)
            return Ran(self.code, err="no space left on device")
        if argv[:2] == ["image", "rm"]:
            for tag in argv[3:]:
                del self.images[tag]
            return Ran()
        found = self.images.get(argv[-1])
        return Ran(0, found + "\n") if found else Ran(1, err="No such image")


IMAGE = BuiltImage(Path("/x.tar"), "sha256:1", ("a:1", "a:2"))


def test_ensure_loads_on_one_node_and_once() -> None:
    engine = Engine("sha256:1")
    assert ensure(engine, "node2", IMAGE)
    assert engine.asked.count("node2: load") == 1
    assert not ensure(engine, "node2", IMAGE)
    assert engine.asked.count("node2: load") == 1


def test_ensure_replaces_another_image_under_the_tag() -> None:
    assert ensure(Engine("sha256:1", images={"a:1": "sha256:1", "a:2": "sha256:9"}), "node2", IMAGE)


def test_tags_of_an_earlier_image_are_forgotten_and_nothing_else() -> None:
    engine = Engine("sha256:1", images={"a:1": "sha256:1", "a:2": "sha256:9", "theirs:1": "sha256:9"})
    assert forget_others(engine, ["node2"], IMAGE) == ["node2"]
    assert engine.images == {"a:1": "sha256:1", "theirs:1": "sha256:9"}
    assert forget_others(engine, ["node2"], IMAGE) == []


def test_ensure_says_what_went_wrong() -> None:
    with pytest.raises(LabError, match="node2: the image of the doubles did not load: no space left"):
        ensure(Engine("sha256:1", code=1), "node2", IMAGE)
    with pytest.raises(LabError, match="a:1 is sha256:2 after loading sha256:1"):
        ensure(Engine("sha256:2"), "node2", IMAGE)
