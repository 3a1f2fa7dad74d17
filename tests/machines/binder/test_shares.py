"""With fair sharing on, ClusterQueues and Cohorts show their shares, within the budget of queue statuses."""

from tests.machines.binder.test_decide import BRIDGE, MANAGER, SCHEDULER, Bound, admitted, observed, queued, reserved
from tests.support.conformance import fact_of
from tests.support.playing import cluster_queue, local_queue

from headgate.core.machine.contract import Call
from headgate.events import facts
from headgate.events.configuration import Configuration, FairSharingConfiguration
from headgate.events.objects import CohortSpec, FairSharing

ON = Configuration(fair_sharing=FairSharingConfiguration())


def cell(configuration: Configuration = ON, weight: str | None = None) -> Bound:
    """Cq of 1 cpu in cohort c of cohort root, in which another ClusterQueue has 7."""
    bound = Bound()
    other = cluster_queue(cohortName="root", nominal="7", name="other")
    fair = FairSharing(weight=weight) if weight is not None else None
    bound.say(
        BRIDGE,
        facts.ConfigurationObserved(configuration=configuration),
        fact_of({"kind": "ClusterQueue", **cluster_queue(cohortName="c", nominal="1")}),
        fact_of({"kind": "ClusterQueue", **other}),
        fact_of({"kind": "LocalQueue", **local_queue()}),
        facts.CohortObserved(name="c", spec=CohortSpec(parent_name="root", fair_sharing=fair)),
        facts.InformersSynced(),
    )
    return bound


def written(bound: Bound) -> dict[str, Call]:
    """The writes of queue statuses that are due within a second, answered, by what they are about."""
    found: dict[str, Call] = {}
    for wait_ms in (0, 1000):
        bound.later(wait_ms)
        for call in bound.rest()[1]:
            if call.id.startswith("queue-status/"):
                bound.answer(call)
                found[call.id.removeprefix("queue-status/")] = call
    return found


def shares(calls: dict[str, Call]) -> dict[str, int | None]:
    return {
        name: call.body["status"].get("fairSharing", {}).get("weightedShare")
        for name, call in calls.items()
        if not name.startswith("LocalQueue")
    }


def borrow(bound: Bound) -> None:
    """A workload of 2 cpu: 1 of them is borrowed, of the 8 that the tree has."""
    bound.say(BRIDGE, observed())
    bound.say(MANAGER, queued())
    bound.say(SCHEDULER, reserved(), admitted())


def test_shares_follow_usage_up_the_tree() -> None:
    """1 of 8 above quota is 125 thousandths, for ClusterQueue and cohort; no other status is written again."""
    bound = cell()
    assert shares(written(bound)) == {"ClusterQueue/cq": 0, "ClusterQueue/other": 0, "Cohort/c": 0}
    borrow(bound)
    calls = written(bound)
    assert shares(calls) == {"ClusterQueue/cq": 125, "Cohort/c": 125}
    call = calls["Cohort/c"]
    assert call.path == "/apis/kueue.x-k8s.io/v1beta2/cohorts/c/status"
    assert call.body["metadata"] == {"name": "c"}
    assert written(bound) == {}


def test_a_share_is_divided_by_the_weight_and_rounded_up() -> None:
    """A weight of 2 halves it; a borrower of weight 0 shows the largest number there is (Kueue's WeightedShare)."""
    for weight, share in (("2", 63), ("0", 2**63 - 1)):
        bound = cell(weight=weight)
        borrow(bound)
        assert shares(written(bound))["Cohort/c"] == share


def test_without_fair_sharing_nobody_has_a_share() -> None:
    """Cohorts are not written at all; when it is switched off, what was shown goes."""
    bound = cell(Configuration())
    borrow(bound)
    assert shares(written(bound)) == {"ClusterQueue/cq": None, "ClusterQueue/other": None}
    bound = cell()
    borrow(bound)
    written(bound)
    bound.say(BRIDGE, facts.ConfigurationObserved(configuration=Configuration()))
    assert shares(written(bound)) == {"ClusterQueue/cq": None, "ClusterQueue/other": None, "Cohort/c": None}


def test_what_a_cohort_shows_already_is_not_written() -> None:
    """A restart reads it once."""
    bound = cell()
    borrow(bound)
    calls = written(bound)
    again = Bound(bound.log)
    again.shown = {
        call.path.removesuffix("/status"): {"metadata": call.body["metadata"], "status": call.body["status"]}
        for call in calls.values()
    }
    assert not [name for name in written(again) if name in calls]
