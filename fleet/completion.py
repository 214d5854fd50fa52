"""What a shell offers at the Tab key: verbs, flags, and our names behind the flags that take one.

Invoke's completion knows no values, and its script (--print-completion-script, printed before tasks.py is loaded) does
not tell whether the last word is finished. So both halves are here: the script of `invoke completion`, and the answer
to `invoke --complete -- WORD…` with the words up to the cursor; the last is the one being typed, "" at its beginning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from fleet.argv import Verb, Word, split
from fleet.errors import FleetError, UsageError, cited
from fleet.front import ROOT, settings

if TYPE_CHECKING:
    from fleet.settings import Settings

SCRIPTS = {
    # bash splits at the = of --config=KEY, zsh does not: `candidates` answers both.
    "bash": """_fleet_complete() {
    local IFS=$'\\n'
    COMPREPLY=( $("$1" --complete -- "${COMP_WORDS[@]:0:COMP_CWORD+1}" 2>/dev/null) )
}
complete -o default -F _fleet_complete inv invoke
""",
    "zsh": """_fleet_complete() {
    local -a found
    found=( ${(f)"$("$words[1]" --complete -- "${(@)words[1,CURRENT]}" 2>/dev/null)"} )
    if (( $#found )); then compadd -a found; else _files; fi
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -D }
compdef _fleet_complete inv invoke
""",
}

ADD = "inventory.add"
"""The verb whose --host is no host of the inventory yet."""

PLAIN = re.compile(r"[\w@%+=:,./-]+")
"""What a shell takes as it stands: any other name, of a file somebody made, would be run where Tab puts it."""

Names = Callable[[str], Iterable[str]]
"""The names that may stand behind a flag; none where it takes no name."""


def candidates(line: Sequence[str], verbs: Mapping[str, Verb], core: Verb, names: Names) -> list[str]:
    """What the last word of `line` may become, or the part of it that the shell replaces. line[0] is the program."""
    joined = _joined(line)
    typed = joined[-1].lstrip("'\"") if len(joined) > 1 else ""
    kept = len(typed) - len(_part(line, typed))
    return [one[kept:] for one in _whole(joined, typed, verbs, core, names)]


def _whole(joined: Sequence[str], typed: str, verbs: Mapping[str, Verb], core: Verb, names: Names) -> list[str]:
    """What the word may become as a whole."""
    words = list(split(joined[:-1], verbs, core))
    last = words[-1] if words else None
    if last and last.flag and last.flag.takes_value and last.value is None:
        return _values(last.flag.name, last.flag.many, typed, names)
    name, equals, value = typed.partition("=")
    verb = verbs[last.verb] if last and last.verb else core
    if equals and name in verb.flags:
        return [f"{name}={one}" for one in _values(verb.flags[name].name, verb.flags[name].many, value, names)]
    return [word for word in (*_flags(verb, words, typed), *verbs) if word.startswith(typed)]


def _joined(line: Sequence[str]) -> list[str]:
    """The words as they were typed: bash tells `--config=KEY`, `rack1:node1` and `@last-failed` in pieces."""
    joined: list[str] = []
    for word in line:
        if joined and word and _goes_on(joined[-1], word):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _goes_on(before: str, word: str) -> bool:
    """Whether bash has split in front of `word`."""
    flag, equals, _ = before.partition("=")
    if before.endswith("=") or word[0] == "=":
        return flag.startswith("--")
    if word[0] == ":" or before[-1:] in (":", "@"):
        return bool(equals) or not flag.startswith("-")
    return word[0] == "@" and before[-1:] in (",", "&", "!")


def _part(line: Sequence[str], typed: str) -> str:
    """What of the last word the shell replaces: all of it, but in bash only what stands behind the last break."""
    last = line[-1].lstrip("'\"")
    if last == typed:
        return last
    if last[-1:] in ("=", ":"):
        return ""
    return f"@{last.lstrip('=@:')}" if last[-1:] == "@" or line[-2].endswith("@") else last


def _values(flag: str, many: bool, typed: str, names: Names) -> list[str]:
    """The flag's names; behind a comma or a sign of --limit those that are not in the list yet."""
    begun = re.split("[,:&!]", typed)[-1] if many else typed
    before = typed[: len(typed) - len(begun)]
    listed = re.split("[,:&!]", before)
    return [f"{before}{one}" for one in names(flag) if one.startswith(begun) and one not in listed]


def _flags(verb: Verb, words: Sequence[Word], typed: str) -> list[str]:
    """The long flags that may come now. Without a dash only a verb's own are worth a line."""
    if not verb.name and not typed:
        return []
    given = {word.flag.name for word in words if word.flag and word.verb == verb.name and not word.flag.many}
    return [name for name, flag in verb.flags.items() if name.startswith("--") and flag.name not in given]


def names_here(line: Sequence[str]) -> Names:
    """The names that this project's files hold now. Files that cannot be read hold none: a shell is no place to say."""

    def names(flag: str) -> list[str]:
        try:
            found = names_of(flag, _settings(line), next((word for word in line if word == ADD), ""))
            return [name for name in found if PLAIN.fullmatch(name)]
        except (FleetError, OSError):
            return []

    return names


def _settings(line: Sequence[str]) -> Settings:
    from invoke.config import Config

    config = Config(project_location=ROOT)
    config.load_project()
    given = [after for word, after in pairwise(line) if word == "--inventory"]
    return settings(SimpleNamespace(config=config), given[-1] if given else "")


def names_of(flag: str, here: Settings, verb: str) -> list[str]:
    """The names that a verb's flag takes; none where it takes no name. FleetError for files that cannot be read."""
    if flag == "--host" and verb == ADD:
        from fleet.hosts.route import aliases

        return aliases()
    if flag == "--config":
        from fleet.model.load import recipe_keys

        return recipe_keys(here.recipes)
    if flag in ("--run", "--diff", "--resume", "--a", "--b"):
        from fleet.results.store import LATEST, runs

        found = runs(here.results)
        return [LATEST, *found] if found else []
    if flag in ("--limit", "--host", "--group", "--runner") or (flag, verb) == ("--from", "stage.model"):
        from fleet.model.roster import inventory

        hosts = inventory(Path(here.inventory)).hosts
        groups = list(dict.fromkeys(group for host in hosts for group in host.groups))
        if flag == "--runner":
            return list(dict.fromkeys(label for host in hosts for label in host.runners))
        names = [host.name for host in hosts]
        return {"--limit": [*names, *groups, *_last_failed(here)], "--host": names, "--from": names, "--group": groups}[
            flag
        ]
    fixed = {"--evals": ["default", "none", "only", "all"], "--rerun": ["failed", "incomplete", "all"]}
    fixed |= {"--shell": list(SCRIPTS), "--across": ["mtp", "image"]}
    return fixed.get(flag, [])


def _last_failed(here: Settings) -> list[str]:
    """`@last-failed`, if it stands for any host now."""
    from fleet.model.limits import LAST_FAILED
    from fleet.results import lastfailed

    try:
        return [f"@{LAST_FAILED}"] if lastfailed.read(here.results) else []
    except FleetError:
        return []


def script(shell: str) -> None:
    """Print what a shell is to source. UsageError for a shell that has none."""
    if shell not in SCRIPTS:
        what = f"--shell takes bash or zsh, {cited(shell)} was given" if shell else "which shell? there are: bash, zsh"
        raise UsageError(what, hint="type: invoke completion --shell bash")
    print(SCRIPTS[shell], end="")


def answer(argv: Sequence[str], verbs: Mapping[str, Verb], core: Verb) -> None:
    """Print what may come, one a line."""
    line = argv[argv.index("--") + 1 :] if "--" in argv else []
    for word in candidates(line, verbs, core, names_here(line)):
        print(word)
