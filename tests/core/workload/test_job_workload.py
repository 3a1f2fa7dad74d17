"""What a Job's Workload is, and what an admission puts into the Job and takes out again."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.logs import TestLog

from headgate.core.api.job_kinds import BATCH_JOB
from headgate.core.config import feature_gates
from headgate.core.state.tables import Stage, State, Workload
from headgate.core.workload.injection import (
    InjectionError,
    UpdateConflictError,
    injected,
    needs_restoring,
    restore_patch,
    start_patches,
)
from headgate.core.workload.job_workload import (
    NoSuchPriorityClassError,
    workload_changes,
    workload_key,
    workload_of,
)
from headgate.core.workload.names import workload_name
from headgate.core.workload.variants import variant_name
from headgate.events import facts
from headgate.events.base import Producer
from headgate.events.configuration import Configuration
from headgate.events.decisions import QuotaReserved
from headgate.events.ids import JobKey, Uid, UnixMs, WorkloadKey, split_key
from headgate.events.objects import (
    Admission,
    CheckState,
    ClusterQueueSpec,
    FlavorQuotas,
    Job,
    PodSet,
    PodSetAssignment,
    PodSetUpdate,
    PodSpec,
    PodTemplate,
    PriorityClassRef,
    ResourceFlavorSpec,
    ResourceGroup,
    SchedulingGate,
    TemplateMeta,
    Toleration,
    TopologyAssignment,
    TopologyRequest,
    WorkloadSpec,
)

BRIDGE, SCHEDULER = Producer.INFORMER_BRIDGE, Producer.SCHEDULER
KEY = JobKey("batch/Job/team-a/train")
SAMPLE = BATCH_JOB.ref("team-a", "sample")
MINE = SchedulingGate(name="mine")
SPOT, GPU = Toleration(key="spot", operator="Exists"), Toleration(key="gpu", operator="Exists")
Json = dict[str, Any]


def job(**more: Any) -> Job:
    return Job(uid="j", created_ms=UnixMs(5), queue_name="main", suspended=True, **more)


def made_of(state: State, given: Job, metadata: Json | None = None) -> Json:
    """The Workload of a Job whose JSON has nothing that the log lacks."""
    template = msgspec.to_builtins(given.template)
    raw = msgspec.json.encode({"metadata": metadata or {}, "spec": {"template": template}})
    return workload_of(state, KEY, given, raw)


# --- the Workload --------------------------------------------------------------------------------------------------


def test_a_workload_is_named_as_kueue_names_it() -> None:
    """`job-<name>-<hash>`: the SHA-1 of the lines Job, batch, name and uid, the last without an end of line."""
    assert workload_name(SAMPLE, "1a2b") == "job-sample-f6e71"
    assert workload_name(SAMPLE, "1a2b") != workload_name(SAMPLE, "1a2c")
    long = workload_name(BATCH_JOB.ref("team-a", "x" * 300), "u")
    assert len(long) == 253
    assert long.startswith("job-xxx")


def test_names_are_short_where_the_gate_says_so() -> None:
    """ShortWorkloadNames: as long as the value of a label may be, with the hash of the whole name (Kueue's lengths)."""
    on, off = Configuration(feature_gates={"ShortWorkloadNames": True}), Configuration()
    ref = BATCH_JOB.ref("team-a", "x" * 100)
    whole, short = workload_key(off, ref.key, job()), workload_key(on, ref.key, job())
    assert (len(split_key(whole)[1]), len(split_key(short)[1])) == (110, 63)
    assert short[-6:] == whole[-6:]
    assert workload_key(on, SAMPLE.key, job()) == workload_key(off, SAMPLE.key, job())
    assert len(variant_name("p" * 60 + "-00000", "u", "spot", len_max=63)) == 63


@pytest.mark.parametrize(
    ("generation", "name"), [(1, "job-sample-4fc87"), (2, "job-sample-d9567"), (17, "job-sample-89d0f")]
)
def test_a_slice_is_named_as_kueue_names_it(generation: int, name: str) -> None:
    """The names are those of Kueue 0.19.2's GetWorkloadNameForOwnerWithGVKAndGeneration for Job sample of uid 1a2b."""
    assert workload_name(SAMPLE, "1a2b", generation) == name
    assert workload_name(BATCH_JOB.ref("team-a", "x" * 300), "u", 3) == f"job-{'x' * 243}-c8b2e"


@pytest.mark.parametrize(
    ("parent", "uid", "flavor", "name"),
    [
        ("job-sample-f6e71", "5c", "spot", "job-sample-variant-spot-27eb4"),
        ("job-sample-f6e71", "5c", "reserved", "job-sample-variant-reserved-2606c"),
        ("wl-a", "5c", "on-demand", "wl-variant-on-demand-f7e29"),
        ("wl-a", "5d", "on-demand", "wl-variant-on-demand-aeccb"),
        ("x" * 240 + "-abcde", "u", "spot-flavor", "x" * 240 + "-varian-d55d6"),
    ],
)
def test_a_variant_is_named_as_kueue_names_it(parent: str, uid: str, flavor: str, name: str) -> None:
    """The names are those of Kueue 0.19.2's GetWorkloadNameForVariant."""
    assert variant_name(parent, uid, flavor) == name


def test_a_workload_counts_the_pods_that_run_at_a_time() -> None:
    """Parallelism, unless there are fewer completions; and the fewest that the Job accepts."""
    state = TestLog().state
    for parallelism, completions, count in ((3, None, 3), (3, 2, 2), (3, 8, 3)):
        made = made_of(state, job(parallelism=parallelism, completions=completions, min_parallelism=1))
        (pod_set,) = made["spec"]["podSets"]
        assert (pod_set["name"], pod_set["count"], pod_set["minCount"]) == ("main", count, 1)


def test_a_workload_belongs_to_its_job() -> None:
    """Controller reference, uid label and Kueue's finalizer; the queue and the execution time are the Job's."""
    made = made_of(TestLog().state, job(max_execution_time_seconds=60))
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("Job", "train", "j", True)
    assert made["metadata"]["labels"] == {"kueue.x-k8s.io/job-uid": "j"}
    assert made["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    assert (made["spec"]["queueName"], made["spec"]["maximumExecutionTimeSeconds"]) == ("main", 60)


def test_a_workload_carries_the_template_as_kueue_takes_it_over() -> None:
    """Whole, without the labels of the Job controller but the Job's name, and with the topology that it requests."""
    template = {
        "metadata": {
            "creationTimestamp": None,
            "labels": {
                "app": "train",
                "job-name": "train",
                "controller-uid": "j",
                "batch.kubernetes.io/job-name": "train",
                "batch.kubernetes.io/controller-uid": "j",
            },
            "annotations": {"kueue.x-k8s.io/podset-required-topology": "rack", "example.com/owner": "team-a"},
        },
        "spec": {"containers": [{"name": "c", "image": "train:1"}], "restartPolicy": "Never"},
    }
    annotations = {"provreq.kueue.x-k8s.io/maxRunDurationSeconds": "60", "example.com/other": "x"}
    raw = msgspec.json.encode({"metadata": {"annotations": annotations}, "spec": {"template": template}})
    meta = TemplateMeta(annotations={"kueue.x-k8s.io/podset-required-topology": "rack"})
    made = workload_of(TestLog().state, KEY, job(template=PodTemplate(metadata=meta)), raw)
    (pod_set,) = made["spec"]["podSets"]
    assert pod_set["template"]["metadata"] == {
        "labels": {"app": "train", "batch.kubernetes.io/job-name": "train"},
        "annotations": {"kueue.x-k8s.io/podset-required-topology": "rack", "example.com/owner": "team-a"},
    }
    assert pod_set["template"]["spec"] == template["spec"]
    assert pod_set["topologyRequest"] == {
        "podIndexLabel": "batch.kubernetes.io/job-completion-index",
        "required": "rack",
    }
    assert made["metadata"]["annotations"] == {
        "kueue.x-k8s.io/job-owner-gvk": "batch/v1, Kind=Job",
        "kueue.x-k8s.io/job-owner-name": "train",
        "provreq.kueue.x-k8s.io/maxRunDurationSeconds": "60",
    }


def with_classes() -> State:
    log = TestLog()
    log.append(
        BRIDGE,
        facts.WorkloadPriorityClassObserved(name="high", value=100),
        facts.PriorityClassObserved(name="pods", value=50),
        facts.PriorityClassObserved(name="default-b", value=7, global_default=True),
        facts.PriorityClassObserved(name="default-a", value=5, global_default=True),
    )
    return log.state


@pytest.mark.parametrize(
    ("label", "pods", "priority", "reference"),
    [
        ("high", "pods", 100, {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}),
        ("", "pods", 50, {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "pods"}),
        ("", "", 5, {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "default-a"}),
    ],
)
def test_the_priority_comes_from_the_label_or_the_pods_or_the_default(
    label: str, pods: str, priority: int, reference: Json
) -> None:
    """In that order; of several defaults the one with the lowest value, as Kubernetes does."""
    template = PodTemplate(spec=PodSpec(priority_class_name=pods))
    made = made_of(with_classes(), job(priority_class=label, template=template))["spec"]
    assert (made["priority"], made["priorityClassRef"]) == (priority, reference)
    assert PriorityClassRef(**reference).name == reference["name"]


HIGH = PriorityClassRef(group="kueue.x-k8s.io", kind="WorkloadPriorityClass", name="high")
PODS = PriorityClassRef(group="scheduling.k8s.io", kind="PriorityClass", name="pods")


@pytest.mark.parametrize(
    ("stage", "before", "label", "priority"),
    [
        (Stage.QUEUED, None, "high", 100),
        (Stage.ADMITTED, None, "high", None),
        (Stage.ADMITTED, HIGH, "low", 1),
        (Stage.ADMITTED, HIGH, "high", None),
        (Stage.QUEUED, HIGH, "", 5),
        (Stage.QUEUED, PODS, "high", None),
        (Stage.QUEUED, HIGH, "not there yet", None),
    ],
)
def test_a_workload_follows_the_class_of_its_job(
    stage: Stage, before: PriorityClassRef | None, label: str, priority: int | None
) -> None:
    """Kueue's UpdateWorkloadPriority: also while it runs, but not from none then; never away from its pods' class."""
    state = with_classes()
    state.workload_priority_classes["low"] = 1
    spec = WorkloadSpec(queue_name="main", priority=50, priority_class_ref=before)
    workload = Workload(key=WorkloadKey("team-a/w"), uid=Uid("u"), created_ms=UnixMs(5), spec=spec, stage=stage)
    changes = workload_changes(state, KEY, job(priority_class=label), workload)
    assert changes.get("spec", {}).get("priority") == priority
    assert ("spec" in changes) == (priority is not None)


def test_a_missing_priority_class_is_named() -> None:
    """The Workload waits for the class, and the error is the API server's wording."""
    with pytest.raises(NoSuchPriorityClassError, match=r'workloadpriorityclasses\.kueue\.x-k8s\.io "low" not found'):
        made_of(with_classes(), job(priority_class="low"))
    template = PodTemplate(spec=PodSpec(priority_class_name="low"))
    with pytest.raises(NoSuchPriorityClassError, match=r'priorityclasses\.scheduling\.k8s\.io "low" not found'):
        made_of(with_classes(), job(template=template))


def test_the_marks_of_an_admission_do_not_get_into_a_workload() -> None:
    """A Job whose Workload vanished while it ran still carries them; its next Workload must not."""
    marks = TemplateMeta(
        labels={"kueue.x-k8s.io/podset": "main"}, annotations={"kueue.x-k8s.io/workload": "w", "kueue.x-k8s.io/x": "1"}
    )
    made = made_of(TestLog().state, job(template=PodTemplate(metadata=marks)))
    metadata = made["spec"]["podSets"][0]["template"]["metadata"]
    assert metadata == {"annotations": {"kueue.x-k8s.io/x": "1"}}


def test_the_gates_of_an_admission_do_not_get_into_a_workload() -> None:
    """Of a template that carries one; gates of the user stay."""
    metadata = TemplateMeta(annotations={"kueue.x-k8s.io/workload": "w"})
    ours = tuple(SchedulingGate(name=f"kueue.x-k8s.io/{name}") for name in ("topology", "elastic-job"))
    for gates, kept in (((MINE, *ours), {"schedulingGates": [{"name": "mine"}]}), (ours, {})):
        template = PodTemplate(metadata=metadata, spec=PodSpec(scheduling_gates=gates))
        made = made_of(TestLog().state, job(template=template))
        assert made["spec"]["podSets"][0]["template"]["spec"] == kept


# --- injection -----------------------------------------------------------------------------------------------------


def admitted(
    template: PodTemplate, *, flavor: str = "spot", count: int = 4, updates: Any = ()
) -> tuple[State, Workload]:
    log = TestLog()
    groups = (ResourceGroup(covered_resources=("cpu",), flavors=(FlavorQuotas(name="spot"), FlavorQuotas(name="od"))),)
    key, uid = WorkloadKey("team-a/w"), Uid("u")
    spec = WorkloadSpec(queue_name="main", pod_sets=(PodSet(count=4, template=template),))
    assignment = PodSetAssignment(flavors={"cpu": flavor, "memory": flavor}, resource_usage={}, count=count)
    log.append(
        BRIDGE,
        facts.ResourceFlavorObserved(
            name="spot", spec=ResourceFlavorSpec(node_labels={"tier": "spot", "zone": "z1"}, tolerations=(SPOT,))
        ),
        facts.ResourceFlavorObserved(name="od", spec=ResourceFlavorSpec(node_labels={"kind": "od"})),
        facts.ClusterQueueObserved(name="cq", spec=ClusterQueueSpec(resource_groups=groups)),
        facts.WorkloadObserved(workload=key, uid=uid, created_ms=UnixMs(5), spec=spec),
    )
    log.append(
        SCHEDULER,
        QuotaReserved(
            workload=key,
            uid=uid,
            cluster_queue="cq",
            admission=Admission(cluster_queue="cq", pod_set_assignments=(assignment,)),
            message="m",
            checks=(CheckState(name="c", state="Ready", pod_set_updates=updates),),
        ),
    )
    return log.state, log.state.workloads[key]


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def test_what_the_user_gave_wins_over_flavors_and_checks_add_to_both() -> None:
    """Tolerations are added once each; what another pod set is to get is left out."""
    template = PodTemplate(spec=PodSpec(node_selector={"zone": "mine"}, tolerations=(GPU,)))
    update = PodSetUpdate(
        name="main",
        labels={"a": "1"},
        annotations={"b": "2"},
        node_selector={"tier": "spot", "pool": "p"},
        tolerations=(SPOT, Toleration(key="new", operator="Exists")),
    )
    state, workload = admitted(template, updates=(update, PodSetUpdate(name="other", labels={"no": "1"})))
    directives, count = injected(state, workload)["main"]
    assert count == 4
    assert directives.node_selector == {"zone": "mine", "tier": "spot", "pool": "p"}
    assert directives.tolerations == [GPU, SPOT, Toleration(key="new", operator="Exists")]
    assert directives.annotations == {"b": "2", "kueue.x-k8s.io/workload": "w"}
    assert directives.labels == {
        "a": "1",
        "kueue.x-k8s.io/podset": "main",
        "kueue.x-k8s.io/cluster-queue-name": "cq",
        "kueue.x-k8s.io/local-queue-name": "main",
    }


@pytest.mark.parametrize(
    ("field", "update"),
    [
        ("nodeSelector", PodSetUpdate(name="main", node_selector={"tier": "other"})),
        ("labels", PodSetUpdate(name="main", labels={"kueue.x-k8s.io/x": "2"})),
        ("annotations", PodSetUpdate(name="main", annotations={"kueue.x-k8s.io/y": "2"})),
    ],
)
def test_a_check_that_wants_something_else_is_an_error_for_good(field: str, update: PodSetUpdate) -> None:
    """Kueue's ErrInvalidPodSetUpdate: modifications of existing keys are not allowed."""
    metadata = TemplateMeta(labels={"kueue.x-k8s.io/x": "1"}, annotations={"kueue.x-k8s.io/y": "1"})
    state, workload = admitted(PodTemplate(metadata=metadata), updates=(update,))
    with pytest.raises(UpdateConflictError, match=f"^invalid admission check PodSetUpdate: conflict for {field}: "):
        injected(state, workload)


def test_what_a_check_has_added_is_taken_back() -> None:
    """Labels and annotations of any prefix, by what the last admission put in, though the check is reset by then."""
    update = PodSetUpdate(name="main", labels={"a": "1"}, annotations={"b": "2"}, node_selector={"pool": "p"})
    state, workload = admitted(PodTemplate(), updates=(update,))
    given = {"metadata": {"labels": {"mine": "1"}, "annotations": {}}, "spec": {"nodeSelector": {"arch": "arm"}}}
    workload.injected = (update,)
    started = merged(given, start_patches(state, KEY, workload, job())[0].body["spec"]["template"])
    assert started["metadata"]["labels"]["a"] == "1"
    assert started["spec"]["nodeSelector"]["pool"] == "p"
    workload.checks = ()
    restored = merged(
        started, restore_patch(state, KEY, workload, job(template=marked(started))).body["spec"]["template"]
    )
    assert restored["metadata"] == {"labels": {"mine": "1"}, "annotations": {}}
    assert restored["spec"] == {"nodeSelector": {"arch": "arm"}}


UNCONSTRAINED = "kueue.x-k8s.io/podset-unconstrained-topology"


@pytest.mark.parametrize(
    ("request_", "annotations"),
    [
        (None, {UNCONSTRAINED: "true"}),
        (TopologyRequest(pod_set_slice_size=2), {UNCONSTRAINED: "true"}),
        (TopologyRequest(required="rack"), {}),
        (TopologyRequest(preferred="rack"), {}),
        (TopologyRequest(unconstrained=True), {}),
    ],
)
def test_pods_with_a_topology_assignment_wait_at_a_gate(
    request_: TopologyRequest | None, annotations: dict[str, str]
) -> None:
    """
    They get the node labels of the flavor, and those of their domain from the ungater; all of it is taken back.

    Pods that request no topology themselves get the annotation by which they are told from others.
    """
    template = PodTemplate(spec=PodSpec(scheduling_gates=(MINE,)))
    state, workload = admitted(template)
    state.configuration = Configuration(feature_gates={feature_gates.TOPOLOGY_AWARE_SCHEDULING: True})
    (pod_set,), admission = workload.spec.pod_sets, workload.admission
    assert admission is not None
    asked = msgspec.structs.replace(pod_set, topology_request=request_)
    workload.spec = msgspec.structs.replace(workload.spec, pod_sets=(asked,))
    assignment = msgspec.structs.replace(
        admission.pod_set_assignments[0], topology_assignment=TopologyAssignment(levels=("rack",), slices=())
    )
    workload.admission = msgspec.structs.replace(admission, pod_set_assignments=(assignment,))
    given: Json = {"metadata": {"labels": {}, "annotations": {}}, "spec": {"schedulingGates": [{"name": "mine"}]}}
    started = merged(given, start_patches(state, KEY, workload, job())[0].body["spec"]["template"])
    assert started["spec"]["schedulingGates"] == [{"name": "mine"}, {"name": "kueue.x-k8s.io/topology"}]
    assert started["spec"]["nodeSelector"] == {"tier": "spot", "zone": "z1"}
    assert started["metadata"]["annotations"] == {"kueue.x-k8s.io/workload": "w", **annotations}
    restored = merged(
        started, restore_patch(state, KEY, workload, job(template=marked(started))).body["spec"]["template"]
    )
    assert restored == merged(given, {"spec": {"nodeSelector": {}}})
    state.configuration = Configuration()
    without = merged(given, start_patches(state, KEY, workload, job())[0].body["spec"]["template"])
    assert without["spec"]["schedulingGates"] == [{"name": "mine"}]


def marked(template: Any) -> PodTemplate:
    """A template as the log has it: of labels and annotations only Kueue's own."""
    kueue = {
        field: {key: value for key, value in template["metadata"][field].items() if "kueue.x-k8s.io/" in key}
        for field in ("labels", "annotations")
    }
    return PodTemplate(metadata=TemplateMeta(**kueue))


def test_a_missing_flavor_is_named() -> None:
    """The Job cannot be started on unknown nodes."""
    state, workload = admitted(PodTemplate(), flavor="gone")
    with pytest.raises(InjectionError, match=r'resourceflavors\.kueue\.x-k8s\.io "gone" not found'):
        injected(state, workload)


@pytest.mark.parametrize(("equal", "completions"), [(False, 8), (True, 2)])
def test_partial_admission_sets_parallelism_and_restoring_takes_it_back(equal: bool, completions: int) -> None:
    """Only Jobs that accept it; completions follow with their annotation."""
    state, workload = admitted(PodTemplate(), count=2)
    partial = job(parallelism=4, completions=8, min_parallelism=1, completions_equal_parallelism=equal)
    spec = {"parallelism": 4, "completions": 8}
    started = merged(spec, start_patches(state, KEY, workload, partial)[0].body["spec"])
    assert (started["parallelism"], started["completions"]) == (2, completions)
    restored = merged(started, restore_patch(state, KEY, workload, partial).body["spec"])
    assert restored["parallelism"] == 4
    whole = start_patches(state, KEY, workload, job(parallelism=4, completions=8))[0].body["spec"]
    assert "parallelism" not in whole


maps = st.dictionaries(st.sampled_from(["tier", "zone", "kind", "mine"]), st.sampled_from("ab"), max_size=3)


@given(given_selector=maps, left=maps, tolerations=st.lists(st.sampled_from([SPOT, GPU]), unique=True))
def test_starting_and_restoring_give_the_same_from_wherever_the_job_stands(
    given_selector: dict[str, str], left: dict[str, str], tolerations: list[Toleration]
) -> None:
    """What an earlier admission left behind, seen or not, is gone after either patch; twice is the same as once."""
    template = PodTemplate(spec=PodSpec(node_selector=given_selector, tolerations=tuple(tolerations)))
    state, workload = admitted(template)
    stale = job(template=template)
    # The API server's Job may still carry labels of flavors that our copy of it does not show.
    extra = {key: value for key, value in left.items() if key != "mine"}
    there = {"template": {"metadata": {}, "spec": {"nodeSelector": given_selector | extra}}}
    for patch, wanted in (
        (start_patches(state, KEY, workload, stale)[0], {"tier": "spot", "zone": "z1"} | given_selector),
        (restore_patch(state, KEY, workload, stale), given_selector),
    ):
        once = merged(there, patch.body["spec"])
        assert once["template"]["spec"].get("nodeSelector", {}) == wanted
        assert merged(once, patch.body["spec"]) == once


def test_only_a_stopped_job_that_carries_an_admission_is_restored() -> None:
    """Not while its pods run, not once it has finished, and not what was never injected."""
    _, workload = admitted(PodTemplate())
    marked = PodTemplate(metadata=TemplateMeta(annotations={"kueue.x-k8s.io/workload": "w"}))
    assert needs_restoring(KEY, workload, job(template=marked))
    assert not needs_restoring(KEY, workload, job(template=marked, active=1))
    assert not needs_restoring(KEY, workload, job(template=marked, finished="Complete"))
    assert not needs_restoring(KEY, workload, job(template=PodTemplate()))
