"""
What scheduler extenders have answered.

An extender is a webhook that `extenders` of KubeSchedulerConfiguration names: it filters and scores nodes for pods,
changes what is preempted for them, or binds them. Its answers are recorded, so that what was decided by them follows
from the log alone, and is decided again without an extender.
"""

from typing import Final, Literal

import msgspec

from headgate.events.base import EventBase
from headgate.events.ids import PodKey, Uid

ANSWER_BYTES_MAX: Final = 512 * 1024
"""The largest answer that is recorded, as JSON: half of what one message of the log can hold. A larger one fails."""

EXTENDER: Final = "Extender"
"""What stands in the place of a plugin where extenders have dropped nodes (the kube-scheduler's ExtenderName)."""

ExtenderVerb = Literal["filter", "prioritize", "preempt", "bind"]
"""What an extender can be called for."""


class _Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", gc=False):
    """Base of the answers."""


class ExtenderFiltered(_Answer, frozen=True, tag="Filtered"):
    """
    An extender has filtered nodes.

    `nodes` are those that remain. `failed` has the nodes that do not, by the message; `unresolvable` those on which
    preemption would not help either. It need not give a reason for each.
    """

    nodes: tuple[str, ...] = ()
    failed: dict[str, tuple[str, ...]] = {}
    unresolvable: dict[str, tuple[str, ...]] = {}


class ExtenderPrioritized(_Answer, frozen=True, tag="Prioritized"):
    """An extender has scored nodes: `scores` by node, before they are weighted."""

    scores: dict[str, int] = {}


class ExtenderVictims(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The pods that have to go from a node, by uid, and how many of them a disruption budget does not allow to go."""

    pods: tuple[str, ...] = ()
    violations: int = 0


class ExtenderPreempted(_Answer, frozen=True, tag="Preempted"):
    """An extender has chosen among the nodes that pods can be preempted on: `victims` by node."""

    victims: dict[str, ExtenderVictims] = {}


class ExtenderBound(_Answer, frozen=True, tag="Bound"):
    """An extender has bound a pod to the node that was chosen for it."""


class ExtenderFailed(_Answer, frozen=True, tag="Failed"):
    """An extender has answered with an error, with what cannot be read, or not in time: `error` says which."""

    error: str


ExtenderAnswer = ExtenderFiltered | ExtenderPrioritized | ExtenderPreempted | ExtenderBound | ExtenderFailed
"""Any answer. It has at most `ANSWER_BYTES_MAX`."""


class ExtenderAnswered(EventBase, frozen=True, tag="pod.extender_answered"):
    """
    Appended by the scheduler when an extender has answered a call about a pod, or the call has failed for good.

    By the binder when the extender was to bind the pod. `extender` is its `urlPrefix`; `request` identifies what was
    sent: `headgate.core.placement.extenders`. It is kept until the attempt to place the pod that needs it, or to bind
    it, has ended.
    """

    pod: PodKey
    uid: Uid
    extender: str
    verb: ExtenderVerb
    request: str
    answer: ExtenderAnswer
