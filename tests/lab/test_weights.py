"""Weights on real nodes: what differs or is half is refused before anything starts, and copied peer to peer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

import pytest

from fleet.checkpoint import BLOCK
from fleet.lab import weights
from fleet.lab.lab import Lab
from tests.lab.desk import STP, Desk, until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(120)]

NODES = ("node1", "node2", "node3")
LISTED = (
    'cd "$1" 2>/dev/null || exit 0; find . -type f -exec sh -c '
    '\'for f; do echo "$(stat -c "%i %z" "$f") $(sha256sum <"$f") $f"; done\' sh {} +'
)
MODELS = "/var/tmp/models"
FOLDER = f"{MODELS}/{weights.NAME}"
EVERYONE = {"models": MODELS}
Fault = Callable[..., None]
PART = 2_000_000


@pytest.fixture
def folder(lab: Lab) -> Iterator[None]:
    """A folder of models on each node that everybody may write to, with nothing in it."""
    for node in NODES:
        lab.inside(node, ["mkdir", "-m", "1777", MODELS], check=True)
    yield
    for node in NODES:
        lab.inside(node, ["rm", "-rf", MODELS], check=True)


def put(lab: Lab, node: str, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        path = f"{FOLDER}/{name}"
        write = 'mkdir -p -m 777 "${1%/*}" && cat >"$1"'
        lab.inside(node, ["sh", "-c", write, "sh", path], stdin=data, check=True)


def there(lab: Lab, node: str) -> dict[str, str]:
    """Hash, and inode and ctime, of every file by name, temporary ones included."""
    out = lab.inside(node, ["sh", "-c", LISTED, "sh", FOLDER], check=True).out
    return {line.rpartition(" ./")[2]: line.rpartition(" ./")[0] for line in out.splitlines()}


def hashes(lab: Lab, node: str) -> dict[str, str]:
    return {name: words.split()[-2] for name, words in there(lab, node).items()}


def parts(number: int = 6) -> dict[str, bytes]:
    return {f"sub dir/part {n}.bin": os.urandom(PART) for n in range(number)}


def test_models_that_differ_or_are_half_are_refused_with_every_file(desk: Desk, folder: None) -> None:
    lab, large = desk.lab, bytearray(os.urandom(40 * BLOCK))
    whole = {**weights.files(), "large.bin": bytes(large), "a'b $(c).txt": b"x"}
    for node in NODES:
        put(lab, node, whole)
    large[0] ^= 1
    put(lab, "node2", {"first.bin": b"", "large.bin": bytes(large), "x.safetensors.part": b"123"})
    large[0] ^= 1
    large[BLOCK] ^= 1
    put(lab, "node3", {"large.bin": bytes(large), weights.WEIGHTS: weights.files()[weights.WEIGHTS][:-4]})
    lab.inside("node3", ["rm", f"{FOLDER}/a'b $(c).txt"], check=True)
    inventory = desk.inventory(everyone=EVERYONE)
    said = desk.invoke("sweep", "--config", STP, "--inventory", inventory)
    assert said.code == 3, said.all
    lines = [line.strip() for line in said.err.splitlines()]
    told = [line.removeprefix(f"model {weights.NAME}: ") for line in lines if line.startswith("model ")]
    first, large_one = told[:2], told[4].split(" of content ")
    assert first == [
        "on node2 x.safetensors.part (3 bytes) is of a download that is under way or was cut off",
        f"on node3 {weights.WEIGHTS} is 140 bytes, 144 by its own header: it is cut off",
    ]
    assert told[2:4] == [
        "a'b $(c).txt: 1 byte on node1, node2; missing on node3",
        "first.bin: missing on node1, node3; 0 bytes on node2",
    ]
    # The byte on node3 lies between two samples: only the full hash sees it.
    assert large_one[0] == f"large.bin: {len(large)} bytes"
    assert (large_one[1][8:], large_one[2][8:]) == (f" on node1, node3; {len(large)} bytes", " on node2")
    assert told[5:] == [f"{weights.WEIGHTS}: 144 bytes on node1, node2; 140 bytes on node3"]
    assert lines[-2:] == [
        f"copy it from node1: invoke stage.model --config {STP} --from node1 --limit node2,node3 "
        f"--inventory {inventory}",
        "nothing was started",
    ]
    said = desk.invoke("sweep", "--config", STP, "--inventory", inventory, "--full-hash")
    assert said.code == 3, said.all
    (large_line,) = [line for line in said.err.splitlines() if "large.bin" in line]
    assert large_line.count(" of content ") == 3
    assert not (desk.run().path / "logs").exists()


def test_a_model_goes_to_those_that_lack_it_and_what_is_there_stays(desk: Desk, folder: None) -> None:
    lab, whole = desk.lab, {**weights.files(), **parts(2)}
    put(lab, "node1", whole)
    lab.inside("node1", ["sh", "-c", f"mkdir {MODELS}/blobs; cd '{FOLDER}'; mv config.json ../blobs/b1"], check=True)
    lab.inside("node1", ["ln", "-s", "../blobs/b1", f"{FOLDER}/config.json"], check=True)
    put(lab, "node3", {"tokenizer_config.json": whole["tokenizer_config.json"]})
    kept = there(lab, "node3")
    inventory = desk.inventory(everyone=EVERYONE)
    stage = ("stage.model", "--config", STP, "--inventory", inventory)
    said = desk.invoke(*stage)
    assert said.code == 0, said.all
    assert "node1       has DeepSeek-V4-Pro whole: 6 files, 4.0 MB" in said.out
    assert hashes(lab, "node2") == hashes(lab, "node3")
    assert len(hashes(lab, "node2")) == 6
    assert there(lab, "node3").items() >= kept.items()
    modes = lab.inside("node2", ["sh", "-c", f"cd '{FOLDER}'; stat -c '%a %F' config.json 'sub dir'"], check=True).out
    assert modes == "644 regular file\n755 directory\n"
    before = there(lab, "node2")
    said = desk.invoke(*stage, "--full-hash")
    assert (said.code, said.out.count("has DeepSeek-V4-Pro already, the same (every byte)")) == (0, 2), said.all
    assert there(lab, "node2") == before
    # Another file of that name is never replaced; the other host gets what it lacks.
    put(lab, "node2", {"config.json": b"other"})
    lab.inside("node3", ["rm", f"{FOLDER}/config.json"], check=True)
    said = desk.invoke(*stage, "--from", "node1")
    assert said.code == 3, said.all
    assert (
        "node2: model DeepSeek-V4-Pro is another one there, and nothing is replaced:\n  config.json has 5 " in said.err
    )
    assert hashes(lab, "node3")["config.json"] != hashes(lab, "node2")["config.json"]
    assert len(hashes(lab, "node3")) == 6


@pytest.mark.parametrize("how", ["kill", pytest.param("interrupt", marks=pytest.mark.long)])
def test_after_an_end_in_the_middle_nothing_that_arrived_is_sent_again(
    desk: Desk, folder: None, healed: Fault, how: str
) -> None:
    lab, whole = desk.lab, {**weights.files(), **parts()}
    put(lab, "node1", whole)
    for node in NODES:
        healed("rate", node, 24)
    inventory = desk.inventory(everyone=EVERYONE)
    stage = ("stage.model", "--config", STP, "--inventory", inventory)
    with desk.started(*stage) as running:
        until(lambda: len([name for name in there(lab, "node3") if name.endswith(".bin")]) >= 2, "two parts")
        if how == "kill":
            running.process.kill()
            running.process.wait(10)
        else:
            running.interrupt()
            said = running.end()
            assert said.code == 130, said.all
            assert f"next: invoke stage.model --config {STP} --inventory {inventory}" in said.err
    for node in NODES:
        lab.heal(node)
    until(lambda: not lab.inside("node2", ["pgrep", "-f", "fleet-model-take"]).out, "its end there")
    arrived = {name: words for name, words in there(lab, "node3").items() if ".fleet-part-" not in name}
    good = hashes(lab, "node1")
    assert 2 <= len(arrived) < len(whole)
    assert {name: words.split()[-2] for name, words in arrived.items()}.items() <= good.items()
    said = desk.invoke(*stage)
    assert said.code == 0, said.all
    assert hashes(lab, "node2") == hashes(lab, "node3") == good
    assert there(lab, "node3").items() >= arrived.items()
    missing = sum(len(data) for name, data in whole.items() if name not in arrived)
    assert f"{missing / 1e6:.1f} MB from node1" in said.out


def test_a_node_that_is_cut_off_midway_is_its_own_failure(desk: Desk, folder: None, healed: Fault) -> None:
    lab, whole = desk.lab, {**weights.files(), **parts()}
    put(lab, "node1", whole)
    for node in NODES:
        healed("rate", node, 40)
    stage = ("stage.model", "--config", STP, "--inventory", desk.inventory(everyone=EVERYONE))
    with desk.started(*stage, INVOKE_FLEET_TIMEOUTS_COMMAND="5s") as running:
        until(lambda: any(name.endswith(".bin") for name in there(lab, "node2")), "a part")
        lab.fault("cut", "node2")
        said = running.end()
    assert said.code == 3, said.all
    assert "node2: " in said.err
    assert "node3: " not in said.err
    assert hashes(lab, "node3") == hashes(lab, "node1")


def test_a_full_disk_is_known_before_and_bytes_go_through_here_where_nodes_may_not_log_in(
    desk: Desk, folder: None, healed: Fault
) -> None:
    lab, whole = desk.lab, {**weights.files(), **parts(2)}
    put(lab, "node1", whole)
    healed("fill-disk", "node2", 20)
    everyone = {**EVERYONE, "user": "nodock"}
    said = desk.invoke("stage.model", "--config", STP, "--inventory", desk.inventory(everyone=everyone))
    assert said.code == 3, said.all
    assert "MB free at /var/tmp/models, 71.1 MB are needed for model DeepSeek-V4-Pro" in said.err
    assert there(lab, "node2") == {}
    assert hashes(lab, "node3") == hashes(lab, "node1")
