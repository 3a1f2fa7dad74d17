"""The cycle: which workloads are admitted, in which order, and the verdicts on the others."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cells import NAMESPACE, Cell, cluster_queue, cohort, pod_set, reservations, verdicts

from headgate.core import fold
from headgate.core.cycle import decide_cycle
from headgate.core.flavors.catalog import Catalog
from headgate.core.quota.cache import Forest
from headgate.core.quota.tree import Ledger
from headgate.core.state.tables import Stage
from headgate.events.base import EventBase, Producer
from headgate.events.decisions import CycleDecided, QuotaReserved, WorkloadAdmitted
from headgate.events.effects import LeaderElected
from headgate.events.facts import (
    AdmissionCheckObserved,
    ClusterQueueObserved,
    LimitRangeObserved,
    NamespaceDeleted,
    WorkloadDeleted,
    WorkloadObserved,
)
from headgate.events.ids import Uid, UnixMs, WorkloadKey
from headgate.events.objects import (
    AdmissionCheckSpec,
    AdmissionChecksStrategy,
    CheckRule,
    CheckState,
    LabelSelector,
    LimitRangeItem,
    Preemption,
    WorkloadSpec,
)
from headgate.events.queueing import (
    Head,
    HeadsOffered,
    WorkloadEvicted,
    WorkloadFinished,
    WorkloadQueued,
    WorkloadReleased,
)

KEY = WorkloadKey(f"{NAMESPACE}/w")


def lone(nominal: int = 4, **spec: Any) -> Cell:
    """One ClusterQueue with some gpus of one flavor."""
    return Cell(cluster_queue("cq", {"f": {"gpu": nominal}}, **spec))


# --- order ---------------------------------------------------------------------------------------------------------


def borrowers(*names: str) -> Cell:
    """ClusterQueues without own quota in a cohort that has 4 gpus, and one of 4 that lends nothing."""
    quota = {"f": {"gpu": 0}}
    return Cell(
        cohort("co", "", {"f": {"gpu": 4}}),
        *(cluster_queue(name, quota, cohort_name="co") for name in names),
        cluster_queue("own", {"f": {"gpu": (4, None, 0)}}, cohort_name="co"),
    )


def test_who_borrows_less_goes_first() -> None:
    """Even when its priority is lower and it came later."""
    cell = borrowers("a")
    cell.submit("a", "borrows", pod_set({"gpu": 2}), priority=9, at_ms=1)
    cell.submit("own", "at-home", pod_set({"gpu": 2}), at_ms=2)
    assert reservations(cell.cycle()) == ["at-home", "borrows"]


def test_among_equals_priority_then_time_then_uid_decide() -> None:
    """The order is total: exact ties end at the uid."""
    cell = borrowers("a", "b", "c", "d")
    cell.submit("a", "late", pod_set({"gpu": 1}), at_ms=7)
    cell.submit("b", "twin-2", pod_set({"gpu": 1}), at_ms=5)
    cell.submit("c", "twin-1", pod_set({"gpu": 1}), at_ms=5)
    cell.submit("d", "urgent", pod_set({"gpu": 1}), priority=1, at_ms=9)
    assert reservations(cell.cycle()) == ["urgent", "twin-1", "twin-2", "late"]


def test_one_head_of_each_queue_is_decided() -> None:
    """The first that was offered; the next waits for the next cycle."""
    cell = lone()
    for name in ("first", "second"):
        cell.submit("cq", name, pod_set({"gpu": 1}))
    assert reservations(cell.cycle()) == ["first"]
    assert reservations(cell.cycle()) == ["second"]
    assert cell.cycle() == ()


def test_what_an_earlier_entry_took_is_gone() -> None:
    """The loser is skipped, at its place for the next cycle, which then sees the quota taken."""
    cell = borrowers("a", "b")
    cell.submit("a", "wins", pod_set({"gpu": 3}), at_ms=1)
    cell.submit("b", "loses", pod_set({"gpu": 3}), at_ms=2)
    events = cell.cycle()
    assert reservations(events) == ["wins"]
    lost = verdicts(events)["loses"]
    assert (lost.status, lost.requeue_reason, lost.scope) == ("skipped", "FailedAfterNomination", "immediate")
    assert (lost.reason, lost.message) == (
        "WaitingForQuota",
        "Workload no longer fits after processing another workload",
    )
    again = verdicts(cell.cycle())["loses"]
    assert (again.requeue_reason, again.scope, again.short) == ("NoFit", "shape", ("f/gpu",))


@pytest.mark.parametrize(("policy", "admitted"), [("Never", []), ("LowerPriority", []), ("Any", ["borrower"])])
def test_who_waits_for_others_to_leave_keeps_them_from_borrowing(policy: str, admitted: list[str]) -> None:
    """Unless its ClusterQueue may reclaim from everybody, what it would borrow is held back in this cycle."""
    reclaims = Preemption(reclaim_within_cohort=policy)
    cell = Cell(
        cluster_queue("owner", {"f": {"gpu": 2}}, cohort_name="co", preemption=reclaims),
        cluster_queue("lender", {"f": {"gpu": 4}}, cohort_name="co"),
        cluster_queue("other", {"f": {"gpu": 0}}, cohort_name="co"),
    )
    for queue, gpus in (("owner", 2), ("lender", 3)):
        cell.submit(queue, f"in-{queue}", pod_set({"gpu": gpus}))
    cell.cycle()
    cell.submit("owner", "waits", pod_set({"gpu": 2}), priority=1)
    cell.submit("other", "borrower", pod_set({"gpu": 1}))
    events = cell.cycle()
    assert reservations(events) == admitted
    waits = verdicts(events)["waits"]
    assert (waits.requeue_reason, waits.reason) == ("PreemptionNoCandidates", "WaitingForQuota")


def claimed(policy: str = "Never") -> Cell:
    """The head of a StrictFIFO ClusterQueue waits for its nominal quota, of which another has borrowed a part."""
    cell = Cell(
        cluster_queue(
            "owner",
            {"f": {"gpu": 4}},
            cohort_name="co",
            queueing_strategy="StrictFIFO",
            preemption=Preemption(reclaim_within_cohort=policy),
        ),
        cluster_queue("other", {"f": {"gpu": 0}}, cohort_name="co"),
    )
    cell.submit("other", "running", pod_set({"gpu": 3}))
    cell.cycle()
    cell.submit("owner", "waits", pod_set({"gpu": 2}))
    assert verdicts(cell.cycle())["waits"].scope == "queue"
    return cell


def test_a_head_that_blocks_its_queue_keeps_its_claim_in_later_cycles() -> None:
    """No borrower takes the quota it waits for; a workload skipped for that waits at its place, and the cycles end."""
    cell = claimed()
    cell.submit("other", "borrower", pod_set({"gpu": 1}))
    events = cell.cycle()
    verdict = verdicts(events)["borrower"]
    assert (verdict.requeue_reason, verdict.scope, verdict.short) == ("FailedAfterNomination", "queue", ())
    assert isinstance(events[0], CycleDecided)
    assert [head.workload for head in events[0].heads] == ["team-a/borrower"]
    assert cell.cycle() == ()


def test_a_claim_that_can_be_reclaimed_is_not_held() -> None:
    """Where every borrower may be reclaimed from, lending in the meantime is harmless."""
    cell = claimed("Any")
    cell.submit("other", "borrower", pod_set({"gpu": 1}))
    assert reservations(cell.cycle()) == ["borrower"]


def test_when_a_head_that_claims_is_gone_others_may_try_again() -> None:
    """Its leaving frees what it claimed, for those who were set aside because of that."""
    cell = claimed()
    before = cell.state.position
    gone = WorkloadDeleted(workload=WorkloadKey("team-a/waits"), uid=Uid("uid-waits"))
    cell.log.append(Producer.INFORMER_BRIDGE, gone)
    assert max(cell.state.freed["co"].values()) > before
    cell.submit("other", "borrower", pod_set({"gpu": 1}))
    assert reservations(cell.cycle()) == ["borrower"]


# --- what is written -----------------------------------------------------------------------------------------------


def test_a_reservation_says_what_was_given() -> None:
    """Flavors, canonical usage and counts per pod set; admitted at once without checks; Kueue's messages."""
    cell = Cell(cluster_queue("cq", {"f": {"cpu": 9, "memory": "9Gi"}}))
    cell.submit("cq", "w", pod_set({"cpu": "250m", "memory": "512Mi"}, 6))
    decided, reserved, admitted = cell.cycle()
    assert isinstance(decided, CycleDecided)
    assert isinstance(reserved, QuotaReserved)
    assert isinstance(admitted, WorkloadAdmitted)
    assert (decided.cycle, [head.workload for head in decided.heads]) == (1, [KEY])
    assignment = reserved.admission.pod_set_assignments[0]
    assert assignment.resource_usage == {"cpu": "1500m", "memory": "3Gi"}
    assert (assignment.flavors, assignment.count) == ({"cpu": "f", "memory": "f"}, 6)
    assert (reserved.message, admitted.message) == ("Quota reserved in ClusterQueue cq", "The workload is admitted")
    assert cell.state.index.usage == {"cq": {("f", "cpu"): 1500, ("f", "memory"): 3 << 30}}


