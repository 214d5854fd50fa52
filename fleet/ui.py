"""The only module that prints: messages, tables, and the live view of a sweep."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from textwrap import wrap
from typing import Any, Protocol, TextIO

from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.text import Text

from fleet import profile
from fleet.docker import Container, Image, short
from fleet.errors import FleetError, harmless, shown
from fleet.hardware import Hardware
from fleet.model import lease
from fleet.model.hostrange import folded
from fleet.model.inventory import Host
from fleet.model.placement import remedy
from fleet.progress import Progress
from fleet.results import report
from fleet.results.pace import spoken
from fleet.results.record import Record
from fleet.stages import everyone
from fleet.stages import health as healths
from fleet.stages.health import Health, HostHealth, ServiceHealth
from fleet.stages.lease import Node
from fleet.stages.preflight import Findings
from fleet.stages.reaper import Reaped
from fleet.stages.verify import Compared, Verified
from fleet.timeline import Told, seen
from fleet.words import counted

WIDTH = 100
UNBOUNDED = 10_000
MOST_REASONS = 2
SPARSE = 15.0
"""Seconds between two lines about the same transfer, where nobody looks on."""

LATE = 0.05
"""Seconds out of order that are worth a word."""


def console(stream: TextIO | None = None) -> Console:
    """A console on stdout; 100 columns wide where no terminal says otherwise."""
    out = stream or sys.stdout
    return Console(file=out, highlight=False, soft_wrap=True, width=None if out.isatty() else WIDTH)


def say(text: str) -> None:
    """Whoever wrote it: nothing in it steers a terminal."""
    print(harmless(text), flush=True)


def raw(text: str) -> None:
    """A file's text on stdout; what it holds was made harmless before."""
    print(text, end="", flush=True)


def complain(error: FleetError | str) -> None:
    print(harmless(visible(str(error))), file=sys.stderr, flush=True)


def asks() -> bool:
    """Whether somebody is there to answer a question."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def confirm(question: str) -> bool:
    """Whether the answer is yes; the end of stdin is none."""
    try:
        return input(question).strip().lower() == "yes"
    except EOFError:
        say("")
        return False


def visible(text: str) -> str:
    """What hosts said, as a terminal would show it: without colours, of a progress bar its last state."""
    return "\n".join(map(seen, text.split("\n")))


def as_json(value: Any) -> None:
    """Characters that stdout's encoding lacks, or that do not print, are escaped as JSON does it."""
    print(_json(value, indent=2), flush=True)


def _json(value: Any, *, indent: int | None = None) -> str:
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(value, indent=indent, ensure_ascii=not unicode)
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Left-aligned columns with two spaces between, no lines, nothing cut off: as easy to read as to cut."""
    head, *lines = aligned([columns, *rows])
    out = console()
    out.width = UNBOUNDED
    out.print(Text(head, style="bold"))
    if lines:
        say("\n".join(lines))


def table_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The same as plain text."""
    return "\n".join(aligned([columns, *rows]))


def aligned(rows: Sequence[Sequence[object]]) -> list[str]:
    """Rows as lines with their cells below each other. The last cell of a row that is shorter than the others is free
    to run on."""
    texts = [[harmless(cell, keep="") for cell in row] for row in rows]
    most = max(map(len, texts))
    fixed = [row if len(row) == most else row[:-1] for row in texts]
    widths = [max((cell_len(row[at]) for row in fixed if at < len(row)), default=0) for at in range(most)]
    padded = ([cell + " " * (widths[at] - cell_len(cell)) for at, cell in enumerate(row)] for row in texts)
    return ["  ".join(row).rstrip() for row in padded]


def record_line(record: Record) -> str:
    """A point in a line: what it is, whether it may be believed, its headline numbers or the first reason why not."""
    (row,) = report.rows([record])
    head = f"conc {row.conc:>4}  {row.verdict:<7}"
    if not record.valid:
        return f"{head}  {harmless(row.reasons[0], keep='') if row.reasons else ''}"
    out, _, inter, ttft, _, _, accept = row.cells
    told = f"{head}  out {out:>6} tok/s/GPU  inter {inter:>5} tok/s/user  TTFT p50 {ttft:>5} ms"
    return told + (f"  accept {accept}" if record.depth else "")


