"""
The disruption controller: keeps the status of PodDisruptionBudgets true to the pods.

An eviction decides by that status, and records the pod in it; a recorded pod counts as gone for a while, until
its deletion shows. Budgets by share need controllers with a scale (the number of desired pods); a Job has none, so
for its pods only a whole `minAvailable` can be kept (k8s.io/kubernetes/pkg/controller/disruption).
"""

from math import ceil
from typing import Any, Final

from headgate.testing.cluster.api.selectors import label_requirements, matches_labels
from headgate.testing.cluster.api.writes import Write
from headgate.testing.cluster.controllers.job_pods import is_ready
from headgate.testing.cluster.kinds import BY_PLURAL
from headgate.testing.cluster.nodes.node_usage import PODS
from headgate.testing.cluster.storage.registry import Registry
from headgate.testing.cluster.storage.store import Change, ObjectVersion, Table
from headgate.testing.cluster.times import rfc3339, unix_ms

JsonObject = dict[str, Any]

BUDGETS: Final = BY_PLURAL[("policy", "poddisruptionbudgets")]
DELETION_MS: Final = 120_000
"""How long an evicted pod may take to be deleted before it counts as staying."""
_STATUS: Final = Write(manager="kube-controller-manager", subresource="status")


class DisruptionController:
    """Recounts the budgets of the namespaces in which pods or budgets changed."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._dirty: dict[str, None] = {entry.key[0]: None for entry in registry.store.table(BUDGETS).select("")}
        self._due: dict[str, int] = {}
        registry.store.listen(self._on_change)

    def _on_change(self, table: Table, change: Change) -> None:
        if table.kind is PODS or table.kind is BUDGETS:
            self._dirty[change.entry.key[0]] = None

    def step(self, now_ms: int) -> int:
        """Write what changed; returns how many writes that took."""
        dirty, self._dirty = self._dirty, {}
        dirty |= {namespace: None for namespace, due_ms in self._due.items() if due_ms <= now_ms}
        before = self._registry.store.rv
        for namespace in dirty:
            self._due.pop(namespace, None)
            for entry in list(self._registry.store.table(BUDGETS).select(namespace)):
                self._recount(entry, now_ms)
        return self._registry.store.rv - before

    def next_due_ms(self) -> int | None:
        """When an evicted pod has had its time to be deleted."""
        return min(self._due.values(), default=None)

    def _recount(self, entry: ObjectVersion, now_ms: int) -> None:
        budget, (namespace, _) = entry.obj, entry.key
        old = budget.get("status") or {}
        pods = [e.obj for e in self._registry.store.table(PODS).select(namespace) if matches_budget(budget, e.obj)]
        scale = _scale(budget.get("spec") or {}, pods)
        if isinstance(scale, str):
            failed = _condition("False", "SyncFailed", scale, old.get("observedGeneration", 0), rfc3339(now_ms))
            self._write(entry, {**old, "disruptionsAllowed": 0, "conditions": _put(old, failed)})
            return
        expected, desired = scale
        disrupted = self._disrupted(old, pods, namespace, now_ms)
        there = [p for p in pods if "deletionTimestamp" not in p["metadata"] and p["metadata"]["name"] not in disrupted]
        healthy = sum(1 for pod in there if is_ready(pod))
        status: JsonObject = {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "disruptionsAllowed": max(0, healthy - desired) if expected > 0 else 0,
            "observedGeneration": budget["metadata"].get("generation", 1),
            "conditions": old.get("conditions") or [],
        }
        if disrupted:
            status["disruptedPods"] = disrupted
        status["conditions"] = allowed_condition(status, rfc3339(now_ms))
        self._write(entry, status)

    def _disrupted(self, status: JsonObject, pods: list[JsonObject], namespace: str, now_ms: int) -> dict[str, str]:
        """The pods whose eviction was noted and does not show yet."""
        noted = status.get("disruptedPods") or {}
        kept: dict[str, str] = {}
        for pod in pods if noted else ():
            name = pod["metadata"]["name"]
            due_ms = unix_ms(noted[name]) + DELETION_MS if name in noted else 0
            if due_ms > now_ms and "deletionTimestamp" not in pod["metadata"]:
                kept[name] = noted[name]
                self._due[namespace] = min(due_ms, self._due.get(namespace, due_ms))
        return kept

    def _write(self, entry: ObjectVersion, status: JsonObject) -> None:
        self._registry.update(BUDGETS, entry, {**entry.obj, "status": status}, _STATUS)


def matches_budget(budget: JsonObject, pod: JsonObject) -> bool:
    """Whether a budget is for a pod; one without a selector is for none."""
    selector = (budget.get("spec") or {}).get("selector")
    return selector is not None and matches_labels(label_requirements(selector), pod)


def _scale(spec: JsonObject, pods: list[JsonObject]) -> tuple[int, int] | str:
    """How many pods there should be, and how many of them healthy; or why that cannot be determined."""
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if most is None and isinstance(least, int):
        return len(pods), least
    if most is None and least is None:
        return 0, 0
    for pod in pods:
        for owner in pod["metadata"].get("ownerReferences") or ():
            if owner.get("controller"):
                is_job = owner["kind"] == "Job" and owner["apiVersion"] == "batch/v1"
                unscaled = "jobs.batch does not implement the scale subresource"
                return unscaled if is_job else f'found no controllers for pod "{pod["metadata"]["name"]}"'
    # Pods without a controller are not counted.
    return 0, max(0, 0 - _share(most, 0)) if most is not None else _share(least, 0)


def _share(value: Any, total: int) -> int:
    return value if isinstance(value, int) else ceil(int(value.rstrip("%")) * total / 100)


def allowed_condition(status: JsonObject, now: str) -> list[JsonObject]:
    """The conditions of a budget's status with DisruptionAllowed as its counts say."""
    open_ = status["disruptionsAllowed"] > 0
    reason = "SufficientPods" if open_ else "InsufficientPods"
    observed = status.get("observedGeneration", 0)
    return _put(status, _condition("True" if open_ else "False", reason, "", observed, now))


def _condition(status: str, reason: str, message: str, observed: int, now: str) -> JsonObject:
    return {
        "type": "DisruptionAllowed",
        "status": status,
        "observedGeneration": observed,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }


def _put(status: JsonObject, fresh: JsonObject) -> list[JsonObject]:
    conditions: list[JsonObject] = list(status.get("conditions") or ())
    for index, condition in enumerate(conditions):
        if condition["type"] == fresh["type"]:
            if condition["status"] == fresh["status"]:
                fresh = {**fresh, "lastTransitionTime": condition["lastTransitionTime"]}
            return [*conditions[:index], fresh, *conditions[index + 1 :]]
    return [*conditions, fresh]
