"""
When a prebuilt Workload is that of its pods.

The cases are read off Kueue 0.19.2: `equivalentToWorkload` of pod groups (pkg/controller/jobs/pod/pod_controller.go),
`EquivalentToWorkload` of everything else (pkg/controller/jobframework/reconciler.go), and `ComparePodSets`
(pkg/util/equality/podset.go).
"""

from typing import Any

import pytest

from headgate.core.state.tables import PodRecord, Stage, Workload
from headgate.core.workload.matching import are_pods_in_sync
from headgate.core.workload.pod_groups import in_order
from headgate.core.workload.pod_jobs import compared, kept, observed
from headgate.events.ids import JobKey, PodKey, Uid, UnixMs, WorkloadKey
from headgate.events.objects import (
    Container,
    Job,
    ManagedPod,
    Pod,
    PodSet,
    PodSpec,
    PodTemplate,
    Resources,
    Toleration,
    WorkloadSpec,
)

GROUP, PLAIN = JobKey("/PodGroup/team-a/made"), JobKey("/Pod/team-a/one")
MINE, THEIRS = Toleration(key="mine"), Toleration(key="theirs")


def workload(*pod_sets: PodSet, stage: Stage = Stage.NEW, limit_s: int | None = None) -> Workload:
    spec = WorkloadSpec(queue_name="main", pod_sets=pod_sets, maximum_execution_time_seconds=limit_s)
    return Workload(key=WorkloadKey("team-a/made"), uid=Uid("w"), created_ms=UnixMs(0), spec=spec, stage=stage)


def role(name: str, count: int) -> PodSet:
    return PodSet(name=name, count=count)


def one(cpu: str | int = "1", *, count: int = 1, name: str = "main", init: str = "", **more: Any) -> PodSet:
    """The pod set of a plain pod."""
    made = (Container(name="c", resources=Resources(requests={"cpu": cpu})),)
    first = (Container(name="i", resources=Resources(limits={"cpu": init})),) if init else ()
    minimum = more.pop("min_count", None)
    spec = PodSpec(containers=made, init_containers=first, **more)
    return PodSet(name=name, count=count, min_count=minimum, template=PodTemplate(spec=spec))


@pytest.mark.parametrize(
    ("roles", "pod_sets", "is_in_sync"),
    [
        ([("r", 2)], [("r", 2)], True),
        ([("r", 1)], [("r", 2)], True),  # more pods are to come
        ([], [("r", 2)], True),  # and none that can run is there
        ([("b", 1)], [("a", 1), ("b", 1)], True),
        ([("a", 1), ("b", 1)], [("a", 1), ("b", 3)], True),
        ([("r", 3)], [("r", 2)], False),
        ([("a", 1)], [("main", 1)], False),  # "when the prebuilt workload is not equivalent to the job"
        ([("a", 1), ("b", 1)], [("a", 2)], False),
        ([("a", 1), ("b", 1)], [("b", 1), ("a", 1)], False),  # the pod sets are looked through once, in their order
    ],
)
def test_a_group_has_no_more_pods_of_each_role_than_its_workload(
    roles: list[tuple[str, int]], pod_sets: list[tuple[str, int]], *, is_in_sync: bool
) -> None:
    """Neither templates nor the maximum execution time of a group are compared."""
    job, pods = Job(uid="u", created_ms=UnixMs(0)), tuple(role(*each) for each in roles)
    found = workload(*(role(*each) for each in pod_sets), limit_s=60)
    assert are_pods_in_sync(GROUP, job, pods, found) is is_in_sync


@pytest.mark.parametrize(
    ("pod_sets", "is_in_sync"),
    [
        ([one()], True),
        ([one(name="other")], True),  # names are not compared
        ([one("1000m")], True),  # quantities are compared by value
        ([one(1)], True),
        ([one("2")], False),
        ([one(count=2)], False),
        ([one(min_count=1)], False),
        ([one(init="1")], False),
        ([one(), one()], False),
        ([], False),
        ([one(tolerations=(THEIRS,))], False),
        ([one(node_selector={"a": "b"})], True),  # of the rest nothing is compared
    ],
)
def test_a_plain_pod_is_the_only_pod_set_of_its_workload(pod_sets: list[PodSet], *, is_in_sync: bool) -> None:
    """Count, minimum, containers and tolerations are compared."""
    job = Job(uid="u", created_ms=UnixMs(0))
    assert are_pods_in_sync(PLAIN, job, (one(),), workload(*pod_sets)) is is_in_sync


