"""The oracle's answers are those of whole searches, also where it has searched for the quota alone before."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.topology_cell import BLOCK, BRIDGE, GPU, RACK, gang, host, reserve, topology_cell

from headgate.core.cycle.nominating import Nominator
from headgate.core.flavors.catalog import Catalog
from headgate.core.preemption import SnapshotOracle, find_targets
from headgate.core.topology.assignments import HOSTNAME
from headgate.events import facts
from headgate.events.ids import WorkloadKey
from headgate.events.objects import (
    ClusterQueueSpec,
    FlavorQuotas,
    LabelSelector,
    Preemption,
    ResourceGroup,
    ResourceQuota,
    TopologyRequest,
)

HOSTS = ("a", "b", "c", "d")
REQUESTS = (
    TopologyRequest(required=RACK),
    TopologyRequest(required=HOSTNAME),
    TopologyRequest(preferred=RACK),
    TopologyRequest(required=BLOCK, pod_set_slice_required_topology=RACK, pod_set_slice_size=2),
)


@given(
    st.lists(st.tuples(st.sampled_from(HOSTS), st.integers(1, 4)), min_size=4, max_size=12),
    st.sampled_from(REQUESTS),
    st.sampled_from([2, 4]),
    st.integers(2, 8),
)
def test_targets_for_domains_are_those_of_a_whole_search(
    holdings: list[tuple[str, int]], topology: TopologyRequest, pods: int, gpus: int
) -> None:
    """A search for the quota alone that leaves room for the pods is not repeated, and its targets are the same."""
    cell = topology_cell(*(host("b", "ab" if name in "ab" else "cd", name) for name in HOSTS))
    free = dict.fromkeys(HOSTS, 8)
    used = 0
    for number, (name, wanted) in enumerate(holdings):
        if wanted <= free[name]:
            free[name] -= wanted
            used += wanted
            reserve(cell, f"w{number}", {name: 1}, gpus=wanted)
    quotas = tuple(ResourceQuota(name=name, nominal_quota=str(value)) for name, value in (("cpu", 1000), (GPU, used)))
    group = ResourceGroup(covered_resources=("cpu", GPU), flavors=(FlavorQuotas(name="gpu", resources=quotas),))
    preemption = Preemption(within_cluster_queue="LowerPriority")
    spec = ClusterQueueSpec(namespace_selector=LabelSelector(), resource_groups=(group,), preemption=preemption)
    urgent = gang("urgent", pods, gpus, topology)
    cell.put(
        BRIDGE,
        facts.ClusterQueueObserved(name="team-a", spec=spec),
        replace(urgent, spec=replace(urgent.spec, priority=9)),
    )
    nominator = Nominator(cell.state, catalog := Catalog(cell.state))
    queue, workload = catalog.queue("team-a"), cell.state.workloads[WorkloadKey("a/urgent")]
    assert queue is not None
    entry = nominator.nominate(workload, queue)
    assert entry.assignment is not None
    asked = entry.assignment.usage, entry.assignment.contested
    snapshot, demands = nominator.snapshot("team-a"), entry.assignment.demands
    oracle = SnapshotOracle(snapshot, queue, workload)
    assert oracle.targets(*asked) == find_targets(snapshot, queue, workload, *asked)
    assert oracle.targets(*asked, demands) == find_targets(snapshot, queue, workload, *asked, demands=demands)
