"""The owner of a Workload that has no Job, played by a test: it stops the work of an evicted one and reports it."""

from msgspec.structs import replace

from headgate.core.state.tables import State, Workload
from headgate.core.status.workload_status import digest_of, workload_status
from headgate.core.workload.last_fact import last_fact
from headgate.events.effects import StatusApplied
from headgate.events.facts import WorkloadObserved
from headgate.events.objects import Condition, ShownConditions


def applied(state: State, workload: Workload) -> StatusApplied:
    """The API server has taken the status that the state gives."""
    digest = digest_of(workload, workload_status(state, workload))
    version = workload.applied_version + 1
    return StatusApplied(workload=workload.key, uid=workload.uid, digest=digest, version=version)


def shows(workload: Workload, *conditions: Condition, later: int = 2) -> WorkloadObserved:
    """The object shows conditions that were written `later` versions after our last write but one."""
    named = {each.type: each for each in conditions}
    shown = ShownConditions(
        version=workload.applied_version + later,
        quota_reserved=named.get("QuotaReserved"),
        evicted=named.get("Evicted"),
        requeued=named.get("Requeued"),
        admitted=named.get("Admitted"),
    )
    return replace(last_fact(workload), shown=shown)


def gives_back(workload: Workload) -> WorkloadObserved:
    """The owner has stopped the work, and sets QuotaReserved=False as Kueue's integrations do."""
    by_test = Condition(type="QuotaReserved", status="False", reason="Pending", message="By test")
    return shows(workload, by_test)
