"""
Authority: which process may append which events.

Every type of event has one author, except elections and the quarantine, which every process may append, and the answers
of extenders: those that bind pods are the binder's, all others the scheduler's (`overstepped`). The audit
checks it in every log; in a cell whose commits are signed the fold refuses a commit that violates it, so that the key
of one process permits the decisions of that process alone.

An author may have been another process in earlier versions. Its terms by the rules of those versions may append such
events still, so that old logs are read. Of terms by later rules the audit and `replay --verify` report them.
"""

from headgate.events import decisions, effects, extenders
from headgate.events.base import EventBase, Producer, tag_of
from headgate.events.registry import MODULES, TAGS

_AUTHOR_OF_FAMILY = {
    "fact": Producer.INFORMER_BRIDGE,
    "queue event": Producer.QUEUE_MANAGER,
    "decision": Producer.SCHEDULER,
}
_AUTHOR_OF: dict[type[EventBase], Producer] = {
    decisions.PodsAssigned: Producer.UNGATER,
    effects.StatusApplied: Producer.BINDER,
    effects.StatusRejected: Producer.BINDER,
    effects.PodBound: Producer.BINDER,
    effects.PodBindRejected: Producer.BINDER,
    effects.PodPreempted: Producer.BINDER,
    effects.PodPreemptionRejected: Producer.BINDER,
    effects.PodWriteRejected: Producer.BINDER,
    effects.PodRemoved: Producer.UNGATER,
    effects.PodFailed: Producer.UNGATER,
    extenders.ExtenderAnswered: Producer.SCHEDULER,
    effects.ProvisioningCreated: Producer.BINDER,
    effects.ProvisioningRejected: Producer.BINDER,
    effects.ProvisioningRemoved: Producer.BINDER,
    effects.WorkloadCreated: Producer.INFORMER_BRIDGE,
    effects.WorkloadCreateRejected: Producer.INFORMER_BRIDGE,
    effects.VariantChanged: Producer.INFORMER_BRIDGE,
    effects.JobStarted: Producer.UNGATER,
    effects.JobStartRejected: Producer.UNGATER,
    effects.JobStopped: Producer.UNGATER,
    effects.JobStopRejected: Producer.UNGATER,
    effects.SnapshotTaken: Producer.SNAPSHOTTER,
    effects.DivergenceFound: Producer.SNAPSHOTTER,
}
_FORMERLY: dict[type[EventBase], tuple[Producer, int]] = {decisions.PodPlaced: (Producer.BINDER, 2)}
"""The authors of events in logs of earlier versions, and by which of their rules they have ceased to append them."""
_OF_EACH = frozenset({effects.LeaderElected, effects.ObjectQuarantined, effects.ObjectReleased})


def _author_of(event: type[EventBase]) -> Producer | None:
    return None if event in _OF_EACH else _AUTHOR_OF.get(event) or _AUTHOR_OF_FAMILY[MODULES[tag_of(event)]]


_AUTHORS = {event: _author_of(event) for event in TAGS.values()}


def author_of(event: type[EventBase]) -> Producer | None:
    """The only process that appends events of a type; None when each may (elections, quarantine)."""
    return _AUTHORS[event]


def overstepped(producer: Producer, event: EventBase, rules: int) -> Producer | None:
    """The only process that may append an event, when that is another one; None when this may, by these rules."""
    if isinstance(event, extenders.ExtenderAnswered) and event.verb == "bind":
        return None if producer is Producer.BINDER else Producer.BINDER
    return None if may_append(producer, type(event), rules) else author_of(type(event))


def may_append(producer: Producer, event: type[EventBase], rules: int) -> bool:
    """Whether events of a type are for this process to append, in a term by these rules."""
    author = _AUTHORS[event]
    if author is None or author is producer:
        return True
    former, ceased = _FORMERLY.get(event, (None, 0))
    return former is producer and rules < ceased
