"""TrainJobs and their runtimes: pod sets follow from both, whichever comes first."""

from typing import Any

import msgspec
from tests.core.jobs.test_train_job import replicated, runtime, train_job
from tests.machines.informer_bridge.test_decide import Bridge
from tests.machines.informer_bridge.test_kinds import raw, team

from headgate.core.jobs.train_job import MANAGER
from headgate.core.machine.contract import Call, Changed, Listed
from headgate.events import effects, facts
from headgate.events.base import EventBase
from headgate.events.configuration import Configuration, IntegrationsConfiguration

TRAIN_JOBS = Configuration(integrations=IntegrationsConfiguration(frameworks=("trainer.kubeflow.org/trainjob",)))
RUNTIMES = "clustertrainingruntimes"


def torch(nodes: int = 2) -> bytes:
    made = runtime(replicated("node", "trainer"), torch={}, numNodes=nodes)
    return raw({**made, "metadata": {"name": "torch", "uid": "r"}})


def job(status: Any = None, **spec: Any) -> bytes:
    made = train_job(status, **spec)
    made["metadata"]["creationTimestamp"] = "2026-01-15T10:00:00Z"
    return raw(made)


def bridge(**objects: list[bytes]) -> Bridge:
    """A bridge that was shown everything, and these."""
    made = Bridge(configuration=TRAIN_JOBS)
    for resource in made.machine.resources:
        made.machine.decide(Listed(resource, tuple({"namespaces": [team()], **objects}.get(resource, ())), "1"))
    return made


def until_quiet(made: Bridge) -> tuple[list[EventBase], list[Call]]:
    """Everything that it appends and calls until nothing is left to do."""
    events: list[EventBase] = []
    calls: list[Call] = []
    while True:
        more, asked = made.settle()
        events += more
        calls += asked
        if not more and not asked:
            return events, calls


def seen(made: Bridge) -> facts.JobObserved:
    return next(each for each in reversed(until_quiet(made)[0]) if isinstance(each, facts.JobObserved))


def test_a_train_job_gets_a_workload_with_the_pod_sets_of_its_runtime() -> None:
    """Whole templates, from the runtime."""
    (call,) = bridge(clustertrainingruntimes=[torch()], trainjobs=[job()]).all_calls()
    body: Any = call.body
    (pod_set,) = body["spec"]["podSets"]
    assert (pod_set["name"], pod_set["count"]) == ("node", 2)
    assert pod_set["template"]["spec"]["containers"][0]["name"] == "node"


def test_a_runtime_of_its_namespace_is_another_than_that_of_the_cluster() -> None:
    """The reference says which one is meant."""
    own = {**msgspec.json.decode(torch(3)), "kind": "TrainingRuntime"}
    own["metadata"]["namespace"] = "team-a"
    named = job(runtimeRef={"name": "torch", "kind": "TrainingRuntime"})
    made = bridge(clustertrainingruntimes=[torch()], trainingruntimes=[raw(own)], trainjobs=[named])
    assert [each.count for each in seen(made).spec.pod_sets] == [3]


def test_no_train_job_is_judged_before_the_runtimes_are_known() -> None:
    """Each resource has a watch of its own, and that of the runtimes may be the last."""
    made = Bridge(configuration=TRAIN_JOBS)
    for resource in made.machine.resources:
        if resource != RUNTIMES:
            objects = {"namespaces": [team()], "trainjobs": [job()]}.get(resource, [])
            made.machine.decide(Listed(resource, tuple(objects), "1"))
    assert not any(isinstance(each, facts.JobObserved | facts.InformersSynced) for each in until_quiet(made)[0])
    made.machine.decide(Listed(RUNTIMES, (torch(),), "1"))
    assert [each.count for each in seen(made).spec.pod_sets] == [2]


def test_a_missing_runtime_is_one_message_and_one_that_comes_is_noticed() -> None:
    """The Workload is refused in Kueue's words, and made when the runtime is there."""
    made = bridge(trainjobs=[job()])
    events, calls = until_quiet(made)
    (refused,) = (each for each in events if isinstance(each, effects.WorkloadCreateRejected))
    assert (refused.reason, refused.message) == ("ErrWorkloadCompose", "runtime 'torch' not found")
    assert calls == []
    made.machine.decide(Changed(RUNTIMES, "ADDED", torch(), "2"))
    (call,) = made.all_calls()
    assert call.method == "POST"


def test_an_edited_runtime_changes_the_train_jobs_that_wait() -> None:
    """Their Workloads follow, as they do when the TrainJob itself is edited."""
    made = bridge(clustertrainingruntimes=[torch()], trainjobs=[job()])
    until_quiet(made)
    made.machine.decide(Changed(RUNTIMES, "MODIFIED", torch(5), "2"))
    assert [each.count for each in seen(made).spec.pod_sets] == [5]


def test_one_that_runs_keeps_the_pod_sets_that_it_was_started_with() -> None:
    """The Trainer changes no JobSet that runs; when it is stopped, what its runtime says then counts."""
    made = bridge(clustertrainingruntimes=[torch()], trainjobs=[job()])
    until_quiet(made)
    made.machine.decide(Changed("trainjobs", "MODIFIED", job(suspend=False), "2"))
    made.machine.decide(Changed(RUNTIMES, "MODIFIED", torch(5), "3"))
    assert [each.count for each in seen(made).spec.pod_sets] == [2]
    made.machine.decide(Changed("trainjobs", "MODIFIED", job(), "4"))
    assert [each.count for each in seen(made).spec.pod_sets] == [5]


def test_train_jobs_and_runtimes_are_listed_in_every_term() -> None:
    """Runtimes are not in the log: nothing is resumed from a mark."""
    made = bridge(clustertrainingruntimes=[torch()], trainjobs=[job()])
    (synced,) = (each for each in until_quiet(made)[0] if isinstance(each, facts.InformersSynced) and each.resources)
    assert not {"trainjobs", RUNTIMES, "trainingruntimes"} & set(synced.resource_versions)


def test_a_runtime_that_a_list_lacks_is_gone() -> None:
    """Those that name it have none from then on."""
    made = bridge(clustertrainingruntimes=[torch()], trainjobs=[job()])
    until_quiet(made)
    made.machine.decide(Listed(RUNTIMES, (), "9"))
    assert seen(made).spec.problem == "runtime 'torch' not found"


def test_one_that_was_stopped_keeps_its_pod_sets_until_it_is_restored() -> None:
    """Its runtime may be gone by then; without it no more can be said of the TrainJob when it is as it was."""
    part = {"name": "node", "template": {"spec": {"template": {"spec": {"nodeSelector": {"tier": "spot"}}}}}}
    patch = {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [part]}}}}
    made = bridge(clustertrainingruntimes=[torch()], trainjobs=[job()])
    until_quiet(made)
    made.machine.decide(Changed("trainjobs", "MODIFIED", job(suspend=False, runtimePatches=[patch]), "2"))
    made.machine.decide(Changed(RUNTIMES, "DELETED", torch(), "3"))
    until_quiet(made)
    made.machine.decide(Changed("trainjobs", "MODIFIED", job(runtimePatches=[patch]), "4"))
    stopped = seen(made).spec
    assert ([each.count for each in stopped.pod_sets], stopped.injected) == ([2], True)
    made.machine.decide(Changed("trainjobs", "MODIFIED", job(), "5"))
    restored = seen(made).spec
    assert (restored.pod_sets, restored.problem) == ((), "runtime 'torch' not found")
