"""
The runtime of a profile: runs its plugins at the extension points of an attempt, in order (frameworkImpl).

One per profile and cluster. It keeps answers (`framework.steps`), so its methods are to be called between changes of
the cluster, and what they return is of that moment. Source: pkg/scheduler/framework/runtime/framework.go.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.configuration.profiles import Profile
from headgate.core.placement.framework.binding import BindingPoints
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.plugin import (
    BindPlugin,
    FilterPlugin,
    NodeStatuses,
    PermitPlugin,
    PostBindPlugin,
    PostFiltered,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ReservePlugin,
    ScorePlugin,
)
from headgate.core.placement.framework.status import SUCCESS, Code, PluginError, PluginStatus, StatusTable, unresolvable
from headgate.core.placement.framework.steps import (
    FilterStep,
    FiltersTogether,
    PreFilterStep,
    PreScoreStep,
    ScoreStep,
    first_rejections,
)
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.pods import PodInfo


class PreFilterOutcome(msgspec.Struct, frozen=True):
    """
    What the pre-filters amount to.

    `nodes` are the only ones to be looked at, None for all, `narrowing` the plugins that said so.
    """

    status: PluginStatus = SUCCESS
    nodes: tuple[str, ...] | None = None
    narrowing: tuple[str, ...] = ()


class PluginScores(msgspec.Struct, frozen=True):
    """The scores of one plugin, in the order of the rows: raw, and in the shared range."""

    raw: Ints
    normalized: Ints


class Scored(msgspec.Struct, frozen=True):
    """The scores of feasible nodes. `total` is the weighted sum; plugins that were skipped are absent."""

    rows: Rows
    by_plugin: Mapping[str, PluginScores]
    total: Ints


class Framework:
    """The runtime of a profile on a cluster."""

    def __init__(self, profile: Profile, cluster: PlacementCluster) -> None:
        self.profile = profile
        self.cluster = cluster
        self.statuses = StatusTable()
        self._pre_filters = [PreFilterStep(each) for each in _of(profile, "preFilter", PreFilterPlugin)]
        self.filters = [FilterStep(each, cluster) for each in _of(profile, "filter", FilterPlugin)]
        self._post_filters = _of(profile, "postFilter", PostFilterPlugin)
        self._pre_scores = [PreScoreStep(each) for each in _of(profile, "preScore", PreScorePlugin)]
        scores = _of(profile, "score", ScorePlugin)
        self._scores = [ScoreStep(each, profile.weights[each.name], cluster) for each in scores]
        self._pre_enqueues = _of(profile, "preEnqueue", PreEnqueuePlugin)
        self.binding = BindingPoints(
            reserves=_of(profile, "reserve", ReservePlugin),
            permits=_of(profile, "permit", PermitPlugin),
            pre_binds=_of(profile, "preBind", PreBindPlugin),
            binds=_of(profile, "bind", BindPlugin),
            post_binds=_of(profile, "postBind", PostBindPlugin),
        )
        """The points after a node is chosen."""
        self._together: dict[tuple[str, ...], FiltersTogether] = {}

    @property
    def has_scores(self) -> bool:
        """Whether any plugin scores."""
        return bool(self._scores)

    @property
    def has_post_filters(self) -> bool:
        """Whether any plugin can help a pod that fits nowhere."""
        return bool(self._post_filters)

    def cycle(self, pod: PodInfo) -> PlacementCycle:
        """A new cycle for a pod."""
        if self.statuses.is_full:
            self.statuses = StatusTable()
            self._together.clear()
            for step in self.filters:
                step.clear()
        return PlacementCycle(self, pod)

    def pre_enqueue(self, pod: PodInfo) -> PluginStatus:
        """Whether a pod may enter the queue: the first rejection, or Success."""
        cycle = self.cycle(pod)
        for plugin in self._pre_enqueues:
            status: PluginStatus = plugin.pre_enqueue(cycle)
            if not status.is_success:
                return status.of(plugin.name)
        return SUCCESS

    # --- filters ---------------------------------------------------------------------------------------------------

    def pre_filter(self, cycle: PlacementCycle) -> PreFilterOutcome:
        """Run the pre-filters; afterwards the cycle has their states."""
        rejected = SUCCESS
        nodes: tuple[str, ...] | None = None
        narrowing: list[str] = []
        for step in self._pre_filters:
            answer = step.answer(cycle)
            status = answer.status
            if status.code == Code.SKIP:
                cycle.skipped_filters[step.name] = None
                continue
            if status.code != Code.SUCCESS:
                if status.code != Code.UNSCHEDULABLE:
                    return PreFilterOutcome(_pre_filter_failure(status, step.name))
                # The others run all the same: preemption needs their states.
                rejected = status.of(step.name)
                continue
            cycle.filter_states[step.name] = answer.state
            if answer.nodes is not None:
                narrowing.append(step.name)
                nodes = answer.nodes if nodes is None else tuple(name for name in nodes if name in answer.nodes)
                if not nodes:
                    return PreFilterOutcome(_nothing_left(narrowing), nodes, tuple(narrowing))
        return PreFilterOutcome(rejected, nodes, tuple(narrowing))

    def filter_node(self, cycle: PlacementCycle, node: NodeInfo) -> PluginStatus:
        """Run the filters for one node, which may be hypothetical: the first rejection, or Success."""
        for step in self.filters:
            if step.name not in cycle.skipped_filters:
                status = step.answer(cycle, node)
                if not status.is_success:
                    return status
        return SUCCESS

    def filter_with_nominated(self, cycle: PlacementCycle, node: NodeInfo) -> PluginStatus:
        """
        Run the filters for one node as if the pods of equal or higher priority that are nominated to it were there.

        Then, if the pod passed, once more without them: some filters pass only with them, some only without.
        """
        nominated = self.yielding_to(cycle.pod, node.name)
        if nominated:
            hypothesis, crowded = cycle.clone(), node.clone()
            for pod in nominated:
                crowded.add(pod)
                self.add_pod(hypothesis, pod, crowded)
            status = self.filter_node(hypothesis, crowded)
            if not status.is_success:
                return status
        return self.filter_node(cycle, node)

    def yielding_to(self, pod: PodInfo, node: str) -> list[PodInfo]:
        """The pods nominated to a node that this one may not displace."""
        nominated = self.cluster.nominated_to(node).values()
        return [each for each in nominated if each.priority >= pod.priority and each.key != pod.key]

    def add_pod(self, cycle: PlacementCycle, pod: PodInfo, node: NodeInfo) -> None:
        """The states of the pre-filters as if a pod were on a node, which already has it."""
        for step in self._pre_filters:
            if step.extensions is not None and step.name in cycle.filter_states:
                state = cycle.filter_states[step.name]
                cycle.filter_states[step.name] = step.extensions.add_pod(cycle, state, pod, node)

    def remove_pod(self, cycle: PlacementCycle, pod: PodInfo, node: NodeInfo) -> None:
        """The states of the pre-filters as if a pod were not on a node, which already lacks it."""
        for step in self._pre_filters:
            if step.extensions is not None and step.name in cycle.filter_states:
                state = cycle.filter_states[step.name]
                cycle.filter_states[step.name] = step.extensions.remove_pod(cycle, state, pod, node)

    def filter_rows(self, cycle: PlacementCycle, rows: Rows) -> Ints:
        """Run the filters for some rows: per row the id of the first rejection, or 0."""
        active = [step for step in self.filters if step.name not in cycle.skipped_filters]
        if not all(step.is_kept for step in active):
            return first_rejections(cycle, active, rows)
        # Filters that are all kept are kept together too.
        names = tuple([step.name for step in active])
        together = self._together.get(names)
        if together is None:
            together = self._together[names] = FiltersTogether(self.cluster, active)
        return together.answer_rows(cycle, rows)

    def post_filter(self, cycle: PlacementCycle, statuses: NodeStatuses) -> PostFiltered:
        """Run the post-filters until one succeeds, fails or says that nothing helps."""
        nominated: str | None = None
        details: Any = None
        reasons: list[str] = []
        rejector = ""
        for plugin in self._post_filters:
            answer: PostFiltered = plugin.post_filter(cycle, statuses)
            code = answer.status.code
            if code in (Code.SUCCESS, Code.UNSCHEDULABLE_AND_UNRESOLVABLE):
                return msgspec.structs.replace(answer, status=answer.status.of(plugin.name))
            if not answer.status.is_rejected:
                return PostFiltered(
                    PluginStatus(Code.ERROR, answer.status.reasons, plugin.name), details=answer.details
                )
            nominated = answer.nominated if answer.nominated is not None else nominated
            details = answer.details if answer.details is not None else details
            reasons.extend(answer.status.reasons)
            rejector = rejector or plugin.name
        return PostFiltered(PluginStatus(Code.UNSCHEDULABLE, tuple(reasons), rejector), nominated, details=details)

    # --- scores ----------------------------------------------------------------------------------------------------

    def score(self, cycle: PlacementCycle, rows: Rows) -> Scored:
        """Score feasible nodes. Raises PluginError."""
        for step in self._pre_scores:
            answer = step.answer(cycle, rows)
            if answer.status.code == Code.SKIP:
                cycle.skipped_scores[step.name] = None
            elif answer.status.code != Code.SUCCESS:
                raise PluginError(f'running PreScore plugin "{step.name}": {answer.status.message}')
            else:
                cycle.score_states[step.name] = answer.state
        by_plugin: dict[str, PluginScores] = {}
        total = np.zeros(len(rows), dtype=np.int64)
        for scorer in self._scores:
            if scorer.name in cycle.skipped_scores:
                continue
            raw = scorer.raw(cycle, rows)
            scores = scorer.normalized(cycle, rows, raw)
            by_plugin[scorer.name] = PluginScores(raw, scores)
            total += scores * scorer.weight
        return Scored(rows, by_plugin, total)


def _of(profile: Profile, point: str, kind: Any) -> list[Any]:
    plugins = [profile.plugins[name] for name in profile.points.get(point, ())]
    for plugin in plugins:
        if not isinstance(plugin, kind):
            raise TypeError(f"plugin {plugin.name!r} lacks a member of {kind.__name__}: see placement.framework.plugin")
    return plugins


def _pre_filter_failure(status: PluginStatus, name: str) -> PluginStatus:
    if status.code == Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
        return status.of(name)
    return PluginStatus(Code.ERROR, (f'running PreFilter plugin "{name}": {status.message}',), name)


def _nothing_left(narrowing: list[str]) -> PluginStatus:
    if len(narrowing) == 1:
        return unresolvable(f"node(s) didn't satisfy plugin {narrowing[0]}")
    return unresolvable(f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(narrowing))}] simultaneously")
