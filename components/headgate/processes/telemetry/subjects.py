"""Which workloads the events of a commit are about. Called by the observer, for traces."""

from collections.abc import Iterable, Iterator

from headgate.core.state.tables import State
from headgate.events.effects import VariantChanged
from headgate.events.facts import JobDeleted, JobObserved, PodObserved
from headgate.events.queueing import HeadsOffered
from headgate.events.registry import Event


def workloads_of(events: Iterable[Event], state: State | None) -> dict[str, str]:
    """
    The workloads that events are about: uid to key, in the order of the events.

    An event that names a workload or a job without the Workload's uid counts if the state has it.
    """
    found: dict[str, str] = {}
    for event in events:
        for key, uid in _named(event, state):
            known = uid or _uid_of(state, key)
            if known:
                found.setdefault(known, key)
    return found


def _named(event: Event, state: State | None) -> Iterator[tuple[str, str]]:
    match event:
        case HeadsOffered():
            yield from ((head.workload, head.uid) for head in event.heads)
        case JobObserved() | JobDeleted():
            record = state.jobs.get(event.job) if state is not None else None
            if record is not None:
                yield record.workload, ""
        case PodObserved():
            yield event.spec.workload, ""
        case VariantChanged():
            yield event.variant, event.uid
            yield event.parent, event.parent_uid
        case _:
            key = getattr(event, "workload", "")
            if key:
                yield key, getattr(event, "workload_uid", "") or getattr(event, "uid", "")


def _uid_of(state: State | None, key: str) -> str:
    workload = state.workloads.get(key) if state is not None else None
    return workload.uid if workload is not None else ""
