"""
Random clusters with random work, from a seed.

A scenario is a cluster (flavors, nodes, cohort, queues) and a script: what happens when. Everything in it can end: a
job is either small enough to run at some time, or can never fit and waits in a BestEffortFIFO queue, where it blocks
none. So which jobs finish does not depend on how the race between arrivals and decisions goes, and a run with
faults must end like one without.
"""

import random
from typing import Any

import msgspec

from headgate.core.api.names import SCHEDULER_NAME
from headgate.events.configuration import Configuration, FairSharingConfiguration

Manifest = dict[str, Any]
KUEUE = "kueue.x-k8s.io/v1beta2"
GATE = "gate"
"""The admission check of scenarios that have one; `tests.simulation.test_seeds` plays its controller."""


class Step(msgspec.Struct, frozen=True):
    """At a time (ms after the start) apply a manifest, or delete a Job by `<namespace>/<name>`."""

    at_ms: int
    apply: Manifest | None = None
    delete: str = ""


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster, the script, and what is known of its end."""

    seed: int
    objects: tuple[Manifest, ...]
    steps: tuple[Step, ...]
    can_finish: frozenset[str]
    never_fits: frozenset[str] = frozenset()
    deleted: frozenset[str] = frozenset()
    configuration: Configuration = Configuration()
    placing: bool = False
    """Whether Headgate places the pods, and not the cluster."""


def kueue(kind: str, name: str, spec: Manifest, namespace: str = "") -> Manifest:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": spec}


def node(name: str, flavor: str, cpu: int, taint: bool) -> Manifest:
    resources = {"cpu": str(cpu), "memory": "64Gi", "pods": "50"}
    spec = {"taints": [{"key": "flavor", "value": flavor, "effect": "NoSchedule"}]} if taint else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"flavor": flavor}},
        "spec": spec,
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def job(name: str, namespace: str, rng: random.Random, cpu: int, pods: int, run_ms: int, priority: str) -> Manifest:
    labels = {"kueue.x-k8s.io/queue-name": "main", **({"kueue.x-k8s.io/priority-class": priority} if priority else {})}
    requests = {"cpu": str(cpu), **({"memory": "1Gi"} if rng.random() < 0.5 else {})}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "suspend": True,
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": {"headgate.dev/run-ms": str(run_ms)}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}],
                },
            },
        },
    }


def placed_by_headgate(manifest: Manifest) -> Manifest:
    """A Job whose pods Headgate places by the configuration of simulated worlds, and not the cluster."""
    manifest["spec"]["template"]["spec"]["schedulerName"] = SCHEDULER_NAME
    return manifest


def cluster_queue(
    name: str, flavors: list[str], nominal: int, rng: random.Random, *, cohort: str, checks: bool
) -> Manifest:
    strategy = rng.choice(["BestEffortFIFO", "BestEffortFIFO", "StrictFIFO"])

    def quota(resource: str, amount: str, bounded: bool) -> Manifest:
        limits = {}
        if cohort and bounded and rng.random() < 0.4:
            limits["borrowingLimit"] = str(rng.randint(0, 2 * nominal))
        if cohort and bounded and rng.random() < 0.4:
            limits["lendingLimit"] = str(rng.randint(0, nominal))
        return {"name": resource, "nominalQuota": amount, **limits}

    groups = [
        {
            "coveredResources": ["cpu", "memory"],
            "flavors": [
                {"name": flavor, "resources": [quota("cpu", str(nominal), True), quota("memory", "64Gi", False)]}
                for flavor in flavors
            ],
        }
    ]
    spec: Manifest = {
        "queueingStrategy": strategy,
        "namespaceSelector": {},
        "resourceGroups": groups,
        "stopPolicy": "None",
    }
    if cohort:
        spec["cohortName"] = cohort
    if rng.random() < 0.3:
        spec["flavorFungibility"] = {"whenCanBorrow": "TryNextFlavor"}
    if checks:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": GATE}]}
    return kueue("ClusterQueue", name, spec)


def scenario(seed: int, *, placing: bool | None = None) -> Scenario:
    """The scenario of a seed; in every fourth Headgate places the pods."""
    rng = random.Random(f"scenario-{seed}")
    placing = seed % 4 == 0 if placing is None else placing
    flavors = ["on-demand", "spot"][: rng.randint(1, 2)]
    tainted = {flavor: rng.random() < 0.3 for flavor in flavors}
    nominal = rng.randint(3, 6)
    teams = ["team-a", "team-b", "team-c"][: rng.randint(1, 3)]
    cohort = "all" if rng.random() < 0.7 else ""
    checks = rng.random() < 0.25
    objects: list[Manifest] = []
    for flavor in flavors:
        spec: Manifest = {"nodeLabels": {"flavor": flavor}}
        if tainted[flavor]:
            spec["nodeTaints"] = [{"key": "flavor", "value": flavor, "effect": "NoSchedule"}]
            spec["tolerations"] = [{"key": "flavor", "operator": "Equal", "value": flavor, "effect": "NoSchedule"}]
        objects.append(kueue("ResourceFlavor", flavor, spec))
        # Room for everything that quota admits, in pieces of any size: quota is what is scarce here.
        objects += [node(f"{flavor}-{n}", flavor, 3 * nominal, tainted[flavor]) for n in range(4)]
    for name, value in (("low", -10), ("high", 100)):
        objects.append(
            {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
        )
    if checks:
        objects.append(kueue("AdmissionCheck", GATE, {"controllerName": "tests/gate"}))
    queues, locals_ = [], []
    for team in teams:
        objects.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}})
        queues.append(cluster_queue(team, flavors, nominal, rng, cohort=cohort, checks=checks and rng.random() < 0.6))
        locals_.append(kueue("LocalQueue", "main", {"clusterQueue": team}, team))
    steps: list[Step] = []
    for queue, local in zip(queues, locals_, strict=True):
        for manifest in (queue, local):
            if rng.random() < 0.2:
                steps.append(Step(rng.randint(0, 8_000), manifest))
            else:
                objects.append(manifest)
    strict = {queue["metadata"]["name"] for queue in queues if queue["spec"]["queueingStrategy"] == "StrictFIFO"}
    names = _jobs(rng, teams, strict, nominal, steps)
    if placing:
        for step in steps:
            if step.apply is not None and step.apply["kind"] == "Job":
                placed_by_headgate(step.apply)
    for queue in queues:
        if rng.random() < 0.3:
            begin = rng.randint(2_000, 15_000)
            stopped = {**queue, "spec": {**queue["spec"], "stopPolicy": rng.choice(["Hold", "HoldAndDrain"])}}
            begin = max(begin, *(step.at_ms + 1 for step in steps if step.apply is queue), 0)
            steps.append(Step(begin, stopped))
            steps.append(Step(begin + rng.randint(500, 10_000), queue))
    deleted = set()
    for name in sorted(names):
        if rng.random() < 0.08:
            created = next(step.at_ms for step in steps if step.apply is not None and _is_job(step.apply, name))
            steps.append(Step(created + rng.randint(1, 6_000), delete=name))
            deleted.add(name)
    return Scenario(
        seed=seed,
        objects=tuple(objects),
        steps=tuple(sorted(steps, key=lambda step: step.at_ms)),
        can_finish=frozenset(name for name, fits in names.items() if fits and name not in deleted),
        never_fits=frozenset(name for name, fits in names.items() if not fits and name not in deleted),
        deleted=frozenset(deleted),
        placing=placing,
    )


def _is_job(manifest: Manifest, name: str) -> bool:
    metadata = manifest["metadata"]
    return manifest["kind"] == "Job" and f"{metadata['namespace']}/{metadata['name']}" == name


def _jobs(rng: random.Random, teams: list[str], strict: set[str], nominal: int, steps: list[Step]) -> dict[str, bool]:
    """Jobs over the first twenty seconds; `<namespace>/<name>` -> whether it can run at some time."""
    names = {}
    for number in range(rng.randint(5, 14)):
        team = rng.choice(teams)
        pods = rng.randint(1, 3)
        cpu = rng.randint(1, max(1, nominal // pods))
        fits = team in strict or rng.random() > 0.08
        if not fits:
            cpu = 20 * nominal
        manifest = job(
            f"job-{number}", team, rng, cpu, pods, rng.randint(200, 6_000), rng.choice(["", "", "low", "high"])
        )
        steps.append(Step(rng.choice([0, rng.randint(0, 20_000)]), manifest))
        names[f"{team}/job-{number}"] = fits
    return names


# --- contended quota -----------------------------------------------------------------------------------------------


def contended(seed: int) -> Scenario:
    """
    Few flavors, many jobs, and every policy of preemption: cohorts of cohorts, limits, priorities, fair sharing.

    Every job is at most as large as the nominal quota of its ClusterQueue in each flavor. A seed divisible by three has
    fair sharing, and a cohort with quota of its own to share.
    """
    rng = random.Random(f"contended-{seed}")
    flavors = ["on-demand", "spot"][: rng.choice([1, 1, 2])]
    nominal = rng.randint(3, 6)
    teams = ["team-a", "team-b", "team-c", "team-d"][: rng.randint(1, 4)]
    strategies = rng.choice([("LessThanOrEqualToFinalShare", "LessThanInitialShare"), ("LessThanInitialShare",)])
    fair = FairSharingConfiguration(preemption_strategies=strategies) if seed % 3 == 0 else None
    objects: list[Manifest] = []
    for flavor in flavors:
        objects.append(kueue("ResourceFlavor", flavor, {"nodeLabels": {"flavor": flavor}}))
        objects += [node(f"{flavor}-{n}", flavor, 3 * nominal, False) for n in range(4)]
    for name, value in (("low", -10), ("high", 100)):
        objects.append(
            {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
        )
    nested = rng.random() < 0.3
    if nested:
        objects += [kueue("Cohort", name, {"parentName": "all"}) for name in ("left", "right")]
    if fair is not None:
        objects.append(kueue("Cohort", "all", {"resourceGroups": _groups(flavors, str(2 * nominal))}))
    for number, team in enumerate(teams):
        cohort = rng.choice(["all", "all", "all", ""]) if not nested else ["left", "right"][number % 2]
        queue = cluster_queue(team, flavors, nominal, rng, cohort=cohort, checks=False)
        queue["spec"]["preemption"] = _preemption(rng)
        if fair is not None and rng.random() < 0.5:
            queue["spec"]["fairSharing"] = {"weight": rng.choice(["1", "2", "500m"])}
        objects.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}})
        objects += [queue, kueue("LocalQueue", "main", {"clusterQueue": team}, team)]
    steps: list[Step] = []
    names = set()
    for number in range(rng.randint(10, 26)):
        team = rng.choice(teams)
        pods = rng.randint(1, 3)
        cpu = rng.randint(1, max(1, nominal // pods))
        priority = rng.choice(["", "", "low", "high"])
        manifest = job(f"job-{number}", team, rng, cpu, pods, rng.randint(2_000, 15_000), priority)
        steps.append(Step(rng.choice([0, rng.randint(0, 12_000)]), manifest))
        names.add(f"{team}/job-{number}")
    return Scenario(
        seed=seed,
        objects=tuple(objects),
        steps=tuple(sorted(steps, key=lambda step: step.at_ms)),
        can_finish=frozenset(names),
        configuration=Configuration(
            fair_sharing=fair,
            preemption_waits=seed % 2 == 0,
            wake_policy="CohortTree" if seed % 8 == 3 else "Bounded",
        ),
    )


def _groups(flavors: list[str], cpu: str) -> list[Manifest]:
    quotas = [{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": "64Gi"}]
    return [
        {"coveredResources": ["cpu", "memory"], "flavors": [{"name": name, "resources": quotas} for name in flavors]}
    ]


def _preemption(rng: random.Random) -> Manifest:
    policies = ["Never", "LowerPriority", "Any"]
    preemption: Manifest = {
        "withinClusterQueue": rng.choice(["Never", "LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority"]),
        "reclaimWithinCohort": rng.choice(policies),
    }
    if preemption["reclaimWithinCohort"] != "Never" and rng.random() < 0.3:
        borrow = {"policy": "LowerPriority"}
        preemption["borrowWithinCohort"] = {**borrow, "maxPriorityThreshold": 50} if rng.random() < 0.5 else borrow
    return preemption
