"""Kueue's pending queues in a plan: order, requeue rules of both strategies, equivalence classes, the preemptor."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.events.ids import Shape, UnixMs, WorkloadKey
from headgate.testing.reference.queues import QueueOfOne, Waiting

A, B, C, D = (WorkloadKey(f"ns/{name}") for name in "abcd")


def waiting(key: WorkloadKey, *, priority: int = 0, at: int = 0, shape: str = "") -> Waiting:
    return Waiting(key, (-priority, UnixMs(at), f"uid-{key}", key), Shape(shape))


def queue_of(*items: Waiting, best_effort: bool = True) -> QueueOfOne:
    queue = QueueOfOne(best_effort=best_effort)
    for item in items:
        queue.push(item, may_be_tried=True)
    return queue


def fail(queue: QueueOfOne, reason: str, *, condition: str = "WaitingForQuota", untried: bool = False) -> WorkloadKey:
    """Take the head and put it back as a cycle would that did not admit it."""
    head = queue.pop()
    assert head is not None
    queue.requeue(head, reason, condition, untried_flavors=untried, may_be_tried=True)
    return head.key


def test_higher_priority_then_earlier_then_smaller_uid_comes_first() -> None:
    """The order of Kueue's heap."""
    queue = queue_of(waiting(A, at=5), waiting(B, at=1), waiting(C, priority=3, at=9), waiting(D, at=1))
    assert queue.active_in_order() == [C, B, D, A]
    assert [head.key for head in iter(queue.pop, None)] == [C, B, D, A]


def test_lower_usage_of_the_local_queue_comes_before_everything() -> None:
    """Admission fair sharing ranks above priority, and above a preemptor."""
    usage = {A: 2.0, B: 1.0, C: 1.0}
    queue = QueueOfOne(best_effort=True, usage=usage.__getitem__)
    for item in (waiting(A, priority=9), waiting(B), waiting(C, at=-1)):
        queue.push(item, may_be_tried=True)
    assert fail(queue, "PendingPreemption") == C
    assert queue.active_in_order() == [C, B, A]
    usage[A] = 0.0
    assert fail(queue, "PendingPreemption") == A


@pytest.mark.parametrize(
    "reason", ["FailedAfterNomination", "PendingPreemption", "PendingMigration", "PreemptionFailed"]
)
def test_best_effort_tries_again_at_once_what_may_soon_fit(reason: str) -> None:
    """The four reasons of an immediate retry."""
    queue = queue_of(waiting(A))
    fail(queue, reason)
    assert queue.active_in_order() == [A]


@pytest.mark.parametrize("reason", ["NoFit", "PreemptionNoCandidates", "PreemptionGated", "NamespaceMismatch", ""])
def test_best_effort_sets_everything_else_aside(reason: str) -> None:
    """Until something changes; what is behind has its turn."""
    queue = queue_of(waiting(A), waiting(B, at=1))
    fail(queue, reason)
    assert (queue.active_in_order(), queue.inadmissible_in_order()) == ([B], [A])


def test_strict_fifo_sets_aside_nothing_but_a_namespace_that_does_not_match() -> None:
    """A head that does not fit stays the head."""
    queue = queue_of(waiting(A), waiting(B, at=1), best_effort=False)
    assert fail(queue, "NoFit") == A
    assert fail(queue, "NamespaceMismatch") == A
    assert (queue.active_in_order(), queue.inadmissible_in_order()) == ([B], [A])


def test_untried_flavors_are_tried_at_once() -> None:
    """The scan over flavors continues in the next cycle."""
    queue = queue_of(waiting(A))
    fail(queue, "NoFit", untried=True)
    assert queue.active_in_order() == [A]


def test_a_retry_while_in_flight_is_not_missed() -> None:
    """What was freed during a cycle counts for the head that the cycle decided."""
    queue = queue_of(waiting(A))
    head = queue.pop()
    assert head is not None
    queue.retry(lambda _: True)
    queue.requeue(head, "NoFit", "", untried_flavors=False, may_be_tried=True)
    assert queue.active_in_order() == [A]


