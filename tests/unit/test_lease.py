"""Leases: the script as it runs on a node, who may replace whose, what is told, what happens to the one who loses."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleet import ui
from fleet.docker import Container
from fleet.errors import CommandFailed, HostError, LeaseHeld, NotKept, Unreachable
from fleet.hosts.local import Local
from fleet.model import lease as text
from fleet.model.lease import Answer, Claim, Lease
from fleet.results.store import RunFolder
from fleet.session import owner
from fleet.stages import lease as leases
from fleet.stages import preflight, reaper, sweep, watch
from fleet.stages.lease import Wish, held
from fleet.stages.road import Road
from tests.world import RUN, Box, World, a_plan

FIRST, SECOND = "mi355x-01", "mi355x-02"
HERE = datetime(2026, 11, 30, 20, 0, tzinfo=UTC)
THEIRS = Claim(owner='ops2@bastion "token":"aa"', host="bastion", run="20261130-185000-c01d22", token="b0" * 16, pid=7,
               process="elsewhere/1")  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "EVERY", 0.01)
    monkeypatch.setattr(watch, "EVERY", 0.01)
    monkeypatch.setattr(leases, "EVERY", 0.05)
    monkeypatch.setattr(leases, "LOOK", 0.05)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "lease"


def run(folder: Path, *words: object, clock: int = 0, **options: object) -> Answer:
    """The script in a folder of the test; clock: seconds that this node's clock is ahead."""
    argv = text.argv(*words, **options)  # type: ignore[arg-type]
    argv = [str(folder) if word == text.FOLDER else word for word in argv]
    argv[2] = argv[2].replace("$(date +%s)", f"$(($(date +%s) + {clock}))")
    return text.parse(Local().run(argv).out)


def mine(**other: object) -> Claim:
    return leases.claim("20261130-r").model_copy(update=other)


# ---------------------------------------------------------------------- the script


def test_a_free_node_is_taken_and_says_by_whom_until_when(folder: Path) -> None:
    got = run(folder, "take", claim=THEIRS, longest=3600)
    assert (got.word, got.lease) == ("taken", None)
    seen = run(folder, "look")
    assert seen.lease is not None
    assert (seen.word, seen.live) == ("held", seen.lease)
    assert seen.lease.model_dump(exclude={"since", "renewed", "expires", "ends"}) == THEIRS.model_dump()
    assert seen.lease.since == seen.lease.renewed == got.now
    assert (seen.lease.expires, seen.lease.ends) == (got.now + 60, got.now + 3600)


def test_the_folder_and_the_file_serve_every_user_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0o077)
    try:
        run(folder, "take", claim=THEIRS, longest=3600)
    finally:
        os.umask(before)
    assert oct(folder.stat().st_mode & 0o7777) == "0o777"
    assert [(one.name, oct(one.stat().st_mode & 0o777)) for one in folder.iterdir()] == [("lease.json", "0o644")]


def test_a_live_lease_is_not_taken_renewed_or_released_by_another_token(folder: Path) -> None:
    run(folder, "take", claim=THEIRS, longest=3600)
    for verb, word in (("take", "held"), ("renew", "other"), ("release", "other")):
        got = run(folder, verb, claim=mine(), longest=3600)
        assert got.word == word
        assert got.lease is not None
        assert got.lease.token == THEIRS.token


def test_a_renewal_moves_the_end_and_keeps_since(folder: Path) -> None:
    got = run(folder, "take", claim=THEIRS, longest=100)
    assert run(folder, "renew", claim=THEIRS, longest=100, since=got.now, clock=30).word == "renewed"
    seen = run(folder, "look").lease
    assert seen is not None
    assert (seen.since, seen.ends) == (got.now, got.now + 100)
    assert seen.renewed - got.now in range(30, 35)
    assert seen.expires == seen.renewed + 60
    run(folder, "renew", claim=THEIRS, longest=100, since=got.now, clock=90)
    seen = run(folder, "look").lease
    assert seen is not None
    assert seen.expires == got.now + 100, "never later than the end at the latest"


def test_one_that_is_not_renewed_is_over_by_the_nodes_own_clock(folder: Path) -> None:
    run(folder, "take", claim=THEIRS, longest=3600)
    assert run(folder, "take", claim=mine(), longest=3600, clock=58).word == "held"
    got = run(folder, "take", claim=mine(), longest=3600, clock=61)
    assert got.word == "expired"
    assert got.lease is not None
    assert (got.lease.run, got.live) == (THEIRS.run, None)
    assert run(folder, "renew", claim=THEIRS, longest=3600).word == "other"


