"""One judged point as one line of points.jsonl."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from pydantic import ValidationError

from fleet.errors import UsageError
from fleet.model.arm import Role, Spec
from fleet.model.base import Model
from fleet.model.evidence import Counters, Drawn

SCHEMA_VERSION = "1"
State = Literal["done", "incomplete", "failed"]


class GateResult(Model):
    """A gate's answer. `ok` is None where the question does not apply; `why` always carries the figures."""

    name: str
    ok: bool | None
    why: str


class Verdict(Model):
    """Whether a point may be believed, and each reason if not."""

    valid: bool
    reasons: tuple[str, ...] = ()


class Image(Model):
    """What ran: the plan's tag, the image ID found on the seats, and the registry digest (None if never pushed)."""

    tag: str
    id: str | None = None
    digest: str | None = None


class Evidence(Model):
    """One seat's counters on both sides of a point. None: they could not be read."""

    before: Counters | None = None
    after: Counters | None = None


class Figures(Model):
    """A point's headline numbers. None is "not measured", never zero.

    tput: tokens/s per GPU. On a disaggregated arm output is per decode GPU and input per prefill GPU.
    intvty: tokens/s per user, 1000 / TPOT. ttft, tpot, e2el: milliseconds. acceptance_length: tokens per decode step.
    """

    tput_per_gpu: float | None = None
    output_tput_per_gpu: float | None = None
    input_tput_per_gpu: float | None = None
    median_intvty: float | None = None
    median_ttft_ms: float | None = None
    p99_ttft_ms: float | None = None
    median_tpot_ms: float | None = None
    p99_tpot_ms: float | None = None
    median_e2el_ms: float | None = None
    acceptance_length: float | None = None


class Record(Model):
    """A point that ran, or tried to.

    state: "done" (ran to its end and was judged), "incomplete" (stopped before its end), "failed" (no usable result).
    started, ended: UTC, ISO 8601. asked: the config's concurrency; conc: the one that ran. isl, osl: tokens.
    double: an image of the lab's doubles served it. trial: a reduced load. Neither is ever a measurement.
    drawn: the load client, and the lengths it drew; None in records written before it was kept.
    attempt: from 1; of several records of a point the last one counts, the others are superseded.
    raw, agg, logs: paths inside the run folder, None where there is no such file; no_agg: why there is no aggregate.
    """

    schema_version: Literal["1"] = "1"
    run: str
    key: str
    plan: str
    arm: str
    point: str
    conc: int
    asked: int
    repeat: int = 0
    attempt: int = 1
    started: str
    ended: str
    state: State
    verdict: Verdict
    gates: tuple[GateResult, ...] = ()
    double: bool
    trial: bool
    chat: bool
    isl: int
    osl: int
    prompts: int
    warmups: int
    seed: int
    range_ratio: float
    drawn: Drawn | None = None
    spec: Spec
    depth: int
    gpus: dict[Role, int]
    image: Image
    completed: int | None = None
    requested: int | None = None
    duration_s: float | None = None
    total_input_tokens: int | None = None
    total_output_tokens: int | None = None
    errors: dict[str, int] = {}
    figures: Figures = Figures()
    evidence: dict[str, Evidence] = {}
    raw: str | None = None
    agg: str | None = None
    no_agg: str | None = None
    logs: str | None = None
    reproduce: str

    @property
    def valid(self) -> bool:
        """Done and believed: the only records that enter an aggregate, a comparison or a best-of line."""
        return self.state == "done" and self.verdict.valid

    @property
    def marks(self) -> tuple[str, ...]:
        """What keeps this record from being a measurement."""
        return ("DOUBLE",) * self.double + ("TRIAL",) * self.trial

    def to_line(self) -> str:
        """JSON on one line, newline included, `schema_version` first."""
        return self.model_dump_json() + "\n"

    @classmethod
    def from_line(cls, line: str) -> Record:
        """Raises ValueError for a line that is not a record of this schema version."""
        return cls.model_validate_json(line)


@dataclass(frozen=True)
class Points:
    """What a points.jsonl holds. `torn` is a last line whose writing was cut off, set aside; None if there is none.

    foreign: a line of text for each record that is set aside because it is not one of the run's.
    """

    records: tuple[Record, ...]
    torn: str | None = None
    foreign: tuple[str, ...] = ()


def anybody(record: Record) -> str:
    return ""


def read(text: str, where: str = "points.jsonl", *, stranger: Callable[[Record], str] = anybody) -> Points:
    """Parse a points.jsonl. Only the last line may be torn; any other unreadable line raises UsageError.

    stranger: why a record is not one of this run; "" for those that are.
    """
    complete, _, tail = text.rpartition("\n")
    lines = complete.split("\n") if complete else []
    numbered = [(number, _parse(line, f"{where}:{number}")) for number, line in enumerate(lines, 1) if line.strip()]
    torn = None
    if tail:
        try:
            numbered.append((len(lines) + 1, Record.from_line(tail)))
        except ValueError:
            torn = tail
    whys = {number: why for number, record in numbered if (why := stranger(record))}
    own = tuple(record for number, record in numbered if number not in whys)
    aside = tuple(f"points.jsonl:{number} is set aside and counts for nothing: {why}" for number, why in whys.items())
    return Points(own, torn, aside)


def _parse(line: str, where: str) -> Record:
    try:
        return Record.from_line(line)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "line"
        raise UsageError(
            f"not a record of schema version {SCHEMA_VERSION}: {field}: {first['msg']}",
            where=where,
            hint="read it with the fleet that wrote it, or move that line out of the file",
        ) from None


def latest(records: Sequence[Record]) -> tuple[Record, ...]:
    """The last record of each point, in the order the points first ran: a point that was run again counts once."""
    return tuple({record.point: record for record in records}.values())


def utc(moment: datetime) -> str:
    """ISO 8601 in UTC to the millisecond; a naive time is refused with ValueError."""
    if moment.tzinfo is None:
        raise ValueError("a record's time needs a time zone")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def reproduce(key: str, arm: str, asked: int, inventory: str, *, trial: bool = False) -> str:
    """The line that runs this point again. `asked` is the config's concurrency: a trial caps it by itself again."""
    words = ["invoke", "sweep", "--config", key, "--arm", arm, "--conc", str(asked), "--inventory", inventory]
    return shlex.join(words + ["--trial"] * trial)
