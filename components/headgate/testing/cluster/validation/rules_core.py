"""
What the API server fills in and refuses for Kubernetes' smaller kinds.

Namespaces, nodes, priority and runtime classes, disruption budgets, limit ranges, leases and config maps; pods and
Jobs have modules of their own. Sources: k8s.io/kubernetes/pkg/apis/*/validation, pkg/registry/*/strategy.go.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from headgate.testing.cluster import errors
from headgate.testing.cluster.errors import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
    too_long,
)
from headgate.testing.cluster.kinds import Kind
from headgate.testing.cluster.quantity import quantity
from headgate.testing.cluster.storage.metadata import label_errors, name_errors
from headgate.testing.cluster.validation.admission import SYSTEM_PRIORITIES, limit_range_defaults
from headgate.testing.cluster.validation.registry_reader import RegistryReader
from headgate.testing.cluster.validation.rules_podspec import (
    resource_errors,
    selector_errors,
    taint_errors,
    toleration_errors,
)

JsonObject = dict[str, Any]

_IMMUTABLE: Final = "field is immutable"
_SUBDOMAIN_MAX: Final = 253
_USER_PRIORITY_MAX: Final = 1_000_000_000


def with_defaults(registry: RegistryReader, kind: Kind, obj: JsonObject, old: JsonObject | None) -> JsonObject:
    """An object of a smaller kind with what admission and its strategy add. Raises ApiStatusError 403."""
    match kind.kind:
        case "LimitRange":
            return limit_range_defaults(obj)
        case "Node":
            return obj if "spec" in obj else {**obj, "spec": {}}
        case "PriorityClass":
            _require_one_default(registry, kind, obj, old)
        case "PodDisruptionBudget" if old is None:
            # Until the disruption controller has seen it, a budget allows nothing.
            return {**obj, "status": {**NO_DISRUPTIONS}}
        case "PersistentVolumeClaim" | "PersistentVolume" if old is None:
            return {**obj, "status": {"phase": "Pending"}}
        case _:
            pass
    return obj


NO_DISRUPTIONS: Final[Mapping[str, int]] = {
    "disruptionsAllowed": 0,
    "currentHealthy": 0,
    "desiredHealthy": 0,
    "expectedPods": 0,
}
"""The counts that the status of a PodDisruptionBudget always has."""


def _require_one_default(registry: RegistryReader, kind: Kind, obj: JsonObject, old: JsonObject | None) -> None:
    if not obj.get("globalDefault"):
        return
    name = obj["metadata"]["name"]
    defaults = [e.obj for e in registry.store.table(kind).select("") if e.obj.get("globalDefault")]
    for other in defaults:
        if old is None or other["metadata"]["name"] != name:
            why = f"PriorityClass {other['metadata']['name']} is already marked as default. Only one default can exist"
            raise errors.forbidden(kind, name, why)


def require_deletable(kind: Kind, name: str) -> None:
    """Refuse to delete what every cluster has. Raises ApiStatusError 403."""
    if kind.kind == "PriorityClass" and name in SYSTEM_PRIORITIES:
        raise errors.forbidden(kind, name, "this is a system priority class and cannot be deleted")


def name_warnings(obj: JsonObject, what: str) -> list[str]:
    """The remark on a name that makes a bad host name."""
    problems = [error.message.partition(": ")[2].partition(": ")[2] for error in _label_problems(obj)]
    if not problems:
        return []
    risk = "which can result in surprising behavior; a DNS label is recommended"
    return [f"metadata.name: this is used in {what}, {risk}: [{' '.join(problems)}]"]


def _label_problems(obj: JsonObject) -> list[FieldError]:
    return name_errors(obj["metadata"]["name"], label=True)


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
    name, value = obj["metadata"]["name"], obj["value"]
    policy, supported = obj.get("preemptionPolicy", "Never"), ("PreemptLowerPriority", "Never")
    if old is None:
        found = []
        if name.startswith("system-") and SYSTEM_PRIORITIES.get(name) != value:
            text = "priority class names with 'system-' prefix are reserved for system use only. error: "
            known = f"value of {name} PriorityClass must be {SYSTEM_PRIORITIES.get(name)}"
            unknown = f"{name} is not a known system priority class"
            found.append(forbidden_field("metadata.name", text + (known if name in SYSTEM_PRIORITIES else unknown)))
        elif not name.startswith("system-") and value > _USER_PRIORITY_MAX:
            text = f"maximum allowed value of a user defined priority is {_USER_PRIORITY_MAX}"
            found.append(forbidden_field("value", text))
        if policy not in supported:
            found.append(not_supported("preemptionPolicy", policy, supported))
        return found
    found = [] if value == old.get("value") else [forbidden_field("value", "may not be changed in an update.")]
    if policy != old.get("preemptionPolicy"):
        found.append(invalid_value("preemptionPolicy", policy, _IMMUTABLE))
    return found


def runtime_class_errors(obj: JsonObject, old: JsonObject | None) -> list[FieldError]:
    """A runtime class names its handler for good."""
    handler = obj.get("handler", "")
    if old is not None:
        return [] if handler == old.get("handler") else [invalid_value("handler", handler, _IMMUTABLE)]
    found = name_errors(handler, label=True, field="handler") if handler else [required("handler")]
    found += resource_errors({"limits": (obj.get("overhead") or {}).get("podFixed") or {}}, "overhead")
    scheduling = obj.get("scheduling") or {}
    found += label_errors(scheduling.get("nodeSelector"), "scheduling.nodeSelector")
    return found + toleration_errors(scheduling.get("tolerations") or [], "scheduling.tolerations")


def node_errors(obj: JsonObject, old: JsonObject | None) -> list[FieldError]:
    """A node's taints and amounts make sense, and who provides it stays."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    found = [
        invalid_value(f"status.{field}.{name}", str(amount), "must be greater than or equal to 0")
        for field in ("capacity", "allocatable")
        for name, amount in (status.get(field) or {}).items()
        if quantity(amount) < 0
    ]
    before = (old or {}).get("spec") or {}
    for field in ("providerID", "podCIDRs"):
        if before.get(field) and before[field] != spec.get(field):
            where, shown = f"spec.{field}", "podCIDR" if field == "podCIDRs" else field
            found.append(forbidden_field(where, f'node updates may not change {shown} except from "" to valid'))
    # An update is validated as a new node, and as an update of it: each wrong taint is reported twice.
    told = taint_errors(spec.get("taints") or (), "metadata.taints")
    return found + (told if old is None else told + told)


