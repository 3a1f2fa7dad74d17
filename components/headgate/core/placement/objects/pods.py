"""`corev1.Pod`, as far as placement reads it."""

import msgspec

from headgate.core.placement.objects.metadata import MetadataObject
from headgate.events.objects import ApiBranch, LabelSelector, NodeAffinity, Resources, SchedulingGate, Toleration

# --- spec ----------------------------------------------------------------------------------------------------------


class ContainerPort(ApiBranch, frozen=True):
    """`corev1.ContainerPort`; a `host_port` of 0 occupies nothing on the node."""

    host_port: int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = ""


class RestartRule(ApiBranch, frozen=True):
    """`corev1.ContainerRestartRule`."""

    action: str = ""


class ContainerObject(ApiBranch, frozen=True):
    """`corev1.Container`. `restart_policy` "Always" on an init container makes it a sidecar."""

    name: str = ""
    image: str = ""
    resources: Resources = Resources()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str | None = None
    restart_policy_rules: tuple[RestartRule, ...] = ()


class PodAffinityTerm(ApiBranch, frozen=True):
    """`corev1.PodAffinityTerm`. The label keys are merged into the selector by the API server."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(ApiBranch, frozen=True):
    """`corev1.WeightedPodAffinityTerm`."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(ApiBranch, frozen=True):
    """`corev1.PodAffinity`, and `corev1.PodAntiAffinity` too."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class AffinityObject(ApiBranch, frozen=True):
    """`corev1.Affinity`."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(ApiBranch, frozen=True):
    """`corev1.TopologySpreadConstraint`."""

    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class ClaimSource(ApiBranch, frozen=True):
    """`corev1.PersistentVolumeClaimVolumeSource`."""

    claim_name: str = ""
    read_only: bool = False


class EphemeralSource(ApiBranch, frozen=True):
    """`corev1.EphemeralVolumeSource`: the claim is named after the pod and the volume."""


class GcePersistentDisk(ApiBranch, frozen=True):
    """`corev1.GCEPersistentDiskVolumeSource`."""

    pd_name: str = ""
    read_only: bool = False


class AwsElasticBlockStore(ApiBranch, frozen=True):
    """`corev1.AWSElasticBlockStoreVolumeSource`."""

    volume_id: str = msgspec.field(name="volumeID", default="")


class IscsiVolume(ApiBranch, frozen=True):
    """`corev1.ISCSIVolumeSource`."""

    iqn: str = ""
    read_only: bool = False


class RbdVolume(ApiBranch, frozen=True):
    """`corev1.RBDVolumeSource`."""

    monitors: tuple[str, ...] = ()
    pool: str = ""
    image: str = ""
    read_only: bool = False


class ImageSource(ApiBranch, frozen=True):
    """`corev1.ImageVolumeSource`."""

    reference: str = ""


class CsiVolume(ApiBranch, frozen=True):
    """`corev1.CSIVolumeSource`: a volume that lives with the pod."""

    driver: str = ""


class Volume(ApiBranch, frozen=True):
    """`corev1.Volume`, reduced to the sources that placement reads."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None
    gce_persistent_disk: GcePersistentDisk | None = None
    aws_elastic_block_store: AwsElasticBlockStore | None = None
    iscsi: IscsiVolume | None = None
    rbd: RbdVolume | None = None
    csi: CsiVolume | None = None
    image: ImageSource | None = None


class PodResourceClaim(ApiBranch, frozen=True):
    """`corev1.PodResourceClaim`."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSpecObject(ApiBranch, frozen=True):
    """`corev1.PodSpec`."""

    containers: tuple[ContainerObject, ...] = ()
    init_containers: tuple[ContainerObject, ...] = ()
    overhead: dict[str, str | int | float] = {}
    resources: Resources | None = None
    node_selector: dict[str, str] = {}
    affinity: AffinityObject | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    priority: int | None = None
    preemption_policy: str | None = None
    scheduler_name: str = ""
    node_name: str = ""
    host_network: bool = False
    host_users: bool | None = None
    os: dict[str, str] = {}


# --- status --------------------------------------------------------------------------------------------------------


class ContainerStatus(ApiBranch, frozen=True):
    """`corev1.ContainerStatus`: what the node has allocated to a container and what runs, during a resize."""

    name: str = ""
    allocated_resources: dict[str, str | int | float] = {}
    resources: Resources | None = None


class PodConditionObject(ApiBranch, frozen=True):
    """`corev1.PodCondition`."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class PodClaimStatus(ApiBranch, frozen=True):
    """`corev1.PodResourceClaimStatus`: the claim that was made from a template; None if none was needed."""

    name: str = ""
    resource_claim_name: str | None = None


class PodStatusObject(ApiBranch, frozen=True):
    """`corev1.PodStatus`."""

    phase: str = "Pending"
    nominated_node_name: str = ""
    start_time: str | None = None
    conditions: tuple[PodConditionObject, ...] = ()
    resources: Resources | None = None
    allocated_resources: dict[str, str | int | float] = {}
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[PodClaimStatus, ...] = ()


class PodObject(ApiBranch, frozen=True):
    """`corev1.Pod`."""

    metadata: MetadataObject
    spec: PodSpecObject = PodSpecObject()
    status: PodStatusObject = PodStatusObject()
