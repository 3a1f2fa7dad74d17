"""
Elastic workload slices: a Job that grows while it runs (KEP-77, gate ElasticJobsViaWorkloadSlices).

A Job annotated for it (`kueue.x-k8s.io/elastic-job: "true"`) that is scaled up keeps the Workload it runs under, and
gets a second one for its new size: a slice, annotated with the key of the one that it replaces. The new slice is
scheduled for what it needs beyond the old one, in the same flavors. When it is reserved the old one is finished in the
same commit (`workload.replaced`). A Job that is scaled down, or whose Workload holds no quota yet, has its Workload
edited in place. Its pods carry a scheduling gate of the annotation's name, so that no more of them run than slices are
admitted for.

`wanted` determines which Workload a Job needs, for the informer bridge and, for surplus slices, the queue manager. The
cycle calls `replaced_by` and `usage_by_pod_set`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from headgate.core.api.names import ELASTIC_JOB, JOB_UID, REPLACEMENT_FOR, SLICE_NAME
from headgate.core.config import feature_gates
from headgate.core.config.feature_gates import enabled
from headgate.core.kubernetes import conditions
from headgate.core.kubernetes.quantities import amount
from headgate.core.state.tables import HOLDS_QUOTA, FlavorResource, Stage, State, Workload
from headgate.core.workload.pod_requests import reclaimable
from headgate.events.configuration import Configuration
from headgate.events.ids import WorkloadKey, split_key
from headgate.events.objects import Labels

ELASTIC_GATE = ELASTIC_JOB
"""The scheduling gate of an elastic Job's pods."""

SLICE_REPLACED = "WorkloadSliceReplaced"


def is_elastic(configuration: Configuration, annotations: Labels) -> bool:
    """Whether an object with these annotations takes part in slicing."""
    return annotations.get(ELASTIC_JOB) == "true" and enabled(configuration, feature_gates.ELASTIC_JOBS)


def replacement_for(workload: Workload) -> WorkloadKey | None:
    """The key of the slice that a workload is to replace, from its annotation; None without one."""
    key = workload.annotations.get(REPLACEMENT_FOR)
    return WorkloadKey(key) if key else None


def slice_name(workload: Workload) -> str:
    """The name of the first Workload in a chain of slices, which identifies its pods."""
    return workload.annotations.get(SLICE_NAME) or split_key(workload.key)[1]


def replaced_by(state: State, workload: Workload) -> Workload | None:
    """
    The slice that a pending workload replaces when it is admitted: a target without eviction.

    It is one that holds quota of the same ClusterQueue, in the same namespace.
    """
    key = replacement_for(workload)
    if key is None or not enabled(state.configuration, feature_gates.ELASTIC_JOBS):
        return None
    replaced = state.workloads.get(key)
    if replaced is None or replaced.stage not in HOLDS_QUOTA or replaced.admission is None:
        return None
    if replaced.cluster_queue != workload.cluster_queue or split_key(key)[0] != split_key(workload.key)[0]:
        return None
    return replaced


def usage_by_pod_set(replaced: Workload, configuration: Configuration) -> dict[str, dict[FlavorResource, int]]:
    """
    What a slice holds, pod set by pod set: to be subtracted from what its successor requests.

    The flavors are those that the successor has to use. What reclaimable pods of it have released is not held.
    """
    if replaced.admission is None:
        return {}
    done = reclaimable(replaced, configuration)
    usage: dict[str, dict[FlavorResource, int]] = {}
    for assignment in replaced.admission.pod_set_assignments:
        left = max(0, assignment.count - done.get(assignment.name, 0))
        held = usage.setdefault(assignment.name, {})
        for resource, flavor in assignment.flavors.items():
            value = amount(resource, assignment.resource_usage.get(resource, 0))
            held[flavor, resource] = value // assignment.count * left if left < assignment.count else value
    return usage


def replaced_message(successor: Workload) -> str:
    """Kueue's message of the Finished condition of a slice that another has replaced."""
    job_uid = successor.labels.get(JOB_UID, "")
    who = f"UID: {successor.uid}, JobUID: {job_uid}"
    return f"Replaced to accommodate a workload ({who}) due to workload slice aggregation"


# --- which Workload a Job needs ------------------------------------------------------------------------------------


class SlicePlan(msgspec.Struct, frozen=True):
    """
    What is to be done with a Job's slices (Kueue's EnsureWorkloadSlices).

    `selected` is the one that represents the Job; None when it has none. With `resize` its pod counts are to be those
    of the Job; with `replace` a new slice is to be created that replaces it. `surplus` are slices that are no longer
    needed.
    """

    selected: Workload | None = None
    resize: bool = False
    replace: bool = False
    surplus: tuple[Workload, ...] = ()


