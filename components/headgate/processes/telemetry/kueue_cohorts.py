"""Kueue's gauges of cohorts and their trees. Called by `kueue_gauges`."""

import math
from collections import Counter

from headgate.core.quota.cache import Forest
from headgate.core.quota.cohorts import root_of
from headgate.core.state.tables import FlavorResource, Stage, State
from headgate.core.status.queue_shares import QueueShares
from headgate.processes.telemetry.custom_labels import labels_of, values_of
from headgate.processes.telemetry.kueue_catalogue import ROLE
from headgate.processes.telemetry.kueue_labels import Values, all_cohorts, cohorts_above, of_flavors


def cluster_queue_shares(state: State) -> Values:
    """The share of each ClusterQueue."""
    shares = QueueShares(state)
    for name, record in state.cluster_queues.items():
        share = shares.of_cluster_queue(name)
        if share is not None and math.isfinite(share.exact):
            yield share.exact, {"cluster_queue": name, "cohort": record.spec.cohort_name, **ROLE}


def cohort_shares(state: State) -> Values:
    """The share of each cohort."""
    shares = QueueShares(state)
    for name in state.cohorts:
        share = shares.of_cohort(name)
        if share is not None and math.isfinite(share.exact):
            yield share.exact, {"cohort": name, **ROLE}


def quota_below(state: State) -> Values:
    """The quota of each cohort's subtree, where there is any."""
    forest = Forest(state)
    for root in dict.fromkeys(root_of(cohort, state.cohorts) for cohort in all_cohorts(state)):
        if forest.has_cycle(root):
            continue
        tree = forest.tree(root)
        for node in tree.cohorts.values():
            subtree = {fr: tree.limits(fr).subtree[node.index] for fr in tree.flavor_resources(node)}
            yield from of_flavors({fr: value for fr, value in subtree.items() if value > 0}, {"cohort": node.name})


def reserved_below(state: State) -> Values:
    """What the workloads of each cohort's subtree hold, where there is anything."""
    sums: dict[str, Counter[FlavorResource]] = {}
    for name, record in state.cluster_queues.items():
        usage = state.index.usage.get(name, {})
        for cohort in cohorts_above(state, record.spec.cohort_name):
            sums.setdefault(cohort, Counter()).update(usage)
    for cohort, usage in sums.items():
        yield from of_flavors({fr: value for fr, value in usage.items() if value > 0}, {"cohort": cohort})


def admitted_below(state: State) -> Values:
    """The admitted workloads of each cohort's subtree, once for each set of labels that ClusterQueues there have."""
    counts: Counter[str] = Counter(dict.fromkeys(all_cohorts(state), 0))
    shown: dict[str, dict[tuple[tuple[str, str], ...], None]] = {}
    labels = labels_of(state.configuration, "ClusterQueue")
    for name, record in state.cluster_queues.items():
        holders = state.index.holders.get(name, ())
        admitted = sum(state.workloads[key].stage is Stage.ADMITTED for key in holders)
        values = tuple(values_of(labels, record).items())
        for cohort in cohorts_above(state, record.spec.cohort_name):
            counts[cohort] += admitted
            shown.setdefault(cohort, {})[values] = None
    without = {tuple(values_of(labels, None).items()): None}
    for cohort, count in counts.items():
        for values in shown.get(cohort, without):
            yield float(count), {"cohort": cohort, **ROLE, **dict(values)}


def cohort_info(state: State) -> Values:
    """The parent and the root of each cohort."""
    for cohort in all_cohorts(state):
        record = state.cohorts.get(cohort)
        parent = record.spec.parent_name if record is not None else ""
        root = root_of(cohort, state.cohorts)
        yield 1.0, {"cohort": cohort, "parent_cohort": parent, "root_cohort": root, **ROLE}


def cluster_queue_info(state: State) -> Values:
    """The cohort of each ClusterQueue and the root above it."""
    for name, record in state.cluster_queues.items():
        cohort = record.spec.cohort_name
        root = root_of(cohort, state.cohorts) if cohort else ""
        yield 1.0, {"cluster_queue": name, "parent_cohort": cohort, "root_cohort": root, **ROLE}
