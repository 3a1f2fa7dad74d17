"""
The plugins of a profile as steps of its filters and scores: each asked in the cheapest way that it allows.

A step knows what its plugin declares, keeps its answers accordingly (`framework.kept`), and gives per node, or for many
rows at once, what the plugin says. `framework.runtime` runs the steps in order. All of them raise PluginError where the
plugin raises an exception, or answers against the contract.
"""

from collections.abc import Callable, Hashable
from typing import Any, Final

import numpy as np

from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.framework.asking import asked, check_key, check_status, failed, integer, integers
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.kept import KeptAnswers
from headgate.core.placement.framework.plugin import (
    SCORE_MAX,
    FilterPlugin,
    NormalizeScore,
    Plugin,
    PreFiltered,
    PreFilterExtensions,
    PreFilterPlugin,
    PreScored,
    PreScorePlugin,
    Reads,
    ScorePlugin,
    VectorFilter,
    VectorScore,
)
from headgate.core.placement.framework.status import STATUSES_MAX, Code, PluginError, PluginStatus, StatusTable
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.pods import PodInfo, PodShape

KEYS_MAX: Final = 20_000
"""Shapes whose keys are remembered, per step."""


class Keys:
    """The key of each shape, asked of the plugin once by a method of its that it need not have."""

    def __init__(self, plugin: Plugin, method: str) -> None:
        self._key_of: Callable[[PodShape], Hashable] | None = getattr(plugin, method, None)
        self._plugin = plugin.name
        self._method = method
        self._keys: dict[int, Hashable] = {}

    def of(self, shape: PodShape) -> Hashable:
        """The part of a shape that the plugin reads; the shape's number for a plugin that does not say."""
        if self._key_of is None:
            return shape.number
        known = self._keys.get(shape.number, self)
        if known is self:
            if len(self._keys) >= KEYS_MAX:
                self._keys.clear()
            try:
                known = self._key_of(shape)
                check_key(known)
            except Exception as failure:
                raise failed(self._plugin, self._method, failure) from failure
            self._keys[shape.number] = known
        return known


def object_kinds(plugin: object) -> tuple[type, ...]:
    """The kinds of objects that a plugin reads beside nodes and pods."""
    kinds: tuple[type, ...] = getattr(plugin, "object_kinds", ())
    return kinds


class _KeptOnce:
    """What a plugin has prepared for a shape, by key, for as long as the objects that it reads stay as they are."""

    def __init__(self, plugin: object) -> None:
        self._kinds = object_kinds(plugin)
        self._version = 0
        self._by_key: dict[Hashable, Any] = {}

    def get(self, cluster: PlacementCluster, key: Hashable) -> Any:
        """What is kept, or None."""
        version = sum(map(cluster.version, self._kinds)) if self._kinds else 0
        if version != self._version:
            self._version = version
            self._by_key.clear()
        return self._by_key.get(key)

    def put(self, key: Hashable, value: Any) -> None:
        """Keep it."""
        if len(self._by_key) >= KEYS_MAX:
            self._by_key.clear()
        self._by_key[key] = value


class PreFilterStep:
    """A pre-filter. That of a filter that does not read the whole cluster is asked once per key."""

    def __init__(self, plugin: PreFilterPlugin) -> None:
        self.plugin = plugin
        self.name = plugin.name
        self.extensions = plugin if isinstance(plugin, PreFilterExtensions) else None
        is_kept = isinstance(plugin, FilterPlugin) and plugin.filter_reads != Reads.CLUSTER
        self._kept = _KeptOnce(plugin) if is_kept else None
        self._keys = Keys(plugin, "filter_key")

    def answer(self, cycle: PlacementCycle) -> PreFiltered:
        """What the plugin says of the pod."""
        if self._kept is None:
            return self._ask(cycle)
        key = self._keys.of(cycle.pod.shape)
        known: PreFiltered | None = self._kept.get(cycle.cluster, key)
        if known is None:
            known = self._ask(cycle)
            self._kept.put(key, known)
        return known

    def _ask(self, cycle: PlacementCycle) -> PreFiltered:
        return asked(self.name, "PreFilter", PreFiltered, self.plugin.pre_filter, cycle)

    def with_pod(self, cycle: PlacementCycle, pod: PodInfo, node: NodeInfo) -> None:
        """The state of the pre-filter as if a pod were on a node, which already has it."""
        if self.extensions is not None:
            self._suppose(cycle, self.extensions.add_pod, "PreFilterExtensions.AddPod", pod, node)

    def without_pod(self, cycle: PlacementCycle, pod: PodInfo, node: NodeInfo) -> None:
        """The state of the pre-filter as if a pod were not on a node, which already lacks it."""
        if self.extensions is not None:
            self._suppose(cycle, self.extensions.remove_pod, "PreFilterExtensions.RemovePod", pod, node)

    def _suppose(
        self, cycle: PlacementCycle, method: Callable[..., Any], point: str, pod: PodInfo, node: NodeInfo
    ) -> None:
        if self.name not in cycle.filter_states:
            return
        try:
            cycle.filter_states[self.name] = method(cycle, cycle.filter_states[self.name], pod, node)
        except Exception as failure:
            raise failed(self.name, point, failure) from failure


