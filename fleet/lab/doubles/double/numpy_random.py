"""The number stream of numpy's legacy `np.random.seed(n)` + `np.random.randint`, in plain Python.

numpy seeds its MT19937 with init_genrand, Python's `random` with init_by_array; the generator itself is the same, so
Python's runs on numpy's state. randint masks 32-bit words and rejects those out of range.
"""

from __future__ import annotations

import random

STATE_WORDS = 624
PYTHON_STATE_VERSION = 3


def _init_genrand(seed: int) -> list[int]:
    words = [seed & 0xFFFFFFFF]
    for index in range(1, STATE_WORDS):
        words.append((1812433253 * (words[-1] ^ (words[-1] >> 30)) + index) & 0xFFFFFFFF)
    return words


class NumpyRandom:
    """`np.random` after `seed(n)`, as far as the load client draws from it."""

    def __init__(self, seed: int) -> None:
        self._words = random.Random()
        self._words.setstate((PYTHON_STATE_VERSION, (*_init_genrand(seed), STATE_WORDS), None))

    def randint(self, low: int, high: int, size: int) -> list[int]:
        """`np.random.randint(low, high, size)`: integers in [low, high), high - low at most 2^32."""
        span = high - 1 - low
        if span < 0:
            raise ValueError("low >= high")
        if span == 0:
            return [low] * size
        mask = (1 << span.bit_length()) - 1
        return [low + self._below(span, mask) for _ in range(size)]

    def _below(self, span: int, mask: int) -> int:
        while (value := self._words.getrandbits(32) & mask) > span:
            pass
        return value
