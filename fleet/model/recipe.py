"""A recipe: one config in the public master-config schema, with the place of every value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, Literal

from pydantic import Field

from fleet.errors import Fault
from fleet.model.base import Fraction, KebabModel, Positive, Variable
from fleet.model.schema import Keys, check, owner, wrong
from fleet.model.yamlfile import Document

Text = Annotated[str, Field(min_length=1)]
Speculation = Literal["mtp", "draft_model", "none"]


class Router(KebabModel):
    """`version`: a release, a package version or a source commit; not an image."""

    name: Text
    version: Text


class Backend(KebabModel):
    name: Text
    version: Text | None = None


class Worker(KebabModel):
    """All workers of one role of a multi-node entry. `additional-settings`: KEY=VALUE texts."""

    num_worker: int
    tp: int
    ep: int
    dp_attn: bool
    pp: Positive = 1
    dcp_size: Positive = 1
    pcp_size: Positive = 1
    hardware: str | None = None
    additional_settings: list[Text] = Field(default=[], min_length=1)


class Concurrency(KebabModel):
    """Either `conc-list`, or `conc-start` and `conc-end`: doubling from start, the end always included."""

    conc_start: int | None = None
    conc_end: int | None = None
    conc_list: list[int] | None = Field(default=None, min_length=1)
    spec_decoding: Speculation = "none"
    router: Router | None = None


class SingleEntry(Concurrency):
    tp: int
    pp: Positive = 1
    dcp_size: Positive = 1
    pcp_size: Positive = 1
    ep: int | None = None
    dp_attn: bool | None = None


class MultiEntry(Concurrency):
    prefill: Worker
    decode: Worker
    kv_p2p_transfer: Text | None = None


class AgenticSingleEntry(SingleEntry):
    kv_offloading: Literal["none", "dram"]
    kv_offload_backend: Backend | None = None
    kv_p2p_transfer: Text | None = None


class AgenticMultiEntry(MultiEntry):
    kv_offloading: Literal["none", "dram"] = "none"
    kv_offload_backend: Backend | None = None


class SingleSequence(KebabModel):
    """isl, osl: prompt and answer length in tokens."""

    isl: int
    osl: int
    search_space: list[SingleEntry] = Field(min_length=1)


class MultiSequence(KebabModel):
    isl: int
    osl: int
    search_space: list[MultiEntry] = Field(min_length=1)


class AgenticSingle(KebabModel):
    dram_utilization: Fraction | None = None
    search_space: list[AgenticSingleEntry] = Field(min_length=1)


class AgenticMulti(KebabModel):
    dram_utilization: Fraction | None = None
    search_space: list[AgenticMultiEntry] = Field(min_length=1)


class SingleScenarios(KebabModel):
    fixed_seq_len: list[SingleSequence] = Field(default=[], min_length=1)
    agentic_coding: list[AgenticSingle] = Field(default=[], min_length=1)


class MultiScenarios(KebabModel):
    fixed_seq_len: list[MultiSequence] = Field(default=[], min_length=1)
    agentic_coding: list[AgenticMulti] = Field(default=[], min_length=1)


class Config(KebabModel):
    image: Text
    model: Text
    model_prefix: Text
    precision: Text
    framework: Text
    runner: Text
    router: Router | None = None
    secrets: list[Variable] = Field(default=[], min_length=1)


class SingleConfig(Config):
    multinode: Literal[False]
    disagg: Literal[False] = False
    scenarios: SingleScenarios


class MultiConfig(Config):
    multinode: Literal[True]
    disagg: bool = False
    kv_p2p_transfer: Text | None = None
    scenarios: MultiScenarios


class Hardware(KebabModel):
    """What a runner label's machines are, from a public runners file. Memory in MiB."""

    available_cpu_dram_mib: Positive
    gpus_per_node: Positive


MODELS: tuple[type[KebabModel], ...] = (
    SingleConfig,
    MultiConfig,
    SingleScenarios,
    MultiScenarios,
    SingleSequence,
    MultiSequence,
    AgenticSingle,
    AgenticMulti,
    SingleEntry,
    MultiEntry,
    AgenticSingleEntry,
    AgenticMultiEntry,
    Worker,
    Router,
    Backend,
)
"""Every model whose keys can stand in a recipe; `schema.keys_of` lists them."""

FIXED: Keys = ("scenarios", "fixed-seq-len")
AGENTIC: Keys = ("scenarios", "agentic-coding")


