"""A run's folder under results/: short names, files written aside and renamed, records appended and synced."""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from fleet.errors import FleetError, HostError, LeaseHeld, NotKept, UsageError, cited, shown
from fleet.model.arm import Point
from fleet.model.near import nearest
from fleet.model.seat import Seat
from fleet.results import lock
from fleet.results import record as lines
from fleet.results.lock import Lock
from fleet.results.record import Record
from fleet.results.state import Drive, RunState
from fleet.words import counted

T = TypeVar("T")

LATEST = "latest"
LOCK = ".lock"
LOOKS = 5
ROOM = 64 << 20
"""Bytes that have to be free before a run and before each of its points: results and logs of a point fit well."""
PROBE = 64 * 1024
"""Bytes that a folder must take before a run starts."""
ELSEWHERE = "another folder: fleet.results in invoke.yaml, or INVOKE_FLEET_RESULTS=FOLDER before invoke"
_RUN = re.compile(r"\d{8}-\d{6}-.+")
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
"""What is the disk's fault, not that of the folder that was named."""
_HINTS = {
    errno.ENOSPC: "free some space there; what {run} has finished is kept",
    errno.EDQUOT: "the quota is used up: free some space; what {run} has finished is kept",
    errno.EACCES: "who owns it?  ls -ld {folder}",
    errno.EPERM: "who owns it?  ls -ld {folder}",
    errno.EROFS: "mounted read-only: use another results folder",
    errno.ENAMETOOLONG: "the config key is too long for a folder name",
}


