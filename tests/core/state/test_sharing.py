"""Equal specs are kept once, and no byte of the state depends on it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.logs import TestLog

from headgate.core import fold
from headgate.core.state import sharing
from headgate.core.state.sharing import FewLabels, Shared, labels_of, plain
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.facts import JobDeleted, JobObserved, WorkloadDeleted, WorkloadObserved
from headgate.events.ids import JobKey, Uid, UnixMs, WorkloadKey
from headgate.events.objects import (
    Container,
    Job,
    OwnerReference,
    Pod,
    PodSet,
    PodSpec,
    PodTemplate,
    Resources,
    WorkloadSpec,
)

JOB_UID = "kueue.x-k8s.io/job-uid"
OWNER_NAME = "kueue.x-k8s.io/job-owner-name"


def template(cpu: str | float) -> PodTemplate:
    container = Container(name="main", resources=Resources(requests={"cpu": cpu}))
    return PodTemplate(spec=PodSpec(containers=(container,), node_selector={"disk": "ssd"}))


def workload(number: int, cpu: str | float) -> tuple[JobObserved, WorkloadObserved]:
    """A Job and its Workload, with objects of their own, as they come out of the decoder."""
    name, uid = f"job-{number}", f"job-uid-{number}"
    job = Job(uid=uid, created_ms=UnixMs(5), queue_name="main", suspended=True, template=template(cpu))
    made = WorkloadObserved(
        workload=WorkloadKey(f"team-a/{name}"),
        uid=Uid(f"uid-{number}"),
        created_ms=UnixMs(5),
        spec=WorkloadSpec(queue_name="main", pod_sets=(PodSet(template=template(cpu)),)),
        labels={JOB_UID: "".join(uid)},
        annotations={OWNER_NAME: name, "kueue.x-k8s.io/job-owner-gvk": "batch/v1, Kind=Job"},
        owner=OwnerReference(api_version="batch/v1", kind="Job", name=name, uid=f"job-uid-{number}"),
    )
    return JobObserved(job=JobKey(f"team-a/{name}"), spec=job), made


def log_of(*cpus: str | float) -> TestLog:
    log = TestLog()
    for number, cpu in enumerate(cpus):
        log.append(Producer.INFORMER_BRIDGE, *workload(number, cpu))
    return log


def specs(state: State) -> list[WorkloadSpec]:
    return [each.spec for each in state.workloads.values()]


@pytest.mark.parametrize("restored", [False, True])
def test_equal_workloads_and_their_jobs_share_one_spec(restored: bool) -> None:
    """Folded or started from a snapshot: equal Workloads have one spec, and their Jobs its pod template."""
    state = log_of("1", "1", "2").state
    if restored:
        state = fold.restore(state.cell, fold.encode(state))
    first, second, third = specs(state)
    assert first is second
    assert third is not first
    jobs = [each.job.template for each in state.jobs.values()]
    assert jobs[0] is jobs[1] is first.pod_sets[0].template
    assert jobs[2] is third.pod_sets[0].template


def test_a_pod_template_is_shared_by_workloads_of_different_size() -> None:
    """Specs that differ have what they have in common once."""
    shared = Shared()
    one, two = (shared.spec(WorkloadSpec(pod_sets=(PodSet(count=count, template=template("1")),))) for count in (1, 2))
    assert one is not two
    assert one.pod_sets[0].template is two.pod_sets[0].template


@pytest.mark.parametrize("like", [1, 1.0, "1.0"])
def test_what_is_written_otherwise_is_not_the_same(like: str | float) -> None:
    """Quantities that are equal in Python, and not on the wire, stay as they were written."""
    state = log_of("1", like, 1).state
    written = [spec.pod_sets[0].template.spec.containers[0].resources.requests["cpu"] for spec in specs(state)]
    assert [repr(each) for each in written] == [repr("1"), repr(like), "1"]


def test_no_byte_of_a_state_depends_on_sharing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoded state, and so its hash, is the same when nothing is shared."""
    encoded = fold.encode(log_of("1", "1", "2", 1, 1.0).state)
    monkeypatch.setattr(Shared, "spec", lambda _, spec: spec)
    monkeypatch.setattr(sharing, "job_of", lambda job, _: job)
    monkeypatch.setattr(sharing, "owner_of", lambda owner, _uid="": owner)
    monkeypatch.setattr("headgate.core.fold.workloads.labels_of", lambda labels, _: labels)
    alone = log_of("1", "1", "2", 1, 1.0).state
    assert len({id(each) for each in specs(alone)}) == 5
    assert fold.encode(alone) == encoded


