"""The CustomResourceDefinition objects of Kueue's kinds, written from `KINDS` and the compiled schemas."""

from typing import Any

from headgate.testing.cluster.discovery import object_schema
from headgate.testing.cluster.kinds import KINDS, KUEUE_GROUP, Kind
from headgate.testing.cluster.times import rfc3339

JsonObject = dict[str, Any]


def crd_objects(now_ms: int) -> list[JsonObject]:
    """One established CustomResourceDefinition per Kueue kind."""
    return [_crd(kind, rfc3339(now_ms)) for kind in KINDS if kind.group == KUEUE_GROUP]


def _crd(kind: Kind, now: str) -> JsonObject:
    names: JsonObject = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.singular,
        "shortNames": list(kind.short_names),
    }
    columns = [
        {
            "name": column.name,
            "type": column.type,
            "jsonPath": column.path,
            **({"priority": column.priority} if column.priority else {}),
        }
        for column in kind.columns
    ]
    versions = [
        {
            "name": version,
            "served": True,
            "storage": version == kind.version,
            "additionalPrinterColumns": columns,
            "schema": {"openAPIV3Schema": object_schema(kind)},
            **({"subresources": {"status": {}}} if kind.status_subresource else {}),
        }
        for version in kind.versions
    ]
    condition = {"status": "True", "lastTransitionTime": now}
    return {
        "metadata": {"name": kind.resource},
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": versions,
            "conversion": {"strategy": "None"},
        },
        "status": {
            "acceptedNames": names,
            "storedVersions": [kind.version],
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
