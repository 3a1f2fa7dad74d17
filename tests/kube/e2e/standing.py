"""How things stand on the cluster, told where a test has waited in vain."""

from collections.abc import Sequence
from fractions import Fraction

from tests.kube.e2e.cells import Deployment, Json
from tests.kube.e2e.objects import cpu_of

from headgate.adapters.kubernetes.resources import NODES, PODS, WORKLOADS


async def standing(deployment: Deployment, namespace: str | None = None) -> str:
    """For people: the Workloads and pods of a namespace, or of all, and what room the nodes have."""
    everywhere = await deployment.all(PODS)
    pods = [each for each in everywhere if namespace in (None, each["metadata"]["namespace"])]
    lines = [
        *map(_workload_line, await deployment.all(WORKLOADS, namespace)),
        *map(_pod_line, pods),
        *(_node_line(each, everywhere) for each in await deployment.all(NODES)),
    ]
    return "\n".join(lines)


def _name(found: Json) -> str:
    meta = found["metadata"]
    dying = " (being deleted)" if "deletionTimestamp" in meta else ""
    return f"{meta.get('namespace', '')}/{meta['name']}{dying}"


def _conditions(found: Json) -> str:
    said = found.get("status", {}).get("conditions") or ()
    return ", ".join(
        f"{it['type']}={it['status']} {it.get('reason', '')}: {it.get('message', '')}".rstrip(": ") for it in said
    )


def _workload_line(found: Json) -> str:
    queue = found["spec"].get("queueName")
    return f"  Workload {_name(found)} of queue {queue}: {_conditions(found) or 'no conditions'}"


def _pod_line(found: Json) -> str:
    spec, status = found["spec"], found.get("status", {})
    gates = [each["name"] for each in spec.get("schedulingGates", ())]
    where = f"on {spec['nodeName']}" if "nodeName" in spec else f"without a node, for {spec.get('schedulerName')}"
    return f"  Pod {_name(found)} {status.get('phase')} {where}, gates {gates}: {_conditions(found)}"


def _node_line(found: Json, pods: Sequence[Json]) -> str:
    name = found["metadata"]["name"]
    alive = [each for each in pods if each["status"].get("phase") not in ("Succeeded", "Failed")]
    used = sum((cpu_of(each) for each in alive if each["spec"].get("nodeName") == name), Fraction())
    room = found.get("status", {}).get("allocatable", {}).get("cpu")
    taints = [f"{each['key']}={each.get('value', '')}:{each['effect']}" for each in found["spec"].get("taints", ())]
    return f"  Node {name}: {float(used)} of {room} CPU used, taints {taints}: {_conditions(found)}"
