"""
What the scheduler has decided about pods is carried out.

Its parts are the writes that come before a binding (`pod_writes`), bindings (`pod_bindings`), the status of pods that
are not placed (`pod_conditions`), and the pods that have to go for others (`pod_victims`). Each compares the record of
a pod (`Tables.placements`) with its object (`Tables.objects`), and calls the API server where they differ; so a
restarted binder finds the work that is left. A pod without a record costs nothing. Beside them, objects are written to
help pods that are not placed (`post_filter_writes`).

The calls about one pod are carried out in the order in which they were begun.
"""

from headgate.core.engine.budget import Load
from headgate.core.fold.quarantine import is_aside
from headgate.core.machine.contract import Command, Completed
from headgate.core.state.manifests import PODS
from headgate.core.state.tables import State
from headgate.events import decisions, effects, facts
from headgate.events.base import Producer
from headgate.events.extenders import ExtenderAnswered
from headgate.events.ids import PodKey, UnixMs
from headgate.events.registry import Event
from headgate.machines.binder.pod_bindings import PodBindings
from headgate.machines.binder.pod_conditions import PodConditions
from headgate.machines.binder.pod_victims import PodVictims
from headgate.machines.binder.pod_writes import PodWrites
from headgate.machines.binder.post_filter_writes import PostFilterWrites


class PodDecisions:
    """The working sets of the pods with records. The binder's machine passes on what concerns them."""

    def __init__(self, state: State, load: Load) -> None:
        self._state = state
        self._writes = PodWrites(state)
        self._conditions = PodConditions(state, load)
        self._bindings = PodBindings(state, self._conditions.is_writing)
        self._victims = PodVictims(state)
        self._help = PostFilterWrites(state)
        self._parts = (self._writes, self._bindings, self._conditions, self._victims)
        self._known: dict[PodKey, None] = {}
        """The pods that the parts know."""
        for key in state.placements:
            self._look(key)

    def on_object(self, event: facts.ObjectObserved | facts.ObjectDeleted) -> None:
        """A pod shows what was done to it, or is gone."""
        if event.resource == PODS:
            self._look(PodKey(event.name))

    def on_configuration(self, event: facts.SchedulerConfigurationObserved) -> None:
        """The records of all pods may have been dropped, with the configuration."""
        if not event.document:
            for key in tuple(self._known):
                self._look(key)

    def on_event(
        self,
        event: decisions.PlacementDecision | effects.PlacementEffect | effects.PodWriteRejected | ExtenderAnswered,
    ) -> None:
        """Something was decided about a pod, or the effect of a call is folded."""
        match event:
            case effects.PodBound() | effects.PodBindRejected():
                self._writes.on_effect(event)
                self._bindings.on_effect(event)
            case ExtenderAnswered():
                if event.verb != "bind":
                    return
                self._bindings.on_answer(event)
            case effects.PodPreempted() | effects.PodPreemptionRejected():
                self._victims.on_effect(event)
            case decisions.PodUnschedulable() | effects.PodWriteRejected():
                self._help.on_event(event)
            case decisions.PodNominated():
                for victim in event.victims:
                    self._look(victim.pod)
            case _:
                pass
        self._look(event.pod)

    def _look(self, key: PodKey) -> None:
        is_ours = key in self._state.placements and not is_aside(self._state, "Pod", key, Producer.BINDER)
        if is_ours:
            self._known[key] = None
        else:
            self._known.pop(key, None)
        for part in self._parts:
            if is_ours:
                part.add(key)
            else:
                part.forget(key)

    def on_completed(self, completed: Completed, out: list[Event]) -> None:
        """A call has ended; its effect goes to `out`."""
        self._writes.on_completed(completed, out)
        self._bindings.on_completed(completed, out)
        written = self._conditions.on_completed(completed)
        if written is not None:
            self._bindings.add(written)
        self._victims.on_completed(completed, out)
        self._help.on_completed(completed, out)

    def settle(self, now_ms: UnixMs, calls: list[Command], out: list[Event]) -> UnixMs | None:
        """Carry out what is due. Returns when to check again."""
        self._writes.settle(now_ms, calls, out)
        self._bindings.settle(now_ms, calls, out)
        self._victims.settle(now_ms, calls, out)
        self._help.settle(now_ms, calls, out)
        return self._conditions.settle(now_ms, calls)
