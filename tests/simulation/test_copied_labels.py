"""Labels of jobs on their Workloads in the whole system, whatever goes wrong."""

from typing import Any

import msgspec
import pytest
from tests.simulation.test_pod_groups import FAULTS_END_MS, WITH_PODS, cell, pod, run, said, the, workload
from tests.simulation.test_seeds import faults_of
from tests.support.forging import decoded, folded, forged, verified

from headgate.adapters.log import LogEntry
from headgate.core.workload.pod_groups import LABELS_DIFFER
from headgate.events.base import Producer
from headgate.events.configuration import Configuration, IntegrationsConfiguration
from headgate.events.effects import WorkloadCreated
from headgate.events.facts import JobObserved
from headgate.events.ids import JobKey, Uid, WorkloadKey
from headgate.testing.world.world import NO_FAULTS, World

Json = dict[str, Any]
K = "kueue.x-k8s.io/"
COPYING = Configuration(
    integrations=IntegrationsConfiguration(
        frameworks=WITH_PODS.integrations.frameworks, label_keys_to_copy=("team", "cost")
    )
)

GANG = JobKey("/PodGroup/team-a/gang")


def recorded(seed: int | None = None) -> tuple[World, list[LogEntry]]:
    """A cell, and what will be in its log."""
    world = cell(NO_FAULTS if seed is None else faults_of(seed), seed or 0, configuration=COPYING)
    entries: list[LogEntry] = []
    world._sink = lambda seq, subject, time_ms, payload: entries.append(LogEntry(seq, subject, time_ms, payload))
    return world, entries


def labelled(manifest: Json, **labels: str) -> Json:
    manifest["metadata"]["labels"] |= labels
    return manifest


def job(**labels: str) -> Json:
    template = pod("template")["spec"]
    del template["schedulingGates"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "team-a", "labels": {f"{K}queue-name": "main", **labels}},
        "spec": {"suspend": True, "template": {"spec": template}},
    }


def member(name: str, **labels: str) -> Json:
    return labelled(pod(name, group="gang", total=2), **labels)


def patch(world: World, name: str, **labels: str) -> None:
    body = msgspec.json.encode({"metadata": {"labels": labels}})
    path = f"/api/v1/namespaces/team-a/pods/{name}"
    answer = world.cluster.request("PATCH", path, {}, body, content_type="application/merge-patch+json")
    assert answer.status == 200


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_workloads_are_created_with_the_labels_of_their_jobs_whatever_goes_wrong(seed: int | None) -> None:
    """A job's own, and those of all pods of a group; each creation follows from the log."""
    world, entries = recorded(seed)
    world.create(job(team="red", other="x"))
    world.create(member("a", team="red"))
    world.create(member("b", cost="7"))
    run(world, FAULTS_END_MS - world.clock.now_ms if seed is not None else 30_000)
    made = the(world, "job-train-")["metadata"]["labels"]
    assert {key: made[key] for key in made if not key.startswith(K)} == {"team": "red"}
    assert the(world, "gang")["metadata"]["labels"] == {"team": "red", "cost": "7"}
    assert verified(tuple(entries)).differences == ()


def test_a_group_waits_until_its_pods_agree() -> None:
    """The reason is told as an Event and is in the log, so a replay knows why there is no Workload before."""
    world, entries = recorded()
    world.create(member("a", team="red"))
    run(world, 10_000)
    world.create(member("b", team="blue"))
    run(world, 20_000)
    assert workload(world, "gang") is None
    assert said(world, "ErrWorkloadCompose") == ["'gang' group has fewer runnable pods than expected", LABELS_DIFFER]
    patch(world, "b", team="red")
    run(world, 20_000)
    assert the(world, "gang")["metadata"]["labels"] == {"team": "red"}
    events = [event for logged in decoded(tuple(entries)) for event in logged.commit.events]
    last = next(each.spec for each in reversed(events) if isinstance(each, JobObserved) and each.spec.problem)
    assert last.problem == LABELS_DIFFER
    assert len([each for each in events if isinstance(each, WorkloadCreated)]) == 1
    assert verified(tuple(entries)).differences == ()


def test_a_creation_in_spite_of_that_has_no_reason() -> None:
    """A replay finds a Workload that nobody would have made from these pods."""
    world, entries = recorded()
    world.create(member("a", team="red"))
    world.create(member("b", team="blue"))
    run(world, 20_000)
    state = folded(tuple(entries))
    job_uid = Uid(state.jobs[GANG].job.uid)
    made = WorkloadCreated(workload=WorkloadKey("team-a/gang"), job=GANG, job_uid=job_uid)
    (found,) = verified(forged(tuple(entries), state, Producer.INFORMER_BRIDGE, made)).differences
    assert "the Workload of PodGroup team-a/gang" in found.what
