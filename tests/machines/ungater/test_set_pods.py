"""Pods of StatefulSets and LeaderWorkerSets: told which pod group they are of."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.machines.ungater.test_decide import BRIDGE, Gate

from headgate.core.machine.contract import Call, Completed
from headgate.core.workload.names import workload_name
from headgate.events import facts
from headgate.events.configuration import Configuration, IntegrationsConfiguration
from headgate.events.ids import JobKey, JobRef, PodKey, Uid, UnixMs
from headgate.events.objects import Job, ManagedPod, Pod, PodSet, PodSpec, SchedulingGate

LWS = "leaderworkerset.x-k8s.io"
FRAMEWORKS = ("statefulset", f"{LWS}/leaderworkerset")
SET, GROUPS = JobKey("apps/StatefulSet/team-a/web"), JobKey(f"{LWS}/LeaderWorkerSet/team-a/llm")
GATE = SchedulingGate(name="kueue.x-k8s.io/admission")
K = "kueue.x-k8s.io/"


def a_set(key: JobKey, *pod_sets: PodSet, queue: str = "main", groups: int = 1) -> facts.JobObserved:
    job = Job(uid="s", created_ms=UnixMs(5), queue_name=queue, suspended=True, pod_sets=pod_sets, groups=groups)
    return facts.JobObserved(job=key, spec=job)


def pod(name: str, parent: str, *, is_gated: bool = True, **managed: Any) -> facts.PodObserved:
    spec = PodSpec(scheduling_gates=(GATE,) if is_gated else ())
    shown = ManagedPod(parent=parent, **managed)
    return facts.PodObserved(
        pod=PodKey(f"team-a/{name}"), spec=Pod(uid=f"u-{name}", created_ms=UnixMs(6), spec=spec, managed=shown)
    )


def gate(*events: facts.Fact) -> Gate:
    made = Gate()
    configuration = Configuration(integrations=IntegrationsConfiguration(frameworks=FRAMEWORKS))
    made.say(BRIDGE, facts.ConfigurationObserved(configuration=configuration), *events)
    return made


def patched(calls: list[Call]) -> dict[str, Any]:
    """What is written into the metadata of each pod."""
    return {call.path.rpartition("/")[2]: call.body["metadata"] for call in calls}


def test_a_pod_of_a_stateful_set_learns_its_group() -> None:
    """Kueue's labels and annotations, all in one patch, which is not repeated."""
    made = gate(a_set(SET, PodSet(name="main", count=2)), pod("web-0", "statefulset", set_name="web"))
    events, calls = made.rest()
    assert events == []
    name = workload_name(JobRef.parse(SET), "s")
    assert patched(calls) == {
        "web-0": {
            "uid": "u-web-0",
            "labels": {f"{K}managed": "true", f"{K}queue-name": "main"},
            "annotations": {
                f"{K}pod-group-name": name,
                f"{K}prebuilt-workload-name": name,
                f"{K}pod-group-total-count": "2",
                f"{K}pod-group-serving": "true",
                f"{K}pod-group-fast-admission": "true",
                f"{K}pod-group-pod-index-label": "apps.kubernetes.io/pod-index",
                f"{K}role-hash": "main",
            },
        }
    }
    made.machine.decide(Completed(calls[0].id, 200, b"{}"))
    assert made.rest() == ([], [])


@pytest.mark.parametrize(("is_worker", "role"), [(False, "leader"), (True, "worker")])
def test_a_pod_of_a_leader_worker_set_learns_its_role_once_it_is_numbered(is_worker: bool, role: str) -> None:
    """Its operator gives it the number of its group after it was made."""
    sets = (PodSet(name="leader", count=1), PodSet(name="worker", count=2))
    parent = f"{LWS}/leaderworkerset"
    made = gate(a_set(GROUPS, *sets, groups=2), pod("p", parent, set_name="llm", queue_name="main"))
    assert made.rest() == ([], [])
    made.say(BRIDGE, pod("p", parent, set_name="llm", queue_name="main", group_index=1, is_worker=is_worker))
    (written,) = patched(made.rest()[1]).values()
    name = workload_name(JobRef(LWS, "LeaderWorkerSet", "team-a", "llm-1"), "s")
    assert written["labels"] == {f"{K}managed": "true"}
    assert written["annotations"][f"{K}pod-group-name"] == name
    assert (written["annotations"][f"{K}pod-group-total-count"], written["annotations"][f"{K}role-hash"]) == ("3", role)


def test_a_pod_that_was_never_held_is_left_as_it_is() -> None:
    """So is one whose set is not there."""
    made = gate(
        a_set(SET, PodSet(name="main", count=2)),
        pod("web-0", "statefulset", set_name="web", is_gated=False),
        pod("other-0", "statefulset", set_name="other"),
    )
    assert made.rest() == ([], [])


def test_the_queue_of_a_pod_that_waits_follows_its_set() -> None:
    """Nothing else of it changes."""
    name = workload_name(JobRef.parse(SET), "s")
    waits = pod("web-0", "statefulset", set_name="web", group=name, queue_name="main", total_count=1, role="main")
    made = gate(a_set(SET, PodSet(name="main", count=1)), waits)
    assert made.rest() == ([], [])
    made.say(BRIDGE, a_set(SET, PodSet(name="main", count=1), queue="other"))
    assert patched(made.rest()[1]) == {"web-0": {"uid": "u-web-0", "labels": {f"{K}queue-name": "other"}}}


def test_a_pod_made_anew_during_the_call_about_the_one_before_it_gets_calls_of_its_own() -> None:
    """The answer is about the former pod, whose name the new one has."""
    made = gate(a_set(SET, PodSet(name="main", count=1)), pod("web-0", "statefulset", set_name="web"))
    (former,) = made.rest()[1]
    fact = pod("web-0", "statefulset", set_name="web")
    made.say(
        BRIDGE, facts.PodDeleted(pod=fact.pod, uid=Uid("u-web-0")), replace(fact, spec=replace(fact.spec, uid="u-anew"))
    )
    assert made.rest() == ([], [])
    made.machine.decide(Completed(former.id, 200, b"{}"))
    made.say(BRIDGE, a_set(SET, PodSet(name="main", count=1)))
    assert [each["uid"] for each in patched(made.rest()[1]).values()] == ["u-anew"]
