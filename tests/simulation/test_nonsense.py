"""
Objects that make no sense, and that the schemas of the definitions let through: only Kueue's webhooks refuse them.

Each becomes conditions with Kueue's reasons, or behaves like the next sensible thing; never an exception, never a write
that is refused, and never one write after the other.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from tests.simulation.scenarios import KUEUE, kueue

from headgate.testing.cluster import BY_PLURAL
from headgate.testing.world.world import World

Json = dict[str, Any]

SETTLED_MS, LONG_MS = 120_000, 3600_000
WRITES_MAX = 15
"""More than any of these stories needs, with a job's whole admission in it."""

CPU: Json = {"name": "cpu", "nominalQuota": "5"}
NO_CPU: Json = {"name": "cpu", "nominalQuota": "0"}
MEMORY: Json = {"name": "memory", "nominalQuota": "1Gi"}


def group(*resources: Json, covered: list[str] | None = None, flavor: str = "f") -> Json:
    names = [resource["name"] for resource in resources]
    return {"coveredResources": covered or names, "flavors": [{"name": flavor, "resources": list(resources)}]}


def queue(*groups: Json, **spec: Any) -> Json:
    return kueue("ClusterQueue", "q", {"namespaceSelector": {}, "resourceGroups": list(groups), **spec})


def bounded(**limits: str) -> Json:
    return queue(group({**CPU, **limits}), cohortName="c")


def selecting(**selector: Any) -> Json:
    return queue(group(CPU), namespaceSelector=selector)


def cohort(name: str, **spec: Any) -> Json:
    return kueue("Cohort", name, spec)


def workload(requests: Json, count: int = 1) -> Json:
    containers = [{"name": "c", "image": "i", "resources": {"requests": requests}}]
    pods = {"name": "main", "count": count, "template": {"spec": {"restartPolicy": "Never", "containers": containers}}}
    return kueue("Workload", "w", {"queueName": "lq", "podSets": [pods]}, "team")


class Case(NamedTuple):
    """
    Objects, and what comes of them: the reasons of the Active conditions and of the workload's QuotaReserved.

    `says`: a part of that condition's message.
    """

    objects: tuple[Json, ...]
    cluster_queue: str = "Ready"
    local_queue: str = "Ready"
    workload: str = "QuotaReserved"
    says: str = ""


def inactive(reason: str, *objects: Json) -> Case:
    return Case(objects, reason, "ClusterQueueIsInactive", "Suspended", "ClusterQueue q is inactive")


def too_little(maximum: str, *objects: Json) -> Case:
    return Case(objects, workload="ExceedsMaxQuota", says=f"> maximum capacity ({maximum})")


def uncovered(*objects: Json) -> Case:
    return Case(objects, workload="NoMatchingFlavor", says="resource cpu unavailable in ClusterQueue")


def elsewhere(*objects: Json) -> Case:
    says = "workload namespace doesn't match ClusterQueue selector"
    return Case(objects, workload="Misconfigured", says=says)


def unread(*objects: Json) -> Case:
    return Case(objects, "", "ClusterQueueDoesNotExist", "Misconfigured", "ClusterQueue q doesn't exist")


