"""Questions asked of an HTTP interface: what came back, and what a good answer looks like."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Response:
    """An HTTP answer. `body` is decoded from its transfer encoding."""

    status: int
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """Raises ValueError if the body is not JSON."""
        return json.loads(self.body)

    def table(self) -> Mapping[str, Any]:
        """The body as a JSON object; empty if it is anything else."""
        try:
            value = self.json()
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class Check:
    """One GET that a ready service answers well. `judge` returns "" if all is well, else what is wrong."""

    title: str
    path: str
    judge: Callable[[Response], str]


def answered(response: Response) -> str:
    """The plainest judge: status 200."""
    return "" if response.status == 200 else f"status {response.status}"


def serves(response: Response, model: str) -> str:
    """Judges /v1/models: the model is there under its served name."""
    if why := answered(response):
        return why
    names = [str(card.get("id")) for card in response.table().get("data", []) if isinstance(card, dict)]
    return "" if model in names else f"serves {', '.join(names) or 'nothing'} instead of {model}"
