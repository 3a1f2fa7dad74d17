"""
The resources Headgate reads and writes, and their paths.

A `Resource` has the data that is needed to address a kind of object. `RESOURCES` is the table of those in use, by
plural name; the named constants below are the same structs for code that is to be type-checked. The module depends on
the lists of kinds of jobs and of objects that placement reads, and does no I/O.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from headgate.core.api import job_kinds
from headgate.core.api.job_kinds import BATCH_JOB, JOB_KINDS, TRAIN_JOB, JobKind, known
from headgate.core.placement.objects.kinds import WATCHED, PlacementKind

#: The API group of Kueue, which Headgate implements.
KUEUE_GROUP: Final = "kueue.x-k8s.io"


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """
    A resource as in discovery. `group` is empty for the core group.

    An `optional` one may be missing, and be installed later: it has no objects until then. `alias` is its name among
    the watched resources where another has its plural.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    optional: bool = False
    alias: str = ""

    @property
    def name(self) -> str:
        """Its name among the watched resources."""
        return self.alias or self.plural

    @property
    def api_version(self) -> str:
        """The value of an object's `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, *, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """
        The percent-encoded path of a collection, an object or a subresource.

        A namespaced resource without a namespace is the collection over all namespaces.

        Raises:
            ValueError: a namespace for a cluster-scoped resource, a name in no namespace for a namespaced one, or a
                subresource of nothing. The caller has mixed up its arguments.

        """
        if namespace is not None and not self.namespaced:
            raise ValueError(f"{self.plural} are cluster-scoped; leave out the namespace {namespace!r}")
        if name is not None and self.namespaced and namespace is None:
            raise ValueError(f"{self.plural} are namespaced; say in which namespace {name!r} is")
        if name is None and subresource is not None:
            raise ValueError(f"the subresource {subresource!r} belongs to one object; name one of the {self.plural}")
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if namespace is not None:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name is not None:
            parts.append(quote(name, safe=""))
        if subresource is not None:
            parts.append(subresource)
        return "/".join(parts)


def v1(group: str, plural: str, kind: str, *, namespaced: bool = False) -> Resource:
    """A resource whose version is v1."""
    return Resource(group=group, version="v1", plural=plural, kind=kind, namespaced=namespaced)


def _core(plural: str, kind: str, *, namespaced: bool) -> Resource:
    return v1("", plural, kind, namespaced=namespaced)


def _kueue(plural: str, kind: str, *, namespaced: bool = False) -> Resource:
    return Resource(group=KUEUE_GROUP, version="v1beta2", plural=plural, kind=kind, namespaced=namespaced)


NAMESPACES: Final = _core("namespaces", "Namespace", namespaced=False)
NODES: Final = _core("nodes", "Node", namespaced=False)
PODS: Final = _core("pods", "Pod", namespaced=True)
CONFIG_MAPS: Final = _core("configmaps", "ConfigMap", namespaced=True)
EVENTS: Final = _core("events", "Event", namespaced=True)
LIMIT_RANGES: Final = _core("limitranges", "LimitRange", namespaced=True)


def of_kind(kind: JobKind) -> Resource:
    """The resource of a kind of jobs."""
    return Resource(
        group=kind.group,
        version=kind.version,
        plural=kind.plural,
        kind=kind.kind,
        namespaced=True,
        optional=kind.optional,
        alias=kind.resource if kind.resource != kind.plural else "",
    )


#: The jobs of every kind that Headgate itself knows, by their resource's name.
OF_JOBS: Final = {each.resource: of_kind(each) for each in JOB_KINDS}
JOBS: Final = OF_JOBS[BATCH_JOB.resource]
PRIORITY_CLASSES: Final = v1("scheduling.k8s.io", "priorityclasses", "PriorityClass")
RUNTIME_CLASSES: Final = v1("node.k8s.io", "runtimeclasses", "RuntimeClass")
TRAINING_RUNTIMES: Final = msgspec.structs.replace(
    OF_JOBS[TRAIN_JOB.resource], plural=job_kinds.TRAINING_RUNTIMES, kind="TrainingRuntime"
)
CLUSTER_TRAINING_RUNTIMES: Final = msgspec.structs.replace(
    TRAINING_RUNTIMES,
    plural=job_kinds.CLUSTER_TRAINING_RUNTIMES,
    kind="ClusterTrainingRuntime",
    namespaced=False,
)
LEASES: Final = v1("coordination.k8s.io", "leases", "Lease", namespaced=True)
WORKLOADS: Final = _kueue("workloads", "Workload", namespaced=True)
CLUSTER_QUEUES: Final = _kueue("clusterqueues", "ClusterQueue")
LOCAL_QUEUES: Final = _kueue("localqueues", "LocalQueue", namespaced=True)
RESOURCE_FLAVORS: Final = _kueue("resourceflavors", "ResourceFlavor")
COHORTS: Final = _kueue("cohorts", "Cohort")
TOPOLOGIES: Final = _kueue("topologies", "Topology")
ADMISSION_CHECKS: Final = _kueue("admissionchecks", "AdmissionCheck")
PROVISIONING_CONFIGS: Final = _kueue("provisioningrequestconfigs", "ProvisioningRequestConfig")
PROVISIONING_REQUESTS: Final = Resource(
    group="autoscaling.x-k8s.io",
    version="v1",
    plural="provisioningrequests",
    kind="ProvisioningRequest",
    namespaced=True,
    optional=True,
)
POD_TEMPLATES: Final = _core("podtemplates", "PodTemplate", namespaced=True)
WORKLOAD_PRIORITY_CLASSES: Final = _kueue("workloadpriorityclasses", "WorkloadPriorityClass")

#: Every resource in use, by plural name; those of jobs by a name that is unique among resources of that plural.
RESOURCES: Final[Mapping[str, Resource]] = OF_JOBS | {
    resource.plural: resource
    for resource in (
        NAMESPACES,
        CONFIG_MAPS,
        NODES,
        PODS,
        EVENTS,
        LIMIT_RANGES,
        PRIORITY_CLASSES,
        RUNTIME_CLASSES,
        TRAINING_RUNTIMES,
        CLUSTER_TRAINING_RUNTIMES,
        LEASES,
        WORKLOADS,
        CLUSTER_QUEUES,
        LOCAL_QUEUES,
        RESOURCE_FLAVORS,
        COHORTS,
        TOPOLOGIES,
        ADMISSION_CHECKS,
        PROVISIONING_CONFIGS,
        PROVISIONING_REQUESTS,
        POD_TEMPLATES,
        WORKLOAD_PRIORITY_CLASSES,
    )
}


def of_placement(kind: PlacementKind) -> Resource:
    """The resource of a kind of objects that placement reads."""
    return Resource(
        group=kind.group,
        version=kind.version,
        plural=kind.plural,
        kind=kind.kind,
        namespaced=kind.namespaced,
        optional=kind.optional,
        alias=kind.alias,
    )


def watchable() -> Mapping[str, Resource]:
    """`RESOURCES`, those of the kinds of jobs that other packages have added, and those that placement reads."""
    return {
        **{name: of_placement(kind) for name, kind in WATCHED.items()},
        **RESOURCES,
        **{kind.resource: of_kind(kind) for kind in known() if not kind.of_pods},
    }


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request in RBAC's terms. `resource` is `plural[/subresource][.group]`; `str` is for display."""

    verb: str
    resource: str
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{where}"


_VERBS: Final[Mapping[str, str]] = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def asked_for(request: str) -> Asked | None:
    """The RBAC request of `METHOD PATH`, or `watch PATH`; None if the path is none of a resource."""
    method, _, path = request.partition(" ")
    parts = [unquote(part) for part in path.partition("?")[0].split("/")]
    match parts:
        case ["", "api", _, *rest]:
            group = ""
        case ["", "apis", named, _, *rest]:
            group = f".{named}"
        case _:
            return None
    namespace = ""
    match rest:
        case ["namespaces", inside, _, *_]:
            namespace, rest = inside, rest[2:]
        case []:
            return None
        case _:
            pass
    plural, name, subresource = (*rest, "", "")[:3]
    verb = method if method == "watch" else _VERBS.get(method) or ("get" if name else "list")
    resource = f"{plural}/{subresource}{group}" if subresource else f"{plural}{group}"
    return Asked(verb=verb, resource=resource, namespace=namespace, name=name)