def test_a_lease_with_blanks_in_it_is_read_alike_here_and_there(folder: Path) -> None:
    run(folder, "take", claim=THEIRS, longest=3600)
    file = folder / "lease.json"
    file.write_text(json.dumps(json.loads(file.read_text())) + "\n")
    assert run(folder, "take", claim=mine(), longest=3600).word == "held"
    assert run(folder, "renew", claim=THEIRS, longest=3600).word == "renewed"


def test_only_the_lease_that_was_seen_is_replaced(folder: Path) -> None:
    run(folder, "take", claim=THEIRS, longest=3600)
    assert run(folder, "take", claim=mine(), longest=9, instead=["c0" * 16]).word == "held"
    assert run(folder, "take", claim=mine(), longest=9, instead=["c0" * 16, THEIRS.token]).word == "instead"


def test_release_and_then_nothing(folder: Path) -> None:
    assert run(folder, "look").word == "absent"
    assert run(folder, "release", claim=THEIRS).word == "absent"
    run(folder, "take", claim=THEIRS, longest=3600)
    assert run(folder, "release", claim=THEIRS).word == "released"
    assert list(folder.iterdir()) == []
    assert run(folder, "renew", claim=THEIRS, longest=3600).word == "absent"


FAULTS: dict[str, Callable[[Path], object]] = {
    "is a folder": lambda file: (file.mkdir(), (file / "kept").write_text("x")),
    "is a named pipe": os.mkfifo,
    "is a symbolic link": lambda file: file.symlink_to(file.name),
    "is no plain file": lambda file: socket.socket(socket.AF_UNIX).bind(str(file)),
    "is empty": lambda file: file.touch(),
}
SAYS_NO = "does not say what a lease says"
LINES = ["{", '{"token":"zz"}\n', "\0\xff\n", "garbage\n", "[1]", '{"token":"aa","expires":1}', "x" * 9000]


def spoil(folder: Path, kind: str) -> None:
    """Put something that is no lease in its place: one of FAULTS, or a file of that content."""
    folder.mkdir(mode=0o777, exist_ok=True)
    file = folder / "lease.json"
    file.unlink(missing_ok=True)
    if kind in FAULTS:
        FAULTS[kind](file)
    else:
        file.write_text(kind)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", [*FAULTS, *LINES])
def test_what_is_no_lease_is_told_at_once_and_never_free(folder: Path, kind: str) -> None:
    spoil(folder, kind)
    seen = run(folder, "look")
    assert (seen.word, seen.live, seen.damaged) == ("held", None, kind if kind in FAULTS else SAYS_NO)
    for verb, word in (("take", "held"), ("renew", "other"), ("release", "other")):
        assert run(folder, verb, claim=THEIRS, longest=3600).word == word
    assert run(folder, "take", claim=THEIRS, longest=3600, instead=["1-2"]).word == "held"
    assert run(folder, "look").mark == seen.mark
    assert run(folder, "take", claim=THEIRS, longest=3600, instead=[seen.key]).word == "instead"
    lease = run(folder, "look").lease
    assert lease is not None
    assert lease.token == THEIRS.token
    kept = [one.read_text() for one in folder.glob(".damaged.*/kept")]
    assert kept == ["x"] * (kind == "is a folder"), "whose it is nobody knows"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", [*FAULTS, *LINES])
def test_what_is_no_lease_is_removed_if_it_is_still_that(folder: Path, kind: str) -> None:
    spoil(folder, kind)
    seen = run(folder, "look")
    spoil(folder, "another") if "is" not in kind else None
    first = run(folder, "release", token=seen.key).word
    assert first == ("released" if "is" in kind else "other")
    run(folder, "release", token=run(folder, "look").key)
    assert run(folder, "look").word == "absent"


