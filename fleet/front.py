"""How a verb becomes an Invoke task, and how what it raises becomes one message and an exit code.

Loaded with every `invoke --list`, so it imports nothing heavy.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from invoke.exceptions import Exit
from invoke.tasks import Task, task

from fleet.errors import Fault, FileFaults, FleetError, Interrupted, UsageError

if TYPE_CHECKING:
    from fleet.settings import Settings

ROOT = Path(__file__).resolve().parent.parent


def verb(
    flags: Mapping[str, str], *, many: Sequence[str] = (), **options: Any
) -> Callable[[Callable[..., Any]], Task[Any]]:
    """Make a function an Invoke task: no positionals, no short flags, help from `flags`, `many` may be repeated.

    The function returns None or an exit code; errors are told by `answered`.
    """

    def decorate(body: Callable[..., Any]) -> Task[Any]:
        @functools.wraps(body)
        def run(*args: Any, **kwargs: Any) -> None:
            with answered():
                code = body(*args, **kwargs)
            if code:
                raise Exit(code=int(code))

        names = list(inspect.signature(body).parameters)[1:]
        help_texts = {name: flags[name.rstrip("_")] for name in names}
        made = task(run, help=help_texts, positional=[], iterable=list(many), auto_shortflags=False, **options)
        assert isinstance(made, Task)
        return made

    return decorate


@contextmanager
def answered() -> Iterator[None]:
    """Turn what a verb raises into Invoke's Exit: its message goes to stderr, its code ends the program."""
    try:
        with ended_like_interrupted():
            yield
    except Exit:
        raise
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise Exit(code=128 + signal.SIGPIPE) from None
    except (Exception, KeyboardInterrupt) as error:
        message, code = told(error)
        if debugging():
            message = "".join(traceback.format_exception(error)) + message
        raise Exit(message, code=code) from error


@contextmanager
def ended_like_interrupted() -> Iterator[None]:
    """SIGTERM, and SIGHUP of a closed terminal, end a verb like ^C: logs come home, our containers go. An ignored
    SIGHUP (nohup) stays ignored."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    wanted = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, interrupt) for one in wanted}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def told(error: BaseException) -> tuple[str, int]:
    """The message and the exit code that an error ends a verb with."""
    if isinstance(error, FleetError):
        return str(error), error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", Interrupted.exit_code
    if isinstance(error, ModuleNotFoundError) and (error.name or "fleet").partition(".")[0] != "fleet":
        return f"the Python package {error.name} is not installed here\ntype: make install", UsageError.exit_code
    said = " ".join(str(error).split()) or "no message"
    return (
        f"a fault in fleet itself: {type(error).__name__}: {said}\n"
        "please report it with the run's folder under results/; FLEET_DEBUG=1 before the command shows where it arose",
        FleetError.exit_code,
    )


def settings(context: Any, inventory: str = "") -> Settings:
    """What invoke.yaml says under `fleet:`, with the inventory of the flag where one is given."""
    from fleet.settings import read

    return read(context.config.get("fleet", {}), ROOT, inventory=inventory)


def check_settings_file(path: Path = ROOT / "invoke.yaml") -> None:
    """Tell what Invoke, which reads the file after tasks.py, would answer with a traceback. Raises Exit."""
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        values, twice = yaml.safe_load(text), list(_given_twice(yaml.compose(text, yaml.SafeLoader)))
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise Exit(f"{path}: cannot be read: {error}\nnothing was started", code=UsageError.exit_code) from None
    if values is not None and not isinstance(values, dict):
        raise Exit(f"{path}: a mapping expected, `fleet: …`\nnothing was started", code=UsageError.exit_code)
    if twice:
        raise Exit(str(FileFaults(str(path), twice)), code=FileFaults.exit_code)


def _given_twice(node: yaml.Node | None) -> Iterator[Fault]:
    """Keys that stand twice in one mapping. Invoke would take the later one and say nothing."""
    if not isinstance(node, yaml.MappingNode):
        return
    lines: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if key.value in lines:
            yield Fault(line, f"{key.value}  is given twice (line {lines[key.value]}); keep one")
        lines.setdefault(key.value, line)
        yield from _given_twice(value)


def words(values: Sequence[str] | None) -> tuple[str, ...]:
    """Values of a flag that may be repeated or hold a list with commas."""
    return tuple(word.strip() for value in values or () for word in value.split(",") if word.strip())


def numbers(flag: str, values: Sequence[str] | None) -> tuple[int, ...]:
    """Like `words`, for whole numbers of at least 1. Raises UsageError."""
    texts = words(values)
    wrong = [text for text in texts if not text.isdecimal() or int(text) < 1]
    if wrong:
        raise UsageError(f"{flag} takes whole numbers of at least 1, {wrong[0]!r} was given", hint=f"type: {flag} 4,8")
    return tuple(int(text) for text in texts)


def debugging() -> bool:
    """Whether the operator asked for tracebacks: FLEET_DEBUG, or Invoke's --debug."""
    return bool(os.environ.get("FLEET_DEBUG")) or logging.getLogger("invoke").isEnabledFor(logging.DEBUG)
