"""
The kinds of jobs that Headgate starts and stops, and how a job is addressed and named.

`known` lists them: those of Headgate (`JOB_KINDS`), and those that other packages have added
(`headgate.core.jobs.registry.register`). All code that needs the path of a job, the key of the job in an owner
reference, or the display name of a job, uses this module. A cell runs the kinds that its configuration enables. A job
of any other group or kind is run elsewhere: a Workload that it owns is scheduled, and its owner starts and stops it
(`headgate.core.status.foreign_conditions`).
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from headgate.core.api.names import POD_GROUP_KIND
from headgate.core.config.frameworks import JOB_FRAMEWORK, POD_FRAMEWORK, is_named
from headgate.events.configuration import Configuration
from headgate.events.ids import JobKey, JobRef
from headgate.events.objects import OwnerReference


class JobKind(msgspec.Struct, frozen=True, kw_only=True):
    """
    A kind of job. `framework` is its name in Kueue's configuration.

    `resource` is its name among the watched resources, which is unique where `plural` need not be. An `optional` one
    may be missing or come later: it is of a CustomResourceDefinition, or not in the embedded cluster. One `of_pods` is
    not watched: the facts about its jobs are derived from those about pods. One that `serves` is a set of pod groups:
    it has no Workload, and is neither started nor stopped; each of its groups is (`headgate.core.workload.served`).
    """

    group: str
    version: str
    kind: str
    plural: str
    resource: str
    framework: str
    optional: bool = True
    of_pods: bool = False
    serves: bool = False

    @property
    def api_version(self) -> str:
        """The value of an object's `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def gvk(self) -> str:
        """Group, version and kind as in Kueue's annotation `job-owner-gvk`: `batch/v1, Kind=Job`."""
        return f"{self.group}/{self.version}, Kind={self.kind}"

    def ref(self, namespace: str, name: str) -> JobRef:
        """The reference to a job of this kind."""
        return JobRef(self.group, self.kind, namespace, name)

    def key(self, namespace: str, name: str) -> JobKey:
        """The reference as text."""
        return self.ref(namespace, name).key


def custom(group: str, version: str, kind: str, framework: str = "") -> JobKind:
    """
    A kind of job that comes with a CustomResourceDefinition.

    Its plural is that of Kubernetes' code generators for most names: the kind in lower case and an s.
    """
    plural = f"{kind.lower()}s"
    named = framework or f"{group}/{kind.lower()}"
    return JobKind(group=group, version=version, kind=kind, plural=plural, resource=plural, framework=named)


BATCH_JOB: Final = JobKind(
    group="batch", version="v1", kind="Job", plural="jobs", resource="jobs", framework=JOB_FRAMEWORK, optional=False
)
JOB_SET: Final = custom("jobset.x-k8s.io", "v1alpha2", "JobSet")
PYTORCH_JOB: Final = custom("kubeflow.org", "v1", "PyTorchJob")
TF_JOB: Final = custom("kubeflow.org", "v1", "TFJob")
XGBOOST_JOB: Final = custom("kubeflow.org", "v1", "XGBoostJob")
PADDLE_JOB: Final = custom("kubeflow.org", "v1", "PaddleJob")
JAX_JOB: Final = custom("kubeflow.org", "v1", "JAXJob")
MPI_JOB: Final = custom("kubeflow.org", "v2beta1", "MPIJob")
TRAIN_JOB: Final = custom("trainer.kubeflow.org", "v1alpha1", "TrainJob")
RAY_JOB: Final = custom("ray.io", "v1", "RayJob")
RAY_CLUSTER: Final = custom("ray.io", "v1", "RayCluster")
RAY_SERVICE: Final = custom("ray.io", "v1", "RayService")
SPARK_APPLICATION: Final = custom("sparkoperator.k8s.io", "v1beta2", "SparkApplication")
APP_WRAPPER: Final = custom("workload.codeflare.dev", "v1beta2", "AppWrapper")

STATEFUL_SET: Final = JobKind(
    group="apps",
    version="v1",
    kind="StatefulSet",
    plural="statefulsets",
    resource="statefulsets",
    framework="statefulset",
    serves=True,
)
LEADER_WORKER_SET: Final = msgspec.structs.replace(
    custom("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"), serves=True
)

POD: Final = JobKind(
    group="", version="v1", kind="Pod", plural="pods", resource="pods", framework=POD_FRAMEWORK, of_pods=True
)
POD_GROUP: Final = JobKind(
    group="",
    version="v1",
    kind=POD_GROUP_KIND,
    plural="pods",
    resource="podgroups",
    framework=POD_FRAMEWORK,
    of_pods=True,
)
"""The pods of a pod group together. The API has no such object."""

JOB_KINDS: Final[tuple[JobKind, ...]] = (
    BATCH_JOB,
    JOB_SET,
    PYTORCH_JOB,
    TF_JOB,
    XGBOOST_JOB,
    PADDLE_JOB,
    JAX_JOB,
    MPI_JOB,
    TRAIN_JOB,
    RAY_JOB,
    RAY_CLUSTER,
    RAY_SERVICE,
    SPARK_APPLICATION,
    APP_WRAPPER,
    STATEFUL_SET,
    LEADER_WORKER_SET,
    POD,
    POD_GROUP,
)
"""The kinds that Headgate itself knows."""

TRAINING_RUNTIMES: Final = "trainingruntimes"
CLUSTER_TRAINING_RUNTIMES: Final = "clustertrainingruntimes"
OF_TRAIN_JOBS: Final = (CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES)
"""The resources that are watched with TrainJobs: the runtimes that their pod sets follow from."""

