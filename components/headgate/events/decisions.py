"""
Decisions: the results of the scheduler's cycles, its choice of nodes for pods, the ungater's of domains.

A cycle is one commit: `cycle.decided` first, then its decisions in the order in which the heads were processed. The
commit's `decided_at` names the position whose state it was decided on; deciding that state again gives the same events.
"""

from typing import Any, Literal

import msgspec

from headgate.events.base import EventBase
from headgate.events.ids import PodKey, Seq, Uid, UnixMs, WorkloadKey
from headgate.events.objects import Admission, CheckState, PodSetRequest
from headgate.events.queueing import Head, Needs


class CycleDecided(EventBase, frozen=True, tag="cycle.decided"):
    """
    Appended by the scheduler as the first event of each cycle's commit.

    `cycle` counts from 1 in this log. `decided_at` is the position of the state that the cycle saw. `heads` are the
    workloads considered, in the order in which they were processed after nomination.
    """

    cycle: int
    decided_at: Seq
    heads: tuple[Head, ...] = ()


class QuotaReserved(EventBase, frozen=True, tag="workload.quota_reserved"):
    """
    Appended by the scheduler when a workload's usage fits: from this position on its quota is charged.

    `checks` are the admission checks that have to be Ready before it is admitted, with their initial state. `message`
    is that of Kueue's QuotaReserved condition. `entry_penalty` is charged to the workload's LocalQueue at once under
    admission fair sharing, decimals of base units by resource.
    """

    workload: WorkloadKey
    uid: Uid
    cluster_queue: str
    admission: Admission
    message: str
    checks: tuple[CheckState, ...] = ()
    entry_penalty: dict[str, str] = {}


class WorkloadAdmitted(EventBase, frozen=True, tag="workload.admitted"):
    """Appended by the scheduler when a reserved workload has every check Ready: its job may start."""

    workload: WorkloadKey
    uid: Uid
    cluster_queue: str
    message: str


class TopologyAssigned(EventBase, frozen=True, tag="workload.topology_assigned"):
    """
    Appended by the scheduler when a workload that holds quota gets topology domains: it had none, or has lost a node.

    `admission` is the whole admission as it is now; its quota is as before. Its pods are where it says, so no node of
    it counts as lost any more.
    """

    workload: WorkloadKey
    uid: Uid
    cluster_queue: str
    admission: Admission
    message: str


class SecondPassFailed(EventBase, frozen=True, tag="workload.second_pass_failed"):
    """
    Appended by the scheduler when it has found no topology domains for a workload that holds quota, and why.

    It is tried again at `retry_at_ms`; `failures` counts the attempts so far. With `evict` it is not tried again, but
    evicted with this message, since no node replaces the one that it has lost.
    """

    workload: WorkloadKey
    uid: Uid
    cluster_queue: str
    message: str
    failures: int = 1
    retry_at_ms: UnixMs = UnixMs(0)
    evict: bool = False


class WorkloadSkipped(EventBase, frozen=True, tag="workload.skipped"):
    """
    Appended by the scheduler when a head was not admitted in a cycle, with Kueue's reason and message.

    `status` is how far it got: "notNominated" (no assignment fits), "nominated", "skipped" (it fitted, until another
    head of the cycle took the quota), "preemptionGated" (one of its preemption gates is closed). `requeue_reason` is
    Kueue's: NoFit, NamespaceMismatch, FailedAfterNomination and the like. `scope` is what the verdict covers:
    "immediate" leaves the workload at its place for the next cycle; "workload" sets it aside alone; "shape" puts its
    shape in its ClusterQueue to sleep; "queue" blocks its ClusterQueue. `short` names the flavor-resources,
    `<flavor>/<resource>`, whose quota was not enough: its waking depends on them; none means any, `*` that no freed
    quota can help, only a change of the ClusterQueue, its cohort, flavors or checks. `needs` is what must be available
    at the same time before a cycle can admit it. `last_tried_flavors` has, per pod set, resource to the index of the
    flavor that the scan stopped at, where flavors are left to try. `targets` are the workloads that it has preempted
    and whose release it waits for; with `until_ms` they are preempted only if not enough quota is free by then. Without
    `targets` and with `until_ms` no workload passes it in its ClusterQueue until then. `claims` is set when it reserves
    quota while it waits, so that the end of its wait frees something for others.
    """

    workload: WorkloadKey
    uid: Uid
    cluster_queue: str
    status: Literal["notNominated", "nominated", "skipped", "preemptionGated"]
    requeue_reason: str
    scope: Literal["immediate", "workload", "shape", "queue"]
    reason: str
    message: str
    short: tuple[str, ...] = ()
    resource_requests: tuple[PodSetRequest, ...] = ()
    last_tried_flavors: tuple[dict[str, int], ...] = ()
    needs: Needs = ()
    targets: tuple[WorkloadKey, ...] = ()
    until_ms: UnixMs = UnixMs(0)
    claims: bool = True