def test_a_verdict_says_what_was_asked_for() -> None:
    """The requests of all pod sets are in the status, those of pods in no ClusterQueue too."""
    cell = lone(1)
    cell.submit("cq", "w", pod_set({"gpu": 1, "cpu": "1500m"}, 2))
    requests = verdicts(cell.cycle())["w"].resource_requests
    assert [(each.name, each.resources) for each in requests] == [("main", {"cpu": "3", "gpu": "2"})]


def test_a_message_is_no_longer_than_the_api_takes() -> None:
    """A ClusterQueue may have many flavors, each with its reason."""
    cell = Cell(cluster_queue("cq", {f"{i}-{'f' * 200}": {"gpu": 1} for i in range(200)}))
    cell.submit("cq", "w", pod_set({"gpu": 2}))
    message = verdicts(cell.cycle())["w"].message
    assert len(message) == 32768
    assert message.endswith(" ...")


def test_partial_admission_gives_what_there_is() -> None:
    """With a minimum, fewer pods are admitted; without, none."""
    cell = lone(4)
    cell.submit("cq", "w", pod_set({"gpu": 1}, 9, min_count=2))
    cell.cycle()
    admission = cell.state.workloads[KEY].admission
    assert admission.pod_set_assignments[0].count == 4
    strict = lone(4)
    strict.submit("cq", "w", pod_set({"gpu": 1}, 9))
    assert reservations(strict.cycle()) == []


