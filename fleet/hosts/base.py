"""What every way of reaching a machine can do, and what comes back.

A transport takes argv lists, never strings, and gives every call a deadline. It is safe to share between threads.
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, Protocol

from fleet import awake
from fleet.errors import CommandFailed

Argv = Sequence[str]

GRACE = 1.0
"""Seconds a call may overrun its timeout: the answer of a command that the host itself has just ended is on its way."""

REFUSED, MUTE, SILENT = "refused", "mute", "silent"
"""How a machine does not greet: it resets the connection; it takes the connection and says nothing; nothing comes."""

KILL_AFTER = 5
"""Seconds between the polite end of a command (SIGTERM) and the certain one (SIGKILL)."""

CHUNK = 64 * 1024
"""Bytes moved at a time."""


@dataclass(frozen=True)
class Outcome:
    """What a remote command left. `seconds` is wall time as the controller saw it."""

    host: str
    argv: tuple[str, ...]
    code: int
    stdout: bytes
    stderr: bytes
    seconds: float

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def out(self) -> str:
        return self.stdout.decode("utf-8", "replace")

    @property
    def err(self) -> str:
        return self.stderr.decode("utf-8", "replace")


@dataclass(frozen=True)
class Peer:
    """A host as other hosts reach it by SSH. keys: `kind base64` of the host keys that this machine believes."""

    name: str
    address: str
    port: int
    user: str
    keys: tuple[str, ...]


class Transport(Protocol):
    """One machine. Errors are `HostError`s whose hint is the plain `ssh …` line that does the same."""

    name: str

    def run(self, argv: Argv, *, timeout: float = 30.0, stdin: bytes | None = None, check: bool = True) -> Outcome:
        """Run a command to its end.

        timeout: seconds for everything, connecting included; the remote process is ended by then, too.
        stdin: bytes to feed; None means an immediate end of file.
        check: raise CommandFailed unless the exit code is 0.
        Raises Unreachable, HostKeyError, LoginError, CommandTimeout, CommandFailed.
        """
        ...

    def stream(
        self,
        argv: Argv,
        *,
        timeout: float,
        source: Iterable[bytes] | None = None,
        sink: Callable[[bytes], object] | None = None,
        check: bool = True,
    ) -> Outcome:
        """Like run, with stdin from `source` and stdout to `sink` in chunks; nothing large is held in memory."""
        ...

    def put(self, data: bytes, path: str, *, mode: int = 0o644, timeout: float = 60.0) -> None:
        """Write a remote file: aside first, then renamed into place."""
        ...

    def get(self, path: str, sink: BinaryIO, *, timeout: float = 600.0) -> None:
        """Copy a remote file or folder here as an uncompressed tar stream."""
        ...

    def knock(self, seconds: float) -> str:
        """Whether the machine greets on a connection of its own, made now: "" if so, else REFUSED, MUTE or SILENT.

        Nobody logs in. seconds: for all of it.
        """
        ...

    def ssh_line(self, argv: Argv = ()) -> str:
        """The shell line an operator would type to do the same by hand."""
        ...

    def peer(self, address: str | None = None) -> Peer | None:
        """How another host would reach this one, at `address` where it is given; None where it cannot be told."""
        ...

    def cancel(self) -> None:
        """End every call in flight, here and on the machine; each raises Interrupted. Later calls work again."""
        ...

    def close(self) -> None: ...


class Calls(ABC):
    """Commands to their end, told or streamed, for a transport that has one way to carry a call out."""

    name: str

    def run(self, argv: Argv, *, timeout: float = 30.0, stdin: bytes | None = None, check: bool = True) -> Outcome:
        """See Transport.run."""
        kept = Tail()
        outcome = self._call(argv, Deadline(timeout), chunks(stdin) if stdin else (), kept.add, Tail())
        outcome = replace(outcome, stdout=kept.bytes())
        return checked(outcome, self._hint(argv)) if check and not outcome.ok else outcome

    def stream(
        self,
        argv: Argv,
        *,
        timeout: float,
        source: Iterable[bytes] | None = None,
        sink: Callable[[bytes], object] | None = None,
        check: bool = True,
    ) -> Outcome:
        """See Transport.stream. The outcome keeps the last 64 KiB of stderr and no stdout."""
        outcome = self._call(argv, Deadline(timeout), source or (), sink or (lambda _: None), Tail(CHUNK))
        return checked(outcome, self._hint(argv)) if check and not outcome.ok else outcome

    @abstractmethod
    def _call(
        self, argv: Argv, deadline: Deadline, source: Iterable[bytes], sink: Callable[[bytes], object], errors: Tail
    ) -> Outcome:
        """The outcome of one command, without its stdout, which goes to `sink`."""

    @abstractmethod
    def _hint(self, argv: Argv) -> str:
        """What to type to do the same by hand."""


class Deadline:
    """A point in time that every step of a call shares. Time in which this process was stopped does not count."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.begun = awake.now()

    def spent(self) -> float:
        return awake.now() - self.begun

    def left(self) -> float:
        """Seconds until it passes, never negative."""
        return max(0.0, self.seconds - self.spent())


class Tail:
    """The last `limit` bytes of a stream; all of it where `limit` is None."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        self._data += data
        if self.limit is not None and len(self._data) > 2 * self.limit:
            del self._data[: -self.limit]

    def clear(self) -> None:
        self._data.clear()

    def bytes(self) -> bytes:
        return bytes(self._data if self.limit is None else self._data[-self.limit :])


def chunks(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), CHUNK):
        yield data[start : start + CHUNK]


def named(argv: Argv, width: int = 100) -> str:
    """A command as messages show it: one line, not too long."""
    text = " ".join(quoted(argv).split())
    return f"`{text if len(text) <= width else text[: width - 1] + '…'}`"


def checked(outcome: Outcome, hint: str, allowed: Sequence[int] = (0,)) -> Outcome:
    """The outcome, or CommandFailed with the exit code and the last lines the command wrote."""
    if outcome.code in allowed:
        return outcome
    said = (outcome.err.strip() or outcome.out.strip()).splitlines()[-5:]
    what = "\n".join([f"{named(outcome.argv)} ended with code {outcome.code}", *(f"  {line}" for line in said)])
    raise CommandFailed(what, where=outcome.host, hint=hint)


def quoted(argv: Argv) -> str:
    """The one place where an argv becomes shell text."""
    return shlex.join(argv)
