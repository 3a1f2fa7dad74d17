"""
The Job controller: from a Job to its pods and back to its status.

Holds the queue of Jobs to look at, and lends each look (`job_sync.py`) its hands. A change of a Job's spec is looked at
at once; what its pods do is looked at together, `batch_ms` after the first of them did something. Pods that carry the
tracking finalizer without a Job that will take it (deleted, finished, another controller's no more) are let go. Jobs
that name another manager are left alone. Also the part of the TTL-after-finished controller.

Driven by `step(now_ms)` and `next_due_ms()`. After a restart it takes up everything from the stored objects.
"""

import heapq
from typing import Any, Final

from headgate.testing.cluster.api.writes import Deletion, Write
from headgate.testing.cluster.controllers.job_pods import INDEX_ANNOTATION, TRACKING_FINALIZER, is_tracked
from headgate.testing.cluster.controllers.job_sync import JobSync, PodFailures
from headgate.testing.cluster.controllers.recorder import EventRecorder
from headgate.testing.cluster.errors import ApiStatusError
from headgate.testing.cluster.kinds import BY_PLURAL
from headgate.testing.cluster.nodes.node_usage import PODS
from headgate.testing.cluster.storage.registry import Registry
from headgate.testing.cluster.storage.store import Change, Key, ObjectVersion, Table
from headgate.testing.cluster.times import unix_ms
from headgate.testing.cluster.validation.rules_jobs import is_true

JsonObject = dict[str, Any]

JOBS: Final = BY_PLURAL[("batch", "jobs")]
RETRY_MS: Final = 1_000
"""The pause after an error of the API server; it doubles up to `RETRY_MS_MAX`."""
RETRY_MS_MAX: Final = 60_000

_STATUS: Final = Write(manager="kube-controller-manager", subresource="status")
_MAIN: Final = Write(manager="kube-controller-manager")
_OURS: Final = (None, "kubernetes.io/job-controller")


