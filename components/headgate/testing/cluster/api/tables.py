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
    shown = [_definition(column, "name" if column.name == "Name" else "") for column in columns]
    if kind.resource in _NAMED_LAST:
        return shown
    return [_definition(Column(name="Name", path=".metadata.name"), "name"), *shown]


def _definition(column: Column, format_: str) -> JsonObject:
    return {"name": column.name, "type": column.type, "format": format_, "description": "", "priority": column.priority}


def row(kind: Kind, obj: JsonObject, now_ms: int) -> list[Any]:
    """The cells of one object, in the order of `column_definitions`."""
    name = obj["metadata"]["name"]
    if kind.resource in _CORE:
        cells = _CORE[kind.resource][1](obj, now_ms)
        return cells if kind.resource in _NAMED_LAST else [name, *cells]
    cells = [name]
    for column in kind.columns or (_AGE,):
        value = json_path(obj, column.path)
        if column.type == "date" and value is not None:
            value = human_duration(now_ms - unix_ms(value))
        cells.append(value)
    return cells


def _columns(*names: str) -> tuple[Column, ...]:
    # A leading "+" marks a column of `-o wide`, a colon the type where it is no string.
    found = []
    for text in names:
        name, _, type_ = text.lstrip("+").partition(":")
        found.append(Column(name=name, path="", type=type_ or "string", priority=int(text.startswith("+"))))
    return tuple(found)


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
    ready_gates = spec.get("readinessGates") or ()
    met = {c["type"] for c in status.get("conditions") or () if c.get("status") == "True"}
    return [
        f"{ready}/{len(spec['containers'])}",
        reason,
        str(sum(container.get("restartCount", 0) for container in statuses)),
        age(obj, now_ms),
        status.get("podIP") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        f"{sum(g['conditionType'] in met for g in ready_gates)}/{len(ready_gates)}" if ready_gates else "<none>",
    ]


def _node(obj: JsonObject, now_ms: int) -> list[Any]:
    ready = json_path(obj, ".status.conditions[?(@.type=='Ready')].status")
    state = {"True": "Ready", "False": "NotReady"}.get(ready, "Unknown")
    if obj.get("spec", {}).get("unschedulable"):
        state += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key.removeprefix(prefix) for key in obj["metadata"].get("labels") or {} if key.startswith(prefix))
    info = json_path(obj, ".status.nodeInfo") or {}
    addresses = {found["type"]: found["address"] for found in reversed(json_path(obj, ".status.addresses") or [])}
    return [
        state,
        ",".join(roles) or "<none>",
        age(obj, now_ms),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", "<none>"),
        addresses.get("ExternalIP", "<none>"),
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


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
    """An event of either group: their fields are the same under two names."""
    series = obj.get("series") or {}
    event_time = obj.get("eventTime")
    first = obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or event_time
    last = series.get("lastObservedTime") or obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp") or first
    count = series.get("count") or obj.get("count") or obj.get("deprecatedCount") or (1 if event_time else 0)
    subject = obj.get("involvedObject") or obj.get("regarding") or {}
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    component = source.get("component") or obj.get("reportingComponent") or obj.get("reportingController") or ""
    instance = source.get("host") or obj.get("reportingInstance") or ""
    kind, name = str(subject.get("kind", "")).lower(), subject.get("name", "")
    return [
        human_duration(now_ms - unix_ms(last)) if last else "<unknown>",
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{kind}/{name}" if name else kind,
        subject.get("fieldPath", ""),
        f"{component}, {instance}" if instance else component,
        str(obj.get("message", obj.get("note", ""))).strip(),
        human_duration(now_ms - unix_ms(first)) if first else "<unknown>",
        count,
        obj["metadata"]["name"],
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


_EVENT_COLUMNS: Final = _columns(
    "Last Seen",
    "Type",
    "Reason",
    "Object",
    "+Subobject",
    "+Source",
    "Message",
    "+First Seen",
    "+Count",
    "+Name",
)
_NAMED_LAST: Final = frozenset({"events", "events.events.k8s.io"})
"""Kinds whose names are nothing to look at: the column comes last, and only with `-o wide`."""

_CORE: Final[dict[str, tuple[tuple[Column, ...], Cells]]] = {
    "pods": (
        _columns("Ready", "Status", "Restarts", "Age", "+IP", "+Node", "+Nominated Node", "+Readiness Gates"),
        _pod,
    ),
    "nodes": (
        _columns(
            "Status",
            "Roles",
            "Age",
            "Version",
            "+Internal-IP",
            "+External-IP",
            "+OS-Image",
            "+Kernel-Version",
            "+Container-Runtime",
        ),
        _node,
    ),
    "namespaces": (
        _columns("Status", "Age"),
        lambda obj, now: [json_path(obj, ".status.phase") or "", age(obj, now)],
    ),
    "jobs.batch": (
        _columns("Status", "Completions", "Duration", "Age", "+Containers", "+Images", "+Selector"),
        _job,
    ),
    "events": (_EVENT_COLUMNS, _event),
    "events.events.k8s.io": (_EVENT_COLUMNS, _event),
    "configmaps": (
        _columns("Data", "Age"),
        lambda obj, now: [len(obj.get("data") or {}) + len(obj.get("binaryData") or {}), age(obj, now)],
    ),
    "limitranges": (_columns("Created At:date"), _created),
    "customresourcedefinitions.apiextensions.k8s.io": (_columns("Created At:date"), _created),
    "priorityclasses.scheduling.k8s.io": (
        _columns("Value:integer", "Global-Default:boolean", "Age", "PreemptionPolicy"),
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
    "poddisruptionbudgets.policy": (
        _columns("Min Available", "Max Unavailable", "Allowed Disruptions:integer", "Age"),
        _pdb,
    ),
}
