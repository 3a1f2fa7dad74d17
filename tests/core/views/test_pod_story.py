"""Histories of single pods, on logs written by hand: two nodes of 4 CPUs, with whoever is on them."""

from typing import Any

import pytest
from tests.support import placement
from tests.support.history import History
from tests.support.placement import node

from headgate.core import fold
from headgate.core.state.manifests import encoded
from headgate.core.state.tables import State
from headgate.core.views.lookup import HistorySubject, Lookup, UnknownWorkloadError
from headgate.core.views.pod_story import PodExplainer, PodStory, answered
from headgate.events import decisions, effects, facts
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit
from headgate.events.ids import JobKey, PodKey, Uid, UnixMs
from headgate.events.objects import Job

BRIDGE, SCHEDULER, BINDER = Producer.INFORMER_BRIDGE, Producer.SCHEDULER, Producer.BINDER
CONFIGURATION: dict[str, Any] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"schedulerName": "default-scheduler"}],
}
P, UID = PodKey("ns/p"), Uid("uid-p")


def pod(name: str, *, on: str = "", spec: dict[str, Any] | None = None, **requests: str) -> dict[str, Any]:
    """A pod of the default scheduler, which the API server writes into pods that name none."""
    return placement.pod(
        name, on=on, spec={"schedulerName": "default-scheduler", **(spec or {})}, labels=None, **requests
    )


def observed(manifest: dict[str, Any], resource: str = "pods") -> facts.ObjectObserved:
    metadata = manifest["metadata"]
    name = "/".join(metadata[part] for part in ("namespace", "name") if part in metadata)
    return facts.ObjectObserved(resource=resource, name=name, object=encoded(manifest))


def a_cluster(*pods: dict[str, Any]) -> History:
    """Nodes `a` and `b`."""
    history = History()
    history.put(BRIDGE, observed(node("a"), "nodes"), observed(node("b"), "nodes"), *map(observed, pods))
    history.put(BRIDGE, facts.SchedulerConfigurationObserved(document=CONFIGURATION))
    return history


def placed(key: PodKey, on: str) -> decisions.PodPlaced:
    return decisions.PodPlaced(pod=key, uid=Uid(f"uid-{key.partition('/')[2]}"), node=on)


def state_of(commits: list[LoggedCommit], position: int) -> State:
    state = fold.new_state("main")
    for logged in commits:
        if logged.seq <= position:
            fold.apply(state, logged)
    return state


def told(history: History, key: PodKey = P) -> PodStory:
    """The story with its answer, as the command line puts them together."""
    explainer = PodExplainer(fold.new_state("main"), key)
    for logged in history.commits:
        explainer.feed(logged)
    decided = explainer.decided
    at = explainer.state if decided is None else state_of(history.commits, decided.decided_at)
    return answered(explainer.story(), at, decided)


def test_a_bound_pod_is_answered_as_of_its_decision() -> None:
    """On `b`, because `a` was full then; by the end of the log `a` is free again."""
    history = a_cluster(pod("big", on="a", cpu="4"), pod("p", cpu="2"))
    at = history.position
    history.put(SCHEDULER, placed(P, "b"), decided_at=at)
    history.put(BINDER, effects.PodBound(pod=P, uid=UID, node="b"))
    history.put(BRIDGE, observed(pod("p", on="b", cpu="2")), facts.ObjectDeleted(resource="pods", name="ns/big"))
    story = told(history)
    assert [(line.event, line.text) for line in story.lines] == [
        ("object.observed", "first seen: for scheduler default-scheduler, priority 0, without a node"),
        ("pod.placed", "pod was given node b"),
        ("pod.bound", "pod was bound to node b"),
        ("object.observed", "its object shows node b"),
    ]
    assert story.lines[1].waited_for == "a node with room"
    assert not any(line.detail for line in story.lines)
    assert (story.standing.stage, story.standing.why) == ("bound", "it is on node b")
    assert story.answer is not None
    assert (story.answer.position, story.answer.node, story.answer.feasible) == (at, "b", 1)
    assert [(each.plugin, each.reason, each.nodes) for each in story.answer.refused] == [
        ("NodeResourcesFit", "Insufficient cpu", 1)
    ]


def test_decisions_before_it_in_the_commit_count() -> None:
    """Both were decided at one position; the first has taken all of `a`."""
    history = a_cluster(pod("first", cpu="4"), pod("p", cpu="1"))
    history.put(SCHEDULER, placed(PodKey("ns/first"), "a"), placed(P, "b"), decided_at=history.position)
    answer = told(history).answer
    assert answer is not None
    assert (answer.node, [each.node for each in answer.best]) == ("b", ["b"])


