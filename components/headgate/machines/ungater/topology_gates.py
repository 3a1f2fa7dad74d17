"""
The ungater's third task: sends each gated pod of a workload with a topology assignment to its domain.

The pods of such a workload carry the gate `kueue.x-k8s.io/topology`. Which domain each gets follows from the state
(`headgate.core.topology.ungating`). It is recorded first: `pods.assigned`, one event for all pods of a pod set that are
due. Then each pod gets, in one JSON patch, the node selectors of its domain and loses its gate. So after a crash at any
time no domain gets more pods than it was assigned: a pod that is patched again keeps its domain.

The patch tests that the pod is the same, still has the gate at its place, and has the node selectors that the log has;
otherwise it is refused, and the pod is examined again after a backoff, or when the watch shows it. A budget bounds the
patches a second, and `CALLS_MAX` those that are unanswered, so that an API server that answers slowly gets fewer.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from headgate.core.engine.budget import Budget, BudgetSettings, Load
from headgate.core.engine.work_queue import WorkQueue
from headgate.core.fold.quarantine import is_aside
from headgate.core.jobs.marks import TOPOLOGY_GATE
from headgate.core.machine.contract import Call, Command, Completed
from headgate.core.state.attribution import about
from headgate.core.state.tables import PodRecord, Stage, State, Values, Workload
from headgate.core.topology.assignments import Placement, expand
from headgate.core.topology.pods import TopologyPods, waits_at_gate
from headgate.core.topology.ungating import domains_of_set, is_on_any, pods_of_set
from headgate.core.workload.injection import is_assigned
from headgate.events import decisions, facts
from headgate.events.base import Producer
from headgate.events.families import OfWorkload
from headgate.events.ids import PodKey, Uid, UnixMs, WorkloadKey
from headgate.events.objects import Admission
from headgate.events.registry import Event
from headgate.machines.ungater.pod_patches import PodPatches

CALLS_MAX: Final = 256
"""The maximum number of concurrent pod patches."""

PODS_MAX: Final = 2_000
"""The maximum number of pods that get a domain in one commit, but for those of the last workload, which get it too."""

BUDGET: Final = BudgetSettings(rate_max=5_000, rate_min=500, burst=1_000)
"""Pod patches a second, and at once."""


class _Places(NamedTuple):
    """A placement, and its domains to look them up."""

    placement: Placement
    domains: Mapping[Values, None]


class TopologyGates:
    """The pods with a topology gate. The ungater's machine passes on what concerns them. Keeps the index of pods."""

    def __init__(self, state: State, pods: TopologyPods) -> None:
        self._state = state
        self._pods = pods
        self._due: dict[WorkloadKey, None] = {}
        """Workloads whose pods are to be examined."""
        self._queue: WorkQueue[PodKey] = WorkQueue(CALLS_MAX, budget=Budget(BUDGET, Load()))
        """Pods whose domain is in the log and whose gate is to be removed, and those that are being patched."""
        self._patches = PodPatches(state, "assign", self._queue)
        self._placements: dict[WorkloadKey, tuple[Admission, dict[str, _Places]]] = {}
        """The places of each pod set of workloads that have pods, and the admission that they were read from."""
        for key in state.pods:
            with about("Pod", key):
                self._see(key)

    # --- from the log ----------------------------------------------------------------------------------------------

    def on_event(self, event: facts.PodObserved | facts.PodDeleted | facts.ConfigurationObserved | OfWorkload) -> None:
        """Record events after which a pod may get a domain."""
        match event:
            case facts.PodObserved() | facts.PodDeleted():
                self._see(event.pod)
            case facts.ConfigurationObserved():
                self._placements.clear()
                self._due.update(dict.fromkeys(self._pods.workloads()))
            case _ if self._pods.of(event.workload):
                self._due[event.workload] = None
            case _:
                pass

    def _see(self, key: PodKey) -> None:
        concerned = self._pods.see(key)
        self._due.update(concerned)
        for workload in concerned:
            if not self._pods.of(workload):
                self._placements.pop(workload, None)
        self._patches.see(key)

    # --- deciding --------------------------------------------------------------------------------------------------

    def settle(self, now_ms: UnixMs, events: list[Event], calls: list[Command]) -> UnixMs | None:
        """Choose domains, and remove the gates that are due. Returns when the next is tried again."""
        chosen = 0
        while self._due and chosen < PODS_MAX:
            key = next(iter(self._due))
            del self._due[key]
            with about("Workload", key):
                chosen += self._choose(key, events)
        for pod in self._queue.ready(now_ms):
            with about("Pod", pod):
                self._patch(pod, calls)
        return now_ms if self._due else self._queue.next_at(now_ms)

    def _choose(self, key: WorkloadKey, events: list[Event]) -> int:
        """Choose the domains of a workload's gated pods, and queue those that have theirs. Returns how many are new."""
        workload = self._state.workloads.get(key)
        if workload is None or workload.stage is not Stage.ADMITTED or workload.admission is None:
            return 0
        chosen = 0
        for each in workload.admission.pod_set_assignments:
            places = self._places(workload, workload.admission).get(each.name)
            records = self._records(key, each.name) if places is not None else {}
            if places is None or not any(waits_at_gate(record) for record in records.values()):
                continue
            domains = domains_of_set(workload, each, places.placement, records, self._may_get_another)
            chosen += self._assign(workload, each.name, records, domains, events)
        return chosen

    def _places(self, workload: Workload, admission: Admission) -> dict[str, _Places]:
        """The places of each pod set that has a topology assignment, by its name."""
        known = self._placements.get(workload.key)
        if known is not None and known[0] is admission:
            return known[1]
        found: dict[str, _Places] = {}
        for each in admission.pod_set_assignments:
            if each.topology_assignment is not None and is_assigned(self._state.configuration, each):
                placement = expand(each.topology_assignment)
                found[each.name] = _Places(placement, {domain.values: None for domain in placement.domains})
        self._placements[workload.key] = admission, found
        return found

    def _records(self, workload: WorkloadKey, pod_set: str) -> dict[PodKey, PodRecord]:
        """The pods of a pod set, in order."""
        found = pods_of_set(self._state, self._pods.of(workload), pod_set)
        return {key: record for key, record in found.items() if not is_aside(self._state, "Pod", key, Producer.UNGATER)}

    def _may_get_another(self, key: PodKey, _: PodRecord) -> bool:
        return not self._patches.is_patched(key)

    def _assign(
        self,
        workload: Workload,
        pod_set: str,
        records: Mapping[PodKey, PodRecord],
        domains: Mapping[PodKey, Values],
        events: list[Event],
    ) -> int:
        newly: dict[Values, dict[PodKey, Uid]] = {}
        for key, values in domains.items():
            if records[key].domain == values:
                self._queue.add(key)
            else:
                self._queue.forget(key)
                newly.setdefault(values, {})[key] = Uid(records[key].pod.uid)
        if newly:
            found = tuple(decisions.PodsOfDomain(values=values, pods=pods) for values, pods in newly.items())
            events.append(
                decisions.PodsAssigned(workload=workload.key, uid=workload.uid, pod_set=pod_set, domains=found)
            )
        return sum(map(len, newly.values()))

    def _patch(self, key: PodKey, calls: list[Command]) -> None:
        """Remove the gate of a pod, if its domain still is one of its workload's."""
        record = self._state.pods.get(key)
        if record is None or not waits_at_gate(record) or record.pod.deleting or not record.domain:
            return
        if self._patches.is_patched(key) or is_aside(self._state, "Pod", key, Producer.UNGATER):
            return
        workload = self._state.workloads.get(WorkloadKey(record.pod.workload))
        if workload is None or workload.stage is not Stage.ADMITTED or workload.admission is None:
            return
        places = self._places(workload, workload.admission).get(record.pod.pod_set)
        if places is None or record.domain not in places.domains:
            return
        levels = places.placement.levels
        if not is_on_any(levels, record.domain, workload.unhealthy_nodes):
            calls.append(self._call(key, record, levels))

    def _call(self, key: PodKey, record: PodRecord, levels: Sequence[str]) -> Call:
        body = ungating_patch(record, dict(zip(levels, record.domain, strict=True)))
        return self._patches.begin(key, body, waits_at_gate)

    def on_completed(self, completed: Completed) -> None:
        """A call has ended. After a failure the pod is examined again with backoff."""
        self._patches.on_completed(completed)


def ungating_patch(record: PodRecord, selectors: Mapping[str, str]) -> list[dict[str, object]]:
    """The JSON patch that gives a pod node selectors and removes its topology gate, if the pod is as in the log."""
    spec = record.pod.spec
    place = next(number for number, gate in enumerate(spec.scheduling_gates) if gate.name == TOPOLOGY_GATE)
    gate = f"/spec/schedulingGates/{place}"
    return [
        {"op": "test", "path": "/metadata/uid", "value": record.pod.uid},
        {"op": "test", "path": f"{gate}/name", "value": TOPOLOGY_GATE},
        {"op": "test", "path": "/spec/nodeSelector", "value": dict(spec.node_selector) or None},
        {"op": "remove", "path": gate},
        {"op": "add", "path": "/spec/nodeSelector", "value": {**spec.node_selector, **selectors}},
    ]
