"""The labels of a job that its Workload is made with (`integrations.labelKeysToCopy`), as Kueue copies them."""

from typing import Any

import msgspec
import pytest
from tests.machines.informer_bridge.test_decide import Bridge, answer, raw
from tests.machines.informer_bridge.test_kinds import listed, team
from tests.machines.informer_bridge.test_sets import SETS, leader_worker_set, stateful_set
from tests.simulation.test_pod_groups import pod
from tests.support.playing import job

from headgate.core.machine.contract import Changed, Listed, Resumed
from headgate.core.state.tables import Workload
from headgate.core.workload.pod_groups import ANNOTATIONS_DIFFER, LABELS_DIFFER
from headgate.core.workload.variants import variant_key
from headgate.events import facts
from headgate.events.base import Producer
from headgate.events.configuration import (
    Configuration,
    CustomMetricLabel,
    IntegrationsConfiguration,
    MetricsConfiguration,
)
from headgate.events.decisions import QuotaReserved
from headgate.events.ids import JobKey
from headgate.events.objects import Admission, PodSetAssignment
from headgate.machines.informer_bridge.reconfiguring import CONFIGURATIONS
from headgate.machines.informer_bridge.variant_maker import variant_of

Json = dict[str, Any]
K = "kueue.x-k8s.io/"
KEYS = ("team", "example.com/cost")
COPYING = Configuration(
    integrations=IntegrationsConfiguration(frameworks=("batch/job", "pod"), label_keys_to_copy=KEYS),
    feature_gates={"CustomMetricLabels": True},
    metrics=MetricsConfiguration(
        custom_labels=(
            CustomMetricLabel(name="tier", source_kind="Workload", tracked_values=("gold",)),
            CustomMetricLabel(
                name="unit", source_annotation_key="unit", source_kind="Workload", tracked_values=("a", "b")
            ),
        )
    ),
)
GANG = JobKey("/PodGroup/team-a/gang")


def labelled(manifest: Json, labels: dict[str, str], **annotations: str) -> Json:
    meta = manifest["metadata"]
    given = {**meta.get("annotations", {}), **annotations}
    return {**manifest, "metadata": {**meta, "labels": {**meta["labels"], **labels}, "annotations": given}}


def member(name: str, *, cpu: str = "1", **more: Any) -> Json:
    """A pod of a group of two."""
    return pod(name, group="gang", total=2, cpu=cpu, **more)


def copying(configuration: Configuration = COPYING, **objects: list[bytes]) -> Bridge:
    bridge = listed(Bridge(configuration=configuration), **objects)
    bridge.settle()
    return bridge


def created(bridge: Bridge) -> Json:
    """The Workload that the bridge creates."""
    (call,) = [each for each in bridge.all_calls() if each.method == "POST"]
    assert isinstance(call.body, dict)
    return call.body


def shown_first(bridge: Bridge) -> Workload:
    """The Workload that the bridge creates, once it is shown."""
    (call,) = bridge.all_calls()
    answer(bridge, call, 201)
    body: Any = call.body
    bridge.change("workloads", body, "ADDED", uid="w")
    assert bridge.all_calls() == []
    (workload,) = bridge.log.state.workloads.values()
    return workload


# --- jobs ----------------------------------------------------------------------------------------------------------


def test_a_workload_gets_those_of_the_named_labels_that_its_job_has() -> None:
    """And no others; what Kueue sets itself stays. Annotations are copied where metrics of Workloads show them."""
    given = labelled(job(), {"team": "red", "other": "x", "tier": "gold"}, unit="a", more="y")
    meta = created(copying(jobs=[raw(given)]))["metadata"]
    assert meta["labels"] == {"team": "red", "tier": "gold", f"{K}job-uid": "u"}
    assert meta["annotations"]["unit"] == "a"
    assert "more" not in meta["annotations"]


def test_nothing_is_copied_by_default() -> None:
    """As by Kueue."""
    meta = created(copying(Configuration(), jobs=[raw(labelled(job(), {"team": "red"}, unit="a"))]))["metadata"]
    assert meta["labels"] == {f"{K}job-uid": "u"}
    assert "unit" not in meta["annotations"]


def test_a_label_that_changes_later_is_not_followed() -> None:
    """They are copied at the creation only, and no fact of a job has them."""
    bridge = copying(jobs=[raw(labelled(job(), {"team": "red"}))])
    shown_first(bridge)
    bridge.change("jobs", labelled(job(), {"team": "blue"}))
    assert bridge.settle() == ((), [])


