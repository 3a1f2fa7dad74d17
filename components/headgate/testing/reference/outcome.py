"""
The outcome of a plan, in the schema of Kueue's recorded scenarios.

Plain JSON values with every key: an empty value is present where the schema has it, and left out otherwise.
 Workloads, ClusterQueues and Cohorts are in the order of their names, so equal plans are equal byte for byte.
"""

import math
from typing import Any

from headgate.core.cycle import CycleEntry
from headgate.core.kubernetes import conditions
from headgate.core.plan.dry_run import state_of
from headgate.core.quota.activeness import cluster_queue_active
from headgate.core.quota.cohorts import root_of
from headgate.core.quota.fair_shares import share_of
from headgate.core.quota.tree import Ledger
from headgate.core.state.tables import HOLDS_QUOTA, Workload
from headgate.core.status.queue_status import cluster_queue_status
from headgate.core.topology.assignments import expand
from headgate.events.ids import WorkloadKey
from headgate.events.objects import PodSetAssignment
from headgate.testing.reference.rhythm import Ran, ReferencePlan
from headgate.testing.reference.stopping import Stop
from headgate.testing.reference.telling import RecordedEvent

Json = dict[str, Any]

INFINITE = "inf"
"""The exact share of a borrower of weight 0; rounded it is the largest int64."""


def outcome_of(name: str, rhythm: ReferencePlan, stop: Stop) -> Json:
    """The whole outcome of a plan that has stopped."""
    return {
        "name": name,
        "final": _final(rhythm),
        "trace": [_cycle(ran) for ran in rhythm.ran],
        "initialEvents": [_event(told) for told in rhythm.initial_events],
        "cyclesRun": len(rhythm.ran),
        "stop": stop,
    }


# --- the end -------------------------------------------------------------------------------------------------------


def _final(rhythm: ReferencePlan) -> Json:
    queued, inadmissible = rhythm.queued(), rhythm.inadmissible()
    standing = {key: "active" for keys in queued.values() for key in keys}
    standing |= {key: "inadmissible" for keys in inadmissible.values() for key in keys}
    state = rhythm.state
    final: Json = {
        "workloads": {
            key: workload_of(workload, standing.get(key, "none")) for key, workload in sorted(state.workloads.items())
        },
        "clusterQueues": {
            name: _cluster_queue(rhythm, name, len(queued.get(name, ())) + len(inadmissible.get(name, ())))
            for name in sorted(state.cluster_queues)
        },
        "queued": queued,
        "inadmissible": inadmissible,
    }
    if state.configuration.fair_sharing is not None and state.cohorts:
        final["cohorts"] = {
            name: _share_in(rhythm, root_of(name, state.cohorts), name, is_cohort=True)
            for name in sorted(state.cohorts)
        }
    return final


def workload_of(workload: Workload, queue: str) -> Json:
    """The state of a workload. `queue`: where a pending one waits."""
    shown: Json = {"state": state_of(workload)}
    if workload.stage in HOLDS_QUOTA and workload.admission is not None:
        shown["clusterQueue"] = workload.admission.cluster_queue
        shown["podSets"] = [
            {
                "name": each.name,
                "count": each.count,
                "flavors": dict(sorted(each.flavors.items())),
                "resourceUsage": dict(sorted(each.resource_usage.items())),
                **_topology(each),
            }
            for each in workload.admission.pod_set_assignments
        ]
    elif shown["state"] == "Pending":
        shown["queue"] = queue
    shown["conditions"] = {
        each.type: {
            "status": each.status,
            "reason": each.reason,
            "message": each.message,
            "lastTransitionTime": each.last_transition_time,
        }
        for each in sorted(workload.conditions, key=lambda each: each.type)
    }
    if workload.evictions:
        shown["evictions"] = [
            {"reason": each.reason, "underlyingCause": each.underlying_cause, "count": each.count}
            for each in workload.evictions
        ]
    return shown


