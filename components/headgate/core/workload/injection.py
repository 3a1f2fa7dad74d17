"""
Injection: what admission adds to a Job's pods, and how it is removed again.

When a workload is admitted, its Job's pod template gets the node labels and tolerations of its flavors, the changes of
its admission checks, and Kueue's labels and annotation; with partial admission its parallelism becomes what was
admitted. Pods that have to wait get a scheduling gate: for their topology domain, or for the slice of an elastic Job.
The ungater removes it pod by pod, and gives the pod the node selectors of its domain. When the Job has to stop, all of
that is restored from the Workload's spec, which has the user's values. This is Kueue's podset.FromAssignment, Merge and
RestorePodSpec (pkg/podset); the integration of the kind turns it into patches.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from headgate.core.api.job_kinds import title
from headgate.core.api.names import PODSET_LABEL, WORKLOAD_ANNOTATION
from headgate.core.config import feature_gates
from headgate.core.config.feature_gates import enabled
from headgate.core.jobs.integration import Directives, LeftBehind, Patch, PodSetMismatchError, PodSetState
from headgate.core.jobs.marks import CLUSTER_QUEUE_LABEL, LOCAL_QUEUE_LABEL, TOPOLOGY_GATE, UNCONSTRAINED_TOPOLOGY
from headgate.core.jobs.registry import integration_of
from headgate.core.state.tables import State, Workload
from headgate.core.workload.slices import ELASTIC_GATE, is_elastic
from headgate.events.configuration import Configuration
from headgate.events.ids import JobKey, split_key
from headgate.events.objects import Job, PodSet, PodSetAssignment, Toleration, TopologyRequest

_LABEL_VALUE_LEN_MAX: Final = 63


class InjectionError(Exception):
    """Raised when a workload cannot be started as admitted: a flavor is gone, or its Job has no such pod set."""


class UpdateConflictError(InjectionError):
    """
    Raised when admission checks conflict with the user, a flavor or another check about the pods.

    It is permanent: the workload is finished as FailedToStart (Kueue's ErrInvalidPodSetUpdate).
    """

    def __init__(self, field: str, key: str, have: str, want: str) -> None:
        super().__init__(
            f"invalid admission check PodSetUpdate: conflict for {field}: "
            f"conflict for key={key}, value1={have}, value2={want}"
        )


def original(pod_set: PodSet) -> Directives:
    """The user's template."""
    template = pod_set.template
    return Directives(
        labels=dict(template.metadata.labels),
        annotations=dict(template.metadata.annotations),
        node_selector=dict(template.spec.node_selector),
        tolerations=list(template.spec.tolerations),
        scheduling_gates=[gate.name for gate in template.spec.scheduling_gates],
    )


Templates = dict[str, tuple[Directives, int]]
"""The templates of pod sets, and how many pods of each there are, by name."""


def injected(state: State, workload: Workload) -> Templates:
    """
    The templates of an admitted workload's pod sets, and how many pods of each were admitted, by name.

    The user's values win over flavors; admission checks may only add. Raises InjectionError, and its subclass
    UpdateConflictError when a check conflicts.
    """
    assignments = workload.admission.pod_set_assignments if workload.admission is not None else ()
    by_name = {each.name: each for each in assignments}
    if by_name.keys() != {each.name for each in workload.spec.pod_sets}:
        raise InjectionError(f"the admission of {workload.key} has other pod sets than its spec")
    return {
        pod_set.name: (_injected(state, workload, pod_set, by_name[pod_set.name]), by_name[pod_set.name].count)
        for pod_set in workload.spec.pod_sets
    }


def _injected(state: State, workload: Workload, pod_set: PodSet, assignment: PodSetAssignment) -> Directives:
    directives = original(pod_set)
    _take_to_flavors(state, directives, assignment)
    for check in workload.checks:
        for update in check.pod_set_updates:
            if update.name == pod_set.name:
                _add("annotations", directives.annotations, update.annotations)
                _add("labels", directives.labels, update.labels)
                _add("nodeSelector", directives.node_selector, update.node_selector)
                _extend(directives.tolerations, update.tolerations)
    queues = {CLUSTER_QUEUE_LABEL: workload.cluster_queue, LOCAL_QUEUE_LABEL: workload.spec.queue_name}
    for label, value in ({PODSET_LABEL: pod_set.name} | queues).items():
        # A name that exceeds the limit of a label's value is left out, as in Kueue.
        if value and len(value) <= _LABEL_VALUE_LEN_MAX:
            directives.labels[label] = value
    directives.annotations[WORKLOAD_ANNOTATION] = split_key(workload.key)[1]
    _hold(state.configuration, directives, workload, pod_set, assignment)
    return directives


def assigned(state: State, pod_set: PodSet, assignment: PodSetAssignment) -> Directives:
    """
    The template of a pod set as its quota reservation has it: on its flavors, and nothing of its admission checks.

    Raises InjectionError.
    """
    directives = original(pod_set)
    _take_to_flavors(state, directives, assignment)
    _hold_for_domain(state.configuration, directives, pod_set, assignment)
    return directives


def _take_to_flavors(state: State, directives: Directives, assignment: PodSetAssignment) -> None:
    for flavor in dict.fromkeys(assignment.flavors.values()):
        record = state.flavors.get(flavor)
        if record is None:
            raise InjectionError(f'resourceflavors.kueue.x-k8s.io "{flavor}" not found')
        _keep_first(directives.node_selector, record.spec.node_labels)
        _extend(directives.tolerations, record.spec.tolerations)


def _hold(
    configuration: Configuration,
    directives: Directives,
    workload: Workload,
    pod_set: PodSet,
    assignment: PodSetAssignment,
) -> None:
    """Gate the pods that have to wait for their topology domain or for the slice of an elastic Job."""
    _hold_for_domain(configuration, directives, pod_set, assignment)
    if is_elastic(configuration, workload.annotations):
        _gate(directives, ELASTIC_GATE)


def _hold_for_domain(
    configuration: Configuration, directives: Directives, pod_set: PodSet, assignment: PodSetAssignment
) -> None:
    if is_assigned(configuration, assignment):
        _gate(directives, TOPOLOGY_GATE)
        request = pod_set.topology_request or TopologyRequest()
        if request.required is None and request.preferred is None and request.unconstrained is None:
            directives.annotations[UNCONSTRAINED_TOPOLOGY] = "true"


def is_assigned(configuration: Configuration, assignment: PodSetAssignment) -> bool:
    """Whether the pods of a pod set wait for the topology domains that they were assigned to."""
    return assignment.topology_assignment is not None and enabled(
        configuration, feature_gates.TOPOLOGY_AWARE_SCHEDULING
    )


def _gate(directives: Directives, gate: str) -> None:
    if gate not in directives.scheduling_gates:
        directives.scheduling_gates.append(gate)


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


def start_patches(state: State, key: JobKey, workload: Workload, job: Job, raw: bytes = b"") -> tuple[Patch, ...]:
    """
    The patches, in their order, that resume an admitted workload's job on its flavors.

    `raw` is the job as the API server has it, for kinds that read it first. Raises InjectionError.
    """
    pod_sets = [
        PodSetState(name, count, directives, _left_behind(state, workload))
        for name, (directives, count) in injected(state, workload).items()
    ]
    integration = integration_of(key)
    if len(integration.pod_counts(job)) != len(pod_sets):
        raise InjectionError(f"{title(key)} has another number of pod sets than its Workload {workload.key}")
    try:
        return integration.start(job, pod_sets, raw)
    except PodSetMismatchError as error:
        raise InjectionError(f"{title(key)} cannot be started: {error}") from error


def restore_patch(state: State, key: JobKey, workload: Workload, job: Job, raw: bytes = b"") -> Patch:
    """
    The patch that restores the user's templates and counts of a stopped job. `raw` as for `start_patches`.

    Raises InjectionError.
    """
    pod_sets = [
        PodSetState(each.name, each.count, original(each), _left_behind(state, workload))
        for each in workload.spec.pod_sets
    ]
    try:
        return integration_of(key).restore(job, pod_sets, raw)
    except PodSetMismatchError as error:
        raise InjectionError(f"{title(key)} cannot be restored: {error}") from error


def needs_restoring(key: JobKey, workload: Workload, job: Job) -> bool:
    """Whether a stopped job still contains what an admission has injected."""
    integration = integration_of(key)
    return (
        job.suspended
        and job.active == 0
        and job.finished is None
        and len(integration.pod_counts(job)) == len(workload.spec.pod_sets)
        and integration.carries_injection(job)
        and not any(WORKLOAD_ANNOTATION in each.template.metadata.annotations for each in workload.spec.pod_sets)
    )


def _left_behind(state: State, workload: Workload) -> LeftBehind:
    """The keys from the flavors of the ClusterQueue, and from the checks of the last admission."""
    record = state.cluster_queues.get(workload.cluster_queue)
    groups = record.spec.resource_groups if record is not None else ()
    flavors = [state.flavors.get(quotas.name) for group in groups for quotas in group.flavors]
    injected = workload.injected
    return LeftBehind(
        labels=tuple(key for update in injected for key in update.labels),
        annotations=tuple(key for update in injected for key in update.annotations),
        node_selector=(
            *(label for flavor in flavors if flavor is not None for label in flavor.spec.node_labels),
            *(key for update in injected for key in update.node_selector),
        ),
    )
