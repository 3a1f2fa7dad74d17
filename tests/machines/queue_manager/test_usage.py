"""Workloads ordered by the usage of their LocalQueues: what the queue manager offers, and when it samples."""

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.queueing import QueueCell

from headgate.core import fold
from headgate.core.quota.admission_fair_sharing import entry_penalty, local_queue_usage
from headgate.events import facts
from headgate.events.configuration import AdmissionFairSharingConfiguration, Configuration
from headgate.events.decisions import QuotaReserved
from headgate.events.ids import LocalQueueKey, WorkloadKey
from headgate.events.objects import AdmissionScope, Condition, FairSharing, LocalQueueSpec
from headgate.events.queueing import LocalQueuesSampled

SCOPE = AdmissionScope(admission_mode="UsageBasedAdmissionFairSharing")
HALF_LIFE_S, INTERVAL_S = 10, 1
FAIR = Configuration(
    admission_fair_sharing=AdmissionFairSharingConfiguration(
        usage_half_life_ms=HALF_LIFE_S * 1000, usage_sampling_interval_ms=INTERVAL_S * 1000
    )
)


@dataclass
class FairCell:
    """A ClusterQueue that orders by usage, with LocalQueues by name and weight."""

    cell: QueueCell = field(default_factory=QueueCell)

    def ready(self, **weights: str) -> "FairCell":
        self.cell.see(facts.ConfigurationObserved(configuration=FAIR))
        self.cell.flavor()
        self.cell.cluster_queue(admission_scope=SCOPE)
        for name, weight in weights.items():
            self.local_queue(name, weight)
        self.cell.sync()
        self.cell.settle()
        return self

    def local_queue(self, name: str, weight: str = "1", **consumed: str) -> None:
        spec = LocalQueueSpec(cluster_queue="cq", fair_sharing=FairSharing(weight=weight))
        self.cell.see(facts.LocalQueueObserved(queue=queue(name), spec=spec, consumed=dict(consumed)))

    def reserve(self, key: WorkloadKey, *, cpu: str = "1", checks: tuple[str, ...] = ()) -> None:
        """A cycle reserves a workload's quota, with its penalty as the scheduler charges it."""
        spec = self.cell.state.cluster_queues["cq"].spec
        penalty = entry_penalty(self.cell.state.configuration, spec, {"cpu": int(cpu) * 1000})
        self.cell.cycle_of(
            *(
                msgspec.structs.replace(event, entry_penalty=penalty) if isinstance(event, QuotaReserved) else event
                for event in self.cell.reserved(key, cpu=cpu, checks=checks)
            )
        )

    def usage(self, name: str) -> float:
        return local_queue_usage(self.cell.state, queue(name))

    def consumed(self, name: str) -> dict[str, str]:
        record = self.cell.state.local_queue_usage.get(queue(name))
        return {} if record is None else {resource: f"{value:f}" for resource, value in record.consumed.items()}


def queue(name: str) -> LocalQueueKey:
    return LocalQueueKey(f"team/{name}")


@pytest.fixture(params=[False, True], ids=["steady", "crashing"])
def fair(request: pytest.FixtureRequest) -> FairCell:
    """With one queue manager, and with one that is recreated from the state before each decision."""
    return FairCell(QueueCell(crashes=request.param))


def test_the_queue_that_used_less_comes_first(fair: FairCell) -> None:
    """Older and of higher priority are behind it: usage counts before both."""
    fair.ready(a="1", b="1")
    busy = fair.cell.submit("busy", queue="a")
    fair.cell.settle()
    fair.reserve(busy)
    fair.cell.submit("old", queue="a", created_s=1)
    fair.cell.submit("urgent", queue="a", created_s=2, priority=100)
    fair.cell.submit("young", queue="b", created_s=3)
    fair.cell.settle()
    assert fair.cell.offers() == ["young"]
    assert fair.cell.state.index.pending["cq"].in_order() == [
        (WorkloadKey("team/urgent"), True),
        (WorkloadKey("team/old"), True),
    ]


