"""
The ungater's second task: removes the scheduling gate from as many pods of an elastic Job as its slice is admitted for.

A Job that is scaled up creates its new pods at once; they carry the gate `kueue.x-k8s.io/elastic-job` and wait behind
it until the slice that they belong to is admitted. The number that may run is the pod count of the Job's admitted
slice, minus the pods without a gate; the lowest names come first, as in Kueue.

Level-triggered on the state: the watch shows when a pod's gate is removed; until then its call, or the answer to it, is
kept here. A pod that could not be patched is tried again later; a deleted one is forgotten.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from headgate.core.api.job_kinds import owner_key
from headgate.core.engine.work_queue import WorkQueue
from headgate.core.fold.quarantine import is_aside
from headgate.core.machine.contract import MERGE_PATCH, Call, Command, Completed
from headgate.core.state.attribution import about
from headgate.core.state.tables import PodRecord, Stage, State
from headgate.core.workload.owners import workload_of
from headgate.core.workload.slices import ELASTIC_GATE
from headgate.events import facts
from headgate.events.base import Producer
from headgate.events.ids import PodKey, UnixMs, split_key
from headgate.events.objects import OwnerReference
from headgate.machines.ungater.pod_patches import PodPatches

CALLS_MAX: Final = 256
"""The maximum number of concurrent pod patches."""


class PodGates:
    """The pods of elastic Jobs. The ungater's machine passes on what concerns them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._pods: dict[str, dict[PodKey, None]] = {}
        """Uid of an elastic Job -> its pods. Bounded by the number of pods."""
        self._owner_of: dict[PodKey, str] = {}
        self._jobs: WorkQueue[str] = WorkQueue(CALLS_MAX)
        """Jobs with pods that may run, by uid."""
        self._queue: WorkQueue[PodKey] = WorkQueue(CALLS_MAX)
        """Pods that are being patched, and those that are to be tried again."""
        self._patches = PodPatches(state, "ungate", self._queue)
        for key in state.pods:
            with about("Pod", key):
                self._see(key)

    # --- from the log ----------------------------------------------------------------------------------------------

    def on_event(self, event: facts.PodObserved | facts.PodDeleted) -> None:
        """Record events after which a pod may run."""
        self._see(event.pod)

    def look_at(self, job_uid: str) -> None:
        """A Job or its workloads have changed."""
        if job_uid in self._pods:
            self._jobs.add(job_uid)

    def _see(self, key: PodKey) -> None:
        record = self._state.pods.get(key)
        owner = self._owner_of.get(key, "")
        self._patches.see(key)
        if record is None or is_aside(self._state, "Pod", key, Producer.UNGATER):
            self._forget(key, owner)
        elif record.pod.owner is not None and (is_gated(record) or self._is_elastic(key, record.pod.owner)):
            owner = self._owner_of[key] = record.pod.owner.uid
            self._pods.setdefault(owner, {})[key] = None
        if owner:
            self._jobs.add(owner)

    def _is_elastic(self, key: PodKey, owner: OwnerReference) -> bool:
        job = self._state.jobs.get(owner_key(split_key(key)[0], owner))
        return job is not None and job.job.uid == owner.uid and job.job.elastic

    def _forget(self, key: PodKey, owner: str) -> None:
        self._queue.forget(key)
        self._owner_of.pop(key, None)
        pods = self._pods.get(owner, {})
        pods.pop(key, None)
        if not pods:
            self._pods.pop(owner, None)

    # --- deciding --------------------------------------------------------------------------------------------------

    def settle(self, now_ms: UnixMs, calls: list[Command]) -> UnixMs | None:
        """Remove the gates that are due. Returns when the next is tried again."""
        for key in self._queue.ready(now_ms):
            self.look_at(self._owner_of.get(key, ""))
        if self._queue.has_room():
            for job_uid in self._jobs.ready(now_ms):
                self._ungate(job_uid, calls)
                if not self._queue.has_room():
                    break
        return self._queue.next_at(now_ms)

    def _ungate(self, job_uid: str, calls: list[Command]) -> None:
        """Remove the gates of as many of a Job's pods as may run in addition to those that run already."""
        pods = {key: self._state.pods[key] for key in sorted(self._pods.get(job_uid, {}))}
        room = self._granted(job_uid, pods) - sum(
            not is_gated(record) or self._patches.is_patched(key) for key, record in pods.items()
        )
        for key, record in pods.items():
            if room <= 0 or not self._queue.has_room():
                break
            if not is_gated(record) or record.pod.deleting or self._patches.is_patched(key):
                continue
            room -= 1
            if not self._queue.is_backing_off(key) and not is_aside(self._state, "Pod", key, Producer.UNGATER):
                with about("Pod", key):
                    calls.append(self._call(key, record))

    def _granted(self, job_uid: str, pods: Mapping[PodKey, PodRecord]) -> int:
        owned = ((key, pod.pod.owner) for key, pod in pods.items())
        job = next((owner_key(split_key(key)[0], owner) for key, owner in owned if owner is not None), None)
        workload = workload_of(self._state, job, job_uid) if job is not None else None
        if workload is None or workload.stage is not Stage.ADMITTED:
            return 0
        return sum(pod_set.count for pod_set in workload.spec.pod_sets)

    def _call(self, key: PodKey, record: PodRecord) -> Call:
        gates = [gate for gate in record.pod.spec.scheduling_gates if gate.name != ELASTIC_GATE]
        body = {
            "metadata": {"uid": record.pod.uid},
            "spec": {"schedulingGates": [msgspec.to_builtins(gate) for gate in gates] or None},
        }
        return self._patches.begin(key, body, is_gated, content_type=MERGE_PATCH)

    def on_completed(self, completed: Completed) -> None:
        """A call has ended. After a failure it is repeated with backoff."""
        key = self._patches.on_completed(completed)
        if key is not None:
            self.look_at(self._owner_of.get(key, ""))


def is_gated(record: PodRecord) -> bool:
    """Whether a pod waits behind the gate of elastic Jobs."""
    return any(gate.name == ELASTIC_GATE for gate in record.pod.spec.scheduling_gates)
