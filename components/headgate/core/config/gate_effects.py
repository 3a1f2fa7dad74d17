"""
What each feature gate of Kueue that no decision reads does in Headgate, and why some are refused.

`feature_gates.DEFAULTS` has the gates that decisions read and `ALWAYS_ON` those that cannot be switched off; every
other gate is here, once. Called by `feature_gates` for its errors, by telemetry, and by the reference page.
"""

from collections.abc import Mapping
from typing import Any, Final

LOCAL_QUEUE_METRICS: Final = "LocalQueueMetrics"
COHORT_METRICS: Final = "MetricsForCohorts"
SPARK_APPLICATIONS: Final = "SparkApplicationIntegration"
CREATION_LATENCY: Final = "MetricForWorkloadCreationLatency"

_SAME: Final = "how Kueue computes or writes it; Headgate comes to the same result either way"
_MULTI_KUEUE: Final = "Headgate has no MultiKueue"
_DRA: Final = "Headgate does not read ResourceClaims: quota covers the resources that pods request"
_RULE: Final = "a rule of admission: see `headgate crds install --admission`"
_METRIC: Final = "off, its metrics are not served"

REFUSED: Final[Mapping[str, str]] = {
    "ElasticJobsViaWorkloadSlicesWithTAS": "a slice of an elastic job does not get the domains of the one before it",
    "FailureRecoveryPolicy": "Headgate deletes no pods by force: its operator says that a node is lost",
    "FastQuotaReleaseInPodIntegration": "the quota of a pod is released when it has ended, not while it may still run",
    "KueueDRAIntegrationConsumableCapacity": _DRA,
    "MultiKueueClusterProfile": _MULTI_KUEUE,
    "MultiKueueManagerQuotaAutomation": _MULTI_KUEUE,
    "SchedulerLibraryIntegration": "pods are placed by rules that can be repeated from the log",
}
"""Gates that are off by default and refused when they are set to true, with the reason."""

OTHERS: Final[Mapping[str, str]] = {
    "DeferRayServiceFinalizationForRedisCleanup": "Headgate adds no finalizers to RayServices",
    "FinishOrphanedWorkloads": "always done: a Workload whose job is proved deleted is finished",
    "KueueDRAIntegration": _DRA,
    "KueueDRAIntegrationExtendedResource": _DRA,
    "KueueDRAIntegrationPartitionableDevices": _DRA,
    "KueueDRARejectWorkloadsWhenDRADisabled": _DRA,
    "LWSImmutableGroupSize": _RULE,
    LOCAL_QUEUE_METRICS: _METRIC,
    "ManagedJobsNamespaceSelectorAlwaysRespected": "locked: always done",
    CREATION_LATENCY: _METRIC,
    COHORT_METRICS: _METRIC,
    "MultiKueue": _MULTI_KUEUE,
    "MultiKueueAdaptersForCustomJobs": _MULTI_KUEUE,
    "MultiKueueIncrementalDispatcherConfig": _MULTI_KUEUE,
    "MultiKueueIncrementalDispatcherRespectConfigOrder": _MULTI_KUEUE,
    "MultiKueueKubeConfigPathValidation": _MULTI_KUEUE,
    "MultiKueueRemoteSpecSync": _MULTI_KUEUE,
    "PodIntegrationValidateGroupOwner": _RULE,
    "RejectUpdatesToCQWithInvalidOnFlavors": _RULE,
    "RemoveFinalizersWithStrictPatch": _SAME,
    "SkipAncestorCheckForDeletedWorkloads": _SAME,
    SPARK_APPLICATIONS: "without it integrations.frameworks must not name sparkoperator.k8s.io/sparkapplication",
    "TASCacheNodeMatchResults": _SAME,
    "TASCacheTopologyTree": _SAME,
    "TASCachingRemainingResources": _SAME,
    "TLSOptions": "locked: the settings of the webhook server",
    "ValidateRayAndSparkJobUpdates": _RULE,
    "VectorizedResourceRequests": _SAME,
    "WorkloadPriorityClassDefaulting": _RULE,
    "WorkloadRequestUseMergePatch": _SAME,
    "WorkloadValidateResourcesAreNonNegative": _RULE,
    "WorkloadValidationForPodSetMetadata": _RULE,
}
"""Gates that are accepted as they are set, with what they mean here."""


def is_set_off(document: Mapping[str, Any], gate: str) -> bool:
    """Whether the file of a configuration, as the log has it, switches off a gate that is on by default."""
    gates = document.get("featureGates")
    return isinstance(gates, Mapping) and gates.get(gate) is False
