"""
Activeness: whether a ClusterQueue, a LocalQueue or an admission check can be used now, and if not, why.

It is not stored: it follows from the specs in the state, so it cannot be out of date. The scheduler takes heads of
active ClusterQueues only. The queue manager offers none of inactive ones and writes the conditions of workloads that
wait for a queue. The binder writes the answer as the queue's Active condition.

Reasons and messages are Kueue's (its ClusterQueue cache and its LocalQueue controller), with two exceptions. Kueue
leaves a ClusterQueue below a cycle of cohorts Ready and then never admits from it; here it is inactive. And a
ClusterQueue in quarantine because the scheduler or the queue manager failed over it (`headgate.core.fold.quarantine`)
is inactive: its running workloads continue, and none is admitted.
"""

import msgspec

from headgate.core.api.admission_checks import MULTI_KUEUE, PROVISIONING
from headgate.core.config import feature_gates
from headgate.core.quota.cohorts import in_cycle
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.ids import LocalQueueKey
from headgate.events.objects import CheckRule, ClusterQueueSpec

ACTIVE = "Active"
"""The type of the condition that these answers are written to."""

CLUSTER_QUEUE = "ClusterQueue"
COHORT = "Cohort"
_DECIDE_QUOTA = frozenset({Producer.SCHEDULER.value, Producer.QUEUE_MANAGER.value})
_READY = "Ready"


class Activeness(msgspec.Struct, frozen=True, gc=False):
    """An Active condition: its status, reason and message."""

    active: bool
    reason: str
    message: str


_CLUSTER_QUEUE_READY = Activeness(active=True, reason=_READY, message="Can admit new workloads")
_LOCAL_QUEUE_READY = Activeness(active=True, reason=_READY, message="Can submit new workloads to localQueue")
_TERMINATING = Activeness(
    active=False, reason="Terminating", message="Can't admit new workloads; clusterQueue is terminating"
)
_NOT_FOUND = Activeness(active=False, reason="NotFound", message="ClusterQueue not found")
_SET_ASIDE = Activeness(
    active=False,
    reason="SetAside",
    message="Can't admit new workloads: a defect was found with it; see `headgate quarantine list`.",
)


def is_left_alone(state: State, kind: str, name: str) -> bool:
    """Whether an object is in quarantine because the scheduler or the queue manager has failed over it."""
    if not state.quarantine:
        return False
    record = state.quarantine.get(f"{kind}/{name}")
    return record is not None and record.process in _DECIDE_QUOTA


def cluster_queue_active(state: State, name: str) -> Activeness:
    """
    Whether a ClusterQueue admits workloads now.

    With several problems the reason is that of the first in Kueue's order, and the message names all.
    """
    record = state.cluster_queues.get(name)
    if record is None:
        return _NOT_FOUND
    if record.deleting:
        return _TERMINATING
    if is_left_alone(state, CLUSTER_QUEUE, name):
        return _SET_ASIDE
    problems = _problems(state, record.spec)
    if not problems:
        return _CLUSTER_QUEUE_READY
    what = ", ".join(problem for _, problem in problems)
    return Activeness(active=False, reason=problems[0][0], message=f"Can't admit new workloads: {what}.")


def _problems(state: State, spec: ClusterQueueSpec) -> list[tuple[str, str]]:
    """Each reason with its message, in Kueue's order."""
    problems: list[tuple[str, str]] = []
    if spec.stop_policy != "None":
        problems.append(("Stopped", "is stopped"))
    flavors = [quotas.name for group in spec.resource_groups for quotas in group.flavors]
    if missing := [name for name in flavors if name not in state.flavors]:
        problems.append(("FlavorNotFound", f"references missing ResourceFlavor(s): {','.join(missing)}"))
    problems.extend(_check_problems(state, spec))
    problems.extend(_multi_kueue_problems(state, spec))
    if problems or not _checks_of(state, spec, MULTI_KUEUE):
        # With MultiKueue, topologies are those of the worker clusters: a missing one alone is no problem.
        problems.extend(_topology_problems(state, flavors))
    if spec.cohort_name and in_cycle(spec.cohort_name, state.cohorts):
        problems.append(("CohortCycle", f'the parents of cohort "{spec.cohort_name}" form a cycle'))
    return problems