# --- rejected before nomination ------------------------------------------------------------------------------------


def rejection(cell: Cell, **requests: Any) -> Any:
    cell.submit("cq", "w", pod_set(requests or {"gpu": 1}))
    return verdicts(cell.cycle())["w"]


def test_a_namespace_that_the_queue_does_not_want_is_turned_away() -> None:
    """Set aside alone, also from a StrictFIFO queue, which continues."""
    for strategy in ("BestEffortFIFO", "StrictFIFO"):
        cell = lone(namespace_selector=LabelSelector(match_labels={"dep": "eng"}), queueing_strategy=strategy)
        event = rejection(cell)
        assert (event.reason, event.requeue_reason, event.scope) == ("Misconfigured", "NamespaceMismatch", "workload")
        assert event.message == "workload namespace doesn't match ClusterQueue selector"


def test_a_namespace_that_is_not_there_is_said_to_be_missing() -> None:
    """Not a mismatch: it may still come. Kueue's words (ValidateAdmissibility, pkg/workload/resources.go)."""
    cell = lone()
    cell.log.append(Producer.INFORMER_BRIDGE, NamespaceDeleted(name=NAMESPACE))
    event = rejection(cell)
    assert event.message == 'workload namespace "team-a" does not exist: Namespace "team-a" not found'


