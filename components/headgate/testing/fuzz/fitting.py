"""
Objects that fit together: small quotas, small requests, names that exist, and what metadata may say.

`Fitting.draw` gives one of a kind. They are what makes runs of the fuzzer worth playing: with them workloads are
admitted, preempted and evicted; `objects` bends some of them.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from headgate.core.api.names import SCHEDULER_NAME
from headgate.testing.cluster import BY_KIND
from headgate.testing.fuzz.values import (
    ABSENT,
    CHECKS,
    CLASSES,
    CLUSTER_QUEUES,
    COHORTS,
    FLAVORS,
    HOSTILE_STRINGS,
    LOCAL_QUEUES,
    NAMESPACES,
    POD_SETS,
    RUNTIMES,
    TOPOLOGIES,
)

Manifest = dict[str, Any]

KUEUE: Final = "kueue.x-k8s.io"
QUEUE_LABEL: Final = f"{KUEUE}/queue-name"
CLASS_LABEL: Final = f"{KUEUE}/priority-class"
JOBS: Final = tuple(f"job-{number}" for number in range(8))
WORKLOADS: Final = tuple(f"wl-{number}" for number in range(6))
PODS: Final = ("pod-0", "pod-1", "pod-2")
NODES: Final = ("node-0", "node-1", "node-2")

FOREIGN_OWNERS: Final = (
    ("ray.io/v1", "RayCluster"),
    ("kubeflow.org/v1", "PyTorchJob"),
    ("apps/v1", "StatefulSet"),
    ("v1", "Pod"),
    ("example.com/v1", "Thing"),
)
"""Kinds of other controllers, none of which runs here."""

LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    QUEUE_LABEL: (*LOCAL_QUEUES, *LOCAL_QUEUES, ABSENT, ""),
    CLASS_LABEL: (*CLASSES, ABSENT, ""),
    f"{KUEUE}/max-exec-time-seconds": ("1", "5", "0", "-1", "x"),
    f"{KUEUE}/job-uid": ("00000000-0000-4000-a000-000000000000", "x", ""),
    f"{KUEUE}/managed": ("true", "no"),
    "team": ("a", "b"),
}
ANNOTATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    f"{KUEUE}/job-min-parallelism": ("1", "2", "0", "x"),
    f"{KUEUE}/job-completions-equal-parallelism": ("true", "false", "x"),
    f"{KUEUE}/elastic-job": ("true", "true", "x"),
    f"{KUEUE}/admission-gated-by": ("tests/gate", "", "a,b"),
    f"{KUEUE}/workload": (*WORKLOADS, ABSENT),
    f"{KUEUE}/is-group-workload": ("true",),
    "headgate.dev/run-ms": ("100", "5000", "0", "-1", "1e9", "x"),
    "note": HOSTILE_STRINGS[:8],
}
KINDS: Final = (
    "Namespace",
    "Node",
    "ResourceFlavor",
    "Topology",
    "AdmissionCheck",
    "Cohort",
    "ClusterQueue",
    "LocalQueue",
    "WorkloadPriorityClass",
    "PriorityClass",
    "LimitRange",
    "RuntimeClass",
    "Workload",
    "Job",
    "Pod",
)
"""The kinds that the bridge watches, in the order in which they are created in a new cluster."""


class Fitting:
    """Draws fitting objects, and metadata that means something."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._makers: Mapping[str, Callable[[str], Manifest]] = {
            "Namespace": self._namespace,
            "Node": self._node,
            "ResourceFlavor": self._flavor,
            "Topology": self._topology,
            "AdmissionCheck": self._check,
            "Cohort": self._cohort,
            "ClusterQueue": self._cluster_queue,
            "LocalQueue": self._local_queue,
            "WorkloadPriorityClass": self._workload_class,
            "PriorityClass": self._priority_class,
            "LimitRange": self._limit_range,
            "RuntimeClass": self._runtime_class,
            "Workload": self._workload,
            "Job": self._job,
            "Pod": self._pod,
        }

    def draw(self, kind: str, name: str = "") -> Manifest:
        """A manifest of one of `KINDS`, under this name or one that is drawn."""
        return self._makers[kind](name)

    def labels(self) -> dict[str, str]:
        """A label or two that mean something."""
        return self._some(LABELS)

    def annotations(self) -> dict[str, str]:
        """An annotation or two that mean something."""
        return self._some(ANNOTATIONS)

    def _some(self, table: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
        keys = self.rng.sample(list(table), self.rng.choice((1, 1, 2, len(table))))
        return {key: self.rng.choice(table[key]) for key in keys}

    def finalizers(self) -> list[str]:
        """Finalizers, which a controller may or may not remove."""
        return self.rng.choice(
            ([], ["example.com/slow"], [f"{KUEUE}/resource-in-use"], ["orphan"], ["foregroundDeletion"])
        )

    def owners(self) -> list[Manifest]:
        """Owner references: of a Job that may exist, or of a kind of another controller."""
        rng = self.rng
        if rng.random() < 0.4:
            name = rng.choice(JOBS)
            uid = {"$uid": f"batch/jobs/{{namespace}}/{name}"} if rng.random() < 0.8 else "no-such-uid"
            return [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}]
        version, kind = rng.choice(FOREIGN_OWNERS)
        owner = {
            "apiVersion": version,
            "kind": kind,
            "name": f"owner-{rng.randrange(3)}",
            "uid": f"uid-{rng.randrange(3)}",
        }
        return [{**owner, "controller": True}] if rng.random() < 0.7 else [owner]

    def _pod_spec(self) -> Manifest:
        """The requests of one pod: sometimes none."""
        rng = self.rng
        requests: dict[str, str] = {}
        if rng.random() < 0.85:
            requests["cpu"] = str(rng.choice((1, 1, 2, 3)))
        if rng.random() < 0.3:
            requests["memory"] = rng.choice(("64Mi", "1Gi"))
        resources = {"resources": {"requests": requests}} if requests or rng.random() < 0.5 else {}
        spec: Manifest = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", **resources}]}
        if rng.random() >= 0.8:
            spec["schedulerName"] = SCHEDULER_NAME
        if rng.random() < 0.05:
            spec["runtimeClassName"] = rng.choice(RUNTIMES)
        if rng.random() < 0.1:
            spec["priorityClassName"] = rng.choice(CLASSES)
        if rng.random() < 0.1:
            spec["nodeSelector"] = {"flavor": rng.choice(FLAVORS)}
        return spec

    def _job(self, name: str) -> Manifest:
        rng = self.rng
        labels = {QUEUE_LABEL: rng.choice(LOCAL_QUEUES)} if rng.random() < 0.95 else {}
        if rng.random() < 0.5:
            labels[CLASS_LABEL] = rng.choice(CLASSES)
        count = rng.choice((1, 1, 2, 3, 0))
        run_ms = rng.choice((200, 2_000, 8_000, 20_000))
        template = {"metadata": {"annotations": {"headgate.dev/run-ms": str(run_ms)}}, "spec": self._pod_spec()}
        spec = {"suspend": rng.random() < 0.9, "parallelism": count, "completions": count, "template": template}
        annotations = self.annotations() if rng.random() < 0.1 else {}
        if rng.random() < 0.08:
            annotations[f"{KUEUE}/elastic-job"] = "true"
        return self._object("batch/v1", "Job", name or rng.choice(JOBS), spec, labels, annotations)

    def _workload(self, name: str) -> Manifest:
        """One without a Job: it belongs to another controller or owner."""
        rng = self.rng
        names = rng.choice((("main",), ("main",), ("driver", "workers"), POD_SETS))
        pod_sets: list[Manifest] = [
            {"name": each, "count": rng.choice((1, 1, 2, 0)), "template": {"spec": self._pod_spec()}} for each in names
        ]
        spec: Manifest = {"queueName": rng.choice(LOCAL_QUEUES), "podSets": pod_sets}
        if rng.random() < 0.5:
            spec["priority"] = rng.choice((-10, 0, 100))
        if rng.random() < 0.1:
            spec["maximumExecutionTimeSeconds"] = rng.choice((1, 5))
        if rng.random() < 0.1:
            pod_sets[-1]["minCount"] = 1
        manifest = self._object(f"{KUEUE}/v1beta2", "Workload", name or rng.choice(WORKLOADS), spec, {})
        if rng.random() < 0.7:
            manifest["metadata"]["ownerReferences"] = self.owners()
        return manifest

    def _cluster_queue(self, name: str) -> Manifest:
        rng = self.rng
        flavors = rng.choice((FLAVORS[:1], FLAVORS, FLAVORS[::-1]))
        groups = [{"coveredResources": ["cpu", "memory"], "flavors": [self._flavor_quotas(each) for each in flavors]}]
        spec: Manifest = {
            "namespaceSelector": {},
            "resourceGroups": groups,
            "queueingStrategy": rng.choice(("BestEffortFIFO", "BestEffortFIFO", "StrictFIFO")),
            "preemption": {
                "withinClusterQueue": rng.choice(
                    ("Never", "LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority")
                ),
                "reclaimWithinCohort": rng.choice(("Never", "LowerPriority", "Any", "Any")),
            },
        }
        if rng.random() < 0.7:
            spec["cohortName"] = rng.choice((COHORTS[0], COHORTS[0], COHORTS[1]))
        if rng.random() < 0.2:
            spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": rng.choice(CHECKS)}]}
        if rng.random() < 0.1:
            spec["admissionScope"] = {"admissionMode": "UsageBasedAdmissionFairSharing"}
        if rng.random() < 0.05 and len(flavors) > 1:
            spec["concurrentAdmissionPolicy"] = {"migration": {"mode": "TryPreferredFlavors"}}
        return self._object(f"{KUEUE}/v1beta2", "ClusterQueue", name or rng.choice(CLUSTER_QUEUES), spec)

    def _flavor_quotas(self, flavor: str) -> Manifest:
        cpu: Manifest = {"name": "cpu", "nominalQuota": self.rng.choice(("2", "3", "4", "4", "6", "0"))}
        for limit in ("borrowingLimit", "lendingLimit"):
            if self.rng.random() < 0.15:
                cpu[limit] = self.rng.choice(("0", "1", "2"))
        return {"name": flavor, "resources": [cpu, {"name": "memory", "nominalQuota": "8Gi"}]}

    def _cohort(self, name: str) -> Manifest:
        rng, name, spec = self.rng, name or self.rng.choice(COHORTS), Manifest()
        if name != COHORTS[0] and rng.random() < 0.6:
            spec["parentName"] = COHORTS[0]
        if rng.random() < 0.4:
            flavors = [self._flavor_quotas(FLAVORS[0])]
            spec["resourceGroups"] = [{"coveredResources": ["cpu", "memory"], "flavors": flavors}]
        return self._object(f"{KUEUE}/v1beta2", "Cohort", name, spec)

    def _local_queue(self, name: str) -> Manifest:
        rng = self.rng
        spec: Manifest = {"clusterQueue": rng.choice(CLUSTER_QUEUES)}
        if rng.random() < 0.1:
            spec["fairSharing"] = {"weight": rng.choice(("1", "2", "0", "500m"))}
        return self._object(f"{KUEUE}/v1beta2", "LocalQueue", name or rng.choice(LOCAL_QUEUES), spec, {})

    def _flavor(self, name: str) -> Manifest:
        rng, name = self.rng, name or self.rng.choice(FLAVORS)
        spec: Manifest = {"nodeLabels": {"flavor": name}} if rng.random() < 0.7 else {}
        if rng.random() < 0.1:
            spec["nodeTaints"] = [{"key": "flavor", "value": name, "effect": "NoSchedule"}]
            spec["tolerations"] = [{"key": "flavor", "operator": "Exists", "effect": "NoSchedule"}]
        if rng.random() < 0.03:
            spec = {"nodeLabels": {"flavor": name}, "topologyName": rng.choice((*TOPOLOGIES, ABSENT))}
        return self._object(f"{KUEUE}/v1beta2", "ResourceFlavor", name, spec)

    def _check(self, name: str) -> Manifest:
        spec = {"controllerName": "tests/gate"}
        return self._object(f"{KUEUE}/v1beta2", "AdmissionCheck", name or self.rng.choice(CHECKS), spec)

    def _topology(self, name: str) -> Manifest:
        spec = {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]}
        return self._object(f"{KUEUE}/v1beta2", "Topology", name or TOPOLOGIES[0], spec)

    def _workload_class(self, name: str) -> Manifest:
        name = name or self.rng.choice(CLASSES)
        manifest = self._object(f"{KUEUE}/v1beta2", "WorkloadPriorityClass", name)
        return {**manifest, "value": -10 if name == "low" else 100}

    def _priority_class(self, name: str) -> Manifest:
        name = name or self.rng.choice(CLASSES)
        manifest = self._object("scheduling.k8s.io/v1", "PriorityClass", name)
        return {**manifest, "value": -10 if name == "low" else 100}

    def _runtime_class(self, name: str) -> Manifest:
        manifest = self._object("node.k8s.io/v1", "RuntimeClass", name or RUNTIMES[0])
        return {**manifest, "handler": "h", "overhead": {"podFixed": {"cpu": self.rng.choice(("1", "0", "100m"))}}}

    def _limit_range(self, name: str) -> Manifest:
        limit: Manifest = {"type": "Container", "defaultRequest": {"cpu": self.rng.choice(("1", "500m"))}}
        if self.rng.random() < 0.3:
            limit["max"] = {"cpu": "2"}
            limit["default"] = {"cpu": "2"}
        return self._object("v1", "LimitRange", name or "limits", {"limits": [limit]}, {})

    def _namespace(self, name: str) -> Manifest:
        return self._object("v1", "Namespace", name or self.rng.choice(NAMESPACES))

    def _node(self, name: str) -> Manifest:
        flavor, resources = self.rng.choice(FLAVORS), {"cpu": "16", "memory": "64Gi", "pods": "50"}
        manifest = self._object("v1", "Node", name or self.rng.choice(NODES), {})
        manifest["metadata"]["labels"] = {"flavor": flavor, "rack": "r1"}
        ready = [{"type": "Ready", "status": "True"}]
        return {**manifest, "status": {"capacity": resources, "allocatable": resources, "conditions": ready}}

    def _pod(self, name: str) -> Manifest:
        spec = {**self._pod_spec(), **({"nodeName": self.rng.choice(NODES)} if self.rng.random() < 0.2 else {})}
        labels = self.labels() if self.rng.random() < 0.3 else {}
        manifest = self._object("v1", "Pod", name or self.rng.choice(PODS), spec, labels)
        manifest["metadata"]["annotations"] = {"headgate.dev/run-ms": "3000"}
        return manifest

    def _object(
        self,
        api_version: str,
        kind: str,
        name: str,
        spec: Manifest | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> Manifest:
        """`labels` is given for kinds that are in a namespace."""
        metadata: Manifest = {"name": name}
        if BY_KIND[api_version.rpartition("/")[0], kind].namespaced:
            metadata["namespace"] = self.rng.choice(NAMESPACES[:2])
        if labels:
            metadata["labels"] = dict(labels)
        if annotations:
            metadata["annotations"] = dict(annotations)
        manifest: Manifest = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
        return manifest if spec is None else {**manifest, "spec": spec}
