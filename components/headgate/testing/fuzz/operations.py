"""
What several actors do to a cluster, drawn from a seed: one list of independent operations.

An operation is one request to the API server, or one process that is stopped for a while. It names its objects and
never a state, so any of them can be left out and the rest can still be played: that is how a failure is reduced. A
value that is known only when it is played is a placeholder in its body:

    {"$uid": "batch/jobs/team-a/job-1"}         the uid of an object, or one that nothing has
    {"$put": [...], "by": "type"}               the present list, with these items merged by their key

`script_of` gives the script of a seed: the objects of a small cluster first, then what the actors do to them.
"""
# Over 400 lines: one method for each kind of operation; all draw from the same seed and the same objects.

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from headgate.core.config import feature_gates
from headgate.events.base import Producer
from headgate.events.configuration import (
    AdmissionFairSharingConfiguration,
    Configuration,
    FairSharingConfiguration,
    RequeuingStrategy,
    ResourcesConfiguration,
    ResourceTransformation,
    RetentionPolicies,
    WaitForPodsReady,
)
from headgate.events.objects import LabelSelector
from headgate.machines.snapshotter.decide import Rules
from headgate.testing.cluster import BY_KIND, Kind
from headgate.testing.fuzz.fitting import CLASS_LABEL, JOBS, KINDS, NODES, PODS, QUEUE_LABEL, WORKLOADS, Manifest
from headgate.testing.fuzz.objects import Objects, kind_of
from headgate.testing.fuzz.values import (
    CHECKS,
    CLASSES,
    CLUSTER_QUEUES,
    COHORTS,
    FLAVORS,
    LOCAL_QUEUES,
    NAMESPACES,
    RUNTIMES,
    TIMES,
    TOPOLOGIES,
)
from headgate.testing.world.world import NO_FAULTS, FaultRates

START_MS: Final = 1_700_000_000_000
STOP: Final = "STOP"
"""The method of an operation that stops a process; `path` names it, `body` has the duration in milliseconds."""

NAMED: Final[Mapping[str, tuple[str, ...]]] = {
    "Namespace": NAMESPACES,
    "Node": NODES,
    "ResourceFlavor": FLAVORS,
    "Topology": TOPOLOGIES,
    "AdmissionCheck": CHECKS,
    "Cohort": COHORTS,
    "ClusterQueue": CLUSTER_QUEUES,
    "LocalQueue": LOCAL_QUEUES,
    "WorkloadPriorityClass": CLASSES,
    "PriorityClass": CLASSES,
    "LimitRange": ("limits",),
    "RuntimeClass": RUNTIMES,
    "Workload": WORKLOADS,
    "Job": JOBS,
    "Pod": PODS,
}
"""The names that objects of a kind have here."""

GATES: Final = (
    feature_gates.CONCURRENT_ADMISSION,
    feature_gates.DISABLE_WAIT_FOR_PODS_READY,
    feature_gates.ELASTIC_JOBS,
    feature_gates.FAIR_SHARING_PREEMPT_WITHIN_NOMINAL,
    feature_gates.FAIR_SHARING_PRIORITIZE_NON_BORROWING,
    feature_gates.PARTIAL_ADMISSION,
    feature_gates.PRESERVE_SCAN_PROGRESS,
    feature_gates.PRIORITIZE_PREEMPTOR_WORKLOADS,
    feature_gates.PRIORITY_BOOST,
    feature_gates.PRIORITY_SORTING_WITHIN_COHORT,
    feature_gates.RECLAIMABLE_PODS,
    feature_gates.RECOMPUTE_UPON_OVERLAP,
    feature_gates.SCHEDULING_EQUIVALENCE_HASHING,
)
"""Those that change what is decided."""
ADMINS_KINDS: Final = ("ClusterQueue", "ClusterQueue", "ClusterQueue", "LocalQueue", "LocalQueue", *KINDS)


