"""
What a pod's spec may say, in a pod or in a Job's template.

Pure checks in the order and the words of k8s.io/kubernetes/pkg/apis/core/validation (`ValidatePodSpec` and below),
called by the rules of pods and of Jobs with whole specs, defaults filled in. Fields that no scheduler looks at
(probes, security contexts, volume sources) are kept as they are written and not judged.
"""
# Over 400 lines: one function for each part of a pod's spec.

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from headgate.testing.cluster.errors import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
)
from headgate.testing.cluster.quantity import ONE, canonical, quantity
from headgate.testing.cluster.storage.metadata import label_errors, name_errors, qualified_name_errors

JsonObject = dict[str, Any]

_SECONDS_MAX: Final = 2**31 - 1
_STANDARD_CONTAINER: Final = ("cpu", "memory", "ephemeral-storage")
_STANDARD: Final = frozenset(
    {
        *_STANDARD_CONTAINER,
        *(f"{group}.{name}" for group in ("requests", "limits") for name in _STANDARD_CONTAINER),
        *("pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps"),
        *("persistentvolumeclaims", "storage", "requests.storage", "services.nodeports", "services.loadbalancers"),
    }
)
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_ENV_NAME: Final = re.compile(r"^[ -<>-~]+$")
_PORT_TEXT: Final = "must be between 1 and 65535, inclusive"


# Large: one check for each field of a pod's spec.
def pod_spec_errors(spec: JsonObject, field: str) -> list[FieldError]:
    """What is wrong with a pod's spec, in a pod or in a template."""
    volumes = [volume.get("name", "") for volume in spec.get("volumes") or ()]
    found = _volume_errors(volumes, f"{field}.volumes")
    found += _containers_errors(spec, field, volumes)
    if spec.get("restartPolicy", "Always") not in ("Always", "OnFailure", "Never"):
        found.append(not_supported(f"{field}.restartPolicy", spec["restartPolicy"], ("Always", "OnFailure", "Never")))
    if spec.get("dnsPolicy", "ClusterFirst") not in _DNS_POLICIES:
        found.append(not_supported(f"{field}.dnsPolicy", spec["dnsPolicy"], _DNS_POLICIES))
    found += label_errors(spec.get("nodeSelector"), f"{field}.nodeSelector")
    found += affinity_errors(spec.get("affinity") or {}, f"{field}.affinity")
    found += _gate_errors(spec.get("schedulingGates") or (), f"{field}.schedulingGates")
    found += _spread_errors(spec.get("topologySpreadConstraints") or (), f"{field}.topologySpreadConstraints")
    for name in ("serviceAccountName", "nodeName"):
        if spec.get(name):
            found += name_errors(spec[name], field=f"{field}.{name}")
    if "activeDeadlineSeconds" in spec and not 1 <= spec["activeDeadlineSeconds"] <= _SECONDS_MAX:
        found.append(
            invalid_value(
                f"{field}.activeDeadlineSeconds",
                spec["activeDeadlineSeconds"],
                f"must be between 1 and {_SECONDS_MAX}, inclusive",
            )
        )
    for name in ("hostname", "subdomain"):
        if spec.get(name):
            found += name_errors(spec[name], label=True, field=f"{field}.{name}")
    found += toleration_errors(spec.get("tolerations") or [], f"{field}.tolerations")
    for name in ("priorityClassName", "runtimeClassName"):
        if spec.get(name):
            found += name_errors(spec[name], field=f"{field}.{name}")
    if spec.get("preemptionPolicy", "Never") not in ("PreemptLowerPriority", "Never"):
        supported = ("PreemptLowerPriority", "Never")
        found.append(not_supported(f"{field}.preemptionPolicy", spec["preemptionPolicy"], supported))
    return found + resource_errors({"limits": spec.get("overhead") or {}}, f"{field}.overhead")


