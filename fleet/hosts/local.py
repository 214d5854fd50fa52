"""This machine as a host: the same calls, carried out by subprocess."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from fleet.errors import CommandFailed, CommandTimeout, Interrupted
from fleet.hosts.archive import TAR_OK, tar_argv
from fleet.hosts.base import CHUNK, KILL_AFTER, Argv, Calls, Deadline, Outcome, Peer, Tail, checked, named, quoted

TICK = 0.2
"""Seconds after which a waiting call looks whether it was cancelled."""


class Call:
    """One command: its process, whether it was cancelled, and what went wrong in the thread that feeds it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.cancelled = False
        self.trouble: BaseException | None = None

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


class Local(Calls):
    """Commands run as the user fleet runs as, in a process group of their own."""

    def __init__(self, name: str = "local") -> None:
        self.name = name
        self._lock = threading.Lock()
        self._calls: set[Call] = set()

    def put(self, data: bytes, path: str, *, mode: int = 0o644, timeout: float = 60.0) -> None:
        """See Transport.put."""
        aside = Path(f"{path}.tmp.{secrets.token_hex(4)}")
        try:
            with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
            aside.chmod(mode)
            aside.replace(path)
        except OSError as problem:
            aside.unlink(missing_ok=True)
            raise CommandFailed(f"cannot write {path}: {problem.strerror}", where=self.name) from problem

    def get(self, path: str, sink: BinaryIO, *, timeout: float = 600.0) -> None:
        """See Transport.get."""
        argv = tar_argv(path)
        outcome = self.stream(argv, timeout=timeout, sink=sink.write, check=False)
        checked(outcome, self._hint(argv), allowed=TAR_OK)

    def ssh_line(self, argv: Argv = ()) -> str:
        """No ssh is needed here: the command itself."""
        return quoted(argv)

    def peer(self, address: str | None = None) -> Peer | None:
        """No other host is known to reach this one."""
        return None

    def knock(self, seconds: float) -> str:
        """This machine is there."""
        return ""

    def cancel(self) -> None:
        with self._lock:
            calls = list(self._calls)
        for call in calls:
            call.cancelled = True

    def close(self) -> None:
        """There is nothing to close."""

    def _hint(self, argv: Argv) -> str:
        return f"try:  {quoted(argv)}"

    def _call(
        self, argv: Argv, deadline: Deadline, source: Iterable[bytes], sink: Callable[[bytes], object], errors: Tail
    ) -> Outcome:
        pipe = subprocess.PIPE
        try:
            # Under the lock: a cancel that comes while the process starts finds it.
            with self._lock:
                process = subprocess.Popen(list(argv), stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
                call = Call(process)
                self._calls.add(call)
        except OSError as problem:
            # What a shell on the other side of SSH would say: 127 not found, 126 found but not to be run.
            code = 127 if isinstance(problem, FileNotFoundError) else 126
            said = f"{argv[0]}: {problem.strerror}\n".encode()
            return Outcome(self.name, tuple(argv), code, b"", said, deadline.spent())
        try:
            self._follow(call, argv, deadline, source, sink, errors)
        except BaseException:
            self._end(call)
            raise
        finally:
            with self._lock:
                self._calls.discard(call)
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        return Outcome(self.name, tuple(argv), code, b"", errors.bytes(), deadline.spent())

    def _follow(
        self,
        call: Call,
        argv: Argv,
        deadline: Deadline,
        source: Iterable[bytes],
        sink: Callable[[bytes], object],
        errors: Tail,
    ) -> None:
        stdout, stderr = call.process.stdout, call.process.stderr
        assert stdout is not None
        assert stderr is not None
        threading.Thread(target=feed, args=(call, source), daemon=True).start()
        poll = select.poll()
        names = {stdout.fileno(): sink, stderr.fileno(): errors.add}
        for number in names:
            poll.register(number, select.POLLIN)
        with stdout, stderr:
            while names:
                self._check(call, argv, deadline)
                for number, _ in poll.poll(1000 * min(TICK, deadline.left())):
                    data = os.read(number, CHUNK)
                    if data:
                        names[number](data)
                    else:
                        poll.unregister(number)
                        del names[number]
        while call.process.poll() is None:
            self._check(call, argv, deadline)
            with contextlib.suppress(subprocess.TimeoutExpired):
                call.process.wait(min(TICK, deadline.left()))
        if call.trouble is not None:
            raise call.trouble

    def _check(self, call: Call, argv: Argv, deadline: Deadline) -> None:
        if call.trouble is not None:
            raise call.trouble
        if call.cancelled:
            raise Interrupted(f"{named(argv)} was interrupted", where=self.name)
        if not deadline.left():
            what = f"{named(argv)} did not end within {deadline.seconds:g} s; ended there"
            raise CommandTimeout(what, where=self.name, hint=self._hint(argv))

    @staticmethod
    def _end(call: Call) -> None:
        """Politely, then certainly; the second part waits in the background."""
        call.signal(signal.SIGTERM)

        def certainly() -> None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                call.process.wait(KILL_AFTER)
            call.signal(signal.SIGKILL)
            call.process.wait()

        threading.Thread(target=certainly, daemon=True).start()


def feed(call: Call, source: Iterable[bytes]) -> None:
    """Give the process its stdin. A process that stops reading is no fault: its exit code tells."""
    stdin = call.process.stdin
    assert stdin is not None
    try:
        for data in source:
            try:
                stdin.write(data)
                stdin.flush()
            except (BrokenPipeError, ValueError):
                break
    except BaseException as problem:
        call.trouble = problem
    finally:
        with contextlib.suppress(BrokenPipeError):
            stdin.close()
