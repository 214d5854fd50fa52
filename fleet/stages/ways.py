"""Which hosts of a session reach each other by SSH, with their own keys: tried, never assumed.

What a host needs for it, and for its part of a chain, is in one folder there, which goes with the connection.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from itertools import pairwise
from types import TracebackType

from fleet.errors import FleetError
from fleet.hosts.base import Deadline, Peer
from fleet.hosts.peer import known_hosts, ssh_argv
from fleet.session import Machine, Session
from fleet.stages.kept import ENDING_SECONDS, Kept
from fleet.stages.relay import Hop

PARENT = "/tmp"

PROBE_BYTES = 64 * 1024
"""Sent over each way that is tried: on a link a thousand times slower than a usual one this takes seconds. A few layers
that have changed may not be much more."""

PROBE_SECONDS = 15.0

SLOW = 4.0
"""Times the usual duration, and as many seconds more: such a way is not taken."""

# A folder of that name that is there already is somebody else's. With it go the scripts that work in it.
KEEP = """
umask 077
mkdir -- "$1" || exit
over() {
    trap '' HUP INT TERM
    for pid in "$1"/*/pid; do [ -f "$pid" ] && read -r number <"$pid" && kill -TERM "$number"; done
    rm -rf -- "$1"
}
trap 'over "$1" 2>/dev/null' EXIT
trap 'trap "" HUP INT TERM; exit 143' HUP INT TERM
head -c "$2" >"$1/known" && echo @ready && cat >/dev/null
"""
TRY = 'size=$1; shift; head -c "$size" /dev/zero | "$@"'
SINK = ("sh", "-c", "exec cat >/dev/null")


class Ways:
    """Folders on hosts, and the ways between them. `lost`: hosts that cannot be used, each with why. `given_up`: hosts
    that fell silent later: nobody waits for them at the end.
    """

    def __init__(self, session: Session, hosts: Iterable[str]) -> None:
        self.session = session
        self.hosts = list(dict.fromkeys(hosts))
        self.folder = f"{PARENT}/.fleet-chain-{secrets.token_hex(8)}"
        self.lost: dict[str, FleetError] = {}
        self.given_up: set[str] = set()
        self._kept: dict[str, Kept] = {}
        self._peers = self._known_peers()
        self._tried: dict[tuple[str, str], float | None] = {}

    def __enter__(self) -> Ways:
        known = known_hosts(self._peers.values())
        argv = ["sh", "-c", KEEP, "sh", self.folder, str(len(known))]
        within = self.session.settings.timeouts.stage_within
        self._kept = {host: Kept(self.session.machine(host), argv, known, within=within) for host in self.hosts}
        limit = Deadline(self.session.settings.timeouts.command)
        for host, kept in self._kept.items():
            try:
                kept.await_ready(limit.left())
            except FleetError as error:
                self.lost[host] = error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        limit = Deadline(ENDING_SECONDS)
        for kept in self._kept.values():
            kept.close(0)
        for host, kept in self._kept.items():
            if host not in self.given_up and host not in self.lost:
                kept.close(limit.left())

    def attempt(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Try the ways that were not tried before, all at once, and remember how long each took.

        A host is asked for one way at a time: it is the first of one pair at most.
        """
        wanted = {a: b for a, b in pairs if (a, b) not in self._tried and a not in self.lost and b in self._peers}

        def act(machine: Machine) -> float | None:
            words = ssh_argv(self._peers[wanted[machine.name]], f"{self.folder}/known", SINK)
            argv = ["sh", "-c", TRY, "sh", str(PROBE_BYTES), *words]
            outcome = machine.run(argv, timeout=PROBE_SECONDS, check=False)
            return outcome.seconds if outcome.ok else None

        answers = self.session.each(wanted, act, timeout=PROBE_SECONDS + 1)
        for host, answer in answers.items():
            self._tried[host, wanted[host]] = None if isinstance(answer, FleetError) else answer

    def seconds(self, first: str, second: str) -> float | None:
        """How long a connection and a little data took; None where there is no way, or none was tried."""
        return self._tried.get((first, second))

    def hop(self, first: str, second: str) -> Hop | None:
        """The way from one host to another; None where there is none, or one that is far slower than the others."""
        took = self.seconds(first, second)
        if took is None or self.slow(first, second):
            return None
        return Hop(self._peers[second], f"{self.folder}/known", self.folder)

    def slow(self, first: str, second: str) -> bool:
        """Whether a way takes far longer than most of those that were tried."""
        times = sorted(took for took in self._tried.values() if took is not None)
        took = self.seconds(first, second)
        return took is not None and len(times) > 1 and took > SLOW * times[(len(times) - 1) // 2] + SLOW

    def _known_peers(self) -> dict[str, Peer]:
        found: dict[str, Peer] = {}
        for host in self.hosts:
            machine = self.session.machine(host)
            if peer := machine.transport.peer(machine.host.fabric.address):
                found[host] = peer
        return found


def pairs(hosts: Sequence[str]) -> list[tuple[str, str]]:
    """Each host with the one behind it."""
    return list(pairwise(hosts))