def test_the_tolerations_of_an_admitted_pod_are_not_compared() -> None:
    """It has those of its flavor in addition."""
    job, pods = Job(uid="u", created_ms=UnixMs(0)), (one(tolerations=(MINE, THEIRS)),)
    assert not are_pods_in_sync(PLAIN, job, pods, workload(one(tolerations=(MINE,)), stage=Stage.RESERVED))
    assert are_pods_in_sync(PLAIN, job, pods, workload(one(tolerations=(MINE,)), stage=Stage.ADMITTED))


@pytest.mark.parametrize(("mine", "its_own"), [(None, 60), (60, None), (60, 61)])
def test_a_plain_pod_has_the_maximum_execution_time_of_its_workload(mine: int | None, its_own: int | None) -> None:
    """Also where its pod is not compared any more."""
    job = Job(uid="u", created_ms=UnixMs(0), max_execution_time_seconds=mine)
    assert not are_pods_in_sync(PLAIN, job, (one(),), workload(one(), limit_s=its_own))
    assert not are_pods_in_sync(PLAIN, job, (), workload(one(), limit_s=its_own))
    assert are_pods_in_sync(PLAIN, job, (one(),), workload(one(), limit_s=mine))


def test_pods_that_leave_are_not_compared() -> None:
    """While a Workload is evicted, its pods are stopped."""
    job = Job(uid="u", created_ms=UnixMs(0))
    assert are_pods_in_sync(PLAIN, job, (one("2"),), workload(one(), stage=Stage.EVICTED))
    assert are_pods_in_sync(GROUP, job, (role("b", 1),), workload(role("a", 1), stage=Stage.EVICTED))


# --- the job of such pods ------------------------------------------------------------------------------------------


def members(*pods: tuple[str, str], named: str = "made", **more: Any) -> dict[PodKey, PodRecord]:
    """Pods of a group of two, by role and phase."""
    made: dict[PodKey, PodRecord] = {}
    for number, (role_, phase) in enumerate(pods):
        shown = ManagedPod(group="made", total_count=2, role=role_, has_node=True, prebuilt=named, **more)
        pod = Pod(uid=f"u{number}", created_ms=UnixMs(number), phase=phase, managed=shown)
        made[PodKey(f"team-a/p{number}")] = PodRecord(pod=pod)
    return in_order(made.items())


def test_what_is_compared_of_a_group_are_its_active_pods() -> None:
    """By role, in the order of their names; failed ones do not count."""
    pods = members(("b", "Running"), ("a", "Failed"), ("b", "Succeeded"), ("a", "Pending"))
    assert compared(GROUP, pods) == (role("a", 1), role("b", 2))
    fast = members(("b", "Running"), ("a", "Pending"), fast_admission=True)
    assert compared(GROUP, fast) == (role("b", 2),)


def test_a_group_that_names_its_workload_keeps_all_of_its_pods() -> None:
    """None is too many, replaced or absent: Kueue leaves them as they are."""
    pods = members(("r", "Running"), ("r", "Failed"), ("r", "Running"), ("r", "Running"))
    found = workload(role("r", 2))
    assert kept(GROUP, pods, found) == (pods, (), (), 0)
    others = members(("r", "Running"), ("r", "Failed"), ("r", "Running"), ("r", "Running"), named="")
    assert kept(GROUP, others, found) != (others, (), (), 0)


def test_a_group_need_not_be_whole_to_run_by_a_workload_of_its_name() -> None:
    """What a Workload is composed from is not examined."""
    job = observed(GROUP, members(("r", "Running")), None, UnixMs(0))
    assert job is not None
    assert (job.prebuilt, job.problem, job.pod_sets) == ("made", "", (role("r", 1),))
    other = observed(GROUP, members(("r", "Running"), named="other"), None, UnixMs(0))
    assert other is not None
    assert other.problem == "prebuilt workload and pod group should be equal"