def results(records: Sequence[Record]) -> None:
    """The result table of a run, and every reason of every point that is not valid."""
    if not records:
        say("no point has run")
        return
    shown = report.rows(records)
    if warning := report.banner(records):
        say(f"\n{warning}")
    out = console()
    first, second, *lines = points(shown, out.width if on_terminal() else UNBOUNDED).splitlines()
    out.width = UNBOUNDED
    out.print(Text(f"{first}\n{second}", style="bold"))
    rows = iter(shown)
    for line in lines:
        pale = line[:1].isdigit() and not next(rows).counts
        out.print(Text(line, style="bright_black" if pale else ""))
    for line in reasons(shown):
        say(line)


def points(rows: Sequence[report.Row], width: int) -> str:
    """Points below their arms, with as many columns as fit in `width`; what is left out is named."""
    spared: list[str] = []
    while True:
        columns = [column for column in report.COLUMNS if column.field not in spared]
        at = [report.COLUMNS.index(column) for column in columns]
        names, units = ("", "", *(one.name for one in columns)), ("conc", "verdict", *(one.unit for one in columns))
        head, second, *lines = aligned(
            [names, units, *((row.conc, row.verdict, *(row.cells[one] for one in at)) for row in rows)]
        )
        left = [field for field in report.SPARED if field not in spared]
        if not left or max(map(len, (head, second, *lines))) <= width:
            break
        spared.append(left[0])
    told = [head, second]
    for before, row, line in zip((None, *rows), rows, lines, strict=False):
        told += [f"arm {row.arm}"] if before is None or before.arm != row.arm else []
        told.append(line)
    if spared:
        titles = ", ".join(column.title for column in report.COLUMNS if column.field in spared)
        told.append(f"not shown at this width: {titles}")
    return "\n".join(told)


def reasons(rows: Sequence[report.Row]) -> Iterator[str]:
    """Why points are not valid, the first reasons of each: the later ones mostly follow from them."""
    for row in rows:
        yield from (f"{row.point}: {harmless(reason, keep='')}" for reason in row.reasons[:MOST_REASONS])
        if len(row.reasons) > MOST_REASONS:
            more = counted(len(row.reasons) - MOST_REASONS, "more reason")
            yield f"{row.point}: {more} in the summary"


def containers(found: Sequence[tuple[str, Container]], asked: Sequence[str]) -> None:
    """What runs where: ours by run and seat, strangers' by name. asked: the hosts that answered."""
    if not found:
        say(f"no container on {', '.join(asked)}" if asked else "no host answered")
        return
    titles = ("host", "seat", "state", "run", "owner", "container", "image")
    table(titles, (_container_row(host, one) for host, one in found))


def _container_row(host: str, one: Container) -> tuple[str, ...]:
    labels = one.labels
    seat = healths.seat_of(one) if one.ours else "stranger"
    return host, seat, one.status, labels.get("run", "-"), labels.get("owner", "-"), one.name, one.image


def leases(found: Sequence[Node], here: datetime) -> None:
    """Who has which node. here: UTC."""
    titles = ("host", "lease", "run", "owner", "from", "since", "renewed", "ends at the latest")
    table(titles, (_lease_row(one, here) for one in found))
    for one in found:
        if one.why:
            say(f"{one.host}: {one.why}; {_lease_way_out(one)}")


def _lease_way_out(one: Node) -> str:
    lease = one.answer.lease
    return f"if that run is over: invoke down --run {shown(lease.run)}" if lease else "what removes it: invoke reap"


def _lease_row(one: Node, here: datetime) -> tuple[str, ...]:
    held, now = one.answer.lease, one.answer.now
    if held is None:
        return (one.host, one.state, *["-"] * 6)
    times = (
        lease.clock(here, now, held.since),
        f"{lease.age(now - held.renewed)} ago",
        lease.clock(here, now, held.ends),
    )
    return (one.host, one.state, shown(held.run), shown(held.owner), shown(held.host), *times)


def reaped(found: Reaped) -> None:
    """What was done on each host, then what was left alone."""
    for host, done in found.done.items():
        say(f"{host}: {'; '.join(map(shown, done)) or 'nothing to clean up'}")
    for line in found.left:
        say(f"left alone: {shown(line)}")


def groups(found: Sequence[everyone.Group], *, asked: int) -> None:
    """Each answer once, below the hosts that gave it; what all say alike says so."""
    for group in found:
        say(group_text(group, asked=asked))