PRESENT: Final[Mapping[str, float]] = {
    "Namespace": 0.99,
    "Node": 0.97,
    "ResourceFlavor": 0.98,
    "AdmissionCheck": 0.95,
    "ClusterQueue": 0.98,
    "LocalQueue": 0.98,
    "WorkloadPriorityClass": 0.97,
}
"""How likely an object of a kind is there from the beginning; 0.3 of all others."""


class Operation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request of one actor, `at_ms` after the start. A POST's name is in its body."""

    at_ms: int
    actor: str
    method: str
    path: str
    body: Any = None
    query: dict[str, str] = {}


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """
    All of one run.

    `owners`: what the controllers of workloads of other owners do when those are evicted: "release" them, as
    they should, "finish" or "delete" them, or "ignore" it. `placing`: whether Headgate places the pods that name it.
    """

    seed: int
    operations: tuple[Operation, ...]
    faults: FaultRates = NO_FAULTS
    rules: Rules = Rules()
    configuration: Configuration = Configuration()
    owners: str = "release"
    placing: bool = False


def script_of(seed: int) -> Script:
    """The script of a seed."""
    rng = random.Random(f"fuzz-{seed}")  # noqa: S311  (a run has to be repeatable, not secret)
    span_ms = rng.choice((3_000, 10_000, 30_000))
    hand = _Hand(rng, oddity=rng.choice((0.0, 0.1, 0.3, 0.6)))
    hand.found()
    for _ in range(rng.choice((8, 16, 30, 50))):
        hand.at_ms = rng.choice((hand.at_ms, rng.randint(0, span_ms)))
        rng.choice(_ACTORS)(hand)
    return Script(
        seed=seed,
        operations=tuple(sorted(hand.operations, key=lambda each: each.at_ms)),
        faults=_faults(rng, span_ms) if rng.random() < 0.4 else NO_FAULTS,
        rules=Rules(commits=rng.choice((7, 40, 20_000)), idle_ms=rng.choice((500, 15_000))),
        configuration=_configuration(rng),
        owners=rng.choice(("release", "release", "finish", "delete", "ignore")),
        placing=seed % 4 == 0,
    )


def _faults(rng: random.Random, span_ms: int) -> FaultRates:
    def some(most: float) -> float:
        return rng.choice((0.0, most / 4, most))

    return FaultRates(
        crash=some(0.01),
        rival=some(0.005),
        call_error=some(0.2),
        call_lost=some(0.1),
        watch_cut=some(0.01),
        forget=some(0.2),
        lag=some(0.4),
        down_ms_max=2_000,
        until_ms=START_MS + span_ms + 2_000,
    )


def _configuration(rng: random.Random) -> Configuration:
    """What an administrator may have switched on."""
    fair = FairSharingConfiguration() if rng.random() < 0.25 else None
    usage = AdmissionFairSharingConfiguration(
        usage_half_life_ms=rng.choice((0, 5_000, 600_000)), usage_sampling_interval_ms=5_000
    )
    ready = WaitForPodsReady(
        timeout_ms=rng.choice((1_000, 10_000)),
        recovery_timeout_ms=rng.choice((None, 1_000)),
        block_admission=rng.random() < 0.3,
        requeuing_strategy=RequeuingStrategy(
            backoff_base_s=rng.choice((0, 1, 5)), backoff_limit_count=rng.choice((0, 1, 3))
        ),
    )
    retention = RetentionPolicies(
        after_finished_ms=rng.choice((0, 3_000)), after_deactivated_by_kueue_ms=rng.choice((None, 1_000))
    )
    resources = ResourcesConfiguration(
        exclude_resource_prefixes=rng.choice(((), ("memory",))),
        transformations=(ResourceTransformation(input="memory", strategy="Replace", outputs={"cpu": "1m"}),),
    )
    only_some = LabelSelector(match_labels={"kubernetes.io/metadata.name": NAMESPACES[0]})
    return Configuration(
        feature_gates={gate: rng.random() < 0.5 for gate in GATES if rng.random() < 0.05},
        fair_sharing=fair,
        admission_fair_sharing=usage if rng.random() < 0.15 else None,
        wait_for_pods_ready=ready if rng.random() < 0.15 else None,
        object_retention_policies=retention if rng.random() < 0.1 else RetentionPolicies(),
        resources=resources if rng.random() < 0.05 else ResourcesConfiguration(),
        managed_jobs_namespace_selector=only_some if rng.random() < 0.05 else None,
        preemption_waits=rng.random() < 0.5,
        wake_policy=rng.choice(("Bounded", "Bounded", "Bounded", "CohortTree")),
    )


