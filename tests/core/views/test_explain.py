"""Explanations of a workload, on logs written by hand."""

from typing import Any, Literal

import pytest
from tests.support.history import History

from headgate.core import fold
from headgate.core.views.explain import (
    Explainer,
    HistorySubject,
    Lookup,
    Story,
    UnknownWorkloadError,
    condensed,
    explain,
)
from headgate.events import decisions, effects, facts, queueing
from headgate.events.base import Producer
from headgate.events.configuration import Configuration
from headgate.events.ids import JobKey, LocalQueueKey, PodKey, Seq, Shape, Uid, UnixMs, WorkloadKey
from headgate.events.objects import (
    Admission,
    ClusterQueueSpec,
    FlavorQuotas,
    Job,
    LocalQueueSpec,
    OwnerReference,
    Pod,
    PodSet,
    PodSetAssignment,
    ResourceFlavorSpec,
    ResourceGroup,
    ResourceQuota,
    WorkloadSpec,
)
from headgate.events.registry import Event

BRIDGE, QUEUES, SCHEDULER = Producer.INFORMER_BRIDGE, Producer.QUEUE_MANAGER, Producer.SCHEDULER
SHORT = ("on-demand/cpu",)
NO_FIT = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor on-demand, 1 more needed"


def queue(strategy: str = "BestEffortFIFO") -> facts.ClusterQueueObserved:
    quota = ResourceQuota(name="cpu", nominal_quota="2")
    group = ResourceGroup(covered_resources=("cpu",), flavors=(FlavorQuotas(name="on-demand", resources=(quota,)),))
    return facts.ClusterQueueObserved(
        name="team-a", spec=ClusterQueueSpec(resource_groups=(group,), queueing_strategy=strategy)
    )


def a_cell(strategy: str = "BestEffortFIFO") -> History:
    history = History()
    history.put(
        BRIDGE,
        facts.NamespaceObserved(name="a"),
        facts.ResourceFlavorObserved(name="on-demand", spec=ResourceFlavorSpec()),
        queue(strategy),
        facts.LocalQueueObserved(queue=LocalQueueKey("a/main"), spec=LocalQueueSpec(cluster_queue="team-a")),
        facts.InformersSynced(resources=("jobs",)),
    )
    return history


def job_of(name: str, **fields: object) -> facts.JobObserved:
    job = Job(uid=f"uid-{name}", created_ms=UnixMs(1), queue_name="main", suspended=True)
    values = {field: getattr(job, field) for field in job.__struct_fields__} | fields
    return facts.JobObserved(job=JobKey(f"a/{name}"), spec=Job(**values))


def workload_of(name: str) -> facts.WorkloadObserved:
    owner = OwnerReference(api_version="batch/v1", kind="Job", name=name, uid=f"uid-{name}")
    spec = WorkloadSpec(queue_name="main", pod_sets=(PodSet(count=2),))
    return facts.WorkloadObserved(
        workload=WorkloadKey(f"a/job-{name}"), uid=Uid(f"w-{name}"), created_ms=UnixMs(1), spec=spec, owner=owner
    )


def queued(name: str, at_ms: int = 1, shape: str = "s") -> queueing.WorkloadQueued:
    return queueing.WorkloadQueued(
        workload=WorkloadKey(f"a/job-{name}"),
        uid=Uid(f"w-{name}"),
        cluster_queue="team-a",
        priority=0,
        queued_at_ms=UnixMs(at_ms),
        shape=Shape(shape),
    )


def offered(*names: str) -> queueing.HeadsOffered:
    heads = (
        queueing.Head(cluster_queue="team-a", workload=WorkloadKey(f"a/job-{name}"), uid=Uid(f"w-{name}"))
        for name in names
    )
    return queueing.HeadsOffered(heads=tuple(heads))


def skipped(name: str, scope: Literal["immediate", "shape", "queue"] = "shape") -> decisions.WorkloadSkipped:
    return decisions.WorkloadSkipped(
        workload=WorkloadKey(f"a/job-{name}"), uid=Uid(f"w-{name}"), cluster_queue="team-a", status="notNominated",
        requeue_reason="NoFit", scope=scope, reason="WaitingForQuota", message=NO_FIT, short=SHORT,
    )  # fmt: skip


def parked(name: str, scope: Literal["shape", "queue"] = "shape") -> queueing.WorkloadParked:
    return queueing.WorkloadParked(
        workload=WorkloadKey(f"a/job-{name}"),
        uid=Uid(f"w-{name}"),
        cluster_queue="team-a",
        scope=scope,
        reason="WaitingForQuota",
        message=NO_FIT,
        wake=(queueing.QuotaFreed(tree="ClusterQueue/team-a", flavor_resources=SHORT),),
    )