def test_queues_take_turns_by_their_entry_penalties(fair: FairCell) -> None:
    """Each reservation puts its LocalQueue behind the other one, before anything is admitted."""
    fair.ready(a="1", b="1")
    for number in range(3):
        fair.cell.submit(f"a{number}", queue="a", created_s=number)
        fair.cell.submit(f"b{number}", queue="b", created_s=10 + number)
    taken = []
    for _ in range(6):
        fair.cell.settle()
        (name,) = fair.cell.offers()
        taken.append(name)
        fair.reserve(WorkloadKey(f"team/{name}"), checks=("never",))
    assert taken == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_a_weight_divides_usage(fair: FairCell) -> None:
    """The queue of weight 2 is as far behind after two admissions as the other after one."""
    fair.ready(a="1", b="2")
    for number in range(3):
        fair.cell.submit(f"a{number}", queue="a", created_s=number)
        fair.cell.submit(f"b{number}", queue="b", created_s=10 + number)
    taken = []
    for _ in range(4):
        fair.cell.settle()
        (name,) = fair.cell.offers()
        taken.append(name)
        fair.reserve(WorkloadKey(f"team/{name}"))
    assert taken == ["a0", "b0", "b1", "a1"]


def test_a_queue_of_weight_zero_comes_last(fair: FairCell) -> None:
    """Even when nothing of it has ever run."""
    fair.ready(a="1", zero="0")
    busy = fair.cell.submit("busy", queue="a")
    fair.cell.settle()
    fair.reserve(busy)
    fair.cell.submit("late", queue="a", created_s=9)
    fair.cell.submit("early", queue="zero", created_s=1)
    fair.cell.settle()
    assert fair.cell.offers() == ["late"]


def test_a_penalty_becomes_usage_when_its_workload_is_admitted(fair: FairCell) -> None:
    """The same amount, once: reserving with a check and admitting later comes to the same."""
    fair.ready(a="1")
    key = fair.cell.submit("w", queue="a")
    fair.cell.settle()
    fair.reserve(key, cpu="4", checks=("check",))
    assert fair.consumed("a") == {}
    before = fair.usage("a")
    fair.cell.cycle_of(fair.cell.admitted(key))
    assert fair.consumed("a") == {"cpu": "0.267868033"}
    assert fair.usage("a") == before
    assert fair.cell.state.local_queue_usage[queue("a")].penalties == {}


@pytest.mark.parametrize("leaving", ["deleted", "finished", "moved"])
def test_a_penalty_that_will_never_be_settled_is_dropped(fair: FairCell, leaving: str) -> None:
    """Its workload is gone, over, or in another LocalQueue before it was admitted."""
    fair.ready(a="1", b="1")
    key = fair.cell.submit("w", queue="a")
    fair.cell.settle()
    fair.reserve(key, checks=("check",))
    assert fair.usage("a") > 0
    if leaving == "deleted":
        fair.cell.see(facts.WorkloadDeleted(workload=key, uid=fair.cell[key].uid))
    elif leaving == "finished":
        done = Condition(type="Finished", status="True", reason="Succeeded")
        fair.cell.submit("w", queue="a", finished=done)
    else:
        fair.cell.submit("w", queue="b")
    fair.cell.settle()
    assert fair.usage("a") == 0.0


def test_usage_is_sampled_at_times_that_stand_in_the_log(fair: FairCell) -> None:
    """A sample an interval: usage grows towards what is in use, and fades when it is over."""
    fair.ready(a="1")
    key = fair.cell.submit("w", queue="a")
    fair.cell.settle()
    fair.reserve(key, cpu="4")
    fair.cell.settle()
    assert fair.cell.wake_at == fair.cell.now_ms + INTERVAL_S * 1000
    seen = [fair.usage("a")]
    for _ in range(20):
        fair.cell.pass_s(INTERVAL_S)
        assert fair.cell.settle() == [LocalQueuesSampled(queues=(queue("a"),))]
        seen.append(fair.usage("a"))
    assert seen == sorted(seen)
    assert 2.9 < seen[-1] < 3.2, "two half-lives of four cores, and what its entry cost"
    fair.cell.submit("w", queue="a", finished=Condition(type="Finished", status="True", reason="Succeeded"))
    fair.cell.settle()
    fair.cell.pass_s(HALF_LIFE_S)
    fair.cell.settle()
    assert abs(fair.usage("a") - seen[-1] / 2) < 1e-8
    fair.cell.pass_s(HALF_LIFE_S * 100)
    fair.cell.settle()
    assert fair.cell.state.local_queue_usage == {}, "what has faded is forgotten"