def group_text(group: everyone.Group, *, asked: int) -> str:
    count = "" if len(group.hosts) == 1 else f"  ({'all ' if len(group.hosts) == asked else ''}{len(group.hosts)})"
    code = f"  exit {group.code}" if group.code else ""
    return f"==> {folded(group.hosts)}{count}{code}" + (f"\n{visible(group.text)}" if group.text else "")


INVENTORY = ("host", "login", "GPUs", "groups", "runners")


def hosts(found: Sequence[Host]) -> None:
    """An inventory: where each host is and what it is for."""
    table(INVENTORY, map(inventory_row, found))


def inventory_row(host: Host) -> tuple[str, ...]:
    login = f"{host.user}@" if host.user else ""
    port = f":{host.port}" if host.port else ""
    gpus = f"{host.gpus} × {host.gpu or host.accelerator}" if host.gpus else "-"
    groups, runners = " ".join(host.groups) or "-", " ".join(host.runners) or "-"
    return host.name, f"{login}{host.address or host.name}{port}", gpus, groups, runners


def machines(found: Iterable[tuple[Host, Hardware]]) -> None:
    """What hosts are made of."""
    table(("host", "GPUs", "docker", "fast network", "models", "scratch"), (_machine_row(*one) for one in found))


def _machine_row(host: Host, found: Hardware) -> tuple[str, ...]:
    gpus = f"{found.gpus} × {found.gpu or found.accelerator}" if found.gpus else "none"
    docker = found.docker.version + (" sudo" if found.sudo else "") if found.docker.usable else "no"
    nics, addresses = folded([nic.name for nic in found.active]), list(found.addresses)
    network = f"{nics} {addresses[0] if len(addresses) == 1 else f'{len(addresses)} addresses'}" if nics else "none"
    models = [f"{folder} ({len(names)})" for folder, names in (found.models or {}).items() if names]
    folder = profile.scratch_folder(host, found)
    scratch = f"{found.scratch[folder] / 1e9:.0f} GB at {folder}" if folder in found.scratch else "none"
    return host.name, gpus, docker, network, ", ".join(models) or "none", scratch


@dataclass(frozen=True)
class Fit:
    """A recipe on an inventory: the hosts of its runner, and what it comes to there or why it cannot run. causes: with
    the arms that each stops, none for the whole recipe."""

    key: str
    runner: str
    hosts: tuple[str, ...]
    arms: int = 0
    points: int = 0
    causes: Mapping[str, Sequence[str]] = field(default_factory=dict)


def fits(found: Sequence[Fit]) -> None:
    """Recipes against hosts, then each cause why some cannot run, once."""
    if not found:
        say("no recipe asks for a runner label of these hosts")
        return
    table(("recipe", "runner", "hosts", "runs"), map(_fit_row, found))
    causes: dict[str, list[str]] = {}
    for fit in found:
        for cause, arms in fit.causes.items():
            causes.setdefault(cause, []).append(_stopped(fit, arms))
    for cause, stopped in causes.items():
        say(f"{cause}\n  stops: {', '.join(stopped)}")
        if write := remedy(cause):
            say(f"  write: {write}")


def _stopped(fit: Fit, arms: Sequence[str]) -> str:
    """The arms are named where they are not all."""
    some = 0 < len(arms) < fit.arms
    return f"{fit.key} ({counted(len(arms), 'arm')} of {fit.arms}: {', '.join(arms)})" if some else fit.key


def _fit_row(fit: Fit) -> tuple[str, ...]:
    runs = "no" if fit.causes else f"{counted(fit.arms, 'arm')}, {counted(fit.points, 'point')}"
    return fit.key, fit.runner, folded(fit.hosts) or "-", runs


def entries(found: Sequence[dict[str, Any]]) -> None:
    """Matrix entries as a table; --json has all their fields."""
    titles = ("exp-name", "isl/osl", "conc", "prefill", "decode", "tp", "spec", "eval", "image")
    table(titles, map(_entry_row, found))
    say(f"{counted(len(found), 'entry', 'entries')}; all fields: --json")


def _entry_row(entry: dict[str, Any]) -> tuple[str, ...]:
    conc = entry.get("conc", "-")
    shown = " ".join(map(str, conc)) if isinstance(conc, list) else str(conc)
    marked = entry.get("eval-conc", entry.get("run-eval", "-"))
    lengths = f"{entry.get('isl', '-')}/{entry.get('osl', '-')}"
    roles = tuple(_workers(entry.get(role)) for role in ("prefill", "decode"))
    return (
        str(entry.get("exp-name", "-")), lengths, shown, *roles, str(entry.get("tp", "-")),
        str(entry.get("spec-decoding", "-")), str(marked), str(entry.get("image", "-")),
    )  # fmt: skip


