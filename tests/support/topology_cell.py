"""A cell with a topology of blocks, racks and hosts, written by hand; and workloads that are assigned to domains."""

from collections.abc import Iterable, Mapping

from tests.support.history import History

from headgate.core.config import feature_gates
from headgate.core.topology.assignments import HOSTNAME, Domain, Placement
from headgate.core.topology.encoding import compressed
from headgate.events import decisions, facts
from headgate.events.base import Producer
from headgate.events.configuration import Configuration
from headgate.events.objects import (
    Admission,
    ClusterQueueSpec,
    Container,
    FlavorQuotas,
    LocalQueueSpec,
    Node,
    PodSet,
    PodSetAssignment,
    PodSpec,
    PodTemplate,
    ResourceFlavorSpec,
    ResourceGroup,
    ResourceQuota,
    Resources,
    TopologyLevel,
    TopologyRequest,
    TopologySpec,
    WorkloadSpec,
)

BRIDGE, QUEUES, SCHEDULER = Producer.INFORMER_BRIDGE, Producer.QUEUE_MANAGER, Producer.SCHEDULER
BLOCK, RACK = "cloud/block", "cloud/rack"
GPU = "nvidia.com/gpu"
LEVELS = (BLOCK, RACK, HOSTNAME)


def host(block: str, rack: str, name: str, **fields: object) -> facts.NodeObserved:
    """A node of 8 GPUs in a rack."""
    labels = {"pool": "gpu", BLOCK: block, RACK: rack, HOSTNAME: name}
    allocatable: dict[str, str | int | float] = {"cpu": "96", GPU: "8", "pods": "110"}
    node = Node(name=name, labels=labels, allocatable=allocatable, **fields)  # type: ignore[arg-type]
    return facts.NodeObserved(name=name, node=node)


def topology_cell(*hosts: facts.NodeObserved, levels: Iterable[str] = LEVELS) -> History:
    """A cell whose flavor `gpu` has the topology `dc`, with a ClusterQueue `team-a` of 1000 GPUs."""
    history = History()
    quotas = tuple(ResourceQuota(name=name, nominal_quota="1000") for name in ("cpu", GPU))
    group = ResourceGroup(covered_resources=("cpu", GPU), flavors=(FlavorQuotas(name="gpu", resources=quotas),))
    spec = TopologySpec(levels=tuple(TopologyLevel(node_label=level) for level in levels))
    history.put(
        BRIDGE,
        facts.ConfigurationObserved(configuration=Configuration(feature_gates=feature_gates.effective({}))),
        facts.NamespaceObserved(name="a"),
        facts.TopologyObserved(name="dc", spec=spec),
        facts.ResourceFlavorObserved(
            name="gpu", spec=ResourceFlavorSpec(node_labels={"pool": "gpu"}, topology_name="dc")
        ),
        facts.ResourceFlavorObserved(name="plain", spec=ResourceFlavorSpec()),
        facts.ClusterQueueObserved(name="team-a", spec=ClusterQueueSpec(resource_groups=(group,))),
        facts.LocalQueueObserved(queue="a/main", spec=LocalQueueSpec(cluster_queue="team-a")),  # type: ignore[arg-type]
        *hosts,
    )
    return history


def gang(name: str, pods: int, gpus: int = 8, topology: TopologyRequest | None = None) -> facts.WorkloadObserved:
    """A workload of pods with some GPUs and 1 cpu each."""
    requests: dict[str, str | int | float] = {"cpu": "1", GPU: str(gpus)}
    container = Container(name="c", resources=Resources(requests=requests))
    template = PodTemplate(spec=PodSpec(containers=(container,)))
    pod_set = PodSet(name="main", count=pods, template=template, topology_request=topology)
    spec = WorkloadSpec(queue_name="main", pod_sets=(pod_set,))
    return facts.WorkloadObserved(workload=f"a/{name}", uid=name, created_ms=1, spec=spec)  # type: ignore[arg-type]


def reserve(history: History, name: str, where: Mapping[str, int], *, gpus: int = 8, level: str = HOSTNAME) -> None:
    """Observe a workload, and reserve its quota with so many pods on each host."""
    pods = sum(where.values())
    placement = Placement((level,), tuple(Domain((value,), count) for value, count in where.items()))
    assignment = PodSetAssignment(
        name="main",
        flavors={"cpu": "gpu", GPU: "gpu"},
        resource_usage={"cpu": pods, GPU: pods * gpus},
        count=pods,
        topology_assignment=compressed(placement, by_hostname_prefix=False),
    )
    history.put(BRIDGE, gang(name, pods, gpus))
    history.put(
        SCHEDULER,
        decisions.QuotaReserved(
            workload=f"a/{name}",  # type: ignore[arg-type]
            uid=name,  # type: ignore[arg-type]
            cluster_queue="team-a",
            admission=Admission(cluster_queue="team-a", pod_set_assignments=(assignment,)),
            message="reserved",
        ),
        decided_at=history.position,
    )
