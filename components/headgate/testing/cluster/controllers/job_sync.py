"""
One look of the Job controller at one Job: count what ended, decide, create or delete pods, write the status.

The order of `syncJob` (k8s.io/kubernetes/pkg/controller/job/job_controller.go) and therefore the statuses that it
writes, one after the other: pods that ended are named in `uncountedTerminatedPods` before their tracking finalizer
goes, and counted after it is gone, so that none is lost or counted twice whenever the controller stops; what decides
the end (SuccessCriteriaMet, FailureTarget) is written before the end itself (Complete, Failed), which waits until no
pod is left.

`JobSync.run` works on the pods as they were when it began, through `Hands`, which the controller lends it. All that
lasts is in the objects, but for the pause after failures (`PodFailures`), which ends with the controller, as in a
cluster.
"""
# Over 400 lines: it follows `syncJob` step by step, so that the two can be compared.

from typing import Any, Final, Protocol

from headgate.testing.cluster.controllers.job_pods import (
    FAILURES_ANNOTATION,
    INDEX_ANNOTATION,
    failures_of,
    finished_ms,
    index_of,
    is_active,
    is_failed,
    is_ready,
    is_succeeded,
    is_terminating,
    is_tracked,
    parsed_indexes,
    pause_ms,
    policy_verdict,
    removal_order,
    success_rule,
    written_indexes,
)
from headgate.testing.cluster.times import rfc3339, unix_ms

JsonObject = dict[str, Any]

PODS_MAX: Final = 500
"""Pods that one look creates or deletes at most; the next look continues."""

_NEXT: Final = {"SuccessCriteriaMet": "Complete", "FailureTarget": "Failed"}


class PodFailures:
    """How many pods of a Job have failed since one succeeded, and when the last one did."""

    __slots__ = ("failures", "last_ms")

    def __init__(self, failures: int = 0, last_ms: int = 0) -> None:
        self.failures = failures
        self.last_ms = last_ms

    def after(self, succeeded: list[JsonObject], failed: list[JsonObject]) -> "PodFailures":
        """The record with what ended since."""
        if not succeeded and not failed:
            return self
        if not succeeded:
            return PodFailures(self.failures + len(failed), max(finished_ms(pod) for pod in failed))
        latest = max(finished_ms(pod) for pod in succeeded)
        later = [ended for ended in map(finished_ms, failed) if ended > latest]
        return PodFailures(len(later), max(later, default=0))

    def left_ms(self, now_ms: int) -> int:
        """How long a replacement still waits."""
        return max(0, self.last_ms + pause_ms(self.failures) - now_ms)


class Hands(Protocol):
    """What a look may do."""

    def create_pod(self, job: JsonObject, index: int | None, annotations: dict[str, str]) -> bool:
        """Create a pod of the Job; False if it was refused."""
        ...

    def delete_pod(self, job: JsonObject, pod: JsonObject) -> None:
        """Delete a pod."""
        ...

    def untrack(self, pod: JsonObject) -> None:
        """Take the tracking finalizer from a pod, if it is there."""
        ...

    def write_status(self, job: JsonObject, status: JsonObject) -> JsonObject:
        """Write the Job's status; returns the Job as it is then."""
        ...

    def look_again(self, job: JsonObject, after_ms: int) -> None:
        """Look at the Job again, at the latest after this time."""
        ...

    def tell(self, job: JsonObject, reason: str, message: str, *, warning: bool = False) -> None:
        """Record an Event on the Job."""
        ...


