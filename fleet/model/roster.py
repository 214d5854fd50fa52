"""Inventories: who we have. Ansible-shaped YAML, `all: {vars, hosts, children}`; the nearest value wins.

Ansible reads the same file: its variables and those of other programs are passed over, whatever they say.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from fleet.errors import Fault, FileFaults
from fleet.model import ansible, hostrange, yamlfile
from fleet.model.ansible import ALIASES
from fleet.model.inventory import Host, Inventory, Trial
from fleet.model.near import did_you_mean, nearest
from fleet.model.schema import Keys, check, wrong
from fleet.model.yamlfile import Document, Freedom, Node
from fleet.secret import COMMAND, ENVIRONMENT, words
from fleet.words import counted, every

HOST_KEYS = tuple(name for name in Host.model_fields if name not in ("name", "groups"))
FLEET_KEYS = ("provision", "ssh_config", "trial")
GENERAL_KEYS = (*HOST_KEYS, *FLEET_KEYS)
GROUP_KEYS = ("vars", "hosts", "children")
PROVISIONS = ("static", "lab")
MERGED = ("env", "secrets")
"""Host variables that merge over the levels; all others replace."""

TAKEN = ("/", "/models", "/fleet")
"""What is in every container already: targets of no other mount."""

_SPLIT = re.compile(r'[,"\x00-\x1f]')
_MOUNT = re.compile(r"/[^:]*:/[^:]*(:(ro|rw))?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass
class _Seen:
    """What the walk found of one host: variables by level, nearest last."""

    line: int
    levels: list[tuple[int, Node]] = field(default_factory=list)
    own: list[Node] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    places: list[Keys] = field(default_factory=list)
    addressed: bool = False
    """It shares an address with its range, which is told already."""


def inventory(path: Path) -> Inventory:
    """The inventory of a file. Raises FileFaults with all faults."""
    if path.is_dir():
        raise FileFaults(str(path), [ansible.folder(str(path))])
    return parsed(yamlfile.content(path), str(path))


def parsed(raw: bytes, path: str, *, empty: bool = False) -> Inventory:
    """Like `inventory`, from what is in the file. empty: an inventory without hosts is one, too."""
    read, faults, walk = _walked(raw, path)
    found = walk.hosts
    hosts = [host for name, seen in found.items() if (host := _host(read, name, seen, faults))]
    faults += _same(hosts, found)
    general = _general(read, faults)
    if not found and not faults and not empty:
        faults.append(Fault(read.line("all"), "no host in this inventory; write them below all: hosts:"))
    if faults:
        raise FileFaults(path, faults)
    return Inventory(path=path, hosts=tuple(hosts), notes=tuple(walk.told()), **general)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Places:
    """Where an inventory file says what: each group and each host by name, and the keys to all places it stands at.

    The last key to a host is its name, or the range that it is part of.
    """

    groups: dict[str, list[Keys]]
    hosts: dict[str, list[Keys]]


def places(raw: bytes, path: str) -> Places:
    """Raises FileFaults for a file that cannot be read."""
    walk = _walked(raw, path)[2]
    return Places(walk.places, {name: seen.places for name, seen in walk.hosts.items()})


def is_name(text: str) -> bool:
    """Whether a host or a group can have this name."""
    return _NAME.fullmatch(text) is not None


def _walked(raw: bytes, path: str) -> tuple[Document, list[Fault], _Walk]:
    if fault := ansible.foreign(raw.decode("utf-8", "replace"), path):
        raise FileFaults(path, [fault])
    read = document(raw, path)
    faults = list(read.faults)
    walk = _Walk(read, faults)
    walk.run()
    return read, faults, walk


def document(raw: bytes, path: str) -> Document:
    """What stands in an inventory file, before it means anything. Raises FileFaults if nothing can be read."""
    return yamlfile.parse_text(raw, path, freedom=Freedom(aliases=True, foreign=_foreign))


def _foreign(keys: tuple[str, ...]) -> bool:
    """Whether a variable of these keys is another program's."""
    rest = keys[1:]
    while len(rest) > 2 and rest[0] == "children":
        rest = rest[2:]
    if (rest[:1], len(rest)) not in ((("vars",), 2), (("hosts",), 3)):
        return False
    ours = GENERAL_KEYS if rest[0] == "vars" else HOST_KEYS
    return rest[-1] not in ours and rest[-1] not in ALIASES and ansible.misspelt(rest[-1], ours) is None


