"""
A node with the pods on it, as plugins see it (NodeInfo).

The cluster owns one per node and keeps it current; preemption and nominated pods work on clones, which cost as much as
there are pods on the node.
"""

from typing import Final

from headgate.core.kubernetes.quantities import amount
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.objects.pods import AffinityObject, PodAffinity
from headgate.core.placement.pods import HostPort, PodInfo
from headgate.core.placement.requests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, is_scalar

_BASIC: Final = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
_NO_AFFINITY: Final = PodAffinity()


def allocatable_of(node: NodeObject) -> dict[str, int]:
    """What a node has to give, as integers, of resources that nodes account for."""
    return {
        resource: amount(resource, quantity)
        for resource, quantity in node.status.allocatable.items()
        if resource in _BASIC or is_scalar(resource)
    }


class NodeInfo:
    """
    A node and its pods. `row` is its place in the columns.

    `requested` are the sums of the pods' requests, `nonzero_*` with the defaults for what nothing requests; `ports` are
    the occupied host ports and `claims` how many pods use each claim (`namespace/name`). `pods` are by key. Those with
    any pod affinity or anti-affinity, and those with required anti-affinity, are listed again.
    """

    __slots__ = (
        "affinity_pods",
        "allocatable",
        "anti_affinity_pods",
        "claims",
        "node",
        "nonzero_cpu_milli",
        "nonzero_memory_bytes",
        "pods",
        "ports",
        "requested",
        "row",
    )

    def __init__(self, node: NodeObject, row: int) -> None:
        self.row = row
        self.node = node
        self.allocatable = allocatable_of(node)
        self.requested: dict[str, int] = {}
        self.nonzero_cpu_milli = 0
        self.nonzero_memory_bytes = 0
        self.pods: dict[str, PodInfo] = {}
        self.affinity_pods: dict[str, PodInfo] = {}
        self.anti_affinity_pods: dict[str, PodInfo] = {}
        self.ports: dict[HostPort, None] = {}
        self.claims: dict[str, int] = {}

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.node.metadata.name

    def set_node(self, node: NodeObject) -> None:
        """The Node object is another one."""
        self.allocatable = allocatable_of(node)
        self.node = node

    def clone(self) -> "NodeInfo":
        """A copy for hypotheses."""
        copy = NodeInfo.__new__(NodeInfo)
        copy.row, copy.node, copy.allocatable = self.row, self.node, self.allocatable
        copy.requested = dict(self.requested)
        copy.nonzero_cpu_milli, copy.nonzero_memory_bytes = self.nonzero_cpu_milli, self.nonzero_memory_bytes
        copy.pods = dict(self.pods)
        copy.affinity_pods, copy.anti_affinity_pods = dict(self.affinity_pods), dict(self.anti_affinity_pods)
        copy.ports, copy.claims = dict(self.ports), dict(self.claims)
        return copy

    def add(self, pod: PodInfo) -> None:
        """A pod is on the node."""
        self.pods[pod.key] = pod
        if has_affinity(pod.spec.affinity):
            self.affinity_pods[pod.key] = pod
        if has_required_anti_affinity(pod.spec.affinity):
            self.anti_affinity_pods[pod.key] = pod
        self._count(pod, 1)
        for port in pod.shape.host_ports:
            self.ports[port] = None
        for volume in pod.spec.volumes:
            if volume.persistent_volume_claim is not None:
                claim = f"{pod.namespace}/{volume.persistent_volume_claim.claim_name}"
                self.claims[claim] = self.claims.get(claim, 0) + 1

    def remove(self, pod: PodInfo) -> None:
        """A pod is no longer on the node. Raises KeyError if it was not."""
        held = self.pods.pop(pod.key)
        self.affinity_pods.pop(pod.key, None)
        self.anti_affinity_pods.pop(pod.key, None)
        self._count(held, -1)
        for port in held.shape.host_ports:
            self.ports.pop(port, None)
        for volume in held.spec.volumes:
            if volume.persistent_volume_claim is not None:
                claim = f"{pod.namespace}/{volume.persistent_volume_claim.claim_name}"
                self.claims[claim] = self.claims.get(claim, 0) - 1
                if self.claims[claim] <= 0:
                    del self.claims[claim]

    def _count(self, pod: PodInfo, sign: int) -> None:
        requests = pod.requests
        for resource, value in requests.requests.items():
            self.requested[resource] = self.requested.get(resource, 0) + sign * value
        self.nonzero_cpu_milli += sign * requests.nonzero_cpu_milli
        self.nonzero_memory_bytes += sign * requests.nonzero_memory_bytes


def has_affinity(affinity: AffinityObject | None) -> bool:
    """Whether a pod has any pod affinity or anti-affinity."""
    return affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)


def has_required_anti_affinity(affinity: AffinityObject | None) -> bool:
    """Whether a pod has required anti-affinity."""
    terms = (affinity.pod_anti_affinity if affinity is not None else None) or _NO_AFFINITY
    return bool(terms.required_during_scheduling_ignored_during_execution)
