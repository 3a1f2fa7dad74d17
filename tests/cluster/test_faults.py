"""Faults: seeded, bounded, and of unknown outcome where they should be."""

import random

import pytest

from headgate.testing.cluster import Cluster, ConnectionDropped, Fault, FaultPlan, FaultRule

PATH = "/api/v1/namespaces/default/configmaps"
BODY = {"metadata": {"name": "c"}}


def cluster_with(clock, *rules, rng=7):
    plan = FaultPlan(random.Random(rng), rules)
    return Cluster(clock, faults=plan)


@pytest.mark.parametrize(
    ("fault", "status"),
    [(Fault.THROTTLED, 429), (Fault.INTERNAL, 500), (Fault.UNAVAILABLE, 503)],
)
def test_an_error_comes_before_anything_is_done(clock, fault, status):
    """A Status body, Retry-After with 429, and nothing stored."""
    cluster = cluster_with(clock, FaultRule(fault=fault, probability=1.0, count_max=1))
    response = cluster.request("POST", PATH, {}, BODY)
    assert (response.status, response.json()["code"]) == (status, status)
    assert ("Retry-After" in response.headers) is (status == 429)
    assert cluster.request("GET", f"{PATH}/c").status == 404


def test_a_conflict_meets_writers_only(clock):
    """As if another writer had been faster."""
    cluster = cluster_with(clock, FaultRule(fault=Fault.CONFLICT, probability=1.0))
    assert cluster.request("POST", PATH, {}, BODY).status == 201
    assert cluster.request("GET", f"{PATH}/c").status == 200
    refused = cluster.request("PATCH", f"{PATH}/c", {}, {"data": {}}, "application/merge-patch+json")
    assert (refused.status, refused.json()["reason"]) == (409, "Conflict")


@pytest.mark.parametrize(("fault", "stored"), [(Fault.DROP_BEFORE, 404), (Fault.DROP_AFTER, 200)])
def test_a_dropped_connection_leaves_the_outcome_open(clock, fault, stored):
    """The caller sees the same; only the store differs."""
    cluster = cluster_with(clock, FaultRule(fault=fault, probability=1.0, count_max=1))
    with pytest.raises(ConnectionDropped, match="read before trying again"):
        cluster.request("POST", PATH, {}, BODY)
    assert cluster.request("GET", f"{PATH}/c").status == stored


def test_watches_are_cut_or_gone(clock):
    """Without a word, or with 410."""
    cluster = cluster_with(clock, FaultRule(fault=Fault.WATCH_CUT, probability=1.0, count_max=1))
    watch = cluster.watch(PATH)
    assert watch.poll() == []
    assert watch.closed
    cluster = cluster_with(clock, FaultRule(fault=Fault.WATCH_GONE, probability=1.0, count_max=1))
    watch = cluster.watch(PATH)
    assert watch.poll_events()[-1][1]["code"] == 410
    assert watch.closed


def test_a_rule_holds_for_its_window_its_methods_and_its_paths(clock):
    """Outside of them nothing is drawn."""
    rule = FaultRule(
        fault=Fault.INTERNAL,
        probability=1.0,
        from_ms=clock.now_ms + 10,
        until_ms=clock.now_ms + 20,
        methods=frozenset({"GET"}),
        path_contains="configmaps",
    )
    cluster = cluster_with(clock, rule)
    statuses = []
    for _ in range(3):
        statuses.append(cluster.request("GET", PATH).status)
        clock.now_ms += 10
    assert statuses == [200, 500, 200]
    clock.now_ms -= 20
    assert cluster.request("GET", "/api/v1/pods").status == 200
    assert cluster.request("POST", PATH, {}, BODY).status == 201


def test_the_same_seed_strikes_the_same_requests(clock):
    """A failure is its seed."""

    def run(seed):
        cluster = cluster_with(clock, FaultRule(fault=Fault.UNAVAILABLE, probability=0.3), rng=seed)
        return [cluster.request("GET", PATH).status for _ in range(40)]

    assert run(1) == run(1)
    assert run(1) != run(2)
