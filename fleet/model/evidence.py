"""What engines and load clients tell about a point, in fleet's own words."""

from __future__ import annotations

from fleet.model.base import Model


class Counters(Model):
    """A worker's cumulative counters at one moment. None: this engine does not have that counter (absent is not zero).

    finished: requests. prompt_tokens, generated_tokens: tokens of finished requests.
    drafted, accepted: draft tokens. steps: decode steps that drafted. by_position: accepted at each place of a draft.
    cached_tokens: prompt tokens that the worker's prefix cache spared it.
    """

    finished: float | None = None
    prompt_tokens: float | None = None
    generated_tokens: float | None = None
    drafted: float | None = None
    accepted: float | None = None
    steps: float | None = None
    by_position: tuple[float, ...] | None = None
    cached_tokens: float | None = None


class Drawn(Model):
    """How a load client draws lengths: the bounds in tokens, both ends included.

    client: the program. public_sequence: whether the lengths are, one by one, the public benchmark's for the same seed.
    """

    client: str
    input: tuple[int, int]
    output: tuple[int, int]
    public_sequence: bool


class Measurement(Model):
    """One load client's result for one point. Times are milliseconds, rates tokens/s over the whole deployment.

    `errors` are the distinct error texts with their counts. `output_lens` are tokens per request, empty if not saved.
    `raw` is the client's own JSON, untouched.
    """

    completed: int
    requested: int
    duration_s: float
    total_input_tokens: int
    total_output_tokens: int
    input_lens: tuple[int, ...] = ()
    output_lens: tuple[int, ...] = ()
    errors: dict[str, int] = {}
    raw: dict[str, object] = {}
