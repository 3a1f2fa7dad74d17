"""
The kinds that the simulated API server serves, and what discovery, tables and CRDs say of them.

`KINDS` is the one list: names, scope, versions, subresources, printer columns and the compiled schema of each kind.
Routing, discovery, OpenAPI, tables, validation and generated CRDs all read it; adding a kind is adding an entry here
and its fields in `schemas_*.py`.
"""

from typing import Final

import msgspec

from headgate.testing.cluster.schema import Node, compile_schemas
from headgate.testing.cluster.schemas_core import CORE_SCHEMAS
from headgate.testing.cluster.schemas_kueue import KUEUE_SCHEMAS

KUEUE_GROUP: Final = "kueue.x-k8s.io"


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A printer column: `path` is a JSONPath into the object; priority 0 is always shown, 1 with `-o wide`."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """
    One kind. `versions[0]` is the storage version; the others are served with only `apiVersion` changed.

    `custom` kinds behave as custom resources do: no strategic merge patch, type errors are 422, every change outside
    `metadata` and `status` raises `generation`.
    """

    group: str
    versions: tuple[str, ...]
    kind: str
    plural: str
    singular: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    generation: bool = False
    custom: bool = False
    columns: tuple[Column, ...] = ()
    schema_name: str = ""

    @property
    def version(self) -> str:
        """The storage version."""
        return self.versions[0]

    @property
    def api_version(self) -> str:
        """The `apiVersion` of stored objects."""
        return f"{self.group}/{self.versions[0]}" if self.group else self.versions[0]

    @property
    def resource(self) -> str:
        """The name in messages: `pods`, `clusterqueues.kueue.x-k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified(self) -> str:
        """The kind in messages of invalid objects: `Pod`, `Job.batch`."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def status_subresource(self) -> bool:
        """Whether `/status` exists, and the main endpoint therefore ignores `status`."""
        return "status" in self.subresources

    @property
    def schema(self) -> Node:
        """The compiled schema of the object without its type and metadata."""
        return SCHEMAS[self.schema_name or self.kind]


def _compile() -> dict[str, Node]:
    core = compile_schemas(CORE_SCHEMAS)
    return core | compile_schemas(KUEUE_SCHEMAS, core)


SCHEMAS: Final = _compile()
"""Every type of the schema texts by name, shared types such as `PodTemplate` included."""

_AGE: Final = Column(name="Age", path=".metadata.creationTimestamp", type="date")


def _core(
    kind: str,
    plural: str,
    *,
    namespaced: bool = True,
    short: tuple[str, ...] = (),
    group: str = "",
    version: str = "v1",
    subresources: tuple[str, ...] = (),
    generation: bool = False,
    categories: tuple[str, ...] = (),
    schema_name: str = "",
) -> Kind:
    return Kind(
        group=group,
        versions=(version,),
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        namespaced=namespaced,
        short_names=short,
        categories=categories,
        subresources=subresources,
        generation=generation,
        schema_name=schema_name,
    )


def _kueue(
    kind: str, plural: str, *columns: Column, short: tuple[str, ...], namespaced: bool = False, status: bool = True
) -> Kind:
    return Kind(
        group=KUEUE_GROUP,
        versions=("v1beta2", "v1beta1"),
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        namespaced=namespaced,
        short_names=short,
        subresources=("status",) if status else (),
        generation=True,
        custom=True,
        columns=columns,
    )


def _condition(kind: str) -> str:
    return f".status.conditions[?(@.type=='{kind}')].status"


KINDS: Final[tuple[Kind, ...]] = (
    _core("Namespace", "namespaces", namespaced=False, short=("ns",), subresources=("status", "finalize")),
    _core("Node", "nodes", namespaced=False, short=("no",), subresources=("status",)),
    _core(
        "Pod",
        "pods",
        short=("po",),
        subresources=("status", "binding", "eviction"),
        generation=True,
        categories=("all",),
    ),
    _core("Event", "events", short=("ev",)),
    _core("ConfigMap", "configmaps", short=("cm",)),
    _core("LimitRange", "limitranges", short=("limits",)),
    _core("Job", "jobs", group="batch", subresources=("status",), generation=True, categories=("all",)),
    _core(
        "PriorityClass", "priorityclasses", group="scheduling.k8s.io", namespaced=False, short=("pc",), generation=True
    ),
    _core("RuntimeClass", "runtimeclasses", group="node.k8s.io", namespaced=False),
    _core("Lease", "leases", group="coordination.k8s.io"),
    _core("Event", "events", group="events.k8s.io", short=("ev",), schema_name="EventsEvent"),
    _core(
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        group="policy",
        short=("pdb",),
        subresources=("status",),
        generation=True,
    ),
    _core(
        "CustomResourceDefinition",
        "customresourcedefinitions",
        group="apiextensions.k8s.io",
        namespaced=False,
        short=("crd", "crds"),
        subresources=("status",),
        generation=True,
        categories=("api-extensions",),
    ),
    _kueue(
        "Workload",
        "workloads",
        Column(name="Queue", path=".spec.queueName"),
        Column(name="Reserved in", path=".status.admission.clusterQueue"),
        Column(name="Admitted", path=_condition("Admitted")),
        Column(name="Finished", path=_condition("Finished")),
        _AGE,
        short=("kwl", "kueueworkload", "kueueworkloads"),
        namespaced=True,
    ),
    _kueue(
        "ClusterQueue",
        "clusterqueues",
        Column(name="Cohort", path=".spec.cohortName"),
        Column(name="Strategy", path=".spec.queueingStrategy", priority=1),
        Column(name="Pending Workloads", path=".status.pendingWorkloads", type="integer"),
        Column(name="Admitted Workloads", path=".status.admittedWorkloads", type="integer", priority=1),
        short=("cq",),
    ),
    _kueue(
        "LocalQueue",
        "localqueues",
        Column(name="ClusterQueue", path=".spec.clusterQueue"),
        Column(name="Pending Workloads", path=".status.pendingWorkloads", type="integer"),
        Column(name="Admitted Workloads", path=".status.admittedWorkloads", type="integer"),
        short=("queue", "queues", "lq"),
        namespaced=True,
    ),
    _kueue(
        "ResourceFlavor",
        "resourceflavors",
        Column(name="Topology Name", path=".spec.topologyName", priority=1),
        _AGE,
        short=("flavor", "flavors", "rf"),
        status=False,
    ),
    _kueue("Cohort", "cohorts", _AGE, short=("co",)),
    _kueue("Topology", "topologies", _AGE, short=("topo",), status=False),
    _kueue("AdmissionCheck", "admissionchecks", _AGE, short=("ac",)),
    _kueue(
        "WorkloadPriorityClass",
        "workloadpriorityclasses",
        Column(name="Value", path=".value", type="integer"),
        short=("wpc",),
        status=False,
    ),
    _kueue("ProvisioningRequestConfig", "provisioningrequestconfigs", _AGE, short=("prc",), status=False),
)
"""Every kind that is served, in the order of discovery."""

BY_PLURAL: Final[dict[tuple[str, str], Kind]] = {(kind.group, kind.plural): kind for kind in KINDS}
"""Kinds by (group, plural)."""

BY_KIND: Final[dict[tuple[str, str], Kind]] = {(kind.group, kind.kind): kind for kind in KINDS}
"""Kinds by (group, kind)."""


def kind_of(api_version: str, kind: str) -> Kind:
    """The kind that a manifest's `apiVersion` and `kind` name. Raises KeyError if it is not served."""
    group, _, version = api_version.rpartition("/")
    found = BY_KIND[(group, kind)]
    if version not in found.versions:
        raise KeyError(f"{kind} has no version {version}")
    return found
