"""
DefaultPreemption: which pods of lower priority have to go so that a pod that fits nowhere gets a node.

The plugin decides; who commits the attempt deletes the victims, nominates the pod, and takes the nomination to the same
node from pods of lower priority. Source: defaultpreemption and framework/preemption of the kube-scheduler.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

import numpy as np

from headgate.core.config.fields import ConfigurationError
from headgate.core.placement.arrays import Rows
from headgate.core.placement.extenders.calls import ExtenderError
from headgate.core.placement.extenders.requests import NodeVictims
from headgate.core.placement.framework.candidates import PreemptionCandidate, PreemptionDetails
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.events import EventHint
from headgate.core.placement.framework.plugin import Arguments, NodeStatuses, PluginFactory, PostFiltered
from headgate.core.placement.framework.status import SUCCESS, Code, PluginStatus, error, unresolvable, unschedulable
from headgate.core.placement.groups import group_of
from headgate.core.placement.messages import fit_error
from headgate.core.placement.objects.groups import PodGroupObject
from headgate.core.placement.objects.pods import DISRUPTION_TARGET, PREEMPTED
from headgate.core.placement.pods import PodInfo
from headgate.core.placement.preemption_dry_run import PreemptionDryRun
from headgate.core.placement.preemption_found import found_of
from headgate.core.placement.preemption_search import Searched, search
from headgate.core.placement.scan import NodeOrder

NAME: Final = "DefaultPreemption"

_NEVER: Final = unschedulable("not eligible due to preemptionPolicy=Never.")
_ENDING: Final = unschedulable("not eligible due to a terminating pod on the nominated node.")
_CONSTRAINED: Final = unschedulable("not eligible due to placement-based pod group scheduling limitation")
_NO_CANDIDATE: Final = unschedulable("no candidate node for preemption")
_NOT_HELPFUL: Final = unresolvable("Preemption is not helpful for scheduling")


class DefaultPreemptionArgs(Arguments, frozen=True):
    """`DefaultPreemptionArgs`: how many candidates are enough, at least, as a share of the nodes and as a number."""

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100


def candidates_wanted(arguments: DefaultPreemptionArgs, nodes: int) -> int:
    """How many candidates are enough, of so many nodes that preemption may help on."""
    share = nodes * arguments.min_candidate_nodes_percentage // 100
    return min(max(share, arguments.min_candidate_nodes_absolute), nodes)


class DefaultPreemption:
    """The plugin."""

    name = NAME

    def __init__(self, arguments: DefaultPreemptionArgs) -> None:
        self._arguments = arguments

    def pre_enqueue(self, cycle: PlacementCycle) -> PluginStatus:  # noqa: ARG002 - any pod
        """Never holds a pod back: an attempt and the end of its victims are one commit."""
        return SUCCESS

    def events(self) -> tuple[EventHint, ...]:
        """None: what the end of a victim means is for the plugins to say that rejected the pod."""
        return ()

    def post_filter(self, cycle: PlacementCycle, statuses: NodeStatuses) -> PostFiltered:
        """The best node to make room on, if there is any."""
        refused = _not_eligible(cycle, statuses)
        if refused is not None:
            return PostFiltered(_named(refused))
        rows = _potential(cycle, statuses)
        searched = search(cycle, rows, candidates_wanted(self._arguments, len(rows)))
        if not len(searched.found.rows):
            return _in_vain(cycle, searched)
        try:
            searched = _extended(cycle, searched)
        except ExtenderError as failure:
            return PostFiltered(_named(error(str(failure))))
        if not len(searched.found.rows):
            return PostFiltered(_named(_NO_CANDIDATE))
        return _answer(cycle, searched)


# --- who may preempt, and where -------------------------------------------------------------------------------------


def _not_eligible(cycle: PlacementCycle, statuses: NodeStatuses) -> PluginStatus | None:
    """Why a pod may not preempt others (PodEligibleToPreemptOthers); None if it may."""
    found = cycle.cluster.objects(PodGroupObject).get(group_of(cycle.pod))
    if found is not None and found.spec.scheduling_constraints is not None:
        return _CONSTRAINED
    pod = cycle.pod
    if pod.spec.preemption_policy == "Never":
        return _NEVER
    node = cycle.cluster.node(pod.nominated_node_name)
    if node is None or statuses.status_of(node.name).code == Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
        return None
    victims = (each for each in node.pods.values() if each.priority < pod.priority)
    return _ENDING if any(_is_ending_by_preemption(each) for each in victims) else None


def _is_ending_by_preemption(pod: PodInfo) -> bool:
    if not pod.is_terminating:
        return False
    targets = (each for each in pod.object.status.conditions if each.type == DISRUPTION_TARGET)
    target = next(targets, None)
    return target is not None and target.status == "True" and target.reason == PREEMPTED


def _potential(cycle: PlacementCycle, statuses: NodeStatuses) -> Rows:
    """The nodes that preemption may help on: those with a rejection that is not final, in the order of the scan."""
    distinct, places = np.unique(statuses.ids, return_inverse=True)
    said = [cycle.statuses.status_of(number).code == Code.UNSCHEDULABLE for number in distinct.tolist()]
    looked = statuses.rows[np.array(said, dtype=np.bool_)[places]] if len(distinct) else statuses.rows
    if statuses.absent.code != Code.UNSCHEDULABLE:
        return looked
    order = cycle.cluster.index(NodeOrder).scan(0, 0).order
    return np.concatenate((looked, order[~np.isin(order, statuses.rows)]))


def _extended(cycle: PlacementCycle, searched: Searched) -> Searched:
    """The candidates as extenders leave them (callExtenders). Raises ExtenderError."""
    if not cycle.extenders.has("preempt"):
        return searched
    found, cluster = searched.found, cycle.cluster
    offered = {
        cluster.name_of(row): NodeVictims(found.victims_of(place), int(found.violations[place]))
        for place, row in enumerate(found.rows.tolist())
    }
    left = cycle.extenders.preempt(offered)
    runs = [
        (cluster.columns.rows[name], PreemptionDryRun(SUCCESS, victims.pods, victims.violations))
        for name, victims in left.items()
    ]
    return searched._replace(found=found_of(runs))


# --- the answer ------------------------------------------------------------------------------------------------------


def _answer(cycle: PlacementCycle, searched: Searched) -> PostFiltered:
    found, name_of = searched.found, cycle.cluster.name_of
    best = {name_of(int(found.rows[place])): place for place in found.best()}
    names = tuple(sorted(best))
    victims = found.victims_of(best[names[0]])
    lower = (key for key, pod in cycle.cluster.nominated_to(names[0]).items() if pod.priority < cycle.pod.priority)
    return PostFiltered(
        SUCCESS,
        nominated=names[0],
        victims=tuple(pod.key for pod in victims),
        unnominated=tuple(lower),
        details=PreemptionDetails(_candidates(cycle, searched), _hopeless(cycle, searched), names),
    )


def _in_vain(cycle: PlacementCycle, searched: Searched) -> PostFiltered:
    ids, counts = np.unique(searched.ids, return_counts=True)
    pairs = zip(ids.tolist(), counts.tolist(), strict=True)
    said = [(cycle.statuses.status_of(number), count) for number, count in pairs]
    failures = sorted({reason for status, _ in said if status.code == Code.ERROR for reason in status.reasons})
    details = PreemptionDetails(hopeless=_hopeless(cycle, searched))
    if failures:
        return PostFiltered(_named(error(", ".join(failures))), details=details)
    message = fit_error(len(cycle.cluster.columns.rows), "", said, _NOT_HELPFUL, "")
    return PostFiltered(_named(unschedulable(message)), nominated="", details=details)


def _named(status: PluginStatus) -> PluginStatus:
    return PluginStatus(status.code, (f"preemption: {status.message}",))


Value = TypeVar("Value")


class _ByNode(Mapping[str, Value]):
    """What is known of some nodes, by name; made when it is asked for."""

    def __init__(self, names: Callable[[], list[str]], value_of: Callable[[int], Value]) -> None:
        self._names = names
        self._value_of = value_of
        self._places: dict[str, int] | None = None

    def _by_name(self) -> dict[str, int]:
        if self._places is None:
            self._places = {name: place for place, name in enumerate(self._names())}
        return self._places

    def __getitem__(self, name: str) -> Value:
        return self._value_of(self._by_name()[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name())

    def __len__(self) -> int:
        return len(self._by_name())


def _candidates(cycle: PlacementCycle, searched: Searched) -> Mapping[str, PreemptionCandidate]:
    found = searched.found

    def candidate(place: int) -> PreemptionCandidate:
        victims = tuple(pod.key for pod in found.victims_of(place))
        return PreemptionCandidate(victims, int(found.violations[place]))

    return _ByNode(lambda: [cycle.cluster.name_of(row) for row in found.rows.tolist()], candidate)


def _hopeless(cycle: PlacementCycle, searched: Searched) -> Mapping[str, PluginStatus]:
    statuses, ids = cycle.statuses, searched.ids
    return _ByNode(
        lambda: [cycle.cluster.name_of(row) for row in searched.hopeless.tolist()],
        lambda place: statuses.status_of(int(ids[place])),
    )


# --- making it -------------------------------------------------------------------------------------------------------


def _check(arguments: DefaultPreemptionArgs, path: str) -> None:
    percentage, absolute = arguments.min_candidate_nodes_percentage, arguments.min_candidate_nodes_absolute
    if not 0 <= percentage <= 100:
        at = f"{path}.minCandidateNodesPercentage"
        raise ConfigurationError(at, f"{percentage} cannot be", "write a number from 0 to 100")
    if absolute < 0:
        raise ConfigurationError(f"{path}.minCandidateNodesAbsolute", f"{absolute} cannot be", "write 0 or more")
    if not percentage and not absolute:
        at = f"{path}.minCandidateNodesPercentage"
        raise ConfigurationError(at, "it is 0 as is minCandidateNodesAbsolute", "write one of them greater than 0")


FACTORY: Final = PluginFactory(NAME, DefaultPreemption, arguments=DefaultPreemptionArgs, check=_check)
