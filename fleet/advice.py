"""What Invoke would answer badly, answered before it gets there.

Invoke parses the command line after it has loaded tasks.py, so tasks.py can look first. Checked with Invoke 2.2.1:
unknown verbs and flags end with 1 and no near miss, `invoke --config X sweep` and `--tail many` end in a traceback,
`--config --help` takes "--help" for the value and starts the work, and words after `--` reach nobody.

`check` says what is wrong with a command line, `detour` what Invoke should be asked instead. Both are pure. A line that
`check` says to type is one that it accepts. fleet/guard.py applies them to a process.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fleet.argv import HELP, Flag, Verb, Whole, Word, body, completing, listed, split, whole
from fleet.errors import cited, shown
from fleet.model.near import nearest

RUNTIME_FILES = (".yaml", ".yml", ".json", ".py")
DASHES = "-‐‑‒–—―−﹣－"
MOST_FIXES = 20
LONGEST = 1000

PLAIN_WORDS = (
    (re.compile(r"latest|\d{8}\b.*"), "--run"),
    (re.compile(r"latest|\d{8}\b.*"), "--resume"),
    (re.compile(r".*", re.DOTALL), "--cmd"),
    (re.compile(r"(prefill|decode|server|router|client)[0-9]*"), "--role"),
    (re.compile(r".*", re.DOTALL), "--source"),
    (re.compile(r"/.*"), "--target"),
    (re.compile(r"[0-9]+"), "--nodes"),
    (re.compile(r"[0-9]+(,[0-9]+)*"), "--conc"),
    (re.compile(r"bash|zsh"), "--shell"),
    (re.compile(r"[\w.@:-]+"), "--host"),
    (re.compile(r".*", re.DOTALL), "--config"),
)
"""Which flag a word without one is meant for, if the verb has it and it is not given: the first that fits."""


@dataclass(frozen=True)
class Refusal:
    """Why a command line is not run. line: the arguments to type instead. see: where to look if there are none."""

    what: str
    line: tuple[str, ...] | None = None
    see: str = "see: invoke --list"
    lead: str = "type"
    note: str = ""
    code: int = 2

    @property
    def hint(self) -> str:
        return self.see if self.line is None else f"{self.lead}: {command(self.line)}{self.note}"

    def __str__(self) -> str:
        return f"{self.what}\n{self.hint}"


def command(arguments: Sequence[str]) -> str:
    return shlex.join(["invoke", *map(shown, arguments)])


def check(argv: Sequence[str], verbs: Mapping[str, Verb], core: Verb) -> Refusal | None:
    """The first thing wrong with `argv` (argv[0] is the program), or None when Invoke can have it.

    The line to type instead has no other fault, either: what is wrong with it is mended in the same way.
    """
    judge = _Judge(verbs, core)
    refusal = judge.first(argv)
    if refusal is None or refusal.line is None:
        return refusal
    line: tuple[str, ...] | None = refusal.line
    for _ in range(MOST_FIXES):
        assert line is not None
        again = judge.first(["invoke", *line])
        if again is None:
            return replace(refusal, line=line) if len(command(line)) <= LONGEST else replace(refusal, line=None)
        line = again.line
        if line is None:
            return replace(refusal, line=None, see=again.see)
    return replace(refusal, line=None)


def detour(argv: Sequence[str], verbs: Mapping[str, Verb], core: Verb) -> list[str] | None:
    """The arguments that answer a plea for help without doing any work, or None when `argv` is no such plea."""
    if completing(argv, core):
        return None
    words = list(split(argv, verbs, core))
    for word in words:
        if word.verb and word.kind == "flag" and word.text in HELP:
            return ["--help", word.verb]
    plain = [word.text for word in words]
    if not plain or plain == ["help"]:
        return ["--list"]
    if plain[0] == "help" and ".".join(plain[1:]) in verbs:
        return ["--help", ".".join(plain[1:])]
    return None


class _Judge:
    """One command line's faults, against the verbs and Invoke's own flags."""

    def __init__(self, verbs: Mapping[str, Verb], core: Verb) -> None:
        self.verbs, self.core = verbs, core
        self.argv: list[str] = []
        self.words: list[Word] = []

    def first(self, argv: Sequence[str]) -> Refusal | None:
        if completing(argv, self.core):
            return None
        self.argv, self.words = body(argv), list(split(argv, self.verbs, self.core))
        for number, word in enumerate(self.words):
            refusal = self._word(word, self.words[:number])
            if refusal:
                return refusal
        return self._after_dashes(argv)

    def _word(self, word: Word, seen: Sequence[Word]) -> Refusal | None:
        if word.kind == "verb":
            return None
        if word.kind == "stray":
            return self._stray(word, seen)
        if word.flag is None:
            return self._unknown_flag(word)
        return self._value(word, word.flag, seen) or (None if word.verb else self._core_flag(word, word.flag))

    # ------------------------------------------------------------------ words without a flag

    def _stray(self, word: Word, seen: Sequence[Word]) -> Refusal:
        """A word that is no verb, no flag and no flag's value."""
        owner, text = word.verb or "invoke", word.text
        if not text.strip():
            return self._instead(word, f"{owner}: an empty word; is a shell variable not set?")
        if text[0] in DASHES[1:]:
            return self._dashed(word)
        if not word.verb or self._members(text):
            return self._no_such_verb(word)
        member = self._member(word, seen)
        if member:
            return member
        if text == "-":
            return self._instead(word, f"{owner}: - stands alone; nothing is read from stdin")
        last = seen[-1]
        if last.flag and last.flag.many and last.value is not None:
            return self._instead(
                replace(word, at=last.at),
                f"{owner}: {cited(text)} stands alone; {last.text} takes one value or a list with commas",
                *(last.text, f"{last.value},{text}"),
            )
        if self._nearest_verb(text):
            return self._no_such_verb(word)
        return self._plain(word, seen)

    def _plain(self, word: Word, seen: Sequence[Word]) -> Refusal:
        """A value whose flag was left out, if there is one that it fits."""
        alone, flag = f"{word.verb}: {cited(word.text)}", self._meant(word)
        last = seen[-1]
        if last.flag and not last.flag.takes_value and last.text not in HELP and not flag:
            return self._instead(word, f"{word.verb}: {last.text} takes no value")
        if not flag:
            what = f"{alone} belongs to no flag, and verbs take no plain words"
            return Refusal(what, see=self._flags_of(word.verb))
        value, end = word.text, word.end
        if flag == "--cmd":
            flags = self.verbs[word.verb].flags
            later = (at for at in range(word.end, len(self.argv)) if self.argv[at].partition("=")[0] in flags)
            end = next(later, len(self.argv))
            value = shlex.join(self.argv[word.at : end])
        guess = {"--config": "the config key", "--host": "a host"}.get(flag, f"meant for {flag}")
        what = f"{alone} stands alone, and verbs take no plain words; is it {guess}?"
        return self._instead(replace(word, end=end), what, flag, value)

    def _meant(self, word: Word) -> str | None:
        flags = self.verbs[word.verb].flags
        same = [other for other in self.words if other.kind == "flag" and other.verb == word.verb]
        given = {other.flag.name if other.flag else _nearest_flag(other.text, flags) for other in same}
        fits = (flag for pattern, flag in PLAIN_WORDS if pattern.fullmatch(word.text))
        return next((flag for flag in fits if flag in flags and flag not in given), None)

    def _member(self, word: Word, seen: Sequence[Word]) -> Refusal | None:
        """`stage image`: a group and one of its verbs, apart."""
        before = seen[-1]
        if before.kind != "verb":
            return None
        whole_name = self._in_group(before.text, word.text)
        if not whole_name:
            return None
        return self._joined(replace(word, at=before.at), whole_name)

    def _joined(self, word: Word, name: str) -> Refusal:
        return self._instead(word, f"a verb of a group is one word: {name}", name)

    def _members(self, group: str) -> list[str]:
        return [verb for verb in sorted(self.verbs) if verb.startswith(f"{group}.")]

    def _in_group(self, group: str, text: str) -> str | None:
        members = {verb.rpartition(".")[2]: verb for verb in self._members(group)}
        near = nearest(text, members)
        return members[near] if near else None

    def _no_such_verb(self, word: Word) -> Refusal:
        name = word.text
        members = self._members(name)
        following = self.argv[word.at + 1] if word.at + 1 < len(self.argv) else ""
        if name == "help":
            return self._help(word)
        if members:
            joined = self._in_group(name, following) if following else None
            if joined:
                return self._joined(replace(word, end=word.at + 2), joined)
            what = f"{name} is a group of verbs: {', '.join(members)}"
            return Refusal(what, (members[0], "--help"))
        near = self._nearest_verb(name)
        if near:
            return self._instead(word, f"no verb {cited(name)}; did you mean {near}?", near)
        return Refusal(f"no verb {cited(name)}; there are: {', '.join(sorted(self.verbs))}")

    def _nearest_verb(self, name: str) -> str | None:
        return nearest(name, self.verbs, 0.7)

    def _help(self, word: Word) -> Refusal:
        """`help` as a verb, with something behind it that is none."""
        asked = [text for text in self.argv[word.end :] if not text.startswith("-")]
        name = asked[0] if asked else ""
        near = self._in_group(name, asked[1]) if len(asked) > 1 else None
        near = near or (name if name in self.verbs else nearest(name, self.verbs))
        if not near:
            return Refusal(f"no verb {cited(name)}" if name else "help takes the name of a verb", ("--list",))
        return Refusal(f"no verb {cited(' '.join(asked))}; did you mean {near}?", ("--help", near))

    # ------------------------------------------------------------------ flags that are none

    def _dashed(self, word: Word) -> Refusal:
        """A flag that starts with a dash of a word processor: one stands there for two."""
        name = word.text.lstrip(DASHES)
        dash = next(char for char in word.text if char in DASHES[1:])
        what = f"{shown(word.text)} starts with {unicodedata.name(dash)} (U+{ord(dash):04X}), and flags with two -"
        if not name:
            return self._instead(word, what)
        return self._instead(word, what, f"--{name}")

    def _unknown_flag(self, word: Word) -> Refusal:
        if any(char in DASHES[1:] for char in word.text[:3]):
            return self._dashed(replace(word, text=self.argv[word.at]))
        name, _, rest = word.text.partition(" ")
        if rest and name in self.verbs[word.verb or "sweep"].flags and word.value is None:
            what = f"{word.verb or 'invoke'}: {cited(word.text)} is one word; its quotes are too many"
            return self._instead(word, what, name, rest.strip())
        if not word.verb:
            return self._flag_before_verb(word)
        verb = self.verbs[word.verb]
        opposite = _nearest_flag(word.text.replace("--no-", "--", 1), verb.flags)
        if word.text.startswith("--no-") and opposite and not verb.flags[opposite].takes_value:
            return self._instead(word, f"{verb.name} has no flag {shown(word.text)}; without {opposite} it is off")
        if word.text in self.core.flags:
            core = self._core_flag_behind(word, self.core.flags[word.text])
            if core:
                return core
        owners = self._owners(word.text)
        if owners:
            what = f"{verb.name} has no flag {shown(word.text)}; it belongs to {', '.join(owners)}"
            return Refusal(what, see=self._flags_of(verb.name))
        return self._no_such_flag(verb.name, word, verb.flags, f"invoke {verb.name} --help")

    def _core_flag_behind(self, word: Word, core: Flag) -> Refusal | None:
        """A flag of Invoke itself behind a verb."""
        if core.name == "--dry":
            return None if "--dry-run" in self.verbs[word.verb].flags else self._dry()
        if word.text == "--config" or len(word.text) == 2:
            return None
        what = f"{word.text} is a flag of invoke itself, not of {word.verb}"
        tail = [word.text, *([] if word.value is None else [word.value])]
        end = word.end
        if core.takes_value and not core.optional and word.value is None and end < len(self.argv):
            tail, end = [*tail, self.argv[end]], end + 1
        line = (*tail, *self.argv[1 : word.at], *self.argv[end:])
        return Refusal(what, line, lead="put it before the verb")

    def _flag_before_verb(self, word: Word) -> Refusal:
        owner = next((w for w in self.words if w.kind == "verb" and word.text in self.verbs[w.text].flags), None)
        if owner:
            return self._move_behind(word, owner)
        owners = self._owners(word.text)
        if owners and not any(w.kind == "verb" for w in self.words):
            what = f"{word.text} is a flag of {', '.join(owners)}, and no verb is given"
            return Refusal(what, (owners[0], *self.argv[1:]) if len(owners) == 1 else None)
        return self._no_such_flag("invoke", word, self.core.flags, "invoke --help")

    def _owners(self, flag: str) -> list[str]:
        """The verbs that have a flag, each by its first name."""
        return list(dict.fromkeys(verb.name for verb in self.verbs.values() if flag in verb.flags))

    def _no_such_flag(self, owner: str, word: Word, flags: Mapping[str, Flag], see: str) -> Refusal:
        near = _nearest_flag(word.text, flags)
        what = f"{owner} has no flag {shown(word.text)}"
        if not near:
            return Refusal(what, see=f"see its flags: {see}")
        tail = [] if word.value is None else [word.value]
        found = self._instead(word, f"{what}; did you mean {near}?", near, *tail)
        return replace(found, note=f"   (all its flags: {see})", see=f"see its flags: {see}")

    def _move_behind(self, word: Word, verb: Word) -> Refusal:
        """A verb's flag that stands before the verb."""
        value, end = word.value, word.end
        takes_value = self.verbs[verb.text].flags[word.text].takes_value
        if takes_value and value is None and end < verb.at:
            value, end = self.argv[end], end + 1
        moved = [word.text] if value is None else [word.text, value]
        line = (*self.argv[1 : word.at], *self.argv[end : verb.end], *moved, *self.argv[verb.end :])
        what = f"{word.text} belongs to {verb.text} and stands before it"
        return Refusal(what, line, lead="put it after the verb")

    # ------------------------------------------------------------------ values

    def _value(self, word: Word, flag: Flag, seen: Sequence[Word]) -> Refusal | None:
        """What is wrong with a known flag's value."""
        owner, needed = word.verb or "invoke", flag.takes_value and not flag.optional
        if needed and word.value is not None and not word.value.strip(" ,"):
            what = f"{owner}: {word.text} was given an empty value; is a shell variable not set?"
            found = self._instead(word, what, word.text, _example(flag))
            return replace(found, note=f"   (or leave {word.text} out)")
        if needed and word.value is None:
            following = self.argv[word.end] if word.end < len(self.argv) else ""
            follows = f", and {shown(following)} follows" if following else ""
            return self._instead(word, f"{owner}: {word.text} needs a value{follows}", word.text, _example(flag))
        if not flag.takes_value and word.value is not None:
            what = f"{owner}: {word.text} takes no value, {cited(word.value)} was given"
            return self._instead(word, what, word.text)
        wrong = self._number(word, flag)
        if wrong:
            return wrong
        if flag.takes_value and not flag.many and _given(word, seen):
            return replace(self._instead(word, f"{owner}: {word.text} is given twice"), lead="type it once")
        return None

    def _number(self, word: Word, flag: Flag) -> Refusal | None:
        if not flag.number or word.value is None:
            return None
        for text in listed([word.value]) if flag.many else (word.value,):
            try:
                whole(text, flag.number)
            except ValueError as error:
                what = f"{word.verb or 'invoke'}: {word.text} takes {error}, {cited(text)} was given"
                return self._instead(word, what, word.text, _digits(word.value, flag.number) or flag.number.example)
        return None

    # ------------------------------------------------------------------ Invoke's own flags

    def _core_flag(self, word: Word, flag: Flag) -> Refusal | None:
        """Invoke's own flags that would mislead: --config, --dry, and names of verbs or groups that do not exist."""
        if flag.name == "--dry":
            return self._dry()
        if flag.name == "--config":
            return self._core_config(word)
        if flag.name == "--help" and word.value is not None and word.value not in self.verbs:
            return self._no_such_verb(replace(word, text=word.value, at=word.end - 1))
        if flag.name == "--list" and word.value is not None:
            return self._list_group(word.value)
        return None

    def _core_config(self, word: Word) -> Refusal | None:
        value = word.value or ""
        if word.text == "-f" and value.endswith(RUNTIME_FILES):
            return None
        verb = next((w for w in self.words if w.kind == "verb" and "--config" in self.verbs[w.text].flags), None)
        line: tuple[str, ...] = ("sweep", "--config", value)
        if verb:
            argv = self.argv
            line = (*argv[1 : word.at], *argv[word.end : verb.end], "--config", value, *argv[verb.end :])
        what = f"{word.text} before the verb is Invoke's own settings file, and {cited(value)} is not meant as one"
        if word.text == "-f" or value.endswith(RUNTIME_FILES):
            what = (
                f"{word.text} {shown(value)}: Invoke's own settings file is given as -f FILE.yaml, "
                "a config key after the verb"
            )
        return Refusal(what, line, lead="put it after the verb")

    def _dry(self) -> Refusal:
        what = (
            "Invoke's --dry fakes what hosts answer, so nothing it shows could be believed; the dry run is a verb: plan"
        )
        keys = (w.value for w in self.words if w.verb and w.flag and w.flag.name == "--config" and w.value)
        note = "   (every step, each as the exact argv for one host)"
        return Refusal(what, ("plan", "--config", next(keys, "KEY")), note=note)

    def _list_group(self, group: str) -> Refusal | None:
        groups = sorted({name.rpartition(".")[0] for name in self.verbs if "." in name})
        if group in groups:
            return None
        near = nearest(group, groups)
        line = ("--list", near) if near else ("--list",)
        return Refusal(f"no group of verbs {cited(group)}; there are: {', '.join(groups)}", line)

    def _after_dashes(self, argv: Sequence[str]) -> Refusal | None:
        rest = list(argv)[len(self.argv) + 1 :]
        if not rest:
            return None
        last = self.words[-1].verb if self.words else ""
        kept = rest if rest[0].startswith("-") else []
        if last and self._meant(Word("stray", rest[0], last, 0, 1)) == "--cmd":
            kept = ["--cmd", shlex.join(rest)]
        return Refusal(f"nothing after -- reaches a verb: {shown(shlex.join(rest))}", (*self.argv[1:], *kept))

    # ------------------------------------------------------------------ what to type

    def _instead(self, word: Word, what: str, *new: str) -> Refusal:
        """The command line with a word replaced."""
        line = (*self.argv[1 : word.at], *new, *self.argv[word.end :])
        return Refusal(what, line, see=self._flags_of(word.verb))

    def _flags_of(self, verb: str) -> str:
        return f"see its flags: invoke {verb} --help" if verb else "see: invoke --list"


def _given(word: Word, seen: Sequence[Word]) -> bool:
    """Whether the same run of the same verb has this flag already."""
    for earlier in reversed(seen):
        if earlier.kind == "verb":
            return False
        if earlier.flag == word.flag:
            return True
    return False


def _example(flag: Flag) -> str:
    return "KEY" if flag.name == "--config" else flag.number.example if flag.number else "VALUE"


def _digits(value: str, kind: Whole) -> str | None:
    """The same numbers in plain digits, where others were typed."""
    plain = unicodedata.normalize("NFKC", value)
    try:
        return ",".join(str(whole(text, kind)) for text in listed([plain]))
    except ValueError:
        return None


def _nearest_flag(text: str, flags: Mapping[str, Flag]) -> str | None:
    if text.startswith("--"):
        names = {name[2:]: name for name in flags if name.startswith("--")}
        begun = [name for name in names if len(text) > 4 and name.startswith(text[2:])]
        near = begun[0] if len(begun) == 1 else nearest(text[2:], names)
        return names[near] if near else None
    letter = text.lstrip("-")
    return next((name for name in flags if name.lstrip("-") == letter or name.startswith(f"--{letter}")), None)
