"""Pods with resource claims: which nodes they can go to, what is reserved for them, and what is written."""

from typing import Any

import pytest

from headgate.core.placement.attempt import PlacementAttempt, attempt
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.configuration.profiles import read_profiles
from headgate.core.placement.framework.events import EventResource, Hint
from headgate.core.placement.framework.runtime import Framework
from headgate.core.placement.framework.status import Code
from headgate.core.placement.objects.devices import DeviceClass, ResourceClaim, ResourceSlice
from headgate.core.placement.objects.metadata import read
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.plugins import dynamic_resources_search
from headgate.core.placement.plugins.dynamic_resources import DynamicResources
from headgate.core.placement.plugins.registry import REGISTRY
from headgate.core.placement.pods import PodInfo
from headgate.core.placement.scan import NodeOrder
from headgate.testing.reference.placement.running import outcome_of
from headgate.testing.reference.placement.scenario import PlacementScenario, ScriptAction

DEFAULT = read_profiles(None, REGISTRY).by_name["default-scheduler"]
DRIVER = "gpu.example.com"
FINALIZER = "resource.kubernetes.io/delete-protection"


def only(node: str) -> dict[str, Any]:
    """The node selector of an allocation that is of one node."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {"nodeSelectorTerms": [term]}


class Devices:
    """Nodes n0 to n2, a class of GPUs, and as many of them as `gpus` says by node."""

    def __init__(self, gpus: dict[str, int]) -> None:
        self.cluster = PlacementCluster()
        for name in ("n0", "n1", "n2"):
            node = {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "8", "pods": "9"}}}
            self.cluster.set_node(read(node, NodeObject))
        selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
        gpu = {
            "metadata": {"name": "gpu"},
            "spec": {"selectors": [selector], "extendedResourceName": "example.com/gpu"},
        }
        self.cluster.put(DeviceClass, "gpu", read(gpu, DeviceClass))
        for node_name, count in gpus.items():
            self.slice(node_name, *({"name": f"gpu{number}"} for number in range(count)))
        self.framework = Framework(DEFAULT, self.cluster)

    def slice(self, node: str, *devices: dict[str, Any]) -> None:
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "pool": pool, "nodeName": node, "devices": devices}
        self.cluster.put(
            ResourceSlice, f"s-{node}", read({"metadata": {"name": f"s-{node}"}, "spec": spec}, ResourceSlice)
        )

    def claim(
        self, name: str, *, count: int = 1, request: Any = None, status: Any = None, owner: str = ""
    ) -> ResourceClaim:
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
        owners = [{"kind": "Pod", "name": owner, "uid": f"uid-{owner}", "controller": True}] if owner else []
        manifest = {
            "metadata": {"name": name, "namespace": "a", "uid": f"uid-{name}", "ownerReferences": owners},
            "spec": {"devices": {"requests": [request or {"name": "r", "exactly": exactly}]}},
            "status": status or {},
        }
        claim = read(manifest, ResourceClaim)
        self.cluster.put(ResourceClaim, f"a/{name}", claim)
        return claim

    def pod(self, name: str, *claims: str, made: dict[str, str | None] | None = None, **spec: Any) -> PodInfo:
        named = [{"name": each, "resourceClaimName": each} for each in claims]
        templates = [{"name": each, "resourceClaimTemplateName": "t"} for each in made or {}]
        full = {"containers": [{"name": "c"}], "resourceClaims": named + templates, **spec}
        statuses = [{"name": each, "resourceClaimName": of} for each, of in (made or {}).items() if of != ""]
        metadata = {"name": name, "namespace": "a", "uid": f"uid-{name}"}
        manifest = {"metadata": metadata, "spec": full, "status": {"resourceClaimStatuses": statuses}}
        pod = self.cluster.shapes.read(manifest)
        self.cluster.set_pod(pod)
        return pod

    def tried(self, pod: PodInfo) -> PlacementAttempt:
        return attempt(self.framework, pod, self.cluster.index(NodeOrder).scan(0, 100))

    def reserve(self, made: PlacementAttempt) -> Any:
        """Set aside what was decided; what is to be written."""
        node = self.cluster.node(made.node)
        assert node is not None
        for assumed in self.framework.binding.reserve(made.cycle, node).assumed:
            self.cluster.put(assumed.kind, assumed.key, assumed.object)
        return self.framework.binding.pre_bind(made.cycle, node)

    def write(self, made: PlacementAttempt, patch: dict[str, Any]) -> None:
        """What was to be written of the claim c is there."""
        manifest = {"metadata": {"name": "c", "namespace": "a", **patch["metadata"]}, "status": patch["status"]}
        self.cluster.put(ResourceClaim, "a/c", read(manifest, ResourceClaim))


def allocated(node: str, device: str, *consumers: str, **result: Any) -> dict[str, Any]:
    """The status of a claim with a device."""
    results = [{"request": "r", "driver": DRIVER, "pool": node, "device": device, **result}]
    reserved = [{"resource": "pods", "name": name, "uid": f"uid-{name}"} for name in consumers]
    return {"allocation": {"devices": {"results": results}, "nodeSelector": only(node)}, "reservedFor": reserved}


def test_a_claim_is_allocated_with_its_pod_and_written_before_it_is_bound() -> None:
    """Allocation, finalizer and reservation are one write; after it nothing is left to do."""
    devices = Devices({"n1": 2})
    devices.claim("c")
    made = devices.tried(devices.pod("p", "c"))
    assert made.node == "n1"
    left = devices.reserve(made)
    assert left.status.code == Code.WAIT
    (write,) = left.writes
    assert (write.kind, write.key) == ("ResourceClaim", "a/c")
    assert write.patch == {
        "metadata": {"uid": "uid-c", "finalizers": [FINALIZER]},
        "status": {
            "allocation": {
                "devices": {"results": [{"request": "r", "driver": DRIVER, "pool": "n1", "device": "gpu0"}]},
                "nodeSelector": only("n1"),
            },
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}],
        },
    }
    devices.write(made, dict(write.patch))
    node = devices.cluster.node("n1")
    assert node is not None
    assert devices.framework.binding.pre_bind(made.cycle, node).status.is_success


def test_devices_that_are_set_aside_are_not_given_to_others() -> None:
    """A second pod gets the second device, a third one none, and what is not bound is free again."""
    devices = Devices({"n1": 2})
    for number in range(3):
        devices.claim(f"c{number}")
    first = devices.tried(devices.pod("p0", "c0"))
    before = devices.cluster.objects(ResourceClaim)["a/c0"]
    devices.reserve(first)
    (write,) = devices.reserve(devices.tried(devices.pod("p1", "c1"))).writes
    assert write.patch["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu1"
    third = devices.pod("p2", "c2")
    refused = devices.tried(third)
    assert not refused.node
    assert "3 cannot allocate all claims" in refused.message
    devices.cluster.put(ResourceClaim, "a/c0", before)
    assert devices.tried(third).node == "n1"


def test_a_claim_that_is_being_allocated_is_not_shared_yet() -> None:
    """The second pod waits for the write, and then shares the device on its node."""
    devices = Devices({"n1": 1, "n2": 1})
    devices.claim("c")
    made = devices.tried(devices.pod("p", "c"))
    (write,) = devices.reserve(made).writes
    second = devices.pod("q", "c")
    assert "resource claim a/c is in the process of being allocated" in devices.tried(second).message
    devices.write(made, dict(write.patch))
    shared = devices.tried(second)
    assert shared.node == made.node
    (added,) = devices.reserve(shared).writes
    assert [each["name"] for each in added.patch["status"]["reservedFor"]] == ["p", "q"]
    assert "allocation" not in added.patch["status"]


@pytest.mark.parametrize(
    ("status", "message", "writes"),
    [
        (allocated("n0", "gpu0", "p"), "deallocation of ResourceClaim completed", 1),
        (allocated("n0", "gpu0", "other"), "still not schedulable", 0),
    ],
)
def test_a_claim_on_a_node_that_cannot_take_the_pod_is_given_back(status: Any, message: str, writes: int) -> None:
    """Only when no other pod has it."""
    devices = Devices({"n0": 1, "n1": 1})
    devices.claim("c", status=status)
    devices.cluster.set_node(read({"metadata": {"name": "n0"}, "spec": {"unschedulable": True}}, NodeObject))
    refused = devices.tried(devices.pod("p", "c"))
    assert "2 resourceclaim not available on the node" in refused.message
    assert message in refused.message
    assert refused.post_filtered is not None
    assert len(refused.post_filtered.writes) == writes
    for write in refused.post_filtered.writes:
        assert write.patch["status"] == {"reservedFor": None, "allocation": None, "devices": None}


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        ({"x": ""}, 'pod "a/p": ResourceClaim not created yet'),
        ({"x": "gone"}, 'could not find ResourceClaim "a/gone"'),
        ({"x": "foreign"}, "ResourceClaim a/foreign was not created for Pod a/p (Pod is not owner)"),
        ({"x": "own"}, ""),
        ({"x": None}, ""),
    ],
)
def test_a_pod_is_held_back_until_its_claims_are_made(made: dict[str, str | None], problem: str) -> None:
    """Those that are made of templates have to be the pod's; a template may make none."""
    devices = Devices({"n1": 1})
    devices.claim("foreign", owner="q")
    devices.claim("own", owner="p")
    pod = devices.pod("p", made=made)
    assert devices.framework.pre_enqueue(pod).message == problem
    assert bool(devices.tried(pod).node) == (not problem)


