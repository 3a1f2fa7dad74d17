"""
Where a pod would go: one attempt to place it on a state, as data for people and programs.

`answer` tells which nodes were refused by which plugin and why, the best nodes with their scores plugin by plugin, the
node that would be chosen, and for a pod that fits nowhere who would have to go for it. It decides by the code of the
scheduler on the same view of the state (`core.placement.deciding`), so it is what the scheduler would do.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

from headgate.core.placement.attempt import PlacementAttempt
from headgate.core.placement.deciding import PlacementDecider
from headgate.core.placement.extenders.calls import SCALE
from headgate.core.placement.extenders.requests import binders
from headgate.core.placement.pods import PodInfo
from headgate.core.placement.refused import refusals_of
from headgate.core.views.explain_pods import describe_answer, most_first
from headgate.events.decisions import PluginRefusal
from headgate.events.extenders import EXTENDER

BEST_MAX: Final = 10
"""So many nodes are told with their scores."""

NOT_CONSULTED: Final = "ExtendersNotConsulted"
"""The reason of an answer about a pod whose attempt lacks answers of extenders: nobody is asked for a view."""


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


class ExtenderAnswerTold(msgspec.Struct, frozen=True, kw_only=True):
    """What an extender, named by its `urlPrefix`, has answered to a call of this attempt."""

    extender: str
    verb: str
    answer: str


class PlacementAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    What an attempt to place a pod comes to, at a position of the log.

    `node` is the one that it would get; "" when it fits nowhere: then `message` is what its condition would say,
    and if others had to go for it, it would be nominated to the node `nominated`. Of `feasible` nodes among those
    that were looked at (`looked`, of `nodes`) the `best` are told; of `equals` with the highest total the first
    by name is chosen. `extenders` are the answers that it was decided by, `ignored` errors of theirs that have changed
    nothing; `binder` is the one that would bind the pod.
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
    refused: tuple[PluginRefusal, ...] = ()
    best: tuple[ScoredNode, ...] = ()
    nominated: str = ""
    victims: tuple[VictimAnswer, ...] = ()
    extenders: tuple[ExtenderAnswerTold, ...] = ()
    ignored: tuple[str, ...] = ()
    binder: str = ""


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
            refused=tuple(PluginRefusal(plugin=gate.plugin, reason=each) for each in gate.reasons),
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
        reason="" if made.node else NOT_CONSULTED if made.asks else made.reason,
        message=_missing(made) if made.asks else made.message,
        refused=_refused(made),
        best=_best(decider, made),
        nominated=made.nominated or "",
        victims=tuple(
            VictimAnswer(pod=key, priority=cluster.pods[key].priority)
            for key in (helped.victims if helped is not None else ())
        ),
        extenders=_used(made),
        ignored=made.ignored,
        binder=next((each.url_prefix for each in binders(decider.profiles.extenders, pod.spec)), ""),
    )


def _used(made: PlacementAttempt) -> tuple[ExtenderAnswerTold, ...]:
    return tuple(
        ExtenderAnswerTold(extender=url, verb=verb, answer=describe_answer(found))
        for url, verb, found in made.cycle.extenders.used.values()
    )


def _missing(made: PlacementAttempt) -> str:
    """Whose answers an attempt lacks."""
    whose = ", ".join(f"{ask.extender} (asked to {ask.verb})" for ask in made.asks)
    return f"it depends on extenders whose answers the log does not have here: {whose}"


def _refused(made: PlacementAttempt) -> tuple[PluginRefusal, ...]:
    """By plugin and reason, most nodes first. What no plugin has refused, an extender has."""
    return tuple(replace(each, plugin=each.plugin or EXTENDER) for each in most_first(refusals_of(made)))


def _best(decider: PlacementDecider, made: PlacementAttempt) -> tuple[ScoredNode, ...]:
    """The feasible nodes with the highest totals, equals by name."""
    name_of, scored = decider.view.cluster.name_of, made.scored
    if scored is None:
        return tuple(ScoredNode(node=name_of(row)) for row in made.feasible[:BEST_MAX].tolist())
    weights = decider.frameworks[made.cycle.pod.spec.scheduler_name].profile.weights
    weight_of = {each.url_prefix: each.weight for each in decider.profiles.extenders if each.prioritize_verb}
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
            )
            + tuple(
                _score_of(extender, int(weighted[at]), weight_of.get(extender, 1))
                for extender, weighted in scored.by_extender.items()
            ),
        )
        for at in order[:BEST_MAX]
    )


def _score_of(extender: str, weighted: int, weight: int) -> NodePluginScore:
    """What an extender has added to the total of a node: its score times `SCALE`, which is the range of plugins."""
    normalized = weighted // weight
    return NodePluginScore(plugin=extender, raw=normalized // SCALE, normalized=normalized, weighted=weighted)