def reserved(name: str) -> tuple[decisions.QuotaReserved, decisions.WorkloadAdmitted]:
    assignment = PodSetAssignment(flavors={"cpu": "on-demand"}, resource_usage={"cpu": "2"}, count=2)
    ids: dict[str, Any] = {"workload": f"a/job-{name}", "uid": f"w-{name}", "cluster_queue": "team-a"}
    admission = Admission(cluster_queue="team-a", pod_set_assignments=(assignment,))
    return (
        decisions.QuotaReserved(**ids, admission=admission, message="Quota reserved in ClusterQueue team-a"),
        decisions.WorkloadAdmitted(**ids, message="The workload is admitted"),
    )


def cycle(history: History, *events: Event) -> None:
    number = history.state.cycle + 1
    at = history.position
    history.put(SCHEDULER, decisions.CycleDecided(cycle=number, decided_at=Seq(at)), *events, decided_at=at)


def tags(story: Story) -> list[str]:
    return [line.event for line in story.lines]


def life_of_two() -> History:
    """`first` runs and finishes; `second`, of another shape, has to wait for it; `third` is as `second`."""
    history = a_cell()
    history.put(BRIDGE, job_of("first"), job_of("second"), job_of("third"))
    for name in ("first", "second", "third"):
        history.put(
            BRIDGE,
            effects.WorkloadCreated(
                workload=WorkloadKey(f"a/job-{name}"), job=JobKey(f"a/{name}"), job_uid=Uid(f"uid-{name}")
            ),
        )
    history.put(BRIDGE, workload_of("first"), workload_of("second"), workload_of("third"))
    history.put(QUEUES, queued("first", 1, "s1"), queued("second", 2), queued("third", 3))
    history.put(QUEUES, offered("first", "second", "third"))
    cycle(history, *reserved("first"))
    cycle(history, skipped("second"))
    history.put(QUEUES, parked("second"))
    history.put(
        Producer.UNGATER,
        effects.JobStarted(
            job=JobKey("batch/Job/a/first"),
            job_uid=Uid("uid-first"),
            workload=WorkloadKey("a/job-first"),
            workload_uid=Uid("w-first"),
        ),
    )
    history.put(BRIDGE, job_of("first", suspended=False, finished="Complete"))
    done = queueing.WorkloadFinished(
        workload=WorkloadKey("a/job-first"), uid=Uid("w-first"), reason="Succeeded", message="done"
    )
    freed_at = history.put(QUEUES, done).seq
    history.put(
        QUEUES,
        queueing.WorkloadWoken(
            workload=WorkloadKey("a/job-second"),
            uid=Uid("w-second"),
            cluster_queue="team-a",
            by="a/job-first finished",
            by_position=freed_at,
            scope="shape",
            shape=Shape("s"),
        ),
        offered("second", "third"),
    )
    cycle(history, *reserved("second"))
    return history


def test_a_story_tells_each_step_with_position_process_and_reason() -> None:
    """From the Job's appearance to its admission nothing is left out, in the log's order."""
    story = explain(life_of_two().commits, "second")
    assert tags(story) == [
        "job.observed",
        "workload.created",
        "workload.observed",
        "workload.queued",
        "heads.offered",
        "workload.skipped",
        "workload.parked",
        "workload.woken",
        "heads.offered",
        "workload.quota_reserved",
        "workload.admitted",
    ]
    assert [line.position for line in story.lines] == sorted(line.position for line in story.lines)
    skipped_line = story.lines[5]
    assert skipped_line.producer == "scheduler"
    assert skipped_line.message == NO_FIT
    assert "on-demand/cpu" in skipped_line.text


def test_a_wait_is_told_with_what_it_was_for_and_how_long() -> None:
    """The line of waking has its time asleep, that of the reservation its time in the queue."""
    history = life_of_two()
    by_event = {line.event: line for line in explain(history.commits, "a/second").lines}
    woken, reservation = by_event["workload.woken"], by_event["workload.quota_reserved"]
    slept_ms = woken.time_ms - by_event["workload.parked"].time_ms
    assert woken.waited_ms == slept_ms > 0
    assert "on-demand/cpu (2 of 2 in use)" in woken.waited_for
    assert reservation.waited_ms == reservation.time_ms - by_event["workload.queued"].time_ms
    assert "a/job-first finished" in woken.text


