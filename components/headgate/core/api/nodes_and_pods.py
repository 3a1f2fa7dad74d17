"""
Nodes and pods as facts: the existing capacity, and the pods that use it.

A pod of a workload, or one that Headgate binds or ungates, is a fact of its own until it ends. Of all others only the
sum of what they request on each node is relevant: `read_use` has what one of them adds to it.
"""

from typing import Final, NamedTuple

from msgspec.structs import replace

from headgate.core.api.managed_pods import ENDED, PodStatus, managed_of
from headgate.core.api.metadata_keys import NO_KEYS, MetadataKeys
from headgate.core.api.names import (
    KUEUE,
    MANAGED,
    POD_INDEX_OFFSET,
    POD_PARENT,
    PODSET_LABEL,
    SCHEDULER_NAME,
    SLICE_NAME,
    TOPOLOGY_ANNOTATIONS,
    WORKLOAD_ANNOTATION,
)
from headgate.core.api.watched_objects import (
    Metadata,
    WatchedObject,
    WrongFieldError,
    check_quantities,
    check_requests,
    controller_of,
    created_ms,
    decode,
    key_in,
)
from headgate.core.kubernetes.conditions import parse_rfc3339
from headgate.core.kubernetes.effective_requests import pod_requests
from headgate.core.kubernetes.quantities import canonical
from headgate.events.facts import Fact, NodeObserved, PodObserved
from headgate.events.ids import PodKey, UnixMs
from headgate.events.objects import ApiBranch, ApiObject, Container, Node, Pod, PodSpec, Resources, Taint, Toleration

INDEX_DIGITS_MAX: Final = 10


class _NodeSpec(ApiBranch, frozen=True):
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class _NodeCondition(ApiObject, frozen=True):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class _NodeStatus(ApiBranch, frozen=True):
    allocatable: dict[str, str | int | float] = {}
    conditions: tuple[_NodeCondition, ...] = ()


class _Node(WatchedObject, frozen=True):
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