def test_what_nobody_keeps_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of specs grows with those that are kept, not with all that ever were."""
    monkeypatch.setattr(sharing, "SWEEP_MIN", 8)
    log = TestLog()
    log.state.shared = Shared()
    for number in range(100):
        job, made = workload(number, str(number))
        log.append(Producer.INFORMER_BRIDGE, job, made)
        if number:
            log.append(Producer.INFORMER_BRIDGE, WorkloadDeleted(workload=made.workload, uid=made.uid))
            log.append(Producer.INFORMER_BRIDGE, JobDeleted(job=job.job, uid=Uid(job.spec.uid), gone=True))
    assert len(log.state.workloads) == 1
    assert len(log.state.shared) <= 8
    kept = specs(log.state)[0]
    log.append(Producer.INFORMER_BRIDGE, *workload(200, "0"))
    assert specs(log.state)[1] is kept


@given(
    labels=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=4),
    owner=st.none()
    | st.builds(
        OwnerReference, api_version=st.just("a"), kind=st.just("k"), name=st.text(max_size=2), uid=st.text(max_size=2)
    ),
    asked=st.text(max_size=3),
)
def test_few_labels_read_like_a_dict(labels: dict[str, str], owner: OwnerReference | None, asked: str) -> None:
    """However labels are kept, they are the labels that were given."""
    kept = labels_of(labels, owner)
    assert kept == labels
    assert (list(kept), len(kept), kept.get(asked), asked in kept) == (
        list(labels),
        len(labels),
        labels.get(asked),
        asked in labels,
    )
    assert {**kept} == labels
    with pytest.raises(KeyError):
        kept["none of them"]


def test_labels_take_their_values_from_the_owner() -> None:
    """The uid and name of its Job are in a Workload three times, and in memory once."""
    state = log_of("1").state
    (kept,), (job,) = state.workloads.values(), state.jobs.values()
    assert kept.owner is not None
    assert isinstance(kept.labels, FewLabels)
    assert kept.labels[JOB_UID] is kept.owner.uid is job.job.uid
    assert kept.annotations[OWNER_NAME] is kept.owner.name


@pytest.mark.parametrize("odd", [object(), {1}])
def test_what_is_no_part_of_a_state_is_not_encoded(odd: Any) -> None:
    """Only labels need help to be encoded; anything else there is a mistake."""
    with pytest.raises(NotImplementedError, match=type(odd).__name__):
        plain(odd)


def pod(index: int, node: str, cpu: str | float = "1") -> Pod:
    """A pod of a gang, with objects of its own."""
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="job-1", uid="job-uid-1")
    return Pod(
        uid=f"pod-uid-{index}",
        created_ms=UnixMs(5),
        spec=PodSpec(
            containers=(Container(resources=Resources(requests={"cpu": cpu})),), node_selector={"host": node, "a": "b"}
        ),
        workload="team/w",
        owner=owner,
        topology_aware=True,
        pod_set="main",
        indexes={"index": index},
    )


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["1", 1, 1.0, 2])), min_size=1))
def test_pods_of_a_workload_share_what_they_have_in_common(drawn: list[tuple[str, str | float]]) -> None:
    """And are the same to the byte, whatever came before."""
    shared = Shared()
    for number, (node, cpu) in enumerate(drawn):
        made = pod(number, node, cpu)
        assert msgspec.json.encode(shared.pod(made)) == msgspec.json.encode(made)
    one, other = shared.pod(pod(1, "a")), shared.pod(pod(2, "b"))
    assert one.owner is other.owner
    assert one.spec.containers is other.spec.containers
    assert other.spec.node_selector is shared.pod(pod(3, "b")).spec.node_selector
