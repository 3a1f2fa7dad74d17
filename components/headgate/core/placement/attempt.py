"""
One scheduling attempt: which node a pod gets, or why it gets none and what would help.

Pure: the result is a function of the framework's cluster, the pod and where the scan starts. Nothing is changed; the
caller applies what was decided. Source: pkg/scheduler/schedule_one.go (`schedulingAlgorithm`, `findNodesThatFitPod`).
"""

from typing import Any, Final, Literal

import msgspec
import numpy as np

from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.kept import FEW
from headgate.core.placement.framework.plugin import PostFiltered
from headgate.core.placement.framework.runtime import Framework, PreFilterOutcome, Scored
from headgate.core.placement.framework.status import (
    SUCCESS,
    Code,
    PluginError,
    PluginStatus,
    error,
    unresolvable,
)
from headgate.core.placement.messages import NO_NODES, fit_error
from headgate.core.placement.pods import PodInfo
from headgate.core.placement.scan import Scan
from headgate.core.placement.verdicts import NO_IDS, NO_ROWS, Verdicts, unlooked

NODES_MIN: Final = 100
"""So many feasible nodes are looked for at least."""

PERCENTAGE_MIN: Final = 5

Path = Literal["scored", "single", "nominated", "none", "prefilter"]


def nodes_to_find(nodes: int, percentage: int) -> int:
    """After how many feasible nodes the search ends; a percentage of 0 adapts to the number of nodes."""
    if nodes < NODES_MIN:
        return nodes
    if percentage == 0:
        percentage = max(50 - nodes // 125, PERCENTAGE_MIN)
    return max(nodes * percentage // 100, NODES_MIN)


class PlacementAttempt(msgspec.Struct, frozen=True):
    """
    What an attempt decided, and all it was decided by.

    `node` is "" when the pod fits nowhere; then `status` is a rejection or an error, `message` that of its PodScheduled
    condition, `rejectors` are the plugins whose hints may bring it back, and `post_filtered` what would help.
    `nominated` is the node that the pod is to be nominated to, "" for none, None to leave it as it is. `feasible` are
    rows in the order of the scan, `best` those with the highest total in the order of their names.
    `nominated_rejected` is why the node that the pod was nominated to before was refused.
    """

    cycle: PlacementCycle
    path: Path
    pre_filtered: PreFilterOutcome
    verdicts: Verdicts
    feasible: Rows = NO_ROWS
    nominated_rejected: PluginStatus | None = None
    scored: Scored | None = None
    best: Rows = NO_ROWS
    node: str = ""
    status: PluginStatus = SUCCESS
    message: str = ""
    rejectors: tuple[str, ...] = ()
    post_filtered: PostFiltered | None = None
    nominated: str | None = None

    @property
    def reason(self) -> str:
        """The reason of the PodScheduled condition of a pod that was not placed."""
        return "Unschedulable" if self.status.is_rejected else "SchedulerError"


def attempt(framework: Framework, pod: PodInfo, scan: Scan) -> PlacementAttempt:
    """Try to place a pod that waits."""
    cycle = framework.cycle(pod)
    if not len(scan.order):
        return _failed(cycle, unresolvable(NO_NODES))
    try:
        return _Search(framework, cycle, scan).run()
    except PluginError as failure:
        return _failed(cycle, error(str(failure)))


def _failed(cycle: PlacementCycle, status: PluginStatus) -> PlacementAttempt:
    """An attempt that ended before it was known which nodes are feasible."""
    return PlacementAttempt(
        cycle=cycle,
        path="none",
        pre_filtered=PreFilterOutcome(),
        verdicts=unlooked(cycle, status),
        status=status,
        message=status.message,
        nominated="",
    )


class _Search:
    """The attempt of one pod."""

    def __init__(self, framework: Framework, cycle: PlacementCycle, scan: Scan) -> None:
        self._framework = framework
        self._cluster = framework.cluster
        self._cycle = cycle
        self._scan = scan
        self._nominated_rejected: PluginStatus | None = None

    def run(self) -> PlacementAttempt:
        """The result."""
        outcome = self._framework.pre_filter(self._cycle)
        if outcome.status.code == Code.ERROR:
            return _failed(self._cycle, outcome.status)
        if not outcome.status.is_success:
            return self._unschedulable("prefilter", outcome, unlooked(self._cycle, outcome.status))
        nominated = self._on_nominated_node(outcome)
        if nominated is not None:
            return nominated
        verdicts = self._filtered(outcome)
        failure = verdicts.error()
        if failure is not None:
            return _failed(self._cycle, failure)
        feasible = verdicts.rows[verdicts.ids == 0]
        if not len(feasible):
            return self._unschedulable("none", outcome, verdicts)
        return self._placed(outcome, verdicts, feasible)

    def _on_nominated_node(self, outcome: PreFilterOutcome) -> PlacementAttempt | None:
        """The pod on the node that it is nominated to, which is looked at before all others; None if it is refused."""
        node = self._cluster.node(self._cycle.pod.nominated_node_name)
        if node is None:
            return None
        status = self._framework.filter_with_nominated(self._cycle, node)
        if not status.is_success:
            self._nominated_rejected = status
            return None
        row = np.array([node.row], dtype=np.intp)
        verdicts = Verdicts(self._cycle, row, np.zeros(1, dtype=np.int64), unresolvable())
        return self._attempt("nominated", outcome, verdicts, feasible=row, best=row, node=node.name)

    def _filtered(self, outcome: PreFilterOutcome) -> Verdicts:
        """What the filters say of as many nodes as it takes."""
        if outcome.nodes is None:
            rows, absent = self._scan.order, unresolvable()
        else:
            rows = self._cluster.columns.rows_of(outcome.nodes)
            plugins = " ".join(sorted(outcome.narrowing))
            absent = unresolvable(f"node(s) didn't satisfy plugin(s) [{plugins}]")
        if not len(rows):
            return Verdicts(self._cycle, rows, NO_IDS, absent)
        start = self._scan.start % len(rows)
        rows = np.concatenate((rows[start:], rows[:start])) if start else rows
        wanted = nodes_to_find(len(rows), self._scan.percentage) if self._framework.has_scores else 1
        ids = self._ids_of(rows) if wanted == len(rows) else self._first_ids_of(rows, wanted)
        return Verdicts(self._cycle, rows[: len(ids)], ids, absent)

    def _first_ids_of(self, rows: Rows, wanted: int) -> Ints:
        """The ids of rows up to, and without, the first feasible one beyond those that are wanted."""
        looked, passed = NO_IDS, 0
        size = wanted + wanted // 4 + FEW
        while len(looked) < len(rows):
            ids = self._ids_of(rows[len(looked) : len(looked) + size])
            places = np.flatnonzero(ids == 0)
            if passed + len(places) > wanted:
                return np.concatenate((looked, ids[: places[wanted - passed]]))
            looked, passed, size = np.concatenate((looked, ids)), passed + len(places), 2 * size
        return looked

    def _ids_of(self, rows: Rows) -> Ints:
        """Per row the id of the first rejection, with the pods that are nominated to nodes taken into account."""
        id_of, cluster = self._cycle.statuses.id_of, self._cluster
        if len(rows) <= FEW:
            looked = (self._framework.filter_with_nominated(self._cycle, cluster.info_of(row)) for row in rows.tolist())
            return np.fromiter((id_of(status) for status in looked), dtype=np.int64, count=len(rows))
        ids = self._framework.filter_rows(self._cycle, rows)
        for name in cluster.nominated_nodes():
            node = cluster.node(name)
            if node is not None and self._framework.yielding_to(self._cycle.pod, name):
                ids[rows == node.row] = id_of(self._framework.filter_with_nominated(self._cycle, node))
        return ids

    def _placed(self, outcome: PreFilterOutcome, verdicts: Verdicts, feasible: Rows) -> PlacementAttempt:
        if len(feasible) == 1:
            name = self._cluster.name_of(int(feasible[0]))
            return self._attempt("single", outcome, verdicts, feasible=feasible, best=feasible, node=name)
        scored = self._framework.score(self._cycle, feasible)
        best = feasible[scored.total == scored.total.max()]
        if len(best) > 1:
            best = best[np.argsort(self._scan.ranks[best])]
        name = self._cluster.name_of(int(best[0]))
        return self._attempt("scored", outcome, verdicts, feasible=feasible, scored=scored, best=best, node=name)

    def _unschedulable(self, path: Path, outcome: PreFilterOutcome, verdicts: Verdicts) -> PlacementAttempt:
        counts = verdicts.counts()
        plugins = [status.plugin for status, _ in counts]
        if path == "prefilter":
            plugins.append(outcome.status.plugin)
        rejectors = sorted(dict.fromkeys(name for name in (*outcome.narrowing, *plugins) if name))
        helped: PostFiltered | None = None
        nominated: str | None = ""
        if self._framework.has_post_filters:
            helped = self._framework.post_filter(self._cycle, verdicts)
            nominated = helped.nominated
        before = outcome.status.message if path == "prefilter" else ""
        message = fit_error(
            len(self._scan.order), before, counts, verdicts.absent, helped.status.message if helped is not None else ""
        )
        return self._attempt(
            path,
            outcome,
            verdicts,
            status=PluginStatus(Code.UNSCHEDULABLE, (message,)),
            message=message,
            rejectors=tuple(rejectors),
            post_filtered=helped,
            nominated=nominated,
        )

    def _attempt(self, path: Path, outcome: PreFilterOutcome, verdicts: Verdicts, **parts: Any) -> PlacementAttempt:
        return PlacementAttempt(
            cycle=self._cycle,
            path=path,
            pre_filtered=outcome,
            verdicts=verdicts,
            nominated_rejected=self._nominated_rejected,
            **parts,
        )
