"""
Variants: one workload tried in every flavor of its ClusterQueue at once (KEP-8691, gate ConcurrentAdmission).

The Workload of a job in a ClusterQueue with a `concurrentAdmissionPolicy` is a parent. It never queues: it has one
variant per flavor of the single resource group, a Workload of its own that may use that flavor only. The parent is
admitted with the first admitted variant. With `TryPreferredFlavors` the variants of better flavors stay queued, down to
`lastAcceptableFlavorName`, and when one of them fits, the admitted one is evicted for it (FlavorMigration). A variant
may preempt only once its gate is open, and gates are opened one at a time.

The cycle uses this module for siblings. The needs of a family (variants to create, switch on and off, gates to open,
the parent to admit or evict) are computed by `headgate.core.workload.concurrent_admission`.
"""

import hashlib
from collections.abc import Sequence

from headgate.core.api.names import ALLOWED_FLAVORS
from headgate.core.config import feature_gates
from headgate.core.config.feature_gates import enabled
from headgate.core.kubernetes import conditions
from headgate.core.state.tables import State, Workload
from headgate.core.workload.names import NAME_LEN_MAX, hashed_name, name_len_max
from headgate.events.configuration import Configuration
from headgate.events.ids import WorkloadKey, split_key
from headgate.events.objects import ClusterQueueSpec, WorkloadStatus

PARENT = "kueue.x-k8s.io/concurrent-admission-parent"
"""The label of a parent, "true"."""
GATE = "kueue.x-k8s.io/concurrent-admission"
"""The preemption gate of a variant."""
NEVER_QUEUES = "ConcurrentAdmission"
"""Why a parent is parked, in the log: its variants queue, and count as pending, in its place."""

RETAIN_FIRST = "RetainFirstAdmission"
FLAVOR_MIGRATION = "FlavorMigration"
MORE_FAVORABLE_ADMITTED = "A more favorable variant is already admitted"
BELOW_LAST_ACCEPTABLE = "Target flavor is below LastAcceptableFlavorName"
PENDING_MIGRATION = ". Pending the migration of 1 workload(s)"

_OWNER_GROUP = "kueue.x-k8s.io"
_FOLLOWS = "The variant "


def is_on(configuration: Configuration, spec: ClusterQueueSpec) -> bool:
    """Whether workloads of a ClusterQueue of this spec are tried in every flavor at once."""
    return spec.concurrent_admission_policy is not None and enabled(configuration, feature_gates.CONCURRENT_ADMISSION)


def is_parent(workload: Workload) -> bool:
    """Whether a workload is marked as one that has variants."""
    return workload.labels.get(PARENT) == "true"


def is_variant(workload: Workload) -> bool:
    """Whether a workload is the attempt of its parent in one flavor."""
    owner = workload.owner
    return owner is not None and (owner.group, owner.kind) == (_OWNER_GROUP, "Workload")


def parent_uid(workload: Workload) -> str:
    """The uid of a variant's parent; "" when it is no variant."""
    return workload.owner.uid if workload.owner is not None and is_variant(workload) else ""


def parent_key(workload: Workload) -> WorkloadKey | None:
    """The key of a variant's parent; None when it is no variant."""
    if workload.owner is None or not is_variant(workload):
        return None
    return WorkloadKey(f"{split_key(workload.key)[0]}/{workload.owner.name}")


def variant_name(parent: str, parent_uid: str, flavor: str, *, len_max: int = NAME_LEN_MAX) -> str:
    """
    The name of a variant, as in Kueue's GetWorkloadNameForVariant.

    `<parent without its hash>-variant-<flavor>-<hash>`, the hash over kind, group, parent, its uid and the flavor.
    """
    parts = ("Workload", "kueue.x-k8s.io", parent, parent_uid, flavor)
    hashed = hashlib.sha1("\n".join(parts).encode(), usedforsecurity=False).hexdigest()
    base = parent.rpartition("-")[0] or parent
    return hashed_name(f"{base}-variant-{flavor}", hashed, len_max)


def variant_key(configuration: Configuration, parent: Workload, flavor: str) -> WorkloadKey:
    """The key of the variant of a parent for a flavor."""
    namespace, name = split_key(parent.key)
    len_max = name_len_max(configuration)
    return WorkloadKey(f"{namespace}/{variant_name(name, parent.uid, flavor, len_max=len_max)}")


