"""IPython as the console's prompt. Imported only where a console is opened; without IPython that is an ImportError."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher
from IPython.terminal.interactiveshell import TerminalInteractiveShell
from IPython.terminal.ipapp import TerminalIPythonApp
from prompt_toolkit import Application

from fleet import ui
from fleet.model.base import Model
from fleet.shell.faults import message
from fleet.shell.shown import shown

if TYPE_CHECKING:
    from fleet.shell.names import Ending, Names


class Shell(TerminalInteractiveShell):
    """IPython's terminal, in which an error is one message, and SIGTERM is the end."""

    names: Names
    ending: Ending
    status = 0

    def prompt_for_code(self) -> str:
        return str(self.ending.line(super().prompt_for_code))

    def stop_prompt(self) -> bool:
        """End the prompt as Ctrl-D does, from its own event loop; False where none is shown."""
        app = self.pt_app.app if self.pt_app else None
        if app is None or not app.is_running or app.loop is None:
            return False
        app.loop.call_soon_threadsafe(_exit, app)
        return True

    def showtraceback(self, exc_tuple: Any = None, *args: Any, **options: Any) -> None:
        error = exc_tuple[1] if exc_tuple else sys.exc_info()[1]
        if isinstance(error, SystemExit):
            self.status = error.code if isinstance(error.code, int) else 0
            self.keep_running = False
            return
        told = None if error is None or _own(error) else message(error, self.names)
        if told is None:
            super().showtraceback(exc_tuple, *args, **options)
        else:
            ui.complain(told)


def _exit(app: Application[Any]) -> None:
    if app.is_running and not app.is_done:
        app.exit(exception=EOFError())


def _own(error: BaseException) -> bool:
    """Whether IPython itself tells it in a line: a magic command that is not there, or faulty syntax."""
    return isinstance(error, SyntaxError) or type(error).__module__.startswith("IPython.")


def interact(names: Names, ending: Ending) -> int:
    """Until it is left; the exit code."""
    app = TerminalIPythonApp.instance(user_ns=names, interactive_shell_class=Shell)
    app.initialize(["--no-banner", "--no-confirm-exit"])
    shell = app.shell
    assert isinstance(shell, Shell)
    assert shell.display_formatter is not None
    shell.names, shell.ending = names, ending
    ending.stop = shell.stop_prompt
    shell.Completer.custom_matchers.append(_matcher(names))
    shell.display_formatter.formatters["text/plain"].for_type(Model, _pretty)
    app.start()
    return shell.status


def _pretty(value: Model, printer: Any, cycle: bool) -> None:
    printer.text(shown(value))


def _matcher(names: Names) -> Any:
    def fleet_matcher(context: CompletionContext) -> SimpleMatcherResult:
        found = names.offer(context.text_until_cursor)
        if found is None:
            return {"completions": []}
        words = [SimpleCompletion(word, type="param") for word in found.words]
        return {"completions": words, "matched_fragment": found.typed, "suppress": True}

    return context_matcher()(fleet_matcher)