def _topology(assignment: PodSetAssignment) -> Json:
    """The topology domains of a pod set, in their order, if it has any."""
    if assignment.topology_assignment is None:
        return {}
    levels, domains = expand(assignment.topology_assignment)
    placed = [{"values": list(domain.values), "count": domain.pods} for domain in domains]
    return {"topologyAssignment": {"levels": list(levels), "domains": placed}}


def _cluster_queue(rhythm: ReferencePlan, name: str, pending: int) -> Json:
    state = rhythm.state
    status, active = cluster_queue_status(state, name), cluster_queue_active(state, name)
    shown: Json = {
        "active": active.active,
        "reason": active.reason,
        "message": active.message,
        "flavorsReservation": status["flavorsReservation"],
        "flavorsUsage": status["flavorsUsage"],
        "reservingWorkloads": status["reservingWorkloads"],
        "admittedWorkloads": status["admittedWorkloads"],
        "pendingWorkloads": pending,
    }
    if state.configuration.fair_sharing is not None:
        shown |= _share_in(rhythm, state.index.trees[name], name, is_cohort=False)
    return shown


def _share_in(rhythm: ReferencePlan, tree_name: str, name: str, *, is_cohort: bool) -> Json:
    """The dominant resource share of a ClusterQueue or Cohort; none below a cycle of cohorts, which has no quota."""
    forest = rhythm.catalog.forest
    if forest.has_cycle(tree_name):
        return _share(0, 0.0)
    tree = forest.tree(tree_name)
    node = (tree.cohorts if is_cohort else tree.cluster_queues)[name]
    share = share_of(Ledger(tree, rhythm.state.index.usage), node)
    return _share(share.rounded, share.exact)


def _share(rounded: int, exact: float) -> Json:
    if math.isinf(exact):
        return {"weightedShare": rounded, "weightedShareExact": INFINITE}
    return {"weightedShare": rounded, "weightedShareExact": int(exact) if exact.is_integer() else exact}


# --- the trace -----------------------------------------------------------------------------------------------------


def _cycle(ran: Ran) -> Json:
    shown: Json = {
        "cycle": ran.number,
        "time": conditions.rfc3339(ran.time_ms),
        "evaluated": [_entry(entry) for entry in ran.cycle.entries],
        "events": [_event(told) for told in ran.events],
    }
    lists: Json = {
        "admitted": list(ran.admitted),
        "preempted": {
            key: {"by": each.by, "reason": each.reason, "message": each.message} for key, each in ran.preempted.items()
        },
        "evicted": {key: {"reason": each.reason, "message": each.message} for key, each in ran.evicted.items()},
        "pending": {key: {"reason": each.reason, "message": each.message} for key, each in ran.pending.items()},
        "queued": ran.queued,
        "inadmissible": ran.inadmissible,
    }
    return shown | {field: value for field, value in lists.items() if value}


def _entry(entry: CycleEntry) -> Json:
    """A head as it was processed. One that is skipped gets its requeue reason only when it is requeued."""
    flavors: dict[str, dict[str, str]] = entry.flavors
    shown: Json = {
        "workload": entry.key,
        "clusterQueue": entry.queue.name,
        "mode": entry.mode,
        "borrowing": entry.borrowing,
        "flavors": flavors,
        "status": entry.status,
    }
    more: Json = {
        "targets": [
            {"workload": each.workload, "clusterQueue": each.cluster_queue, "reason": each.reason}
            for each in entry.targets
        ],
        "message": entry.message,
        "requeueReason": "" if entry.status == "skipped" else entry.requeue_reason,
        "quotaReservedReason": entry.reason,
        "isPreemptor": entry.is_preemptor,
    }
    return shown | {field: value for field, value in more.items() if value}


def _event(told: RecordedEvent) -> Json:
    key: WorkloadKey = told.object
    return {"object": key, "type": told.type, "reason": told.reason, "message": told.message}
