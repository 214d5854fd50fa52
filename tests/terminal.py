"""A program on a pseudo-terminal: type, wait for what it shows, end it. And of programs, fleet's console."""

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

    def idle(self, within: float = SECONDS) -> None:
        """Wait until its main thread sleeps, as it does at a prompt that has been printed."""
        end = time.monotonic() + within
        while Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
            assert time.monotonic() < end, "never idle"
            time.sleep(0.01)

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


class Console:
    """A console at its prompt."""

    def __init__(self, terminal: Terminal, ipython: bool) -> None:
        self.terminal = terminal
        self._ipython, self._number = ipython, 0
        self._drop, self._tab = ("\x03\x03", "\t") if ipython else ("\x15", "\t\t\t")
        self.greeting = self.prompt()

    @classmethod
    def open(cls, argv: Sequence[str], env: Mapping[str, str], folder: Path, home: Path, *, ipython: bool) -> Console:
        """argv opens it in `folder`. home: for what IPython keeps; or, where it shall not be, for what hides it."""
        hidden = home / "without-ipython"
        hidden.mkdir()
        (hidden / "IPython.py").write_text("raise ImportError\n")
        path = [str(folder)] if ipython else [str(hidden), str(folder)]
        kept = {name: value for name, value in env.items() if name not in ("CI", "FLEET_DEBUG", "COLUMNS", "LINES")}
        whole = {**kept, "IPYTHONDIR": str(home / "ipython"), "PYTHONPATH": os.pathsep.join(path)}
        return cls(Terminal(argv, whole, folder), ipython)

    def prompt(self) -> str:
        """Wait for the next prompt: what came before it."""
        self._number += 1
        return self.terminal.until(rf"^In \[{self._number}\]: " if self._ipython else "^>>> ")

    def ask(self, line: str) -> str:
        self.terminal.type(f"{line}\r")
        return self.prompt()

    def tab(self, begun: str, *names: str) -> None:
        """Wait until all names are offered for what is typed; then a clean prompt."""
        self.terminal.type(begun + self._tab)
        self.terminal.until(*(rf"(?<![\w-]){re.escape(name)}(?![\w-])" for name in names))
        self.terminal.type(f"{self._drop}6 * 7000\r")
        self.terminal.until("^.*42000")
        self.prompt()

    def end(self) -> str:
        """Wait until it has ended: what it said, without the prompt, which IPython draws anew."""
        return self.terminal.end().replace(f"In [{self._number}]:", "")
