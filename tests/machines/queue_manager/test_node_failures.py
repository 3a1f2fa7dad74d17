"""The queue manager and failed nodes: one is recorded, a second one evicts, and one that recovers is taken back."""

from typing import Any

import pytest
from tests.machines.ungater.test_topology_gates import GATES, admission, node
from tests.support.queueing import SCHEDULER, QueueCell

from headgate.core.config import feature_gates
from headgate.core.kubernetes import conditions
from headgate.core.state.tables import Stage
from headgate.events import facts
from headgate.events.base import EventBase
from headgate.events.configuration import Configuration
from headgate.events.decisions import QuotaReserved, TopologyAssigned, WorkloadPreempted
from headgate.events.ids import PodKey, Uid, UnixMs, WorkloadKey
from headgate.events.objects import Pod, PodSpec, ResourceFlavorSpec, Taint, Toleration
from headgate.events.queueing import WorkloadEvicted, WorkloadNodeFailed, WorkloadNodeRecovered

GONE, BARE = facts.NodeDeleted(name="a"), node("a", ready=False, lacks_ready=True)
DOWN = Taint(key="down", effect="NoExecute")
FULL = Taint(key="full", effect="NoSchedule")


def pod(name: str, on: str, **more: Any) -> facts.PodObserved:
    """A pod of the workload that is bound to a node."""
    spec = Pod(
        uid=f"u-{name}",
        created_ms=UnixMs(6),
        workload="team/w",
        topology_aware=True,
        pod_set="main",
        spec=PodSpec(node_name=on),
        **more,
    )
    return facts.PodObserved(pod=PodKey(f"team/{name}"), spec=spec)


def ended(name: str) -> facts.PodDeleted:
    return facts.PodDeleted(pod=PodKey(f"team/{name}"), uid=Uid(f"u-{name}"))


class Placed(QueueCell):
    """A workload `team/w`, admitted on the nodes a and b."""

    def __init__(
        self, *, off: tuple[str, ...] = (), on: tuple[str, ...] = (), tolerations: tuple[Toleration, ...] = ()
    ) -> None:
        super().__init__()
        self.ready()
        gates = GATES | dict.fromkeys(off, False) | dict.fromkeys(on, True)
        self.see(
            facts.ConfigurationObserved(configuration=Configuration(feature_gates=gates)),
            facts.ResourceFlavorObserved(name="default", spec=ResourceFlavorSpec(tolerations=tolerations)),
            node("a"),
            node("b"),
            node("c"),
        )
        self.key = self.submit("w")
        self.settle()
        self.place("a:1 b:1")

    def place(self, places: str) -> None:
        """Reserve and admit it on these nodes."""
        held = admission(places, 2)
        reserved = QuotaReserved(
            workload=self.key, uid=self[self.key].uid, cluster_queue="cq", admission=held, message="m"
        )
        self.cycle_of(reserved, self.admitted(self.key))
        self.settle()

    def seen(self, *events: EventBase) -> list[EventBase]:
        """What the queue manager decides after these facts."""
        self.see(*events)
        return self.settle()

    @property
    def failed(self) -> tuple[str, ...]:
        return self[self.key].unhealthy_nodes


def failed(name: str) -> WorkloadNodeFailed:
    return WorkloadNodeFailed(workload=WorkloadKey("team/w"), uid=Uid("uid-w"), node=name)


def recovered(name: str) -> WorkloadNodeRecovered:
    return WorkloadNodeRecovered(workload=WorkloadKey("team/w"), uid=Uid("uid-w"), node=name)


# --- when a node has failed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [GONE, BARE])
def test_a_node_that_is_gone_or_has_no_ready_condition_has_failed_at_once(change: EventBase) -> None:
    """Whatever the log still shows to run there."""
    placed = Placed()
    assert placed.seen(pod("p", "a"), change) == [failed("a")]
    assert placed.failed == ("a",)


def test_a_node_of_an_assignment_that_was_never_there_has_failed() -> None:
    """As in a status that was taken over from a cluster that had it. One is to be replaced, a second one evicts."""
    placed = Placed()
    placed.see(
        TopologyAssigned(
            workload=placed.key,
            uid=placed[placed.key].uid,
            cluster_queue="cq",
            admission=admission("x:1 y:1", 2),
            message="m",
        )
    )
    first, second = placed.settle()
    assert first == failed("x")
    assert isinstance(second, WorkloadEvicted)
    assert (second.reason, second.message.rpartition(": ")[2]) == ("NodeFailures", "x, y")


@pytest.mark.parametrize("taint", [None, DOWN, FULL])
def test_another_node_has_failed_when_no_pod_of_the_workload_is_left_running_there(taint: Taint | None) -> None:
    """It is not ready, or keeps such pods away: those that run may go on; one that terminates does not run."""
    down = node("a", taints=(taint,)) if taint is not None else node("a", ready=False, not_ready_since_ms=UnixMs(1))
    placed = Placed()
    assert placed.seen(pod("p", "a"), pod("q", "a"), down) == []
    assert placed.seen(ended("p")) == []
    assert placed.seen(pod("q", "a", deleting=True)) == [failed("a")]


def test_a_pod_of_another_node_or_workload_does_not_count() -> None:
    """Nothing of this workload runs on the node."""
    placed = Placed()
    other = facts.PodObserved(
        pod=PodKey("team/x"),
        spec=Pod(uid="x", created_ms=UnixMs(6), workload="team/x", topology_aware=True, spec=PodSpec(node_name="a")),
    )
    assert placed.seen(pod("q", "b"), other, node("a", taints=(DOWN,))) == [failed("a")]


