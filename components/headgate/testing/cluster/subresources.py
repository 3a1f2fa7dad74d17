"""
Binding and Eviction: the two pod subresources that are actions rather than documents.

Binding is the only way a pod gets a node, once, and not while a scheduling gate is left. Eviction is a deletion that
asks the pod's disruption budgets first. Sources: k8s.io/kubernetes/pkg/registry/core/pod/storage (`storage.go`,
`eviction.go`).
"""

from math import ceil
from typing import Any, Final

from headgate.testing.cluster import errors
from headgate.testing.cluster.kinds import BY_PLURAL
from headgate.testing.cluster.registry import Deletion, Registry, Write, given_metadata
from headgate.testing.cluster.selectors import label_requirements, matches_labels
from headgate.testing.cluster.store import Entry
from headgate.testing.cluster.times import rfc3339

JsonObject = dict[str, Any]

PODS: Final = BY_PLURAL[("", "pods")]
_BUDGETS: Final = BY_PLURAL[("policy", "poddisruptionbudgets")]


def bind(registry: Registry, namespace: str, name: str, binding: JsonObject, write: Write) -> None:
    """Give a pod its node. Raises ApiError: 404, 409 (bound, being deleted, gated, other uid), 422 (no target)."""
    entry = registry.get(PODS, namespace, name)
    obj = entry.obj
    target = _part(binding, "target")
    given = given_metadata(PODS, "v1", binding)
    found = []
    if target.get("kind") not in (None, "", "Node"):
        found.append(errors.not_supported("target.kind", target["kind"], ["Node", "<empty>"]))
    if not target.get("name"):
        found.append(errors.required("target.name"))
    if found:
        raise errors.invalid(PODS, name, found)
    if given.get("name", name) != name:
        raise errors.bad_request("name in URL does not match name in Binding object")
    if given.get("uid") and given["uid"] != obj["metadata"]["uid"]:
        why = f"Precondition failed: UID in precondition: {given['uid']}, UID in object meta: {obj['metadata']['uid']}"
        raise errors.conflict(PODS, name, why)
    if obj["metadata"].get("deletionTimestamp"):
        raise errors.conflict(PODS, f"{name}", f"pod {name} is being deleted, cannot be assigned to a host")
    if obj["spec"].get("nodeName"):
        raise errors.conflict(PODS, name, f'pod {name} is already assigned to node "{obj["spec"]["nodeName"]}"')
    if obj["spec"].get("schedulingGates"):
        raise errors.conflict(PODS, name, f"pod {name} has non-empty .spec.schedulingGates")
    if write.dry_run:
        return
    now = rfc3339(registry.clock())
    conditions = [c for c in obj.get("status", {}).get("conditions") or () if c["type"] != "PodScheduled"]
    conditions.append({"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now})
    metadata = dict(obj["metadata"])
    if "generation" in metadata:
        metadata["generation"] += 1
    if given.get("annotations"):
        metadata["annotations"] = {**metadata.get("annotations", {}), **given["annotations"]}
    fresh = {
        **obj,
        "metadata": metadata,
        "spec": {**obj["spec"], "nodeName": target["name"]},
        "status": {**obj.get("status", {}), "conditions": conditions},
    }
    registry.store.put(registry.store.table(PODS), entry.key, fresh)


def evict(registry: Registry, namespace: str, name: str, eviction: JsonObject) -> None:
    """Delete a pod if its disruption budgets allow. Raises ApiError: 404, 429 (try later), 500 (several budgets)."""
    entry = registry.get(PODS, namespace, name)
    options = _part(eviction, "deleteOptions")
    dry_run = bool(options.get("dryRun"))
    pod = entry.obj
    # A pod that does not run, or is going already, disturbs nobody (eviction.go, canIgnorePDB).
    ignored = pod.get("status", {}).get("phase") in {"Succeeded", "Failed", "Pending"} or pod["metadata"].get(
        "deletionTimestamp"
    )
    budgets = [] if ignored else _budgets_of(registry, entry)
    if len(budgets) > 1:
        raise errors.ApiError(
            500,
            "InternalError",
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        )
    if budgets:
        _check_budget(registry, budgets[0], entry)
    preconditions = _part(options, "preconditions")
    registry.delete(
        PODS,
        entry,
        Deletion(
            uid=preconditions.get("uid", ""),
            rv=preconditions.get("resourceVersion", ""),
            grace_s=options.get("gracePeriodSeconds"),
            dry_run=dry_run,
        ),
    )


def _part(obj: JsonObject, name: str) -> JsonObject:
    value = obj.get(name) or {}
    if not isinstance(value, dict):
        raise errors.bad_request(f"{name} must be an object")
    return value


def _budgets_of(registry: Registry, pod: Entry) -> list[JsonObject]:
    return [
        entry.obj
        for entry in registry.store.table(_BUDGETS).select(pod.key[0])
        if entry.obj.get("spec", {}).get("selector") is not None
        and matches_labels(label_requirements(entry.obj["spec"]["selector"]), pod.obj)
    ]


def budget_status(registry: Registry, budget: JsonObject) -> JsonObject:
    """The `status` of a PodDisruptionBudget for the pods as they are: expected, healthy, and how many may go."""
    spec = budget.get("spec", {})
    requirements = label_requirements(spec.get("selector") or {})
    pods = [
        e.obj
        for e in registry.store.table(PODS).select(budget["metadata"]["namespace"])
        if matches_labels(requirements, e.obj) and e.obj.get("status", {}).get("phase") not in {"Succeeded", "Failed"}
    ]
    expected = len(pods)
    healthy = sum(1 for pod in pods if _is_ready(pod) and not pod["metadata"].get("deletionTimestamp"))
    if "maxUnavailable" in spec:
        desired = max(0, expected - _scaled(spec["maxUnavailable"], expected))
    else:
        desired = _scaled(spec.get("minAvailable", 1), expected)
    return {
        "observedGeneration": budget["metadata"].get("generation", 1),
        "expectedPods": expected,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": max(0, healthy - desired),
    }


def _scaled(value: int | str, total: int) -> int:
    if isinstance(value, int):
        return value
    return ceil(int(value.rstrip("%")) * total / 100) if value.endswith("%") else int(value)


def _is_ready(pod: JsonObject) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _check_budget(registry: Registry, budget: JsonObject, pod: Entry) -> None:
    status = budget_status(registry, budget)
    if status["disruptionsAllowed"] > 0:
        return
    policy = budget["spec"].get("unhealthyPodEvictionPolicy", "IfHealthyBudget")
    if not _is_ready(pod.obj) and (policy == "AlwaysAllow" or status["currentHealthy"] >= status["desiredHealthy"]):
        return
    name = budget["metadata"]["name"]
    desired, healthy = status["desiredHealthy"], status["currentHealthy"]
    message = f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    raise errors.too_many_requests(
        "Cannot evict pod as it would violate the pod's disruption budget.",
        causes=[{"reason": "DisruptionBudget", "message": message}],
    )
