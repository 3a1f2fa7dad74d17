"""
What the API server's admission plugins do to a new pod, in their order.

LimitRanger (defaults, then bounds), Priority, DefaultTolerationSeconds, RuntimeClass, as the default set of plugins of
a kube-apiserver has them (k8s.io/kubernetes/plugin/pkg/admission). Called by the rules of pods with the whole object;
reads the classes and limits from the store. A refusal is ApiStatusError 403 in the plugin's words.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final

from headgate.testing.cluster import errors
from headgate.testing.cluster.kinds import BY_PLURAL, Kind
from headgate.testing.cluster.quantity import amount_text, pod_requests, quantity, total_of
from headgate.testing.cluster.validation.registry_reader import RegistryReader

JsonObject = dict[str, Any]

_PRIORITY_CLASSES: Final = BY_PLURAL[("scheduling.k8s.io", "priorityclasses")]
_RUNTIME_CLASSES: Final = BY_PLURAL[("node.k8s.io", "runtimeclasses")]
_LIMIT_RANGES: Final = BY_PLURAL[("", "limitranges")]
SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
SYSTEM_CLASSES: Final[tuple[JsonObject, ...]] = tuple(
    {"metadata": {"name": name}, "value": SYSTEM_PRIORITIES[name], "description": text}
    for name, text in (
        (
            "system-node-critical",
            "Used for system critical pods that must not be moved from their current node.",
        ),
        (
            "system-cluster-critical",
            "Used for system critical pods that must run in the cluster, but can be moved to another node if "
            "necessary.",
        ),
    )
)
"""The priority classes that every cluster has."""
_TOLERATED_S: Final = 300
_DEFAULT_TOLERATIONS: Final = tuple(
    {
        "key": f"node.kubernetes.io/{name}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": _TOLERATED_S,
    }
    for name in ("not-ready", "unreachable")
)


def admitted(registry: RegistryReader, kind: Kind, obj: JsonObject) -> JsonObject:
    """A new pod with what the plugins add. Raises ApiStatusError 403 if one of them refuses it."""
    name, spec = obj["metadata"]["name"], dict(obj["spec"])
    ranges = [entry.obj for entry in registry.store.table(_LIMIT_RANGES).select(obj["metadata"]["namespace"])]
    set_by_limits: list[str] = []
    for limit_range in ranges:
        _apply_defaults(spec, limit_range, set_by_limits)
    _set_priority(registry, kind, name, spec)
    set_tolerations(spec)
    _set_runtime(registry, kind, name, spec)
    if not set_by_limits:
        return {**obj, "spec": spec}
    note = {"kubernetes.io/limit-ranger": f"LimitRanger plugin set: {'; '.join(set_by_limits)}"}
    annotations = {**(obj["metadata"].get("annotations") or {}), **note}
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}, "spec": spec}


def validate(registry: RegistryReader, kind: Kind, obj: JsonObject) -> None:
    """The plugins' last word, on a pod that is valid otherwise. Raises ApiStatusError 403."""
    for entry in registry.store.table(_LIMIT_RANGES).select(obj["metadata"]["namespace"]):
        problems = _limit_problems(obj["spec"], entry.obj)
        if problems:
            raise errors.forbidden(kind, obj["metadata"]["name"], _joined(problems))


def _joined(problems: list[str]) -> str:
    return problems[0] if len(problems) == 1 else "[" + ", ".join(dict.fromkeys(problems)) + "]"


def _set_priority(registry: RegistryReader, kind: Kind, name: str, spec: JsonObject) -> None:
    class_name = spec.get("priorityClassName")
    value, policy = 0, "PreemptLowerPriority"
    if class_name:
        entry = registry.find(_PRIORITY_CLASSES, "", class_name)
        if entry is not None:
            value, policy = entry.obj["value"], entry.obj.get("preemptionPolicy", policy)
        elif class_name in SYSTEM_PRIORITIES:
            value = SYSTEM_PRIORITIES[class_name]
        else:
            raise errors.forbidden(kind, name, f"no PriorityClass with name {class_name} was found")
    else:
        defaults = [e.obj for e in registry.store.table(_PRIORITY_CLASSES).select("") if e.obj.get("globalDefault")]
        if defaults:
            chosen = min(defaults, key=lambda c: (c["value"], c["metadata"]["name"]))
            spec["priorityClassName"] = chosen["metadata"]["name"]
            value, policy = chosen["value"], chosen.get("preemptionPolicy", policy)
    why = "must not be provided in pod spec; priority admission controller computed"
    if spec.get("priority", value) != value:
        text = f"the integer value of priority ({spec['priority']}) {why} {value} from the given PriorityClass name"
        raise errors.forbidden(kind, name, text)
    given = spec.get("preemptionPolicy", policy)
    if given != policy:
        text = f"the string value of PreemptionPolicy ({given}) {why} {policy} from the given PriorityClass name"
        raise errors.forbidden(kind, name, text)
    spec["priority"] = value
    spec["preemptionPolicy"] = policy


def set_tolerations(spec: JsonObject) -> None:
    """Add the default tolerations for not-ready and unreachable nodes where the pod has none; on updates too."""
    given = spec.get("tolerations") or []
    missing = [
        fixed
        for fixed in _DEFAULT_TOLERATIONS
        if not any(t.get("key", "") in ("", fixed["key"]) and t.get("effect", "") in ("", "NoExecute") for t in given)
    ]
    if missing:
        spec["tolerations"] = [*given, *missing]


