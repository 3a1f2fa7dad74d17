"""
Kueue's gauges, read from a state on request: what exists has values, what is gone has none.

`GAUGES` has the function of each by its name; the gauge of the last cycle is counted (`kueue_counts`). Called by
`kueue_metrics`. Pure functions of the state.
"""

import importlib.metadata
import math
import platform
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from headgate.core.kubernetes import conditions
from headgate.core.kubernetes.quantities import QuantityError
from headgate.core.quota.activeness import cluster_queue_active, local_queue_active
from headgate.core.quota.admission_fair_sharing import local_queue_usage, orders_by_usage
from headgate.core.quota.tree import Quota, quotas_of
from headgate.core.state.resting import WorkloadAtRest
from headgate.core.state.tables import ClusterQueueRecord, FlavorResource, Stage, State, Workload, local_queue_of
from headgate.core.status.queue_status import count_holders, count_local_queue, is_pending_in_queue
from headgate.core.workload.pod_requests import limits_of, pod_set_requests
from headgate.core.workload.unadmitted_reasons import is_granular
from headgate.events.ids import LocalQueueKey, Shape, split_key
from headgate.processes.telemetry import kueue_cohorts as cohorts
from headgate.processes.telemetry.custom_labels import labels_of, values_of
from headgate.processes.telemetry.kueue_catalogue import ADMITTED, ADMITTED_BELOW, ROLE, sources_of
from headgate.processes.telemetry.kueue_labels import Values, by_status, of_flavors, of_local_queue, quantity


