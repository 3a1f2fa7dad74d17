"""
Binding and Eviction: the two pod subresources that are actions rather than documents.

Binding is the only way a pod gets a node, once, and not while a scheduling gate is left. Eviction is a deletion that
checks the pod's disruption budget first, by the status that the disruption controller wrote, and reduces it.
Sources: k8s.io/kubernetes/pkg/registry/core/pod/storage (`storage.go`, `eviction.go`).
"""

from typing import Any, Final

from headgate.testing.cluster import errors
from headgate.testing.cluster.api.writes import Deletion, Write, given_metadata
from headgate.testing.cluster.controllers.disruption import BUDGETS, allowed_condition, matches_budget
from headgate.testing.cluster.controllers.job_pods import is_ready
from headgate.testing.cluster.nodes.node_usage import PODS
from headgate.testing.cluster.storage.registry import Registry
from headgate.testing.cluster.storage.store import ObjectVersion
from headgate.testing.cluster.times import rfc3339

JsonObject = dict[str, Any]

RETRY_S: Final = 10
"""The Retry-After for a client while the disruption controller has not caught up."""
_STATUS: Final = Write(manager="kube-apiserver", subresource="status")


def bind(registry: Registry, namespace: str, name: str, binding: JsonObject, write: Write) -> None:
    """Bind a pod. Raises ApiStatusError: 400, 404, 409 (bound, deleted, gated, another pod), 500 (no target)."""
    target = _part(binding, "target")
    given = given_metadata(PODS, write, binding)
    if given.get("name", "") != name:
        raise errors.bad_request("name in URL does not match name in Binding object")
    problems = []
    if target.get("kind") not in (None, "", "Node"):
        problems.append(errors.not_supported("target.kind", target["kind"], ["Node", "<empty>"]))
    if not target.get("name"):
        problems.append(errors.required("target.name"))
    if problems:
        texts = [f"{problem.field}: {problem.message}" for problem in problems]
        raise errors.internal(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
    entry = registry.get(PODS, namespace, name)
    _require_same(entry, given)
    obj = entry.obj
    if obj["metadata"].get("deletionTimestamp"):
        raise _refused(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if obj["spec"].get("nodeName"):
        raise _refused(name, f'pod {name} is already assigned to node "{obj["spec"]["nodeName"]}"')
    if obj["spec"].get("schedulingGates"):
        raise _refused(name, f"pod {name} has non-empty .spec.schedulingGates")
    if not write.dry_run:
        registry.store.put(registry.store.table(PODS), entry.key, _bound(obj, target["name"], given, registry.clock()))


def _require_same(entry: ObjectVersion, given: JsonObject) -> None:
    metadata, (namespace, name) = entry.obj["metadata"], entry.key
    for field, words in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if given.get(field) and given[field] != metadata[field]:
            why = (
                f"Precondition failed: {words} in precondition: {given[field]}, "
                f"{words} in object meta: {metadata[field]}"
            )
            raise errors.precondition_failed(PODS, namespace, name, why)


def _refused(name: str, why: str) -> errors.ApiStatusError:
    resource = "pods/binding"
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return errors.ApiStatusError(409, "Conflict", message, details={"name": name, "kind": resource})


def _bound(obj: JsonObject, node: str, given: JsonObject, now_ms: int) -> JsonObject:
    """The pod on its node, with the annotations and labels of the binding; its generation stays."""
    metadata = dict(obj["metadata"])
    for field in ("annotations", "labels"):
        if given.get(field):
            metadata[field] = {**metadata.get(field, {}), **given[field]}
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": rfc3339(now_ms),
    }
    status = {**obj.get("status", {}), "conditions": _with_condition(obj, scheduled)}
    status.pop("nominatedNodeName", None)
    return {**obj, "metadata": metadata, "spec": {**obj["spec"], "nodeName": node}, "status": status}


def _with_condition(pod: JsonObject, fresh: JsonObject) -> list[JsonObject]:
    """The pod's conditions with one put in its place; the time stays if the status does."""
    conditions: list[JsonObject] = list(pod.get("status", {}).get("conditions") or ())
    for index, condition in enumerate(conditions):
        if condition["type"] == fresh["type"]:
            if condition["status"] == fresh["status"]:
                fresh = {**fresh, "lastTransitionTime": condition.get("lastTransitionTime")}
            return [*conditions[:index], fresh, *conditions[index + 1 :]]
    return [*conditions, fresh]


# --- eviction


def evict(registry: Registry, namespace: str, name: str, eviction: JsonObject, write: Write) -> None:
    """Delete a pod if its budget allows. Raises ApiStatusError: 400, 404, 409, 429 (try later), 500 (two budgets)."""
    if given_metadata(PODS, write, eviction).get("name", "") != name:
        raise errors.bad_request("name in URL does not match name in Eviction object")
    options = _part(eviction, "deleteOptions")
    dry_run = write.dry_run or bool(options.get("dryRun"))
    entry = registry.get(PODS, namespace, name)
    pod = entry.obj
    # The budget is ignored for a pod that does not run or is being deleted (eviction.go, canIgnorePDB).
    phase = pod.get("status", {}).get("phase")
    if phase not in ("Succeeded", "Failed", "Pending") and "deletionTimestamp" not in pod["metadata"]:
        budgets = [b for b in registry.store.table(BUDGETS).select(namespace) if matches_budget(b.obj, pod)]
        if len(budgets) > 1:
            raise errors.internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            )
        for budget in budgets:
            _ask(registry, budget, entry, dry_run=dry_run)
    preconditions = _part(options, "preconditions")
    deletion = Deletion(
        uid=preconditions.get("uid") or "",
        rv=preconditions.get("resourceVersion") or "",
        grace_s=options.get("gracePeriodSeconds"),
        dry_run=dry_run,
    )
    if not dry_run:
        # Refused before it is marked; marking changes the version that the deletion then finds.
        registry.delete(PODS, entry, Deletion(uid=deletion.uid, rv=deletion.rv, dry_run=True))
        entry = _marked(registry, entry)
        deletion.rv = ""
    registry.delete(PODS, entry, deletion)


