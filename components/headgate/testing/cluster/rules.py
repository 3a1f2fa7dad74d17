"""
Per-kind rules: which defaults are computed and which content is refused, beyond the schema.

The dispatch for all kinds, and the rules of Kueue's kinds as its CEL expressions and webhooks state them
(sigs.k8s.io/kueue/pkg/webhooks, apis/kueue/v1beta2). Rules get whole objects and return field errors; only
`on_create` reads the store.
"""

from typing import TYPE_CHECKING, Any

from headgate.testing.cluster import rules_core as core
from headgate.testing.cluster.errors import FieldError, duplicate, forbidden_field, invalid_value
from headgate.testing.cluster.kinds import Kind
from headgate.testing.cluster.metadata import is_subdomain, label_errors, name_errors
from headgate.testing.cluster.quantity import quantity

if TYPE_CHECKING:
    from headgate.testing.cluster.registry import Registry

JsonObject = dict[str, Any]

_IMMUTABLE = "field is immutable"
_NOT_NEGATIVE = "must be greater than or equal to 0"


def on_create(registry: "Registry", kind: Kind, obj: JsonObject) -> JsonObject:
    """The object with what admission and the strategy of its kind fill in. Raises ApiError 403."""
    match kind.resource:
        case "pods":
            return core.pod_on_create(registry, kind, obj) if obj["spec"].get("containers") else obj
        case "jobs.batch":
            return core.job_on_create(obj)
        case "namespaces":
            return core.namespace_on_create(obj)
        case _:
            return obj


def on_update(registry: "Registry", kind: Kind, obj: JsonObject, old: JsonObject) -> JsonObject:  # noqa: ARG001 - one shape for all hooks
    """The object with what the strategy of its kind keeps over an update."""
    if kind.resource == "namespaces":
        # Finalizers of a namespace are changed through /finalize only.
        return {**obj, "spec": old.get("spec", {})}
    return obj


def create_errors(kind: Kind, obj: JsonObject) -> list[FieldError]:
    """What is wrong with a new object."""
    match kind.resource:
        case "pods":
            return core.pod_create_errors(obj)
        case "jobs.batch":
            return core.job_create_errors(obj)
        case _:
            return _content_errors(kind, obj, None)


def update_errors(kind: Kind, obj: JsonObject, old: JsonObject, subresource: str) -> list[FieldError]:
    """What is wrong with an update from `old` to `obj`."""
    if subresource == "status":
        return _workload_status_errors(obj, old) if kind.kind == "Workload" else []
    match kind.resource:
        case "pods":
            return core.pod_update_errors(obj, old)
        case "jobs.batch":
            return core.job_update_errors(obj, old)
        case _:
            return _content_errors(kind, obj, old)


def _content_errors(kind: Kind, obj: JsonObject, old: JsonObject | None) -> list[FieldError]:
    match kind.kind:
        case "PriorityClass":
            return core.priority_class_errors(obj, old)
        case "PodDisruptionBudget":
            return core.disruption_budget_errors(obj)
        case "ConfigMap":
            return core.config_map_errors(obj, old)
        case "ClusterQueue":
            return cluster_queue_errors(obj)
        case "Cohort":
            return cohort_errors(obj)
        case "LocalQueue":
            return _immutable(obj, old, ("spec", "clusterQueue")) + _weight_errors(obj)
        case "AdmissionCheck":
            return _immutable(obj, old, ("spec", "controllerName"))
        case "WorkloadPriorityClass":
            return _immutable(obj, old, ("value",))
        case "ResourceFlavor":
            return resource_flavor_errors(obj, old)
        case "Topology":
            return topology_errors(obj, old)
        case "Workload":
            return workload_errors(obj, old)
        case _:
            return []


def _immutable(obj: JsonObject, old: JsonObject | None, path: tuple[str, ...]) -> list[FieldError]:
    if old is None:
        return []
    new_value: Any = obj
    old_value: Any = old
    for step in path:
        new_value = new_value.get(step) if isinstance(new_value, dict) else None
        old_value = old_value.get(step) if isinstance(old_value, dict) else None
    if old_value is None or new_value == old_value:
        return []
    return [invalid_value(".".join(path), new_value, _IMMUTABLE)]


