"""The same work on many hosts: one thread a host, one deadline for all, and one result for each, whatever happens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from typing import BinaryIO, TypeVar

from fleet.errors import CommandTimeout, FleetError, Interrupted
from fleet.hosts.base import GRACE, Argv, Deadline, Outcome, Peer, Transport

Result = TypeVar("Result")

PATIENCE = 2 * GRACE
"""Seconds after the deadline in which a host's own error, which says more, is still waited for."""


class Bounded:
    """A transport whose every call ends by a shared deadline. After it, or after ^C, no further call begins."""

    def __init__(self, inner: Transport, deadline: Deadline, stopped: threading.Event) -> None:
        self.name = inner.name
        self.inner = inner
        self._deadline = deadline
        self._stopped = stopped

    def run(self, argv: Argv, *, timeout: float = 30.0, stdin: bytes | None = None, check: bool = True) -> Outcome:
        return self.inner.run(argv, timeout=self._cap(timeout), stdin=stdin, check=check)

    def stream(
        self,
        argv: Argv,
        *,
        timeout: float,
        source: Iterable[bytes] | None = None,
        sink: Callable[[bytes], object] | None = None,
        check: bool = True,
    ) -> Outcome:
        return self.inner.stream(argv, timeout=self._cap(timeout), source=source, sink=sink, check=check)

    def put(self, data: bytes, path: str, *, mode: int = 0o644, timeout: float = 60.0) -> None:
        self.inner.put(data, path, mode=mode, timeout=self._cap(timeout))

    def get(self, path: str, sink: BinaryIO, *, timeout: float = 600.0) -> None:
        self.inner.get(path, sink, timeout=self._cap(timeout))

    def ssh_line(self, argv: Argv = ()) -> str:
        return self.inner.ssh_line(argv)

    def peer(self, address: str | None = None) -> Peer | None:
        return self.inner.peer(address)

    def knock(self, seconds: float) -> str:
        return self.inner.knock(self._cap(seconds))

    def cancel(self) -> None:
        self.inner.cancel()

    def close(self) -> None:
        self.inner.close()

    def _cap(self, timeout: float) -> float:
        if self._stopped.is_set():
            raise Interrupted("interrupted", where=self.name)
        left = self._deadline.left()
        if not left:
            raise overdue(self.inner, self._deadline)
        return min(timeout, left)


def each(
    transports: Iterable[Transport], fn: Callable[[Transport], Result], *, timeout: float
) -> dict[str, Result | FleetError]:
    """Call `fn` with every transport at once; returns by host name, in the given order, what it returned or raised.

    timeout: seconds for all of them together. Each call that `fn` makes is cut to what is left of it. A host that is
    still silent two seconds later has CommandTimeout as its result and its thread is left behind.
    Raises at once what is not a FleetError (a fault of `fn`), and KeyboardInterrupt after the commands were ended.
    """
    deadline, stopped = Deadline(timeout), threading.Event()
    hosts = list(transports)
    futures: dict[str, Future[Result]] = {}
    for host in hosts:
        futures[host.name] = started(fn, Bounded(host, deadline, stopped))
    assert len(futures) == len(hosts), "two hosts have the same name"
    results: dict[str, Result | FleetError] = {}
    try:
        _wait(list(futures.values()), timeout + PATIENCE)
        for host in hosts:
            found = outcome(futures[host.name], host, deadline)
            results[host.name] = found
        return results
    except BaseException:
        stopped.set()
        for host in hosts:
            host.cancel()
        wait(futures.values(), timeout=PATIENCE)
        raise


def _wait(futures: list[Future[Result]], seconds: float) -> None:
    """A timeout passes while this process is stopped; what the hosts answered meanwhile is still to be read."""
    deadline = Deadline(seconds)
    while wait(futures, timeout=deadline.left()).not_done and deadline.left():
        pass


def started(fn: Callable[[Transport], Result], host: Bounded) -> Future[Result]:
    """A daemon thread, unlike an executor's, does not keep the program from ending."""
    future: Future[Result] = Future()

    def work() -> None:
        try:
            future.set_result(fn(host))
        except BaseException as problem:
            future.set_exception(problem)

    threading.Thread(target=work, name=f"fleet-{host.name}", daemon=True).start()
    return future


def outcome(future: Future[Result], host: Transport, deadline: Deadline) -> Result | FleetError:
    if not future.done():
        return overdue(host, deadline)
    try:
        return future.result()
    except FleetError as problem:
        return problem


def overdue(host: Transport, deadline: Deadline) -> CommandTimeout:
    what = f"no answer within {deadline.seconds:g} s"
    return CommandTimeout(what, where=host.name, hint=f"try:  {host.ssh_line(['true'])}")
