"""Questions to a host: a command, and a pure parser of what it prints.

Parsers take the exit code and both outputs, and never guess: a tool that is missing or silent is a finding of its own.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from fleet.docker import Container
from fleet.errors import shown
from fleet.model.base import Model
from fleet.words import counted

T = TypeVar("T")

_PLAIN = ("env", "LC_ALL=C")


@dataclass(frozen=True)
class Probe(Generic[T]):
    """`argv` runs on the host; `parse(code, stdout, stderr)` reads the outcome."""

    argv: tuple[str, ...]
    parse: Callable[[int, str, str], T]


# --- docker ---------------------------------------------------------------------------------------------------------


class DockerAccess(Model):
    """Whether this user may use Docker this way; `cause` says why not."""

    usable: bool
    version: str = ""
    cause: str = ""


def docker_access(sudo: bool = False) -> Probe[DockerAccess]:
    """Asked as the user first, then with `sudo -n`; `docker_prefix` picks the way that works."""
    argv = ("docker", "version", "--format", "{{.Server.Version}}")
    return Probe(("sudo", "-n", *argv) if sudo else argv, _docker_access)


def docker_prefix(plain: DockerAccess, sudo: DockerAccess) -> tuple[tuple[str, ...] | None, str]:
    """What to put before `docker` (None: nothing works), and the cause in words."""
    if plain.usable:
        return (), ""
    if sudo.usable:
        return ("sudo", "-n"), ""
    return None, plain.cause if plain.cause == sudo.cause else f"{plain.cause}; with sudo -n: {sudo.cause}"


def _docker_access(code: int, out: str, err: str) -> DockerAccess:
    if code == 0 and out.strip():
        return DockerAccess(usable=True, version=out.strip())
    known = {
        "permission denied": "this user may not use the Docker socket (not in group docker)",
        "a password is required": "sudo asks for a password",
        "sudoers": "this user may not use sudo",
        "Cannot connect to the Docker daemon": "the Docker daemon does not answer",
        "not found": "docker is not installed",
        "No such file": "docker is not installed",
    }
    for text, cause in known.items():
        if text in err:
            return DockerAccess(usable=False, cause=cause)
    return DockerAccess(usable=False, cause=_first_line(err) or f"docker version: exit {code}, no output")


# --- clock and network ----------------------------------------------------------------------------------------------

CLOCK: Probe[float | None] = Probe(("date", "+%s.%N"), lambda code, out, err: _number(out) if code == 0 else None)
"""Seconds since 1970 on that host."""


def clock_offset(remote: float, before: float, after: float) -> tuple[float, float]:
    """How far the remote clock is ahead, in seconds, and how much of that may be the way there and back."""
    return remote - (before + after) / 2, (after - before) / 2


def lead(offset: float | None, error: float) -> float:
    """The seconds to put a host's times right by: an offset that its measurement's error explains is none."""
    return offset if offset is not None and abs(offset) > error else 0.0


def _ports_in_use(code: int, out: str, err: str) -> frozenset[int] | None:
    """None if the listing failed."""
    if code != 0:
        return None
    locals_ = [line.split()[3] for line in out.splitlines() if len(line.split()) >= 4]
    return frozenset(int(name.rpartition(":")[2]) for name in locals_ if name.rpartition(":")[2].isdigit())


PORTS: Probe[frozenset[int] | None] = Probe(("ss", "-Hltn"), _ports_in_use)
"""TCP ports that something listens on."""


class Holder(Model):
    """Who listens on a port. container: ID of the one that the process is in. "" and 0: this user cannot see it."""

    program: str = ""
    pid: int = 0
    container: str = ""

    def said(self, containers: Sequence[Container] = ()) -> str:
        """In words; "" if nobody knows."""
        inside = next((one for one in containers if self.container and one.id == self.container), None)
        if inside:
            whose = f"run {shown(inside.labels['run'])}" if inside.ours else "a stranger's"
            return f"container {shown(inside.name)} ({whose})"
        return f"{shown(self.program) or 'a process'} (pid {self.pid})" if self.pid else ""


_HOLDERS = (
    'out=$("$@" ss -Hltnp) || exit; printf "%s\\n" "$out"; '
    'for pid in $(printf "%s" "$out" | grep -o "pid=[0-9]*" | cut -d= -f2 | sort -u); do '
    'printf "cgroup %s %s\\n" "$pid" "$(grep -oE "[0-9a-f]{64}" "/proc/$pid/cgroup" 2>/dev/null | head -n 1)"; done'
)


def holders(prefix: Sequence[str] = ()) -> Probe[dict[int, Holder]]:
    """By port. ss names other users' processes to root only. prefix: `sudo -n`, where Docker is used that way, too."""
    return Probe(("sh", "-c", _HOLDERS, "_", *prefix), _holders)


