"""
The fold of what placement reads, of the scheduler's choice of nodes for pods, and of the binder's effects on them.

Called by `headgate.core.fold` only. A pod has a placement record from the first decision about it on until its object
shows the result, or is gone. `Tables.pods` follows too, where a pod is in it: topologies count what is placed.
"""

from typing import Final, Never

from msgspec.structs import replace

from headgate.core.api.watched_kinds import KIND_OF
from headgate.core.fold import nodes
from headgate.core.fold.extenders import forget
from headgate.core.kubernetes.pod_manifests import SCHEDULER_ERROR, ShownPod, shown_pod
from headgate.core.state.handlers import EventHandlers
from headgate.core.state.manifests import PODS, pod_of
from headgate.core.state.tables import (
    PlacementRecord,
    PlacementVerdict,
    PodGroupRecord,
    PostFilterWrite,
    State,
    Tries,
    write_key,
)
from headgate.events import decisions, effects, facts
from headgate.events.commit import Commit
from headgate.events.ids import PodKey, Seq, Uid, UnixMs

NODES: Final = "nodes"
POD_GROUPS: Final = "podgroups"
"""Resources."""

_NO_POD: Final = ShownPod()


def _configuration_observed(
    state: State, event: facts.SchedulerConfigurationObserved, commit: Commit, seq: Seq
) -> None:
    state.scheduler_configuration = event.document
    state.extender_answers.clear()
    if not event.document:
        # No pods are placed any more. What was placed and is not bound yet is left as it is.
        state.objects.clear()
        state.placements.clear()
        state.post_filter_writes.clear()
        state.pod_groups.clear()


# --- objects -------------------------------------------------------------------------------------------------------


def _object_observed(state: State, event: facts.ObjectObserved, commit: Commit, seq: Seq) -> None:
    if event.resource == PODS:
        forget(state, PodKey(event.name))
        _pod_observed(state, PodKey(event.name), event.object)
    elif state.post_filter_writes:
        _overtaken(state, event)
    # A copy: what is decoded of an entry keeps the bytes of all of it.
    state.objects.setdefault(event.resource, {})[event.name] = event.object.copy()


def _object_deleted(state: State, event: facts.ObjectDeleted, commit: Commit, seq: Seq) -> None:
    if event.resource == PODS:
        forget(state, PodKey(event.name))
        state.placements.pop(PodKey(event.name), None)
        _help_no_more(state, PodKey(event.name))
    elif event.resource == POD_GROUPS:
        state.pod_groups.pop(event.name, None)
    elif state.post_filter_writes:
        _overtaken(state, event)
    objects = state.objects.get(event.resource, {})
    objects.pop(event.name, None)
    if not objects:
        state.objects.pop(event.resource, None)


def _overtaken(state: State, event: facts.ObjectObserved | facts.ObjectDeleted) -> None:
    """An object is no longer as it was when a write to it was decided, or shows it."""
    state.post_filter_writes.pop(write_key(KIND_OF.get(event.resource, ""), event.name), None)


def _help_no_more(state: State, pod: PodKey) -> None:
    """A pod needs no help any more: what is to be written for it is not."""
    for key in [key for key, each in state.post_filter_writes.items() if each.pod == pod]:
        del state.post_filter_writes[key]


def _pod_observed(state: State, key: PodKey, manifest: facts.Manifest) -> None:
    """What the object of a pod shows needs no record any more."""
    record = state.placements.get(key)
    if record is None:
        return
    pod = shown_pod(manifest)
    if record.uid != pod.uid:
        del state.placements[key]
        _help_no_more(state, key)
    elif pod.node:
        _help_no_more(state, key)
        record.node, record.bound, record.writes, record.prepared = "", False, (), False
        record.waits_ms, record.placed_at_ms = 0, UnixMs(0)
        record.nominated, record.verdict, record.refusals, record.tries = None, None, 0, None
        _drop_if_empty(state, key, record)
    elif record.nominated == pod.nomination:
        record.nominated = None
        _drop_if_empty(state, key, record)


def nomination(state: State, key: PodKey) -> str:
    """The nomination of a pod that is in force: the one that is decided, else the one that its object shows."""
    record = state.placements.get(key)
    if record is not None and record.nominated is not None:
        return record.nominated
    return (pod_of(state, key) or _NO_POD).nomination


def _drop_if_empty(state: State, key: PodKey, record: PlacementRecord) -> None:
    if record == PlacementRecord(uid=record.uid):
        del state.placements[key]


# --- decisions -----------------------------------------------------------------------------------------------------