def test_a_pending_pod_is_answered_now() -> None:
    """The verdict said no; since then `a` has become free, and the answer is of the end of the log."""
    history = a_cluster(pod("x", on="a", cpu="4"), pod("y", on="b", cpu="4"), pod("p", cpu="2"))
    refusals = (
        decisions.PluginRefusal(plugin="NodeResourcesFit", reason="Insufficient cpu", nodes=2),
        decisions.PluginRefusal(plugin="Other", reason="no", nodes=0),
    )
    history.put(
        SCHEDULER,
        decisions.PodUnschedulable(pod=P, uid=UID, reason="Unschedulable", message="0/2 nodes", refusals=refusals),
        decided_at=history.position,
    )
    history.put(BRIDGE, facts.ObjectDeleted(resource="pods", name="ns/x"))
    story = told(history)
    assert story.lines[-1].text == (
        "pod fits on no node: NodeResourcesFit refuses 2 nodes (Insufficient cpu), Other refuses the pod (no)"
    )
    assert (story.standing.stage, story.standing.why) == ("pending", "Unschedulable: 0/2 nodes")
    assert story.decided is None
    assert story.answer is not None
    assert (story.answer.position, story.answer.node) == (history.position, "a")


def in_a_gang(name: str) -> dict[str, Any]:
    return pod(name, cpu="4", spec={"schedulingGroup": {"podGroupName": "gang"}})


def gang_of(count_min: int) -> facts.ObjectObserved:
    policy = {"gang": {"minCount": count_min}}
    metadata = {"name": "gang", "namespace": "ns", "uid": "uid-gang"}
    return observed({"metadata": metadata, "spec": {"schedulingPolicy": policy}}, "podgroups")


def test_a_pod_that_waits_for_the_others_of_its_gang_says_so() -> None:
    """First for its PodGroup, then for pods of it; it is not asked where it could go before it would be tried."""
    history = a_cluster(in_a_gang("p"))
    assert told(history).unanswered == (
        'waiting for pods\'s pod group "gang" to appear in scheduling queue (PodGroup ns/gang, 1 pods)'
    )
    history.put(BRIDGE, gang_of(2))
    assert told(history).unanswered == (
        "waiting for minCount pods from a gang to appear in scheduling queue (PodGroup ns/gang, 1 pods)"
    )


def test_an_attempt_of_a_gang_is_in_the_stories_of_its_pods() -> None:
    """How many were tried, and what became of them."""
    history = a_cluster(in_a_gang("p"), in_a_gang("q"))
    history.put(BRIDGE, gang_of(2))
    tried = decisions.PodGroupTried(group="ns/gang", uid=Uid("uid-gang"), pods=(P, PodKey("ns/q")), scheduled=True)
    history.put(SCHEDULER, tried, placed(P, "a"), placed(PodKey("ns/q"), "b"), decided_at=history.position)
    assert [line.text for line in told(history).lines[-2:]] == [
        "tried with the 2 pods of PodGroup ns/gang: placed",
        "pod was given node a",
    ]


def test_preemption_is_in_the_stories_of_both_pods() -> None:
    """Who goes for whom, and whether the API server let it go."""
    history = a_cluster(pod("low", on="a", cpu="4"), pod("y", on="b", cpu="4"), pod("p", cpu="2", spec={"priority": 9}))
    low, low_uid = PodKey("ns/low"), Uid("uid-low")
    victim = decisions.Victim(pod=low, uid=low_uid)
    history.put(
        SCHEDULER,
        decisions.PodUnschedulable(pod=P, uid=UID, reason="Unschedulable", message="0/2 nodes"),
        decisions.PodNominated(pod=P, uid=UID, node="a", victims=(victim,)),
        decided_at=history.position,
    )
    waiting = told(history)
    assert waiting.lines[-1].text == "pod is to get node a once these have gone: ns/low"
    assert waiting.standing.would_change == ("node a, to which it is nominated, gets room",)
    history.put(BINDER, effects.PodPreempted(pod=low, uid=low_uid, by=P))
    assert told(history).lines[-1].text == "pod ns/low goes for it"
    gone = told(history, low)
    assert [line.text for line in gone.lines[1:]] == [
        "pod is to go, so that pod ns/p gets node a",
        "pod has to go for pod ns/p",
    ]
    assert gone.standing.stage == "preempted"
    assert (gone.answer, gone.unanswered) == (None, "it is on node a, and no decision in the log gave it that one")


def test_a_verdict_and_its_nomination_are_one_attempt() -> None:
    """A pod that another scheduler has bound since: the answer is that of the attempt, with its victims."""
    history = a_cluster(pod("low", on="a", cpu="4"), pod("y", on="b", cpu="4", spec={"priority": 99}))
    history.put(BRIDGE, observed(pod("p", cpu="2", spec={"priority": 9})))
    victim = decisions.Victim(pod=PodKey("ns/low"), uid=Uid("uid-low"))
    logged = history.put(
        SCHEDULER,
        decisions.PodUnschedulable(pod=P, uid=UID, reason="Unschedulable", message="0/2 nodes"),
        decisions.PodNominated(pod=P, uid=UID, node="a", victims=(victim,)),
        decided_at=history.position,
    )
    history.put(BRIDGE, observed(pod("p", on="b", cpu="2", spec={"priority": 9})))
    story = told(history)
    assert story.decided is not None
    assert (story.decided.seq, story.decided.index) == (logged.seq, 0)
    assert story.answer is not None
    assert (story.answer.nominated, [each.pod for each in story.answer.victims]) == ("a", ["ns/low"])


