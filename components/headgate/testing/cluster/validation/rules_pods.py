"""
What the API server fills in and refuses for pods.

A new pod goes through admission and gets its first status; an update may give a container another image, shorten a
deadline, add tolerations, take scheduling gates away and, while one is left, tighten where the pod may go. Sources:
k8s.io/kubernetes/pkg/registry/core/pod/strategy.go, pkg/apis/core/validation (`ValidatePodUpdate`).
"""

from typing import Any, Final

from headgate.testing.cluster.errors import FieldError, forbidden_field, invalid_value, required
from headgate.testing.cluster.kinds import Kind
from headgate.testing.cluster.quantity import quantity
from headgate.testing.cluster.times import rfc3339
from headgate.testing.cluster.validation.admission import admitted, set_tolerations
from headgate.testing.cluster.validation.registry_reader import RegistryReader
from headgate.testing.cluster.validation.rules_podspec import (
    pod_spec_errors,
    toleration_errors,
    with_container_defaults,
)

JsonObject = dict[str, Any]

GATED_MESSAGE: Final = "Scheduling is blocked due to non-empty scheduling gates"
_SECONDS_MAX: Final = 2**31 - 1
_POD_FIXED: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def pod_on_create(registry: RegistryReader, kind: Kind, obj: JsonObject) -> JsonObject:
    """
    Defaults, admission and first status of a pod.

    Raises ApiStatusError 403 if it names a class that does not exist or breaks a LimitRange.
    """
    obj = admitted(registry, kind, pod_defaults({**obj, "spec": obj.get("spec") or {}}))
    spec = obj["spec"]
    status: JsonObject = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": rfc3339(registry.clock()),
                "reason": "SchedulingGated",
                "message": GATED_MESSAGE,
            }
        ]
    return {**obj, "status": status}


def pod_defaults(obj: JsonObject) -> JsonObject:
    """The pod with the defaults that no schema can say, at its creation and after each update."""
    spec = with_container_defaults(obj["spec"], _with_default_requests)
    if "enableServiceLinks" not in spec:
        spec = {**spec, "enableServiceLinks": True}
    return obj if spec is obj["spec"] else {**obj, "spec": spec}


def pod_on_update(obj: JsonObject, old: JsonObject) -> JsonObject:
    """The pod with its defaults, and with the priority that it was admitted with."""
    if obj.get("spec") is old["spec"]:
        return obj
    obj = pod_defaults({**obj, "spec": obj.get("spec") or {}})
    spec = {**obj["spec"]}
    for field in ("priority", "preemptionPolicy"):
        if field in old["spec"]:
            spec.setdefault(field, old["spec"][field])
    set_tolerations(spec)
    return {**obj, "spec": spec}


def _with_default_requests(container: JsonObject) -> JsonObject:
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits"), resources.get("requests") or {}
    missing = {name: amount for name, amount in (limits or {}).items() if name not in requests}
    return {**container, "resources": {**resources, "requests": {**requests, **missing}}} if missing else container


