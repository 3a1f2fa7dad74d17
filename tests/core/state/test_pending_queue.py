"""The pending queue against a naive model: a list that is sorted at each question."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.core.state.pending_queue import PendingQueue, Rank
from headgate.events.ids import Shape, UnixMs, WorkloadKey

SHAPES = [Shape(name) for name in "abcd"]


def rank(priority: int, queued_at: int, uid: str) -> Rank:
    return (0.0, -priority, UnixMs(queued_at), 0, uid, WorkloadKey(f"ns/{uid}"))


def queue_of(*ranks: tuple[Rank, str]) -> PendingQueue:
    """A queue with these workloads, each of its shape."""
    known = {rank[-1]: rank for rank, _ in ranks}
    queue = PendingQueue(known.__getitem__)
    for rank, shape in ranks:
        queue.push(rank[-1], Shape(shape))
    return queue


class AgainstModel(RuleBasedStateMachine):
    """Every operation in any order; every answer compared with the model's."""

    def __init__(self) -> None:
        super().__init__()
        self.ranks: dict[WorkloadKey, Rank] = {}
        self.queue = PendingQueue(self.ranks.__getitem__)
        self.members: dict[WorkloadKey, tuple[Rank, Shape]] = {}
        self.out: dict[WorkloadKey, tuple[Rank, Shape]] = {}
        self.asleep: set[Shape] = set()
        self.count = 0

    def line(self, also: set[Shape] = frozenset(), unblocked: bool = False) -> list[Rank]:  # type: ignore[assignment]
        blocked = None if unblocked else self.queue.blocked
        awake = [each for each, shape in self.members.values() if shape not in self.asleep or shape in also]
        return sorted(each for each in awake if blocked is None or each < blocked)

    @rule(priority=st.integers(0, 2), queued_at=st.integers(0, 3), shape=st.sampled_from(SHAPES))
    def push(self, priority: int, queued_at: int, shape: Shape) -> None:
        self.count += 1
        # Uids do not grow with time: a later arrival may come before its equals.
        uid = f"{self.count * 7919 % 1000:03}-{self.count}"
        it = rank(priority, queued_at, uid)
        self.ranks[it[-1]] = it
        self.queue.push(it[-1], shape)
        self.members[it[-1]] = it, shape

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.members)))
        assert self.queue.remove(key)
        del self.members[key]

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def step_out(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.members)))
        self.queue.step_out(key)
        self.out[key] = self.members.pop(key)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def step_back(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.out)))
        self.queue.step_back(key)
        self.members[key] = self.out.pop(key)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def remove_one_that_is_out(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.out)))
        assert self.queue.remove(key)
        del self.out[key]

    @rule()
    def remove_a_stranger(self) -> None:
        assert not self.queue.remove(WorkloadKey("ns/nobody"))

    @rule(shape=st.sampled_from(SHAPES))
    def sleep(self, shape: Shape) -> None:
        self.queue.sleep(shape)
        self.asleep.add(shape)

    @rule(shape=st.sampled_from(SHAPES))
    def wake(self, shape: Shape) -> None:
        self.queue.wake(shape)
        self.asleep.discard(shape)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def block(self, data: st.DataObject) -> None:
        self.queue.blocked = self.members[data.draw(st.sampled_from(sorted(self.members)))][0]

    @rule()
    def unblock(self) -> None:
        self.queue.blocked = None

    @invariant()
    def ahead_is_the_sorted_line(self) -> None:
        line = [each[-1] for each in self.line()]
        assert list(self.queue.ahead()) == line
        first = self.queue.first()
        assert (first[-1] if first else None) == (line[0] if line else None)

    @invariant()
    def counting_agrees(self) -> None:
        line = {each[-1] for each in self.line()}
        assert dict(self.queue.each()) == {key: key in line for key in self.members}

    @invariant()
    def the_rest_agrees(self) -> None:
        assert len(self.queue) == len(self.members)
        assert self.queue.count_asleep() == sum(shape in self.asleep for _, shape in self.members.values())
        everybody = sorted((each, shape not in self.asleep) for each, shape in self.members.values())
        assert self.queue.in_order() == [(each[-1], awake) for each, awake in everybody]
        for shape in SHAPES:
            assert self.queue.is_asleep(shape) == (shape in self.asleep)
            of_shape = sorted(each for each, its in self.members.values() if its == shape)
            assert list(self.queue.members(shape)) == [each[-1] for each in of_shape]
            assert self.queue.has_members(shape) == bool(of_shape)
        for key, (its, _) in self.members.items():
            assert key in self.queue
            assert self.queue.rank_of(key) == its
        for key, (its, _) in self.out.items():
            assert key not in self.queue
            assert self.queue.rank_of(key) == its, "it keeps its place"

    @rule(also=st.sets(st.sampled_from(SHAPES)), unblocked=st.booleans())
    def looking_ahead_of_a_waking(self, also: set[Shape], unblocked: bool) -> None:
        """`ranks_ahead` shows the line as it is going to be, and changes nothing."""
        assert list(self.queue.ranks_ahead(sorted(also), unblocked=unblocked)) == self.line(also, unblocked)


