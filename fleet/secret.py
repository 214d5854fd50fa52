"""Secrets: values for containers only. They are never printed, and masked where others print them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping

from fleet.errors import FleetError

ENVIRONMENT = "env"
"""What stands for a value that comes from the operator's environment."""

COMMAND = "!cmd "
"""What stands before a local command that prints the value."""

SHORTEST = 6
"""Bytes of a value, or of one of its lines, from which on it is masked: shorter ones are words of any log."""

_BYTES = ("utf-8", "surrogateescape")


class Secrets:
    """Values by host and name; what takes them out of texts. Falsy where there are none."""

    def __init__(self, values: Mapping[str, Mapping[str, bytes]] | None = None) -> None:
        self._values = {host: dict(named) for host, named in (values or {}).items()}
        self._names: dict[bytes, str] = {}
        for named in self._values.values():
            for name, value in named.items():
                self._names |= {form: name for form in _forms(value) if form not in self._names}
        longest_first = sorted(self._names, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, longest_first))) if longest_first else None

    def __bool__(self) -> bool:
        return bool(self._values)

    def __repr__(self) -> str:
        return f"Secrets({', '.join(sorted({name for named in self._values.values() for name in named}))})"

    def __reduce__(self) -> str:
        raise TypeError("secrets are not written anywhere")

    def of(self, host: str) -> dict[str, bytes]:
        """The values that containers of a host get, by name."""
        return dict(self._values.get(host, {}))

    def masked(self, data: bytes) -> bytes:
        """`***NAME***` for each value, also as JSON and Python write it, and for each line of one."""
        return self._pattern.sub(self._mask, data) if self._pattern and self._in(data) else data

    def text(self, text: str) -> str:
        return self.masked(text.encode(*_BYTES)).decode(*_BYTES) if self._pattern else text

    def told(self, error: FleetError) -> None:
        """Mask what an error says."""
        error.what, error.hint = self.text(error.what), self.text(error.hint)
        error.args = tuple(self.text(part) if isinstance(part, str) else part for part in error.args)

    def stream(self, sink: Callable[[bytes], object]) -> Stream:
        return Stream(self, sink)

    def _in(self, data: bytes) -> bool:
        """Whether there is anything to mask: a pattern of a key's many lines is slow, and most data holds none."""
        return any(form in data for form in self._names)

    def _mask(self, match: re.Match[bytes]) -> bytes:
        return f"***{self._names[match[0]]}***".encode()

    def ready(self, data: bytes) -> tuple[bytes, bytes]:
        """The masked part of a stream's data that is sure, and the rest: what could be the beginning of a value."""
        if self._pattern is None:
            return data, b""
        out: list[bytes] = []
        at = 0
        held = self._in(data)
        while True:
            end = self._open(data, at)
            match = self._pattern.search(data, at) if held else None
            if match is None or match.start() >= end:
                return b"".join([*out, data[at:end]]), data[end:]
            out += [data[at : match.start()], self._mask(match)]
            at = match.end()

    def _open(self, data: bytes, at: int) -> int:
        """Where the first value begins that may go on after the data; the end of the data if none does."""
        begin = max(at, len(data) - max(map(len, self._names)) + 1)
        places = set(range(max(begin, len(data) - SHORTEST + 1), len(data)))
        for head in {form[:SHORTEST] for form in self._names}:
            place = data.find(head, begin)
            while place >= 0:
                places.add(place)
                place = data.find(head, place + 1)
        for place in sorted(places):
            rest = data[place:]
            if any(len(form) > len(rest) and form.startswith(rest) for form in self._names):
                return place
        return len(data)


class Stream:
    """A sink that masks what goes through it, over the borders of chunks. `end` gives what is still held back."""

    def __init__(self, secrets: Secrets, sink: Callable[[bytes], object]) -> None:
        self._secrets, self._sink = secrets, sink
        self._rest = b""

    def __call__(self, data: bytes) -> None:
        sure, self._rest = self._secrets.ready(self._rest + data)
        if sure:
            self._sink(sure)

    def end(self) -> None:
        rest, self._rest = self._rest, b""
        if rest:
            self._sink(self._secrets.masked(rest))


def _forms(value: bytes) -> Iterator[bytes]:
    """A value as it may be printed. docker's log puts a time before each line: lines count on their own."""
    text = value.decode(*_BYTES)
    plain = value.decode("utf-8", "replace")
    whole = [value, plain.encode(), repr(text)[1:-1].encode(*_BYTES), shlex.quote(text).encode(*_BYTES)[1:-1]]
    whole += [json.dumps(plain, ensure_ascii=ascii)[1:-1].encode() for ascii in (True, False)]
    yield from (form for form in whole if len(form) >= SHORTEST and len(value) >= SHORTEST)
    yield from (line for line in re.split(rb"[\r\n]+", value) if len(line.strip()) >= SHORTEST)


def words(source: str) -> list[str]:
    """The command behind `!cmd`, as a shell would part it. Raises ValueError."""
    found = shlex.split(source.removeprefix(COMMAND))
    if not found:
        raise ValueError("no command")
    return found


def parsed(text: bytes) -> dict[str, bytes]:
    """What a file of secrets says, by name; the file is one that `fleet.stages.secret` wrote. Raises ValueError."""
    pairs = (word.partition("=") for word in shlex.split(text.decode(*_BYTES)))
    return {name: value.encode(*_BYTES) for name, _, value in pairs}