def path_of(kind: Kind, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """The URL path of a collection, an object or a subresource."""
    root = f"/apis/{kind.group}" if kind.group else "/api"
    parts = [root, kind.version, *(("namespaces", namespace) if kind.namespaced and namespace else ()), kind.plural]
    return "/".join((*parts, *((name,) if name else ()), *((subresource,) if subresource else ())))


class _Hand:
    """The author of the script: what the actors do is drawn here, one after the other."""

    def __init__(self, rng: random.Random, *, oddity: float) -> None:
        self.rng = rng
        self.objects = Objects(rng, oddity=oddity)
        self.fitting = Objects(rng, oddity=oddity / 10)
        self.operations: list[Operation] = []
        self.at_ms = 0
        self.actor = "admin"

    # --- requests --------------------------------------------------------------------------------------------------

    def create(self, manifest: Manifest) -> None:
        """POST a manifest to its collection."""
        namespace = manifest["metadata"].get("namespace") or ""
        path = path_of(kind_of(manifest), namespace if isinstance(namespace, str) else "default")
        self._do("POST", path, manifest)

    def patch(self, kind: str, change: Any, subresource: str = "", name: str = "", namespace: str = "") -> None:
        """Merge-patch some object of a kind, or this one."""
        self._do("PATCH", self._some(kind, subresource, name, namespace), change)

    def delete(self, kind: str, name: str = "", namespace: str = "") -> None:
        """DELETE some object of a kind, or this one."""
        policy = self.rng.choice(("Background", "Background", "Foreground", "Orphan"))
        self._do("DELETE", self._some(kind, "", name, namespace), None, {"propagationPolicy": policy})

    def _some(self, kind: str, subresource: str, name: str, namespace: str) -> str:
        found = next(each for (_, other), each in BY_KIND.items() if other == kind)
        namespace = namespace or self.rng.choice(NAMESPACES[:2])
        return path_of(found, namespace, name or self.rng.choice(NAMED[kind]), subresource)

    def _do(self, method: str, path: str, body: Any, query: dict[str, str] | None = None) -> None:
        self.operations.append(
            Operation(at_ms=self.at_ms, actor=self.actor, method=method, path=path, body=body, query=query or {})
        )

    # --- actors ----------------------------------------------------------------------------------------------------

    def found(self) -> None:
        """A cluster to begin with. Now and then something of it is missing, or odd."""
        rng = self.rng
        kinds = [kind for kind in KINDS if kind not in ("Workload", "Job", "Pod", "LocalQueue")]
        for kind in kinds:
            names = NAMED[kind]
            wanted = PRESENT.get(kind, 0.3)
            for name in names:
                if rng.random() < wanted:
                    self.create(self.fitting.draw(kind, name))
        for namespace in NAMESPACES[:2]:
            for name in LOCAL_QUEUES:
                if rng.random() < PRESENT["LocalQueue"]:
                    manifest = self.fitting.draw("LocalQueue", name)
                    if isinstance(manifest["metadata"].get("namespace"), str):
                        manifest["metadata"]["namespace"] = namespace
                    self.create(manifest)

    def administer(self) -> None:
        """Queues and what they rest on: made, edited, stopped, deleted and made again."""
        self.actor, rng = "admin", self.rng
        kind = rng.choice(ADMINS_KINDS)
        match rng.randrange(5):
            case 0:
                self.create(self.objects.draw(kind))
            case 1:
                manifest = self.objects.draw(kind)
                fields = [field for field in manifest if field not in ("apiVersion", "kind", "metadata")]
                change = {field: manifest[field] for field in fields}
                self.patch(kind, change, name=str(manifest["metadata"].get("name") or ""))
            case 2:
                stop = {"spec": {"stopPolicy": rng.choice(("None", "None", "Hold", "HoldAndDrain"))}}
                self.patch(rng.choice(("ClusterQueue", "LocalQueue")), stop)
            case 3:
                name = rng.choice(NAMED[kind])
                self.delete(kind, name)
                if rng.random() < 0.6:
                    self.at_ms += rng.choice((0, 0, 1_000))
                    self.create(self.objects.draw(kind, name))
            case _:
                self.patch(
                    kind, {"metadata": {"labels": {**self.objects.fitting.labels(), "a": rng.choice(("b", None))}}}
                )

    def use(self) -> None:
        """Jobs: submitted several at a time, changed, deleted, submitted again under the same name."""
        self.actor, rng = "user", self.rng
        name, namespace = rng.choice(JOBS), rng.choice(NAMESPACES[:2])
        match rng.randrange(9):
            case 0 | 1 | 2 | 3:
                for _ in range(rng.choice((1, 2, 5))):
                    self.create(self.objects.draw("Job"))
            case 4:
                self.delete("Job", name, namespace)
                if rng.random() < 0.5:
                    manifest = self.objects.draw("Job", name)
                    self.at_ms += rng.choice((0, 0, 500))
                    self.create(manifest)
            case 5:
                self.patch("Job", {"spec": {"parallelism": rng.choice((0, 1, 2, 4))}}, name=name, namespace=namespace)
            case 6:
                key = rng.choice((QUEUE_LABEL, CLASS_LABEL))
                label = rng.choice((*LOCAL_QUEUES, *CLASSES, None))
                self.patch("Job", {"metadata": {"labels": {key: label}}}, name=name, namespace=namespace)
            case 7:
                self.patch("Job", {"spec": {"suspend": rng.random() < 0.5}}, name=name, namespace=namespace)
            case _:
                change = {"metadata": {"annotations": self.objects.fitting.annotations()}}
                self.patch("Job", change, name=name, namespace=namespace)

    def integrate(self) -> None:
        """Workloads of another controller: made, finished, released, made ready, switched off, deleted."""
        self.actor, rng = "client", self.rng
        match rng.randrange(10):
            case 0 | 1 | 2 | 3:
                for _ in range(rng.choice((1, 2, 3))):
                    self.create(self.objects.draw("Workload"))
            case 4:
                self._job_with_workload()
            case 5:
                self._say(rng.choice(("Finished", "Finished", "PodsReady", "Evicted")), rng.choice(("True", "False")))
            case 6:
                self._say("QuotaReserved", "False")
            case 7:
                self.patch("Workload", {"spec": {"active": rng.random() < 0.4}})
            case 8:
                self.delete("Workload")
            case _:
                reclaimable = [{"name": rng.choice(("main", "workers")), "count": rng.choice((0, 1, 2))}]
                self.patch("Workload", {"status": {"reclaimablePods": reclaimable}}, "status")

    def _job_with_workload(self) -> None:
        """A suspended Job together with its Workload, as another controller makes them."""
        job = self.fitting.draw("Job")
        name, namespace = job["metadata"].get("name"), job["metadata"].get("namespace")
        if not isinstance(name, str) or not isinstance(namespace, str) or not isinstance(job.get("spec"), dict):
            return
        job["spec"]["suspend"] = True
        self.create(job)
        workload = self.fitting.draw("Workload", f"job-{name}-abcde")
        uid = {"$uid": f"batch/jobs/{namespace}/{name}"}
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
        workload["metadata"] = {"name": f"job-{name}-abcde", "namespace": namespace, "ownerReferences": [owner]}
        self.create(workload)

    def _say(self, condition: str, status: str) -> None:
        said = {
            "type": condition,
            "status": status,
            "reason": self.rng.choice(("ByOthers", "JobFinished", "Preempted", "PodsReadyTimeout")),
            "message": self.rng.choice(("", "said by others")),
            "lastTransitionTime": self.rng.choice(TIMES),
        }
        self.patch("Workload", {"status": {"conditions": {"$put": [said], "by": "type"}}}, "status")

    def check(self) -> None:
        """Controllers of admission checks, beyond what they do of their own accord in every run."""
        self.actor, rng = "checker", self.rng
        if rng.random() < 0.2:
            said = {"type": "Active", "status": rng.choice(("True", "False")), "reason": "Said", "message": ""}
            conditions = {"$put": [{**said, "lastTransitionTime": TIMES[0]}], "by": "type"}
            self.patch("AdmissionCheck", {"status": {"conditions": conditions}}, "status")
            return
        state: Manifest = {
            "name": rng.choice(CHECKS),
            "state": rng.choice(("Ready", "Ready", "Retry", "Rejected", "Pending")),
            "lastTransitionTime": rng.choice(TIMES),
            "message": "",
        }
        if rng.random() < 0.3:
            state["podSetUpdates"] = [{"name": "main", "labels": {"a": "b"}, "nodeSelector": {"c": "d"}}]
        self.patch("Workload", {"status": {"admissionChecks": {"$put": [state], "by": "name"}}}, "status")

    def meddle(self) -> None:
        """An actor that may write anything: statuses, finalizers, owners, odd objects of any kind."""
        self.actor, rng = "meddler", self.rng
        kind = rng.choice(("Workload", "Workload", "Job", *KINDS))
        match rng.randrange(8):
            case 0 | 1:
                self.create(self.objects.draw(kind))
            case 2:
                self.patch(kind, {"metadata": {"finalizers": self.objects.fitting.finalizers()}})
            case 3:
                self.patch(kind, {"metadata": {"ownerReferences": self.objects.fitting.owners()}})
            case 4:
                self._write_part(kind, "status")
            case 5:
                self._write_part(kind, "spec")
            case 6:
                self._admit_by_hand()
            case _:
                self.patch("Workload", {"metadata": {"labels": self.objects.fitting.labels()}})

    def _write_part(self, kind: str, top: str) -> None:
        """A status or spec as the schema would have it, over what is there."""
        manifest = self.objects.draw(kind)
        found = kind_of(manifest)
        if top not in found.schema.fields:
            return
        part = self.objects.part(found, top, manifest.get(top) or {})
        self.patch(kind, {top: part}, "status" if top == "status" and found.status_subresource else "")

    def _admit_by_hand(self) -> None:
        """A reservation that none of ours has made."""
        rng = self.rng
        assignment = {
            "name": "main",
            "count": 1,
            "flavors": {"cpu": rng.choice(FLAVORS)},
            "resourceUsage": {"cpu": "1"},
        }
        admission = {"clusterQueue": rng.choice(CLUSTER_QUEUES), "podSetAssignments": [assignment]}
        said = {"status": "True", "reason": "ByHand", "message": "", "lastTransitionTime": rng.choice(TIMES)}
        conditions = [{"type": each, **said} for each in ("QuotaReserved", "Admitted")]
        status = {"admission": admission, "conditions": {"$put": conditions, "by": "type"}}
        if rng.random() < 0.5:
            self.create(self.objects.draw("Workload", WORKLOADS[0]))
            for namespace in NAMESPACES[:2]:
                self.patch("Workload", {"status": status}, "status", WORKLOADS[0], namespace)
        else:
            self.patch("Workload", {"status": status}, "status")

    def operate(self) -> None:
        """One process is stopped, and comes back after a while."""
        self.actor = "operator"
        self._do(STOP, self.rng.choice(tuple(Producer)).value, self.rng.choice((0, 500, 3_000)))


_ACTORS: Final[tuple[Callable[[_Hand], None], ...]] = (
    *(_Hand.use,) * 8,
    *(_Hand.integrate,) * 5,
    *(_Hand.administer,) * 4,
    *(_Hand.meddle,) * 2,
    _Hand.check,
    _Hand.operate,
)