def _workers(block: Any) -> str:
    if not isinstance(block, dict):
        return "-"
    return f"{block['num-worker']} × tp{block['tp']}" + (" dpa" if block.get("dp-attn") else "")


HOST_TITLES = ("host", "ssh", "docker", "GPUs", "disk free", "image", "model", "running")
SERVICE_TITLES = ("host", "service", "state", "answer", "asked", "run")


def health(found: Health) -> None:
    """Hosts, then running services, then what is wrong in words."""
    table(HOST_TITLES, (_host_row(host, found) for host in found.hosts))
    if found.services:
        say("")
        table(SERVICE_TITLES, map(_service_row, found.services))
    for why in _in_words(found):
        say(why)
    say(_verdict(found))


IMAGE_TITLES = ("image", "host", "ID", "starts", "parts", "repository digest")
SEAT_TITLES = ("arm", "seat", "host", "asked", "flags", "not known")


def verified(found: Verified) -> None:
    """Images by host, then seats with what their command lines and the image's help come to."""
    rows = [(tag, host, one) for tag, hosts in found.images.items() for host, one in hosts.items()]
    if rows:
        table(IMAGE_TITLES, (_proven_row(found, *row) for row in rows))
        say("")
    table(SEAT_TITLES, (_seat_row(found, seat) for seat in found.seats))
    if any(image.double for _, _, image in rows):
        say("DOUBLE: these images play an engine; what their --help says is the double's word, not the engine's")
    say(_verified(found))


def _verified(found: Verified) -> str:
    known = sum(not seat.unknown and not seat.why for seat in found.seats)
    proven = counted(len(found.images), "image")
    return f"{proven} proven; every flag is known on {known} of {counted(len(found.seats), 'seat')}" + (
        "" if found.well else " (exit 3)"
    )


def _proven_row(found: Verified, tag: str, host: str, image: Image) -> tuple[str, ...]:
    seconds = found.seconds[tag].get(host)
    parts = found.parts[tag]
    return (
        tag, host, short(image.id) + " (double)" * image.double, "-" if seconds is None else f"{seconds:.1f} s",
        f"{len(parts)} of {len(parts)}", " ".join(image.digests) or "none, it came by docker load",
    )  # fmt: skip


def _seat_row(found: Verified, seat: Compared) -> tuple[str, ...]:
    line, image = seat.line, found.image(seat.line)
    asked = " ".join(line.help.asked) + " (double)" * bool(image and image.double)
    told = [one.flag for one in seat.unknown]
    known = "-" if seat.why else f"{seat.flags - len(seat.unknown)} of {seat.flags}"
    return line.arm, line.seat, line.host, asked, known, "not compared" if seat.why else " ".join(told) or "-"


def _service_row(one: ServiceHealth) -> tuple[str, ...]:
    return one.host, one.name, one.state, one.answer, ", ".join(one.asked), one.run


def _in_words(found: Health) -> Iterator[str]:
    """What is wrong with each host, and with all of them together."""
    for host in found.hosts:
        yield from (*((host.error,) if host.error else ()), *(f"{host.name}: {fault}" for fault in host.faults))
        if host.strangers:
            yield f"{host.name}: strangers (not touched): {', '.join(host.strangers)}"
    yield from found.models
    if found.unneeded:
        yield _unneeded(found)


def _unneeded(found: Health) -> str:
    more = counted(len(found.unneeded), "more host of the inventory is", "more hosts of the inventory are")
    return f"{more} not needed by {found.key}: {', '.join(found.unneeded)}"


def _verdict(found: Health) -> str:
    """Hosts and services counted apart, and the exit code if that is not 0."""
    well = sum(host.well for host in found.hosts)
    apart = ", models are not the same" if found.models else ""
    services = f"; {_services_verdict(found.services)}" if found.services else ""
    return f"{well} of {len(found.hosts)} hosts healthy{apart}{services}" + (f" (exit {found.code})" * (not found.well))


def _services_verdict(services: Sequence[ServiceHealth]) -> str:
    ill, starting = sum(bool(one.fault) for one in services), sum(bool(one.starting) for one in services)
    of = f"of {counted(len(services), 'service')}"
    if ill:
        return f"{ill} {of} not well" + (f", {starting} starting" if starting else "")
    return f"{starting} {of} still starting" if starting else f"{len(services)} {of} well"


