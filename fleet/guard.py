"""What Invoke would answer badly, answered before it gets there.

Invoke parses the command line after it has loaded tasks.py, so tasks.py can look first. Checked with Invoke 2.2.1:
unknown verbs and flags end with 1 and no near miss, `invoke --config X sweep` and `--tail many` end in a traceback,
`--config --help` takes "--help" for the value and starts the work, and words after `--` reach nobody.

`check` says what is wrong with a command line, `detour` what Invoke should be asked instead. Both are pure; verbs and
flags come from the Invoke collection itself. `guard` applies them to a process.
"""

from __future__ import annotations

import contextlib
import copy
import os
import shlex
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from types import TracebackType
from typing import Any

from fleet.model.near import nearest

HELP = ("--help", "-h")
RUNTIME_FILES = (".yaml", ".yml", ".json", ".py")


@dataclass(frozen=True)
class Flag:
    """A flag of a verb. optional: its value may be left out. number: a whole number. many: may be repeated."""

    name: str
    takes_value: bool = True
    optional: bool = False
    number: bool = False
    many: bool = False


@dataclass(frozen=True)
class Verb:
    """A task and its flags by every spelling. Invoke's own flags are those of the verb named ""."""

    name: str
    flags: Mapping[str, Flag]


@dataclass(frozen=True)
class Refusal:
    """Why a command line is not run. `code` is the exit code."""

    what: str
    hint: str
    code: int = 2

    def __str__(self) -> str:
        return f"{self.what}\n{self.hint}"


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


def check(argv: Sequence[str], verbs: Mapping[str, Verb], core: Verb) -> Refusal | None:
    """The first thing wrong with `argv` (argv[0] is the program), or None when Invoke can have it."""
    if _completing(argv, core):
        return None
    words, body = list(split(argv, verbs, core)), _body(argv)
    seen: list[Word] = []
    for word in words:
        refusal = _judge(word, seen, words, body, verbs, core)
        if refusal:
            return refusal
        seen.append(word)
    return _after_dashes(argv)


def detour(argv: Sequence[str], verbs: Mapping[str, Verb], core: Verb) -> list[str] | None:
    """The arguments that answer a plea for help without doing any work, or None when `argv` is no such plea."""
    if _completing(argv, core):
        return None
    words = list(split(argv, verbs, core))
    for word in words:
        if word.verb and word.kind == "flag" and word.text in HELP:
            return ["--help", word.verb]
    plain = [word.text for word in words]
    if not plain or plain == ["help"]:
        return ["--list"]
    if plain[0] == "help" and len(plain) == 2 and plain[1] in verbs:
        return ["--help", plain[1]]
    return None


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


