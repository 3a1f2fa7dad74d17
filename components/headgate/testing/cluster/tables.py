"""
Printer columns: what `kubectl get` shows of each kind.

Custom kinds print the JSONPath columns of their CRD; Kubernetes' own kinds print what its API server prints
(k8s.io/kubernetes/pkg/printers/internalversion), as far as a scheduler's user looks at it.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from headgate.testing.cluster.kinds import Column, Kind
from headgate.testing.cluster.times import human_duration, unix_ms

JsonObject = dict[str, Any]
Cells = Callable[[JsonObject, int], list[Any]]

_STEP: Final = re.compile(r"\.([A-Za-z0-9_-]+)|\[\?\(@\.([A-Za-z]+)==['\"]([^'\"]*)['\"]\)\]|\[(\d+)\]")


def json_path(obj: Any, path: str) -> Any:
    """The value at a JSONPath of the subset that printer columns use (fields, `[n]`, `[?(@.f=='v')]`), or None."""
    for step in _STEP.finditer(path):
        name, key, wanted, index = step.groups()
        if name is not None:
            obj = obj.get(name) if isinstance(obj, dict) else None
        elif key is not None:
            obj = next((item for item in obj if item.get(key) == wanted), None) if isinstance(obj, list) else None
        else:
            obj = obj[int(index)] if isinstance(obj, list) and int(index) < len(obj) else None
        if obj is None:
            return None
    return obj


def age(obj: JsonObject, now_ms: int) -> str:
    """The time since creation as kubectl prints it."""
    created = obj["metadata"].get("creationTimestamp")
    return human_duration(now_ms - unix_ms(created)) if created else "<unknown>"


def column_definitions(kind: Kind) -> list[JsonObject]:
    """The columns of a kind, name first."""
    columns = _CORE[kind.resource][0] if kind.resource in _CORE else kind.columns or (_AGE,)
    return [
        _definition(Column(name="Name", path=".metadata.name"), "name"),
        *(_definition(column, "") for column in columns),
    ]


def _definition(column: Column, format_: str) -> JsonObject:
    return {"name": column.name, "type": column.type, "format": format_, "description": "", "priority": column.priority}


def row(kind: Kind, obj: JsonObject, now_ms: int) -> list[Any]:
    """The cells of one object, in the order of `column_definitions`."""
    name = obj["metadata"]["name"]
    if kind.resource in _CORE:
        return [name, *_CORE[kind.resource][1](obj, now_ms)]
    cells: list[Any] = [name]
    for column in kind.columns or (_AGE,):
        value = json_path(obj, column.path)
        if column.type == "date" and value is not None:
            value = human_duration(now_ms - unix_ms(value))
        cells.append(value)
    return cells


def _columns(*names: str) -> tuple[Column, ...]:
    # A leading "+" marks a column of `-o wide`.
    return tuple(Column(name=name.lstrip("+"), path="", priority=int(name.startswith("+"))) for name in names)


_AGE: Final = Column(name="Age", path=".metadata.creationTimestamp", type="date")


def _pod(obj: JsonObject, now_ms: int) -> list[Any]:
    spec, status, metadata = obj["spec"], obj.get("status", {}), obj["metadata"]
    statuses = status.get("containerStatuses") or []
    ready = sum(1 for container in statuses if container.get("ready"))
    reason = status.get("reason") or status.get("phase", "Unknown")
    for container in statuses:
        state = container.get("state", {})
        for phase in ("waiting", "terminated"):
            reason = state.get(phase, {}).get("reason") or reason
    scheduled = json_path(status, ".conditions[?(@.type=='PodScheduled')]")
    if scheduled and scheduled.get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    if metadata.get("deletionTimestamp"):
        reason = "Terminating"
    gates = ",".join(gate.get("name", "") for gate in spec.get("schedulingGates") or []) or "<none>"
    return [
        f"{ready}/{len(spec['containers'])}",
        reason,
        sum(container.get("restartCount", 0) for container in statuses),
        age(obj, now_ms),
        status.get("podIP", "<none>"),
        spec.get("nodeName", "<none>"),
        status.get("nominatedNodeName", "<none>"),
        gates,
    ]


def _node(obj: JsonObject, now_ms: int) -> list[Any]:
    ready = json_path(obj, ".status.conditions[?(@.type=='Ready')].status")
    state = {"True": "Ready", "False": "NotReady"}.get(ready, "Unknown")
    if obj.get("spec", {}).get("unschedulable"):
        state += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key.removeprefix(prefix) for key in obj["metadata"].get("labels") or {} if key.startswith(prefix))
    version = json_path(obj, ".status.nodeInfo.kubeletVersion") or ""
    return [state, ",".join(roles) or "<none>", age(obj, now_ms), version]


def _job(obj: JsonObject, now_ms: int) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or []}
    state = next((name for name in ("Complete", "Failed", "Suspended") if conditions.get(name) == "True"), "Running")
    succeeded = status.get("succeeded", 0)
    if spec.get("completions") is not None:
        completions = f"{succeeded}/{spec['completions']}"
    else:
        parallelism = spec.get("parallelism", 1)
        completions = f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"
    duration = ""
    if started := status.get("startTime"):
        ended = status.get("completionTime")
        duration = human_duration((unix_ms(ended) if ended else now_ms) - unix_ms(started))
    containers = json_path(spec, ".template.spec.containers") or []
    labels = json_path(spec, ".selector.matchLabels") or {}
    return [
        state,
        completions,
        duration,
        age(obj, now_ms),
        ",".join(c["name"] for c in containers),
        ",".join(c.get("image", "") for c in containers),
        ",".join(f"{k}={v}" for k, v in labels.items()) or "<none>",
    ]


def _event(obj: JsonObject, now_ms: int) -> list[Any]:
    seen = obj.get("lastTimestamp") or obj.get("eventTime") or obj["metadata"].get("creationTimestamp")
    subject = obj.get("involvedObject") or obj.get("regarding") or {}
    where = f"{str(subject.get('kind', '')).lower()}/{subject.get('name', '')}"
    last = human_duration(now_ms - unix_ms(seen)) if seen else "<unknown>"
    return [
        last,
        obj.get("type", ""),
        obj.get("reason", ""),
        where,
        str(obj.get("message", obj.get("note", ""))).strip(),
    ]


def _pdb(obj: JsonObject, now_ms: int) -> list[Any]:
    spec, status = obj.get("spec", {}), obj.get("status", {})
    return [
        str(spec.get("minAvailable", "N/A")),
        str(spec.get("maxUnavailable", "N/A")),
        status.get("disruptionsAllowed", 0),
        age(obj, now_ms),
    ]


def _created(obj: JsonObject, now_ms: int) -> list[Any]:  # noqa: ARG001 - all cell functions have one shape
    return [obj["metadata"].get("creationTimestamp", "<unknown>")]


_CORE: Final[dict[str, tuple[tuple[Column, ...], Cells]]] = {
    "pods": (
        _columns("Ready", "Status", "Restarts", "Age", "+IP", "+Node", "+Nominated Node", "+Scheduling Gates"),
        _pod,
    ),
    "nodes": (_columns("Status", "Roles", "Age", "Version"), _node),
    "namespaces": (
        _columns("Status", "Age"),
        lambda obj, now: [json_path(obj, ".status.phase") or "", age(obj, now)],
    ),
    "jobs.batch": (
        _columns("Status", "Completions", "Duration", "Age", "+Containers", "+Images", "+Selector"),
        _job,
    ),
    "events": (_columns("Last Seen", "Type", "Reason", "Object", "Message"), _event),
    "events.events.k8s.io": (_columns("Last Seen", "Type", "Reason", "Object", "Message"), _event),
    "configmaps": (
        _columns("Data", "Age"),
        lambda obj, now: [len(obj.get("data") or {}) + len(obj.get("binaryData") or {}), age(obj, now)],
    ),
    "limitranges": (_columns("Created At"), _created),
    "customresourcedefinitions.apiextensions.k8s.io": (_columns("Created At"), _created),
    "priorityclasses.scheduling.k8s.io": (
        _columns("Value", "Global-Default", "Age", "PreemptionPolicy"),
        lambda obj, now: [
            obj["value"],
            obj.get("globalDefault", False),
            age(obj, now),
            obj.get("preemptionPolicy", "PreemptLowerPriority"),
        ],
    ),
    "runtimeclasses.node.k8s.io": (_columns("Handler", "Age"), lambda obj, now: [obj["handler"], age(obj, now)]),
    "leases.coordination.k8s.io": (
        _columns("Holder", "Age"),
        lambda obj, now: [json_path(obj, ".spec.holderIdentity") or "", age(obj, now)],
    ),
    "poddisruptionbudgets.policy": (_columns("Min Available", "Max Unavailable", "Allowed Disruptions", "Age"), _pdb),
}