def pod_spec_warnings(spec: JsonObject, field: str) -> list[str]:
    """What the API server remarks on a pod's spec that it takes."""
    if spec.get("terminationGracePeriodSeconds", 0) >= 0:
        return []
    text = "must be >= 0; negative values are invalid and will be treated as 1"
    return [f"{field}.terminationGracePeriodSeconds: {text}"]


# --- containers


def _volume_errors(names: list[str], field: str) -> list[FieldError]:
    found: list[FieldError] = []
    for index, name in enumerate(names):
        where = f"{field}[{index}].name"
        found += name_errors(name, label=True, field=where) if name else [required(where)]
        if name in names[:index]:
            found.append(duplicate(where, name))
    return found


def _containers_errors(spec: JsonObject, field: str, volumes: list[str]) -> list[FieldError]:
    found: list[FieldError] = []
    if not spec.get("containers"):
        found.append(required(f"{field}.containers"))
    names: list[str] = []
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            where = f"{field}.{group}[{index}]"
            found += _container_errors(container, where, volumes)
            name = container.get("name", "")
            if name in names:
                found.append(duplicate(f"{where}.name", name))
            names.append(name)
    return found


def _container_errors(container: JsonObject, where: str, volumes: list[str]) -> list[FieldError]:
    name = container.get("name", "")
    found = name_errors(name, label=True, field=f"{where}.name") if name else [required(f"{where}.name")]
    if not container.get("image"):
        found.append(required(f"{where}.image"))
    policies = ("File", "FallbackToLogsOnError")
    if container.get("terminationMessagePolicy", "File") not in policies:
        value = container["terminationMessagePolicy"]
        found.append(not_supported(f"{where}.terminationMessagePolicy", value, policies))
    found += _port_errors(container.get("ports") or (), f"{where}.ports")
    found += _env_errors(container.get("env") or (), f"{where}.env")
    found += _mount_errors(container.get("volumeMounts") or (), f"{where}.volumeMounts", volumes)
    if container.get("imagePullPolicy", "Always") not in _PULL_POLICIES:
        found.append(not_supported(f"{where}.imagePullPolicy", container["imagePullPolicy"], _PULL_POLICIES))
    return found + resource_errors(container.get("resources") or {}, f"{where}.resources")


def _port_errors(ports: Iterable[JsonObject], field: str) -> list[FieldError]:
    found: list[FieldError] = []
    names: list[str] = []
    for index, port in enumerate(ports):
        where = f"{field}[{index}]"
        if port.get("name") and port["name"] in names:
            found.append(duplicate(f"{where}.name", port["name"]))
        names.append(port.get("name", ""))
        number = port.get("containerPort", 0)
        if number == 0:
            found.append(required(f"{where}.containerPort"))
        elif not 1 <= number <= 65535:
            found.append(invalid_value(f"{where}.containerPort", number, _PORT_TEXT))
        if port.get("hostPort") and not 1 <= port["hostPort"] <= 65535:
            found.append(invalid_value(f"{where}.hostPort", port["hostPort"], _PORT_TEXT))
        if port.get("protocol", "TCP") not in _PROTOCOLS:
            found.append(not_supported(f"{where}.protocol", port["protocol"], _PROTOCOLS))
    return found


def _env_errors(variables: Iterable[JsonObject], field: str) -> list[FieldError]:
    found: list[FieldError] = []
    for index, variable in enumerate(variables):
        where, name = f"{field}[{index}].name", variable.get("name", "")
        if not name:
            found.append(required(where))
        elif _ENV_NAME.match(name) is None:
            text = "a valid environment variable name must consist only of printable ASCII characters other than '='"
            found.append(
                invalid_value(where, name, f"{text} (e.g. '{name}', regex used for validation is '[ -<>-~]+')")
            )
    return found


