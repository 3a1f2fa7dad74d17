"""
The fold of facts about everything but workloads, nodes and pods, and of the other processes' effects on jobs.

Called by `headgate.core.fold` only. Each function applies one event type to the state; changes that may let waiting
workloads fit are recorded in `State.freed`, from which the queue manager wakes them.
"""
# Over 400 lines: one short handler for each event type, and the table of all of them.

from collections.abc import Callable, Iterable
from typing import Never

from msgspec.structs import replace

from headgate.core.api.admission_checks import checks_for, flavors_of
from headgate.core.fold import topology_usage
from headgate.core.fold import usage as fold_usage
from headgate.core.kubernetes.conditions import rfc3339
from headgate.core.log import reconciliation
from headgate.core.quota import turnover
from headgate.core.quota.cohorts import alone, root_of, tree_of
from headgate.core.quota.usage_order import renew
from headgate.core.state.attribution import about
from headgate.core.state.handlers import EventHandlers
from headgate.core.state.tables import (
    CheckRecord,
    ClusterQueueRecord,
    CohortRecord,
    FlavorRecord,
    JobRecord,
    LocalQueueRecord,
    NamespaceRecord,
    PriorityClassRecord,
    SnapshotRecord,
    Stage,
    State,
)
from headgate.core.workload.ordering import arrived
from headgate.core.workload.owners import job_key, workload_of
from headgate.core.workload.pods_ready import WAITING_FOR_PODS_READY, all_ready, follow
from headgate.core.workload.replacement_pods import follow_absent_pods
from headgate.events import effects, facts
from headgate.events.commit import Commit
from headgate.events.ids import JobKey, Seq, split_key
from headgate.events.objects import ResourceGroup

ANY = "*"
"""In `State.freed`: a change that may help any workload of the tree."""


def free(state: State, tree: str, flavor_resources: Iterable[str], seq: Seq) -> None:
    """
    Record that quota of these `<flavor>/<resource>` in a tree was freed or raised at a position.

    The tree is moved to the end of the table, so that the newest changes are found without a pass over every tree.
    """
    changed = dict.fromkeys(flavor_resources, seq)
    if changed:
        state.freed[tree] = {**state.freed.pop(tree, {}), **changed}


def tree_in(state: State, cluster_queue: str) -> str:
    """The tree of a ClusterQueue as the index has it; a deleted one has a tree of its own."""
    return state.index.trees.get(cluster_queue) or alone(cluster_queue)


def mark_blocked(state: State, cluster_queue: str) -> None:
    """A head blocks this ClusterQueue: index it under its tree."""
    state.index.standing.setdefault(tree_in(state, cluster_queue), {})[cluster_queue] = None


def unmark_blocked(state: State, cluster_queue: str, tree: str) -> None:
    """No head blocks this ClusterQueue in this tree any more."""
    standing = state.index.standing.get(tree)
    if standing is not None:
        standing.pop(cluster_queue, None)
        if not standing:
            del state.index.standing[tree]


def wake_for_pods(state: State, seq: Seq) -> None:
    """Workloads that fit and wait for the pods of others may be tried when all of these are ready (blockAdmission)."""
    waiting = state.configuration.wait_for_pods_ready
    if waiting is None or not waiting.block_admission:
        return
    trees = [
        tree
        for tree in sorted(state.index.standing)
        if any(_waits_for_pods(state, name) for name in state.index.standing[tree])
    ]
    if trees and all_ready(state):
        for tree in trees:
            free(state, tree, (ANY,), seq)


def _waits_for_pods(state: State, cluster_queue: str) -> bool:
    head = state.workloads.get(state.sleeps[cluster_queue].blocked_by)
    return head is not None and head.verdict is not None and head.verdict.reason == WAITING_FOR_PODS_READY


def free_where(state: State, concerns: Callable[[ClusterQueueRecord], bool], seq: Seq) -> None:
    """Any quota may have been freed in the trees of the ClusterQueues that match."""
    for tree in {state.index.trees[name]: None for name, record in state.cluster_queues.items() if concerns(record)}:
        free(state, tree, (ANY,), seq)


def _uses_flavor(groups: tuple[ResourceGroup, ...], flavor: str) -> bool:
    return any(quotas.name == flavor for group in groups for quotas in group.flavors)


def _list_trees(state: State) -> None:
    """Index every ClusterQueue's tree, and in which of them namespaces are selected."""
    state.index.trees = {name: tree_of(name, state) for name in state.cluster_queues}
    state.index.selecting = {}
    for name in state.cluster_queues:
        _list_selecting(state, name)