def _host_row(host: HostHealth, found: Health) -> tuple[str, ...]:
    finding = host.findings
    if host.silence is not None:
        return host.name, f"no answer since {host.silence:.0f} s"
    if finding is None:
        return (host.name, "yes" if host.reached else "no", *["-"] * 6)
    images = list(finding.images.values())
    image = "-" if not images else " ".join(_image(one) for one in images)
    models = list(finding.models.values())
    model = "-" if not models else ", ".join(counted(one.files, "file") if one else "missing" for one in models)
    ours = [healths.seat_of(one) for one in finding.ours]
    return (
        host.name, f"{finding.seconds * 1000:.0f} ms", finding.docker + (" sudo" if finding.sudo else ""),
        _gpus(finding), f"{max(finding.disk.values(), default=0) / 1e9:.0f} GB", image, model, " ".join(ours) or "-",
    )  # fmt: skip


def _image(one: Image | None) -> str:
    if one is None:
        return "missing"
    return one.id.removeprefix("sha256:")[:6] + (" DOUBLE" if one.double else "")


def _gpus(finding: Findings) -> str:
    if not finding.gpus:
        return "none"
    busy = sum(gpu.share > 0.1 for gpu in finding.gpus)
    return f"{len(finding.gpus)} idle" if not busy else f"{busy} of {len(finding.gpus)} busy"


# --- health that is watched -----------------------------------------------------------------------------------------


class Watched(Protocol):
    """Where `health --watch` shows what it sees."""

    def show(self, found: Health, at: datetime) -> None:
        """How all are at this time, UTC."""
        ...

    def close(self) -> None: ...


def watched(hosts: int, *, json: bool = False) -> Watched:
    """A live table on a terminal; a line a change elsewhere and under CI=1; json: an object a round."""
    if json:
        return Rounds()
    return Board(hosts) if on_terminal() else Changes()


class Rounds:
    """One JSON object a line: what `health --json` prints, and when it was so."""

    def show(self, found: Health, at: datetime) -> None:
        print(_json({"time": _stamp(at), **found.to_json()}), flush=True)

    def close(self) -> None:
        pass


class Changes:
    """A line for each host and service when it is first seen, and when it is otherwise than before."""

    def __init__(self) -> None:
        self._before: dict[str, str] = {}

    def show(self, found: Health, at: datetime) -> None:
        now = states(found)
        for name, state in now.items():
            if _lasting(state) != _lasting(self._before.get(name, "")):
                say(f"{_stamp(at)}  {name}: {state}" if name else f"{_stamp(at)}  {state}")
        for name in self._before.keys() - now.keys():
            say(f"{_stamp(at)}  {name}: gone")
        self._before = now

    def close(self) -> None:
        pass


def states(found: Health) -> dict[str, str]:
    """What is to be said of each host and service, of their models, and of all together under ""."""
    told = {host.name: _host_state(host, found) for host in found.hosts}
    told |= {f"{one.name} on {one.host}, run {one.run}": f"{one.state}, {one.answer}" for one in found.services}
    if any(host.findings and host.findings.models for host in found.hosts):
        told["models"] = "; ".join(found.models) or "the same on all hosts that answer"
    if found.unneeded:
        told["hosts"] = _unneeded(found)
    return told | {"": _verdict(found)}


def _host_state(host: HostHealth, found: Health) -> str:
    error = _one_line(host.error.removeprefix(f"{host.name}: "))
    if host.silence is not None:
        return "no answer" + (f": {error}" if error else "")
    if error:
        return error
    cells = [*zip(HOST_TITLES, _host_row(host, found), strict=True)][2:-1]
    shown = ", ".join(f"{title} {cell}" for title, cell in cells if cell != "-")
    return f"{'; '.join(host.faults) or 'well'}   {shown}"


def _one_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines())


def _lasting(state: str) -> str:
    """What is left of a state without what changes all the time: shares, sizes, offsets, how long ago it was, and the
    reason why a host is silent after the first."""
    state = re.sub("^no answer: .*", "no answer, and why", state)
    return re.sub(r"[+-]?\d+\.\d+|\d+ ?(%|[MG]B\b)|(?<=\)) [\w ]+ ago\b", "", state)


def _stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