def _known(state: State, key: PodKey, uid: Uid) -> PlacementRecord | None:
    record = state.placements.get(key)
    return record if record is not None and record.uid == uid else None


def _record_of(state: State, key: PodKey, uid: Uid) -> PlacementRecord | None:
    """The record of a pod that is there; None for one that is gone, and in logs without objects."""
    record = state.placements.get(key)
    if record is not None:
        return record if record.uid == uid else None
    return _new_record(state, key, uid, pod_of(state, key))


def _new_record(state: State, key: PodKey, uid: Uid, pod: ShownPod | None) -> PlacementRecord | None:
    if pod is None or pod.uid != uid:
        return None
    record = state.placements[key] = PlacementRecord(uid=uid)
    return record


def _pending(state: State, key: PodKey, uid: Uid) -> PlacementRecord | None:
    """The record of a pod whose object shows no node."""
    pod = pod_of(state, key)
    if pod is None or pod.node:
        return None
    record = state.placements.get(key)
    if record is not None:
        return record if record.uid == uid else None
    return _new_record(state, key, uid, pod)


def _placed(state: State, event: decisions.PodPlaced, commit: Commit, seq: Seq) -> None:
    forget(state, event.pod)
    _help_no_more(state, event.pod)
    for write in event.writes:
        # What another pod asked for was decided from the object without this.
        state.post_filter_writes.pop(write_key(write.kind, write.name), None)
    record = _pending(state, event.pod, event.uid)
    if record is not None and not record.bound:
        is_held_back = record.waits_ms > 0 and record.node == event.node
        record.node, record.writes, record.prepared, record.waits_ms = event.node, event.writes, False, event.waits_ms
        if not (event.waits_ms and is_held_back):
            record.placed_at_ms = commit.time_ms
        record.verdict = None
        if event.attempts:
            record.tries = replace(record.tries or Tries(), attempts=event.attempts, at_ms=commit.time_ms)
            _scanned(state, event)
        if event.writes or event.waits_ms:
            _nominate(state, event.pod, record, event.node)
        else:
            # Its binding ends the nomination, in the object too.
            record.nominated = None
    nodes.place_pod(state, event.pod, event.uid, event.node, seq)


def _prepared(state: State, event: decisions.PodPrepared, commit: Commit, seq: Seq) -> None:
    record = _known(state, event.pod, event.uid)
    if record is not None and record.node == event.node:
        record.prepared = True


def _withdrawn(state: State, event: decisions.PodWithdrawn, commit: Commit, seq: Seq) -> None:
    forget(state, event.pod)
    record = _known(state, event.pod, event.uid)
    if record is not None and not record.bound and record.node == event.node:
        _unplace(state, event.pod, record)
        record.verdict = PlacementVerdict(reason=event.reason, message=event.message, at_ms=commit.time_ms)
        _put_off(record, commit.time_ms)
    nodes.unplace_pod(state, event.pod, event.uid, seq, refused=False)


def _unplace(state: State, key: PodKey, record: PlacementRecord) -> None:
    """The pod has no node, and loses its nomination: the kube-scheduler clears it when a binding fails."""
    record.node, record.writes, record.prepared = "", (), False
    record.waits_ms, record.placed_at_ms = 0, UnixMs(0)
    _nominate(state, key, record, "")


def _nominate(state: State, key: PodKey, record: PlacementRecord, node: str) -> None:
    """Record a nomination, unless the object shows it and no write of another one may be under way."""
    if record.nominated is not None or (pod_of(state, key) or _NO_POD).nomination != node:
        record.nominated = node


def _unschedulable(state: State, event: decisions.PodUnschedulable, commit: Commit, seq: Seq) -> None:
    forget(state, event.pod)
    record = _pending(state, event.pod, event.uid)
    if record is not None:
        record.verdict = PlacementVerdict(
            reason=event.reason, message=event.message, refusals=event.refusals, at_ms=commit.time_ms
        )
        if event.attempts:
            _count(record, event, commit.time_ms)
            _scanned(state, event)
        _help_no_more(state, event.pod)
        for write in event.writes:
            asked = PostFilterWrite(pod=event.pod, uid=event.uid, write=write)
            state.post_filter_writes[write_key(write.kind, write.name)] = asked


def _tried(state: State, event: decisions.PodTried, commit: Commit, seq: Seq) -> None:
    record = _known(state, event.pod, event.uid)
    if record is not None and not record.node:
        _count(record, event, commit.time_ms)


def _count(record: PlacementRecord, event: decisions.PodUnschedulable | decisions.PodTried, at_ms: UnixMs) -> None:
    record.tries = Tries(attempts=event.attempts, failures=event.failures, errors=event.errors, at_ms=at_ms)