def test_a_limit_range_turns_a_workload_away() -> None:
    """Its message is Kueue's; nothing but a change of a spec can help."""
    cell = lone()
    item = LimitRangeItem(type="Container", max={"gpu": 1})
    cell.log.append(Producer.INFORMER_BRIDGE, LimitRangeObserved(limit_range="team-a/l", limits=(item,)))
    event = rejection(cell, gpu=2)
    assert event.message.startswith("resources didn't satisfy LimitRange constraints: spec.podSets[0]")
    assert (event.scope, event.short) == ("workload", ("*",))


def test_heads_of_an_inactive_queue_are_left_alone() -> None:
    """A stopped ClusterQueue decides nothing; its heads stay offered."""
    cell = lone(stop_policy="Hold")
    cell.submit("cq", "w", pod_set({"gpu": 1}))
    assert cell.cycle() == ()
    assert cell.state.workloads[KEY].stage is Stage.OFFERED


def test_nothing_is_decided_before_the_informers_have_synced() -> None:
    """Until then a running workload may be unknown, and its quota would be given twice."""
    cell = lone()
    cell.submit("cq", "w", pod_set({"gpu": 1}))
    cell.state.synced = False
    assert decide_cycle(cell.state) == ()


# --- scopes and short ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "gpus", "scope"),
    [
        ("BestEffortFIFO", 5, "shape"),
        ("StrictFIFO", 5, "queue"),
        ("BestEffortFIFO", 2, "shape"),
        ("StrictFIFO", 2, "queue"),
    ],
)
def test_what_does_not_fit_sets_its_like_aside_or_blocks_its_queue(strategy: str, gpus: int, scope: str) -> None:
    """NoFit and PreemptionNoCandidates alike."""
    cell = lone(queueing_strategy=strategy)
    cell.submit("cq", "running", pod_set({"gpu": 3}))
    cell.cycle()
    cell.submit("cq", "w", pod_set({"gpu": gpus}))
    assert verdicts(cell.cycle())["w"].scope == scope


def test_short_names_what_would_have_to_be_freed() -> None:
    """Unused quota that lacked; only a change of specs ("*") where the quota itself is too small."""
    cell = Cell(cluster_queue("cq", {"one": {"gpu": 4}, "two": {"gpu": 2}}))
    cell.submit("cq", "running", pod_set({"gpu": 3}))
    cell.cycle()
    cell.submit("cq", "some", pod_set({"gpu": 3}))
    cell.submit("cq", "too-much", pod_set({"gpu": 9}))
    assert verdicts(cell.cycle())["some"].short == ("one/gpu",)
    assert verdicts(cell.cycle())["too-much"].short == ("*",)


# --- the end of retries --------------------------------------------------------------------------------------------


def two_groups(**spec: Any) -> Cell:
    """Cpu in flavors a, b and c; gpu in one flavor that is full."""
    cell = Cell(cluster_queue("cq", {"a": {"cpu": 4}, "b": {"cpu": 4}, "c": {"cpu": 4}}, {"g": {"gpu": 1}}, **spec))
    cell.submit("cq", "running", pod_set({"gpu": 1}))
    cell.cycle()
    return cell


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
def test_flavors_that_are_left_are_tried_at_once_and_then_no_more(strategy: str) -> None:
    """The scan continues from flavor to flavor in the next cycles; at the end the workload is set aside."""
    cell = two_groups(queueing_strategy=strategy)
    cell.submit("cq", "w", pod_set({"cpu": 1}, name="x"), pod_set({"gpu": 1}, name="y"))
    scopes: list[str] = []
    while "immediate" in scopes[-1:] or not scopes:
        event = verdicts(cell.cycle())["w"]
        scopes.append(event.scope)
    assert scopes == ["immediate", "immediate", "queue" if strategy == "StrictFIFO" else "shape"]
    assert cell.cycle() == ()


