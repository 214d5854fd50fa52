"""Model files, `recipes/models/<model>.yaml`: how each framework serves a model, and what is known of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, Field

from fleet.errors import Fault, FileFaults
from fleet.model import yamlfile
from fleet.model.base import KebabModel, Positive
from fleet.model.near import did_you_mean
from fleet.model.schema import check
from fleet.model.yamlfile import Document

M = TypeVar("M", bound=BaseModel)

_START = re.compile(r"0*([1-9][0-9]{0,8})")


def _start(key: object) -> object:
    """A concurrency that is a key, and so text: one spelling a number, as two would say the same depth twice."""
    if not isinstance(key, str):
        return key
    if _plain(key):
        return int(key)
    meant = _START.fullmatch(key.strip().replace("_", ""))
    hint = f'; type "{meant[1]}"' if meant else ""
    raise ValueError(f"a plain whole number expected as the key, {json.dumps(key)} was written{hint}")


def _plain(key: str) -> bool:
    return (found := _START.fullmatch(key)) is not None and found[1] == key


Depth = Annotated[int, Field(gt=0, le=32)]


class Draft(KebabModel):
    """How many tokens a single-node MTP server drafts a step, which no config says.

    by_conc: from a concurrency on, another depth. Another depth is another deployment.
    """

    tokens: Depth | None = None
    by_conc: dict[Annotated[Positive, BeforeValidator(_start)], Depth] = {}


class Capacity(KebabModel):
    """What a deployment can hold at most. `sequences-per-rank`: running requests of one decode rank."""

    sequences_per_rank: Positive | None = None


class ModelFile(KebabModel):
    """One model. `weights-gb`: 10^9 bytes on disk. `capacity` and `frameworks`: by framework, the latter in the
    engine's own keys.
    """

    hub: Annotated[str, Field(min_length=1)]
    weights_gb: Annotated[float, Field(gt=0)] | None = None
    capacity: dict[str, Capacity] = {}
    frameworks: dict[str, dict[str, Any]]


class ModelFacts(KebabModel):
    """What fleet needs to know of a model beside its engine's options.

    mtp: the speculation method by framework. tokens, by_conc: the draft depth where no config says it (single-node
    arms), and what replaces it from a concurrency on.
    """

    hub: str
    weights_gb: float | None = None
    capacity: dict[str, Capacity] = {}
    frameworks: tuple[str, ...] = ()
    mtp: dict[str, str] = {}
    tokens: dict[str, int] = {}
    by_conc: dict[str, dict[int, int]] = {}

    def depth(self, framework: str, conc: int) -> int:
        """Draft tokens a step of a single-node MTP server at this concurrency; 0 if the model file says none."""
        steps = {start: depth for start, depth in self.by_conc.get(framework, {}).items() if start <= conc}
        return steps[max(steps)] if steps else self.tokens.get(framework, 0)

    def cap(self, framework: str) -> int | None:
        """The most requests that one decode rank may run, if the model file says so."""
        return self.capacity[framework].sequences_per_rank if framework in self.capacity else None


def basename(model: str) -> str:
    return model.rsplit("/", 1)[-1]


def model_file(model: str, folder: Path) -> Path:
    return folder / "models" / f"{basename(model)}.yaml"


def tuning(model: str, framework: str, folder: Path, options: type[M]) -> M:
    """A framework's section of a model's file, read as the engine's own options. `folder` is the recipes folder.

    Raises FileFaults: no such file or section, or what the options refuse.
    """
    document, _ = _read(model, folder)
    name = basename(model)
    known = list(document.node(name, "frameworks").entries)  # type: ignore[union-attr]
    if framework not in known:
        where = document.line(name, "frameworks")
        raise FileFaults(
            document.path, [Fault(where, f"{framework}  missing in frameworks{did_you_mean(framework, known)}")]
        )
    found, faults = check(document, (name, "frameworks", framework), options)
    if found is None:
        raise FileFaults(document.path, faults)
    return found


def model_facts(model: str, folder: Path) -> ModelFacts:
    """The facts of a model's file. Raises FileFaults."""
    _, file = _read(model, folder)
    sections = {name: section.get("mtp") for name, section in file.frameworks.items()}
    methods = {name: mtp for name, mtp in sections.items() if isinstance(mtp, dict)}
    return ModelFacts(
        hub=file.hub,
        weights_gb=file.weights_gb,
        capacity=file.capacity,
        frameworks=tuple(file.frameworks),
        mtp={name: mtp["method"] for name, mtp in methods.items() if isinstance(mtp.get("method"), str)},
        tokens={name: mtp["tokens"] for name, mtp in methods.items() if type(mtp.get("tokens")) is int},
        by_conc={name: _steps(mtp["by-conc"]) for name, mtp in methods.items() if isinstance(mtp.get("by-conc"), dict)},
    )


def _steps(written: dict[str, Any]) -> dict[int, int]:
    """What is no plain number is left out: the engine's options tell it, with its line."""
    return {int(start): depth for start, depth in written.items() if _plain(start) and type(depth) is int}


def _read(model: str, folder: Path) -> tuple[Document, ModelFile]:
    document = yamlfile.parse(model_file(model, folder))
    name = basename(model)
    faults = [*document.faults, *_strangers(document, name)]
    found, wrong = check(document, (name,), ModelFile) if document.node(name) else (None, [])
    faults += [*wrong, *_capped(document, name)]
    if found is None or faults:
        raise FileFaults(document.path, faults)
    return document, found


def _capped(document: Document, name: str) -> Iterator[Fault]:
    """A cap of a framework that the file does not serve would never count."""
    capacity, frameworks = document.node(name, "capacity"), document.node(name, "frameworks")
    known = list(frameworks.entries) if frameworks else []
    for framework in capacity.entries if capacity else ():
        if framework not in known:
            near = did_you_mean(framework, known)
            yield document.fault((name, "capacity", framework), f"{framework}  is none of the frameworks below{near}")


def _strangers(document: Document, name: str) -> Iterator[Fault]:
    """A model file holds exactly its own model."""
    for key in document.root.entries:
        if key != name:
            yield document.fault((key,), f"{key}  is not the model that the file is named for ({name})")