def _same(hosts: Sequence[Host], found: dict[str, _Seen]) -> Iterator[Fault]:
    """Machines under several names: work meant for two would meet on one."""
    places: dict[tuple[str, int, str], list[str]] = {}
    for host in hosts:
        if found[host.name].addressed:
            continue
        places.setdefault(host.place, []).append(host.name)
    for (address, port, gateway), names in places.items():
        if len(names) > 1:
            lines = list(dict.fromkeys(found[name].line for name in names))
            where = f" (lines {', '.join(map(str, lines))})" if len(lines) > 1 else ""
            behind = f" behind {gateway}" if gateway else ""
            what = f"{hostrange.folded(names)}  one machine{where}: {address} port {port}{behind}"
            yield Fault(lines[-1], f"{what}; keep one, or give each its own address")


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
        self.judged: set[int] = set()
        self.unused: dict[str, list[int]] = {}

    def run(self) -> None:
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

    def is_group(self, key: str) -> bool:
        """Whether a key beside `all` is a group, as Ansible has them there."""
        node = self.document.node(key)
        if node is None or key in GROUP_KEYS:
            return False
        bare = node.kind == "scalar" and node.value is None
        shaped = bare or (node.kind == "mapping" and (not node.entries or set(node.entries) & set(GROUP_KEYS)))
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
        for key in self.mapping(keys):
            if key in FLEET_KEYS and depth:
                self.faults.append(
                    self.document.fault((*keys, key), f"{key}  is for the whole inventory; write it below all: vars:")
                )
            elif key not in FLEET_KEYS:
                self.variable((*keys, key), GENERAL_KEYS)
        node = self.document.node(*keys)
        if node is None or node.kind != "mapping":
            return []
        self.judge(node)
        return [(depth, node)]

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
        addressed = False
        for key in self.mapping(keys):
            self.variable((*keys, key), HOST_KEYS)
            if len(names) > 1 and ALIASES.get(key, key) == "address":
                addressed = True
                what = f"{key}  would be the same for {every(len(names), 'host')} of {written}; write each host"
                self.faults.append(self.document.fault((*keys, key), what))
        node = self.document.node(*keys)
        if node is not None and node.kind == "mapping":
            self.judge(node)
        for name in names:
            seen = self.hosts.setdefault(name, _Seen(self.document.line(*keys)))
            seen.addressed |= addressed
            seen.places += [keys] if keys not in seen.places else []
            seen.levels += [level for level in levels if level not in seen.levels]
            seen.groups += [group for group in groups if group not in seen.groups]
            if node is not None and node.kind == "mapping" and not any(node is one for one in seen.own):
                seen.own.append(node)

    def variable(self, keys: Keys, known: tuple[str, ...]) -> None:
        """A variable of a group or host: ours, another program's, or ours misspelt."""
        key = str(keys[-1])
        if key in known or key in ALIASES:
            return
        if meant := ansible.misspelt(key, known):
            self.faults.append(self.document.fault(keys, f"{key}  unknown key in {keys[-2]}; did you mean {meant}?"))
            return
        self.unused.setdefault(f"{key} is not used by fleet{ansible.hint(key, known)}", []).append(
            self.document.line(*keys)
        )

    def judge(self, node: Node) -> None:
        """What is wrong with variables that belong together, also where a nearer value wins."""
        if id(node) not in self.judged:
            self.judged.add(id(node))
            self.faults += _judged(self.document, "host", _Seen(0, own=[node]))[1]

    def told(self) -> Iterator[str]:
        """What the file says without being wrong, each once."""
        for text, lines in self.unused.items():
            more = len(set(lines)) - 1
            yield f"{self.document.path}:{lines[0]}  {text}" + (
                f" (and on {counted(more, 'more line')})" if more else ""
            )
        for name in self.places:
            if name in self.hosts:
                line, host = self.document.line(*self.places[name][0]), self.hosts[name].line
                what = f"{name} is a group and a host (line {host}): --limit {name} means both"
                yield f"{self.document.path}:{line}  {what}"

    def unknown(self, keys: Keys, choices: Sequence[str]) -> None:
        key = str(keys[-1])
        self.faults.append(self.document.fault(keys, f"{key}  unknown key in {keys[-2]}{did_you_mean(key, choices)}"))


def _host(document: Document, name: str, seen: _Seen, faults: list[Fault]) -> Host | None:
    """One host from all its levels: of two values the nearer one, of two equally near the later one."""
    host, wrongs = _judged(document, name, seen)
    faults += wrongs
    return host


def _judged(document: Document, name: str, seen: _Seen) -> tuple[Host | None, list[Fault]]:
    levels = [node for _, node in sorted(seen.levels, key=lambda level: level[0])]
    merged = Node("mapping", document.path, 0)
    faults: list[Fault] = []
    for node in (*levels, *seen.own):
        faults += _doubles(node)
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
    return host, [*faults, *wrongs, *_ranges(own), *_places(own)]


def _put(merged: Node, key: str, value: Node, line: int) -> None:
    below = merged.entries.get(key)
    value = _sourced(value) if key == "secrets" else value
    if key in MERGED and below is not None and below.kind == value.kind == "mapping":
        both = Node("mapping", value.source, value.line, value.written)
        for node in (below, value):
            for name, entry in node.entries.items():
                both.put(name, entry, node.where(name)[1])
        value = both
    merged.put(key, value, line)


