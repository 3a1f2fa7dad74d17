"""
Families of events that do not follow from who appends them: events with a field in common.

Used where every event about a workload is of interest, whatever it is. The registry (`headgate.events.registry`) has
the families by producer.
"""

from typing import TYPE_CHECKING, Final, get_args

from headgate.events import decisions, effects, facts, queueing
from headgate.events.base import EventBase

if TYPE_CHECKING:
    from typing_extensions import TypeIs

OfWorkload = (
    facts.WorkloadObserved
    | facts.WorkloadDeleted
    | facts.OwnerGone
    | queueing.WorkloadQueued
    | queueing.WorkloadParked
    | queueing.WorkloadWoken
    | queueing.WorkloadEvicted
    | queueing.WorkloadReleased
    | queueing.WorkloadHeld
    | queueing.WorkloadRequeued
    | queueing.WorkloadFinished
    | queueing.WorkloadNodeFailed
    | queueing.WorkloadNodeRecovered
    | queueing.DeadlinePassed
    | queueing.WorkloadFollowed
    | queueing.PreemptionGateOpened
    | queueing.CheckUpdated
    | queueing.ProvisioningRequested
    | queueing.ProvisioningWithdrawn
    | decisions.QuotaReserved
    | decisions.WorkloadAdmitted
    | decisions.TopologyAssigned
    | decisions.SecondPassFailed
    | decisions.WorkloadSkipped
    | decisions.WorkloadPreempted
    | decisions.WorkloadMigrated
    | decisions.WorkloadReplaced
    | decisions.PodsAssigned
    | effects.StatusApplied
    | effects.StatusRejected
    | effects.ProvisioningCreated
    | effects.ProvisioningRejected
    | effects.ProvisioningRemoved
)
"""Events about one workload, which they name in `workload`, with its `uid`."""

JobEffect = (
    effects.WorkloadCreated
    | effects.WorkloadCreateRejected
    | effects.JobStarted
    | effects.JobStartRejected
    | effects.JobStopped
    | effects.JobStopRejected
)
"""What was done to a job: `workload` names its Workload; "" where there is none."""

NamesWorkload = OfWorkload | JobEffect
"""Every event with a field `workload`."""

InClusterQueue = (
    queueing.WorkloadQueued
    | queueing.WorkloadParked
    | queueing.WorkloadWoken
    | queueing.WorkloadFollowed
    | decisions.QuotaReserved
    | decisions.WorkloadAdmitted
    | decisions.TopologyAssigned
    | decisions.SecondPassFailed
    | decisions.WorkloadSkipped
    | decisions.WorkloadPreempted
    | decisions.WorkloadMigrated
    | decisions.WorkloadReplaced
)
"""Events about one workload that name its ClusterQueue in `cluster_queue`."""

_OF_WORKLOAD: Final[frozenset[type[EventBase]]] = frozenset(get_args(OfWorkload))
_NAMES_WORKLOAD: Final[frozenset[type[EventBase]]] = frozenset(get_args(NamesWorkload))

_IN_CLUSTER_QUEUE: Final[frozenset[type[EventBase]]] = frozenset(get_args(InClusterQueue))


def is_of_workload(event: EventBase) -> "TypeIs[OfWorkload]":
    """Whether an event is about one workload."""
    return type(event) in _OF_WORKLOAD


def names_workload(event: EventBase) -> "TypeIs[NamesWorkload]":
    """Whether an event has a field `workload`."""
    return type(event) in _NAMES_WORKLOAD


def is_in_cluster_queue(event: EventBase) -> "TypeIs[InClusterQueue]":
    """Whether an event about one workload names its ClusterQueue."""
    return type(event) in _IN_CLUSTER_QUEUE
