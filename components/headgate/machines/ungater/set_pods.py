"""
The ungater's sixth task: tells each pod of a StatefulSet or LeaderWorkerSet which pod group it is of.

The owner of such a pod does not know Kueue's annotations: it makes pods from a template. Once a pod is there, gated,
and of a LeaderWorkerSet numbered by its operator, it gets the name of its group, which is that of the group's Workload,
how many pods the group has, and its role (Kueue's setDefault of either kind). From then on it is a member of the group
(`managed_pods`). While it waits, its queue follows that of its set.

Level-triggered on the state. A pod that is not gated is left as it is: it was never held.
"""

from typing import Any, Final

from headgate.core.api.job_kinds import STATEFUL_SET
from headgate.core.api.names import (
    APPS_POD_INDEX,
    MANAGED,
    POD_GROUP,
    POD_GROUP_FAST,
    POD_GROUP_INDEX_LABEL,
    POD_GROUP_SERVING,
    POD_GROUP_TOTAL,
    PREBUILT,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
    ROLE_HASH,
)
from headgate.core.engine.work_queue import WorkQueue
from headgate.core.fold.quarantine import is_aside
from headgate.core.jobs.serving_sets import LEADER, MAIN, WORKER
from headgate.core.machine.contract import MERGE_PATCH, Call, Command, Completed
from headgate.core.state.attribution import about
from headgate.core.state.grouping import Groups
from headgate.core.state.tables import JobRecord, PodRecord, State
from headgate.core.workload import owners, pod_groups
from headgate.core.workload.pod_groups import managed
from headgate.core.workload.served import group_name, set_of
from headgate.events import facts
from headgate.events.base import Producer
from headgate.events.ids import JobKey, PodKey, UnixMs
from headgate.events.objects import ManagedPod
from headgate.machines.ungater.pod_patches import Needs, PodPatches

CALLS_MAX: Final = 64
"""The maximum number of concurrent patches."""


class SetPods:
    """The pods of sets that lack their group. The ungater's machine passes on what concerns them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._sets: Groups[PodKey, JobKey] = Groups()
        for key in state.pods:
            self._list(key)
        self._queue: WorkQueue[PodKey] = WorkQueue(CALLS_MAX, keys=self._sets.members())
        self._patches = PodPatches(state, "name", self._queue)

    # --- from the log ----------------------------------------------------------------------------------------------

    def on_event(
        self, event: facts.PodObserved | facts.PodDeleted | facts.JobObserved | facts.ConfigurationObserved
    ) -> None:
        """Record events after which a pod may lack its group."""
        match event:
            case facts.PodObserved() | facts.PodDeleted():
                self._list(event.pod)
                if self._sets.group_of(event.pod) is not None or self._queue.is_in_flight(event.pod):
                    self._patches.see(event.pod)
                    self._queue.add(event.pod)
            case facts.JobObserved():
                self._queue.add_all(self._sets.of(event.job))
            case facts.ConfigurationObserved():
                self._queue.add_all(self._sets.members())

    def _list(self, key: PodKey) -> None:
        record = self._state.pods.get(key)
        self._sets.put(key, set_of(key, record.pod) if record is not None else None)

    # --- deciding --------------------------------------------------------------------------------------------------

    def settle(self, now_ms: UnixMs, calls: list[Command]) -> UnixMs | None:
        """Patch the pods that lack something. Returns when the next is tried again."""
        for key in self._queue.ready(now_ms):
            with about("Pod", key):
                call = self._call(key)
                if call is not None:
                    calls.append(call)
        return self._queue.next_at(now_ms)

    def _call(self, key: PodKey) -> Call | None:
        record, of = self._state.pods.get(key), self._sets.group_of(key)
        job = self._state.jobs.get(of) if of is not None else None
        if record is None or of is None or job is None or self._patches.is_patched(key):
            return None
        if is_aside(self._state, "Pod", key, Producer.UNGATER) or not _waits(record):
            return None
        if owners.runs_above(self._state, of, job.job) is not None:
            return None
        metadata = self._metadata(of, job, managed(record.pod))
        if not metadata:
            return None
        body = {"metadata": {"uid": record.pod.uid, **metadata}}
        return self._patches.begin(key, body, self._lacks(of), content_type=MERGE_PATCH)

    def _lacks(self, of: JobKey) -> Needs:
        def lacks(record: PodRecord) -> bool:
            job = self._state.jobs.get(of)
            return job is not None and _waits(record) and bool(self._metadata(of, job, managed(record.pod)))

        return lacks

    def _metadata(self, of: JobKey, record: JobRecord, pod: ManagedPod) -> dict[str, Any]:
        """The labels and annotations that a pod lacks; none for one that is complete, or not numbered yet."""
        job = record.job
        queue = {QUEUE_LABEL: job.queue_name} if job.queue_name and pod.queue_name != job.queue_name else {}
        is_one = is_stateful(of)
        if not is_one and pod.group_index is None:
            return {}
        group = group_name(self._state.configuration, of, job.uid, pod.group_index or 0)
        if pod.group == group:
            return {"labels": queue} if queue else {}
        labels = {MANAGED: "true", **queue}
        if job.priority_class:
            labels[PRIORITY_CLASS_LABEL] = job.priority_class
        annotations = {
            POD_GROUP: group,
            PREBUILT: group,
            POD_GROUP_TOTAL: str(sum(each.count for each in job.pod_sets)),
            POD_GROUP_SERVING: "true",
            ROLE_HASH: _role(job.pod_sets[0].name, pod),
        }
        if is_one:
            annotations |= {POD_GROUP_FAST: "true", POD_GROUP_INDEX_LABEL: APPS_POD_INDEX}
        return {"labels": labels, "annotations": annotations}

    def on_completed(self, completed: Completed) -> None:
        """A call has ended. After a failure it is repeated with backoff."""
        self._patches.on_completed(completed)


def is_stateful(key: JobKey) -> bool:
    """Whether a set is a StatefulSet, which is one group."""
    return key.startswith(f"{STATEFUL_SET.group}/{STATEFUL_SET.kind}/")


def _role(first_pod_set: str, pod: ManagedPod) -> str:
    if first_pod_set == MAIN:
        return MAIN
    return WORKER if pod.is_worker else LEADER


def _waits(record: PodRecord) -> bool:
    return pod_groups.is_gated(record.pod) and not record.pod.deleting and not pod_groups.has_ended(record.pod)
