"""A load client's result file. The engines' clients descend from one program and write the same keys."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fleet.model.evidence import Measurement


def measurement(raw: dict[str, Any]) -> Measurement:
    """Raises KeyError or ValueError if the result is not such a client's."""
    return Measurement(
        completed=int(raw["completed"]),
        requested=int(raw["num_prompts"]),
        duration_s=float(raw["duration"]),
        total_input_tokens=int(raw["total_input_tokens"]),
        total_output_tokens=int(raw["total_output_tokens"]),
        input_lens=tuple(int(length) for length in raw.get("input_lens", ())),
        output_lens=tuple(int(length) for length in raw.get("output_lens", ())),
        errors=_errors(raw),
        raw=raw,
    )


def _errors(raw: dict[str, Any]) -> dict[str, int]:
    """Distinct error texts by their last line, which names the exception; clients save whole tracebacks."""
    texts = [str(text).strip() for text in raw.get("errors", ()) if text and str(text).strip()]
    return dict(Counter(text.splitlines()[-1].strip() for text in texts))