def test_one_that_sleeps_with_its_shape_is_told_who_put_it_to_sleep_and_who_woke_it() -> None:
    """`third` was never decided: its events name `second`, whose shape it shares."""
    story = explain(life_of_two().commits, "third")
    slept = next(line for line in story.lines if line.event == "workload.parked")
    assert slept.about == "a/job-second"
    assert "a/job-second, with the same scheduling hash" in slept.text
    assert next(line for line in story.lines if line.event == "workload.skipped").text.startswith("taken back")
    assert next(line for line in story.lines if line.event == "workload.woken").waited_ms is not None
    assert story.standing.stage == "Offered"


def test_one_that_queues_into_a_sleeping_shape_is_told_so_at_once() -> None:
    """It never was awake, so the line of its queueing has what it waits for, and so has the present state."""
    history = a_cell()
    history.put(BRIDGE, workload_of("first"), workload_of("late"))
    history.put(QUEUES, queued("first"), offered("first"))
    cycle(history, skipped("first"))
    history.put(QUEUES, parked("first"))
    history.put(QUEUES, queued("late", 9))
    story = explain(history.commits, "job-late")
    line = story.lines[-1]
    assert line.event == "workload.queued"
    assert "because a/job-first was not admitted" in line.text
    assert story.standing.stage == "Queued"
    assert NO_FIT in story.standing.why
    assert story.standing.would_change == (
        "quota of on-demand/cpu (0 of 2 in use) to be freed or raised in ClusterQueue team-a",
    )


def test_one_behind_a_blocked_strict_head_is_told_who_blocks_it() -> None:
    """In a StrictFIFO queue the head's wait is everybody's wait."""
    history = a_cell("StrictFIFO")
    history.put(BRIDGE, workload_of("head"), workload_of("behind"))
    history.put(QUEUES, queued("head", 1, "s1"), queued("behind", 2, "s2"), offered("head", "behind"))
    cycle(history, skipped("head", "queue"))
    history.put(QUEUES, parked("head", "queue"))
    story = explain(history.commits, "behind")
    assert any(
        "a/job-head, the head of the queue," in line.text for line in story.lines if line.event == "workload.parked"
    )
    assert "(decided for a/job-head)" in story.standing.why
    history.put(
        QUEUES,
        queueing.WorkloadWoken(
            workload=WorkloadKey("a/job-head"),
            uid=Uid("w-head"),
            cluster_queue="team-a",
            by="quota",
            by_position=Seq(1),
            scope="queue",
        ),
    )
    story = explain(history.commits, "behind")
    assert story.lines[-1].event == "workload.woken"
    assert "position 2 of 2" in story.standing.why


def test_the_same_verdict_again_and_again_is_one_line() -> None:
    """A head that is tried in every cycle does not drown its story."""
    history = a_cell()
    history.put(BRIDGE, workload_of("w"))
    history.put(QUEUES, queued("w"), offered("w"))
    for _ in range(5):
        cycle(history, skipped("w", "immediate"))
    line = explain(history.commits, "job-w").lines[-1]
    assert line.times == 5
    assert line.until is not None
    assert line.until.seq == history.position


def test_an_event_that_came_too_late_is_told_as_such() -> None:
    """A park that crossed a reservation changed nothing, and the explanation does not report that it did."""
    history = a_cell()
    history.put(BRIDGE, workload_of("w"))
    history.put(QUEUES, queued("w"), offered("w"))
    cycle(history, *reserved("w"))
    history.put(QUEUES, parked("w"))
    story = explain(history.commits, "job-w")
    assert story.lines[-1].detail
    assert "too late" in story.lines[-1].text
    assert story.standing.stage == "Admitted"


def test_pods_of_the_job_are_in_its_story() -> None:
    """Placement and binding are shown for pods that belong to the Job, and for no others."""
    history = a_cell()
    history.put(BRIDGE, job_of("w"), workload_of("w"))
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="w", uid="uid-w")
    history.put(
        BRIDGE,
        facts.PodObserved(pod=PodKey("a/w-1"), spec=Pod(uid="p1", created_ms=UnixMs(1), owner=owner)),
        facts.PodObserved(pod=PodKey("a/other"), spec=Pod(uid="p2", created_ms=UnixMs(1))),
    )
    for pod, uid in (("a/w-1", "p1"), ("a/other", "p2")):
        history.put(Producer.BINDER, decisions.PodPlaced(pod=PodKey(pod), uid=Uid(uid), node="n1"))
        history.put(Producer.BINDER, effects.PodBound(pod=PodKey(pod), uid=Uid(uid), node="n1"))
    lines = [line for line in explain(history.commits, "w").lines if line.event.startswith("pod.")]
    assert [line.event for line in lines] == ["pod.observed", "pod.placed", "pod.bound"]
    assert lines[-1].waited_for == "the API server to bind it"


