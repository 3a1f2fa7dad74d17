"""Recorded cases of Kueue as logs: their objects become facts, their pending workloads offered heads."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml
from tests.support.logs import TestLog

from headgate.core.kubernetes.conditions import parse_rfc3339
from headgate.core.reading.decoding import read
from headgate.core.state.tables import PENDING, State, Workload
from headgate.events.base import EventBase, Producer
from headgate.events.configuration import Configuration
from headgate.events.facts import ConfigurationObserved, InformersSynced
from headgate.events.ids import LocalQueueKey, Shape, UnixMs, split_key
from headgate.events.queueing import Head, HeadsOffered, WorkloadQueued

ROOT = Path(__file__).parents[2].parent / "shared" / "conformance"
CASES = ROOT / "cases"
SCENARIOS = Path(__file__).parents[1] / "conformance" / "data" / "scenarios"
"""The recorded scenarios, which are part of the repository (`tests/conformance/data/README.md`)."""

Case = dict[str, Any]

_WITHOUT_EFFECT = frozenset({"SchedulerLibraryIntegration"})
"""Gates that select another implementation of the same rules in Kueue, and that Headgate therefore does not have."""

_JOB_UID = "kueue.x-k8s.io/job-uid"

_PLURALS = {
    "Namespace": "namespaces",
    "Node": "nodes",
    "ResourceFlavor": "resourceflavors",
    "Topology": "topologies",
    "AdmissionCheck": "admissionchecks",
    "Cohort": "cohorts",
    "ClusterQueue": "clusterqueues",
    "LocalQueue": "localqueues",
    "WorkloadPriorityClass": "workloadpriorityclasses",
    "PriorityClass": "priorityclasses",
    "LimitRange": "limitranges",
    "RuntimeClass": "runtimeclasses",
    "Workload": "workloads",
    "Pod": "pods",
}


def cases(*suites: str) -> Iterator[Case]:
    """The cases of suites, with `file` added. None when the recordings are not there."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for suite in suites:
        for path in sorted((CASES / suite).glob("*.yaml")):
            case: Case = yaml.load(path.read_bytes(), loader)
            case["file"] = f"{suite}/{path.stem}"
            yield case


def features_of(case: Case) -> dict[str, bool]:
    """The feature gates that a case sets, as far as they can make a difference."""
    return {gate: on for gate, on in (case.get("features") or {}).items() if gate not in _WITHOUT_EFFECT}


def fact_of(manifest: dict[str, Any], *, of_a_cycle: bool = False) -> EventBase:
    """
    What the informer bridge would say of an object.

    For tests of cycles alone (`of_a_cycle`) its uid and labels are as recorded, also where they are none; and a policy
    that a ClusterQueue's `preemption` leaves out is empty, as it is there, where the API would make it Never.
    """
    metadata = {"uid": "" if of_a_cycle else f"uid-{manifest['metadata']['name']}", **manifest["metadata"]}
    metadata.setdefault("creationTimestamp", "2000-01-01T00:00:00Z")
    if of_a_cycle and "preemption" in manifest.get("spec", {}):
        policies = {"reclaimWithinCohort": "", "withinClusterQueue": "", **manifest["spec"]["preemption"]}
        manifest = {**manifest, "spec": {**manifest["spec"], "preemption": policies}}
    if not of_a_cycle:
        # A workload that names its job but no owner would be finished as an orphan; the scheduler's tests have such.
        metadata["labels"] = {key: value for key, value in metadata.get("labels", {}).items() if key != _JOB_UID}
    fact = read(_PLURALS[manifest["kind"]], msgspec.json.encode({**manifest, "metadata": metadata})).fact
    assert fact is not None, f"{manifest['kind']} {metadata['name']} does not matter"
    return fact


def observed(case: Case, configuration: Configuration | None = None) -> TestLog:
    """A log that has seen the objects of a case, and this configuration."""
    log = TestLog()
    if "now" in case:
        log.now_ms = UnixMs(parse_rfc3339(case["now"]))
    facts = [fact_of(manifest) for manifest in case["objects"]]
    if configuration is not None:
        facts.insert(0, ConfigurationObserved(configuration=configuration))
    log.append(Producer.INFORMER_BRIDGE, *facts, InformersSynced())
    return log


def offer_heads(log: TestLog) -> None:
    """Queue every pending workload that has a ClusterQueue, and offer all of them in queue order."""
    pending = [
        (workload, queue) for workload in log.state.workloads.values() if (queue := _queue_of(log.state, workload))
    ]
    if not pending:
        return
    queued = tuple(_queued(workload, queue) for workload, queue in pending)
    log.append(Producer.QUEUE_MANAGER, *queued)
    heads = tuple(
        Head(cluster_queue=name, workload=key, uid=log.state.workloads[key].uid)
        for name in sorted(log.state.index.pending)
        for key in log.state.index.pending[name].ahead()
    )
    log.append(Producer.QUEUE_MANAGER, HeadsOffered(heads=heads))


def _queue_of(state: State, workload: Workload) -> str:
    if workload.stage not in PENDING or not workload.spec.active:
        return ""
    local = state.local_queues.get(LocalQueueKey(f"{split_key(workload.key)[0]}/{workload.spec.queue_name}"))
    name = local.spec.cluster_queue if local is not None and local.spec.stop_policy == "None" else ""
    return name if name in state.cluster_queues else ""


def _queued(workload: Workload, cluster_queue: str) -> WorkloadQueued:
    return WorkloadQueued(
        workload=workload.key,
        uid=workload.uid,
        cluster_queue=cluster_queue,
        priority=workload.spec.priority or 0,
        queued_at_ms=workload.created_ms,
        shape=Shape(workload.key),
    )