class JobSync:
    """One look; made for it and thrown away."""

    def __init__(
        self, hands: Hands, job: JsonObject, pods: list[JsonObject], backoff: PodFailures, now_ms: int
    ) -> None:
        self._hands = hands
        self._job = job
        self._spec = job["spec"]
        self._pods = pods
        self._now_ms = now_ms
        self._indexed = self._spec.get("completionMode") == "Indexed"
        self._per_index: int | None = self._spec.get("backoffLimitPerIndex")
        self._status: JsonObject = dict(job.get("status") or {})
        uncounted = self._status.get("uncountedTerminatedPods") or {}
        self._uncounted = {name: list(uncounted.get(name) or ()) for name in ("succeeded", "failed")}
        self._conditions: list[JsonObject] = list(self._status.get("conditions") or ())
        self._active_pods = [pod for pod in pods if is_active(pod)]
        self._active = len(self._active_pods)
        self._ready = sum(1 for pod in self._active_pods if is_ready(pod))
        self._terminating = sum(1 for pod in pods if is_terminating(pod))
        self._done: set[int] = set()
        self._done_before: set[int] = set()
        self._lost: set[int] = set()
        self._end: tuple[str, str, str] | None = None
        self._changed = False
        self.backoff = backoff
        self.refused = False
        self._next_backoff = backoff

    def run(self) -> None:
        """Look, act, and write what is new."""
        succeeded, failed = self._ended("succeeded"), self._ended("failed")
        counted = [pod for pod in failed if self._counts(pod)]
        self._succeeded = self._status.get("succeeded", 0) + len(succeeded) + len(self._uncounted["succeeded"])
        self._failed = self._status.get("failed", 0) + len(counted) + len(self._uncounted["failed"])
        if not self._status.get("startTime") and not self._suspended:
            self._status["startTime"] = rfc3339(self._now_ms)
        self._next_backoff = self.backoff.after(succeeded, failed)
        self._read_indexes()
        self._decide()
        if self._end is not None:
            self._delete_active(self._active_pods, keep_finalizer=True)
        else:
            self._go_on()
        self._settle()

    @property
    def _suspended(self) -> bool:
        return bool(self._spec.get("suspend"))

    # --- reading

    def _ended(self, how: str) -> list[JsonObject]:
        """Pods that ended this way and that the status does not know of yet."""
        test = is_succeeded if how == "succeeded" else self._is_failed
        known = set(self._uncounted[how])
        return [
            pod
            for pod in self._pods
            if is_tracked(pod) and pod["metadata"]["uid"] not in known and self._has_place(pod) and test(pod)
        ]

    def _is_failed(self, pod: JsonObject) -> bool:
        return is_failed(pod, self._spec)

    def _has_place(self, pod: JsonObject) -> bool:
        """Whether a pod has an index of its Job, where that matters."""
        return not self._indexed or 0 <= index_of(pod) < self._spec["completions"]

    def _counts(self, pod: JsonObject) -> bool:
        return policy_verdict(self._spec, pod)[0] != "Ignore"

    def _read_indexes(self) -> None:
        if not self._indexed:
            return
        completions = self._spec["completions"]
        self._done_before = parsed_indexes(self._status.get("completedIndexes", ""), completions)
        places = [pod for pod in self._pods if is_tracked(pod) and self._has_place(pod)]
        self._done = self._done_before | {index_of(pod) for pod in places if is_succeeded(pod)}
        self._succeeded = len(self._done)
        if self._per_index is not None:
            self._lost = parsed_indexes(self._status.get("failedIndexes", ""), completions)
            self._lost |= {index_of(pod) for pod in places if self._is_failed(pod) and self._loses_index(pod)}

    def _loses_index(self, pod: JsonObject) -> bool:
        action = policy_verdict(self._spec, pod)[0]
        assert self._per_index is not None
        return action == "FailIndex" or (action != "Ignore" and failures_of(pod) >= self._per_index)

    # --- deciding

    # Large: one case for each way in which a Job ends, in the order in which the Job controller checks.
    def _decide(self) -> None:
        """Find out whether it is certain how the Job ends: (condition, reason, message)."""
        for first, final in (("SuccessCriteriaMet", ""), ("FailureTarget", "Failed")):
            earlier = self._condition(first)
            if earlier is not None and earlier["status"] == "True":
                self._end = (final or first, earlier["reason"], earlier["message"])
                return
        for pod in self._pods if self._spec.get("podFailurePolicy") else ():
            action, message = policy_verdict(self._spec, pod)
            if self._is_failed(pod) and action == "FailJob":
                self._end = ("FailureTarget", "PodFailurePolicy", message)
                return
        if self._failed > self._spec["backoffLimit"] or self._restarted_too_often():
            self._fail("BackoffLimitExceeded", "Job has reached the specified backoff limit")
        elif self._past_deadline():
            self._fail("DeadlineExceeded", "Job was active longer than specified deadline")
        elif self._per_index is not None:
            most = self._spec.get("maxFailedIndexes")
            if most is not None and len(self._lost) > most:
                message = "Job has exceeded the specified maximal number of failed indexes"
                self._fail("MaxFailedIndexesExceeded", message)
            elif self._lost and len(self._lost) + len(self._done) >= self._spec["completions"]:
                self._fail("FailedIndexes", "Job has failed indexes")
        if self._end is None and self._indexed:
            met = success_rule(self._spec, self._done)
            if met:
                self._end = ("SuccessCriteriaMet", "SuccessPolicy", met)

    def _fail(self, reason: str, message: str) -> None:
        self._end = ("FailureTarget", reason, message)

    def _restarted_too_often(self) -> bool:
        if self._spec["template"]["spec"].get("restartPolicy") != "OnFailure":
            return False
        restarts = sum(
            each.get("restartCount", 0)
            for pod in self._pods
            if pod.get("status", {}).get("phase") in ("Running", "Pending")
            for group in ("initContainerStatuses", "containerStatuses")
            for each in pod.get("status", {}).get(group) or ()
        )
        return bool(restarts >= max(1, self._spec["backoffLimit"]))

    def _past_deadline(self) -> bool:
        seconds = self._spec.get("activeDeadlineSeconds")
        if seconds is None or self._suspended or not self._status.get("startTime"):
            return False
        left_ms: int = unix_ms(self._status["startTime"]) + 1000 * seconds - self._now_ms
        if left_ms > 0:
            self._hands.look_again(self._job, left_ms)
        return left_ms <= 0

    def _condition(self, kind: str) -> JsonObject | None:
        return next((c for c in self._conditions if c["type"] == kind), None)

    # --- acting

    def _go_on(self) -> None:
        alive = "deletionTimestamp" not in self._job["metadata"]
        if alive:
            self._manage()
        wanted = self._spec.get("completions")
        met = self._succeeded > 0 if wanted is None else self._succeeded >= wanted
        if met and self._active == 0:
            self._end = ("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods")
        elif alive and self._suspended:
            if self._put_condition("Suspended", "True", "JobSuspended", "Job suspended"):
                self._hands.tell(self._job, "Suspended", "Job suspended")
                self._status.pop("startTime", None)
        elif alive and self._put_condition("Suspended", "False", "JobResumed", "Job resumed"):
            self._hands.tell(self._job, "Resumed", "Job resumed")
            self._status["startTime"] = rfc3339(self._now_ms)

    def _manage(self) -> None:
        """Create or delete pods until as many are active as should be."""
        if self._suspended:
            self._delete_active(self._surplus(self._active), keep_finalizer=False)
            return
        parallelism, completions = self._spec["parallelism"], self._spec.get("completions")
        if completions is None:
            wanted = self._active if self._succeeded > 0 else parallelism
        else:
            wanted = max(0, min(completions - self._succeeded, parallelism))
        surplus = self._surplus(max(0, self._active - wanted))[:PODS_MAX]
        if surplus:
            self._delete_active(surplus, keep_finalizer=False)
            return
        going = self._terminating if self._spec.get("podReplacementPolicy") == "Failed" else 0
        missing = min(wanted - going - self._active, PODS_MAX)
        if missing > 0:
            self._create(missing)

    def _surplus(self, least: int) -> list[JsonObject]:
        """The pods to delete: those with an index that is taken or too high, and the cheapest others up to `least`."""
        if not self._indexed:
            return sorted(self._active_pods, key=removal_order)[:least]
        kept: dict[int, JsonObject] = {}
        doomed: list[JsonObject] = []
        for pod in sorted(self._active_pods, key=removal_order, reverse=True):
            index = index_of(pod)
            if index in kept or not self._has_place(pod):
                doomed.append(pod)
            else:
                kept[index] = pod
        return doomed + sorted(kept.values(), key=removal_order)[: max(0, least - len(doomed))]

    def _delete_active(self, pods: list[JsonObject], *, keep_finalizer: bool) -> None:
        for pod in pods:
            if not keep_finalizer:
                # A pod that the controller gives up has not failed: it must not be counted when it is gone.
                self._hands.untrack(pod)
            self._hands.delete_pod(self._job, pod)
        self._active -= len(pods)
        self._terminating += len(pods)
        self._ready -= sum(1 for pod in pods if is_ready(pod))

    def _create(self, missing: int) -> None:
        if self._per_index is None:
            wait_ms = self._next_backoff.left_ms(self._now_ms)
            if wait_ms > 0:
                self._hands.look_again(self._job, wait_ms)
                return
        if not self._indexed:
            for _ in range(missing):
                self._create_one(None, {})
            return
        replaced = self._awaiting_replacement() if self._per_index is not None else {}
        waits: list[int] = []
        for index in self._free_indexes(missing):
            annotations = {INDEX_ANNOTATION: str(index)}
            if self._per_index is not None:
                pod = replaced.get(index)
                failures = 0 if pod is None else failures_of(pod)
                if pod is not None:
                    wait_ms = finished_ms(pod) + pause_ms(failures + 1) - self._now_ms
                    if wait_ms > 0:
                        waits.append(wait_ms)
                        continue
                    failures += 1 if self._counts(pod) else 0
                annotations[FAILURES_ANNOTATION] = str(failures)
            self._create_one(index, annotations)
        if waits:
            self._hands.look_again(self._job, min(waits))

    def _create_one(self, index: int | None, annotations: dict[str, str]) -> None:
        # Where one pod is refused, the others would be too: they wait for the next look.
        if not self.refused:
            self.refused = not self._hands.create_pod(self._job, index, annotations)
            self._active += not self.refused

    def _free_indexes(self, count: int) -> list[int]:
        taken = {index_of(pod) for pod in self._active_pods} | self._done | self._lost
        if self._spec.get("podReplacementPolicy") == "Failed":
            taken |= {index_of(pod) for pod in self._pods if is_terminating(pod)}
        found: list[int] = []
        for index in range(self._spec["completions"]):
            if len(found) == count:
                break
            if index not in taken:
                found.append(index)
        return found

    def _awaiting_replacement(self) -> dict[int, JsonObject]:
        """The last failed pod of each index that is to be tried again; its finalizer stays until then."""
        busy = {index_of(pod) for pod in self._active_pods} | self._done | self._lost
        found: dict[int, JsonObject] = {}
        for pod in self._pods:
            index = index_of(pod)
            if is_tracked(pod) and self._has_place(pod) and self._is_failed(pod) and index not in busy:
                last = found.get(index)
                if last is None or failures_of(last) <= failures_of(pod):
                    found[index] = pod
        return found

    # --- the status

    def _settle(self) -> None:
        tracked = {pod["metadata"]["uid"] for pod in self._pods if is_tracked(pod)}
        before = (self._status.get("active", 0), self._status.get("ready"), self._status.get("terminating"))
        self._changed |= before != (self._active, self._ready, self._terminating)
        self._count_untracked(tracked)
        freed = self._name_ended()
        self._write_indexes()
        self._name_end()
        if self._changed:
            self._flush()
            self.backoff = self._next_backoff
        for pod in freed:
            self._hands.untrack(pod)
            tracked.discard(pod["metadata"]["uid"])
        self._count_untracked(tracked)
        over = self._enact_end()
        if self._changed:
            self._flush()
        if over:
            self._tell_end()

    def _count_untracked(self, tracked: set[str]) -> None:
        for name, uids in self._uncounted.items():
            kept = [uid for uid in uids if uid in tracked]
            if len(kept) != len(uids):
                self._status[name] = self._status.get(name, 0) + len(uids) - len(kept)
                self._uncounted[name] = kept
                self._changed = True

    def _name_ended(self) -> list[JsonObject]:
        """Name the pods that ended in the status; returns those whose finalizer may go."""
        ending = self._end is not None
        waiting = self._awaiting_replacement() if self._per_index is not None else {}
        held = {pod["metadata"]["uid"] for pod in waiting.values()}
        going = "deletionTimestamp" in self._job["metadata"]
        freed: list[JsonObject] = []
        for pod in sorted(self._pods, key=index_of) if self._indexed else self._pods:
            if not is_tracked(pod):
                continue
            failed, uid = self._is_failed(pod), pod["metadata"]["uid"]
            if not (going or ending or is_succeeded(pod) or (failed and uid not in held)):
                continue
            freed.append(pod)
            if is_succeeded(pod) and uid not in self._uncounted["failed"]:
                self._name_success(pod, uid)
            elif failed or (self._end is not None and self._end[0] != "SuccessCriteriaMet"):
                self._name_failure(pod, uid)
        return freed

    def _name_failure(self, pod: JsonObject, uid: str) -> None:
        if uid not in self._uncounted["failed"] and self._has_place(pod) and self._counts(pod):
            self._uncounted["failed"].append(uid)
            self._changed = True

    def _name_success(self, pod: JsonObject, uid: str) -> None:
        if self._indexed:
            # The index is sufficient: it cannot be counted twice.
            self._changed |= self._has_place(pod) and index_of(pod) not in self._done_before
        elif uid not in self._uncounted["succeeded"]:
            self._uncounted["succeeded"].append(uid)
            self._changed = True

    def _write_indexes(self) -> None:
        if not self._indexed:
            return
        fresh: JsonObject = {"completedIndexes": written_indexes(self._done)}
        self._status["succeeded"] = len(self._done)
        if self._per_index is not None:
            fresh["failedIndexes"] = written_indexes(self._lost)
        for name, text in fresh.items():
            self._changed |= self._status.get(name, None if name == "failedIndexes" else "") != text
            self._status[name] = text
        if not self._status["completedIndexes"]:
            del self._status["completedIndexes"]

    def _name_end(self) -> None:
        """Write what decides the end before the end itself."""
        if self._end is None or self._end[0] not in _NEXT:
            return
        kind, reason, message = self._end
        if kind == "FailureTarget" or self._condition(kind) is None:
            self._put_condition(kind, "True", reason, message)
        self._end = (_NEXT[kind], reason, message)

    def _enact_end(self) -> bool:
        if self._end is None or any(self._uncounted.values()) or self._terminating:
            return False
        self._put_condition(self._end[0], "True", self._end[1], self._end[2])
        if self._end[0] == "Complete":
            self._status["completionTime"] = rfc3339(self._now_ms)
        self._changed = True
        return True

    def _tell_end(self) -> None:
        assert self._end is not None
        kind, reason, message = self._end
        if kind == "Complete":
            wanted = self._spec.get("completions")
            if wanted is not None and self._status.get("succeeded", 0) > wanted:
                text = "Too many succeeded pods running after completion count reached"
                self._hands.tell(self._job, "TooManySucceededPods", text, warning=True)
            self._hands.tell(self._job, "Completed", "Job completed")
        else:
            self._hands.tell(self._job, reason, message, warning=True)

    def _put_condition(self, kind: str, status: str, reason: str, message: str) -> bool:
        """Set a condition; returns whether that changed the list. What never was True does not become False."""
        now = rfc3339(self._now_ms)
        fresh = {
            "type": kind,
            "status": status,
            "lastProbeTime": now,
            "lastTransitionTime": now,
            "reason": reason,
            "message": message,
        }
        for index, condition in enumerate(self._conditions):
            if condition["type"] == kind:
                if [condition.get(name) for name in ("status", "reason", "message")] == [status, reason, message]:
                    return False
                self._conditions = [*self._conditions[:index], fresh, *self._conditions[index + 1 :]]
                self._changed = True
                return True
        if status == "False":
            return False
        self._conditions = [*self._conditions, fresh]
        self._changed = True
        return True

    def _flush(self) -> None:
        self._changed = False
        status = dict(self._status)
        counts = {"active": self._active, "succeeded": status.get("succeeded", 0), "failed": status.get("failed", 0)}
        for name, count in counts.items():
            if count:
                status[name] = count
            else:
                status.pop(name, None)
        status["ready"], status["terminating"] = self._ready, self._terminating
        status["uncountedTerminatedPods"] = {name: uids for name, uids in self._uncounted.items() if uids}
        if self._conditions:
            status["conditions"] = self._conditions
        self._status = dict(status)  # what is stored must not be written into
        self._job = self._hands.write_status(self._job, status)
