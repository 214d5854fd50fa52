"""Strict YAML with positions: what two readers could read differently is refused, all of it at once.

Refused: duplicate keys · tabs as indentation · scalars that YAML 1.1 and 1.2 read differently (`no`, `on`, `y`, `012`,
`0x1f`, `1e3`, `1_000`, `9:30`, dates) · anchors, aliases, merge keys, tags, directives · more than one document ·
anything but UTF-8 · control characters, carriage returns · characters outside ASCII, except in comments and below a
`description` key · an empty file. Plain text stays text; `~` and an empty value are null, which the schema judges.

Files that other programs read, too, are read more freely where the caller says so: see `Freedom`.
"""

from __future__ import annotations

import re
import stat
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from fleet.errors import Fault, FileFaults
from fleet.model.near import did_you_mean

Key = str | int
DEPTH = 64
FREE_TEXT = "description"
MOST_BYTES = 16 << 20
"""Of one file: any that a person writes is far below."""
MOST_COPIED = 1_000_000
"""Values that the aliases of one file may stand for, all together."""


@dataclass
class Node:
    """A value and where it is written. `bad`: its fault is already told, the schema need not look at it."""

    kind: Literal["mapping", "list", "scalar"]
    source: str
    line: int
    written: str = ""
    value: Any = None
    entries: dict[str, Node] = field(default_factory=dict)
    key_lines: dict[str, tuple[str, int]] = field(default_factory=dict)
    items: list[Node] = field(default_factory=list)
    bad: bool = False

    @property
    def data(self) -> Any:
        if self.kind == "mapping":
            return {key: node.data for key, node in self.entries.items()}
        if self.kind == "list":
            return [node.data for node in self.items]
        return self.value

    def child(self, key: Key) -> Node | None:
        if self.kind == "mapping" and isinstance(key, str):
            return self.entries.get(key)
        if self.kind == "list" and isinstance(key, int) and 0 <= key < len(self.items):
            return self.items[key]
        return None

    def put(self, key: str, node: Node, line: int, source: str | None = None) -> None:
        self.entries[key] = node
        self.key_lines[key] = (source or self.source, line)

    def where(self, key: Key) -> tuple[str, int]:
        """File and line of an entry: of its key in a mapping, of its start in a list."""
        if isinstance(key, str) and key in self.key_lines:
            return self.key_lines[key]
        node = self.child(key)
        return (node.source, node.line) if node else (self.source, self.line)


@dataclass
class Document:
    """A file's values (`data`), and where each is written."""

    path: str
    root: Node
    faults: list[Fault] = field(default_factory=list)

    @property
    def data(self) -> Any:
        return self.root.data

    def node(self, *keys: Key) -> Node | None:
        node: Node | None = self.root
        for key in keys:
            node = node.child(key) if node else None
        return node

    def where(self, *keys: Key) -> tuple[str, int]:
        """File and line of the value at `keys`; of its nearest parent, if there is no such value."""
        at, place = self.root, (self.root.source, self.root.line)
        for key in keys:
            child = at.child(key)
            if child is None:
                break
            at, place = child, at.where(key)
        return place

    def line(self, *keys: Key) -> int:
        return self.where(*keys)[1]

    def at(self, *keys: Key) -> str:
        """`:12`, or `file:12` for a value of another file, to name a second place in a message."""
        source, line = self.where(*keys)
        return f"line {line}" if source == self.path else f"{source}:{line}"

    def written(self, *keys: Key) -> str:
        """The value as it stands in the file, shortened to one line."""
        node = self.node(*keys)
        return node.written if node else ""

    def fault(self, keys: tuple[Key, ...], text: str) -> Fault:
        """A fault at a value. The text names the file if that is another one (the base of an `extends`)."""
        source, line = self.where(*keys)
        return Fault(line, text) if source == self.path else Fault(0, f"{source}:{line}  {text}")

    def blamed(self, *keys: Key) -> bool:
        """Whether the value at `keys` or one around it already has a fault."""
        node: Node | None = self.root
        for key in keys:
            if node is None or node.bad:
                break
            node = node.child(key)
        return node is not None and node.bad


@dataclass(frozen=True)
class Freedom:
    """What a file may have that is refused elsewhere.

    aliases: anchors, aliases and merge keys. foreign: whether the value below these keys is another program's: what is
    wrong inside of it is not told.
    """

    aliases: bool = False
    foreign: Callable[[tuple[str, ...]], bool] = lambda keys: False