def test_a_refused_binding_and_a_withdrawal_are_told() -> None:
    """The pod is pending again after each."""
    history = a_cluster(pod("p", cpu="2"))
    history.put(SCHEDULER, placed(P, "a"), decided_at=history.position)
    assert told(history).standing.why == "it is to get node a, and waits for its binding"
    history.put(
        BINDER, effects.PodBindRejected(pod=P, uid=UID, node="a", code=409, reason="Conflict", message="too late")
    )
    history.put(SCHEDULER, placed(P, "b"), decided_at=history.position)
    history.put(
        SCHEDULER,
        decisions.PodWithdrawn(pod=P, uid=UID, node="b", reason="SchedulerError", message="its volume is gone"),
        decided_at=history.position,
    )
    story = told(history)
    assert [line.text for line in story.lines if line.reason] == [
        "the API server refused node a (409)",
        "pod is not to be bound to node b after all",
    ]
    assert story.standing.why == "SchedulerError: its volume is gone"
    assert story.answer is not None
    assert story.answer.node == "a"


def test_a_later_pod_of_the_same_name_has_its_own_decision() -> None:
    """What was decided for the one before it is in the lines, not in the answer."""
    history = a_cluster(pod("p", cpu="2"))
    history.put(SCHEDULER, placed(P, "a"), decided_at=history.position)
    history.put(BRIDGE, facts.ObjectDeleted(resource="pods", name="ns/p"))
    assert told(history).answer is not None
    later = pod("p", on="b", cpu="2")
    later["metadata"]["uid"] = "later"
    history.put(BRIDGE, observed(later))
    story = told(history)
    assert [line.text[:10] for line in story.lines if line.event == "object.observed"] == ["first seen"] * 2
    assert (story.answer, story.unanswered) == (None, "it is on node b, and no decision in the log gave it that one")


@pytest.mark.parametrize(
    ("spec", "document", "words"),
    [
        ({"schedulerName": "other"}, CONFIGURATION, "its scheduler other is none of the KubeSchedulerConfiguration's"),
        ({"containers": 5}, CONFIGURATION, "its object cannot be read: Expected `array`"),
        ({}, {**CONFIGURATION, "profiles": 5}, "cannot be used: "),
    ],
)
def test_why_there_is_no_answer(spec: dict[str, Any], document: dict[str, Any], words: str) -> None:
    """Where the scheduler would not try the pod, the story says why."""
    history = History()
    history.put(BRIDGE, observed(node("a"), "nodes"), observed(pod("p", cpu="2", spec=spec)))
    history.put(BRIDGE, facts.SchedulerConfigurationObserved(document=document))
    story = told(history)
    assert story.answer is None
    assert words in story.unanswered


def test_a_gated_pod_says_so() -> None:
    """In its status and in the answer."""
    story = told(a_cluster(pod("p", cpu="2", spec={"schedulingGates": [{"name": "g"}]})))
    assert (story.standing.stage, story.standing.why) == ("gated", "its scheduling gates are g")
    assert story.answer is not None
    assert story.answer.reason == "SchedulingGated"


def test_a_workload_or_job_of_the_name_wins() -> None:
    """The pod is asked for with `pod/`; pods alone need no prefix."""
    history = a_cluster(pod("p"), pod("train"))
    history.put(BRIDGE, facts.JobObserved(job=JobKey("ns/train"), spec=Job(uid="j", created_ms=UnixMs(1))))
    by_log = Lookup()
    for logged in history.commits:
        by_log.feed(logged)
    for lookup in (by_log, Lookup.of(history.state)):
        job = lookup.find_with_pods("ns/train")
        assert (job.job, job.pod, job.is_pod) == ("batch/Job/ns/train", "ns/train", False)
        for name in ("pod/train", "pod/ns/train"):
            assert lookup.find_with_pods(name) == HistorySubject(pod=PodKey("ns/train"))
        for name in ("p", "ns/p", "pod/p"):
            assert lookup.find_with_pods(name) == HistorySubject(pod=P)
        with pytest.raises(UnknownWorkloadError, match="no workload, job or pod 'ns/q' in this log"):
            lookup.find_with_pods("ns/q")
        with pytest.raises(UnknownWorkloadError, match="no workload or job 'ns/p'"):
            lookup.find("ns/p")


def test_pods_of_several_namespaces_need_one() -> None:
    """The error names them."""
    other = pod("p")
    other["metadata"]["namespace"] = "zone"
    lookup = Lookup.of(a_cluster(pod("p"), other).state)
    with pytest.raises(UnknownWorkloadError, match=r"'p' is in several namespaces \(ns, zone\)"):
        lookup.find_with_pods("p")
    assert lookup.find_with_pods("p", "zone").pod == "zone/p"