def _weight_errors(obj: JsonObject) -> list[FieldError]:
    weight = ((obj.get("spec") or {}).get("fairSharing") or {}).get("weight")
    if weight is not None and quantity(weight) < 0:
        return [invalid_value("spec.fairSharing.weight", str(weight), _NOT_NEGATIVE)]
    return []


def cluster_queue_errors(obj: JsonObject) -> list[FieldError]:
    """Quotas within bounds, resources covered once, and preemption policies that do not contradict each other."""
    spec = obj.get("spec") or {}
    found = _group_errors(spec, in_cohort=bool(spec.get("cohortName"))) + _weight_errors(obj)
    if spec.get("cohortName") and not is_subdomain(spec["cohortName"]):
        found += name_errors(spec["cohortName"], field="spec.cohortName")
    preemption = spec.get("preemption") or {}
    borrow = (preemption.get("borrowWithinCohort") or {}).get("policy", "Never")
    if preemption.get("reclaimWithinCohort", "Never") == "Never" and borrow != "Never":
        found.append(
            invalid_value(
                "spec.preemption", preemption, "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never"
            )
        )
    selector = spec.get("namespaceSelector") or {}
    return found + label_errors(selector.get("matchLabels"), "spec.namespaceSelector.matchLabels")


def cohort_errors(obj: JsonObject) -> list[FieldError]:
    """Quotas within bounds; limits only below a parent."""
    spec = obj.get("spec") or {}
    found = _group_errors(spec, in_cohort=bool(spec.get("parentName"))) + _weight_errors(obj)
    if spec.get("parentName") and not is_subdomain(spec["parentName"]):
        found += name_errors(spec["parentName"], field="spec.parentName")
    return found


def _group_errors(spec: JsonObject, *, in_cohort: bool) -> list[FieldError]:
    found: list[FieldError] = []
    resources: set[str] = set()
    flavors: set[str] = set()
    for index, group in enumerate(spec.get("resourceGroups") or ()):
        where = f"spec.resourceGroups[{index}]"
        covered = group["coveredResources"]
        for number, resource in enumerate(covered):
            if resource in resources:
                found.append(duplicate(f"{where}.coveredResources[{number}]", resource))
            resources.add(resource)
        for number, flavor in enumerate(group["flavors"]):
            place = f"{where}.flavors[{number}]"
            if flavor["name"] in flavors:
                found.append(duplicate(f"{place}.name", flavor["name"]))
            flavors.add(flavor["name"])
            found += _flavor_errors(flavor, covered, place, in_cohort=in_cohort)
    return found


def _flavor_errors(flavor: JsonObject, covered: list[str], where: str, *, in_cohort: bool) -> list[FieldError]:
    found: list[FieldError] = []
    if len(flavor["resources"]) != len(covered):
        found.append(
            invalid_value(
                f"{where}.resources",
                len(flavor["resources"]),
                "flavors must have the same number of resources as the coveredResources",
            )
        )
        return found
    for index, quota in enumerate(flavor["resources"]):
        place = f"{where}.resources[{index}]"
        if quota["name"] != covered[index]:
            found.append(invalid_value(f"{place}.name", quota["name"], "must match the name in coveredResources"))
        nominal = quantity(quota["nominalQuota"])
        if nominal < 0:
            found.append(invalid_value(f"{place}.nominalQuota", str(quota["nominalQuota"]), _NOT_NEGATIVE))
        for limit in ("borrowingLimit", "lendingLimit"):
            value = quota.get(limit)
            if value is None:
                continue
            if quantity(value) < 0:
                found.append(invalid_value(f"{place}.{limit}", str(value), _NOT_NEGATIVE))
            if not in_cohort:
                found.append(invalid_value(f"{place}.{limit}", str(value), "must be nil when cohort is empty"))
            if limit == "lendingLimit" and quantity(value) > nominal:
                found.append(
                    invalid_value(f"{place}.{limit}", str(value), "must be less than or equal to the nominalQuota")
                )
    return found


def resource_flavor_errors(obj: JsonObject, old: JsonObject | None) -> list[FieldError]:
    """A flavor with a topology needs node labels and cannot change."""
    spec = obj.get("spec") or {}
    found = label_errors(spec.get("nodeLabels"), "spec.nodeLabels")
    found += core.toleration_errors(spec.get("tolerations") or [], "spec.tolerations")
    if spec.get("topologyName") and not spec.get("nodeLabels"):
        found.append(invalid_value("spec", spec, "at least one nodeLabel is required when topology is set"))
    before = (old or {}).get("spec") or {}
    if before.get("topologyName") and spec != before:
        found.append(invalid_value("spec", spec, "resourceFlavorSpec are immutable when topologyName is set"))
    return found


