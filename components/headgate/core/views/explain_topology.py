"""The sentences of a workload's history about its topology domains: assignment, ungated pods, failed nodes."""

from collections.abc import Iterable
from typing import Final, assert_never

from headgate.core.state.tables import State, Workload
from headgate.core.topology.assignments import HOSTNAME, Domain, Placement, expand
from headgate.core.views.descriptions import format_time
from headgate.events import decisions, queueing
from headgate.events.objects import Admission

NAMED_MAX: Final = 6
"""How many domains are named; of more, the number is told."""


def describe_topology(state: State, admission: Admission) -> str:
    """Where the pod sets of an admission go, as the end of a sentence; "" when it has no topology assignment."""
    told = [
        f"{each.name} on {describe_placement(state, expand(each.topology_assignment))}"
        for each in admission.pod_set_assignments
        if each.topology_assignment is not None
    ]
    delayed = [each.name for each in admission.pod_set_assignments if each.delayed_topology_request == "Pending"]
    if delayed:
        told.append(f"{', '.join(delayed)} when its admission checks are Ready")
    return f"; topology: {'; '.join(told)}" if told else ""


def describe_placement(state: State, placement: Placement) -> str:
    """The domains of a pod set with the pods of each; of hosts also how many racks and the like they are in."""
    level = placement.levels[-1] if placement.levels else "domain"
    what = "host" if level == HOSTNAME else f"domain of {level}"
    count = len(placement.domains)
    within = _within(state, placement) if level == HOSTNAME and count > 1 else ""
    return f"{count} {_plural(what, count)}{within}: {_listed(placement.domains)}"


def _plural(what: str, count: int) -> str:
    if count == 1:
        return what
    return what.replace("domain", "domains") if what.startswith("domain") else f"{what}s"


def _listed(domains: Iterable[Domain]) -> str:
    """`h1, h2 and h3 with 2 pods each, h7 with 1`, folded."""
    by_pods: dict[int, list[str]] = {}
    for domain in domains:
        by_pods.setdefault(domain.pods, []).append("/".join(domain.values))
    parts = []
    for pods, names in by_pods.items():
        left = len(names) - NAMED_MAX
        shown = names if left <= 0 else [*names[: NAMED_MAX - 1], f"{left + 1} more"]
        each = " each" if len(names) > 1 else ""
        parts.append(f"{', '.join(shown)} with {pods} {'pod' if pods == 1 else 'pods'}{each}")
    return "; ".join(parts)


def _within(state: State, placement: Placement) -> str:
    """The wider domains of some hosts, by the levels of the first topology that ends in hosts and has their labels."""
    labels = [
        state.nodes[name].labels for name in (each.values[-1] for each in placement.domains) if name in state.nodes
    ]
    if len(labels) < len(placement.domains):
        return ""
    for topology in sorted(state.topologies):
        levels = [level.node_label for level in state.topologies[topology].levels]
        if levels[-1:] == [HOSTNAME] and all(level in each for each in labels for level in levels):
            told = []
            for number, level in enumerate(levels[:-1], 1):
                values = sorted({tuple(each[wider] for wider in levels[:number]) for each in labels})
                told.append(f"{level} {values[0][-1]}" if len(values) == 1 else f"{len(values)} domains of {level}")
            return f" in {' and '.join(told)}" if told else ""
    return ""


TopologyEvent = (
    queueing.WorkloadNodeFailed
    | queueing.WorkloadNodeRecovered
    | decisions.PodsAssigned
    | decisions.TopologyAssigned
    | decisions.SecondPassFailed
)
"""The events about the topology domains of a workload that holds quota."""


def topology_text(event: TopologyEvent, state: State, workload: Workload | None) -> str:
    """The sentence for an event about a workload's topology domains; state and workload are as after it."""
    match event:
        case decisions.TopologyAssigned():
            return f"topology domains assigned anew{describe_topology(state, event.admission)}"
        case decisions.SecondPassFailed():
            then = "it is to be evicted" if event.evict else f"tried again at {format_time(event.retry_at_ms)}"
            times = f" ({event.failures} times in a row)" if event.failures > 1 else ""
            return f"no topology domains were found for its pods{times}; {then}"
        case queueing.WorkloadNodeFailed():
            others = [name for name in workload.unhealthy_nodes if name != event.node] if workload is not None else []
            also = f", as has {', '.join(others)}" if others else ": another node is sought for its pods there"
            return f"node {event.node} of its topology assignment has failed{also}"
        case queueing.WorkloadNodeRecovered():
            return f"node {event.node} of its topology assignment takes pods again: it is not replaced"
        case decisions.PodsAssigned():
            domains = tuple(Domain(each.values, len(each.pods)) for each in event.domains)
            pods = sum(domain.pods for domain in domains)
            return f"{pods} {_plural('pod', pods)} of {event.pod_set} may be scheduled, to {_listed(domains)}"
        case _:
            assert_never(event)
