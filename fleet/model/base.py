"""The base of everything that is read from a file or printed as JSON."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(gt=0, le=1)]
BlockSize = Annotated[int, Field(gt=0, le=4096)]
"""Tokens of one KV block."""


def _one_line(value: str) -> str:
    if any(ord(letter) < 32 for letter in value):
        raise ValueError("a value of one line expected")
    return value


def _variable(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("the name of a variable expected: letters, digits and _")
    return name


Variable = Annotated[str, AfterValidator(_variable)]
"""The name of an environment variable."""
Variables = dict[Variable, Annotated[str, AfterValidator(_one_line)]]
"""Environment variables."""


def _said(text: str) -> str:
    if not text.strip():
        raise ValueError("the text is empty; write one or take the key out")
    if "{{" in text:
        raise ValueError("templates are not filled in here; write the value out")
    return text


def _word(text: str) -> str:
    if _said(text).startswith("-") or len(text.split()) > 1 or text != text.strip():
        raise ValueError("one word expected, without spaces and without a dash in front")
    return text


Text = Annotated[str, AfterValidator(_said)]
"""A text that says something."""
Word = Annotated[str, AfterValidator(_word)]
"""A text that can be an argument of a command: a name, an address."""


def kebab(name: str) -> str:
    return name.replace("_", "-")


class Model(BaseModel):
    """Frozen and strict: no unknown keys, no text for numbers, no booleans for integers. JSON keys are field names."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class KebabModel(Model):
    """A `Model` whose keys in files are kebab-case; the loader accepts only those, Python code uses the field names."""

    model_config = ConfigDict(alias_generator=kebab, validate_by_name=True, validate_by_alias=True)
