"""
The objects that are created for a request: one PodTemplate for each of its pod sets, and the ProvisioningRequest.

Pure functions over the Workload's JSON as the API server has it, since the log has not the whole pod templates. A
template is the user's on the flavors of the reservation, with the labels of their nodes and their tolerations, as
Kueue's createPodTemplate makes it. Pod sets may be merged into one (`podSetMergePolicy`, Kueue's mergePodSets): equal
means semantically equal, where 1 is 1000m and an empty field is a missing one.

The binder calls this when it creates a request.
"""

from typing import Any, Final, NamedTuple

import msgspec

from headgate.core.api.conversion import V1BETA2
from headgate.core.api.names import MANAGED
from headgate.core.api.owner_references import controlling
from headgate.core.kubernetes.quantities import QuantityError, parse_quantity
from headgate.core.provisioning.deciding import required_pod_sets
from headgate.core.provisioning.names import template_name
from headgate.core.state.tables import State, Workload
from headgate.core.workload.injection import assigned
from headgate.events.ids import RequestKey, split_key
from headgate.events.objects import PodSetAssignment, ProvisioningConfigSpec

PARAMETERS: Final = "provreq.kueue.x-k8s.io/"
"""Annotations of a Workload that become parameters of its requests."""

_REQUEST_VERSION: Final = "autoscaling.x-k8s.io/v1"
_LABELS: Final = {MANAGED: "true"}

Json = dict[str, Any]


class UnreadableWorkloadError(Exception):
    """Raised when the Workload is not, or no longer, the one that the request was decided for."""


class _Group(NamedTuple):
    """Pod sets that have one template: the first of them and how many pods they have together."""

    pod_set: Json
    assignment: PodSetAssignment
    pods: int


class RequestObjects(NamedTuple):
    """What is to be created: the PodTemplates first."""

    templates: tuple[Json, ...]
    request: Json


def objects_for(
    state: State, workload: Workload, request: RequestKey, config: ProvisioningConfigSpec, raw: bytes
) -> RequestObjects:
    """
    The objects of a request, from the Workload's JSON.

    Raises UnreadableWorkloadError, and InjectionError when a flavor is gone.
    """
    whole = _whole(raw, workload)
    groups = _groups(whole, workload, config)
    namespace, name = split_key(request)
    owner = [controlling(V1BETA2, "Workload", split_key(workload.key)[1], workload.uid)]
    templates, pod_sets = [], []
    for group in groups:
        called = template_name(request, group.pod_set["name"])
        templates.append(
            {
                "apiVersion": "v1",
                "kind": "PodTemplate",
                "metadata": {"namespace": namespace, "name": called, "labels": _LABELS, "ownerReferences": owner},
                "template": _template(state, workload, group),
            }
        )
        pod_sets.append({"podTemplateRef": {"name": called}, "count": group.pods})
    annotations = whole["metadata"].get("annotations") or {}
    passed = {key.removeprefix(PARAMETERS): value for key, value in annotations.items() if key.startswith(PARAMETERS)}
    spec: Json = {
        "provisioningClassName": config.provisioning_class_name,
        "parameters": {**config.parameters, **passed},
        "podSets": pod_sets,
    }
    body = {
        "apiVersion": _REQUEST_VERSION,
        "kind": "ProvisioningRequest",
        "metadata": {"namespace": namespace, "name": name, "labels": _LABELS, "ownerReferences": owner},
        "spec": spec,
    }
    return RequestObjects(tuple(templates), body)


def transferred(request: RequestKey, uid: str) -> list[Json]:
    """The owner references of a PodTemplate whose ProvisioningRequest exists: it is deleted with that."""
    return [controlling(_REQUEST_VERSION, "ProvisioningRequest", split_key(request)[1], uid)]


def _whole(raw: bytes, workload: Workload) -> Json:
    try:
        whole = msgspec.json.decode(raw)
        if whole["metadata"]["uid"] == workload.uid and whole["spec"]["podSets"]:
            assert isinstance(whole, dict)
            return whole
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise UnreadableWorkloadError(f"Workload {workload.key} cannot be read: {error}") from error
    raise UnreadableWorkloadError(f"Workload {workload.key} was created anew")


