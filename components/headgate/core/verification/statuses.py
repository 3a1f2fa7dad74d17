"""
Statuses: each status that was written follows from the state.

`workload.status_applied` and its refusal carry the digest of the status. The digest is computed wherever something may
have changed it, for the workloads with further records in the log, until it equals the recorded one.
"""

from collections.abc import Iterator

from headgate.core.log.rules_version import STATUSES_SINCE, decides_alike
from headgate.core.state.tables import State, Workload
from headgate.core.status.workload_status import digest_of, without_reservation, workload_status
from headgate.core.verification.check import NOTHING, ReplayDifference, opens_term
from headgate.core.verification.marks import JustifiedEffects
from headgate.core.workload.concurrent_admission import relatives
from headgate.core.workload.owners import workload_of
from headgate.events import effects, facts
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, Position, encode_event
from headgate.events.families import names_workload
from headgate.events.ids import Seq, Uid, WorkloadKey
from headgate.events.queueing import HeadsOffered, HeadsWithdrawn, LocalQueuesSampled
from headgate.events.registry import Event

_SILENT = (HeadsOffered, HeadsWithdrawn, LocalQueuesSampled, effects.StatusRejected)
"""Events that change no status."""


class StatusCheck:
    """Justifies the recorded writes of Workload statuses by the binder. See the module docstring."""

    def __init__(self) -> None:
        self.counts = {"statuses": 0}
        self.passed_over = 0
        self._knows = False
        self._has_begun = False
        self._marks = JustifiedEffects()
        self._due: dict[Seq, list[WorkloadKey]] = {}
        """Position of the recorded write -> the workloads, for changes by other events than their own."""

    def plan(self, logged: LoggedCommit) -> None:
        """See `Check`."""
        for event in logged.commit.events:
            if isinstance(event, effects.StatusApplied | effects.StatusRejected):
                self._marks.expect(event.uid, event.digest)
                self._due.setdefault(logged.commit.decided_at, []).append(event.workload)

    def look(self, state: State, logged: LoggedCommit) -> None:
        """See `Check`."""
        election = opens_term(logged, Producer.BINDER)
        if election is not None:
            self._has_begun = True
            self._knows = decides_alike(Producer.BINDER, election.rules, STATUSES_SINCE)
        keys: dict[WorkloadKey, None] = {}
        for event in logged.commit.events:
            if not isinstance(event, _SILENT):
                keys.update(dict.fromkeys(_concerned(state, event)))
        keys.update(dict.fromkeys(self._due.pop(state.position, ())))
        for key in keys:
            workload = state.workloads.get(key)
            if workload is not None:
                self._allow(state, workload)

    def compare(self, state: State, logged: LoggedCommit) -> Iterator[ReplayDifference]:
        """See `Check`."""
        if not self._has_begun or logged.commit.producer is not Producer.BINDER:
            return
        for index, event in enumerate(logged.commit.events):
            if not isinstance(event, effects.StatusApplied | effects.StatusRejected):
                continue
            is_justified = self._marks.use(event.uid, event.digest, logged.commit.decided_at, keep=True)
            if not self._knows:
                self.passed_over += not index
                continue
            self.counts["statuses"] += 1
            if not is_justified:
                yield ReplayDifference(
                    what=f"a status of Workload {event.workload} that no state up to {logged.commit.decided_at} gave",
                    position=Position(logged.seq, index),
                    recorded=encode_event(event).decode(),
                    replayed=_digest_now(state, event.workload, event.uid),
                )

    def _allow(self, state: State, workload: Workload) -> None:
        if not self._marks.is_awaited(workload.uid):
            return
        status = workload_status(state, workload)
        self._marks.allow(workload.uid, digest_of(workload, status), state.position)
        if status.admission is not None:
            # The status between two reservations, written when the API server has refused the second.
            self._marks.allow(workload.uid, digest_of(workload, without_reservation(status)), state.position)


def _concerned(state: State, event: Event) -> Iterator[WorkloadKey]:
    """The workloads whose status an event may have changed."""
    match event:
        case facts.JobObserved():
            stands = workload_of(state, event.job, event.spec.uid)
            keys = (stands.key, *state.index.owned(event.spec.uid)) if stands is not None else ()
        case facts.ClusterQueueObserved():
            keys = tuple(state.index.holders.get(event.name, ()))
        case facts.ConfigurationObserved():
            keys = tuple(state.workloads)
        case _:
            keys = (event.workload,) if names_workload(event) and event.workload else ()
    for key in keys:
        yield key
        workload = state.workloads.get(key)
        if workload is not None:
            yield from (each.key for each in relatives(state, workload))


def _digest_now(state: State, key: WorkloadKey, uid: Uid) -> str:
    workload = state.workloads.get(key)
    if workload is None or workload.uid != uid:
        return NOTHING
    return f"digest {digest_of(workload, workload_status(state, workload))} now"
