"""
Drawn objects and operations through all six machines: every run keeps what `tests.fuzz.judges` judge.

A failure is a seed. It is reduced before it is reported: `pytest tests/fuzz --fuzz 1 --fuzz-first SEED` plays it again,
`make fuzz N=10000` looks for more.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.fuzz.judges import judges

from headgate.core.machine.contract import Command, Committed, Machine, Stimulus
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.facts import JobObserved
from headgate.machines.queue_manager.decide import QueueManager
from headgate.testing.fuzz import (
    TRIES_MAX,
    Ending,
    Operation,
    Playing,
    Script,
    script_of,
    shrink,
    signature,
    tail,
    told,
    tries_for,
)
from headgate.testing.world import world

KUEUE = "kueue.x-k8s.io/v1beta2"


def failure(script: Script) -> tuple[Playing, Exception] | None:
    """How a script fails under all judges; None when it does not."""
    playing = Playing(script, judges())
    try:
        playing.play()
    except Exception as error:  # noqa: BLE001  (whatever a machine raises is what is looked for)
        return playing, error
    return None


def small_failure(script: Script, kind: str, tries_max: int = TRIES_MAX) -> Script:
    """The smallest script found that fails in the same way."""

    def fails(candidate: Script) -> bool:
        found = failure(candidate)
        return found is not None and signature(found[1]) == kind

    return shrink(script, fails, tries_max)


def story(seed: int) -> str:
    """What a seed finds, reduced: the operations, and the log about them. Empty when it finds nothing."""
    script = script_of(seed)
    found = failure(script)
    if found is None:
        return ""
    small = small_failure(script, signature(found[1]), tries_for(found[0].world.steps))
    playing, error = failure(small) or found
    lines = "\n".join(tail(playing.log, getattr(error, "about", "")))
    again = f"pytest tests/fuzz --fuzz 1 --fuzz-first {seed}"
    return f"seed {seed}: {signature(error)}: {error}\nplay it again with `{again}`\n\n{told(small)}\n\n{lines}"


def test_a_drawn_run_keeps_every_promise(fuzz_seed: int) -> None:
    """No machine raises, quota holds, the accounts are consistent, no workload is lost, and the run settles."""
    script = script_of(fuzz_seed)
    found = failure(script)
    if found is not None:
        pytest.fail(f"{story(fuzz_seed)}\n", pytrace=False)


def test_the_same_seed_gives_the_same_run() -> None:
    """To the byte, whether there are faults in it or not."""
    for seed in range(4):
        first, second = Playing(script_of(seed)), Playing(script_of(seed))
        assert first.play() == second.play()
        assert first.world.state.log_hash == second.world.state.log_hash


def test_runs_are_worth_playing() -> None:
    """Most requests are accepted, some are not; work is admitted, preempted, evicted, finished; processes restart."""
    seen: Counter[str] = Counter()
    accepted = operations = crashes = restored = rested = 0
    for seed in range(60):
        played = Playing(script_of(seed)).play()
        seen.update(played.events)
        accepted, operations = accepted + played.accepted, operations + played.operations
        crashes, restored, rested = (
            crashes + played.crashes,
            restored + played.restored,
            rested + (played.ending is not Ending.NONE),
        )
    assert 0.5 < accepted / operations < 0.9
    assert rested == 60
    assert seen["WorkloadAdmitted"] > 100
    assert min(seen[each] for each in ("WorkloadPreempted", "WorkloadEvicted", "WorkloadFinished", "JobStopped")) > 0
    assert min(crashes, restored) > 10


def post(at_ms: int, api: str, kind: str, body: dict[str, Any], namespace: str = "") -> Operation:
    """An actor makes an object."""
    group = f"/api/{api}" if "/" not in api else f"/apis/{api}"
    scope = f"/namespaces/{namespace}" if namespace else ""
    path, whole = f"{group}{scope}/{kind.lower()}s", {"apiVersion": api, "kind": kind, **body}
    return Operation(at_ms=at_ms, actor="user", method="POST", path=path, body=whole)


def small_cell() -> tuple[Operation, ...]:
    """A namespace, a node, and a queue with quota."""
    quotas = [{"name": "cpu", "nominalQuota": "8"}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "spot", "resources": quotas}]}]
    capacity = {"cpu": "16", "pods": "50"}
    ready = {"capacity": capacity, "allocatable": capacity, "conditions": [{"type": "Ready", "status": "True"}]}
    queue = {"namespaceSelector": {}, "resourceGroups": groups}
    return (
        post(0, "v1", "Namespace", {"metadata": {"name": "team-a"}}),
        post(0, "v1", "Node", {"metadata": {"name": "node"}, "spec": {}, "status": ready}),
        post(0, KUEUE, "ResourceFlavor", {"metadata": {"name": "spot"}, "spec": {}}),
        post(0, KUEUE, "ClusterQueue", {"metadata": {"name": "cq"}, "spec": queue}),
        post(0, KUEUE, "LocalQueue", {"metadata": {"name": "main"}, "spec": {"clusterQueue": "cq"}}, "team-a"),
    )


def pod_template(run_ms: int) -> dict[str, Any]:
    """Pods of one CPU that run for so long."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {"annotations": {"headgate.dev/run-ms": str(run_ms)}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


