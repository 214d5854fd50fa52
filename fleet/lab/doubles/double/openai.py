"""What OpenAI-compatible servers share: requests understood, answers written, in a stream or whole."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from double.failures import Failures
from double.http import Exchange, Request

FRAME = "<｜Assistant｜>"
FRAME_TOKENS = 4
WORDS = tuple(f" w{n}" for n in range(64))
DEFAULT_CONTEXT = 1_048_576
COMPLETIONS = ("/v1/completions", "/v1/chat/completions")


def model_context(model: Path) -> int:
    """The longest sequence of the model itself, in tokens."""
    try:
        return int(json.loads((model / "config.json").read_text())["max_position_embeddings"])
    except (OSError, ValueError, KeyError, TypeError):
        return DEFAULT_CONTEXT


class BadRequest(Exception):
    """A request that is answered with an error: status and text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Job:
    """A completion, understood."""

    number: int
    chat: bool
    prompt_tokens: int
    framed: bool
    max_tokens: int
    stream: bool
    usage: bool
    kv: dict[str, Any] | None

    @property
    def id(self) -> str:
        return f"{'chatcmpl' if self.chat else 'cmpl'}-{self.number}"


def understood(request: Request, number: int, name: str, context: int, cut: int | None) -> Job:
    """A completion request. name, context: of the served model; cut: answers are no longer. Raises BadRequest."""
    try:
        body = request.json()
        chat = request.path.endswith("/chat/completions")
        prompt = chat_text(body["messages"]) if chat else body["prompt"]
    except (ValueError, KeyError, TypeError) as error:
        raise BadRequest(400, f"not a completion request: {error!r}") from None
    if body.get("model", name) != name:
        raise BadRequest(404, f"The model `{body['model']}` does not exist.")
    tokens = len(prompt) if isinstance(prompt, list) else len(prompt.split())
    tokens += FRAME_TOKENS if chat else 0
    most = body.get("max_completion_tokens") or body.get("max_tokens") or 16
    if tokens + most > context:
        raise BadRequest(400, f"prompt ({tokens}) and max_tokens ({most}) exceed the model's maximum length {context}")
    framed = chat or (isinstance(prompt, str) and FRAME in prompt)
    usage = bool((body.get("stream_options") or {}).get("include_usage"))
    return Job(
        number,
        chat,
        tokens,
        framed,
        min(most, cut or most),
        bool(body.get("stream")),
        usage,
        body.get("kv_transfer_params"),
    )


def chat_text(messages: list[dict[str, Any]]) -> str:
    return " ".join(_content(message["content"]) for message in messages)


def _content(content: Any) -> str:
    """A message's text: as it stands, or in parts."""
    return " ".join(part["text"] for part in content) if isinstance(content, list) else str(content)


class Writer:
    """Writes one answer, in a stream or whole."""

    def __init__(self, job: Job, exchange: Exchange, model: str) -> None:
        self.job = job
        self.exchange = exchange
        self.text: list[str] = []
        self.written = 0
        kind = "chat.completion" if job.chat else "text_completion"
        stamp = {"id": job.id, "created": int(time.time()), "model": model}
        self.base = stamp | {"object": kind + (".chunk" if job.chat and job.stream else "")}
        self.prefix = json.dumps(self.base)[:-1]
        if job.stream:
            exchange.start_stream()

    def emit(self, tokens: int, last: bool) -> bool:
        words = "".join(WORDS[n % len(WORDS)] for n in range(self.written, self.written + tokens))
        self.written += tokens
        if not self.job.stream:
            self.text.append(words)
            return not self.exchange.gone
        reason = '"length"' if last else "null"
        content = f'"delta": {{"content": "{words}"}}' if self.job.chat else f'"text": "{words}", "logprobs": null'
        choice = f'{{"index": 0, {content}, "finish_reason": {reason}}}'
        self.exchange.event(f'{self.prefix}, "choices": [{choice}]}}'.encode())
        return not self.exchange.gone

    def end(self, kv: dict[str, Any] | None) -> None:
        job = self.job
        used = {"prompt_tokens": job.prompt_tokens, "completion_tokens": self.written}
        usage = {"usage": used | {"total_tokens": job.prompt_tokens + self.written}}
        if job.stream:
            if job.usage:
                self.exchange.event(json.dumps(self.base | {"choices": []} | usage).encode())
            self.exchange.event(b"[DONE]")
            self.exchange.end_stream()
            return
        text = "".join(self.text)
        content = {"message": {"role": "assistant", "content": text}} if job.chat else {"text": text, "logprobs": None}
        choice = {"index": 0, **content, "finish_reason": "length"}
        relay = {"kv_transfer_params": kv} if kv else {}
        self.exchange.json(200, self.base | {"choices": [choice]} | usage | relay)


def leave() -> None:
    """End this process with 0, at once: what is under way is dropped, as no task is to hold up a stop."""
    sys.stdout.flush()
    os._exit(0)


async def until_told(work: Coroutine[Any, Any, int]) -> int:
    """The work's result; the process ends with 0 as soon as it is told to stop."""
    loop = asyncio.get_running_loop()
    deaf = "ignore-term" in Failures(os.environ.get("FLEET_DOUBLE_FAIL", ""))
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, (lambda: None) if deaf else leave)
    return await work
