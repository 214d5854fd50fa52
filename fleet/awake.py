"""A clock that stands still while this process is stopped (SIGSTOP, a closed laptop): waiting is waiting awake.

CLOCK_MONOTONIC goes on while a process is stopped, so after the pause every deadline would have passed at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

TICK = 0.5
"""Seconds between two looks of the thread that notices pauses."""

GAP = 5.0
"""Two looks that lie further apart, in seconds, have a pause between them."""


class Clock:
    """`read`: a monotonic clock, in seconds. `pauses`: how many there were until the last `now`."""

    def __init__(self, read: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._last = self._seen = read()
        self.pauses = 0
        self._paused = 0.0
        self._woken = float("-inf")
        self._watched = False

    def now(self) -> float:
        """Seconds awake, from any beginning. The first call starts the thread that looks every TICK seconds.

        Every wait asks, so it takes no lock: a reading counts where no pause was noticed beside it.
        """
        while self._watched:
            paused, read = self._paused, self._read()
            if read - self._last > GAP:
                break
            if paused == self._paused:
                self._seen = read
                return read - paused
        return self._noticed()

    def _noticed(self) -> float:
        """The time, by whoever looks closely: the one who keeps what it finds."""
        with self._lock:
            self._watch()
            read, last = self._read(), max(self._last, self._seen)
            if read - last > GAP:
                self._paused += read - last
                self.pauses += 1
                self._woken = read - self._paused
            self._last = read
            return read - self._paused

    def since(self) -> float:
        """Seconds awake since the last pause ended; infinite if there was none."""
        return self.now() - self._woken

    def _watch(self) -> None:
        if not self._watched:
            self._watched, self._last = True, self._read()
            threading.Thread(target=self._look, name="fleet-awake", daemon=True).start()

    def _look(self) -> None:
        patience = threading.Event()
        while not patience.wait(TICK):
            self._noticed()


CLOCK = Clock()
"""This process's."""


def now() -> float:
    """Seconds that this process was awake, from any beginning."""
    return CLOCK.now()


def since() -> float:
    """Seconds since this process was last continued after a stop; infinite if it never was."""
    return CLOCK.since()


def pauses() -> int:
    """How often this process was stopped and continued so far."""
    CLOCK.now()
    return CLOCK.pauses