class FilterStep:
    """A filter."""

    def __init__(self, plugin: FilterPlugin, cluster: PlacementCluster) -> None:
        self.plugin = plugin
        self.name = plugin.name
        self.keys = Keys(plugin, "filter_key")
        self._cluster = cluster
        self._named: dict[PluginStatus, PluginStatus] = {}
        self._vector = plugin if isinstance(plugin, VectorFilter) else None
        self.reads = plugin.filter_reads
        """What the answers depend on."""
        self.object_kinds = object_kinds(plugin)
        """Kinds of objects that they depend on too."""
        columnwise = self._ask if self._vector is not None else None
        self._kept: KeptAnswers | None = None
        if self.reads != Reads.CLUSTER:
            self._kept = KeptAnswers(cluster, (self.reads,), self.object_kinds, self._id_of, columnwise)

    @property
    def is_kept(self) -> bool:
        """Whether the answers for all rows are at hand."""
        return self._kept is not None

    def answer(self, cycle: PlacementCycle, node: NodeInfo) -> PluginStatus:
        """What the plugin says of one node, which may be hypothetical."""
        try:
            status = self.plugin.filter(cycle, node)
            return status if status.is_success else self._checked(status)
        except Exception as failure:
            raise failed(self.name, "Filter", failure) from failure

    def answer_rows(self, cycle: PlacementCycle, rows: Rows) -> Ints:
        """The ids of the statuses of some rows."""
        if self._kept is not None:
            return self._kept.answers(cycle, self.keys.of(cycle.pod.shape), rows)
        return self._ask(cycle, rows)

    def _ask(self, cycle: PlacementCycle, rows: Rows) -> Ints:
        if self._vector is None:
            info_of = self._cluster.info_of
            return np.array([self._id_of(cycle, info_of(row)) for row in rows.tolist()], dtype=np.int64)
        try:
            ids = integers(self._vector.filter_columns(cycle, self._cluster.columns, rows), len(rows))
            return self._under_name(ids, cycle.statuses)
        except Exception as failure:
            raise failed(self.name, "Filter", failure) from failure

    def clear(self) -> None:
        """Forget what is kept: the ids of statuses are void."""
        if self._kept is not None:
            self._kept.clear()

    def _id_of(self, cycle: PlacementCycle, node: NodeInfo) -> int:
        status = self.answer(cycle, node)
        return cycle.statuses.id_of(status) if not status.is_success else 0

    def _checked(self, status: PluginStatus) -> PluginStatus:
        """A rejection under the name of its plugin; any other answer of a filter is an error."""
        named = self._named.get(status)
        if named is None:
            check_status(status)
            if status.is_rejected:
                named = status.of(self.name)
            else:
                named = PluginStatus(Code.ERROR, (f'running "{self.name}" filter plugin: {status.message}',), self.name)
            if len(self._named) >= STATUSES_MAX:
                self._named.clear()
            self._named[status] = named
        return named

    def _under_name(self, ids: Ints, statuses: StatusTable) -> Ints:
        """Ids as a plugin gives them, under its name."""
        if not ids.any():
            return ids
        distinct = np.flatnonzero(np.bincount(ids))
        named = np.zeros(distinct[-1] + 1, dtype=np.int64)
        for number in distinct.tolist():
            named[number] = statuses.id_of(self._checked(statuses.status_of(number))) if number else 0
        return named[ids]


class FiltersTogether:
    """The first rejection by several filters that are all kept, which is kept too."""

    def __init__(self, cluster: PlacementCluster, steps: list[FilterStep]) -> None:
        self._steps = steps
        kinds = tuple(dict.fromkeys(kind for step in steps for kind in step.object_kinds))
        self._kept = KeptAnswers(cluster, [step.reads for step in steps], kinds, self._first, self._first_of_rows)

    def answer_rows(self, cycle: PlacementCycle, rows: Rows) -> Ints:
        """The ids of the statuses of some rows."""
        shape = cycle.pod.shape
        return self._kept.answers(cycle, tuple([step.keys.of(shape) for step in self._steps]), rows)

    def _first(self, cycle: PlacementCycle, node: NodeInfo) -> int:
        for step in self._steps:
            status = step.answer(cycle, node)
            if not status.is_success:
                return cycle.statuses.id_of(status)
        return 0

    def _first_of_rows(self, cycle: PlacementCycle, rows: Rows) -> Ints:
        return first_rejections(cycle, self._steps, rows)


