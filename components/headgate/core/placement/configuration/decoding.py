"""A document as a Struct, with every error naming the field and the remedy."""

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

from headgate.core.config.fields import ConfigurationError, nearest

_UNKNOWN: Final = re.compile(r"Object contains unknown field `([^`]*)`(?: - at `\$([^`]*)`)?")
_WRONG: Final = re.compile(r"(.*?)(?: - at `\$([^`]*)`)?")
_STEP: Final = re.compile(r"\.([A-Za-z0-9_]+)|\[(\d+|\.\.\.)\]")

Of = TypeVar("Of")


def decoded(document: Any, kind: type[Of], path: str = "") -> Of:
    """
    A document (as parsed from YAML or JSON) as a Struct. Null is as if the field were left out.

    Raises ConfigurationError for an unknown field, and for a value of another type.
    """
    try:
        return msgspec.convert(_without_nulls(document), kind)
    except msgspec.ValidationError as error:
        raise _explained(str(error), kind, path) from error


def _without_nulls(document: Any) -> Any:
    match document:
        case Mapping():
            return {key: _without_nulls(value) for key, value in document.items() if value is not None}
        case list():
            return [_without_nulls(value) for value in document]
        case _:
            return document


def _explained(message: str, kind: type, path: str) -> ConfigurationError:
    unknown = _UNKNOWN.fullmatch(message)
    if unknown is not None:
        place = unknown[2] or ""
        known = _fields_at(inspect.type_info(kind), place)
        remedy = nearest(unknown[1], known) if known else "remove it"
        return ConfigurationError(f"{path}{place}.{unknown[1]}".lstrip("."), "there is no such field", remedy)
    wrong = _WRONG.fullmatch(message)
    problem, place = (wrong[1], wrong[2] or "") if wrong is not None else (message, "")
    return ConfigurationError(f"{path}{place}".lstrip("."), problem, "see KubeSchedulerConfiguration v1")


def _fields_at(kind: inspect.Type, place: str) -> list[str]:
    """The names of the fields of the Struct at a place such as `.profiles[0].plugins`; none where there is none."""
    at: inspect.Type | None = kind
    for step in _STEP.finditer(place):
        struct = _struct(at)
        if step[1] is not None:
            fields = struct.fields if struct is not None else ()
            at = next((field.type for field in fields if field.encode_name == step[1]), None)
        else:
            at = _item(at)
    struct = _struct(at)
    return [field.encode_name for field in struct.fields] if struct is not None else []


def _struct(kind: inspect.Type | None) -> inspect.StructType | None:
    match kind:
        case inspect.StructType():
            return kind
        case inspect.UnionType(types=types):
            return next((each for each in types if isinstance(each, inspect.StructType)), None)
        case _:
            return None


def _item(kind: inspect.Type | None) -> inspect.Type | None:
    match kind:
        case inspect.VarTupleType(item_type=item):
            return item
        case _:
            return None