def standing(
    state: State, job_uid: str, belongs: Callable[[Workload], bool] = lambda _workload: True
) -> Workload | None:
    """
    Which of a Job's Workloads represents it: one that holds quota, else one that is pending, finished ones last.

    An evicted one will release its quota, so others come before it. Of several it is the newest slice of an elastic
    Job; of any other Job the oldest Workload, for the others do not belong there. `belongs` filters.
    """
    slices = [state.workloads[key] for key in state.index.owned(job_uid)]
    return max((each for each in slices if belongs(each)), key=_standing, default=None)


def _standing(each: Workload) -> tuple[bool, bool, int, int, str]:
    holds = each.stage in (Stage.RESERVED, Stage.ADMITTED)
    created_ms, first_seq, uid = _age(each)
    if each.stage is not Stage.FINISHED and ELASTIC_JOB not in each.annotations:
        created_ms, first_seq = -created_ms, -each.first_seq
    return (each.stage is not Stage.FINISHED, holds, created_ms, first_seq, uid)


def _age(each: Workload) -> tuple[int, int, str]:
    """When a slice was created: by its time, and within one second by its first position in the log."""
    return (each.created_ms, each.first_seq if each.arrival else 0, each.uid)


def surplus_of(state: State, workload: Workload) -> tuple[str, str] | None:
    """Reason and message to finish a slice that is no longer needed; None when it is."""
    if workload.owner is None or len(state.index.owned(workload.owner.uid)) < 2:
        return None
    slices = slices_of(state, workload.owner.uid)
    if len(slices) < 2 or not is_elastic(state.configuration, workload.annotations):
        return None
    surplus = _normalised(slices)[1]
    return surplus_end(slices, workload) if any(each is workload for each in surplus) else None


def slices_of(state: State, job_uid: str) -> list[Workload]:
    """A Job's unfinished Workloads, oldest first."""
    keys: Iterable[WorkloadKey] = state.index.owned(job_uid)
    unfinished = [state.workloads[key] for key in keys if state.workloads[key].stage is not Stage.FINISHED]
    return sorted(unfinished, key=_age)


def wanted(slices: Sequence[Workload], counts: Mapping[str, int]) -> SlicePlan:
    """What a Job whose pod sets have these counts needs of its unfinished slices, given oldest first."""
    surplus: tuple[Workload, ...] = ()
    selected = slices[0] if slices else None
    if len(slices) > 1:
        selected, surplus = _normalised(slices)
    if selected is None:
        return SlicePlan(surplus=surplus)
    has = {pod_set.name: pod_set.count for pod_set in selected.spec.pod_sets}
    if has.keys() != counts.keys() or has == counts:
        return SlicePlan(selected, surplus=surplus)
    if not _holds_quota(selected) or all(counts[name] <= count for name, count in has.items()):
        return SlicePlan(selected, resize=True, surplus=surplus)
    return SlicePlan(selected, replace=True, surplus=surplus)


def _normalised(slices: Sequence[Workload]) -> tuple[Workload | None, tuple[Workload, ...]]:
    """
    The slice that represents a Job that has several, and those that are to be finished.

    One that holds quota may stay beside its successor; no other may.
    """
    staying = [each for each in slices if not _is_evicted(each)]
    replacement = _replacements(slices)
    holder: Workload | None = None
    for each in staying:
        successor = replacement.get(each.key)
        if _holds_quota(each) and not (successor is not None and _holds_quota(successor)):
            holder = each
    pending = replacement.get(holder.key) if holder is not None else None
    newest = staying[-1] if staying else None
    selected = pending or holder or newest
    return selected, tuple(each for each in slices if each is not selected and each is not holder)


def _replacements(slices: Sequence[Workload]) -> dict[WorkloadKey, Workload]:
    found: dict[WorkloadKey, Workload] = {}
    for each in slices:
        key = replacement_for(each)
        if key is None or _is_evicted(each):
            continue
        if key not in found or (not _holds_quota(found[key]) and _holds_quota(each)):
            found[key] = each
    return found


def surplus_end(slices: Sequence[Workload], surplus: Workload) -> tuple[str, str]:
    """Reason and message with which a slice that is no longer needed is finished."""
    if surplus.key in _replacements(slices):
        return SLICE_REPLACED, "Replaced to accommodate a new workload slice"
    return conditions.OUT_OF_SYNC, "The workload slice is out of sync with its parent job"


def _holds_quota(workload: Workload) -> bool:
    return workload.stage in HOLDS_QUOTA


def _is_evicted(workload: Workload) -> bool:
    return workload.stage is Stage.EVICTED or conditions.is_true(workload.conditions, conditions.EVICTED)