@pytest.mark.parametrize("reason", ["NoFit", "PreemptionNoCandidates"])
def test_an_equivalence_class_is_set_aside_as_a_whole(reason: str) -> None:
    """Those in the heap at once, those that come later when they come, and each with the reason."""
    queue = queue_of(waiting(A, shape="s"), waiting(B, at=1, shape="s"), waiting(C, at=2, shape="t"))
    fail(queue, reason, condition="ExceedsMaxQuota")
    queue.push(waiting(D, at=3, shape="s"), may_be_tried=True)
    assert queue.inadmissible_in_order() == [A, B, D]
    assert queue.active_in_order() == [C]
    assert queue.bulk_reason(D) == "ExceedsMaxQuota"
    assert queue.bulk_reason(C) is None
    assert queue.retry(lambda _: True) == [A, B, D]
    queue.push(waiting(WorkloadKey("ns/e"), shape="s"), may_be_tried=True)
    assert not queue.inadmissible


def test_strict_fifo_knows_no_equivalence_classes() -> None:
    """Its head must not take others out of the line."""
    queue = queue_of(waiting(A, shape="s"), waiting(B, at=1, shape="s"), best_effort=False)
    fail(queue, "NoFit")
    assert queue.active_in_order() == [A, B]


def test_without_hashing_no_class_is_set_aside() -> None:
    """The gate SchedulingEquivalenceHashing is off: no workload equals another."""
    queue = queue_of(waiting(A), waiting(B, at=1))
    fail(queue, "NoFit")
    assert queue.active_in_order() == [B]


def test_a_preemptor_stays_at_the_head_of_a_best_effort_queue() -> None:
    """Also before a higher priority that comes later, until it is admitted or gone."""
    queue = queue_of(waiting(A))
    fail(queue, "PendingPreemption")
    queue.push(waiting(B, priority=100), may_be_tried=True)
    head = queue.head()
    assert head is not None
    assert head.key == A
    queue.delete(A)
    assert queue.preemptor is None
    assert queue.active_in_order() == [B]


def test_a_higher_priority_passes_the_preemptor_of_a_strict_queue() -> None:
    """There it is remembered, but not sticky."""
    queue = queue_of(waiting(A), best_effort=False)
    fail(queue, "PendingPreemption")
    queue.push(waiting(B, priority=100), may_be_tried=True)
    assert queue.active_in_order() == [B, A]


def test_only_who_may_move_comes_back() -> None:
    """Namespaces that do not match and backoffs that are not over keep a workload aside."""
    queue = queue_of(waiting(A), waiting(B, at=1))
    fail(queue, "NoFit")
    fail(queue, "NoFit")
    assert queue.retry(lambda key: key == B) == [B]
    assert (queue.active_in_order(), queue.inadmissible_in_order()) == ([B], [A])


def test_a_backoff_keeps_a_workload_aside() -> None:
    """Whether it enters or is put back."""
    queue = QueueOfOne(best_effort=False)
    queue.push(waiting(A), may_be_tried=False)
    assert queue.inadmissible_in_order() == [A]
    queue.push(waiting(A), may_be_tried=True)
    head = queue.pop()
    assert head is not None
    queue.requeue(head, "FailedAfterNomination", "", untried_flavors=True, may_be_tried=False)
    assert queue.inadmissible_in_order() == [A]


_KEYS = st.sampled_from([A, B, C, D])
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), _KEYS, st.sampled_from(["", "s", "t"]), st.booleans()),
        st.tuples(st.just("pop")),
        st.tuples(st.just("requeue"), st.sampled_from(["NoFit", "PendingPreemption", "", "NamespaceMismatch"])),
        st.tuples(st.just("delete"), _KEYS),
        st.tuples(st.just("retry"), st.booleans()),
    ),
    max_size=40,
)


@settings(max_examples=200)
@given(steps=_STEPS, best_effort=st.booleans())
def test_a_workload_is_in_one_place_only(steps: list[tuple], best_effort: bool) -> None:
    """In the heap, set aside or in flight; and none is lost that was not deleted."""
    queue = QueueOfOne(best_effort=best_effort)
    known: set[WorkloadKey] = set()
    for step in steps:
        match step:
            case ("push", key, shape, may_be_tried):
                queue.push(waiting(key, at=ord(key[-1]), shape=shape), may_be_tried=may_be_tried)
                known.add(key)
            case ("pop",):
                if queue.in_flight is None:
                    queue.pop()
            case ("requeue", reason):
                if queue.in_flight is not None:
                    queue.requeue(queue.in_flight, reason, "", untried_flavors=False, may_be_tried=True)
            case ("delete", key):
                queue.delete(key)
                known.discard(key)
            case ("retry", may_move):
                queue.retry(lambda _, moves=may_move: moves)  # type: ignore[misc]
        places = [*queue.active_in_order(), *queue.inadmissible_in_order()]
        if queue.in_flight is not None:
            places.append(queue.in_flight.key)
        assert sorted(places) == sorted(known)
