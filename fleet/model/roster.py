"""Inventories: who we have. Ansible-shaped YAML, `all: {vars, hosts, children}`; the nearest value wins."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from fleet.errors import Fault, FileFaults
from fleet.model import hostrange, yamlfile
from fleet.model.inventory import Host, Inventory, Trial
from fleet.model.near import did_you_mean, nearest
from fleet.model.schema import Keys, check, wrong
from fleet.model.yamlfile import Document, Node
from fleet.words import every

ALIASES = {
    "ansible_host": "address",
    "ansible_user": "user",
    "ansible_port": "port",
    "ansible_ssh_private_key_file": "identity",
}
HOST_KEYS = tuple(name for name in Host.model_fields if name not in ("name", "groups"))
FLEET_KEYS = ("provision", "ssh_config", "trial")
GROUP_KEYS = ("vars", "hosts", "children")
PROVISIONS = ("static", "lab")
MERGED = ("env",)
"""Host variables that merge over the levels; all others replace."""

_MOUNT = re.compile(r"/[^:]*:/[^:]*(:(ro|rw))?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass
class _Seen:
    """What the walk found of one host: variables by level, nearest last."""

    levels: list[tuple[int, Node]] = field(default_factory=list)
    own: list[Node] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)


def inventory(path: Path) -> Inventory:
    """The inventory of a file. Raises FileFaults with all faults."""
    document = yamlfile.parse(path)
    faults = list(document.faults)
    walk = _Walk(document, faults)
    hosts = [host for name, seen in walk.run().items() if (host := _host(document, name, seen, faults))]
    general = _general(document, faults)
    if not walk.hosts and not faults:
        faults.append(Fault(document.line("all"), "no host in this inventory; write them below all: hosts:"))
    if faults:
        raise FileFaults(document.path, faults)
    return Inventory(path=str(path), hosts=tuple(hosts), notes=tuple(dict.fromkeys(walk.notes)), **general)  # type: ignore[arg-type]


def resolved(inventory: Inventory) -> str:
    """An inventory as YAML in which every host carries all its variables: what a run folder keeps. Loads as it is."""
    general = inventory.model_dump(mode="json", include=set(FLEET_KEYS), exclude_defaults=True)
    hosts = {
        host.name: host.model_dump(mode="json", exclude={"name", "groups"}, exclude_defaults=True)
        for host in inventory.hosts
    }
    groups = dict.fromkeys(group for host in inventory.hosts for group in host.groups)
    children = {group: {"hosts": _members(inventory, group)} for group in groups}
    whole = {"vars": general, "hosts": hosts, "children": children}
    shown = {key: value for key, value in whole.items() if value}
    return yaml.safe_dump({"all": shown}, sort_keys=False, allow_unicode=True, width=120)


def _members(inventory: Inventory, group: str) -> dict[str, dict[str, str]]:
    return {host.name: {} for host in inventory.hosts if group in host.groups}


class _Walk:
    """Goes through the groups once, from the outside in."""

    def __init__(self, document: Document, faults: list[Fault]) -> None:
        self.document, self.faults = document, faults
        self.hosts: dict[str, _Seen] = {}
        self.places: dict[str, list[Keys]] = {}
        self.notes: list[str] = []

    def run(self) -> dict[str, _Seen]:
        beside = [key for key in self.document.root.entries if key != "all"]
        groups = [key for key in beside if self.is_group(key)]
        for key in beside:
            if key not in groups:
                hint = did_you_mean(key, ("all",))
                self.faults.append(self.document.fault((key,), f"{key}  unknown key, an inventory is below all{hint}"))
        if self.document.node("all") is None and not groups:
            self.faults.append(Fault(0, "all  missing in this file"))
        for key in ("all", *groups):
            self.find((key,), () if key == "all" else (key,))
        self.group("all", [("all",)], [], ())
        above = self.vars(("all", "vars"), 0)
        for key in groups:
            self.group(key, self.places[key], above, (key,))
        return self.hosts

    def is_group(self, key: str) -> bool:
        """Whether a key beside `all` is a group, as Ansible has them there."""
        node = self.document.node(key)
        shaped = node is not None and node.kind == "mapping" and set(node.entries) & set(GROUP_KEYS)
        return bool(shaped) and _NAME.fullmatch(key) is not None and nearest(key, ("all",)) is None

    def find(self, keys: Keys, names: tuple[str, ...]) -> None:
        """Note where each group is written: it may be filled in one place and named, empty, in others."""
        if names:
            self.places.setdefault(names[-1], []).append(keys)
        node = self.document.node(*keys, "children")
        for name in node.entries if node is not None and node.kind == "mapping" else ():
            if name != "all" and name not in names:
                self.find((*keys, "children", name), (*names, name))

    def mapping(self, keys: Keys) -> list[str]:
        """The keys of a mapping; null counts as an empty one."""
        node = self.document.node(*keys)
        if node is None or node.bad or (node.kind == "scalar" and node.value is None):
            return []
        if node.kind != "mapping":
            self.faults.append(
                wrong(
                    self.document,
                    keys,
                    f"a mapping expected, a {node.kind if node.kind == 'list' else 'value'} was written",
                )
            )
            return []
        return list(node.entries)

    def group(self, group: str, places: Sequence[Keys], above: list[tuple[int, Node]], names: tuple[str, ...]) -> None:
        """A group with all that is written of it, wherever. names: the groups it is in, itself last."""
        levels = list(above)
        for keys in places:
            for key in self.mapping(keys):
                if key not in GROUP_KEYS:
                    self.unknown((*keys, key), GROUP_KEYS)
            levels += self.vars((*keys, "vars"), len(names))
        for keys in places:
            for name in self.mapping((*keys, "hosts")):
                self.host((*keys, "hosts", name), name, levels, names)
            for name in self.mapping((*keys, "children")):
                at: Keys = (*keys, "children", name)
                if name == "all" or not _NAME.fullmatch(name) or name in names:
                    self.faults.append(self.document.fault(at, f"{name}  cannot be the name of a group here"))
                    continue
                self.group(name, self.places[name], levels, (*names, name))

    def vars(self, keys: Keys, depth: int) -> list[tuple[int, Node]]:
        extra = FLEET_KEYS if depth == 0 else ()
        for key in self.mapping(keys):
            if key in FLEET_KEYS and depth:
                self.faults.append(
                    self.document.fault((*keys, key), f"{key}  is for the whole inventory; write it below all: vars:")
                )
            elif not self.known(key, (*keys, key)):
                self.unknown((*keys, key), (*HOST_KEYS, *ALIASES, *extra), allowed=extra)
        node = self.document.node(*keys)
        return [(depth, node)] if node is not None and node.kind == "mapping" else []

    def host(self, keys: Keys, written: str, levels: list[tuple[int, Node]], groups: tuple[str, ...]) -> None:
        try:
            names = hostrange.expand(written)
        except ValueError as error:
            self.faults.append(self.document.fault(keys, f"{written}  cannot be the name of a host; {error}"))
            return
        if not _NAME.fullmatch(names[0]):
            hint = "letters, digits, dots and dashes expected"
            self.faults.append(self.document.fault(keys, f"{written}  cannot be the name of a host; {hint}"))
            return
        for key in self.mapping(keys):
            if not self.known(key, (*keys, key)):
                self.unknown((*keys, key), (*HOST_KEYS, *ALIASES))
            elif len(names) > 1 and ALIASES.get(key, key) == "address":
                what = f"{key}  would be the same for {every(len(names), 'host')} of {written}; write each host"
                self.faults.append(self.document.fault((*keys, key), what))
        node = self.document.node(*keys)
        for name in names:
            seen = self.hosts.setdefault(name, _Seen())
            seen.levels += [level for level in levels if level not in seen.levels]
            seen.groups += [group for group in groups if group not in seen.groups]
            if node is not None and node.kind == "mapping" and not any(node is one for one in seen.own):
                seen.own.append(node)

    def known(self, key: str, keys: Keys) -> bool:
        if key.startswith("ansible_") and key not in ALIASES:
            self.notes.append(f"{self.document.path}:{self.document.line(*keys)}  {key} is not used by fleet")
            return True
        return key in HOST_KEYS or key in ALIASES

    def unknown(self, keys: Keys, choices: Sequence[str], *, allowed: Sequence[str] = ()) -> None:
        key = str(keys[-1])
        if key not in allowed:
            self.faults.append(
                self.document.fault(keys, f"{key}  unknown key in {keys[-2]}{did_you_mean(key, choices)}")
            )


def _host(document: Document, name: str, seen: _Seen, faults: list[Fault]) -> Host | None:
    """One host from all its levels: of two values the nearer one, of two equally near the later one."""
    levels = [node for _, node in sorted(seen.levels, key=lambda level: level[0])]
    merged = Node("mapping", document.path, 0)
    for node in (*levels, *seen.own):
        _check_doubles(document, node, faults)
        for key, value in node.entries.items():
            target = ALIASES.get(key, key)
            if target in HOST_KEYS:
                _put(merged, target, value, node.where(key)[1])
    own = Document(document.path, Node("mapping", document.path, 0, entries={"host": merged}))
    merged.put("name", Node("scalar", document.path, 0, name, name), 0)
    merged.put(
        "groups", Node("list", document.path, 0, items=[Node("scalar", "", 0, one, one) for one in seen.groups]), 0
    )
    host, wrongs = check(own, ("host",), Host)
    faults += wrongs
    faults += [*_ranges(own), *_places(own)]
    return host


def _put(merged: Node, key: str, value: Node, line: int) -> None:
    below = merged.entries.get(key)
    if key in MERGED and below is not None and below.kind == value.kind == "mapping":
        both = Node("mapping", value.source, value.line, value.written)
        for node in (below, value):
            for name, entry in node.entries.items():
                both.put(name, entry, node.where(name)[1])
        value = both
    merged.put(key, value, line)


def _check_doubles(document: Document, node: Node, faults: list[Fault]) -> None:
    for alias, name in ALIASES.items():
        if alias in node.entries and name in node.entries:
            faults.append(
                Fault(node.where(alias)[1], f"{alias}  written beside {name} (line {node.where(name)[1]}); keep one")
            )


def _ranges(document: Document) -> Iterator[Fault]:
    for key, low, high in (("port", 1, 65535), ("gpus", 0, 1024)):
        node = document.node("host", key)
        if node is not None and type(node.value) is int and not low <= node.value <= high:
            yield wrong(document, ("host", key), f"from {low} to {high} expected")


def _places(document: Document) -> Iterator[Fault]:
    """Paths on the host are absolute, variables have names, mounts are source:target[:ro]."""
    for key in ("models", "scratch"):
        node = document.node("host", key)
        if node is not None and isinstance(node.value, str) and not node.value.startswith("/"):
            yield wrong(document, ("host", key), f"an absolute path expected; type /{node.value.lstrip('./')}")
    mounts = document.node("host", "mounts")
    for index, one in enumerate(mounts.items if mounts else ()):
        if isinstance(one.value, str) and not _MOUNT.fullmatch(one.value):
            yield wrong(document, ("host", "mounts", index), "/source:/target or /source:/target:ro expected")
    devices = document.node("host", "devices")
    for index, one in enumerate(devices.items if devices else ()):
        if isinstance(one.value, str) and not one.value.startswith("/"):
            yield wrong(document, ("host", "devices", index), "the path of a device expected: /dev/…")
    env = document.node("host", "env")
    for name, value in env.entries.items() if env else ():
        if not _VARIABLE.fullmatch(name) or "\n" in str(value.value):
            yield wrong(document, ("host", "env", name), "a variable's name and a value of one line expected")


def _general(document: Document, faults: list[Fault]) -> dict[str, object]:
    """provision, ssh_config and trial."""
    at: Keys = ("all", "vars")
    found: dict[str, object] = {}
    provision, ssh_config = document.node(*at, "provision"), document.node(*at, "ssh_config")
    if provision is not None and not provision.bad:
        if provision.value not in PROVISIONS:
            hint = did_you_mean(str(provision.value), PROVISIONS)
            faults.append(wrong(document, (*at, "provision"), f"one of {', '.join(PROVISIONS)} expected{hint}"))
        found["provision"] = provision.value
    if ssh_config is not None and not ssh_config.bad:
        if not isinstance(ssh_config.value, str):
            faults.append(wrong(document, (*at, "ssh_config"), "the path of a file expected"))
        found["ssh_config"] = ssh_config.value
    if document.node(*at, "trial") is not None:
        trial, wrongs = check(document, (*at, "trial"), Trial)
        faults += [*wrongs, *_trial_ranges(document, (*at, "trial"))]
        found["trial"] = trial
    return found


def _trial_ranges(document: Document, at: Keys) -> Iterator[Fault]:
    for key in Trial.model_fields:
        node = document.node(*at, key)
        if node is not None and type(node.value) is int and node.value < 1:
            yield wrong(document, (*at, key), "must be at least 1")
