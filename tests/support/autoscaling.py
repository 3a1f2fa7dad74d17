"""A cluster autoscaler that a test plays: it answers ProvisioningRequests in a simulated cell as it is told to."""

from collections.abc import Callable
from typing import Any

import msgspec

from headgate.events.base import Producer
from headgate.events.facts import ConfigurationObserved
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.processes.runtime.configuration_files import KUEUES_DEFAULTS, KUEUES_DOCUMENT
from headgate.testing.world.world import MACHINES, NO_FAULTS, FaultRates, World

KUEUE = "kueue.x-k8s.io/v1beta2"
CONTROLLER = "kueue.x-k8s.io/provisioning-request"
CHECK, CONFIG, CLASS = "prov", "prov-config", "queued-provisioning.example.com"
NOW = "2026-01-01T00:00:00Z"
DEFAULTS = ConfigurationObserved(configuration=KUEUES_DEFAULTS, document=KUEUES_DOCUMENT)

Json = dict[str, Any]


def kueue(kind: str, name: str, spec: Json, namespace: str = "") -> Json:
    """An object of Kueue."""
    where = {"namespace": namespace} if namespace else {}
    return {"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name, **where}, "spec": spec}


def config_manifest(**spec: Any) -> Json:
    """The configuration of the check."""
    return kueue("ProvisioningRequestConfig", CONFIG, {"provisioningClassName": CLASS, **spec})


def check_manifest(name: str = CHECK, config: str = CONFIG) -> Json:
    """The check, by a configuration of that name."""
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": config}
    return kueue("AdmissionCheck", name, {"controllerName": CONTROLLER, "parameters": parameters})


def queue_manifests(*, checks: tuple[str, ...] = (CHECK,), cpu: str = "8") -> tuple[Json, ...]:
    """A namespace with a queue whose workloads need these checks, and a flavor with a node label."""
    quota = [{"name": "cpu", "nominalQuota": cpu}, {"name": "example.com/gpu", "nominalQuota": 8}]
    groups = [{"coveredResources": ["cpu", "example.com/gpu"], "flavors": [{"name": "new-nodes", "resources": quota}]}]
    return (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}},
        kueue("ResourceFlavor", "new-nodes", {"nodeLabels": {"pool": "new"}}),
        kueue(
            "ClusterQueue",
            "team-a",
            {
                "namespaceSelector": {},
                "resourceGroups": groups,
                "admissionChecksStrategy": {"admissionChecks": [{"name": name} for name in checks]},
            },
        ),
        kueue("LocalQueue", "main", {"clusterQueue": "team-a"}, "team-a"),
    )


def job_manifest(
    name: str = "train", *, pods: int = 2, gpu: bool = True, run_ms: int = 2000, annotations: Json | None = None
) -> Json:
    """A suspended Job of pods that want one CPU each, and a GPU by their limits."""
    resources: Json = {"requests": {"cpu": "1"}}
    if gpu:
        resources |= {"requests": {"cpu": "1", "example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
    metadata: Json = {"name": name, "namespace": "team-a", "labels": {"kueue.x-k8s.io/queue-name": "main"}}
    template = {
        "metadata": {"labels": {"app": name}, "annotations": {"headgate.dev/run-ms": str(run_ms)}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "x", "resources": resources}],
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**metadata, "annotations": annotations or {}},
        "spec": {"suspend": True, "parallelism": pods, "completions": pods, "template": template},
    }


def node_manifest(name: str, **labels: str) -> Json:
    """A node of the flavor, with room for eight CPUs and GPUs."""
    room = {"cpu": "8", "example.com/gpu": "8", "pods": "100", "memory": "64Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"pool": "new", **labels}},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}],
        },
    }


def says(kind: str, status: str = "True", message: str = "") -> Json:
    """A condition of a ProvisioningRequest."""
    return {"type": kind, "status": status, "reason": kind, "message": message, "lastTransitionTime": NOW}


class Autoscaler:
    """Answers each ProvisioningRequest of a world once with the conditions that `answer` has for it."""

    def __init__(self, world: World, answer: Callable[[Json], list[Json]]) -> None:
        self.world = world
        self.answer = answer
        self.details: dict[str, str] = {}
        self._answered: set[str] = set()

    def run(self, until_ms: int) -> None:
        """Run the world in slices; in between, answer what is new."""
        while self.world.clock.now_ms < until_ms:
            at_ms = min(until_ms, self.world.clock.now_ms + 500)
            self.world.run(until_ms=at_ms)
            self.world.advance(at_ms)
            for request in requests_in(self.world):
                if request["metadata"]["uid"] not in self._answered:
                    self._answered.add(request["metadata"]["uid"])
                    self.set(request, self.answer(request))

    def set(self, request: Json, conditions: list[Json]) -> None:
        """Write the conditions of a request, if there are any."""
        if conditions:
            status: Json = {"conditions": conditions}
            if self.details:
                status["provisioningClassDetails"] = self.details
            patch(self.world, f"{path_of(request)}/status", {"status": status})


def patch(world: World, path: str, body: Json) -> None:
    """A merge patch that has to succeed."""
    answer = world.cluster.request("PATCH", path, {}, msgspec.json.encode(body), "application/merge-patch+json")
    assert answer.status == 200, answer.body


def delete(world: World, path: str) -> None:
    """Delete an object."""
    answer = world.cluster.request("DELETE", path, {}, b"", "")
    assert answer.status == 200, answer.body


def path_of(request: Json) -> str:
    """The path of a ProvisioningRequest."""
    metadata = request["metadata"]
    return f"/apis/autoscaling.x-k8s.io/v1/namespaces/{metadata['namespace']}/provisioningrequests/{metadata['name']}"


def listed(world: World, path: str) -> list[Json]:
    """The objects of a collection."""
    items: list[Json] = world.cluster.request("GET", path).json()["items"]
    return items


def requests_in(world: World) -> list[Json]:
    """All ProvisioningRequests."""
    return listed(world, "/apis/autoscaling.x-k8s.io/v1/provisioningrequests")


def templates_in(world: World) -> list[Json]:
    """All PodTemplates."""
    return listed(world, "/api/v1/podtemplates")


def workload_in(world: World) -> Json:
    """The only Workload."""
    (found,) = listed(world, f"/apis/{KUEUE}/workloads")
    return found


def check_in(world: World, name: str = CHECK) -> Json:
    """The state of the check of the only Workload."""
    checks = workload_in(world).get("status", {}).get("admissionChecks", [])
    found: Json = next((each for each in checks if each["name"] == name), {})
    return found


def condition_in(found: Json, kind: str) -> tuple[str, str, str]:
    """Status, reason and message of a condition of an object."""
    conditions = found.get("status", {}).get("conditions", [])
    each: Json = next((each for each in conditions if each["type"] == kind), {})
    return each.get("status", ""), each.get("reason", ""), each.get("message", "")


def provisioned_cell(
    *manifests: Json, faults: FaultRates = NO_FAULTS, seed: int = 0, config: Json | None = None
) -> World:
    """A cell with the check, its queue and one node, with the feature gates of a new cell."""
    machines = {**MACHINES, Producer.INFORMER_BRIDGE: lambda state: InformerBridge(state, new_log=DEFAULTS)}
    world = World(seed=seed, faults=faults, machines=machines)
    given = manifests or (*queue_manifests(), node_manifest("n"))
    world.apply(*given, config or config_manifest(), check_manifest())
    return world
