"""What the Tab key offers in a console: names of hosts, runs and recipes inside quotes, arguments of verbs, and the
attributes of what a live object would give. No host is asked: attributes follow from the types that are declared.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleet.shell.calls import Argument, Verb

OPENING = {")": "(", "]": "[", "}": "{"}
CHAIN = re.compile(r"([A-Za-z_]\w*)((?:\.\w+|\[[^\[\]]*\]|\([^()]*\))*)\.(\w*)$")
LINK = re.compile(r"\.(\w+)|\[[^\[\]]*\]|\([^()]*\)")

Names = Callable[[str, str], Iterable[str]]
"""The names behind a verb's flag on the command line: "plan", "--config"."""


@dataclass(frozen=True)
class Offer:
    """What may stand in place of `typed`, the end of the line."""

    typed: str
    words: tuple[str, ...] = ()


@dataclass
class Bracket:
    """An opening bracket that is not closed yet, and the name before it. at: where its latest element begins."""

    sign: str
    name: str
    at: int
    place: int = 0
    keywords: list[str] = field(default_factory=list)


def offer(line: str, known: Mapping[str, Any], names: Names) -> Offer | None:
    """For a line up to the cursor, or None where Python's own completion knows as much. known: the console's names."""
    brackets, quote = _scan(line)
    if quote is not None:
        return _quoted(line, brackets, quote, known, names)
    return _attribute(line, known) or _argument(line, brackets, known)


def _scan(line: str) -> tuple[list[Bracket], int | None]:
    """The brackets that are open at the end of a line, and where a text begins that is not closed yet."""
    brackets: list[Bracket] = []
    begun: int | None = None
    for at, sign in enumerate(line):
        if begun is not None:
            begun = None if sign == line[begun - 1] and line[at - 1] != "\\" else begun
        elif sign in "\"'":
            begun = at + 1
        elif sign in OPENING.values():
            before = re.search(r"([A-Za-z_]\w*)$", line[:at])
            brackets.append(Bracket(sign, before[1] if before else "", at + 1))
        elif sign in OPENING:
            while brackets and brackets.pop().sign != OPENING[sign]:
                pass
        elif sign == "," and brackets:
            _next(brackets[-1], line[brackets[-1].at : at], at)
    return brackets, begun


def _next(bracket: Bracket, element: str, at: int) -> None:
    if key := _keyword(element):
        bracket.keywords.append(key)
    else:
        bracket.place += 1
    bracket.at = at + 1


def _keyword(element: str) -> str:
    """`config` of an element that begins with `config=`."""
    found = re.match(r"\s*([A-Za-z_]\w*)\s*=(?!=)", element)
    return found[1] if found else ""


# --- inside quotes ----------------------------------------------------------------------------------------------


def _quoted(line: str, brackets: list[Bracket], begun: int, known: Mapping[str, Any], names: Names) -> Offer | None:
    """Names in `hosts["…`, `plan("…`, `plan(config="…` and `plan(limit=["…`."""
    typed = line[begun:]
    inner = brackets[-1] if brackets else None
    if inner and inner.sign == "[" and inner.name:
        keys = _keys(known.get(inner.name))
        return None if keys is None else _fits(typed, keys)
    call = next((one for one in reversed(brackets) if one.sign == "("), None)
    verb = known.get(call.name) if call else None
    if not call or not isinstance(verb, Verb):
        return None
    argument = _argument_at(verb, call, line)
    if argument is None:
        return None
    before, comma, last = typed.rpartition(",") if argument.many else ("", "", typed)
    found = _fits(last, names(verb.verb, argument.flag))
    listed = before.split(",")
    return Offer(typed, tuple(f"{before}{comma}{word}" for word in found.words if word not in listed))


def _keys(value: Any) -> list[str] | None:
    keys = getattr(value, "_ipython_key_completions_", None)
    return list(keys()) if keys else None


def _argument_at(verb: Verb, call: Bracket, line: str) -> Argument | None:
    if key := _keyword(line[call.at :]):
        return next((one for one in verb.arguments if one.name == key), None)
    return verb.arguments[call.place] if call.place < len(verb.arguments) else None


def _fits(typed: str, words: Iterable[str]) -> Offer:
    return Offer(typed, tuple(word for word in words if word.startswith(typed)))


# --- outside ----------------------------------------------------------------------------------------------------


def _argument(line: str, brackets: list[Bracket], known: Mapping[str, Any]) -> Offer | None:
    """The arguments of a verb that are not given yet."""
    call = brackets[-1] if brackets else None
    verb = known.get(call.name) if call and call.sign == "(" else None
    if not call or not isinstance(verb, Verb):
        return None
    begun = re.fullmatch(r"\s*(\w*)", line[call.at :])
    if not begun:
        return None
    left = [one.name for one in verb.arguments[call.place :] if one.name not in call.keywords]
    found = _fits(begun[1], (f"{name}=" for name in left))
    return found if found.words else None


def _attribute(line: str, known: Mapping[str, Any]) -> Offer | None:
    """Public attributes of what a chain that begins with an object of ours gives, by its declared types."""
    chain = CHAIN.search(line)
    if not chain or not _ours(kind := type(known.get(chain[1]))):
        return None
    for link in LINK.finditer(chain[2]):
        found = _gives(kind, link)
        if found is None:
            return None
        kind = found
    return _fits(chain[3], (name for name in members(kind) if not name.startswith("_")))


def members(kind: type) -> list[str]:
    """Of an object of a class, those that it gets when it is made included."""
    declared = (name for one in kind.__mro__ for name in inspect.get_annotations(one))
    return sorted({*dir(kind), *declared})


def _ours(kind: type) -> bool:
    return kind.__module__.startswith("fleet.shell.")


def _gives(kind: type, link: re.Match[str]) -> type | None:
    """The class of `.name`, `.name(…)` (the call itself changes nothing) or `[…]` on an object of a class."""
    if link[0].startswith("("):
        return kind
    member = inspect.getattr_static(kind, link[1] or "__getitem__", None)
    if isinstance(member, property):
        member = member.fget
    return _class(typing.get_type_hints(member).get("return")) if inspect.isfunction(member) else None


def _class(hint: Any) -> type | None:
    """The first class of a hint."""
    if isinstance(hint, types.UnionType):
        hint = typing.get_args(hint)[0]
    hint = typing.get_origin(hint) or hint
    return hint if isinstance(hint, type) else None