def _mount_errors(mounts: Iterable[JsonObject], field: str, volumes: list[str]) -> list[FieldError]:
    found: list[FieldError] = []
    paths: list[str] = []
    for index, mount in enumerate(mounts):
        where, name, path = f"{field}[{index}]", mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            found.append(required(f"{where}.name"))
        if name not in volumes:
            message = f'Not found: "{name}"'
            found.append(FieldError(reason="FieldValueNotFound", field=f"{where}.name", message=message))
        if not path:
            found.append(required(f"{where}.mountPath"))
        if path in paths:
            found.append(invalid_value(f"{where}.mountPath", path, "must be unique"))
        paths.append(path)
    return found


# --- resources


def resource_errors(resources: JsonObject, field: str) -> list[FieldError]:
    """What is wrong with requests and limits: names, amounts below zero, and requests above limits."""
    found: list[FieldError] = []
    limits = resources.get("limits") or {}
    for name, amount in limits.items():
        found += _amount_errors(name, amount, f"{field}.limits[{name}]")
    for name, amount in (resources.get("requests") or {}).items():
        found += _amount_errors(name, amount, f"{field}.requests[{name}]")
        where, shared = f"{field}.requests", _is_native(name) and not name.startswith("hugepages-")
        if name in limits:
            asked, most = quantity(amount), quantity(limits[name])
            if asked != most and not shared:
                text = f"must be equal to {name} limit of {canonical(limits[name])}"
                found.append(invalid_value(where, canonical(amount), text))
            elif asked > most:
                text = f"must be less than or equal to {name} limit of {canonical(limits[name])}"
                found.append(invalid_value(where, canonical(amount), text))
        elif not shared:
            found.append(required(f"{field}.limits", "Limit must be set for non overcommitable resources"))
    return found


def _amount_errors(name: str, amount: Any, where: str) -> list[FieldError]:
    found = [FieldError(reason=e.reason, field=where, message=e.message) for e in qualified_name_errors(name, where)]
    huge = name.startswith("hugepages-")
    if not found and "/" not in name:
        if name not in _STANDARD and not name.startswith("requests.hugepages-"):
            found.append(invalid_value(where, name, "must be a standard resource type or fully qualified"))
        if name not in _STANDARD_CONTAINER and not huge:
            found.append(invalid_value(where, name, "must be a standard resource for containers"))
    elif not found and not _is_native(name) and name.startswith("requests."):
        found.append(invalid_value(where, name, "doesn't follow extended resource name standard"))
    if quantity(amount) < 0:
        found.append(invalid_value(where, canonical(amount), "must be greater than or equal to 0"))
    if (name in ("pods", "resourcequotas") or not _is_native(name)) and quantity(amount) % ONE:
        found.append(invalid_value(where, canonical(amount), "must be an integer"))
    return found


def _is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


# --- where a pod may go


def toleration_errors(tolerations: list[JsonObject], field: str) -> list[FieldError]:
    """What is wrong with a list of tolerations."""
    found: list[FieldError] = []
    for index, toleration in enumerate(tolerations):
        where = f"{field}[{index}]"
        operator, key = toleration.get("operator", ""), toleration.get("key", "")
        value, effect = toleration.get("value", ""), toleration.get("effect", "")
        if key:
            found += qualified_name_errors(key, f"{where}.key")
        elif operator != "Exists":
            text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            found.append(invalid_value(f"{where}.operator", operator, text))
        if "tolerationSeconds" in toleration and effect != "NoExecute":
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            found.append(invalid_value(f"{where}.effect", effect, text))
        match operator:
            case "" | "Equal":
                problems = label_errors({"k": value}, f"{where}.operator")
                found += problems
            case "Exists":
                if value:
                    text = "value must be empty when `operator` is 'Exists'"
                    found.append(invalid_value(f"{where}.operator", value, text))
            case "Lt" | "Gt":
                supported = ("Equal", "Exists", "Lt", "Gt")
                found.append(not_supported(f"{where}.operator", operator, supported))
            case _:
                found.append(not_supported(f"{where}.operator", operator, ("Equal", "Exists")))
        if effect and effect not in _EFFECTS:
            found.append(not_supported(f"{where}.effect", effect, _EFFECTS))
    return found