class _Pod(WatchedObject, frozen=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


def read_node(raw: bytes) -> tuple[Metadata, Fact | None]:
    """The metadata and the fact of one Node."""
    seen = decode(_Node, raw)
    meta = seen.metadata
    check_quantities("status.allocatable", seen.status.allocatable)
    found = next((each for each in seen.status.conditions if each.type == "Ready"), None)
    ready = found is not None and found.status == "True"
    node = Node(
        name=meta.name,
        labels=meta.labels or {},
        taints=seen.spec.taints,
        unschedulable=seen.spec.unschedulable,
        allocatable=seen.status.allocatable,
        ready=ready,
        not_ready_since_ms=UnixMs(0) if found is None or ready else _since_ms(found),
        lacks_ready=found is None,
        deleting=meta.deletion_timestamp is not None,
    )
    return meta, NodeObserved(name=meta.name, node=node)


def _since_ms(condition: _NodeCondition) -> UnixMs:
    """When a condition last changed; 0 when it does not say. Raises WrongFieldError."""
    if condition.last_transition_time is None:
        return UnixMs(0)
    try:
        return parse_rfc3339(condition.last_transition_time)
    except ValueError as error:
        why = f"{condition.last_transition_time!r} is not a time such as 2026-01-15T10:00:00Z"
        raise WrongFieldError("status.conditions.lastTransitionTime", why) from error


def read_pod(raw: bytes, keys: MetadataKeys = NO_KEYS) -> tuple[Metadata, Fact | None]:
    """
    The metadata and the fact of one Pod; no fact when it has ended, or is of no workload and not ours to start.

    One that is queued itself has a fact as long as it exists; `keys` are those that the Workload of its group gets too.
    """
    seen = decode(_Pod, raw)
    meta, spec = seen.metadata, seen.spec
    managed = managed_of(meta, seen.status, spec, raw, keys)
    if managed is None and (_has_ended(seen) or not (spec.node_name or _has_a_fact(seen))):
        return meta, None
    check_requests("spec", spec)
    workload = (meta.annotations or {}).get(WORKLOAD_ANNOTATION, "")
    # Pending and Running hold the same capacity; the start of a bound pod is shown by its job's counters.
    pod = Pod(
        uid=meta.uid,
        created_ms=created_ms(meta),
        spec=replace(spec, priority_class_name="", priority=None, runtime_class_name=None),
        workload=f"{meta.namespace}/{workload}" if workload else "",
        owner=controller_of(meta),
        deleting=meta.deletion_timestamp is not None,
    )
    if managed is not None:
        # That of a plain pod is compared with the Workload that it names.
        is_compared = managed.prebuilt != "" and not managed.group
        kept = pod.spec if is_compared else _reduced(pod.spec, spec.tolerations)
        spec = PodSpec() if _has_ended(seen) else kept
        pod = replace(pod, managed=managed, phase=seen.status.phase or "Pending", spec=spec)
    if not _has_ended(seen) and any(annotation in TOPOLOGY_ANNOTATIONS for annotation in meta.annotations or {}):
        pod = _topology_aware(meta, pod)
    return meta, PodObserved(pod=PodKey(key_in(meta)), spec=pod)


class PodUse(NamedTuple):
    """What a pod that has no fact of its own uses: its node, and its effective requests by resource, in amounts."""

    node: str
    requests: tuple[tuple[str, int], ...]


def read_use(raw: bytes) -> PodUse | None:
    """
    What a Pod adds to the use of its node; None when it has no node, has ended, or has a fact of its own.

    Raises msgspec.MsgspecError, UnicodeDecodeError and WrongFieldError as `read_pod`.
    """
    seen = decode(_Pod, raw)
    if not seen.spec.node_name or _has_ended(seen) or _has_a_fact(seen):
        return None
    check_requests("spec", seen.spec)
    requests = {resource: value for resource, value in pod_requests(seen.spec).items() if value}
    return PodUse(seen.spec.node_name, tuple(sorted(requests.items())))


def _has_ended(pod: _Pod) -> bool:
    return pod.status.phase in ENDED


def _has_a_fact(pod: _Pod) -> bool:
    """Whether a pod is of a workload, or Headgate binds or ungates it."""
    return (
        pod.spec.scheduler_name == SCHEDULER_NAME
        or (pod.metadata.annotations or {}).get(WORKLOAD_ANNOTATION, "") != ""
        or (pod.metadata.labels or {}).get(MANAGED) == "true"
        or (pod.metadata.annotations or {}).get(POD_PARENT, "") != ""
        or any(gate.name.startswith(KUEUE) for gate in pod.spec.scheduling_gates)
    )


def _topology_aware(meta: Metadata, pod: Pod) -> Pod:
    """A pod that requests a topology, with what its rank is read from, and without what nobody reads of it."""
    labels, annotations = meta.labels or {}, meta.annotations or {}
    offset = annotations.get(POD_INDEX_OFFSET, "")
    return replace(
        pod,
        spec=pod.spec if pod.managed is not None else _reduced(pod.spec),
        topology_aware=True,
        pod_set=labels.get(PODSET_LABEL, ""),
        indexes={label: int(value) for label, value in sorted(labels.items()) if _is_index(value)},
        index_offset=int(offset) if _is_index(offset) else 0,
        slice_name=annotations.get(SLICE_NAME, ""),
    )


def _reduced(spec: PodSpec, tolerations: tuple[Toleration, ...] = ()) -> PodSpec:
    """The spec of a pod without what nobody reads of it, unless Headgate binds it: with its effective requests."""
    if spec.scheduler_name == SCHEDULER_NAME:
        return spec
    requests = {resource: canonical(resource, value) for resource, value in sorted(pod_requests(spec).items())}
    return PodSpec(
        containers=(Container(resources=Resources(requests=dict(requests))),),
        node_selector=spec.node_selector,
        tolerations=tolerations,
        scheduler_name=spec.scheduler_name,
        node_name=spec.node_name,
        scheduling_gates=spec.scheduling_gates,
    )


def _is_index(value: str) -> bool:
    """Whether a label's value may be an index: an unsigned number of 31 bits."""
    return value.isascii() and value.isdecimal() and len(value) <= INDEX_DIGITS_MAX and int(value) < 2**31
