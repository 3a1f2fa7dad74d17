"""
The sentences about pods in histories: of a workload (`explain_jobs`), and of a pod itself (`pod_story`).

`PodNotes` adds the line of an event. Which pods a history is about is the caller's decision.
"""

from collections.abc import Iterable, Sequence
from typing import assert_never

from headgate.core.views.timeline import EventPlace, Mark, Notes
from headgate.events import decisions, effects, facts
from headgate.events.decisions import PluginRefusal
from headgate.events.extenders import (
    EXTENDER,
    ExtenderAnswer,
    ExtenderAnswered,
    ExtenderBound,
    ExtenderFailed,
    ExtenderFiltered,
    ExtenderPreempted,
    ExtenderPrioritized,
)
from headgate.events.ids import PodKey

PodLife = facts.PodObserved | facts.PodDeleted | decisions.PodPlaced | effects.PodBound | effects.PodBindRejected
"""What all pods have in their histories, whoever places them."""

PodVerdict = (
    decisions.PodUnschedulable
    | decisions.PodNominated
    | decisions.PodPrepared
    | decisions.PodWithdrawn
    | effects.PodPreempted
    | effects.PodPreemptionRejected
    | ExtenderAnswered
    | effects.PodWriteRejected
)
"""What is decided about a pod beside its node, or done about a victim."""


class PodNotes:
    """Adds lines about pods to a history: with `of_pod` of a pod itself, where its placement is no bookkeeping."""

    def __init__(self, notes: Notes, *, of_pod: bool = False) -> None:
        self._notes = notes
        self._of_pod = of_pod
        self._waits: dict[PodKey, Mark] = {}
        """What the pods wait for."""

    def knows(self, pod: PodKey) -> bool:
        """Whether the pod has begun to wait for something in this history."""
        return pod in self._waits

    def appeared(self, at: EventPlace, pod: PodKey) -> None:
        """From here on the pod waits for a node, unless it waits for something already."""
        self._waits.setdefault(pod, Mark(at.position, at.time_ms, "a node with room"))

    def vanished(self, pod: PodKey) -> None:
        """The pod waits for nothing any more."""
        self._waits.pop(pod, None)

    def on_pod(self, at: EventPlace, event: PodLife) -> None:
        """Where a pod is."""
        match event:
            case facts.PodObserved():
                bound = f" on {event.spec.spec.node_name}" if event.spec.spec.node_name else ""
                self.appeared(at, event.pod)
                self._notes.add(at, event, f"pod is {event.spec.phase}{bound}", about=event.pod, detail=True)
            case facts.PodDeleted():
                self.vanished(event.pod)
                self._notes.add(at, event, "pod is deleted or finished", about=event.pod, detail=True)
            case decisions.PodPlaced():
                waited = self._waits.get(event.pod)
                text, is_detail = f"pod was given node {event.node}", not self._of_pod
                self._notes.add(at, event, text, about=event.pod, waited=waited, detail=is_detail)
                self._waits[event.pod] = Mark(at.position, at.time_ms, "the API server to bind it")
            case effects.PodBound():
                waited = self._waits.get(event.pod)
                self._notes.add(at, event, f"pod was bound to node {event.node}", about=event.pod, waited=waited)
            case effects.PodBindRejected():
                who = f"extender {event.extender} did not bind it to node {event.node}"
                text = who if event.extender else f"the API server refused node {event.node} ({event.code})"
                self._notes.add(at, event, text, about=event.pod, reason=event.reason, message=event.message)
            case _:
                assert_never(event)

    # Large: one case for each type of event.
    def on_placement(self, at: EventPlace, event: PodVerdict) -> None:
        """What was decided about a pod beside its node, or done about a victim."""
        match event:
            case decisions.PodUnschedulable():
                text = "pod fits on no node" if event.reason == "Unschedulable" else "pod could not be tried"
                text += describe_refusals(event.refusals)
                if event.writes:
                    text += f"; to help it, {', '.join(f'{each.kind} {each.name}' for each in event.writes)} is written"
                self._notes.add(at, event, text, about=event.pod, reason=event.reason, message=event.message)
            case decisions.PodNominated():
                victims = ", ".join(victim.pod for victim in event.victims)
                text = f"pod is to get node {event.node}" if event.node else "pod is no longer to get a certain node"
                if victims:
                    text += f" once these have gone: {victims}"
                self._notes.add(at, event, text, about=event.pod)
            case decisions.PodPrepared():
                text, is_detail = "pod has all that it needs on its node", not self._of_pod
                self._notes.add(at, event, text, about=event.pod, detail=is_detail)
            case decisions.PodWithdrawn():
                text = f"pod is not to be bound to node {event.node} after all"
                self._notes.add(at, event, text, about=event.pod, reason=event.reason, message=event.message)
            case effects.PodPreempted():
                self._notes.add(at, event, f"pod has to go for pod {event.by}", about=event.pod)
            case effects.PodPreemptionRejected():
                text = f"the API server did not let the pod go for pod {event.by} ({event.code})"
                self._notes.add(at, event, text, about=event.pod, reason=event.reason, message=event.message)
            case effects.PodWriteRejected():
                text = f"the API server refused to write {event.kind} {event.name} ({event.code})"
                self._notes.add(at, event, text, about=event.pod, reason=event.reason, message=event.message)
            case ExtenderAnswered():
                text = f"extender {event.extender}, asked to {event.verb}: {describe_answer(event.answer)}"
                is_detail = not self._of_pod and not isinstance(event.answer, ExtenderFailed)
                self._notes.add(at, event, text, about=event.pod, detail=is_detail)
            case _:
                assert_never(event)


def describe_answer(answer: ExtenderAnswer) -> str:
    """What an extender has answered, in a few words."""
    match answer:
        case ExtenderFiltered():
            refused = sum(map(len, (*answer.failed.values(), *answer.unresolvable.values())))
            return f"it leaves {_nodes(len(answer.nodes))}" + (f" and refuses {_nodes(refused)}" if refused else "")
        case ExtenderPrioritized():
            return f"it scores {_nodes(len(answer.scores))}"
        case ExtenderPreempted():
            return f"it leaves {_nodes(len(answer.victims))} to preempt on"
        case ExtenderBound():
            return "it has bound the pod"
        case ExtenderFailed():
            return f"it failed: {answer.error}"


def most_first(refusals: Iterable[PluginRefusal]) -> tuple[PluginRefusal, ...]:
    """Refusals in the order in which they are told: most nodes first."""
    return tuple(sorted(refusals, key=lambda each: (-each.nodes, each.plugin, each.reason)))


def describe_refusals(refusals: Sequence[PluginRefusal]) -> str:
    """Who refused how many nodes and why, as the end of a sentence: most nodes first."""
    said = (
        f"{each.plugin or EXTENDER} refuses {_nodes(each.nodes) if each.nodes else 'the pod'} ({each.reason})"
        for each in most_first(refusals)
    )
    whole = ", ".join(said)
    return f": {whole}" if whole else ""


def _nodes(count: int) -> str:
    return "no node" if not count else "1 node" if count == 1 else f"{count} nodes"
