"""Image archives: taken apart whatever their layout, and put together again with only the layers that are lacked."""

from __future__ import annotations

import io
import json
import tarfile

import pytest

from fleet import layers
from fleet.layers import BadArchive, Layer, Part
from tests import images
from tests.images import Layout, Made

SMALL = tuple(images.layer(f"file{number}", 3000 + number) for number in range(4))
IMAGE = Made((*SMALL, SMALL[1]), "reg.lab:5000/x/engine:n1")
SIZES = {number: len(data) for number, data in enumerate(IMAGE.layers)}


def taken_apart(data: bytes, tag: str = "") -> layers.Archive:
    return layers.read(io.BytesIO(data), tag)


def whole(part: Part) -> bytes:
    """The archive that a part is, with its end."""
    pieces = [IMAGE.layers[piece.number] if isinstance(piece, Layer) else piece for piece in part.pieces]
    return b"".join(pieces) + layers.END


def opened(data: bytes) -> tuple[dict[str, bytes], dict[str, object]]:
    """The files of an archive, and its manifest's only entry."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        files = {member.name: tar.extractfile(member).read() for member in tar if member.isreg()}  # type: ignore[union-attr]
    (entry,) = json.loads(files["manifest.json"])
    return files, entry


@pytest.mark.parametrize("layout", ["old", "links", "oci"])
def test_an_archive_of_each_layout_says_where_its_layers_stand(layout: Layout) -> None:
    data = IMAGE.archive(layout)
    found = taken_apart(data)
    assert found.image.id == IMAGE.id
    assert found.image.layers == tuple(IMAGE.diff_ids)
    assert found.image.tags == (IMAGE.tag,)
    assert [data[place.offset : place.offset + place.size] for place in found.layers] == list(IMAGE.layers)


def test_one_of_several_images_is_meant_by_name() -> None:
    files, entry = opened(IMAGE.archive())
    other = {**entry, "RepoTags": ["other:1"]}
    two = [*files.items()]
    two = [(name, data) for name, data in two if name != "manifest.json"]
    data = images.packed([*two, ("manifest.json", json.dumps([other, entry]).encode())])
    assert taken_apart(data, IMAGE.tag).image.tags == (IMAGE.tag,)
    with pytest.raises(BadArchive, match=r"it does not have third:1; it has other:1, reg\.lab:5000/x/engine:n1"):
        taken_apart(data, "third:1")
    with pytest.raises(BadArchive, match="it has several images"):
        taken_apart(data)


def test_names_as_people_write_them_and_none() -> None:
    for name in ("docker.io/rocm/atom:n1", "rocm/atom:n1"):
        made = Made(SMALL, "rocm/atom:n1")
        assert taken_apart(made.archive(), name).image.tags == (name,)
    files, entry = opened(IMAGE.archive())
    files["manifest.json"] = json.dumps([{**entry, "RepoTags": None}]).encode()
    assert taken_apart(images.packed([*files.items()]), "any:1").image.id == IMAGE.id
    with pytest.raises(BadArchive, match="it does not have any:1"):
        taken_apart(IMAGE.archive(), "any:1")


LISTED = b'[{"Config":"c","Layers":%s}]'


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ([("manifest.json", b"{}")], "its manifest is no list of images"),
        ([("other", b"")], "manifest.json is not in it"),
        ([("manifest.json", LISTED % b'["../../etc/passwd"]'), ("c", IMAGE.config)], "etc/passwd is not"),
        ([("manifest.json", LISTED % b'["l"]'), ("c", IMAGE.config), ("l", "l")], "l is no file in it"),
        ([("manifest.json", LISTED % b'[]'), ("c", IMAGE.config)], "it has 0 of 5 layers"),
        ([("manifest.json", LISTED % b'[]'), ("c", b"{}")], "configuration cannot be read"),
        ([("manifest.json", b'[{"Layers":[]}]')], "no image archive: 'Config'"),
    ],
)  # fmt: skip
def test_what_is_no_image_archive(files: list[tuple[str, bytes | str]], told: str) -> None:
    with pytest.raises(BadArchive, match=told):
        taken_apart(images.packed(files))


def test_a_file_that_is_no_tar() -> None:
    with pytest.raises(BadArchive, match="no image archive"):
        taken_apart(b"words" * 1000)


def test_only_what_lies_below_counts_as_there() -> None:
    a, b, c = "sha256:a", "sha256:b", "sha256:c"
    assert layers.shared([a, b, c], [[a, b], [a], [b, c]]) == 2
    assert layers.shared([a, b, c], [[b, a, c]]) == 0
    assert layers.shared([a, b], [[a, b, c]]) == 2
    assert layers.shared([a], []) == 0


def test_small_layers_go_together_and_the_last_part_is_the_image() -> None:
    (part,) = layers.parts(taken_apart(IMAGE.archive()).image, SIZES, [0])
    files, entry = opened(whole(part))
    assert part.id == IMAGE.id
    assert entry["RepoTags"] == [IMAGE.tag]
    paths = entry["Layers"]
    assert isinstance(paths, list)
    assert [files[path] for path in paths] == list(IMAGE.layers)
    assert files[str(entry["Config"])] == IMAGE.config
    assert len(whole(part)) == part.size + len(layers.END)


def test_a_part_begins_where_somebodys_layers_end_and_has_no_layer_of_others() -> None:
    image = taken_apart(IMAGE.archive()).image
    first, second, third = layers.parts(image, SIZES, [0, 2, 4, 2], mark="m")
    assert [(part.first, part.last) for part in (first, second, third)] == [(0, 2), (2, 4), (4, 5)]
    files, entry = opened(whole(second))
    assert entry["RepoTags"] is None
    assert sorted(name for name in files if name.endswith("layer.tar")) == ["2/layer.tar", "3/layer.tar"]
    config = json.loads(files[str(entry["Config"])])
    assert config["rootfs"]["diff_ids"] == IMAGE.diff_ids[:4]
    assert config["config"]["Labels"] == {layers.PART: IMAGE.id, f"{layers.PART}.mark": "m"}
    assert layers.parts(image, SIZES, [0, 2, 4], mark="n")[1].id != second.id


def test_who_has_every_layer_lacks_the_name() -> None:
    image = taken_apart(IMAGE.archive()).image
    (part,) = layers.parts(image, {}, [5])
    assert (part.first, part.last, part.id) == (5, 5, IMAGE.id)
    files, _ = opened(whole(part))
    assert not [name for name in files if name.endswith("layer.tar")]


def test_only_sizes_of_layers_that_are_lacked_are_needed() -> None:
    image = taken_apart(IMAGE.archive()).image
    (part,) = layers.parts(image, {4: SIZES[4]}, [4])
    assert (part.first, part.last) == (4, 5)


def test_parts_are_neither_many_nor_huge() -> None:
    count = 120
    image = layers.Blueprint(
        json.dumps({"architecture": "amd64", "os": "linux"}).encode(), tuple(f"sha256:{n}" for n in range(count)), ()
    )
    made = layers.parts(image, dict.fromkeys(range(count), 500 << 20), [0])
    assert len(made) == count
    made = layers.parts(image, dict.fromkeys(range(count), 1 << 20), [0])
    assert len(made) == layers.PARTS
    assert [part.first for part in made] == sorted({part.first for part in made})
    assert made[-1].last == count


def test_a_layer_of_more_than_eight_gigabytes_has_a_header_that_says_so() -> None:
    image = layers.Blueprint(b"{}", ("sha256:0",), ())
    (part,) = layers.parts(image, {0: 20 << 30}, [0])
    head = next(piece for piece in part.pieces if isinstance(piece, bytes))
    assert tarfile.TarInfo.frombuf(head[-512:], "utf-8", "strict").size == 20 << 30
