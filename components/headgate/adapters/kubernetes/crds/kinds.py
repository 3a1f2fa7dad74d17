"""
The definition of a kind for an API server, and Kueue's kinds.

`KUEUE_KINDS` is the one list of them: names, scope, versions, subresources, printer columns and the compiled schema.
The CustomResourceDefinitions are rendered from it, and the simulated API server serves it beside Kubernetes' own kinds.
"""

from typing import Final

import msgspec

from headgate.adapters.kubernetes.crds.descriptions import KUEUE_DESCRIPTIONS
from headgate.adapters.kubernetes.crds.fields import KUEUE_SCHEMAS
from headgate.adapters.kubernetes.crds.rules import KUEUE_RULES
from headgate.adapters.kubernetes.crds.schema import SchemaNode, compile_schemas

KUEUE_GROUP: Final = "kueue.x-k8s.io"


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """
    A printer column: `path` is a JSONPath into the object; priority 0 is always shown, 1 with `-o wide`.

    `former_path` is the one in former versions, where a conversion webhook lets them spell it otherwise.
    """

    name: str
    path: str
    type: str = "string"
    priority: int = 0
    former_path: str = ""
    description: str = ""


AGE: Final = Column(name="Age", path=".metadata.creationTimestamp", type="date")
"""The one column of a custom resource that declares none."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """
    One kind. `versions[0]` is the storage version.

    The other versions are converted by a webhook, or served with only `apiVersion` changed; then they refuse what the
    storage version spells otherwise.

    `custom` kinds behave as custom resources do: no strategic merge patch, type errors are 422, every change outside
    `metadata` and `status` raises `generation`.
    """

    group: str
    versions: tuple[str, ...]
    kind: str
    plural: str
    singular: str
    namespaced: bool
    schema: SchemaNode
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    generation: bool = False
    custom: bool = False
    columns: tuple[Column, ...] = ()
    selectable: tuple[str, ...] = ()

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


_SCHEMAS: Final = compile_schemas(KUEUE_SCHEMAS, KUEUE_RULES, KUEUE_DESCRIPTIONS)


def _kueue(
    kind: str,
    plural: str,
    *columns: Column,
    short: tuple[str, ...],
    namespaced: bool = False,
    status: bool = True,
    selectable: tuple[str, ...] = (),
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
        columns=columns or (AGE,),
        selectable=selectable,
        schema=_SCHEMAS[kind],
    )


def _column(name: str, path: str, description: str, *, wide: bool = False) -> Column:
    return Column(name=name, path=path, description=description, priority=int(wide))


def _count(name: str, path: str, description: str, *, wide: bool = False) -> Column:
    return Column(name=name, path=path, type="integer", description=description, priority=int(wide))


def _condition(kind: str) -> str:
    return f".status.conditions[?(@.type=='{kind}')].status"


KUEUE_KINDS: Final[tuple[Kind, ...]] = (
    _kueue(
        "Workload",
        "workloads",
        _column("Queue", ".spec.queueName", "Name of the queue this workload was submitted to"),
        _column(
            "Reserved in",
            ".status.admission.clusterQueue",
            "Name of the ClusterQueue where the workload is reserving quota",
        ),
        _column("Admitted", _condition("Admitted"), "Admission status"),
        _column("Finished", _condition("Finished"), "Workload finished"),
        msgspec.structs.replace(AGE, description="Time this workload was created"),
        short=("kwl", "kueueworkload", "kueueworkloads"),
        namespaced=True,
        selectable=(".status.admission.clusterQueue",),
    ),
    _kueue(
        "ClusterQueue",
        "clusterqueues",
        msgspec.structs.replace(
            _column("Cohort", ".spec.cohortName", "Cohort that this ClusterQueue belongs to"),
            former_path=".spec.cohort",
        ),
        _column("Strategy", ".spec.queueingStrategy", "The queueing strategy used to prioritize workloads", wide=True),
        _count("Pending Workloads", ".status.pendingWorkloads", "Number of pending workloads"),
        _count(
            "Admitted Workloads",
            ".status.admittedWorkloads",
            "Number of admitted workloads that haven't finished yet",
            wide=True,
        ),
        short=("cq",),
    ),
    _kueue(
        "LocalQueue",
        "localqueues",
        _column("ClusterQueue", ".spec.clusterQueue", "Backing ClusterQueue"),
        _count("Pending Workloads", ".status.pendingWorkloads", "Number of pending workloads"),
        _count(
            "Admitted Workloads",
            ".status.admittedWorkloads",
            "Number of admitted workloads that haven't finished yet.",
        ),
        short=("queue", "queues", "lq"),
        namespaced=True,
    ),
    _kueue("ResourceFlavor", "resourceflavors", short=("flavor", "flavors", "rf"), status=False),
    _kueue("Cohort", "cohorts", short=("co",)),
    _kueue("Topology", "topologies", short=("topo",), status=False),
    _kueue("AdmissionCheck", "admissionchecks", short=("ac",)),
    _kueue(
        "WorkloadPriorityClass",
        "workloadpriorityclasses",
        _count("Value", ".value", "Value of workloadPriorityClass's Priority"),
        short=("wpc",),
        status=False,
    ),
    _kueue("ProvisioningRequestConfig", "provisioningrequestconfigs", short=("prc",), status=False),
    _kueue(
        "MultiKueueCluster",
        "multikueueclusters",
        _column("Connected", _condition("Active"), "MultiKueueCluster is connected"),
        msgspec.structs.replace(AGE, description="Time this workload was created"),
        short=("mkc",),
    ),
    _kueue("MultiKueueConfig", "multikueueconfigs", short=("mkconf",), status=False),
)
"""Kueue's kinds, in the order of discovery."""
