"""What extenders have answered about a pod: kept for one attempt, and bounded."""

import msgspec
import pytest
from tests.support.logs import TestLog

from headgate.core import fold
from headgate.core.fold.extenders import ANSWERS_MAX
from headgate.core.log.authority import author_of, overstepped
from headgate.core.state.manifests import encoded
from headgate.events.base import EventBase, Producer
from headgate.events.decisions import PodNominated, PodPlaced, PodUnschedulable, PodWithdrawn
from headgate.events.effects import PodBindRejected, PodBound
from headgate.events.extenders import (
    ExtenderAnswer,
    ExtenderAnswered,
    ExtenderBound,
    ExtenderFailed,
    ExtenderFiltered,
    ExtenderPreempted,
    ExtenderPrioritized,
    ExtenderVictims,
)
from headgate.events.facts import ObjectDeleted, ObjectObserved, SchedulerConfigurationObserved
from headgate.events.ids import PodKey, Uid
from headgate.events.subjects import feed_subject

P = PodKey("ns/p")
UID = Uid("u")
ANSWERS: dict[str, ExtenderAnswer] = {
    "1": ExtenderFiltered(nodes=("n1",), failed={"no": ("n2",)}, unresolvable={"never": ("n3",)}),
    "2": ExtenderPrioritized(scores={"n1": -1, "n2": 2**63 - 1}),
    "3": ExtenderPreempted(victims={"n1": ExtenderVictims(pods=("v",), violations=1)}),
    "4": ExtenderFailed(error="no answer"),
    "5": ExtenderBound(),
}


def observed(*, uid: str = UID, node: str = "") -> ObjectObserved:
    manifest = {"metadata": {"namespace": "ns", "name": "p", "uid": uid}, "spec": {"nodeName": node} if node else {}}
    return ObjectObserved(resource="pods", name=P, object=encoded(manifest))


def answered(request: str, answer: ExtenderAnswer, uid: Uid = UID) -> ExtenderAnswered:
    return ExtenderAnswered(pod=P, uid=uid, extender="http://x", verb="filter", request=request, answer=answer)


def asking() -> TestLog:
    log = TestLog()
    log.append(Producer.INFORMER_BRIDGE, observed())
    log.append(Producer.SCHEDULER, *(answered(request, answer) for request, answer in ANSWERS.items()))
    return log


def test_answers_are_kept_by_request_and_survive_a_snapshot():
    """Every kind of answer is as it was when the state is restored."""
    log = asking()
    assert log.state.extender_answers == {P: ANSWERS}
    restored = fold.restore("main", fold.encode(log.state))
    assert restored.extender_answers == {P: ANSWERS}
    assert fold.state_hash(restored) == fold.state_hash(log.state)


@pytest.mark.parametrize(
    ("producer", "event"),
    [
        (Producer.SCHEDULER, PodPlaced(pod=P, uid=UID, node="n1")),
        (Producer.SCHEDULER, PodNominated(pod=P, uid=UID, node="n1")),
        (Producer.SCHEDULER, PodUnschedulable(pod=P, uid=UID, reason="Unschedulable", message="no")),
        (Producer.INFORMER_BRIDGE, ObjectDeleted(resource="pods", name=P)),
        (Producer.INFORMER_BRIDGE, observed(uid="another")),
        (Producer.INFORMER_BRIDGE, observed()),
        (Producer.INFORMER_BRIDGE, SchedulerConfigurationObserved(document={"kind": "changed"})),
    ],
    ids=lambda value: type(value).__name__,
)
def test_they_are_forgotten_when_the_attempt_is_over(producer: Producer, event: EventBase):
    """Nothing of them is encoded then, as in a state that never had any."""
    log = asking()
    assert b"extender_answers" in fold.encode(log.state)
    log.append(producer, event)
    assert log.state.extender_answers == {}
    assert b"extender_answers" not in fold.encode(log.state)


def test_an_answer_that_comes_too_late_is_not_kept():
    """About a pod that is gone, another one of its name, or one that has a node."""
    log = TestLog()
    log.append(Producer.SCHEDULER, answered("1", ExtenderBound()))
    log.append(Producer.INFORMER_BRIDGE, observed())
    log.append(Producer.SCHEDULER, answered("1", ExtenderBound(), Uid("another")))
    log.append(Producer.SCHEDULER, PodPlaced(pod=P, uid=UID, node="n1"))
    log.append(Producer.SCHEDULER, answered("1", ExtenderBound()))
    log.append(Producer.INFORMER_BRIDGE, observed(node="n1"))
    log.append(Producer.SCHEDULER, answered("1", ExtenderBound()))
    assert log.state.extender_answers == {}


def test_they_are_bounded():
    """Beyond the bound all are forgotten, in each state alike, whatever the order of its entries; repeats are not."""
    log = TestLog()
    log.append(Producer.INFORMER_BRIDGE, observed())
    for number in (*range(ANSWERS_MAX), 0):
        log.append(Producer.SCHEDULER, answered(str(number), ExtenderBound()))
    assert len(log.state.extender_answers[P]) == ANSWERS_MAX
    log.append(Producer.SCHEDULER, answered("one more", ExtenderBound()))
    assert list(log.state.extender_answers[P]) == ["one more"]
    assert fold.state_hash(log.refold()) == fold.state_hash(log.state)


def test_the_event_is_about_its_pod():
    """On the feed it is among the events of the pod; the scheduler may append it, and of a binding the binder."""
    event = answered("1", ExtenderBound())
    assert feed_subject("main", event) == "headgate.main.pod.extender_answered.ns.p"
    assert author_of(ExtenderAnswered) is Producer.SCHEDULER
    for verb, author, other in (
        ("filter", Producer.SCHEDULER, Producer.BINDER),
        ("bind", Producer.BINDER, Producer.SCHEDULER),
    ):
        said = msgspec.structs.replace(event, verb=verb)
        assert (overstepped(author, said, 0), overstepped(other, said, 0)) == (None, author)


@pytest.mark.parametrize(
    ("producer", "event"),
    [
        (Producer.BINDER, PodBound(pod=P, uid=UID, node="n1")),
        (Producer.BINDER, PodBindRejected(pod=P, uid=UID, node="n1", code=0, reason="r", message="m", extender="e")),
        (Producer.SCHEDULER, PodWithdrawn(pod=P, uid=UID, node="n1", reason="r", message="m")),
        (Producer.INFORMER_BRIDGE, observed(node="n1")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_answer_to_a_binding_is_kept_until_it_has_had_its_effect(producer: Producer, event: EventBase):
    """Only of a pod that has a node: the answers of other verbs are not."""
    log = TestLog()
    log.append(Producer.INFORMER_BRIDGE, observed())
    binding = msgspec.structs.replace(answered("1", ExtenderBound()), verb="bind")
    log.append(Producer.BINDER, binding)
    assert log.state.extender_answers == {}
    log.append(Producer.SCHEDULER, PodPlaced(pod=P, uid=UID, node="n1"))
    log.append(Producer.BINDER, binding)
    assert log.state.extender_answers == {P: {"1": ExtenderBound()}}
    log.append(producer, event)
    assert log.state.extender_answers == {}
    assert fold.state_hash(log.refold()) == fold.state_hash(log.state)