def test_a_lease_that_this_user_may_not_read_is_not_free(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything: the question is answered as for others."""
    spoil(folder, "x")
    monkeypatch.setattr(text, "SCRIPT", text.SCRIPT.replace('! -r "$file"', "1 = 1"))
    got = run(folder, "take", claim=THEIRS, longest=3600)
    assert (got.word, got.damaged) == ("held", "may not be read by this user")


def test_a_link_to_nowhere_is_no_free_folder(folder: Path) -> None:
    folder.symlink_to("nowhere")
    with pytest.raises(CommandFailed, match="is not a folder that this user may write to"):
        run(folder, "look")


@pytest.mark.parametrize(
    ("times", "odd"),
    [
        ({}, ""),
        ({"expires": 3 * 86400}, "it counts for 3 days more, where 60 s are usual"),
        ({"since": 7300}, "it was written in the future by the node's clock (2 h ahead)"),
        ({"renewed": 7300, "expires": 7360}, "it was written in the future by the node's clock (2 h ahead)"),
        ({"renewed": 20, "expires": 80}, ""),
    ],
)
def test_times_that_no_run_writes_are_told_and_hold_the_node(folder: Path, times: dict[str, int], odd: str) -> None:
    run(folder, "take", claim=THEIRS, longest=3600)
    file = folder / "lease.json"
    told = json.loads(file.read_text())
    file.write_text(json.dumps(told | {name: told["since"] + value for name, value in times.items()}) + "\n")
    got = run(folder, "take", claim=mine(), longest=3600)
    assert (got.word, got.odd) == ("held", odd)
    assert got.live is not None
    assert text.whose("n", got, HERE).endswith(f"; {odd}: was its clock moved?" if odd else "at the latest")


def test_of_twenty_who_ask_at_once_one_gets_it(folder: Path) -> None:
    got: list[str] = []

    def ask(number: int) -> None:
        got.append(run(folder, "take", claim=mine(token=f"{number:032x}"), longest=3600).word)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == ["held"] * 19 + ["taken"]


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_folder_that_is_none_is_refused(folder: Path, tmp_path: Path, kind: str) -> None:
    folder.symlink_to(tmp_path) if kind == "link" else folder.write_text("x")
    argv = [str(folder) if word == text.FOLDER else word for word in text.argv("take", claim=THEIRS, longest=9)]
    got = Local().run(argv, check=False)
    assert (got.code, "is not a folder that this user may write to" in got.err) == (73, True)
    assert not (tmp_path / "lease.json").exists()


@pytest.mark.parametrize("said", ["", "taken", "stolen 12\n", "held x\n"])
def test_what_is_no_answer_is_none(said: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        text.parse(said)


# ---------------------------------------------------------------------- words


def test_whose_a_node_is_by_our_clock() -> None:
    now = 1_000_000  # the node's clock is wrong by years
    lease = Lease(owner="ops2@bastion", host="b", run="20261130-1850-c01d22", token="t", since=now - 4200,
                  renewed=now - 4, expires=now + 56, ends=now + 10800)  # fmt: skip
    assert text.taken("mi355x-02", lease, now, HERE) == (
        "mi355x-02 is leased by ops2@bastion for run 20261130-1850-c01d22 since 18:50, renewed 4 s ago, "
        "ends 23:00 at the latest"
    )
    assert text.clock(HERE, now, now + 5 * 3600) == "2026-12-01 01:00"
    assert text.clock(HERE, now, 10**30), "nonsense is no traceback"


@pytest.mark.parametrize(
    ("seconds", "said"), [(-3, "0 s"), (4, "4 s"), (119, "119 s"), (600, "10 min"), (7300, "2 h"), (400000, "5 days")]
)
def test_ages(seconds: int, said: str) -> None:
    assert text.age(seconds) == said


# ---------------------------------------------------------------------- who may replace whose


def put(world: World, node: str, claim: Claim, **options: object) -> None:
    got = world.nodes[node].lease(text.argv("take", claim=claim, longest=7200, **options))  # type: ignore[arg-type]
    assert got.ok, got.err


def on(world: World, node: str) -> Lease | None:
    return text.parse(world.nodes[node].lease(text.argv("look")).out).live


def test_all_nodes_are_held_and_given_back() -> None:
    world = World()
    with held(world.session, [FIRST, SECOND], "20261130-r", longest=7200, wish=Wish()):
        for node in (FIRST, SECOND):
            lease = on(world, node)
            assert lease is not None
            assert (lease.owner, lease.run, lease.pid) == (owner(), "20261130-r", os.getpid())
    assert (on(world, FIRST), on(world, SECOND)) == (None, None)


def test_given_back_after_an_error_and_after_an_interrupt() -> None:
    for error in (HostError("x"), KeyboardInterrupt()):
        world = World()
        with pytest.raises(type(error)), held(world.session, [FIRST], RUN, longest=9, wish=Wish()):
            raise error
        assert on(world, FIRST) is None


def test_all_or_none() -> None:
    world = World()
    put(world, SECOND, THEIRS)
    with pytest.raises(LeaseHeld) as told, held(world.session, [FIRST, SECOND], RUN, longest=9, wish=Wish()):
        raise AssertionError
    assert told.value.exit_code == 5
    said = (
        rf"{SECOND} is leased by ops2@bastion .* for run {THEIRS.run} since .*, renewed \d s ago, ends .* at the latest"
    )
    assert re.fullmatch(said, told.value.what)
    assert told.value.hint == (
        "wait: --wait   ·   see it: invoke leases --inventory inventories/example-mi355x.yaml   ·   "
        "take it: --steal (their run will be stopped and keeps its finished points)"
    )
    assert on(world, FIRST) is None
    theirs = on(world, SECOND)
    assert theirs is not None
    assert theirs.token == THEIRS.token


@pytest.fixture
def ended() -> Iterator[tuple[int, str]]:
    """A process that was there, and which one it was."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    known = leases.process(process.pid)
    assert known
    process.communicate(b"\n")
    return iter([(process.pid, known)])  # type: ignore[return-value]


def test_a_lease_of_the_same_run_or_of_a_dead_process_of_ours_is_retaken_at_once(
    ended: Iterator[tuple[int, str]],
) -> None:
    pid, process = next(ended)
    for run_, claim, line in (
        (RUN, mine(run=RUN, token="a1" * 16), None),
        (RUN, mine(token="a2" * 16, pid=pid, process=process), f"its process {pid} has ended: taken over"),
        (RUN, mine(token="a3" * 16, process=f"{leases._place()}/1"), "has ended: taken over"),
    ):
        world = World()
        put(world, FIRST, claim)
        with held(world.session, [FIRST], run_, longest=9, wish=Wish()):
            lease = on(world, FIRST)
            assert lease is not None
            assert lease.run == RUN
        told = [text_ for stage, _, text_, done in world.told.hosts if stage == "lease" and done]
        assert [bool(line and line in one) for one in told] == [True] * bool(line)


def test_a_live_process_of_ours_and_a_process_elsewhere_hold_their_node(ended: Iterator[tuple[int, str]]) -> None:
    pid, process = next(ended)
    for claim in (
        mine(),
        mine(owner="other@here", pid=pid, process=process),
        mine(host="elsewhere", pid=pid, process=process),
        mine(pid=pid, process=f"another-boot/{process}"),
    ):
        world = World()
        put(world, FIRST, claim)
        with pytest.raises(LeaseHeld), held(world.session, [FIRST], RUN, longest=9, wish=Wish()):
            pass


def test_waiting_says_for_whom_once_and_goes_on_when_they_leave() -> None:
    world = World()
    put(world, SECOND, THEIRS)

    def leave() -> None:
        while not any("waiting" in line for line in world.told.lines):
            time.sleep(0.01)
        world.nodes[SECOND].lease(text.argv("release", claim=THEIRS))

    thread = threading.Thread(target=leave)
    thread.start()
    with held(world.session, [FIRST, SECOND], RUN, longest=9, wish=Wish(wait=True)):
        assert on(world, SECOND)
    thread.join()
    (line,) = world.told.lines
    assert re.fullmatch(rf"  waiting    {SECOND} is leased by .* since .*; \^C leaves", line)


def test_a_stolen_node_is_waited_for_until_their_containers_have_stopped() -> None:
    world = World()
    put(world, SECOND, THEIRS)
    box = Box("fleet-x", labels={"run": THEIRS.run, "owner": THEIRS.owner})
    world.nodes[SECOND].boxes["fleet-x"] = box

    def stop() -> None:
        while not world.told.lines:
            time.sleep(0.01)
        box.end(0)

    thread = threading.Thread(target=stop)
    thread.start()
    with held(world.session, [SECOND], RUN, longest=9, wish=Wish(steal=True)):
        assert box.state == "exited"
        lease = on(world, SECOND)
        assert lease is not None
        assert lease.run == RUN
    thread.join()
    ((_, node, said, _),) = [one for one in world.told.hosts if one[0] == "lease"]
    assert node == SECOND
    assert re.fullmatch(
        rf"taken from run {THEIRS.run} of .* \(there for \d s, renewed \d s ago\): it will be stopped", said
    )
    assert world.nodes[SECOND].asked("docker (stop|rm|kill)") == []


def test_their_run_that_does_not_stop_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "GIVEN_UP_SECONDS", 0.1)
    world = World()
    put(world, SECOND, THEIRS)
    world.nodes[SECOND].boxes["fleet-x"] = Box("fleet-x", labels={"run": THEIRS.run, "owner": THEIRS.owner})
    said = f"{SECOND}: run {THEIRS.run} of .* has not stopped: fleet-x"
    wish = Wish(steal=True)
    with pytest.raises(HostError, match=said) as told, held(world.session, [SECOND], RUN, longest=9, wish=wish):
        pass
    assert f"invoke down --run {THEIRS.run}" in told.value.hint
    assert on(world, SECOND) is None


