"""Whether a host is still there: one heart beat a second over SSH, and knocks at its door while none comes back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from fleet.errors import FleetError
from fleet.hosts.base import MUTE, REFUSED, SILENT, Transport

BEAT = 1.0
"""Seconds from the end of one beat to the next."""

BEAT_SECONDS = 10.0
"""For one beat: on a slow or lossy line it may take its time, as something else may prove the host meanwhile."""

UNEASY = 1.2
"""Seconds of silence after which new connections are tried, too."""

KNOCK = 0.5
"""Seconds between two of them: packets of one that are lost are not those of the next."""

KNOCK_SECONDS = 2.8
"""For one of them: two round trips of a second, or a packet sent anew. The first has ended before `DEAD`."""

DEAD = 4.5
"""Seconds without any answer after which a host is lost."""

USELESS = 30.0
"""Seconds after which a host that greets, and carries no command out, is lost, too."""

LATE = 1.0
"""Seconds that a look may come late, before the silence is put down to this machine rather than to the host."""

TICK = 0.1

SAID = {
    SILENT: "it does not answer at all: cable, power or network",
    MUTE: "it takes connections, but nothing on it answers: frozen, or its sshd hangs",
    REFUSED: "it refuses SSH connections: its sshd is down, or a firewall closes the port",
}


@dataclass
class Silence:
    """How long nothing has come from a host. Pure: times are given. heard, worked, looked: seconds of one clock, at
    which anything came, a command came back, and somebody looked.
    """

    heard: float
    worked: float
    looked: float
    knocks: list[str] = field(default_factory=list)

    def answered(self, now: float) -> None:
        if now > self.heard:
            self.heard = now
            self.knocks.clear()

    def lasts(self, now: float) -> float:
        """Seconds. Time in which we did not look, as this machine slept or was overwhelmed, counts for nobody."""
        if now - self.looked > LATE:
            self.heard += now - self.looked
            self.worked += now - self.looked
        self.looked = now
        return now - self.heard

    @property
    def how(self) -> str:
        """What the knocks say of it: the most that any of them got."""
        return next((kind for kind in (MUTE, REFUSED) if kind in self.knocks), SILENT)


class Pulse:
    """Watches one host until `stopped`. `lost` hears in words why it counts as lost, `alive` each proof of life."""

    def __init__(
        self,
        transport: Transport,
        stopped: threading.Event,
        lost: Callable[[str], None],
        alive: Callable[[float], None],
    ) -> None:
        self._transport, self._stopped, self._lost, self._alive = transport, stopped, lost, alive
        now = time.monotonic()
        self._silence = Silence(now, now, now)
        self._lock = threading.Lock()

    def watch(self) -> None:
        """Returns when the host is lost or the watch has ended."""
        self._start(self._beat)
        knocked = 0.0
        while not self._stopped.wait(TICK):
            now = time.monotonic()
            with self._lock:
                lasts, how = self._silence.lasts(now), self._silence.how
                idle = now - self._silence.worked
            if lasts >= DEAD:
                self._lost(f"no answer for {lasts:.1f} s on open and on new connections; {SAID[how]}")
                return
            if idle >= USELESS:
                self._lost(f"its sshd greets, but no command has come back for {idle:.0f} s")
                return
            if lasts >= UNEASY and now - knocked >= KNOCK:
                knocked = now
                self._start(self._knock)

    def _beat(self) -> None:
        while not self._stopped.is_set():
            try:
                self._transport.run(["true"], timeout=BEAT_SECONDS, check=False)
            except FleetError:
                pass
            else:
                with self._lock:
                    self._silence.worked = time.monotonic()
                self._proof()
            self._stopped.wait(BEAT)

    def _knock(self) -> None:
        how = self._transport.knock(KNOCK_SECONDS)
        if not how:
            self._proof()
            return
        with self._lock:
            self._silence.knocks.append(how)

    def _proof(self) -> None:
        now = time.monotonic()
        with self._lock:
            self._silence.answered(now)
        self._alive(now)

    @staticmethod
    def _start(act: Callable[[], None]) -> None:
        threading.Thread(target=act, name="fleet-pulse", daemon=True).start()
