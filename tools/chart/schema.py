"""The JSON Schema of the chart's values: the keys and types of values.yaml, so that a misspelt value is refused."""

from collections.abc import Mapping
from typing import Any, Final

Json = dict[str, Any]

_OPEN: Final = frozenset({"settings", "configuration", "kubeSchedulerConfig", "resources"})
"""Values that are passed on whole; whoever reads them knows their keys."""
_ONE_OF: Final[Mapping[str, list[str]]] = {
    "webhook.certificates": ["self", "cert-manager"],
    "nats.credentials": ["none", "nkeys", "creds"],
    "crds.admission": ["none", "webhook", "policy"],
    "crds.conversion": ["none", "webhook"],
    "monitoring.serviceMonitor.scheme": ["http", "https"],
}


def schema(values: Mapping[str, Any]) -> Json:
    """The schema of values.yaml."""
    found = _object(values, "")
    processes = found["properties"]["processes"]["properties"]
    allowed = processes["defaults"]["properties"]
    for each in processes.values():
        each.update({"type": "object", "properties": allowed, "additionalProperties": False})
    # Sub-charts get `global` from Helm itself.
    found["properties"]["global"] = {"type": "object"}
    return {"$schema": "https://json-schema.org/draft-07/schema#", "title": "Values of the chart headgate", **found}


def _object(values: Mapping[str, Any], path: str) -> Json:
    return {
        "type": "object",
        "properties": {key: _of(value, f"{path}.{key}".lstrip("."), key) for key, value in values.items()},
        "additionalProperties": False,
    }


def _of(value: Any, path: str, key: str) -> Json:
    if path in _ONE_OF:
        return {"enum": _ONE_OF[path]}
    match value:
        case dict() if value and key not in _OPEN:
            return _object(value, path)
        case dict():
            return {"type": "object"}
        case list():
            return {"type": "array"}
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer", "minimum": 0}
        case _:
            return {"type": "string"}
