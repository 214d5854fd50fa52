"""An inventory's text with hosts added and changed; all else in it stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet.model import roster, yamledit
from fleet.model.schema import Keys
from fleet.model.yamlfile import Node

Entries = Mapping[str, Mapping[str, Any]]
"""Variables by host, as YAML has them."""


def added(text: str, path: str, entries: Entries, group: str = "") -> str:
    """New hosts at the end of a group's, or of those below `all`; the group is made where there is none.

    Raises Unchangeable.
    """
    return yamledit.add(text, [str(key) for key in _home(text, path, group)], entries) if entries else text


def changed(text: str, path: str, name: str, values: Mapping[str, Any]) -> str:
    """A host that is there with other values of its own. Raises Unchangeable."""
    for key, value in values.items():
        at = [str(one) for one in _at(text, path, name, key)]
        node = _node(text, path, (*at, key))
        if isinstance(value, dict) and node is not None and node.kind == "mapping":
            for inner, one in value.items():
                text = yamledit.put(text, (*at, key, inner), one)
        else:
            text = yamledit.put(text, (*at, key), value)
    return text


def _home(text: str, path: str, group: str) -> Keys:
    """Where the hosts of a group stand: it may be filled in one place and only named in others."""
    if not group:
        return ("all", "hosts")
    found = roster.places(text.encode(), path).groups.get(group, []) if says_something(text) else []
    filled = [keys for keys in found if _node(text, path, (*keys, "hosts")) is not None]
    written = [keys for keys in found if (node := _node(text, path, keys)) is not None and node.kind == "mapping"]
    return (*next(iter((*filled, *written, *found)), ("all", "children", group)), "hosts")


def _at(text: str, path: str, name: str, key: str) -> Keys:
    """The place whose value of a key counts: the last that has it, or else the last of the host's own.

    A host that is only part of a range gets a place of its own behind it.
    """
    found = roster.places(text.encode(), path).hosts[name]
    own = [keys for keys in found if keys[-1] == name]
    if not own:
        return (*found[-1][:-1], name)
    having = [keys for keys in own if _node(text, path, (*keys, key)) is not None]
    return (having or own)[-1]


def _node(text: str, path: str, keys: Keys) -> Node | None:
    return roster.document(text.encode(), path).node(*keys)


def says_something(text: str) -> bool:
    """Whether there is more in a text than comments."""
    return any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())
