"""
Deciding the pods of a PodGroup together: all or none of a gang.

The pods are tried one after the other, each on what those before it take. If so many of them fit, with those that have
a node already, that GangScheduling lets one pass at Permit, all that fit are placed, in one commit. Otherwise nothing
of it remains but a verdict on each pod. Where pods fit only once others have gone, the victims are chosen, all pods are
nominated, and they are decided again when the victims are gone.

A group with a topology constraint is tried in each domain, the nodes with one value of the label, for itself; if it has
pods with nodes, in theirs alone. Of the domains that it fits in it gets the one with the highest score
(`group_domains`).

Source: pkg/scheduler/schedule_one_podgroup.go of the kube-scheduler. It differs in two ways: victims are chosen only if
the whole gang fits without them, and extenders are not asked about the pods of a group.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from headgate.core.kubernetes.pod_manifests import SCHEDULER_ERROR
from headgate.core.placement.arrays import Rows
from headgate.core.placement.attempt import PlacementAttempt
from headgate.core.placement.deciding import (
    ChosenNode,
    PlacementDecider,
    scan_end,
)
from headgate.core.placement.framework.plugin import PostFiltered
from headgate.core.placement.framework.runtime import Framework
from headgate.core.placement.framework.status import Code
from headgate.core.placement.group_domains import DomainsError, FittingDomain, GroupDomain, best_domain, domains_of
from headgate.core.placement.objects.groups import PodGroupObject
from headgate.core.placement.pods import PodInfo
from headgate.core.placement.refused import UNSCHEDULABLE, PodRefused, refused_of
from headgate.core.placement.view import PlacementChange
from headgate.events import decisions
from headgate.events.decisions import PlacementDecision
from headgate.events.ids import PodKey, Uid

WAITING: Final = "pod group is waiting for preemption to complete"
_UNSCHEDULABLE: Final = "pod group is unschedulable"
_EXTENDERS: Final = "extenders are not asked about pods of a pod group: remove spec.schedulingGroup, or the extender"


class GroupDecision(msgspec.Struct, frozen=True):
    """
    What one attempt of a group amounts to.

    `tried` and what is decided of each pod, `by_pod` in their order, are to be appended; nothing where there are no
    news of any pod. `next_start` and `changes` are those of a `PodDecision`.
    """

    tried: decisions.PodGroupTried
    by_pod: Mapping[str, tuple[PlacementDecision, ...]]
    next_start: int
    changes: tuple[PlacementChange, ...]


class _Tried(msgspec.Struct, frozen=True):
    """One pod, tried where the scan stood at `start`."""

    pod: PodInfo
    start: int
    scanned: int = 0
    chosen: ChosenNode | None = None
    refused: PodRefused | None = None
    is_displacing: bool = False
    """It has a node only once others have gone from it."""
    nominated: str | None = None
    helped: PostFiltered | None = None


class _Outcome(msgspec.Struct):
    """What has become of a group in one domain: `is_scheduled`, or why not."""

    tried: list[_Tried]
    is_scheduled: bool = False
    is_waiting: bool = False
    """It waits for victims to go."""
    error: str = ""
    message: str = ""
    next_start: int = 0


def decide_group(decider: PlacementDecider, group: str, pods: Sequence[PodInfo], scan_start: int) -> GroupDecision:
    """Try to place the pods of a group (each of `pod_to_place`), in this order, and suppose the result."""
    outcome = _GroupAttempt(decider, group, pods).run(scan_start)
    told: list[PlacementChange] = []
    by_pod: dict[str, tuple[PlacementDecision, ...]] = {}
    for each in _with_all(outcome, pods):
        of_pod = tuple(_events_of(decider, outcome, each))
        told += decider.suppose_all(of_pod)
        by_pod[each.pod.key] = of_pod
    found = decider.view.cluster.objects(PodGroupObject).get(group)
    tried = decisions.PodGroupTried(
        group=group,
        uid=Uid(found.metadata.uid if found is not None else ""),
        pods=tuple(PodKey(pod.key) for pod in pods),
        scan_start=scan_start,
        scheduled=outcome.is_scheduled,
        reason=_reason_of(outcome),
        message=outcome.error or outcome.message,
    )
    return GroupDecision(tried, by_pod, outcome.next_start, tuple(told))


def _reason_of(outcome: _Outcome) -> str:
    if outcome.is_scheduled:
        return "Scheduled"
    return SCHEDULER_ERROR if outcome.error else UNSCHEDULABLE


def _with_all(outcome: _Outcome, pods: Sequence[PodInfo]) -> Iterable[_Tried]:
    """What was tried, with the pods that it did not come to."""
    yield from outcome.tried
    for pod in pods[len(outcome.tried) :]:
        yield _Tried(pod, outcome.next_start, refused=PodRefused(_reason_of(outcome), outcome.error or outcome.message))


def _events_of(decider: PlacementDecider, outcome: _Outcome, tried: _Tried) -> Iterable[PlacementDecision]:
    """What is recorded of one pod (submitPodGroupAlgorithmResult)."""
    refused, nominated, helped = tried.refused, tried.nominated, tried.helped
    if outcome.error:
        if refused is None or refused.reason != SCHEDULER_ERROR:
            refused = PodRefused(SCHEDULER_ERROR, outcome.error)
        nominated, helped = "", None
    elif tried.chosen is not None and outcome.is_scheduled:
        yield tried.chosen.event
        return
    elif tried.chosen is not None and outcome.is_waiting:
        nominated = tried.chosen.event.node
        refused = refused if tried.is_displacing else PodRefused(UNSCHEDULABLE, WAITING)
    elif tried.chosen is not None:
        refused, nominated, helped = PodRefused(UNSCHEDULABLE, tried.chosen.permit.message), "", None
    assert refused is not None, f"{tried.pod.key} is neither placed nor refused"
    yield from decider.verdict(tried.pod, refused, tried.start, tried.scanned)
    yield from decider.nominations(tried.pod, nominated, helped, tried.start)


class _GroupAttempt:
    """The attempt of one group."""

    def __init__(self, decider: PlacementDecider, group: str, pods: Sequence[PodInfo]) -> None:
        self._decider = decider
        self._view = decider.view
        self._group = group
        self._pods = pods

    def run(self, scan_start: int) -> _Outcome:
        """The outcome, of which nothing is supposed yet."""
        names = list(dict.fromkeys(pod.spec.scheduler_name for pod in self._pods))
        if len(names) > 1:
            text = (
                "all pods in a single pod group should have the same .spec.schedulerName set, "
                f'got: "{names[0]}" and "{names[1]}"'
            )
            return _Outcome([], error=text, next_start=scan_start)
        found = self._view.cluster.objects(PodGroupObject).get(self._group)
        key = found.topology_key if found is not None else ""
        if not key:
            return self._within(None, scan_start)
        try:
            domains = domains_of(self._view.cluster, self._group, key)
        except DomainsError as failure:
            return _Outcome([], error=str(failure), next_start=scan_start)
        return self._in_best(domains, scan_start)

    def _in_best(self, domains: Sequence[GroupDomain], scan_start: int) -> _Outcome:
        """The outcome in the best of some domains (podGroupSchedulingPlacementAlgorithm)."""
        first: _Outcome | None = None
        fitting: list[FittingDomain[_Outcome]] = []
        for domain in domains:
            outcome = self._within(domain.rows, scan_start)
            scan_start = outcome.next_start
            if outcome.error:
                return outcome
            first = first or outcome
            if outcome.is_scheduled or outcome.is_waiting:
                chosen = tuple(each.pod for each in outcome.tried if each.chosen is not None)
                fitting.append(FittingDomain(domain, chosen, outcome))
        if fitting:
            profile = self._decider.frameworks[self._pods[0].spec.scheduler_name].profile
            best = best_domain(self._view.cluster, profile, self._group, fitting).outcome
        elif first is not None:
            best = first
            said = first.message or _UNSCHEDULABLE
            best.message = f"0/{len(domains)} placements are available, first placement status: {said}"
        else:
            best = _Outcome([], message="no node has the label of the pod group's topology constraint")
        best.next_start = scan_start
        return best

    def _within(self, rows: Rows | None, scan_start: int) -> _Outcome:
        """The outcome on some nodes, None for all (podGroupSchedulingDefaultAlgorithm)."""
        framework = self._decider.frameworks[self._pods[0].spec.scheduler_name]
        outcome = _Outcome([], next_start=scan_start)
        before = [(PodKey(pod.key), self._view.supposed_of(PodKey(pod.key))) for pod in self._pods]
        is_displacing = False
        for pod in self._pods:
            tried, outcome.next_start = self._try(framework, pod, outcome.next_start, rows)
            outcome.tried.append(tried)
            if tried.chosen is None:
                assert tried.refused is not None, f"{pod.key} has no node and no verdict"
                if tried.refused.reason == SCHEDULER_ERROR:
                    outcome.error = f"failed to schedule other pod from a pod group: {tried.refused.message}"
                    outcome.is_scheduled = outcome.is_waiting = False
                    break
                continue
            self._decider.suppose_all((tried.chosen.event,))
            is_displacing = is_displacing or tried.is_displacing
            if tried.chosen.permit.code == Code.SUCCESS:
                outcome.is_scheduled, outcome.is_waiting = not is_displacing, is_displacing
                outcome.message = WAITING if is_displacing else ""
        for key, record in reversed(before[: len(outcome.tried)]):
            self._view.take_back(key, record)
        return outcome

    def _try(self, framework: Framework, pod: PodInfo, start: int, rows: Rows | None) -> tuple[_Tried, int]:
        """One pod, and where the next scan starts (podGroupPodSchedulingAlgorithm)."""
        cluster = self._view.cluster
        made: PlacementAttempt = self._decider.attempted(pod, start, rows)
        if made.asks:
            return _Tried(pod, start, refused=PodRefused(SCHEDULER_ERROR, _EXTENDERS)), start
        next_start, scanned = scan_end(made, start, len(cluster.columns.rows) if rows is None else len(rows))
        refused = refused_of(made) if not made.node else None
        node = cluster.node(made.node or made.nominated or "")
        if node is None:
            return _Tried(
                pod, start, scanned, refused=refused, nominated=made.nominated, helped=made.post_filtered
            ), next_start
        chosen = self._decider.choose(framework, made.cycle, node, start, scanned, in_group=True)
        if isinstance(chosen, PodRefused):
            return _Tried(pod, start, scanned, refused=chosen, nominated=""), next_start
        tried = _Tried(
            pod,
            start,
            scanned,
            chosen=chosen,
            refused=refused,
            is_displacing=not made.node,
            nominated=made.nominated,
            helped=made.post_filtered,
        )
        return tried, next_start
