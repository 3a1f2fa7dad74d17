"""
Placements: each pod went to the first node that it fits on, and was bound to no other.

The choice of a node follows from the free capacity in the state and from the placements before it in the same decision.
The order of pods does not: it is taken from the record. No pod is left out for which there was a node, except those
whose binding was refused before, which wait for a time that is not in the log.
"""

from collections.abc import Iterator

from headgate.core.api.names import SCHEDULER_NAME
from headgate.core.log.rules_version import PLACEMENTS_SINCE, decides_alike
from headgate.core.placement.node_info import Room, ask_of
from headgate.core.state.tables import PodRecord, State
from headgate.core.verification.check import NOTHING, ReplayDifference, opens_term
from headgate.events import decisions, effects, facts
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, Position, encode_event
from headgate.events.ids import PodKey, Seq, Uid


class PlacementCheck:
    """Repeats the binder's placements of pods, and justifies its bindings. See the module docstring."""

    def __init__(self) -> None:
        self.counts = {"placements": 0}
        self.passed_over = 0
        self._has_begun = self._knows = False
        self._room = Room()
        self._due: dict[Seq, list[decisions.PodPlaced]] = {}
        self._again: dict[tuple[PodKey, Uid], tuple[Seq, str | None]] = {}
        """Repeated placements not found in the record yet: at which position, and on which node."""
        self._placed: dict[Uid, str] = {}
        """The node of each placed pod whose binding is not in the log yet."""

    def plan(self, logged: LoggedCommit) -> None:
        """See `Check`."""
        for event in logged.commit.events:
            if isinstance(event, decisions.PodPlaced):
                self._due.setdefault(logged.commit.decided_at, []).append(event)

    def look(self, state: State, logged: LoggedCommit) -> None:
        """See `Check`."""
        election = opens_term(logged, Producer.BINDER)
        if election is not None:
            self._has_begun = True
            self._knows = decides_alike(Producer.BINDER, election.rules, PLACEMENTS_SINCE)
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
            at = Position(logged.seq, index)
            match event:
                case decisions.PodPlaced():
                    again = self._again.pop((event.pod, event.uid), (Seq(-1), None))
                    self._placed[event.uid] = event.node
                    replayed = again[1] if again[0] == logged.commit.decided_at else None
                    what = f"the node of pod {event.pod}, decided at {logged.commit.decided_at}"
                    is_right = replayed == event.node
                case effects.PodBound() | effects.PodBindRejected():
                    replayed = self._placed.pop(event.uid, "")
                    what = f"the binding of pod {event.pod}"
                    is_right = replayed == event.node
                case _:
                    continue
            if not self._knows:
                passed_over = True
                continue
            self.counts["placements"] += isinstance(event, decisions.PodPlaced)
            if not is_right:
                recorded = encode_event(event).decode()
                yield ReplayDifference(what=what, position=at, recorded=recorded, replayed=replayed or NOTHING)
        self.passed_over += passed_over


def waits_for_node(record: PodRecord) -> bool:
    """Whether a pod is one that the binder has to place."""
    if record.pod.spec.scheduler_name != SCHEDULER_NAME or record.placed or record.bound:
        return False
    return not record.pod.deleting and not record.pod.spec.scheduling_gates