def test_why_a_pod_waits_for_a_node_is_in_the_story_of_its_job() -> None:
    """With the message of the verdict, and the pods that have to go for it."""
    history = a_cell()
    history.put(BRIDGE, job_of("w"), workload_of("w"))
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="w", uid="uid-w")
    pod, uid = PodKey("a/w-1"), Uid("p1")
    history.put(BRIDGE, facts.PodObserved(pod=pod, spec=Pod(uid=uid, created_ms=UnixMs(1), owner=owner)))
    victim = decisions.Victim(pod=PodKey("a/low"), uid=Uid("low"))
    history.put(
        Producer.SCHEDULER,
        decisions.PodUnschedulable(pod=pod, uid=uid, reason="Unschedulable", message="0/1 nodes are available"),
        decisions.PodNominated(pod=pod, uid=uid, node="n1", victims=(victim,)),
    )
    lines = [line for line in explain(history.commits, "w").lines if line.event.startswith("pod.")]
    assert [(line.text, line.message) for line in lines[1:]] == [
        ("pod fits on no node", "0/1 nodes are available"),
        ("pod is to get node n1 once these have gone: a/low", ""),
    ]


def test_a_story_ends_where_reading_ends() -> None:
    """Read up to a position, history and present state are those of that position."""
    history = life_of_two()
    at = next(line.position.seq for line in explain(history.commits, "second").lines if line.event == "workload.parked")
    story = explain([each for each in history.commits if each.seq <= at], "second")
    assert story.position == at
    assert story.standing.stage == "Queued"
    assert "2 of 2 in use" in story.standing.would_change[0]


def test_an_unknown_name_offers_what_comes_near() -> None:
    """A slip of the finger is answered with the name that was meant."""
    with pytest.raises(UnknownWorkloadError, match="did you mean a/second"):
        explain(life_of_two().commits, "secnd", namespace="a")


def test_a_name_in_two_namespaces_asks_which() -> None:
    """Nothing is shown for an ambiguous name."""
    lookup = Lookup()
    history = a_cell()
    spec = WorkloadSpec(queue_name="main", pod_sets=(PodSet(),))
    for namespace in ("a", "b"):
        history.put(
            BRIDGE,
            facts.WorkloadObserved(
                workload=WorkloadKey(f"{namespace}/w"), uid=Uid(namespace), created_ms=UnixMs(1), spec=spec
            ),
        )
    for logged in history.commits:
        lookup.feed(logged)
    with pytest.raises(UnknownWorkloadError, match="several namespaces \\(a, b\\)"):
        lookup.find("w")
    assert lookup.find("w", "b") == HistorySubject(workload=WorkloadKey("b/w"))


def test_a_job_without_workload_has_a_story_too() -> None:
    """The refusal of its Workload is the reason it is given."""
    history = a_cell()
    history.put(BRIDGE, job_of("w"))
    refused = effects.WorkloadCreateRejected(
        workload=WorkloadKey("a/job-w"),
        job=JobKey("batch/Job/a/w"),
        job_uid=Uid("uid-w"),
        code=422,
        reason="Invalid",
        message="spec.podSets: too many",
    )
    explainer = Explainer(
        fold.new_state("main"), HistorySubject(workload=WorkloadKey("a/job-w"), job=JobKey("batch/Job/a/w"))
    )
    history.put(BRIDGE, refused)
    for logged in history.commits:
        explainer.feed(logged)
    story = explainer.story()
    assert tags(story) == ["job.observed", "workload.create_rejected"]
    assert story.standing.stage == "Refused"
    assert "too many" in story.standing.why


def many_rounds(rounds: int) -> History:
    history = a_cell()
    history.put(BRIDGE, workload_of("w"))
    history.put(QUEUES, queued("w"), offered("w"))
    for _ in range(rounds):
        cycle(history, skipped("w"))
        history.put(QUEUES, parked("w"))
        history.put(
            QUEUES,
            queueing.WorkloadWoken(
                workload=WorkloadKey("a/job-w"),
                uid=Uid("w-w"),
                cluster_queue="team-a",
                by="quota",
                by_position=Seq(1),
                scope="shape",
                shape=Shape("s"),
            ),
            offered("w"),
        )
    cycle(history, *reserved("w"))
    return history


