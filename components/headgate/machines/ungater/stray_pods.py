"""
The ungater's fourth task: fails pods that wait for a node that will not take them.

A pod that has got its topology domain can go to no other node. If that node fails before the pod is bound, or its
workload gets another one instead, the pod would wait for ever. It is failed, as Kueue does, with the condition
`TerminatedByKueue`, so that its job creates it again and it gets another node (`headgate.core.topology.node_health`).

Level-triggered on the state: a pod that has failed is no longer in it. The patch is refused when the pod has been bound
or has failed already.
"""

from collections.abc import Mapping
from typing import Final

from headgate.core.engine.work_queue import WorkQueue
from headgate.core.fold.quarantine import is_aside
from headgate.core.kubernetes import conditions
from headgate.core.machine.api_results import is_success
from headgate.core.machine.contract import Call, Command, Completed
from headgate.core.state.attribution import about
from headgate.core.state.tables import PodRecord, Stage, State, Workload
from headgate.core.topology.assignments import HOSTNAME
from headgate.core.topology.node_health import assigned_nodes, health_of, replaces_nodes
from headgate.core.topology.pods import TopologyPods, node_of
from headgate.events import effects, facts
from headgate.events.base import Producer
from headgate.events.families import OfWorkload
from headgate.events.ids import PodKey, Uid, UnixMs, WorkloadKey
from headgate.events.objects import Admission
from headgate.events.registry import Event
from headgate.machines.ungater.pod_patches import PodPatches

CALLS_MAX: Final = 64
"""The maximum number of concurrent patches."""

TERMINATED: Final = "TerminatedByKueue"
_REASON: Final = "UnschedulableOnAssignedNode"
_MESSAGE: Final = "Pod terminated by Kueue NodeController due to node taint"


class StrayPods:
    """The pods that wait for a node. The ungater's machine passes on what concerns them, and keeps the index `pods`."""

    def __init__(self, state: State, pods: TopologyPods) -> None:
        self._state = state
        self._pods = pods
        self._queue: WorkQueue[PodKey] = WorkQueue(CALLS_MAX, keys=state.pods)
        self._patches = PodPatches(state, "fail", self._queue)
        self._failed: list[Event] = []
        """The effects of calls that have ended."""
        self._assigned: tuple[Admission | None, Mapping[str, None]] | None = None

    # --- from the log ----------------------------------------------------------------------------------------------

    def on_event(
        self,
        event: facts.PodObserved
        | facts.PodDeleted
        | facts.NodeObserved
        | facts.NodeDeleted
        | facts.ConfigurationObserved
        | facts.InformersSynced
        | OfWorkload,
    ) -> None:
        """Record events after which a pod may wait in vain."""
        match event:
            case facts.PodObserved() | facts.PodDeleted():
                self._patches.see(event.pod)
                self._look_at(event.pod)
            case facts.NodeObserved() | facts.NodeDeleted():
                for key in self._pods.on(event.name):
                    self._look_at(key)
            case facts.ConfigurationObserved() | facts.InformersSynced():
                for workload in self._pods.workloads():
                    self._look_at_pods_of(workload)
            case _:
                self._look_at_pods_of(event.workload)

    def _look_at_pods_of(self, workload: WorkloadKey) -> None:
        for key in self._pods.of(workload):
            self._look_at(key)

    def _look_at(self, key: PodKey) -> None:
        # The state is that after the whole commit: the index may have a pod that a later event of it removes.
        record = self._state.pods.get(key)
        if record is not None and _waits_for_node(record):
            self._queue.add(key)

    # --- deciding --------------------------------------------------------------------------------------------------

    def settle(self, now_ms: UnixMs, events: list[Event], calls: list[Command]) -> UnixMs | None:
        """Fail the pods that are due, and record those that were. Returns when the next is tried again."""
        events += self._failed
        self._failed.clear()
        if self._state.synced:
            for key in self._queue.ready(now_ms):
                with about("Pod", key):
                    record = self._state.pods.get(key)
                    if record is not None and self._waits_in_vain(key, record, now_ms):
                        calls.append(self._call(key, record, now_ms))
        return self._queue.next_at(now_ms)

    def _waits_in_vain(self, key: PodKey, record: PodRecord, now_ms: UnixMs) -> bool:
        if not _waits_for_node(record) or self._patches.is_patched(key):
            return False
        if is_aside(self._state, "Pod", key, Producer.UNGATER):
            return False
        workload = self._state.workloads.get(WorkloadKey(record.pod.workload))
        if workload is None or workload.stage not in (Stage.RESERVED, Stage.ADMITTED):
            return False
        if not replaces_nodes(self._state.configuration) or not _is_sent_to_nodes(workload, record.pod.pod_set):
            return False
        node = node_of(record)
        health = health_of(
            self._state,
            workload,
            node,
            is_assigned=node in self._nodes_of(workload),
            is_busy=False,
            now_ms=now_ms,
        )
        if health.again_ms is not None:
            self._queue.add_at(key, health.again_ms)
        return health.fails_pods

    def _nodes_of(self, workload: Workload) -> Mapping[str, None]:
        """The nodes that a workload is assigned to. Its pods follow on each other, so one answer is kept."""
        if self._assigned is None or self._assigned[0] is not workload.admission:
            self._assigned = workload.admission, assigned_nodes(workload)
        return self._assigned[1]

    def _call(self, key: PodKey, record: PodRecord, now_ms: UnixMs) -> Call:
        return self._patches.begin(key, failing_patch(record, now_ms), _waits_for_node, subresource="status")

    def on_completed(self, completed: Completed) -> None:
        """A call has ended. After a failure it is repeated with backoff."""
        key = self._patches.on_completed(completed)
        record = self._state.pods.get(key) if key is not None else None
        if key is not None and record is not None and is_success(completed):
            self._failed.append(effects.PodFailed(pod=key, uid=Uid(record.pod.uid), message=_MESSAGE))


def _waits_for_node(record: PodRecord) -> bool:
    """Whether a pod can go to one node only and is not bound yet."""
    pod = record.pod
    return pod.topology_aware and not pod.deleting and not pod.spec.node_name and bool(node_of(record))


def _is_sent_to_nodes(workload: Workload, pod_set: str) -> bool:
    """Whether the pods of a pod set are assigned to nodes. Otherwise a pod's node is the choice of its author."""
    for each in workload.admission.pod_set_assignments if workload.admission is not None else ():
        if each.name == pod_set and each.topology_assignment is not None:
            return each.topology_assignment.levels[-1:] == (HOSTNAME,)
    return False


def failing_patch(record: PodRecord, now_ms: UnixMs) -> list[dict[str, object]]:
    """The JSON patch of a pod's status that fails it, if it is the same, is not bound and has not failed."""
    condition = {
        "type": TERMINATED,
        "status": "True",
        "reason": _REASON,
        "message": _MESSAGE,
        "lastTransitionTime": conditions.rfc3339(now_ms),
    }
    return [
        {"op": "test", "path": "/metadata/uid", "value": record.pod.uid},
        {"op": "test", "path": "/spec/nodeName", "value": None},
        {"op": "test", "path": "/status/phase", "value": "Pending"},
        {"op": "replace", "path": "/status/phase", "value": "Failed"},
        {"op": "add", "path": "/status/conditions/-", "value": condition},
    ]
