"""Where settings come from: invoke.yaml, a file that `-f` names, and INVOKE_FLEET_… variables.

Invoke reads the files itself, after tasks.py. What it would answer with a traceback, or not at all, is told before,
with the lines. Its reading of our variables is not used: it sees only those whose keys a file has, and wants of them
the kind of value that stands there. So they are taken out of the environment, and read by `fleet.settings`.
"""

from __future__ import annotations

import locale
import os
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from fleet.errors import Fault, FileFaults, Gathering
from fleet.model import yamlfile
from fleet.model.near import did_you_mean
from fleet.model.yamlfile import Document

OURS = "fleet"
PREFIX = "INVOKE_FLEET"
RUNTIME = "INVOKE_RUNTIME_CONFIG"
ENVIRONMENT = "environment"
SUFFIXES = (".yaml", ".yml", ".json", ".py")
"""Of invoke.yaml and its like, in the order in which Invoke looks for them; it reads the first that is there."""

TAKEN: dict[str, str] = {}
"""Our variables that were in the environment of this process."""


def take(environment: MutableMapping[str, str] = os.environ) -> None:
    """Take our variables out of the environment."""
    for name in [name for name in environment if name.startswith(PREFIX)]:
        TAKEN[name] = environment.pop(name)


def variables() -> dict[str, str]:
    return {**{name: value for name, value in os.environ.items() if name.startswith(PREFIX)}, **TAKEN}


def check(root: Path, runtime: str = "") -> None:
    """Raises FileFaults, all at once, for what Invoke could not read in invoke.yaml and the file of `-f` (runtime), or
    would ignore.

    Whether the values below `fleet:` can be used is for `fleet.settings.read` to say, and told here only beside those.
    """
    found = {path: _faults(path) for path in yaml_files(root, runtime)}
    missing = _missing(runtime)
    if not missing and not any(found.values()):
        return
    from fleet import settings

    told = Gathering()
    for path, faults in found.items():
        told.add(str(path), [*faults, *settings.faults(path)])
    told.add(runtime, missing)
    told.add(ENVIRONMENT, settings.variable_faults(variables()))
    told.tell()


def yaml_files(root: Path, runtime: str = "") -> list[Path]:
    """invoke.yaml and the file of `-f`, where they are there and are YAML."""
    own = next((path for path in _candidates(root) if path.exists()), None)
    last = Path(runtime).expanduser() if runtime else None
    return [path for path in (own, last) if path and path.suffix in (".yaml", ".yml") and os.path.exists(path)]


def document(path: Path) -> Document | None:
    """What is written there, its faults included; None where there is nothing. Raises FileFaults."""
    lines = yamlfile.content(path).splitlines()
    return None if all(line.strip()[:1] in (b"", b"#") for line in lines) else yamlfile.parse(path)


def _candidates(root: Path) -> list[Path]:
    return [root / f"invoke{suffix}" for suffix in SUFFIXES]


def _missing(runtime: str) -> list[Fault]:
    """A file of `-f` that Invoke would pass over without a word."""
    path = Path(runtime).expanduser()
    if not runtime or os.path.isfile(path):
        return []
    names = os.listdir(path.parent) if os.path.isdir(path.parent) else []
    near = did_you_mean(path.name, sorted(name for name in names if Path(name).suffix in SUFFIXES))
    return [Fault(0, f"no such file; -f and {RUNTIME} name a file of settings{near}")]


def _faults(path: Path) -> list[Fault]:
    try:
        found = document(path)
    except FileFaults as error:
        return list(error.faults)
    return [*_undecodable(path), *(found.faults if found else ()), *(_sections(found) if found else ())]


def _undecodable(path: Path) -> Iterator[Fault]:
    """Invoke reads files in the encoding of the locale, where UTF-8 may be none."""
    encoding = locale.getencoding()
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            line.decode(encoding)
        except UnicodeDecodeError:
            what = f"a character that Invoke cannot read in this locale ({encoding}); type LC_ALL=C.UTF-8 before invoke"
            yield Fault(number, what)


def _sections(found: Document) -> Iterator[Fault]:
    """What stands at the top and is neither ours nor Invoke's, and what Invoke cannot merge with its defaults."""
    known: Mapping[str, Any] = {OURS: {}, **_invokes()}
    for key, node in found.root.entries.items():
        if key not in known:
            yield found.fault((key,), f"{key}  unknown key; known are {', '.join(known)}{did_you_mean(key, known)}")
        elif node.kind != "mapping" and key != OURS:
            yield found.fault((key,), f"{key}: {node.written}  a mapping expected")
        elif key != OURS:
            yield from _keys(found, key, known[key])


def _keys(found: Document, section: str, known: Mapping[str, Any]) -> Iterator[Fault]:
    """Of a section of Invoke's own."""
    for key, node in found.root.entries[section].entries.items():
        if key not in known:
            yield found.fault((section, key), f"{key}  unknown key in {section}{did_you_mean(key, known)}")
        elif isinstance(known[key], dict) != (node.kind == "mapping"):
            wanted = "a mapping" if isinstance(known[key], dict) else "a single value"
            yield found.fault((section, key), f"{section}.{key}: {node.written}  {wanted} expected")


def _invokes() -> Mapping[str, Mapping[str, Any]]:
    from invoke.config import Config

    return Config.global_defaults()
