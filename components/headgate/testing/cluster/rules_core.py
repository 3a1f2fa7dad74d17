"""
What the API server fills in and refuses for Kubernetes' own kinds, beyond their schema.

Defaults and admission (priority, LimitRange, RuntimeClass overhead, generated Job selectors) and the validation that
matters to a scheduler: gates only shrink, a bound pod's spec is fixed, a Job's scheduling directives are open only
while it is suspended. Sources: k8s.io/kubernetes/pkg/apis/core/validation, pkg/apis/batch/validation,
pkg/registry/*/strategy.go.
"""

import re
from typing import TYPE_CHECKING, Any, Final

from headgate.testing.cluster import errors
from headgate.testing.cluster.errors import FieldError, forbidden_field, invalid_value, not_supported, required
from headgate.testing.cluster.kinds import BY_PLURAL, Kind
from headgate.testing.cluster.metadata import label_errors, name_errors
from headgate.testing.cluster.quantity import quantity
from headgate.testing.cluster.times import rfc3339

if TYPE_CHECKING:
    from headgate.testing.cluster.registry import Registry

JsonObject = dict[str, Any]

_PRIORITY_CLASSES: Final = BY_PLURAL[("scheduling.k8s.io", "priorityclasses")]
_RUNTIME_CLASSES: Final = BY_PLURAL[("node.k8s.io", "runtimeclasses")]
_LIMIT_RANGES: Final = BY_PLURAL[("", "limitranges")]
_SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}

GATED_MESSAGE: Final = "Scheduling is blocked due to non-empty scheduling gates"


# -- pods ------------------------------------------------------------------------------------------------------------
# ----------


def pod_on_create(registry: "Registry", kind: Kind, obj: JsonObject) -> JsonObject:
    """
    Admission and defaults of a pod.

    Raises ApiError 403 if it names a class that does not exist or breaks a LimitRange.
    """
    spec = dict(obj["spec"])
    _set_priority(registry, kind, obj["metadata"]["name"], spec)
    _set_overhead(registry, kind, obj["metadata"]["name"], spec)
    limits = registry.store.table(_LIMIT_RANGES)
    for entry in limits.select(obj["metadata"]["namespace"]):
        _apply_limit_range(kind, obj["metadata"]["name"], spec, entry.obj)
    for field in ("containers", "initContainers"):
        if field in spec:
            spec[field] = [_with_default_requests(container) for container in spec[field]]
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
    return {**obj, "spec": spec, "status": status}


def _set_priority(registry: "Registry", kind: Kind, name: str, spec: JsonObject) -> None:
    class_name = spec.get("priorityClassName")
    value, policy = 0, "PreemptLowerPriority"
    if class_name in _SYSTEM_PRIORITIES:
        value = _SYSTEM_PRIORITIES[class_name]
    elif class_name:
        entry = registry.find(_PRIORITY_CLASSES, "", class_name)
        if entry is None:
            raise errors.forbidden(kind, name, f"no PriorityClass with name {class_name} was found")
        value, policy = entry.obj["value"], entry.obj.get("preemptionPolicy", policy)
    else:
        defaults = [e.obj for e in registry.store.table(_PRIORITY_CLASSES).select("") if e.obj.get("globalDefault")]
        if defaults:
            chosen = min(defaults, key=lambda c: (c["value"], c["metadata"]["name"]))
            spec["priorityClassName"] = chosen["metadata"]["name"]
            value, policy = chosen["value"], chosen.get("preemptionPolicy", policy)
    if spec.get("priority", value) != value:
        raise errors.forbidden(
            kind,
            name,
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller "
            f"computed {value} from the given PriorityClass name",
        )
    spec["priority"] = value
    spec.setdefault("preemptionPolicy", policy)


def _set_overhead(registry: "Registry", kind: Kind, name: str, spec: JsonObject) -> None:
    class_name = spec.get("runtimeClassName")
    if not class_name:
        return
    entry = registry.find(_RUNTIME_CLASSES, "", class_name)
    if entry is None:
        raise errors.forbidden(kind, name, f'pod rejected: RuntimeClass "{class_name}" not found')
    overhead = entry.obj.get("overhead", {}).get("podFixed")
    if overhead:
        if spec.get("overhead") not in (None, overhead):
            raise errors.forbidden(
                kind, name, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
            )
        spec["overhead"] = overhead
    scheduling = entry.obj.get("scheduling", {})
    if scheduling.get("nodeSelector"):
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **scheduling["nodeSelector"]}
    if scheduling.get("tolerations"):
        given = spec.get("tolerations", [])
        spec["tolerations"] = [*given, *(t for t in scheduling["tolerations"] if t not in given)]


