"""What a console says when it is left."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Iterable, Iterator

from fleet import ui
from fleet.errors import FleetError
from fleet.model.hostrange import folded
from fleet.session import owner
from fleet.shell.hosts import Opener
from fleet.shell.seats import Seat, Seats, seats

WITHIN = 5.0
"""Seconds that all hosts together have for saying what still runs on them."""

PATIENCE = 1.0
"""Seconds after which it is said that hosts are being asked."""


def farewell(opened: Opener, inventory: str = "") -> None:
    """Say what of this owner's still runs, and what takes it down; what a host did not say in time is said, too.

    inventory: the flag's value, "" where it is not needed.
    """
    flag = f" --inventory {shlex.quote(inventory)}" if inventory else ""
    waiting = threading.Timer(PATIENCE, ui.say, ["asking the hosts what still runs; ^C leaves at once"])
    waiting.start()
    try:
        still = seats(opened(), timeout=WITHIN, owner=owner())
    except KeyboardInterrupt:
        ui.say(f"\nleft without asking what still runs; see: invoke ps{flag}")
        return
    except FleetError:
        return
    finally:
        waiting.cancel()
    for line in _still(still, flag):
        ui.say(line)


def _still(still: Seats, flag: str) -> Iterator[str]:
    for run in dict.fromkeys(seat.run for seat in still):
        yield f"still running: run {run}"
        yield from _by_host(seat for seat in still if seat.run == run)
        yield f"  take it down: invoke down --run {run}{flag}"
    if still.lost:
        silent = folded([error.where for error in still.lost])
        yield f"what still runs on {silent} could not be asked; later: invoke ps{flag}"


def _by_host(found: Iterable[Seat]) -> Iterator[str]:
    hosts: dict[str, list[str]] = {}
    for seat in found:
        hosts.setdefault(seat.host, []).append(seat.name)
    width = max(map(len, hosts))
    yield from (f"  {host:<{width}}  {' '.join(names)}" for host, names in hosts.items())
