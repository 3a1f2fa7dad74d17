"""
The runtime of a profile: runs its plugins at the extension points of an attempt, in order (frameworkImpl).

One per profile and cluster. It keeps answers (`framework.steps`), so its methods are to be called between changes of
the cluster, and what they return is of that moment. Source: pkg/scheduler/framework/runtime/framework.go.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.claims import NominatedClaims, yielding_to
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.configuration.types import Extender
from headgate.core.placement.extenders.calls import NO_ANSWERS, ExtenderCalls
from headgate.core.placement.extenders.requests import ordered
from headgate.core.placement.framework.asking import asked, pre_enqueued
from headgate.core.placement.framework.binding import BindingPoints
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.nominated import crowded
from headgate.core.placement.framework.plugin import (
    NodeStatuses,
    ObjectWrite,
    PostFiltered,
)
from headgate.core.placement.framework.profile import Profile
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
from headgate.events.extenders import ExtenderAnswer

NO_SCORES: Final[Mapping[str, Ints]] = {}

NONE: Final[Ints] = np.zeros(0, dtype=np.int64)


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
    """
    The scores of feasible nodes. `total` is the weighted sum; plugins that were skipped are absent.

    `by_extender` has what extenders have added, weighted and in the range of the plugins' scores, by `urlPrefix`.
    """

    rows: Rows
    by_plugin: Mapping[str, PluginScores]
    total: Ints
    by_extender: Mapping[str, Ints] = NO_SCORES


class Framework:
    """The runtime of a profile on a cluster. `extenders` are those of the configuration."""

    def __init__(self, profile: Profile, cluster: PlacementCluster, extenders: Sequence[Extender] = ()) -> None:
        self.profile = profile
        self.cluster = cluster
        self.extenders = ordered(extenders)
        self.statuses = StatusTable()
        self._pre_filters = [PreFilterStep(each) for each in _of(profile, "preFilter")]
        self.filters = [FilterStep(each, cluster) for each in _of(profile, "filter")]
        self._post_filters = _of(profile, "postFilter")
        self._pre_scores = [PreScoreStep(each) for each in _of(profile, "preScore")]
        scores = _of(profile, "score")
        self._scores = [ScoreStep(each, profile.weights[each.name], cluster) for each in scores]
        self._pre_enqueues = _of(profile, "preEnqueue")
        self.binding = BindingPoints(
            reserves=_of(profile, "reserve"),
            permits=_of(profile, "permit"),
            pre_binds=_of(profile, "preBind"),
            binds=_of(profile, "bind"),
            post_binds=_of(profile, "postBind"),
        )
        """The points after a node is chosen."""
        self._together: dict[tuple[str, ...], FiltersTogether] = {}

    @property
    def needs_one(self) -> bool:
        """Whether one feasible node is enough: no plugin scores, and no extender filters or scores."""
        return not self._scores and not any(each.filter_verb or each.prioritize_verb for each in self.extenders)

    @property
    def has_post_filters(self) -> bool:
        """Whether any plugin can help a pod that fits nowhere."""
        return bool(self._post_filters)

    def cycle(self, pod: PodInfo, answers: Mapping[str, ExtenderAnswer] = NO_ANSWERS) -> PlacementCycle:
        """A new cycle for a pod, with what extenders have answered."""
        if self.statuses.is_full:
            self.statuses = StatusTable()
            self._together.clear()
            for step in self.filters:
                step.clear()
        return PlacementCycle(self, pod, ExtenderCalls(self.extenders, self.cluster, pod, answers))

    def pre_enqueue(self, pod: PodInfo) -> PluginStatus:
        """Whether a pod may enter the queue: the first rejection, or Success."""
        cycle = self.cycle(pod)
        for plugin in self._pre_enqueues:
            status = pre_enqueued(plugin, cycle)
            if not status.is_success:
                return status
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
        nominated = yielding_to(self.cluster, cycle.pod, node.name)
        if nominated:
            status = self._filter_crowded(cycle, node, nominated)
            if not status.is_success:
                return status
        return self.filter_node(cycle, node)

    def _filter_crowded(self, cycle: PlacementCycle, node: NodeInfo, nominated: list[PodInfo]) -> PluginStatus:
        hypothesis, crowd = cycle.clone(), node.clone()
        for pod in nominated:
            crowd.add(pod)
            self.add_pod(hypothesis, pod, crowd)
        return self.filter_node(hypothesis, crowd)

    def add_pod(self, cycle: PlacementCycle, pod: PodInfo, node: NodeInfo) -> None:
        """The states of the pre-filters as if a pod were on a node, which already has it."""
        for step in self._pre_filters:
            step.with_pod(cycle, pod, node)

    def remove_pod(self, cycle: PlacementCycle, pod: PodInfo, node: NodeInfo) -> None:
        """The states of the pre-filters as if a pod were not on a node, which already lacks it."""
        for step in self._pre_filters:
            step.without_pod(cycle, pod, node)

    def filter_rows_with_nominated(self, cycle: PlacementCycle, rows: Rows) -> Ints:
        """`filter_with_nominated` for some rows: per row the id of the first rejection, or 0."""
        ids = self.filter_rows(cycle, rows)
        claims = self.cluster.index(NominatedClaims).of(cycle.pod)
        places = np.flatnonzero(claims.is_claimed[rows]) if claims else NONE
        if not len(places):
            return ids
        said = crowded(cycle, self._active(cycle), claims, rows[places])
        if said is None:
            id_of, name_of = cycle.statuses.id_of, self.cluster.name_of
            said = np.zeros(len(places), dtype=np.int64)
            for place, row in enumerate(rows[places].tolist()):
                nominated = yielding_to(self.cluster, cycle.pod, name_of(row))
                said[place] = id_of(self._filter_crowded(cycle, self.cluster.info_of(row), nominated))
        ids[places] = np.where(said != 0, said, ids[places])
        return ids

    def filter_rows(self, cycle: PlacementCycle, rows: Rows) -> Ints:
        """Run the filters for some rows: per row the id of the first rejection, or 0."""
        active = self._active(cycle)
        if not all(step.is_kept for step in active):
            return first_rejections(cycle, active, rows)
        # Filters that are all kept are kept together too.
        names = tuple([step.name for step in active])
        together = self._together.get(names)
        if together is None:
            together = self._together[names] = FiltersTogether(self.cluster, active)
        return together.answer_rows(cycle, rows)

    def _active(self, cycle: PlacementCycle) -> list[FilterStep]:
        return [step for step in self.filters if step.name not in cycle.skipped_filters]

    def post_filter(self, cycle: PlacementCycle, statuses: NodeStatuses) -> PostFiltered:
        """Run the post-filters until one succeeds, fails or says that nothing helps."""
        nominated: str | None = None
        details: Any = None
        reasons: list[str] = []
        rejector = ""
        writes: tuple[ObjectWrite, ...] = ()
        for plugin in self._post_filters:
            try:
                answer = asked(plugin.name, "PostFilter", PostFiltered, plugin.post_filter, cycle, statuses)
            except PluginError as failure:
                return PostFiltered(failure.status, writes=writes)
            code = answer.status.code
            writes += answer.writes
            if code in (Code.SUCCESS, Code.UNSCHEDULABLE_AND_UNRESOLVABLE):
                return msgspec.structs.replace(answer, status=answer.status.of(plugin.name), writes=writes)
            if not answer.status.is_rejected:
                ended = PluginStatus(Code.ERROR, answer.status.reasons, plugin.name)
                return PostFiltered(ended, writes=writes, details=answer.details)
            nominated = answer.nominated if answer.nominated is not None else nominated
            details = answer.details if answer.details is not None else details
            reasons.extend(answer.status.reasons)
            rejector = rejector or plugin.name
        status = PluginStatus(Code.UNSCHEDULABLE, tuple(reasons), rejector)
        return PostFiltered(status, nominated, writes=writes, details=details)

    # --- scores ----------------------------------------------------------------------------------------------------

    def score(self, cycle: PlacementCycle, rows: Rows) -> Scored:
        """Score feasible nodes. Raises PluginError, and AnswersMissingError when extenders have to be asked."""
        for step in self._pre_scores:
            answer = step.answer(cycle, rows)
            if answer.status.code == Code.SKIP:
                cycle.skipped_scores[step.name] = None
            elif answer.status.code != Code.SUCCESS:
                text = f'running PreScore plugin "{step.name}": {answer.status.message}'
                raise PluginError(PluginStatus(Code.ERROR, (text,), step.name))
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
        by_extender = self._scores_of_extenders(cycle, rows)
        for scores in by_extender.values():
            total += scores
        return Scored(rows, by_plugin, total, by_extender)

    def _scores_of_extenders(self, cycle: PlacementCycle, rows: Rows) -> Mapping[str, Ints]:
        if not cycle.extenders.has("prioritize"):
            return NO_SCORES
        names = [self.cluster.name_of(row) for row in rows.tolist()]
        found = cycle.extenders.scores(names)
        return {extender: np.array(scores, dtype=np.int64) for extender, scores in found.items()}


def _of(profile: Profile, point: str) -> list[Any]:
    """The plugins of an extension point, which its protocol holds for (`framework.profile.why_unusable`)."""
    return [profile.plugins[name] for name in profile.points.get(point, ())]


def _pre_filter_failure(status: PluginStatus, name: str) -> PluginStatus:
    if status.code == Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
        return status.of(name)
    return PluginStatus(Code.ERROR, (f'running PreFilter plugin "{name}": {status.message}',), name)


def _nothing_left(narrowing: list[str]) -> PluginStatus:
    if len(narrowing) == 1:
        return unresolvable(f"node(s) didn't satisfy plugin {narrowing[0]}")
    return unresolvable(f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(narrowing))}] simultaneously")
