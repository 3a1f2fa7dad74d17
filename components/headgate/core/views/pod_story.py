"""
The history of one pod, read from the log, with the answer to where it could go.

`PodExplainer` folds a log commit by commit and adds a line for each event about the pod: what its object showed, where
it was placed, why it fitted nowhere, who had to go for it or it had to go for. The answer (`answered`) is what the
scheduler's code says of the pod: now, while it has no node; else again at the position of the decision that gave it
one, after the decisions before it in the same commit. It needs a state of that position, which the caller reads.

The command line uses it (`headgate explain`); it is pure.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from headgate.core import fold
from headgate.core.config.fields import ConfigurationError
from headgate.core.fold.placement import nomination
from headgate.core.fold.quarantine import Treatments
from headgate.core.kubernetes.pod_manifests import shown_node, shown_nomination
from headgate.core.placement.configuration.profiles import Registry
from headgate.core.placement.deciding import PlacementDecider
from headgate.core.placement.groups import group_of
from headgate.core.placement.plugins.registry import REGISTRY
from headgate.core.state.manifests import PODS, decoded, object_of, pod_of
from headgate.core.state.tables import PlacementRecord, State
from headgate.core.views.diagnosis import Standing
from headgate.core.views.explain_pods import PodLife, PodNotes, PodVerdict
from headgate.core.views.placement_answer import NOT_CONSULTED, PlacementAnswer, answer
from headgate.core.views.timeline import EventPlace, Line, Notes
from headgate.events import decisions, effects, facts
from headgate.events.commit import LoggedCommit, Position
from headgate.events.decisions import PlacementDecision
from headgate.events.ids import PodKey, Seq, UnixMs
from headgate.events.registry import Event

_OFF: Final = "no KubeSchedulerConfiguration is in effect at position {}, so no plugin decides: see `headgate place`"


class PodStory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A pod's complete history, up to `position`.

    `answer` is where it could go, at the position that it names: of the decision `decided` where the pod has a node, or
    waits and extenders have a say; else of the end. Without one, `unanswered` says why.
    """

    pod: PodKey
    position: int
    now_ms: UnixMs
    lines: tuple[Line, ...]
    standing: Standing
    decided: Position | None = None
    answer: PlacementAnswer | None = None
    unanswered: str = ""


class RecordedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """
    An attempt to place a pod as the log has it: its first event, and what it was decided on.

    `earlier` are the decisions before it in the same commit; it was decided as if they were folded.
    """

    position: Position
    decided_at: Seq
    scan_start: int
    earlier: tuple[PlacementDecision, ...]