# ---------------------------------------------------------------------- losing it


def steal(world: World, node: str) -> None:
    lease = on(world, node)
    assert lease is not None
    put(world, node, THEIRS, instead=[lease.token])


def until(world: World) -> LeaseHeld:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            world.session.go_on()
        except LeaseHeld as lost:
            return lost
        time.sleep(0.01)
    raise AssertionError("nothing was lost")


def test_a_stolen_lease_stops_the_work_says_by_whom_and_is_not_given_back() -> None:
    world = World()
    with held(world.session, [FIRST, SECOND], RUN, longest=9000, wish=Wish(), kept=lambda: "2 points kept"):
        steal(world, SECOND)
        lost = until(world)
    assert lost.exit_code == 5
    assert re.match(rf"the lease of {SECOND} was taken by ops2@bastion .* for run {THEIRS.run}: ", lost.what)
    assert lost.head.endswith("this run was stopped; 2 points kept")
    theirs = on(world, SECOND)
    assert theirs is not None
    assert theirs.token == THEIRS.token
    assert on(world, FIRST) is None
    world.session.go_on()


@pytest.mark.parametrize("kind", [None, "garbage\n", *FAULTS])
def test_a_lease_that_was_cleaned_away_is_written_again(kind: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "EVERY", 3600.0)
    world = World()
    with held(world.session, [FIRST], RUN, longest=9000, wish=Wish()) as hold:
        before = on(world, FIRST)
        assert before is not None
        place(world, FIRST).joinpath("lease.json").unlink()
        if kind is not None:
            spoil(place(world, FIRST), kind)
        hold.renew()
        world.session.go_on()
        after = on(world, FIRST)
        assert after is not None
        assert after.token == before.token
        assert f"  lease      {FIRST}: its file was gone or damaged, and is written again" in world.told.lines
    assert on(world, FIRST) is None


