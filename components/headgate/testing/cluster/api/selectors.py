"""
Label and field selectors: parsed once per request, then plain predicates over stored objects.

Label selectors are both the query form (`a=b,c!=d,e in (x,y),!f`) and the object form (`matchLabels`,
`matchExpressions`). Field selectors take the fields that the API server indexes for each kind and refuse others with
its words.
"""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from headgate.core.kubernetes.numbers import decimal
from headgate.testing.cluster.api import label_syntax
from headgate.testing.cluster.errors import bad_request

if TYPE_CHECKING:
    from headgate.testing.cluster.kinds import Kind

JsonObject = dict[str, Any]
Predicate = Callable[[JsonObject], bool]

_NOTHING: Final[Mapping[str, str]] = {}


class LabelRequirement:
    """One requirement on a set of labels."""

    __slots__ = ("key", "operator", "values")

    def __init__(self, key: str, operator: str, values: tuple[str, ...] = ()) -> None:
        self.key = key
        self.operator = operator
        self.values = values

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet the requirement (k8s.io/apimachinery/pkg/labels)."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt":
                number, bound = decimal(value), decimal(self.values[0])
                return number is not None and bound is not None and number > bound
            case "Lt":
                number, bound = decimal(value), decimal(self.values[0])
                return number is not None and bound is not None and number < bound
            case other:
                raise ValueError(f"unknown selector operator {other!r}")


def parse_label_selector(text: str) -> list[LabelRequirement]:
    """The requirements of a query's `labelSelector`. Raises ApiStatusError 400 if it cannot be parsed."""
    return [LabelRequirement(*term) for term in label_syntax.parse(text)]


def label_requirements(selector: JsonObject) -> list[LabelRequirement]:
    """The requirements of a `LabelSelector` object; an empty one matches everything."""
    equal = [LabelRequirement(key, "In", (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
    return equal + [
        LabelRequirement(expression["key"], expression["operator"], tuple(expression.get("values") or ()))
        for expression in selector.get("matchExpressions") or ()
    ]


def matches_labels(requirements: list[LabelRequirement], obj: JsonObject) -> bool:
    """Whether the object's labels meet all requirements."""
    labels = obj["metadata"].get("labels") or _NOTHING
    return all(requirement.matches(labels) for requirement in requirements)


_EVENT_SUBJECT: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "pods": (
        "metadata.namespace",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "jobs.batch": ("metadata.namespace", "status.successful"),
    "events": (
        "metadata.namespace",
        *(f"involvedObject.{field}" for field in _EVENT_SUBJECT),
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    "events.events.k8s.io": (
        "metadata.namespace",
        *(f"regarding.{field}" for field in _EVENT_SUBJECT),
        "reason",
        "reportingController",
        "type",
    ),
}
"""The fields beside the name by which kinds with a list of their own can be selected."""

_ELSEWHERE: Final = {
    ("jobs.batch", "status.successful"): ("status", "succeeded"),
}
"""Fields whose value is not at the path of their name."""


def parse_field_selector(kind: "Kind", version: str, text: str) -> list[tuple[tuple[str, ...], bool, str]]:
    """(path, equal?, value) of each term of a `fieldSelector`. Raises ApiStatusError 400 on an unindexed field."""
    terms = []
    for part in re.findall(r"((?:\\.|[^,\\])+\\?|\\$)", text):
        match = re.match(r"(.*?)(!=|==|=)(.*)$", part, re.DOTALL)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        field, value = match[1], _unescaped(match[3])
        _check_field(kind, version, field)
        path = _ELSEWHERE.get((kind.resource, field)) or tuple(field.split("."))
        terms.append((path, match[2] != "!=", value))
    return terms


def _unescaped(value: str) -> str:
    for found in re.finditer(r"\\(.?)|([,=])", value):
        if found[2]:
            raise bad_request(f"invalid field selector: unescaped character in value: {ord(found[2])}")
        if found[1] not in {"\\", ",", "="} or not found[1]:
            raise bad_request(f"invalid field selector: invalid escape sequence: {found[0]}")
    return re.sub(r"\\(.)", r"\1", value)


def _check_field(kind: "Kind", version: str, field: str) -> None:
    if field == "metadata.name":
        return
    if kind.custom:
        chosen = kind.selectable if version == kind.version else ()
        if f".{field}" not in chosen and not (field == "metadata.namespace" and kind.namespaced):
            raise bad_request(f"field label not supported: {field}")
    elif kind.resource in _FIELDS:
        if field not in _FIELDS[kind.resource]:
            named = f'field label "{field}" not supported for Job' if kind.resource == "jobs.batch" else ""
            raise bad_request(named or f"field label not supported: {field}")
    elif field != "metadata.namespace":
        raise bad_request(f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"')


def field_value(obj: JsonObject, path: tuple[str, ...]) -> str:
    """The value at a field path as a selector compares it: text, absent fields empty, booleans in lower case."""
    value: Any = obj
    for step in path:
        if not isinstance(value, dict):
            break
        value = value.get(step)
    match path:
        case ("spec", "unschedulable" | "hostNetwork"):
            return "true" if value else "false"
        case ("status", "succeeded"):
            return str(value or 0)
        case ("reportingComponent",):
            value = value or (obj.get("source") or {}).get("component")
        case _:
            pass
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        value = value.get("component")
    return "" if value is None else str(value)


def predicate(kind: "Kind", version: str, label_text: str, field_text: str) -> Predicate | None:
    """One predicate for both selectors of a request, or None when there are none. Raises ApiStatusError 400."""
    labels = parse_label_selector(label_text) if label_text else []
    fields = parse_field_selector(kind, version, field_text) if field_text else []
    if not labels and not fields:
        return None

    def matches(obj: JsonObject) -> bool:
        for path, equal, value in fields:
            if (field_value(obj, path) == value) is not equal:
                return False
        return matches_labels(labels, obj)

    return matches