def _set_runtime(registry: RegistryReader, kind: Kind, name: str, spec: JsonObject) -> None:
    class_name = spec.get("runtimeClassName")
    entry = registry.find(_RUNTIME_CLASSES, "", class_name) if class_name else None
    if class_name and entry is None:
        raise errors.forbidden(kind, name, f'pod rejected: RuntimeClass "{class_name}" not found')
    overhead = (entry.obj.get("overhead") or {}).get("podFixed") if entry is not None else None
    if overhead:
        if spec.get("overhead") and not _same(spec["overhead"], overhead):
            why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
            raise errors.forbidden(kind, name, why)
        spec["overhead"] = overhead
    elif spec.get("overhead"):
        why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        raise errors.forbidden(kind, name, why)
    if entry is None:
        return
    scheduling = entry.obj.get("scheduling") or {}
    given = spec.get("nodeSelector") or {}
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if given.get(key, value) != value:
            why = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {given[key]}"
            )
            raise errors.forbidden(kind, name, why)
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), key: value}
    more = [t for t in scheduling.get("tolerations") or () if t not in spec["tolerations"]]
    if more:
        spec["tolerations"] = [*spec["tolerations"], *more]


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return {n: quantity(a) for n, a in one.items()} == {n: quantity(a) for n, a in other.items()}


# --- limit ranges


def limit_range_defaults(obj: JsonObject) -> JsonObject:
    """A LimitRange whose container limits say every default that follows from them."""
    limits = (obj.get("spec") or {}).get("limits") or []
    fresh = [_item_defaults(item) if item.get("type") == "Container" else item for item in limits]
    return obj if fresh == limits else {**obj, "spec": {**obj["spec"], "limits": fresh}}


def _item_defaults(item: JsonObject) -> JsonObject:
    default = {**(item.get("max") or {}), **(item.get("default") or {})}
    requested = {**(item.get("min") or {}), **default, **(item.get("defaultRequest") or {})}
    filled = {"default": default, "defaultRequest": requested}
    return {**item, **{name: amounts for name, amounts in filled.items() if amounts}}


def _apply_defaults(spec: JsonObject, limit_range: JsonObject, notes: list[str]) -> None:
    limits: JsonObject = {}
    requests: JsonObject = {}
    for item in (limit_range.get("spec") or {}).get("limits") or ():
        if item.get("type") == "Container":
            requests |= item.get("defaultRequest") or {}
            limits |= item.get("default") or {}
    for group, words in (("containers", "container"), ("initContainers", "init container")):
        if spec.get(group):
            spec[group] = [_with_defaults(container, requests, limits, words, notes) for container in spec[group]]


def _with_defaults(
    container: JsonObject, requests: JsonObject, limits: JsonObject, words: str, notes: list[str]
) -> JsonObject:
    resources = container.get("resources") or {}
    filled = dict(resources)
    for field, defaults in (("requests", requests), ("limits", limits)):
        given = resources.get(field) or {}
        missing = {name: amount for name, amount in defaults.items() if name not in given}
        if missing:
            filled[field] = {**given, **missing}
            notes.append(f"{', '.join(sorted(missing))} {field[:-1]} for {words} {container.get('name', '')}")
    return container if filled == resources else {**container, "resources": filled}


def _limit_problems(spec: JsonObject, limit_range: JsonObject) -> list[str]:
    problems: list[str] = []
    for item in (limit_range.get("spec") or {}).get("limits") or ():
        match item.get("type"):
            case "Container":
                for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
                    resources = container.get("resources") or {}
                    problems += _bounds(item, _amounts(resources.get("requests")), _amounts(resources.get("limits")))
            case "Pod":
                problems += _bounds(item, pod_requests(spec), total_of(spec, "limits"))
            case _:
                continue
    return problems


def _amounts(resources: Mapping[str, Any] | None) -> dict[str, int]:
    return {name: quantity(amount) for name, amount in (resources or {}).items()}


# Large: one message of the LimitRanger for each way to be outside of a limit.
def _bounds(item: JsonObject, requests: Mapping[str, int], limits: Mapping[str, int]) -> Iterable[str]:
    kind = item["type"]
    for name, least in (item.get("min") or {}).items():
        start = f"minimum {name} usage per {kind} is {least}"
        if name not in requests:
            yield f"{start}.  No request is specified"
        elif requests[name] < quantity(least):
            yield f"{start}, but request is {amount_text(requests[name], least)}"
        elif name in limits and limits[name] < quantity(least):
            yield f"{start}, but limit is {amount_text(limits[name], least)}"
    for name, most in (item.get("max") or {}).items():
        start = f"maximum {name} usage per {kind} is {most}"
        if name not in limits:
            yield f"{start}.  No limit is specified"
        elif limits[name] > quantity(most):
            yield f"{start}, but limit is {amount_text(limits[name], most)}"
        elif requests.get(name, 0) > quantity(most):
            yield f"{start}, but request is {amount_text(requests[name], most)}"
    for name, most in (item.get("maxLimitRequestRatio") or {}).items():
        start = f"{name} max limit to request ratio per {kind} is {most}"
        if not requests.get(name):
            yield f"{start}, but no request is specified or request is 0"
        elif not limits.get(name):
            yield f"{start}, but no limit is specified or limit is 0"
        elif Fraction(limits[name], requests[name]) * quantity(1) > quantity(most):
            yield f"{start}, but provided ratio is {limits[name] / requests[name]:f}"
