"""Every reason not to start, in words; what is silent never passes; strangers are named and not touched."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fleet.checkpoint import Checkpoint, fingerprint
from fleet.errors import CommandTimeout, LeaseHeld, PreflightError, Unreachable
from fleet.session import owner
from fleet.stages.preflight import needs, preflight
from tests.world import GB, IDLE, IMAGE_ID, KEY, Box, Node, World, a_plan

FIRST, SECOND = "mi355x-01", "mi355x-02"
COPY = f"invoke stage.model --config {KEY} --from {FIRST} --limit {SECOND} --inventory inventories/example-mi355x.yaml"
SHARED = "; if it may be shared: sweep --allow-strangers"


def why(world: World) -> list[str]:
    with pytest.raises(PreflightError) as told:
        preflight(world.session, world.plan)
    return list(told.value.reasons)


def test_a_well_world_passes_and_says_so_a_host() -> None:
    world = World()
    assert list(preflight(world.session, world.plan)) == [FIRST, SECOND]
    assert [(host, done) for _, host, _, done in world.told.hosts] == [(FIRST, True), (SECOND, True)]
    assert all("docker run" not in line for node in world.nodes.values() for line in node.lines)


def test_the_refused_hosts_are_named() -> None:
    world = World()
    world.nodes[SECOND].ports.add(8020)
    with pytest.raises(PreflightError) as told:
        preflight(world.session, world.plan)
    assert told.value.hosts == (SECOND,)
    world.nodes[FIRST].first = [(lambda _: True, Unreachable("refused", where=FIRST))]
    with pytest.raises(PreflightError) as told:
        preflight(world.session, world.plan)
    assert told.value.hosts == (FIRST, SECOND)


def silent(*first: object) -> Callable[[Node], None]:
    def change(node: Node) -> None:
        node.first = list(first)

    return change


def put(**values: object) -> Callable[[Node], None]:
    def change(node: Node) -> None:
        for name, value in values.items():
            setattr(node, name, value)

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (put(clock=-3.0), f"{SECOND}: its clock is off by -3.0 s; type: chronyc makestep there"),
        (silent((["date"], 1)), f"{SECOND}: its clock cannot be read"),
        (put(ports={8020}), f"{SECOND}: port 8020 (decode0) is taken by nc (pid 77)"),
        (put(ports={8020}, first=[("ss -Hltnp", "LISTEN 0 9 *:8020 *:*\n")]),
         f"{SECOND}: port 8020 (decode0) is taken; who: ss -ltnp 'sport = :8020'"),
        (silent((["ss"], 127)), f"{SECOND}: its ports cannot be listed: is ss (iproute2) there?"),
        (put(missing="/dev/kfd\n/dev/infiniband\n"), f"{SECOND}: devices missing: /dev/kfd, /dev/infiniband"),
        (silent(("test -e", 1)), f"{SECOND}: devices missing: could not look"),
        (put(gpus=IDLE.replace(f"card3 {GB}", f"card3 {144 * GB}")), f"{SECOND}: GPU memory in use: card3 50%{SHARED}"),
        (put(gpus=IDLE.replace(f"card3 {GB}", f"card3 {144 * GB}"), gpu_holders="812 900 python3\n813 0 idle\n"),
         f"{SECOND}: GPU memory in use: card3 50% by python3 (pid 812){SHARED}"),
        (put(gpus=""), f"{SECOND}: 0 GPUs found, 8 in the inventory"),
        (put(free={"/": 500_000_000}), f"{SECOND}: 0.5 GB free at /data/fleet, 1.1 GB are needed"),
        (put(free={}), f"{SECOND}: the free space at /data/fleet cannot be found out"),
        (put(files=""), f"model DeepSeek-V4-Pro: missing or empty on {SECOND}\n      copy it from {FIRST}: {COPY}"),
        (silent((["docker", "ps"], CommandTimeout("no answer", where=SECOND, hint="try:  ssh"))),
         f"{SECOND}: no answer\n  try:  ssh"),
        (silent((lambda argv: True, Unreachable("connection refused", where=SECOND))), f"{SECOND}: connection refused"),
    ],
)  # fmt: skip
def test_each_reason_not_to_start(change: Callable[[Node], None], reason: str) -> None:
    world = World()
    change(world.nodes[SECOND])
    assert why(world) == [reason]


def test_gpu_memory_that_may_be_shared_is_told_and_missing_gpus_are_a_reason_still() -> None:
    world = World()
    world.nodes[SECOND].gpus = IDLE.replace(f"card3 {GB}", f"card3 {144 * GB}")
    preflight(world.session, world.plan, beside_strangers=True)
    (said,) = [text for _, host, text, _ in world.told.hosts if host == SECOND]
    assert said.endswith("; allowed: GPU memory in use: card3 50%")
    world.nodes[SECOND].gpus = ""
    with pytest.raises(PreflightError, match="0 GPUs found, 8 in the inventory"):
        preflight(world.session, world.plan, beside_strangers=True)


def test_all_reasons_are_told_at_once() -> None:
    world = World()
    world.nodes[FIRST].ports.add(30000)
    world.nodes[SECOND].clock = 9.0
    with pytest.raises(PreflightError) as told:
        preflight(world.session, world.plan)
    assert str(told.value) == (
        "preflight: 2 reasons not to start\n"
        "  mi355x-01: port 30000 (router) is taken by nc (pid 77)\n"
        "  mi355x-02: its clock is off by +9.0 s; type: chronyc makestep there\n"
        "nothing was started"
    )


def test_models_that_differ_are_named_with_their_hosts() -> None:
    world = World()
    world.nodes[SECOND].files = "config.json\t12\nmodel-1.safetensors\t1000\nmodel-2.safetensors\t7\n"
    world.nodes[SECOND].contents = {"model-1.safetensors": "5e1f" * 16}
    config, one, two = why(world)
    assert config == f"model DeepSeek-V4-Pro: config.json: 10 bytes on {FIRST}; 12 bytes on {SECOND}"
    assert one == (
        "model DeepSeek-V4-Pro: model-1.safetensors: "
        f"1000 bytes of content model-1. on {FIRST}; 1000 bytes of content 5e1f5e1f on {SECOND}"
    )
    assert two == (
        f"model DeepSeek-V4-Pro: model-2.safetensors: missing on {FIRST}; 7 bytes on {SECOND}\n"
        f"      if that of {FIRST} is the right one: {COPY}"
    )


def test_what_is_told_of_models_that_are_the_same() -> None:
    world = World()
    found = preflight(world.session, world.plan)
    assert {one[2].partition("; ")[2] for one in world.told.hosts} == {
        "DeepSeek-V4-Pro: 2 files, 1.0 kB, the same (sampled)"
    }
    assert all(fingerprint(one.weights["DeepSeek-V4-Pro"] or Checkpoint()).size == 1010 for one in found.values())


def test_a_folder_that_cannot_be_read_is_a_reason_of_its_host() -> None:
    world = World()
    world.nodes[SECOND].first = [("fleet-weights", (45, "", "find: './private': Permission denied\n"))]
    with pytest.raises(PreflightError) as told:
        preflight(world.session, world.plan)
    assert told.value.reasons == (
        f"{SECOND}: model DeepSeek-V4-Pro: it cannot be read: find: './private': Permission denied\n"
        f"  try:  ssh {SECOND} ls -lL /data/models/DeepSeek-V4-Pro",
    )
    assert told.value.hosts == (SECOND,)


def test_an_image_that_nobody_has_is_a_reason_one_that_a_host_has_is_not() -> None:
    world = World()
    world.nodes[FIRST].images.clear()
    preflight(world.session, world.plan)
    world.nodes[SECOND].images.clear()
    tag = world.tag
    assert why(world) == [f"image {tag}: on none of mi355x-01, mi355x-02; type: docker pull {tag} on one of them"]


def test_hosts_with_different_images_are_told_with_all_other_reasons() -> None:
    world = World()
    tag = world.tag
    world.nodes[SECOND].images[tag] = "sha256:other"
    world.nodes[SECOND].ports.add(8020)
    port, image = why(world)
    assert port.startswith("mi355x-02: port 8020 ")
    assert image == (
        f"image {tag}: mi355x-01: {IMAGE_ID}; mi355x-02: sha256:other; type: docker rmi {tag} where it is the wrong one"
    )


def test_a_container_that_proves_an_image_is_in_nobodys_way() -> None:
    world = World()
    labels = {"run": "20261130-stage", "owner": "colleague@there", "role": "proof", "rank": "0"}
    world.nodes[FIRST].boxes["fleet-proof-1"] = Box("fleet-proof-1", labels=labels)
    assert preflight(world.session, world.plan)[FIRST].strangers == ()


def test_containers_of_a_run_of_ours_are_a_reason_with_the_line_that_removes_them() -> None:
    world = World()
    labels = {"run": "20261130-r", "role": "prefill", "rank": "0", "owner": owner()}
    world.nodes[FIRST].boxes["fleet-1"] = Box("fleet-1", labels=labels)
    world.nodes[FIRST].ports.add(8010)  # it is that run's: told once
    line = "invoke down --run 20261130-r --inventory inventories/example-mi355x.yaml"
    said = "run 20261130-r has containers here (fleet-1 running); if nobody needs it any more: "
    assert why(world) == [f"{FIRST}: {said}{line}"]


def test_a_run_of_another_owner_holds_its_hosts() -> None:
    world = World()
    labels = {"run": "20261130-r", "role": "prefill", "rank": "0", "owner": "ops2@bastion"}
    world.nodes[FIRST].boxes["fleet-1"] = Box("fleet-1", labels=labels)
    said = f"{FIRST} is in use by ops2@bastion for run 20261130-r, without a lease \\(fleet-1 is running\\)"
    with pytest.raises(LeaseHeld, match=said) as told:
        preflight(world.session, world.plan)
    file = "--inventory inventories/example-mi355x.yaml"
    hint = f"see it: invoke ps {file}   ·   if it is dead: invoke reap {file}"
    assert (told.value.exit_code, told.value.hint) == (5, hint)
    world.nodes[FIRST].boxes["fleet-1"].state = "exited"
    with pytest.raises(PreflightError, match="has containers here"):
        preflight(world.session, world.plan)


def test_strangers_are_named_and_not_touched() -> None:
    world = World()
    world.nodes[FIRST].boxes["web"] = Box("web", image="nginx:1")
    preflight(world.session, world.plan)
    assert world.told.hosts[0][2].endswith("; strangers: web (nginx:1)")
    assert world.nodes[FIRST].asked("docker (stop|rm|kill)") == []


def test_a_peer_that_is_not_reached_is_named_with_its_ports() -> None:
    world = World()
    world.nodes[FIRST].first = [(lambda argv: argv[0] == "env" and argv[-1] in ("8020", "6301"), 124)]
    assert why(world) == [f"{FIRST} → 198.51.100.12: no answer on ports 6301, 8020"]


def test_peers_are_not_asked_while_a_host_is_missing() -> None:
    world = World()
    world.nodes[SECOND].first = [(lambda argv: True, Unreachable("gone", where=SECOND))]
    why(world)
    assert world.nodes[FIRST].asked("/dev/tcp") == []


def test_needs_are_over_all_arms() -> None:
    wanted = needs(a_plan(arm=None, conc=()))
    assert list(wanted) == ["mi355x-01", "mi355x-02", "mi355x-03"]
    assert {8010, 8020} <= set(wanted["mi355x-02"].ports)
    assert ("198.51.100.11", 30000) in wanted["mi355x-03"].peers
    assert all(port != 8006 for _, port in wanted["mi355x-03"].peers), "not a public port"
