"""The CustomResourceDefinition objects of Kueue's kinds as the simulated API server shows them: established."""

from functools import cache
from typing import Any

from headgate.adapters.kubernetes.crds.render import custom_resource_definitions
from headgate.testing.cluster.times import rfc3339

JsonObject = dict[str, Any]


def crd_objects(now_ms: int) -> list[JsonObject]:
    """One established CustomResourceDefinition per Kueue kind."""
    return [_established(definition, rfc3339(now_ms)) for definition in _definitions()]


@cache
def _definitions() -> list[JsonObject]:
    """Rendered once: tests make thousands of clusters, and stored objects are never modified in place."""
    return custom_resource_definitions()


def _established(definition: JsonObject, now: str) -> JsonObject:
    condition = {"status": "True", "lastTransitionTime": now}
    spec = definition["spec"]
    return {
        "metadata": definition["metadata"],
        "spec": spec,
        "status": {
            "acceptedNames": spec["names"],
            "storedVersions": [version["name"] for version in spec["versions"] if version["storage"]],
            "conditions": [
                {"type": "NamesAccepted", "reason": "NoConflicts", "message": "no conflicts found", **condition},
                {
                    "type": "Established",
                    "reason": "InitialNamesAccepted",
                    "message": "the initial names have been accepted",
                    **condition,
                },
            ],
        },
    }
