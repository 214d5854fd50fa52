"""The verbs of the command line as functions: the same names (dots become underscores), the same arguments.

They are made from the registered tasks, so what is a verb there is a function here.
"""

from __future__ import annotations

import builtins
import inspect
import keyword
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from fleet.argv import NUMBERS, whole
from fleet.errors import UsageError, shown
from fleet.front import EXPLAINED
from fleet.model.near import did_you_mean
from fleet.shell.shown import Named

LEFT_OUT = ("shell",)
"""A console in a console."""

DEFAULT = inspect.Parameter.empty


class Code(int):
    """The exit code of a verb that did not end well."""

    def __repr__(self) -> str:
        return f"(exit {int(self)})"


@dataclass(frozen=True)
class Argument:
    """One argument of a verb. kind: str, int or bool. many: one of them, or several."""

    name: str
    kind: type
    many: bool
    help: str

    @property
    def flag(self) -> str:
        return "--" + self.name.rstrip("_").replace("_", "-")


class Verb:
    """A verb, called as a function. It returns None if all is well, else an exit code, or raises a FleetError.

    verb: its name on the command line. defaults: what an argument is when it is not given, looked up at each call; ""
    is nothing.
    """

    def __init__(
        self,
        name: str,
        verb: str,
        task: Any,
        context: Any,
        defaults: Mapping[str, Callable[[], str]],
    ) -> None:
        self.name, self.verb = name, verb
        self._body, self._context, self._defaults = inspect.unwrap(task.body), context, defaults
        self.arguments = tuple(_arguments(self._body, getattr(task, EXPLAINED), task.iterable))
        self.__name__ = name
        self.__signature__ = _signature(self._body)
        self.__doc__ = f"{inspect.getdoc(self._body)}\n\n{self._described()}".rstrip()

    def __call__(self, *values: Any, **options: Any) -> Code | None:
        given = {name: self._value(name, value) for name, value in self._bound(values, options).items()}
        for argument in self.arguments:
            default = self._defaults.get(argument.name)
            if argument.name == "config" and given.get("resume"):
                continue  # a run has its own
            if default and argument.name not in given and (value := default()):
                given[argument.name] = value
        code = self._body(self._context, **given)
        return Code(code) if code else None

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(one.name for one in self.arguments)})\n{self.__doc__}"

    def _described(self) -> str:
        width = max((len(one.name) for one in self.arguments), default=0)
        return "\n".join(f"  {one.name:<{width}}  {one.help}" for one in self.arguments)

    def _bound(self, values: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments that are given; None counts as not given."""
        names = [one.name for one in self.arguments]
        takes = f"it takes: {', '.join(names)}" if names else "it takes no argument"
        for name in options:
            if name not in names:
                raise UsageError(f"{self.name} has no argument {name}{did_you_mean(name, names)}", hint=takes)
        if len(values) > len(names):
            raise UsageError(f"{self.name}: {len(values)} values were given, it has {len(names)}", hint=takes)
        placed = dict(zip(names, values, strict=False))
        for name in options:
            if name in placed:
                raise UsageError(
                    f"{self.name}: {name} is given twice: {_given(placed[name])} is in its place", hint=takes
                )
        return {name: value for name, value in (placed | dict(options)).items() if value is not None}

    def _value(self, name: str, value: Any) -> Any:
        argument = next(one for one in self.arguments if one.name == name)
        where = f"{self.name}: {name}"
        if argument.many:
            return _several(where, value)
        if argument.kind is bool:
            return _truth(where, value)
        return _number(where, value, argument.flag) if argument.kind is int else _word(where, value)


@dataclass(frozen=True)
class Tasks:
    """The tasks of an Invoke collection, and the context that they are called with."""

    collection: Any
    context: Any

    def verbs(self, defaults: Mapping[str, Callable[[], str]], taken: Iterable[str] = ()) -> dict[str, Verb]:
        """Every task under each of its names. taken: names that stand for something else."""
        found = {}
        for primary, aliases in self.collection.task_names.items():
            task = self.collection[primary]
            for name in (primary, *aliases):
                if name not in LEFT_OUT:
                    called = identifier(name, taken)
                    found[called] = Verb(called, primary, task, self.context, defaults)
        return found


def identifier(name: str, taken: Iterable[str] = ()) -> str:
    """A verb's name in Python: lab.up is lab_up, and exec, which Python has, exec_."""
    plain = name.replace(".", "_").replace("-", "_")
    return f"{plain}_" if keyword.iskeyword(plain) or hasattr(builtins, plain) or plain in taken else plain


def _arguments(body: Callable[..., Any], explained: Mapping[str, str], many: Iterable[str]) -> list[Argument]:
    return [
        Argument(name, type(one.default), name in many, explained[name])
        for name, one in _signature(body).parameters.items()
    ]


def _signature(body: Callable[..., Any]) -> inspect.Signature:
    """A task's, without its first parameter, the context."""
    signature = inspect.signature(body)
    return signature.replace(parameters=[*signature.parameters.values()][1:])


def _word(where: str, value: Any) -> str:
    """A text as it would be typed behind a flag."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float, PurePath, Named)):
        raise UsageError(f"{where}: a text expected, {_given(value)} was given")
    text = value.name if isinstance(value, Named) else str(value)
    if not text.strip(" ,"):
        raise UsageError(f"{where} was given an empty value", hint="leave it out, or give it one")
    return text


def _several(where: str, value: Any) -> list[str]:
    """One value, or any number of them but none: an empty list would mean everything."""
    if isinstance(value, (str, Named)) or not isinstance(value, Iterable):
        return [_word(where, value)]
    found = [_word(where, one) for one in value]
    if not found:
        raise UsageError(f"{where} was given an empty list, which would mean all", hint="leave it out to mean all")
    return found


def _truth(where: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{where} is True or False, {_given(value)} was given")
    return value


def _number(where: str, value: Any, flag: str) -> int:
    try:
        return whole("" if isinstance(value, bool) else str(value), NUMBERS[flag])
    except ValueError as error:
        raise UsageError(f"{where} takes {error}, {_given(value)} was given") from None


def _given(value: Any) -> str:
    return shown(repr(value))