def taint_errors(taints: Iterable[JsonObject], field: str) -> list[FieldError]:
    """What is wrong with a node's taints."""
    found: list[FieldError] = []
    seen: list[tuple[str, str]] = []
    for index, taint in enumerate(taints):
        where, key, effect = f"{field}[{index}]", taint.get("key", ""), taint.get("effect", "")
        found += qualified_name_errors(key, f"{where}.key")
        found += label_errors({"k": taint.get("value", "")}, f"{where}.value")
        if not effect:
            found.append(required(f"{where}.effect"))
        elif effect not in _EFFECTS:
            found.append(not_supported(f"{where}.effect", effect, _EFFECTS))
        if (key, effect) in seen:
            told = duplicate(where, taint)
            detail = f"{told.message}: taints must be unique by key and effect pair"
            found.append(FieldError(reason=told.reason, field=told.field, message=detail))
        seen.append((key, effect))
    return found


def _gate_errors(gates: Iterable[JsonObject], field: str) -> list[FieldError]:
    found: list[FieldError] = []
    names: list[str] = []
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        found += qualified_name_errors(name, f"{field}[{index}]")
        if name in names:
            found.append(duplicate(f"{field}[{index}]", name))
        names.append(name)
    return found


def affinity_errors(affinity: JsonObject, field: str) -> list[FieldError]:
    """What is wrong with an affinity: of nodes wholly, of pods as far as its shape goes."""
    found: list[FieldError] = []
    nodes, where = affinity.get("nodeAffinity") or {}, f"{field}.nodeAffinity"
    needed = nodes.get("requiredDuringSchedulingIgnoredDuringExecution")
    if needed is not None:
        place = f"{where}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        if not needed.get("nodeSelectorTerms"):
            found.append(required(place, "must have at least one node selector term"))
        for index, term in enumerate(needed.get("nodeSelectorTerms") or ()):
            found += _term_errors(term, f"{place}[{index}]", strict=True)
    for index, wish in enumerate(nodes.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
        place = f"{where}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        if not 1 <= wish.get("weight", 0) <= 100:
            found.append(invalid_value(f"{place}.weight", wish.get("weight", 0), "must be in the range 1-100"))
        found += _term_errors(wish.get("preference") or {}, f"{place}.preference", strict=False)
    for group in ("podAffinity", "podAntiAffinity"):
        found += _pod_affinity_errors(affinity.get(group) or {}, f"{field}.{group}")
    return found


def _term_errors(term: JsonObject, field: str, *, strict: bool) -> list[FieldError]:
    found: list[FieldError] = []
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        found += _expression_errors(expression, f"{field}.matchExpressions[{index}]", strict=strict)
    for index, expression in enumerate(term.get("matchFields") or ()):
        where = f"{field}.matchFields[{index}]"
        if expression.get("operator") not in ("In", "NotIn"):
            text = "not a valid selector operator"
            found.append(invalid_value(f"{where}.operator", expression.get("operator", ""), text))
        elif len(expression.get("values") or ()) != 1:
            text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            found.append(required(f"{where}.values", text))
        if expression.get("key") != "metadata.name":
            text = "not a valid field selector key"
            found.append(invalid_value(f"{where}.key", expression.get("key", ""), text))
    return found


def _expression_errors(expression: JsonObject, field: str, *, strict: bool) -> list[FieldError]:
    found: list[FieldError] = []
    values, operator = expression.get("values") or (), expression.get("operator", "")
    match operator:
        case "In" | "NotIn":
            if not values:
                text = "must be specified when `operator` is 'In' or 'NotIn'"
                found.append(required(f"{field}.values", text))
        case "Exists" | "DoesNotExist":
            if values:
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                found.append(forbidden_field(f"{field}.values", text))
        case "Gt" | "Lt":
            if len(values) != 1:
                text = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                found.append(required(f"{field}.values", text))
        case _:
            found.append(invalid_value(f"{field}.operator", operator, "not a valid selector operator"))
    found += qualified_name_errors(expression.get("key", ""), f"{field}.key")
    if strict:
        for index, value in enumerate(values):
            found += label_errors({"k": value}, f"{field}.values[{index}]")
    return found


def _pod_affinity_errors(affinity: JsonObject, field: str) -> list[FieldError]:
    found: list[FieldError] = []
    needed, wished = (f"{kind}DuringSchedulingIgnoredDuringExecution" for kind in ("required", "preferred"))
    for index, term in enumerate(affinity.get(needed) or ()):
        found += _pod_term_errors(term, f"{field}.{needed}[{index}]")
    for index, wish in enumerate(affinity.get(wished) or ()):
        where = f"{field}.{wished}[{index}]"
        if not 1 <= wish.get("weight", 0) <= 100:
            found.append(invalid_value(f"{where}.weight", wish.get("weight", 0), "must be in the range 1-100"))
        found += _pod_term_errors(wish.get("podAffinityTerm") or {}, f"{where}.podAffinityTerm")
    return found


def _pod_term_errors(term: JsonObject, field: str) -> list[FieldError]:
    found = _selector_errors(term, "labelSelector", field) + _selector_errors(term, "namespaceSelector", field)
    if not term.get("topologyKey"):
        found.append(required(f"{field}.topologyKey", "can not be empty"))
    return found + qualified_name_errors(term.get("topologyKey", ""), f"{field}.topologyKey")


def selector_errors(selector: JsonObject, field: str) -> list[FieldError]:
    """What is wrong with the object form of a label selector."""
    found = label_errors(selector.get("matchLabels"), f"{field}.matchLabels")
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        where = f"{field}.matchExpressions[{index}]"
        if expression.get("operator") in ("Gt", "Lt"):
            text = "not a valid selector operator"
            found.append(invalid_value(f"{where}.operator", expression["operator"], text))
        else:
            found += _expression_errors(expression, where, strict=True)
    return found


def _selector_errors(term: JsonObject, name: str, field: str) -> list[FieldError]:
    return selector_errors(term[name], f"{field}.{name}") if term.get(name) else []


def _spread_errors(constraints: Iterable[JsonObject], field: str) -> list[FieldError]:
    found: list[FieldError] = []
    seen: list[tuple[str, str]] = []
    for index, constraint in enumerate(constraints):
        where, skew = f"{field}[{index}]", constraint.get("maxSkew", 0)
        if skew <= 0:
            found.append(invalid_value(f"{where}.maxSkew", skew, "must be greater than zero"))
        key, action = constraint.get("topologyKey", ""), constraint.get("whenUnsatisfiable", "")
        if not key:
            found.append(required(f"{where}.topologyKey", "can not be empty"))
        else:
            found += qualified_name_errors(key, f"{where}.topologyKey")
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            found.append(not_supported(f"{where}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway")))
        if (key, action) in seen:
            found.append(duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
        seen.append((key, action))
        found += _selector_errors(constraint, "labelSelector", where)
    return found


# --- defaults


def with_container_defaults(spec: JsonObject, extra: Callable[[JsonObject], JsonObject] | None = None) -> JsonObject:
    """
    The spec with what a container gets by its content.

    That is the pull policy, which follows from the image's tag, and, with `extra`, whatever that adds.
    """
    changed: JsonObject = {}
    for group in ("containers", "initContainers"):
        old = spec.get(group)
        if not old:
            continue
        fresh = [_with_pull_policy(container) for container in old]
        if extra is not None:
            fresh = [extra(container) for container in fresh]
        if any(new is not before for new, before in zip(fresh, old, strict=True)):
            changed[group] = fresh
    return {**spec, **changed} if changed else spec


def _with_pull_policy(container: JsonObject) -> JsonObject:
    if "imagePullPolicy" in container:
        return container
    image = container.get("image", "")
    name = image.rpartition("/")[2]
    latest = "@" not in name and (":" not in name or name.endswith(":latest"))
    return {**container, "imagePullPolicy": "Always" if latest else "IfNotPresent"}
