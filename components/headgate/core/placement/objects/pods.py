"""
`corev1.Pod`, as far as placement reads it.

`shown_of` reduces a pod further, to what its status adds to the other fields.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

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


class PodSchedulingGroup(ApiBranch, frozen=True):
    """`corev1.PodSchedulingGroup`: the PodGroup, of the pod's namespace, that a pod belongs to."""

    pod_group_name: str | None = None


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
    scheduling_group: PodSchedulingGroup | None = None
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


class PodMetadata(MetadataObject, frozen=True):
    """`metav1.ObjectMeta` of a pod. Its conditions name the generation that they are about."""

    generation: int = 0


class PodObject(ApiBranch, frozen=True):
    """`corev1.Pod`."""

    metadata: PodMetadata
    spec: PodSpecObject = PodSpecObject()
    status: PodStatusObject = PodStatusObject()


# --- what counts of a status ---------------------------------------------------------------------------------------

ENDED: Final = ("Succeeded", "Failed")
"""The phases of a pod that takes up nothing any more."""

DISRUPTION_TARGET: Final = "DisruptionTarget"
PREEMPTED: Final = "PreemptionByScheduler"
"""The condition of a pod that has to go, and its reason where that is for another pod."""

RESIZE_PENDING: Final = "PodResizePending"
CONDITIONS: Final = ("PodScheduled", DISRUPTION_TARGET, RESIZE_PENDING)
"""The conditions that are read here, or written and compared."""


def shown_of(pod: PodObject) -> PodObject | None:
    """
    A pod without what its node reports and nobody reads; None when it has ended.

    The containers' resources matter while they differ from those in the spec: during a resize (KEP-1287).
    """
    status, spec = pod.status, pod.spec
    if status.phase in ENDED:
        return None
    conditions = tuple(each for each in status.conditions if each.type in CONDITIONS)
    shown = PodStatusObject(
        nominated_node_name=status.nominated_node_name,
        start_time=status.start_time,
        conditions=conditions,
        resource_claim_statuses=status.resource_claim_statuses,
    )
    pending = next((each for each in conditions if each.type == RESIZE_PENDING), None)
    in_effect = pending is None or pending.reason != "Infeasible"
    shown = replace(
        shown,
        container_statuses=_resized(status.container_statuses, spec.containers, in_effect),
        init_container_statuses=_resized(status.init_container_statuses, spec.init_containers, in_effect),
    )
    asked = spec.resources.requests if spec.resources is not None else {}
    if status.resources is not None and not _is_as_asked(
        asked, status.resources, status.allocated_resources, in_effect
    ):
        shown = replace(shown, resources=status.resources, allocated_resources=status.allocated_resources)
    return replace(pod, status=shown)


def _resized(
    statuses: tuple[ContainerStatus, ...], containers: tuple[ContainerObject, ...], in_effect: bool
) -> tuple[ContainerStatus, ...]:
    """The statuses of containers that have other resources than their spec asks for."""
    asked = {each.name: each.resources.requests for each in containers}
    return tuple(
        each
        for each in statuses
        if each.resources is not None
        and not _is_as_asked(asked.get(each.name, {}), each.resources, each.allocated_resources, in_effect)
    )


def _is_as_asked(
    asked: dict[str, str | int | float],
    actuated: Resources,
    allocated: dict[str, str | int | float],
    in_effect: bool,
) -> bool:
    """Whether what runs, and what is allocated to it, are the requests; the spec counts unless it is infeasible."""
    if not in_effect:
        return False
    return actuated.requests in (asked, {}) and allocated in (asked, {})