def test_a_job_with_more_pods_than_a_run_has_time_for_comes_to_rest() -> None:
    """It makes a pod for each that ends, and nothing else happens."""
    job = {
        "metadata": {"name": "endless", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {"suspend": True, "parallelism": 4, "completions": 2**31 - 1, "template": pod_template(200)},
    }
    made = post(100, "batch/v1", "Job", job, "team-a")
    played = Playing(Script(seed=0, operations=(*small_cell(), made)), judges()).play()
    assert played.events["PodDeleted"] >= 300
    assert played.ending is Ending.REST


def test_an_owner_that_deletes_its_evicted_workload_gives_the_quota_back_while_a_finalizer_holds_it() -> None:
    """Then the finalizer goes, and the workload with it: it is not deleted again and again."""
    owner = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "owner", "uid": "uid", "controller": True}
    finalizers = ["kueue.x-k8s.io/resource-in-use"]
    workload = {
        "metadata": {"name": "theirs", "ownerReferences": [owner], "finalizers": finalizers},
        "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 1, "template": pod_template(200)}]},
    }
    made = post(100, KUEUE, "Workload", workload, "team-a")
    off = Operation(
        at_ms=3000, actor="user", method="PATCH", path=f"{made.path}/theirs", body={"spec": {"active": False}}
    )
    script = Script(seed=0, operations=(*small_cell(), made, off), owners="delete")
    played = Playing(script, judges()).play()
    assert (played.events["WorkloadEvicted"], played.events["WorkloadReleased"]) == (1, 1)
    assert played.events["WorkloadDeleted"] == 1
    assert played.ending is Ending.REST


def test_a_workload_that_waits_may_be_deactivated_though_a_status_by_hand_shows_it_admitted() -> None:
    """It holds no quota that its owner would have to give back."""
    owner = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "owner", "uid": "uid", "controller": True}
    workload = {
        "metadata": {"name": "theirs", "ownerReferences": [owner]},
        "spec": {"queueName": "none", "podSets": [{"name": "main", "count": 1, "template": pod_template(200)}]},
    }
    made = post(100, KUEUE, "Workload", workload, "team-a")
    at = "2023-11-14T22:13:20Z"
    said = [
        {"type": condition, "status": "True", "reason": "ByHand", "message": "", "lastTransitionTime": at}
        for condition in ("QuotaReserved", "Admitted")
    ]
    assigned = {"name": "main", "count": 1, "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "1"}}
    status = {"admission": {"clusterQueue": "cq", "podSetAssignments": [assigned]}, "conditions": said}
    path = f"{made.path}/theirs"
    by_hand = Operation(at_ms=3000, actor="meddler", method="PATCH", path=f"{path}/status", body={"status": status})
    off = Operation(at_ms=6000, actor="user", method="PATCH", path=path, body={"spec": {"active": False}})
    script = Script(seed=0, operations=(*small_cell(), made, by_hand, off), owners="ignore")
    played = Playing(script, judges()).play()
    assert (played.accepted, played.operations) == (8, 8)
    assert (played.events["WorkloadEvicted"], played.events["WorkloadReleased"]) == (1, 1)


def test_a_failure_that_takes_long_is_made_small_with_fewer_tries() -> None:
    """All tries for one of a few hundred steps, a few for one that goes on and on, and one at least."""
    assert tries_for(500) == TRIES_MAX
    assert 10 < tries_for(30_000) < 30
    assert tries_for(10**9) == 1


class Planted:
    """A queue manager that raises when it gets a Job of this name."""

    def __init__(self, state: State, job: str) -> None:
        self.state = state
        self._job = job
        self._machine = QueueManager(state)

    def decide(self, stimulus: Stimulus) -> list[Command]:
        match stimulus:
            case Committed(logged=logged):
                for event in logged.commit.events:
                    if isinstance(event, JobObserved) and event.job == self._job:
                        raise LookupError(self._job)
            case _:
                pass
        return self._machine.decide(stimulus)


def test_a_planted_defect_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of dozens of operations the two are left that bring the object which a machine cannot bear."""

    def planted(state: State) -> Machine:
        return Planted(state, "batch/Job/team-a/job-3")

    machines: dict[Producer, Callable[[State], Machine]] = {**world.MACHINES, Producer.QUEUE_MANAGER: planted}
    monkeypatch.setattr("headgate.testing.fuzz.playing.MACHINES", machines)
    seeds = (seed for seed in range(50) if len(script_of(seed).operations) > 30)
    script, (_, error) = next((script_of(seed), found) for seed in seeds if (found := failure(script_of(seed))))
    assert isinstance(error, LookupError)
    small = small_failure(script, signature(error))
    posts = [(each.method, each.body["metadata"]["name"]) for each in small.operations]
    assert posts == [("POST", "team-a"), ("POST", "job-3")]


def test_a_script_that_does_not_fail_is_not_made_smaller() -> None:
    """Nothing is left out when nothing can be spared."""
    script = script_of(1)
    assert shrink(script, lambda _: False).operations == script.operations
    needed = script.operations[3]
    small = shrink(script, lambda candidate: needed in candidate.operations)
    assert small.operations == (needed,)
    assert msgspec.json.encode(needed)
