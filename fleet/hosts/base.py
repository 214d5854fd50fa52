"""What every way of reaching a machine can do, and what comes back.

A transport takes argv lists, never strings, and gives every call a deadline. It is safe to share between threads.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol

Argv = Sequence[str]


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

    def ssh_line(self, argv: Argv = ()) -> str:
        """The shell line an operator would type to do the same by hand."""
        ...

    def close(self) -> None: ...


def quoted(argv: Argv) -> str:
    """The one place where an argv becomes shell text."""
    return shlex.join(argv)