def test_many_rounds_of_the_same_are_told_by_the_first_and_the_last() -> None:
    """Nothing else is left out, and what is left out is counted: rounds, tries and time asleep."""
    whole = explain(many_rounds(20).commits, "job-w").lines
    short = condensed(whole)
    left_out = [line for line in whole if line not in short]
    (summary,) = [line for line in short if line not in whole]
    assert {line.event for line in left_out} == {
        "heads.offered", "workload.skipped", "workload.parked", "workload.woken"
    }  # fmt: skip
    assert "18 more rounds" in summary.text
    assert "18 times not admitted" in summary.text
    assert summary.waited_ms == sum(line.waited_ms or 0 for line in left_out)
    assert [line.position for line in short] == sorted(line.position for line in short)
    assert short[-2].event == "workload.quota_reserved"


def test_a_few_rounds_are_told_in_full() -> None:
    """Condensing begins where it saves something."""
    lines = list(explain(many_rounds(3).commits, "job-w").lines)
    assert condensed(lines) == lines


def preempted(name: str, by: str) -> decisions.WorkloadPreempted:
    return decisions.WorkloadPreempted(
        workload=WorkloadKey(f"a/job-{name}"),
        uid=Uid(f"w-{name}"),
        cluster_queue="team-a",
        preemptor=WorkloadKey(f"a/job-{by}"),
        preemptor_uid=Uid(f"w-{by}"),
        reason="InClusterQueue",
        message=f"Preempted to accommodate {by}",
    )


def a_preemption() -> History:
    """One runs, two comes with a higher priority and preempts it."""
    history = a_cell()
    history.put(BRIDGE, workload_of("one"), workload_of("two"))
    history.put(QUEUES, queued("one", shape="1"), offered("one"))
    cycle(history, *reserved("one"))
    history.put(BRIDGE, facts.ConfigurationObserved(configuration=Configuration(feature_gates={"PriorityBoost": True})))
    history.put(QUEUES, queued("two", shape="2"), offered("two"))
    verdict = decisions.WorkloadSkipped(
        workload=WorkloadKey("a/job-two"), uid=Uid("w-two"), cluster_queue="team-a", status="notNominated",
        requeue_reason="PendingPreemption", scope="queue", reason="WaitingForPreemptedWorkloads", message="m",
        targets=(WorkloadKey("a/job-one"),),
    )  # fmt: skip
    cycle(history, preempted("one", "two"), verdict)
    return history


def test_a_preemption_is_told_to_both() -> None:
    """A target's line names preemptor and reason; the preemptor's the targets it waits for, until they left."""
    history = a_preemption()
    victim = explain(history.commits, "job-one")
    line = next(line for line in victim.lines if line.event == "workload.preempted")
    assert line.text == "preempted by a/job-two: its quota in ClusterQueue team-a is needed"
    assert (line.reason, line.message) == ("InClusterQueue", "Preempted to accommodate two")
    assert victim.standing.stage == "Evicted"
    winner = explain(history.commits, "job-two")
    told = [line.text for line in winner.lines]
    assert "preempts a/job-one in ClusterQueue team-a, and waits for its quota" in told
    assert "not admitted by ClusterQueue team-a; it waits for a/job-one to release quota" in told
    assert "a/job-one releasing its quota" in winner.standing.would_change


def test_what_becomes_of_a_variant_is_told_to_it_and_to_its_parent() -> None:
    """The reason of its deactivation is in the log, in Kueue's words."""
    history = a_cell()
    history.put(BRIDGE, workload_of("first"), workload_of("second"))
    why = 'being lower priority than admitted Variant "a/best"'
    history.put(
        BRIDGE,
        effects.VariantChanged(
            variant=WorkloadKey("a/job-second"),
            uid=Uid("w-second"),
            parent=WorkloadKey("a/job-first"),
            parent_uid=Uid("w-first"),
            flavor="spot",
            change="deactivated",
            why=why,
        ),
    )
    texts = {name: explain(history.commits, name).lines[-1].text for name in ("first", "second")}
    assert texts == {
        "first": f"its variant a/job-second was switched off for flavor spot: {why}",
        "second": f"switched off as the variant of a/job-first for flavor spot: {why}",
    }


def test_a_configuration_that_changes_under_a_workload_is_in_its_story() -> None:
    """And the explanation ends with the effective one; a workload created later has no lines of earlier changes."""
    history = a_preemption()
    story = explain(history.commits, "job-one")
    texts = [line.text for line in story.lines if line.event == "configuration.observed"]
    assert texts == ["the configuration is now: PriorityBoost=true"]
    assert story.configuration == "PriorityBoost=true"
    assert explain(many_rounds(1).commits, "job-w").configuration == "defaults"