class PodExplainer:
    """
    Follows one pod through the log.

    It owns its state and folds every commit that it is fed into it, as `Explainer` does.
    """

    def __init__(self, state: State, pod: PodKey, treatments: Treatments = fold.NO_TREATMENTS) -> None:
        self.state = state
        self._pod = pod
        self._treatments = treatments
        self._notes = Notes(pod)
        self._pods = PodNotes(self._notes, of_pod=True)
        self._attempt: RecordedAttempt | None = None

    def feed(self, logged: LoggedCommit) -> None:
        """
        Fold a commit and record its events about the pod.

        Raises what `headgate.core.fold.apply` raises.
        """
        was = object_of(self.state, PODS, self._pod)
        record = self.state.placements.get(self._pod)
        has_node = record is not None and bool(record.node)
        if not fold.apply(self.state, logged, self._treatments):
            return
        commit = logged.commit
        for index, event in enumerate(commit.events):
            at = EventPlace(Position(logged.seq, index), commit.time_ms, commit.producer.value)
            if isinstance(event, facts.ObjectObserved):
                if (event.resource, event.name) == (PODS, self._pod):
                    self._observed(at, event, was)
                    was = decoded(event.object)
            else:
                self._note(at, event)
            if not has_node and self._is_attempt(event):
                self._attempt = self._attempt_at(logged, index, event)

    @property
    def decided(self) -> RecordedAttempt | None:
        """The attempt to answer again: the last one, of a pod that is not waiting for a node now."""
        return None if self._is_pending() else self._attempt

    @property
    def last(self) -> RecordedAttempt | None:
        """The last attempt that the log has of the pod."""
        return self._attempt

    def story(self) -> PodStory:
        """The lines so far, and the current status; the answer is added by `answered`."""
        decided = self.decided
        return PodStory(
            pod=self._pod,
            position=self.state.position,
            now_ms=self.state.now_ms,
            lines=tuple(self._notes.lines),
            standing=pod_standing(self.state, self._pod),
            decided=decided.position if decided is not None else None,
        )

    def _is_pending(self) -> bool:
        pod = pod_of(self.state, self._pod)
        record = self.state.placements.get(self._pod)
        return pod is not None and not pod.node and (record is None or not record.node)

    # --- lines -----------------------------------------------------------------------------------------------------

    def _observed(self, at: EventPlace, event: facts.ObjectObserved, was: Mapping[str, Any] | None) -> None:
        """What the object of the pod shows, and since when."""
        pod = decoded(event.object)
        if was is None or was["metadata"].get("uid") != pod["metadata"].get("uid"):
            self._pods.vanished(self._pod)
            self._attempt = None
            if not shown_node(pod):
                self._pods.appeared(at, self._pod)
            self._notes.add(at, event, f"first seen: {', '.join(_first_seen(pod))}")
            return
        said = []
        for what, shown in _SHOWN.items():
            now = shown(pod)
            if now != shown(was):
                said.append(f"{what} {now or '(none)'}")
        self._notes.add(at, event, f"its object shows {', '.join(said) or 'a change'}", detail=not said)

    def _note(self, at: EventPlace, event: Event) -> None:
        match event:
            case facts.ObjectDeleted():
                if (event.resource, event.name) == (PODS, self._pod):
                    self._pods.vanished(self._pod)
                    self._notes.add(at, event, "pod is deleted or has ended")
            case effects.PodPreempted() if event.by == self._pod and event.pod != self._pod:
                self._notes.add(at, event, f"pod {event.pod} goes for it", about=event.pod)
            case effects.PodPreemptionRejected() if event.by == self._pod and event.pod != self._pod:
                text = f"the API server did not let pod {event.pod} go for it ({event.code})"
                self._notes.add(at, event, text, about=event.pod, reason=event.reason, message=event.message)
            case decisions.PodNominated() if any(victim.pod == self._pod for victim in event.victims):
                text = f"pod is to go, so that pod {event.pod} gets node {event.node}"
                self._notes.add(at, event, text)
            case _ if isinstance(event, PodLife):
                if event.pod == self._pod:
                    self._pods.on_pod(at, event)
            case _ if isinstance(event, PodVerdict):
                if event.pod == self._pod:
                    self._pods.on_placement(at, event)
            case _:
                self._note_group(at, event)

    def _note_group(self, at: EventPlace, event: Event) -> None:
        if isinstance(event, decisions.PodGroupTried) and self._pod in event.pods:
            became = "placed" if event.scheduled else event.message or f"not placed: {event.reason}"
            self._notes.add(at, event, f"tried with the {len(event.pods)} pods of PodGroup {event.group}: {became}")

    # --- attempts --------------------------------------------------------------------------------------------------

    def _is_attempt(self, event: Event) -> bool:
        """Whether an event is the result of an attempt. A nomination alone may be lost by an attempt for another."""
        match event:
            case decisions.PodPlaced() | decisions.PodUnschedulable():
                return event.pod == self._pod
            case decisions.PodNominated():
                return event.pod == self._pod and bool(event.node or event.victims)
            case _:
                return False

    def _attempt_at(self, logged: LoggedCommit, index: int, event: Event) -> RecordedAttempt:
        commit = logged.commit
        earlier = commit.events[:index]
        if isinstance(event, decisions.PodNominated) and earlier:
            # It follows on the verdict of the same attempt.
            last = earlier[-1]
            if isinstance(last, decisions.PodUnschedulable) and last.pod == self._pod:
                index, earlier = index - 1, earlier[:-1]
        return RecordedAttempt(
            position=Position(logged.seq, index),
            decided_at=commit.decided_at,
            scan_start=getattr(event, "scan_start", 0),
            earlier=tuple(each for each in earlier if isinstance(each, PlacementDecision)),
        )


def _gates_of(pod: Mapping[str, Any]) -> str:
    return ", ".join(gate["name"] for gate in pod.get("spec", {}).get("schedulingGates", ()))


def _deletion_of(pod: Mapping[str, Any]) -> str:
    at: str = pod["metadata"].get("deletionTimestamp", "")
    return at


_SHOWN: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "node": shown_node,
    "nominated node": shown_nomination,
    "scheduling gates": _gates_of,
    "deletion at": _deletion_of,
}
"""The changes of its object that a pod's history tells, by how they are named."""


def _first_seen(pod: Mapping[str, Any]) -> list[str]:
    spec = pod.get("spec", {})
    scheduler = spec.get("schedulerName") or "default-scheduler"
    said = [f"for scheduler {scheduler}", f"priority {spec.get('priority') or 0}"]
    if _gates_of(pod):
        said.append(f"scheduling gates {_gates_of(pod)}")
    return [*said, f"on node {shown_node(pod)}" if shown_node(pod) else "without a node"]


# --- the current status --------------------------------------------------------------------------------------------