_BETWEEN: Final = {("apps", "ReplicaSet"): "replicasets", ("apps", "Deployment"): "deployments"}
"""The plurals of kinds, by group and kind, that are no jobs themselves, and that owners are followed through."""

_BY_GROUP_KIND: Final[dict[tuple[str, str], JobKind]] = {}
_BY_RESOURCE: Final[dict[str, JobKind]] = {}
_BY_GVK: Final[dict[str, JobKind]] = {}


def add(kind: JobKind) -> None:
    """
    Add a kind; `headgate.core.jobs.registry.register` does, which has its integration too.

    Raises ValueError where another kind has its group and kind, or its resource.
    """
    for before in (_BY_GROUP_KIND.get((kind.group, kind.kind)), _BY_RESOURCE.get(kind.resource)):
        if before is not None and before != kind:
            raise ValueError(f"{kind.gvk} (resource {kind.resource}): {before.gvk} has this kind or resource already")
    _BY_GROUP_KIND[kind.group, kind.kind] = kind
    if not kind.of_pods:
        _BY_RESOURCE[kind.resource] = kind
    _BY_GVK[kind.gvk] = kind


for _each in JOB_KINDS:
    add(_each)


def known() -> tuple[JobKind, ...]:
    """Every kind that can be enabled, in the order in which they were added."""
    return tuple(_BY_GROUP_KIND.values())


def is_enabled(kind: JobKind, configuration: Configuration) -> bool:
    """Whether a cell with this configuration runs a kind."""
    return is_named(kind.framework, configuration.integrations.frameworks)


def enabled(configuration: Configuration) -> tuple[JobKind, ...]:
    """The kinds that a cell with this configuration runs, in the order in which they were added."""
    return tuple(kind for kind in known() if is_enabled(kind, configuration))


def resources_of(kinds: Iterable[JobKind]) -> tuple[str, ...]:
    """The watched resources of kinds; one of pods has none of its own."""
    return tuple(kind.resource for kind in kinds if not kind.of_pods)


def of_key(key: JobKey) -> JobKind | None:
    """The kind of a job; None for one that Headgate does not run."""
    match key.split("/"):
        case [group, kind, _, _]:
            return _BY_GROUP_KIND.get((group, kind))
        case _:
            return None


def of_group_kind(group: str, kind: str) -> JobKind | None:
    """The kind of job of a group and kind; None when Headgate does not run it."""
    return _BY_GROUP_KIND.get((group, kind))


def of_owner(owner: OwnerReference | None) -> JobKind | None:
    """The kind of the job that an owner reference names; None when Headgate does not run it."""
    return _BY_GROUP_KIND.get((owner.group, owner.kind)) if owner is not None else None


def of_resource(resource: str) -> JobKind | None:
    """The kind of job that a watched resource holds; None when it holds no jobs."""
    return _BY_RESOURCE.get(resource)


def of_gvk(gvk: str) -> JobKind | None:
    """The kind of job that an annotation `job-owner-gvk` names; None when Headgate does not run it."""
    return _BY_GVK.get(gvk)


def owner_key(namespace: str, owner: OwnerReference) -> JobKey:
    """The key of the object that an owner reference in a namespace names, regardless of what runs it."""
    return JobRef(owner.group, owner.kind, namespace, owner.name).key


def is_followed(owner: OwnerReference) -> bool:
    """Whether owners are followed upwards through one: a kind of jobs, enabled or not (Kueue's isKnownOwner)."""
    return of_owner(owner) is not None or (owner.group, owner.kind) in _BETWEEN


def owner_path(namespace: str, owner: OwnerReference) -> str:
    """
    The path of an owner that is followed.

    Raises KeyError for any other.
    """
    if of_owner(owner) is not None:
        return path_of(owner_key(namespace, owner))
    return f"/apis/{owner.api_version}/namespaces/{namespace}/{_BETWEEN[owner.group, owner.kind]}/{owner.name}"


def kind_of(key: JobKey) -> JobKind:
    """
    The kind of a job.

    Raises KeyError for one that Headgate does not run.
    """
    kind = of_key(key)
    if kind is None:
        raise KeyError(f"{key}: this version does not run jobs of this kind, but {', '.join(map(str, _BY_GROUP_KIND))}")
    return kind


def path_of(key: JobKey, subresource: str = "") -> str:
    """
    The path of a job, or of its subresource.

    Raises KeyError for a job that Headgate does not run.
    """
    ref, kind = JobRef.parse(key), kind_of(key)
    root = f"/apis/{kind.group}" if kind.group else "/api"
    path = f"{root}/{kind.version}/namespaces/{ref.namespace}/{kind.plural}/{ref.name}"
    return f"{path}/{subresource}" if subresource else path


# --- display names ----------------------------------------------------------------------------------------------------


def kind_name(key: str) -> str:
    """
    The display name of a job's kind: `Job`, or `Job.batch.volcano.sh`.

    The group is left out where the kind alone is unambiguous: no other group has a kind of that name that Headgate
    runs.
    """
    match key.split("/"):
        case [group, kind, _, _]:
            groups = [each.group for each in known() if each.kind == kind]
            return kind if groups == [group] or not group else f"{kind}.{group}"
        case _:
            return "Job"


def shown_name(key: str) -> str:
    """The display name of a job, with namespace: `team-a/train`."""
    return "/".join(key.split("/")[-2:])


def title(key: str) -> str:
    """The display name of a job, with kind: `Job team-a/train`."""
    return f"{kind_name(key)} {shown_name(key)}"
