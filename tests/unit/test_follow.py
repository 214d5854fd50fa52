"""Logs that are followed, over scripted hosts whose containers write, end, vanish and start while one looks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.docker import Container, secrets_path
from fleet.errors import HostError, Unreachable, UsageError
from fleet.stages import follow as follows
from fleet.stages.follow import Follow, Look
from fleet.stages.health import seat_of
from fleet.timeline import Offset, Told
from tests.wire import Wire
from tests.world import RUN, World

FIRST, SECOND = "mi355x-01", "mi355x-02"
LOST = Unreachable("connection refused", where=SECOND)


class Bench:
    """A deployment that runs on two hosts; its wires by host."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.wires = {name: Wire(world.nodes[name]) for name in (FIRST, SECOND)}
        world.session.transports.update(self.wires)
        for name in world.session.transports.keys() - self.wires.keys():
            del world.session.transports[name]
        hosts = tuple(host for host in world.session.inventory.hosts if host.name in self.wires)
        object.__setattr__(world.session, "inventory", world.session.inventory.model_copy(update={"hosts": hosts}))

    def write(self, seat: str, *texts: str) -> None:
        self._wire(seat).write(self.world.box(seat), *texts)

    def end(self, seat: str, code: int = 0, *, remove: bool = False) -> None:
        self._wire(seat).end(self.world.box(seat), code, remove=remove)

    def _wire(self, seat: str) -> Wire:
        return self.wires[SECOND if seat.startswith("decode") else FIRST]


class Heard:
    """What a follow tells, kept by a thread as it comes."""

    def __init__(self, follow: Follow) -> None:
        self.follow, self.told, self.fault = follow, list[Told](), list[BaseException]()
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def _listen(self) -> None:
        try:
            for one in self.follow.lines():
                self.told.append(one)
        except BaseException as fault:
            self.fault.append(fault)

    @property
    def texts(self) -> list[str]:
        return [f"{one.line.seat}: {one.line.text}" for one in list(self.told) if not one.line.note]

    @property
    def notes(self) -> list[str]:
        return [f"{one.line.seat or one.line.host}: {one.line.text}" for one in list(self.told) if one.line.note]

    def until(self, right: Callable[[], bool], within: float = 10.0) -> None:
        end = time.monotonic() + within
        while not right():
            assert time.monotonic() < end, (self.texts, self.notes, self.fault)
            time.sleep(0.01)

    def over(self) -> None:
        self.thread.join(10)
        assert not self.thread.is_alive(), (self.texts, self.notes)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    for name, seconds in {"TURN": 0.1, "LINGER": 0.2, "WINDOW": 0.1, "TICK": 0.01, "ANSWER_SECONDS": 0.3}.items():
        monkeypatch.setattr(follows, name, seconds)
    world = World()
    world.running(tmp_path)
    return Bench(world)


@pytest.fixture
def listen(bench: Bench) -> Iterator[Callable[..., Heard]]:
    """`listen(…)` follows the run; everything is ended with the test."""
    begun: list[Follow] = []

    def begin(**options: Any) -> Heard:
        session = bench.world.session
        begun.append(Follow(session, RUN, follows.look(session), **options))
        return Heard(begun[-1])

    yield begin
    for one in begun:
        one.__exit__(None, None, None)


def only(role: str) -> Callable[[Container], bool]:
    return lambda one: one.labels["role"] == role


Listen = Callable[..., Heard]


def test_lines_of_all_hosts_are_on_one_timeline(bench: Bench, listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follows, "WINDOW", 0.5)
    bench.world.nodes[SECOND].clock = 30.0
    bench.write("prefill0", "1")
    time.sleep(0.02)
    bench.write("decode0", "2")
    heard = listen()
    heard.until(lambda: len(heard.texts) == 2)
    for number in range(3, 9, 2):
        bench.write("decode0", f"{number}")
        time.sleep(0.02)
        bench.write("router", f"{number + 1}")
        time.sleep(0.02)
    heard.until(lambda: len(heard.texts) == 8)
    assert [text[-1] for text in heard.texts] == [f"{number}" for number in range(1, 9)]
    assert {one.late for one in heard.told} == {0}
    assert all(abs(one.line.time - time.time()) < 10 for one in heard.told)
    assert heard.follow.heading.startswith(f"run {RUN}\nprefill0, router on mi355x-01; decode0 on mi355x-02   ")
    assert f"clock of {SECOND} +30.0 s, put right" in heard.follow.heading


