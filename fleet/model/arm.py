"""What a recipe expands to: arms (one deployment each) and the points they serve."""

from __future__ import annotations

from typing import Any, Literal

from fleet.model.base import Model

Role = Literal["prefill", "decode", "server", "router", "client"]
Spec = Literal["none", "mtp", "draft_model"]


class Component(Model):
    """A router as a config names it; `version` is a release or a source commit."""

    name: str
    version: str


class Workers(Model):
    """All workers of one role. Sizes are GPUs; `nodes` is the config's PREFILL_NODES / DECODE_NODES, None if not said.

    `settings` holds every additional-settings KEY=VALUE as written.
    """

    role: Role
    count: int
    tp: int
    ep: int = 1
    dp_attn: bool = False
    pp: int = 1
    dcp: int = 1
    pcp: int = 1
    nodes: int | None = None
    settings: dict[str, str] = {}

    @property
    def gpus_each(self) -> int:
        return self.tp * self.pp * self.pcp


class Arm(Model):
    """One search-space entry at one sequence length.

    `depth` is the number of draft tokens (0: no speculation) and part of the arm's identity and name.
    `entry` is the matrix entry of the public generator, verbatim; `fingerprint` its recipe fingerprint.
    `line` is where the search-space entry starts in `source` (0 when unknown).
    """

    key: str
    name: str
    image: str
    model: str
    model_prefix: str
    precision: str
    framework: str
    runner: str
    isl: int
    osl: int
    max_model_len: int
    exp_name: str
    multinode: bool
    disagg: bool
    spec: Spec
    depth: int
    workers: tuple[Workers, ...]
    router: Component | None
    kv_transfer: str | None
    conc: tuple[int, ...]
    fingerprint: str
    entry: dict[str, Any]
    source: str = ""
    line: int = 0

    @property
    def model_basename(self) -> str:
        return self.model.rsplit("/", 1)[-1]

    @property
    def model_path(self) -> str:
        """Inside the containers."""
        return f"/models/{self.model_basename}"

    def of(self, role: Role) -> Workers:
        return next(workers for workers in self.workers if workers.role == role)

    @property
    def gpus(self) -> dict[Role, int]:
        """GPUs by role, as the public aggregate counts them: count × tp × pp × pcp."""
        return {workers.role: workers.count * workers.gpus_each for workers in self.workers}


class Repeats(Model):
    """How often each point is run. Of several repeats each round has every point of an arm once, in an order shuffled
    with `order_seed`. restarts: the servers are started anew for each round, else they serve all of them.
    """

    count: int = 1
    order_seed: int = 0
    restarts: bool = False


ONCE = Repeats()


class Point(Model):
    """One concurrency of one arm. `chat` says whether prompts are chat-framed; lengths are tokens.

    `asked` is the concurrency of the config; `conc` the one that runs (a trial caps it).
    Lengths are drawn uniformly from [int(range_ratio × L), L].
    """

    arm: str
    conc: int
    asked: int
    repeat: int = 0
    isl: int
    osl: int
    prompts: int
    warmups: int
    range_ratio: float = 0.8
    seed: int = 0
    chat: bool = False
    trial: bool = False

    @property
    def title(self) -> str:
        """The concurrency, of a repeat with its number: `64`, `64 #2`."""
        return f"{self.conc} #{self.repeat + 1}" if self.repeat else str(self.conc)

    @property
    def id(self) -> str:
        return f"{self.arm}-c{self.conc}" + (f"-r{self.repeat}" if self.repeat else "")
