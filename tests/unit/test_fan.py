import os
import signal
import threading
import time

import pytest

from fleet.errors import CommandTimeout, FleetError, Interrupted, Unreachable
from fleet.hosts.base import Transport
from fleet.hosts.fake import Fake
from fleet.hosts.fan import each
from fleet.hosts.local import Local


def hosts(count: int, **answers: object) -> list[Fake]:
    return [Fake(f"n{i}", [([], answers.get(f"n{i}", f"out {i}"))]) for i in range(count)]  # type: ignore[list-item]


def test_every_host_has_its_result_in_the_given_order() -> None:
    results = each(hosts(50), lambda host: host.run(["true"]).out, timeout=10)
    assert results == {f"n{i}": f"out {i}" for i in range(50)}
    assert list(results) == [f"n{i}" for i in range(50)]


def test_an_error_is_the_result_of_its_host_alone() -> None:
    gone = Unreachable("gone", where="n1")
    results = each(hosts(3, n1=gone), lambda host: host.run(["true"]).out, timeout=10)
    assert results == {"n0": "out 0", "n1": gone, "n2": "out 2"}


def test_they_work_at_the_same_time() -> None:
    together = threading.Barrier(8, timeout=10)
    results = each(hosts(8), lambda host: together.wait() >= 0, timeout=20)
    assert all(value is True for value in results.values())


def test_a_silent_host_does_not_hold_the_others() -> None:
    release = threading.Event()
    begun = time.monotonic()
    results = each(hosts(3), lambda host: release.wait(60) if host.name == "n1" else host.name, timeout=0.5)
    assert time.monotonic() - begun < 10
    release.set()
    assert (results["n0"], results["n2"]) == ("n0", "n2")
    silent = results["n1"]
    assert isinstance(silent, CommandTimeout)
    assert str(silent) == "n1: no answer within 0.5 s\ntry:  ssh n1 true"


def test_each_call_is_cut_to_what_is_left() -> None:
    begun = time.monotonic()
    results = each([Local("a")], lambda host: host.run(["sleep", "60"], timeout=60), timeout=1)
    assert time.monotonic() - begun < 10
    assert isinstance(results["a"], CommandTimeout)
    assert "`sleep 60` did not end" in str(results["a"])


def test_nothing_begins_after_the_deadline() -> None:
    late, go, ended = Fake("late", [([], "")]), threading.Event(), threading.Event()

    def work(host: Transport) -> None:
        go.wait(30)
        try:
            host.run(["docker", "run"])
        finally:
            ended.set()

    assert isinstance(each([late], work, timeout=0.2)["late"], CommandTimeout)
    go.set()
    assert ended.wait(10)
    assert late.calls == []


def test_a_fault_of_the_function_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        each(hosts(3), lambda host: 1 / 0, timeout=10)


def test_interrupt_ends_the_commands_and_goes_on_up() -> None:
    seen: list[FleetError] = []

    def work(host: Transport) -> None:
        try:
            host.run(["sleep", "60"], timeout=60)
        except FleetError as problem:
            seen.append(problem)
        host.run(["true"])

    machines = [Local("a"), Local("b")]
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        each(machines, work, timeout=60)
    assert time.monotonic() - begun < 10
    assert [type(problem) for problem in seen] == [Interrupted, Interrupted]