def test_a_job_has_the_labels_of_a_configuration_that_has_changed() -> None:
    """Its Workload is made from the whole job: nothing has to be listed again for it."""
    bridge = copying(Configuration(), namespaces=[team()])
    given = Configuration(integrations=IntegrationsConfiguration(label_keys_to_copy=("team",)))
    bridge.machine.decide(Changed(CONFIGURATIONS, "MODIFIED", document(given), ""))
    bridge.machine.decide(Listed("pods", (), "2"))
    bridge.change("jobs", labelled(job(), {"team": "red"}), "ADDED")
    assert created(bridge)["metadata"]["labels"]["team"] == "red"


def document(configuration: Configuration) -> bytes:
    """The file of a configuration that copies labels."""
    integrations = {
        "frameworks": list(configuration.integrations.frameworks),
        "labelKeysToCopy": list(configuration.integrations.label_keys_to_copy or ()),
    }
    kind = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    return msgspec.json.encode({**kind, "integrations": integrations})


@pytest.mark.parametrize("kind", ["StatefulSet", "LeaderWorkerSet"])
def test_a_leader_worker_set_passes_its_labels_on_and_a_stateful_set_does_not(kind: str) -> None:
    """As Kueue's two integrations (NewGroupWorkload in both, with and without the keys)."""
    integrations = msgspec.structs.replace(SETS.integrations, label_keys_to_copy=KEYS)
    made = stateful_set() if kind == "StatefulSet" else leader_worker_set(1)
    given = raw(labelled(msgspec.json.decode(made), {"team": "red"}))
    resource = "statefulsets" if kind == "StatefulSet" else "leaderworkersets"
    configuration = msgspec.structs.replace(SETS, integrations=integrations)
    labels = created(copying(configuration, namespaces=[team()], **{resource: [given]}))["metadata"]["labels"]
    assert labels == {f"{K}job-uid": "s"} | ({"team": "red"} if kind == "LeaderWorkerSet" else {})


def test_a_slice_gets_the_labels_that_its_job_has_then() -> None:
    """Each slice is a Workload that is created."""
    elastic = {f"{K}elastic-job": "true"}
    bridge = copying(jobs=[raw(labelled(job(parallelism=1), {"team": "red"}, **elastic), generation=1)])
    workload = shown_first(bridge)
    assignment = PodSetAssignment(flavors={"cpu": "spot"}, resource_usage={"cpu": "1"}, count=1)
    admission = Admission(cluster_queue="cq", pod_set_assignments=(assignment,))
    bridge.log.append(
        Producer.SCHEDULER,
        QuotaReserved(workload=workload.key, uid=workload.uid, cluster_queue="cq", admission=admission, message="m"),
    )
    bridge.change("jobs", labelled(job(parallelism=3), {"team": "blue"}, **elastic), generation=2)
    meta = created(bridge)["metadata"]
    assert meta["annotations"][f"{K}workload-slice-replacement-for"] == workload.key
    assert meta["labels"]["team"] == "blue"


def test_a_variant_has_the_labels_of_its_parent() -> None:
    """It is a copy of it."""
    bridge = copying(jobs=[raw(labelled(job(), {"team": "red"}))])
    (call,) = bridge.all_calls()
    answer(bridge, call, 201)
    body: Any = call.body
    bridge.change("workloads", body, "ADDED", uid="w")
    bridge.settle()
    (parent,) = bridge.log.state.workloads.values()
    variant = variant_key(bridge.log.state.configuration, parent, "spot")
    copy = variant_of(parent, raw(body, uid="w"), variant, "spot")
    assert copy is not None
    assert copy["metadata"]["labels"]["team"] == "red"


# --- pods ----------------------------------------------------------------------------------------------------------


def test_a_plain_pod_passes_its_labels_on() -> None:
    """Like any other job; the log has none of them."""
    bridge = copying(pods=[raw(labelled(pod("one"), {"team": "red"}, unit="a"), uid="p")])
    meta = created(bridge)["metadata"]
    assert meta["labels"] == {"team": "red", f"{K}job-uid": "p"}
    assert meta["annotations"]["unit"] == "a"
    (record,) = bridge.log.state.pods.values()
    assert record.pod.managed is not None
    assert record.pod.managed.copied_labels == {}


