"""A program on a pseudo-terminal: type, wait for what it shows, end it."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

SECONDS = 30.0
CONTROL = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[=>()][0-9A-Za-z]?)")


class Terminal:
    """What it shows comes without colours and cursor movements; `until` looks only at what came after its last find."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], folder: Path, *, columns: int = 100) -> None:
        # Without an answer to "where is the cursor?" prompt_toolkit would wait and complain.
        whole = {**env, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
        self.pid, self._terminal = pty.fork()
        if not self.pid:
            try:
                os.chdir(folder)
                termios.tcsetwinsize(0, (40, columns))
                os.execvpe(argv[0], argv, whole)
            finally:
                os._exit(127)
        self._raw, self._seen = b"", 0
        self.code: int | None = None

    @property
    def shown(self) -> str:
        return CONTROL.sub("", self._raw.decode(errors="replace")).replace("\r", "")

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def until(self, *patterns: str, within: float = SECONDS) -> str:
        """Wait until it shows what fits all of them; all that came up to there since the last find."""
        end, before = time.monotonic() + within, self._seen
        for pattern in patterns:
            while not (found := re.compile(pattern, re.M).search(self.shown, before)):
                assert self._read(end), f"no {pattern!r} after\n{self.shown[before:]}\n--- of\n{self.shown}"
            self._seen = max(self._seen, found.end())
        return self.shown[before : self._seen]

    def end(self, within: float = SECONDS) -> str:
        """Wait until it has ended: what came since the last find. `code` is its exit code, -n after signal n."""
        end = time.monotonic() + within
        while self._read(end):
            pass
        assert time.monotonic() < end, f"still there after {within:g} s:\n{self.shown[self._seen :]}"
        self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.shown[self._seen :]

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def close(self) -> None:
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._terminal)

    def _read(self, end: float) -> bool:
        """More of what it shows; False when it has ended, or there was nothing until then."""
        if not select.select([self._terminal], [], [], max(0.0, end - time.monotonic()))[0]:
            return False
        try:
            data = os.read(self._terminal, 65536)
        except OSError:  # what Linux says when the other end is closed
            return False
        self._raw += data
        return bool(data)
