"""A scripted host, for tests of everything above: it answers what it was told to and keeps what it was asked."""

from __future__ import annotations

import io
import posixpath
import re
import tarfile
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from fleet.errors import CommandFailed
from fleet.hosts.base import Argv, Outcome, Peer, checked, chunks, quoted


@dataclass(frozen=True)
class Reply:
    """What a scripted command leaves."""

    code: int = 0
    stdout: str | bytes = b""
    stderr: str | bytes = b""


Answer = Reply | Outcome | str | bytes | int | tuple[int, str | bytes] | tuple[int, str | bytes, str | bytes]
Answers = Answer | BaseException | Callable[[list[str], bytes], Answer]
Matcher = Sequence[str] | str | re.Pattern[str] | Callable[[list[str]], bool]


@dataclass(frozen=True)
class Asked:
    """One command that was asked for."""

    argv: list[str]
    stdin: bytes

    @property
    def line(self) -> str:
        return quoted(self.argv)


class Unscripted(AssertionError):
    """The test did not say what this command answers."""


@dataclass
class Fake:
    """A host that is only a script.

    script: (matcher, answer) pairs; the first that matches answers.
        A matcher is an argv prefix (list or tuple), a regex searched in the quoted line (str or compiled), or a
        callable on the argv. An answer is Reply, an Outcome, stdout alone (str or bytes), an exit code alone, (code,
        stdout[, stderr]), an exception to raise, or a callable (argv, stdin) that returns or raises any of these. To
        give one command several answers in turn, use `in_turn(...)`.
    files: what put wrote and get finds, by path; `modes` has what put was told. A path names one file, or
        every file below it.
    calls: what was asked, in order. greets: what `knock` says. seen: what `peer` says.
    """

    name: str
    script: Sequence[tuple[Matcher, Answers]] = ()
    files: dict[str, bytes] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    calls: list[Asked] = field(default_factory=list)
    closed: bool = False
    cancelled: int = 0
    greets: str = ""
    seen: Peer | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def run(self, argv: Argv, *, timeout: float = 30.0, stdin: bytes | None = None, check: bool = True) -> Outcome:
        """See Transport.run. Raises Unscripted for a command the script does not know."""
        outcome = self._answer(list(argv), stdin or b"")
        return checked(outcome, f"try:  {self.ssh_line(argv)}") if check else outcome

    def stream(
        self,
        argv: Argv,
        *,
        timeout: float,
        source: Iterable[bytes] | None = None,
        sink: Callable[[bytes], object] | None = None,
        check: bool = True,
    ) -> Outcome:
        """See Transport.stream."""
        whole = self.run(argv, timeout=timeout, stdin=b"".join(source or ()), check=False)
        for data in chunks(whole.stdout):
            (sink or (lambda _: None))(data)
        outcome = Outcome(whole.host, whole.argv, whole.code, b"", whole.stderr, whole.seconds)
        return checked(outcome, f"try:  {self.ssh_line(argv)}") if check else outcome

    def put(self, data: bytes, path: str, *, mode: int = 0o644, timeout: float = 60.0) -> None:
        with self._lock:
            self.files[path], self.modes[path] = data, mode

    def get(self, path: str, sink: BinaryIO, *, timeout: float = 600.0) -> None:
        """See Transport.get. Raises CommandFailed where `files` has nothing there."""
        path = path.rstrip("/")
        with self._lock:
            found = {name: data for name, data in self.files.items() if name == path or name.startswith(f"{path}/")}
        if not found:
            raise CommandFailed(f"tar: {path}: Cannot stat: No such file or directory", where=self.name)
        with tarfile.open(fileobj=sink, mode="w|") as archive:
            for name, data in sorted(found.items()):
                member = tarfile.TarInfo(posixpath.relpath(name, posixpath.dirname(path) or "."))
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))

    def knock(self, seconds: float) -> str:
        return self.greets

    def peer(self, address: str | None = None) -> Peer | None:
        return self.seen

    def ssh_line(self, argv: Argv = ()) -> str:
        return f"ssh {self.name} {quoted(argv)}".rstrip()

    def cancel(self) -> None:
        self.cancelled += 1

    def close(self) -> None:
        self.closed = True

    def _answer(self, argv: list[str], stdin: bytes) -> Outcome:
        with self._lock:
            self.calls.append(Asked(argv, stdin))
        for matcher, answer in self.script:
            if fits(matcher, argv):
                return self._outcome(argv, answer(argv, stdin) if callable(answer) else answer)
        known = "\n".join(f"  {matcher!r}" for matcher, _ in self.script) or "  nothing"
        raise Unscripted(f"{self.name}: the script has no answer to\n  {quoted(argv)}\nit knows\n{known}")

    def _outcome(self, argv: list[str], answer: Answer | BaseException) -> Outcome:
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, Outcome):
            return Outcome(self.name, tuple(argv), answer.code, answer.stdout, answer.stderr, answer.seconds)
        reply = as_reply(answer)
        return Outcome(self.name, tuple(argv), reply.code, encoded(reply.stdout), encoded(reply.stderr), 0.0)


def in_turn(*answers: Answers) -> Callable[[list[str], bytes], Answer]:
    """The first answer to the first call and so on; the last one stays."""
    left = list(answers)
    lock = threading.Lock()

    def answer(argv: list[str], stdin: bytes) -> Answer:
        with lock:
            now = left.pop(0) if len(left) > 1 else left[0]
        if callable(now):
            now = now(argv, stdin)
        if isinstance(now, BaseException):
            raise now
        return now

    return answer


def fits(matcher: Matcher, argv: list[str]) -> bool:
    if isinstance(matcher, (str, re.Pattern)):
        return re.search(matcher, quoted(argv)) is not None
    if callable(matcher):
        return matcher(argv)
    return argv[: len(matcher)] == list(matcher)


def as_reply(
    answer: Reply | str | bytes | int | tuple[int, str | bytes] | tuple[int, str | bytes, str | bytes],
) -> Reply:
    if isinstance(answer, Reply):
        return answer
    if isinstance(answer, (str, bytes)):
        return Reply(0, answer)
    if isinstance(answer, int):
        return Reply(answer)
    return Reply(*answer)


def encoded(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