def test_the_end_of_a_container_is_told_and_the_others_go_on(bench: Bench, listen: Listen) -> None:
    heard = listen()
    bench.write("decode0", "last words")
    bench.end("decode0", 137)
    heard.until(lambda: heard.notes == ["decode0: ended (exit 137: killed)"])
    assert heard.texts == ["decode0: last words"]
    bench.write("prefill0", "I go on")
    heard.until(lambda: heard.texts[-1:] == ["prefill0: I go on"])
    bench.end("prefill0")
    bench.end("router", 1)
    heard.over()
    assert sorted(heard.notes[1:3]) == ["prefill0: ended (exit 0)", "router: ended (exit 1: failed)"]
    assert heard.notes[3:] == [": all services have ended; waiting 0.2 s for more"]
    assert heard.follow.code == 0
    assert not heard.fault


def test_a_container_that_is_removed_at_once_has_its_exit_code_told(bench: Bench, listen: Listen) -> None:
    heard = listen()
    bench.end("decode0", 3, remove=True)
    heard.until(lambda: heard.notes == ["decode0: ended (exit 3: failed)"])


def test_the_news_of_a_death_may_come_after_the_end_of_the_log(bench: Bench, listen: Listen) -> None:
    heard = listen(wanted=only("decode"))
    wire = bench.wires[SECOND]
    bench.end("decode0", 3, remove=True)
    news = wire.rows.pop()
    wire.asked_for("docker inspect")
    wire.rows.append((wire.now(), news[1]))
    heard.until(lambda: heard.notes == ["decode0: ended (exit 3: failed)"])


def test_a_container_that_is_gone_without_a_word(bench: Bench, listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follows, "DEATH_SECONDS", 0.05)
    heard = listen(wanted=only("decode"))
    bench.wires[SECOND].rows.clear()
    box = bench.world.box("decode0")
    del bench.world.nodes[SECOND].boxes[box.name]
    box.end(0)
    heard.until(lambda: heard.notes == ["decode0: ended (its container is gone)"])


def test_what_had_ended_before_is_told_in_its_place(bench: Bench, listen: Listen) -> None:
    bench.write("decode0", "1")
    bench.end("decode0", 1)
    time.sleep(0.02)
    bench.write("router", "2")
    heard = listen()
    heard.until(lambda: len(heard.told) == 3)
    assert [one.line.text for one in heard.told] == ["1", "ended (exit 1: failed)", "2"]
    assert {one.late for one in heard.told} == {0}
    turns = len(bench.world.nodes[SECOND].asked("docker ps"))
    heard.until(lambda: len(bench.world.nodes[SECOND].asked("docker ps")) > turns + 3)
    assert len(heard.told) == 3


def test_a_container_that_is_started_again_is_followed_again(bench: Bench, listen: Listen) -> None:
    heard = listen(wanted=only("decode"))
    bench.write("decode0", "1")
    bench.end("decode0", 1)
    heard.until(lambda: heard.notes == ["decode0: ended (exit 1: failed)"])
    bench.world.box("decode0").state = "running"
    bench.write("decode0", "2")
    heard.until(lambda: heard.texts == ["decode0: 1", "decode0: 2"])
    bench.end("decode0", 2)
    heard.until(lambda: heard.notes[1:] == ["decode0: ended (exit 2: failed)"])


def test_a_death_while_the_host_was_lost_is_known_afterwards(bench: Bench, listen: Listen) -> None:
    heard = listen(wanted=only("decode"))
    wire = bench.wires[SECOND]
    wire.asked_for("docker events")
    wire.cut = True
    bench.end("decode0", 3, remove=True)
    heard.until(lambda: len(heard.notes) == 1)
    wire.cut = False
    heard.until(lambda: len(heard.notes) == 3)
    assert set(heard.notes[1:]) == {f"{SECOND}: answers again", "decode0: ended (exit 3: failed)"}


def test_the_next_arm_is_followed_and_another_run_is_not(bench: Bench, listen: Listen) -> None:
    heard = listen()
    bench.wires[FIRST].start("stranger", run="other-run", role="decode")
    for seat in ("prefill0", "decode0", "router"):
        bench.end(seat, remove=True)
    box = bench.wires[SECOND].start("fleet-x-decode1", role="decode", rank="1", arm="2p1d")
    bench.wires[SECOND].write(box, "hello")
    heard.until(lambda: heard.texts == ["decode1: hello"])
    assert "decode1: started (arm 2p1d)" in heard.notes
    assert not any("all services" in note for note in heard.notes)
    bench.wires[SECOND].end(box, 0)
    heard.over()
    assert heard.follow.code == 0


def test_what_started_unnoticed_is_found_at_the_next_turn(bench: Bench, listen: Listen) -> None:
    heard = listen()
    box = bench.wires[SECOND].start("fleet-x-decode1", role="decode", rank="1")
    bench.wires[SECOND].rows.clear()
    bench.wires[SECOND].write(box, "hello")
    heard.until(lambda: heard.texts == ["decode1: hello"])


