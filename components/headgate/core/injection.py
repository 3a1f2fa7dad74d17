"""
Injection: what admission puts into a Job's pods, and how it is taken out again.

When a workload is admitted, its Job's pod template gets the node labels and tolerations of its flavors, what its
admission checks ask for, and Kueue's labels and annotation; with partial admission its parallelism becomes what was
admitted. When the Job has to stop, all of that is restored from the Workload's spec, which is what the user gave. This
is Kueue's podset.FromAssignment, Merge and RestorePodSpec (pkg/podset), as JSON merge patches: maps are merged key by
key, a key to remove is null, lists are replaced.

A patch names every key that it wants, and null for every other that an admission may have left behind, because the Job
that the log knows may be older than the Job that is patched. So patches can be repeated, and follow in any order.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from headgate.core.ingest import WORKLOAD_ANNOTATION
from headgate.core.job_workload import CLUSTER_QUEUE_LABEL, LOCAL_QUEUE_LABEL, PODSET_LABEL
from headgate.core.slices import ELASTIC_GATE, is_elastic
from headgate.core.state import State, Workload
from headgate.events.ids import split_key
from headgate.events.objects import Job, PodSet, PodSetAssignment, PodTemplate, Toleration

Json = dict[str, Any]

_LABEL_VALUE_LEN_MAX: Final = 63


class Directives(msgspec.Struct, kw_only=True):
    """What of a pod template admission changes. Labels and annotations are Kueue's only."""

    labels: dict[str, str]
    annotations: dict[str, str]
    node_selector: dict[str, str]
    tolerations: list[Toleration]


class InjectionError(Exception):
    """Raised when a workload cannot be started as it was admitted: a flavor is gone, or its Job has no such pod set."""


class UpdateConflictError(InjectionError):
    """
    Raised when admission checks want pods otherwise than the user, a flavor or another check does.

    It is for good: the workload is finished as FailedToStart (Kueue's ErrInvalidPodSetUpdate).
    """

    def __init__(self, field: str, key: str, have: str, want: str) -> None:
        super().__init__(
            f"invalid admission check PodSetUpdate: conflict for {field}: "
            f"conflict for key={key}, value1={have}, value2={want}"
        )


def original(pod_set: PodSet) -> Directives:
    """What the user gave."""
    template = pod_set.template
    return Directives(
        labels=dict(template.metadata.labels),
        annotations=dict(template.metadata.annotations),
        node_selector=dict(template.spec.node_selector),
        tolerations=list(template.spec.tolerations),
    )


def injected(state: State, workload: Workload) -> tuple[Directives, int]:
    """
    What the template of an admitted workload's only pod set becomes, and how many pods were admitted.

    What the user gave wins over flavors; admission checks may only add. Raises InjectionError, and the
    UpdateConflictError among them when a check wants something else.
    """
    pod_set, assignment = _only_pod_set(workload)
    directives = original(pod_set)
    for flavor in dict.fromkeys(assignment.flavors.values()):
        record = state.flavors.get(flavor)
        if record is None:
            raise InjectionError(f'resourceflavors.kueue.x-k8s.io "{flavor}" not found')
        _keep_first(directives.node_selector, record.spec.node_labels)
        _extend(directives.tolerations, record.spec.tolerations)
    for check in workload.checks:
        for update in check.pod_set_updates:
            if update.name == pod_set.name:
                _add("annotations", directives.annotations, update.annotations)
                _add("labels", directives.labels, update.labels)
                _add("nodeSelector", directives.node_selector, update.node_selector)
                _extend(directives.tolerations, update.tolerations)
    queues = {CLUSTER_QUEUE_LABEL: workload.cluster_queue, LOCAL_QUEUE_LABEL: workload.spec.queue_name}
    for label, value in ({PODSET_LABEL: pod_set.name} | queues).items():
        # A name that is too long for a label's value is left out, as Kueue does.
        if value and len(value) <= _LABEL_VALUE_LEN_MAX:
            directives.labels[label] = value
    directives.annotations[WORKLOAD_ANNOTATION] = split_key(workload.key)[1]
    return directives, assignment.count


def _only_pod_set(workload: Workload) -> tuple[PodSet, PodSetAssignment]:
    assignments = workload.admission.pod_set_assignments if workload.admission is not None else ()
    if len(workload.spec.pod_sets) != 1 or len(assignments) != 1:
        raise InjectionError(f"a Job has one pod set, but {workload.key} has {len(workload.spec.pod_sets)}")
    return workload.spec.pod_sets[0], assignments[0]


def _keep_first(into: dict[str, str], more: Mapping[str, str]) -> None:
    for key, value in more.items():
        into.setdefault(key, value)


