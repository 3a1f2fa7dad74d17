"""
The two spellings of an Event: core/v1 and events.k8s.io/v1 serve the same objects.

An API server stores each Event once and shows it in either group. Here each group has its table, and the store writes
every change of one into the other, at the same revision, in the spelling of that group. Source:
k8s.io/kubernetes/pkg/apis/events/v1/conversion.go.
"""

from typing import Any, Final

JsonObject = dict[str, Any]

CORE: Final = ("", "events")
GROUPED: Final = ("events.k8s.io", "events")

_NAMES: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_SPELLINGS: Final = {
    GROUPED: ("events.k8s.io/v1", _NAMES),
    CORE: ("v1", {grouped: core for core, grouped in _NAMES.items()}),
}


def in_other_group(group: tuple[str, str], obj: JsonObject) -> tuple[tuple[str, str], JsonObject]:
    """The other group's table and the Event of a group as that one spells it; its metadata is a copy."""
    other = CORE if group == GROUPED else GROUPED
    api_version, names = _SPELLINGS[other]
    shown = {names.get(field, field): value for field, value in obj.items()}
    return other, {**shown, "apiVersion": api_version, "metadata": dict(obj["metadata"])}
