"""
The integration of TrainJob (trainer.kubeflow.org/v1alpha1; Kueue's pkg/controller/jobs/trainjob).

A TrainJob names a runtime, which has the template of a JobSet; the Trainer makes that JobSet from both. So its pod sets
follow from two objects. `with_runtime` puts the runtime into the TrainJob, as the field RUNTIME_FIELD, which none of an
API server has: the informer bridge does so with each that it observes. Without it a TrainJob has no pod sets, and
`Job.problem` says that its runtime is not there.

What an admission changes is written as a runtime patch, which the Trainer lays over the template; templates may be
changed only while a TrainJob is suspended, so it is resumed by a second patch.

The runtime is applied as the Trainer does it (its pkg/runtime), as far as scheduling depends on it: numbers of nodes,
runtime patches, resources, images, commands and environment. What the policies of its frameworks add beside that
(environment, volumes of keys) is not in the Workload's templates.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from headgate.core.api.job_kinds import TRAIN_JOB
from headgate.core.jobs.integration import Directives, Json, PodSetState
from headgate.core.jobs.job_set import replicated_source
from headgate.core.jobs.suspendable import (
    JobStatus,
    PodSetSource,
    Suspendable,
    at,
    condition_at,
    items_at,
    number_at,
)
from headgate.events.objects import Job

CLUSTER_RUNTIME: Final = "ClusterTrainingRuntime"
_RUNTIMES: Final = tuple(f"{each}.{TRAIN_JOB.group}" for each in (CLUSTER_RUNTIME, "TrainingRuntime"))

RUNTIME_FIELD: Final = "trainingRuntime"
"""The field with the runtime's spec, in the form of a TrainJob that the bridge passes on."""
MANAGER: Final = "kueue.x-k8s.io/manager"
"""Whose runtime patch an admission is written into; admission makes it when a TrainJob is created."""

_ANCESTOR: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
_TRAINER: Final = "trainer"
_NODE: Final = "node"
_INITIALIZERS: Final = {"dataset-initializer": "dataset", "model-initializer": "model"}
_MERGE_KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "schedulingGates": "name",
    "env": "name",
    "volumeMounts": "mountPath",
}
"""The lists of a pod template that a strategic merge patch merges, with the keys of their items."""


class TrainJob(Suspendable):
    """The integration of TrainJob. See the module docstring."""

    kind = TRAIN_JOB
    changes_while_suspended = True

    def completed(self, job: Job, obj: Json) -> Job:
        """See `Suspendable`."""
        return job if job.pod_sets else replace(job, problem=_problem(obj))

    def sources(self, obj: Json) -> list[PodSetSource]:
        """See `Suspendable`. The templates are derived ones."""
        statuses = {each.get("name"): each for each in items_at(obj, "status", "jobsStatus")}
        return [
            replicated_source(number, each, statuses.get(each.get("name"), {}))
            for number, each in enumerate(_replicated_jobs(obj))
        ]

    def status(self, obj: Json, sources: Sequence[PodSetSource]) -> JobStatus:
        """See `Suspendable`. Its Jobs, and not their pods, are counted as ready."""
        statuses = items_at(obj, "status", "jobsStatus")
        wanted = sum(source.sub_group_count or 0 for source in sources)
        ready = sum(number_at(each, 0, "ready") + number_at(each, 0, "succeeded") for each in statuses)
        completed = condition_at(obj, "Complete", "status", "conditions")
        failed = condition_at(obj, "Failed", "status", "conditions") if completed is None else None
        return JobStatus(
            active=any(number_at(each, 0, "active") > 0 for each in statuses),
            pods_ready=bool(sources) and ready == wanted,
            succeeded=completed is not None,
            failed=failed is not None,
            message=str((completed or failed or {}).get("message", "")),
        )

    def edit(self, obj: Json, pod_sets: Sequence[PodSetState]) -> None:
        """See `Suspendable`. The pod sets have the names of the Jobs that the patch is about."""
        spec = _patch_of(obj).setdefault("trainingRuntimeSpec", {}).setdefault("template", {}).setdefault("spec", {})
        spec["replicatedJobs"] = [
            {"name": each.name, "template": {"spec": {"template": _added(each.directives)}}} for each in pod_sets
        ]

    def undo(self, obj: Json, pod_sets: Sequence[PodSetState]) -> None:
        """See `Suspendable`. The runtime patch stays, without anything in it, as it was made."""
        spec = at(_patch_of(obj), "trainingRuntimeSpec", "template", "spec")
        if spec is not None:
            spec.pop("replicatedJobs", None)

    def is_edited(self, sources: Sequence[PodSetSource], obj: Json) -> bool:
        """See `Suspendable`."""
        ours = (each for each in items_at(obj, "spec", "runtimePatches") if each.get("manager") == MANAGER)
        return any(at(each, "trainingRuntimeSpec", "template", "spec", "replicatedJobs") for each in ours)


