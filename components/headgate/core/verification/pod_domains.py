"""
Pods of topology-aware workloads: each was sent to the domain that the ungater's rule gives it.

The domain of a gated pod follows from the state: from its workload's assignment, the ranks of its pods, and the pods
that have a domain. Which patches were under way is not in the log: a pod that has a domain and is still seen with its
gate may have lost it. Both cases are decided again, and either justifies the record. Nothing is compared of a pod that
has been left out: its patch may have been under way.
"""

from collections.abc import Iterator, Mapping

from headgate.core.fold.quarantine import is_aside
from headgate.core.log.rules_version import POD_DOMAINS_SINCE, decides_alike
from headgate.core.state.tables import Stage, State, Values
from headgate.core.topology.assignments import expand
from headgate.core.topology.pods import TopologyPods
from headgate.core.topology.ungating import domains_of_set, pods_of_set
from headgate.core.verification.check import NOTHING, ReplayDifference, opens_term
from headgate.core.workload.injection import is_assigned
from headgate.events import decisions, facts
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, Position, encode_event
from headgate.events.ids import PodKey, Seq

Domains = Mapping[PodKey, Values]


class PodDomainCheck:
    """Repeats the ungater's choices of topology domains. See the module docstring."""

    def __init__(self) -> None:
        self.counts = {"pods sent to domains": 0}
        self.passed_over = 0
        self._has_begun = self._knows = False
        self._due: dict[Seq, list[decisions.PodsAssigned]] = {}
        self._again: dict[Position, tuple[Domains, ...]] = {}
        self._pods: tuple[State, TopologyPods] | None = None
        self._planned: dict[Seq, list[Position]] = {}

    def plan(self, logged: LoggedCommit) -> None:
        """See `Check`."""
        for index, event in enumerate(logged.commit.events):
            if isinstance(event, decisions.PodsAssigned):
                decided_at = logged.commit.decided_at
                self._due.setdefault(decided_at, []).append(event)
                self._planned.setdefault(decided_at, []).append(Position(logged.seq, index))

    def look(self, state: State, logged: LoggedCommit) -> None:
        """See `Check`."""
        election = opens_term(logged, Producer.UNGATER)
        if election is not None:
            self._has_begun = True
            self._knows = decides_alike(Producer.UNGATER, election.rules, POD_DOMAINS_SINCE)
        if self._pods is None or self._pods[0] is not state:
            self._pods = state, TopologyPods(state)
        pods = self._pods[1]
        for event in logged.commit.events:
            if isinstance(event, facts.PodObserved | facts.PodDeleted):
                pods.see(event.pod)
        positions = self._planned.pop(state.position, ())
        for at, due in zip(positions, self._due.pop(state.position, ()), strict=True):
            self._again[at] = tuple(_domains(state, pods, due, patched=patched) for patched in (False, True))

    def compare(self, state: State, logged: LoggedCommit) -> Iterator[ReplayDifference]:  # noqa: ARG002 (see Check)
        """See `Check`."""
        if not self._has_begun or logged.commit.producer is not Producer.UNGATER:
            return
        for index, event in enumerate(logged.commit.events):
            if not isinstance(event, decisions.PodsAssigned):
                continue
            at = Position(logged.seq, index)
            again = self._again.pop(at, ())
            if not self._knows:
                self.passed_over += not index
                continue
            self.counts["pods sent to domains"] += sum(len(each.pods) for each in event.domains)
            wrong = [
                (pod, each.values)
                for each in event.domains
                for pod in each.pods
                if all(domains.get(pod) != each.values for domains in again)
            ]
            if wrong:
                pod, values = wrong[0]
                replayed = next((domains[pod] for domains in again if pod in domains), None)
                yield ReplayDifference(
                    what=f"the domain of pod {pod}, {'/'.join(values)}, decided at {logged.commit.decided_at}",
                    position=at,
                    recorded=encode_event(event).decode(),
                    replayed=NOTHING if replayed is None else "/".join(replayed),
                )


def _domains(state: State, pods: TopologyPods, event: decisions.PodsAssigned, *, patched: bool) -> Domains:
    """The domains that the gated pods of a pod set get. `patched`: those that have one have lost their gate."""
    workload = state.workloads.get(event.workload)
    if workload is None or workload.uid != event.uid or workload.stage is not Stage.ADMITTED:
        return {}
    found = pods_of_set(state, pods.of(workload.key), event.pod_set)
    records = {key: found[key] for key in found if not is_aside(state, "Pod", key, Producer.UNGATER)}
    for each in workload.admission.pod_set_assignments if workload.admission is not None else ():
        if (
            each.name == event.pod_set
            and each.topology_assignment is not None
            and is_assigned(state.configuration, each)
        ):
            placement = expand(each.topology_assignment)
            return domains_of_set(workload, each, placement, records, lambda _, record: not (patched and record.domain))
    return {}