def _holders(code: int, out: str, err: str) -> dict[int, Holder]:
    inside = {row[1]: row[2] for row in map(str.split, out.splitlines()) if row[:1] == ["cgroup"] and len(row) == 3}
    found: dict[int, Holder] = {}
    for line in out.splitlines():
        cells = line.split()
        port = cells[3].rpartition(":")[2] if len(cells) > 4 else ""
        seen = re.search(r'users:\(\("([^"]*)",pid=(\d+)', line)
        if port.isdigit() and seen:
            found[int(port)] = Holder(program=seen[1], pid=int(seen[2]), container=inside.get(seen[2], ""))
    return found


_REACH = 'exec 3<>"/dev/tcp/$1/$2"'


class Reach(Model):
    """What a connection attempt met. Refused is good news before a start: the host is there and the port is free."""

    state: str

    @property
    def reachable(self) -> bool:
        return self.state in ("open", "refused")


def reach(address: str, port: int, seconds: int = 3) -> Probe[Reach]:
    """From the host that runs it to a peer."""
    return Probe((*_PLAIN, "timeout", str(seconds), "bash", "-c", _REACH, "_", address, str(port)), _reach)


def _reach(code: int, out: str, err: str) -> Reach:
    if code == 0:
        return Reach(state="open")
    if code == 124:
        return Reach(state="no answer")
    for text in ("refused", "No route to host", "Network is unreachable"):
        if text.lower() in err.lower():
            return Reach(state=text.lower())
    if "Name or service not known" in err or "name resolution" in err or "Invalid argument" in err:
        return Reach(state="unknown name")
    return Reach(state=_first_line(err) or f"exit {code}")


# --- disk, devices, GPUs --------------------------------------------------------------------------------------------


def disk(*paths: str) -> Probe[dict[str, int]]:
    """Free bytes by path, as far as they exist (a missing one is absent from the answer)."""
    return Probe((*_PLAIN, "df", "-PB1", "--", *paths), lambda code, out, err: _disk(paths, out, err))


def _disk(paths: Sequence[str], out: str, err: str) -> dict[str, int]:
    """df prints one row for each path that exists, in order, and complains about the others by name."""
    there = [path for path in paths if f"{path}:" not in err and f"'{path}'" not in err]
    free = [row.split()[3] for row in out.splitlines()[1:] if len(row.split()) >= 6]
    return {path: int(size) for path, size in zip(there, free, strict=False) if size.isdigit()}


_EXISTS = 'for path; do test -e "$path" || printf "%s\\n" "$path"; done'


def missing(*paths: str) -> Probe[tuple[str, ...] | None]:
    """Those of the paths that are not there; None if that could not be found out."""
    return Probe(("bash", "-c", _EXISTS, "_", *paths), lambda code, out, err: _lines(out) if code == 0 else None)


class Gpu(Model):
    """Memory of one GPU in bytes."""

    name: str
    used: int
    total: int

    @property
    def share(self) -> float:
        return self.used / self.total if self.total else 1.0


_SYSFS = (
    "for dir in /sys/class/drm/card*/device; do "
    'test -r "$dir/mem_info_vram_total" || continue; '
    'card=${dir%/device}; printf "%s %s %s\\n" "${card##*/}" '
    '"$(cat "$dir/mem_info_vram_used")" "$(cat "$dir/mem_info_vram_total")"; done'
)
ROCM_GPUS: Probe[tuple[Gpu, ...]]
CUDA_GPUS: Probe[tuple[Gpu, ...]]


def _rocm(code: int, out: str, err: str) -> tuple[Gpu, ...]:
    rows = [line.split() for line in out.splitlines()]
    return tuple(
        Gpu(name=name, used=int(used), total=int(total))
        for name, used, total in (row for row in rows if len(row) == 3)
        if used.isdigit() and total.isdigit()
    )