def _list_selecting(state: State, name: str) -> None:
    record = state.cluster_queues.get(name)
    if record is not None and record.spec.namespace_selector is not None:
        state.index.selecting.setdefault(state.index.trees[name], {})[name] = None


def _unlist_selecting(state: State, name: str) -> None:
    tree = state.index.trees.get(name, "")
    selecting = state.index.selecting.get(tree)
    if selecting is not None:
        selecting.pop(name, None)
        if not selecting:
            del state.index.selecting[tree]


def _retree(state: State, seq: Seq) -> None:
    """Index every ClusterQueue's tree again after a cohort has changed; all quota of changed trees counts as freed."""
    before = state.index.trees
    _list_trees(state)
    for name, tree in state.index.trees.items():
        if before.get(name) != tree:
            free(state, tree, (ANY,), seq)
            if name in before:
                free(state, before[name], (ANY,), seq)
    for name, sleep in state.sleeps.items():
        if sleep.blocked_by and before.get(name) != state.index.trees.get(name):
            unmark_blocked(state, name, before.get(name, alone(name)))
            mark_blocked(state, name)


def _retree_one(state: State, name: str, seq: Seq) -> None:
    """As `_retree`, after a change of one ClusterQueue: the trees of the others do not depend on it."""
    _unlist_selecting(state, name)
    before = state.index.trees.pop(name, None)
    after = tree_of(name, state) if name in state.cluster_queues else None
    if after is not None:
        state.index.trees[name] = after
        _list_selecting(state, name)
    if before == after:
        return
    if after is not None:
        free(state, after, (ANY,), seq)
        if before is not None:
            free(state, before, (ANY,), seq)
    sleep = state.sleeps.get(name)
    if sleep is not None and sleep.blocked_by:
        unmark_blocked(state, name, before or alone(name))
        mark_blocked(state, name)


def _informers_synced(state: State, event: facts.InformersSynced, commit: Commit, seq: Seq) -> None:
    state.synced = True
    if event.resources or not event.resource_versions:
        # Later marks of a term name no resources; one that only withdraws marks precedes the complete listing.
        state.relisting = False
    if event.resources:
        reconciliation.end(state)
    if event.cluster_id not in {"", state.cluster_id} or event.reading not in {0, state.reading}:
        state.resource_versions = {}
        state.anchor = ""
    state.cluster_id = event.cluster_id or state.cluster_id
    state.reading = event.reading or state.reading
    if event.anchor is not None:
        state.anchor = event.anchor
    for resource, version in event.resource_versions.items():
        if version:
            state.resource_versions[resource] = version
        else:
            state.resource_versions.pop(resource, None)


def _namespace_observed(state: State, event: facts.NamespaceObserved, commit: Commit, seq: Seq) -> None:
    old = state.namespaces.get(event.name)
    state.namespaces[event.name] = NamespaceRecord(labels=event.labels, terminating=event.terminating)
    if old is None or old.labels != event.labels:
        for tree in state.index.selecting:
            free(state, tree, (ANY,), seq)


def _namespace_deleted(state: State, event: facts.NamespaceDeleted, commit: Commit, seq: Seq) -> None:
    state.namespaces.pop(event.name, None)


def as_flavor(event: facts.ResourceFlavorObserved) -> FlavorRecord:
    """The record for a fact about a ResourceFlavor."""
    return FlavorRecord(
        spec=event.spec,
        generation=event.generation,
        uid=event.uid,
        deleting=event.deleting,
        finalizer=event.finalizer,
    )


def _flavor_observed(state: State, event: facts.ResourceFlavorObserved, commit: Commit, seq: Seq) -> None:
    before = state.flavors.get(event.name)
    state.flavors[event.name] = as_flavor(event)
    if before is not None and before.spec == event.spec:
        return
    free_where(state, lambda record: _uses_flavor(record.spec.resource_groups, event.name), seq)


def _flavor_deleted(state: State, event: facts.ResourceFlavorDeleted, commit: Commit, seq: Seq) -> None:
    state.flavors.pop(event.name, None)
    free_where(state, lambda record: _uses_flavor(record.spec.resource_groups, event.name), seq)


def _cohort_observed(state: State, event: facts.CohortObserved, commit: Commit, seq: Seq) -> None:
    before = state.cohorts.get(event.name)
    state.cohorts[event.name] = as_cohort(event)
    if before is not None and (before.spec, before.generation) == (event.spec, event.generation):
        # Its labels, which decide nothing.
        return
    _retree(state, seq)
    _free_cohort(state, event.name, seq)


