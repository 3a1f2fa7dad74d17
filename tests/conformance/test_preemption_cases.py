"""The targets of Kueue's preemptor in its own tests, and of ours for the same workload and assignment."""

from typing import Any

import msgspec
import pytest
from tests.support import conformance
from tests.support.conformance import Case
from tests.support.logs import TestLog

from headgate.core.config.reader import read_parts
from headgate.core.flavors.catalog import Catalog
from headgate.core.flavors.cluster_queue import ClusterQueueFlavors
from headgate.core.kubernetes import conditions
from headgate.core.preemption import (
    Target,
    find_targets,
    preempted_event_message,
    preempted_message,
    preemptor_event_message,
)
from headgate.core.preemption.what_if import Snapshot
from headgate.core.state.tables import FlavorResource, Stage, Workload
from headgate.core.workload.pod_requests import pod_set_requests
from headgate.events.base import Producer
from headgate.events.decisions import WorkloadPreempted
from headgate.events.facts import ConfigurationObserved, WorkloadObserved
from headgate.events.ids import Seq, WorkloadKey, split_key
from headgate.events.objects import WorkloadStatus

pytestmark = pytest.mark.skipif(
    not conformance.CASES.is_dir(), reason="the recordings of Kueue are not next to the repository"
)


class Answer:
    """A case put to the search: the state, the incoming workload and the targets."""

    def __init__(self, case: Case) -> None:
        request = case["request"]
        # The incoming workload is not in Kueue's cache: where one has a reservation in its status, nothing is charged.
        incoming = {key: value for key, value in request["incoming"].items() if key != "status"}
        self.log: TestLog = conformance.observed({**case, "objects": [*case["objects"], incoming]})
        configuration = read_parts(case.get("config"), case.get("features"))
        self.log.append(Producer.INFORMER_BRIDGE, ConfigurationObserved(configuration=configuration))
        self.state = self.log.state
        fact = conformance.fact_of(incoming)
        assert isinstance(fact, WorkloadObserved)
        self.incoming: Workload = self.state.workloads[fact.workload]
        self.incoming.labels = incoming["metadata"].get("labels", {})
        catalog = Catalog(self.state)
        queue = catalog.queue(request["targetClusterQueue"])
        assert queue is not None
        self.queue: ClusterQueueFlavors = queue
        self.snapshot = Snapshot(self.state, catalog, self.state.index.trees[queue.name])
        usage, contested = self._asked(request["assignment"], catalog)
        self.targets: tuple[Target, ...] = find_targets(self.snapshot, queue, self.incoming, usage, contested)

    def _asked(
        self, assignment: dict[str, Any], catalog: Catalog
    ) -> tuple[dict[FlavorResource, int], set[FlavorResource]]:
        """What the assignment of a case charges, and what of it is in mode Preempt."""
        limits = catalog.limits(split_key(self.incoming.key)[0])
        requests = pod_set_requests(self.incoming, limits, catalog.runtime_classes(), self.state.configuration)
        usage: dict[FlavorResource, int] = {}
        contested: set[FlavorResource] = set()
        for asked, assigned in zip(requests, assignment["podSets"], strict=True):
            total = asked.total(assigned["count"])
            for resource, choice in assigned["flavors"].items():
                fr = (choice["flavor"], resource)
                if choice["mode"] == "Preempt":
                    contested.add(fr)
                if total.get(resource):
                    usage[fr] = usage.get(fr, 0) + total[resource]
        return usage, contested

    def preempt(self) -> list[dict[str, str]]:
        """Append what the cycle would for these targets; the Events of both sides."""
        events: list[dict[str, str]] = []
        for target in self.targets:
            preemptee = self.state.workloads[target.workload]
            if preemptee.stage is Stage.EVICTED:
                continue
            node = self.snapshot.node(target.cluster_queue)
            message = preempted_message(self.incoming, target.reason, self.snapshot.node(self.queue.name), node)
            configuration = self.state.configuration
            about = preempted_event_message(message, self.incoming, preemptee, configuration)
            to = preemptor_event_message(self.incoming, preemptee, target.cluster_queue, configuration)
            events += [
                {"object": preemptee.key, "type": "Normal", "reason": "EvictedDueToPreempted", "message": message},
                {"object": preemptee.key, "type": "Normal", "reason": "Preempted", "message": about},
                {"object": self.incoming.key, "type": "Normal", "reason": "PreemptedWorkload", "message": to},
            ]
            self.log.append(
                Producer.SCHEDULER,
                WorkloadPreempted(
                    workload=target.workload,
                    uid=target.uid,
                    cluster_queue=target.cluster_queue,
                    preemptor=self.incoming.key,
                    preemptor_uid=self.incoming.uid,
                    reason=target.reason,
                    message=message,
                ),
                decided_at=Seq(self.state.position),
            )
        return events