def _cuda(code: int, out: str, err: str) -> tuple[Gpu, ...]:
    rows = [[cell.strip() for cell in line.split(",")] for line in out.splitlines()]
    mib = 1 << 20
    return tuple(
        Gpu(name=f"gpu{name}", used=int(used) * mib, total=int(total) * mib)
        for name, used, total in (row for row in rows if len(row) == 3)
        if used.isdigit() and total.isdigit()
    )


ROCM_GPUS = Probe(("bash", "-c", _SYSFS), _rocm)
"""From the amdgpu driver's own files: needs no tool, which could be missing and let a busy GPU pass."""

CUDA_GPUS = Probe(("nvidia-smi", "--query-gpu=index,memory.used,memory.total", "--format=csv,noheader,nounits"), _cuda)


_COMM = (
    'printf "%s %s %s %s\\n" "$pid" "$used" "$(cat "/proc/$pid/comm" 2>/dev/null | tr " " _)" '
    '"$(grep -oE "[0-9a-f]{64}" "/proc/$pid/cgroup" 2>/dev/null | head -n 1)"; done'
)
_KFD = (
    "for dir in /sys/class/kfd/kfd/proc/[0-9]*; do pid=${dir##*/}; "
    'used=$(cat "$dir"/vram_* 2>/dev/null | awk \'{s+=$1} END {printf "%.0f", s}\'); '
)
_NVIDIA = (
    "nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader,nounits | tr -d , | "
    "while read -r pid used; do "
)


def _gpu_holders(code: int, out: str, err: str) -> tuple[Holder, ...]:
    """Rows of pid, memory, program and container, of which the last two may be missing."""
    rows = [row for row in map(str.split, out.splitlines()) if len(row) >= 2 and row[0].isdigit() and row[1] != "0"]
    return tuple(Holder(pid=int(row[0]), program="".join(row[2:3]), container="".join(row[3:4])) for row in rows)


ROCM_HOLDERS: Probe[tuple[Holder, ...]] = Probe(("sh", "-c", _KFD + _COMM), _gpu_holders)
"""Processes with GPU memory, from the amdkfd driver's own files: needs no tool, and shows other users', too."""

CUDA_HOLDERS: Probe[tuple[Holder, ...]] = Probe(("sh", "-c", _NVIDIA + _COMM), _gpu_holders)


def held_by(holders: Sequence[Holder], containers: Sequence[Container]) -> str:
    """` by nc (pid 7), container web (a stranger's)`; "" if nobody knows."""
    told = list(dict.fromkeys(filter(None, (one.said(containers) for one in holders))))
    return f" by {', '.join(told)}" if told else ""


def not_idle(gpus: Sequence[Gpu], expected: int, limit: float = 0.10) -> str:
    """Why these GPUs cannot be used; "" if all are idle. Too few GPUs in the answer is a reason, never a pass."""
    if len(gpus) < expected:
        return f"{counted(len(gpus), 'GPU')} found, {expected} in the inventory"
    busy = [f"{gpu.name} {gpu.share:.0%}" for gpu in gpus if gpu.share > limit]
    return f"GPU memory in use: {', '.join(busy)}" if busy else ""


# --- processes ------------------------------------------------------------------------------------------------------


def deaf(inits: Mapping[int, str]) -> Probe[frozenset[int]]:
    """Those first processes of containers that their stop signal does not reach: the kernel drops what the first one
    of a PID namespace neither handles nor blocks (pid_namespaces(7)). docker's own init (`--init`) blocks them all to
    pass them on. inits: the signal's name by process; "" is TERM.
    """
    files = [f"/proc/{pid}/status" for pid in inits]
    return Probe(("grep", "-HE", "^Sig(Blk|Cgt):", *files), lambda code, out, err: _deaf(inits, out))


def _deaf(inits: Mapping[int, str], out: str) -> frozenset[int]:
    heard: dict[int, int] = {}
    for line in out.splitlines():
        file, _, mask = line.partition(":Sig")
        pid = int(file.split("/")[2])
        heard[pid] = heard.get(pid, 0) | int(mask.partition(":")[2], 16)
    named = {pid: _signal(sign) for pid, sign in inits.items()}
    return frozenset(pid for pid, mask in heard.items() if named[pid] and not mask >> (named[pid] - 1) & 1)


