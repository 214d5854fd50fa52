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

from invoke.exceptions import Exit
from invoke.parser.argument import Argument
from invoke.tasks import Task, task

from fleet import argv
from fleet.errors import FleetError, Interrupted, UsageError, cited, harmless, shown
from fleet.streams import OutputLost, forsake, forsake_terminal, said

if TYPE_CHECKING:
    from fleet.settings import Settings

EXPLAINED = "explained"
"""A task's attribute: what each of its arguments means. Invoke empties `task.help` as it reads it."""

ROOT = Path(__file__).resolve().parent.parent
GONE = "the folder that this shell stands in is gone\ntype: cd FOLDER, and the command again"


class Long(str):
    """The name of an argument that Invoke takes for two letters long: `a` gets the flag --a, where Invoke has -a."""

    __slots__ = ()

    def __len__(self) -> int:
        return 2

    def lstrip(self, chars: str | None = None, /) -> Long:
        return self

    def rstrip(self, chars: str | None = None, /) -> Long:
        return self

    def replace(self, *_: object) -> Long:
        return self


class Verb(Task[Any]):
    """A task whose flags have two dashes, all of them."""

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        found = super().get_arguments(ignore_unknown_help)
        for argument in found:
            argument.names = tuple(Long(name) if len(name) == 1 else name for name in argument.names)
        return found


def verb(
    flags: Mapping[str, str], *, many: Sequence[str] = (), **options: Any
) -> Callable[[Callable[..., Any]], Task[Any]]:
    """Make a function an Invoke task: no positionals, no short flags, help from `flags`, `many` may be repeated.

    The function returns None or an exit code; errors are told by `answered`. Help states the defaults.
    """

    def decorate(body: Callable[..., Any]) -> Task[Any]:
        @functools.wraps(body)
        def run(*args: Any, **kwargs: Any) -> None:
            with answered():
                code = body(*args, **kwargs)
                sys.stdout.flush()
            if code:
                raise Exit(code=int(code))

        parameters = list(inspect.signature(body).parameters.values())[1:]
        help_texts = {one.name: _help(flags[one.name.rstrip("_")], one.default) for one in parameters}
        plain = {"positional": [], "auto_shortflags": False, "klass": Verb}
        made = task(run, help=help_texts, iterable=list(many), **plain, **options)
        assert isinstance(made, Task)
        vars(made)[EXPLAINED] = dict(help_texts)
        return made

    return decorate


def _help(text: str, default: object) -> str:
    """A flag's help; the default is added where the text does not speak of it."""
    return text if not default or "default" in text else f"{text} (default: {default})"


@contextmanager
def answered() -> Iterator[None]:
    """Turn what a verb raises into Invoke's Exit: its message goes to stderr, its code ends the program."""
    try:
        with ended_like_interrupted():
            yield
    except Exit:
        raise
    except BrokenPipeError:
        forsake()
        raise Exit(code=128 + signal.SIGPIPE) from None
    except (Exception, KeyboardInterrupt) as error:
        message, code = told(error)
        if debugging():
            message = "".join(traceback.format_exception(error)) + message
        raise Exit(harmless(message), code=code) from error


@contextmanager
def ended_like_interrupted(instead: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """SIGTERM, and SIGHUP of a closed terminal, end a verb like ^C: logs come home, our containers go. An ignored
    SIGHUP (nohup) stays ignored. instead: asked first, and where it answers True that is all.

    A terminal that closes sends SIGHUP by the kernel and again by the shell: a second one is no second ^C.
    """
    hung_up = False

    def interrupt(signum: int, _: object) -> None:
        nonlocal hung_up
        if signum == signal.SIGHUP and hung_up:
            return
        hung_up = hung_up or signum == signal.SIGHUP
        forsake_terminal()
        if not instead():
            raise KeyboardInterrupt

    wanted = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is not signal.SIG_IGN]
    handlers = {one: signal.signal(one, interrupt) for one in wanted}
    try:
        yield
    finally:
        for one, handler in handlers.items():
            signal.signal(one, handler)


def told(error: BaseException) -> tuple[str, int]:
    """The message and the exit code that an error ends a verb with."""
    if isinstance(error, FleetError):
        return str(error), error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", Interrupted.exit_code
    if isinstance(error, OutputLost):
        forsake()
        return said(error), FleetError.exit_code
    if isinstance(error, FileNotFoundError) and gone():
        return GONE, UsageError.exit_code
    if isinstance(error, ModuleNotFoundError) and (error.name or "fleet").partition(".")[0] != "fleet":
        return f"the Python package {error.name} is not installed here\ntype: make install", UsageError.exit_code
    return (
        f"a fault in fleet itself: {type(error).__name__}: {shown(' '.join(str(error).split())) or 'no message'}\n"
        "please report it with the run's folder under results/; FLEET_DEBUG=1 before the command shows where it arose",
        FleetError.exit_code,
    )


def gone() -> bool:
    """Whether the working directory was removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def settings(context: Any, inventory: str = "") -> Settings:
    """What files and environment say under `fleet:`, with the inventory of the flag where one is given."""
    from fleet import sources
    from fleet.settings import read

    config = context.config
    runtime = getattr(config, "_runtime_path", None) or ""
    return read(
        config.get(sources.OURS, {}),
        ROOT,
        inventory=inventory,
        variables=sources.variables(),
        over=(getattr(config, "_runtime", None) or {}).get(sources.OURS, {}),
        files=sources.yaml_files(ROOT, runtime),
    )


def words(values: Sequence[str] | None) -> tuple[str, ...]:
    """Values of a flag that may be repeated or hold a list with commas."""
    return argv.listed(values or ())


def numbers(flag: str, values: Sequence[str] | None) -> tuple[int, ...]:
    """Like `words`, for whole numbers. Raises UsageError."""
    kind, found = argv.NUMBERS[flag], []
    for text in words(values):
        try:
            found.append(argv.whole(text, kind))
        except ValueError as error:
            what = f"{flag} takes {error}, {cited(text)} was given"
            raise UsageError(what, hint=f"type: {flag} {kind.example}") from None
    return tuple(found)


def debugging() -> bool:
    """Whether the operator asked for tracebacks: FLEET_DEBUG, or Invoke's --debug."""
    return bool(os.environ.get("FLEET_DEBUG")) or logging.getLogger("invoke").isEnabledFor(logging.DEBUG)