STRICT = Freedom()


def read(path: Path, *, grouped_numbers: bool = False) -> Document:
    """The document of a file. Raises FileFaults. `grouped_numbers` reads 2_063_837 as public runner files mean it."""
    document = parse(path, grouped_numbers=grouped_numbers)
    if document.faults:
        raise FileFaults(document.path, document.faults)
    return document


def parse(path: Path, *, grouped_numbers: bool = False) -> Document:
    """Like `read`, with the faults in the document: a schema adds its own. Raises FileFaults if nothing can be read."""
    return parse_text(content(path), str(path), grouped_numbers=grouped_numbers)


def parse_text(raw: bytes, path: str, *, grouped_numbers: bool = False, freedom: Freedom = STRICT) -> Document:
    text = _decode(raw, path)
    faults = list(_character_faults(text))
    clean = _UNPRINTABLE.sub("?", text.replace("\r\n", "\n").replace("\r", "\n"))
    document = _Reader(clean, path, faults, grouped_numbers, freedom).document()
    if document.root.kind != "mapping":
        bare = document.root.kind == "scalar" and document.root.value is None
        what = "nothing but comments" if bare else _kind(document.root)
        document.faults.append(Fault(document.root.line, f"a mapping expected at the top, {what} was written"))
        raise FileFaults(path, document.faults)
    return document


def content(path: Path) -> bytes:
    """What is in a file. Raises FileFaults, also for what may never end (a device, a pipe) and what is too large."""
    try:
        if what := _endless(path.stat().st_mode):
            text = f"{what}, not a regular file; save what comes from it as a file, and name that"
            raise FileFaults(str(path), [Fault(0, text)])
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        near = sorted(entry.name for entry in path.parent.glob("*.y*ml")) if path.parent.is_dir() else []
        raise FileFaults(str(path), [Fault(0, f"no such file{did_you_mean(path.name, near)}")]) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FileFaults(str(path), [Fault(0, f"cannot be read: {reason}")]) from None
    if len(raw) > MOST_BYTES:
        raise FileFaults(str(path), [Fault(0, f"more than {MOST_BYTES >> 20} MiB: is it the right file?")])
    return raw


def _endless(mode: int) -> str:
    """What a path is that is neither a file nor a folder. A folder cannot be read, and the system says so."""
    kinds = {stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "")


def _decode(raw: bytes, path: str) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise FileFaults(
            path, [Fault(line, f"byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8")]
        ) from None
    if not text.strip():
        raise FileFaults(path, [Fault(0, "the file is empty")])
    return text


# --- characters -------------------------------------------------------------------------------------------------

_UNPRINTABLE = re.compile("[^\t\n\x20-\x7e\xa0-\u2027\u202f-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_REORDERING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_LOOK_ALIKES = dict(
    zip(
        "“”„‟″‘’‚‛′‐‑‒–—―−аеорсухіјѕԁһӏАВЕКМНОРСТХІЈЅΑΒΕΖΗΙΚΜΝΟΡΤΥΧονρ…",
        "\"\"\"\"\"'''''-------aeopcyxijsdhlABEKMHOPCTXIJSABEZHIKMNOPTYXovp.",
        strict=True,
    )
)


def _named(char: str) -> str:
    return f"U+{ord(char):04X} {unicodedata.name(char, 'unnamed character')}"


