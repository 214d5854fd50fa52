"""A scripted node on which `docker logs --follow` and `docker events` go on until they end, as on a real one:
containers write, end, vanish and start while one listens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

from fleet import docker
from fleet.errors import CommandTimeout, Interrupted, Unreachable
from fleet.hosts.base import Argv, Outcome
from fleet.hosts.fake import Asked, Fake
from tests.world import RUN, Box, Node


class Wire(Fake):
    """A node's transport from now on. cut: it does not answer."""

    def __init__(self, node: Node) -> None:
        super().__init__(node.fake.name, [(lambda _: True, node._answer)])
        node.fake = self
        self.node, self.cut, self.ends = node, False, 0
        self.rows: list[tuple[float, str]] = []

    def run(self, argv: Argv, *, timeout: float = 30.0, stdin: bytes | None = None, check: bool = True) -> Outcome:
        if self.cut:
            raise Unreachable("no answer", where=self.name)
        return super().run(argv, timeout=timeout, stdin=stdin, check=check)

    def stream(
        self,
        argv: Argv,
        *,
        timeout: float,
        source: Iterable[bytes] | None = None,
        sink: Callable[[bytes], object] | None = None,
        check: bool = True,
    ) -> Outcome:
        if "--follow" not in argv and "events" not in argv:
            return super().stream(argv, timeout=timeout, source=source, sink=sink, check=check)
        self.calls.append(Asked(list(argv), b""))
        pieces = self._log(list(argv)) if "--follow" in argv else self._happened(list(argv))
        end, ends = time.monotonic() + timeout, self.ends
        for piece in pieces:
            if piece and sink and not self.cut:
                sink(piece)
            if self.ends != ends:
                raise Interrupted("interrupted", where=self.name)
            if time.monotonic() > end:
                raise CommandTimeout("ended there", where=self.name)
            time.sleep(0.005)
        return Outcome(self.name, tuple(argv), 0, b"", b"", 0.0)

    def _log(self, argv: list[str]) -> Iterator[bytes]:
        since, sent = argv[argv.index("--since") + 1] if "--since" in argv else "", 0
        box = self.node._box(argv[-1])
        if box is None:
            yield b"Error: No such container: x\n"
            return
        while True:
            state, lines = box.state, [one for one in box.log.splitlines(keepends=True) if one >= since]
            yield "".join(lines[sent:]).encode()
            sent = len(lines)
            if state != "running" and not self.cut:
                return

    def _happened(self, argv: list[str]) -> Iterator[bytes]:
        since, until = (float(argv[argv.index(word) + 1]) for word in ("--since", "--until"))
        sent = 0
        while self.cut or self.now() < until:
            rows = [row for when, row in list(self.rows) if since <= when < until and _label(argv) in row]
            yield "".join(rows[sent:]).encode()
            sent = len(rows)

    def cancel(self) -> None:
        self.ends += 1

    def now(self) -> float:
        return time.time() + self.node.clock

    def _stamp(self) -> str:
        return datetime.fromtimestamp(self.now(), UTC).isoformat(timespec="microseconds").replace("+00:00", "000Z")

    def write(self, box: Box, *texts: str) -> None:
        for text in texts:
            box.log += f"{self._stamp()} {text}\n"

    def end(self, box: Box, code: int, *, remove: bool = False) -> None:
        self._tell(box, "die", exitCode=str(code))
        box.end(code, at=self._stamp())
        if remove:
            del self.node.boxes[box.name]

    def start(self, name: str, **labels: str) -> Box:
        box = self.node.boxes[name] = Box(name, labels={"run": RUN, "arm": "1p1d-mtp3", "rank": "0", **labels})
        self._tell(box, "start")
        return box

    def asked_for(self, words: str, within: float = 10.0) -> None:
        """Wait until a command with these words was asked for."""
        end = time.monotonic() + within
        while not any(words in asked.line for asked in list(self.calls)):
            assert time.monotonic() < end, words
            time.sleep(0.005)

    def _tell(self, box: Box, action: str, **more: str) -> None:
        facts = {f"{docker.PREFIX}.{name}": value for name, value in box.labels.items()}
        facts |= {"name": box.name, "image": box.image, **more}
        now = self.now()
        row = {"Type": "container", "Action": action, "Actor": {"ID": box.id, "Attributes": facts}}
        self.rows.append((now, json.dumps(row | {"timeNano": int(now * 1e9)}) + "\n"))


def _label(argv: list[str]) -> str:
    """The label that docker filters by, as it stands in an event."""
    (word,) = [word for word in argv if word.startswith("label=")]
    name, _, value = word.removeprefix("label=").partition("=")
    return f'"{name}": "{value}"'