SIGNALS = {"HUP": 1, "INT": 2, "QUIT": 3, "USR1": 10, "USR2": 12, "TERM": 15, "WINCH": 28}
"""Linux's numbers of what images ask to be ended by: signal(7)."""


def _signal(sign: str) -> int:
    """0 of one that is not known here: then docker sends it, and waits."""
    return int(sign) if sign.isdigit() else SIGNALS.get((sign or "TERM").upper().removeprefix("SIG"), 0)


# --- model directory and images -------------------------------------------------------------------------------------


class Listing(Model):
    """Files of a directory with their sizes. `digest` is equal where names and sizes are."""

    files: int
    size: int
    digest: str


def directory(path: str) -> Probe[Listing | None]:
    """All files below a directory, links followed; None if it is not there or empty."""
    return Probe(("find", "-L", path, "-type", "f", "-printf", "%P\\t%s\\n"), _listing)


def _listing(code: int, out: str, err: str) -> Listing | None:
    rows = sorted(line for line in out.splitlines() if "\t" in line)
    if code != 0 or not rows:
        return None
    size = sum(int(row.rpartition("\t")[2]) for row in rows)
    return Listing(files=len(rows), size=size, digest=hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16])


def differing(listings: dict[str, Listing | None]) -> str:
    """What is not the same on every host, in words; "" if all is."""
    absent = [host for host, listing in listings.items() if listing is None]
    told = [f"missing or empty on {', '.join(absent)}"] if absent else []
    groups: dict[str, list[str]] = {}
    for host, listing in listings.items():
        if listing:
            what = f"{counted(listing.files, 'file')}, {counted(listing.size, 'byte')}, {listing.digest}"
            groups.setdefault(what, []).append(host)
    if len(groups) > 1:
        told += [f"{', '.join(hosts)}: {what}" for what, hosts in groups.items()]
    return "; ".join(told)


def strangers(containers: Sequence[Container]) -> tuple[str, ...]:
    """Running containers that fleet did not start."""
    return tuple(f"{c.name} ({c.image})" for c in containers if c.state == "running" and not c.ours)


# --- what the host is -----------------------------------------------------------------------------------------------


def _facts(code: int, out: str, err: str) -> dict[str, str]:
    pairs = [line.partition("=") for line in out.splitlines() if "=" in line]
    return {key: value.strip() for key, _, value in pairs if value.strip()}


_FACTS = (
    'printf "kernel=%s\\n" "$(uname -r)"; printf "machine=%s\\n" "$(uname -m)"; printf "cpus=%s\\n" "$(nproc)"; '
    'printf "hostname=%s\\n" "$(uname -n)"; '
    'printf "os=%s\\n" "$(. /etc/os-release 2>/dev/null; echo "$PRETTY_NAME")"; '
    'printf "amdgpu=%s\\n" "$(cat /sys/module/amdgpu/version 2>/dev/null)"; '
    'printf "nvidia=%s\\n" "$(cat /sys/module/nvidia/version 2>/dev/null)"; '
    'printf "rocm=%s\\n" "$(cat /opt/rocm/.info/version 2>/dev/null)"'
)
FACTS: Probe[dict[str, str]] = Probe(("bash", "-c", _FACTS), _facts)
"""Kernel, distribution, CPUs and GPU driver; what is not there is absent."""


def _number(text: str) -> float | None:
    try:
        return float(text.strip())
    except ValueError:
        return None


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line for line in text.splitlines() if line)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def gpus_json(out: str) -> tuple[Gpu, ...]:
    """`rocm-smi --showmeminfo vram --json`, for hosts whose sysfs is not readable. Empty output is no GPU at all."""
    try:
        cards = json.loads(out)
    except ValueError:
        return ()
    used, total = "VRAM Total Used Memory (B)", "VRAM Total Memory (B)"
    rows = cards.items() if isinstance(cards, dict) else []
    return tuple(
        Gpu(name=name, used=int(card[used]), total=int(card[total]))
        for name, card in rows
        if isinstance(card, dict) and used in card and total in card
    )