@pytest.mark.parametrize(
    ("tolerates", "fails"),
    [
        (Toleration(key="down", operator="Exists"), False),
        (Toleration(key="down", operator="Exists", toleration_seconds=300), True),
        (Toleration(key="other", operator="Exists"), True),
    ],
)
def test_a_taint_that_is_tolerated_for_good_is_no_failure(tolerates: Toleration, *, fails: bool) -> None:
    """Tolerations of the flavor count as the pods' own; one with an end does not last."""
    placed = Placed(tolerations=(tolerates,))
    assert placed.seen(node("a", taints=(DOWN,))) == ([failed("a")] if fails else [])


def test_a_taint_that_only_advises_is_no_failure() -> None:
    """PreferNoSchedule."""
    assert Placed().seen(node("a", taints=(Taint(key="x", effect="PreferNoSchedule"),))) == []


def test_a_node_that_the_workload_is_not_assigned_to_may_fail() -> None:
    """It does not concern it."""
    assert Placed().seen(facts.NodeDeleted(name="c"), node("c", taints=(DOWN,))) == []


# --- what follows --------------------------------------------------------------------------------------------------


def test_a_second_node_that_fails_evicts_the_workload() -> None:
    """With Kueue's reason and message; its failed nodes are forgotten."""
    placed = Placed()
    placed.seen(GONE)
    (evicted,) = placed.seen(facts.NodeDeleted(name="b"))[:1]
    assert isinstance(evicted, WorkloadEvicted)
    said = "Workload eviction triggered due to multiple TAS assigned node failures, including: a, b"
    assert (evicted.reason, evicted.message) == ("NodeFailures", said)
    assert placed.condition(placed.key, conditions.EVICTED) == ("True", "NodeFailures", said)
    assert placed.failed == ()


def test_two_nodes_that_fail_at_once_evict_too() -> None:
    """One after the other, in the order of their names."""
    placed = Placed()
    said = placed.seen(facts.NodeDeleted(name="b"), GONE)
    assert said[0] == failed("a")
    assert isinstance(said[1], WorkloadEvicted)
    assert placed.stage(placed.key) in {Stage.EVICTED, Stage.NEW, Stage.QUEUED}


def test_a_node_that_recovers_before_it_is_replaced_is_taken_back() -> None:
    """Then the failure of another one is a first one again."""
    placed = Placed()
    assert placed.seen(GONE) == [failed("a")]
    assert placed.seen(node("a")) == [recovered("a")]
    assert placed.failed == ()
    assert placed.seen(facts.NodeDeleted(name="b")) == [failed("b")]


def test_a_workload_that_is_preempted_meanwhile_has_no_failed_nodes() -> None:
    """It gets other nodes when it is admitted again."""
    placed = Placed()
    placed.seen(GONE)
    more: dict[str, Any] = {"cluster_queue": "cq", "reason": "InClusterQueue", "message": "m"}
    by: dict[str, Any] = {"preemptor": WorkloadKey("team/x"), "preemptor_uid": Uid("x")}
    placed.put(SCHEDULER, WorkloadPreempted(workload=placed.key, uid=placed[placed.key].uid, **by, **more))
    assert placed.failed == ()
    assert not any(isinstance(event, WorkloadNodeFailed) for event in placed.settle())


def test_a_new_queue_manager_finds_what_a_crashed_one_left() -> None:
    """The node failed while none was running."""
    placed = Placed()
    placed.see(pod("p", "b"), GONE)
    placed.restart()
    assert placed.settle() == [failed("a")]
    placed.restart()
    assert placed.settle() == []


def test_an_unlisted_node_is_not_taken_for_a_missing_one() -> None:
    """In a term that has not shown every node yet."""
    placed = Placed()
    placed.see(GONE)
    placed.state.relisting = True
    assert placed.settle() == []


# --- feature gates -------------------------------------------------------------------------------------------------


def test_without_node_replacement_no_failure_is_recorded() -> None:
    """TASFailedNodeReplacement."""
    assert Placed(off=(feature_gates.TAS_FAILED_NODE_REPLACEMENT,)).seen(GONE) == []


def test_without_replacement_on_taints_they_do_not_count() -> None:
    """TASReplaceNodeOnNodeTaints."""
    placed = Placed(off=(feature_gates.TAS_REPLACE_ON_TAINTS,))
    assert placed.seen(node("a", taints=(DOWN,))) == []
    assert placed.seen(node("a", ready=False, not_ready_since_ms=UnixMs(1))) == [failed("a")]


def test_without_replacement_on_termination_a_taint_counts_at_once_and_not_ready_after_30_seconds() -> None:
    """TASReplaceNodeOnPodTermination: whatever runs there."""
    placed = Placed(off=(feature_gates.TAS_REPLACE_ON_POD_TERMINATION,))
    assert placed.seen(pod("p", "a"), node("a", ready=False, not_ready_since_ms=placed.now_ms)) == []
    assert placed.wake_at == placed.now_ms + 30_000
    placed.pass_s(30)
    assert placed.settle() == [failed("a")]
    other = Placed(off=(feature_gates.TAS_REPLACE_ON_POD_TERMINATION,))
    assert other.seen(pod("p", "a"), node("a", taints=(DOWN,))) == [failed("a")]


def test_a_node_that_is_not_ready_for_30_seconds_has_failed_where_that_counts() -> None:
    """TASReplaceNodeDueToNotReadyOverFixedTime: also if a pod runs there."""
    placed = Placed(on=(feature_gates.TAS_REPLACE_NOT_READY_FIXED_TIME,))
    assert placed.seen(pod("p", "a"), node("a", ready=False, not_ready_since_ms=placed.now_ms)) == []
    placed.pass_s(30)
    assert placed.settle() == [failed("a")]