# --- the runtime -----------------------------------------------------------------------------------------------------


def runtime_of(raw: bytes) -> tuple[str, str]:
    """Kind and name of the runtime that a TrainJob names, with the defaults of the API; "" for none."""
    return runtime_in(msgspec.json.decode(raw))


def runtime_in(obj: Json) -> tuple[str, str]:
    """As `runtime_of`, of a TrainJob that was decoded."""
    kind = at(obj, "spec", "runtimeRef", "kind") or CLUSTER_RUNTIME
    group = at(obj, "spec", "runtimeRef", "apiGroup") or TRAIN_JOB.group
    return f"{kind}.{group}", str(at(obj, "spec", "runtimeRef", "name") or "")


def with_runtime(raw: bytes, runtime: bytes) -> bytes:
    """A TrainJob with the runtime that it names, both as the API server has them."""
    obj, spec = msgspec.json.decode(raw), at(msgspec.json.decode(runtime), "spec")
    return msgspec.json.encode({**obj, RUNTIME_FIELD: spec or {}})


def sources_with(obj: Json, runtime: Json) -> list[PodSetSource]:
    """The pod sets of a TrainJob with the runtime that it names, both decoded. Raises WrongFieldError."""
    return TrainJob().sources({**obj, RUNTIME_FIELD: at(runtime, "spec") or {}})


def runtime_problem(obj: Json) -> str:
    """Why a TrainJob names nothing that can be its runtime; "" where it does."""
    kind = runtime_in(obj)[0]
    return "" if kind in _RUNTIMES else f"unsupported runtime: {kind}"


def _problem(obj: Json) -> str:
    """Kueue's messages."""
    name = runtime_in(obj)[1]
    found = f"the runtime '{name}' has no Jobs" if RUNTIME_FIELD in obj else f"runtime '{name}' not found"
    return runtime_problem(obj) or found


def _replicated_jobs(obj: Json) -> list[Json]:
    """The replicated jobs of the JobSet that the Trainer makes (Kueue's getChildJobSet)."""
    runtime = obj.get(RUNTIME_FIELD)
    if not isinstance(runtime, dict):
        return []
    jobs = copy.deepcopy(items_at(runtime, "template", "spec", "replicatedJobs"))
    for patch in items_at(obj, "spec", "runtimePatches"):
        for part in items_at(patch, "trainingRuntimeSpec", "template", "spec", "replicatedJobs"):
            for job in jobs:
                if job.get("name") == part.get("name") and isinstance(part.get("template"), dict):
                    job["template"] = _merged(job.get("template") or {}, part["template"])
    for job in jobs:
        _size(job, obj, runtime)
        _fill(job, obj, runtime)
    return jobs


def _step(job: Json) -> str:
    return str(at(job, "template", "metadata", "labels", _ANCESTOR) or "")


def _size(job: Json, obj: Json, runtime: Json) -> None:
    """Set how many pods a Job has: as many as there are nodes, where it is the one that trains."""
    spec = job.setdefault("template", {}).setdefault("spec", {})
    policy, step = runtime.get("mlPolicy"), _step(job)
    count = number_at(spec, 1, "parallelism")
    if step == _TRAINER and policy is not None:
        count = number_at(policy, 1, "numNodes")
    count = max(count, 1)
    nodes = at(obj, "spec", "trainer", "numNodes")
    if nodes is not None:
        if at(policy, "mpi") is None:
            count = nodes if step == _TRAINER else count
        elif job.get("name") == _NODE:
            count = max(nodes - 1, 1) if at(policy, "mpi", "runLauncherAsNode") else nodes
    spec |= {"parallelism": count, "completions": count}
    if step == _TRAINER or step in _INITIALIZERS:
        job["replicas"] = 1


