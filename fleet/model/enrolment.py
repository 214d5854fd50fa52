"""An inventory's text with hosts added and changed; all else in it stays as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleet.model import roster, yamledit
from fleet.model.schema import Keys
from fleet.model.yamlfile import Document

Entries = Mapping[str, Mapping[str, Any]]
"""Variables by host, as YAML has them."""


def added(text: str, path: str, entries: Entries, group: str = "") -> str:
    """New hosts at the end of a group's, or of those below `all`; the group is made where there is none.

    Raises Unchangeable.
    """
    return yamledit.add(text, [str(key) for key in _home(text, path, group)], entries) if entries else text


def changed(text: str, path: str, name: str, values: Mapping[str, Any]) -> str:
    """A host that is there with other values of its own. Raises Unchangeable."""
    read, places = roster.document(text.encode(), path), roster.places(text.encode(), path)
    for key, value in values.items():
        at = _at(read, places.hosts[name], name, key)
        node = read.node(*at, key)
        if isinstance(value, dict) and node is not None and node.kind == "mapping":
            for inner, one in value.items():
                text = yamledit.put(text, [*map(str, at), key, inner], one)
        else:
            text = yamledit.put(text, [*map(str, at), key], value)
    return text


def _home(text: str, path: str, group: str) -> Keys:
    """Where the hosts of a group stand: it may be filled in one place and only named in others."""
    if not group or not says_something(text):
        return ("all", "children", group, "hosts") if group else ("all", "hosts")
    read, found = roster.document(text.encode(), path), roster.places(text.encode(), path).groups.get(group, [])
    filled = [keys for keys in found if read.node(*keys, "hosts") is not None]
    written = [keys for keys in found if (node := read.node(*keys)) is not None and node.kind == "mapping"]
    return (*next(iter((*filled, *written, *found)), ("all", "children", group)), "hosts")


def _at(read: Document, places: Sequence[Keys], name: str, key: str) -> Keys:
    """The place whose value of a key counts: the last that has it, or else the last of the host's own.

    A host that is only part of a range gets a place of its own behind it.
    """
    own = [keys for keys in places if keys[-1] == name]
    if not own:
        return (*places[-1][:-1], name)
    having = [keys for keys in own if read.node(*keys, key) is not None]
    return (having or own)[-1]


def says_something(text: str) -> bool:
    """Whether there is more in a text than comments."""
    return any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())
