"""Where the pods of a pending workload could go, and what keeps them away, on a state at any position."""

from tests.support.history import History
from tests.support.topology_cell import BRIDGE, GPU, QUEUES, RACK, SCHEDULER, gang, host, reserve, topology_cell

from headgate.core.views.explain import Story, explain
from headgate.events import decisions, queueing
from headgate.events.base import Producer
from headgate.events.facts import NodeUsageObserved, WorkloadObserved
from headgate.events.objects import Taint, TopologyRequest

IN_ONE_RACK = TopologyRequest(required=RACK)


def four_hosts() -> History:
    """Two racks of two hosts; the second rack has a host with a taint."""
    taint = Taint(key="maintenance", value="yes", effect="NoSchedule")
    return topology_cell(
        host("b1", "r1", "h1"), host("b1", "r1", "h2"), host("b1", "r2", "h3"), host("b1", "r2", "h4", taints=(taint,))
    )


def told_after(history: History, workload: WorkloadObserved) -> Story:
    """The story of a workload that waits in the queue."""
    history.put(BRIDGE, workload)
    history.put(
        QUEUES,
        queueing.WorkloadQueued(
            workload=workload.workload,
            uid=workload.uid,
            cluster_queue="team-a",
            priority=0,
            queued_at_ms=1,  # type: ignore[arg-type]
            shape="s",  # type: ignore[arg-type]
        ),
    )
    return explain(history.commits, workload.workload)


def test_the_best_domain_of_each_level_and_the_reasons_of_nodes_are_told() -> None:
    """A gang of two in one rack: one rack is half in use, the other has a tainted host."""
    history = four_hosts()
    reserve(history, "train", {"h1": 1})
    places = told_after(history, gang("waits", 2, topology=IN_ONE_RACK)).standing.places
    assert places == (
        "pod set main, flavor gpu: 2 pods, required in one cloud/rack; at most fit 2 in b1 (cloud/block), "
        "1 in b1/r1 (cloud/rack), 1 in b1/r1/h2 (kubernetes.io/hostname)",
        f'nodes of gpu that take none of these pods: resource "{GPU}": 1, taint "maintenance=yes:NoSchedule": 1 (of 4)',
        "it would fit into cloud/rack b1/r1 if enough of these left: a/train (1) (pods there)",
    )


def test_a_gang_that_is_too_large_is_told_so() -> None:
    """Whoever leaves: no rack takes it."""
    history = four_hosts()
    reserve(history, "train", {"h1": 1})
    places = told_after(history, gang("waits", 3, topology=IN_ONE_RACK)).standing.places
    assert places[-1] == (
        "it would not fit without any other workload either: 2 of 3 pods into cloud/rack b1/r1, the largest"
    )


def test_other_pods_do_not_leave_for_a_gang() -> None:
    """They are no workloads: without them it would fit, and that is not promised."""
    history = four_hosts()
    history.put(BRIDGE, NodeUsageObserved(node="h1", requests={GPU: "1"}, pods=1))
    places = told_after(history, gang("waits", 2, topology=IN_ONE_RACK)).standing.places
    assert places[-1].startswith("it would not fit without any other workload either: 1 of 2 pods")


def test_a_preferred_level_is_no_obstacle() -> None:
    """What counts is the number of pods that fit in all."""
    history = four_hosts()
    request = TopologyRequest(preferred=RACK)
    places = told_after(history, gang("waits", 3, topology=request)).standing.places
    assert "3 pods, preferred in one cloud/rack; at most fit 3 in b1" in places[0]
    assert len(places) == 2  # and the tainted host
    reserve(history, "train", {"h1": 1})
    assert explain(history.commits, "a/waits").standing.places[-1] == (
        "it would fit if enough workloads left (1 have pods there)"
    )