def test_nothing_is_awaited_for_a_local_queue_that_is_gone(fair: FairCell) -> None:
    """Its usage is forgotten with it, and so is the time of its next sample: a time that is over is due for ever."""
    fair.ready(a="1")
    key = fair.cell.submit("w", queue="a")
    fair.cell.settle()
    fair.reserve(key, cpu="4")
    fair.cell.settle()
    fair.cell.see(facts.LocalQueueDeleted(queue=queue("a")))
    fair.cell.settle()
    fair.cell.pass_s(INTERVAL_S * 10)
    fair.cell.wake_at = None
    assert fair.cell.settle() == []
    assert fair.cell.wake_at is None


def test_a_sample_reorders_the_offer(fair: FairCell) -> None:
    """The head on offer is taken back when another LocalQueue has come to be behind less usage."""
    fair.ready(a="1", b="1")
    for name in ("a", "b"):
        fair.cell.submit(f"run-{name}", queue=name)
        fair.cell.settle()
        fair.reserve(WorkloadKey(f"team/run-{name}"), cpu="2" if name == "a" else "1")
    fair.cell.submit("run-a", queue="a", finished=Condition(type="Finished", status="True", reason="Succeeded"))
    fair.cell.submit("next-a", queue="a", created_s=5)
    fair.cell.submit("next-b", queue="b", created_s=6)
    fair.cell.settle()
    assert fair.cell.offers() == ["next-b"], "a has used more so far"
    for _ in range(20):
        fair.cell.pass_s(INTERVAL_S)
        fair.cell.settle()
    assert fair.cell.offers() == ["next-a"], "b goes on using, a does not"


def test_a_local_queue_goes_on_from_the_usage_in_its_status(fair: FairCell) -> None:
    """A new log in a cluster where admission fair sharing has run."""
    fair.ready(b="1")
    fair.local_queue("a", cpu="4")
    fair.cell.submit("of-a", queue="a", created_s=1)
    fair.cell.submit("of-b", queue="b", created_s=2)
    fair.cell.settle()
    assert fair.usage("a") == 4.0
    assert fair.cell.offers() == ["of-b"]
    fair.cell.see(facts.LocalQueueDeleted(queue=queue("a")))
    assert fair.usage("a") == 0.0


def test_what_was_charged_before_a_local_queue_was_seen_comes_on_top(fair: FairCell) -> None:
    """Kueue merges the status that it finds into what it has charged since it started."""
    fair.ready(a="1")
    key = fair.cell.submit("w", queue="a")
    fair.cell.settle()
    fair.cell.see(facts.LocalQueueDeleted(queue=queue("a")))
    fair.reserve(key, cpu="2", checks=("never",))
    charged = fair.usage("a")
    assert charged > 0
    fair.local_queue("a", cpu="4")
    assert fair.usage("a") == pytest.approx(4.0 + charged)
    fair.local_queue("a", cpu="4")
    assert fair.usage("a") == pytest.approx(4.0 + charged), "the status of one that is known is our own"


def test_a_local_queue_that_is_made_anew_begins_with_nothing(fair: FairCell) -> None:
    """What it used is forgotten with it; what runs in its name counts from the time at which it is there again."""
    fair.ready(a="1")
    key = fair.cell.submit("w", queue="a")
    fair.cell.settle()
    fair.reserve(key, cpu="4")
    fair.cell.settle()
    fair.cell.pass_s(HALF_LIFE_S)
    fair.cell.settle()
    assert fair.usage("a") > 2
    fair.cell.see(facts.LocalQueueDeleted(queue=queue("a")))
    fair.cell.pass_s(INTERVAL_S)
    assert not any(isinstance(event, LocalQueuesSampled) for event in fair.cell.settle())
    assert fair.cell.state.local_queue_usage == {}
    fair.local_queue("a")
    assert fair.usage("a") == 0.0
    fair.cell.pass_s(HALF_LIFE_S)
    fair.cell.settle()
    assert abs(fair.usage("a") - 2.0) < 1e-8, "half of four cores, after a half-life"


