"""Racks of nodes, gangs that are to be in one of them, and where their pods are. Each rack is of one team only."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.kube.e2e import objects
from tests.kube.e2e.cells import KUEUE, Deployment, Json
from tests.kube.e2e.objects import cluster_queue, flavor, is_true, local_queue, namespace
from tests.support.waiting import until

from headgate.adapters.kubernetes.resources import NODES, PODS
from headgate.cli.explain import tell
from headgate.cli.options import SourceOptions

HOST, RACK = "kubernetes.io/hostname", "example.com/rack"
FOR_EVER_MS = 10**9
INDEX = "batch.kubernetes.io/job-completion-index"


def node(team: str, rack: int, number: int) -> Json:
    name = f"{team}-{rack}-{number}"
    labels = {"pool": team, RACK: f"{team}-{rack}", HOST: name}
    taints = [{"key": "pool", "value": team, "effect": "NoSchedule"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
    }


def tolerations(team: str) -> list[Json]:
    """What the pods of a team need for its nodes."""
    return [{"key": "pool", "value": team, "effect": "NoSchedule"}]


@asynccontextmanager
async def racks(deployment: Deployment, team: str, sizes: Mapping[int, int], **queue: Any) -> AsyncIterator[None]:
    """
    A queue of 64 CPU whose only flavor is so many nodes in each rack, all Ready, for as long as the block runs.

    `queue` is added to the spec of its ClusterQueue. A cell that is started within the block knows all nodes as Ready.
    """
    nodes = [node(team, rack, number) for rack, size in sizes.items() for number in range(size)]
    levels = [{"nodeLabel": RACK}, {"nodeLabel": HOST}]
    topology = {"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": team}, "spec": {"levels": levels}}
    await deployment.apply(
        namespace(team),
        *nodes,
        topology,
        flavor(team, nodeLabels={"pool": team}, tolerations=tolerations(team), topologyName=team),
        cluster_queue(team, team, cpu="64", **queue),
        local_queue(team, team),
    )
    names = {each["metadata"]["name"] for each in nodes}

    async def are_ready() -> bool:
        found = await deployment.all(NODES)
        return names <= {each["metadata"]["name"] for each in found if is_true(each, "Ready")}

    try:
        await until(are_ready)
        yield
    finally:
        for each in await deployment.all(NODES):
            if each["metadata"]["name"] in names:
                await deployment.client.delete(NODES, each["metadata"]["name"])


def gang(
    team: str, pods: int, name: str = "train", *, cpu: str = "500m", run_ms: int = FOR_EVER_MS, **more: Any
) -> Json:
    """An Indexed Job whose pods are to be in one rack. Each index has a backoff of its own."""
    made = objects.job(team, name, cpu=cpu, pods=pods, run_ms=run_ms)
    made["spec"] |= {"completionMode": "Indexed", "backoffLimit": 1000, "backoffLimitPerIndex": 100}
    made["spec"]["template"]["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] = RACK
    made["spec"]["template"]["spec"] |= more
    return made


def node_names(team: str, sizes: Mapping[int, int]) -> list[str]:
    """The first so many nodes of each rack."""
    return [f"{team}-{rack}-{number}" for rack, size in sizes.items() for number in range(size)]


async def alive(deployment: Deployment, team: str, job: str = "train") -> list[Json]:
    """The pods of a gang that have not ended, by index."""
    found = [
        each
        for each in await deployment.all(PODS, team)
        if each["metadata"]["labels"]["batch.kubernetes.io/job-name"] == job
        and "deletionTimestamp" not in each["metadata"]
        and each["status"]["phase"] in {"Pending", "Running"}
    ]
    return sorted(found, key=lambda each: int(each["metadata"]["labels"][INDEX]))


async def landed(deployment: Deployment, team: str, pods: int, job: str = "train") -> list[str]:
    """Wait until so many pods of a gang run; their nodes, by index."""
    nodes: list[str] = []

    async def do_run() -> bool:
        nonlocal nodes
        found = await alive(deployment, team, job)
        nodes = [each["spec"].get("nodeName", "") for each in found if each["status"]["phase"] == "Running"]
        return len(nodes) == pods

    await until(do_run, lambda: f"{len(nodes)} of {pods} pods run")
    return nodes


def assigned(workload: Json, pod_set: str = "main") -> list[str]:
    """The nodes that the pods of a pod set were assigned to, in order."""
    (assignment,) = (each for each in workload["status"]["admission"]["podSetAssignments"] if each["name"] == pod_set)
    found: list[str] = []
    for each in assignment["topologyAssignment"]["slices"]:
        counts, values = each["podCounts"], each["valuesPerLevel"][-1]
        names = values.get("individual", {})
        roots = names.get("roots", [values.get("universal")] * each["domainCount"])
        pods = counts.get("individual") or [counts["universal"]] * each["domainCount"]
        for root, count in zip(roots, pods, strict=True):
            found += [f"{names.get('prefix', '')}{root}{names.get('suffix', '')}"] * count
    return found


def evictions(workload: Json) -> list[str]:
    """Why it was evicted so far."""
    return [each["reason"] for each in workload["status"].get("schedulingStats", {}).get("evictions", ())]


async def explained(deployment: Deployment, team: str, name: str) -> str:
    """What `headgate explain` tells of a job or Workload: a line for each event, and what is the case now."""
    story = await tell(SourceOptions(cell=team, nats=deployment.broker.url), name, team, None)
    lines = [f"{line.event} {line.text} [{line.reason}]; {line.message}" for line in story.lines]
    return "\n".join([*lines, f"{story.standing.stage}: {story.standing.why}", *story.standing.places])