pods = st.lists(
    st.fixed_dictionaries({"cpu": st.integers(1, 6)}, optional={"gpu": st.integers(1, 2)}), min_size=1, max_size=3
)
heads = st.lists(st.tuples(st.integers(0, 2), pods), min_size=1, max_size=5)
strategies = st.tuples(*[st.sampled_from(["BestEffortFIFO", "StrictFIFO"])] * 3)


def crowded(heads: list[tuple[int, list[dict[str, int]]]], strategy: tuple[str, ...]) -> Cell:
    """Three ClusterQueues of a cohort, several flavors, and some workloads that request more than there is."""
    groups: tuple[dict[str, dict[str, Any]], ...] = (
        {"a": {"cpu": 3}, "b": {"cpu": 2}, "c": {"cpu": (1, 2, None)}},
        {"g": {"gpu": 1}, "h": {"gpu": (1, 0, 0)}},
    )
    cell = Cell(
        *(cluster_queue(f"cq{i}", *groups, cohort_name="co", queueing_strategy=strategy[i]) for i in range(3)),
    )
    for number, (queue, requests) in enumerate(heads):
        sets = [pod_set(each, name=f"p{i}") for i, each in enumerate(requests)]
        cell.submit(f"cq{queue}", f"w{number}", *sets, at_ms=number)
    return cell


@given(heads, strategies)
def test_offered_heads_come_to_an_end(heads: list[Any], strategy: tuple[str, ...]) -> None:
    """Without new events the cycles stop: no head is retried for ever on an unchanged state."""
    cell = crowded(heads, strategy)
    bound = len(heads) * 40
    while cell.cycle():
        bound -= 1
        assert bound > 0, "cycles do not end"
    assert not any(cell.state.index.offered.values())


@given(heads, strategies)
def test_no_quota_is_ever_exceeded(heads: list[Any], strategy: tuple[str, ...]) -> None:
    """After every cycle each ClusterQueue and the cohort use no more than there is for them."""
    cell = crowded(heads, strategy)
    while cell.cycle():
        tree = Forest(cell.state).tree("co")
        ledger = Ledger(tree, cell.state.index.usage)
        for held in cell.state.index.usage.values():
            for fr in held:
                assert all(ledger.available(node, fr) >= 0 for node in tree.nodes)


@given(heads, strategies, st.permutations(range(3)))
def test_the_decision_does_not_depend_on_the_order_of_tables(
    heads: list[Any], strategy: tuple[str, ...], order: list[int]
) -> None:
    """A state restored from its bytes, or with its tables and indexes in another order, decides the same."""
    state = crowded(heads, strategy).state
    decided = decide_cycle(state)
    restored = fold.restore("main", fold.encode(state))
    assert decide_cycle(restored) == decided
    restored.cluster_queues = {f"cq{i}": restored.cluster_queues[f"cq{i}"] for i in order}
    restored.index.trees = {name: restored.index.trees[name] for name in restored.cluster_queues}
    restored.index.offered = {
        name: restored.index.offered[name] for name in restored.cluster_queues if name in restored.index.offered
    }
    assert decide_cycle(restored) == decided


@given(heads, strategies)
def test_a_kept_catalog_decides_as_a_new_one(heads: list[Any], strategy: tuple[str, ...]) -> None:
    """What is kept between cycles follows from specs alone."""
    cell = crowded(heads, strategy)
    kept = Catalog(cell.state)
    while True:
        events = decide_cycle(cell.state, kept)
        assert events == decide_cycle(cell.state)
        if not cell.cycle():
            return


# --- admission checks ----------------------------------------------------------------------------------------------


def checked(*rules: CheckRule) -> Cell:
    strategy = AdmissionChecksStrategy(admission_checks=rules)
    checks: list[EventBase] = [
        AdmissionCheckObserved(name=rule.name, spec=AdmissionCheckSpec(controller_name="c"), active=True)
        for rule in rules
    ]
    return Cell(cluster_queue("cq", {"f": {"gpu": 4}}, admission_checks_strategy=strategy), *checks)


