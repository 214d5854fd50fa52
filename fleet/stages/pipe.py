"""Bytes from one thread to another, a bounded number at a time; neither side waits for one that is gone."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

AHEAD = 64
"""Chunks that may wait between sender and receiver: enough to keep both busy, little memory."""

TICK = 0.2
"""Seconds after which a waiting side looks whether the other one is still there."""

TELL_EVERY = 0.2
"""Seconds between two words about a transfer under way."""


class Broken(Exception):
    """The other side failed: an archive must not look as if it ended, and nobody waits for a reader that is gone."""


class Pipe:
    """One writer, one reader. `tell` hears now and then how many bytes were written."""

    def __init__(self, tell: Callable[[int], object] = lambda sent: None) -> None:
        self.sent = 0
        self._tell = tell
        self._told = 0.0
        self._chunks: queue.Queue[bytes | None] = queue.Queue(AHEAD)
        self._abandoned = threading.Event()
        self._broken = threading.Event()

    def put(self, chunk: bytes) -> None:
        """Raises Broken when the reader is gone."""
        self.sent += len(chunk)
        if time.monotonic() - self._told > TELL_EVERY:
            self._told = time.monotonic()
            self._tell(self.sent)
        self._offer(chunk)

    def end(self) -> None:
        self._offer(None)

    def fail(self) -> None:
        """The writer cannot go on: the reader's next chunk is Broken."""
        self._broken.set()

    def abandon(self) -> None:
        """The reader is gone: the writer's next chunk is Broken."""
        self._abandoned.set()

    def _offer(self, chunk: bytes | None) -> None:
        while not self._abandoned.is_set():
            with suppress(queue.Full):
                self._chunks.put(chunk, timeout=TICK)
                return
        raise Broken("the receiving side is gone")

    def __iter__(self) -> Iterator[bytes]:
        while (chunk := self._next()) is not None:
            yield chunk

    def _next(self) -> bytes | None:
        while not self._abandoned.is_set():
            if self._broken.is_set():
                raise Broken("the sending side failed")
            with suppress(queue.Empty):
                return self._chunks.get(timeout=TICK)
        raise Broken("the receiving side is gone")
