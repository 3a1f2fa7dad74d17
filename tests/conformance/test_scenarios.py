"""Whole recorded scenarios: queue manager and scheduler together, until nothing is left to decide."""

import gzip
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.support import conformance
from tests.support.logs import TestLog

from headgate.core.machine import Append, Committed, Machine, Settled
from headgate.core.state import HOLDS_QUOTA, State
from headgate.events.base import Producer
from headgate.events.ids import WorkloadKey
from headgate.processes.queue_manager.decide import QueueManager
from headgate.processes.scheduler.decide import Scheduler

SCENARIOS = conformance.ROOT / "scenarios"
COMMITS_MAX = 5000

pytestmark = pytest.mark.skipif(not SCENARIOS.is_dir(), reason="the recordings of Kueue are not next to the repository")


OTHERWISE = {
    "c-1012": "Kueue retries a head that another's claim keeps from fitting for ever, and nothing behind it moves; "
    "here it is set aside, and the next of its BestEffortFIFO ClusterQueue is admitted",
}
"""Where we mean to differ."""


def _preempts(record: dict[str, Any]) -> bool:
    evaluated = (each for cycle in record["outcome"]["trace"] for each in cycle["evaluated"])
    return any(each.get("targets") for each in evaluated)


def _scenarios() -> Iterator[Any]:
    """Those without fair sharing and topologies in which Kueue had nobody to preempt."""
    for kind in "abcfg":
        path = SCENARIOS / f"{kind}.jsonl.gz"
        if not path.exists():
            continue
        with gzip.open(path) as lines:
            for line in lines:
                record = msgspec.json.decode(line)
                name = record["scenario"]["name"]
                if "fairSharing" not in record["scenario"]["config"] and not _preempts(record):
                    why = OTHERWISE.get(name)
                    marks = [pytest.mark.xfail(reason=why, strict=True)] if why else []
                    yield pytest.param(record, id=name, marks=marks)


def run(log: TestLog) -> None:
    """Let both machines append by turns until neither has anything to say."""
    machines: dict[Producer, Machine] = {
        Producer.QUEUE_MANAGER: QueueManager(log.state),
        Producer.SCHEDULER: Scheduler(log.state),
    }
    said, before = True, len(log.commits)
    while said:
        said = False
        for producer, machine in machines.items():
            for command in machine.decide(Settled(log.now_ms)):
                if isinstance(command, Append):
                    logged = log.append(producer, *command.events, decided_at=command.decided_at)
                    said = True
                    for each in machines.values():
                        assert not any(isinstance(more, Append) for more in each.decide(Committed(logged)))
        assert len(log.commits) - before < COMMITS_MAX, "the two never come to an end"


RECORDS = list(_scenarios())


@pytest.mark.parametrize("record", RECORDS)
def test_the_same_workloads_are_admitted_with_the_same_flavors(record: dict[str, Any]) -> None:
    """Who holds quota at the end, in which ClusterQueue, with which counts and flavors, is as Kueue recorded it."""
    log = conformance.observed(record["scenario"])
    run(log)
    final = record["outcome"]["final"]["workloads"]
    assert _holders(log.state) == {
        key: _recorded(each) for key, each in final.items() if each["state"] in ("Admitted", "QuotaReserved")
    }


@pytest.mark.parametrize("record", [record for record in RECORDS if not record.marks])
def test_conditions_are_worded_as_kueue_worded_them(record: dict[str, Any]) -> None:
    """
    Type, status, reason and message of every condition.

    Of workloads that Kueue evaluates in every cycle to the end (heads of StrictFIFO ClusterQueues) type and status:
    its message follows the quota in use and the flavor that is tried in turn, ours says what was so when the verdict
    fell.
    """
    log = conformance.observed(record["scenario"])
    run(log)
    for key, each in record["outcome"]["final"]["workloads"].items():
        got = {
            one.type: (one.status, one.reason, one.message) for one in log.state.workloads[WorkloadKey(key)].conditions
        }
        want = {kind: (one["status"], one["reason"], one["message"]) for kind, one in each["conditions"].items()}
        if each.get("queue") == "active":
            got, want = ({kind: one[:1] for kind, one in of.items()} for of in (got, want))
        assert got == want, key


def _holders(state: State) -> dict[str, Any]:
    return {
        key: (
            workload.cluster_queue,
            [(each.name, each.count, each.flavors) for each in workload.admission.pod_set_assignments],
        )
        for key, workload in state.workloads.items()
        if workload.stage in HOLDS_QUOTA and workload.admission is not None
    }


def _recorded(workload: dict[str, Any]) -> Any:
    return (
        workload["clusterQueue"],
        [(each["name"], each["count"], each["flavors"]) for each in workload["podSets"]],
    )
