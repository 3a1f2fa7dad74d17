"""Attempts and profiles in the schema of the recordings."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import numpy as np

from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.attempt import PlacementAttempt
from headgate.core.placement.configuration.profiles import Profiles
from headgate.core.placement.framework.candidates import PreemptionDetails
from headgate.core.placement.framework.plugin import PostFiltered
from headgate.core.placement.framework.profile import PluginArguments, Profile
from headgate.core.placement.framework.runtime import Scored
from headgate.core.placement.framework.status import PluginStatus
from headgate.testing.reference.placement.scenario import Json

WITH_ARGUMENTS: Final = (
    "InterPodAffinity",
    "NodeAffinity",
    "NodeResourcesBalancedAllocation",
    "NodeResourcesFit",
    "PodTopologySpread",
)
"""The plugins whose arguments the recordings have."""


BEHIND_GATES: Final = frozenset({"GangScheduling"})
"""Default plugins that the recorded kube-scheduler did not have: their feature gates are alpha, and were off."""


def told_profiles(profiles: Profiles) -> Json:
    """What a configuration amounts to, without plugins behind feature gates."""
    return {name: _told_profile(profile) for name, profile in sorted(profiles.by_name.items())}


def _told_profile(profile: Profile) -> Json:
    return {
        "plugins": {point: told for point, names in profile.points.items() if (told := _ungated(names))},
        "weights": dict(profile.weights),
        "args": {
            name: _told_arguments(profile.arguments[name]) for name in WITH_ARGUMENTS if name in profile.arguments
        },
    }


def _ungated(plugins: Iterable[str]) -> list[str]:
    return [name for name in plugins if name not in BEHIND_GATES]


def _told_arguments(arguments: PluginArguments) -> Json:
    """The arguments as Go writes them: what is empty is left out, numbers and booleans are not."""
    told: Json = msgspec.to_builtins(arguments)
    return {name: _without_empty(value) for name, value in told.items() if not _is_empty(value)}


def _without_empty(value: Any) -> Any:
    match value:
        case dict():
            return {name: _without_empty(each) for name, each in value.items() if not _is_empty(each)}
        case list() | tuple():
            return [_without_empty(each) for each in value]
        case _:
            return value


def _is_empty(value: Any) -> bool:
    return value is None or value in ("", [], (), {})


def told_attempt(attempt: PlacementAttempt, profile: str, number: int, source: str) -> Json:
    """An attempt. `number` is the how-manieth of the pod, `source` which queue it came from."""
    pod = attempt.cycle.pod
    told: Json = {"pod": pod.key, "profile": profile, "n": number, "from": source}
    if pod.nominated_node_name:
        told["nominated"] = pod.nominated_node_name
    told["prefilter"] = _told_prefilter(attempt)
    if attempt.nominated_rejected is not None:
        told["nominatedRejected"] = _grouped([(pod.nominated_node_name, attempt.nominated_rejected)])[0]
    told |= _told_filters(attempt)
    told["path"] = attempt.path
    told |= _told_scores(attempt)
    if attempt.node:
        told["node"] = attempt.node
        return told
    told |= {"reason": attempt.reason, "message": attempt.message, "rejectors": list(attempt.rejectors)}
    if attempt.post_filtered is not None:
        told["postfilter"] = _told_postfilter(attempt.post_filtered)
    return told


def _told_prefilter(attempt: PlacementAttempt) -> Json:
    told: Json = {"skip": sorted(attempt.cycle.skipped_filters)}
    if attempt.pre_filtered.nodes is not None:
        told["nodes"] = sorted(attempt.pre_filtered.nodes)
    status = attempt.pre_filtered.status
    if not status.is_success:
        told["rejected"] = {"plugin": status.plugin, "code": status.code.label, "reasons": list(status.reasons)}
    return told


def _told_filters(attempt: PlacementAttempt) -> Json:
    told: Json = {}
    rejections = attempt.verdicts.rejections()
    if rejections:
        told["filter"] = _grouped(rejections.items())
    also = _grouped(_said_alone(attempt, rejections))
    if also:
        told["also"] = also
    if len(attempt.feasible):
        told["feasible"] = sorted(_names(attempt, attempt.feasible))
    return told


def _said_alone(
    attempt: PlacementAttempt, rejections: Mapping[str, PluginStatus]
) -> Iterable[tuple[str, PluginStatus]]:
    """What each other filter says of each node that was to be looked at, asked alone and without nominated pods."""
    cycle = attempt.cycle
    if attempt.path in ("prefilter", "nominated"):
        return
    names = attempt.pre_filtered.nodes
    for step in cycle.framework.filters:
        if step.name in cycle.skipped_filters:
            continue
        for node in cycle.cluster.columns.nodes():
            first = rejections.get(node.name)
            if (first is None or first.plugin != step.name) and (names is None or node.name in names):
                status = step.answer(cycle, node)
                if not status.is_success:
                    yield node.name, status


def _grouped(statuses: Iterable[tuple[str, PluginStatus]]) -> list[Json]:
    groups: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for node, status in statuses:
        groups.setdefault((status.plugin, status.code.label, status.reasons), []).append(node)
    return [
        {"plugin": plugin, "code": code, "reasons": list(reasons), "nodes": sorted(nodes)}
        for (plugin, code, reasons), nodes in sorted(groups.items())
    ]


def _told_scores(attempt: PlacementAttempt) -> Json:
    if attempt.path != "scored" or attempt.scored is None:
        return {}
    told: Json = {}
    scored = attempt.scored
    order = np.argsort(np.array(_names(attempt, scored.rows)))
    skipped = list(attempt.cycle.skipped_scores)
    if skipped:
        told["prescoreSkip"] = sorted(skipped)
    if scored.by_plugin:
        told["scores"] = _told_plugin_scores(scored, order)
    told["total"] = _told_numbers(scored.total[order])
    told["best"] = sorted(_names(attempt, attempt.best))
    return told


def _told_plugin_scores(scored: Scored, order: Rows) -> Json:
    told: Json = {}
    for name, scores in sorted(scored.by_plugin.items()):
        told[name] = {"raw": _told_numbers(scores.raw[order])}
        if not np.array_equal(scores.raw, scores.normalized):
            told[name]["norm"] = _told_numbers(scores.normalized[order])
    return told


def _told_numbers(numbers: Ints) -> int | list[int]:
    told: list[int] = numbers.tolist()
    return told[0] if len(set(told)) == 1 else told


def _told_postfilter(answer: PostFiltered) -> Json:
    told: Json = {"code": answer.status.code.label, "message": answer.status.message}
    told["mode"] = "noop" if answer.nominated is None else "override"
    if answer.nominated:
        told["nominated"] = answer.nominated
    if isinstance(answer.details, PreemptionDetails):
        details = answer.details
        if details.candidates:
            told["candidates"] = {
                node: {"victims": list(each.victims), "pdbViolations": each.pdb_violations}
                for node, each in sorted(details.candidates.items())
            }
        if details.hopeless:
            told["hopeless"] = _grouped(details.hopeless.items())
        if details.best:
            told["best"] = list(details.best)
    if answer.victims:
        told["victims"] = list(answer.victims)
    return told


def _names(attempt: PlacementAttempt, rows: Rows) -> list[str]:
    return [attempt.cycle.cluster.name_of(row) for row in rows.tolist()]