@dataclass(frozen=True)
class RunFolder:
    """One run's folder. Paths are made here and nowhere else; `relative` gives those that go into records."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def recipe(self) -> Path:
        return self.path / "recipe.yaml"

    @property
    def inventory(self) -> Path:
        return self.path / "inventory.yaml"

    @property
    def plan_json(self) -> Path:
        return self.path / "plan.json"

    @property
    def plan_text(self) -> Path:
        return self.path / "plan.txt"

    @property
    def facts(self) -> Path:
        return self.path / "facts.json"

    @property
    def points(self) -> Path:
        return self.path / "points.jsonl"

    @property
    def summary_text(self) -> Path:
        return self.path / "summary.md"

    @property
    def summary_json(self) -> Path:
        return self.path / "summary.json"

    @property
    def state_json(self) -> Path:
        return self.path / "state.json"

    @property
    def lock_json(self) -> Path:
        return self.path / "lock.json"

    def raw(self, point: str, attempt: int = 1) -> Path:
        return self.path / "raw" / f"{_plain(point)}{_again(attempt)}.json"

    def agg(self, point: str, attempt: int = 1) -> Path:
        return self.path / "agg" / f"{_plain(point)}{_again(attempt)}.json"

    def logs(self, arm: str) -> Path:
        return self.path / "logs" / _plain(arm)

    def log(self, arm: str, seat: str) -> Path:
        return self.logs(arm) / f"{_plain(seat)}.log"

    def all_logs(self) -> list[Path]:
        """Every log that is there, in the order of arms and seats."""
        return sorted((self.path / "logs").glob("*/*.log"))

    def set_aside(self, log: Path) -> None:
        """Give a log that is there another name, so that a later container's does not replace it. Raises FleetError."""
        with told(self.path, log):
            if log.exists():
                names = (log.with_name(f"{log.stem}-{number}{log.suffix}") for number in itertools.count(1))
                log.rename(next(name for name in names if not name.exists()))

    def room(self) -> None:
        """Raises FleetError where the disk is as good as full, while nothing of a point is lost yet."""
        if (free := _free(self.path)) < ROOM:
            raise FleetError(_cramped(free), where=str(self.path), hint=_HINTS[errno.ENOSPC].format(run=self.name))

    def make_latest(self) -> None:
        """Point results/latest at this run. Raises FleetError."""
        with told(self.path, self.path.parent / LATEST):
            _link_latest(self.path.parent, self.path.name)

    def relative(self, path: Path) -> str:
        return path.relative_to(self.path).as_posix()

    def write_bytes(self, path: Path, data: bytes) -> None:
        """Write aside, sync, rename: readers see the old content or the new, never a part. Raises FleetError."""
        with told(self.path, path):
            path.parent.mkdir(parents=True, exist_ok=True)
            replace(path, data)

    def write_text(self, path: Path, text: str) -> None:
        self.write_bytes(path, text.encode())

    def write_json(self, path: Path, value: Any) -> None:
        """JSON with the order of keys kept; NaN and infinity are refused with ValueError."""
        self.write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")

    def append_record(self, record: Record) -> None:
        """Add one line in one write and sync it before returning; if that fails the file is as before. FleetError.

        A last line that an earlier death cut off is moved to points.torn first, so it never runs into this one.
        """
        with told(self.path, self.points):
            descriptor = os.open(self.points, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                self._end_line(descriptor)
                _append(descriptor, record.to_line().encode())
            finally:
                os.close(descriptor)
            _sync_folder(self.path)

    def hosts(self, arm: str, log: str) -> set[str]:
        """Where the plan seated the service that wrote logs/<arm>/<log>.log."""

        def seated(plan: Any) -> set[str]:
            seats = [seat for one in plan["arms"] if one["arm"]["name"] == arm for seat in one["placement"]["seats"]]
            named = [Seat.model_validate_json(json.dumps(seat)) for seat in seats]
            return {seat.host for seat in named if seat.name == log.partition("-")[0]}

        hint = "its logs of all hosts: leave --host out"
        return self.planned(seated, hint=hint) if self.plan_json.exists() else set()

    def planned(self, understand: Callable[[Any], T], *, hint: str) -> T:
        """What `understand` makes of the run's plan. Raises UsageError: it is not there, not readable, or no plan."""
        try:
            return understand(json.loads(self.plan_json.read_text()))
        except FileNotFoundError:
            why = "the plan of this run is not there"
        except OSError as error:
            why = f"the plan of this run cannot be read: {error.strerror}"
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            why = "the run's plan.json is not a plan (damaged?)"
        raise UsageError(why, where=str(self.plan_json), hint=hint)

    def read(self) -> lines.Points:
        """All records, and a torn last line if there is one. A run without a finished point has none."""
        with told(self.path, self.points):
            try:
                text = self.points.read_text(encoding="utf-8", errors="replace")
            except FileNotFoundError:
                return lines.Points(())
        return lines.read(text, where=str(self.points), stranger=self._stranger)

    def _stranger(self, record: Record) -> str:
        """Why a record is not one of this run, as far as its plan can be read."""
        plan = _planned(self.plan_json)
        if plan is None:
            return ""
        if record.run != self.name:
            return f"a record of run {shown(record.run)}"
        if record.plan != plan.hash:
            return f"a record of plan {shown(record.plan[:6])}, the run's is {plan.hash[:6]}"
        return "" if record.point in plan.points else f"the plan has no point {shown(record.point)}"

    def oddities(self) -> list[str]:
        """What is strange about the run's records and files, a line each."""
        found = self.read()
        told = list(found.foreign)
        for one in lines.latest(found.records):
            gone = [path for path in (one.raw, one.agg) if path and not (self.path / path).is_file()]
            told += [f"{shown(path)} is missing, which the record of {shown(one.point)} names" for path in gone]
        raw = len(list((self.path / "raw").glob("*.json")))
        if raw and not self.points.exists():
            told.append(
                f"points.jsonl is missing: no point counts as run, whatever raw/ holds ({counted(raw, 'file')})"
            )
        return told

    def records(self) -> tuple[Record, ...]:
        return self.read().records

    # ------------------------------------------------------------------ who drives it

    @contextmanager
    def held(self, drive: Drive) -> Iterator[None]:
        """Hold the run while the block drives it; the kernel lets go of it when the process ends, however it does.

        Raises LeaseHeld, naming the holder.
        """
        with told(self.path, self.path / LOCK):
            descriptor = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if not _locked(descriptor, fcntl.LOCK_EX):
                raise LeaseHeld(
                    f"run {self.name} is under way: {self._holder()} drives it",
                    hint="see it: invoke logs --follow; ^C there ends it, its finished points are kept",
                )
            with told(self.path, self.path / LOCK):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{drive}\n".encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def driven(self) -> bool:
        """Whether a process holds the run now."""
        try:
            descriptor = os.open(self.path / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            return not _locked(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)

    def _holder(self) -> str:
        with suppress(OSError):
            return shown((self.path / LOCK).read_text(errors="replace").strip()) or "another process"
        return "another process"

    def state(self) -> RunState | None:
        """How the run was asked for and who drove it; None where it does not say, as of older runs. UsageError."""
        try:
            return RunState.model_validate_json(self.state_json.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            why = f"cannot be read: {error.strerror}"
        except ValueError:
            why = "does not say what a run's state.json says (damaged?)"
        raise UsageError(why, where=str(self.state_json), hint="without that file the run can be resumed, too: rm it")

    def read_facts(self) -> dict[str, Any]:
        """facts.json as it was written last; empty where there is none that can be read."""
        try:
            found = json.loads(self.facts.read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def lock(self) -> Lock:
        """Which images the run has; from its facts where it has no lock, as of older runs. Raises UsageError."""
        try:
            return Lock.model_validate_json(self.lock_json.read_bytes())
        except FileNotFoundError:
            return lock.of_facts(self.read_facts())
        except OSError as error:
            why = f"cannot be read: {error.strerror}"
        except ValueError:
            why = "does not say what a run's lock.json says (damaged?)"
        hint = "without that file the images are taken from facts.json: rm it"
        raise UsageError(why, where=str(self.lock_json), hint=hint)

    def write_lock(self, found: Lock) -> None:
        self.write_text(self.lock_json, found.model_dump_json(indent=2) + "\n")

    def write_state(self, state: RunState) -> None:
        self.write_text(self.state_json, state.model_dump_json(indent=2) + "\n")

    def _end_line(self, descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        if not size or os.pread(descriptor, 1, size - 1) == b"\n":
            return
        data = os.pread(descriptor, size, 0)
        kept, _, tail = data.rpartition(b"\n")
        if lines.read(tail.decode(errors="replace")).torn is None:
            _append(descriptor, b"\n")
            return
        torn = self.path / "points.torn"
        earlier = torn.read_bytes() if torn.exists() else b""
        replace(torn, earlier + tail + b"\n")
        os.ftruncate(descriptor, len(kept) + 1 if kept else 0)


@dataclass(frozen=True)
class _Planned:
    """Of a run's plan: its hash, and what its points are called."""

    hash: str
    points: frozenset[str]


def _planned(path: Path) -> _Planned | None:
    """None where there is no plan, or none that can be read."""
    try:
        return _parsed_plan(path, path.stat().st_mtime_ns)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


@lru_cache(maxsize=16)
def _parsed_plan(path: Path, written: int) -> _Planned:
    told = json.loads(path.read_text())
    points = [Point.model_validate_json(json.dumps(one["point"])) for arm in told["arms"] for one in arm["points"]]
    return _Planned(str(told["hash"]), frozenset(point.id for point in points))


def create(root: Path, key: str, plan_hash: str, now: datetime) -> RunFolder:
    """Make results/<UTC YYYYMMDD-HHMMSS>-<key>-<hash6>/. It becomes `latest` by `make_latest`, once its work begins.

    Two runs that start in the same second get different folders: the later one's name ends in -2. Raises FleetError.
    """
    if now.tzinfo is None:
        raise ValueError("a run's start needs a time zone")
    stem = f"{now.astimezone(UTC):%Y%m%d-%H%M%S}-{_plain(key)}-{plan_hash[:6]}"
    with told(root, root / stem):
        root.mkdir(parents=True, exist_ok=True)
        folder = _new_folder(root, stem)
    return RunFolder(folder)


def open(root: Path, word: str = LATEST) -> RunFolder:
    """The run of that name, of that beginning of a name, or the latest. UsageError if there is none, or several."""
    wanted = word.rstrip("/").rsplit("/", 1)[-1] or LATEST
    names = runs(root)
    if wanted == LATEST:
        return _latest(root, names)
    matching = [wanted] if wanted in names else [name for name in names if name.startswith(wanted)]
    if len(matching) == 1:
        return RunFolder(root / matching[0])
    if matching:
        raise UsageError(
            f"{cited(word)} could be {counted(len(matching), 'run')}",
            where=str(root),
            hint="one of: " + "  ".join(matching),
        )
    starts = {name[: len(wanted)]: name for name in names}
    near = nearest(wanted, starts)
    hint = f"did you mean {starts[near]}?" if near else f"runs here: {'  '.join(names[-5:]) or 'none yet'}"
    raise UsageError(f"no run {cited(word)}", where=str(root), hint=hint)


def usable(root: Path, *, room: int = ROOM) -> None:
    """Make sure, before anything starts, that runs can be kept there. room: bytes that are free.

    Raises HostError where it is the disk that takes nothing, UsageError where it is the folder.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        descriptor, aside = tempfile.mkstemp(prefix=".tmp-", dir=root)
        try:
            _append(descriptor, bytes(PROBE))
        finally:
            os.close(descriptor)
            os.unlink(aside)
    except OSError as error:
        why = "not a folder" if isinstance(error, FileExistsError | NotADirectoryError) else error.strerror
        first = "" if error.errno == errno.ENAMETOOLONG else _HINTS.get(error.errno or 0, "").partition(";")[0]
        hint = "\n".join(filter(None, (first.format(folder=root), ELSEWHERE)))
        kind = HostError if error.errno in DISK else UsageError
        raise kind(f"no run can be kept there: {why}", where=str(root), hint=hint) from None
    if (free := _free(root)) < room:
        raise HostError(f"no run can be kept there: {_cramped(free)}", where=str(root), hint=ELSEWHERE)


def _free(folder: Path) -> int:
    """Bytes that this user may still write there."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def _cramped(free: int) -> str:
    return f"{free / (1 << 20):.0f} MB are free, {ROOM >> 20} MB are needed"


def is_of(name: str, key: str) -> bool:
    """Whether a run of that name is one of that config key."""
    return re.fullmatch(rf"\d{{8}}-\d{{6}}-{re.escape(key)}-[0-9a-f]{{6}}(-\d+)?", name) is not None


def runs(root: Path) -> list[str]:
    """Names of all run folders, oldest first."""
    if not root.is_dir():
        if os.path.exists(root):
            raise UsageError("is not a folder, so no runs are kept there", where=str(root), hint=ELSEWHERE)
        return []
    with told(root, root):
        return sorted(entry.name for entry in root.iterdir() if _RUN.fullmatch(entry.name) and entry.is_dir())


def _latest(root: Path, names: list[str]) -> RunFolder:
    link = root / LATEST
    if link.is_dir():
        return RunFolder(root / link.resolve().name)
    if names:
        return RunFolder(root / names[-1])
    hint = "start one: invoke sweep --config KEY"
    if not os.path.exists(root):
        raise UsageError("no run yet, there is no such folder", where=str(root), hint=f"{hint}\n{ELSEWHERE}")
    raise UsageError("no run yet", where=str(root), hint=hint)


def _new_folder(root: Path, stem: str) -> Path:
    number = 1
    while True:
        folder = root / (stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder


def _link_latest(root: Path, name: str) -> None:
    aside = root / f".{LATEST}-{os.getpid()}-{secrets.token_hex(4)}"
    os.symlink(name, aside)
    try:
        os.replace(aside, root / LATEST)
    except OSError:
        aside.unlink()
        raise


def replace(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """A file's new content: written aside, synced, renamed into place. Raises OSError."""
    descriptor, aside = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(aside)
        raise
    _sync_folder(path.parent)


def _locked(descriptor: int, kind: int) -> bool:
    """Try for a moment: somebody may be looking whether the lock is free, which takes it, too."""
    for _ in range(LOOKS):
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        else:
            return True
    return False


def _append(descriptor: int, data: bytes) -> None:
    size = os.fstat(descriptor).st_size
    try:
        written = os.write(descriptor, data)
        if written != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(descriptor)
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, size)
        raise


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_plain(name: str) -> bool:
    """Whether a name can be part of a path of a run folder: anyone can give a container labels."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+@=-]*", name) is not None


def _again(attempt: int) -> str:
    return f".attempt{attempt}" if attempt > 1 else ""


def _plain(name: str) -> str:
    if not is_plain(name):
        raise FleetError(
            f"{name!r} cannot be part of a file name", hint="use letters, digits, dot, dash and underscore"
        )
    return name


@contextmanager
def told(folder: Path, path: Path) -> Iterator[None]:
    """What the disk refuses below a run's folder, as NotKept with the path."""
    try:
        yield
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, "").format(run=folder.name, folder=folder)
        raise NotKept(error.strerror or str(error), where=str(path), hint=hint) from error
