"""Two cycles in a row: where the scan over flavors goes on, and when it begins anew."""

from typing import Any

import msgspec
import pytest
from tests.support import conformance
from tests.support.conformance import Case
from tests.support.logs import TestLog

from headgate.core.machine import Append, Committed, Machine, Settled
from headgate.core.state import HOLDS_QUOTA
from headgate.events.base import Producer
from headgate.events.facts import WorkloadDeleted
from headgate.events.ids import WorkloadKey
from headgate.processes.queue_manager.decide import QueueManager
from headgate.processes.scheduler.decide import Scheduler

pytestmark = pytest.mark.skipif(
    not conformance.CASES.is_dir(), reason="the recordings of Kueue are not next to the repository"
)


class Pair:
    """A queue manager and a scheduler on one log."""

    def __init__(self, log: TestLog) -> None:
        self.log = log
        self.queues: Machine = QueueManager(log.state)
        self.scheduler: Machine = Scheduler(log.state)

    def cycle(self) -> None:
        """Let the queue manager say all it has to say, then decide one cycle."""
        while self._settle(Producer.QUEUE_MANAGER, self.queues):
            pass
        self._settle(Producer.SCHEDULER, self.scheduler)

    def delete(self, key: str) -> None:
        """Delete a workload."""
        uid = self.log.state.workloads[WorkloadKey(key)].uid
        self._append(Producer.INFORMER_BRIDGE, WorkloadDeleted(workload=WorkloadKey(key), uid=uid))

    def _settle(self, producer: Producer, machine: Machine) -> bool:
        appends = [each for each in machine.decide(Settled(self.log.now_ms)) if isinstance(each, Append)]
        for append in appends:
            self._append(producer, *append.events, decided_at=append.decided_at)
        return bool(appends)

    def _append(self, producer: Producer, *events: Any, decided_at: int = 0) -> None:
        logged = self.log.append(producer, *events, decided_at=decided_at)
        for machine in (self.queues, self.scheduler):
            machine.decide(Committed(logged))

    def admissions(self) -> dict[str, Any]:
        """Who holds quota, and how."""
        return {
            key: msgspec.json.decode(msgspec.json.encode(workload.admission))
            for key, workload in self.log.state.workloads.items()
            if workload.stage in HOLDS_QUOTA and workload.admission is not None
        }


def _parameters() -> list[Any]:
    return [pytest.param(case, id=case["file"]) for case in conformance.cases("TestLastSchedulingContext")]


@pytest.mark.parametrize("case", _parameters())
def test_two_cycles_admit_what_kueue_admitted(case: Case) -> None:
    """
    After the first, and, when some workloads are gone, after the second.

    Where Kueue preempted in the first, its victims are among those that are gone, so that the outcome is the same.
    """
    pair = Pair(conformance.observed(case))
    pair.cycle()
    assert pair.admissions() == _wanted(case["want"]["afterFirstCycle"])
    for key in case.get("betweenCycles", {}).get("deleteWorkloads", ()):
        pair.delete(key)
    pair.cycle()
    assert pair.admissions() == _wanted(case["want"])


def _wanted(recorded: dict[str, Any]) -> dict[str, Any]:
    return {key: each["admission"] for key, each in recorded["admissions"].items()}
