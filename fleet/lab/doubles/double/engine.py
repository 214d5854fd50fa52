"""A pretended engine core: sequences run in common steps, each step's time comes from the rate model."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from .rates import Acceptance, Shape, prefill_seconds, step_seconds

Emit = Callable[[int, bool], bool]
"""Called with new tokens and whether they are the last; False when nobody listens any more."""


@dataclass
class Counters:
    """What the engine has counted since its start."""

    finished: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefills: int = 0
    prefill_tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    steps: dict[int, int] = field(default_factory=dict)

    @property
    def decode_steps(self) -> int:
        return sum(self.steps.values())

    @property
    def acceptance_rate(self) -> float:
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def tokens_per_forward(self) -> float:
        return 1 + self.accepted / self.decode_steps if self.decode_steps else 0.0


@dataclass
class Sequence:
    """One request's decoding: `left` tokens to go. `done` is set at its end."""

    left: int
    framed: bool
    emit: Emit
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Engine:
    """Prefill one after the other, decode all together up to `max_seqs`; the rest waits its turn."""

    def __init__(self, shape: Shape, acceptance: Acceptance, max_seqs: int, *, count_drafts: bool = True) -> None:
        self.shape = shape
        self.acceptance = acceptance
        self.max_seqs = max_seqs
        self.count_drafts = count_drafts
        self.counters = Counters()
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self.prefilling = 0
        self.on_steps: Callable[[], None] = lambda: None
        self._prefill_turn = asyncio.Lock()
        self._prefill_free = 0.0
        self._dice = random.Random(0)
        self._wake = asyncio.Event()

    async def prefill(self, tokens: int) -> None:
        """Take as long as this prompt's prefill and those before it."""
        clock = asyncio.get_running_loop().time
        self.prefilling += 1
        try:
            async with self._prefill_turn:
                self._prefill_free = max(self._prefill_free, clock()) + prefill_seconds(tokens, self.shape)
                await asyncio.sleep(self._prefill_free - clock())
        finally:
            self.prefilling -= 1
        self.counters.prefills += 1
        self.counters.prefill_tokens += tokens

    async def decode(self, tokens: int, framed: bool, emit: Emit) -> None:
        """Produce so many tokens through `emit`, step by step."""
        if tokens < 1:
            return
        sequence = Sequence(tokens, framed, emit)
        self.waiting.append(sequence)
        self._wake.set()
        await sequence.done.wait()

    def lose(self) -> None:
        """What a core takes along when it dies: no answer that is under way will ever end."""
        self.running.clear()
        self.max_seqs = 0

    async def run(self) -> None:
        """The step loop. Pace is kept against the clock, so that what a step itself costs is not added to its time."""
        clock = asyncio.get_running_loop().time
        due = clock()
        while True:
            while self.waiting and len(self.running) < self.max_seqs:
                self.running.append(self.waiting.popleft())
            if not self.running:
                self._wake.clear()
                await self._wake.wait()
                due = clock()
                continue
            seconds = step_seconds(len(self.running), self.shape, self.acceptance.depth)
            due = max(due, clock() - seconds) + seconds
            await asyncio.sleep(max(0.0, due - clock()))
            self._step()

    def _step(self) -> None:
        still = []
        for sequence in self.running:
            tokens = min(sequence.left, 1 + self._accept(sequence))
            sequence.left -= tokens
            self._count(tokens - 1)
            if sequence.emit(tokens, sequence.left == 0) and sequence.left:
                still.append(sequence)
            else:
                sequence.done.set()
        self.running = still
        self.on_steps()

    def _accept(self, sequence: Sequence) -> int:
        return self.acceptance.draw(sequence.framed, self._dice) if self.acceptance.depth else 0

    def _count(self, accepted: int) -> None:
        """Only tokens that were streamed count: those cut off by the end of the answer do not."""
        if self.acceptance.depth and self.count_drafts:
            self.counters.drafted += self.acceptance.depth
            self.counters.accepted += accepted
            self.counters.steps[accepted] = self.counters.steps.get(accepted, 0) + 1
