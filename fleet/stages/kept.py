"""A script on a host that keeps something there as long as this process wants it: it goes with the connection, too."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, wait
from contextlib import suppress

from fleet.errors import CommandFailed, CommandTimeout, FleetError
from fleet.hosts.base import Argv, Outcome
from fleet.session import Machine
from fleet.stages.pipe import Broken, Pipe
from fleet.stages.relay import Lines

READY = "@ready"
ENDING_SECONDS = 5.0


class Kept:
    """The script reads `data`, does its work, says READY on a line, and ends with its stdin: when it is closed here, or
    when the connection is gone. within: seconds after which the host ends it.
    """

    def __init__(self, machine: Machine, argv: Argv, data: bytes, *, within: float) -> None:
        self.machine, self.argv = machine, argv
        self.said: list[str] = []
        self._ready = threading.Event()
        self._lines = Lines()
        self._stdin = Pipe()
        self._stdin.put(data)
        self._ended: Future[Outcome] = Future()
        threading.Thread(target=self._run, args=(within,), name=f"fleet-kept-{machine.name}", daemon=True).start()

    def _run(self, within: float) -> None:
        try:
            outcome = self.machine.transport.stream(
                self.argv, timeout=within, source=self._stdin, sink=self._heard, check=False
            )
            self._ended.set_result(outcome)
        except BaseException as problem:
            self._ended.set_exception(problem)
        finally:
            self._stdin.abandon()
            self._ready.set()

    def _heard(self, data: bytes) -> None:
        for line in self._lines.of(data):
            if line == READY:
                self._ready.set()
            else:
                self.said.append(line)

    def await_ready(self, seconds: float) -> Sequence[str]:
        """What it said before. Raises HostError where it ended instead, or is not ready in time."""
        if not self._ready.wait(seconds):
            self.close(0)
            raise CommandTimeout(f"no answer within {seconds:g} s", where=self.machine.name)
        if self._ended.done():
            outcome = self._ended.result()
            last = (outcome.err.strip().splitlines() or [f"code {outcome.code}"])[-1]
            raise CommandFailed(f"what staging needs there cannot be made: {last}", where=self.machine.name)
        return self.said

    def close(self, seconds: float = ENDING_SECONDS) -> None:
        """End it, and wait so long until it has put things away."""
        with suppress(Broken):
            self._stdin.end()
        wait([self._ended], timeout=seconds)
        if self._ended.done():
            with suppress(FleetError, Broken):
                self._ended.result()