class AgainstModelUnordered(AgainstModel):
    """The same, asked once at the end: the order is made from what is there then."""

    @invariant()
    def ahead_is_the_sorted_line(self) -> None:
        """Asked in `teardown`."""

    @invariant()
    def the_rest_agrees(self) -> None:
        assert len(self.queue) == len(self.members)
        assert self.queue.count_asleep() == sum(shape in self.asleep for _, shape in self.members.values())
        for shape in SHAPES:
            assert self.queue.has_members(shape) == any(its == shape for _, its in self.members.values())

    @rule()
    def looking_ahead_of_a_waking(self) -> None:
        """Not asked."""

    def teardown(self) -> None:
        super().ahead_is_the_sorted_line()
        super().the_rest_agrees()


AgainstModel.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
AgainstModelUnordered.TestCase.settings = AgainstModel.TestCase.settings
test_pending_queue_agrees_with_a_sorted_list = AgainstModel.TestCase
test_an_order_made_late_agrees_too = AgainstModelUnordered.TestCase


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 5)), max_size=30))
def test_order_is_priority_then_time_then_uid(entries: list[tuple[int, int]]) -> None:
    """Higher priority first, then the earlier timestamp, then the lower uid, whatever the order of arrival."""
    everybody = [rank(priority, at, f"{number:02}") for number, (priority, at) in enumerate(entries)]
    queue = queue_of(*((it, "s") for it in reversed(everybody)))
    expected = sorted(everybody, key=lambda it: (it[0], it[1], it[2]))
    assert list(queue.ahead()) == [it[-1] for it in expected]


def test_pushing_twice_is_a_broken_invariant() -> None:
    """A workload has one place."""
    queue = queue_of((rank(0, 0, "a"), "s"))
    with pytest.raises(AssertionError, match="already"):
        queue.push(WorkloadKey("ns/a"), Shape("s"))


def test_only_who_is_in_the_queue_steps_out() -> None:
    """An unknown workload has no place to keep, and none leaves twice."""
    queue = queue_of((rank(0, 0, "a"), "s"))
    with pytest.raises(AssertionError, match="not in the pending queue"):
        queue.step_out(WorkloadKey("ns/b"))
    queue.step_out(WorkloadKey("ns/a"))
    with pytest.raises(AssertionError, match="not in the pending queue"):
        queue.step_out(WorkloadKey("ns/a"))


def test_stepping_out_and_back_compares_nobody() -> None:
    """Offered, skipped and queued again a workload keeps its place: nothing is sorted."""

    class Counting(str):
        compared = 0

        def __lt__(self, other: str) -> bool:
            Counting.compared += 1
            return str.__lt__(self, other)

    keys = [WorkloadKey(f"ns/{number:05}") for number in range(2000)]
    queue = queue_of(*(((0.0, 0, UnixMs(0), 0, Counting(key), key), "crowd") for key in keys))
    assert next(queue.ahead()) == keys[0]
    Counting.compared = 0
    for key in keys[:6]:
        queue.step_out(key)
    assert next(queue.ahead()) == keys[6]
    for key in keys[:6]:
        queue.step_back(key)
    assert next(queue.ahead()) == keys[0]
    assert Counting.compared == 0


def test_putting_a_crowd_to_sleep_touches_one_entry() -> None:
    """Sleep and wake of a shape do not look at its members: the line behind it is there at once."""

    class Counting(str):
        compared = 0

        def __lt__(self, other: str) -> bool:
            Counting.compared += 1
            return str.__lt__(self, other)

    uids = [Counting(f"{number:05}") for number in range(2000)]
    crowd: list[tuple[Rank, str]] = [((0.0, 0, UnixMs(0), 0, uid, WorkloadKey(f"ns/{uid}")), "crowd") for uid in uids]
    other = rank(-1, 0, "z")
    queue = queue_of(*crowd, (other, "other"))
    assert queue.first() is not None
    Counting.compared = 0
    queue.sleep(Shape("crowd"))
    assert queue.first() == other
    queue.wake(Shape("crowd"))
    assert queue.first() == (0.0, 0, 0, 0, "00000", "ns/00000")
    assert Counting.compared < 50
