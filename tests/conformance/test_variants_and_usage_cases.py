"""Kueue's own tests of admission fair sharing and of ConcurrentAdmission: its cycles, and ours on the same objects."""

from typing import Any

import pytest
from tests.conformance.test_schedule_cases import ends_as_recorded
from tests.support import conformance, scheduling
from tests.support.conformance import Case
from tests.support.scheduling import SchedulerAlone

from headgate.events.base import Producer
from headgate.events.facts import LocalQueueDeleted
from headgate.events.ids import LocalQueueKey

pytestmark = pytest.mark.skipif(
    not conformance.CASES.is_dir(), reason="the recordings of Kueue are not next to the repository"
)


def _parameters(suite: str) -> list[Any]:
    return [pytest.param(case, id=case["file"].partition("/")[2]) for case in conformance.cases(suite)]


def _with_usage(case: Case) -> Case:
    """A case whose LocalQueues show, in their statuses, what they have consumed so far."""
    usage = case.get("initialLocalQueueUsage", {})

    def shown(manifest: dict[str, Any]) -> dict[str, Any]:
        name = manifest["metadata"]["name"]
        if manifest["kind"] != "LocalQueue" or name not in usage:
            return manifest
        remembered = {"consumedResources": usage[name], "lastUpdate": case["now"]}
        fair = {"weightedShare": 0, "admissionFairSharingStatus": remembered}
        return {**manifest, "status": {"fairSharing": fair}}

    return {**case, "objects": [shown(manifest) for manifest in case["objects"]]}


@pytest.mark.parametrize("case", _parameters("TestScheduleForAFS"))
def test_cycles_of_admission_fair_sharing_end_as_kueues_did(case: Case) -> None:
    """TestScheduleForAFS. A deleted LocalQueue is gone from the API, and its workloads are still in the queues."""
    scheduler = SchedulerAlone(_with_usage(case))
    if "deletedLocalQueue" in case:
        gone = LocalQueueDeleted(queue=LocalQueueKey(f"default/{case['deletedLocalQueue']}"))
        scheduler.log.append(Producer.INFORMER_BRIDGE, [gone])
    for _ in range(case["cycles"]):
        scheduler.cycle()
    ends_as_recorded(scheduling.outcome(scheduler), case)


@pytest.mark.parametrize("case", _parameters("TestScheduleConcurrentAdmission"))
def test_cycles_over_variants_end_as_kueues_did(case: Case) -> None:
    """TestScheduleConcurrentAdmission."""
    ends_as_recorded(scheduling.run(case), case)