def test_the_node_with_the_preferred_alternative_scores_best() -> None:
    """Two GPUs are preferred to one, so the pod goes where it gets them."""
    devices = Devices({"n0": 1, "n1": 2, "n2": 1})
    wanted = [{"name": f"of{count}", "deviceClassName": "gpu", "count": count} for count in (2, 1)]
    devices.claim("c", request={"name": "r", "firstAvailable": wanted})
    made = devices.tried(devices.pod("p", "c"))
    assert made.node == "n1"
    assert made.scored is not None
    scores = made.scored.by_plugin["DynamicResources"]
    assert scores.raw.tolist() == [7, 8, 7]
    assert scores.normalized.tolist() == [87, 100, 87]


def test_a_claim_has_256_pods_at_most() -> None:
    """The next one is told so before it gets a node."""
    devices = Devices({"n1": 1})
    devices.claim("c", status=allocated("n1", "gpu0", *(f"q{number}" for number in range(256))))
    assert "resourceclaim in use: a/c is reserved for 256 pods" in devices.tried(devices.pod("p", "c")).message
    assert devices.tried(devices.pod("q7", "c")).node == "n1"


def test_devices_with_binding_conditions_are_passed_over_with_the_reason() -> None:
    """A claim that has such a device is used once its conditions are met."""
    devices = Devices({})
    devices.slice("n1", {"name": "gpu0", "bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]})
    devices.claim("c")
    pod = devices.pod("p", "c")
    assert "without devices that have binding conditions" in devices.tried(pod).message
    conditions = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
    status = allocated("n1", "gpu0", **conditions)
    devices.claim("c", status=status)
    assert "waits for condition ready of device gpu0" in devices.tried(pod).message
    met = {"driver": DRIVER, "pool": "n1", "device": "gpu0", "conditions": [{"type": "ready", "status": "True"}]}
    devices.claim("c", status={**status, "devices": [met]})
    assert devices.tried(pod).node == "n1"
    met["conditions"] = [{"type": "broken", "status": "True"}]
    devices.claim("c", status={**status, "devices": [met]})
    assert "deallocation of ResourceClaim completed" in devices.tried(pod).message


def test_a_resource_that_a_class_provides_has_to_be_on_the_node() -> None:
    """NodeResourcesFit leaves such a resource to devices, so without them the pod would run without any."""
    devices = Devices({"n1": 1})
    resources = {"requests": {"example.com/gpu": "1"}}
    pod = devices.pod("p", containers=[{"name": "c", "resources": resources}])
    assert "example.com/gpu is provided by devices" in devices.tried(pod).message
    allocatable = {"cpu": "8", "pods": "9", "example.com/gpu": "1"}
    devices.cluster.set_node(read({"metadata": {"name": "n2"}, "status": {"allocatable": allocatable}}, NodeObject))
    assert devices.tried(pod).node == "n2"


def test_a_search_without_end_fails_the_attempt_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """No cap is silent."""
    monkeypatch.setattr(dynamic_resources_search, "LOOKS_MAX", 100)
    devices = Devices({"n1": 20})
    devices.claim("c", count=11)
    devices.claim("d", count=11)
    made = devices.tried(devices.pod("p", "c", "d"))
    assert made.status.code == Code.ERROR
    assert "node n1: gave up allocating devices" in made.message


def test_a_selector_without_an_answer_fails_the_attempt() -> None:
    """The message names class or claim, and the selector."""
    devices = Devices({"n1": 1})
    selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].model == "x"'}}
    devices.claim("c", request={"name": "r", "exactly": {"deviceClassName": "gpu", "selectors": [selector]}})
    made = devices.tried(devices.pod("p", "c"))
    assert made.status.code == Code.ERROR
    assert "claim a/c: selector #0: CEL runtime error: no such key: model" in made.message


def test_a_claim_that_is_given_back_may_help_all_and_any_other_change_its_pods() -> None:
    """The hints of the plugin."""
    devices = Devices({"n1": 1})
    open_claim = devices.claim("c")
    taken = devices.claim("d", status=allocated("n1", "gpu0", "q"))
    freed = read({"metadata": {"name": "d", "namespace": "a", "uid": "uid-d"}}, ResourceClaim)
    pod = devices.pod("p", "c")
    (hint,) = (each.hint for each in DynamicResources().events() if each.resource == EventResource.RESOURCE_CLAIM)
    assert hint is not None
    assert hint(pod, taken, freed, devices.cluster) == Hint.QUEUE
    assert hint(pod, freed, taken, devices.cluster) == Hint.SKIP
    assert hint(pod, None, open_claim, devices.cluster) == Hint.QUEUE
    assert hint(pod, open_claim, open_claim, devices.cluster) == Hint.SKIP


def manifest(kind: str, name: str, spec: Any = None, **parts: Any) -> dict[str, Any]:
    """An object of a scenario, in the namespace a if it is of one."""
    metadata = {"name": name, "uid": f"uid-{name}"}
    if kind in ("Pod", "ResourceClaim"):
        metadata["namespace"] = "a"
    return {"kind": kind, "metadata": metadata, "spec": spec or {}, **parts}


def test_pods_wait_for_claims_devices_and_each_other_in_a_whole_run() -> None:
    """A gated pod is tried when its claim is made, one without a device when a claim gives its own back."""
    request = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1}}]}}
    slice_spec = {"driver": DRIVER, "nodeName": "n", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}}

    def pod(name: str) -> dict[str, Any]:
        claims = [{"name": "x", "resourceClaimName": f"{name}-claim"}]
        return manifest("Pod", name, {"schedulerName": "default-scheduler", "resourceClaims": claims})

    outcome = outcome_of(
        PlacementScenario(
            name="claims",
            start="2026-01-31T12:00:00Z",
            config={"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"},
            objects=[
                manifest("Node", "n", status={"allocatable": {"pods": "9"}}),
                manifest("DeviceClass", "gpu"),
                manifest("ResourceSlice", "s", {**slice_spec, "devices": [{"name": "gpu0"}]}),
                manifest("ResourceClaim", "p1-claim", request),
                pod("p1"),
                manifest("ResourceClaim", "p2-claim", request),
                pod("p2"),
                pod("p3"),
            ],
            script=[
                ScriptAction(at=100, op="patch", kind="ResourceClaim", name="a/p1-claim", patch={"status": None}),
                ScriptAction(at=200, op="create", object=manifest("ResourceClaim", "p3-claim", request)),
                ScriptAction(
                    at=300,
                    op="patch",
                    kind="ResourceSlice",
                    name="s",
                    patch={"spec": {"devices": [{"name": "gpu0"}, {"name": "gpu1"}]}},
                ),
            ],
        )
    )
    bound = {step["pod"]: step["t"] for step in outcome["steps"] if step.get("do") == "bound"}
    assert bound == {"a/p1": 0, "a/p2": 100, "a/p3": 300}
    tried = [step["attempt"]["pod"] for step in outcome["steps"] if "attempt" in step]
    assert tried == ["a/p1", "a/p2", "a/p2", "a/p3", "a/p3"]
