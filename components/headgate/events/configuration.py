"""
The configuration of a cell: the parts of Kueue's `config.kueue.x-k8s.io` Configuration that decide what happens.

It is a fact like any other: the informer bridge appends it when it differs from what the log has, so that every process
decides by the same one and a replay by the one of that moment. `headgate.core.config.reader` reads it from a file in
either API version; fields are named as in v1beta2, durations are milliseconds.
"""

from typing import Literal

import msgspec

from headgate.events.objects import LabelSelector


class ConfigurationBranch(msgspec.Struct, frozen=True, kw_only=True):
    """
    Base of what a configuration is made of.

    It is written whole. Earlier versions left out what was equal to a default here, so the defaults say what a field
    that is missing in the log means, and never change. What it means where a file leaves a field out is in
    `headgate.core.config.reader.DEFAULTS`.
    """


class FairSharingConfiguration(ConfigurationBranch, frozen=True):
    """`fairSharing`: present means on. The strategies as Kueue names them, in the order to try them."""

    preemption_strategies: tuple[str, ...] = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")


class AdmissionFairSharingConfiguration(ConfigurationBranch, frozen=True):
    """`admissionFairSharing`. A half-life of 0 forgets usage at once. A resource without weight weighs 1."""

    usage_half_life_ms: int = 0
    usage_sampling_interval_ms: int = 300_000
    resource_weights: dict[str, float] = {}


class RequeuingStrategy(ConfigurationBranch, frozen=True):
    """`waitForPodsReady.requeuingStrategy`. Without a count limit it requeues for ever."""

    timestamp: str = "Eviction"
    backoff_limit_count: int | None = None
    backoff_base_s: int = 60
    backoff_max_s: int = 3600


class WaitForPodsReady(ConfigurationBranch, frozen=True):
    """`waitForPodsReady`: present means on. A recovery timeout of None does not look at pods once they were ready."""

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


class RetentionPolicies(ConfigurationBranch, frozen=True):
    """`objectRetentionPolicies.workloads`: None keeps for ever."""

    after_finished_ms: int | None = None
    after_deactivated_by_kueue_ms: int | None = None


WakePolicyName = Literal["Bounded", "CohortTree"]
"""`headgate.wakePolicy`: which pending workloads are tried again when quota comes free (`docs/concepts/waking.md`)."""


class Configuration(ConfigurationBranch, frozen=True):
    """
    All of it. The default decides as long as a log has none.

    It has fair sharing off and waits for no pods, as it was before logs had configurations; a new log begins with what
    Kueue does without a file (`headgate.processes.runtime.configuration_files`). `managed_jobs_namespace_selector` says
    in which namespaces Jobs get Workloads, by the namespaces' labels; None: in all. `preemption_waits` is Headgate's
    own: before a workload preempts others it waits where enough quota is expected to come free by itself as soon
    (`headgate.core.quota.turnover`). It is off in logs from before there was such a thing. `wake_policy` is Headgate's
    own, too, and Bounded in logs that do not name one.
    """

    feature_gates: dict[str, bool] = {}
    fair_sharing: FairSharingConfiguration | None = None
    admission_fair_sharing: AdmissionFairSharingConfiguration | None = None
    wait_for_pods_ready: WaitForPodsReady | None = None
    resources: ResourcesConfiguration = ResourcesConfiguration()
    object_retention_policies: RetentionPolicies = RetentionPolicies()
    managed_jobs_namespace_selector: LabelSelector | None = None
    preemption_waits: bool = False
    wake_policy: WakePolicyName = "Bounded"