def allowed_flavors(workload: Workload) -> tuple[str, ...]:
    """The flavors in a workload's annotation of allowed flavors, in its order; none without the annotation."""
    text = workload.annotations.get(ALLOWED_FLAVORS, "")
    return tuple(name for name in (each.strip() for each in text.split(",")) if name)


def is_followed(workload: Workload, status: WorkloadStatus) -> bool:
    """Whether a status that was found shows that a workload runs on the quota of one of its variants."""
    admitted = conditions.find(status.conditions, conditions.ADMITTED)
    return is_parent(workload) and admitted is not None and admitted.message.startswith(_FOLLOWS)


def followed_message(variant: WorkloadKey) -> str:
    """Kueue's message of the Admitted condition of a parent."""
    return f"{_FOLLOWS}{split_key(variant)[1]} is admitted"


def flavor_of(workload: Workload) -> str:
    """The flavor that a variant is for; "" when it names none."""
    return next(iter(allowed_flavors(workload)), "")


def flavor_order(spec: ClusterQueueSpec) -> Sequence[str]:
    """The flavors of a ClusterQueue's first resource group, best first."""
    return tuple(quotas.name for quotas in spec.resource_groups[0].flavors) if spec.resource_groups else ()


def more_favorable_admitted(state: State, workload: Workload) -> Workload | None:
    """The admitted sibling of a variant in a better flavor; None when there is none."""
    return _admitted_sibling(state, workload, better=True)


def less_favorable_admitted(state: State, workload: Workload) -> Workload | None:
    """The admitted sibling of a variant in a worse flavor, for which it may be evicted; None when there is none."""
    return _admitted_sibling(state, workload, better=False)


def _admitted_sibling(state: State, workload: Workload, *, better: bool) -> Workload | None:
    parent = parent_uid(workload)
    record = state.cluster_queues.get(workload.cluster_queue)
    if not parent or record is None or not enabled(state.configuration, feature_gates.CONCURRENT_ADMISSION):
        return None
    order = flavor_order(record.spec)
    if flavor_of(workload) not in order:
        return None
    place = order.index(flavor_of(workload))
    found: list[tuple[int, str, Workload]] = []
    for key in state.index.holders.get(workload.cluster_queue, {}):
        sibling = state.workloads[key]
        if sibling.uid == workload.uid or parent_uid(sibling) != parent or flavor_of(sibling) not in order:
            continue
        its = order.index(flavor_of(sibling))
        is_match = its < place if better else its > place
        if is_match and conditions.is_true(sibling.conditions, conditions.ADMITTED):
            found.append((its, sibling.uid, sibling))
    return min(found)[2] if found else None


def retains_first(spec: ClusterQueueSpec) -> bool:
    """Whether a job stays in the flavor that it was first admitted in."""
    policy = spec.concurrent_admission_policy
    return policy is not None and policy.migration.mode == RETAIN_FIRST


def last_acceptable_flavor(spec: ClusterQueueSpec) -> str | None:
    """The worst flavor to which an admitted workload is still moved; None when each better one is acceptable."""
    policy = spec.concurrent_admission_policy
    constraints = policy.migration.constraints if policy is not None else None
    return constraints.last_acceptable_flavor_name if constraints is not None else None


def may_migrate(spec: ClusterQueueSpec, workload: Workload) -> bool:
    """
    Whether a variant's flavor is good enough for an admitted sibling to be evicted for it.

    Never where the first admission is retained: Kueue switches the siblings off for that, which comes too late when a
    better flavor fits in the next cycle, and would restart the race between them.
    """
    if retains_first(spec):
        return False
    last = last_acceptable_flavor(spec)
    if last is None:
        return True
    order = flavor_order(spec)
    flavor = flavor_of(workload)
    if flavor not in order or last not in order:
        return False
    return order.index(flavor) <= order.index(last)


def migration_message(workload: Workload) -> str:
    """Kueue's message of the Evicted condition of a variant that is evicted for a better one."""
    return f"Evicted to accommodate a workload (UID: {workload.uid}) due to migration to more favorable resource flavor"
