"""A model copied by the real scripts between folders of this machine, through chains that break as a test says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fleet import awake
from fleet.errors import HostError, Interrupted
from fleet.hosts.base import Transport
from fleet.hosts.local import Local
from fleet.lab import weights as stand_ins
from fleet.model.inventory import Host, Inventory
from fleet.session import Session
from fleet.settings import Settings
from fleet.stages import model
from fleet.stages.chain import Arrival, Spring, State, Stop
from fleet.stages.model import Copied, Teller, copy
from tests.world import LOCAL, Listener

NAMES = ("n1", "n2", "n3", "n4")
FILES = {**stand_ins.files(), "sub dir/w.bin": b"w" * 5000}


class Chains:
    """Stands in for the chain. plan: for each in turn, how it ends on hosts, by name; what is left out is done."""

    def __init__(self) -> None:
        self.plan: list[dict[str, State]] = []
        self.seen: list[tuple[str, ...]] = []
        self.interrupt = False

    def __call__(
        self, session: Session, ways: object, spring: Spring, stops: Sequence[Stop], **more: Any
    ) -> Chains._Flow:
        self.seen.append(tuple(stop.host for stop in stops))
        return self._Flow(self, spring, stops, more["tell"])

    class _Flow:
        def __init__(self, chains: Chains, spring: Spring, stops: Sequence[Stop], tell: Any) -> None:
            self.chains, self.spring, self.stops, self.tell = chains, spring, stops, tell

        def run(self) -> dict[str, Arrival]:
            if self.chains.interrupt:
                raise KeyboardInterrupt
            stream = LOCAL.run(self.spring.argv).stdout
            ends = self.chains.plan.pop(0) if self.chains.plan else {}
            return {stop.host: self.arrived(stop, ends.get(stop.host, "done"), stream) for stop in self.stops}

        def arrived(self, stop: Stop, state: State, stream: bytes) -> Arrival:
            part = stream if state == "done" else stream[: len(stream) // 3]
            outcome = LOCAL.run(stop.argv, stdin=part, check=False)
            self.tell(stop.host, len(part))
            if state == "done":
                assert outcome.ok, outcome.err
                return Arrival(stop.host, state, len(part))
            return Arrival(stop.host, state, len(part), HostError("gone", where=stop.host), ("no space",))


class NoWays:
    def __init__(self, session: Session, hosts: Sequence[str]) -> None:
        self.lost: dict[str, HostError] = {}

    def __enter__(self) -> NoWays:
        return self

    def __exit__(self, *told: object) -> None:
        pass

    def attempt(self, pairs: object) -> None:
        pass


@pytest.fixture
def chains(monkeypatch: pytest.MonkeyPatch) -> Chains:
    made = Chains()
    monkeypatch.setattr(model, "Chain", made)
    monkeypatch.setattr(model, "Ways", NoWays)
    return made


@pytest.fixture
def session(tmp_path: Path) -> Session:
    for name, data in FILES.items():
        path = tmp_path / "n1" / "M" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    hosts = tuple(Host(name=name, models=str(tmp_path / name)) for name in NAMES)
    transports: dict[str, Transport] = {name: Local(name) for name in NAMES}
    return Session(Inventory(path="i.yaml", hosts=hosts), transports, Settings(results=tmp_path), Listener())


def has(tmp_path: Path, host: str) -> bool:
    folder = tmp_path / host / "M"
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()} == FILES


def told(session: Session, host: str) -> list[str]:
    assert isinstance(session.progress, Listener)
    return [text for _, name, text, done in session.progress.hosts if name == host and done]


def of(done: Copied) -> list[str]:
    return sorted(done.failed)


def test_all_get_it_in_one_chain_and_a_second_time_nothing_moves(
    session: Session, chains: Chains, tmp_path: Path
) -> None:
    done = copy(session, "M")
    assert (done.source, of(done), chains.seen) == ("n1", [], [("n2", "n3", "n4")])
    assert all(has(tmp_path, host) for host in NAMES)
    assert done.sent == dict.fromkeys(("n2", "n3", "n4"), sum(map(len, FILES.values())))
    assert told(session, "n1") == ["has M whole: 5 files, 5.6 kB"]
    assert told(session, "n2")[0].startswith("M: 5.6 kB from n1 in ")
    again = copy(session, "M")
    assert (again.sent, len(chains.seen)) == ({}, 1)
    assert told(session, "n3")[-1] == "has M already, the same (sampled)"


def test_who_was_cut_off_goes_on_with_what_is_missing_and_who_was_slow_comes_last(
    session: Session, chains: Chains, tmp_path: Path
) -> None:
    chains.plan = [{"n2": "slow", "n3": "cut off"}]
    assert of(copy(session, "M")) == []
    assert chains.seen == [("n2", "n3", "n4"), ("n3", "n2")]
    assert all(has(tmp_path, host) for host in NAMES)


def test_a_host_that_fails_is_its_own_failure_and_keeps_what_arrived(
    session: Session, chains: Chains, tmp_path: Path
) -> None:
    chains.plan = [{"n3": "failed", "n4": "cut off"}]
    done = copy(session, "M")
    assert of(done) == ["n3"]
    assert str(done.failed["n3"]) == (
        "n3: no space\nevery file that arrived whole is kept: repeat this once it is mended"
    )
    assert has(tmp_path, "n2")
    assert has(tmp_path, "n4")
    assert (tmp_path / "n3" / "M" / "config.json").exists()
    assert of(copy(session, "M")) == []
    assert has(tmp_path, "n3")


def test_a_host_that_gets_nowhere_twice_is_given_up(session: Session, chains: Chains, tmp_path: Path) -> None:
    (tmp_path / "n2").mkdir()
    (tmp_path / "n2" / "M").write_text("no folder")
    chains.plan = [{"n2": "cut off"}, {"n2": "cut off"}]
    done = copy(session, "M")
    assert of(done) == ["n2"]
    assert chains.seen[0] == ("n2", "n3", "n4")
    assert len(chains.seen) <= 2


def test_the_one_that_has_all_is_the_source_and_of_two_that_differ_somebody_must_say(
    session: Session, chains: Chains, tmp_path: Path
) -> None:
    for host in ("n2", "n3"):
        (tmp_path / host / "M").mkdir(parents=True)
    (tmp_path / "n2" / "M" / "config.json").write_bytes(FILES["config.json"])
    done = copy(session, "M")
    assert done.source == "n1"
    (tmp_path / "n2" / "M" / "config.json").write_bytes(b"other")
    with pytest.raises(HostError) as error:
        copy(session, "M")
    assert error.value.what.startswith("model M is whole on several hosts, and not the same:\n  n1  5 files, ")
    assert error.value.hint == "say which is right: --from HOST"
    done = copy(session, "M", source="n1")
    assert of(done) == ["n2"]
    assert "nothing is replaced:\n  config.json has 5 bytes there, 257 here" in str(done.failed["n2"])
    assert (tmp_path / "n2" / "M" / "config.json").read_bytes() == b"other"


def test_nobody_has_it_whole(session: Session, chains: Chains, tmp_path: Path) -> None:
    (tmp_path / "n1" / "M" / "x.part").write_bytes(b"1")
    with pytest.raises(HostError) as error:
        copy(session, "M")
    assert error.value.what.splitlines()[:3] == [
        "model M is whole on no host",
        "  n1  x.part (1 byte) is of a download that is under way or was cut off",
        "  n2  missing or empty",
    ]
    with pytest.raises(HostError, match=r"is not whole there:\n  x\.part"):
        copy(session, "M", source="n1")
    with pytest.raises(HostError, match="is not whole there:\n  it is missing or empty"):
        copy(session, "M", source="n2")
    assert chains.seen == []


def test_what_does_not_belong_there_is_told_at_the_end(session: Session, chains: Chains, tmp_path: Path) -> None:
    (tmp_path / "n2" / "M").mkdir(parents=True)
    (tmp_path / "n2" / "M" / "y.incomplete").write_bytes(b"1")
    done = copy(session, "M")
    assert of(done) == ["n2"]
    assert done.failed["n2"].what == (
        "model M: on n2 y.incomplete (1 byte) is of a download that is under way or was cut off"
    )
    assert (tmp_path / "n2" / "M" / "w.bin").exists() is False
    assert (tmp_path / "n2" / "M" / "sub dir" / "w.bin").exists()


def test_too_little_room_is_known_before(
    session: Session, chains: Chains, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def little(machine: Any, path: str) -> dict[str, int]:
        return {path: 64_000_000 if machine.name == "n3" else 10**12}

    monkeypatch.setattr(model, "free", little)
    done = copy(session, "M")
    assert of(done) == ["n3"]
    assert done.failed["n3"].what.startswith(f"64.0 MB free at {tmp_path}/n3, 67.1 MB are needed for model M")
    assert chains.seen == [("n2", "n4")]


def test_after_ctrl_c_the_line_that_goes_on(session: Session, chains: Chains) -> None:
    chains.interrupt = True
    with pytest.raises(Interrupted) as error:
        copy(session, "M", again="invoke stage.model --config K")
    assert str(error.value).endswith("is kept\nnext: invoke stage.model --config K")


def test_progress_says_how_much_of_all_has_come(session: Session) -> None:
    teller = Teller(session, "n2", "n1", 1000, began=awake.now() - 10)
    teller.settle(300)
    teller.got(200)
    teller.got(201)
    assert isinstance(session.progress, Listener)
    ((stage, host, done, total, rate),) = session.progress.moves
    assert (stage, host, done, total) == ("model", "n2", 500, 1000)
    assert 40 < rate <= 50
