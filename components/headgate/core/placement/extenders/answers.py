"""
What extenders answer, read as Go reads it: the types `extender/v1`, from JSON.

Go matches the names of fields whatever their case, takes null for nothing, passes over fields that it does not know,
and reads the first JSON value of a body only. Values of another type are errors, and so are numbers that are no 64-bit
integers. What is read says nothing yet of whether it makes sense (`calls`).
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from headgate.core.placement.extenders.requests import ExtenderAsk
from headgate.events.extenders import (
    ANSWER_BYTES_MAX,
    ExtenderAnswer,
    ExtenderBound,
    ExtenderFailed,
    ExtenderFiltered,
    ExtenderPreempted,
    ExtenderPrioritized,
    ExtenderVictims,
)

ERROR_LEN_MAX: Final = 4096
"""Characters of an extender's error that are kept."""

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no value")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)


class AnswerUnreadableError(Exception):
    """Raised for an answer that is not what the type says: the field, and what is wrong with it."""


def read_answer(ask: ExtenderAsk, status: int, body: bytes) -> ExtenderAnswer:
    """
    The answer to a call, of the status and body of its end (`Completed`).

    A status of 0 means that there was no answer; the body then says why.
    """
    url = f"{ask.extender.rstrip('/')}/{ask.path}"
    if status == 0:
        return failed(body.decode(errors="replace"), url)
    if status != 200:
        return failed(f"failed {ask.path} with extender at URL {url}, code {status}", url)
    try:
        answer = _read(ask, _first_value(body))
    except AnswerUnreadableError as error:
        return failed(f"cannot read the answer: {error}", url)
    if isinstance(answer, ExtenderFailed):
        return failed(answer.error, url)
    size = len(msgspec.json.encode(answer))
    if size > ANSWER_BYTES_MAX:
        return failed(
            f"the answer has {size} bytes without what is not needed of it, more than {ANSWER_BYTES_MAX}: "
            "let the extender send shorter messages, or lower percentageOfNodesToScore",
            url,
        )
    return answer


def failed(error: str, name: str) -> ExtenderFailed:
    """An error that names the extender."""
    if len(error) > ERROR_LEN_MAX:
        error = f"{error[:ERROR_LEN_MAX]}... ({len(error)} characters)"
    return ExtenderFailed(error=named(error, name))


def named(error: str, name: str) -> str:
    """An error's text, with the name of the extender unless it has it."""
    return error if name in error else f'extender "{name}": {error}'


def _read(ask: ExtenderAsk, value: Any) -> ExtenderAnswer:
    match ask.verb:
        case "filter":
            return _filtered(value, by_name=ask.body["NodeNames"] is not None)
        case "prioritize":
            return _prioritized(value)
        case "preempt":
            return _preempted(value)
        case "bind":
            error = _text(_fields(value, "the answer"), "Error")
            return ExtenderFailed(error=error) if error else ExtenderBound()


def _first_value(body: bytes) -> Any:
    text = body.decode(errors="replace").lstrip(" \t\r\n")
    if not text:
        raise AnswerUnreadableError("it is empty")
    try:
        value, _ = _DECODER.raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise AnswerUnreadableError(f"it is no JSON: {error}") from error
    return value


# --- the answers -----------------------------------------------------------------------------------------------------


def _filtered(value: Any, *, by_name: bool) -> ExtenderFiltered | ExtenderFailed:
    fields = _fields(value, "the answer")
    error = _text(fields, "Error")
    names = _names(fields)
    nodes = _nodes(fields)
    without = _messages(fields, "FailedNodes")
    without_for_good = _messages(fields, "FailedAndUnresolvableNodes")
    if error:
        return ExtenderFailed(error=error)
    left = names if by_name and names is not None else nodes
    return ExtenderFiltered(
        nodes=tuple(left or ()),
        failed=_by_message((node, said) for node, said in without.items() if node not in without_for_good),
        unresolvable=_by_message(without_for_good.items()),
    )


