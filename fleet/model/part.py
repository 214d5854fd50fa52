"""What engines, routers and load clients say of the image they run in: what must be there, and how to ask for flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Part:
    """Something that an image must hold. kind: `path` (an executable file), `program` (on PATH), `module` or `class`
    (of Python, dotted). why: what needs it.
    """

    kind: Literal["path", "program", "module", "class"]
    name: str
    why: str

    def __str__(self) -> str:
        return {"path": "", "program": "", "module": "Python module ", "class": "class "}[self.kind] + self.name


@dataclass(frozen=True)
class Help:
    """How a program is asked for its flags.

    argv: the command without its flags. ask: the word that makes it print them. unlisted: flags that it takes though
    its help need not list them. beginnings: any unambiguous beginning of a long flag is taken, as argparse does.
    loose: `_` is taken for `-`, and a flag with a dotted part for the flag.
    """

    argv: tuple[str, ...]
    ask: str = "--help"
    unlisted: frozenset[str] = frozenset()
    beginnings: bool = True
    loose: bool = False

    @property
    def asked(self) -> tuple[str, ...]:
        return (*self.argv, self.ask)
