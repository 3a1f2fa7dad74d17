"""
The Job controller: from a Job to its pods and back to its status.

Follows k8s.io/kubernetes/pkg/controller/job: at most `parallelism` pods at a time until `completions` have succeeded,
indexed or not; back-off after failures (10 s doubling to 10 min) and `backoffLimit`, also per index;
`activeDeadlineSeconds`; suspension deletes active pods and clears `startTime`, resumption starts anew;
`ttlSecondsAfterFinished`. Finished pods are counted from the store's changes, once per uid, so the pods need no
tracking finalizer. Pod failure policies and success policies are not interpreted.

Driven by `step(now_ms)` and `next_due_ms()`.
"""

import heapq
from typing import Any, Final

from headgate.testing.cluster.errors import ApiError
from headgate.testing.cluster.job_tally import BACKOFF_MS, INDEX_ANNOTATION, Tally, index_of, restored
from headgate.testing.cluster.kinds import BY_PLURAL
from headgate.testing.cluster.node_usage import PODS
from headgate.testing.cluster.registry import Deletion, Registry, Write
from headgate.testing.cluster.store import Change, Entry, Key, Table
from headgate.testing.cluster.times import rfc3339, unix_ms

JsonObject = dict[str, Any]

JOBS: Final = BY_PLURAL[("batch", "jobs")]

_STATUS: Final = Write(manager="job-controller", subresource="status")
_MAIN: Final = Write(manager="job-controller")


