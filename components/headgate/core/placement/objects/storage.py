"""Claims, volumes and what the drivers of volumes say of nodes, as far as placement reads them."""

import msgspec

from headgate.core.placement.objects.metadata import MetadataObject
from headgate.events.objects import ApiBranch, LabelSelector, NodeSelector, Resources


class ClaimSpec(ApiBranch, frozen=True):
    """`corev1.PersistentVolumeClaimSpec`."""

    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: Resources = Resources()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class ClaimStatus(ApiBranch, frozen=True):
    """`corev1.PersistentVolumeClaimStatus`."""

    phase: str = ""


class PersistentVolumeClaim(ApiBranch, frozen=True):
    """`corev1.PersistentVolumeClaim`."""

    metadata: MetadataObject
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class ClaimRef(ApiBranch, frozen=True):
    """`spec.claimRef` of a volume."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class CsiSource(ApiBranch, frozen=True):
    """`corev1.CSIPersistentVolumeSource`."""

    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(ApiBranch, frozen=True):
    """`corev1.VolumeNodeAffinity`."""

    required: NodeSelector | None = None


class VolumeSpec(ApiBranch, frozen=True):
    """`corev1.PersistentVolumeSpec`."""

    capacity: dict[str, str | int | float] = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ClaimRef | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiSource | None = None
    volume_attributes_class_name: str | None = None


class VolumeStatus(ApiBranch, frozen=True):
    """`corev1.PersistentVolumeStatus`."""

    phase: str = ""


class PersistentVolume(ApiBranch, frozen=True):
    """`corev1.PersistentVolume`."""

    metadata: MetadataObject
    spec: VolumeSpec = VolumeSpec()
    status: VolumeStatus = VolumeStatus()


class TopologyRequirement(ApiBranch, frozen=True):
    """`corev1.TopologySelectorLabelRequirement`."""

    key: str
    values: tuple[str, ...] = ()


class TopologyTerm(ApiBranch, frozen=True):
    """`corev1.TopologySelectorTerm`."""

    match_label_expressions: tuple[TopologyRequirement, ...] = ()


class StorageClass(ApiBranch, frozen=True):
    """`storagev1.StorageClass`."""

    metadata: MetadataObject
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologyTerm, ...] = ()


class DriverAllocatable(ApiBranch, frozen=True):
    """`storagev1.VolumeNodeResources`: how many volumes a driver can attach to the node; None without a limit."""

    count: int | None = None


class CsiNodeDriver(ApiBranch, frozen=True):
    """`storagev1.CSINodeDriver`."""

    name: str
    node_id: str = msgspec.field(name="nodeID", default="")
    topology_keys: tuple[str, ...] | None = None
    allocatable: DriverAllocatable | None = None


class CsiNodeSpec(ApiBranch, frozen=True):
    """`storagev1.CSINodeSpec`."""

    drivers: tuple[CsiNodeDriver, ...] | None = None


class CsiNode(ApiBranch, frozen=True):
    """`storagev1.CSINode`, named as its node."""

    metadata: MetadataObject
    spec: CsiNodeSpec = CsiNodeSpec()


class CsiDriverSpec(ApiBranch, frozen=True):
    """`storagev1.CSIDriverSpec`."""

    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CsiDriver(ApiBranch, frozen=True):
    """`storagev1.CSIDriver`."""

    metadata: MetadataObject
    spec: CsiDriverSpec = CsiDriverSpec()


class CsiStorageCapacity(ApiBranch, frozen=True):
    """`storagev1.CSIStorageCapacity`."""

    metadata: MetadataObject
    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: str | int | None = None
    maximum_volume_size: str | int | None = None


class AttachmentSource(ApiBranch, frozen=True):
    """`storagev1.VolumeAttachmentSource`."""

    persistent_volume_name: str | None = None


class AttachmentSpec(ApiBranch, frozen=True):
    """`storagev1.VolumeAttachmentSpec`."""

    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class VolumeAttachment(ApiBranch, frozen=True):
    """`storagev1.VolumeAttachment`."""

    metadata: MetadataObject
    spec: AttachmentSpec = AttachmentSpec()
