"""Which host keys are believed: known_hosts files, read as OpenSSH reads them, and nothing else."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import paramiko

from fleet.errors import FleetError
from fleet.results import store


@dataclass(frozen=True)
class Known:
    """One line of a known_hosts file that names the host."""

    file: str
    line: int
    kind: str
    key: str
    revoked: bool

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.key)


@dataclass(frozen=True)
class Found:
    """The key that a host showed, and all that is on record for it. file: where a new one would be written."""

    label: str
    address: str
    file: str
    kind: str
    key: str
    known: tuple[Known, ...] = ()

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.key)

    @property
    def recorded(self) -> tuple[Known, ...]:
        """The keys that are believed, of its kind first."""
        return tuple(sorted((one for one in self.known if not one.revoked), key=lambda one: one.kind != self.kind))

    @property
    def state(self) -> Literal["known", "unknown", "changed", "revoked"]:
        same = [one for one in self.known if one.key == self.key]
        if any(one.revoked for one in same):
            return "revoked"
        return "known" if same else "changed" if self.recorded else "unknown"


class Untrusted(Exception):
    """Why a host key is refused. `changed` is False where no key at all is on record."""

    def __init__(self, why: str, *, changed: bool, revoked: bool = False) -> None:
        super().__init__(why)
        self.changed = changed
        self.revoked = revoked


class KnownHosts(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    """Accepts a key that is on record for the host and refuses every other one, whatever ssh_config says.

    The client's own key store stays empty, so paramiko asks here about every key it is shown.
    """

    def __init__(self, label: str, files: Sequence[str]) -> None:
        self.label = label
        self.files = tuple(files)
        self.accepted = False
        self.known = [entry for file in files for entry in entries(file, label)]

    def missing_host_key(self, client: object, hostname: str, key: paramiko.PKey) -> None:
        """Raises Untrusted unless the key is on record."""
        same = [entry for entry in self.known if entry.key == key.get_base64()]
        if any(entry.revoked for entry in same):
            raise Untrusted(f"the host key {key.fingerprint} is revoked in {same[0].file}", changed=True, revoked=True)
        if same:
            self.accepted = True
            return
        recorded = [entry for entry in self.known if not entry.revoked]
        if not recorded:
            raise Untrusted(
                f"the host key is unknown: no key of {self.label} in {self.files[0]}; "
                f"the host shows {key.get_name()} {key.fingerprint}",
                changed=False,
            )
        entry = next((entry for entry in recorded if entry.kind == key.get_name()), recorded[0])
        raise Untrusted(
            f"the host key has changed: it shows {key.get_name()} {key.fingerprint}, "
            f"another one is on record at {entry.file}:{entry.line}",
            changed=True,
        )

    def unwanted(self, offered: Sequence[str]) -> list[str]:
        """The key algorithms not to negotiate: those of kinds that are not on record. None, where nothing is."""
        kinds = {entry.kind for entry in self.known if not entry.revoked}
        return [name for name in offered if kind_of(name) not in kinds] if kinds else []


def fingerprint(key: str) -> str:
    """As ssh-keygen -l shows a key; "unreadable" of what is none."""
    try:
        digest = hashlib.sha256(base64.b64decode(key, validate=True)).digest()
    except (binascii.Error, ValueError):
        return "unreadable"
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def record(found: Found) -> list[Known]:
    """Write the key that was shown, and take those that were on record for the host out of that file.

    Returns the lines that still say another key: in other files, and patterns that are about more hosts. Raises
    FleetError.
    """
    path = Path(found.file).resolve()
    new = f"{found.label} {found.kind} {found.key}"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        there = path.exists()
        text = path.read_text(encoding="utf-8", errors="surrogateescape") if there else ""
        gone = {one.line for one in found.recorded if one.file == found.file}
        numbered = enumerate(text.splitlines(), 1)
        kept = [left for number, line in numbered if (left := _without(line, found.label) if number in gone else line)]
        data = "".join(f"{line}\n" for line in [*kept, new]).encode("utf-8", "surrogateescape")
        store.replace(path, data, mode=path.stat().st_mode & 0o777 if there else 0o600)
    except OSError as error:
        raise FleetError(f"the key cannot be written: {error.strerror}", where=str(path)) from None
    files = dict.fromkeys([found.file, *(one.file for one in found.known)])
    now = [entry for file in files for entry in entries(file, found.label)]
    return [one for one in now if not one.revoked and one.key != found.key]


def _without(line: str, label: str) -> str:
    """A line that does not name the host any more; "" where that is all of it. A pattern stays."""
    first, _, rest = line.strip().partition(" ")
    if first.startswith("|1|"):
        return ""
    left = [name for name in first.split(",") if name.lower() != label.lower()]
    return f"{','.join(left)} {rest}" if left else ""


def kind_of(algorithm: str) -> str:
    """The kind of key an algorithm signs with: RSA keys are `ssh-rsa` whatever the hash."""
    return "ssh-rsa" if algorithm.startswith("rsa-sha2-") else algorithm


def entries(file: str, label: str) -> Iterator[Known]:
    """The lines of one known_hosts file that name `label`; none where the file is missing. Format: sshd(8)."""
    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    plain, others = parsed(text)
    for number, marker, (patterns, kind, key) in sorted(plain.get(label.lower(), []) + others):
        if names(patterns, label):
            yield Known(file, number, kind, key, marker == "@revoked")


Line = tuple[int, str, list[str]]
"""Line number, marker and the first three fields."""


@lru_cache(maxsize=8)
def parsed(text: str) -> tuple[dict[str, list[Line]], list[Line]]:
    """The lines that can be used: by host, where they list names, and those that have to be tried for every host."""
    plain: dict[str, list[Line]] = {}
    others: list[Line] = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
        if len(fields) < 3 or fields[0].startswith("#") or marker not in ("", "@revoked"):
            continue
        found = (number, marker, fields[:3])
        if set(fields[0]) & set("|*?!"):
            others.append(found)
            continue
        for name in set(fields[0].lower().split(",")):
            plain.setdefault(name, []).append(found)
    return plain, others


def names(patterns: str, label: str) -> bool:
    """Whether the first field of a known_hosts line is about this host: plain, hashed, wildcard or negated."""
    if patterns.startswith("|1|"):
        return bool(paramiko.HostKeys.hash_host(label, patterns) == patterns)
    listed = patterns.split(",")
    if any(matches(name[1:], label) for name in listed if name.startswith("!")):
        return False
    return any(matches(name, label) for name in listed)


def matches(pattern: str, label: str) -> bool:
    """Only * and ? are wild; brackets belong to `[host]:port`."""
    if "*" not in pattern and "?" not in pattern:
        return label.lower() == pattern.lower()
    return fnmatch.fnmatchcase(label.lower(), pattern.lower().replace("[", "[[]"))
