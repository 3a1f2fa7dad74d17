"""
Reports objects in quarantine to the cluster (`headgate.core.fold.quarantine`).

A Workload gets the condition `headgate.dev/Quarantined`; every object gets a Warning Event, and so does the Job of a
Workload. All of it is derived from the quarantine table alone: the broken record of the object is not read. After a
restart it is all written again, which changes nothing: a condition has the time at which the object was quarantined, an
Event the name that follows from its position.

A Workload in quarantine that is being deleted loses its finalizer as soon as nothing of it runs, or it would hold its
quota forever. `workload_statuses` removes the condition when the Workload is released.
"""

from collections import OrderedDict
from typing import Final

from headgate.core.api import job_kinds
from headgate.core.fold.quarantine import QUARANTINED, owner_of, shown_object
from headgate.core.kubernetes.conditions import rfc3339
from headgate.core.machine.contract import APPLY_PATCH, Call, Command, Completed
from headgate.core.state.tables import QuarantineRecord, State
from headgate.core.status.server_side_apply import API_VERSION, Json, apply_query
from headgate.core.status.workload_status import status_path
from headgate.core.workload import owners
from headgate.events import facts
from headgate.events.commit import Position
from headgate.events.ids import WorkloadKey, split_key
from headgate.machines.binder.events import EventDetail, quarantined_event
from headgate.machines.binder.finalizers import removal_of

MANAGER: Final = "headgate-quarantine"
"""The field manager of the condition: an apply without the condition removes it."""

CALLS_MAX: Final = 64
"""The maximum number of concurrent calls."""

MESSAGE_MAX: Final = 1024


class QuarantineReports:
    """The reports that are still to be written. A new binder writes all of them once more."""

    def __init__(self, state: State, told: EventDetail) -> None:
        self._state = state
        self._told = told
        self._dirty: OrderedDict[str, None] = OrderedDict.fromkeys(state.quarantine)
        self._calls: dict[str, None] = {}

    def on_event(self, event: facts.WorkloadObserved | facts.JobObserved | facts.JobDeleted) -> None:
        """Record events after which a finalizer may be removable. The next binder finds objects quarantined later."""
        if not self._state.quarantine:
            return
        if isinstance(event, facts.WorkloadObserved):
            self._dirty[f"Workload/{event.workload}"] = None
        else:
            uid = event.spec.uid if isinstance(event, facts.JobObserved) else event.uid
            key = self._state.index.set_aside_owners.get(uid)
            if key is not None:
                self._dirty[f"Workload/{key}"] = None

    def on_completed(self, completed: Completed) -> None:
        """Written, or refused permanently: it is finished. Permanent failures are in the log output of this process."""
        self._calls.pop(completed.call_id, None)

    def settle(self, calls: list[Command]) -> None:
        """Write the pending reports, as far as the limit of calls permits."""
        while self._dirty and len(self._calls) < CALLS_MAX:
            name = self._dirty.popitem(last=False)[0]
            record = self._state.quarantine.get(name)
            if record is not None:
                for call in self._about(record):
                    if call.id not in self._calls:
                        self._calls[call.id] = None
                        calls.append(call)

    def _about(self, record: QuarantineRecord) -> list[Call]:
        found = []
        if record.kind == "Workload":
            found.append(_condition(record))
            if self._may_go(record):
                found.append(removal_of(WorkloadKey(record.key), record.uid))
        if self._told != "off":
            at = Position(record.position, record.index)
            found.append(quarantined_event(record.kind, record.key, record.uid, _words(record), at, record.since_ms))
            owner = owner_of(record)
            if owner is not None and owners.is_job(self._state, owner):
                job = job_kinds.owner_key(split_key(record.key)[0], owner)
                found.append(quarantined_event("Job", job, owner.uid, _words(record), at, record.since_ms))
        return found

    def _may_go(self, record: QuarantineRecord) -> bool:
        """Whether a Workload is being deleted, and only our finalizer holds it while nothing of it runs."""
        seen = record.fact if record.fact is not None else record.workload
        if not getattr(seen, "deleting", False) or not getattr(seen, "finalizer", False):
            return False
        owner = owner_of(record)
        if owner is None:
            return True
        job = self._state.jobs.get(job_kinds.owner_key(split_key(record.key)[0], owner))
        if job is None or job.job.uid != owner.uid or job.job.finished is not None:
            return True
        return job.job.suspended and job.job.active == 0


def _words(record: QuarantineRecord) -> str:
    """What has happened, and the remedy."""
    what = f"event {record.event} could not be folded" if record.process == "fold" else f"the {record.process} failed"
    text = (
        f"Headgate {record.version} has put this object in quarantine: {what} at position {record.position} "
        f"({record.error}, {record.where}). It is left as it is and keeps its quota; see "
        f"`headgate quarantine show {shown_object(record.kind, record.key)}`"
    )
    return text[:MESSAGE_MAX]


def _condition(record: QuarantineRecord) -> Call:
    namespace, name = split_key(record.key)
    condition: Json = {
        "type": QUARANTINED,
        "status": "True",
        "reason": "DefectFound",
        "message": _words(record),
        "lastTransitionTime": rfc3339(record.since_ms),
    }
    return _apply(f"quarantine/{record.key}", namespace, name, record.uid, [condition])


def lifted(key: WorkloadKey, uid: str) -> Call:
    """The call that removes the condition."""
    return _apply(f"quarantine-over/{key}", *split_key(key), uid, [])


def _apply(call_id: str, namespace: str, name: str, uid: str, conditions: list[Json]) -> Call:
    key = WorkloadKey(f"{namespace}/{name}")
    metadata = {"namespace": namespace, "name": name, **({"uid": uid} if uid else {})}
    status: Json = {"conditions": conditions} if conditions else {}
    return Call(
        id=call_id,
        method="PATCH",
        path=status_path(key),
        query=apply_query(force=True, manager=MANAGER),
        body={"apiVersion": API_VERSION, "kind": "Workload", "metadata": metadata, "status": status},
        content_type=APPLY_PATCH,
        lane=key,
    )