def _apply_limit_range(kind: Kind, name: str, spec: JsonObject, limit_range: JsonObject) -> None:
    problems: list[str] = []
    for item in limit_range.get("spec", {}).get("limits", []):
        if item["type"] != "Container":
            continue
        for field in ("containers", "initContainers"):
            if field in spec:
                spec[field] = [_with_limits(container, item) for container in spec[field]]
                for container in spec[field]:
                    problems += _limit_problems(container, item)
    if problems:
        text = problems[0] if len(problems) == 1 else "[" + ", ".join(problems) + "]"
        raise errors.forbidden(kind, name, text)


def _with_limits(container: JsonObject, item: JsonObject) -> JsonObject:
    resources = container.get("resources") or {}
    limits, requests = dict(resources.get("limits") or {}), dict(resources.get("requests") or {})
    for resource, amount in (item.get("default") or item.get("max") or {}).items():
        limits.setdefault(resource, amount)
    fallback = item.get("defaultRequest") or item.get("default") or item.get("min") or {}
    given = (resources.get("limits") or {}).keys()
    for resource, amount in fallback.items():
        if resource not in given:
            requests.setdefault(resource, amount)
    filled = {**resources, **({"limits": limits} if limits else {}), **({"requests": requests} if requests else {})}
    return container if filled == resources else {**container, "resources": filled}


def _limit_problems(container: JsonObject, item: JsonObject) -> list[str]:
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    requests = {**limits, **(resources.get("requests") or {})}
    problems = []
    for resource, least in (item.get("min") or {}).items():
        if resource not in requests:
            problems.append(f"minimum {resource} usage per Container is {least}.  No request is specified")
        elif quantity(requests[resource]) < quantity(least):
            problems.append(f"minimum {resource} usage per Container is {least}, but request is {requests[resource]}")
    for resource, most in (item.get("max") or {}).items():
        if resource not in limits:
            problems.append(f"maximum {resource} usage per Container is {most}.  No limit is specified")
        elif quantity(limits[resource]) > quantity(most):
            problems.append(f"maximum {resource} usage per Container is {most}, but limit is {limits[resource]}")
    return problems


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


def pod_spec_errors(spec: JsonObject, field: str) -> list[FieldError]:
    """What is wrong with a pod's spec, in a pod or in a template."""
    found: list[FieldError] = []
    names: list[str] = []
    if not spec.get("containers"):
        found.append(required(f"{field}.containers"))
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            where = f"{field}.{group}[{index}]"
            found += name_errors(container["name"], label=True, field=f"{where}.name")
            if container["name"] in names:
                found.append(errors.duplicate(f"{where}.name", container["name"]))
            names.append(container["name"])
            if not container.get("image"):
                found.append(required(f"{where}.image"))
            found += resource_errors(container.get("resources") or {}, f"{where}.resources")
    for key, value in (spec.get("nodeSelector") or {}).items():
        found += label_errors({key: value}, f"{field}.nodeSelector")
    found += toleration_errors(spec.get("tolerations") or [], f"{field}.tolerations")
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        if not gate.get("name"):
            found.append(required(f"{field}.schedulingGates[{index}].name"))
    return found


def resource_errors(resources: JsonObject, field: str) -> list[FieldError]:
    """What is wrong with requests and limits: negative amounts, and requests above limits."""
    found = []
    limits = resources.get("limits") or {}
    for group in ("limits", "requests"):
        for name, amount in (resources.get(group) or {}).items():
            if quantity(amount) < 0:
                found.append(
                    invalid_value(f"{field}.{group}[{name}]", str(amount), "must be greater than or equal to 0")
                )
    for name, amount in (resources.get("requests") or {}).items():
        if name in limits and quantity(amount) > quantity(limits[name]):
            found.append(
                invalid_value(
                    f"{field}.requests", str(amount), f"must be less than or equal to {name} limit of {limits[name]}"
                )
            )
    return found