def _topology_problems(state: State, flavors: list[str]) -> list[tuple[str, str]]:
    if not state.configuration.feature_gates.get(feature_gates.TOPOLOGY_AWARE_SCHEDULING, True):
        return []
    problems = []
    for name in dict.fromkeys(flavors):
        flavor = state.flavors.get(name)
        topology = flavor.spec.topology_name if flavor is not None else None
        if topology is not None and topology not in state.topologies:
            problems.append(("TopologyNotFound", f'there is no Topology "{topology}" for TAS flavor "{name}"'))
    return problems


def _checks_of(state: State, spec: ClusterQueueSpec, controller: str) -> list[CheckRule]:
    """The admission checks of a ClusterQueue that a controller serves, by name."""
    strategy = spec.admission_checks_strategy
    rules = {rule.name: rule for rule in strategy.admission_checks} if strategy is not None else {}
    known = state.admission_checks
    return [rules[name] for name in sorted(rules) if name in known and known[name].spec.controller_name == controller]


def _multi_kueue_problems(state: State, spec: ClusterQueueSpec) -> list[tuple[str, str]]:
    """What of a MultiKueue check does not go together with another check, or with flavors of its own."""
    multi_kueue = _checks_of(state, spec, MULTI_KUEUE)
    per_flavor = [rule.name for rule in multi_kueue if rule.on_flavors]
    provisioning = _checks_of(state, spec, PROVISIONING)
    names, others = ",".join(rule.name for rule in multi_kueue), ",".join(rule.name for rule in provisioning)
    problems = []
    if len(multi_kueue) > 1:
        what = f"Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: {names}"
        problems.append(("MultipleMultiKueueAdmissionChecks", what))
    if per_flavor:
        what = f"Cannot specify MultiKueue AdmissionCheck per flavor, found: {','.join(per_flavor)}"
        problems.append(("MultiKueueAdmissionCheckAppliedPerFlavor", what))
    if multi_kueue and provisioning:
        what = f"Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: {names}, {others}"
        problems.append(("MultiKueueWithProvisioningRequest", what))
    return problems


def _check_problems(state: State, spec: ClusterQueueSpec) -> list[tuple[str, str]]:
    strategy = spec.admission_checks_strategy
    names = sorted({rule.name for rule in strategy.admission_checks}) if strategy is not None else []
    missing = [name for name in names if name not in state.admission_checks]
    inactive = [name for name in names if name not in missing and not admission_check_active(state, name).active]
    problems = []
    if missing:
        problems.append(("AdmissionCheckNotFound", f"references missing AdmissionCheck(s): {','.join(missing)}"))
    if inactive:
        problems.append(("AdmissionCheckInactive", f"references inactive AdmissionCheck(s): {','.join(inactive)}"))
    return problems


def local_queue_active(state: State, key: LocalQueueKey) -> Activeness:
    """Whether a LocalQueue accepts workloads now. One that does not exist has the reason NotFound."""
    record = state.local_queues.get(key)
    if record is None:
        return Activeness(active=False, reason="NotFound", message="LocalQueue not found")
    if record.spec.stop_policy != "None":
        return Activeness(active=False, reason="Stopped", message="LocalQueue is stopped")
    if record.spec.cluster_queue not in state.cluster_queues:
        return _local_queue_inactive("ClusterQueueDoesNotExist")
    if not cluster_queue_active(state, record.spec.cluster_queue).active:
        return _local_queue_inactive("ClusterQueueIsInactive")
    return _LOCAL_QUEUE_READY


def _local_queue_inactive(reason: str) -> Activeness:
    return Activeness(active=False, reason=reason, message="Can't submit new workloads to clusterQueue")


def admission_check_active(state: State, name: str) -> Activeness:
    """Whether the controller of an admission check reports the check as Active."""
    record = state.admission_checks.get(name)
    if record is None:
        return Activeness(active=False, reason="NotFound", message="AdmissionCheck not found")
    if not record.active:
        return Activeness(active=False, reason="Inactive", message="its controller does not serve it")
    return Activeness(active=True, reason="Active", message="its controller serves it")
