"""
Label and field selectors: parsed once per request, then plain predicates over stored objects.

Label selectors are both the query form (`a=b,c!=d,e in (x,y),!f`) and the object form (`matchLabels`,
`matchExpressions`). Field selectors take the fields that the API server indexes for each kind and refuse others with
its words.
"""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from headgate.testing.cluster.errors import ApiError, bad_request

if TYPE_CHECKING:
    from headgate.testing.cluster.kinds import Kind

JsonObject = dict[str, Any]
Predicate = Callable[[JsonObject], bool]

_SET: Final = re.compile(r"^\s*(\S+)\s+(in|notin)\s*\(([^)]*)\)\s*$")
_EQUAL: Final = re.compile(r"^\s*([^\s=!,()]+)\s*(==|=|!=)\s*([^\s=!,()]*)\s*$")
_COMPARE: Final = re.compile(r"^\s*([^\s=!,()<>]+)\s*([<>])\s*(-?\d+)\s*$")
_EXISTS: Final = re.compile(r"^\s*(!?)\s*([^\s=!,()]+)\s*$")
_NAME: Final = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$")
_NOTHING: Final[Mapping[str, str]] = {}


class Requirement:
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
                return value is not None and value.lstrip("-").isdigit() and int(value) > int(self.values[0])
            case "Lt":
                return value is not None and value.lstrip("-").isdigit() and int(value) < int(self.values[0])
            case other:
                raise ValueError(f"unknown selector operator {other!r}")


def parse_label_selector(text: str) -> list[Requirement]:
    """The requirements of a query's `labelSelector`. Raises ApiError 400 if it cannot be parsed."""
    return [_requirement(part, text) for part in _split(text) if part.strip()]


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        if char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def _requirement(part: str, whole: str) -> Requirement:
    if match := _SET.match(part):
        values = tuple(sorted(value.strip() for value in match[3].split(",")))
        found = Requirement(match[1], "In" if match[2] == "in" else "NotIn", values)
    elif match := _EQUAL.match(part):
        found = Requirement(match[1], "NotIn" if match[2] == "!=" else "In", (match[3],))
    elif match := _COMPARE.match(part):
        found = Requirement(match[1], "Gt" if match[2] == ">" else "Lt", (match[3],))
    elif match := _EXISTS.match(part):
        found = Requirement(match[2], "DoesNotExist" if match[1] else "Exists")
    else:
        raise bad_request(f"unable to parse requirement: found {part.strip()!r} in {whole!r}")
    if _NAME.match(found.key) is None:
        raise bad_request(
            f'unable to parse requirement: <nil>: Invalid value: "{found.key}": name part must '
            f"consist of alphanumeric characters"
        )
    return found


def label_requirements(selector: JsonObject) -> list[Requirement]:
    """The requirements of a `LabelSelector` object; an empty one matches everything."""
    equal = [Requirement(key, "In", (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
    return equal + [
        Requirement(expression["key"], expression["operator"], tuple(expression.get("values") or ()))
        for expression in selector.get("matchExpressions") or ()
    ]


def matches_labels(requirements: list[Requirement], obj: JsonObject) -> bool:
    """Whether the object's labels meet all requirements."""
    labels = obj["metadata"].get("labels") or _NOTHING
    return all(requirement.matches(labels) for requirement in requirements)


_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "jobs.batch": ("status.successful",),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    "events.events.k8s.io": (
        "regarding.kind",
        "regarding.namespace",
        "regarding.name",
        "regarding.uid",
        "reason",
        "reportingController",
        "type",
    ),
}


def parse_field_selector(kind: "Kind", text: str) -> list[tuple[tuple[str, ...], bool, str]]:
    """(path, equal?, value) of each term of a `fieldSelector`. Raises ApiError 400 on a field that is not indexed."""
    terms = []
    allowed = _FIELDS.get(kind.resource, ())
    for part in text.split(","):
        if not part.strip():
            continue
        match = re.match(r"^\s*([^=!]+?)\s*(==|=|!=)(.*)$", part)
        if match is None:
            raise bad_request(
                f"Unable to find {kind.resource!r} that match field selector {text!r}: invalid selector: {part!r}"
            )
        field = match[1]
        if field not in {"metadata.name", "metadata.namespace"} and field not in allowed:
            raise _unsupported_field(kind, field)
        terms.append((tuple(field.split(".")), match[2] != "!=", match[3].strip()))
    return terms


def _unsupported_field(kind: "Kind", field: str) -> ApiError:
    return bad_request(
        f'Unable to find "{kind.group or ""}/{kind.version}, Resource={kind.plural}" that match field selector: '
        f"field label not supported: {field}"
    )


def field_value(obj: JsonObject, path: tuple[str, ...]) -> str:
    """The value at a field path as a selector compares it: text, absent fields empty, booleans in lower case."""
    value: Any = obj
    for step in path:
        if not isinstance(value, dict):
            break
        value = value.get(step)
    if path == ("spec", "unschedulable"):
        return "true" if value else "false"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        value = value.get("component")
    return "" if value is None else str(value)


def predicate(kind: "Kind", label_text: str, field_text: str) -> Predicate | None:
    """One predicate for both selectors of a request, or None when there are none. Raises ApiError 400."""
    labels = parse_label_selector(label_text) if label_text else []
    fields = parse_field_selector(kind, field_text) if field_text else []
    if not labels and not fields:
        return None

    def matches(obj: JsonObject) -> bool:
        for path, equal, value in fields:
            if (field_value(obj, path) == value) is not equal:
                return False
        return matches_labels(labels, obj)

    return matches
