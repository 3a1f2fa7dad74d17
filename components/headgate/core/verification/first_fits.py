"""
First fits: without a KubeSchedulerConfiguration the binder places each pod on the first node that it fits on.

The choice of a node follows from the free capacity in the state and from the placements before it in the same decision.
The order of pods does not: it is taken from the record. No pod is left out for which there was a node, except those
whose binding was refused before, which wait for a time that is not in the log.
"""

from collections.abc import Iterator

from headgate.core.api.names import SCHEDULER_NAME
from headgate.core.log.rules_version import FIRST_FITS_SINCE, decides_alike
from headgate.core.placement.node_info import Room, ask_of
from headgate.core.state.tables import PodRecord, State
from headgate.core.verification.check import NOTHING, ReplayDifference, opens_term
from headgate.events import decisions, effects, facts
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, Position, encode_event
from headgate.events.ids import PodKey, Seq, Uid


class FirstFitCheck:
    """Repeats the binder's placements of pods. See the module docstring."""

    def __init__(self) -> None:
        self.counts = {"first fits": 0}
        self.passed_over = 0
        self._has_begun = self._knows = False
        self._room = Room()
        self._due: dict[Seq, list[decisions.PodPlaced]] = {}
        self._again: dict[tuple[PodKey, Uid], tuple[Seq, str | None]] = {}
        """Repeated placements not found in the record yet: at which position, and on which node."""

    def plan(self, logged: LoggedCommit) -> None:
        """See `Check`."""
        if logged.commit.producer is not Producer.BINDER:
            return
        for event in logged.commit.events:
            if isinstance(event, decisions.PodPlaced):
                self._due.setdefault(logged.commit.decided_at, []).append(event)

    def look(self, state: State, logged: LoggedCommit) -> None:
        """See `Check`."""
        election = opens_term(logged, Producer.BINDER)
        if election is not None:
            self._has_begun = True
            self._knows = decides_alike(Producer.BINDER, election.rules, FIRST_FITS_SINCE)
        for event in logged.commit.events:
            match event:
                case facts.NodeObserved() | facts.NodeDeleted():
                    self._room.observe_node(event.name, state.nodes.get(event.name))
                case facts.NodeUsageObserved():
                    self._room.observe_use(event.node, state.node_usage.get(event.node))
                case (
                    facts.PodObserved()
                    | facts.PodDeleted()
                    | decisions.PodPlaced()
                    | effects.PodBound()
                    | effects.PodBindRejected()
                ):
                    self._room.observe_pod(event.pod, state.pods.get(event.pod))
                case _:
                    pass
        due = self._due.pop(state.position, None)
        if due is not None:
            self._place(state, due)

    def _place(self, state: State, due: list[decisions.PodPlaced]) -> None:
        """Place the pods of one decision in their order, each after those before it."""
        for event in due:
            record = state.pods.get(event.pod)
            node = None
            if record is not None and record.pod.uid == event.uid and waits_for_node(record):
                ask = ask_of(record.pod.spec)
                node = self._room.first_fit(record.pod.spec, ask)
                if node is not None:
                    self._room.hold(event.pod, node, ask)
            self._again[event.pod, event.uid] = state.position, node
        # The state shows none of them yet; whether it will depends on the log.
        for event in due:
            self._room.observe_pod(event.pod, state.pods.get(event.pod))

    def compare(self, state: State, logged: LoggedCommit) -> Iterator[ReplayDifference]:  # noqa: ARG002 (see Check)
        """See `Check`."""
        if not self._has_begun or logged.commit.producer is not Producer.BINDER:
            return
        passed_over = False
        for index, event in enumerate(logged.commit.events):
            if not isinstance(event, decisions.PodPlaced):
                continue
            if not self._knows:
                passed_over = True
                continue
            self.counts["first fits"] += 1
            decided_at, node = self._again.pop((event.pod, event.uid), (Seq(-1), None))
            replayed = node if decided_at == logged.commit.decided_at else None
            if replayed != event.node:
                yield ReplayDifference(
                    what=f"the node of pod {event.pod}, decided at {logged.commit.decided_at}",
                    position=Position(logged.seq, index),
                    recorded=encode_event(event).decode(),
                    replayed=replayed or NOTHING,
                )
        self.passed_over += passed_over


def waits_for_node(record: PodRecord) -> bool:
    """Whether a pod is one that the binder has to place."""
    if record.pod.spec.scheduler_name != SCHEDULER_NAME or record.placed or record.bound:
        return False
    return not record.pod.deleting and not record.pod.spec.scheduling_gates
