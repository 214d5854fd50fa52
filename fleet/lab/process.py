"""Processes of this machine, told apart for good: a pid alone may long be somebody else's."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fleet.errors import LabError

PROC = Path("/proc")
MARK = "FLEET_LAB"  # in the environment of all that a lab starts, so that a lost record loses no process


@dataclass(frozen=True)
class Process:
    """`start`: clock ticks since the boot named by `boot` (proc(5): stat, field 22). Together unique for good."""

    boot: str
    pid: int
    start: int

    @property
    def alive(self) -> bool:
        return self.boot == boot_id() and find(self.pid) == self


def boot_id() -> str:
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def parse(boot: str, stat: str) -> Process:
    """From a boot id and a line of /proc/PID/stat, whose command name may itself hold spaces and parentheses."""
    pid, rest = stat.split(" ", 1)[0], stat.rpartition(")")[2].split()
    return Process(boot, int(pid), int(rest[19]))


def find(pid: int) -> Process | None:
    """The process that has this pid now; None if there is none, or only a zombie."""
    try:
        stat = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    return None if stat.rpartition(")")[2].split()[0] in "ZX" else parse(boot_id(), stat)


def recorded(path: Path) -> Process | None:
    """The process whose boot id and stat line are in `path`, dead or alive; None if nothing legible is there."""
    try:
        boot, _, stat = path.read_text().strip().partition(" ")
        return parse(boot, stat)
    except (OSError, ValueError, IndexError):
        return None


def pids() -> Iterator[int]:
    return (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())


def marked(lab: str, node: str | None = None) -> list[int]:
    """What a lab (or one node of it) started, by the mark in the environment. Programs that retitle lose the mark."""
    wanted = f"{MARK}={lab}/{node or ''}".encode()

    def ours(pid: int) -> bool:
        words = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
        return wanted in words if node else any(word.startswith(wanted) for word in words)

    return [pid for pid in pids() if _true(ours, pid)]


def in_namespace(kind: str, inode: int) -> list[int]:
    """Processes of the namespace (`kind`: net, pid, …) with this inode number."""
    return [pid for pid in pids() if _true(lambda p: os.stat(f"/proc/{p}/ns/{kind}").st_ino == inode, pid)]


def name(pid: int) -> str:
    """The command name; empty when the process is gone."""
    try:
        return (PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""


def title(pid: int) -> str:
    """The command line, which a program may have rewritten; empty when the process is gone."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def kill(victims: Iterable[int], *, seconds: float = 15.0) -> None:
    """SIGKILL, and wait until they are gone (a namespace's PID 1 goes last). Raises LabError if one stays."""
    left = {found for pid in victims if pid != os.getpid() and (found := find(pid))}
    for victim in left:
        try:
            os.kill(victim.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    wait(lambda: not any(victim.alive for victim in left), seconds, "killed processes did not end")


def wait(condition: Callable[[], bool], seconds: float, failure: str) -> None:
    """Poll until `condition` holds. Raises LabError(failure) after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise LabError(f"{failure} within {seconds:g} s")
        time.sleep(0.02)


def _true(test: Callable[[int], bool], pid: int) -> bool:
    try:
        return test(pid)
    except OSError:  # gone meanwhile
        return False
