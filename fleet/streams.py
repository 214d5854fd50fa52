"""stdout and stderr of a process that Invoke runs: what an encoding lacks is replaced, a full one says so."""

from __future__ import annotations

import atexit
import codecs
import contextlib
import errno
import os
import sys
import termios
from collections.abc import Iterator
from typing import Any, TextIO, cast

from fleet.errors import harmless

PLAIN = {"…": "...", "×": "x", "→": "->", "←": "<-", "±": "+/-", "·": "-", "–": "-", "—": "-", "“": '"', "”": '"'}
PLAIN |= {"█": "#", "░": "."}
"""What is written for characters of ours where an encoding has no such."""


class OutputLost(OSError):
    """stdout does not take what is written: a full disk, a terminal that is gone."""


class Stdout:
    """A text stream whose failures say that they are its own. A closed pipe stays a BrokenPipeError."""

    def __init__(self, inner: TextIO) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write(self, text: str) -> int:
        with _told():
            return self._inner.write(text)

    def flush(self) -> None:
        with _told():
            self._inner.flush()


class Stderr(Stdout):
    """The same where nobody is left to be told: what cannot be written is dropped."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            return self._inner.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._inner.flush()


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputLost(error.errno, error.strerror) from error


def prepare() -> None:
    """Put both around this process's streams, and open those that it was started without."""
    codecs.register_error("fleet", _plain)
    for name, kind in (("stdout", Stdout), ("stderr", Stderr)):
        stream = getattr(sys, name) or open(os.devnull, "w")  # noqa: SIM115
        stream.reconfigure(errors="fleet")
        setattr(sys, name, cast(TextIO, kind(stream)))
    atexit.register(_last_words)


def forsake() -> None:
    """What is still to be written to stdout is given up: it does not fail a second time when the program ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def forsake_terminal() -> None:
    """The same for both where they were a terminal that has hung up: what is told there would only fail."""
    for descriptor in (1, 2):
        try:
            termios.tcgetattr(descriptor)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def complain(message: str) -> None:
    sys.stderr.write(f"{harmless(message)}\n")
    sys.stderr.flush()


def said(error: OutputLost) -> str:
    return f"stdout cannot be written: {error.strerror}\nfree some space there, or send the output elsewhere"


def _last_words() -> None:
    """Invoke prints without flushing: a stream that is full then would be told of by the interpreter, with code 120."""
    try:
        sys.stdout.flush()
    except OutputLost as error:
        forsake()
        complain(said(error))
        os._exit(1)
    except OSError:
        forsake()


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(PLAIN.get(char, "?") for char in lost), error.end
