"""Small cells for tests of scheduling: ClusterQueues, workloads and cycles in a few words."""

from collections.abc import Mapping
from typing import Any

from tests.support.logs import TestLog

from headgate.core.cycle import decide_cycle
from headgate.events.base import EventBase, Producer
from headgate.events.decisions import QuotaReserved, WorkloadSkipped
from headgate.events.facts import (
    ClusterQueueObserved,
    CohortObserved,
    InformersSynced,
    LocalQueueObserved,
    NamespaceObserved,
    ResourceFlavorObserved,
    WorkloadObserved,
)
from headgate.events.ids import LocalQueueKey, Shape, Uid, UnixMs, WorkloadKey
from headgate.events.objects import (
    ClusterQueueSpec,
    CohortSpec,
    Container,
    FlavorQuotas,
    LabelSelector,
    LocalQueueSpec,
    PodSet,
    PodSpec,
    PodTemplate,
    ResourceFlavorSpec,
    ResourceGroup,
    ResourceQuota,
    Resources,
    WorkloadSpec,
)
from headgate.events.queueing import Head, HeadsOffered, WorkloadQueued
from headgate.events.registry import Event

NAMESPACE = "team-a"


def group(flavors: Mapping[str, Mapping[str, Any]]) -> ResourceGroup:
    """Flavor -> resource -> nominal quota, or (nominal, borrowing limit, lending limit)."""
    quotas = tuple(
        FlavorQuotas(name=flavor, resources=tuple(_quota(name, quota) for name, quota in resources.items()))
        for flavor, resources in flavors.items()
    )
    return ResourceGroup(covered_resources=tuple(each.name for each in quotas[0].resources), flavors=quotas)


def _quota(name: str, quota: Any) -> ResourceQuota:
    nominal, borrowing, lending = quota if isinstance(quota, tuple) else (quota, None, None)
    return ResourceQuota(name=name, nominal_quota=nominal, borrowing_limit=borrowing, lending_limit=lending)


def cluster_queue(name: str, *flavors: Mapping[str, Mapping[str, Any]], **spec: Any) -> ClusterQueueObserved:
    """A ClusterQueue with one resource group per mapping, open to every namespace."""
    spec.setdefault("namespace_selector", LabelSelector())
    return ClusterQueueObserved(
        name=name, spec=ClusterQueueSpec(resource_groups=tuple(group(each) for each in flavors), **spec)
    )


def cohort(name: str, parent: str = "", *flavors: Mapping[str, Mapping[str, Any]]) -> CohortObserved:
    """A Cohort."""
    return CohortObserved(
        name=name, spec=CohortSpec(parent_name=parent, resource_groups=tuple(group(each) for each in flavors))
    )


def pod_spec(requests: Mapping[str, Any], **spec: Any) -> PodSpec:
    """A pod of one container."""
    return PodSpec(containers=(Container(name="c", resources=Resources(requests=dict(requests))),), **spec)


def pod_set(requests: Mapping[str, Any], count: int = 1, name: str = "main", **more: Any) -> PodSet:
    """A pod set of one-container pods."""
    minimum = more.pop("min_count", None)
    return PodSet(name=name, count=count, min_count=minimum, template=PodTemplate(spec=pod_spec(requests, **more)))


class Cell:
    """A log with flavors, ClusterQueues and a LocalQueue for each of them, and a little queue manager."""

    def __init__(self, *events: EventBase, flavors: Mapping[str, ResourceFlavorSpec] | None = None) -> None:
        self.log = TestLog()
        queues = [event for event in events if isinstance(event, ClusterQueueObserved)]
        named = {each.name for queue in queues for part in queue.spec.resource_groups for each in part.flavors}
        specs = {**{name: ResourceFlavorSpec() for name in sorted(named)}, **(flavors or {})}
        self.log.append(
            Producer.INFORMER_BRIDGE,
            NamespaceObserved(name=NAMESPACE),
            *(ResourceFlavorObserved(name=name, spec=spec) for name, spec in specs.items()),
            *events,
            *(
                LocalQueueObserved(
                    queue=LocalQueueKey(f"{NAMESPACE}/{queue.name}"), spec=LocalQueueSpec(cluster_queue=queue.name)
                )
                for queue in queues
            ),
            InformersSynced(),
        )

    @property
    def state(self) -> Any:
        """The folded state."""
        return self.log.state

    def submit(self, queue: str, name: str, *pod_sets: PodSet, priority: int = 0, at_ms: int = 0, **more: Any) -> None:
        """A workload, queued and offered."""
        key, uid = WorkloadKey(f"{NAMESPACE}/{name}"), Uid(f"uid-{name}")
        spec = WorkloadSpec(queue_name=queue, pod_sets=pod_sets, priority=priority)
        self.log.append(
            Producer.INFORMER_BRIDGE,
            WorkloadObserved(workload=key, uid=uid, created_ms=UnixMs(at_ms), spec=spec, **more),
        )
        self.log.append(
            Producer.QUEUE_MANAGER,
            WorkloadQueued(
                workload=key,
                uid=uid,
                cluster_queue=queue,
                priority=priority,
                queued_at_ms=UnixMs(at_ms),
                shape=Shape(name),
            ),
            HeadsOffered(heads=(Head(cluster_queue=queue, workload=key, uid=uid),)),
        )

    def cycle(self) -> tuple[Event, ...]:
        """Decide one cycle and append it."""
        events = decide_cycle(self.state)
        if events:
            self.log.append(Producer.SCHEDULER, *events, decided_at=self.state.position)
        return events

    def reserved(self) -> dict[str, dict[str, str]]:
        """Workload -> resource -> flavor of its first pod set, for all that hold quota."""
        return {
            key: dict(workload.admission.pod_set_assignments[0].flavors)
            for key, workload in self.state.workloads.items()
            if workload.admission is not None
        }


def verdicts(events: tuple[Event, ...]) -> dict[str, WorkloadSkipped]:
    """The skipped workloads of a cycle by name."""
    return {event.workload.partition("/")[2]: event for event in events if isinstance(event, WorkloadSkipped)}


def reservations(events: tuple[Event, ...]) -> list[str]:
    """The names of the workloads that got quota in a cycle, in order."""
    return [event.workload.partition("/")[2] for event in events if isinstance(event, QuotaReserved)]
