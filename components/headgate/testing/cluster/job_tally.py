"""
What the Job controller knows of one Job beyond its object: its pods, and which of them have ended.

A tally grows from the changes of pods. After a restart it is made again from what is stored, by `restored`: the pods
that are there, and for those that are not, the counts in the Job's status, which every step of the controllers leaves
true to all pods of that moment.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from headgate.testing.cluster.store import Entry, Key
from headgate.testing.cluster.times import unix_ms

JsonObject = dict[str, Any]

BACKOFF_MS: Final = 10_000
"""The pause before a replacement after the first failure; it doubles up to `BACKOFF_MS_MAX`."""
BACKOFF_MS_MAX: Final = 600_000
INDEX_ANNOTATION: Final = "batch.kubernetes.io/job-completion-index"


class Tally:
    """The pods of a Job; `succeeded` and `failed` give the completion index (or -1) by uid."""

    __slots__ = (
        "backoff_until_ms",
        "failed",
        "failures_in_row",
        "failures_per_index",
        "pods",
        "succeeded",
        "suspended",
    )

    def __init__(self) -> None:
        self.pods: dict[Key, None] = {}
        self.succeeded: dict[str, int] = {}
        self.failed: dict[str, int] = {}
        self.failures_per_index: dict[int, int] = {}
        self.failures_in_row = 0
        self.backoff_until_ms = 0
        # Uids of pods that a suspension deleted: they did not fail.
        self.suspended: dict[str, None] = {}

    def succeed(self, uid: str, index: int) -> None:
        """A pod has succeeded."""
        self.succeeded[uid] = index
        self.failures_in_row = 0

    def fail(self, uid: str, index: int, at_ms: int) -> None:
        """A pod has failed: its replacement waits."""
        self.failed[uid] = index
        self.failures_in_row += 1
        self.failures_per_index[index] = self.failures_per_index.get(index, 0) + 1
        pause_ms = min(BACKOFF_MS << min(self.failures_in_row - 1, 8), BACKOFF_MS_MAX)
        self.backoff_until_ms = at_ms + pause_ms


def index_of(pod: JsonObject) -> int:
    """A pod's completion index, -1 without one."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX_ANNOTATION)
    return int(text) if text is not None else -1


def restored(job: JsonObject, pods: Iterable[Entry]) -> Tally:
    """
    The tally of a Job as an earlier controller left it.

    Who deleted a pod that is still terminating is not known any more. It is not held against the Job, whose retries
    a suspension must not use up, unless the Job is about to end anyway.
    """
    tally, status = Tally(), job.get("status", {})
    verdict = any(c["type"] in ("SuccessCriteriaMet", "FailureTarget") for c in status.get("conditions") or ())
    ended: list[JsonObject] = []
    for entry in pods:
        tally.pods[entry.key] = None
        if entry.obj.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            ended.append(entry.obj)
        elif "deletionTimestamp" in entry.obj["metadata"] and not verdict:
            tally.suspended[entry.obj["metadata"]["uid"]] = None
    failed = [pod for pod in ended if pod["status"]["phase"] == "Failed"]
    failed.sort(key=lambda pod: "deletionTimestamp" in pod["metadata"])
    for pod in failed[status.get("failed", 0) :]:
        if "deletionTimestamp" in pod["metadata"]:
            tally.suspended[pod["metadata"]["uid"]] = None
    ended.sort(key=_ended_ms)
    for pod in ended:
        uid = pod["metadata"]["uid"]
        if pod["status"]["phase"] == "Succeeded":
            tally.succeed(uid, index_of(pod))
        elif uid not in tally.suspended:
            tally.fail(uid, index_of(pod), _ended_ms(pod))
    _count_gone(tally, job["spec"], status)
    return tally


def _count_gone(tally: Tally, spec: JsonObject, status: JsonObject) -> None:
    """Count the pods that have ended and are no more: the status knows how many, or their indexes."""
    for number in range(status.get("failed", 0) - len(tally.failed)):
        tally.failed[f"gone-{number}"] = -1
    if spec["completionMode"] == "Indexed":
        done = set(tally.succeeded.values())
        for index in _in_ranges(status.get("completedIndexes", "")):
            if index not in done:
                tally.succeeded[f"gone-{index}"] = index
        for index in _in_ranges(status.get("failedIndexes", "")):
            least = spec.get("backoffLimitPerIndex", 0) + 1
            tally.failures_per_index[index] = max(least, tally.failures_per_index.get(index, 0))
    else:
        for number in range(status.get("succeeded", 0) - len(tally.succeeded)):
            tally.succeeded[f"gone-{number}"] = -1


def _in_ranges(text: str) -> Iterator[int]:
    """The indexes in `1,3-5,7`."""
    for part in text.split(",") if text else ():
        low, _, high = part.partition("-")
        yield from range(int(low), int(high or low) + 1)


def _ended_ms(pod: JsonObject) -> int:
    """When an ended pod ended, to the second; when it started, if it never ran."""
    status = pod["status"]
    states = [each.get("state", {}).get("terminated", {}) for each in status.get("containerStatuses") or ()]
    times = [state["finishedAt"] for state in states if state.get("finishedAt")]
    latest = max(times, default=status.get("startTime"))
    return 0 if latest is None else unix_ms(latest)
