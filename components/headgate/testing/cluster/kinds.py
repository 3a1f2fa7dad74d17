"""
The kinds that the simulated API server serves.

`KINDS` is the one list: Kubernetes' own, written here, and Kueue's. Routing, discovery, OpenAPI, tables and validation
all read it; adding a kind of Kubernetes is adding an entry here and its fields in `schemas_core.py`.
"""

from functools import partial
from typing import Final

from headgate.adapters.kubernetes.crds.kinds import KUEUE_KINDS, Column, Kind
from headgate.adapters.kubernetes.crds.schema import compile_schemas
from headgate.testing.cluster.validation.schemas_core import CORE_SCHEMAS

__all__ = ["BY_KIND", "BY_PLURAL", "KINDS", "Column", "Kind", "kind_of"]


_SCHEMAS: Final = compile_schemas(CORE_SCHEMAS)


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
        schema=_SCHEMAS[schema_name or kind],
    )


_storage: Final = partial(_core, group="storage.k8s.io", namespaced=False)
_devices: Final = partial(_core, group="resource.k8s.io", namespaced=False)

KINDS: Final[tuple[Kind, ...]] = (
    _core("Namespace", "namespaces", namespaced=False, short=("ns",), subresources=("status", "finalize")),
    _core("Node", "nodes", namespaced=False, short=("no",), subresources=("status",)),
    _core(
        "Pod",
        "pods",
        short=("po",),
        subresources=("status", "binding", "eviction", "log"),
        generation=True,
        categories=("all",),
    ),
    _core("Event", "events", short=("ev",)),
    _core("ConfigMap", "configmaps", short=("cm",)),
    _core("PodTemplate", "podtemplates", schema_name="PodTemplateObject"),
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
    _core("Service", "services", short=("svc",), subresources=("status",), categories=("all",)),
    _core(
        "ReplicationController",
        "replicationcontrollers",
        short=("rc",),
        subresources=("status",),
        generation=True,
        categories=("all",),
    ),
    _core(
        "ReplicaSet",
        "replicasets",
        group="apps",
        short=("rs",),
        subresources=("status",),
        generation=True,
        categories=("all",),
    ),
    _core(
        "StatefulSet",
        "statefulsets",
        group="apps",
        short=("sts",),
        subresources=("status",),
        generation=True,
        categories=("all",),
    ),
    _core("PersistentVolumeClaim", "persistentvolumeclaims", short=("pvc",), subresources=("status",)),
    _core("PersistentVolume", "persistentvolumes", namespaced=False, short=("pv",), subresources=("status",)),
    _storage("StorageClass", "storageclasses", short=("sc",)),
    _storage("CSINode", "csinodes"),
    _storage("CSIDriver", "csidrivers", generation=True),
    _storage("CSIStorageCapacity", "csistoragecapacities", namespaced=True),
    _storage("VolumeAttachment", "volumeattachments", subresources=("status",)),
    _devices("DeviceClass", "deviceclasses", generation=True),
    _devices("ResourceClaim", "resourceclaims", namespaced=True, subresources=("status",)),
    _devices("ResourceClaimTemplate", "resourceclaimtemplates", namespaced=True),
    _devices("ResourceSlice", "resourceslices", generation=True),
    _core(
        "PodGroup",
        "podgroups",
        group="scheduling.k8s.io",
        version="v1alpha2",
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
    _core(
        "ProvisioningRequest",
        "provisioningrequests",
        group="autoscaling.x-k8s.io",
        short=("provreq", "provreqs"),
        subresources=("status",),
        generation=True,
    ),
    *KUEUE_KINDS,
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
