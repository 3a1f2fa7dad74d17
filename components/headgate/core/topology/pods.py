"""
The topology-aware pods of each workload, and of each node: an index that a machine keeps for itself.

The machine passes every fact about a pod to `see`, after it is folded. It follows from the state, so a new machine has
the same index.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from headgate.core.jobs.marks import TOPOLOGY_GATE
from headgate.core.state.tables import PodRecord, State
from headgate.core.topology.assignments import HOSTNAME
from headgate.events.ids import PodKey, WorkloadKey

_Name = TypeVar("_Name", bound=str)

_Where = tuple[WorkloadKey, str]
"""A pod's workload and its node; "" before it has one."""


def waits_at_gate(record: PodRecord) -> bool:
    """Whether a pod waits for its topology domain."""
    return any(gate.name == TOPOLOGY_GATE for gate in record.pod.spec.scheduling_gates)


def node_of(record: PodRecord) -> str:
    """The node that a pod is on, or that it may be on only because of its node selector; "" when there is none."""
    spec = record.pod.spec
    return spec.node_name or ("" if waits_at_gate(record) else spec.node_selector.get(HOSTNAME, ""))


class TopologyPods:
    """See the module docstring. Bounded by the number of such pods."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._where: dict[PodKey, _Where] = {}
        self._of: dict[WorkloadKey, dict[PodKey, None]] = {}
        self._on: dict[str, dict[PodKey, None]] = {}
        for key in state.pods:
            self.see(key)

    def see(self, key: PodKey) -> Mapping[WorkloadKey, None]:
        """A pod may have appeared, changed or gone. Returns the workloads that this concerns."""
        before, after = self._where.pop(key, None), self._place_of(key)
        if before is not None and before != after:
            _drop(self._of, before[0], key)
            _drop(self._on, before[1], key)
        if after is not None:
            self._where[key] = after
            if before != after:
                self._of.setdefault(after[0], {})[key] = None
                self._on.setdefault(after[1], {})[key] = None
        return {where[0]: None for where in (before, after) if where is not None}

    def _place_of(self, key: PodKey) -> _Where | None:
        record = self._state.pods.get(key)
        if record is None or not record.pod.topology_aware or not record.pod.workload:
            return None
        return WorkloadKey(record.pod.workload), node_of(record)

    def of(self, workload: WorkloadKey) -> Mapping[PodKey, None]:
        """The pods of a workload."""
        return self._of.get(workload, {})

    def workloads(self) -> Iterable[WorkloadKey]:
        """The workloads that have such pods."""
        return self._of

    def on(self, node: str) -> Mapping[PodKey, None]:
        """The pods on a node, and those that can go to no other."""
        return self._on.get(node, {})

    def is_busy(self, workload: WorkloadKey, node: str) -> bool:
        """Whether a pod of a workload is bound to a node and is not terminating (Kueue's progressing pods)."""
        for key in self._on.get(node, ()):
            record = self._state.pods.get(key)
            if record is None or self._where[key][0] != workload:
                continue
            if record.pod.spec.node_name == node and not record.pod.deleting:
                return True
        return False


def _drop(index: dict[_Name, dict[PodKey, None]], name: _Name, key: PodKey) -> None:
    members = index[name]
    del members[key]
    if not members:
        del index[name]