def test_a_lost_host_is_told_and_the_rest_goes_on(bench: Bench, listen: Listen) -> None:
    heard = listen()
    bench.write("decode0", "before")
    heard.until(lambda: heard.texts == ["decode0: before"])
    bench.wires[SECOND].cut = True
    heard.until(lambda: len(heard.notes) == 1)
    assert heard.notes == [f"{SECOND}: lost: no answer; goes on when it answers"]
    bench.write("router", "I go on")
    heard.until(lambda: heard.texts[-1] == "router: I go on")
    bench.end("prefill0")
    bench.end("router")
    heard.over()
    assert heard.notes[-1] == f": what has not ended is on {SECOND}; waiting 0.2 s for more"
    assert heard.follow.code == 3


def test_a_host_that_is_back_goes_on_without_gap_or_repeat(bench: Bench, listen: Listen) -> None:
    heard = listen()
    bench.write("decode0", "1")
    heard.until(lambda: len(heard.texts) == 1)
    bench.wires[SECOND].cut = True
    heard.until(lambda: len(heard.notes) == 1)
    bench.write("decode0", "2", "3")
    bench.end("decode0", 1)
    bench.wires[SECOND].cut = False
    heard.until(lambda: len(heard.notes) == 3)
    assert heard.texts == [f"decode0: {number}" for number in (1, 2, 3)]
    assert set(heard.notes[1:]) == {f"{SECOND}: answers again", "decode0: ended (exit 1: failed)"}
    assert heard.follow.code == 0


def test_a_host_that_never_answered_joins_when_it_does(bench: Bench, listen: Listen) -> None:
    bench.wires[SECOND].cut = True
    heard = listen()
    heard.until(lambda: heard.notes == [f"{SECOND}: does not answer; goes on when it does"])
    assert heard.follow.code == 3
    bench.write("decode0", "hello")
    bench.wires[SECOND].cut = False
    heard.until(lambda: heard.texts == ["decode0: hello"])
    assert heard.follow.code == 0


def test_a_stream_that_reaches_its_deadline_is_taken_up(
    bench: Bench, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follows, "STREAM_SECONDS", 0.05)
    monkeypatch.setattr(follows, "TURN", 30.0)
    heard = listen()
    for number in range(20):
        bench.write("decode0", f"{number}")
        time.sleep(0.01)
    heard.until(lambda: len(heard.texts) == 20)
    assert heard.texts == [f"decode0: {number}" for number in range(20)]
    assert sum("--follow" in one.argv and "--since" in one.argv for one in bench.wires[SECOND].calls) > 1


def test_only_wanted_seats_are_shown_and_all_of_them_keep_it_alive(bench: Bench, listen: Listen) -> None:
    heard = listen(wanted=only("client"))
    assert "none of its services yet" in heard.follow.heading
    bench.write("decode0", "not wanted")
    bench.end("decode0", 1, remove=True)
    turns = len(bench.world.nodes[FIRST].asked("docker ps"))
    heard.until(lambda: len(bench.world.nodes[FIRST].asked("docker ps")) > turns + 5)
    assert heard.thread.is_alive(), "five turns are longer than LINGER"
    assert heard.told == []
    client = bench.wires[FIRST].start("fleet-x-client", role="client", point="1p1d-c4")
    bench.wires[FIRST].write(client, "Warming up")
    heard.until(lambda: heard.texts == ["client: Warming up"])
    assert heard.notes == ["client: started (1p1d-c4)"]
    for box in [*bench.world.nodes[FIRST].boxes.values()]:
        bench.wires[FIRST].end(box, 0, remove=True)
    heard.over()


@pytest.mark.parametrize("tail", [7, 0])
def test_the_tail_is_dockers_and_0_is_all(tail: int, bench: Bench, listen: Listen) -> None:
    heard = listen(tail=tail)
    bench.write("decode0", "x")
    heard.until(lambda: heard.texts == ["decode0: x"])
    (first, *_) = [one.line for one in bench.wires[SECOND].calls if "docker logs" in one.line]
    assert ("--tail 7" in first, "--tail" in first) == (tail == 7, tail == 7)


def test_a_log_that_does_not_come_is_told_once(bench: Bench, listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Wire, argv: list[str]) -> Iterator[bytes]:
        yield b"Error response from daemon: configured logging driver does not support reading\n"

    monkeypatch.setattr(Wire, "_log", refused)
    heard = listen(wanted=only("decode"))
    heard.until(lambda: len([one for one in bench.wires[SECOND].calls if "--follow" in one.argv]) > 2)
    (note,) = heard.notes
    assert note.startswith("decode0: its log does not come: Error response from daemon: configured logging")


