"""
The role of a pod in its group: a hash of what admission depends on.

Pods of a group with equal hashes are one pod set of the group's Workload, which has the hash as its name. Kueue's
webhook writes the hash into the annotation `kueue.x-k8s.io/role-hash` of each pod, and so does Headgate's; it is
computed here for pods that lack it. Equal pods have to give the hash that Kueue gives them: the pods of a running
group are found by it after Headgate has replaced Kueue, and the other way round.

Kueue hashes the JSON that Go's encoder makes of the typed parts of a pod's spec (pkg/util/pod: GenerateRoleHash). The
JSON here is of the same form: fields in the order of the API's types, maps in the order of their keys, missing parts as
null, characters escaped that are special in HTML. Quantities are hashed as the API server writes them.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

_HASH_LEN: Final = 8

_MAPS: Final = frozenset({"nodeSelector", "requests", "overhead", "matchLabels"})
"""Fields whose values are maps: they are sorted by key. All other objects have fields, in the order of their type."""

_FIELDS: Final = (
    # Affinity, node affinity
    *("nodeAffinity", "podAffinity", "podAntiAffinity"),
    *("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"),
    *("nodeSelectorTerms", "weight", "preference", "podAffinityTerm"),
    # Pod affinity terms, selectors
    *("labelSelector", "namespaces", "topologyKey", "namespaceSelector", "matchLabelKeys", "mismatchLabelKeys"),
    *("matchLabels", "matchExpressions", "matchFields"),
    # Requirements, tolerations
    *("key", "operator", "values", "value", "effect", "tolerationSeconds"),
    # Resource claims, container ports
    *("name", "resourceClaimName", "resourceClaimTemplateName", "hostPort", "containerPort", "protocol", "hostIP"),
)
_SPREAD_FIELDS: Final = (
    *("maxSkew", "topologyKey", "whenUnsatisfiable", "labelSelector"),
    *("minDomains", "nodeAffinityPolicy", "nodeTaintsPolicy", "matchLabelKeys"),
)
"""Those of a topology spread constraint have another order."""
_RANK: Final = {field: number for number, field in enumerate(_FIELDS)}
_SPREAD_RANK: Final = {field: number for number, field in enumerate(_SPREAD_FIELDS)}


def role_hash(spec: Mapping[str, Any]) -> str:
    """The role of a pod, by its whole spec as JSON."""
    shape = {
        "affinity": _typed(spec.get("affinity")),
        "containers": _containers(spec.get("containers")),
        "initContainers": _containers(spec.get("initContainers")),
        "nodeSelector": _map(spec.get("nodeSelector")),
        "overhead": _map(spec.get("overhead")),
        "priority": spec.get("priority"),
        "resourceClaims": _typed(spec.get("resourceClaims")),
        "runtimeClassName": spec.get("runtimeClassName"),
        "tolerations": _typed(spec.get("tolerations")),
        "topologySpreadConstraints": _typed(spec.get("topologySpreadConstraints")),
    }
    if spec.get("resources") is not None:
        shape["resources"] = _map(spec["resources"].get("requests"))
    encoded = _escaped(json.dumps({"spec": dict(sorted(shape.items()))}, separators=(",", ":"), ensure_ascii=False))
    return hashlib.sha256(encoded.encode()).hexdigest()[:_HASH_LEN]


def _containers(containers: Iterable[Mapping[str, Any]] | None) -> list[Any] | None:
    found = [
        {
            "ports": _typed(container.get("ports")),
            "resources": {"requests": _map((container.get("resources") or {}).get("requests"))},
        }
        for container in containers or ()
    ]
    return found or None


def _map(values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return dict(sorted(values.items())) if values is not None else None


def _typed(value: Any) -> Any:
    """A value with the fields of each object in the order of its type."""
    if isinstance(value, list):
        return [_typed(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    rank = _SPREAD_RANK if "maxSkew" in value else _RANK
    fields = sorted(value.items(), key=lambda item: rank.get(item[0], len(rank)))
    return {field: _map(each) if field in _MAPS else _typed(each) for field, each in fields}


def _escaped(text: str) -> str:
    """As Go's encoder writes strings: characters that are special in HTML or JavaScript are escaped."""
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
