"""The first look at a process that Invoke runs: its streams, its command line, and the files that hold its settings.

`guard` is called at the end of tasks.py, which Invoke loads before it parses the command line and reads invoke.yaml.
What is wrong ends the program with one message; pleas for help and for the list of verbs do no work.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from pathlib import PurePath
from types import TracebackType
from typing import Any

from fleet import front, streams
from fleet.advice import check, detour
from fleet.argv import Flag, Verb, Word, completing, core_of, split, verbs_of
from fleet.errors import FleetError, UsageError, shown

__all__ = ["Flag", "Verb", "Word", "check", "core_of", "detour", "guard", "split", "verbs_of"]

SETTINGS_HINT = (
    "look at invoke.yaml, INVOKE_… variables and the flags before the verb; FLEET_DEBUG=1 shows where it arose"
)


def guard(
    collection: Any, day: Mapping[str, Sequence[str]] | None = None, *, argv: MutableSequence[str] = sys.argv
) -> None:
    """Look at this process before Invoke goes on; ends the program when Invoke shall not see its command line.

    day: which verbs the list shows below which word. Does nothing in a process that Invoke does not run (tests, a
    Python console).
    """
    if not _runs_invoke(argv):
        return
    from invoke.exceptions import Exit
    from invoke.main import program

    streams.prepare()
    sys.excepthook = unexpected
    if front.gone():
        raise Exit(front.GONE, code=UsageError.exit_code)
    verbs, core = verbs_of(collection), core_of(program)
    if completing(argv, core):
        from fleet import completion

        completion.answer(argv, verbs, core)
        raise Exit(code=0)
    instead = detour(argv, verbs, core)
    asked = list(argv[1:]) if instead is None else instead
    if not any(word.kind == "verb" for word in split([argv[0], *asked], verbs, core)):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `invoke --list | head` is no fault
    if asked in (["--list"], ["-l"]):
        from fleet import listing

        listing.show(collection, day or {})
        raise Exit(code=0)
    if asked != argv[1:]:
        argv[1:] = asked
        program.run(list(argv))
    refusal = check(argv, verbs, core)
    if refusal:
        raise Exit(str(refusal), code=refusal.code)
    with front.answered():
        _settings_files(split(argv, verbs, core))


def _settings_files(words: Iterable[Word]) -> None:
    """The files that Invoke reads next."""
    from fleet import sources

    sources.take()
    given = [word.value or "" for word in words if not word.verb and word.flag and word.flag.name == "--config"]
    sources.check(front.ROOT, given[-1] if given else os.environ.get(sources.RUNTIME, ""))


def unexpected(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What Invoke itself raises, from its settings or its own flags, as one message with code 2; ^C with 130."""
    if os.environ.get("FLEET_DEBUG"):
        sys.__excepthook__(kind, error, trace)
    if isinstance(error, FleetError | KeyboardInterrupt | streams.OutputLost):
        message, code = front.told(error)
    else:
        said = shown(" ".join(str(error).split())) or "no message"
        message = f"Invoke cannot work with its settings or its own flags: {kind.__name__}: {said}\n{SETTINGS_HINT}"
        code = UsageError.exit_code
    with contextlib.suppress(OSError, ValueError):
        streams.complain(message)
        sys.stdout.flush()
    # The interpreter would end with 1 after any hook.
    os._exit(code)


def _runs_invoke(argv: Sequence[str]) -> bool:
    path = PurePath(argv[0] if argv else "")
    return path.name in ("invoke", "inv") or path.parts[-2:] == ("invoke", "__main__.py")
