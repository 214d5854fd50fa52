"""How fast a double pretends to be: a pure model of step times, prefill times and draft acceptance.

It is made so that a sweep has something to find: speculative decoding wins while few sequences run (a step's fixed cost
is shared by several tokens) and loses when many do (verifying drafts multiplies the cost per sequence). No number here
describes a GPU.

    step(n, depth)   = scale * (BASE * (1 + DRAFT_FIXED * depth) + PER_SEQUENCE * n * (1 + DRAFT_EACH * depth))
    scale            = sqrt(8 / (tp * dp)); with DP attention BASE * 1.25 and PER_SEQUENCE * 0.5
    acceptance       = 1 + p + p^2 + ... + p^depth, with p = 0.72 for chat-framed prompts and 0.09 for raw ones
    tokens per second = n * acceptance / step(n, depth)
    prefill(tokens)  = scale * (0.002 s + 10 us * tokens), one prompt after the other
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import sqrt

BASE = 0.008
PER_SEQUENCE = 0.00024
DRAFT_FIXED = 0.2
DRAFT_EACH = 1.1
FRAMED = 0.72
RAW = 0.09


@dataclass(frozen=True)
class Shape:
    """What of a server's topology the rates depend on. speed: everything is that many times faster."""

    tp: int = 8
    dp: int = 1
    dp_attention: bool = False
    speed: float = 1.0

    @property
    def scale(self) -> float:
        return sqrt(8 / (self.tp * self.dp)) / self.speed


def step_seconds(running: int, shape: Shape, depth: int = 0) -> float:
    """Seconds of one decode step of `running` sequences that verifies `depth` drafts for each."""
    base = BASE * (1.25 if shape.dp_attention else 1.0) * (1 + DRAFT_FIXED * depth)
    each = PER_SEQUENCE * (0.5 if shape.dp_attention else 1.0) * (1 + DRAFT_EACH * depth)
    return shape.scale * (base + each * running)


def prefill_seconds(tokens: int, shape: Shape) -> float:
    """Seconds that a prompt of so many tokens occupies the prefill."""
    return shape.scale * (0.002 + 0.00001 * tokens)


@dataclass(frozen=True)
class Acceptance:
    """How many of `depth` drafts a step accepts. forced: an acceptance length in [1, depth + 1] for every prompt."""

    depth: int = 0
    forced: float | None = None

    def length(self, framed: bool) -> float:
        """Mean tokens of a step (its own token and the accepted drafts)."""
        if self.forced is not None:
            return self.forced
        chance = FRAMED if framed else RAW
        return sum(chance**k for k in range(self.depth + 1))

    def draw(self, framed: bool, dice: random.Random) -> int:
        """Accepted drafts of one step. A forced length is met with the least spread."""
        if self.forced is not None:
            whole = int(self.forced - 1)
            return min(self.depth, whole + (dice.random() < self.forced - 1 - whole))
        chance, accepted = FRAMED if framed else RAW, 0
        while accepted < self.depth and dice.random() < chance:
            accepted += 1
        return accepted


def tokens_per_second(running: int, shape: Shape, depth: int = 0, *, framed: bool = True) -> float:
    """Output rate of a server that runs `running` sequences all the time."""
    return running * Acceptance(depth).length(framed) / step_seconds(running, shape, depth)