class JobController:
    """Runs all Jobs that are not managed by someone else."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._tallies: dict[str, Tally] = {}
        self._dirty: dict[Key, None] = {}
        self._timers: list[tuple[int, Key]] = []
        store = registry.store
        pods: dict[str, list[Entry]] = {}
        for entry in store.table(PODS).select(""):
            owner = _owner_of(entry.obj)
            if owner is not None:
                pods.setdefault(owner["uid"], []).append(entry)
        for entry in store.table(JOBS).select(""):
            uid = entry.obj["metadata"]["uid"]
            self._tallies[uid] = restored(entry.obj, pods.get(uid, ()))
            self._dirty[entry.key] = None
        store.listen(self._on_change)

    def _on_change(self, table: Table, change: Change) -> None:
        if table.kind is JOBS:
            if change.type == "DELETED":
                self._tallies.pop(change.entry.obj["metadata"]["uid"], None)
                self._dirty.pop(change.entry.key, None)
            else:
                self._dirty[change.entry.key] = None
        elif table.kind is PODS:
            self._on_pod(change.entry, gone=change.type == "DELETED")

    def _on_pod(self, entry: Entry, *, gone: bool) -> None:
        metadata = entry.obj["metadata"]
        owner = _owner_of(entry.obj)
        if owner is None:
            return
        tally = self._tallies.setdefault(owner["uid"], Tally())
        uid, index = metadata["uid"], index_of(entry.obj)
        phase = entry.obj.get("status", {}).get("phase")
        if phase == "Succeeded" and uid not in tally.succeeded:
            tally.succeed(uid, index)
        elif (
            uid not in tally.failed
            and uid not in tally.succeeded
            and uid not in tally.suspended
            and (phase == "Failed" or gone)
        ):
            tally.fail(uid, index, self._registry.clock())
        if gone:
            tally.pods.pop(entry.key, None)
        else:
            tally.pods[entry.key] = None
        self._dirty[(entry.key[0], owner["name"])] = None

    # -- driving -----------------------------------------------------------------------------------------------------
    # ------------

    def step(self, now_ms: int) -> int:
        """Synchronize the Jobs that changed or whose time has come; returns how many writes that took."""
        before = self._registry.store.rv
        while self._timers and self._timers[0][0] <= now_ms:
            self._dirty[heapq.heappop(self._timers)[1]] = None
        dirty, self._dirty = self._dirty, {}
        for key in dirty:
            entry = self._registry.find(JOBS, *key)
            if entry is not None and entry.obj["spec"].get("managedBy") in (None, "kubernetes.io/job-controller"):
                self._sync(entry, now_ms)
        return self._registry.store.rv - before

    def next_due_ms(self) -> int | None:
        """When a back-off, a deadline or a time to live ends."""
        return self._timers[0][0] if self._timers else None

    def _wake(self, due_ms: int, key: Key) -> None:
        if (due_ms, key) not in self._timers[:64]:
            heapq.heappush(self._timers, (due_ms, key))

    # -- one Job -----------------------------------------------------------------------------------------------------
    # ------------

    def _sync(self, entry: Entry, now_ms: int) -> None:
        obj = entry.obj
        tally = self._tallies.setdefault(obj["metadata"]["uid"], Tally())
        if _condition_of(obj, "Complete") or _condition_of(obj, "Failed"):
            self._after_finish(entry, tally, now_ms)
            return
        if "deletionTimestamp" in obj["metadata"]:
            return
        verdict = self._verdict(obj, tally, now_ms)
        suspended = bool(obj["spec"].get("suspend")) and not verdict
        if verdict or suspended:
            self._delete_active(tally, counted=bool(verdict))
        else:
            self._manage(obj, tally, now_ms)
        self._write_status(entry, tally, verdict, now_ms)

    def _pods(self, tally: Tally) -> list[JsonObject]:
        found = (self._registry.find(PODS, *key) for key in tally.pods)
        return [entry.obj for entry in found if entry is not None]

    def _verdict(self, obj: JsonObject, tally: Tally, now_ms: int) -> tuple[str, str, str] | None:
        """(condition, reason, message) once it is certain how the Job ends."""
        spec, status = obj["spec"], obj.get("status", {})
        for waiting, final in (("SuccessCriteriaMet", "Complete"), ("FailureTarget", "Failed")):
            earlier = _condition_of(obj, waiting)
            if earlier:
                return final, earlier["reason"], earlier["message"]
        if not spec.get("backoffLimitPerIndex") and len(tally.failed) > spec["backoffLimit"]:
            return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        if "activeDeadlineSeconds" in spec and status.get("startTime") and not spec.get("suspend"):
            due_ms = unix_ms(status["startTime"]) + 1000 * spec["activeDeadlineSeconds"]
            if now_ms >= due_ms:
                return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
            self._wake(due_ms, (obj["metadata"]["namespace"], obj["metadata"]["name"]))
        reached = ("Complete", "CompletionsReached", "Reached expected number of succeeded pods")
        completions = spec.get("completions")
        if spec["completionMode"] == "Indexed":
            lost = _failed_indexes(spec, tally)
            done = _succeeded_indexes(spec, tally)
            if len(done) + len(lost) >= spec["completions"]:
                return ("Failed", "FailedIndexes", "Job has failed indexes") if lost else reached
            if "maxFailedIndexes" in spec and len(lost) > spec["maxFailedIndexes"]:
                return (
                    "Failed",
                    "MaxFailedIndexesExceeded",
                    "Job has exceeded the specified maximal number of failed indexes",
                )
            return None
        if completions is None:
            return reached if tally.succeeded and not self._active(tally) else None
        return reached if len(tally.succeeded) >= completions else None

    def _active(self, tally: Tally) -> list[JsonObject]:
        return [
            pod
            for pod in self._pods(tally)
            if "deletionTimestamp" not in pod["metadata"]
            and pod.get("status", {}).get("phase") in {"Pending", "Running"}
        ]

    def _delete_active(self, tally: Tally, *, counted: bool) -> None:
        for pod in self._active(tally):
            if not counted:
                tally.suspended[pod["metadata"]["uid"]] = None
            self._delete_pod(pod)

    def _delete_pod(self, pod: JsonObject) -> None:
        entry = self._registry.find(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])
        if entry is not None:
            self._registry.delete(PODS, entry, Deletion(uid=pod["metadata"]["uid"], propagation="Background"))

    def _manage(self, obj: JsonObject, tally: Tally, now_ms: int) -> None:
        """Create or delete pods until as many are active as should be."""
        spec, key = obj["spec"], (obj["metadata"]["namespace"], obj["metadata"]["name"])
        active = self._active(tally)
        parallelism, completions = spec["parallelism"], spec.get("completions")
        if spec["completionMode"] == "Indexed":
            wanted = min(
                parallelism, completions - len(_succeeded_indexes(spec, tally)) - len(_failed_indexes(spec, tally))
            )
        elif completions is None:
            wanted = min(parallelism, len(active)) if tally.succeeded else parallelism
        else:
            wanted = min(parallelism, completions - len(tally.succeeded))
        if len(active) > wanted:
            active.sort(key=lambda pod: (pod["status"].get("phase") == "Running", pod["metadata"]["name"]))
            for pod in active[: len(active) - wanted]:
                tally.suspended[pod["metadata"]["uid"]] = None
                self._delete_pod(pod)
            return
        missing = wanted - len(active)
        if spec.get("podReplacementPolicy") == "Failed":
            missing -= sum(1 for pod in self._pods(tally) if "deletionTimestamp" in pod["metadata"])
        if missing <= 0:
            return
        if now_ms < tally.backoff_until_ms:
            self._wake(tally.backoff_until_ms, key)
            return
        if spec["completionMode"] == "Indexed":
            taken = (
                {index_of(pod) for pod in active}
                | set(_succeeded_indexes(spec, tally))
                | set(_failed_indexes(spec, tally))
            )
            free = [index for index in range(completions) if index not in taken]
            indexes: list[int | None] = list(free[:missing])
        else:
            indexes = [None] * missing
        try:
            for index in indexes:
                self._create_pod(obj, index)
        except ApiError:
            # Admission refuses the pod (a LimitRange, an absent priority class): the controller tries again later.
            tally.backoff_until_ms = now_ms + BACKOFF_MS
            self._wake(tally.backoff_until_ms, key)

    def _create_pod(self, job: JsonObject, index: int | None) -> None:
        template, metadata = job["spec"]["template"], job["metadata"]
        given = template.get("metadata") or {}
        fresh: JsonObject = {
            "generateName": f"{metadata['name']}-" if index is None else f"{metadata['name']}-{index}-",
            "labels": dict(given.get("labels") or {}),
            "annotations": dict(given.get("annotations") or {}),
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
            fresh["labels"][INDEX_ANNOTATION] = fresh["annotations"][INDEX_ANNOTATION] = str(index)
            spec = {**spec, "hostname": f"{metadata['name']}-{index}"}
        self._registry.create(PODS, metadata["namespace"], {"metadata": fresh, "spec": spec}, _MAIN)

    # -- status ------------------------------------------------------------------------------------------------------
    # ------------

    def _write_status(self, entry: Entry, tally: Tally, verdict: tuple[str, str, str] | None, now_ms: int) -> None:
        obj = entry.obj
        spec, old = obj["spec"], obj.get("status", {})
        pods = self._pods(tally)
        active = self._active(tally)
        going = sum(
            1
            for pod in pods
            if "deletionTimestamp" in pod["metadata"] and pod.get("status", {}).get("phase") in {"Pending", "Running"}
        )
        status = dict(old)
        counts = {
            "active": len(active),
            "ready": sum(1 for pod in active if _is_ready(pod)),
            "terminating": going,
            "succeeded": len(_succeeded_indexes(spec, tally))
            if spec["completionMode"] == "Indexed"
            else len(tally.succeeded),
            "failed": len(tally.failed),
        }
        for name, count in counts.items():
            if count or name in ("ready", "terminating"):
                status[name] = count
            else:
                status.pop(name, None)
        status["uncountedTerminatedPods"] = {}
        if spec["completionMode"] == "Indexed":
            _set_text(status, "completedIndexes", _ranges(_succeeded_indexes(spec, tally)))
            if "backoffLimitPerIndex" in spec:
                status["failedIndexes"] = _ranges(_failed_indexes(spec, tally))
        conditions = list(old.get("conditions") or ())
        self._set_suspension(spec, status, conditions, finishing=verdict is not None, now_ms=now_ms)
        if verdict is not None:
            self._set_verdict(status, conditions, verdict, over=not active and not going, now_ms=now_ms)
        if conditions:
            status["conditions"] = conditions
        if status != old:
            self._registry.update(JOBS, entry, {**obj, "status": status}, _STATUS)

    def _set_suspension(
        self, spec: JsonObject, status: JsonObject, conditions: list[JsonObject], *, finishing: bool, now_ms: int
    ) -> None:
        earlier = next((c for c in conditions if c["type"] == "Suspended"), None)
        if spec.get("suspend") and not finishing:
            status.pop("startTime", None)
            if earlier is None or earlier["status"] != "True":
                _put_condition(conditions, "Suspended", "True", "JobSuspended", "Job suspended", now_ms)
            return
        if earlier is not None and earlier["status"] == "True":
            _put_condition(conditions, "Suspended", "False", "JobResumed", "Job resumed", now_ms)
        status.setdefault("startTime", rfc3339(now_ms))

    def _set_verdict(
        self,
        status: JsonObject,
        conditions: list[JsonObject],
        verdict: tuple[str, str, str],
        *,
        over: bool,
        now_ms: int,
    ) -> None:
        final, reason, message = verdict
        first = "SuccessCriteriaMet" if final == "Complete" else "FailureTarget"
        if not any(c["type"] == first for c in conditions):
            _put_condition(conditions, first, "True", reason, message, now_ms)
        if over:
            _put_condition(conditions, final, "True", reason, message, now_ms)
            if final == "Complete":
                status["completionTime"] = rfc3339(now_ms)

    def _after_finish(self, entry: Entry, tally: Tally, now_ms: int) -> None:
        self._delete_active(tally, counted=False)
        ttl = entry.obj["spec"].get("ttlSecondsAfterFinished")
        if ttl is None or "deletionTimestamp" in entry.obj["metadata"]:
            return
        finished = _condition_of(entry.obj, "Complete") or _condition_of(entry.obj, "Failed")
        assert finished is not None
        due_ms = unix_ms(finished["lastTransitionTime"]) + 1000 * ttl
        if now_ms >= due_ms:
            self._registry.delete(JOBS, entry, Deletion(uid=entry.obj["metadata"]["uid"], propagation="Foreground"))
        else:
            self._wake(due_ms, entry.key)


def _owner_of(pod: JsonObject) -> JsonObject | None:
    """The reference to the Job that controls a pod, if one does."""
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return owner if owner["kind"] == "Job" else None
    return None


def _condition_of(obj: JsonObject, kind: str) -> JsonObject | None:
    for condition in obj.get("status", {}).get("conditions") or ():
        if condition["type"] == kind and condition["status"] == "True":
            found: JsonObject = condition
            return found
    return None


def _put_condition(
    conditions: list[JsonObject], kind: str, status: str, reason: str, message: str, now_ms: int
) -> None:
    now = rfc3339(now_ms)
    fresh = {
        "type": kind,
        "status": status,
        "lastProbeTime": now,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }
    for index, condition in enumerate(conditions):
        if condition["type"] == kind:
            conditions[index] = fresh
            return
    conditions.append(fresh)


def _is_ready(pod: JsonObject) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions") or ())


def _succeeded_indexes(spec: JsonObject, tally: Tally) -> list[int]:
    return sorted({index for index in tally.succeeded.values() if 0 <= index < (spec.get("completions") or 0)})


def _failed_indexes(spec: JsonObject, tally: Tally) -> list[int]:
    limit = spec.get("backoffLimitPerIndex")
    if limit is None:
        return []
    done = set(tally.succeeded.values())
    return sorted(
        index for index, count in tally.failures_per_index.items() if count > limit and index >= 0 and index not in done
    )


def _ranges(indexes: list[int]) -> str:
    """`1,3-5,7` for a sorted list of indexes."""
    parts: list[list[int]] = []
    for index in indexes:
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(str(low) if low == high else f"{low}{',' if high == low + 1 else '-'}{high}" for low, high in parts)


def _set_text(status: JsonObject, name: str, text: str) -> None:
    if text:
        status[name] = text
    else:
        status.pop(name, None)
