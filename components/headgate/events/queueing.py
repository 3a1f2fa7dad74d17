"""
Queue life: the place of a pending workload, the reason, and its wake condition.

All are appended by the queue manager. Together with the facts and the decisions they move a workload through the
lifecycle of `headgate.core.state.lifecycle`.
"""

from typing import Literal

import msgspec

from headgate.events.base import EventBase
from headgate.events.ids import LocalQueueKey, RequestKey, Seq, Shape, Uid, UnixMs, WorkloadKey
from headgate.events.objects import Admission, CheckState, RequeueState

Needs = tuple[dict[str, str], ...]
"""
The alternatives by which quota could admit a workload: each has all that it would use at the same time.

From `<flavor>/<resource>` to a quantity. Where fewer pods are allowed, with the fewest. None means: not computed.
"""


class QuotaFreed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="QuotaFreed", tag_field="on"):
    """
    Wakes when quota is freed or raised in a cohort tree, as soon as there may be enough.

    `tree` is the root Cohort's name, or `ClusterQueue/<name>` for a ClusterQueue without cohort. `flavor_resources` are
    those that were short, `<flavor>/<resource>`; none means that any may help, `*` that no freed quota can, only a
    change of the ClusterQueue, its cohort, flavors or checks. `<flavor>/*` is a place in a flavor with a topology: it
    wakes when nodes of the flavor change or have room again. With `needs`, freed quota wakes only when all of one of
    these alternatives is available to the ClusterQueue at the same time, or could become so by preemption; without, any
    freed amount of what was short does. `targets` are preempted workloads that it waits for: when the last of them is
    gone it wakes whatever is available. A changed spec wakes in either case.
    """

    tree: str
    flavor_resources: tuple[str, ...] = ()
    needs: Needs = ()
    targets: tuple[WorkloadKey, ...] = ()


class ObjectChanged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="ObjectChanged", tag_field="on"):
    """Wakes when the named object is created or changes: LocalQueue `team-a/main`, Namespace `team-a`, a Workload."""

    kind: str
    name: str


class TimePassed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="TimePassed", tag_field="on"):
    """Wakes at the time recorded here."""

    at_ms: UnixMs


Wake = QuotaFreed | ObjectChanged | TimePassed
"""The wake condition of a parked workload. Each parked workload has at least one that can still be fulfilled."""


class WorkloadQueued(EventBase, frozen=True, tag="workload.queued"):
    """
    Appended by the queue manager when a pending workload enters the heap of its ClusterQueue.

    Order in the heap: higher `priority`, then lower `queued_at_ms` (Kueue's queue-order timestamp), then uid. A
    workload whose `shape` is parked joins the others of its shape and sleeps with them.
    """

    workload: WorkloadKey
    uid: Uid
    cluster_queue: str
    priority: int
    queued_at_ms: UnixMs
    shape: Shape


class WorkloadParked(EventBase, frozen=True, tag="workload.parked"):
    """
    Appended by the queue manager when a pending workload is set aside, with the reason and its wake conditions.

    Scope "workload" parks it alone. Scope "shape" parks with it every workload of the same shape in the ClusterQueue,
    now and later, since what does not fit for one fits for none (Kueue's scheduling equivalence hashing). Scope "queue"
    parks the head of a StrictFIFO ClusterQueue: it keeps its place and no workload behind it may pass. `cluster_queue`
    is "" when the workload has no queue. `decided_at` is the position at which the verdict was decided (the first of
    its immediate retries): what was freed after it wakes. 0 when there was no cycle. `writes_condition`: the reason
    goes into the status.
    """

    workload: WorkloadKey
    uid: Uid
    reason: str
    message: str
    wake: tuple[Wake, ...]
    cluster_queue: str = ""
    scope: Literal["workload", "shape", "queue"] = "workload"
    decided_at: Seq = Seq(0)
    writes_condition: bool = False


class WorkloadWoken(EventBase, frozen=True, tag="workload.woken"):
    """
    Appended by the queue manager when a wake condition of a parked workload is fulfilled.

    With scope "shape" all pending workloads of its shape wake with it; they are in the heap of `cluster_queue` again.
    With scope "queue" its StrictFIFO queue is no longer blocked. With scope "workload" only it wakes. `by` is what woke
    it, `by_position` the log position of that.
    """

    workload: WorkloadKey
    uid: Uid
    cluster_queue: str
    by: str
    by_position: Seq
    scope: Literal["workload", "shape", "queue"] = "workload"
    shape: Shape = Shape("")


