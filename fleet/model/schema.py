"""From a document to a pydantic model: every fault with its line, the value as written and what to type."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fleet.errors import Fault
from fleet.model.near import did_you_mean, nearest
from fleet.model.yamlfile import Document, Key, Node

M = TypeVar("M", bound=BaseModel)
Keys = tuple[Key, ...]


def check(document: Document, keys: Keys, model: type[M]) -> tuple[M | None, list[Fault]]:
    """The value at `keys` as a model, or its faults. Null is refused wherever it stands."""
    node = document.node(*keys)
    nulls = list(_nulls(node, keys)) if node else []
    faults = [_null_fault(document, at) for at in nulls]
    told = set(nulls)
    try:
        text = json.dumps(node.data if node else None)
        found = model.model_validate_json(text, by_alias=True, by_name=False)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=True)
        meant = _meant(details, model)
        faults += [
            _fault(document, keys, detail, model)
            for detail in details
            if (at := keys + _place(detail)) not in told
            and not document.blamed(*at)
            and not (detail["type"] == "missing" and tuple(detail["loc"]) in meant)
        ]
        return None, faults
    return (None if faults else found), faults


def keys_of(model: type[BaseModel]) -> list[str]:
    """The keys a model reads from a file."""
    return [info.alias or name for name, info in model.model_fields.items()]


def owner(keys: Keys) -> str:
    """The short name of the place at `keys`: search-space[0], decode, scenarios."""
    words = ""
    for key in reversed(keys):
        if isinstance(key, str):
            return key + words
        words = f"[{key}]" + words
    return words


def wrong(document: Document, keys: Keys, text: str) -> Fault:
    """A fault of the value at `keys`, in the house's form: `key: value as written  what is wrong`."""
    return document.fault(keys, f"{owner(keys)}: {document.written(*keys)}  {text}")


def was_written(node: Node | None) -> str:
    if node is None or (node.kind == "scalar" and node.value is None):
        return "nothing"
    if node.kind != "scalar":
        return f"a {node.kind}"
    if isinstance(node.value, bool):
        return "true or false"
    if isinstance(node.value, int | float):
        return "a number" if isinstance(node.value, int) else "a number with a point"
    return "quoted text" if node.written[:1] in ("'", '"') and _number(node.value) else "text"


def _number(value: object) -> bool:
    return isinstance(value, str) and value.strip().lstrip("-").isdigit()


def _nulls(node: Node, keys: Keys) -> Iterator[Keys]:
    if node.bad:
        return
    if node.kind == "scalar" and node.value is None:
        yield keys
    for key, child in node.entries.items():
        yield from _nulls(child, (*keys, key))
    for index, child in enumerate(node.items):
        yield from _nulls(child, (*keys, index))


def _null_fault(document: Document, keys: Keys) -> Fault:
    return document.fault(
        keys,
        f"{owner(keys)}: {document.written(*keys)}".rstrip() + "  no value is written; give one or take the key out",
    )


def _meant(details: list[ErrorDetails], model: type[BaseModel]) -> set[Keys]:
    """The known keys that unknown keys are near to: told with those, not once more as missing."""
    places = [tuple(detail["loc"]) for detail in details if detail["type"] == "extra_forbidden"]
    return {(*loc[:-1], near) for loc in places if (near := nearest(str(loc[-1]), _known(model, loc)))}


def _place(detail: ErrorDetails) -> Keys:
    """Where a fault is; pydantic marks one of a mapping's key itself with a last word."""
    loc = tuple(detail["loc"])
    return loc[:-1] if loc[-1:] == ("[key]",) else loc


def _known(model: type[BaseModel], loc: Keys) -> list[str]:
    return keys_of(_model_at(model, loc[:-1]) or model)


def _fault(document: Document, base: Keys, detail: ErrorDetails, model: type[BaseModel]) -> Fault:
    loc = _place(detail)
    keys = base + loc
    kind = detail["type"]
    if kind == "missing":
        return document.fault(keys[:-1], f"{keys[-1]}  missing in {owner(keys[:-1]) or 'this file'}")
    if kind == "extra_forbidden":
        key = str(keys[-1])
        return document.fault(keys, f"{key}  unknown key in {owner(keys[:-1])}{did_you_mean(key, _known(model, loc))}")
    return wrong(document, keys, _message(detail, document.node(*keys)))


_EXPECTED = {
    "int_type": "whole number",
    "int_parsing": "whole number",
    "int_from_float": "whole number",
    "float_type": "number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}


def _message(detail: ErrorDetails, node: Node | None) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in _EXPECTED:
        return f"{_EXPECTED[kind]} expected, {was_written(node)} was written{_advice(kind, node)}"
    if kind == "literal_error":
        choices = [word.strip("'") for word in str(context["expected"]).replace(" or ", ", ").split(", ")]
        return _choice(choices, node)
    if kind in ("too_short", "string_too_short"):
        return "the list is empty" if kind == "too_short" else "the text is empty"
    for name, words in (("gt", "above"), ("ge", "at least"), ("lt", "below"), ("le", "at most")):
        if name in context:
            return f"must be {words} {context[name]}"
    return detail["msg"].removeprefix("Value error, ")


def _advice(kind: str, node: Node | None) -> str:
    if node is None or node.kind != "scalar":
        return ""
    if kind.startswith(("int", "float")) and _number(node.value):
        return f"; type {node.value}"
    if kind.startswith("int") and isinstance(node.value, float) and node.value.is_integer():
        return f"; type {node.value:.0f}"
    if kind == "bool_type" and str(node.value).lower() in ("true", "yes", "on", "false", "no", "off"):
        return f"; type {'true' if str(node.value).lower() in ('true', 'yes', 'on') else 'false'}"
    if kind == "string_type" and node.value is not None:
        return f'; type "{node.written}"'
    return ""


def _choice(choices: list[str], node: Node | None) -> str:
    if set(choices) <= {"True", "False"}:
        if node is not None and isinstance(node.value, bool):
            return f"must be {choices[0].lower()} here"
        return f"true or false expected, {was_written(node)} was written{_advice('bool_type', node)}"
    hint = nearest(str(node.value), choices) if node else None
    return f"one of {', '.join(choices)} expected" + (f"; did you mean {hint}?" if hint else "")


def _model_at(model: type[BaseModel], loc: Keys) -> type[BaseModel] | None:
    """The model whose keys stand at `loc` below `model`."""
    kind: Any = model
    for key in loc:
        if isinstance(key, int):
            kind = get_args(kind)[0] if get_args(kind) else None
        elif isinstance(kind, type) and issubclass(kind, BaseModel):
            field = next((info for name, info in kind.model_fields.items() if (info.alias or name) == key), None)
            kind = _bare(field.annotation) if field else None
        elif get_origin(kind) is dict:
            kind = get_args(kind)[1]
        kind = _bare(kind)
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _bare(kind: Any) -> Any:
    """Without `| None` and the like."""
    if get_origin(kind) in (Union, types.UnionType):
        return next(arg for arg in get_args(kind) if arg is not type(None))
    return kind