def _marked(registry: Registry, entry: ObjectVersion) -> ObjectVersion:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": rfc3339(registry.clock()),
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    status = {**entry.obj.get("status", {}), "conditions": _with_condition(entry.obj, condition)}
    return registry.update(PODS, entry, {**entry.obj, "status": status}, _STATUS)


def _ask(registry: Registry, budget: ObjectVersion, pod: ObjectVersion, *, dry_run: bool) -> None:
    """Take one disruption from a budget, or none if the pod is unready and may go anyway. Raises ApiStatusError 429."""
    status, spec, name = budget.obj.get("status") or {}, budget.obj["spec"], budget.key[1]
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if not is_ready(pod.obj) and (
        spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow" or (healthy >= desired and desired > 0)
    ):
        return
    refusal = "Cannot evict pod as it would violate the pod's disruption budget."
    if status.get("observedGeneration", 0) < budget.obj["metadata"].get("generation", 0):
        why = f"The disruption budget {name} is still being processed by the server."
        cause = {"reason": "DisruptionBudget", "message": why}
        raise errors.too_many_requests(refusal, causes=[cause], retry_after_s=RETRY_S)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed == 0:
        why = _refusal_of(name, status, healthy, desired)
        raise errors.too_many_requests(refusal, causes=[{"reason": "DisruptionBudget", "message": why}])
    if dry_run:
        return
    now = rfc3339(registry.clock())
    disrupted = {**(status.get("disruptedPods") or {}), pod.key[1]: now}
    fresh = {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}
    if allowed == 1:
        fresh["conditions"] = allowed_condition(fresh, now)
    registry.update(BUDGETS, budget, {**budget.obj, "status": fresh}, _STATUS)


def _refusal_of(name: str, status: JsonObject, healthy: int, desired: int) -> str:
    told = [c for c in status.get("conditions") or () if c["type"] == "DisruptionAllowed" and c["status"] == "False"]
    message = told[0].get("message", "") if told else ""
    start = f"The disruption budget {name} does not allow evicting pods currently"
    if message and told[0].get("reason") == "SyncFailed":
        return f"{start} because it failed sync: {message}"
    if healthy <= desired:
        return f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    return f"{start} ({told[0].get('reason', '')}): {message}" if message else start


def _part(obj: JsonObject, name: str) -> JsonObject:
    value = obj.get(name) or {}
    if not isinstance(value, dict):
        raise errors.bad_request(f"{name} must be an object")
    return value
