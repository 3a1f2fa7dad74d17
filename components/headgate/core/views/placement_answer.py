"""
Where a pod would go: one attempt to place it on a state, as data for people and programs.

`answer` tells which nodes were refused by which plugin and why, the best nodes with their scores plugin by plugin, the
node that would be chosen, and for a pod that fits nowhere who would have to go for it. It decides by the code of the
scheduler on the same view of the state (`core.placement.deciding`), so it is what the scheduler would do.
"""

from typing import Final

import msgspec

from headgate.core.placement.attempt import PlacementAttempt
from headgate.core.placement.deciding import PlacementDecider
from headgate.core.placement.pods import PodInfo

BEST_MAX: Final = 10
"""So many nodes are told with their scores."""

NOT_CONSULTED: Final = "it depends on what extenders answer, and they are not consulted here"
"""The message about a pod whose attempt lacks answers of extenders."""


class RefusedNodes(msgspec.Struct, frozen=True, kw_only=True):
    """So many nodes that a plugin refused for a reason. 0 nodes: the pod was refused before any node was looked at."""

    plugin: str
    reason: str
    nodes: int


class NodePluginScore(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin's score of a node: raw, in the range that all plugins share, and times the plugin's weight."""

    plugin: str
    raw: int
    normalized: int
    weighted: int


class ScoredNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that the pod fits on, with its scores. There are none when it is the only one."""

    node: str
    total: int = 0
    scores: tuple[NodePluginScore, ...] = ()


class VictimAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that would have to go."""

    pod: str
    priority: int


class PlacementAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    What an attempt to place a pod comes to, at a position of the log.

    `node` is the one that it would get; "" when it fits nowhere: then `message` is what its condition would say,
    and if others had to go for it, it would be nominated to the node `nominated`. Of `feasible` nodes among those
    that were looked at (`looked`, of `nodes`) the `best` are told; of `equals` with the highest total the first
    by name is chosen.
    """

    pod: str
    profile: str
    position: int
    nodes: int
    looked: int = 0
    feasible: int = 0
    equals: int = 0
    node: str = ""
    reason: str = ""
    message: str = ""
    refused: tuple[RefusedNodes, ...] = ()
    best: tuple[ScoredNode, ...] = ()
    nominated: str = ""
    victims: tuple[VictimAnswer, ...] = ()


def answer(decider: PlacementDecider, pod: PodInfo, scan_start: int = 0) -> PlacementAnswer:
    """Where a pod without a node would go now. Its profile must be one of the configuration."""
    state, cluster = decider.view.state, decider.view.cluster
    profile = pod.spec.scheduler_name
    gate = decider.frameworks[profile].pre_enqueue(pod)
    if not gate.is_success:
        return PlacementAnswer(
            pod=pod.key,
            profile=profile,
            position=state.position,
            nodes=len(cluster.columns.rows),
            reason="SchedulingGated",
            message=gate.message,
            refused=tuple(RefusedNodes(plugin=gate.plugin, reason=each, nodes=0) for each in gate.reasons),
        )
    made = decider.attempted(pod, scan_start)
    helped = made.post_filtered
    return PlacementAnswer(
        pod=pod.key,
        profile=profile,
        position=state.position,
        nodes=len(cluster.columns.rows),
        looked=len(made.verdicts.rows),
        feasible=len(made.feasible),
        equals=len(made.best),
        node=made.node,
        reason="" if made.node else "ExtendersNotConsulted" if made.asks else made.reason,
        message=NOT_CONSULTED if made.asks else made.message,
        refused=_refused(made),
        best=_best(decider, made),
        nominated=made.nominated or "",
        victims=tuple(
            VictimAnswer(pod=key, priority=cluster.pods[key].priority)
            for key in (helped.victims if helped is not None else ())
        ),
    )


def _refused(made: PlacementAttempt) -> tuple[RefusedNodes, ...]:
    """By plugin and reason, most nodes first."""
    return tuple(
        RefusedNodes(plugin=plugin, reason=reason, nodes=nodes)
        for (plugin, reason), nodes in sorted(made.refusals.items(), key=lambda each: (-each[1], each[0]))
    )


def _best(decider: PlacementDecider, made: PlacementAttempt) -> tuple[ScoredNode, ...]:
    """The feasible nodes with the highest totals, equals by name."""
    name_of, scored = decider.view.cluster.name_of, made.scored
    if scored is None:
        return tuple(ScoredNode(node=name_of(row)) for row in made.feasible[:BEST_MAX].tolist())
    weights = decider.frameworks[made.cycle.pod.spec.scheduler_name].profile.weights
    names = [name_of(row) for row in scored.rows.tolist()]
    totals = scored.total.tolist()
    order = sorted(range(len(names)), key=lambda at: (-totals[at], names[at]))
    return tuple(
        ScoredNode(
            node=names[at],
            total=totals[at],
            scores=tuple(
                NodePluginScore(
                    plugin=plugin,
                    raw=int(scores.raw[at]),
                    normalized=int(scores.normalized[at]),
                    weighted=int(scores.normalized[at]) * weights.get(plugin, 1),
                )
                for plugin, scores in scored.by_plugin.items()
            ),
        )
        for at in order[:BEST_MAX]
    )