def _hidden(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") or (char != " " and char.isspace())


def _instead(char: str) -> str:
    """What to type for a character that looks like another."""
    if unicodedata.category(char) == "Zs":
        return "type a space"
    plain = _LOOK_ALIKES.get(char) or unicodedata.normalize("NFKC", char)
    return f"type {plain}" if plain.isascii() and plain.isprintable() and plain.strip() else "take it out"


def _seeming(text: str) -> str:
    """What a text looks like: look-alikes replaced, hidden characters left out."""
    if text.isascii():
        return text
    plain = "".join(_LOOK_ALIKES.get(char, char) for char in unicodedata.normalize("NFKC", text) if not _hidden(char))
    return plain.strip()


def _character_faults(text: str) -> Iterator[Fault]:
    """Characters that may stand nowhere, not even in a comment, and tabs that indent."""
    if text.startswith("\ufeff"):
        yield Fault(1, "the file starts with a byte order mark (U+FEFF); save it as UTF-8 without one")
    told_return = False
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        if "\r" in line and not told_return:
            told_return = True
            yield Fault(number, "carriage return (U+000D) at the end of a line; save the file with plain line feeds")
        if "\t" in line[: len(line) - len(line.lstrip())] and line.strip():
            yield Fault(number, "a tab indents this line; type spaces")
        for column, char in enumerate(line, start=1):
            if (_UNPRINTABLE.match(char) and char != "\r") or char in _REORDERING:
                yield Fault(number, f"{_named(char)} at column {column}; take it out")


# --- scalars ----------------------------------------------------------------------------------------------------

_INT = re.compile(r"-?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)\.[0-9]+")
_GROUPED = re.compile(r"[1-9][0-9]{0,2}(_[0-9]{3})+")
_NULLS = ("", "~", "null", "Null", "NULL")
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_TRUTHS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


def _decimal(text: str) -> str:
    """The number a text of digits, base prefix or exponent was meant to be, or nothing."""
    bare = text.replace("_", "").lstrip("+")
    try:
        if re.fullmatch(r"-?0[xob].*", bare):
            return str(int(bare, 0))
        if re.fullmatch(r"-?[0-9]+", bare):
            return str(int(bare, 10))
        value = float(bare)
    except ValueError:
        return ""
    if abs(value) >= 1e15:
        return ""
    return f"{value:.0f}" if value.is_integer() else f"{value:.12f}".rstrip("0")


_SURPRISES: tuple[tuple[re.Pattern[str], str, bool], ...] = (
    (re.compile(r"[-+]?0[0-9_]*[0-9]"), "an octal number for some readers", True),
    (re.compile(r"[-+]?0[xob][0-9a-fA-F_]+"), "a number in another base for some readers", True),
    (
        re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)[eE][-+]?[0-9]+"),
        "a number for some readers, text for others",
        True,
    ),
    (re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"), "a number to the base 60 for some readers", False),
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?"), "a date for some readers", False),
    (
        re.compile(r"[-+]?[0-9]+_[0-9_]*(\.[0-9_]*)?|\+[0-9]+(\.[0-9]*)?|[-+]?\.[0-9][0-9_]*|[-+]?[0-9]+\."),
        "a number for some readers, text for others",
        True,
    ),
    (re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), "not a finite number for some readers", False),
)


def surprise(text: str) -> str | None:
    """Why readers of a plain scalar disagree, and what to type instead; None if they agree."""
    if text.lower() in _TRUTHS:
        truth = _TRUTHS[text.lower()]
        return f'{truth} for some readers, text for others; type {truth}, or "{text}" for text'
    for pattern, why, is_number in _SURPRISES:
        if pattern.fullmatch(text):
            number = _decimal(text) if is_number else ""
            return f"{why}; type " + (f'{number}, or "{text}" for text' if number else f'"{text}" for text')
    return None


# --- structure --------------------------------------------------------------------------------------------------


def _kind(node: Node) -> str:
    if node.kind != "scalar":
        return f"a {node.kind}"
    if node.value is None:
        return "nothing"
    if isinstance(node.value, bool):
        return "true or false"
    return "text" if isinstance(node.value, str) else "a number"


def _start(event: yaml.Event) -> yaml.Mark:
    assert isinstance(event.start_mark, yaml.Mark)
    return event.start_mark


def _end(event: yaml.Event) -> yaml.Mark:
    assert isinstance(event.end_mark, yaml.Mark)
    return event.end_mark


