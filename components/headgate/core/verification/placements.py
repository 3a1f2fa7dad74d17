"""
Placements: each pod that was tried got what the state says, and was bound to no other node than the one chosen for it.

What an attempt decides follows from the state, from where its scan starts, which is recorded, and from the decisions
before it in the same commit. The order of pods does not: it is taken from the record, as are attempts that changed
nothing, which have no effect but on when a pod is tried again, and the numbers of attempts. So each recorded event is
decided again after those before it, and node, message, refusals, nomination and victims must be equal. What was decided
about placed pods that waited (prepared, withdrawn, let go) is decided again with the time of the commit. Extenders are
not asked: their answers are in the state that a decision names.

The nodes that the binder chose in former versions are not decided again; its bindings have to be to them.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from typing import Final

from msgspec.structs import replace

from headgate.core.config.fields import ConfigurationError
from headgate.core.log.rules_version import BINDINGS_SINCE, PLACEMENT_PARTS_SINCE, PLACEMENTS_SINCE, decides_alike
from headgate.core.placement.configuration.profiles import Registry
from headgate.core.placement.deciding import PlacementDecider
from headgate.core.placement.group_deciding import decide_group
from headgate.core.placement.plugins.registry import REGISTRY
from headgate.core.placement.view import OfPlacement, PlacementFact
from headgate.core.state.tables import State
from headgate.core.verification.check import NOTHING, ReplayDifference, opens_term
from headgate.events import decisions, effects
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, Position, encode_event
from headgate.events.decisions import PlacementDecision
from headgate.events.effects import ObjectQuarantined, ObjectReleased
from headgate.events.facts import SchedulerConfigurationObserved
from headgate.events.ids import Seq, Uid, UnixMs
from headgate.events.registry import Event

PLACEMENT_EVENTS: Final = (
    decisions.PodGroupTried,
    decisions.PodPlaced,
    decisions.PodPrepared,
    decisions.PodWithdrawn,
    decisions.PodUnschedulable,
    decisions.PodNominated,
)
"""What the scheduler decides about pods, in commits of their own."""
_REMAKE: Final = (SchedulerConfigurationObserved, ObjectQuarantined, ObjectReleased)


Decided = PlacementDecision | decisions.PodGroupTried


class PlacementCheck:
    """Repeats the scheduler's decisions about pods, and justifies the binder's bindings. See the module docstring."""

    def __init__(self, registry: Registry = REGISTRY) -> None:
        self.counts = {"placements": 0}
        self.passed_over = 0
        self._registry = registry
        self._decider: PlacementDecider | None = None
        self._has_begun = {Producer.SCHEDULER: False, Producer.BINDER: False}
        self._knows = {Producer.SCHEDULER: False, Producer.BINDER: False}
        self._has_parts = False
        """Whether the decisions of this term have all their parts (`PLACEMENT_PARTS_SINCE`)."""
        self._due: dict[Seq, tuple[UnixMs, list[Decided]]] = {}
        self._made: dict[Seq, list[Decided | None] | None] = {}
        """What was decided again, at which position; None where the configuration cannot be read here."""
        self._chosen: dict[Uid, str] = {}
        """The node of each placed pod whose binding is not in the log yet."""

    def plan(self, logged: LoggedCommit) -> None:
        """See `Check`."""
        if logged.commit.producer is not Producer.SCHEDULER:
            return
        events: list[Decided] = [event for event in logged.commit.events if isinstance(event, PLACEMENT_EVENTS)]
        if events:
            self._due[logged.commit.decided_at] = logged.commit.time_ms, events

    def look(self, state: State, logged: LoggedCommit) -> None:
        """See `Check`."""
        for producer, since in ((Producer.SCHEDULER, PLACEMENTS_SINCE), (Producer.BINDER, BINDINGS_SINCE)):
            election = opens_term(logged, producer)
            if election is not None:
                self._has_begun[producer] = True
                self._knows[producer] = decides_alike(producer, election.rules, since)
                if producer is Producer.SCHEDULER:
                    self._has_parts = election.rules >= PLACEMENT_PARTS_SINCE
        self._follow(state, logged.commit.events)
        due = self._due.pop(state.position, None)
        if due is not None and self._knows[Producer.SCHEDULER]:
            self._made[state.position] = self._decide_again(state, *due)

    def _follow(self, state: State, events: Sequence[Event]) -> None:
        if self._decider is None:
            return
        if self._decider.view.state is not state or any(isinstance(event, _REMAKE) for event in events):
            self._decider = None
            return
        for event in events:
            if isinstance(event, PlacementFact | OfPlacement):
                self._decider.view.on_event(event)

    def _decide_again(self, state: State, time_ms: UnixMs, recorded: Sequence[Decided]) -> list[Decided | None] | None:
        """What is decided in the place of some recorded events; None for an event that nothing is decided for."""
        if self._decider is None:
            try:
                self._decider = PlacementDecider(state, self._registry)
            except ConfigurationError:
                return None
        made: list[Decided | None] = []
        while len(made) < len(recorded):
            again = _decided(self._decider, recorded[len(made)], time_ms) or (None,)
            paired = zip_longest(again, recorded[len(made) : len(made) + len(again)])
            made.extend(_counted_as(event, each) for each, event in paired)
        self._decider.forget()
        return made if self._has_parts else [_without_parts(each) for each in made]

    def compare(self, state: State, logged: LoggedCommit) -> Iterator[ReplayDifference]:  # noqa: ARG002 (see Check)
        """See `Check`."""
        producer = logged.commit.producer
        if not self._has_begun.get(producer, False):
            return
        if producer is Producer.SCHEDULER:
            yield from self._compare_placements(logged)
        passed_over = False
        for index, event in enumerate(logged.commit.events):
            at = Position(logged.seq, index)
            match event:
                case decisions.PodPlaced():
                    self._chosen[event.uid] = event.node
                    passed_over = passed_over or producer is Producer.BINDER
                case decisions.PodWithdrawn():
                    self._chosen.pop(event.uid, None)
                case effects.PodBound() | effects.PodBindRejected():
                    passed_over = passed_over or not self._knows[Producer.BINDER]
                    yield from self._compare_binding(at, event)
                case _:
                    pass
        self.passed_over += passed_over

    def _compare_binding(
        self, at: Position, event: effects.PodBound | effects.PodBindRejected
    ) -> Iterator[ReplayDifference]:
        chosen = self._chosen.pop(event.uid, "")
        if self._knows[Producer.BINDER] and chosen != event.node:
            yield _difference(f"the binding of pod {event.pod}", at, event, chosen)

    def _compare_placements(self, logged: LoggedCommit) -> Iterator[ReplayDifference]:
        commit = logged.commit
        places = [index for index, event in enumerate(commit.events) if isinstance(event, PLACEMENT_EVENTS)]
        if not places:
            return
        again = self._made.pop(commit.decided_at, [])
        if again is None or not self._knows[Producer.SCHEDULER]:
            self.passed_over += 1
            return
        self.counts["placements"] += len(places)
        for index, made in zip_longest(places, again[: len(places)]):
            event = commit.events[index]
            if made != event:
                what = f"what was decided about {_subject_of(event)} at {commit.decided_at}"
                replayed = encode_event(made).decode() if made is not None else ""
                yield _difference(what, Position(logged.seq, index), event, replayed)
                return


def _decided(decider: PlacementDecider, event: Decided, time_ms: UnixMs) -> Sequence[Decided]:
    """What is decided where an event was recorded, and supposed for what comes after it."""
    if isinstance(event, decisions.PodGroupTried):
        pods = [pod for key in event.pods if (pod := decider.pod_to_place(key)) is not None]
        if not pods:
            return ()
        decided = decide_group(decider, event.group, pods, event.scan_start)
        return (decided.tried, *chain.from_iterable(decided.by_pod.values()))
    if decider.is_waiting(event.pod):
        again = decider.follow_up(event.pod, time_ms)
        if again is None:
            return ()
        decider.suppose(again)
        return (again,)
    unreadable = decider.refuse_unreadable(event.pod)
    if unreadable:
        decider.suppose(unreadable[0])
        return unreadable
    pod = decider.pod_to_place(event.pod)
    if pod is None or isinstance(event, decisions.PodPrepared | decisions.PodWithdrawn):
        return ()
    return decider.decide(pod, event.scan_start).events


def _counted_as(event: Decided | None, made: Decided | None) -> Decided | None:
    """What is decided again, with the numbers of attempts as recorded: not all attempts are."""
    match event, made:
        case decisions.PodUnschedulable(), decisions.PodUnschedulable():
            return replace(made, attempts=event.attempts, failures=event.failures, errors=event.errors)
        case decisions.PodPlaced(), decisions.PodPlaced():
            return replace(made, attempts=event.attempts)
        case _:
            return made


def _subject_of(event: Event) -> str:
    if isinstance(event, decisions.PodGroupTried):
        return f"PodGroup {event.group}"
    return f"pod {event.pod}" if isinstance(event, PlacementDecision) else ""


def _without_parts(event: Decided | None) -> Decided | None:
    match event:
        case decisions.PodUnschedulable():
            return replace(event, writes=(), scanned=0)
        case decisions.PodPlaced():
            return replace(event, scanned=0)
        case _:
            return event


def _difference(what: str, at: Position, event: Event, replayed: str) -> ReplayDifference:
    return ReplayDifference(what=what, position=at, recorded=encode_event(event).decode(), replayed=replayed or NOTHING)