def _sourced(value: Node) -> Node:
    """Secrets that are only named come from the environment. What is written is not told: it may be a value."""
    if value.kind == "list" and all(one.kind == "scalar" for one in value.items):
        named = Node("mapping", value.source, value.line)
        for one in value.items:
            named.put(str(one.value), Node("scalar", one.source, one.line, ENVIRONMENT, ENVIRONMENT), one.line)
        return named
    hidden = {name: replace(one, written="…") for name, one in value.entries.items()}
    return replace(value, written="…", entries=hidden)


def _doubles(node: Node) -> Iterator[Fault]:
    """One thing said twice, in our word and in Ansible's, and not the same."""
    said: dict[str, str] = {}
    for key, value in node.entries.items():
        first = said.setdefault(ALIASES.get(key, key), key)
        if node.entries[first].data != value.data:
            alias, other = (first, key) if first in ALIASES and key not in ALIASES else (key, first)
            line = node.where(other)[1]
            yield Fault(node.where(alias)[1], f"{alias}  written beside {other} (line {line}); keep one")


def _ranges(document: Document) -> Iterator[Fault]:
    for key, low, high in (("port", 1, 65535), ("gpus", 0, 1024)):
        node = document.node("host", key)
        if node is not None and type(node.value) is int and not low <= node.value <= high:
            yield wrong(document, ("host", key), f"from {low} to {high} expected")


def _places(document: Document) -> Iterator[Fault]:
    """Paths on the host are absolute, variables have names, mounts are source:target[:ro]."""
    for key in ("models", "scratch"):
        node = document.node("host", key)
        if node is not None and isinstance(node.value, str) and node.value.strip()[:1] not in ("/", "{", ""):
            yield wrong(document, ("host", key), f"an absolute path expected; {_absolute(node.value)}")
        elif node is not None and isinstance(node.value, str) and (found := _SPLIT.search(node.value)):
            yield wrong(document, ("host", key), _splits(found[0]))
    yield from _mounts(document)
    devices = document.node("host", "devices")
    for index, one in enumerate(devices.items if devices else ()):
        if isinstance(one.value, str) and not one.value.startswith("/"):
            yield wrong(document, ("host", "devices", index), "the path of a device expected: /dev/…")
    yield from _secrets(document)
    env = document.node("host", "env")
    for name, value in env.entries.items() if env else ():
        if not _VARIABLE.fullmatch(name) or "\n" in str(value.value):
            yield wrong(document, ("host", "env", name), "a variable's name and a value of one line expected")


def _secrets(document: Document) -> Iterator[Fault]:
    """Names of variables, and where their values come from. What is written is not repeated: it may be a value."""
    secrets, env = document.node("host", "secrets"), document.node("host", "env")
    for name, source in secrets.entries.items() if secrets else ():
        at: Keys = ("host", "secrets", name)
        if not _VARIABLE.fullmatch(name):
            yield document.fault(at, "secrets: the name of a variable expected, as HF_TOKEN: letters, digits and _")
        elif env and name in env.entries:
            yield document.fault(at, f"{name}  is in env and in secrets; keep one")
        elif not isinstance(source.value, str) or (source.value != ENVIRONMENT and not _command(source.value)):
            what = 'env, or "!cmd COMMAND" expected: where the value comes from, never the value'
            yield document.fault(at, f"secrets: {name}  {what}")


def _command(source: str) -> bool:
    try:
        return source.startswith(COMMAND) and bool(words(source))
    except ValueError:
        return False


def _absolute(path: str) -> str:
    """What to type for a path that does not start at the root."""
    start = path.strip()[0]
    if start in "~$":
        return f"{start} is not read here, write the path out"
    return f"type /{path.lstrip('./')}"


def _splits(char: str) -> str:
    """`docker run --mount` takes one record of comma-separated values."""
    named = {",": "a comma", '"': "a quotation mark"}.get(char, "a control character")
    return f"docker mounts no path with {named} in it; give the folder another name"


def _mounts(document: Document) -> Iterator[Fault]:
    """Mounts in the form that docker takes, each with a target of its own."""
    mounts = document.node("host", "mounts")
    targets = dict.fromkeys(TAKEN, "every container has that already")
    for index, one in enumerate(mounts.items if mounts else ()):
        at: Keys = ("host", "mounts", index)
        if not isinstance(one.value, str):
            continue
        if not _MOUNT.fullmatch(one.value):
            yield wrong(document, at, "/source:/target or /source:/target:ro expected")
        elif found := _SPLIT.search(one.value):
            yield wrong(document, at, _splits(found[0]))
        else:
            target = "/" + posixpath.normpath(one.value.split(":")[1]).lstrip("/")
            if target in targets:
                yield wrong(document, at, f"{target} cannot be the target: {targets[target]}")
            targets.setdefault(target, f"it is that of mounts[{index}]")


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
        if not isinstance(ssh_config.value, str) or not ssh_config.value.strip():
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
