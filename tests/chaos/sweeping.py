"""A sweep as an operator starts it, in a process of its own; each line it says has the time at which it came."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tests.lab.desk import ROOT, until
from tests.terminal import CONTROL


@dataclass(frozen=True)
class Line:
    """at: seconds of time.time()."""

    at: float
    text: str


class Sweep:
    """stdout and stderr as one, through a pipe or (terminal) a pseudo-terminal."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], *, terminal: bool = False) -> None:
        self.lines: list[Line] = []
        self.ended = 0.0
        ours, its = pty.openpty() if terminal else os.pipe()
        self._ours: int | None = ours
        self._leave = threading.Event()
        self.process = subprocess.Popen(
            argv, stdin=its if terminal else subprocess.DEVNULL, stdout=its, stderr=its, cwd=ROOT,
            env={**env, "TERM": "xterm"}, start_new_session=True, preexec_fn=lambda: _as_from_a_shell(terminal),
        )  # fmt: skip
        os.close(its)
        self._reader = threading.Thread(target=self._read, args=(ours,), daemon=True)
        self._reader.start()

    def _read(self, ours: int) -> None:
        rest = ""
        with suppress(OSError):  # how a pseudo-terminal says that nobody is left
            while not self._leave.is_set():
                if not select.select([ours], [], [], 0.05)[0]:
                    continue
                if not (data := os.read(ours, 65536)):
                    break
                now = time.time()
                *whole, rest = re.split(r"[\r\n]+", rest + CONTROL.sub("", data.decode(errors="replace")))
                self.lines += [Line(now, text) for text in whole if text.strip()]
        if rest.strip():
            self.lines.append(Line(time.time(), rest))

    @property
    def said(self) -> str:
        return "\n".join(line.text for line in self.lines)

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def first(self, pattern: str, since: float = 0.0) -> Line | None:
        """The first line that fits, of those since then."""
        return next((line for line in self.lines if line.at >= since and re.search(pattern, line.text)), None)

    def until(self, question: Any, what: str, within: float) -> Any:
        """Wait for an answer while it runs."""

        def look() -> Any:
            answer = question()
            assert answer or self.runs, f"ended ({self.process.returncode}) without {what}:\n{self.said}"
            return answer

        return until(look, f"{what}\n{self.said}\n", within)

    def until_said(self, pattern: str, within: float) -> Line:
        line = self.until(lambda: self.first(pattern), f"{pattern!r} in its output", within)
        assert isinstance(line, Line)
        return line

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def hang_up(self) -> None:
        """Close the terminal: the kernel sends SIGHUP. A descriptor that is being read would stay open."""
        self._leave.set()
        self._reader.join(5)
        self._close()

    def end(self, within: float) -> int:
        """Its exit code; -n after signal n."""
        code = self.process.wait(within)
        self.ended = time.time()
        self._reader.join(5)
        return code

    def close(self) -> None:
        if self.runs:
            self.process.kill()
            self.process.wait(10)
        self._reader.join(5)
        self._close()

    def _close(self) -> None:
        if self._ours is not None:
            os.close(self._ours)
        self._ours = None


def _as_from_a_shell(terminal: bool) -> None:
    """Heed signals whatever the caller ignores; have the terminal as one's own."""
    for one in (signal.SIGINT, signal.SIGHUP):
        signal.signal(one, signal.SIG_DFL)
    if terminal:
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