class Board:
    """A terminal's whole screen, drawn anew each round; the last state stays behind as `health` prints it."""

    def __init__(self, hosts: int) -> None:
        self._last: Health | None = None
        self._live = Live(Text(f"asking {counted(hosts, 'host')}"), console=console(), screen=True, auto_refresh=False)
        self._live.start(refresh=True)

    def show(self, found: Health, at: datetime) -> None:
        self._last = found
        size = self._live.console.size
        self._live.update(Group(*board(found, at, size.width, size.height)), refresh=True)

    def close(self) -> None:
        self._live.stop()
        if self._last:
            health(self._last)


def board(found: Health, at: datetime, width: int, height: int) -> list[Text]:
    """The same as `health`, verdict first, in lines that fit: where there are too many, hosts and services that are
    well are only counted."""
    lines = _board(found, at, width)
    if len(lines) > height:
        lines = _board(found, at, width, only_ill=True)
    return lines if len(lines) <= height else [*lines[: height - 1], Text("…", no_wrap=True)]


def _board(found: Health, at: datetime, width: int, *, only_ill: bool = False) -> list[Text]:
    hosts = [host for host in found.hosts if not (only_ill and host.well)]
    services = [one for one in found.services if not (only_ill and one.well)]
    lines = [
        _cut(
            f"{_verdict(found)}   {at:%H:%M:%S} UTC   ^C ends",
            width,
            f"bold {_colour(found.well, found.ill) or 'green'}",
        )
    ]
    lines += _rows(HOST_TITLES, [(_host_row(host, found), _colour(host.well)) for host in hosts], width)
    lines += _rows(SERVICE_TITLES, [(_service_row(one), _colour(one.well, bool(one.fault))) for one in services], width)
    if only_ill:
        left = len(found.hosts) + len(found.services) - len(hosts) - len(services)
        lines.append(_cut(f"… {counted(left, 'more host or service is', 'more hosts and services are')} well", width))
    shown = "\n".join(line.plain for line in lines)
    cut = (f"{one.name} on {one.host}: {one.answer}" for one in services if one.answer not in shown)
    for why in (*cut, *_in_words(found)):
        lines += [
            _cut(part, width) for line in why.splitlines() for part in wrap(line, width, break_on_hyphens=False) or [""]
        ]
    return lines


def _colour(well: bool, ill: bool = True) -> str:
    """Red for what is ill, yellow for what is neither ill nor well, none for what is well."""
    return "" if well else "red" if ill else "yellow"


def _rows(titles: Sequence[str], rows: Sequence[tuple[Sequence[str], str]], width: int) -> list[Text]:
    """A table's lines, each row in its colour."""
    if not rows:
        return []
    head, *lines = aligned([titles, *(row for row, _ in rows)])
    told = [_cut(line, width, colour) for line, (_, colour) in zip(lines, rows, strict=True)]
    return [_cut("", width), _cut(head, width, "bold"), *told]


def _cut(line: str, width: int, style: str = "") -> Text:
    text = Text(harmless(line, keep=""), style=style, no_wrap=True, overflow="ellipsis")
    text.truncate(width, overflow="ellipsis")
    return text


# --- logs that are followed -----------------------------------------------------------------------------------------


COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green", "bright_magenta", "bright_blue")


class Tape:
    """Lines of several services, each behind its time, seat and host; on a terminal each service has its colour."""

    def __init__(self) -> None:
        self._seat, self._host = 8, 0
        self._colours: dict[tuple[str, str], str] = {}
        self._console = console() if on_terminal() else None

    def tell(self, told: Told) -> None:
        line = told.line
        self._seat, self._host = max(self._seat, len(line.seat)), max(self._host, len(line.host))
        at = datetime.fromtimestamp(line.time, UTC).isoformat(timespec="milliseconds")[11:23]
        head = f"{at}  {line.seat or '-':<{self._seat}}  {line.host or '-':<{self._host}}  "
        late = f"({told.late:.1f} s late) " if told.late >= LATE else ""
        text = harmless(f"{'==> ' if line.note else ''}{late}{line.text}", keep="\t")
        if self._console is None:
            return say(f"{head}{text}".rstrip())
        colour = self._colours.setdefault((line.host, line.seat), COLOURS[len(self._colours) % len(COLOURS)])
        self._console.print(Text.assemble((head, colour), (text, "bold" if line.note else "")))
        return None


# --- a sweep under way ----------------------------------------------------------------------------------------------


