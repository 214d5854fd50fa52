"""Images proven on real engines: what is missing in one, what it does not know, and a tag that has moved."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from fleet.docker import PREFIX
from fleet.lab.image import ATOM_TAGS, VLLM_TAGS, BuiltImage, ensure
from tests.lab.desk import FAST, STP, Desk

pytestmark = [pytest.mark.lab, pytest.mark.timeout(150)]

VLLM, (TAG,) = "dsv4-fp4-mi355x-vllm", VLLM_TAGS
ATOM_TAG = ATOM_TAGS[0]
SMALL = {"input": 16, "output": 4, "prompts_per_concurrency": 1}


@pytest.fixture
def retagged(desk: Desk, doubles: BuiltImage) -> Iterator[Desk]:
    """The tags come back to the doubles' image on node1 whatever a test did to them; the other nodes have none."""
    yield desk
    for node in desk.nodes:
        for tag in (TAG, *ATOM_TAGS):
            desk.lab.docker(node, ["rmi", "-f", "--no-prune", tag])
    desk.lab.docker("node1", ["tag", doubles.id, "fleet-test-keep"])
    for tag in doubles.tags:
        desk.lab.docker("node1", ["tag", doubles.id, tag], check=True)
    for node in desk.nodes:
        desk.lab.docker(node, ["rmi", "fleet-test-keep"])
        desk.lab.docker(node, ["image", "prune", "-f"])


def variant(desk: Desk, node: str, tag: str, *command: str) -> str:
    """Make `tag` name another image there: the one that it named, after a command in it. Its ID."""
    lab = desk.lab
    made = lab.docker(node, ["create", "--network", "none", "--entrypoint", command[0], tag, *command[1:]], check=True)
    name = made.out.strip()
    lab.docker(node, ["start", "--attach", name], check=True)
    id = lab.docker(node, ["commit", name, tag], check=True).out.strip()
    lab.docker(node, ["rm", name], check=True)
    return id


def test_what_is_missing_in_an_image_is_told_before_anything_starts(retagged: Desk) -> None:
    desk = retagged
    good = desk.image_ids(TAG)["node1"]
    bad = variant(desk, "node1", TAG, "rm", "/usr/local/bin/vllm")
    inventory = desk.inventory(trial=SMALL)
    where = ["--inventory", inventory, "--limit", "node1"]
    for words in (["sweep", "--arm", "tp8-1k1k", "--conc", "4"], ["stage"]):
        said = desk.invoke(*words, "--config", VLLM, *where)
        assert said.code == 3, said.all
        assert f"image {TAG} ({bad.removeprefix('sha256:')[:12]}) lacks what {VLLM} needs:\n" in said.err
        assert "  vllm   (the server)   on node1\nnothing was started; type another one: image: of recipes/" in said.err
    assert desk.run().records() == ()
    desk.lab.docker("node1", ["tag", good, TAG], check=True)
    said = desk.invoke("verify-image", "--config", VLLM, *where)
    assert said.code == 0, said.all
    assert said.out.endswith("\n1 image proven; every flag is known on 4 of 4 seats\n")


def test_an_image_without_python_or_a_shell_is_named_as_such(retagged: Desk) -> None:
    desk = retagged
    variant(desk, "node1", TAG, "busybox", "rm", "/usr/bin/python3", "/usr/bin/sh")
    said = desk.invoke("stage", "--config", VLLM, "--limit", "node1")
    assert said.code == 3, said.all
    assert "  python3   (all of it)   on node1\n" in said.err