def _build_info(_: State) -> Values:
    labels = {
        "git_version": f"v{importlib.metadata.version('headgate')}",
        "git_commit": "",
        "build_date": "",
        "go_version": f"python{platform.python_version()}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }
    yield 1.0, labels


# --- pending -------------------------------------------------------------------------------------------------------


def _pending(state: State) -> Values:
    """Active: in the queue. Inadmissible: asleep, behind a blocked head, parked alone, or in an inactive queue."""
    parked: Counter[str] = Counter()
    for workload in state.workloads.awake():
        if workload.stage in (Stage.PARKED, Stage.SKIPPED) and is_pending_in_queue(workload):
            parked[workload.cluster_queue] += 1
    for name in state.cluster_queues:
        waiting, active = parked[name], len(state.index.offered.get(name, ()))
        queue = state.index.pending.get(name)
        if queue is not None:
            # Counting the workloads that are not behind a blocked head requires walking the queue; without one,
            # subtraction does.
            ahead = (
                len(queue) - queue.count_asleep()
                if queue.blocked is None
                else sum(is_ahead for _, is_ahead in queue.each())
            )
            active += ahead
            waiting += len(queue) - ahead
        if not cluster_queue_active(state, name).active:
            active, waiting = 0, waiting + active
        yield from by_status({"cluster_queue": name}, float(active), float(waiting))


def _each_pending(state: State) -> Iterator[tuple[Workload | WorkloadAtRest, bool]]:
    """The pending workloads, and whether each is active. Most are at rest, and are only looked at."""
    is_open = {name: cluster_queue_active(state, name).active for name in state.cluster_queues}
    for name, queue in state.index.pending.items():
        for key, is_ahead in queue.each():
            yield state.workloads.peek(key), is_ahead and is_open.get(name, False)
    for workload in state.workloads.awake():
        if workload.stage is Stage.OFFERED:
            yield workload, is_open.get(workload.cluster_queue, False)
        elif workload.stage in (Stage.PARKED, Stage.SKIPPED) and is_pending_in_queue(workload):
            yield workload, False


def _pending_of_local_queues(state: State) -> Values:
    counts: Counter[tuple[LocalQueueKey, bool]] = Counter()
    for workload, is_active in _each_pending(state):
        queue = LocalQueueKey(f"{split_key(workload.key)[0]}/{workload.spec.queue_name}")
        counts[queue, is_active] += 1
    for key in state.local_queues:
        yield from by_status(of_local_queue(key), float(counts[key, True]), float(counts[key, False]))


def _pending_hashes(state: State) -> Values:
    shapes: dict[tuple[str, bool], set[Shape]] = {}
    for workload, is_active in _each_pending(state):
        shapes.setdefault((workload.cluster_queue, is_active), set()).add(workload.shape)
    for name in state.cluster_queues:
        active, waiting = (len(shapes.get((name, is_active), ())) for is_active in (True, False))
        yield from by_status({"cluster_queue": name}, float(active), float(waiting))


def _pending_resources(state: State) -> Values:
    sums: Counter[tuple[str, str]] = Counter()
    kept: dict[tuple[str, Shape], Counter[str]] = {}
    for workload, _ in _each_pending(state):
        # Workloads of one shape request the same.
        shape = split_key(workload.key)[0], workload.shape
        requested = kept.get(shape)
        if requested is None:
            requested = kept[shape] = _requested(state, state.workloads[workload.key])
        for resource, amount in requested.items():
            sums[workload.cluster_queue, resource] += amount
    for name, record in state.cluster_queues.items():
        for group in record.spec.resource_groups:
            for resource in group.covered_resources:
                value = quantity(resource, sums[name, resource])
                yield value, {"cluster_queue": name, "resource": resource, **ROLE}


def _requested(state: State, workload: Workload) -> Counter[str]:
    """What all pod sets of a workload request; nothing where a quantity is invalid."""
    requested: Counter[str] = Counter()
    try:
        limits = limits_of(state, split_key(workload.key)[0])
        pod_sets = pod_set_requests(workload, limits, state.runtime_classes, state.configuration)
    except QuantityError:
        return requested
    for each in pod_sets:
        requested.update(each.total())
    return requested


# --- unadmitted and finished ---------------------------------------------------------------------------------------


def _unadmitted(state: State) -> Values:
    counts: Counter[tuple[str, str, str]] = Counter()
    for _, cluster_queue, reason, cause in _why_unadmitted(state):
        counts[cluster_queue, reason, cause] += 1
    for (cluster_queue, reason, cause), count in counts.items():
        yield float(count), {"cluster_queue": cluster_queue, "reason": reason, "underlying_cause": cause, **ROLE}


def _unadmitted_of_local_queues(state: State) -> Values:
    for (key, cluster_queue, reason, cause), count in Counter(_why_unadmitted(state)).items():
        of = {**of_local_queue(key), "cluster_queue": cluster_queue}
        yield float(count), {**of, "reason": reason, "underlying_cause": cause, **ROLE}


def _why_unadmitted(state: State) -> Iterator[tuple[LocalQueueKey, str, str, str]]:
    """LocalQueue, ClusterQueue, and the reasons of Admitted=False and of QuotaReserved=False, as Kueue counts them."""
    if not is_granular(state.configuration):
        return
    for workload in state.workloads.values():
        if workload.stage is Stage.FINISHED or conditions.is_true(workload.conditions, conditions.ADMITTED):
            continue
        reserved = conditions.find(workload.conditions, conditions.QUOTA_RESERVED)
        key, cluster_queue = local_queue_of(workload), _cluster_queue_of(state, workload)
        if reserved is not None and reserved.status == "True":
            yield key, cluster_queue, "UnsatisfiedAdmissionChecks", "ChecksNotReady"
        else:
            yield key, cluster_queue, "NoReservation", reserved.reason if reserved is not None else "PendingEvaluation"


def _cluster_queue_of(state: State, workload: Workload) -> str:
    queue = state.local_queues.get(local_queue_of(workload))
    return workload.cluster_queue or (queue.spec.cluster_queue if queue is not None else "")


def _finished(state: State) -> Values:
    counts = Counter(_cluster_queue_of(state, each) for each in _finished_of(state))
    for name in state.cluster_queues:
        yield float(counts[name]), {"cluster_queue": name, **ROLE}


def _finished_of_local_queues(state: State) -> Values:
    counts = Counter(local_queue_of(each) for each in _finished_of(state))
    for key in state.local_queues:
        yield float(counts[key]), {**of_local_queue(key), **ROLE}


def _finished_of(state: State) -> Iterator[Workload]:
    return (workload for workload in state.workloads.awake() if workload.stage is Stage.FINISHED)


# --- holders -------------------------------------------------------------------------------------------------------


def _reserving(state: State) -> Values:
    for name in state.cluster_queues:
        yield float(len(state.index.holders.get(name, ()))), {"cluster_queue": name, **ROLE}


def _reserving_of_local_queues(state: State) -> Values:
    for key in state.local_queues:
        yield float(count_local_queue(state, key).reserving), {**of_local_queue(key), **ROLE}


def _admitted(state: State) -> Values:
    """Those of each ClusterQueue by their own custom labels, where Workloads have any."""
    of_queues, of_workloads = (labels_of(state.configuration, kind) for kind in sources_of(ADMITTED))
    for name, record in state.cluster_queues.items():
        holders = [state.workloads[key] for key in state.index.holders.get(name, ())]
        admitted = (values_of(of_workloads, each) for each in holders if each.stage is Stage.ADMITTED)
        counts = Counter(tuple(each.items()) for each in admitted)
        labels = {"cluster_queue": name, **ROLE, **values_of(of_queues, record)}
        for values, count in counts.items() if counts or of_workloads else [((), 0)]:
            yield float(count), {**labels, **dict(values)}


def _admitted_of_local_queues(state: State) -> Values:
    for key in state.local_queues:
        yield float(count_local_queue(state, key).admitted), {**of_local_queue(key), **ROLE}


def _of_cluster_queue(name: str, record: ClusterQueueRecord) -> dict[str, str]:
    return {"cohort": record.spec.cohort_name, "cluster_queue": name}


def _seeded(record: ClusterQueueRecord, amounts: Mapping[FlavorResource, int]) -> dict[FlavorResource, int]:
    """Amounts, with 0 for each flavor-resource that the ClusterQueue has quota for."""
    return {**dict.fromkeys(quotas_of(record.spec.resource_groups), 0), **amounts}


def _reservations(state: State) -> Values:
    for name, record in state.cluster_queues.items():
        held = _seeded(record, state.index.usage.get(name, {}))
        yield from of_flavors(held, _of_cluster_queue(name, record))


def _usage(state: State) -> Values:
    for name, record in state.cluster_queues.items():
        counts = count_holders(state, state.index.holders.get(name, ()), 0)
        yield from of_flavors(_seeded(record, counts.admitted_usage), _of_cluster_queue(name, record))


def _reservations_of_local_queues(state: State) -> Values:
    for key in state.local_queues:
        yield from of_flavors(count_local_queue(state, key).reserved_usage, of_local_queue(key))


def _usage_of_local_queues(state: State) -> Values:
    for key in state.local_queues:
        yield from of_flavors(count_local_queue(state, key).admitted_usage, of_local_queue(key))


# --- queues and their quota ----------------------------------------------------------------------------------------


def _statuses(state: State) -> Values:
    for name in state.cluster_queues:
        active = cluster_queue_active(state, name).active
        for status, holds in (("pending", not active), ("active", active), ("terminating", False)):
            yield float(holds), {"cluster_queue": name, "status": status, **ROLE}


def _statuses_of_local_queues(state: State) -> Values:
    for key in state.local_queues:
        active = "True" if local_queue_active(state, key).active else "False"
        for status in ("True", "False", "Unknown"):
            yield float(status == active), {**of_local_queue(key), "active": status, **ROLE}


def _quota(value: Callable[[Quota], int | None]) -> Callable[[State], Values]:
    """A gauge of one number of the quotas of ClusterQueues; +Inf where there is none."""

    def read(state: State) -> Values:
        for name, record in state.cluster_queues.items():
            for (flavor, resource), quota in quotas_of(record.spec.resource_groups).items():
                found = value(quota)
                labels = {**_of_cluster_queue(name, record), "flavor": flavor, "resource": resource, **ROLE}
                yield math.inf if found is None else quantity(resource, found), labels

    return read


def _usages(state: State) -> Values:
    for key, record in state.local_queues.items():
        cluster_queue = record.spec.cluster_queue
        if orders_by_usage(state, cluster_queue):
            yield local_queue_usage(state, key), {**of_local_queue(key), "cluster_queue": cluster_queue, **ROLE}


GAUGES: Final[Mapping[str, Callable[[State], Values]]] = {
    "kueue_build_info": _build_info,
    "kueue_pending_workloads": _pending,
    "kueue_pending_scheduling_hashes": _pending_hashes,
    "kueue_local_queue_pending_workloads": _pending_of_local_queues,
    "kueue_finished_workloads": _finished,
    "kueue_local_queue_finished_workloads": _finished_of_local_queues,
    "kueue_reserving_active_workloads": _reserving,
    "kueue_local_queue_reserving_active_workloads": _reserving_of_local_queues,
    ADMITTED: _admitted,
    "kueue_local_queue_admitted_active_workloads": _admitted_of_local_queues,
    "kueue_cluster_queue_status": _statuses,
    "kueue_local_queue_status": _statuses_of_local_queues,
    "kueue_unadmitted_workloads": _unadmitted,
    "kueue_local_queue_unadmitted_workloads": _unadmitted_of_local_queues,
    "kueue_cluster_queue_resource_reservation": _reservations,
    "kueue_cluster_queue_resource_pending": _pending_resources,
    "kueue_cluster_queue_resource_usage": _usage,
    "kueue_local_queue_resource_reservation": _reservations_of_local_queues,
    "kueue_local_queue_resource_usage": _usage_of_local_queues,
    "kueue_local_queue_admission_fair_sharing_usage": _usages,
    "kueue_cluster_queue_nominal_quota": _quota(lambda quota: quota.nominal),
    "kueue_cluster_queue_borrowing_limit": _quota(lambda quota: quota.borrowing_limit),
    "kueue_cluster_queue_lending_limit": _quota(lambda quota: quota.lending_limit),
    "kueue_cluster_queue_weighted_share": cohorts.cluster_queue_shares,
    "kueue_cohort_weighted_share": cohorts.cohort_shares,
    "kueue_cohort_subtree_quota": cohorts.quota_below,
    "kueue_cohort_subtree_resource_reservations": cohorts.reserved_below,
    ADMITTED_BELOW: cohorts.admitted_below,
    "kueue_cohort_info": cohorts.cohort_info,
    "kueue_cluster_queue_info": cohorts.cluster_queue_info,
}
"""Each gauge that is read from the state."""