@dataclass(frozen=True)
class Recipe:
    """One config. `data` is its mapping as written (`extends` resolved); the expansion is made from it.

    `source` is the recipe's file. `hardware` is what a public runners file says of its runner, if there is one.
    """

    key: str
    source: str
    config: SingleConfig | MultiConfig
    document: Document
    hardware: Hardware | None = None

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = self.document.node(self.key).data  # type: ignore[union-attr]
        return found

    @property
    def model_basename(self) -> str:
        return self.config.model.rsplit("/", 1)[-1]

    def line(self, *keys: str | int) -> int:
        """The line of a value of this config; of its nearest parent if it is not written."""
        return self.document.line(self.key, *keys)

    def at(self, *keys: str | int) -> str:
        return self.document.at(self.key, *keys)

    def fault(self, keys: Keys, text: str) -> Fault:
        return self.document.fault((self.key, *keys), text)


def validated(document: Document, key: str) -> tuple[SingleConfig | MultiConfig | None, list[Fault]]:
    """One config of a document, or all its faults: shapes first, then what the public schema asks across fields."""
    scope = Scope(document, (key,))
    if "*" in key:
        return None, [document.fault((key,), f"{key}  a config key holds no *")]
    config: SingleConfig | MultiConfig | None
    if _is_multi(scope):
        config, faults = check(document, (key,), MultiConfig)
    else:
        config, faults = check(document, (key,), SingleConfig)
    faults += _across(scope)
    return (None if faults else config), faults


class Scope:
    """A tolerant view of raw data: what is absent or of the wrong type is None; so rules run on faulty files too."""

    def __init__(self, document: Document, keys: Keys) -> None:
        self.document, self.keys = document, keys

    def get(self, *keys: str | int) -> Any:
        """The value, None if absent or already blamed."""
        node = self.document.node(*self.keys, *keys)
        return None if node is None or self.document.blamed(*self.keys, *keys) else node.data

    def has(self, *keys: str | int) -> bool:
        return self.document.node(*self.keys, *keys) is not None

    def integer(self, *keys: str | int) -> int | None:
        value = self.get(*keys)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def items(self, *keys: str | int) -> Iterator[Scope]:
        value = self.get(*keys)
        for index in range(len(value) if isinstance(value, list) else 0):
            yield Scope(self.document, (*self.keys, *keys, index))

    def below(self, *keys: str | int) -> Scope:
        return Scope(self.document, (*self.keys, *keys))

    def fault(self, keys: Keys, text: str) -> Fault:
        return self.document.fault((*self.keys, *keys), text)

    def wrong(self, keys: Keys, text: str) -> Fault:
        return wrong(self.document, (*self.keys, *keys), text)

    @property
    def name(self) -> str:
        return owner(self.keys)


def entries_of(config: Scope) -> Iterator[Scope]:
    """All search-space entries, fixed lengths first."""
    for sequence in chain(config.items(*FIXED), config.items(*AGENTIC)):
        yield from sequence.items("search-space")


def _is_multi(config: Scope) -> bool:
    """As it says; where it does not say so properly, as it seems."""
    stated = config.get("multinode")
    if isinstance(stated, bool):
        return stated
    if isinstance(stated, str) and stated.lower() in ("true", "false"):
        return stated.lower() == "true"
    first = next(entries_of(config), None)
    return first is not None and (first.has("prefill") or first.has("decode"))


def _across(config: Scope) -> Iterator[Fault]:
    yield from _scenario_rules(config)
    yield from _version_rules(config)
    yield from _scope_rules(config, "router")
    if _is_multi(config):
        yield from _scope_rules(config, "kv-p2p-transfer")
        yield from _disagg_rules(config)
    for entry in entries_of(config):
        yield from _concurrency_rules(entry)
        yield from _version_rules(entry)
        yield from _worker_rules(entry)
    for agentic in config.items(*AGENTIC):
        for entry in agentic.items("search-space"):
            yield from _offload_rules(agentic, entry)


def _scenario_rules(config: Scope) -> Iterator[Fault]:
    scenarios = config.get("scenarios")
    if scenarios == {}:
        yield config.fault(("scenarios",), "scenarios  at least one of fixed-seq-len and agentic-coding is needed")
    runner = config.get("runner")
    if config.has(*AGENTIC) and isinstance(runner, str) and not runner.startswith("cluster:"):
        yield config.wrong(("runner",), "agentic-coding needs a runner of the form cluster:<name>")


