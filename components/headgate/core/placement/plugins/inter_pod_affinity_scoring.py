"""
The scores of InterPodAffinity: nodes near to, or away from, what the pod prefers, and what other pods do of it.

Source: pkg/scheduler/framework/plugins/interpodaffinity/scoring.go.
"""

from collections.abc import Mapping

import msgspec
import numpy as np

from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.columns import Columns
from headgate.core.placement.counts.carried import TermRole
from headgate.core.placement.counts.domains import OUTSIDE
from headgate.core.placement.counts.index import PodCounts
from headgate.core.placement.counts.sums import DomainSums
from headgate.core.placement.counts.terms import selection_of
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.owners import Namespace

Weighted = tuple[DomainSums, int]
"""How many pods there are in each domain, and what each of them adds."""


class AffinityScores(msgspec.Struct, frozen=True, eq=False):
    """What the scores of a pod are computed of, by topology key."""

    by_key: Mapping[str, list[Weighted]]

    def score(self, node: NodeInfo) -> int:
        """The raw score of a node."""
        score = 0
        for key, terms in self.by_key.items():
            value = node.node.metadata.labels.get(key)
            if value is None:
                continue
            for sums, weight in terms:
                domain = sums.domains.domain_of(value)
                score += weight * int(sums.by_domain()[domain]) if domain != OUTSIDE else 0
        return score

    def score_columns(self, columns: Columns, rows: Rows) -> Ints:
        """The raw scores of rows."""
        score = np.zeros(len(rows), dtype=np.int64)
        for key, terms in self.by_key.items():
            by_domain = np.zeros(len(columns.label_values(key)), dtype=np.int64)
            for sums, weight in terms:
                by_domain += weight * sums.by_domain()[: len(by_domain)]
            score += by_domain[columns.label(key)[rows]]
        return score


def prepare_scores(cycle: PlacementCycle, hard_weight: int, ignores_others: bool) -> AffinityScores | None:
    """
    What the scores are computed of, None if nothing adds anything.

    `hard_weight` is that of required affinity of pods on nodes. With `ignores_others` the terms of pods on nodes do
    not count for a pod that prefers nothing itself.
    """
    counts, namespaces = cycle.cluster.index(PodCounts), cycle.cluster.objects(Namespace)
    own = counts.terms_of(cycle.pod.shape).preferred
    if ignores_others and not own:
        return None
    by_key: dict[str, list[Weighted]] = {}
    for term, weight in own:
        sums = counts.by_domain(selection_of(term, namespaces), term.partition)
        if sums.total:
            by_key.setdefault(term.topology_key, []).append((sums, weight))
    for carried in counts.terms_meaning(cycle.pod).scored:
        weight = carried.weight if carried.role == TermRole.PREFERENCE else hard_weight
        if not weight:
            continue
        sums = counts.sums_of(carried, carried.term.partition)
        if sums.total:
            by_key.setdefault(carried.term.topology_key, []).append((sums, weight))
    return AffinityScores(by_key) if by_key else None