# ---------------------------------------------------------------------- what is no lease


def place(world: World, node: str) -> Path:
    return Path(world.nodes[node].leases.name) / "lease"


def last(world: World, node: str, **times: int) -> None:
    """Write other times into a node's lease: seconds from now."""
    file = place(world, node) / "lease.json"
    told = json.loads(file.read_text())
    file.write_text(json.dumps(told | {name: int(time.time()) + value for name, value in times.items()}) + "\n")


@pytest.mark.parametrize("kind", [*FAULTS, "garbage\n"])
def test_a_node_whose_lease_is_none_is_refused_with_the_ways_out(kind: str) -> None:
    world = World()
    spoil(place(world, SECOND), kind)
    with pytest.raises(LeaseHeld) as told, held(world.session, [FIRST, SECOND], RUN, longest=9, wish=Wish()):
        raise AssertionError
    why = kind if kind in FAULTS else SAYS_NO
    assert told.value.what == f"{SECOND}: /var/tmp/fleet-lease/lease.json {why}: nobody can tell who has the node"
    assert told.value.hint.splitlines() == [
        "wait: --wait   ·   see it: invoke leases --inventory inventories/example-mi355x.yaml   ·   "
        "take it: --steal (their run will be stopped and keeps its finished points)",
        "a run that lives writes its lease anew within 0 s; "
        "remove one that is damaged: invoke reap --inventory inventories/example-mi355x.yaml",
    ]
    assert on(world, FIRST) is None


@pytest.mark.parametrize("kind", [*FAULTS, "garbage\n"])
def test_it_is_taken_with_a_word(kind: str) -> None:
    world = World()
    spoil(place(world, SECOND), kind)
    with held(world.session, [SECOND], RUN, longest=9, wish=Wish(steal=True)):
        lease = on(world, SECOND)
        assert lease is not None
        assert lease.run == RUN
    ((_, node, said, _),) = world.told.hosts
    why = kind if kind in FAULTS else SAYS_NO
    assert (node, said) == (SECOND, f"/var/tmp/fleet-lease/lease.json {why}: taken over, whoever had it")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("odd", [False, True])
