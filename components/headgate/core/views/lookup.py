"""
Name resolution: a Workload or a job, by `<namespace>/<name>`, by the name alone, or by the full reference to a job.

Before a history is read (`headgate.core.views.explain`): a job's events precede those of its Workload, so both names
must be known before reading. The names are those of a whole log, or those of the objects that exist in a state.
"""

import difflib

import msgspec

from headgate.core.api.job_kinds import of_owner, owner_key, shown_name
from headgate.core.state.tables import State
from headgate.events import facts
from headgate.events.commit import LoggedCommit
from headgate.events.ids import JobKey, WorkloadKey, split_key
from headgate.events.objects import OwnerReference

NEAR_MATCHES_MAX = 5


class HistorySubject(msgspec.Struct, frozen=True, kw_only=True):
    """The subject of a history. `workload` is "" while a job has none, `job` for a Workload without one."""

    workload: WorkloadKey = WorkloadKey("")
    job: JobKey = JobKey("")


class UnknownWorkloadError(Exception):
    """Raised when no workload or job has the name, or several have; the message suggests similar names."""


class Lookup:
    """
    Resolves a name: a Workload or a Job, `<namespace>/<name>` or the name alone.

    Feed it the log, or make it `of` a state, then call `find`. For a job with several Workloads it finds the newest.
    """

    def __init__(self) -> None:
        self._jobs: dict[JobKey, WorkloadKey] = {}
        self._workloads: dict[WorkloadKey, JobKey] = {}

    @classmethod
    def of(cls, state: State) -> "Lookup":
        """The names of what exists in a state."""
        lookup = cls()
        lookup._jobs = {key: record.workload for key, record in state.jobs.items()}
        for workload in state.workloads.values():
            lookup._add(workload.key, workload.owner)
        return lookup

    def feed(self, logged: LoggedCommit) -> None:
        """Record the names in a commit."""
        for event in logged.commit.events:
            if type(event) is facts.JobObserved:
                self._jobs.setdefault(event.job, WorkloadKey(""))
            elif type(event) is facts.WorkloadObserved:
                self._add(event.workload, event.owner)

    def _add(self, workload: WorkloadKey, owner: OwnerReference | None) -> None:
        job = JobKey("")
        if owner is not None and of_owner(owner) is not None:
            job = owner_key(split_key(workload)[0], owner)
            self._jobs[job] = workload
        self._workloads[workload] = job

    def find(self, name: str, namespace: str = "") -> HistorySubject:
        """
        The subject with this name.

        Raises UnknownWorkloadError.
        """
        found = self._named(name, namespace)
        if len(found) == 1:
            return found[0]
        if found:
            spaces = sorted({split_key(each.workload or shown_name(each.job))[0] for each in found})
            if len(spaces) > 1:
                where = ", ".join(spaces)
                raise UnknownWorkloadError(f"{name!r} is in several namespaces ({where}): choose one with --namespace")
            which = ", ".join(sorted(each.job or each.workload for each in found))
            raise UnknownWorkloadError(f"{name!r} is the name of several objects: choose one of {which}")
        known = [*map(shown_name, self._jobs), *self._workloads]
        wanted = name if "/" in name else f"{namespace}/{name}" if namespace else name
        near = difflib.get_close_matches(wanted, known, n=NEAR_MATCHES_MAX, cutoff=0.6) or difflib.get_close_matches(
            name, [split_key(key)[1] for key in known], n=NEAR_MATCHES_MAX, cutoff=0.6
        )
        hint = f"; did you mean {', '.join(dict.fromkeys(near))}?" if near else " (the log has no similar name)"
        raise UnknownWorkloadError(f"no workload or job {wanted!r} in this log{hint}")

    def _named(self, name: str, namespace: str) -> list[HistorySubject]:
        found: dict[str, HistorySubject] = {}
        for job, workload in self._jobs.items():
            if name == job or _is_named(shown_name(job), name, namespace):
                found[job] = HistorySubject(workload=workload, job=job)
        for workload, job in self._workloads.items():
            if _is_named(workload, name, namespace):
                found.setdefault(job or workload, HistorySubject(workload=workload, job=job))
        return list(found.values())


def _is_named(key: str, name: str, namespace: str) -> bool:
    if "/" in name:
        return key == name
    its_namespace, its_name = split_key(key)
    return its_name == name and (not namespace or namespace == its_namespace)