def test_in_a_queue_of_topologies_alone_a_workload_without_a_request_goes_anywhere() -> None:
    """As the scheduler places it: its request is implied."""
    places = told_after(four_hosts(), gang("waits", 9)).standing.places
    assert "9 pods, anywhere; at most fit 3 in b1 (cloud/block)" in places[0]


def test_the_story_of_an_admitted_gang_names_its_hosts_and_what_happened_to_them() -> None:
    """Reservation with hosts by pods, pods that may be scheduled, a node that failed and one that came back."""
    history = four_hosts()
    reserve(history, "train", {"h1": 2, "h2": 2, "h3": 1}, gpus=4)
    key, uid = "a/train", "train"
    history.put(
        QUEUES,
        queueing.WorkloadNodeFailed(workload=key, uid=uid, node="h1"),  # type: ignore[arg-type]
        queueing.WorkloadNodeRecovered(workload=key, uid=uid, node="h1"),  # type: ignore[arg-type]
    )
    pods = (decisions.PodsOfDomain(values=("h1",), pods={"a/p1": "u1", "a/p2": "u2"}),)  # type: ignore[dict-item]
    history.put(
        Producer.UNGATER,
        decisions.PodsAssigned(workload=key, uid=uid, pod_set="main", domains=pods),  # type: ignore[arg-type]
    )
    texts = [line.text for line in explain(history.commits, "a/train").lines]
    assert (
        "topology: main on 3 hosts in cloud/block b1 and 2 domains of cloud/rack: "
        "h1, h2 with 2 pods each; h3 with 1 pod" in texts[1]
    )
    assert texts[2:] == [
        "node h1 of its topology assignment has failed: another node is sought for its pods there",
        "node h1 of its topology assignment takes pods again: it is not replaced",
        "2 pods of main may be scheduled, to h1 with 2 pods",
    ]


def test_a_second_pass_is_told_with_its_result() -> None:
    """It fails with Kueue's message until a time, and then assigns hosts anew."""
    history = four_hosts()
    reserve(history, "train", {"h1": 1})
    key, uid = "a/train", "train"
    history.put(QUEUES, queueing.WorkloadNodeFailed(workload=key, uid=uid, node="h1"))  # type: ignore[arg-type]
    told = [explain(history.commits, key).standing.why]
    admission = history.state.workloads[key].admission  # type: ignore[index]
    assert admission is not None
    history.put(
        SCHEDULER,
        decisions.SecondPassFailed(
            workload=key,  # type: ignore[arg-type]
            uid=uid,  # type: ignore[arg-type]
            cluster_queue="team-a",
            message="no room",
            retry_at_ms=1_800_000_000_000,  # type: ignore[arg-type]
        ),
        decided_at=history.position,
    )
    told.append(explain(history.commits, key).standing.why)
    history.put(
        SCHEDULER,
        decisions.TopologyAssigned(
            workload=key,  # type: ignore[arg-type]
            uid=uid,  # type: ignore[arg-type]
            cluster_queue="team-a",
            admission=admission,
            message="assigned",
        ),
        decided_at=history.position,
    )
    assert "; failed under it: h1" in told[0]
    assert told[1].endswith("; no topology domains were found: no room")
    *_, failed, assigned = explain(history.commits, "a/train").lines
    assert failed.text == ("no topology domains were found for its pods; tried again at 2027-01-15T08:00:00.000Z")
    assert failed.message == "no room"
    assert assigned.text == "topology domains assigned anew; topology: main on 1 host: h1 with 1 pod"


def test_many_hosts_are_folded() -> None:
    """Some are named, and how many there are besides."""
    history = topology_cell(*(host("b1", "r1", f"h{number:02}") for number in range(20)))
    reserve(history, "train", {f"h{number:02}": 1 for number in range(20)})
    text = explain(history.commits, "a/train").lines[1].text
    assert text.endswith(
        "topology: main on 20 hosts in cloud/block b1 and cloud/rack r1: "
        "h00, h01, h02, h03, h04, 15 more with 1 pod each"
    )