class _Reader:
    """Builds nodes from parser events, without recursion, and collects faults on the way."""

    def __init__(self, text: str, path: str, faults: list[Fault], grouped: bool, freedom: Freedom) -> None:
        self.text, self.path, self.faults, self.grouped, self.freedom = text, path, faults, grouped, freedom
        self.unreadable = bool(faults)
        self.root: Node | None = None
        self.open: list[Node] = []
        self.keys: list[tuple[str, int] | None] = []
        self.trail: list[str] = []
        self.free: list[bool] = []
        self.foreign: list[bool] = []
        self.hushed = False
        self.anchors: dict[str, Node] = {}
        self.anchored: list[str | None] = []
        self.sizes: dict[int, int] = {}
        self.copied = 0

    def document(self) -> Document:
        documents = 0
        try:
            for event in yaml.parse(self.text, Loader=yaml.SafeLoader):
                if isinstance(event, yaml.DocumentStartEvent):
                    documents += 1
                    if documents > 1:
                        self.blame(event, "a second document starts; one file holds one")
                        break
                    if event.version or event.tags:
                        self.blame(event, "directives (%YAML, %TAG) are not read; take them out")
                elif not self.take(event):
                    break
        except yaml.MarkedYAMLError as error:
            mark, since = error.problem_mark or error.context_mark, error.context_mark
            begun = f" (begun on line {since.line + 1})" if since and mark and since.line != mark.line else ""
            problem = ", ".join(filter(None, (f"{error.context}{begun}" if error.context else "", error.problem)))
            self.broken(mark.line + 1 if mark else 0, problem)
        except (yaml.YAMLError, ValueError, OverflowError, IndexError) as error:
            self.broken(0, str(error))
        root = self.root or Node("scalar", self.path, 0)
        return Document(self.path, root, self.faults)

    def broken(self, line: int, problem: str) -> None:
        """A parser error; told only if no bad character above is the likely cause."""
        if not self.unreadable:
            self.faults.append(Fault(line, f"not YAML: {problem}"))
        if self.root is None or self.root.kind != "mapping" or self.open:
            raise FileFaults(self.path, self.faults)

    def blame(self, event: yaml.Event, text: str) -> None:
        self.tell(Fault(_start(event).line + 1, text))

    def tell(self, fault: Fault, node: Node | None = None) -> None:
        """A fault, of this value; none inside of what belongs to another program."""
        if self.hushed:
            return
        self.faults.append(fault)
        if node is not None:
            node.bad = True

    def theirs(self) -> bool:
        """Whether the next value is another program's, or inside of one."""
        key = self.keys[-1] if self.keys else None
        return any(self.foreign[-1:]) or (key is not None and self.freedom.foreign((*self.trail[1:], key[0])))

    def take(self, event: yaml.Event) -> bool:
        """One event; False to stop reading."""
        self.hushed = self.theirs()
        if isinstance(event, yaml.AliasEvent):
            self.place(self.alias(event), event)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self.properties(event)
            node = self.node("mapping" if isinstance(event, yaml.MappingStartEvent) else "list", event)
            free, key = self.described(), self.keys[-1] if self.keys else None
            self.trail.append(key[0] if key else "")
            self.place(node, event)
            self.open.append(node)
            self.free.append(free)
            self.foreign.append(self.hushed)
            self.anchored.append(event.anchor)
            self.keys.append(None)
            if len(self.open) > DEPTH:
                self.blame(event, f"nested more than {DEPTH} deep")
                raise FileFaults(self.path, self.faults)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            node = self.open.pop()
            node.written = self.excerpt(node.value, _end(event).index)
            node.value = None
            self.keys.pop()
            self.trail.pop()
            self.free.pop()
            self.foreign.pop()
            self.merge(node, event)
            children = (*node.entries.values(), *node.items)
            self.sizes[id(node)] = 1 + sum(self.sizes.get(id(child), 1) for child in children)
            self.known(self.anchored.pop(), node)
        elif isinstance(event, yaml.ScalarEvent):
            self.properties(event)
            self.known(event.anchor, self.scalar(event))
        return True

    def known(self, anchor: str | None, node: Node) -> None:
        if anchor is not None:
            self.anchors[anchor] = node

    def alias(self, event: yaml.AliasEvent) -> Node:
        """The value that an alias stands for."""
        node = self.anchors.get(str(event.anchor)) if self.freedom.aliases else None
        self.copied += self.sizes.get(id(node), 1)
        if node is not None and self.copied <= MOST_COPIED:
            return node
        why = "aliases are not read; write the value out"
        if self.freedom.aliases:
            why = f"no &{event.anchor} is whole before this line" if node is None else "aliases stand for too much"
        self.blame(event, f"*{event.anchor}  {why}")
        return self.node("scalar", event, bad=not self.hushed)

    def merge(self, node: Node, event: yaml.Event) -> None:
        """What `<<` names goes below what the mapping says itself."""
        below = node.entries.pop("<<", None) if self.freedom.aliases else None
        if below is None:
            return
        _, line = node.key_lines.pop("<<")
        for source in below.items if below.kind == "list" else [below]:
            if source.kind != "mapping" and not source.bad:
                self.tell(Fault(line, f"<<  a mapping expected, {_kind(source)} was written"))
            for key, value in source.entries.items():
                if key not in node.entries:
                    node.put(key, value, source.where(key)[1])

    def properties(self, event: Any) -> None:
        if event.anchor is not None and not self.freedom.aliases:
            self.blame(event, f"&{event.anchor}  anchors are not read; write the value out where it is used")
        if event.tag is not None:
            instead = 'put all of it in quotes: "!cmd …"' if event.tag == "!cmd" else "take it out"
            self.blame(event, f"{event.tag.replace('tag:yaml.org,2002:', '!!')}  tags are not read; {instead}")

    def excerpt(self, start: int, end: int) -> str:
        text = " ".join(self.text[start:end].split())
        return text if len(text) <= 60 else text[:57] + "..."

    def node(self, kind: Literal["mapping", "list", "scalar"], event: yaml.Event, *, bad: bool = False) -> Node:
        start, end = _start(event), _end(event)
        node = Node(kind, self.path, start.line + 1, self.excerpt(start.index, end.index), bad=bad)
        node.value = start.index if kind != "scalar" else None
        return node

    def place(self, node: Node, event: yaml.Event) -> None:
        """Puts a node where it belongs: root, list item, mapping key or value."""
        if not self.open:
            self.root = self.root or node
            return
        parent = self.open[-1]
        if parent.kind == "list":
            parent.items.append(node)
            return
        key = self.keys[-1]
        if key is None:
            self.keys[-1] = self.key(node, event)
            return
        self.keys[-1] = None
        name, line = key
        if name in parent.entries:
            first = parent.key_lines[name][1]
            if not any(self.foreign[-1:]):
                self.faults.append(Fault(line, f"{name}  written twice in one mapping, first on line {first}"))
            return
        parent.put(name, node, line)

    def key(self, node: Node, event: yaml.Event) -> tuple[str, int]:
        if isinstance(event, yaml.ScalarEvent):
            if node.value == "<<" and event.implicit[0] and not self.freedom.aliases:
                self.blame(event, "<<  merge keys are not read; write the values out")
            elif not isinstance(node.value, str) and not node.bad:
                self.blame(event, f'{node.written or "(nothing)"}  a key is text; type "{node.written}"')
            return _seeming(event.value), node.line
        if not node.bad:
            self.blame(event, f"a key is text, {_kind(node)} was written")
        return f"<{node.line}>", node.line

    def scalar(self, event: yaml.ScalarEvent) -> Node:
        node = self.node("scalar", event)
        node.value = event.value
        if event.style is None:
            self.plain(node)
        if isinstance(node.value, str):
            self.characters(node, event)
        self.place(node, event)
        return node

    def plain(self, node: Node) -> None:
        text: str = node.value
        reason = surprise(text)
        if self.grouped and _GROUPED.fullmatch(text):
            node.value, reason = int(text.replace("_", "")), None
        elif text in _NULLS:
            node.value = None
        elif text in _BOOLS:
            node.value = _BOOLS[text]
        elif _INT.fullmatch(text) or _FLOAT.fullmatch(text):
            if len(text) > 18:
                reason = f'too many digits for a number; type "{text[:8]}..." with quotes for text'
            else:
                node.value = int(text) if _INT.fullmatch(text) else float(text)
        if reason:
            if self.at_key():
                reason = f'{reason.split(";")[0]}; a key is text, type "{text}"'
            self.tell(Fault(node.line, f"{self.label()}{node.written}  {reason}"), node)

    def at_key(self) -> bool:
        return bool(self.open) and self.open[-1].kind == "mapping" and self.keys[-1] is None

    def label(self) -> str:
        key = self.keys[-1] if self.keys else None
        return f"{key[0]}: " if key else ""

    def described(self) -> bool:
        """Whether the next value is free text, or inside of one."""
        key = self.keys[-1] if self.keys else None
        return any(self.free[-1:]) or (key is not None and key[0] == FREE_TEXT)

    def characters(self, node: Node, event: yaml.ScalarEvent) -> None:
        """The first character of a scalar that is not what it seems."""
        for char in node.value:
            if char in "\n\t" or (char.isascii() and char.isprintable()):
                continue
            if not _hidden(char) and self.described():
                continue
            self.tell(Fault(*self.strange(node, event, char)), node)
            return

    def strange(self, node: Node, event: yaml.ScalarEvent, char: str) -> tuple[int, str]:
        at = self.text.find(char, _start(event).index, _end(event).index)
        if at < 0:
            return node.line, f"{self.label()}{node.written}  {_named(char)} is hidden in an escape; {_instead(char)}"
        line = self.text.count("\n", 0, at) + 1
        column = at - self.text.rfind("\n", 0, at)
        return line, f"{self.label()}{node.written}  {_named(char)} at column {column}; {_instead(char)}"
