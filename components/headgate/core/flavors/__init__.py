"""
Flavor assignment: which flavor each resource of a workload gets, and how well it would fit there.

The cycle calls `Assigner` once per head. The result, an `Assignment`, has for each pod set and resource the flavor, the
mode (fits now; needs preemption; cannot fit), the borrowing level, and for what does not fit the reasons, in Kueue's
order and wording. Nothing is charged here.

    modes              the modes of a part of a workload: `Mode`, `Grade`, which is preferred
    assignment         the result: `Assignment` and its parts
    cluster_queue      a ClusterQueue, its resource groups and flavors, and which pod sets match them
    catalog            makes these records from the specs of a state, and keeps them until a spec changes
    matching           which flavors a pod set may get, whatever the quota; kept with the ClusterQueue
    assigner           the scan over flavors
    placing            the topology domains of the pods, once they have their flavors
    provisioning       admission checks for which these have to wait
    partial_admission  the most pods that are acceptable

The rules are Kueue's (`kueue-semantics` section 4, `kueue-observed` "Flavor assignment"; KEP-79, KEP-582 flavor
fungibility, KEP-420 partial admission). Resources are visited in the order of the FNV-1a hash of their names, as Kueue
does since it vectorized requests: which resource group fails first, and so the message, depends on it.

A `PreemptionOracle` determines whether preemption is possible. `NobodyToPreempt` is the answer where it is not: a
workload that lacks unused quota, but would fit if others left, is in mode PREEMPT without candidates.

Owns: the flavor of each resource of a workload, the domains that its pods ask for, the catalog of specs, partial
admission.
Called by: the cycle, preemption, the machines of the queue manager and of the scheduler.
May import: quota, topology, workload, api, state, config, kubernetes, events.
"""

from headgate.core.flavors.assigner import WAYS_MAX, Assigner, NobodyToPreempt, PreemptionOracle, allowed_flavors
from headgate.core.flavors.assignment import (
    EXCEEDS_MAX_QUOTA,
    NO_MATCHING_FLAVOR,
    WAITING_FOR_QUOTA,
    Assignment,
    Attempt,
    Choice,
    Nomination,
    PodSetResult,
)
from headgate.core.flavors.matching import visit_rank
from headgate.core.flavors.modes import Grade, Mode
from headgate.core.flavors.partial_admission import may_be_reduced, reduced, spare_pods

__all__ = [
    "EXCEEDS_MAX_QUOTA",
    "NO_MATCHING_FLAVOR",
    "WAITING_FOR_QUOTA",
    "WAYS_MAX",
    "Assigner",
    "Assignment",
    "Attempt",
    "Choice",
    "Grade",
    "Mode",
    "NobodyToPreempt",
    "Nomination",
    "PodSetResult",
    "PreemptionOracle",
    "allowed_flavors",
    "may_be_reduced",
    "reduced",
    "spare_pods",
    "visit_rank",
]
