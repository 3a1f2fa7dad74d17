"""
The data of a cycle: its entries, one per head, and the cycle as a whole.

`headgate.core.cycle.nominating` fills in an entry's assignment, `headgate.core.cycle.processing` its outcome; all other
code only reads entries. The terms are Kueue's (`entry` in its scheduler, requeue reasons of its queues).
"""

from typing import Literal

import msgspec

from headgate.core.flavors import Assigner, Assignment, Mode
from headgate.core.flavors.cluster_queue import ClusterQueueFlavors
from headgate.core.flavors.placing import Placer
from headgate.core.preemption import Target
from headgate.core.state.tables import DomainUsage, FlavorResource, Workload
from headgate.core.workload.pod_requests import PodSetRequests
from headgate.events.ids import UnixMs, WorkloadKey

NAMESPACE_MISMATCH = "NamespaceMismatch"
NO_FIT = "NoFit"
NO_CANDIDATES = "PreemptionNoCandidates"
FAILED_AFTER_NOMINATION = "FailedAfterNomination"
PENDING_PREEMPTION = "PendingPreemption"
PENDING_MIGRATION = "PendingMigration"
PREEMPTION_GATED = "PreemptionGated"

PREEMPTS = frozenset({PENDING_PREEMPTION, PENDING_MIGRATION})
"""Requeue reasons of a workload that waits for its victims: it is its ClusterQueue's preemptor."""

Label = Literal["", "Fit", "Preempt", "NoFit", "DeferredFit"]
Status = Literal["", "assumed", "skipped", "preemptionGated", "evicted"]
Scope = Literal["immediate", "workload", "shape", "queue"]
"""What a verdict parks (`headgate.events.decisions.WorkloadSkipped`)."""


class CycleEntry(msgspec.Struct):
    """
    A head during a cycle.

    `mode` and `borrowing` are those of the assignment that was decided on, after a recomputation; "" where the head was
    rejected before nomination. `status` is "assumed" for a head that got its quota, "skipped" for one that fitted, or
    could have preempted, until another of the cycle came before it, "preemptionGated", "evicted" for a workload whose
    lost node nothing replaces, or "" (not nominated). `reason` is that of the QuotaReserved condition, `message` its
    message. `requeue_reason` is Kueue's, with FailedAfterNomination already filled in for a skipped head (Kueue does so
    when it requeues); "" is its Generic.
    """

    workload: Workload
    queue: ClusterQueueFlavors
    requests: tuple[PodSetRequests, ...] = ()
    standing: bool = False
    """It is not offered: it blocks its ClusterQueue with a verdict, and is decided in every cycle of its tree."""
    second_pass: bool = False
    """It holds quota, and its pods still need topology domains, or others because of a lost node."""
    is_preemptor: bool = False
    mode: Label = ""
    assignment: Assignment | None = None
    targets: tuple[Target, ...] = ()
    """The workloads that it preempts, or would have; without the slice that it replaces."""
    preempts: tuple[tuple[Target, str], ...] = ()
    """Those of its targets that this cycle preempts, with their condition's message; the others are evicted already."""
    goes_on: bool = False
    """Whether some of its targets are left for the next cycle to preempt: there were too many for one."""
    until_ms: UnixMs = UnixMs(0)
    """Until when it waits for quota to be freed by finishing workloads, without preempting; 0: it does not wait."""
    waits_on: bool = False
    """It is standing, keeps its quota reserved, and its verdict stays as it is: no other one is written."""
    claims: bool = False
    """Whether quota was reserved for it, so that others of the cycle did not get it."""
    replaces: Workload | None = None
    """The slice of its elastic job that it replaces."""
    migrates: Workload | None = None
    """The variant in a less favorable flavor that is evicted for it."""
    status: Status = ""
    requeue_reason: str = ""
    reason: str = ""
    message: str = ""
    last_tried: tuple[dict[str, int], ...] = ()
    """Per pod set and resource, the index of the flavor that the scan stopped at; empty when none is left to try."""
    resumed_from: tuple[dict[str, int], ...] = ()
    """Where its scan resumed: `last_tried` of an earlier cycle."""
    scans_all: bool = False
    """Its scan began with the first flavor and continued in this cycle past every stop without success."""
    short: tuple[str, ...] = ()
    """The flavor-resources, `<flavor>/<resource>`, whose release could change the verdict; none: any could."""
    placer: Placer | None = None
    """What finds the topology domains of its pods."""
    assigner: Assigner | None = None
    """What assigned its flavors; it can also compute the other possible assignments."""
    contested: bool = False
    """Whether an earlier head of its tree in this cycle was admitted, or has preempted a further workload."""
    outdated: bool = False
    """Whether it found no candidates, and this cycle has admitted a borrowing workload of its tree."""

    @property
    def key(self) -> WorkloadKey:
        """The workload's key."""
        return self.workload.key

    @property
    def borrowing(self) -> int:
        """The height of the subtree that it borrows from; 0 without borrowing."""
        return self.assignment.borrowing if self.assignment is not None else 0

    @property
    def usage(self) -> dict[FlavorResource, int]:
        """What its assignment would be charged."""
        return self.assignment.usage if self.assignment is not None else {}

    @property
    def occupies(self) -> tuple[DomainUsage, ...]:
        """What its pods would occupy in topologies, beyond what they do."""
        return self.assignment.occupies if self.assignment is not None else ()

    @property
    def flavors(self) -> dict[str, dict[str, str]]:
        """Pod set -> resource -> flavor, of the pod sets that the assignment covers."""
        if self.assignment is None:
            return {}
        return {
            pod_set.name: {resource: choice.flavor for resource, choice in sorted(pod_set.flavors.items())}
            for pod_set in self.assignment.pod_sets
        }


def label_of(mode: Mode) -> Label:
    """A mode as Kueue writes it."""
    match mode:
        case Mode.FIT:
            return "Fit"
        case Mode.PREEMPT:
            return "Preempt"
        case Mode.NO_FIT:
            return "NoFit"


class Cycle(msgspec.Struct, frozen=True):
    """
    One decided cycle.

    `entries` were nominated, in the order of processing; `rejected` were rejected before, in the order of their keys.
    `skipped_preemptions` counts per ClusterQueue those that could have preempted and were skipped.
    """

    entries: tuple[CycleEntry, ...] = ()
    rejected: tuple[CycleEntry, ...] = ()
    skipped_preemptions: dict[str, int] = {}
