"""Images after staging: one ID, a first container, the parts that a plan needs; and a tag that moved since then."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleet import docker, manual, proof
from fleet.errors import CommandTimeout, HostError, UsageError
from fleet.hosts.fake import in_turn
from fleet.model.part import Part
from fleet.results import lock as locks
from fleet.results.lock import Drift, Lock, Locked
from fleet.results.state import Rerun
from fleet.results.store import RunFolder
from fleet.session import Session
from fleet.stages import prove, road, stage, sweep, verify, watch
from fleet.stages.deployment import Deployment
from fleet.stages.road import Road
from tests.world import IMAGE_ID, RUN, World, a_plan

FIRST, SECOND = HOSTS = ("mi355x-01", "mi355x-02")
OTHER = "sha256:" + "b5" * 32
ATOMESH = "/usr/local/bin/atomesh"
MTP = "atom.models.deepseek_v4_mtp.DeepseekV4MTP"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "EVERY", 0.01)
    monkeypatch.setattr(watch, "EVERY", 0.01)


@pytest.fixture
def world() -> World:
    return World(a_plan("1p1d-mtp3", (4, 8)))


def proven(world: World, **more: object) -> prove.Proven:
    return prove.prove(world.session, world.plan, world.tag, HOSTS, IMAGE_ID, run=RUN, **more)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- the container


def test_the_container_takes_nothing_and_says_whose_it_is(world: World) -> None:
    proven(world)
    (line,) = [call.argv for call in world.nodes[FIRST].fake.calls if call.argv[:2] == ["docker", "run"]]
    assert line[:9] == ["docker", "run", "--rm", "--name", line[4], "--pull", "never", "--init", "--network"]
    assert line[9:line.index("--entrypoint")] == [
        "none",
        "--label", f"dev.fleet.run={RUN}",
        "--label", f"dev.fleet.owner={prove.owner()}",
        "--label", "dev.fleet.role=proof",
        "--label", "dev.fleet.rank=0",
    ]  # fmt: skip
    assert line[4].startswith("fleet-proof-a4a4a4a4a4a4-")
    assert line[line.index("--entrypoint") + 1 :][:3] == ["python3", IMAGE_ID, "-c"]
    assert json.loads(line[-1]) == [
        ["module", "atom.entrypoints.openai_server"],
        ["class", MTP],
        ["path", ATOMESH],
        ["module", "atom.benchmarks.benchmark_serving"],
    ]


def test_an_image_of_which_nothing_is_needed_may_be_without_a_shell() -> None:
    assert proof.command([]) == ("/sbin/docker-init", "--version")
    assert proof.missing(0, "tini version 0.19.0\n", []) == []


def test_every_host_is_proven_once(world: World) -> None:
    found = proven(world)
    assert {host: image.id for host, image in found.images.items()} == dict.fromkeys(HOSTS, IMAGE_ID)
    assert set(found.seconds) == set(HOSTS)
    told = [text for stage, host, text, done in world.told.hosts if (stage, host, done) == ("prove", FIRST, True)]
    assert [text.partition(" s, ")[2] for text in told] == ["4 of 4 parts are there"]
    again = proven(world, before={FIRST})
    assert (set(again.images), set(again.seconds)) == (set(HOSTS), {SECOND})
    assert [len(world.nodes[host].asked("docker run")) for host in HOSTS] == [1, 2]


def test_what_a_plan_does_not_use_is_not_asked_for() -> None:
    plain = a_plan(None, (4,)).model_copy(update={"key": "x"})
    mtp, image = proof.parts(plain, plain.arms[0].arm.image), plain.arms[0].arm.image
    assert [part.name for part in mtp if part.kind == "class"] == [MTP]
    for arm in plain.arms:
        for server in arm.servers:
            at = server.argv.index("--method")
            stp = server.model_copy(update={"argv": (*server.argv[:at], *server.argv[at + 2 :])})
            assert [part.kind for part in proof.said_by(arm, stp).parts(stp, arm.arm)] == ["module"]
    assert proof.parts(plain, "another:tag") == []
    assert image


@pytest.mark.parametrize("lacks", [{ATOMESH}, {MTP}, {ATOMESH, MTP}, {"python3"}])
def test_what_is_missing_is_told_with_what_needs_it_and_where_the_image_is_written(
    world: World, lacks: set[str]
) -> None:
    world.nodes[SECOND].lacks = lacks
    with pytest.raises(HostError) as told:
        proven(world)
    head, *lines = told.value.what.splitlines()
    assert head == f"image {world.tag} (a4a4a4a4a4a4) lacks what {world.plan.key} needs:"
    texts = {
        ATOMESH: f"  {ATOMESH}   (the router)   on {SECOND}",
        MTP: f"  class {MTP}   (drafts for DeepSeek-V4-Pro)   on {SECOND}",
        "python3": f"  python3   (all of it)   on {SECOND}",
    }
    assert sorted(lines) == sorted(texts[name] for name in lacks)
    assert told.value.hint.startswith("nothing was started; type another one: image: of ")
    assert told.value.hint.endswith("dsv4-fp4-mi355x-atom-disagg-mtp.yaml")
    assert told.value.exit_code == 3


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((125, "", "docker: Error response from daemon: no space left on device."), "docker could not start it"),
        ((1, "", "Traceback\nMemoryError"), "MemoryError"),
        ((0, "hello\n", ""), "hello"),
        ((0, "[true]\n", ""), r"\[true\]"),
        ((137, "", ""), "it said nothing"),
    ],
)
def test_a_container_that_does_not_end_well(world: World, answer: tuple[int, str, str], why: str) -> None:
    world.nodes[SECOND].first = [(["docker", "run"], answer)]
    with pytest.raises(HostError, match=f"{SECOND}: a first container of {world.tag} failed .*{why}") as told:
        proven(world)
    assert told.value.hint == (
        f"try:  ssh {SECOND} docker run --rm --init --entrypoint /sbin/docker-init {world.tag} --version"
    )


def test_a_container_that_hangs_is_removed_and_the_setting_is_named(world: World) -> None:
    world.nodes[SECOND].first = [
        (["docker", "run"], CommandTimeout("did not end", where=SECOND)),
        ("rm --force", lambda argv, stdin: argv[-1]),
    ]
    with pytest.raises(
        HostError, match=f"{SECOND}: a container of image a4a4a4a4a4a4 did not end within 300 s"
    ) as told:
        proven(world)
    (name,) = [line.split()[-1] for line in world.nodes[SECOND].asked("rm --force")]
    assert name.startswith("fleet-proof-a4a4a4a4a4a4-")
    assert "fleet.timeouts.proof_within" in told.value.hint


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_leaves_no_container(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for host in HOSTS:
        world.nodes[host].first = [("rm --force", lambda argv, stdin: argv[-1])]
    monkeypatch.setattr(Session, "all", interrupted)
    with pytest.raises(KeyboardInterrupt):
        proven(world, before={FIRST})
    assert world.nodes[FIRST].asked("rm --force") == []
    (line,) = world.nodes[SECOND].asked("rm --force")
    assert line == f"docker rm --force {proof.name(RUN, IMAGE_ID)}"


def test_another_id_than_the_others_have(world: World) -> None:
    world.nodes[SECOND].images[world.tag] = OTHER
    with pytest.raises(HostError, match=f"{SECOND}: image {world.tag} is {OTHER}, the other hosts have {IMAGE_ID}"):
        proven(world)


# ---------------------------------------------------------------------- the look inside


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A folder with a package, a program and files, as an image has them."""
    package = tmp_path / "lib" / "engine"
    (package / "models").mkdir(parents=True)
    for name in ("__init__.py", "models/__init__.py"):
        (package / name).write_text("raise RuntimeError('this package wants a GPU')\n")
    (package / "models" / "draft.py").write_text("import torch\n\nclass Draft(torch.nn.Module):\n    pass\n")
    (tmp_path / "router").write_text("#!/bin/sh\n")
    (tmp_path / "router").chmod(0o755)
    (tmp_path / "notes").write_text("no program\n")
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "name", "there"),
    [
        ("path", "{}/router", True),
        ("path", "{}/notes", False),
        ("path", "{}", False),
        ("path", "{}/none", False),
        ("program", "sh", True),
        ("program", "no-such-program", False),
        ("module", "engine.models.draft", True),
        ("module", "engine.models", True),
        ("module", "engine.none", False),
        ("module", "none.at.all", False),
        ("module", "engine.models.draft.json", False),
        ("class", "engine.models.draft.Draft", True),
        ("class", "engine.models.draft.Drafter", False),
        ("class", "engine.models.draft.Dra", False),
        ("class", "engine.models.none.Draft", False),
    ],
)
def test_the_look_itself_imports_nothing(image: Path, kind: str, name: str, there: bool) -> None:
    part = Part(kind, name.format(image), "all")  # type: ignore[arg-type]
    command = [sys.executable, *proof.command([part])[1:]]
    env = {"PYTHONPATH": str(image / "lib"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=30, check=True)
    assert proof.missing(0, done.stdout, [part]) == ([] if there else [part])


def test_what_starts_with_python_may_print_before(image: Path) -> None:
    part = Part("program", "sh", "all")
    assert proof.missing(0, "warning: no GPU[]\n\n[true]\n", [part]) == []


# ---------------------------------------------------------------------- the lock of a run


def a_road(world: World, tmp_path: Path, *, resumed: bool = False, rerun: Rerun = "", allow: bool = False) -> Road:
    folder = RunFolder(tmp_path / RUN)
    folder.path.mkdir(exist_ok=True)
    return Road(world.session, world.plan, folder, resumed=resumed, rerun=rerun, allow_drift=allow)


def test_a_run_keeps_which_images_it_had(world: World, tmp_path: Path) -> None:
    digest = "registry.example:5000/atom@sha256:" + "d1" * 32
    world.nodes[SECOND].digests = [digest]
    made = a_road(world, tmp_path)
    assert made.go() == 0
    kept = json.loads(made.folder.lock_json.read_text())
    seconds = kept["images"][world.tag].pop("proven")
    assert kept == {
        "schema_version": "1",
        "images": {world.tag: {"id": IMAGE_ID, "digests": [digest]}},
        "drifts": [],
    }
    assert set(seconds) == set(HOSTS)
    facts = made.folder.read_facts()["images"][world.tag]
    assert [facts[host]["digests"] for host in HOSTS] == [[], [digest]]


def move(world: World, *hosts: str) -> None:
    for host in hosts:
        world.nodes[host].images[world.tag] = OTHER


def test_a_run_that_goes_on_starts_no_first_container_again(world: World, tmp_path: Path) -> None:
    assert a_road(world, tmp_path).go() == 0
    assert a_road(world, tmp_path, resumed=True, rerun="all").go() == 0
    assert [len(world.nodes[host].asked("docker run --rm")) for host in HOSTS] == [1, 1]


def test_a_run_that_goes_on_refuses_another_image_under_its_tag(world: World, tmp_path: Path) -> None:
    assert a_road(world, tmp_path).go() == 0
    move(world, *HOSTS)
    world.nodes[SECOND].images["old"] = IMAGE_ID
    before = [len(world.nodes[host].asked("docker run")) for host in HOSTS]
    arm = world.plan.arms[0]
    folder = RunFolder(tmp_path / RUN)
    world.start(Deployment.of(world.session, folder, world.plan, arm, {}), arm.servers[0])
    with pytest.raises(HostError) as told:
        a_road(world, tmp_path, resumed=True, rerun="all").go()
    assert told.value.exit_code == 3
    assert told.value.what == (
        "the run began with another image than its tag names now:\n"
        f"  {world.tag}\n"
        f"    the run's   {IMAGE_ID}\n"
        f"    now         {OTHER}  on {FIRST}, {SECOND}"
    )
    assert told.value.hint == (
        f"bring it back: docker tag {IMAGE_ID} {world.tag}  (on {SECOND})\n"
        f"it is no more on {FIRST}: docker rmi {world.tag}  there, the sweep brings it again\n"
        f"or go on with today's: invoke sweep --resume {RUN} --rerun all --allow-drift"
    )
    assert [len(world.nodes[host].asked("docker run")) for host in HOSTS] == before
    assert world.box("prefill0").state == "running", "what serves on is left alone"
    assert folder.lock().images[world.tag].id == IMAGE_ID


def test_with_points_left_the_line_that_goes_on_is_said_once(world: World, tmp_path: Path) -> None:
    world.client_code = 1
    assert a_road(world, tmp_path).go() == 1
    move(world, *HOSTS)
    with pytest.raises(HostError) as told:
        a_road(world, tmp_path, resumed=True, rerun="failed").go()
    assert told.value.hint.splitlines()[-1] == (
        f"or go on with today's: invoke sweep --resume {RUN} --rerun failed --allow-drift"
    )
    assert told.value.hint.count("--resume") == 1


def test_a_tag_that_moves_while_the_image_is_staged(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert a_road(world, tmp_path).go() == 0

    def staged(*asked: Any, **more: Any) -> dict[str, docker.Image]:
        move(world, *HOSTS)
        return stage.stage(*asked, **more)

    monkeypatch.setattr(road, "stage", staged)
    with pytest.raises(HostError, match="the run began with another image"):
        a_road(world, tmp_path, resumed=True, rerun="all").go()


def test_the_registrys_digest_is_what_to_pull_again(world: World, tmp_path: Path) -> None:
    digest = "rocm/atom-dev@sha256:" + "d1" * 32
    world.nodes[FIRST].digests = [digest]
    assert a_road(world, tmp_path).go() == 0
    move(world, *HOSTS)
    with pytest.raises(HostError) as told:
        a_road(world, tmp_path, resumed=True, rerun="all").go()
    assert f"    the run's   {IMAGE_ID}  {digest}\n" in told.value.what
    first = told.value.hint.splitlines()[0]
    assert first == f"bring it back: docker pull {digest} && docker tag {digest} {world.tag}  (on {FIRST}, {SECOND})"


def test_another_image_that_is_allowed_is_noted_and_told_from_then_on(world: World, tmp_path: Path) -> None:
    assert a_road(world, tmp_path).go() == 0
    move(world, *HOSTS)
    for node in world.nodes.values():
        node.box_image = OTHER
    made = a_road(world, tmp_path, resumed=True, rerun="all", allow=True)
    assert made.go() == 0
    (drift,) = made.folder.lock().drifts
    assert (drift.image, drift.was, drift.now, drift.hosts) == (world.tag, IMAGE_ID, OTHER, HOSTS)
    told = f"image {world.tag} was {IMAGE_ID}, and is {OTHER} on {FIRST}, {SECOND} since {drift.at} (--allow-drift)"
    assert told in world.told.lines
    assert told in made.folder.summary_text.read_text()
    assert [len(world.nodes[host].asked("docker run --rm")) for host in HOSTS] == [2, 2]
    later = a_road(world, tmp_path, resumed=True, rerun="all")
    assert later.go() == 0
    assert later.folder.summary_text.read_text().count("(--allow-drift)") == 1
    assert later.folder.lock().drifts == (drift,)


def test_a_new_run_takes_what_is_there(world: World, tmp_path: Path) -> None:
    assert a_road(world, tmp_path).go() == 0
    move(world, *HOSTS)
    for node in world.nodes.values():
        node.box_image = OTHER
    (tmp_path / "another").mkdir()
    assert a_road(world, tmp_path / "another").go() == 0


def test_what_lacks_a_part_starts_nothing(world: World, tmp_path: Path) -> None:
    world.nodes[FIRST].lacks = {ATOMESH}
    made = a_road(world, tmp_path)
    with pytest.raises(HostError, match="lacks what"):
        made.go()
    assert [node.asked("docker run -d") for node in world.nodes.values()] == [[]] * len(world.nodes)
    assert not made.folder.lock_json.exists()
    assert f"{ATOMESH}   (the router)" in made.folder.summary_text.read_text()


def test_an_older_run_is_held_to_what_its_facts_say(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.lock() == Lock()
    same = {
        "a:1": {"n1": {"id": IMAGE_ID}, "n2": {"id": IMAGE_ID}},
        "b:1": {"n1": {"id": IMAGE_ID}, "n2": {"id": OTHER}},
    }
    folder.write_json(folder.facts, {"images": same})
    assert folder.lock() == Lock(images={"a:1": Locked(id=IMAGE_ID)})


@pytest.mark.parametrize(
    "images", [None, [], {"a:1": None}, {"a:1": {}}, {"a:1": {"n1": 1}}, {"a:1": {"n1": {"id": 1}}}]
)
def test_facts_that_say_nothing_of_images(images: object) -> None:
    assert locks.of_facts({"images": images}) == Lock()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"images": {"a": {}}}', '{"what": 1}'])
def test_a_damaged_lock_is_named(tmp_path: Path, text: str) -> None:
    folder = RunFolder(tmp_path)
    folder.lock_json.write_text(text)
    with pytest.raises(UsageError, match=r"does not say what a run's lock.json says \(damaged\?\)") as told:
        folder.lock()
    assert told.value.where == str(folder.lock_json)


def test_a_lock_comes_back_as_it_was_written(tmp_path: Path) -> None:
    drift = Drift(image="a:1", was=IMAGE_ID, now=OTHER, hosts=("n1",), at="2026-11-30T21:04:05Z")
    whole = Lock(images={"a:1": Locked(id=OTHER, digests=("a@sha256:1",), proven={"n1": 0.5})}, drifts=(drift,))
    folder = RunFolder(tmp_path)
    folder.write_lock(whole)
    assert folder.lock() == whole
    assert (whole.proven(OTHER), whole.proven(IMAGE_ID)) == ({"n1"}, set())


def test_the_same_image_under_two_tags_is_proven_once() -> None:
    found = {"n1": docker.Image(id=IMAGE_ID)}
    lock = Lock().with_image("a:1", found, {"n1": 0.5}).with_image("a:2", found, {})
    assert lock.proven(IMAGE_ID) == {"n1"}
    assert lock.images["a:2"] == Locked(id=IMAGE_ID)


# ---------------------------------------------------------------------- verify-image


PROGRAMS = ("atom.entrypoints.openai_server", "atom.benchmarks.benchmark_serving", "launch")


def helps(world: World, **lacks: str) -> None:
    """Every program knows the flags of the plan, but for those given by seat."""
    texts: dict[str, set[str]] = {}
    for line in manual.lines(world.plan):
        program = next(word for word in line.help.argv if word in PROGRAMS)
        texts.setdefault(program, set()).update(line.flags)
    for node in world.nodes.values():
        node.helps = {
            name: "".join(f"  {flag} X\n" for flag in flags if flag not in lacks.values())
            for name, flags in texts.items()
        }


def test_all_is_well(world: World) -> None:
    helps(world)
    found = verify.verify(world.session, world.plan, run=RUN)
    assert found.well
    assert verify.fault(world.plan, found) is None
    assert [(seat.line.seat, seat.unknown, seat.why) for seat in found.seats] == [
        (seat, (), "") for seat in ("prefill 0", "decode 0", "router", "client")
    ]
    asked = [line for node in world.nodes.values() for line in node.asked(r"docker run --rm .* --help$")]
    assert len(asked) == 3, "each program is asked once"
    assert all("--env PYTHONUNBUFFERED=1" in line for line in asked if "openai_server" in line)
    assert found.to_json()["seats"][0] == {
        "arm": "1p1d-mtp3",
        "seat": "prefill 0",
        "host": FIRST,
        "image": world.tag,
        "id": IMAGE_ID,
        "double": False,
        "asked": ["python3", "-m", "atom.entrypoints.openai_server", "--help"],
        "flags": len(found.seats[0].line.flags),
        "unknown": [],
        "why": "",
    }


def test_all_unknown_flags_are_told_at_once(world: World) -> None:
    helps(world, a="--block-size", b="--policy", c="--num-warmups")
    for node in world.nodes.values():
        node.helps["launch"] += "  --policies X\n"
    found = verify.verify(world.session, world.plan, run=RUN)
    assert not found.well
    error = verify.fault(world.plan, found)
    assert error is not None
    assert error.exit_code == 3
    assert error.what == (
        "flags that the image does not know, as its --help tells:\n"
        "  --block-size\n"
        f"    step 1  prefill 0 on {FIRST} (arm 1p1d-mtp3)\n"
        f"    step 2  decode 0 on {SECOND} (arm 1p1d-mtp3)\n"
        "  --policy   did you mean --policies?\n"
        f"    step 3  router on {FIRST} (arm 1p1d-mtp3)\n"
        "  --num-warmups\n"
        f"    step 4  client on {FIRST} (arm 1p1d-mtp3)"
    )
    assert f"invoke plan --config {world.plan.key} --inventory " in error.hint


def test_help_that_tells_nothing_is_no_pass(world: World) -> None:
    helps(world)
    for node in world.nodes.values():
        node.first = [("launch --help", (1, "", "error: no GPU here\n"))]
    found = verify.verify(world.session, world.plan, run=RUN)
    assert not found.well
    error = verify.fault(world.plan, found)
    assert error is not None
    assert error.what == (
        f"{FIRST}: {ATOMESH} launch --help in {world.tag} tells no flags (exit 1: failed): error: no GPU here"
    )


def test_an_engine_that_looks_for_a_gpu_first_is_asked_again_beside_them(world: World) -> None:
    helps(world)
    blind = (r"run --rm (?!.*/dev/kfd).*openai_server --help", (1, "", "RuntimeError: no GPU found\n"))
    for node in world.nodes.values():
        node.first = [blind]
    assert verify.verify(world.session, world.plan, run=RUN).well
    first, second = world.nodes[FIRST].asked("openai_server --help")
    assert "--device /dev/kfd" in second
    assert "--device" not in first


def test_a_host_that_lacks_the_image_is_named_and_the_others_are_proven(world: World) -> None:
    helps(world)
    world.nodes[FIRST].images.clear()
    found = verify.verify(world.session, world.plan, run=RUN)
    (fault,) = found.faults
    assert fault.what == f"image {world.tag} is not on {FIRST}"
    assert "invoke stage --config" in fault.hint
    assert list(found.images[world.tag]) == [SECOND]
    assert [seat.why for seat in found.seats] == [""] * 4, "what one host has tells the flags of all seats"
    assert (found.well, verify.fault(world.plan, found)) == (False, None)


def test_an_image_that_nobody_has_or_that_differs(world: World) -> None:
    world.nodes[SECOND].images[world.tag] = OTHER
    (fault,) = verify.verify(world.session, world.plan, run=RUN).faults
    assert fault.what == f"image {world.tag} is not the same on all hosts:\n  {FIRST}  {IMAGE_ID}\n  {SECOND}  {OTHER}"
    for host in HOSTS:
        world.nodes[host].images.clear()
    found = verify.verify(world.session, world.plan, run=RUN)
    assert [one.what for one in found.faults] == [f"image {world.tag} is on none of {FIRST}, {SECOND}"]
    assert [seat.why for seat in found.seats] == ["its image is not proven"] * 4
    assert verify.fault(world.plan, found) is None


def test_a_host_that_does_not_answer(world: World) -> None:
    world.nodes[SECOND].first = [(["docker"], in_turn(HostError("gone", where=SECOND)))]
    found = verify.verify(world.session, world.plan, run=RUN)
    assert [str(fault) for fault in found.faults] == [f"{SECOND}: gone"]
    assert not found.well