def test_flags_are_compared_with_the_images_own_help(retagged: Desk, doubles: BuiltImage) -> None:
    """Docker by sudo only, and a double that lacks two flags."""
    desk = retagged
    ensure(desk.lab, "node2", doubles)
    lacks = {"env": {"FLEET_DOUBLE_LACKS": "--block-size,--policy"}, "user": "nodock"}
    inventory = desk.inventory(everyone=lacks)
    verify = ["verify-image", "--config", STP, "--arm", "1p1d", "--limit", "node1,node2"]
    said = desk.invoke(*verify, "--inventory", inventory)
    assert said.code == 3, said.all
    assert said.err.endswith(
        "flags that the image does not know, as its --help tells (a double's, not the engine's):\n"
        "  --block-size\n"
        "    step 1  prefill 0 on node1 (arm 1p1d)\n"
        "    step 2  decode 0 on node2 (arm 1p1d)\n"
        "  --policy   did you mean --decode-policy?\n"
        "    step 3  router on node1 (arm 1p1d)\n"
        f"see the steps: invoke plan --config {STP} --inventory {inventory}\n"
        f"correct `flags` of the model file, or take another image: of recipes/{STP}.yaml\n"
    )
    told = desk.invoke(*verify, "--json", "--inventory", inventory).json()
    assert [(one["host"], one["id"], one["double"]) for one in told["images"]] == [
        ("node1", doubles.id, True),
        ("node2", doubles.id, True),
    ]
    unknown = {one["seat"]: [flag["flag"] for flag in one["unknown"]] for one in told["seats"]}
    servers = {seat: ["--block-size"] for seat in ("prefill 0", "decode 0")}
    assert unknown == {**servers, "router": ["--policy"], "client": []}


def test_a_wrong_image_on_one_node(retagged: Desk, doubles: BuiltImage) -> None:
    desk = retagged
    ensure(desk.lab, "node2", doubles)
    wrong = variant(desk, "node2", ATOM_TAG, "touch", "/drifted")
    said = desk.invoke("verify-image", "--config", STP, "--arm", "1p1d", "--limit", "node1,node2")
    assert said.code == 3, said.all
    assert f"image {ATOM_TAG} is not the same on all hosts:\n  node1  {doubles.id}\n  node2  {wrong}\n" in said.err


def test_a_run_does_not_go_on_with_another_image_unless_told(retagged: Desk) -> None:
    desk = retagged
    good = desk.image_ids(TAG)["node1"]
    inventory = desk.inventory(everyone=FAST, trial=SMALL)
    said = desk.invoke(
        "sweep", "--config", VLLM, "--arm", "tp8-1k1k", "--conc", "4", "--inventory", inventory, "--limit", "node1"
    )
    assert said.code == 0, said.all
    run = desk.run()
    assert run.lock().images[TAG].id == good
    other = variant(desk, "node1", TAG, "touch", "/drifted")
    said = desk.invoke("sweep", "--resume", run.name, "--rerun", "all")
    assert said.code == 3, said.all
    assert f"    the run's   {good}\n    now         {other}  on node1\n" in said.err
    assert f"bring it back: docker tag {good} {TAG}  (on node1)\n" in said.err
    assert f"invoke sweep --resume {run.name} --rerun all --allow-drift\n" in said.err
    assert desk.ours() == {}
    said = desk.invoke("sweep", "--resume", run.name, "--rerun", "all", "--allow-drift")
    assert said.code == 0, said.all
    assert [(one.was, one.now) for one in run.lock().drifts] == [(good, other)]
    assert f"was {good}, and is {other} on node1 since" in run.summary_text.read_text()
    assert json.loads(run.lock_json.read_text())["images"][TAG]["id"] == other


def test_a_container_that_does_not_end_leaves_nothing(retagged: Desk) -> None:
    """A start that takes longer than it may: the first container is removed. One that was left is found by `down`."""
    desk = retagged
    said = desk.invoke(
        "stage", "--config", VLLM, "--limit", "node1", INVOKE_FLEET_TIMEOUTS_PROOF_WITHIN="0.1s"
    )  # fmt: skip
    assert said.code == 3, said.all
    assert "did not end within 0.1 s" in said.err
    assert desk.ours() == {}
    left = f"20261130-120000-{VLLM}-abcdef"
    labels = [f"{PREFIX}.run={left}", f"{PREFIX}.owner=ops@here", f"{PREFIX}.role=proof"]
    words = [word for label in labels for word in ("--label", label)]
    run = ["run", "-d", "--init", "--network", "none", *words, "--entrypoint", "sleep", TAG, "600"]
    desk.lab.docker("node1", run, check=True)
    said = desk.invoke("down", "--run", left, "--limit", "node1")
    assert said.code == 0, said.all
    assert desk.ours() == {}