def answer(cell: Cell, *states: CheckState) -> None:
    workload = cell.state.workloads[KEY]
    cell.log.append(
        Producer.INFORMER_BRIDGE,
        WorkloadObserved(workload=KEY, uid=workload.uid, created_ms=UnixMs(0), spec=workload.spec, checks=states),
    )


def test_checks_of_the_assigned_flavors_come_between_reservation_and_admission() -> None:
    """Those of other flavors do not apply; admission follows when all that do are Ready."""
    cell = checked(
        CheckRule(name="prov"), CheckRule(name="other", on_flavors=("z",)), CheckRule(name="bud", on_flavors=("f",))
    )
    cell.submit("cq", "w", pod_set({"gpu": 1}))
    _, reserved = cell.cycle()
    assert isinstance(reserved, QuotaReserved)
    assert [(check.name, check.state) for check in reserved.checks] == [("bud", "Pending"), ("prov", "Pending")]
    answer(cell, CheckState(name="prov", state="Ready"))
    assert cell.cycle() == ()
    answer(cell, CheckState(name="prov", state="Ready"), CheckState(name="bud", state="Ready"))
    decided, admitted = cell.cycle()
    assert isinstance(decided, CycleDecided)
    assert isinstance(admitted, WorkloadAdmitted)
    assert (decided.heads, admitted.cluster_queue) == ((), "cq")
    assert cell.state.workloads[KEY].stage is Stage.ADMITTED
    assert cell.cycle() == ()


def test_a_workload_whose_check_failed_is_not_nominated() -> None:
    """It waits until its checks are reset."""
    cell = lone()
    cell.submit("cq", "w", pod_set({"gpu": 1}))
    cell.state.workloads[KEY].checks = (CheckState(name="prov", state="Retry"),)
    event = verdicts(cell.cycle())["w"]
    assert (event.reason, event.message) == ("PendingEvaluation", "The workload has failed admission checks")


@pytest.mark.parametrize("state", ["Retry", "Rejected", "Ready"])
def test_an_answer_from_before_an_eviction_is_not_taken_for_the_next_reservation(state: str) -> None:
    """The API server may show it until it is overwritten; the check is Pending again."""
    cell = checked(CheckRule(name="prov"))
    cell.submit("cq", "w", pod_set({"gpu": 1}))
    cell.cycle()
    answer(cell, CheckState(name="prov", state=state))
    about = {"workload": KEY, "uid": cell.state.workloads[KEY].uid, "reason": "AdmissionCheck", "message": "m"}
    cell.log.append(Producer.QUEUE_MANAGER, WorkloadEvicted(**about))
    cell.log.append(Producer.QUEUE_MANAGER, WorkloadReleased(**about, requeued=False))
    workload = cell.state.workloads[KEY]
    queued = WorkloadQueued(
        workload=KEY, uid=workload.uid, cluster_queue="cq", priority=0, queued_at_ms=UnixMs(0), shape=workload.shape
    )
    head = Head(cluster_queue="cq", workload=KEY, uid=workload.uid)
    cell.log.append(Producer.QUEUE_MANAGER, queued, HeadsOffered(heads=(head,)))
    _, reserved = cell.cycle()
    assert isinstance(reserved, QuotaReserved)
    assert [(check.name, check.state) for check in reserved.checks] == [("prov", "Pending")]


# --- resuming a scan -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("freed", [True, False])
def test_an_old_scan_begins_anew_only_once_quota_was_freed(freed: bool) -> None:
    """The flavor that was passed over may be the free one now; otherwise the scan continues, whoever leads."""
    cell = Cell(cluster_queue("cq", {"a": {"cpu": 4}, "b": {"cpu": 1}}, {"g": {"gpu": 1}}))
    for name, pods in (("cpus", pod_set({"cpu": 1})), ("running", pod_set({"gpu": 1}))):
        cell.submit("cq", name, pods)
        cell.cycle()
    cell.submit("cq", "w", pod_set({"cpu": 1}, name="x"), pod_set({"gpu": 1}, name="y"))
    first = verdicts(cell.cycle())["w"]
    assert (first.scope, first.last_tried_flavors) == ("immediate", ({"cpu": 0}, {"gpu": -1}))
    cell.log.append(Producer.SCHEDULER, LeaderElected(holder="next"), epoch=2)
    if freed:
        key, uid = WorkloadKey("team-a/running"), Uid("uid-running")
        done = WorkloadFinished(workload=key, uid=uid, reason="Succeeded", message="")
        cell.log.append(Producer.QUEUE_MANAGER, done)
    events = decide_cycle(cell.state)
    if freed:
        assert reservations(events) == ["w"]
    else:
        assert verdicts(events)["w"].last_tried_flavors == ()
        assert "flavor a" not in verdicts(events)["w"].message