def topology_errors(obj: JsonObject, old: JsonObject | None) -> list[FieldError]:
    """Levels are unique, end with the hostname if they have it, and never change."""
    levels = [level["nodeLabel"] for level in obj["spec"]["levels"]]
    found = []
    for index, label in enumerate(levels):
        where = f"spec.levels[{index}].nodeLabel"
        if label in levels[:index]:
            found.append(duplicate(where, label))
        if label == "kubernetes.io/hostname" and index != len(levels) - 1:
            text = "the kubernetes.io/hostname label can only be used at the lowest level of topology"
            found.append(invalid_value(where, label, text))
    return found + _immutable(obj, old, ("spec", "levels"))


def has_quota(obj: JsonObject) -> bool:
    """Whether a Workload's quota is reserved."""
    conditions = (obj.get("status") or {}).get("conditions") or []
    return any(c["type"] == "QuotaReserved" and c["status"] == "True" for c in conditions)


def workload_errors(obj: JsonObject, old: JsonObject | None) -> list[FieldError]:
    """Pod sets make sense, and what was admitted does not change under the reservation."""
    spec = obj.get("spec") or {}
    found: list[FieldError] = []
    reducible = 0
    for index, pod_set in enumerate(spec.get("podSets") or ()):
        where = f"spec.podSets[{index}]"
        found += name_errors(pod_set["name"], label=True, field=f"{where}.name")
        least = pod_set.get("minCount")
        if least is not None:
            reducible += 1
            if least > pod_set["count"]:
                found.append(invalid_value(where, pod_set, "minCount should be positive and less or equal to count"))
        containers = pod_set["template"].get("spec", {}).get("containers") or ()
        for number, container in enumerate(containers):
            field = f"{where}.template.spec.containers[{number}].resources"
            for name, amount in ((container.get("resources") or {}).get("requests") or {}).items():
                if quantity(amount) < 0:
                    found.append(invalid_value(f"{field}.requests[{name}]", str(amount), _NOT_NEGATIVE))
    if reducible > 1:
        found.append(invalid_value("spec.podSets", reducible, "at most one podSet can use minCount"))
    if spec.get("queueName") and not is_subdomain(spec["queueName"]):
        found += name_errors(spec["queueName"], field="spec.queueName")
    if old is not None and has_quota(old):
        before = old.get("spec") or {}
        found += [
            forbidden_field(f"spec.{field}", f"{field} is immutable while workload quota reserved")
            for field in ("podSets", "queueName", "priorityClassRef")
            if spec.get(field) != before.get(field) and (field != "queueName" or spec.get("active", True))
        ]
    return found


def _workload_status_errors(obj: JsonObject, old: JsonObject) -> list[FieldError]:
    new_status, old_status = obj.get("status") or {}, old.get("status") or {}
    if new_status is old_status:
        return []
    found: list[FieldError] = []
    after, before = new_status.get("admission"), old_status.get("admission")
    if after and before and after is not before and _admitted(after) != _admitted(before):
        found.append(invalid_value("status.admission", after, _IMMUTABLE))
    names = [pod_set["name"] for pod_set in (obj.get("spec") or {}).get("podSets") or ()]
    if after:
        for index, assignment in enumerate(after.get("podSetAssignments") or ()):
            if assignment["name"] not in names:
                where = f"status.admission.podSetAssignments[{index}].name"
                found.append(
                    FieldError(reason="FieldValueNotFound", field=where, message=f'Not found: "{assignment["name"]}"')
                )
    if old_status.get("clusterName") and new_status.get("clusterName") != old_status["clusterName"] and has_quota(obj):
        found.append(
            invalid_value("status.clusterName", new_status.get("clusterName"), "clusterName is immutable once set")
        )
    return found


def _admitted(admission: JsonObject) -> JsonObject:
    """What of an admission is fixed: topology is assigned, and repaired, later."""
    assignments = [
        {k: v for k, v in assignment.items() if k not in ("topologyAssignment", "delayedTopologyRequest")}
        for assignment in admission.get("podSetAssignments") or ()
    ]
    return {**admission, "podSetAssignments": assignments}
