"""
The Events that controllers record for users; a repeated one is counted instead of written again.

The part of client-go's recorder and correlator (k8s.io/client-go/tools/record) that `kubectl describe` shows. Events
are a write each, so a cluster records them only if configured (`ControllerOptions.events`).
"""

from typing import Any, Final

from headgate.testing.cluster.api.writes import Write
from headgate.testing.cluster.kinds import BY_PLURAL, Kind
from headgate.testing.cluster.storage.registry import Registry
from headgate.testing.cluster.storage.store import Key
from headgate.testing.cluster.times import rfc3339

JsonObject = dict[str, Any]

EVENTS: Final = BY_PLURAL[("", "events")]
KNOWN_MAX: Final = 4096
"""How many Events a recorder keeps for counting; the oldest is dropped first, and written as a new one if it recurs."""


class EventRecorder:
    """Writes the Events of one controller."""

    def __init__(self, registry: Registry, component: str) -> None:
        self._registry = registry
        self._component = component
        self._write = Write(manager="kube-controller-manager")
        self._known: dict[tuple[str, str, str], Key] = {}
        self._told = 0

    def record(self, kind: Kind, obj: JsonObject, reason: str, message: str, *, warning: bool = False) -> None:
        """Record an Event about an object."""
        metadata, now = obj["metadata"], rfc3339(self._registry.clock())
        same = (metadata["uid"], reason, message)
        key = self._known.get(same)
        entry = None if key is None else self._registry.find(EVENTS, *key)
        if entry is not None:
            fresh = {**entry.obj, "count": entry.obj.get("count", 1) + 1, "lastTimestamp": now}
            self._registry.update(EVENTS, entry, fresh, self._write)
            return
        if self._registry.find(BY_PLURAL[("", "namespaces")], "", metadata["namespace"]) is None:
            return
        self._told += 1
        event: JsonObject = {
            "metadata": {"name": f"{metadata['name']}.{self._registry.clock():x}{self._told:04x}"},
            "involvedObject": {
                "kind": kind.kind,
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
                "apiVersion": kind.api_version,
                "resourceVersion": metadata["resourceVersion"],
            },
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": "Warning" if warning else "Normal",
            "eventTime": None,
            "reportingComponent": self._component,
            "reportingInstance": "",
        }
        made = self._registry.create(EVENTS, metadata["namespace"], event, self._write)
        self._known[same] = made.key
        while len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]
