"""`--limit`: which hosts of an inventory are meant, in Ansible's meaning of patterns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from fleet.errors import UsageError, shown
from fleet.model import hostrange
from fleet.model.inventory import Inventory
from fleet.model.near import did_you_mean

LAST_FAILED = "last-failed"

_SEPARATORS = re.compile(r"[,:\s]+(?![^\[\]]*\])")
_SUBSCRIPT = re.compile(r"(.+)\[(-?[0-9]{1,9})(?::(-?[0-9]{1,9})?)?\]")


def words(patterns: Sequence[str]) -> list[str]:
    """Patterns taken apart at commas, spaces and those colons that are in no brackets."""
    return [word for pattern in patterns for word in _SEPARATORS.split(pattern) if word]


def limit(
    inventory: Inventory,
    patterns: Sequence[str],
    sets: Mapping[str, Sequence[str]] | None = None,
    *,
    flag: str = "--limit",
) -> Inventory:
    """The hosts that are meant, in file order. No patterns: all. sets: what `@name` stands for; flag: what was typed.

    As in Ansible the order of patterns does not count: first all plain ones add hosts, then each `&x` keeps only those
    of x, then each `!x` takes out those of x; without a plain one they work on all. Raises UsageError for a name that
    is in no inventory, and if no host is left.
    """
    asked = words(patterns)
    if not asked:
        return inventory
    known = _Known(inventory, sets or {}, flag)
    plain = [known.named(word) for word in asked if word[0] not in "&!"]
    chosen = set().union(*plain) if plain else set(known.names)
    for word in asked:
        if word[0] == "&":
            chosen &= known.named(word[1:])
    for word in asked:
        if word[0] == "!":
            chosen -= known.named(word[1:])
    if not chosen:
        raise UsageError(f"{flag} {shown(','.join(asked))}: no host of {inventory.path} is left", hint=known.hint)
    hosts = tuple(host for host in inventory.hosts if host.name in chosen)
    return inventory.model_copy(update={"hosts": hosts})


class _Known:
    """The names of an inventory that a pattern can mean."""

    def __init__(self, inventory: Inventory, sets: Mapping[str, Sequence[str]], flag: str) -> None:
        self.path, self.sets, self.flag = inventory.path, sets, flag
        self.names = [host.name for host in inventory.hosts]
        self.groups: dict[str, list[str]] = {}
        for host in inventory.hosts:
            for group in host.groups:
                self.groups.setdefault(group, []).append(host.name)

    @property
    def hint(self) -> str:
        groups = f"\ngroups: {', '.join(self.groups)}" if self.groups else ""
        return f"hosts: {', '.join(self.names)}{groups}"

    def named(self, word: str) -> set[str]:
        """The hosts of one pattern without its sign."""
        whole = {"all": self.names, **self.groups, **{name: [name] for name in self.names}}
        if word in whole:
            # A group and a host may share a name: then both are meant.
            return {*whole[word], *self.groups.get(word, ())}
        if word.startswith("@"):
            return self._set(word[1:])
        part = _SUBSCRIPT.fullmatch(word)
        if part and part[1] in whole:
            return set(_part(whole[part[1]], part))
        if hostrange.is_range(word) and not re.search(r"[*?]", word):
            return self._range(word)
        found = {host for name, hosts in whole.items() if fnmatchcase(name, word) for host in hosts}
        if not found:
            self._unknown(word, word)
        return found

    def _set(self, name: str) -> set[str]:
        if name not in self.sets:
            near = did_you_mean(f"@{name}", [f"@{LAST_FAILED}"])
            raise UsageError(f"{self.flag} @{shown(name)}: there is only @{LAST_FAILED}{near}", hint=self.hint)
        missing = [host for host in self.sets[name] if host not in self.names]
        if missing:
            what = f"{self.flag} @{name}: {', '.join(missing)} failed last, and {self.path} has no such host"
            raise UsageError(what, hint=f"was it asked with another --inventory?\n{self.hint}")
        return set(self.sets[name])

    def _range(self, word: str) -> set[str]:
        try:
            members = hostrange.expand(word)
        except ValueError as error:
            raise UsageError(f"{self.flag} {shown(word)}: {error}", hint=self.hint) from None
        for name in members:
            if name not in self.names:
                self._unknown(word, name)
        return set(members)

    def _unknown(self, word: str, name: str) -> None:
        place = f"{self.flag} {shown(word)}" + (f": {shown(name)}" if name != word else "")
        near = did_you_mean(name, [*self.names, *self.groups])
        raise UsageError(f"{place}: no such host or group in {self.path}{near}", hint=self.hint)


def _part(hosts: Sequence[str], asked: re.Match[str]) -> Sequence[str]:
    """`group[0]`, `group[-1]`, `group[0:2]` (the last included), `group[1:]`, as Ansible counts."""
    first = int(asked[2])
    if ":" not in asked[0].rpartition("[")[2]:
        return [hosts[first]] if -len(hosts) <= first < len(hosts) else []
    last = int(asked[3]) if asked[3] else -1
    return hosts[first : last + 1 or None]