def _scanned(state: State, event: decisions.PodPlaced | decisions.PodUnschedulable) -> None:
    """The next search begins where this one has ended."""
    state.scan_start = (event.scan_start + event.scanned) % max(1, len(state.objects.get(NODES, ())))


def _put_off(record: PlacementRecord, at_ms: UnixMs) -> None:
    """What was decided about a pod could not be carried out: its next attempt is put off as after an error."""
    if record.tries is not None:
        record.tries = replace(record.tries, errors=record.tries.errors + 1, at_ms=at_ms)


def _group_tried(state: State, event: decisions.PodGroupTried, commit: Commit, seq: Seq) -> None:
    record = state.pod_groups.get(event.group)
    if record is not None and record.uid == event.uid and record.scheduled and not event.scheduled:
        # A group that was placed once remains so, whatever becomes of pods that came later.
        return
    if event.group in state.objects.get(POD_GROUPS, {}):
        state.pod_groups[event.group] = PodGroupRecord(
            uid=event.uid, scheduled=event.scheduled, reason=event.reason, message=event.message
        )


def _nominated(state: State, event: decisions.PodNominated, commit: Commit, seq: Seq) -> None:
    forget(state, event.pod)
    record = _pending(state, event.pod, event.uid)
    if record is None:
        return
    _nominate(state, event.pod, record, event.node)
    _drop_if_empty(state, event.pod, record)
    for victim in event.victims:
        doomed = _record_of(state, victim.pod, victim.uid)
        if doomed is not None:
            doomed.preempted_by, doomed.budgeted, doomed.preempted = event.pod, victim.budgeted, False


# --- effects -------------------------------------------------------------------------------------------------------


def _bound(state: State, event: effects.PodBound, commit: Commit, seq: Seq) -> None:
    forget(state, event.pod)
    record = _pending(state, event.pod, event.uid)
    if record is not None:
        record.node, record.bound = event.node, True
    nodes.bind_pod(state, event.pod, event.uid, event.node, seq)


def _bind_rejected(state: State, event: effects.PodBindRejected, commit: Commit, seq: Seq) -> None:
    forget(state, event.pod)
    record = _known(state, event.pod, event.uid)
    if record is not None and not record.bound and record.node == event.node:
        _unplace(state, event.pod, record)
        record.refusals += 1
        record.verdict = PlacementVerdict(reason=SCHEDULER_ERROR, message=event.message, at_ms=commit.time_ms)
        _put_off(record, commit.time_ms)
    nodes.unplace_pod(state, event.pod, event.uid, seq, refused=True)


def _preempted(state: State, event: effects.PodPreempted, commit: Commit, seq: Seq) -> None:
    record = _known(state, event.pod, event.uid)
    if record is not None and record.preempted_by == event.by:
        record.preempted = True


def _preemption_rejected(state: State, event: effects.PodPreemptionRejected, commit: Commit, seq: Seq) -> None:
    record = _known(state, event.pod, event.uid)
    if record is not None and record.preempted_by == event.by:
        record.preempted_by, record.budgeted, record.preempted = PodKey(""), False, False
        _drop_if_empty(state, event.pod, record)
        preemptor = state.placements.get(event.by)
        if preemptor is not None and not preemptor.node:
            _put_off(preemptor, commit.time_ms)


def _write_rejected(state: State, event: effects.PodWriteRejected, commit: Commit, seq: Seq) -> None:
    key = write_key(event.kind, event.name)
    asked = state.post_filter_writes.get(key)
    if asked is not None and asked.uid == event.uid:
        del state.post_filter_writes[key]


HANDLERS = (
    EventHandlers[Never]()
    .on(facts.SchedulerConfigurationObserved, _configuration_observed)
    .on(facts.ObjectObserved, _object_observed)
    .on(facts.ObjectDeleted, _object_deleted)
    .on(decisions.PodPlaced, _placed)
    .on(decisions.PodPrepared, _prepared)
    .on(decisions.PodWithdrawn, _withdrawn)
    .on(decisions.PodUnschedulable, _unschedulable)
    .on(decisions.PodTried, _tried)
    .on(decisions.PodNominated, _nominated)
    .on(decisions.PodGroupTried, _group_tried)
    .on(effects.PodBound, _bound)
    .on(effects.PodBindRejected, _bind_rejected)
    .on(effects.PodPreempted, _preempted)
    .on(effects.PodPreemptionRejected, _preemption_rejected)
    .on(effects.PodWriteRejected, _write_rejected)
)