def _groups(whole: Json, workload: Workload, config: ProvisioningConfigSpec) -> list[_Group]:
    """The pod sets that need capacity, those merged that the policy calls identical."""
    by_name = {each.get("name", "main"): each for each in whole["spec"]["podSets"]}
    assignments = workload.admission.pod_set_assignments if workload.admission is not None else ()
    assigned_to = {each.name: each for each in assignments}
    groups: list[_Group] = []
    for pod_set in required_pod_sets(workload, config):
        if pod_set.name not in by_name or pod_set.name not in assigned_to:
            raise UnreadableWorkloadError(f"Workload {workload.key} has other pod sets than its admission")
        its_own = {"name": pod_set.name, **by_name[pod_set.name]}
        count = assigned_to[pod_set.name].count
        if count <= 0:
            continue
        policy = config.pod_set_merge_policy
        same = next((nth for nth, each in enumerate(groups) if _is_identical(policy, each.pod_set, its_own)), None)
        if same is None:
            groups.append(_Group(its_own, assigned_to[pod_set.name], count))
        else:
            groups[same] = groups[same]._replace(pods=groups[same].pods + count)
    return groups


# --- which pod sets are identical ----------------------------------------------------------------------------------

_SCHEDULING: Final = ("resources", "nodeSelector", "tolerations", "affinity", "resourceClaims")
"""The fields of a pod's spec that are compared besides the requests of its containers."""


def _is_identical(policy: str | None, one: Json, other: Json) -> bool:
    first, second = one.get("template") or {}, other.get("template") or {}
    if policy == "IdenticalPodTemplates":
        return _same(first, second)
    if policy != "IdenticalWorkloadSchedulingRequirements":
        return False
    first, second = first.get("spec") or {}, second.get("spec") or {}
    containers = all(
        _same(_requests(first.get(kind)), _requests(second.get(kind))) for kind in ("containers", "initContainers")
    )
    return containers and all(_same(first.get(field), second.get(field)) for field in _SCHEDULING)


def _requests(containers: list[Json] | None) -> list[Json]:
    return [{"requests": (each.get("resources") or {}).get("requests") or {}} for each in containers or ()]


_QUANTITIES: Final = frozenset({"requests", "limits", "overhead"})


def _same(one: Any, other: Any) -> bool:
    """Semantic equality of two JSON values, as apimachinery's: quantities by value, empty and missing alike."""
    return bool(_normal(one) == _normal(other))


def _normal(value: Any, *, quantities: bool = False) -> Any:
    if isinstance(value, dict):
        kept = {
            key: _quantity(each) if quantities else _normal(each, quantities=key in _QUANTITIES)
            for key, each in value.items()
        }
        return {key: each for key, each in kept.items() if each is not None} or None
    if isinstance(value, list):
        return [_normal(each) for each in value] or None
    return value


def _quantity(value: Any) -> Any:
    try:
        return parse_quantity(value)
    except (QuantityError, TypeError):
        return value


# --- the template of a pod set -------------------------------------------------------------------------------------


def _template(state: State, workload: Workload, group: _Group) -> Json:
    template: Json = msgspec.json.decode(msgspec.json.encode(group.pod_set.get("template") or {}))
    pod_set = next(each for each in workload.spec.pod_sets if each.name == group.pod_set["name"])
    directives = assigned(state, pod_set, group.assignment)
    spec = template.setdefault("spec", {})
    if directives.annotations:
        metadata = template["metadata"] = template.get("metadata") or {}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **directives.annotations}
    if directives.node_selector:
        spec["nodeSelector"] = directives.node_selector
    if directives.tolerations:
        spec["tolerations"] = [msgspec.to_builtins(each) for each in directives.tolerations]
    if directives.scheduling_gates:
        spec["schedulingGates"] = [{"name": gate} for gate in directives.scheduling_gates]
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()), spec):
        _request_limits(container)
    return template


def _request_limits(container: Json) -> None:
    """A limit is the request, too, where that is missing."""
    resources = container.get("resources")
    if resources and resources.get("limits"):
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