class JobController:
    """Runs all Jobs that are not managed by someone else."""

    def __init__(self, registry: Registry, recorder: EventRecorder | None, *, batch_ms: int = 0) -> None:
        self._registry = registry
        self._recorder = recorder
        self._batch_ms = batch_ms
        self._pods: dict[str, dict[Key, None]] = {}
        self._backoffs: dict[str, PodFailures] = {}
        self._retries: dict[Key, int] = {}
        self._due: dict[Key, int] = {}
        self._queue: list[tuple[int, int, Key]] = []
        self._queued = 0
        self._loose: dict[Key, None] = {}
        store, now_ms = registry.store, registry.clock()
        for entry in store.table(PODS).select(""):
            self._on_pod(entry, gone=False)
        for entry in store.table(JOBS).select(""):
            self._enqueue(entry.key, now_ms)
        store.listen(self._on_change)

    def _on_change(self, table: Table, change: Change) -> None:
        if table.kind is JOBS:
            self._on_job(change)
        elif table.kind is PODS:
            self._on_pod(change.entry, gone=change.type == "DELETED")

    def _on_job(self, change: Change) -> None:
        metadata, key = change.entry.obj["metadata"], change.entry.key
        if change.type == "DELETED":
            self._backoffs.pop(metadata["uid"], None)
            self._retries.pop(key, None)
            self._loose |= self._pods.get(metadata["uid"], {})
            return
        before = None if change.previous is None else change.previous.obj["metadata"].get("generation")
        written = before == metadata.get("generation")
        self._enqueue(key, self._registry.clock() + (self._batch_ms if written else 0))

    def _on_pod(self, entry: ObjectVersion, *, gone: bool) -> None:
        owner = _owner_of(entry.obj)
        if owner is None:
            if is_tracked(entry.obj) and not gone:
                self._loose[entry.key] = None
            return
        pods = self._pods.setdefault(owner["uid"], {})
        if gone:
            pods.pop(entry.key, None)
            if not pods:
                del self._pods[owner["uid"]]
        else:
            pods[entry.key] = None
        job = self._registry.find(JOBS, entry.key[0], owner["name"])
        if job is None or job.obj["metadata"]["uid"] != owner["uid"] or _is_finished(job.obj):
            if is_tracked(entry.obj) and not gone:
                self._loose[entry.key] = None
        else:
            self._enqueue(job.key, self._registry.clock() + self._batch_ms)

    # --- driving

    def step(self, now_ms: int) -> int:
        """Look at the Jobs that changed or whose time has come; returns how many writes that took."""
        before = self._registry.store.rv
        loose, self._loose = self._loose, {}
        for key in loose:
            self._let_go(key)
        due: list[Key] = []
        while self._queue and self._queue[0][0] <= now_ms:
            at_ms, _, key = heapq.heappop(self._queue)
            if self._due.get(key) == at_ms:
                del self._due[key]
                due.append(key)
        for key in due:
            entry = self._registry.find(JOBS, *key)
            if entry is not None and entry.obj["spec"].get("managedBy") in _OURS:
                self._sync(entry, now_ms)
        return self._registry.store.rv - before

    def next_due_ms(self) -> int | None:
        """When a batch, a back-off, a deadline or a time to live ends."""
        while self._queue and self._due.get(self._queue[0][2]) != self._queue[0][0]:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    def _enqueue(self, key: Key, due_ms: int) -> None:
        if key not in self._due or due_ms < self._due[key]:
            self._due[key] = due_ms
            self._queued += 1
            heapq.heappush(self._queue, (due_ms, self._queued, key))

    def _sync(self, entry: ObjectVersion, now_ms: int) -> None:
        obj, uid = entry.obj, entry.obj["metadata"]["uid"]
        if _is_finished(obj):
            self._backoffs.pop(uid, None)
            self._after_finish(entry, now_ms)
            return
        found = (self._registry.find(PODS, *key) for key in self._pods.get(uid, ()))
        pods = [pod.obj for pod in found if pod is not None]
        look = JobSync(self, obj, pods, self._backoffs.get(uid) or PodFailures(), now_ms)
        try:
            look.run()
            refused = look.refused
        except ApiStatusError:
            refused = True
        if refused:
            # Admission refuses a pod, or the status was changed under the controller: it tries again later.
            pause_ms = self._retries[entry.key] = min(2 * self._retries.get(entry.key, RETRY_MS // 2), RETRY_MS_MAX)
            self._enqueue(entry.key, now_ms + pause_ms)
        else:
            self._retries.pop(entry.key, None)
        if look.backoff.failures:
            self._backoffs[uid] = look.backoff
        else:
            self._backoffs.pop(uid, None)

    def _after_finish(self, entry: ObjectVersion, now_ms: int) -> None:
        ttl = entry.obj["spec"].get("ttlSecondsAfterFinished")
        if ttl is None or "deletionTimestamp" in entry.obj["metadata"]:
            return
        ended = [
            c["lastTransitionTime"]
            for c in entry.obj["status"]["conditions"]
            if c["type"] in ("Complete", "Failed") and c["status"] == "True"
        ]
        due_ms = unix_ms(ended[0]) + 1000 * ttl
        if now_ms >= due_ms:
            self._registry.delete(JOBS, entry, Deletion(uid=entry.obj["metadata"]["uid"], propagation="Foreground"))
        else:
            self._enqueue(entry.key, due_ms)

    def _let_go(self, key: Key) -> None:
        """Take the finalizer from a pod that no Job will take it from."""
        entry = self._registry.find(PODS, *key)
        if entry is None:
            return
        owner = _owner_of(entry.obj)
        if owner is not None:
            job = self._registry.find(JOBS, key[0], owner["name"])
            found = {} if job is None else job.obj
            same = bool(found) and found["metadata"]["uid"] == owner["uid"]
            if same and (not _is_finished(found) or found["spec"].get("managedBy") not in _OURS):
                return
        self.untrack(entry.obj)

    # --- the hands of a look

    def create_pod(self, job: JsonObject, index: int | None, annotations: dict[str, str]) -> bool:
        """Create a pod of the Job; False if it was refused."""
        template, metadata = job["spec"]["template"], job["metadata"]
        given = template.get("metadata") or {}
        fresh: JsonObject = {
            "generateName": f"{metadata['name']}-" if index is None else f"{metadata['name']}-{index}-",
            "labels": dict(given.get("labels") or {}),
            "annotations": {**(given.get("annotations") or {}), **annotations},
            "finalizers": [*(f for f in given.get("finalizers") or () if f != TRACKING_FINALIZER), TRACKING_FINALIZER],
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        }
        spec = template["spec"]
        if index is not None:
            fresh["labels"][INDEX_ANNOTATION] = str(index)
            spec = {**_with_index_variable(spec), "hostname": f"{metadata['name']}-{index}"}
        try:
            made = self._registry.create(PODS, metadata["namespace"], {"metadata": fresh, "spec": spec}, _MAIN)
        except ApiStatusError as error:
            causes = (error.details or {}).get("causes") or ()
            if any(cause.get("reason") == "NamespaceTerminating" for cause in causes):
                return True
            self.tell(job, "FailedCreate", f"Error creating: {error.message}", warning=True)
            return False
        self.tell(job, "SuccessfulCreate", f"Created pod: {made.key[1]}")
        return True

    def delete_pod(self, job: JsonObject, pod: JsonObject) -> None:
        """Delete a pod, if it is still there."""
        entry = self._registry.find(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])
        if entry is not None and entry.obj["metadata"]["uid"] == pod["metadata"]["uid"]:
            self._registry.delete(PODS, entry, Deletion(propagation="Background"))
            self.tell(job, "SuccessfulDelete", f"Deleted pod: {entry.key[1]}")

    def untrack(self, pod: JsonObject) -> None:
        """Take the tracking finalizer from a pod, if it is there."""
        entry = self._registry.find(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])
        if entry is None or entry.obj["metadata"]["uid"] != pod["metadata"]["uid"] or not is_tracked(entry.obj):
            return
        metadata = entry.obj["metadata"]
        kept = [finalizer for finalizer in metadata["finalizers"] if finalizer != TRACKING_FINALIZER]
        metadata = {**metadata, "finalizers": kept}
        if not kept:
            del metadata["finalizers"]
        self._registry.update(PODS, entry, {**entry.obj, "metadata": metadata}, _MAIN)

    def write_status(self, job: JsonObject, status: JsonObject) -> JsonObject:
        """Write the Job's status. Raises ApiStatusError."""
        entry = self._registry.get(JOBS, job["metadata"]["namespace"], job["metadata"]["name"])
        return self._registry.update(JOBS, entry, {**entry.obj, "status": status}, _STATUS).obj

    def look_again(self, job: JsonObject, after_ms: int) -> None:
        """Look at the Job again, at the latest after this time."""
        self._enqueue((job["metadata"]["namespace"], job["metadata"]["name"]), self._registry.clock() + after_ms)

    def tell(self, job: JsonObject, reason: str, message: str, *, warning: bool = False) -> None:
        """Record an Event on the Job, if Events are recorded."""
        if self._recorder is not None:
            self._recorder.record(JOBS, job, reason, message, warning=warning)


def _owner_of(pod: JsonObject) -> JsonObject | None:
    """The reference to the Job that controls a pod, if one does."""
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return owner if owner["kind"] == "Job" else None
    return None


def _is_finished(job: JsonObject) -> bool:
    status = job.get("status") or {}
    return is_true(status, "Complete") or is_true(status, "Failed")


_INDEX_VARIABLE: Final[JsonObject] = {
    "name": "JOB_COMPLETION_INDEX",
    "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX_ANNOTATION}']"}},
}


def _with_index_variable(spec: JsonObject) -> JsonObject:
    """A pod's spec whose containers can read their completion index."""
    changed: JsonObject = {}
    for group in ("containers", "initContainers"):
        if spec.get(group):
            changed[group] = [_with_variable(container) for container in spec[group]]
    return {**spec, **changed}


def _with_variable(container: JsonObject) -> JsonObject:
    given = container.get("env") or []
    if any(variable.get("name") == _INDEX_VARIABLE["name"] for variable in given):
        return container
    return {**container, "env": [*given, _INDEX_VARIABLE]}