def _parameters(*suites: str) -> list[Any]:
    return [pytest.param(case, id=case["file"]) for case in conformance.cases(*suites)]


def _check_targets(case: Case, answer: Answer) -> None:
    want = sorted(
        (_key(each["workload"]), each["clusterQueue"], each["reason"]) for each in case["want"]["targets"] or []
    )
    assert sorted((each.workload, each.cluster_queue, each.reason) for each in answer.targets) == want


def _key(recorded: str) -> WorkloadKey:
    """The key of a recorded workload: those of these tests are in no namespace."""
    return WorkloadKey(recorded.removeprefix("/"))


def _check_effects(case: Case, answer: Answer) -> None:
    """The conditions, the Events and the counts of evictions that follow."""
    want = case["want"]
    events = answer.preempt()
    assert _texts(events, answer) == _texts(want["events"] or [], None)
    for key, evicted in (want["evicted"] or {}).items():
        workload = answer.state.workloads[_key(key)]
        assert workload.stage is Stage.EVICTED
        shown = {kind: conditions.find(workload.conditions, kind) for kind in ("Evicted", "Preempted")}
        assert shown["Evicted"] is not None
        assert (shown["Evicted"].reason, shown["Evicted"].message) == (evicted["reason"], evicted["message"])
        if "preemptedReason" in evicted:
            assert shown["Preempted"] is not None
            assert shown["Preempted"].reason == evicted["preemptedReason"]
            assert shown["Preempted"].message == evicted["preemptedMessage"]
    for key, status in (want["statuses"] or {}).items():
        workload, recorded = answer.state.workloads[_key(key)], msgspec.convert(status, WorkloadStatus)
        assert sorted(map(repr, workload.conditions)) == sorted(map(repr, recorded.conditions))
        stats = recorded.scheduling_stats
        assert workload.evictions == (stats.evictions if stats is not None else ())


def _texts(events: list[dict[str, str]], answer: Answer | None) -> list[tuple[str, ...]]:
    """Events as a sorted list; a workload without uid, which Kueue's tests have, gets one in the log."""
    texts = []
    for event in events:
        message = event["message"]
        if answer is not None:
            for workload in answer.state.workloads.values():
                message = message.replace(f"(UID: uid-{workload.key})", "(UID: )")
        texts.append((_key(event["object"]), event["type"], event["reason"], message))
    return sorted(texts)


@pytest.mark.parametrize("case", _parameters("TestPreemption"))
def test_those_whom_kueue_preempted_are_preempted(case: Case) -> None:
    """Targets and reasons, and the conditions and Events that follow, are those that Kueue recorded."""
    answer = Answer(case)
    _check_targets(case, answer)
    _check_effects(case, answer)


@pytest.mark.parametrize("case", _parameters("TestHierarchicalPreemptions"))
def test_those_whom_kueue_preempted_in_a_tree_of_cohorts_are_preempted(case: Case) -> None:
    """Targets and reasons, and the conditions and Events that follow, are those that Kueue recorded."""
    answer = Answer(case)
    _check_targets(case, answer)
    _check_effects(case, answer)


@pytest.mark.parametrize("case", _parameters("TestFairPreemptions"))
def test_those_whom_kueue_preempted_to_share_fairly_are_preempted(case: Case) -> None:
    """Targets and reasons are those that Kueue recorded."""
    _check_targets(case, Answer(case))
