"""`schedulingv1alpha2.PodGroup`: pods that are placed together, as far as placement reads it."""

from headgate.core.placement.objects.metadata import MetadataObject
from headgate.events.objects import ApiBranch


class GangPolicy(ApiBranch, frozen=True):
    """`schedulingv1alpha2.GangSchedulingPolicy`: no pod is placed unless so many are."""

    min_count: int = 0


class PodGroupPolicy(ApiBranch, frozen=True):
    """`schedulingv1alpha2.PodGroupSchedulingPolicy`; without `gang` each pod counts for itself."""

    gang: GangPolicy | None = None


class TopologyConstraint(ApiBranch, frozen=True):
    """`schedulingv1alpha2.TopologyConstraint`: all pods on nodes with one value of the label `key`."""

    key: str = ""


class PodGroupConstraints(ApiBranch, frozen=True):
    """`schedulingv1alpha2.PodGroupSchedulingConstraints`: one topology at most."""

    topology: tuple[TopologyConstraint, ...] = ()


class PodGroupSpec(ApiBranch, frozen=True):
    """`schedulingv1alpha2.PodGroupSpec`. It cannot be changed."""

    scheduling_policy: PodGroupPolicy = PodGroupPolicy()
    scheduling_constraints: PodGroupConstraints | None = None


class PodGroupObject(ApiBranch, frozen=True):
    """`schedulingv1alpha2.PodGroup`."""

    metadata: MetadataObject
    spec: PodGroupSpec = PodGroupSpec()

    @property
    def count_min(self) -> int:
        """How many pods have to be placed for any of them to be; 0 without a gang."""
        gang = self.spec.scheduling_policy.gang
        return gang.min_count if gang is not None else 0

    @property
    def topology_key(self) -> str:
        """The label in whose value the nodes of all its pods have to agree; "" for none."""
        constraints = self.spec.scheduling_constraints
        return constraints.topology[0].key if constraints is not None and constraints.topology else ""
