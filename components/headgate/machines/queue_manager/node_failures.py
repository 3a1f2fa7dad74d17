"""
The failed nodes of admitted workloads: which to record, and when a workload has to leave.

A node that fails is recorded (`workload.node_failed`), and the scheduler looks for another one in its place. A workload
of which a second node fails before that is evicted. One that can take pods again before it is replaced is taken back.
What a failure is, `headgate.core.topology.node_health` decides.

The queue manager passes on what happens to nodes, pods and workloads, and examines the workloads that it gets with
`step`.
"""

from collections.abc import Iterable
from typing import Final

from headgate.core.queueing.eviction import NODE_FAILURES
from headgate.core.state.tables import Stage, State, Workload
from headgate.core.topology.node_health import assigned_nodes, health_of, is_suspect, replaces_nodes
from headgate.core.topology.pods import TopologyPods
from headgate.events.ids import PodKey, UnixMs, WorkloadKey
from headgate.events.objects import Admission
from headgate.events.queueing import QueueEvent, WorkloadEvicted, WorkloadNodeFailed, WorkloadNodeRecovered

_EVICTED: Final = "Workload eviction triggered due to multiple TAS assigned node failures, including: "


class NodeFailures:
    """See the module docstring. Bounded by the nodes in the assignments of workloads, and their pods."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._pods = TopologyPods(state)
        self._of: dict[str, dict[WorkloadKey, None]] = {}
        """Node -> the workloads that are assigned to it, or have it among their failed nodes."""
        self._nodes: dict[WorkloadKey, tuple[Admission | None, dict[str, None]]] = {}
        """The nodes of each workload with a topology assignment, and the admission that they were read from."""
        for workload in state.workloads.values():
            self.on_workload(workload.key)

    def on_node(self, name: str) -> Iterable[WorkloadKey]:
        """A node has appeared, changed or gone. Returns the workloads to examine."""
        return tuple(self._of.get(name, ()))

    def on_pod(self, key: PodKey) -> Iterable[WorkloadKey]:
        """A pod has appeared, changed or gone. Returns the workloads to examine."""
        return [each for each in self._pods.see(key) if self._has_suspects(each)]

    def on_workload(self, key: WorkloadKey) -> None:
        """Follow the assignment of a workload that has appeared, changed or gone."""
        workload = self._state.workloads.get(key)
        admission = workload.admission if workload is not None else None
        known = self._nodes.get(key)
        if admission is (known[0] if known is not None else None):
            return
        for node in known[1] if known is not None else ():
            members = self._of[node]
            del members[key]
            if not members:
                del self._of[node]
        nodes = dict(assigned_nodes(workload)) if workload is not None else {}
        self._nodes.pop(key, None)
        if nodes:
            self._nodes[key] = admission, nodes
        for node in nodes:
            self._of.setdefault(node, {})[key] = None

    def _has_suspects(self, key: WorkloadKey) -> bool:
        return key in self._nodes and any(is_suspect(self._state.nodes.get(node)) for node in self._nodes[key][1])

    def step(self, workload: Workload, now_ms: UnixMs) -> tuple[tuple[QueueEvent, ...], UnixMs | None]:
        """What is to be recorded of a workload's nodes now, and when it is to be examined again without an event."""
        nodes = self._nodes[workload.key][1] if workload.key in self._nodes else {}
        if not (nodes or workload.unhealthy_nodes) or workload.stage is not Stage.ADMITTED:
            return (), None
        if not replaces_nodes(self._state.configuration):
            return (), None
        failed, again_ms = self._failed(workload, nodes, now_ms)
        recovered = [node for node in workload.unhealthy_nodes if failed.get(node) == "healthy"]
        if recovered:
            return (WorkloadNodeRecovered(workload=workload.key, uid=workload.uid, node=recovered[0]),), None
        more = [node for node, status in failed.items() if status == "failed" and node not in workload.unhealthy_nodes]
        if not more:
            return (), again_ms
        if workload.unhealthy_nodes:
            message = _EVICTED + ", ".join((*workload.unhealthy_nodes, more[0]))
            evicted = WorkloadEvicted(workload=workload.key, uid=workload.uid, reason=NODE_FAILURES, message=message)
            return (evicted,), None
        return (WorkloadNodeFailed(workload=workload.key, uid=workload.uid, node=more[0]),), None

    def _failed(
        self, workload: Workload, nodes: dict[str, None], now_ms: UnixMs
    ) -> tuple[dict[str, str], UnixMs | None]:
        """The status of each node that may have failed, by name, and when one of them may change by time."""
        found: dict[str, str] = {}
        times: list[UnixMs] = []
        suspects = [node for node in nodes if is_suspect(self._state.nodes.get(node))]
        for node in sorted(dict.fromkeys((*suspects, *workload.unhealthy_nodes))):
            health = health_of(
                self._state,
                workload,
                node,
                is_assigned=node in nodes,
                is_busy=self._pods.is_busy(workload.key, node),
                now_ms=now_ms,
            )
            found[node] = health.status
            if health.again_ms is not None:
                times.append(health.again_ms)
        return found, min(times, default=None)