def _fill(job: Json, obj: Json, runtime: Json) -> None:
    """Give the containers of a Job what the TrainJob says of them."""
    step = _step(job)
    containers = items_at(job, "template", "spec", "template", "spec", "containers")
    if step in _INITIALIZERS:
        said = at(obj, "spec", "initializer", _INITIALIZERS[step])
        for each in containers:
            if each.get("name") == step and isinstance(said, dict):
                _initialize(each, said)
        return
    trainer = at(obj, "spec", "trainer") or {}
    is_node = job.get("name") == _NODE and bool(at(runtime, "mlPolicy", "mpi", "runLauncherAsNode"))
    for each in containers:
        if each.get("name") != _NODE or not (step == _TRAINER or is_node):
            continue
        if step == _TRAINER:
            each |= {field: trainer[field] for field in ("image", "command", "args") if trainer.get(field) is not None}
        resources = trainer.get("resourcesPerNode") or {}
        if resources.get("limits") or resources.get("requests"):
            each["resources"] = resources
        _set_env(each, items_at(trainer, "env"))


def _initialize(container: Json, said: Json) -> None:
    if said.get("storageUri") is not None:
        _set_env(container, [{"name": "STORAGE_URI", "value": said["storageUri"]}])
    _set_env(container, items_at(said, "env"))
    if said.get("secretRef"):
        secret = {"secretRef": {"name": said["secretRef"].get("name", "")}}
        container["envFrom"] = [*(container.get("envFrom") or ()), secret]


def _set_env(container: Json, env: list[Json]) -> None:
    if env:
        container["env"] = _merged_lists(container.get("env") or [], env, "name", lambda _, new: new)


def _merged(base: Json, patch: Json) -> Json:
    """A strategic merge patch of a pod template, or of a Job's template, applied."""
    made = dict(base)
    for field, value in patch.items():
        known = made.get(field)
        if value is None:
            made.pop(field, None)
        elif isinstance(value, dict):
            made[field] = _merged(known if isinstance(known, dict) else {}, value)
        elif field in _MERGE_KEYS and isinstance(value, list):
            made[field] = _merged_lists(known or [], value, _MERGE_KEYS[field], _merged)
        else:
            made[field] = value
    return made


def _merged_lists(base: list[Json], patch: list[Json], key: str, merge: Callable[[Json, Json], Json]) -> list[Json]:
    """Two lists of objects that a key tells apart: the second's are merged into the first's, or come after them."""
    made: dict[Any, Json] = {each.get(key): each for each in base}
    for each in patch:
        known = made.get(each.get(key))
        made[each.get(key)] = each if known is None else merge(known, each)
    return list(made.values())


# --- what an admission changes ---------------------------------------------------------------------------------------


def _patch_of(obj: Json) -> Json:
    """The runtime patch that an admission is written into; it is made where a TrainJob has none."""
    patches = items_at(obj, "spec", "runtimePatches")
    found = next((each for each in patches if each.get("manager") == MANAGER), None)
    if found is None:
        found = {"manager": MANAGER}
        obj["spec"]["runtimePatches"] = [*patches, found]
    return found


def _added(directives: Directives) -> Json:
    """The patch of a pod template. Lists are not merged but for gates, so all of each is in it."""
    metadata = {"labels": dict(directives.labels), "annotations": dict(directives.annotations)}
    spec = {
        "nodeSelector": dict(directives.node_selector),
        "tolerations": [msgspec.to_builtins(each) for each in directives.tolerations],
        "schedulingGates": [{"name": name} for name in directives.scheduling_gates],
    }
    return {
        "metadata": {field: value for field, value in metadata.items() if value},
        "spec": {field: value for field, value in spec.items() if value},
    }