def test_it_is_waited_for_as_long_as_a_run_that_lives_takes_to_mend_it(
    odd: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "IN_VAIN", 0.2)
    world = World()
    if odd:
        put(world, SECOND, THEIRS)
        last(world, SECOND, expires=3 * 86400)
        said = rf"{SECOND} is leased by .*; it counts for 3 days more, where 60 s are usual: was its clock moved\?"
    else:
        spoil(place(world, SECOND), "is a named pipe")
        said = rf"{SECOND}: /var/tmp/fleet-lease/lease.json is a named pipe: nobody can tell who has the node"
    with pytest.raises(LeaseHeld, match=said), held(world.session, [SECOND], RUN, longest=9, wish=Wish(wait=True)):
        raise AssertionError
    (line,) = world.told.lines
    assert re.fullmatch(rf"  waiting    {said}; \^C leaves", line)


def test_one_that_is_mended_meanwhile_is_waited_for_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "IN_VAIN", 0.5)
    world = World()
    spoil(place(world, SECOND), "is empty")

    def mend() -> None:
        while not any("waiting" in line for line in world.told.lines):
            time.sleep(0.01)
        place(world, SECOND).joinpath("lease.json").unlink()
        put(world, SECOND, THEIRS)
        time.sleep(1.0)
        world.nodes[SECOND].lease(text.argv("release", claim=THEIRS))

    thread = threading.Thread(target=mend)
    thread.start()
    with held(world.session, [SECOND], RUN, longest=9, wish=Wish(wait=True)):
        assert on(world, SECOND)
    thread.join()
    assert ["is empty" in line for line in world.told.lines] == [True, False]


def test_leases_say_what_is_strange_and_the_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    spoil(place(world, FIRST), "is a named pipe")
    put(world, SECOND, THEIRS)
    last(world, SECOND, since=7300)
    nodes, errors = leases.leases(world.session)
    assert (errors, [one.state for one in nodes[:2]]) == ([], ["damaged", "live"])
    assert nodes[0].to_json()["why"] == "/var/tmp/fleet-lease/lease.json is a named pipe"
    ui.leases(nodes, HERE)
    said = capsys.readouterr().out.splitlines()
    assert said[-2:] == [
        f"{FIRST}: /var/tmp/fleet-lease/lease.json is a named pipe; what removes it: invoke reap",
        f"{SECOND}: it was written in the future by the node's clock (2 h ahead); "
        f"if that run is over: invoke down --run {THEIRS.run}",
    ]


@pytest.mark.parametrize("kind", [*FAULTS, "garbage\n"])
def test_reap_removes_it_and_leaves_alone_whose_lease_it_may_have_been(tmp_path: Path, kind: str) -> None:
    world = World()
    spoil(place(world, FIRST), kind)
    one = world.nodes[FIRST]
    one.boxes["a"] = Box("a", labels={"run": DEAD, "owner": "x@y"})
    plan = reaper.reap(world.session, tmp_path, lambda m, c: None, look=True)
    found = reaper.reap(world.session, tmp_path, lambda m, c: None)
    assert plan == found
    why = kind if kind in FAULTS else SAYS_NO
    assert found.done[FIRST] == [f"damaged lease: /var/tmp/fleet-lease/lease.json {why}"]
    assert found.left == [
        f"run {DEAD} of x@y on {FIRST} (/var/tmp/fleet-lease/lease.json {why}: if it lives it writes its lease anew; "
        "a minute after this one is removed invoke reap knows)"
    ]
    assert list(one.boxes) == ["a"]
    assert reaper.reap(world.session, tmp_path, lambda m, c: None).done[FIRST] == [f"run {DEAD}: a"]


def test_reap_names_a_lease_that_lasts_too_long_and_what_removes_it(tmp_path: Path) -> None:
    world = World()
    put(world, FIRST, THEIRS)
    last(world, FIRST, expires=3 * 86400)
    found = reaper.reap(world.session, tmp_path, lambda m, c: None)
    assert found.done[FIRST] == []
    assert found.left[-1] == (
        f"the lease of run {THEIRS.run} of {THEIRS.owner} on {FIRST}: it counts for 3 days more, where 60 s are usual; "
        f"if it is over: invoke down --run {THEIRS.run}"
    )


