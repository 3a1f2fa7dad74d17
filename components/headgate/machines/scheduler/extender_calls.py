"""
The calls of extenders that the scheduler's machine has under way, and the answers that the log does not have yet.

A call lives until its end is reported, whatever becomes of its pod and of the configuration meanwhile: its id must not
be used again before. An answer is held until it is folded. Both end with the machine: the next one asks again for what
the log lacks.
"""

from collections.abc import Iterable

from headgate.core.machine.contract import AskExtender, Completed
from headgate.core.placement.extenders.answers import read_answer
from headgate.core.placement.extenders.requests import ExtenderAsk
from headgate.core.placement.pods import PodInfo
from headgate.events.extenders import ExtenderAnswered
from headgate.events.ids import PodKey, Uid


class ExtenderCallsUnderWay:
    """See the module's text."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[PodKey, Uid, ExtenderAsk]] = {}
        """By the id of the call."""
        self._answers: dict[str, ExtenderAnswered] = {}
        """By the id of the call that has ended."""

    def ask(self, pod: PodInfo, asks: Iterable[ExtenderAsk]) -> list[AskExtender]:
        """The calls that are not made yet."""
        commands = []
        for ask in asks:
            call = _call_id(PodKey(pod.key), Uid(pod.uid), ask.request)
            if call in self._asked or call in self._answers:
                continue
            self._asked[call] = PodKey(pod.key), Uid(pod.uid), ask
            commands.append(
                AskExtender(id=call, pod=PodKey(pod.key), extender=ask.extender, path=ask.path, body=ask.body)
            )
        return commands

    def are_of(self, pod: PodInfo) -> bool:
        """Whether a call for a pod has not ended, or its answer is not in the log yet."""
        begin = _call_id(PodKey(pod.key), Uid(pod.uid), "")
        return any(call.startswith(begin) for each in (self._asked, self._answers) for call in each)

    def ended(self, completed: Completed) -> None:
        """A call has ended."""
        asked = self._asked.pop(completed.call_id, None)
        assert asked is not None, f"the scheduler has made no call {completed.call_id}"
        pod, uid, ask = asked
        self._answers[completed.call_id] = ExtenderAnswered(
            pod=pod,
            uid=uid,
            extender=ask.extender,
            verb=ask.verb,
            request=ask.request,
            answer=read_answer(ask, completed.status, completed.body),
        )

    def folded(self, event: ExtenderAnswered) -> None:
        """The log has an answer."""
        self._answers.pop(_call_id(event.pod, event.uid, event.request), None)

    def answer_for(self, pod: PodInfo | None) -> ExtenderAnswered | None:
        """The next answer for the log. Those for other pods are dropped: no attempt waits for them any more."""
        self._answers = {
            call: answer
            for call, answer in self._answers.items()
            if pod is not None and (answer.pod, answer.uid) == (pod.key, pod.uid)
        }
        return next(iter(self._answers.values()), None)


def _call_id(pod: PodKey, uid: Uid, request: str) -> str:
    return f"{pod}/{uid}/{request}"
