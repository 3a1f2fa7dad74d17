"""
Jobs below others: which jobs of the state another job controls, so that they can be looked at when that one changes.

An index that the ungater's machine keeps for itself. Bounded by the number of jobs that have a controlling owner.
"""

from collections.abc import Iterable

from headgate.core.state.grouping import Groups
from headgate.core.state.tables import State
from headgate.core.workload import owners
from headgate.events.ids import JobKey


class JobsBelow:
    """The jobs that each job controls, directly or not. The machine passes on each job that changes."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._owned: Groups[JobKey, str] = Groups()
        """By uid of the owner."""
        self._far_below: Groups[JobKey, str] = Groups()
        """By uid of the last owner that was found above one that the state did not have."""
        for key in state.jobs:
            self.see(key)

    def see(self, key: JobKey) -> None:
        """A job has appeared, changed or gone."""
        record = self._state.jobs.get(key)
        job = record.job if record is not None else None
        owner = job.owner if job is not None else None
        self._owned.put(key, owner.uid if owner is not None and owners.is_job(self._state, owner) else None)
        self._far_below.put(key, job.ancestors[-1].uid if job is not None and job.ancestors else None)

    def of(self, key: JobKey) -> Iterable[JobKey]:
        """The jobs below a job."""
        found: dict[JobKey, None] = {}
        new = [key]
        while new:
            record = self._state.jobs.get(new.pop())
            uid = record.job.uid if record is not None else ""
            below = dict.fromkeys((*self._owned.of(uid), *self._far_below.of(uid)))
            new += [each for each in below if each not in found]
            found |= below
        return found