def as_cohort(event: facts.CohortObserved) -> CohortRecord:
    """The record for a fact about a Cohort."""
    return CohortRecord(
        spec=event.spec, generation=event.generation, labels=event.labels, annotations=event.annotations
    )


def _cohort_deleted(state: State, event: facts.CohortDeleted, commit: Commit, seq: Seq) -> None:
    _free_cohort(state, event.name, seq)
    state.cohorts.pop(event.name, None)
    _retree(state, seq)


def _free_cohort(state: State, cohort: str, seq: Seq) -> None:
    free(state, root_of(cohort, state.cohorts), (ANY,), seq)


def _cluster_queue_observed(state: State, event: facts.ClusterQueueObserved, commit: Commit, seq: Seq) -> None:
    before = state.cluster_queues.get(event.name)
    state.cluster_queues[event.name] = as_cluster_queue(event)
    if before is not None and (before.spec, before.uid, before.deleting) == (event.spec, event.uid, event.deleting):
        # For example its finalizer: no workload can wait for that.
        return
    _retree_one(state, event.name, seq)
    renew(state, event.name)
    free(state, state.index.trees[event.name], (ANY,), seq)
    if before is not None and before.spec.admission_checks_strategy != event.spec.admission_checks_strategy:
        _sync_checks(state, event, commit)


def as_cluster_queue(event: facts.ClusterQueueObserved) -> ClusterQueueRecord:
    """The record for a fact about a ClusterQueue."""
    return ClusterQueueRecord(
        spec=event.spec,
        uid=event.uid,
        generation=event.generation,
        deleting=event.deleting,
        finalizer=event.finalizer,
        labels=event.labels,
        annotations=event.annotations,
    )


def _sync_checks(state: State, event: facts.ClusterQueueObserved, commit: Commit) -> None:
    """Give quota holders the checks that the ClusterQueue names now (Kueue's reconcileSyncAdmissionChecks)."""
    now = rfc3339(commit.time_ms)
    for key in state.index.holders.get(event.name, ()):
        with about("Workload", key):
            workload = state.workloads[key]
            if workload.admission is not None and workload.stage in (Stage.RESERVED, Stage.ADMITTED):
                before = {check.name: check for check in workload.checks}
                workload.checks = checks_for(event.spec, flavors_of(workload.admission), before, now)


def _cluster_queue_deleted(state: State, event: facts.ClusterQueueDeleted, commit: Commit, seq: Seq) -> None:
    if state.cluster_queues.pop(event.name, None) is None:
        return
    free(state, state.index.trees[event.name], (ANY,), seq)
    _retree_one(state, event.name, seq)
    renew(state, event.name)
    turnover.forget(state, event.name)


def _local_queue_observed(state: State, event: facts.LocalQueueObserved, commit: Commit, seq: Seq) -> None:
    before = state.local_queues.get(event.queue)
    is_new = before is None or before.uid != event.uid
    if before is not None and is_new:
        fold_usage.forget(state, event.queue)
    state.local_queues[event.queue] = as_local_queue(event)
    fold_usage.seed(state, event, is_new=is_new)


def as_local_queue(event: facts.LocalQueueObserved) -> LocalQueueRecord:
    """The record for a fact about a LocalQueue."""
    return LocalQueueRecord(
        spec=event.spec,
        uid=event.uid,
        generation=event.generation,
        labels=event.labels,
        annotations=event.annotations,
    )


def _local_queue_deleted(state: State, event: facts.LocalQueueDeleted, commit: Commit, seq: Seq) -> None:
    state.local_queues.pop(event.queue, None)
    fold_usage.forget(state, event.queue)


def _workload_priority_class_observed(
    state: State, event: facts.WorkloadPriorityClassObserved, commit: Commit, seq: Seq
) -> None:
    state.workload_priority_classes[event.name] = event.value


def _workload_priority_class_deleted(
    state: State, event: facts.WorkloadPriorityClassDeleted, commit: Commit, seq: Seq
) -> None:
    state.workload_priority_classes.pop(event.name, None)


def _priority_class_observed(state: State, event: facts.PriorityClassObserved, commit: Commit, seq: Seq) -> None:
    state.priority_classes[event.name] = PriorityClassRecord(value=event.value, global_default=event.global_default)


def _priority_class_deleted(state: State, event: facts.PriorityClassDeleted, commit: Commit, seq: Seq) -> None:
    state.priority_classes.pop(event.name, None)