def test_before_containers_are_started_it_is_asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who takes a node waits for containers that run there, and cannot for those to come."""
    monkeypatch.setattr(leases, "EVERY", 3600.0)
    world = World()
    with held(world.session, [FIRST], RUN, longest=9000, wish=Wish()) as hold:
        hold.check()
        steal(world, FIRST)
        with pytest.raises(LeaseHeld, match="was taken by"):
            hold.check()


def test_a_renewal_that_does_not_come_through_is_told_once_and_no_loss() -> None:
    world = World()
    with held(world.session, [FIRST], RUN, longest=9000, wish=Wish()) as hold:
        world.nodes[FIRST].first = [(lambda argv: "fleet-lease" in argv, Unreachable("no route", where=FIRST))]
        hold.renew()
        hold.renew()
        world.session.go_on()
        world.nodes[FIRST].first = []
        hold.renew()
        world.session.go_on()
    (line,) = world.told.lines
    assert line == f"  lease      {FIRST}: not renewed (no route); asked again every 0 s"


def test_a_node_that_cannot_be_leased_is_told_after_what_preflight_says() -> None:
    world = World()
    world.nodes[SECOND].first = [(lambda argv: "fleet-lease" in argv, (73, "", "x is not a folder\n"))]
    with held(world.session, [FIRST, SECOND], RUN, longest=9, wish=Wish()):
        preflight.preflight(world.session, world.plan)
        with pytest.raises(HostError, match=f"{SECOND}: the lease cannot be used: x is not a folder"):
            world.session.go_on()
    assert on(world, FIRST) is None


# ---------------------------------------------------------------------- the whole road


def a_road(tmp_path: Path) -> tuple[World, Road]:
    world = World(a_plan("1p1d-mtp3", (4, 8)))
    folder = RunFolder(tmp_path / RUN)
    folder.path.mkdir()
    return world, Road(world.session, world.plan, folder)


def test_a_sweep_holds_its_nodes_and_gives_them_back(tmp_path: Path) -> None:
    world, made = a_road(tmp_path)
    seen: list[str] = []
    usual = world.client_ends

    def ends(node: object, box: Box) -> None:
        seen.extend(lease.run for lease in (on(world, FIRST), on(world, SECOND)) if lease)
        usual(node, box)  # type: ignore[arg-type]

    world.client_ends = ends  # type: ignore[method-assign]
    assert made.go() == 0
    assert seen == [RUN] * 4
    assert (on(world, FIRST), on(world, SECOND)) == (None, None)


def test_a_taken_node_is_told_before_any_container_is_looked_at(tmp_path: Path) -> None:
    world, made = a_road(tmp_path)
    put(world, FIRST, THEIRS)
    with pytest.raises(LeaseHeld):
        made.go()
    assert all(node.asked("docker") == [] for node in world.nodes.values())
    assert "is leased by" in made.folder.summary_text.read_text()


def test_a_sweep_whose_node_is_stolen_stops_keeps_points_and_clears_up(tmp_path: Path) -> None:
    world, made = a_road(tmp_path)
    usual = world.client_ends

    def ends(node: object, box: Box) -> None:
        if box.labels["point"].endswith("c4"):
            usual(node, box)  # type: ignore[arg-type]
        elif (lease := on(world, FIRST)) and lease.run == RUN:
            steal(world, FIRST)

    world.client_ends = ends  # type: ignore[method-assign]
    with pytest.raises(LeaseHeld, match="was taken by") as told:
        made.go()
    assert f"1 finished point kept in {made.folder.path}" in str(told.value)
    done, stopped = made.folder.records()
    assert (done.state, done.valid, stopped.state) == ("done", True, "incomplete")
    assert any("was taken by" in reason for reason in stopped.verdict.reasons)
    assert [name for node in world.nodes.values() for name in node.boxes] == []
    assert made.folder.log("1p1d-mtp3", "decode0").exists()


# ---------------------------------------------------------------------- leases, reap


def test_what_the_nodes_say_of_their_leases(ended: Iterator[tuple[int, str]]) -> None:
    pid, process = next(ended)
    world = World()
    names = world.session.names
    put(world, names[0], THEIRS)
    put(world, names[1], mine(pid=pid, process=process))
    world.nodes[names[2]].first = [(lambda argv: True, Unreachable("gone", where=names[2]))]
    nodes, errors = leases.leases(world.session)
    assert [(node.host, node.state) for node in nodes] == [(names[0], "live"), (names[1], "dead"), (names[3], "free")]
    assert [str(error) for error in errors] == [f"{names[2]}: gone"]
    told = json.loads(json.dumps(nodes[0].to_json()))
    assert (told["lease"]["owner"], told["state"]) == (THEIRS.owner, "live")
    assert leases.live(nodes).keys() == {THEIRS.run}


DEAD = "20261129-100000-k-abcdef"


def test_reap_removes_what_is_dead_after_its_logs_and_names_the_rest(tmp_path: Path) -> None:
    world = World()
    one, two = world.nodes[FIRST], world.nodes[SECOND]
    put(world, FIRST, THEIRS)
    put(world, SECOND, mine(run=DEAD, process=f"{leases._place()}/1"))
    for name, run_ in (("a", DEAD), ("b", THEIRS.run), ("c", "20261129-110000-locked")):
        one.boxes[name] = Box(name, labels={"run": run_, "owner": "x@y"})
    two.boxes["d"] = Box("d", labels={"run": DEAD, "owner": "x@y"})
    one.boxes["web"] = Box("web", image="nginx")
    one.folders = [DEAD, THEIRS.run, "lost+found", "models"]
    locked = tmp_path / "20261129-110000-locked" / ".lock"
    locked.parent.mkdir()
    kept: list[str] = []
    with subprocess.Popen(["flock", str(locked), "-c", "echo; read x"], stdin=-1, stdout=-1) as holder:
        assert holder.stdout
        holder.stdout.readline()
        plan = reaper.reap(world.session, tmp_path, lambda m, c: kept.append(c.name), look=True)
        assert (kept, sorted(one.boxes)) == ([], ["a", "b", "c", "web"])
        found = reaper.reap(world.session, tmp_path, lambda m, c: kept.append(c.name))
        holder.communicate(b"\n")
    assert plan == found
    assert sorted(kept) == ["a", "d"]
    assert (sorted(one.boxes), sorted(two.boxes)) == (["b", "c", "web"], [])
    assert one.asked("^rm ") == [f"rm -rf /data/fleet/{DEAD}"]
    assert found.done[FIRST] == [f"run {DEAD}: a", f"scratch folder of {DEAD}"]
    assert found.done[SECOND] == [f"run {DEAD}: d", f"dead lease of run {DEAD} of {owner()}"]
    assert sorted(found.left) == [
        f"1 container of strangers on {FIRST}",
        f"run 20261129-110000-locked of x@y on {FIRST} (a process here drives it)",
        f"run {THEIRS.run} of x@y on {FIRST} (leased, driven from bastion)",
    ]
    one.folders = []
    again = reaper.reap(world.session, tmp_path, lambda m, c: kept.append(c.name))
    assert (again.done[SECOND], again.errors) == ([], [])
    assert again.done[FIRST] == ["run 20261129-110000-locked: c"], "nobody holds its lock any more"


def test_reap_does_what_it_can_where_a_host_is_lost_or_a_log_does_not_come(tmp_path: Path) -> None:
    world = World()
    for name in (FIRST, SECOND):
        world.nodes[name].boxes["a"] = Box("a", labels={"run": DEAD})
    world.nodes[world.session.names[2]].first = [(lambda argv: True, Unreachable("gone", where="x"))]

    def keep(machine: object, container: object) -> None:
        if getattr(machine, "name", "") == FIRST:
            raise HostError("no space", where=FIRST)

    found = reaper.reap(world.session, tmp_path, keep)  # type: ignore[arg-type]
    assert [str(error) for error in found.errors] == ["x: gone", f"{FIRST}: no space"]
    assert list(world.nodes[FIRST].boxes) == ["a"]
    assert found.done[SECOND] == [f"run {DEAD}: a"]


def test_reap_stops_what_this_disk_takes_no_log_of_and_keeps_its_folder(tmp_path: Path) -> None:
    world = World()
    one, other = world.nodes[FIRST], "20261129-110000-other"
    one.boxes = {name: Box(name, labels={"run": run_}) for name, run_ in (("a", DEAD), ("b", DEAD), ("c", other))}
    one.folders = [DEAD, other]

    def keep(machine: object, container: Container) -> None:
        if container.name == "a":
            raise NotKept("Read-only file system", where="results/r/a.log")

    found = reaper.reap(world.session, tmp_path, keep)
    assert found.done[FIRST] == [f"run {DEAD}: b", f"run {other}: c", f"scratch folder of {other}"]
    assert [(name, box.state) for name, box in one.boxes.items()] == [("a", "exited")]
    (error,) = found.errors
    assert str(error).splitlines() == [
        f"{FIRST}: Read-only file system: the log of a could not be saved as results/r/a.log",
        "its container stays, stopped",
        "free some space there, or name another folder: INVOKE_FLEET_RESULTS=FOLDER before invoke",
        "then this brings the logs home and removes the containers: "
        "invoke reap --inventory inventories/example-mi355x.yaml",
    ]


@pytest.mark.parametrize(("run_", "safe"), [("../../etc", "_.._etc"), ("a/b", "a_b"), ("", "unnamed"), (RUN, RUN)])
def test_a_label_is_no_path(run_: str, safe: str) -> None:
    assert reaper.plain(run_) == safe