def toleration_errors(tolerations: list[JsonObject], field: str) -> list[FieldError]:
    """What is wrong with a list of tolerations."""
    found = []
    for index, toleration in enumerate(tolerations):
        where = f"{field}[{index}]"
        operator = toleration.get("operator", "Equal")
        if not toleration.get("key") and operator != "Exists":
            found.append(
                invalid_value(
                    f"{where}.operator",
                    operator,
                    'operator must be Exists when `key` is empty, which means "match all values and all keys"',
                )
            )
        if operator == "Exists" and toleration.get("value"):
            found.append(
                invalid_value(
                    f"{where}.operator", toleration["value"], "value must be empty when `operator` is 'Exists'"
                )
            )
        if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
            found.append(
                invalid_value(
                    f"{where}.effect",
                    toleration.get("effect", ""),
                    "effect must be 'NoExecute' when `tolerationSeconds` is set",
                )
            )
    return found


def pod_create_errors(obj: JsonObject) -> list[FieldError]:
    """What is wrong with a new pod."""
    found = pod_spec_errors(obj["spec"], "spec")
    if obj["spec"].get("schedulingGates") and obj["spec"].get("nodeName"):
        found.append(forbidden_field("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return found


_POD_FIXED: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def pod_update_errors(obj: JsonObject, old: JsonObject) -> list[FieldError]:
    """
    What an update may not do to a pod.

    Gates only go, tolerations only come, node constraints only tighten while gated.
    """
    new_spec, old_spec = obj["spec"], old["spec"]
    if new_spec is old_spec:
        return []
    old_gates = [gate.get("name") for gate in old_spec.get("schedulingGates") or ()]
    found = [
        forbidden_field("spec.schedulingGates", f"only deletion is allowed, but found new scheduling gate '{name}'")
        for name in (gate.get("name") for gate in new_spec.get("schedulingGates") or ())
        if name not in old_gates
    ]
    kept = new_spec.get("tolerations") or []
    if any(toleration not in kept for toleration in old_spec.get("tolerations") or ()):
        found.append(
            forbidden_field("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
        )
    mutable = ["schedulingGates", "tolerations", "activeDeadlineSeconds"]
    if old_gates:
        found += _tightened(new_spec, old_spec)
        mutable += ["nodeSelector", "affinity"]
    if _frozen(new_spec, mutable) != _frozen(old_spec, mutable):
        found.append(forbidden_field("spec", _POD_FIXED))
    return found


def _frozen(spec: JsonObject, mutable: list[str]) -> JsonObject:
    rest = {name: value for name, value in spec.items() if name not in mutable}
    for group in ("containers", "initContainers"):
        if group in rest:
            rest[group] = [{name: value for name, value in c.items() if name != "image"} for c in rest[group]]
    return rest


def _tightened(new_spec: JsonObject, old_spec: JsonObject) -> list[FieldError]:
    found = []
    new_selector, old_selector = new_spec.get("nodeSelector") or {}, old_spec.get("nodeSelector") or {}
    if any(new_selector.get(key) != value for key, value in old_selector.items()):
        found.append(
            invalid_value(
                "spec.nodeSelector",
                new_selector,
                "only additions are allowed to spec.nodeSelector (no mutations or deletions)",
            )
        )
    old_terms = _required_terms(old_spec)
    new_terms = _required_terms(new_spec)
    if old_terms and new_terms != old_terms:
        same_count = len(new_terms) == len(old_terms)
        grown = same_count and all(
            all(e in (new.get("matchExpressions") or []) for e in old.get("matchExpressions") or ())
            for new, old in zip(new_terms, old_terms, strict=True)
        )
        if not grown:
            found.append(
                invalid_value(
                    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
                    new_terms,
                    "only additions are allowed (no mutations or deletions)",
                )
            )
    return found


def _required_terms(spec: JsonObject) -> list[JsonObject]:
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    terms: list[JsonObject] = affinity.get("nodeSelectorTerms") or []
    return terms


# -- jobs ------------------------------------------------------------------------------------------------------------
# ----------


def job_on_create(obj: JsonObject) -> JsonObject:
    """Defaults of a Job: counts, back-off limit, and the generated selector with the labels that match it."""
    spec, metadata = dict(obj["spec"]), obj["metadata"]
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6 if "backoffLimitPerIndex" not in spec else 2**31 - 1)
    if not spec.get("manualSelector"):
        uid, name = metadata["uid"], metadata["name"]
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
        template = spec["template"]
        template_meta = template.get("metadata") or {}
        labels = {
            **(template_meta.get("labels") or {}),
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": name,
            "controller-uid": uid,
            "job-name": name,
        }
        spec["template"] = {**template, "metadata": {**template_meta, "labels": labels}}
    return {**obj, "spec": spec, "status": {}}


def job_create_errors(obj: JsonObject) -> list[FieldError]:
    """What is wrong with a new Job."""
    spec = obj["spec"]
    found = []
    if len(obj["metadata"]["name"]) > 63:
        found.append(invalid_value("metadata.name", obj["metadata"]["name"], "must be no more than 63 characters"))
    if spec["completionMode"] == "Indexed" and "completions" not in spec:
        found.append(required("spec.completions", "when completion mode is Indexed"))
    template = spec["template"]
    if "spec" not in template:
        return [*found, required("spec.template.spec.containers")]
    policy = template["spec"].get("restartPolicy", "")
    if policy not in ("Never", "OnFailure"):
        found.append(not_supported("spec.template.spec.restartPolicy", policy, ["OnFailure", "Never"]))
    return found + pod_spec_errors(template["spec"], "spec.template.spec")


_DIRECTIVES: Final = ("nodeSelector", "affinity", "tolerations", "schedulingGates")


def job_update_errors(obj: JsonObject, old: JsonObject) -> list[FieldError]:
    """
    What an update may not do to a Job.

    Scheduling directives of the template are open while it is suspended and has not started.
    """
    new_spec, old_spec = obj["spec"], old["spec"]
    if new_spec is old_spec:
        return []
    found = [
        invalid_value(f"spec.{field}", new_spec.get(field), "field is immutable")
        for field in (
            "selector",
            "completionMode",
            "podFailurePolicy",
            "backoffLimitPerIndex",
            "managedBy",
            "successPolicy",
        )
        if new_spec.get(field) != old_spec.get(field)
    ]
    if new_spec.get("completions") != old_spec.get("completions"):
        elastic = new_spec["completionMode"] == "Indexed" and new_spec.get("completions") == new_spec.get("parallelism")
        if not elastic:
            found.append(invalid_value("spec.completions", new_spec.get("completions"), "field is immutable"))
    open_ = bool(old_spec.get("suspend")) and not old.get("status", {}).get("startTime")
    new_template, old_template = new_spec["template"], old_spec["template"]
    if open_:
        new_template, old_template = _without_directives(new_template), _without_directives(old_template)
    if new_template != old_template:
        found.append(invalid_value("spec.template", new_spec["template"], "field is immutable"))
    return found


def _without_directives(template: JsonObject) -> JsonObject:
    metadata = {k: v for k, v in (template.get("metadata") or {}).items() if k not in ("labels", "annotations")}
    spec = {k: v for k, v in template.get("spec", {}).items() if k not in _DIRECTIVES}
    return {"metadata": metadata, "spec": spec}


# -- the others
# ----------------------------------------------------------------------------------------------------------------


def namespace_on_create(obj: JsonObject) -> JsonObject:
    """A namespace starts Active, labelled with its name, and held by the namespace controller's finalizer."""
    metadata = obj["metadata"]
    labels = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    return {
        **obj,
        "metadata": {**metadata, "labels": labels},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def priority_class_errors(obj: JsonObject, old: JsonObject | None) -> list[FieldError]:
    """A priority class's value is bounded for users and fixed once created."""
    if old is None:
        if obj["value"] > 1_000_000_000 and not obj["metadata"]["name"].startswith("system-"):
            return [forbidden_field("value", "maximum allowed value of a user defined priority is 1000000000")]
        return []
    return [
        forbidden_field(field, "may not be changed in an update.")
        for field in ("value", "preemptionPolicy")
        if obj.get(field) != old.get(field)
    ]


_PERCENT_TEXT: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)


def disruption_budget_errors(obj: JsonObject) -> list[FieldError]:
    """A budget is a number that is not negative or a percentage, and only one of the two."""
    spec = obj.get("spec") or {}
    found = []
    for field in ("minAvailable", "maxUnavailable"):
        value = spec.get(field)
        if isinstance(value, int) and value < 0:
            found.append(invalid_value(f"spec.{field}", value, "must be greater than or equal to 0"))
        if isinstance(value, str) and re.fullmatch("[0-9]+%", value, re.ASCII) is None:
            found.append(invalid_value(f"spec.{field}", value, _PERCENT_TEXT))
    if "minAvailable" in spec and "maxUnavailable" in spec:
        found.append(invalid_value("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    return found


def config_map_errors(obj: JsonObject, old: JsonObject | None) -> list[FieldError]:
    """An immutable ConfigMap stays as it is."""
    if old is None or not old.get("immutable"):
        return []
    return [
        forbidden_field(field, "field is immutable when `immutable` is set")
        for field in ("immutable", "data", "binaryData")
        if obj.get(field) != old.get(field)
    ]