class WorkloadPreempted(EventBase, frozen=True, tag="workload.preempted"):
    """
    Appended by the scheduler when a workload is preempted in favor of another: it is evicted from here on.

    `reason` is that of Kueue's Preempted condition: InClusterQueue, InCohortReclamation, InCohortFairSharing or
    InCohortReclaimWhileBorrowing; `message` is the one of both conditions. `preemptor` waits until its job has stopped.
    """

    workload: WorkloadKey
    uid: Uid
    cluster_queue: str
    preemptor: WorkloadKey
    preemptor_uid: Uid
    reason: str
    message: str


class WorkloadMigrated(EventBase, frozen=True, tag="workload.migrated"):
    """
    Appended by the scheduler when an admitted variant is replaced by its sibling in a better flavor.

    It is evicted from here on, with reason FlavorMigration. `by` waits until its job has stopped.
    """

    workload: WorkloadKey
    uid: Uid
    cluster_queue: str
    by: WorkloadKey
    by_uid: Uid
    message: str


class WorkloadReplaced(EventBase, frozen=True, tag="workload.replaced"):
    """
    Appended by the scheduler when a larger workload slice reserves quota, right behind that: names the slice replaced.

    It is finished with reason WorkloadSliceReplaced, and its quota is free, if `by` has its reservation.
    """

    workload: WorkloadKey
    uid: Uid
    cluster_queue: str
    by: WorkloadKey
    by_uid: Uid
    message: str


class ObjectPatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A write to an object: its kind, its name or `<namespace>/<name>`, and a JSON merge patch."""

    kind: str
    name: str
    patch: dict[str, Any]


class PodPlaced(EventBase, frozen=True, tag="pod.placed"):
    """
    Appended by the scheduler when it has chosen a node for a pod. The binder requests the binding.

    `scan_start` is the node, counted in the order of the cluster's nodes, at which the search began, and `scanned` how
    many nodes were looked at, 0 for all. `attempts` is which attempt of this pod it was, 0 when no attempt led to it.
    `writes` are made before the pod is bound, which then waits for `pod.prepared`; without any it is bound at once.
    With `waits_ms` plugins of the extension point Permit hold it back, for so long at most: it follows once more,
    without, when they let it go, or with a longer time when those do that would have waited least. In logs of earlier
    versions the binder has appended it.
    """

    pod: PodKey
    uid: Uid
    node: str
    scan_start: int = 0
    writes: tuple[ObjectPatch, ...] = ()
    waits_ms: int = 0
    scanned: int = 0
    attempts: int = 0


class PodPrepared(EventBase, frozen=True, tag="pod.prepared"):
    """Appended by the scheduler when what a placed pod was waiting for is there: its volumes are bound, for example."""

    pod: PodKey
    uid: Uid
    node: str


class PodWithdrawn(EventBase, frozen=True, tag="pod.withdrawn"):
    """Appended by the scheduler when a pod that was placed is not to be bound to that node after all."""

    pod: PodKey
    uid: Uid
    node: str
    reason: str
    message: str


class PluginRefusal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How many nodes a plugin has refused for one reason. `nodes` is 0 where it has refused the pod before any node."""

    plugin: str
    reason: str
    nodes: int = 0


