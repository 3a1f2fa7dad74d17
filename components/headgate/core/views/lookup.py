"""
Name resolution: a Workload or a job, by `<namespace>/<name>`, by the name alone, or by the full reference to a job.

What is neither may be a pod: by `<namespace>/<name>` or the name alone, with `pod/` before it where a Workload or a job
has the name too.

Before a history is read (`headgate.core.views.explain`): a job's events precede those of its Workload, so both names
must be known before reading. The names are those of a whole log, or those of the objects that exist in a state.
"""

import difflib
from typing import Final

import msgspec

from headgate.core.api.job_kinds import of_owner, owner_key, shown_name
from headgate.core.state.manifests import PODS
from headgate.core.state.tables import State
from headgate.events import facts
from headgate.events.commit import LoggedCommit
from headgate.events.ids import JobKey, PodKey, WorkloadKey, split_key
from headgate.events.objects import OwnerReference

NEAR_MATCHES_MAX = 5
POD_PREFIX: Final = "pod/"
"""Before the name of a pod, where a Workload or a job has that name too."""


class HistorySubject(msgspec.Struct, frozen=True, kw_only=True):
    """
    The subject of a history. `workload` is "" while a job has none, `job` for a Workload without one.

    With neither of them the subject is the `pod`; with one of them `pod` is a pod of the same name, if there is any.
    """

    workload: WorkloadKey = WorkloadKey("")
    job: JobKey = JobKey("")
    pod: PodKey = PodKey("")

    @property
    def is_pod(self) -> bool:
        """Whether it is a pod."""
        return not self.workload and not self.job


class UnknownWorkloadError(Exception):
    """Raised when no workload, job or pod has the name, or several have; the message suggests similar names."""


class Lookup:
    """
    Resolves a name: a Workload, a Job or a pod, `<namespace>/<name>` or the name alone.

    Feed it the log, or make it `of` a state, then call `find`. For a job with several Workloads it finds the newest.
    """

    def __init__(self) -> None:
        self._jobs: dict[JobKey, WorkloadKey] = {}
        self._workloads: dict[WorkloadKey, JobKey] = {}
        self._pods: dict[PodKey, None] = {}

    @classmethod
    def of(cls, state: State) -> "Lookup":
        """The names of what exists in a state."""
        lookup = cls()
        lookup._jobs = {key: record.workload for key, record in state.jobs.items()}
        for workload in state.workloads.values():
            lookup._add(workload.key, workload.owner)
        lookup._pods = dict.fromkeys((*map(PodKey, state.objects.get(PODS, {})), *state.pods))
        return lookup

    def feed(self, logged: LoggedCommit) -> None:
        """Record the names in a commit."""
        for event in logged.commit.events:
            if type(event) is facts.JobObserved:
                self._jobs.setdefault(event.job, WorkloadKey(""))
            elif type(event) is facts.WorkloadObserved:
                self._add(event.workload, event.owner)
            elif type(event) is facts.PodObserved:
                self._pods[event.pod] = None
            elif type(event) is facts.ObjectObserved and event.resource == PODS:
                self._pods[PodKey(event.name)] = None

    def _add(self, workload: WorkloadKey, owner: OwnerReference | None) -> None:
        job = JobKey("")
        if owner is not None and of_owner(owner) is not None:
            job = owner_key(split_key(workload)[0], owner)
            self._jobs[job] = workload
        self._workloads[workload] = job

    def find(self, name: str, namespace: str = "") -> HistorySubject:
        """
        The workload or job with this name.

        Raises UnknownWorkloadError.
        """
        found = self._named(name, namespace)
        if not found:
            raise self._unknown("workload or job", [*map(shown_name, self._jobs), *self._workloads], name, namespace)
        return _only(found, name)

    def find_with_pods(self, name: str, namespace: str = "") -> HistorySubject:
        """
        The workload or job with this name, else the pod.

        Raises UnknownWorkloadError.
        """
        found = self._named(name, namespace)
        if found:
            subject = _only(found, name)
            namesake = PodKey(shown_name(subject.job or subject.workload))
            return msgspec.structs.replace(subject, pod=namesake if namesake in self._pods else PodKey(""))
        pods = self._pods_named(name, namespace) or self._pods_named(name.removeprefix(POD_PREFIX), namespace)
        if not pods:
            known = [*map(shown_name, self._jobs), *self._workloads, *sorted(self._pods)]
            raise self._unknown("workload, job or pod", known, name, namespace)
        return _only(pods, name)

    def _pods_named(self, name: str, namespace: str) -> list[HistorySubject]:
        return [HistorySubject(pod=each) for each in sorted(self._pods) if _is_named(each, name, namespace)]

    def _unknown(self, what: str, known: list[str], name: str, namespace: str) -> UnknownWorkloadError:
        wanted = name if "/" in name else f"{namespace}/{name}" if namespace else name
        near = difflib.get_close_matches(wanted, known, n=NEAR_MATCHES_MAX, cutoff=0.6) or difflib.get_close_matches(
            name, [split_key(key)[1] for key in known], n=NEAR_MATCHES_MAX, cutoff=0.6
        )
        hint = f"; did you mean {', '.join(dict.fromkeys(near))}?" if near else " (the log has no similar name)"
        return UnknownWorkloadError(f"no {what} {wanted!r} in this log{hint}")

    def _named(self, name: str, namespace: str) -> list[HistorySubject]:
        found: dict[str, HistorySubject] = {}
        for job, workload in self._jobs.items():
            if name == job or _is_named(shown_name(job), name, namespace):
                found[job] = HistorySubject(workload=workload, job=job)
        for workload, job in self._workloads.items():
            if _is_named(workload, name, namespace):
                found.setdefault(job or workload, HistorySubject(workload=workload, job=job))
        return list(found.values())


def _only(found: list[HistorySubject], name: str) -> HistorySubject:
    """The only subject with a name. Raises UnknownWorkloadError when there are several."""
    if len(found) == 1:
        return found[0]
    spaces = sorted({split_key(each.workload or each.pod or shown_name(each.job))[0] for each in found})
    if len(spaces) > 1:
        where = ", ".join(spaces)
        raise UnknownWorkloadError(f"{name!r} is in several namespaces ({where}): choose one with --namespace")
    which = ", ".join(sorted(each.job or each.workload for each in found))
    raise UnknownWorkloadError(f"{name!r} is the name of several objects: choose one of {which}")


def _is_named(key: str, name: str, namespace: str) -> bool:
    if "/" in name:
        return key == name
    its_namespace, its_name = split_key(key)
    return its_name == name and (not namespace or namespace == its_namespace)
