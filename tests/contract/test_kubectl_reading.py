"""What kubectl prints of the API: the same on both servers, volatile parts masked."""

import re

import msgspec
import pytest
from tests.contract.samples import LOCAL_QUEUE

pytestmark = pytest.mark.anyio

QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata:
  name: team
  labels: {owner: us}
spec:
  clusterQueue: all
  stopPolicy: Hold
"""

CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
data:
  colour: blue
"""

AGE = re.compile(r"\b\d+(s|m\d*s?|h\d*m?)\b")
NAME = "localqueue.kueue.x-k8s.io/team"


def masked(text: str, namespace: str) -> str:
    """What is printed, with ages, uids, times, versions and the namespace's name as words, blanks joined."""
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", text)
    text = re.sub(r'(resourceVersion: |Resource Version: +)"?\d+"?', r"\1RV", text)
    text = AGE.sub("AGE", text).replace(namespace, "NS")
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())


async def run(server, namespace, command: str, stdin: str | None = None, *, code: int = 0) -> str:
    """Run a command in the namespace; what it prints, errors after the rest, masked."""
    ran = await server.kubectl("-n", namespace, *command.split(), stdin=stdin)
    assert ran.returncode == code, ran
    return masked(ran.stdout + ran.stderr, namespace)


async def test_get_prints_tables(server, namespace):
    """The columns of the kind, labels and names where requested; refusals with the server's message."""
    await run(server, namespace, "apply -f -", QUEUE)
    await run(server, namespace, "apply -f -", CONFIG)
    assert await run(server, namespace, "get localqueue") == (
        "NAME CLUSTERQUEUE PENDING WORKLOADS ADMITTED WORKLOADS\nteam all"
    )
    assert await run(server, namespace, "get lq team -L owner --no-headers") == "team all us"
    assert await run(server, namespace, "get configmap settings -o wide") == "NAME DATA AGE\nsettings 1 AGE"
    assert await run(server, namespace, "get queues -o name") == NAME
    assert await run(server, namespace, "get pods") == "No resources found in NS namespace."
    assert await run(server, namespace, "get localqueue absent", code=1) == (
        'Error from server (NotFound): localqueues.kueue.x-k8s.io "absent" not found'
    )
    assert await run(server, namespace, "get nothings", code=1) == (
        'error: the server doesn\'t have a resource type "nothings"'
    )
    assert await run(server, namespace, "get lq -l a=(", code=1) == (
        'Error from server (BadRequest): Unable to find "kueue.x-k8s.io/v1beta2, Resource=localqueues" that match '
        'label selector "a=(", field selector "": unable to parse requirement: found \'(\', expected: identifier'
    )


async def test_get_prints_objects(server, namespace):
    """YAML is the object as stored; a JSONPath picks from it; an older version is served with a warning."""
    await run(server, namespace, "create -f -", QUEUE)
    assert (await run(server, namespace, "get lq team -o yaml")).split("\n") == [
        "apiVersion: kueue.x-k8s.io/v1beta2",
        "kind: LocalQueue",
        "metadata:",
        'creationTimestamp: "TIME"',
        "generation: 1",
        "labels:",
        "owner: us",
        "name: team",
        "namespace: NS",
        "resourceVersion: RV",
        "uid: UID",
        "spec:",
        "clusterQueue: all",
        "stopPolicy: Hold",
    ]
    picked = await run(server, namespace, "get lq team -o jsonpath={.spec.clusterQueue}/{.metadata.generation}")
    assert picked == "all/1"
    older = await server.kubectl(
        "-n", namespace, "get", "localqueues.v1beta1.kueue.x-k8s.io", "team", "-o", "jsonpath={.apiVersion}"
    )
    assert older.stdout == "kueue.x-k8s.io/v1beta1"
    assert older.stderr == "Warning: This version is deprecated. Use v1beta2 instead.\n"


