"""
Kueue's scheduler alone, as its own tests run it: queues, cycles, and no reactions to what they decide.

`run` takes a recorded case (`tests.support.conformance.cases`) to its end and gives an `Outcome` in the words of the
recordings. The cycles are those of `headgate plan` with the controllers and the clock left out.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from tests.support import conformance
from tests.support.conformance import Case

from headgate.core.config.reader import read_parts
from headgate.core.cycle import Cycle
from headgate.core.flavors.catalog import Catalog
from headgate.core.kubernetes import conditions
from headgate.core.kubernetes.conditions import parse_rfc3339
from headgate.core.state.tables import PENDING, Workload
from headgate.core.status.workload_status import workload_status
from headgate.events.base import Producer
from headgate.events.facts import ConfigurationObserved, WorkloadDeleted
from headgate.events.ids import UnixMs, WorkloadKey
from headgate.testing.reference.controllers import Why
from headgate.testing.reference.rhythm import ReferencePlan


class SchedulerAlone(ReferencePlan):
    """Cycles over the workloads that wait at the start."""

    def __init__(self, case: Case) -> None:
        configuration = read_parts(case.get("config"), conformance.features_of(case))
        facts: list[Any] = [conformance.fact_of(manifest, of_a_cycle=True) for manifest in case["objects"]]
        now_ms = UnixMs(parse_rfc3339(case["now"]))
        super().__init__(facts, ConfigurationObserved(configuration=configuration), now_ms)
        self.held_before = {
            key: each.admission for key, each in self.state.workloads.items() if each.admission is not None
        }
        self.evicted_before = {key for key, each in self.state.workloads.items() if _is_evicted(each)}
        self.decided: list[Cycle] = []
        self.told: list[tuple[str, str, str, str]] = []
        for key in sorted(self.state.workloads):
            if self.state.workloads[key].stage in PENDING:
                self._enter(self.state.workloads[key])

    def cycle(self) -> None:
        """One cycle, if there is a head; a second pass begins a second after it was asked for."""
        self._note_unplaced()
        self.log.now_ms = max([self.log.now_ms, *self._second_pass_at.values()])
        if self.has_heads():
            ran = self.run_cycle()
            self.decided.append(ran.cycle)
            self.told.extend((each.object, each.type, each.reason, each.message) for each in ran.events)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete workloads, and let those wait no longer that were set aside in their trees."""
        for key in keys:
            workload = self.state.workloads[WorkloadKey(key)]
            self._make_due(workload.cluster_queue)
            self._out_of_queues(workload.key)
            deleted = WorkloadDeleted(workload=workload.key, uid=workload.uid)
            self.log.append(Producer.INFORMER_BRIDGE, [deleted])
        super()._next_second()
        self.catalog = Catalog(self.state)

    def _react(self, touched: Iterable[WorkloadKey]) -> dict[WorkloadKey, Why]:
        return {}

    def _next_second(self) -> None:
        return


class Outcome(msgspec.Struct, frozen=True):
    """
    How a case ended, as the recordings say it.

    `admissions`: who holds quota -> {new, admission}. `evicted`: who has to leave -> {new, reason, message, ...}.
    `conditions`: reason and message of a QuotaReserved that is False. `statuses`: whole statuses. `queued` and
    `inadmissible`: per ClusterQueue, in queue order. `events`: (object, type, reason, message).
    """

    admissions: dict[str, Any]
    evicted: dict[str, Any]
    conditions: dict[str, Any]
    statuses: dict[str, Any]
    queued: dict[str, list[str]]
    inadmissible: dict[str, list[str]]
    events: list[tuple[str, str, str, str]]
    skipped_preemptions: dict[str, int]


def run(case: Case) -> Outcome:
    """All cycles of a case."""
    scheduler = SchedulerAlone(case)
    for _ in range(case.get("cycles", 1)):
        scheduler.cycle()
    return outcome(scheduler)


def outcome(scheduler: SchedulerAlone) -> Outcome:
    """The present state."""
    workloads = dict(sorted(scheduler.state.workloads.items()))
    skipped: dict[str, int] = {}
    for cycle in scheduler.decided:
        for name, count in cycle.skipped_preemptions.items():
            skipped[name] = skipped.get(name, 0) + count
    return Outcome(
        admissions={
            key: {"new": scheduler.held_before.get(key) != each.admission, "admission": plain(each.admission)}
            for key, each in workloads.items()
            if each.admission is not None
        },
        evicted={
            key: {"new": key not in scheduler.evicted_before, **_eviction(each)}
            for key, each in workloads.items()
            if _is_evicted(each)
        },
        conditions={key: why for key, each in workloads.items() if (why := _waits(each))},
        statuses={
            key: status for key, each in workloads.items() if (status := plain(workload_status(scheduler.state, each)))
        },
        queued=plain(scheduler.queued()),
        inadmissible=plain(scheduler.inadmissible()),
        events=scheduler.told,
        skipped_preemptions=skipped,
    )


def plain(value: object) -> Any:
    """A value as JSON has it."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _is_evicted(workload: Workload) -> bool:
    return conditions.is_true(workload.conditions, conditions.EVICTED)


def _eviction(workload: Workload) -> dict[str, str]:
    said: dict[str, str] = {}
    evicted = conditions.find(workload.conditions, conditions.EVICTED)
    if evicted is not None:
        said |= {"reason": evicted.reason, "message": evicted.message}
    preempted = conditions.find(workload.conditions, conditions.PREEMPTED)
    if preempted is not None and preempted.status == "True":
        said |= {"preemptedReason": preempted.reason, "preemptedMessage": preempted.message}
    return said


def _waits(workload: Workload) -> dict[str, str]:
    reserved = conditions.find(workload.conditions, conditions.QUOTA_RESERVED)
    if reserved is None or reserved.status != "False":
        return {}
    return {"reason": reserved.reason, "message": reserved.message}
