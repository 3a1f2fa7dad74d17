"""
The scores of PodTopologySpread: nodes whose domains have few of the pods are better.

Source: pkg/scheduler/framework/plugins/podtopologyspread/scoring.go.
"""

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.columns import Bools, Columns
from headgate.core.placement.counts.index import PodCounts
from headgate.core.placement.counts.sums import DomainSums
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.plugin import SCORE_MAX
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.plugins.pod_topology_spread_constraints import HOSTNAME, Constraint, Constraints

Floats = NDArray[np.float64]


class SoftSpread(msgspec.Struct, frozen=True, eq=False):
    """
    One soft constraint, and how pods are spread.

    `sums` are the counts by domain; of the host name `by_row` are those of the nodes themselves, wherever they count.
    """

    constraint: Constraint
    weight: float
    sums: DomainSums | None
    by_row: Ints | None

    def count(self, node: NodeInfo) -> int:
        """How many pods there are in the domain of a node that has the topology key."""
        if self.sums is None:
            assert self.by_row is not None, "either is there"
            return int(self.by_row[node.row])
        counts, domains = self.sums.by_domain(), self.sums.domains
        value = node.node.metadata.labels[self.constraint.topology_key]
        count = int(counts[domains.domain_of(value)])
        return count + (int(counts[0]) if not value else 0)

    def counts(self, ids: Ints, rows: Rows) -> Ints:
        """The same of rows, by the ids of their values of the topology key."""
        if self.sums is None:
            assert self.by_row is not None, "either is there"
            return self.by_row[rows]
        counts = self.sums.by_domain()
        blank = self.sums.domains.domain_of("")
        if blank > 0 and counts[0]:
            # Nodes without the key, where they count, are in one domain with those whose value is empty.
            counts = counts.copy()
            counts[blank] += counts[0]
        return counts[ids]


class SpreadScores(msgspec.Struct, frozen=True, eq=False):
    """What the scores of a pod are computed of."""

    spreads: tuple[SoftSpread, ...]
    requires_keys: bool

    def score(self, node: NodeInfo) -> int:
        """The raw score of a node."""
        labels = node.node.metadata.labels
        if self.requires_keys and not all(each.constraint.topology_key in labels for each in self.spreads):
            return 0
        score = 0.0
        for each in self.spreads:
            if each.constraint.topology_key in labels:
                score += each.count(node) * each.weight + (each.constraint.max_skew - 1)
        return math.floor(score) + (score - math.floor(score) >= 0.5)

    def score_columns(self, columns: Columns, rows: Rows) -> Ints:
        """The raw scores of rows."""
        score: Floats = np.zeros(len(rows), dtype=np.float64)
        for each in self.spreads:
            ids = columns.label(each.constraint.topology_key)[rows]
            of_domain = each.counts(ids, rows) * each.weight + (each.constraint.max_skew - 1)
            score += np.where(ids != 0, of_domain, 0.0)
        whole = np.floor(score)
        rounded = (whole + (score - whole >= 0.5)).astype(np.int64)
        rounded[self._ignored(columns, rows)] = 0
        return rounded

    def normalize(self, columns: Columns, rows: Rows, scores: Ints) -> Ints:
        """The scores from 0 to 100, the lowest raw ones highest; 0 for nodes without all topology keys."""
        ignored = self._ignored(columns, rows)
        counted = scores[~ignored] if ignored.any() else scores
        highest = int(counted.max(initial=0))
        if highest:
            normalized = SCORE_MAX * (highest + int(counted.min()) - scores) // highest
        else:
            normalized = np.full(len(scores), SCORE_MAX, dtype=np.int64)
        normalized[ignored] = 0
        return normalized

    def _ignored(self, columns: Columns, rows: Rows) -> Bools:
        ignored = np.zeros(len(rows), dtype=np.bool_)
        if self.requires_keys:
            for each in self.spreads:
                ignored |= columns.label(each.constraint.topology_key)[rows] == 0
        return ignored


def prepare_scores(cycle: PlacementCycle, constraints: Constraints, rows: Rows) -> SpreadScores:
    """What the scores of the feasible nodes are computed of."""
    columns, counts = cycle.cluster.columns, cycle.cluster.index(PodCounts)
    keys = [each.topology_key for each in constraints.soft]
    if constraints.requires_keys:
        rows = rows[np.logical_and.reduce([columns.label(key)[rows] != 0 for key in keys])]
    spreads = []
    for each in constraints.soft:
        if each.topology_key == HOSTNAME:
            by_row = counts.by_node(each.counted)
            spreads.append(SoftSpread(each, _weight(len(rows)), None, by_row))
        else:
            sums = counts.by_domain(each.counted, each.partition)
            size = _domains_len(columns, each.topology_key, rows)
            spreads.append(SoftSpread(each, _weight(size), sums, None))
    return SpreadScores(tuple(spreads), constraints.requires_keys)


def _weight(domains: int) -> float:
    """The weight of a constraint: the more domains, the fewer pods each has, and the more each pod counts."""
    return math.log(domains + 2)


def _domains_len(columns: Columns, key: str, rows: Rows) -> int:
    """How many values of a label rows have. To have none is to have the empty one."""
    present = np.bincount(columns.label(key)[rows], minlength=1) > 0
    blank = columns.label_ids(key).get("")
    both = blank is not None and blank < len(present) and present[blank] and present[0]
    return int(present.sum()) - bool(both)
