"""
The Kubernetes Events that Kueue records about the workloads of a plan.

Called for each event before it is folded, since waiting times are counted from what the workload was. The words are
those of `headgate.core.status.event_messages`, cut to what the API takes of them.
"""

from collections.abc import Mapping

import msgspec

from headgate.core.preemption import preempted_event_message, preemptor_event_message
from headgate.core.state.tables import State
from headgate.core.status import event_messages
from headgate.core.workload.concurrent_admission import NO_VARIANT, VARIANT_EVICTED
from headgate.core.workload.slices import SLICE_REPLACED
from headgate.events import decisions, queueing
from headgate.events.ids import UnixMs, WorkloadKey
from headgate.events.registry import Event


class RecordedEvent(msgspec.Struct, frozen=True):
    """One Kubernetes Event about a workload."""

    object: WorkloadKey
    type: str
    reason: str
    message: str


# Large: one case for each event type that Kueue writes an Event about.
def told(state: State, event: Event, now_ms: UnixMs, considered: Mapping[WorkloadKey, str]) -> list[RecordedEvent]:
    """
    The Kubernetes Events of one event, `state` being that before it.

    `considered` has the flavors that were passed over for workloads that a cycle admits, in Kueue's words.
    """
    match event:
        case decisions.QuotaReserved():
            note = event_messages.quota_reserved(state.workloads[event.workload], event, now_ms)
            if flavors := considered.get(event.workload):
                note += f"; Flavors considered: {flavors}"
            return [_normal(event.workload, "QuotaReserved", note)]
        case decisions.WorkloadAdmitted():
            note = event_messages.admitted(state.workloads[event.workload], event, now_ms)
            return [_normal(event.workload, "Admitted", note)]
        case decisions.SecondPassFailed() if not event.evict:
            note = event_messages.cut(event.message)
            return [RecordedEvent(event.workload, "Warning", event_messages.PLACEMENT_FAILED, note)]
        case decisions.WorkloadSkipped():
            return [RecordedEvent(event.workload, "Warning", event.reason, event_messages.cut(event.message))]
        case decisions.WorkloadPreempted():
            return _preempted(state, event)
        case decisions.WorkloadReplaced():
            return [_normal(event.workload, SLICE_REPLACED, event.message)]
        case decisions.WorkloadMigrated():
            return [_normal(event.workload, event_messages.MIGRATED, event.message)]
        case queueing.WorkloadEvicted() if event.reason in (VARIANT_EVICTED, NO_VARIANT):
            return []
        case queueing.WorkloadEvicted() if state.workloads[event.workload].admission is not None:
            return [_normal(event.workload, event_messages.evicted_reason(event), event.message)]
        case _:
            return []


def _preempted(state: State, event: decisions.WorkloadPreempted) -> list[RecordedEvent]:
    victim = state.workloads[event.workload]
    preemptor = state.workloads[event.preemptor]
    configuration = state.configuration
    about = preempted_event_message(event.message, preemptor, victim, configuration)
    to = preemptor_event_message(preemptor, victim, event.cluster_queue, configuration)
    return [
        _normal(victim.key, event_messages.EVICTED_BY_PREEMPTION, event.message),
        _normal(victim.key, event_messages.PREEMPTED, about),
        _normal(preemptor.key, event_messages.PREEMPTED_WORKLOAD, to),
    ]


def _normal(key: WorkloadKey, reason: str, note: str) -> RecordedEvent:
    return RecordedEvent(key, "Normal", reason, event_messages.cut(note))