class PodUnschedulable(EventBase, frozen=True, tag="pod.unschedulable"):
    """
    Appended by the scheduler when a pod fits on no node and the log does not have that yet.

    `reason` and `message` are those of the condition PodScheduled: Unschedulable, or SchedulerError. `refusals` has
    why, by plugin. `writes` are what plugins of the extension point PostFilter want to be written to help the pod: a
    resource claim is given back, for example. `scan_start` and `scanned` are as in `pod.placed`. The pod has been tried
    `attempts` times by now, of which `failures` ended in a rejection, and `errors` in an error since the last of those:
    its next attempt is put off by them. A pod that is tried again with the same result gets no further event of this
    type, but `pod.tried` while its backoff grows.
    """

    pod: PodKey
    uid: Uid
    reason: str
    message: str
    refusals: tuple[PluginRefusal, ...] = ()
    scan_start: int = 0
    writes: tuple[ObjectPatch, ...] = ()
    scanned: int = 0
    attempts: int = 0
    failures: int = 0
    errors: int = 0


class PodTried(EventBase, frozen=True, tag="pod.tried"):
    """
    Appended by the scheduler when a pod was tried again with the result that the log has, and is put off for longer.

    The numbers are as in `pod.unschedulable`. Further attempts, which change nothing, are not recorded.
    """

    pod: PodKey
    uid: Uid
    attempts: int
    failures: int
    errors: int


class Victim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod that has to go. It is deleted; if it is `budgeted`, evicted: a PodDisruptionBudget covers and allows it."""

    pod: PodKey
    uid: Uid
    budgeted: bool = False


class PodNominated(EventBase, frozen=True, tag="pod.nominated"):
    """
    Appended by the scheduler when a pod is to get a node once `victims` are gone; with the node "" when it is not.

    It follows on the `pod.unschedulable` of the same attempt, where that is recorded.
    """

    pod: PodKey
    uid: Uid
    node: str = ""
    victims: tuple[Victim, ...] = ()
    scan_start: int = 0


class PodGroupTried(EventBase, frozen=True, tag="podgroup.tried"):
    """
    Appended by the scheduler when it has decided the pods of a PodGroup together, before what it has decided of each.

    `pods` are those that had no node, in the order in which they were tried, `group` is `namespace/name`. `scheduled`,
    `reason` and `message` are those of the condition PodGroupScheduled. An attempt without news is not recorded.
    """

    group: str
    uid: Uid
    pods: tuple[PodKey, ...]
    scan_start: int = 0
    scheduled: bool = False
    reason: str = ""
    message: str = ""


class PodsOfDomain(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The pods that get one topology domain, with their uids. `values` has its value of each level."""

    values: tuple[str, ...]
    pods: dict[PodKey, Uid]


class PodsAssigned(EventBase, frozen=True, tag="pods.assigned"):
    """
    Appended by the ungater when it has chosen topology domains for gated pods, before it removes their gates.

    The pods are of one pod set of an admitted workload, the domains of its topology assignment.
    """

    workload: WorkloadKey
    uid: Uid
    pod_set: str
    domains: tuple[PodsOfDomain, ...]


PlacementDecision = PodPlaced | PodPrepared | PodWithdrawn | PodUnschedulable | PodNominated
"""What is decided about a node for a pod."""

Decision = (
    CycleDecided
    | QuotaReserved
    | WorkloadAdmitted
    | TopologyAssigned
    | SecondPassFailed
    | WorkloadSkipped
    | WorkloadPreempted
    | WorkloadMigrated
    | WorkloadReplaced
    | PlacementDecision
    | PodTried
    | PodGroupTried
    | PodsAssigned
)
