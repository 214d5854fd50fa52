"""`trust`: the keys that hosts show beside those on record, and the ones that the operator accepts, written down."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleet import ui, verbs
from fleet.enrol import named
from fleet.errors import FleetError, HostError, UsageError, shown
from fleet.hosts.fan import each
from fleet.hosts.ssh import SSH
from fleet.hosts.trust import Found, record
from fleet.model import load
from fleet.model.inventory import Host, Inventory
from fleet.progress import Silent
from fleet.session import connect
from fleet.settings import Settings
from fleet.words import counted

_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


@dataclass
class Stop:
    """A machine on the way to hosts: one of them, or a gateway of some. answer: what it showed, or why nothing."""

    ssh: SSH
    name: str
    before: Stop | None
    answer: Found | FleetError | None = None
    accepted: bool = False
    old: list[str] = field(default_factory=list)

    @property
    def trusted(self) -> bool:
        return isinstance(self.answer, Found) and (self.accepted or self.answer.state == "known")


@dataclass(frozen=True)
class Wish:
    """What the operator accepts. yes: every unknown key; ask: on the terminal, key by key."""

    accept: tuple[str, ...]
    yes: bool
    ask: bool


def run(
    settings: Settings,
    *,
    limit: Sequence[str] = (),
    hosts: Sequence[str] = (),
    accept: Sequence[str] = (),
    yes: bool = False,
    json: bool = False,
) -> int | None:
    """0 if every host's key is on record at the end, else 3. hosts: also such as are not in the inventory."""
    for one in accept:
        if not _FINGERPRINT.fullmatch(one):
            what = f"--accept {shown(one)}: a fingerprint expected"
            raise UsageError(what, hint="type: --accept SHA256:… as the host's own console shows it")
    inventory = _inventory(settings, limit, hosts)
    wish = Wish(tuple(accept), yes, not json and ui.asks())
    with connect(inventory, settings, Silent()) as session:
        stops = _stops(session.transports)
        within = 4 * settings.timeouts.connect
        while batch := _next(stops):
            _look(batch, within)
            for stop in batch:
                _settle(stop, wish, inventory, json)
    if json:
        ui.as_json([_as_json(stop) for stop in stops])
    else:
        _tell(stops, inventory)
    shown_keys = {stop.answer.fingerprint for stop in stops if isinstance(stop.answer, Found)}
    strange = [one for one in accept if one not in shown_keys]
    for one in strange:
        ui.complain(f"--accept {one}: no host shows this key")
    if not all(stop.trusted for stop in stops):
        return HostError.exit_code
    return UsageError.exit_code if strange else None


def _inventory(settings: Settings, limit: Sequence[str], words: Sequence[str]) -> Inventory:
    """Hosts of the inventory; with --host those alone, the file need not be there."""
    if not words:
        return load.limit(verbs.read_inventory(settings.inventory), limit)
    if limit:
        raise UsageError("--limit and --host exclude each other", hint="--host takes hosts of the inventory, too")
    there = os.path.exists(settings.inventory)
    found = verbs.read_inventory(settings.inventory) if there else Inventory(path=str(settings.inventory), hosts=())
    known = {host.name: host for host in found.hosts}
    chosen = tuple(known.get(name) or Host(name=name, **given) for name, given in named(words).items())
    return found.model_copy(update={"hosts": chosen})


def _stops(transports: Any) -> list[Stop]:
    """Every machine once, by the name that known_hosts has it under; gateways before what is behind them."""
    found: dict[object, Stop] = {}

    def add(ssh: SSH, behind: str = "") -> Stop:
        gateway = ssh.gateway
        before = add(gateway, ssh.name) if gateway else None
        name = f"{ssh.name} (gateway)" if behind else ssh.name
        return found.setdefault((ssh.route.label, ssh.route.known_hosts[0]), Stop(ssh, name, before))

    for transport in transports.values():
        if isinstance(transport, SSH):
            add(transport)
    return list(found.values())


def _next(stops: Sequence[Stop]) -> list[Stop]:
    """Those to look at now: what is before them is trusted. What lies behind an untrusted one has its answer."""
    batch: dict[str, Stop] = {}
    for stop in stops:
        if stop.answer is not None:
            continue
        if stop.before is None or stop.before.trusted:
            batch.setdefault(stop.ssh.name, stop)
        elif stop.before.answer is not None:
            what = f"not looked at: its gateway {stop.before.ssh.name} is not trusted"
            stop.answer = HostError(what, where=stop.name)
    return list(batch.values())