def _version_rules(scope: Scope) -> Iterator[Fault]:
    version = scope.get("router", "version")
    if isinstance(version, str) and version.startswith("image:"):
        yield scope.wrong(("router", "version"), "a release, package version or source commit expected, not an image")


def _scope_rules(config: Scope, name: str) -> Iterator[Fault]:
    if config.has(name):
        for entry in entries_of(config):
            if entry.has(name):
                above = config.document.at(*config.keys, name)
                yield entry.fault((name,), f"{name}  written in {entry.name} and for all entries ({above}); keep one")


def _disagg_rules(config: Scope) -> Iterator[Fault]:
    if config.get("disagg") is True and not config.has("kv-p2p-transfer"):
        without = [entry for entry in entries_of(config) if not entry.has("kv-p2p-transfer")]
        if without:
            yield config.wrong(("disagg",), "needs kv-p2p-transfer, once for all entries or in each of them")


def _concurrency_rules(entry: Scope) -> Iterator[Fault]:
    if not isinstance(entry.get(), dict) or _misspelt(entry):
        return
    start, end = entry.has("conc-start"), entry.has("conc-end")
    if entry.has("conc-list") and start and end:
        yield entry.fault(
            ("conc-start",), f"conc-start, conc-end  written beside conc-list in {entry.name}; keep one of the two"
        )
    elif not entry.has("conc-list") and start != end:
        alone, other = ("conc-start", "conc-end") if start else ("conc-end", "conc-start")
        yield entry.wrong((alone,), f"needs {other} beside it")
    elif not entry.has("conc-list") and not start:
        yield entry.fault((), f"{entry.name}  has no concurrency; type conc-list, or both conc-start and conc-end")
    for name in ("conc-start", "conc-end"):
        if (value := entry.integer(name)) is not None and value <= 0:
            yield entry.wrong((name,), "must be above 0")
    low, high = entry.integer("conc-start"), entry.integer("conc-end")
    if low is not None and high is not None and low > high:
        yield entry.wrong(("conc-start",), f"is above conc-end: {high}")
    listed = entry.get("conc-list")
    for index in range(len(listed) if isinstance(listed, list) else 0):
        if (value := entry.integer("conc-list", index)) is not None and value <= 0:
            yield entry.wrong(("conc-list", index), "must be above 0")


def _misspelt(entry: Scope) -> bool:
    """Whether an unknown key of the entry was meant to be its concurrency: that fault is told already."""
    return any(str(key).replace("_", "-").startswith("conc") and "-" not in str(key) for key in entry.get())


def _worker_rules(entry: Scope) -> Iterator[Fault]:
    for scope in (entry, entry.below("prefill"), entry.below("decode")):
        tp, dcp = scope.integer("tp"), scope.integer("dcp-size")
        if tp is not None and dcp is not None and dcp > 0 and tp % dcp:
            yield scope.wrong(("dcp-size",), f"must divide tp: {tp}")
    roles = [role for role in ("prefill", "decode") if entry.has(role, "hardware")]
    if len(roles) == 1:
        yield entry.wrong(
            (roles[0], "hardware"), "is written for one role; write it for prefill and decode, or for neither"
        )
    for role in ("prefill", "decode"):
        for index, setting in enumerate(entry.get(role, "additional-settings") or ()):
            if isinstance(setting, str) and not _is_setting(setting):
                yield entry.wrong((role, "additional-settings", index), "KEY=VALUE expected")


def _is_setting(text: str) -> bool:
    name, equals, _ = text.partition("=")
    return bool(equals) and name.isascii() and name.isidentifier()


def _offload_rules(agentic: Scope, entry: Scope) -> Iterator[Fault]:
    kind, backend = entry.get("kv-offloading"), entry.has("kv-offload-backend")
    if entry.has("tp") and (entry.has("prefill") or entry.has("decode")):
        yield entry.fault((), f"{entry.name}  has tp beside prefill or decode; it is one or the other")
    if kind == "dram" and not backend:
        yield entry.wrong(("kv-offloading",), "needs a kv-offload-backend")
    if kind != "dram" and backend:
        yield entry.fault(("kv-offload-backend",), "kv-offload-backend  needs kv-offloading: dram")
    if kind == "dram" and not agentic.has("dram-utilization"):
        yield entry.wrong(("kv-offloading",), "needs dram-utilization beside search-space")
