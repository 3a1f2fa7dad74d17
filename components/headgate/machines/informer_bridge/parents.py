"""
Parents: whether a job that another job controls is run by that one.

A job whose parent is managed gets no Workload (`headgate.core.workload.owners.runs_above`). Each kind of jobs has a
watch of its own, so a job may be shown before its parent; and a parent that names no queue is not in the log at all. So
a parent that is absent from the state is read once, by the rules by which facts are made. One that is a fact will be
shown, and the job waits for it; any other gets no Workload, and does not run it: one without a queue, or a RayJob on a
cluster that is there already. Answers are kept until the parent is shown or the bridge restarts.
"""

from typing import Final

from headgate.core.api import job_kinds
from headgate.core.machine.api_results import is_success
from headgate.core.machine.contract import Call, Command, Completed
from headgate.core.reading.decoding import UnreadableObjectError, read
from headgate.core.reading.rules import rules_of
from headgate.core.state.tables import State
from headgate.core.workload import owners
from headgate.events.ids import JobKey, JobRef
from headgate.events.objects import Job

KNOWN_MAX: Final = 10_000
"""How many answers are kept."""


class Parents:
    """The jobs that wait for their parents. The bridge's machine passes on what concerns them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._waiting: dict[str, dict[JobKey, None]] = {}
        """By uid of the parent: the jobs that wait for it or for the answer about it."""
        self._calls: dict[str, tuple[str, JobKey]] = {}
        """GETs under way: uid and key of the parent."""
        self._known: dict[str, bool] = {}
        """By uid of a parent that was read: whether it will be shown."""

    def is_awaited(self, key: JobKey, job: Job, calls: list[Command]) -> bool:
        """Whether a job has to wait until its parent is known."""
        owner = job.owner
        if owner is None or not owners.is_job(self._state, owner):
            return False
        parent = job_kinds.owner_key(JobRef.parse(key).namespace, owner)
        record = self._state.jobs.get(parent)
        if (record is not None and record.job.uid == owner.uid) or self._known.get(owner.uid) is False:
            return False
        self._waiting.setdefault(owner.uid, {})[key] = None
        call_id = f"parent/{owner.uid}"
        if owner.uid not in self._known and call_id not in self._calls:
            self._calls[call_id] = owner.uid, parent
            calls.append(Call(id=call_id, method="GET", path=job_kinds.path_of(parent), lane=parent))
        return True

    def shown(self, uid: str) -> dict[JobKey, None]:
        """A job is in the state. Returns those that need not wait for it any more."""
        self._known.pop(uid, None)
        return self._waiting.pop(uid, {})

    def passed_over(self, uid: str) -> dict[JobKey, None]:
        """A job was shown and is no fact: it may have lost its queue. Returns those that need not wait any more."""
        if uid not in self._waiting:
            return {}
        self._remember(uid, will_show=False)
        return self._waiting.pop(uid)

    def on_completed(self, completed: Completed) -> dict[JobKey, None]:
        """A parent was read. Returns the jobs to examine again."""
        asked = self._calls.pop(completed.call_id, None)
        if asked is None:
            return {}
        uid, key = asked
        self._remember(uid, will_show=is_success(completed) and self._is_fact(uid, key, completed.body))
        return {} if self._known[uid] else self._waiting.pop(uid, {})

    def _remember(self, uid: str, *, will_show: bool) -> None:
        while len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[uid] = will_show

    def _is_fact(self, uid: str, key: JobKey, body: bytes) -> bool:
        try:
            seen = read(job_kinds.kind_of(key).resource, body, rules_of(self._state.configuration))
        except UnreadableObjectError:
            return False  # it counts as absent when it is shown, too
        return seen.uid == uid and seen.fact is not None