CASES = {
    "a negative quota": too_little("-5", queue(group({**CPU, "nominalQuota": "-5"}))),
    "a quota beyond all numbers": Case((queue(group({**CPU, "nominalQuota": "1e400"})),)),
    "a quota with an endless exponent": unread(queue(group({**CPU, "nominalQuota": "1e999999999"}))),
    "a quota with half an exponent": unread(queue(group({**CPU, "nominalQuota": "1e1.5"}))),
    "a negative borrowing limit": Case((bounded(borrowingLimit="-1"),)),
    "a borrowing limit below all quota": too_little("-95", bounded(borrowingLimit="-100")),
    "a negative lending limit": Case((bounded(lendingLimit="-9"),)),
    "a lending limit above the quota": Case((bounded(lendingLimit="9"),)),
    "a lending limit outside of a cohort": Case((queue(group({**CPU, "lendingLimit": "9"})),)),
    "a negative weight": Case((queue(group(CPU), fairSharing={"weight": "-1"}),)),
    "a flavor in two groups": Case((queue(group(CPU), group(CPU)),)),
    "a flavor in two groups, of two resources": Case((queue(group(CPU), group(MEMORY)),)),
    "a resource in two groups": too_little("0", queue(group(NO_CPU), group(CPU, flavor="g"))),
    "quota for what is not covered": uncovered(queue(group(CPU, covered=["memory"]))),
    "no quota for what is covered": too_little("0", queue(group(MEMORY, covered=["cpu"]))),
    "no groups": uncovered(queue()),
    "a selector with an unknown operator": elsewhere(selecting(matchExpressions=[{"key": "a", "operator": "Near"}])),
    "a selector In nothing": elsewhere(selecting(matchExpressions=[{"key": "a", "operator": "In"}])),
    "a selector by what is no label": elsewhere(selecting(matchLabels={"a b": "c d"})),
    "a flavor that is not there": inactive("FlavorNotFound", queue(group(CPU, flavor="nix"))),
    "a flavor of a topology that is not there": inactive(
        "TopologyNotFound",
        kueue("ResourceFlavor", "f", {"nodeLabels": {"a": "b"}, "topologyName": "nix"}),
        queue(group(CPU)),
    ),
    "a check that is not there": inactive(
        "AdmissionCheckNotFound", queue(group(CPU), admissionChecksStrategy={"admissionChecks": [{"name": "nix"}]})
    ),
    "a check that nobody serves, for a flavor of others": inactive(
        "AdmissionCheckInactive",
        kueue("AdmissionCheck", "a", {"controllerName": "x/y"}),
        queue(group(CPU), admissionChecksStrategy={"admissionChecks": [{"name": "a", "onFlavors": ["nix"]}]}),
    ),
    "a cohort that is its own parent": inactive(
        "CohortCycle", cohort("c", parentName="c"), queue(group(CPU), cohortName="c")
    ),
    "two cohorts that are each other's parents": inactive(
        "CohortCycle", cohort("c", parentName="d"), cohort("d", parentName="c"), queue(group(CPU), cohortName="c")
    ),
    "a cohort below a cycle": inactive(
        "CohortCycle", cohort("b", parentName="c"), cohort("c", parentName="c"), queue(group(CPU), cohortName="b")
    ),
    "a cohort with the name of its queue": Case((queue(group(CPU), cohortName="q"),)),
    "a cohort with negative quota": Case(
        (cohort("c", resourceGroups=[group({**CPU, "nominalQuota": "-3"})]), queue(group(CPU), cohortName="c"))
    ),
    "a cohort with less quota than none": too_little(
        "-4", cohort("c", resourceGroups=[group({**CPU, "nominalQuota": "-9"})]), queue(group(CPU), cohortName="c")
    ),
    "a cohort with a flavor in two groups": Case(
        (cohort("c", resourceGroups=[group(CPU), group(CPU)]), queue(group(NO_CPU), cohortName="c"))
    ),
    "a LocalQueue of nothing": Case(
        (queue(group(CPU)), kueue("LocalQueue", "lq", {"clusterQueue": "nix"}, "team")),
        local_queue="ClusterQueueDoesNotExist",
        workload="Misconfigured",
        says="ClusterQueue nix doesn't exist",
    ),
    "a taint that has no key": Case(
        (kueue("ResourceFlavor", "f", {"nodeTaints": [{"key": "", "effect": "NoSchedule"}]}), queue(group(CPU))),
        workload="NoMatchingFlavor",
        says="untolerated taint",
    ),
    "a workload without pods": Case((queue(group(CPU)), workload({"cpu": "1"}, count=0))),
    "a workload that asks for nothing": Case((queue(group(CPU)), workload({}))),
    "a workload that asks for less than nothing": Case((queue(group(CPU)), workload({"cpu": "-1"}))),
    "a workload that asks for more than there can be": too_little("5", queue(group(CPU)), workload({"cpu": "1e400"})),
}