def qos_class(spec: JsonObject) -> str:
    """The quality of service class of a pod: Guaranteed, Burstable or BestEffort."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    anything, guaranteed = False, True
    for container in containers:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        anything = anything or any(name in ("cpu", "memory") for name in {**limits, **requests})
        for name in ("cpu", "memory"):
            if name not in limits or quantity(requests.get(name, limits[name])) != quantity(limits[name]):
                guaranteed = False
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def pod_create_errors(obj: JsonObject) -> list[FieldError]:
    """What is wrong with a new pod."""
    spec = obj["spec"]
    found = pod_spec_errors(spec, "spec") + _image_errors(spec)
    if spec.get("ephemeralContainers"):
        found.append(forbidden_field("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("schedulingGates") and spec.get("nodeName"):
        found.append(forbidden_field("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return found


# --- updates


def pod_update_errors(obj: JsonObject, old: JsonObject) -> list[FieldError]:
    """
    What an update may not do to a pod.

    Gates only go, tolerations only come, node constraints only tighten while gated.
    """
    new_spec, old_spec = obj["spec"], old["spec"]
    if new_spec is old_spec or new_spec == old_spec:
        return []
    found = pod_spec_errors(new_spec, "spec") + _image_errors(new_spec)
    for group in ("containers", "initContainers"):
        new, before = new_spec.get(group) or [], old_spec.get(group) or []
        found += _container_changes(new, before, f"spec.{group}")
        if len(new) != len(before):
            return found
    found += _deadline_errors(new_spec, old_spec)
    found += _toleration_changes(new_spec, old_spec)
    gates = [gate.get("name") for gate in old_spec.get("schedulingGates") or ()]
    found += [
        forbidden_field(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'",
        )
        for index, gate in enumerate(new_spec.get("schedulingGates") or ())
        if gate.get("name") not in gates
    ]
    after, before = _frozen(new_spec, gated=bool(gates)), _frozen(old_spec, gated=bool(gates))
    if before.get("terminationGracePeriodSeconds", 0) < 0 and after.get("terminationGracePeriodSeconds") == 1:
        after["terminationGracePeriodSeconds"] = before["terminationGracePeriodSeconds"]
    if gates:
        found += _tightened(new_spec, old_spec)
    if after != before:
        found.append(forbidden_field("spec", f"{_POD_FIXED}\n{_difference(after, before)}"))
    return found


def _container_changes(new: list[JsonObject], old: list[JsonObject], field: str) -> list[FieldError]:
    if len(new) != len(old):
        return [forbidden_field(field, "pod updates may not add or remove containers")]
    missing = [index for index, container in enumerate(new) if not container.get("image")]
    return [required(f"{field}[{index}].image") for index in missing] + _spaced(new, field)


def _image_errors(spec: JsonObject) -> list[FieldError]:
    """What is checked of a pod's images, and not of a template's."""
    return [
        error for group in ("containers", "initContainers") for error in _spaced(spec.get(group) or [], f"spec.{group}")
    ]


def _spaced(containers: list[JsonObject], field: str) -> list[FieldError]:
    text = "must not have leading or trailing whitespace"
    images = [container.get("image", "") for container in containers]
    return [
        invalid_value(f"{field}[{index}].image", image, text)
        for index, image in enumerate(images)
        if image != image.strip()
    ]


def _deadline_errors(new_spec: JsonObject, old_spec: JsonObject) -> list[FieldError]:
    where = "spec.activeDeadlineSeconds"
    new, old = new_spec.get("activeDeadlineSeconds"), old_spec.get("activeDeadlineSeconds")
    if new is None:
        if old is None:
            return []
        return [invalid_value(where, None, "must not update from a positive integer to nil value")]
    if not 0 <= new <= _SECONDS_MAX:
        return [invalid_value(where, new, f"must be between 0 and {_SECONDS_MAX}, inclusive")]
    return (
        [] if old is None or new <= old else [invalid_value(where, new, "must be less than or equal to previous value")]
    )


def _toleration_changes(new_spec: JsonObject, old_spec: JsonObject) -> list[FieldError]:
    kept = [_untimed(toleration) for toleration in new_spec.get("tolerations") or ()]
    if any(_untimed(toleration) not in kept for toleration in old_spec.get("tolerations") or ()):
        text = "existing toleration can not be modified except its tolerationSeconds"
        return [forbidden_field("spec.tolerations", text)]
    return toleration_errors(new_spec.get("tolerations") or [], "spec.tolerations")


def _untimed(toleration: JsonObject) -> JsonObject:
    return {field: value for field, value in toleration.items() if field != "tolerationSeconds"}


def _frozen(spec: JsonObject, *, gated: bool) -> JsonObject:
    """The part of a pod's spec that an update must leave as it is."""
    mutable = ("schedulingGates", "tolerations", "activeDeadlineSeconds", *(("nodeSelector",) if gated else ()))
    rest = {name: value for name, value in spec.items() if name not in mutable}
    for group in ("containers", "initContainers"):
        if group in rest:
            rest[group] = [{name: value for name, value in c.items() if name != "image"} for c in rest[group]]
    if gated and "affinity" in rest:
        rest["affinity"] = {name: value for name, value in rest["affinity"].items() if name != "nodeAffinity"}
        if not rest["affinity"]:
            del rest["affinity"]
    return rest


def _difference(after: JsonObject, before: JsonObject) -> str:
    """The fields that changed, one a line; the API server prints a longer comparison here."""
    names = sorted(name for name in {**after, **before} if after.get(name) != before.get(name))
    return "\n".join(f"{name}: {before.get(name)!r} -> {after.get(name)!r}" for name in names)


