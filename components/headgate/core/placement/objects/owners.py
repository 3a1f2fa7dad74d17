"""Namespaces, disruption budgets, and the objects whose selectors the pods of an application share."""

from headgate.core.placement.objects.metadata import MetadataObject
from headgate.events.objects import ApiBranch, LabelSelector


class Namespace(ApiBranch, frozen=True):
    """`corev1.Namespace`: its labels."""

    metadata: MetadataObject


class ServiceSpec(ApiBranch, frozen=True):
    """`corev1.ServiceSpec`, and that of a ReplicationController: the selector is a set of labels."""

    selector: dict[str, str] = {}


class Service(ApiBranch, frozen=True):
    """`corev1.Service`."""

    metadata: MetadataObject
    spec: ServiceSpec = ServiceSpec()


class ReplicationController(ApiBranch, frozen=True):
    """`corev1.ReplicationController`."""

    metadata: MetadataObject
    spec: ServiceSpec = ServiceSpec()


class SelectorSpec(ApiBranch, frozen=True):
    """The spec of an object with a label selector."""

    selector: LabelSelector | None = None


class ReplicaSet(ApiBranch, frozen=True):
    """`appsv1.ReplicaSet`."""

    metadata: MetadataObject
    spec: SelectorSpec = SelectorSpec()


class StatefulSetObject(ApiBranch, frozen=True):
    """`appsv1.StatefulSet`."""

    metadata: MetadataObject
    spec: SelectorSpec = SelectorSpec()


class BudgetStatus(ApiBranch, frozen=True):
    """`policyv1.PodDisruptionBudgetStatus`. `disrupted_pods` are pods (by name) whose eviction is already counted."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str | None] = {}


class PodDisruptionBudget(ApiBranch, frozen=True):
    """`policyv1.PodDisruptionBudget`."""

    metadata: MetadataObject
    spec: SelectorSpec = SelectorSpec()
    status: BudgetStatus = BudgetStatus()