def pod_standing(state: State, key: PodKey) -> Standing:
    """The status of a pod in a state, and the reason."""
    pod, record = object_of(state, PODS, key), state.placements.get(key)
    if pod is None:
        return _without_object(state, key)
    node = shown_node(pod)
    if record is not None and record.preempted_by:
        return Standing(stage="preempted", why=f"on node {node or record.node}, it has to go for {record.preempted_by}")
    if node:
        return Standing(stage="bound", why=f"it is on node {node}")
    if record is not None and record.node:
        return _placed(record)
    nominated = nomination(state, key)
    changes = (f"node {nominated}, to which it is nominated, gets room",) if nominated else ()
    if gates := _gates_of(pod):
        return Standing(stage="gated", why=f"its scheduling gates are {gates}", would_change=("its gates are removed",))
    if record is not None and record.verdict is not None:
        verdict = record.verdict
        why = f"{verdict.reason}: {verdict.message}"
        return Standing(stage="pending", why=why, since_ms=verdict.at_ms or None, would_change=changes)
    scheduler = pod.get("spec", {}).get("schedulerName") or "default-scheduler"
    return Standing(stage="pending", why=f"scheduler {scheduler} has not tried it", would_change=changes)


def _placed(record: PlacementRecord) -> Standing:
    since = record.placed_at_ms or None
    if record.bound:
        return Standing(stage="bound", why=f"it is bound to node {record.node}", since_ms=since)
    if record.waits_ms:
        why = f"a plugin holds it back from node {record.node}, for {record.waits_ms / 1000:g} s at most"
    elif record.writes and not record.prepared:
        objects = ", ".join(f"{write.kind} {write.name}" for write in record.writes)
        why = f"it is to get node {record.node}, and waits for {objects}"
    else:
        why = f"it is to get node {record.node}, and waits for its binding"
    return Standing(stage="placed", why=why, since_ms=since)


def _without_object(state: State, key: PodKey) -> Standing:
    """A pod that placement does not read: it is over, or no configuration is in effect."""
    record = state.pods.get(key)
    if record is None:
        return Standing(stage="gone", why="it is deleted or has ended")
    node = record.pod.spec.node_name or record.placed
    where = f"on node {node}" if node else "without a node"
    return Standing(stage="bound" if record.pod.spec.node_name else "pending", why=f"{record.pod.phase}, {where}")


# --- the answer ----------------------------------------------------------------------------------------------------


def answered(
    story: PodStory, state: State, attempt: RecordedAttempt | None = None, registry: Registry = REGISTRY
) -> PodStory:
    """
    The story with where the pod could go in a state: that of its end, or the one that the attempt was decided on.

    `registry` has the placement plugins.
    """
    if not state.scheduler_configuration:
        return msgspec.structs.replace(story, unanswered=_OFF.format(state.position))
    try:
        decider = PlacementDecider(state, registry)
    except ConfigurationError as error:
        why = f"the KubeSchedulerConfiguration of position {state.position} cannot be used: {error}"
        return msgspec.structs.replace(story, unanswered=why)
    if attempt is not None:
        for event in attempt.earlier:
            decider.suppose(event)
    pod = decider.pod_to_place(story.pod)
    if pod is None:
        return msgspec.structs.replace(story, unanswered=_why_not(decider, story.pod))
    gate = decider.frameworks[pod.spec.scheduler_name].pre_enqueue(pod)
    if group_of(pod) and not gate.is_success:
        why = (
            f"{gate.message} (PodGroup {group_of(pod)}, {len(decider.view.cluster.groups.members(group_of(pod)))} pods)"
        )
        return msgspec.structs.replace(story, unanswered=why)
    scan_start = attempt.scan_start if attempt is not None else 0
    position = attempt.position if attempt is not None else None
    return msgspec.structs.replace(story, decided=position, answer=answer(decider, pod, scan_start))


def instead(story: PodStory, explainer: PodExplainer) -> RecordedAttempt | None:
    """
    The attempt to answer by in the place of now, of a pod that waits and that extenders have a say in.

    What they would say now the log does not have; what they said when the pod was last tried it has.
    """
    is_unknown = story.answer is not None and story.answer.reason == NOT_CONSULTED
    return explainer.last if is_unknown and explainer.decided is None else None


def _why_not(decider: PlacementDecider, key: PodKey) -> str:
    """Why a pod is not tried."""
    problem = decider.view.unreadable.get((PODS, key))
    if problem is not None:
        return f"its object cannot be read: {problem}"
    pod = decider.view.cluster.pods.get(key)
    if pod is None:
        return "it is deleted or has ended"
    if decider.framework_of(pod) is None:
        known = ", ".join(decider.frameworks)
        return f"its scheduler {pod.spec.scheduler_name} is none of the KubeSchedulerConfiguration's profiles ({known})"
    if pod.node_name:
        return f"it is on node {pod.node_name}, and no decision in the log gave it that one"
    return "it is being deleted"
