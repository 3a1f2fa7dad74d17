"""
The fold of what scheduler extenders have answered: kept per pod, for as long as the attempt that needs it.

Answers are of one attempt. They are forgotten (`forget`) when it is decided, with a node, a nomination or a verdict,
and when the pod has changed or is gone: the next attempt asks anew, as an extender may have changed its mind. The
answer to a call that binds a pod is kept while it has its node and is not bound, so that nobody is asked twice.
"""

from typing import Final, Never

from headgate.core.state.handlers import EventHandlers
from headgate.core.state.manifests import pod_of
from headgate.core.state.tables import State
from headgate.events.commit import Commit
from headgate.events.extenders import ExtenderAnswered
from headgate.events.ids import PodKey, Seq

ANSWERS_MAX: Final = 64
"""
Answers that are kept of a pod: an attempt needs at most four of each extender, of which a configuration has 16.

There are more only when its nodes change while it asks. Then all are forgotten, and it asks anew.
"""


def forget(state: State, pod: PodKey) -> None:
    """The attempt of a pod is over: the answers that it was made with are not those of the next one."""
    state.extender_answers.pop(pod, None)


def _answered(state: State, event: ExtenderAnswered, commit: Commit, seq: Seq) -> None:
    pod = pod_of(state, event.pod)
    if pod is None or pod.uid != event.uid or pod.node:
        return
    record = state.placements.get(event.pod)
    has_node = record is not None and bool(record.node)
    if has_node != (event.verb == "bind") or (record is not None and record.bound):
        return
    answers = state.extender_answers.setdefault(event.pod, {})
    if len(answers) >= ANSWERS_MAX and event.request not in answers:
        answers.clear()
    answers[event.request] = event.answer


HANDLERS = EventHandlers[Never]().on(ExtenderAnswered, _answered)
