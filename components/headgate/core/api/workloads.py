"""
Workloads as facts: what others write in them.

The conditions that Headgate writes itself follow from the log. They are read where another controller may have set
them, and to take over Workloads that were admitted before Headgate was installed.
"""

from msgspec.structs import replace

from headgate.core.api.admission_checks import RESET_MESSAGE
from headgate.core.api.job_kinds import BATCH_JOB, of_owner
from headgate.core.api.metadata_keys import NO_KEYS, MetadataKeys, picked
from headgate.core.api.names import IS_GROUP_WORKLOAD, KUEUE, POD_GROUP_KIND
from headgate.core.api.watched_objects import (
    Metadata,
    WatchedObject,
    check_quantities,
    check_requests,
    controller_of,
    created_ms,
    decode,
    is_held,
    key_in,
    kueue_only,
    renewed,
    trimmed,
)
from headgate.core.kubernetes.conditions import (
    ADMITTED,
    DEACTIVATION_TARGET,
    EVICTED,
    PODS_READY,
    QUOTA_RESERVED,
    REQUEUED,
    find,
)
from headgate.events.facts import Fact, WorkloadObserved
from headgate.events.ids import JobRef, Uid, WorkloadKey
from headgate.events.objects import CheckState, OwnerReference, PodSet, ShownConditions, WorkloadSpec, WorkloadStatus


class _Workload(WatchedObject, frozen=True):
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


def read_workload(raw: bytes, keys: MetadataKeys = NO_KEYS) -> tuple[Metadata, Fact | None]:
    """The metadata and the fact of one Workload, with these of its labels and annotations beside Kueue's own."""
    seen = decode(_Workload, renewed("Workload", raw))
    meta, spec, status = seen.metadata, seen.spec, seen.status
    spec = replace(spec, pod_sets=tuple(_pod_set(number, pod_set) for number, pod_set in enumerate(spec.pod_sets)))
    if status.admission is not None:
        for assignment in status.admission.pod_set_assignments:
            check_quantities("status.admission.podSetAssignments.resourceUsage", assignment.resource_usage)
    finished = find(status.conditions, "Finished")
    is_group = (meta.annotations or {}).get(IS_GROUP_WORKLOAD) == "true"
    owner = _group_of(meta) if is_group else controller_of(meta)
    has_history = bool(status.conditions) or status.admission is not None
    return meta, WorkloadObserved(
        workload=WorkloadKey(key_in(meta)),
        uid=Uid(meta.uid),
        created_ms=created_ms(meta),
        spec=spec,
        generation=meta.generation,
        labels=kueue_only(meta.labels) | picked(meta.labels, keys.labels),
        annotations=kueue_only(meta.annotations) | picked(meta.annotations, keys.annotations),
        owner=owner,
        deleting=meta.deletion_timestamp is not None,
        finalizer=is_held(meta),
        checks=tuple(check for check in status.admission_checks if _is_answer(check)),
        reclaimable_pods=status.reclaimable_pods,
        finished=finished if finished is not None and finished.status == "True" else None,
        preemption_gates=status.preemption_gates,
        pods_ready=None if _is_pods_ready_ours(owner) else find(status.conditions, PODS_READY),
        deactivation_target=find(status.conditions, DEACTIVATION_TARGET),
        taken_over=status if has_history else None,
        shown=_shown(meta, status),
        group_owners=tuple(each.uid for each in meta.owner_references or ()) if is_group else (),
    )


def _group_of(meta: Metadata) -> OwnerReference:
    """The pod group that a Workload was made for, as an owner: it is identified by its name."""
    group = JobRef("", POD_GROUP_KIND, meta.namespace, meta.name)
    return OwnerReference(api_version="v1", kind=POD_GROUP_KIND, name=meta.name, uid=group.key.removeprefix("/"))


def _shown(meta: Metadata, status: WorkloadStatus) -> ShownConditions | None:
    """The conditions that others may write as well as Headgate; whether they are news is decided later."""
    if not status.conditions:
        return None
    version = meta.resource_version
    return ShownConditions(
        version=int(version) if version.isdecimal() else 0,
        quota_reserved=find(status.conditions, QUOTA_RESERVED),
        evicted=find(status.conditions, EVICTED),
        requeued=find(status.conditions, REQUEUED),
        admitted=find(status.conditions, ADMITTED),
    )


def _is_answer(check: CheckState) -> bool:
    """Whether a check's controller has written this: a state, or why it is pending; not an eviction's reset."""
    return check.state != "Pending" or (check.message != "" and not check.message.startswith(RESET_MESSAGE))


def _is_pods_ready_ours(owner: OwnerReference | None) -> bool:
    """
    Whether Headgate writes the PodsReady condition for this owner whatever its configuration says.

    That is a Job, or the parent of variants. For kinds that may be off the informer bridge leaves the condition out.
    """
    if owner is None:
        return False
    return of_owner(owner) is BATCH_JOB or (owner.group, owner.kind) == (KUEUE.rstrip("/"), "Workload")


def _pod_set(number: int, pod_set: PodSet) -> PodSet:
    check_requests(f"spec.podSets[{number}].template.spec", pod_set.template.spec)
    return replace(pod_set, template=trimmed(pod_set.template))
