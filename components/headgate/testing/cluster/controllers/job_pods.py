"""
What the Job controller reads from pods, and how completion indexes are written.

Pure functions on stored objects: which pods are active, failed or ready, when one ended, the action of a
pod failure policy, which go first when there are too many. After k8s.io/kubernetes/pkg/controller/job
(`indexed_job_utils.go`, `backoff_utils.go`, `pod_failure_policy.go`, `success_policy.go`).
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from headgate.core.kubernetes.numbers import decimal
from headgate.testing.cluster.times import unix_ms

JsonObject = dict[str, Any]

INDEX_ANNOTATION: Final = "batch.kubernetes.io/job-completion-index"
FAILURES_ANNOTATION: Final = "batch.kubernetes.io/job-index-failure-count"
TRACKING_FINALIZER: Final = "batch.kubernetes.io/job-tracking"
BACKOFF_MS: Final = 10_000
"""The pause before a replacement after the first failure; it doubles up to `BACKOFF_MS_MAX`."""
BACKOFF_MS_MAX: Final = 600_000
_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}


def is_tracked(pod: JsonObject) -> bool:
    """Whether a pod has the finalizer that it keeps until its Job has counted it."""
    return TRACKING_FINALIZER in (pod["metadata"].get("finalizers") or ())


def is_active(pod: JsonObject) -> bool:
    """Whether a pod has neither ended nor been deleted."""
    return "deletionTimestamp" not in pod["metadata"] and not _has_ended(pod)


def is_terminating(pod: JsonObject) -> bool:
    """Whether a pod was deleted and has not ended."""
    return "deletionTimestamp" in pod["metadata"] and not _has_ended(pod)


def _has_ended(pod: JsonObject) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def is_succeeded(pod: JsonObject) -> bool:
    """Whether a pod has ended well."""
    return bool(pod.get("status", {}).get("phase") == "Succeeded")


def is_failed(pod: JsonObject, spec: JsonObject) -> bool:
    """Whether a pod counts as failed for its Job: a deleted one does, unless only failed pods are replaced."""
    phase = pod.get("status", {}).get("phase")
    if phase == "Failed":
        return True
    deleted = "deletionTimestamp" in pod["metadata"] and phase != "Succeeded"
    return deleted and spec.get("podReplacementPolicy") != "Failed"


def is_ready(pod: JsonObject) -> bool:
    """Whether a pod's condition Ready is True."""
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions") or ())


def removal_order(pod: JsonObject) -> tuple[bool, int, bool, str]:
    """A sort key that puts first what is given up first: unbound, pending, not ready, young."""
    status, metadata = pod.get("status", {}), pod["metadata"]
    age = "".join(chr(0x10FFFF - ord(char)) for char in metadata["creationTimestamp"])
    return bool(pod["spec"].get("nodeName")), _PHASES.get(status.get("phase", ""), 0), is_ready(pod), age


# --- failures


def finished_ms(pod: JsonObject) -> int:
    """When an ended or deleted pod ended, to the second."""
    status, metadata = pod.get("status", {}), pod["metadata"]
    states = [(each.get("state") or {}).get("terminated") or {} for each in status.get("containerStatuses") or ()]
    times = [state.get("finishedAt") for state in states]
    if times and all(times):
        return max(unix_ms(time) for time in times)
    for condition in status.get("conditions") or ():
        if condition["type"] == "Ready" and condition["status"] == "False" and condition.get("lastTransitionTime"):
            return unix_ms(condition["lastTransitionTime"])
    if "deletionTimestamp" in metadata:
        return unix_ms(metadata["deletionTimestamp"]) - 1000 * int(metadata.get("deletionGracePeriodSeconds", 0))
    return unix_ms(metadata["creationTimestamp"])


def pause_ms(failures: int) -> int:
    """How long a replacement waits after so many failures in a row."""
    return min(BACKOFF_MS << min(failures - 1, 8), BACKOFF_MS_MAX) if failures > 0 else 0


def failures_of(pod: JsonObject) -> int:
    """How many pods of a pod's index had failed before it."""
    text = (pod["metadata"].get("annotations") or {}).get(FAILURES_ANNOTATION, "0")
    return decimal(text) or 0


def policy_verdict(spec: JsonObject, pod: JsonObject) -> tuple[str, str]:
    """The action of the pod failure policy for a failed pod (Count without a rule), and why a Job fails by it."""
    metadata = pod["metadata"]
    name = f"{metadata['namespace']}/{metadata['name']}"
    for index, rule in enumerate((spec.get("podFailurePolicy") or {}).get("rules") or ()):
        action, codes = rule["action"], rule.get("onExitCodes")
        suffix = f"matching {action} rule at index {index}"
        if codes is not None:
            ended = _exit_code(pod, codes)
            if ended is not None:
                return action, f"Container {ended[0]} for pod {name} failed with exit code {ended[1]} {suffix}"
        else:
            condition = _condition(pod, rule.get("onPodConditions") or ())
            if condition:
                return action, f"Pod {name} has condition {condition} {suffix}"
    return "Count", ""


def _exit_code(pod: JsonObject, wanted: JsonObject) -> tuple[str, int] | None:
    status = pod.get("status", {})
    for each in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
        code = ((each.get("state") or {}).get("terminated") or {}).get("exitCode", 0)
        named = wanted.get("containerName") in (None, each.get("name"))
        if code and named and (code in wanted["values"]) == (wanted["operator"] == "In"):
            return each["name"], code
    return None


def _condition(pod: JsonObject, patterns: Iterable[JsonObject]) -> str:
    for condition in pod.get("status", {}).get("conditions") or ():
        for pattern in patterns:
            if condition["type"] == pattern["type"] and condition["status"] == pattern.get("status", "True"):
                return str(condition["type"])
    return ""


# --- completion indexes


def index_of(pod: JsonObject) -> int:
    """A pod's completion index, -1 without one."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX_ANNOTATION, "")
    index = decimal(text)
    return -1 if index is None else index


def parsed_indexes(text: str, completions: int) -> set[int]:
    """The indexes in `1,3-5,7` that are below the number of completions."""
    return {index for index in _in_ranges(text) if index < completions}


def _in_ranges(text: str) -> Iterator[int]:
    for part in text.split(",") if text else ():
        low, _, high = part.partition("-")
        yield from range(int(low), int(high or low) + 1)


def written_indexes(indexes: Iterable[int]) -> str:
    """`1,3-5,7` for a set of indexes."""
    parts: list[list[int]] = []
    for index in sorted(indexes):
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(str(low) if low == high else f"{low}{',' if high == low + 1 else '-'}{high}" for low, high in parts)


def success_rule(spec: JsonObject, succeeded: set[int]) -> str:
    """Which rule of a success policy the succeeded indexes meet, in the words of the condition; nothing if none."""
    for number, rule in enumerate((spec.get("successPolicy") or {}).get("rules") or ()):
        count, text = rule.get("succeededCount"), rule.get("succeededIndexes")
        if not succeeded:
            break
        if text is not None:
            wanted = parsed_indexes(text, spec["completions"])
            met = bool(wanted) and (wanted <= succeeded or (count is not None and len(wanted & succeeded) >= count))
        else:
            met = count is not None and len(succeeded) >= count
        if met:
            return f"Matched rules at index {number}"
    return ""
