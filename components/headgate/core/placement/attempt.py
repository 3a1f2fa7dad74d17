"""
One scheduling attempt: which node a pod gets, or why it gets none and what would help.

Pure: the result is a function of the framework's cluster, the pod and where the scan starts. Nothing is changed; the
caller applies what was decided. Source: pkg/scheduler/schedule_one.go (`schedulingAlgorithm`, `findNodesThatFitPod`).

Extenders are not called here: their answers are given. An attempt that needs others ends with what to ask, and is made
again, from its start and with the same scan, when they are there.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
import numpy as np

from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.extenders.calls import (
    NO_ANSWERS,
    AnswersMissingError,
    ExtenderError,
    ExtendersFiltered,
)
from headgate.core.placement.extenders.requests import ExtenderAsk
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
from headgate.core.state.error_text import describe
from headgate.events.extenders import EXTENDER, ExtenderAnswer

NODES_MIN: Final = 100
"""So many feasible nodes are looked for at least."""

PERCENTAGE_MIN: Final = 5

Path = Literal["scored", "single", "nominated", "none", "prefilter", "asks"]


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
    `nominated_rejected` is why the node that the pod was nominated to before was refused. `looked` is at how many nodes
    the filters have looked: the next scan starts so many further on.

    With the path "asks" nothing is decided: `asks` are the calls of extenders whose answers are missing. `ignored` are
    errors of extenders that have changed nothing, each with the name of the extender.
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
    looked: int = 0
    asks: tuple[ExtenderAsk, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def refusals(self) -> dict[tuple[str, str], int]:
        """Plugin and reason -> the number of nodes refused for it; 0 where the pod was refused before any node."""
        counted: dict[tuple[str, str], int] = {}
        if self.path == "prefilter":
            status = self.pre_filtered.status
            counted |= dict.fromkeys(((status.plugin, reason) for reason in status.reasons), 0)
        for status, nodes in self.verdicts.counts():
            for reason in status.reasons:
                counted[status.plugin, reason] = counted.get((status.plugin, reason), 0) + nodes
        return counted

    @property
    def reason(self) -> str:
        """The reason of the PodScheduled condition of a pod that was not placed."""
        return "Unschedulable" if self.status.is_rejected else "SchedulerError"


def attempt(
    framework: Framework, pod: PodInfo, scan: Scan, answers: Mapping[str, ExtenderAnswer] = NO_ANSWERS
) -> PlacementAttempt:
    """Try to place a pod that waits. `answers` are those of extenders, by `ExtenderAsk.request`."""
    cycle = framework.cycle(pod, answers)
    if not len(scan.order):
        return _failed(cycle, unresolvable(NO_NODES))
    search = _Search(framework, cycle, scan)
    try:
        return search.run()
    except PluginError as failure:
        return _failed(cycle, failure.status, search.looked)
    except ExtenderError as failure:
        return _failed(cycle, error(str(failure)), search.looked)
    except AnswersMissingError as missing:
        return PlacementAttempt(cycle, "asks", PreFilterOutcome(), unlooked(cycle, unresolvable()), asks=missing.asks)
    except MemoryError:
        raise
    except Exception as failure:  # noqa: BLE001 - a defect costs the pod that meets it, and no other
        return _failed(cycle, error(f"placing the pod failed: {describe(failure)}"), search.looked)


def _failed(cycle: PlacementCycle, status: PluginStatus, looked: int = 0) -> PlacementAttempt:
    """An attempt that ended before it was known which nodes are feasible."""
    return PlacementAttempt(
        cycle=cycle,
        path="none",
        pre_filtered=PreFilterOutcome(),
        verdicts=unlooked(cycle, status),
        status=status,
        message=status.message,
        nominated="",
        looked=looked,
        ignored=tuple(cycle.extenders.ignored),
    )


class _Search:
    """The attempt of one pod."""

    def __init__(self, framework: Framework, cycle: PlacementCycle, scan: Scan) -> None:
        self._framework = framework
        self._cluster = framework.cluster
        self._cycle = cycle
        self._scan = scan
        self._nominated_rejected: PluginStatus | None = None
        self.looked = 0
        self._of_nominated: Mapping[str, PluginStatus] = {}
        """What extenders have said of the node that the pod is nominated to."""

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
        self.looked = len(verdicts.rows)
        failure = verdicts.error()
        if failure is not None:
            return _failed(self._cycle, failure, self.looked)
        found = verdicts.rows[verdicts.ids == 0]
        feasible, verdicts = self._extended(verdicts, found)
        if not len(feasible):
            return self._unschedulable("none", outcome, verdicts, extended=len(found) > 0)
        return self._placed(outcome, verdicts, feasible)

    def _on_nominated_node(self, outcome: PreFilterOutcome) -> PlacementAttempt | None:
        """The pod on the node that it is nominated to, which is looked at before all others; None if it is refused."""
        node = self._cluster.node(self._cycle.pod.nominated_node_name)
        if node is None or (self._scan.is_part and node.row not in self._scan.order):
            return None
        status = self._framework.filter_with_nominated(self._cycle, node)
        if not status.is_success:
            self._nominated_rejected = status
            return None
        try:
            filtered = self._cycle.extenders.filter((node.name,))
        except ExtenderError as failure:
            self._cycle.extenders.ignored.append(str(failure))
            return None
        if not filtered.nodes:
            self._of_nominated = filtered.statuses
            self._nominated_rejected = filtered.statuses.get(node.name, unresolvable())
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
            if self._scan.is_part:
                rows = rows[np.isin(rows, self._scan.order)]
            plugins = " ".join(sorted(outcome.narrowing))
            absent = unresolvable(f"node(s) didn't satisfy plugin(s) [{plugins}]")
        if not len(rows):
            return Verdicts(self._cycle, rows, NO_IDS, absent)
        start = self._scan.start % len(rows)
        rows = np.concatenate((rows[start:], rows[:start])) if start else rows
        wanted = 1 if self._framework.needs_one else nodes_to_find(len(rows), self._scan.percentage)
        ids = self._ids_of(rows) if wanted == len(rows) else self._first_ids_of(rows, wanted)
        return Verdicts(self._cycle, rows[: len(ids)], ids, absent)

    def _extended(self, verdicts: Verdicts, feasible: Rows) -> tuple[Rows, Verdicts]:
        """The feasible nodes that extenders let pass, in the order of the scan, and the verdicts with theirs."""
        if not len(feasible) or not self._cycle.extenders.has("filter"):
            return feasible, verdicts
        name_of = self._cluster.name_of
        filtered = self._cycle.extenders.filter([name_of(row) for row in feasible.tolist()])
        if len(filtered.nodes) < len(feasible):
            feasible = feasible[np.isin(feasible, self._cluster.columns.rows_of(filtered.nodes))]
        return feasible, self._with_statuses(verdicts, filtered)

    def _with_statuses(self, verdicts: Verdicts, filtered: ExtendersFiltered) -> Verdicts:
        """Verdicts with what extenders have said, which may be of nodes that they were not asked about."""
        said = {**self._of_nominated, **filtered.statuses}
        if not said:
            return verdicts
        place_of = {row: place for place, row in enumerate(verdicts.rows.tolist())}
        rows, ids = verdicts.rows.tolist(), verdicts.ids.tolist()
        for name, status in said.items():
            row = self._cluster.columns.rows[name]
            if row not in place_of:
                rows.append(row)
                ids.append(self._cycle.statuses.id_of(status))
            else:
                ids[place_of[row]] = self._cycle.statuses.id_of(status)
        return Verdicts(self._cycle, np.array(rows, dtype=np.intp), np.array(ids, dtype=np.int64), verdicts.absent)

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
        return self._framework.filter_rows_with_nominated(self._cycle, rows)

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

    def _unschedulable(
        self, path: Path, outcome: PreFilterOutcome, verdicts: Verdicts, *, extended: bool = False
    ) -> PlacementAttempt:
        """A pod that fits nowhere; `extended`: extenders have dropped nodes that it fits on."""
        counts = verdicts.counts()
        plugins = [status.plugin for status, _ in counts]
        if path == "prefilter":
            plugins.append(outcome.status.plugin)
        if extended:
            plugins.append(EXTENDER)
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
            looked=self.looked,
            ignored=tuple(self._cycle.extenders.ignored),
            **parts,
        )
