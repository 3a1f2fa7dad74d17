"""
What new manifests change: the plan with them against the plan without.

Objects that a cluster has given (they have a uid) are there; others are new. A new object of Kueue that has the name of
one that is there replaces it. Two plans are compared by what becomes of each workload, not by when or at what place.
"""

from collections.abc import Sequence

import msgspec

from headgate.cli.manifests import Manifest
from headgate.cli.plan_report import Admitted, PlannedWait, PlanReport
from headgate.core.api.conversion import GROUP
from headgate.events.ids import WorkloadKey

_NEVER_REPLACED = frozenset({"Workload"})


def split(manifests: Sequence[Manifest]) -> tuple[list[Manifest], list[Manifest]]:
    """The manifests of what is there, and all of them with the new ones in the place of those that they replace."""
    there = [each for each in manifests if each.body["metadata"].get("uid")]
    new = [each for each in manifests if not each.body["metadata"].get("uid")]
    replaced = {_name(each) for each in new if _may_replace(each)}
    return there, [each for each in there if _name(each) not in replaced] + new


def _may_replace(manifest: Manifest) -> bool:
    return manifest.api_version.partition("/")[0] == GROUP and manifest.kind not in _NEVER_REPLACED


def _name(manifest: Manifest) -> tuple[str, str, str, str]:
    return manifest.api_version.rpartition("/")[0], manifest.kind, manifest.namespace, manifest.name


def changes(before: PlanReport, after: PlanReport) -> PlanReport:
    """The report of what is otherwise than without the new manifests."""
    admitted = {each.workload: _place(each) for each in before.admitted}
    waiting = {each.workload: _wait(each) for each in before.waiting}
    known = {(each.workload, each.by) for each in before.preempted}
    now_admitted = tuple(each for each in after.admitted if admitted.get(each.workload) != _place(each))
    now_waiting = tuple(each for each in after.waiting if waiting.get(each.workload) != _wait(each))
    return msgspec.structs.replace(
        after,
        all_admitted=not now_waiting and not any(each.checks for each in now_admitted),
        admitted=now_admitted,
        preempted=tuple(each for each in after.preempted if (each.workload, each.by) not in known),
        waiting=now_waiting,
    )


def _place(admitted: Admitted) -> Admitted:
    return msgspec.structs.replace(admitted, cycle=0)


def _wait(waiting: PlannedWait) -> tuple[str, str, str, tuple[WorkloadKey, ...]]:
    return waiting.cluster_queue, waiting.queue, waiting.reason, waiting.preempts
