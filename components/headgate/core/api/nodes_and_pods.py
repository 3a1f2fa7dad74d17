"""
Nodes and pods as facts: the existing capacity, and the pods that use it.

A pod is relevant to Headgate while it holds capacity of a node, or is one that Headgate starts. Others give no fact.
"""

from msgspec.structs import replace

from headgate.core.api.names import KUEUE, SCHEDULER_NAME, WORKLOAD_ANNOTATION
from headgate.core.api.watched_objects import (
    Metadata,
    WatchedObject,
    check_quantities,
    check_requests,
    controller_of,
    created_ms,
    decode,
    key_in,
)
from headgate.events.facts import Fact, NodeObserved, PodObserved
from headgate.events.ids import PodKey
from headgate.events.objects import ApiBranch, ApiObject, Node, Pod, PodSpec, Taint


class _NodeSpec(ApiBranch, frozen=True):
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class _NodeCondition(ApiObject, frozen=True):
    type: str = ""
    status: str = ""


class _NodeStatus(ApiBranch, frozen=True):
    allocatable: dict[str, str | int | float] = {}
    conditions: tuple[_NodeCondition, ...] = ()


class _Node(WatchedObject, frozen=True):
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


class _PodStatus(ApiObject, frozen=True):
    phase: str = "Pending"


class _Pod(WatchedObject, frozen=True):
    spec: PodSpec = PodSpec()
    status: _PodStatus = _PodStatus()


def read_node(raw: bytes) -> tuple[Metadata, Fact | None]:
    """The metadata and the fact of one Node."""
    seen = decode(_Node, raw)
    meta = seen.metadata
    check_quantities("status.allocatable", seen.status.allocatable)
    node = Node(
        name=meta.name,
        labels=meta.labels or {},
        taints=seen.spec.taints,
        unschedulable=seen.spec.unschedulable,
        allocatable=seen.status.allocatable,
        ready=any(each.type == "Ready" and each.status == "True" for each in seen.status.conditions),
    )
    return meta, NodeObserved(name=meta.name, node=node)


def read_pod(raw: bytes) -> tuple[Metadata, Fact | None]:
    """The metadata and the fact of one Pod; no fact when it neither holds capacity nor is ours to start."""
    seen = decode(_Pod, raw)
    meta, spec = seen.metadata, seen.spec
    workload = (meta.annotations or {}).get(WORKLOAD_ANNOTATION, "")
    ours = spec.scheduler_name == SCHEDULER_NAME or workload != "" or _is_gated_for_us(spec)
    if seen.status.phase in {"Succeeded", "Failed"} or not (spec.node_name or ours):
        return meta, None
    check_requests("spec", spec)
    # Pending and Running hold the same capacity; the start of a bound pod is shown by its job's counters.
    pod = Pod(
        uid=meta.uid,
        created_ms=created_ms(meta),
        spec=replace(spec, priority_class_name="", priority=None, runtime_class_name=None),
        workload=f"{meta.namespace}/{workload}" if workload else "",
        owner=controller_of(meta),
        deleting=meta.deletion_timestamp is not None,
    )
    return meta, PodObserved(pod=PodKey(key_in(meta)), spec=pod)


def _is_gated_for_us(spec: PodSpec) -> bool:
    return any(gate.name.startswith(KUEUE) for gate in spec.scheduling_gates)
