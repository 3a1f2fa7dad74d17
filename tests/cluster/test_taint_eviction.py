"""Pods of a node with NoExecute taints are deleted when they do not, or no longer, tolerate them."""

import pytest
from tests.cluster.conftest import Client, Clock

from headgate.testing.cluster import BY_PLURAL, Cluster, ControllerOptions

PODS = BY_PLURAL[("", "pods")]
BROKEN = {"key": "broken", "effect": "NoExecute"}
FOREVER = {"key": "broken", "operator": "Exists"}
FOR_A_TIME = {**FOREVER, "effect": "NoExecute"}


@pytest.fixture
def evicting(node):
    """A cluster of one node, with the controller."""
    clock = Clock()
    options = ControllerOptions(default_scheduler=True, taint_eviction=True)
    client = Client(Cluster(clock, controllers=options), clock)
    client.create(node)
    client.settle(until_ms=0)
    return client


def running(client, pod, **spec):
    """A pod that runs until it is deleted, and ends at once then."""
    client.create({**pod, "spec": {**pod["spec"], "restartPolicy": "Always", **spec}})
    client.settle(until_ms=1000)
    assert [each["status"]["phase"] for each in client.cluster.objects(PODS)] == ["Running"]


def taint(client, node, *taints):
    client.patch(node, "merge", {"spec": {"taints": list(taints) or None}})


@pytest.mark.parametrize(
    ("tolerations", "gone_ms"),
    [
        ([], 0),
        ([{**FOREVER, "effect": "NoSchedule"}], 0),
        ([FOREVER], None),
        ([{**FOR_A_TIME, "tolerationSeconds": 5}], 5000),
        ([FOREVER, {**FOR_A_TIME, "tolerationSeconds": 5}], 5000),
        ([{**FOR_A_TIME, "tolerationSeconds": -1}], 0),
    ],
)
def test_a_pod_stays_as_long_as_it_tolerates_the_taint(evicting, pod, node, tolerations, gone_ms):
    """Not at all, for a time, or for good; the shortest time counts."""
    running(evicting, pod, tolerations=tolerations)
    taint(evicting, node, BROKEN)
    for at_ms in (0, 4000, 5000, 60_000):
        evicting.settle(until_ms=1000 + at_ms)
        is_gone = gone_ms is not None and at_ms >= gone_ms
        assert (evicting.cluster.objects(PODS) == []) is is_gone


def test_a_taint_that_goes_in_time_takes_no_pod(evicting, pod, node):
    """The node has recovered; a later taint counts anew."""
    running(evicting, pod, tolerations=[{**FOR_A_TIME, "tolerationSeconds": 5}])
    taint(evicting, node, BROKEN)
    evicting.settle(until_ms=4000)
    taint(evicting, node)
    evicting.settle(until_ms=8000)
    taint(evicting, node, BROKEN)
    evicting.settle(until_ms=12_000)
    assert len(evicting.cluster.objects(PODS)) == 1
    evicting.settle(until_ms=13_000)
    assert evicting.cluster.objects(PODS) == []


def test_a_taint_without_effect_on_running_pods_takes_none(evicting, pod, node):
    """NoSchedule keeps others away, and no more."""
    running(evicting, pod)
    taint(evicting, node, {"key": "broken", "effect": "NoSchedule"})
    evicting.settle(until_ms=60_000)
    assert len(evicting.cluster.objects(PODS)) == 1