_PERCENT_TEXT: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)


def disruption_budget_errors(obj: JsonObject) -> list[FieldError]:
    """A budget is a number that is not negative or a percentage up to 100, and only one of the two."""
    spec = obj.get("spec") or {}
    found = []
    if "minAvailable" in spec and "maxUnavailable" in spec:
        found.append(invalid_value("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    for field in ("minAvailable", "maxUnavailable"):
        value, where = spec.get(field), f"spec.{field}"
        if isinstance(value, int) and value < 0:
            found.append(invalid_value(where, value, "must be greater than or equal to 0"))
        elif isinstance(value, str) and re.fullmatch("[0-9]+%", value, re.ASCII) is None:
            found.append(invalid_value(where, value, _PERCENT_TEXT))
        elif isinstance(value, str) and int(value[:-1]) > 100:
            found.append(invalid_value(where, value, "must not be greater than 100%"))
    if spec.get("selector"):
        found += selector_errors(spec["selector"], "spec.selector")
    policy, supported = spec.get("unhealthyPodEvictionPolicy"), ("AlwaysAllow", "IfHealthyBudget")
    if policy is not None and policy not in supported:
        found.append(not_supported("spec.unhealthyPodEvictionPolicy", policy, supported))
    return found


def limit_range_errors(obj: JsonObject) -> list[FieldError]:
    """Each type of limits once, and its amounts in order."""
    found: list[FieldError] = []
    types: list[str] = []
    for index, item in enumerate((obj.get("spec") or {}).get("limits") or ()):
        where, kind = f"spec.limits[{index}]", item.get("type", "")
        if "/" not in kind and kind not in ("Pod", "Container", "PersistentVolumeClaim"):
            text = "must be a standard limit type or fully qualified"
            found.append(invalid_value(f"{where}.type", kind, text))
        if kind in types:
            found.append(duplicate(f"{where}.type", kind))
        types.append(kind)
        if kind == "Pod":
            text = "may not be specified when `type` is 'Pod'"
            fields = ("default", "defaultRequest")
            found += [forbidden_field(f"{where}.{field}", text) for field in fields if item.get(field)]
        found += _order_errors(item, where)
    return found


_ORDERS: Final = (
    ("min", "max", "min", "min", "min value {low} is greater than max value {high}"),
    ("min", "defaultRequest", "defaultRequest", "high", "min value {low} is greater than default request value {high}"),
    ("defaultRequest", "max", "defaultRequest", "low", "default request value {low} is greater than max value {high}"),
    (
        "defaultRequest",
        "default",
        "defaultRequest",
        "low",
        "default request value {low} is greater than default limit value {high}",
    ),
    ("min", "default", "default", "low", "min value {low} is greater than default value {high}"),
    ("default", "max", "default", "high", "default value {low} is greater than max value {high}"),
)
"""Pairs of amounts in order: the lower, the higher, the field that is reported, the amount that is shown, the words."""


def _order_errors(item: JsonObject, where: str) -> list[FieldError]:
    found = []
    amounts = {field: item.get(field) or {} for field in ("min", "max", "default", "defaultRequest")}
    for name in sorted({name for values in amounts.values() for name in values}):
        for lower, higher, told, shown, text in _ORDERS:
            low, high = amounts[lower].get(name), amounts[higher].get(name)
            if low is not None and high is not None and quantity(low) > quantity(high):
                value = high if shown == "high" else low
                found.append(invalid_value(f"{where}.{told}[{name}]", value, text.format(low=low, high=high)))
    return found


def lease_errors(obj: JsonObject) -> list[FieldError]:
    """A lease lasts a while and changes hands a number of times that is not negative."""
    spec = obj.get("spec") or {}
    found = []
    lasts = spec.get("leaseDurationSeconds")
    if lasts is not None and lasts <= 0:
        found.append(invalid_value("spec.leaseDurationSeconds", lasts, "must be greater than 0"))
    if spec.get("leaseTransitions", 0) < 0:
        text = "must be greater than or equal to 0"
        found.append(invalid_value("spec.leaseTransitions", spec["leaseTransitions"], text))
    if spec.get("preferredHolder") and not spec.get("strategy"):
        found.append(forbidden_field("spec.preferredHolder", "may only be specified if `strategy` is defined"))
    return found


_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_KEY_TEXT: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_CONFIG_BYTES_MAX: Final = 1024 * 1024


def config_map_errors(obj: JsonObject, old: JsonObject | None) -> list[FieldError]:
    """The keys of a ConfigMap are file names, its content is bounded, and an immutable one stays as it is."""
    found: list[FieldError] = []
    if old is not None and old.get("immutable"):
        found = [
            forbidden_field(field, "field is immutable when `immutable` is set")
            for field in ("immutable", "data", "binaryData")
            if obj.get(field) != old.get(field)
        ]
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    for field, content in (("data", data), ("binaryData", binary)):
        for key in content:
            where = f"{field}[{key}]"
            if len(key) > _SUBDOMAIN_MAX:
                found.append(invalid_value(where, key, f"must be no more than {_SUBDOMAIN_MAX} characters"))
            if _KEY.fullmatch(key) is None:
                found.append(invalid_value(where, key, _KEY_TEXT))
            if key == "." or key.startswith(".."):
                text = f"must not be '{key}'" if key in {".", ".."} else "must not start with '..'"
                found.append(invalid_value(where, key, text))
            if field == "data" and key in binary:
                found.append(invalid_value(where, key, "duplicate of key present in binaryData"))
    size = sum(len(text.encode()) for text in data.values()) + sum(len(text) * 3 // 4 for text in binary.values())
    if size > _CONFIG_BYTES_MAX:
        found.append(too_long("[]", _CONFIG_BYTES_MAX))
    return found