def transfer(done: int, total: int, rate: float) -> str:
    """Bytes under way: how many of how many, how many a second, and how long it still takes."""
    unit, name = (1e9, "GB") if max(done, total) >= 1e10 else (1e6, "MB")
    of = f"{done / unit:.0f} of {total / unit:.0f} {name}" if total else f"{done / unit:.0f} {name}"
    speed = f"  {rate / 1e6:.1f} MB/s" if rate else ""
    left = f"  {spoken(max(0, total - done) / rate)} left" if rate and total else ""
    return f"{of}{speed}{left}"


def meter(done: int, total: int) -> str:
    """A bar of twelve places."""
    full = min(12, 12 * done // total) if total else 0
    return f"{'█' * full}{'░' * (12 - full)}  " if total else ""


class Plain:
    """One event, one line: for pipes, logs and CI."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._lock = threading.Lock()
        self._moved: dict[str, float] = {}

    def line(self, text: str) -> None:
        with self._lock:
            print(harmless(text), file=self._stream, flush=True)

    def host(self, stage: str, host: str, text: str, *, done: bool = False) -> None:
        if done:
            self.line(f"  {stage:<9}  {host:<10}  {harmless(text, keep='')}")

    def moved(self, stage: str, host: str, done: int, total: int, rate: float) -> None:
        """Now and then."""
        now = time.monotonic()
        with self._lock:
            due = now - self._moved.setdefault(host, now) >= SPARSE
            if due:
                self._moved[host] = now
        if due:
            self.line(f"  {stage:<9}  {host:<10}  {transfer(done, total, rate)}")

    def requests(self, what: str, finished: float, total: int) -> None:
        pass

    def record(self, record: Record) -> None:
        self.line(f"  {record_line(record)}")

    def clear(self) -> None:
        pass

    def close(self) -> None:
        pass


class Screen:
    """A terminal: what is over scrolls up, below it one live line a host and one bar for the arm."""

    def __init__(self) -> None:
        self._console = console()
        self._lock = threading.Lock()
        self._hosts: dict[str, str] = {}
        self._bars = Bars(
            TextColumn("  {task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("requests"),
            TimeRemainingColumn(),
        )
        self._live = Live(Group(), console=self._console, refresh_per_second=4, transient=True)
        self._live.start()

    def _redraw(self) -> None:
        lines = [Text(line, no_wrap=True, overflow="ellipsis") for line in self._hosts.values()]
        self._live.update(Group(*lines, self._bars) if self._bars.tasks else Group(*lines))

    def line(self, text: str) -> None:
        with self._lock:
            self._live.console.print(Text(harmless(text)))

    def host(self, stage: str, host: str, text: str, *, done: bool = False) -> None:
        shown = f"  {stage:<9}  {host:<10}  {harmless(text, keep='')}"
        with self._lock:
            if done:
                self._hosts.pop(host, None)
                self._live.console.print(Text(shown))
            else:
                self._hosts[host] = shown
            self._redraw()

    def moved(self, stage: str, host: str, done: int, total: int, rate: float) -> None:
        self.host(stage, host, f"{meter(done, total)}{transfer(done, total, rate)}")

    def requests(self, what: str, finished: float, total: int) -> None:
        with self._lock:
            if not self._bars.tasks:
                self._bars.add_task(what, total=total)
            what = harmless(what, keep="")
            self._bars.update(self._bars.tasks[0].id, description=what, completed=int(finished), total=total)
            self._redraw()

    def _forget_bars(self) -> None:
        for task in list(self._bars.tasks):
            self._bars.remove_task(task.id)

    def record(self, record: Record) -> None:
        with self._lock:
            self._live.console.print(Text(harmless(f"  {record_line(record)}", keep="")))
            self._redraw()

    def clear(self) -> None:
        with self._lock:
            self._forget_bars()
            self._hosts.clear()
            self._redraw()

    def close(self) -> None:
        self.clear()
        self._live.stop()


def progress(*, json: bool = False) -> Progress:
    """Live on a terminal, plain lines elsewhere and under CI=1. json: stdout is for JSON, so lines go to stderr."""
    if json:
        return Plain(sys.stderr)
    return Screen() if on_terminal() else Plain()


def on_terminal() -> bool:
    """Whether somebody looks on: stdout is a terminal and CI is not set."""
    return sys.stdout.isatty() and not os.environ.get("CI")