def test_a_restored_state_remembers_the_same_local_queues(fair: FairCell) -> None:
    """Also while workloads run in the name of one that is deleted, and after it was recreated."""
    fair.ready(a="1", b="2")
    key = fair.cell.submit("w", queue="a")
    fair.cell.settle()
    fair.reserve(key, cpu="4")
    fair.cell.settle()
    steps = (lambda: fair.cell.see(facts.LocalQueueDeleted(queue=queue("a"))), lambda: fair.local_queue("a"))
    for step in steps:
        step()
        fair.cell.pass_s(INTERVAL_S)
        fair.cell.settle()
        live = fair.cell.state
        restored = fold.restore(live.cell, fold.encode(live))
        assert fold.encode(restored) == fold.encode(live)
        assert restored.index.local_queue_usage == live.index.local_queue_usage


def test_another_weight_reorders_the_offer(fair: FairCell) -> None:
    """At once: the usage stays, what it weighs is another."""
    fair.ready(a="1", b="1")
    for name, cpu in (("a", "2"), ("b", "3")):
        key = fair.cell.submit(f"run-{name}", queue=name)
        fair.cell.settle()
        fair.reserve(key, cpu=cpu)
    fair.cell.submit("next-a", queue="a", created_s=5)
    fair.cell.submit("next-b", queue="b", created_s=6)
    fair.cell.settle()
    assert fair.cell.offers() == ["next-a"]
    before = fair.usage("b")
    fair.local_queue("b", "2")
    fair.cell.settle()
    assert fair.usage("b") == before / 2
    assert fair.cell.offers() == ["next-b"]


def test_switching_it_on_and_off_keeps_everybody_in_line(fair: FairCell) -> None:
    """The configuration changes under a full queue: the order follows and no workload is lost."""
    fair.ready(a="1", b="1")
    busy = fair.cell.submit("busy", queue="a")
    fair.cell.settle()
    fair.reserve(busy)
    fair.cell.submit("a1", queue="a", created_s=1)
    fair.cell.submit("a2", queue="a", created_s=2, cpu="3")
    fair.cell.submit("b1", queue="b", created_s=3)
    fair.cell.settle()
    assert fair.cell.offers() == ["b1"]
    fair.cell.skip(WorkloadKey("team/b1"), "shape", short=("default/cpu",), needs=({"default/cpu": "9"},))
    fair.cell.settle()
    assert fair.cell.offers() == ["a2"], "a1 sleeps with b1: they are of one shape"
    fair.cell.see(facts.ConfigurationObserved(configuration=Configuration()))
    fair.cell.settle()
    assert fair.cell.offers() == ["a1", "a2", "b1"], "another configuration is a new try for all"
    fair.cell.see(facts.ConfigurationObserved(configuration=FAIR))
    fair.cell.settle()
    fair.cell.see(facts.LocalQueueObserved(queue=queue("c"), spec=LocalQueueSpec(cluster_queue="cq")))
    fair.cell.settle()
    assert fair.cell.offers() == ["a1"], "what was used before it was switched on is not known"


@given(st.permutations(["a", "b", "c"]), st.lists(st.sampled_from(["a", "b", "c"]), max_size=6))
def test_the_order_of_usage_does_not_depend_on_unrelated_events(order: list[str], busy: list[str]) -> None:
    """Whichever LocalQueue was seen first, equal usage makes equal order; a restored state has the same."""
    cells = []
    for names in (["a", "b", "c"], order):
        fair = FairCell().ready(**dict.fromkeys(names, "1"))
        for number, name in enumerate(busy):
            key = fair.cell.submit(f"run{number}", queue=name)
            fair.cell.settle()
            fair.reserve(key)
        for name in names:
            fair.cell.submit(f"next-{name}", queue=name, created_s=ord(name))
        fair.cell.settle()
        cells.append(fair)
    first, second = ([*each.cell.offers(), *each.cell.state.index.pending["cq"].in_order()] for each in cells)
    assert first == second
    state = cells[0].cell.state
    restored = fold.restore("main", fold.encode(state))
    assert restored.index.local_queue_usage == state.index.local_queue_usage
    assert restored.index.admitted_usage == state.index.admitted_usage
    assert restored.index.pending["cq"].in_order() == state.index.pending["cq"].in_order()