class Head(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """
    One workload offered to the scheduler.

    With `alone` its shape may sleep, and sleeps on: there is enough for this one, and no statement about the next.
    """

    cluster_queue: str
    workload: WorkloadKey
    uid: Uid
    alone: bool = False


class HeadsOffered(EventBase, frozen=True, tag="heads.offered"):
    """
    Appended by the queue manager: the next workloads of each ClusterQueue, in queue order, several deep.

    The scheduler takes the first undecided one of each active ClusterQueue in each cycle, so that the outcome equals
    one head per queue per cycle and no cycle waits for a round trip.
    """

    heads: tuple[Head, ...]


class HeadsWithdrawn(EventBase, frozen=True, tag="heads.withdrawn"):
    """
    Appended by the queue manager when offered heads of ClusterQueues are returned to their heaps, with the reason.

    A workload of higher rank has arrived, the queue was stopped or has changed. A decision of the scheduler that was
    already under way still counts.
    """

    cluster_queues: tuple[str, ...]
    reason: str


class WorkloadEvicted(EventBase, frozen=True, tag="workload.evicted"):
    """
    Appended by the queue manager when a workload has to release its quota: stop policy, deactivation, checks.

    Reasons and messages are Kueue's. The quota stays charged until `workload.released`, when its job has stopped.
    """

    workload: WorkloadKey
    uid: Uid
    reason: str
    message: str
    underlying_cause: str = ""
    requeue_state: RequeueState | None = None


class WorkloadReleased(EventBase, frozen=True, tag="workload.released"):
    """
    Appended by the queue manager when an evicted workload's job has stopped: its reservation and quota are released.

    `requeued` with its reason is Kueue's Requeued condition. `cancelled`: it was not evicted, its queue was stopped or
    deleted before it was admitted; the reason is that of QuotaReserved then.
    """

    workload: WorkloadKey
    uid: Uid
    requeued: bool
    reason: str
    message: str
    cancelled: bool = False


class WorkloadHeld(EventBase, frozen=True, tag="workload.held"):
    """
    Appended by the queue manager when the job of a workload is on hold: its quota is released without an eviction.

    A StatefulSet of no replicas is. It has no pods that run. It is queued again once the job is on hold no longer.
    """

    workload: WorkloadKey
    uid: Uid
    message: str


class WorkloadRequeued(EventBase, frozen=True, tag="workload.requeued"):
    """
    Appended by the queue manager when an evicted workload may queue again: its backoff or its stop is over.

    Without `requeued` others have set the condition of that name to False, and it waits until they set it to True.
    """

    workload: WorkloadKey
    uid: Uid
    reason: str
    message: str
    requeued: bool = True


class WorkloadFinished(EventBase, frozen=True, tag="workload.finished"):
    """
    Appended by the queue manager when a workload's job has finished or it was marked finished; its quota is free.

    Reasons are Kueue's: Succeeded, Failed, OwnerNotFound and the like.
    """

    workload: WorkloadKey
    uid: Uid
    reason: str
    message: str


class WorkloadNodeFailed(EventBase, frozen=True, tag="workload.node_failed"):
    """
    Appended by the queue manager when a node has failed that pods of an admitted workload were assigned to.

    The scheduler is to find another node for these pods; until then no pod of the workload is sent to it. When a second
    node fails meanwhile, the workload is evicted.
    """

    workload: WorkloadKey
    uid: Uid
    node: str


class WorkloadNodeRecovered(EventBase, frozen=True, tag="workload.node_recovered"):
    """Appended by the queue manager when a failed node of a workload can take its pods again before it is replaced."""

    workload: WorkloadKey
    uid: Uid
    node: str


class DeadlinePassed(EventBase, frozen=True, tag="deadline.passed"):
    """
    Appended by the queue manager when a time recorded in the log is over: a backoff, a maximum execution time.

    `SecondPass`: the scheduler looks again for topology domains of a workload that holds quota.
    """

    workload: WorkloadKey
    uid: Uid
    deadline: Literal["RequeueAt", "MaximumExecutionTime", "PodsReady", "SecondPass"]
    at_ms: UnixMs


class WorkloadFollowed(EventBase, frozen=True, tag="workload.followed"):
    """
    Appended by the queue manager when a variant is admitted: its parent is admitted too, with the same admission.

    The parent holds no quota of its own.
    """

    workload: WorkloadKey
    uid: Uid
    cluster_queue: str
    variant: WorkloadKey
    admission: Admission


class PreemptionGateOpened(EventBase, frozen=True, tag="workload.gate_opened"):
    """Appended by the queue manager when a variant may preempt from here on; its siblings wait for five minutes."""

    workload: WorkloadKey
    uid: Uid
    gate: str


class CheckUpdated(EventBase, frozen=True, tag="workload.check_updated"):
    """
    Appended by the queue manager when the state or message of an admission check changes that Headgate decides itself.

    Those are the checks of ProvisioningRequests. `check` is the whole state, without the time of its last transition:
    that is the commit's where the state differs from `before`, the state until then.
    """

    workload: WorkloadKey
    uid: Uid
    check: CheckState
    before: str


class ProvisioningRequested(EventBase, frozen=True, tag="provisioningrequest.requested"):
    """
    Appended by the queue manager when a workload needs a ProvisioningRequest for one of its admission checks.

    The binder creates it, and its PodTemplates. `attempt` counts from 1, with each request that has failed.
    """

    workload: WorkloadKey
    uid: Uid
    check: str
    request: RequestKey
    attempt: int


class ProvisioningWithdrawn(EventBase, frozen=True, tag="provisioningrequest.withdrawn"):
    """Appended by the queue manager when a ProvisioningRequest is of no more use, and why: the binder deletes it."""

    workload: WorkloadKey
    uid: Uid
    request: RequestKey
    why: str


class LocalQueuesSampled(EventBase, frozen=True, tag="localqueue.sampled"):
    """
    Appended by the queue manager when the sampling interval of admission fair sharing is over for these LocalQueues.

    Their consumed usage is updated to the time of the commit: it decays, and current usage is added.
    """

    queues: tuple[LocalQueueKey, ...]


QueueEvent = (
    WorkloadQueued
    | WorkloadParked
    | WorkloadWoken
    | HeadsOffered
    | HeadsWithdrawn
    | WorkloadEvicted
    | WorkloadReleased
    | WorkloadHeld
    | WorkloadRequeued
    | WorkloadFinished
    | WorkloadNodeFailed
    | WorkloadNodeRecovered
    | DeadlinePassed
    | LocalQueuesSampled
    | WorkloadFollowed
    | PreemptionGateOpened
    | CheckUpdated
    | ProvisioningRequested
    | ProvisioningWithdrawn
)
