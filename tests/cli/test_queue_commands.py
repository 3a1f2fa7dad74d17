"""`headgate create`, `list`, `stop` and `resume` against a simulated cluster behind HTTP."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.cluster_process import running_cluster

from headgate.cli.creating import resource_groups
from headgate.cli.listing import status_of
from headgate.cli.output import CliError


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cluster to talk to."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as file:
        yield file


@pytest.fixture
def cluster(headgate: Callable, kubeconfig: Path) -> Callable:
    return lambda *args: headgate(*args, "--kubeconfig", kubeconfig)


def spec_of(cluster: Callable, *what: str) -> dict[str, Any]:
    return dict(json.loads(cluster("get", *what, "-o", "json").out)["spec"])


JOB = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: owner, namespace: default}
spec: {clusterQueue: vision}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train-7, namespace: default}
spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
"""
OWNERS = (("job", "train-7"), ("localqueue", "owner"))
WORKLOAD = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata:
  name: train
  namespace: default
  ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train-7, uid: UID, controller: true}]
spec:
  queueName: main
  podSets: [{name: main, template: {spec: {containers: [{name: c, image: i}]}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: mine, namespace: default, annotations: {kueue.x-k8s.io/workload: train}}
spec: {containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Pod
metadata: {name: other, namespace: default}
spec: {containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Pod
metadata:
  name: owned
  namespace: default
  ownerReferences: [{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, name: owner, uid: OWNER}]
spec: {containers: [{name: c, image: i}]}
"""


def test_a_queue_is_created_stopped_and_resumed(cluster: Callable) -> None:
    """With the flags of Kueue's plugin; what is missing or there already is told."""
    done = cluster("create", "resourceflavor", "spot", "--node-labels", "zone=a", "--node-taints", "s=t:NoSchedule")
    assert (done.code, done.out.strip()) == (0, "resourceflavor.kueue.x-k8s.io/spot created")
    assert spec_of(cluster, "rf", "spot")["nodeTaints"] == [{"key": "s", "value": "t", "effect": "NoSchedule"}]
    quota = ("--nominal-quota", "spot:cpu=9;memory=36Gi", "--borrowing-limit", "spot:cpu=1")
    done = cluster("create", "clusterqueue", "vision", "--cohort", "all", "--reclaim-within-cohort", "Any", *quota)
    assert done.code == 0, done.err
    spec = spec_of(cluster, "cq", "vision")
    assert (spec["cohortName"], spec["namespaceSelector"]) == ("all", {})
    assert spec["preemption"]["reclaimWithinCohort"] == "Any"
    assert cluster("create", "clusterqueue", "vision").code == 1
    done = cluster("create", "localqueue", "main", "-c", "absent")
    assert (done.code, "clusterqueue absent does not exist" in done.err) == (1, True)
    done = cluster("create", "localqueue", "main", "-c", "vision", "--dry-run")
    assert "created (server dry run)" in done.out
    assert cluster("create", "localqueue", "main", "-c", "vision").code == 0
    for command, policy in (
        (("stop", "clusterqueue", "vision"), "HoldAndDrain"),
        (("resume", "cq", "vision"), "None"),
        (("stop", "cq", "vision", "--keep-already-running"), "Hold"),
    ):
        assert cluster(*command).code == 0
        assert spec_of(cluster, "cq", "vision")["stopPolicy"] == policy
    assert "main" in cluster("list", "localqueue").out


def test_workloads_and_pods_are_listed_by_what_they_belong_to(cluster: Callable, tmp_path: Path) -> None:
    """A Workload with its job; the pods that name it, or that an object owns."""
    file = tmp_path / "objects.yaml"
    file.write_text(JOB)
    assert cluster("apply", "-f", file).code == 0
    uids = [json.loads(cluster("get", *what, "-o", "json").out)["metadata"]["uid"] for what in OWNERS]
    file.write_text(WORKLOAD.replace("UID", uids[0]).replace("OWNER", uids[1]))
    assert cluster("apply", "-f", file).code == 0
    listed = cluster("list", "workload")
    assert listed.code == 0, listed.err
    lines = listed.out.splitlines()
    assert lines[0].split()[:3] == ["NAME", "JOB", "TYPE"]
    assert lines[1].split()[:5] == ["train", "job.batch", "train-7", "main", "PENDING"]
    assert "No resources found" in cluster("list", "workload", "--status", "admitted").err
    assert cluster("list", "workload", "--status", "running").code == 2
    found = cluster("list", "pods", "--for", "workload/train", "-o", "json")
    assert [each["metadata"]["name"] for each in json.loads(found.out)] == ["mine"]
    found = cluster("list", "pods", "--for", "localqueue/owner", "-o", "json")
    assert [each["metadata"]["name"] for each in json.loads(found.out)] == ["owned"]
    assert "--for job/train-7" in cluster("list", "pods").err
    for command, active in ((("stop", "workload", "train"), False), (("resume", "kwl", "train"), True)):
        assert cluster(*command).code == 0
        assert spec_of(cluster, "workload", "train")["active"] is active
    assert cluster("stop", "workload", "train", "--keep-already-running").code == 2
    assert "can be stopped" in cluster("stop", "pod", "mine").err


CHAIN = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: top, namespace: default}
spec: {clusterQueue: vision}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata:
  name: between
  namespace: default
  ownerReferences: [{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, name: top, uid: UID}]
spec: {podSets: [{name: main, template: {spec: {containers: [{name: c, image: i}]}}}]}
---
apiVersion: v1
kind: Pod
metadata:
  name: below
  namespace: default
  ownerReferences:
    - {apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, name: between, uid: UID}
    - {apiVersion: ray.io/v1, kind: RayCluster, name: of-a-kind-that-is-not-there, uid: x}
    - {apiVersion: v1, kind: Node, name: of-a-kind-without-namespaces, uid: x}
spec: {containers: [{name: c, image: i}]}
"""


def test_pods_are_listed_through_whatever_is_in_between(cluster: Callable, tmp_path: Path) -> None:
    """Of any kind, as a RayCluster between a RayJob and its pods; kinds that the cluster does not have own nothing."""
    file, uid = tmp_path / "objects.yaml", ""
    for manifest, what in zip(CHAIN.split("---"), ("localqueue/top", "workload/between", "pod/below"), strict=True):
        file.write_text(manifest.replace("UID", uid))
        applied = cluster("apply", "-f", file)
        assert applied.code == 0, applied.err
        uid = json.loads(cluster("get", *what.split("/"), "-o", "json").out)["metadata"]["uid"]
    for above in ("localqueue/top", "workload/between"):
        found = cluster("list", "pods", "--for", above, "-o", "json")
        assert found.code == 0, found.err
        assert [each["metadata"]["name"] for each in json.loads(found.out)] == ["below"]


def test_flavors_with_the_same_resources_are_one_group() -> None:
    """As Kueue's plugin makes them; a limit needs a quota."""
    groups = resource_groups(["a:cpu=1;memory=2Gi,b:cpu=3;memory=4Gi", "c:gpu=1"], ["b:cpu=5"], [])
    assert yaml.safe_load(yaml.safe_dump(groups)) == [
        {
            "coveredResources": ["cpu", "memory"],
            "flavors": [
                {
                    "name": "a",
                    "resources": [
                        {"name": "cpu", "nominalQuota": "1"},
                        {"name": "memory", "nominalQuota": "2Gi"},
                    ],
                },
                {
                    "name": "b",
                    "resources": [
                        {"name": "cpu", "nominalQuota": "3", "borrowingLimit": "5"},
                        {"name": "memory", "nominalQuota": "4Gi"},
                    ],
                },
            ],
        },
        {
            "coveredResources": ["gpu"],
            "flavors": [{"name": "c", "resources": [{"name": "gpu", "nominalQuota": "1"}]}],
        },
    ]
    with pytest.raises(CliError, match="--lending-limit a:gpu: it has no --nominal-quota"):
        resource_groups(["a:cpu=1"], [], ["a:gpu=1"])
    with pytest.raises(CliError, match="--nominal-quota a:cpu: write FLAVOR:RESOURCE=N"):
        resource_groups(["a:cpu"], [], [])


@pytest.mark.parametrize(
    ("true", "said"),
    [((), "PENDING"), (("QuotaReserved",), "QUOTARESERVED"), (("QuotaReserved", "Admitted"), "ADMITTED")],
)
def test_the_status_is_the_furthest_condition(true: tuple[str, ...], said: str) -> None:
    """A finished one is FINISHED whatever else it is."""
    conditions = [{"type": each, "status": "True"} for each in true]
    assert status_of({"status": {"conditions": conditions}}) == said
    assert status_of({"status": {"conditions": [*conditions, {"type": "Finished", "status": "True"}]}}) == "FINISHED"
