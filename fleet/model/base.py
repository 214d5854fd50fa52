"""The base of everything that is read from a file or printed as JSON."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(gt=0, le=1)]


def kebab(name: str) -> str:
    return name.replace("_", "-")


class Model(BaseModel):
    """Frozen and strict: no unknown keys, no text for numbers, no booleans for integers. JSON keys are field names."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class KebabModel(Model):
    """A `Model` whose keys in files are kebab-case; the loader accepts only those, Python code uses the field names."""

    model_config = ConfigDict(alias_generator=kebab, validate_by_name=True, validate_by_alias=True)
