"""
The families in a plan: what Headgate would create for each workload whose ClusterQueue tries every flavor at once.

It is marked as a parent and gets a variant for each flavor without one (`headgate.core.workload.concurrent_admission`).
Their later interaction is simulated by `headgate.core.plan.dry_run`.
"""

import msgspec

from headgate.core.api.names import ALLOWED_FLAVORS
from headgate.core.state.tables import PENDING, State, Workload
from headgate.core.status.server_side_apply import API_VERSION
from headgate.core.workload import concurrent_admission, variants
from headgate.core.workload.last_fact import last_fact
from headgate.events.facts import WorkloadObserved
from headgate.events.ids import Uid, split_key
from headgate.events.objects import OwnerReference, PreemptionGate
from headgate.events.registry import Event


def made_of_parents(state: State) -> list[Event]:
    """The facts of the parents to mark and of the variants to create, parent by parent."""
    made: list[Event] = []
    for _, workload in sorted(state.workloads.items()):
        if workload.deleting or not concurrent_admission.never_queues(state, workload):
            continue
        spec = concurrent_admission.spec_for(state, workload)
        is_new = not variants.is_parent(workload)
        if spec is None or (is_new and workload.stage not in PENDING):
            continue
        if is_new:
            labels = {**workload.labels, variants.PARENT: "true"}
            made.append(msgspec.structs.replace(last_fact(workload), labels=labels))
        children = (state.workloads[key] for key in state.index.owned(workload.uid))
        has = {variants.flavor_of(each) for each in children}
        flavors = enumerate(variants.flavor_order(spec))
        made += [_variant(state, workload, place, flavor) for place, flavor in flavors if flavor not in has]
    return made


def _variant(state: State, parent: Workload, place: int, flavor: str) -> WorkloadObserved:
    """The fact of a variant: a copy of its parent that may use one flavor only. The best flavor's ranks first."""
    gates = [gate for gate in parent.spec.preemption_gates if gate.name != variants.GATE]
    return WorkloadObserved(
        workload=variants.variant_key(state.configuration, parent, flavor),
        uid=Uid(f"{parent.uid}/{place:02d}"),
        created_ms=parent.created_ms,
        spec=msgspec.structs.replace(parent.spec, preemption_gates=(*gates, PreemptionGate(name=variants.GATE))),
        labels={key: value for key, value in parent.labels.items() if key != variants.PARENT},
        annotations={**parent.annotations, ALLOWED_FLAVORS: flavor},
        owner=OwnerReference(kind="Workload", name=split_key(parent.key)[1], uid=parent.uid, api_version=API_VERSION),
    )