def passed_over(strategy: str) -> Cell:
    """
    A head that fits in flavor a beside a workload for which there is never enough, and never in flavor b.

    The latter comes first and claims a for one cycle, since the ClusterQueue gets back nothing that it lends.
    """
    cell = Cell(
        cohort("co"),
        cluster_queue("owner", {"a": {"cpu": 4}}, cohort_name="co"),
        cluster_queue("cq", {"a": {"cpu": 0}, "b": {"cpu": 1}}, cohort_name="co", queueing_strategy=strategy),
    )
    cell.submit("cq", "running", pod_set({"cpu": 2}), at_ms=1)
    cell.cycle()
    cell.submit("owner", "large", pod_set({"cpu": 3}), at_ms=2)
    cell.submit("cq", "head", pod_set({"cpu": 2}), at_ms=3)
    decided = verdicts(cell.cycle())
    assert decided["large"].scope == "shape"
    assert (decided["head"].scope, decided["head"].last_tried_flavors) == ("immediate", ({"cpu": 0},))
    return cell


def test_in_a_strict_queue_a_resumed_scan_that_ends_in_vain_begins_anew() -> None:
    """What kept the head from the first flavor is no longer there, and nothing will happen that could wake it."""
    cell = passed_over("StrictFIFO")
    assert reservations(cell.cycle()) == ["head"]
    assert cell.cycle() == ()


def test_in_a_strict_queue_the_verdict_after_a_resumed_scan_is_about_all_flavors() -> None:
    """It names what is short of each, and so is requeued by what can help."""
    cell = passed_over("StrictFIFO")
    cell.log.append(Producer.INFORMER_BRIDGE, cluster_queue("owner", {"a": {"cpu": 3}}, cohort_name="co"))
    event = verdicts(cell.cycle())["head"]
    assert (event.scope, event.short, event.needs) == ("queue", ("a/cpu",), ({"a/cpu": "2"},))
    assert "flavor a, 1 more needed" in event.message
    assert cell.cycle() == ()


def test_in_a_queue_that_lets_others_pass_a_resumed_scan_ends_where_it_ends() -> None:
    """As in Kueue: the workload is set aside until something happens in its tree."""
    cell = passed_over("BestEffortFIFO")
    event = verdicts(cell.cycle())["head"]
    assert (event.scope, event.short) == ("shape", ())
    assert cell.cycle() == ()


def test_a_workload_without_pod_sets_takes_nothing() -> None:
    """It has no mode but NO_FIT, and is never admitted by accident."""
    cell = lone()
    cell.submit("cq", "w")
    assert cell.state.workloads[KEY].spec == WorkloadSpec(queue_name="cq", priority=0)
    assert reservations(cell.cycle()) == []


def test_a_queue_that_lost_its_quota_admits_no_more() -> None:
    """A changed spec counts from the next cycle on, though a catalog was made before."""
    cell = lone(4)
    cell.submit("cq", "a", pod_set({"gpu": 2}))
    cell.cycle()
    smaller = cluster_queue("cq", {"f": {"gpu": 1}})
    assert isinstance(smaller, ClusterQueueObserved)
    cell.log.append(Producer.INFORMER_BRIDGE, smaller)
    cell.submit("cq", "b", pod_set({"gpu": 1}))
    event = verdicts(cell.cycle())["b"]
    assert event.message.endswith("insufficient unused quota for gpu in flavor f, 1 more needed")