def _tightened(new_spec: JsonObject, old_spec: JsonObject) -> list[FieldError]:
    found = []
    new_selector, old_selector = new_spec.get("nodeSelector") or {}, old_spec.get("nodeSelector") or {}
    if any(new_selector.get(key) != value for key, value in old_selector.items()):
        text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        found.append(invalid_value("spec.nodeSelector", new_selector or None, text))
    old_terms, new_terms = _required_terms(old_spec), _required_terms(new_spec)
    where = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    if old_terms and len(old_terms) != len(new_terms):
        text = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        return [*found, invalid_value(where, new_terms or None, text)]
    for index, before in enumerate(old_terms):
        after = new_terms[index]
        if not _grown(after, before):
            text = "only additions are allowed (no mutations or deletions)"
            found.append(invalid_value(f"{where}[{index}]", after, text))
    return found


def _grown(after: JsonObject, before: JsonObject) -> bool:
    parts = [(after.get(part) or [], before.get(part) or []) for part in ("matchExpressions", "matchFields")]
    if not any(old for _, old in parts):
        return not any(new for new, _ in parts)
    return all(new[: len(old)] == old for new, old in parts)


def _required_terms(spec: JsonObject) -> list[JsonObject]:
    nodes = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms: list[JsonObject] = (nodes.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get(
        "nodeSelectorTerms"
    ) or []
    return terms


# --- status


def pod_status_errors(obj: JsonObject, old: JsonObject) -> list[FieldError]:
    """What an update of the status may not do: change the quality of service, or bring an ended container back."""
    new_status, old_status = obj.get("status") or {}, old.get("status") or {}
    if new_status is old_status:
        return []
    found: list[FieldError] = []
    if new_status.get("qosClass") != old_status.get("qosClass"):
        found.append(invalid_value("status.qosClass", new_status.get("qosClass", ""), "field is immutable"))
    policy = old["spec"].get("restartPolicy")
    if policy == "Always":
        return found
    states = {each.get("name"): each.get("state") or {} for each in new_status.get("containerStatuses") or ()}
    for index, before in enumerate(old_status.get("containerStatuses") or ()):
        ended = (before.get("state") or {}).get("terminated")
        after = states.get(before.get("name"))
        if ended is None or after is None or "terminated" in after:
            continue
        if policy == "OnFailure" and ended.get("exitCode", 0) != 0:
            continue
        where = f"status.containerStatuses[{index}].state"
        found.append(forbidden_field(where, "may not be transitioned to non-terminated state"))
    return found


def pod_status_on_update(obj: JsonObject, old: JsonObject) -> JsonObject:
    """The status as it is kept: its quality of service stays unless it is set; times are present, if null."""
    new_status, old_status = obj.get("status") or {}, old.get("status") or {}
    if new_status is old_status:
        return obj
    status = {**new_status}
    if "qosClass" in old_status:
        status.setdefault("qosClass", old_status["qosClass"])
    if status.get("conditions"):
        status["conditions"] = [_with_times(condition, _CONDITION_TIMES) for condition in status["conditions"]]
    for group in ("containerStatuses", "initContainerStatuses"):
        if status.get(group):
            status[group] = [_with_states(each) for each in status[group]]
    return {**obj, "status": status}


_CONDITION_TIMES: Final = {"lastProbeTime": None, "lastTransitionTime": None}
_STATE_TIMES: Final = {"running": {"startedAt": None}, "terminated": {"startedAt": None, "finishedAt": None}}
_CONTAINER_STATUS: Final = {"state": {}, "lastState": {}, "ready": False, "restartCount": 0, "image": "", "imageID": ""}


def _with_times(part: JsonObject, times: JsonObject) -> JsonObject:
    return part if part.keys() >= times.keys() else {**times, **part}


def _with_states(status: JsonObject) -> JsonObject:
    filled = _with_times(status, _CONTAINER_STATUS)
    for field in ("state", "lastState"):
        for kind, times in _STATE_TIMES.items():
            state = filled[field].get(kind)
            if state is not None and not state.keys() >= times.keys():
                filled = {**filled, field: {**filled[field], kind: {**times, **state}}}
    return filled