def unexpected(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What Invoke itself raises, from its settings or its own flags, as one message with code 2; ^C with 130."""
    from fleet import ui
    from fleet.errors import FleetError, Interrupted, UsageError

    if os.environ.get("FLEET_DEBUG"):
        sys.__excepthook__(kind, error, trace)
    told: FleetError = Interrupted("interrupted")
    if not issubclass(kind, KeyboardInterrupt):
        said = " ".join(str(error).split()) or "no message"
        hint = (
            "look at invoke.yaml, INVOKE_… variables and the flags before the verb; FLEET_DEBUG=1 shows where it arose"
        )
        told = UsageError(f"Invoke cannot work with its settings or its own flags: {kind.__name__}: {said}", hint=hint)
    with contextlib.suppress(OSError, ValueError):
        ui.complain(told)
        sys.stdout.flush()
    # The interpreter would end with 1 after any hook.
    os._exit(told.exit_code)


def guard(collection: Any, argv: MutableSequence[str] = sys.argv) -> None:
    """Look at this process's command line before Invoke does; ends the program when Invoke shall not see it.

    Does nothing in a process that Invoke does not run (tests, a Python console).
    """
    if not _runs_invoke(argv):
        return
    from invoke.exceptions import Exit
    from invoke.main import program

    sys.excepthook = unexpected

    verbs, core = verbs_of(collection), core_of(program)
    if _completing(argv, core):
        from fleet import completion

        completion.answer(argv, verbs, core)
        raise Exit(code=0)
    instead = detour(argv, verbs, core)
    if instead is not None or not any(word in verbs for word in argv[1:]):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `invoke --list | head` is no fault
    if instead is not None and instead != list(argv[1:]):
        argv[1:] = instead
        program.run(list(argv))
    refusal = check(argv, verbs, core)
    if refusal:
        raise Exit(str(refusal), code=refusal.code)


def _runs_invoke(argv: Sequence[str]) -> bool:
    path = PurePath(argv[0] if argv else "")
    return path.name in ("invoke", "inv") or path.parts[-2:] == ("invoke", "__main__.py")


def _arguments(task: Any) -> list[Any]:
    """A task's arguments. Invoke empties `task.help` as it reads it, so it reads a copy."""
    clone = copy.copy(task)
    clone.help = dict(task.help)
    return list(clone.get_arguments())


def _flags(arguments: Iterable[Any]) -> dict[str, Flag]:
    flags = {}
    for argument in arguments:
        names = [("--" if len(name) > 1 else "-") + name for name in argument.names]
        flag = Flag(names[0], argument.takes_value, argument.optional, argument.kind is int, argument.kind is list)
        flags.update(dict.fromkeys(names, flag))
        if argument.kind is bool and argument.default is True:
            flags[f"--no-{argument.names[0]}"] = flag
    return flags


def _body(argv: Sequence[str]) -> list[str]:
    """What stands before `--`: all that Invoke parses."""
    items = list(argv)
    return items[: items.index("--")] if "--" in items else items


def _completing(argv: Sequence[str], core: Verb) -> bool:
    return "--complete" in core.flags and "--complete" in _body(argv)


def split(argv: Sequence[str], verbs: Mapping[str, Verb], core: Verb) -> Iterator[Word]:
    """The parts of a command line (argv[0] is the program), up to `--`."""
    body = _body(argv)
    verb, at = core, 1
    while at < len(body):
        text = body[at]
        if text.startswith("-") and len(text) > 1:
            for word in _flag_words(body, at, verb, core):
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


def _flag_words(body: Sequence[str], at: int, verb: Verb, core: Verb) -> Iterator[Word]:
    """The flags in one argument: `--name`, `--name=value`, `-n`, `-nvalue`, or several short ones as `-abc`."""
    text = body[at]
    name, equals, value = text.partition("=")
    if equals:
        yield Word("flag", name, verb.name, at, at + 1, _lookup(name, verb, core), value)
    elif text.startswith("--") or len(text) == 2:
        yield _flag_word(body, at, text, verb, core)
    else:
        first = _lookup(text[:2], verb, core)
        if first and first.takes_value:
            yield Word("flag", text[:2], verb.name, at, at + 1, first, text[2:])
        elif first:
            for letter in text[1:]:
                yield _flag_word(body, at, f"-{letter}", verb, core)
        else:
            yield Word("flag", text, verb.name, at, at + 1)


def _flag_word(body: Sequence[str], at: int, name: str, verb: Verb, core: Verb) -> Word:
    flag = _lookup(name, verb, core)
    if flag and flag.takes_value and at + 1 < len(body) and not _looks_like_flag(body[at + 1]):
        return Word("flag", name, verb.name, at, at + 2, flag, body[at + 1])
    return Word("flag", name, verb.name, at, at + 1, flag)


def _lookup(name: str, verb: Verb, core: Verb) -> Flag | None:
    """A verb's own flag; after a verb, of Invoke's only those that mean something there."""
    if name in verb.flags:
        return verb.flags[name]
    return core.flags.get(name) if name in (*HELP, "--debug", "-d") else None


def _looks_like_flag(text: str) -> bool:
    return text.startswith("-") and len(text) > 1 and not text[1].isdigit()


def _judge(
    word: Word, seen: Sequence[Word], words: Sequence[Word], argv: Sequence[str], verbs: Mapping[str, Verb], core: Verb
) -> Refusal | None:
    if word.kind == "verb":
        return None
    if word.kind == "stray":
        return _stray(word, seen, argv, verbs) if word.verb else _no_such_verb(word.text, word.at, argv, verbs)
    if word.flag is None:
        return _unknown_flag(word, words, argv, verbs, core)
    return _value(word, seen, argv) or (None if word.verb else _core_flag(word, words, argv, verbs))


def _no_such_verb(name: str, at: int, argv: Sequence[str], verbs: Mapping[str, Verb]) -> Refusal:
    members = [verb for verb in sorted(verbs) if verb.startswith(f"{name}.")]
    if members:
        return Refusal(f"{name} is a group of verbs: {', '.join(members)}", f"type: invoke {members[0]} --help")
    near = nearest(name, verbs)
    if near:
        return Refusal(f"no verb {name!r}; did you mean {near}?", f"type: {_line(argv, at, at + 1, near)}")
    return Refusal(f"no verb {name!r}; there are: {', '.join(sorted(verbs))}", "see: invoke --list")


def _stray(word: Word, seen: Sequence[Word], argv: Sequence[str], verbs: Mapping[str, Verb]) -> Refusal:
    """A word behind a verb. Verbs take no plain words, so it is a value without its flag, or a second verb misspelt."""
    last = seen[-1]
    if last.flag and last.flag.many and last.value is not None:
        joined = f"{last.value},{word.text}"
        return Refusal(
            f"{word.verb}: {word.text!r} stands alone; {last.text} takes one value or a list with commas",
            f"type: {_line(argv, last.at, word.end, last.text, joined)}",
        )
    if last.flag and not last.flag.takes_value and last.text not in HELP:
        return Refusal(f"{word.verb}: {last.text} takes no value", f"type: {_line(argv, word.at, word.end)}")
    given = {other.flag.name for other in seen if other.flag and other.verb == word.verb}
    if nearest(word.text, verbs):
        return _no_such_verb(word.text, word.at, argv, verbs)
    flag, what = _subject(verbs[word.verb])
    if not flag or flag in given:
        return Refusal(
            f"{word.verb}: {word.text!r} belongs to no flag, and verbs take no plain words",
            f"see its flags: invoke {word.verb} --help",
        )
    return Refusal(
        f"{word.verb}: {word.text!r} stands alone, and verbs take no plain words; is it {what}?",
        f"type: {_line(argv, word.at, word.end, flag, word.text)}",
    )


def _subject(verb: Verb) -> tuple[str, str]:
    """The flag that a verb is mostly typed with, and what that takes; "" where no word alone can be meant."""
    if "--config" in verb.flags:
        return "--config", "the config key"
    host = verb.flags.get("--host")
    return ("--host", "a host") if host and host.many else ("", "")


def _unknown_flag(
    word: Word, words: Sequence[Word], argv: Sequence[str], verbs: Mapping[str, Verb], core: Verb
) -> Refusal:
    if not word.verb:
        owner = next((w for w in words if w.kind == "verb" and word.text in verbs[w.text].flags), None)
        if owner:
            return _move_behind(word, owner, argv, verbs)
        return _no_such_flag("invoke", word, argv, core.flags, "invoke --help")
    if word.text in core.flags:
        if core.flags[word.text].name == "--dry" and "--dry-run" not in verbs[word.verb].flags:
            return _dry([w.text for w in words if w.kind == "verb"])
        if word.text not in ("--config", "--dry") and len(word.text) > 2:
            return Refusal(
                f"{word.text} is a flag of invoke itself, not of {word.verb}",
                f"put it before the verb: invoke {word.text} … {word.verb} …",
            )
    return _no_such_flag(word.verb, word, argv, verbs[word.verb].flags, f"invoke {word.verb} --help")


def _no_such_flag(owner: str, word: Word, argv: Sequence[str], flags: Mapping[str, Flag], see: str) -> Refusal:
    near = _nearest_flag(word.text, flags)
    if not near:
        return Refusal(f"{owner} has no flag {word.text}", f"see its flags: {see}")
    tail = [] if word.value is None else [word.value]
    return Refusal(
        f"{owner} has no flag {word.text}; did you mean {near}?",
        f"type: {_line(argv, word.at, word.end, near, *tail)}   (all its flags: {see})",
    )


def _move_behind(word: Word, verb: Word, argv: Sequence[str], verbs: Mapping[str, Verb]) -> Refusal:
    """A verb's flag that stands before the verb."""
    value, end = word.value, word.end
    takes_value = verbs[verb.text].flags[word.text].takes_value
    if takes_value and value is None and end < verb.at:
        value, end = argv[end], end + 1
    moved = [word.text] if value is None else [word.text, value]
    line = [*argv[1 : word.at], *argv[end : verb.end], *moved, *argv[verb.end :]]
    return Refusal(
        f"{word.text} belongs to {verb.text} and stands before it", f"put it after the verb: {_command(line)}"
    )


def _value(word: Word, seen: Sequence[Word], argv: Sequence[str]) -> Refusal | None:
    """What is wrong with a known flag's value."""
    flag, owner = word.flag, word.verb or "invoke"
    assert flag is not None
    empty = word.value is not None and not word.value.strip(" ,")
    if flag.takes_value and not flag.optional and empty:
        what = f"{owner}: {word.text} was given an empty value; is a shell variable not set?"
        verb = " ".join(dict.fromkeys(("invoke", owner)))
        return Refusal(what, f"type: {verb} … {word.text} {_placeholder(flag)}, or leave {word.text} out")
    if flag.takes_value and not flag.optional and word.value is None:
        found = argv[word.end] if word.end < len(argv) else ""
        what = f"{owner}: {word.text} needs a value" + (f", and {found} follows" if found else "")
        return Refusal(what, f"type: {_line(argv, word.at, word.end, word.text, _placeholder(flag))}")
    if not flag.takes_value and word.value is not None:
        return Refusal(
            f"{owner}: {word.text} takes no value, {word.value!r} was given",
            f"type: {_line(argv, word.at, word.end, word.text)}",
        )
    if flag.number and word.value is not None and not _is_number(word.value):
        return Refusal(
            f"{owner}: {word.text} takes a whole number, {word.value!r} was given",
            f"type: {_line(argv, word.at, word.end, word.text, 'N')}",
        )
    if flag.takes_value and not flag.many and _given(word, seen):
        return Refusal(f"{owner}: {word.text} is given twice", f"type it once: {_line(argv, word.at, word.end)}")
    return None


def _given(word: Word, seen: Sequence[Word]) -> bool:
    """Whether the same run of the same verb has this flag already."""
    for earlier in reversed(seen):
        if earlier.kind == "verb":
            return False
        if earlier.flag == word.flag:
            return True
    return False


def _core_flag(word: Word, words: Sequence[Word], argv: Sequence[str], verbs: Mapping[str, Verb]) -> Refusal | None:
    """Invoke's own flags that would mislead: --config, --dry, and names of verbs or groups that do not exist."""
    assert word.flag is not None
    name = word.flag.name
    if name == "--dry":
        return _dry([w.text for w in words if w.kind == "verb"])
    if name == "--config":
        return _core_config(word, words, argv, verbs)
    if name == "--help" and word.value is not None and word.value not in verbs:
        return _no_such_verb(word.value, word.end - 1, argv, verbs)
    if name == "--list" and word.value is not None:
        return _list_group(word.value, verbs)
    return None


def _core_config(word: Word, words: Sequence[Word], argv: Sequence[str], verbs: Mapping[str, Verb]) -> Refusal | None:
    value = word.value or ""
    if word.text == "-f" and value.endswith(RUNTIME_FILES):
        return None
    verb = next((w for w in words if w.kind == "verb" and "--config" in verbs[w.text].flags), None)
    if verb:
        line = [*argv[1 : word.at], *argv[word.end : verb.end], "--config", value, *argv[verb.end :]]
    else:
        line = ["sweep", "--config", value]
    what = f"{word.text} before the verb is Invoke's own settings file, and {value!r} is not meant as one"
    if word.text == "-f" or value.endswith(RUNTIME_FILES):
        what = f"{word.text} {value}: Invoke's own settings file is given as -f FILE.yaml, a config key after the verb"
    return Refusal(what, f"put it after the verb: {_command(line)}")


def _dry(names: Sequence[str]) -> Refusal:
    return Refusal(
        "Invoke's --dry fakes what hosts answer, so nothing it shows could be believed; the dry run is a verb: plan",
        f"type: invoke plan --config KEY{'   (every step, each as the exact argv for one host)' if names else ''}",
    )


def _list_group(group: str, verbs: Mapping[str, Verb]) -> Refusal | None:
    groups = sorted({name.rpartition(".")[0] for name in verbs if "." in name})
    if group in groups:
        return None
    near = nearest(group, groups) or (groups[0] if groups else "")
    return Refusal(f"no group of verbs {group!r}; there are: {', '.join(groups)}", f"type: invoke --list {near}")


def _after_dashes(argv: Sequence[str]) -> Refusal | None:
    rest = list(argv)[len(_body(argv)) + 1 :]
    if not rest:
        return None
    kept = rest if rest[0].startswith("-") else []
    line = [*_body(argv)[1:], *kept]
    return Refusal(f"nothing after -- reaches a verb: {shlex.join(rest)}", f"type: {_command(line)}")


def _placeholder(flag: Flag) -> str:
    return "KEY" if flag.name == "--config" else "N" if flag.number else "VALUE"


def _is_number(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True


def _nearest_flag(text: str, flags: Mapping[str, Flag]) -> str | None:
    if text.startswith("--"):
        return nearest(text, [name for name in flags if name.startswith("--")])
    letter = text.lstrip("-")
    return next((name for name in flags if name.lstrip("-") == letter or name.startswith(f"--{letter}")), None)


def _line(argv: Sequence[str], start: int, end: int, *new: str) -> str:
    """The command line with argv[start:end] replaced."""
    return _command([*argv[1:start], *new, *argv[end:]])


def _command(arguments: Sequence[str]) -> str:
    return shlex.join(["invoke", *arguments])