def test_a_group_has_the_labels_of_all_of_its_pods() -> None:
    """One pod need not have what another has, whatever their roles."""
    pods = [
        raw(labelled(member("a"), {"team": "red"}, unit="a"), uid="a"),
        raw(labelled(member("b", cpu="2"), {"team": "red", "example.com/cost": "7"}), uid="b"),
    ]
    meta = created(copying(pods=pods))["metadata"]
    assert meta["labels"] == {"team": "red", "example.com/cost": "7"}
    assert meta["annotations"][f"{K}is-group-workload"] == "true"
    assert meta["annotations"]["unit"] == "a"


@pytest.mark.parametrize(
    ("labels", "annotations", "said"),
    [({"team": "blue"}, {}, LABELS_DIFFER), ({}, {"unit": "b"}, ANNOTATIONS_DIFFER)],
    ids=["labels", "annotations"],
)
def test_a_group_whose_pods_contradict_each_other_gets_its_workload_when_they_do_not(
    labels: dict[str, str], annotations: dict[str, str], said: str
) -> None:
    """Kueue tries again and again to construct it; here it is looked at when a pod changes."""
    agreed = labelled(member("a"), {"team": "red"}, unit="a")
    pods = [raw(agreed, uid="a"), raw(labelled(member("b"), {"team": "red", **labels}, **annotations), uid="b")]
    bridge = copying(pods=pods)
    assert bridge.all_calls() == []
    assert bridge.log.state.jobs[GANG].refused == f"422 ErrWorkloadCompose: {said}"
    bridge.change("pods", labelled(member("b"), {"team": "red"}, unit="a"), uid="b")
    assert created(bridge)["metadata"]["labels"] == {"team": "red"}


def test_a_failed_pod_counts_too_and_one_too_many_does_not() -> None:
    """Kueue copies from every pod that it has listed, but for those that it deletes."""
    gone = {**labelled(member("a"), {"team": "blue"}), "status": {"phase": "Failed"}}
    two = [raw(labelled(member(name), {"team": "red"}), uid=name) for name in "bc"]
    bridge = copying(pods=[raw(gone, uid="a"), *two])
    bridge.settle()
    assert bridge.log.state.jobs[GANG].job.problem == LABELS_DIFFER
    extra = raw(labelled(member("z"), {"team": "blue"}), uid="z", creationTimestamp="2026-01-15T10:00:09Z")
    assert created(copying(pods=[*two, extra]))["metadata"]["labels"] == {"team": "red"}


def test_a_changed_configuration_has_the_pods_listed_before_a_group_gets_its_workload() -> None:
    """The log has only those labels of pods that the former one named; the mark of the watch goes with it."""
    pods = [raw(labelled(member(name), {"team": "red"}), uid=name) for name in "ab"]
    before = Configuration(integrations=IntegrationsConfiguration(frameworks=("batch/job", "pod")))
    bridge = copying(before, namespaces=[team()])
    given = Configuration(
        integrations=IntegrationsConfiguration(frameworks=("batch/job", "pod"), label_keys_to_copy=("team",))
    )
    bridge.machine.decide(Changed(CONFIGURATIONS, "MODIFIED", document(given), ""))
    for each in pods:
        bridge.machine.decide(Changed("pods", "ADDED", each, "5"))
    bridge.machine.decide(Resumed("pods", "1"))
    assert bridge.all_calls() == []
    assert bridge.log.state.resource_versions.get("pods", "") == ""
    bridge.machine.decide(Listed("pods", tuple(pods), "6"))
    assert created(bridge)["metadata"]["labels"] == {"team": "red"}
    assert bridge.log.state.resource_versions["pods"] == "6"


# --- what metrics show of Workloads --------------------------------------------------------------------------------


def test_the_log_has_those_labels_of_a_workload_that_metrics_show() -> None:
    """Beside Kueue's own."""
    bridge = copying(jobs=[raw(labelled(job(), {"team": "red", "tier": "gold"}, unit="a"))])
    (call,) = bridge.all_calls()
    answer(bridge, call, 201)
    body: Any = call.body
    bridge.change("workloads", body, "ADDED", uid="w")
    events, _ = bridge.settle()
    (shown,) = [each for each in events if isinstance(each, facts.WorkloadObserved)]
    assert {key: value for key, value in shown.labels.items() if not key.startswith(K)} == {"tier": "gold"}
    assert {key: value for key, value in shown.annotations.items() if not key.startswith(K)} == {"unit": "a"}
    assert bridge.settle() == ((), [])
