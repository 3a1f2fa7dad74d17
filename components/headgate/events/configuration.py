"""
The configuration of a cell: the parts of Kueue's `config.kueue.x-k8s.io` Configuration that affect decisions.

It is a fact like any other: the informer bridge appends it when it differs from the log's, so that every process
decides by the same one and a replay by the one valid at that moment. `headgate.core.config.reader` reads it from a file
in either API version; fields are named as in v1beta2, durations are milliseconds.
"""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from headgate.events.objects import LabelSelector


class ConfigurationBranch(msgspec.Struct, frozen=True, kw_only=True):
    """
    Base of the parts of a configuration.

    It is written whole. Earlier versions left out what was equal to a default here, so the defaults define the meaning
    of a field that is missing in the log, and never change. The meaning of a field that is missing in a file is in
    `headgate.core.config.reader.DEFAULTS`.

    A field that a later version adds is UNSET, and so not written, while a file asks for nothing that earlier versions
    do not know: what they read and write again is then the same to the byte. "Nothing" is no default that could change.
    """


class FairSharingConfiguration(ConfigurationBranch, frozen=True):
    """`fairSharing`: present means on. The strategies as Kueue names them, in the order to try them."""

    preemption_strategies: tuple[str, ...] = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")


class AdmissionFairSharingConfiguration(ConfigurationBranch, frozen=True):
    """`admissionFairSharing`. A half-life of 0 forgets usage at once. A resource without weight has the weight 1."""

    usage_half_life_ms: int = 0
    usage_sampling_interval_ms: int = 300_000
    resource_weights: dict[str, float] = {}


class RequeuingStrategy(ConfigurationBranch, frozen=True):
    """`waitForPodsReady.requeuingStrategy`. Without a count limit it requeues without end."""

    timestamp: str = "Eviction"
    backoff_limit_count: int | None = None
    backoff_base_s: int = 60
    backoff_max_s: int = 3600


class WaitForPodsReady(ConfigurationBranch, frozen=True):
    """`waitForPodsReady`: present means on. A recovery timeout of None does not check pods once they were ready."""

    timeout_ms: int = 300_000
    recovery_timeout_ms: int | None = None
    block_admission: bool = False
    requeuing_strategy: RequeuingStrategy = RequeuingStrategy()


class ResourceTransformation(ConfigurationBranch, frozen=True):
    """`resources.transformations[]`: quantities of outputs per unit of input, times another resource if named."""

    input: str
    strategy: str = "Retain"
    multiply_by: str = ""
    outputs: dict[str, str | int | float] = {}


class ResourcesConfiguration(ConfigurationBranch, frozen=True):
    """`resources`."""

    exclude_resource_prefixes: tuple[str, ...] = ()
    transformations: tuple[ResourceTransformation, ...] = ()
    quota_check_strategy: str = ""


class IntegrationsConfiguration(ConfigurationBranch, frozen=True):
    """
    `integrations`: the kinds of jobs that the cell runs, by Kueue's names.

    `label_keys_to_copy`: the labels of a job that its Workload is created with, left out for none.
    """

    frameworks: tuple[str, ...] = ("batch/job",)
    label_keys_to_copy: tuple[str, ...] | UnsetType = UNSET


SourceKind = Literal["ClusterQueue", "Cohort", "LocalQueue", "Workload"]
"""The kinds of objects whose labels and annotations metrics can show."""


class CustomMetricLabel(ConfigurationBranch, frozen=True):
    """
    `metrics.customLabels[]`: a label or an annotation of objects as the label `custom_<name>` of their metrics.

    Without a source it is the label `name`. `tracked_values`: other values are shown as one; without any all are shown.
    """

    name: str
    source_label_key: str = ""
    source_annotation_key: str = ""
    source_kind: SourceKind = "ClusterQueue"
    tracked_values: tuple[str, ...] = ()


class MetricsConfiguration(ConfigurationBranch, frozen=True):
    """`metrics`, where there are custom labels and the gate CustomMetricLabels is on."""

    custom_labels: tuple[CustomMetricLabel, ...] = ()


class RetentionPolicies(ConfigurationBranch, frozen=True):
    """`objectRetentionPolicies.workloads`: None keeps objects forever."""

    after_finished_ms: int | None = None
    after_deactivated_by_kueue_ms: int | None = None


WakePolicyName = Literal["Bounded", "CohortTree"]
"""`headgate.wakePolicy`: which pending workloads are retried when quota is freed (`docs/concepts/waking.md`)."""


class Configuration(ConfigurationBranch, frozen=True):
    """
    The whole configuration. The default applies as long as a log has none.

    It has fair sharing off and waits for no pods, as it was before logs had configurations; a new log begins with
    Kueue's behavior without a file (`headgate.processes.runtime.configuration_files`).
    `managed_jobs_namespace_selector` selects the namespaces in which Jobs get Workloads, by the namespaces' labels;
    None: all. `preemption_waits` is Headgate's own: before a workload preempts others it waits if enough quota is
    expected to be freed as soon without preemption (`headgate.core.quota.turnover`). It is off in logs that predate it.
    `wake_policy` is Headgate's own, too, and Bounded in logs that do not name one. `manage_jobs_without_queue_name`:
    jobs of those namespaces that name no queue get Workloads too.
    """

    feature_gates: dict[str, bool] = {}
    fair_sharing: FairSharingConfiguration | None = None
    admission_fair_sharing: AdmissionFairSharingConfiguration | None = None
    wait_for_pods_ready: WaitForPodsReady | None = None
    resources: ResourcesConfiguration = ResourcesConfiguration()
    object_retention_policies: RetentionPolicies = RetentionPolicies()
    managed_jobs_namespace_selector: LabelSelector | None = None
    integrations: IntegrationsConfiguration = IntegrationsConfiguration()
    metrics: MetricsConfiguration | UnsetType = UNSET
    preemption_waits: bool = False
    wake_policy: WakePolicyName = "Bounded"
    manage_jobs_without_queue_name: bool = False

    @property
    def custom_labels(self) -> tuple[CustomMetricLabel, ...]:
        """The labels and annotations of objects that metrics show."""
        return () if self.metrics is UNSET else self.metrics.custom_labels