def first_rejections(cycle: PlacementCycle, steps: list[FilterStep], rows: Rows) -> Ints:
    """Per row the id of the first rejection by some filters in order, or 0. Each is asked of what passed so far."""
    ids = steps[0].answer_rows(cycle, rows) if steps else np.zeros(len(rows), dtype=np.int64)
    for step in steps[1:]:
        passed = np.flatnonzero(ids == 0)
        if len(passed) == len(rows):
            ids = step.answer_rows(cycle, rows)
        elif len(passed):
            ids[passed] = step.answer_rows(cycle, rows[passed])
    return ids


class PreScoreStep:
    """A pre-score. That of a score that does not read the whole cluster is asked once per key."""

    def __init__(self, plugin: PreScorePlugin) -> None:
        self.plugin = plugin
        self.name = plugin.name
        is_kept = isinstance(plugin, ScorePlugin) and plugin.score_reads != Reads.CLUSTER
        self._kept = _KeptOnce(plugin) if is_kept else None
        self._keys = Keys(plugin, "score_key")

    def answer(self, cycle: PlacementCycle, rows: Rows) -> PreScored:
        """What the plugin says of the pod."""
        if self._kept is None:
            return self._ask(cycle, rows)
        key = self._keys.of(cycle.pod.shape)
        known: PreScored | None = self._kept.get(cycle.cluster, key)
        if known is None:
            known = self._ask(cycle, rows)
            self._kept.put(key, known)
        return known

    def _ask(self, cycle: PlacementCycle, rows: Rows) -> PreScored:
        return asked(self.name, "PreScore", PreScored, self.plugin.pre_score, cycle, rows)


class ScoreStep:
    """A score with its weight."""

    def __init__(self, plugin: ScorePlugin, weight: int, cluster: PlacementCluster) -> None:
        self.plugin = plugin
        self.name = plugin.name
        self.weight = weight
        self._cluster = cluster
        self._keys = Keys(plugin, "score_key")
        self._vector = plugin if isinstance(plugin, VectorScore) else None
        self._normalizer = plugin if isinstance(plugin, NormalizeScore) else None
        self._kept: KeptAnswers | None = None
        if plugin.score_reads != Reads.CLUSTER:
            columnwise = self._ask if self._vector is not None else None
            kinds = object_kinds(plugin)
            self._kept = KeptAnswers(cluster, (plugin.score_reads,), kinds, self._of_node, columnwise)

    def raw(self, cycle: PlacementCycle, rows: Rows) -> Ints:
        """The raw scores of some rows."""
        if self._kept is not None:
            return self._kept.answers(cycle, self._keys.of(cycle.pod.shape), rows)
        return self._ask(cycle, rows)

    def normalized(self, cycle: PlacementCycle, rows: Rows, raw: Ints) -> Ints:
        """The scores in the range that all plugins share. Raises PluginError where they are not."""
        scores = raw
        if self._normalizer is not None:
            try:
                scores = integers(self._normalizer.normalize(cycle, rows, raw), len(rows))
            except Exception as failure:
                raise failed(self.name, "NormalizeScore", failure) from failure
        lowest, highest = int(scores.min()), int(scores.max())
        if lowest < 0 or highest > SCORE_MAX:
            wrong = lowest if lowest < 0 else highest
            text = (
                f'plugin "{self.name}" returns an invalid score {wrong}, it should in the range of [0, {SCORE_MAX}] '
                "after normalizing"
            )
            raise PluginError(PluginStatus(Code.ERROR, (text,), self.name))
        return scores

    def _ask(self, cycle: PlacementCycle, rows: Rows) -> Ints:
        if self._vector is None:
            score, info_of = self._of_node, self._cluster.info_of
            return np.fromiter((score(cycle, info_of(row)) for row in rows.tolist()), dtype=np.int64, count=len(rows))
        try:
            return integers(self._vector.score_columns(cycle, self._cluster.columns, rows), len(rows))
        except Exception as failure:
            raise failed(self.name, "Score", failure) from failure

    def _of_node(self, cycle: PlacementCycle, node: NodeInfo) -> int:
        try:
            return integer(self.plugin.score(cycle, node))
        except Exception as failure:
            raise failed(self.name, "Score", failure) from failure
