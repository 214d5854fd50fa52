"""What Ansible's inventories have: other names for our keys, variables of other programs, other formats."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import PurePath

from fleet.errors import Fault
from fleet.model.near import nearest, slip

PREFIX = "ansible_"
ALIASES = {
    "ansible_host": "address",
    "ansible_ssh_host": "address",
    "ansible_user": "user",
    "ansible_ssh_user": "user",
    "ansible_port": "port",
    "ansible_ssh_port": "port",
    "ansible_ssh_private_key_file": "identity",
    "ansible_private_key_file": "identity",
}
"""Connection variables of Ansible's that say what a key of ours says."""

OTHERS = frozenset({"cpu", "cpus", "ports", "users", "ansible_su_user"})
"""Variables that people have beside ours, and that only look like a slip of one."""

_INI = re.compile(r"\w[\w.:\[\]-]*(?<!:)")
_INI_SURE = re.compile(r"\[[\w.:-]+\]|\w[\w.:\[\]-]*[ \t]+\w+=.*")


@cache
def misspelt(key: str, known: tuple[str, ...]) -> str | None:
    """The key of ours that a variable was meant to be; None for another program's."""
    if key in OTHERS:
        return None
    if key.startswith(PREFIX):
        rest = slip(key.removeprefix(PREFIX), [one.removeprefix(PREFIX) for one in ALIASES])
        return f"{PREFIX}{rest}" if rest else None
    return slip(key, (*known, *ALIASES))


@cache
def hint(key: str, known: tuple[str, ...]) -> str:
    """The key of ours that another program's variable is a little like, as a question."""
    near = None if key in OTHERS or key.startswith(PREFIX) else nearest(key, known)
    return f"; did you mean {near}?" if near else ""


def foreign(text: str, path: str) -> Fault | None:
    """Why a file that Ansible reads is none that fleet reads, and what makes one of it; None for YAML."""
    kind, line = _kind(text)
    return Fault(line, f"{kind}, {_advice(path)}") if kind else None


def folder(path: str) -> Fault:
    """Ansible reads all files of a folder."""
    return Fault(0, f"a folder, {_advice(path)}")


def _advice(path: str) -> str:
    made = PurePath(path)
    target = made.with_name(f"fleet-{made.stem}.yaml")
    line = f"ansible-inventory -i {shlex.quote(path)} --list --yaml > {shlex.quote(str(target))}"
    return f"and fleet reads YAML; type: {line}"


def _kind(text: str) -> tuple[str, int]:
    lines = [(number, line.rstrip()) for number, line in enumerate(text.splitlines(), start=1)]
    said = [(number, line) for number, line in lines if line.strip() and line.lstrip()[0] not in "#;"]
    if text.startswith("#!"):
        return "a script that makes an inventory", 1
    sure = next((number for number, line in said if _INI_SURE.fullmatch(line)), 0)
    if sure or (said and all(_INI.fullmatch(line) for _, line in said)):
        return "an INI inventory", sure or said[0][0]
    for number, line in said:
        if line.startswith("plugin:"):
            return "the settings of an inventory plugin", number
        if line.startswith(('{"_meta"', '    "_meta":')):
            return "the JSON of ansible-inventory --list", number
    return "", 0
