"""The cluster and the jobs of the benchmarks and chaos runs, as manifests."""

from typing import Any

Manifest = dict[str, Any]
KUEUE = "kueue.x-k8s.io/v1beta2"
FLAVOR = "on-demand"


def kueue(kind: str, name: str, spec: Manifest, namespace: str = "") -> Manifest:
    """A Kueue object."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": spec}


def node(name: str, cpu: int) -> Manifest:
    """A node that is ready and belongs to the flavor."""
    resources = {"cpu": str(cpu), "memory": f"{4 * cpu}Gi", "pods": "1000"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"flavor": FLAVOR}},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def cluster(*, teams: int, cpu: int, cohort: str = "all", nodes: int = 4, strict: int = 0) -> list[Manifest]:
    """
    Teams with a namespace, a LocalQueue `main` and a ClusterQueue of `cpu` CPUs each, in one cohort.

    The nodes have room for all of it. The first `strict` queues are StrictFIFO.
    """
    manifests = [kueue("ResourceFlavor", FLAVOR, {"nodeLabels": {"flavor": FLAVOR}})]
    manifests += [node(f"n{n}", 2 * teams * cpu // nodes + cpu) for n in range(nodes)]
    for n in range(teams):
        quota = [{"name": "cpu", "nominalQuota": str(cpu)}, {"name": "memory", "nominalQuota": f"{4 * cpu}Gi"}]
        spec: Manifest = {
            "namespaceSelector": {},
            "queueingStrategy": "StrictFIFO" if n < strict else "BestEffortFIFO",
            "resourceGroups": [
                {"coveredResources": ["cpu", "memory"], "flavors": [{"name": FLAVOR, "resources": quota}]}
            ],
        }
        if cohort:
            spec["cohortName"] = cohort
        manifests.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"team-{n}"}})
        manifests.append(kueue("ClusterQueue", f"team-{n}", spec))
        manifests.append(kueue("LocalQueue", "main", {"clusterQueue": f"team-{n}"}, f"team-{n}"))
    return manifests


def job(name: str, namespace: str, *, cpu: str = "1", pods: int = 1, run_ms: int = 200) -> Manifest:
    """A suspended Job for the namespace's queue whose pods run for so long, and are bound by Headgate."""
    requests = {"cpu": cpu, "memory": "64Mi"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {
            "suspend": True,
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": {"headgate.dev/run-ms": str(run_ms)}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}],
                },
            },
        },
    }