def _add(field: str, into: dict[str, str], more: Mapping[str, str]) -> None:
    for key, value in sorted(more.items()):
        if into.setdefault(key, value) != value:
            raise UpdateConflictError(field, key, into[key], value)


def _extend(tolerations: list[Toleration], more: Iterable[Toleration]) -> None:
    tolerations.extend(toleration for toleration in dict.fromkeys(more) if toleration not in tolerations)


# --- patches -------------------------------------------------------------------------------------------------------


def start_patch(state: State, workload: Workload, job: Job) -> Json:
    """
    The merge patch that resumes an admitted workload's Job on its flavors.

    Raises InjectionError.
    """
    directives, count = injected(state, workload)
    patch = _patch(job, {"suspend": False, **_parallelism(job, count)}, directives, _left_behind(state, workload))
    if is_elastic(state.configuration, workload.annotations):
        patch["spec"]["template"]["spec"]["schedulingGates"] = _gated(job)
    return patch


def _gated(job: Job) -> list[Json]:
    """The scheduling gates of an elastic Job's template: with the one behind which pods wait for their slice."""
    names = [gate.name for gate in job.template.spec.scheduling_gates]
    return [{"name": name} for name in dict.fromkeys([*names, ELASTIC_GATE])]


def stop_patch(job: Job) -> Json:
    """The merge patch that suspends a Job. Its template is closed until it has stopped; `restore_patch` comes then."""
    return {"metadata": {"uid": job.uid}, "spec": {"suspend": True}}


def reset_start_time_patch(job_uid: str) -> Json:
    """The merge patch of a suspended Job's status that opens its template: the API server closes it once it started."""
    return {"metadata": {"uid": job_uid}, "status": {"startTime": None}}


def restore_patch(state: State, workload: Workload, job: Job) -> Json:
    """The merge patch that gives a stopped Job back the template and parallelism that its user gave."""
    pod_set = workload.spec.pod_sets[0]
    return _patch(job, _parallelism(job, pod_set.count), original(pod_set), _left_behind(state, workload))


def needs_restoring(workload: Workload, job: Job) -> bool:
    """Whether a stopped Job still carries what an admission has put into it."""
    return (
        job.suspended
        and job.active == 0
        and job.finished is None
        and len(workload.spec.pod_sets) == 1
        and carries_injection(job.template)
        and not carries_injection(workload.spec.pod_sets[0].template)
    )


def _parallelism(job: Job, count: int) -> Json:
    """Only Jobs that accept partial admission have their parallelism set."""
    if job.min_parallelism is None:
        return {}
    return {"parallelism": count} | ({"completions": count} if job.completions_equal_parallelism else {})


class _LeftBehind(msgspec.Struct, frozen=True):
    """The keys that an earlier admission may have left in a pod template."""

    labels: tuple[str, ...]
    annotations: tuple[str, ...]
    node_selector: tuple[str, ...]


def _left_behind(state: State, workload: Workload) -> _LeftBehind:
    """By the flavors of the ClusterQueue, and what the checks of the last admission have asked for."""
    record = state.cluster_queues.get(workload.cluster_queue)
    groups = record.spec.resource_groups if record is not None else ()
    flavors = [state.flavors.get(quotas.name) for group in groups for quotas in group.flavors]
    injected = workload.injected
    return _LeftBehind(
        labels=tuple(key for update in injected for key in update.labels),
        annotations=tuple(key for update in injected for key in update.annotations),
        node_selector=(
            *(label for flavor in flavors if flavor is not None for label in flavor.spec.node_labels),
            *(key for update in injected for key in update.node_selector),
        ),
    )


def _patch(job: Job, spec: Json, wanted: Directives, left: _LeftBehind) -> Json:
    template = job.template
    metadata = {
        "labels": _merged([*template.metadata.labels, *left.labels], wanted.labels),
        "annotations": _merged([*template.metadata.annotations, *left.annotations], wanted.annotations),
    }
    selector = _merged([*template.spec.node_selector, *left.node_selector], wanted.node_selector)
    changes: Json = {"metadata": {key: value for key, value in metadata.items() if value}, "spec": {}}
    if selector:
        changes["spec"]["nodeSelector"] = selector
    # Lists are replaced as a whole, and null for one that is not there does nothing.
    changes["spec"]["tolerations"] = [msgspec.to_builtins(each) for each in wanted.tolerations] or None
    return {"metadata": {"uid": job.uid}, "spec": {**spec, "template": changes}}


def _merged(have: Iterable[str], want: Mapping[str, str]) -> dict[str, str | None]:
    """What has to be merged into a map that may have certain keys to get another."""
    return dict(want) | {key: None for key in have if key not in want}


def carries_injection(template: PodTemplate) -> bool:
    """Whether a pod template carries what an admission has put into it."""
    return WORKLOAD_ANNOTATION in template.metadata.annotations
