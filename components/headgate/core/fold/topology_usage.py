"""
The fold of what workloads occupy in topologies: `Index.topology_usage`, by domain, and `Index.topology_usage_of`.

Called by the other folds only. A workload that holds quota with a topology assignment occupies its domains; per pod
what its template requests, with the defaults of LimitRanges and RuntimeClasses (`kueue-semantics` section 1). It
follows from the tables alone: when those defaults change, it is computed again. Usage is recorded for every flavor of
the pod set; `headgate.core.topology.cache` reads that of flavors with a topology.
"""

from collections.abc import Iterator

from headgate.core.kubernetes.effective_requests import pod_requests
from headgate.core.kubernetes.quantities import amount
from headgate.core.state.tables import DomainUsage, Index, QuarantineRecord, State, Values
from headgate.core.topology.assignments import expand
from headgate.core.topology.demands import PODS
from headgate.core.workload.pod_requests import adjusted, limits_of
from headgate.events.facts import WorkloadObserved
from headgate.events.ids import WorkloadKey, split_key
from headgate.events.objects import Admission, PodSetAssignment, WorkloadSpec


def occupy(state: State, key: WorkloadKey, admission: Admission, spec: WorkloadSpec | None) -> None:
    """
    A workload occupies what its admission assigns, and nothing else.

    Without a spec, of a workload that the log has the admission of alone, a pod requests its share of the quota.
    """
    vacate(state, key)
    usages = tuple(_usages(state, key, admission, spec))
    if usages:
        state.index.topology_usage_of[key] = usages
        for usage in usages:
            _add(state.index, usage, 1)


def occupy_aside(state: State, record: QuarantineRecord) -> None:
    """A workload in quarantine keeps the domains of the quota that it holds."""
    workload, fact = record.workload, record.fact
    admission, spec = record.admission, fact.spec if isinstance(fact, WorkloadObserved) else None
    if workload is not None:
        admission, spec = admission or workload.admission, workload.spec
    if admission is not None:
        occupy(state, WorkloadKey(record.key), admission, spec)


def vacate(state: State, key: WorkloadKey) -> None:
    """A workload occupies nothing any more."""
    for usage in state.index.topology_usage_of.pop(key, ()):
        _add(state.index, usage, -1)


def reoccupy(state: State, namespace: str | None = None) -> None:
    """The defaults of pods have changed, of one namespace or (None) of all."""
    for key in tuple(state.index.topology_usage_of):
        if namespace not in {None, split_key(key)[0]}:
            continue
        workload = state.workloads.get(key)
        if workload is None:
            occupy_aside(state, state.quarantine[f"Workload/{key}"])
        elif workload.admission is not None:
            occupy(state, key, workload.admission, workload.spec)


def reindex(state: State, before: Index) -> None:
    """A cache that followed the index `before` finds that what is used in any domain may have changed."""
    index = state.index
    index.topology_changes = before.topology_changes
    for flavor, values in before.topology_changed:
        _touch(index, flavor, values)


def _usages(state: State, key: WorkloadKey, admission: Admission, spec: WorkloadSpec | None) -> Iterator[DomainUsage]:
    pod_sets = {pod_set.name: pod_set for pod_set in spec.pod_sets} if spec is not None else {}
    for assignment in admission.pod_set_assignments:
        if assignment.topology_assignment is None:
            continue
        pod_set = pod_sets.get(assignment.name)
        if pod_set is None:
            requests = _share(assignment)
        else:
            pod = adjusted(pod_set.template.spec, limits_of(state, split_key(key)[0]), state.runtime_classes)
            requests = tuple(sorted(pod_requests(pod).items()))
        placement = expand(assignment.topology_assignment)
        for flavor in dict.fromkeys(assignment.flavors.values()):
            for domain in placement.domains:
                yield DomainUsage(flavor, domain.values, requests, domain.pods)


def _share(assignment: PodSetAssignment) -> tuple[tuple[str, int], ...]:
    count = max(1, assignment.count)
    shares = {name: amount(name, quantity) // count for name, quantity in assignment.resource_usage.items()}
    return tuple(sorted((name, value) for name, value in shares.items() if name != PODS))


def _add(index: Index, usage: DomainUsage, sign: int) -> None:
    domains = index.topology_usage.setdefault(usage.flavor, {})
    used = domains.setdefault(usage.values, {})
    for resource, value in (*usage.requests, (PODS, 1)):
        left = used.get(resource, 0) + sign * value * usage.pods
        if left:
            used[resource] = left
        else:
            used.pop(resource, None)
    if not used:
        del domains[usage.values]
        if not domains:
            del index.topology_usage[usage.flavor]
    _touch(index, usage.flavor, usage.values)


def _touch(index: Index, flavor: str, values: Values) -> None:
    index.topology_changes += 1
    index.topology_changed.pop((flavor, values), None)
    index.topology_changed[flavor, values] = index.topology_changes