def as_check(event: facts.AdmissionCheckObserved) -> CheckRecord:
    """The record of an AdmissionCheck as it was observed."""
    return CheckRecord(
        spec=event.spec,
        active=event.active,
        uid=event.uid,
        generation=event.generation,
        condition=event.condition,
    )


def _check_observed(state: State, event: facts.AdmissionCheckObserved, commit: Commit, seq: Seq) -> None:
    before = state.admission_checks.get(event.name)
    state.admission_checks[event.name] = as_check(event)
    if before is None or before.spec.controller_name != event.spec.controller_name:
        # Another controller answers it from now on, or it is ours now.
        for workload in state.workloads.values():
            if event.name in workload.decided_checks:
                kept = (name for name in workload.decided_checks if name != event.name)
                workload.decided_checks = tuple(kept)
    _free_check(state, event.name, seq)


def _check_deleted(state: State, event: facts.AdmissionCheckDeleted, commit: Commit, seq: Seq) -> None:
    state.admission_checks.pop(event.name, None)
    _free_check(state, event.name, seq)


def _free_check(state: State, check: str, seq: Seq) -> None:
    def names(record: ClusterQueueRecord) -> bool:
        strategy = record.spec.admission_checks_strategy
        return strategy is not None and any(rule.name == check for rule in strategy.admission_checks)

    free_where(state, names, seq)


def _limit_range_observed(state: State, event: facts.LimitRangeObserved, commit: Commit, seq: Seq) -> None:
    state.limit_ranges[event.limit_range] = event.limits
    topology_usage.reoccupy(state, split_key(event.limit_range)[0])


def _limit_range_deleted(state: State, event: facts.LimitRangeDeleted, commit: Commit, seq: Seq) -> None:
    state.limit_ranges.pop(event.limit_range, None)
    topology_usage.reoccupy(state, split_key(event.limit_range)[0])


def _runtime_class_observed(state: State, event: facts.RuntimeClassObserved, commit: Commit, seq: Seq) -> None:
    state.runtime_classes[event.name] = event.overhead
    topology_usage.reoccupy(state)


def _runtime_class_deleted(state: State, event: facts.RuntimeClassDeleted, commit: Commit, seq: Seq) -> None:
    state.runtime_classes.pop(event.name, None)
    topology_usage.reoccupy(state)


# --- jobs ----------------------------------------------------------------------------------------------------------


def _job_observed(state: State, event: facts.JobObserved, commit: Commit, seq: Seq) -> None:
    record = state.jobs.get(event.job)
    if record is None or record.job.uid != event.spec.uid:
        if record is not None:
            # Only one object of a name exists at a time.
            _lose_owner(state, event.job, record.job.uid)
        state.jobs[event.job] = JobRecord(job=event.spec, arrival=arrived(seq, event.arrival))
        _follow(state, event, commit, seq)
        return
    is_same = record.job.template == event.spec.template and record.job.pod_sets == event.spec.pod_sets
    if record.job.queue_name != event.spec.queue_name or not is_same:
        record.refused = ""
    if event.spec.suspended and not record.job.suspended:
        record.started_for = ""
    # Once the Workload follows its Job, the newest template is the Workload's too.
    before = record.job
    kept = replace(event.spec, uid=before.uid, template=before.template, pod_sets=before.pod_sets)
    record.job = kept if is_same else event.spec
    record.action_refused = ""
    _follow(state, event, commit, seq)


def _follow(state: State, event: facts.JobObserved, commit: Commit, seq: Seq) -> None:
    """Take over from a job's status whether the pods of its workload are ready."""
    workload = workload_of(state, event.job, event.spec.uid)
    if workload is not None:
        follow(state, workload, commit.time_ms)
        follow_absent_pods(state, workload, commit.time_ms)
        wake_for_pods(state, seq)


def _job_deleted(state: State, event: facts.JobDeleted, commit: Commit, seq: Seq) -> None:
    record = state.jobs.get(event.job)
    if record is not None and record.job.uid == event.uid:
        del state.jobs[event.job]
        if event.gone:
            _lose_owner(state, event.job, event.uid)


def _lose_owner(state: State, job: JobKey, uid: str) -> None:
    """A job is proved deleted: what was created for it may end because of that."""
    for key in state.index.owned(uid):
        workload = state.workloads[key]
        if job_key(state, workload) == job:
            workload.owner_gone = workload.stage is not Stage.FINISHED


