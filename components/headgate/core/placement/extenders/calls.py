"""
The extenders of one attempt: what they say of its pod, by the answers that are there.

A call whose answer is missing raises `AnswersMissingError` with what has to be asked. Answers are checked against what
was asked: names of nodes that were not sent, victims that are not on their node and the like are errors, which fail the
attempt, or, for an extender that is `ignorable` and for all scores, are noted in `ignored`.
Source: findNodesThatPassExtenders and prioritizeNodes of schedule_one.go, callExtenders of framework/preemption.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.configuration.types import Extender
from headgate.core.placement.extenders.answers import INT_MAX, named
from headgate.core.placement.extenders.requests import (
    Body,
    ExtenderAsk,
    NodeVictims,
    extender_args,
    is_interested,
    path_of,
    preemption_args,
    request_of,
)
from headgate.core.placement.framework.status import PluginStatus, unresolvable, unschedulable
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.pods import PodInfo
from headgate.events.extenders import (
    ExtenderAnswer,
    ExtenderFailed,
    ExtenderFiltered,
    ExtenderPreempted,
    ExtenderPrioritized,
    ExtenderVerb,
    ExtenderVictims,
)

SCORE_MAX: Final = 10
"""The highest score that extenders are to give (MaxExtenderPriority). Higher ones count as they are, as in Go."""

SCALE: Final = 10
"""MaxNodeScore / MaxExtenderPriority: brings their scores into the range of those of plugins."""

NO_ANSWERS: Final[Mapping[str, ExtenderAnswer]] = {}


class ExtenderError(Exception):
    """Raised when an extender fails and is not ignorable: the message names it."""


class AnswersMissingError(Exception):
    """Raised when an attempt cannot go on without answers: what has to be asked."""

    def __init__(self, asks: tuple[ExtenderAsk, ...]) -> None:
        super().__init__(f"{len(asks)} answers of extenders are missing")
        self.asks = asks


class ExtendersFiltered(msgspec.Struct, frozen=True):
    """The nodes that all extenders let pass, and what they said of others, by node."""

    nodes: tuple[str, ...]
    statuses: Mapping[str, PluginStatus]


class ExtenderCalls:
    """The extenders of a configuration, in their order, for one pod."""

    __slots__ = ("_answers", "_cluster", "_interested", "_pod", "ignored", "used")

    def __init__(
        self,
        extenders: Sequence[Extender],
        cluster: PlacementCluster,
        pod: PodInfo,
        answers: Mapping[str, ExtenderAnswer],
    ) -> None:
        self._interested = [each for each in extenders if is_interested(each, pod.spec)]
        self._cluster = cluster
        self._pod = pod
        self._answers = answers
        self.ignored: list[str] = []
        """What was passed over: each names its extender."""
        self.used: dict[str, tuple[str, ExtenderVerb, ExtenderAnswer]] = {}
        """The answers that this attempt has looked at, in order: by request the extender, the verb and the answer."""

    def has(self, verb: ExtenderVerb) -> bool:
        """Whether any extender is called for this pod and verb."""
        return any(path_of(each, verb) for each in self._interested)

    # --- filter ----------------------------------------------------------------------------------------------------

    def filter(self, nodes: Sequence[str]) -> ExtendersFiltered:
        """Ask one extender after the other, each of the nodes that the ones before have left. Raises ExtenderError."""
        statuses: dict[str, PluginStatus] = {}
        left = tuple(sorted(nodes))
        for extender in self._for("filter"):
            if not left:
                break
            try:
                answer = self._answer(extender, "filter", left)
                passed = _passed(extender, answer, left)
            except ExtenderError as error:
                self._ignore(extender, error)
                continue
            statuses |= self._statuses(extender, answer)
            left = passed
        return ExtendersFiltered(left, statuses)

    def _statuses(self, extender: Extender, answer: ExtenderFiltered) -> dict[str, PluginStatus]:
        statuses: dict[str, PluginStatus] = {}
        for status_of, by_message in ((unschedulable, answer.failed), (unresolvable, answer.unresolvable)):
            for message, nodes in by_message.items():
                statuses |= dict.fromkeys(nodes, status_of(message))
        for unknown in sorted(name for name in statuses if name not in self._cluster.columns.rows):
            self.ignored.append(f'extender "{extender.url_prefix}" rejects node "{unknown}", which does not exist')
            del statuses[unknown]
        return statuses

    # --- prioritize ------------------------------------------------------------------------------------------------

    def scores(self, nodes: Sequence[str]) -> dict[str, list[int]]:
        """The weighted scores of some nodes, in their order, by extender. They are all asked at once."""
        asked = sorted(nodes)
        asks: list[ExtenderAsk] = []
        found: dict[str, list[int]] = {}
        for extender in self._for("prioritize"):
            try:
                answer = self._answer(extender, "prioritize", asked)
                weighted = self._weighted(extender, answer, nodes)
            except AnswersMissingError as missing:
                asks.extend(missing.asks)
            except ExtenderError as error:
                self.ignored.append(str(error))
            else:
                before = found.get(extender.url_prefix, [0] * len(nodes))
                found[extender.url_prefix] = [old + new for old, new in zip(before, weighted, strict=True)]
        if asks:
            raise AnswersMissingError(tuple(asks))
        return found

    def _weighted(self, extender: Extender, answer: ExtenderPrioritized, nodes: Sequence[str]) -> list[int]:
        name = extender.url_prefix
        scores = [answer.scores.get(node, 0) for node in nodes]
        weighted = [score * extender.weight * SCALE for score in scores]
        for node, score, scaled in zip(nodes, scores, weighted, strict=True):
            if not -_WEIGHTED_MAX <= scaled <= _WEIGHTED_MAX:
                raise ExtenderError(
                    f'extender "{name}" gives node "{node}" the score {score}, which its weight {extender.weight} '
                    "makes too large to be added up: none of its scores is counted"
                )
        beyond = next((place for place, score in enumerate(scores) if not 0 <= score <= SCORE_MAX), None)
        if beyond is not None:
            self.ignored.append(
                f'extender "{name}" gives node "{nodes[beyond]}" the score {scores[beyond]}, outside of '
                f"[0, {SCORE_MAX}]: it is counted as it is"
            )
        asked = frozenset(nodes)
        for unknown in sorted(name for name in answer.scores if name not in asked):
            self.ignored.append(f'extender "{name}" scores node "{unknown}", which it was not asked about')
        return weighted

    # --- preempt ---------------------------------------------------------------------------------------------------

    def preempt(self, victims: Mapping[str, NodeVictims]) -> Mapping[str, NodeVictims]:
        """What extenders make of the nodes to preempt on, one after the other. Raises ExtenderError."""
        for extender in self._for("preempt"):
            if not victims:
                break
            try:
                answer = self._answer(extender, "preempt", victims)
                victims = self._victims(extender, answer)
            except ExtenderError as error:
                self._ignore(extender, error)
        return victims

    def _victims(self, extender: Extender, answer: ExtenderPreempted) -> dict[str, NodeVictims]:
        found = {name: self._on_node(extender, name, of_node) for name, of_node in sorted(answer.victims.items())}
        for name in [name for name, each in found.items() if not each.pods]:
            error = f'expected at least one victim pod on node "{name}"'
            if not extender.ignorable:
                raise ExtenderError(named(error, extender.url_prefix))
            self.ignored.append(named(error, extender.url_prefix))
            del found[name]
        return found

    def _on_node(self, extender: Extender, name: str, victims: ExtenderVictims) -> NodeVictims:
        node = self._cluster.node(name)
        if node is None:
            raise ExtenderError(named(f'nodeinfo not found for node name "{name}"', extender.url_prefix))
        by_uid = {pod.uid: pod for pod in node.pods.values()} if victims.pods else {}
        for uid in victims.pods:
            if uid not in by_uid:
                raise ExtenderError(
                    f"extender: {extender.url_prefix} claims to preempt pod (UID: {uid}) on node: {name}, "
                    "but the pod is not found on that node"
                )
        return NodeVictims(tuple(by_uid[uid] for uid in dict.fromkeys(victims.pods)), victims.violations)

    # --- answers ---------------------------------------------------------------------------------------------------

    def _for(self, verb: ExtenderVerb) -> list[Extender]:
        return [each for each in self._interested if path_of(each, verb)]

    def _ignore(self, extender: Extender, error: ExtenderError) -> None:
        if not extender.ignorable:
            raise error
        self.ignored.append(str(error))

    def _answer(self, extender: Extender, verb: ExtenderVerb, about: Any) -> Any:
        """The answer of the type of the verb. Raises ExtenderError for another one, AnswersMissingError for none."""
        kind, identity = _identified(verb, about)
        request = request_of(extender, verb, self._pod.uid, identity)
        answer = self._answers.get(request)
        if answer is None:
            path = path_of(extender, verb)
            body = self._body(extender, verb, about)
            raise AnswersMissingError((ExtenderAsk(extender.url_prefix, verb, path, request, body),))
        self.used[request] = extender.url_prefix, verb, answer
        if isinstance(answer, ExtenderFailed):
            raise ExtenderError(answer.error)
        if not isinstance(answer, kind):
            # The digest covers the verb: only a log that was written by hand has this.
            raise ExtenderError(f'extender "{extender.url_prefix}": the answer to {verb} is of another verb')
        return answer

    def _body(self, extender: Extender, verb: ExtenderVerb, about: Any) -> Body:
        if verb == "preempt":
            return preemption_args(extender, self._pod, about)
        return extender_args(extender, self._pod, [self._node(name) for name in about])

    def _node(self, name: str) -> NodeObject:
        info = self._cluster.node(name)
        assert info is not None, f"{name} was just found feasible"
        return info.node


_WEIGHTED_MAX: Final = INT_MAX // 2**8
"""Weighted scores of so many extenders, and those of plugins, add up to a 64-bit integer."""


def _identified(verb: ExtenderVerb, about: Any) -> tuple[type, Any]:
    """The type of the answer to a verb, and what identifies a request of it."""
    match verb:
        case "filter":
            return ExtenderFiltered, about
        case "prioritize":
            return ExtenderPrioritized, about
        case _:
            parts = [(name, [pod.uid for pod in each.pods], each.violations) for name, each in sorted(about.items())]
            return ExtenderPreempted, parts


def _passed(extender: Extender, answer: ExtenderFiltered, nodes: Sequence[str]) -> tuple[str, ...]:
    """The nodes that an extender has left, sorted."""
    left = set(answer.nodes)
    unknown = sorted(left.difference(nodes))
    if unknown:
        raise ExtenderError(
            f'extender "{extender.url_prefix}" claims a filtered node "{unknown[0]}" which is not found in the input '
            "node list"
        )
    return tuple(sorted(left))