def test_docker_that_does_not_answer_is_no_end_of_a_container(bench: Bench, listen: Listen) -> None:
    down = (1, "", "Cannot connect to the Docker daemon")
    heard = listen(wanted=only("decode"))
    bench.write("decode0", "x")
    heard.until(lambda: len(heard.texts) == 1)
    bench.world.nodes[SECOND].first = [("docker inspect", down), ("docker ps", down)]
    bench.world.box("decode0").end(1)
    heard.until(lambda: any("lost: " in note for note in heard.notes))
    assert heard.notes[0].endswith("; Cannot connect to the Docker daemon; goes on when it answers")
    assert not any("ended (" in note for note in heard.notes)
    bench.world.nodes[SECOND].first = []
    heard.until(lambda: heard.notes[-1] == "decode0: ended (exit 1: failed)")


def test_the_end_ends_what_is_under_way(bench: Bench, listen: Listen) -> None:
    heard = listen()
    bench.write("decode0", "x")
    heard.until(lambda: len(heard.texts) == 1)
    assert [one for one in threading.enumerate() if one.name == "fleet-follow"]
    began = time.monotonic()
    heard.follow.__exit__(None, None, None)
    assert time.monotonic() - began < 2
    assert not [one for one in threading.enumerate() if one.name == "fleet-follow"]
    assert all(wire.ends for wire in bench.wires.values())


def test_a_fault_of_fleet_itself_is_raised(bench: Bench, listen: Listen) -> None:
    heard = listen()
    bench.world.nodes[SECOND].first = [("docker ps", ZeroDivisionError("1/0"))]
    heard.thread.join(10)
    assert [type(one) for one in heard.fault] == [ZeroDivisionError]


# ---------------------------------------------------------------------- which run, which role


def box(run: str, role: str = "decode", state: str = "running", owner: str = "ops@here") -> Container:
    labels = {"run": run, "role": role, "rank": "0", "owner": owner}
    return Container(id=run + role, name="n", image="i", state=state, status="", labels=labels)


def looks(*containers: Container, **errors: HostError) -> dict[str, Any]:
    return {"n1": Look(Offset(0, 0, 0), containers, 0.0), **errors}


@pytest.mark.parametrize(
    ("asked", "containers", "run"),
    [
        ("", [box("r1"), box("r1", "router")], "r1"),
        ("", [box("r1"), box("r2", state="exited")], "r1"),
        ("r2", [box("r1"), box("r2")], "r2"),
        ("r1", [box("r1"), box("r11")], "r1"),
        ("r1", [box("r12", state="paused")], "r12"),
    ],
)
def test_the_run_that_is_under_way(asked: str, containers: list[Container], run: str) -> None:
    assert follows.chosen(looks(*containers), asked) == run


def test_which_run_cannot_be_told() -> None:
    with pytest.raises(UsageError, match=r"2 runs are under way: r1 of ops@here, r2 of eve@there") as refused:
        follows.chosen(looks(box("r1"), box("r2", owner="eve@there")), "")
    assert refused.value.hint == "type: invoke logs --follow --run r2"
    with pytest.raises(UsageError, match="nothing of ours runs on n1"):
        follows.chosen(looks(box("r1", state="exited")), "")
    with pytest.raises(UsageError, match="no running container of run r2 on n1"):
        follows.chosen(looks(box("r1")), "r2")
    with pytest.raises(Unreachable):
        follows.chosen(looks(n2=LOST), "")
    assert follows.chosen(looks(box("r1"), n2=LOST), "") == "r1"


def test_a_role_that_cannot_be() -> None:
    found = looks(box("r1"), box("r1", "router"), box("r2", "server"))
    for fine in ("", "decode", "decode0", "decode7", "client", "prefill0.1", "router"):
        follows.check_role(fine, found, "r1")
    with pytest.raises(UsageError, match=r"--role decod: no such role or seat; did you mean decode0?") as refused:
        follows.check_role("decod", found, "r1")
    assert refused.value.hint == "there are: decode0, router"
    assert seat_of(box("r1")) == "decode0"


def test_secrets_are_masked_at_once(bench: Bench, listen: Listen) -> None:
    canary = "hf_CANARY-0123456789"
    bench.world.box("prefill0").labels["secrets"] = "HF_TOKEN"
    host = bench.world.session.machine(FIRST).host
    bench.world.nodes[FIRST].written[secrets_path(host, RUN)] = f"HF_TOKEN={canary}\n".encode()
    bench.write("prefill0", f"earlier {canary}")
    heard = listen(wanted=only("prefill"))
    heard.until(lambda: heard.texts == ["prefill0: earlier ***HF_TOKEN***"])
    bench.wires[FIRST].asked_for("--follow")
    bench.write("prefill0", f"later {canary} hf_CAN")
    heard.until(lambda: heard.texts[1:] == ["prefill0: later ***HF_TOKEN*** hf_CAN"])