def _job_of(state: State, job: JobKey, uid: str) -> JobRecord | None:
    record = state.jobs.get(job)
    return record if record is not None and record.job.uid == uid else None


def _workload_created(state: State, event: effects.WorkloadCreated, commit: Commit, seq: Seq) -> None:
    if record := _job_of(state, event.job, event.job_uid):
        record.workload, record.refused = event.workload, ""


def _variant_changed(state: State, event: effects.VariantChanged, commit: Commit, seq: Seq) -> None:
    """No-op: the watch reports the result."""


def _workload_create_rejected(state: State, event: effects.WorkloadCreateRejected, commit: Commit, seq: Seq) -> None:
    if record := _job_of(state, event.job, event.job_uid):
        record.refused = f"{event.code} {event.reason}: {event.message}"


def _job_started(state: State, event: effects.JobStarted, commit: Commit, seq: Seq) -> None:
    if record := _job_of(state, event.job, event.job_uid):
        record.started_for, record.action_refused = event.workload_uid, ""


def _job_start_rejected(state: State, event: effects.JobStartRejected, commit: Commit, seq: Seq) -> None:
    if record := _job_of(state, event.job, event.job_uid):
        record.action_refused = f"{event.code} {event.reason}: {event.message}"


def _job_stopped(state: State, event: effects.JobStopped, commit: Commit, seq: Seq) -> None:
    if record := _job_of(state, event.job, event.job_uid):
        record.started_for, record.stopped_at, record.action_refused = "", seq, ""


def _job_stop_rejected(state: State, event: effects.JobStopRejected, commit: Commit, seq: Seq) -> None:
    if record := _job_of(state, event.job, event.job_uid):
        record.action_refused = f"{event.code} {event.reason}: {event.message}"


def _snapshot_taken(state: State, event: effects.SnapshotTaken, commit: Commit, seq: Seq) -> None:
    state.snapshot = SnapshotRecord(
        position=event.position, state_hash=event.state_hash, log_hash=event.log_hash, name=event.name
    )


def _divergence_found(state: State, event: effects.DivergenceFound, commit: Commit, seq: Seq) -> None:
    """No-op: the event is only there to be read."""


def reindex(state: State) -> None:
    """Rebuild the indexes that follow from the tables of this module."""
    _list_trees(state)
    fold_usage.reindex(state)


HANDLERS = (
    EventHandlers[Never]()
    .on(facts.InformersSynced, _informers_synced)
    .on(facts.NamespaceObserved, _namespace_observed)
    .on(facts.NamespaceDeleted, _namespace_deleted)
    .on(facts.ResourceFlavorObserved, _flavor_observed)
    .on(facts.ResourceFlavorDeleted, _flavor_deleted)
    .on(facts.CohortObserved, _cohort_observed)
    .on(facts.CohortDeleted, _cohort_deleted)
    .on(facts.ClusterQueueObserved, _cluster_queue_observed)
    .on(facts.ClusterQueueDeleted, _cluster_queue_deleted)
    .on(facts.LocalQueueObserved, _local_queue_observed)
    .on(facts.LocalQueueDeleted, _local_queue_deleted)
    .on(facts.WorkloadPriorityClassObserved, _workload_priority_class_observed)
    .on(facts.WorkloadPriorityClassDeleted, _workload_priority_class_deleted)
    .on(facts.PriorityClassObserved, _priority_class_observed)
    .on(facts.PriorityClassDeleted, _priority_class_deleted)
    .on(facts.AdmissionCheckObserved, _check_observed)
    .on(facts.AdmissionCheckDeleted, _check_deleted)
    .on(facts.LimitRangeObserved, _limit_range_observed)
    .on(facts.LimitRangeDeleted, _limit_range_deleted)
    .on(facts.RuntimeClassObserved, _runtime_class_observed)
    .on(facts.RuntimeClassDeleted, _runtime_class_deleted)
    .on(facts.JobObserved, _job_observed)
    .on(facts.JobDeleted, _job_deleted)
    .on(effects.WorkloadCreated, _workload_created)
    .on(effects.WorkloadCreateRejected, _workload_create_rejected)
    .on(effects.VariantChanged, _variant_changed)
    .on(effects.JobStarted, _job_started)
    .on(effects.JobStartRejected, _job_start_rejected)
    .on(effects.JobStopped, _job_stopped)
    .on(effects.JobStopRejected, _job_stop_rejected)
    .on(effects.SnapshotTaken, _snapshot_taken)
    .on(effects.DivergenceFound, _divergence_found)
)
