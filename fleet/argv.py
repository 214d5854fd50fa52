"""A command line taken apart, as Invoke reads it: verbs, flags with their values, and words that are neither.

Pure; verbs and flags come from the Invoke collection itself.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

HELP = ("--help", "-h")


class Whole(NamedTuple):
    """The whole numbers a flag takes, both ends included, and one to show."""

    least: int
    most: int
    example: str


NUMBERS = {
    "--conc": Whole(1, 1_000_000, "4,8"),
    "--repeats": Whole(1, 100, "3"),
    "--order-seed": Whole(0, 1_000_000_000, "1"),
    "--tail": Whole(0, 1_000_000_000, "100"),
    "--nodes": Whole(1, 99, "3"),
    "--list-depth": Whole(0, 99, "1"),
    "--command-timeout": Whole(1, 1_000_000, "60"),
}


@dataclass(frozen=True)
class Flag:
    """A flag of a verb. optional: its value may be left out. number: what whole number it is. many: may be repeated."""

    name: str
    takes_value: bool = True
    optional: bool = False
    number: Whole | None = None
    many: bool = False


@dataclass(frozen=True)
class Verb:
    """A task and its flags by every spelling. Invoke's own flags are those of the verb named ""."""

    name: str
    flags: Mapping[str, Flag]


@dataclass(frozen=True)
class Word:
    """A part of a command line: a flag with its value, a verb, or a word that is neither.

    `verb` is the verb it belongs to ("" before the first). `at` and `end` are its place in argv. `flag` is None for an
    unknown flag, `value` None for a missing one.
    """

    kind: str
    text: str
    verb: str
    at: int
    end: int
    flag: Flag | None = None
    value: str | None = None


def whole(text: str, kind: Whole) -> int:
    """A whole number in plain digits. Raises ValueError, which says what is taken."""
    number = int(text) if re.fullmatch(r"[0-9]{1,12}", text) else -1
    if not kind.least <= number <= kind.most:
        raise ValueError(f"a whole number from {kind.least} to {kind.most}")
    return number


def listed(values: Iterable[str]) -> tuple[str, ...]:
    """Values of a flag that may be repeated or hold a list with commas."""
    return tuple(word.strip() for value in values for word in value.split(",") if word.strip())


def verbs_of(collection: Any) -> dict[str, Verb]:
    """Every task of an Invoke collection, by each of its names."""
    found = {}
    for primary, aliases in collection.task_names.items():
        flags = _flags(_arguments(collection[primary]))
        found.update({name: Verb(name, flags) for name in (primary, *aliases)})
    return found


def core_of(program: Any) -> Verb:
    """Invoke's own flags."""
    return Verb("", _flags(program.initial_context.args.values()))


def _arguments(task: Any) -> list[Any]:
    """A task's arguments. Invoke empties `task.help` as it reads it, so it reads a copy."""
    clone = copy.copy(task)
    clone.help = dict(task.help)
    return list(clone.get_arguments())


def _flags(arguments: Iterable[Any]) -> dict[str, Flag]:
    flags = {}
    for argument in arguments:
        names = [("--" if len(name) > 1 else "-") + name for name in argument.names]
        number = NUMBERS[names[0]] if argument.kind is int else NUMBERS.get(names[0])
        flag = Flag(names[0], argument.takes_value, argument.optional, number, argument.kind is list)
        flags.update(dict.fromkeys(names, flag))
        if argument.kind is bool and argument.default is True:
            flags[f"--no-{argument.names[0]}"] = flag
    return flags


def body(argv: Sequence[str]) -> list[str]:
    """What stands before `--`: all that Invoke parses."""
    items = list(argv)
    return items[: items.index("--")] if "--" in items else items


def completing(argv: Sequence[str], core: Verb) -> bool:
    return "--complete" in core.flags and "--complete" in body(argv)


def split(argv: Sequence[str], verbs: Mapping[str, Verb], core: Verb) -> Iterator[Word]:
    """The parts of a command line (argv[0] is the program), up to `--`."""
    items = body(argv)
    verb, at = core, 1
    while at < len(items):
        text = items[at]
        if text.startswith("-") and len(text) > 1:
            for word in _flag_words(items, at, verb, core):
                yield word
                end = word.end
            at = end
            continue
        if text in verbs:
            verb = verbs[text]
            yield Word("verb", text, verb.name, at, at + 1)
        else:
            yield Word("stray", text, verb.name, at, at + 1)
        at += 1


def _flag_words(items: Sequence[str], at: int, verb: Verb, core: Verb) -> Iterator[Word]:
    """The flags in one argument: `--name`, `--name=value`, `-n`, `-nvalue`, or several short ones as `-abc`."""
    text = items[at]
    name, equals, value = text.partition("=")
    if equals:
        yield Word("flag", name, verb.name, at, at + 1, _lookup(name, verb, core), value)
    elif text.startswith("--") or len(text) == 2:
        yield _flag_word(items, at, text, verb, core)
    else:
        first = _lookup(text[:2], verb, core)
        if first and first.takes_value:
            yield Word("flag", text[:2], verb.name, at, at + 1, first, text[2:])
        elif first:
            for letter in text[1:]:
                yield _flag_word(items, at, f"-{letter}", verb, core)
        else:
            yield Word("flag", text, verb.name, at, at + 1)


def _flag_word(items: Sequence[str], at: int, name: str, verb: Verb, core: Verb) -> Word:
    flag = _lookup(name, verb, core)
    if flag and flag.takes_value and at + 1 < len(items) and not _looks_like_flag(items[at + 1]):
        return Word("flag", name, verb.name, at, at + 2, flag, items[at + 1])
    return Word("flag", name, verb.name, at, at + 1, flag)


def _lookup(name: str, verb: Verb, core: Verb) -> Flag | None:
    """A verb's own flag; after a verb, of Invoke's only those that mean something there."""
    if name in verb.flags:
        return verb.flags[name]
    return core.flags.get(name) if name in (*HELP, "--debug", "-d") else None


def _looks_like_flag(text: str) -> bool:
    return text.startswith("-") and len(text) > 1 and not text[1].isdigit()
