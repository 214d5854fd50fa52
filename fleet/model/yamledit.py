"""Values put into a YAML text that people wrote: all else in it stays as it is, byte for byte.

ruamel.yaml says where each value begins and ends, and writes the new ones; the text between is copied. Its own dump of
a whole file keeps comments, order and quotes, but not every space.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.model.yamlfile import surprise

WIDTH = 120
"""Columns that a mapping on one line may take."""

STEP = 2
"""Columns from a key to those below it, where the text does not say otherwise."""

NULLS = ("", "~", "null", "Null", "NULL")

Keys = Sequence[str]


class Unchangeable(ValueError):
    """Where a value should go stands something that cannot be changed without changing more."""


@dataclass(frozen=True)
class _Edit:
    start: int
    end: int
    new: str


@dataclass(frozen=True)
class _Place:
    """A value, and the key that it is written at (both nodes of ruamel.yaml's); no key for the text's own value."""

    node: Any
    key: Any
    column: int
    flow: bool
    """Whether it stands inside of { } or [ ]."""

    @property
    def bare(self) -> bool:
        return not _is_collection(self.node) and self.node.value in NULLS and self.node.style is None


def add(text: str, keys: Keys, entries: Mapping[str, Mapping[str, Any]]) -> str:
    """New mappings at the end of the mapping at `keys`, which is made where it is missing.

    They are written as their neighbour is, one key a line or all on one line. Raises Unchangeable.
    """
    return _added(text, keys, {key: dict(value) for key, value in entries.items()}, opened=True)


def put(text: str, keys: Keys, value: Any) -> str:
    """One value at `keys`: instead of what stands there, or at the end of its mapping. Raises Unchangeable."""
    place, rest = _find(text, keys)
    if rest:
        return _added(text, keys[:-1], {keys[-1]: value}, opened=False)
    if place is None or place.key is None:
        raise Unchangeable("the whole text cannot be replaced")
    if place.bare:
        at = _after_key(text, place)
        return _applied(text, _Edit(at, max(at, _end(text, place)), f" {_flow(value)}"))
    if _is_collection(place.node) and not place.node.flow_style:
        return _applied(text, _Edit(_after_key(text, place), _end(text, place), f" {_flow(value)}"))
    return _applied(text, _Edit(place.node.start_mark.index, _end(text, place), _flow(value)))


def _added(text: str, keys: Keys, entries: dict[str, Any], *, opened: bool) -> str:
    place, rest = _find(text, keys)
    opened_levels = len(rest) + opened
    for key in reversed(rest):
        entries = {key: entries}
    if place is None:
        return text + ("\n" if text and not text.endswith("\n") else "") + _block(entries, 0, STEP, opened_levels)
    if not _is_mapping(place.node) and not place.bare:
        raise Unchangeable(f"{keys[len(keys) - len(rest) - 1]}: a mapping expected")
    if place.flow or (_is_mapping(place.node) and place.node.flow_style and place.node.value):
        return _applied(text, _inside(text, place, entries))
    step = _step(text)
    if _is_mapping(place.node) and place.node.value:
        column, last = place.node.value[0][0].start_mark.column, place.node.value[-1][1]
        alike = opened and not rest and _is_mapping(last) and bool(last.flow_style) and bool(last.value)
        at = _line_end(text, _end(text, place), column)
        return _applied(text, _lines(text, at, _block(entries, column, step, opened_levels, alike=alike)))
    column = place.column + step
    begin = _after_key(text, place)
    emptied = _Edit(begin, max(begin, _end(text, place)), "")
    at = _line_end(text, emptied.end, column)
    return _applied(text, emptied, _lines(text, at, _block(entries, column, step, opened_levels)))


# --- what is there ----------------------------------------------------------------------------------------------


def _find(text: str, keys: Keys) -> tuple[_Place | None, list[str]]:
    """The value of as many of the keys as there are, and the keys that are missing below it."""
    from ruamel.yaml import YAML

    root = YAML(typ="rt").compose(text)
    if root is None or (not _is_collection(root) and root.value in NULLS):
        return None, list(keys)
    place = _Place(root, None, 0, bool(root.flow_style))
    for index, wanted in enumerate(keys):
        found = [pair for pair in place.node.value if pair[0].value == wanted] if _is_mapping(place.node) else []
        if not found:
            return place, list(keys[index:])
        key, node = found[-1]
        if _is_collection(node) and node.start_mark.index < key.end_mark.index:
            raise Unchangeable(f"{wanted}: stands there as an alias; write its value out")
        flow = place.flow or bool(place.node.flow_style)
        place = _Place(node, key, key.start_mark.column, flow)
    return place, []


def _is_mapping(node: Any) -> bool:
    return bool(node.id == "mapping")


def _is_collection(node: Any) -> bool:
    return node.id in ("mapping", "sequence")


def _after_key(text: str, place: _Place) -> int:
    """The place behind the colon of a key; behind the key where it has none."""
    assert place.key is not None
    end = int(place.key.end_mark.index)
    rest = text[end:]
    return end + len(rest) - len(rest.lstrip(" ")) + 1 if rest.lstrip(" ").startswith(":") else end


def _end(text: str, place: _Place) -> int:
    """Where a value ends, without the comments and empty lines behind it."""
    node = place.node
    if _is_collection(node) and not node.flow_style and node.value:
        last = node.value[-1]
        key, value = last if _is_mapping(node) else (None, last)
        return max(int(node.start_mark.index), _end(text, _Place(value, key, 0, False)))
    begin, end = int(node.start_mark.index), int(node.end_mark.index)
    if place.bare and node.value == "":
        return _after_key(text, place) if place.key is not None else begin
    if place.key is not None and begin < place.key.end_mark.index:  # an alias: its value stands elsewhere
        return _word_end(text, _after_key(text, place))
    return begin + len(text[begin:end].rstrip())


def _word_end(text: str, at: int) -> int:
    rest = text[at:].lstrip(" ")
    return len(text) - len(rest) + len(rest.split(maxsplit=1)[0].rstrip(",}]"))


def _line_end(text: str, at: int, column: int) -> int:
    """The end of the line at `at`, and of the comments below it that are indented as far as `column`."""
    end = _newline(text, at)
    while end < len(text):
        line = text[end + 1 : _newline(text, end + 1)]
        if not line.lstrip().startswith("#") or len(line) - len(line.lstrip(" ")) < column:
            break
        end = end + 1 + len(line)
    return end


def _newline(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found


def _step(text: str) -> int:
    """Columns from a key to those below it, as the text has them first."""
    columns = [len(line) - len(line.lstrip(" ")) for line in text.splitlines() if line.strip()[:1] not in ("", "#")]
    return next((column for column in columns if column), STEP)


# --- what is written --------------------------------------------------------------------------------------------


def _applied(text: str, *edits: _Edit) -> str:
    for edit in sorted(edits, key=lambda edit: -edit.start):
        text = text[: edit.start] + edit.new + text[edit.end :]
    return text


def _lines(text: str, at: int, block: str) -> _Edit:
    """Whole lines behind the line that ends at `at`."""
    return _Edit(at, at, "\n" + block.rstrip("\n") + ("" if at < len(text) else "\n"))


def _inside(text: str, place: _Place, entries: dict[str, Any]) -> _Edit:
    """Entries on the line they are in: at the end of { }, or as the value of a key that has none."""
    written = _flow(entries)
    if place.bare:
        at = _after_key(text, place)
        colon = "" if text[at - 1] == ":" else ":"
        return _Edit(at, max(at, _end(text, place)), f"{colon} {written}")
    if not place.node.value:
        return _Edit(place.node.start_mark.index, place.node.end_mark.index, written)
    key, value = place.node.value[-1]
    at = _end(text, _Place(value, key, 0, True))
    return _Edit(at, at, f", {written[1:-1]}")


def _block(entries: Mapping[str, Any], column: int, step: int, opened: int, *, alike: bool = False) -> str:
    """Entries one a line; `opened`: how many levels of them are. alike: on one line each, where that fits."""
    lines = []
    for key, value in entries.items():
        head = f"{' ' * column}{_flow(key)}:"
        line = f"{head} {_flow(value)}"
        if opened and value == {}:
            lines.append(f"{head}\n")
        elif opened and not (alike and len(line) <= WIDTH):
            lines.append(f"{head}\n{_block(value, column + step, step, opened - 1)}")
        else:
            lines.append(f"{line}\n")
    return "".join(lines)


def _flow(value: Any) -> str:
    """A value on one line."""
    from io import StringIO

    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.default_flow_style = True
    yaml.width = 1_000_000
    out = StringIO()
    yaml.dump({"v": _plain(value)}, out)
    return out.getvalue().strip()[len("{v: ") : -1]


def _plain(value: Any) -> Any:
    """The value with quotes around what other readers would take for something else."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    if isinstance(value, Mapping):
        return {_plain(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, str) and (surprise(value) or not value):
        return DoubleQuotedScalarString(value)
    return value