def _names(fields: Mapping[str, Any]) -> list[str] | None:
    listed = _list(fields, "NodeNames")
    return None if listed is None else [_as_text(each, "NodeNames") for each in listed]


def _nodes(fields: Mapping[str, Any]) -> list[str] | None:
    """The names of the Node objects, of which nothing else is needed."""
    value = _get(fields, "Nodes")
    if value is None:
        return None
    items = _list(_fields(value, "Nodes"), "items") or []
    metadata = (_get(_fields(item, "Nodes.items"), "metadata") for item in items)
    return [_text(_fields(each, "Nodes.items.metadata"), "name") for each in metadata]


def _messages(fields: Mapping[str, Any], name: str) -> dict[str, str]:
    value = _get(fields, name)
    if value is None:
        return {}
    return {node: _as_text(message, f"{name}[{node}]") for node, message in _object(value, name).items()}


def _by_message(messages: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for node, message in messages:
        found.setdefault(message, []).append(node)
    return {message: tuple(sorted(nodes)) for message, nodes in found.items()}


def _prioritized(value: Any) -> ExtenderPrioritized:
    scores: dict[str, int] = {}
    for each in _as_list(value, "the answer") or ():
        fields = _fields(each, "a score")
        host = _text(fields, "Host")
        scores[host] = scores.get(host, 0) + _number(fields, "Score")
    beyond = next((host for host, score in scores.items() if not INT_MIN <= score <= INT_MAX), None)
    if beyond is not None:
        raise AnswerUnreadableError(f"the scores of {beyond!r} add up to {scores[beyond]}, which is no 64-bit integer")
    return ExtenderPrioritized(scores=scores)


def _preempted(value: Any) -> ExtenderPreempted:
    victims: dict[str, ExtenderVictims] = {}
    of_nodes = _get(_fields(value, "the answer"), "NodeNameToMetaVictims")
    for node, of_node in _object(of_nodes, "NodeNameToMetaVictims").items() if of_nodes is not None else ():
        at = f"NodeNameToMetaVictims[{node}]"
        if of_node is None:
            raise AnswerUnreadableError(f"{at} is null")
        fields = _fields(of_node, at)
        pods = _list(fields, "Pods") or []
        if None in pods:
            raise AnswerUnreadableError(f"{at}.Pods has a null")
        victims[node] = ExtenderVictims(
            pods=tuple(_text(_fields(pod, f"{at}.Pods"), "UID") for pod in pods),
            violations=_number(fields, "NumPDBViolations"),
        )
    return ExtenderPreempted(victims=victims)


# --- values as Go reads them -----------------------------------------------------------------------------------------


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise AnswerUnreadableError(f"{what} is {_kind(value)}, not an object")
    return value


def _fields(value: Any, what: str) -> dict[str, Any]:
    """The fields of a struct by their names in lower case; of null, none. Of two of one name the later counts."""
    return {} if value is None else {name.lower(): each for name, each in _object(value, what).items()}


def _get(fields: Mapping[str, Any], name: str) -> Any:
    return fields.get(name.lower())


def _list(fields: Mapping[str, Any], name: str) -> list[Any] | None:
    return _as_list(_get(fields, name), name)


def _as_list(value: Any, what: str) -> list[Any] | None:
    if value is not None and not isinstance(value, list):
        raise AnswerUnreadableError(f"{what} is {_kind(value)}, not an array")
    return value


def _text(fields: Mapping[str, Any], name: str) -> str:
    return _as_text(_get(fields, name), name)


def _as_text(value: Any, what: str) -> str:
    if value is not None and not isinstance(value, str):
        raise AnswerUnreadableError(f"{what} is {_kind(value)}, not a string")
    return value or ""


def _number(fields: Mapping[str, Any], name: str) -> int:
    value = _get(fields, name)
    if value is None:
        return 0
    if type(value) is not int or not INT_MIN <= value <= INT_MAX:
        raise AnswerUnreadableError(f"{name} is {_kind(value)}, not a 64-bit integer")
    return value


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return f"the number {value}"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"
