"""
What the bound, unfinished pods ask of each node, and whether one more pod fits.

Kept up to date from the store's changes. The kubelet admits pods by it and the first-fit scheduler places by it, so
both judge as a real node would: by requests, whole allocatable, and the pod count. Also the node predicates that a
kubelet checks (k8s.io/kubernetes/pkg/kubelet/lifecycle, `GeneralPredicates`).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from headgate.testing.cluster.api.selectors import LabelRequirement, field_value
from headgate.testing.cluster.kinds import BY_PLURAL
from headgate.testing.cluster.quantity import ONE, pod_requests, quantity
from headgate.testing.cluster.storage.store import Change, Key, Store, Table

JsonObject = dict[str, Any]

PODS: Final = BY_PLURAL[("", "pods")]
NODES: Final = BY_PLURAL[("", "nodes")]


class Shortage(Exception):  # noqa: N818 - a finding, raised only inside this package
    """A pod does not fit on a node: the first resource that is short, with the amounts."""

    def __init__(self, resource: str, requested: int, used: int, capacity: int) -> None:
        super().__init__(resource)
        self.resource = resource
        self.requested = requested
        self.used = used
        self.capacity = capacity


class NodeUsage:
    """Requests per node of the pods that are bound and not finished."""

    def __init__(self, store: Store) -> None:
        self._held: dict[Key, tuple[str, dict[str, int]]] = {}
        self._used: dict[str, dict[str, int]] = {}
        for entry in store.table(PODS).select(""):
            self._take(entry.key, entry.obj)
        store.listen(self._on_change)

    def _on_change(self, table: Table, change: Change) -> None:
        if table.kind is not PODS:
            return
        obj = change.entry.obj
        over = change.type == "DELETED" or obj.get("status", {}).get("phase") in {"Succeeded", "Failed"}
        if over:
            self._release(change.entry.key)
        elif change.entry.key not in self._held:
            self._take(change.entry.key, obj)

    def _take(self, key: Key, obj: JsonObject) -> None:
        node = obj["spec"].get("nodeName")
        if not node or obj.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
            return
        requests = pod_requests(obj["spec"])
        self._held[key] = (node, requests)
        used = self._used.setdefault(node, {})
        for name, amount in requests.items():
            used[name] = used.get(name, 0) + amount

    def _release(self, key: Key) -> None:
        held = self._held.pop(key, None)
        if held is not None:
            used = self._used[held[0]]
            for name, amount in held[1].items():
                used[name] -= amount

    def used(self, node: str) -> Mapping[str, int]:
        """The sum of requests on a node, by resource, in billionths."""
        return self._used.get(node, {})

    def require_room(self, node: JsonObject, requests: Mapping[str, int], *, counted: bool) -> None:
        """Check that a pod's requests fit; `counted`: the pod is already in the usage. Raises Shortage."""
        allocatable = node.get("status", {}).get("allocatable") or node.get("status", {}).get("capacity") or {}
        used = self._used.get(node["metadata"]["name"], {})
        for name in sorted(requests):
            amount = requests[name]
            if amount <= 0:
                continue
            others = used.get(name, 0) - (amount if counted else 0)
            capacity = quantity(allocatable[name]) if name in allocatable else (110 * ONE if name == "pods" else 0)
            if others + amount > capacity:
                raise Shortage(name, amount, others, capacity)


def selects_node(spec: JsonObject, node: JsonObject) -> bool:
    """Whether a pod's node selector and required node affinity allow a node."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_term_matches(term, node, labels) for term in required.get("nodeSelectorTerms") or ())


def _term_matches(term: JsonObject, node: JsonObject, labels: Mapping[str, str]) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    for expression in expressions:
        if not _requirement(expression).matches(labels):
            return False
    for field in fields:
        value = field_value(node, tuple(field["key"].split(".")))
        if not _requirement(field).matches({field["key"]: value}):
            return False
    return True


def _requirement(expression: JsonObject) -> LabelRequirement:
    return LabelRequirement(expression["key"], expression["operator"], tuple(expression.get("values") or ()))


def untolerated(spec: JsonObject, node: JsonObject, effects: Iterable[str]) -> JsonObject | None:
    """The first taint of these effects that the pod does not tolerate, if any."""
    wanted = set(effects)
    for taint in node.get("spec", {}).get("taints") or ():
        if taint["effect"] in wanted and not any(tolerates(t, taint) for t in spec.get("tolerations") or ()):
            found: JsonObject = taint
            return found
    return None


def tolerates(toleration: JsonObject, taint: JsonObject) -> bool:
    """Whether a toleration matches a taint, for however long."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    same: bool = toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", "")
    return same