async def test_describe_shows_an_object_and_its_events(server, namespace):
    """The fields as headings; events are found by field selectors on the object that they are about."""
    await run(server, namespace, "create -f -", QUEUE)
    made = (await server.call("GET", LOCAL_QUEUE.path(namespace, "team"))).json
    about = {"kind": "LocalQueue", "namespace": namespace, "name": "team", "uid": made["metadata"]["uid"]}
    event = {
        "metadata": {"name": "e"},
        "involvedObject": about | {"apiVersion": made["apiVersion"]},
        "type": "Warning",
        "reason": "Why",
        "message": "what",
        "source": {"component": "me"},
        "firstTimestamp": made["metadata"]["creationTimestamp"],
        "lastTimestamp": made["metadata"]["creationTimestamp"],
        "count": 1,
    }
    answer = await server.call("POST", f"/api/v1/namespaces/{namespace}/events", event)
    assert answer.status == 201, answer.json
    assert (await run(server, namespace, "describe lq team")).split("\n") == [
        "Name: team",
        "Namespace: NS",
        "Labels: owner=us",
        "Annotations: <none>",
        "API Version: kueue.x-k8s.io/v1beta2",
        "Kind: LocalQueue",
        "Metadata:",
        "Creation Timestamp: TIME",
        "Generation: 1",
        "Resource Version: RV",
        "UID: UID",
        "Spec:",
        "Cluster Queue: all",
        "Stop Policy: Hold",
        "Events:",
        "Type Reason Age From Message",
        "---- ------ ---- ---- -------",
        "Warning Why AGE me what",
    ]


async def test_labels_and_annotations(server, namespace):
    """Each reports what it changed, or that there was nothing to change."""
    await run(server, namespace, "create -f -", QUEUE)
    assert await run(server, namespace, "label lq team tier=1") == f"{NAME} labeled"
    assert await run(server, namespace, "label lq team tier=1") == f"{NAME} not labeled"
    assert await run(server, namespace, "label lq team tier=2", code=1) == (
        "error: 'tier' already has a value (1), and --overwrite is false"
    )
    assert await run(server, namespace, "annotate lq team note=x") == f"{NAME} annotated"
    assert await run(server, namespace, "delete lq team --wait --timeout=20s") == (
        'localqueue.kueue.x-k8s.io "team" deleted from NS namespace'
    )


async def test_watching_prints_rows_as_they_change(server, namespace):
    """The present rows under one header, until the time is up."""
    await run(server, namespace, "create -f -", QUEUE)
    watched = await run(server, namespace, "get lq -w --request-timeout=2s")
    assert watched == "NAME CLUSTERQUEUE PENDING WORKLOADS ADMITTED WORKLOADS\nteam all"


async def test_api_resources_lists_kueues_kinds(server, namespace):
    """Short names, group and version, scope and kind as the definitions have them."""
    text = await run(server, namespace, "api-resources --api-group=kueue.x-k8s.io --no-headers")
    assert sorted(text.split("\n")) == [
        "admissionchecks ac kueue.x-k8s.io/v1beta2 false AdmissionCheck",
        "clusterqueues cq kueue.x-k8s.io/v1beta2 false ClusterQueue",
        "cohorts co kueue.x-k8s.io/v1beta2 false Cohort",
        "localqueues queue,queues,lq kueue.x-k8s.io/v1beta2 true LocalQueue",
        "multikueueclusters mkc kueue.x-k8s.io/v1beta2 false MultiKueueCluster",
        "multikueueconfigs mkconf kueue.x-k8s.io/v1beta2 false MultiKueueConfig",
        "provisioningrequestconfigs prc kueue.x-k8s.io/v1beta2 false ProvisioningRequestConfig",
        "resourceflavors flavor,flavors,rf kueue.x-k8s.io/v1beta2 false ResourceFlavor",
        "topologies topo kueue.x-k8s.io/v1beta2 false Topology",
        "workloadpriorityclasses wpc kueue.x-k8s.io/v1beta2 false WorkloadPriorityClass",
        "workloads kwl,kueueworkload,kueueworkloads kueue.x-k8s.io/v1beta2 true Workload",
    ]
    version = msgspec.json.decode((await server.kubectl("version", "-o", "json")).stdout)
    assert version["serverVersion"]["gitVersion"] == version["clientVersion"]["gitVersion"]
