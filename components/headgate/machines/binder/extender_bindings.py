"""
The extenders that bind pods in the binder's stead.

As in the kube-scheduler (`extendersBinding` of schedule_one.go): the first extender with a `bindVerb` that is
interested in a pod binds it. Its error is that of the binding; if it is `ignorable` the next one is asked, at last the
API server.

Each answer is in the log with what follows from it, and an answer that is there is not asked for again. A call without
an answer is repeated after a restart: an extender that has bound the pod before passes on what the API server says to
the second binding, that the pod has this node already, which is a success. Whatever an extender says, the node that the
pod's object shows settles it.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headgate.core.fold.quarantine import KINDS, is_aside
from headgate.core.kubernetes.pod_manifests import SCHEDULER_ERROR
from headgate.core.machine.contract import AskExtender, Completed
from headgate.core.placement.configuration.profiles import read_extenders
from headgate.core.placement.configuration.types import Extender
from headgate.core.placement.extenders.answers import read_answer
from headgate.core.placement.extenders.requests import ExtenderAsk, bind_ask, binders
from headgate.core.placement.objects.kinds import PODS
from headgate.core.state.attribution import about
from headgate.core.state.tables import State
from headgate.events import effects
from headgate.events.base import Producer
from headgate.events.extenders import ExtenderAnswer, ExtenderAnswered, ExtenderBound, ExtenderFailed
from headgate.machines.binder.placed import Placed

_CONFIGURATION: Final = KINDS["schedulerconfiguration"]


class ExtenderBinding(msgspec.Struct, frozen=True):
    """A binding that an extender is to make. `answer` is what the log has of it."""

    placed: Placed
    ask: ExtenderAsk
    ignorable: bool
    answer: ExtenderAnswer | None = None

    def command(self, call_id: str) -> AskExtender:
        """The call."""
        ask = self.ask
        return AskExtender(id=call_id, pod=self.placed.pod, extender=ask.extender, path=ask.path, body=ask.body)

    def answered(self, completed: Completed) -> ExtenderAnswered:
        """The fact about the end of the call."""
        return ExtenderAnswered(
            pod=self.placed.pod,
            uid=self.placed.uid,
            extender=self.ask.extender,
            verb="bind",
            request=self.ask.request,
            answer=read_answer(self.ask, completed.status, completed.body),
        )

    def effect(self, answer: ExtenderAnswer) -> effects.PodBound | effects.PodBindRejected | None:
        """What an answer amounts to; None when the next one is to bind the pod."""
        pod, uid, node = self.placed.pod, self.placed.uid, self.placed.node
        error = answer.error if isinstance(answer, ExtenderFailed) else "the answer is of another verb"
        if isinstance(answer, ExtenderBound) or is_assigned(error, node):
            return effects.PodBound(pod=pod, uid=uid, node=node)
        if self.ignorable:
            return None
        return effects.PodBindRejected(
            pod=pod, uid=uid, node=node, code=0, reason=SCHEDULER_ERROR, message=error, extender=self.ask.extender
        )


def is_assigned(message: str, node: str) -> bool:
    """Whether the API server says of a pod that it has a node already: its binding was repeated after a crash."""
    return f'already assigned to node "{node}"' in message


class BindingExtenders:
    """The extenders with a `bindVerb` of the configuration in effect."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._document: Mapping[str, Any] | None = None
        self._binders: tuple[Extender, ...] = ()

    def are_unknown(self) -> bool:
        """Whether the configuration is set aside: no pod is to be bound behind the back of an extender."""
        return is_aside(self._state, _CONFIGURATION, "", Producer.BINDER)

    def binding(self, placed: Placed) -> ExtenderBinding | None:
        """The first extender that is to bind a pod and was not passed over; None: the API server is to be asked."""
        state = self._state
        if self._document is not state.scheduler_configuration:
            with about(_CONFIGURATION, ""):
                extenders = read_extenders(state.scheduler_configuration)
            self._document = state.scheduler_configuration
            self._binders = tuple(each for each in extenders if each.bind_verb)
        if not self._binders:
            return None
        pod = PODS.read(state.objects[PODS.plural][placed.pod])
        answers = state.extender_answers.get(placed.pod, {})
        for extender in binders(self._binders, pod.spec):
            ask = bind_ask(extender, placed.pod, placed.uid, placed.node)
            found = ExtenderBinding(placed, ask, extender.ignorable, answers.get(ask.request))
            if found.answer is None or found.effect(found.answer) is not None:
                return found
        return None
