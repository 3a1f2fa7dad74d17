"""Labels and values as Kueue's metrics have them. Called by the modules of Kueue's metrics."""

from collections.abc import Iterable, Iterator, Mapping

from headgate.core.state.tables import FlavorResource, State, Workload
from headgate.events.ids import LocalQueueKey, split_key
from headgate.processes.telemetry.kueue_catalogue import ROLE

Values = Iterator[tuple[float, Mapping[str, str]]]
"""The values of one metric with their labels."""


def quantity(resource: str, amount: int) -> float:
    """An amount in Kubernetes' units: cores, bytes, pieces."""
    return amount / 1000 if resource == "cpu" else float(amount)


def of_local_queue(key: LocalQueueKey) -> dict[str, str]:
    """The labels of a LocalQueue."""
    namespace, name = split_key(key)
    return {"name": name, "namespace": namespace}


def of_priority_class(workload: Workload) -> dict[str, str]:
    """The label of a workload's priority class."""
    reference = workload.spec.priority_class_ref
    return {"priority_class": reference.name if reference is not None else ""}


def of_flavors(amounts: Mapping[FlavorResource, int], labels: Mapping[str, str]) -> Values:
    """A value for each flavor-resource."""
    for (flavor, resource), amount in amounts.items():
        yield quantity(resource, amount), {**labels, "flavor": flavor, "resource": resource, **ROLE}


def by_status(labels: Mapping[str, str], active: float, inadmissible: float) -> Values:
    """A value for each status of pending workloads."""
    yield active, {**labels, "status": "active", **ROLE}
    yield inadmissible, {**labels, "status": "inadmissible", **ROLE}


def cohorts_above(state: State, cohort: str) -> list[str]:
    """A cohort and those above it, up to the root; in a cycle each once."""
    found: list[str] = []
    while cohort and cohort not in found:
        found.append(cohort)
        record = state.cohorts.get(cohort)
        cohort = record.spec.parent_name if record is not None else ""
    return found


def all_cohorts(state: State) -> Iterable[str]:
    """The cohorts that exist, also those that only a member names."""
    named = (record.spec.cohort_name for record in state.cluster_queues.values())
    parents = (record.spec.parent_name for record in state.cohorts.values())
    return dict.fromkeys(name for name in (*state.cohorts, *parents, *named) if name)