def _look(batch: Sequence[Stop], within: float) -> None:
    by_name = {stop.ssh.name: stop.ssh for stop in batch}
    answers = each(by_name.values(), lambda host: by_name[host.name].host_key(), timeout=within)
    for stop in batch:
        stop.answer = answers[stop.ssh.name]


def _settle(stop: Stop, wish: Wish, inventory: Inventory, json: bool) -> None:
    """Write the key down, if the operator accepts it."""
    found = stop.answer
    if not isinstance(found, Found) or found.state in ("known", "revoked"):
        return
    agreed = found.fingerprint in wish.accept or (wish.yes and found.state == "unknown")
    if not agreed and found.state == "unknown" and wish.ask:
        ui.say(f"{stop.name} at {found.address} shows {found.kind} {found.fingerprint}; none is on record")
        agreed = ui.confirm("the same as the host's own console shows? then type yes: ")
    if agreed:
        stop.old = [f"{one.file}:{one.line}" for one in record(found)]
        stop.accepted = True


# --- what is told ---------------------------------------------------------------------------------------------------


def _tell(stops: Sequence[Stop], inventory: Inventory) -> None:
    seen = [(stop, stop.answer) for stop in stops if isinstance(stop.answer, Found)]
    if seen:
        ui.table(("host", "shows", "fingerprint", "state"), (_row(stop, found) for stop, found in seen))
    for stop, found in seen:
        for line in _lines(stop, found, inventory):
            ui.say(line)
    for stop in stops:
        if isinstance(stop.answer, FleetError):
            ui.complain(stop.answer)
    if waiting := [stop for stop, found in seen if found.state == "unknown" and not stop.accepted]:
        told = counted(len(waiting), "key is not accepted", "keys are not accepted")
        ui.say(f"{told}; compare with the hosts' own (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub there), then:")
        keys = [
            part for stop in waiting if isinstance(stop.answer, Found) for part in ("--accept", stop.answer.fingerprint)
        ]
        ui.say(f"  {_line(inventory, waiting, *keys)}")


def _row(stop: Stop, found: Found) -> tuple[str, ...]:
    state = f"{found.state}, now on record" if stop.accepted else found.state
    return stop.name, found.kind, found.fingerprint, state.upper() if found.state == "changed" else state


def _lines(stop: Stop, found: Found, inventory: Inventory) -> Iterator[str]:
    if found.state == "changed" and not stop.accepted:
        yield f"{stop.name}: THE HOST KEY HAS CHANGED. The machine was installed anew, or somebody sits in between."
        yield from (f"  on record  {one.kind} {one.fingerprint}  {one.file}:{one.line}" for one in found.recorded)
        yield f"  it shows   {found.kind} {found.fingerprint}"
        yield f"  only if its own console says so:  {_line(inventory, [stop], '--accept', found.fingerprint)}"
    if found.state == "revoked":
        yield f"{stop.name}: THIS HOST KEY IS REVOKED and cannot be accepted"
    for place in stop.old:
        yield f"{stop.name}: an old key stays at {place}; take it out by hand"


def _line(inventory: Inventory, stops: Sequence[Stop], *more: str) -> str:
    names = [host.name for host in inventory.hosts]
    chosen = [stop.ssh.name for stop in stops if stop.ssh.name in names]
    limit = ["--limit", ",".join(chosen)] if len(chosen) == len(stops) else []
    return shlex.join(["invoke", "trust", "--inventory", inventory.path, *limit, *more])


def _as_json(stop: Stop) -> dict[str, Any]:
    found = stop.answer
    if not isinstance(found, Found):
        return {"host": stop.name, "state": "unreached", "trusted": False, "error": str(found or "")}
    return {
        "host": stop.name,
        "address": found.address,
        "label": found.label,
        "type": found.kind,
        "fingerprint": found.fingerprint,
        "state": found.state,
        "trusted": stop.trusted,
        "recorded": [
            {"type": one.kind, "fingerprint": one.fingerprint, "file": one.file, "line": one.line}
            for one in found.recorded
        ],
        "file": found.file,
        "stays": stop.old,
        "error": "",
    }
