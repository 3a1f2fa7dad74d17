"""
The assumptions of a dry run: what the other processes and the cluster would report after a decision.

- The job of an evicted workload stops, and any other owner of a workload releases its quota (`stopped`). When, is
  decided by the caller.
- A workload whose ClusterQueue tries every flavor at once becomes a parent with variants (`parents`), and its variants
  are switched on and off as in `headgate.core.workload.concurrent_admission`.

`headgate.core.plan.dry_run` appends them on behalf of that process.
"""

from collections.abc import Iterable, Sequence

import msgspec

from headgate.core.plan.parents import made_of_parents
from headgate.core.queueing import eviction
from headgate.core.state.tables import PENDING, Stage, State, Workload
from headgate.core.workload import concurrent_admission, variants
from headgate.core.workload.last_fact import last_fact
from headgate.core.workload.owners import job_key, job_of
from headgate.events.base import Producer
from headgate.events.facts import JobObserved
from headgate.events.ids import WorkloadKey
from headgate.events.registry import Event

Reaction = tuple[Producer, Sequence[Event]]


def reactions(state: State, changed: Iterable[WorkloadKey]) -> list[Reaction]:
    """What follows from the current status of these workloads, with the process that would append it."""
    found: list[Reaction] = []
    members = [state.workloads[key] for key in changed if key in state.workloads]
    if any(each.stage in PENDING and concurrent_admission.never_queues(state, each) for each in members):
        found.append((Producer.INFORMER_BRIDGE, made_of_parents(state)))
    parents = {
        each.key: each for member in members for each in (member, *concurrent_admission.relatives(state, member))
    }
    for _, parent in sorted(parents.items()):
        if variants.is_parent(parent):
            found.append((Producer.INFORMER_BRIDGE, _switched(state, parent)))
    return [(producer, events) for producer, events in found if events]


def stopped(state: State, key: WorkloadKey) -> list[Reaction]:
    """The work of an evicted workload has ended: its Job is suspended without pods, or its owner reports it."""
    workload = state.workloads.get(key)
    if workload is None or workload.stage is not Stage.EVICTED:
        return []
    record = job_of(state, workload)
    if record is not None:
        if record.job.suspended and not record.job.active:
            return []
        stopped = msgspec.structs.replace(record.job, suspended=True, active=0, ready=0)
        job = job_key(state, workload)
        assert job is not None
        return [(Producer.INFORMER_BRIDGE, [JobObserved(job=job, spec=stopped)])]
    if concurrent_admission.waits_for_parent(state, workload) or eviction.release(state, workload) is not None:
        return []
    return [(Producer.QUEUE_MANAGER, [eviction.released(workload)])]


def _switched(state: State, parent: Workload) -> list[Event]:
    family = concurrent_admission.family_of(state, parent)
    if family is None:
        return []
    return [
        msgspec.structs.replace(last_fact(member), spec=msgspec.structs.replace(member.spec, active=active))
        for member, active in concurrent_admission.switches(family)
    ]