class Cell:
    """A cell with a case's objects and, where they bring no workload of their own, a job of one CPU."""

    def __init__(self, objects: tuple[Json, ...]) -> None:
        self.world = World(cell="nonsense")
        self.world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        given = {(each["kind"], each["metadata"]["name"]) for each in objects}
        flavors = (kueue("ResourceFlavor", name, {}) for name in "fg")
        usual = (*flavors, kueue("LocalQueue", "lq", {"clusterQueue": "q"}, "team"))
        self.world.apply(*(each for each in usual if (each["kind"], each["metadata"]["name"]) not in given), *objects)
        if ("Workload", "w") not in given:
            self.world.apply(job(cpu="1"))

    def writes(self) -> Iterator[tuple[str, str, int]]:
        """Verb, path and code of every write of ours from here on; more than WRITES_MAX of them fail."""
        requests: list[tuple[str, str, int]] = []
        request = self.world.cluster.request

        def counted(method: str, path: str, *rest: Any, **more: Any) -> Any:
            response = request(method, path, *rest, **more)
            if method != "GET":
                requests.append((method, path, response.status))
                assert len(requests) <= WRITES_MAX, requests
            return response

        self.world.cluster.request = counted  # type: ignore[method-assign]
        self.world.run(until_ms=self.world.clock.now_ms + SETTLED_MS)
        yield from requests
        requests.clear()
        self.world.advance(self.world.clock.now_ms + LONG_MS)
        self.world.run(until_ms=self.world.clock.now_ms + SETTLED_MS)
        assert requests == []

    def condition(self, plural: str, kind: str) -> Json:
        """A condition of the one object of a kind; {} when it has none."""
        (found,) = self.world.cluster.objects(BY_PLURAL["kueue.x-k8s.io", plural])
        conditions: list[Json] = found.get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), {})


def job(name: str = "j", **requests: str) -> Json:
    containers = [{"name": "a", "image": "b", "resources": {"requests": requests}}]
    labels = {"kueue.x-k8s.io/queue-name": "lq"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "team", "labels": labels},
        "spec": {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": containers}}},
    }


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_nonsense_becomes_conditions(case: Case) -> None:
    """The reasons of the table; no write is refused, and there is an end to them."""
    cell = Cell(case.objects)
    assert all(code < 400 for _, _, code in cell.writes())
    assert cell.condition("clusterqueues", "Active").get("reason", "") == case.cluster_queue
    assert cell.condition("localqueues", "Active")["reason"] == case.local_queue
    reserved = cell.condition("workloads", "QuotaReserved")
    assert (reserved["reason"], case.says in reserved["message"]) == (case.workload, True)


def test_a_workload_that_cannot_be_read_waits_without_a_word() -> None:
    """Treated as absent, and reported by the bridge: its neighbours run."""
    cell = Cell((queue(group(CPU)), workload({"cpu": "1e1.5"})))
    cell.world.apply(job(cpu="1"))
    assert all(code < 400 for _, _, code in cell.writes())
    found = {
        each["metadata"]["name"]: each for each in cell.world.cluster.objects(BY_PLURAL["kueue.x-k8s.io", "workloads"])
    }
    assert "conditions" not in found.pop("w").get("status", {})
    (neighbour,) = found.values()
    assert neighbour["status"]["admission"]["clusterQueue"] == "q"


def test_a_flavor_in_two_groups_is_shown_once() -> None:
    """With all its resources: the API server refuses a list with two entries of one name."""
    cell = Cell((queue(group(CPU), group(MEMORY)),))
    assert list(cell.writes())
    for plural in ("clusterqueues", "localqueues"):
        (found,) = cell.world.cluster.objects(BY_PLURAL["kueue.x-k8s.io", plural])
        for field in ("flavorsReservation", "flavorsUsage"):
            (shown,) = found["status"][field]
            assert [(each["name"], each["total"]) for each in shown["resources"]] == [("cpu", "1"), ("memory", "0")]


def test_those_that_ask_for_nothing_end_one_by_one() -> None:
    """Admitted in one LocalQueue where no other holds quota, and then deleted: the cell continues."""
    cell = Cell((queue(group(CPU)), workload({})))
    world, usage = cell.world, cell.world.state.index.admitted_usage
    world.apply(job())
    world.run(until_ms=world.clock.now_ms + SETTLED_MS)
    left: dict[str, Any]
    for gone, left in (
        ("batch/v1/namespaces/team/jobs/j", {"team/lq": {}}),
        (f"{KUEUE}/namespaces/team/workloads/w", {}),
    ):
        assert usage == {"team/lq": {}}
        assert world.cluster.request("DELETE", f"/apis/{gone}", {"propagationPolicy": "Background"}).status == 200
        world.run(until_ms=world.clock.now_ms + SETTLED_MS)
        assert usage == left
