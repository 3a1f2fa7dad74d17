"""
Feature gates, by Kueue's names: their defaults, and their values under a configuration.

Pure code calls `enabled(state.configuration, gates.X)`; nothing else in the core reads `Configuration.feature_gates`.
`effective` is applied to a configuration's gates before they are written into the log: every gate that a decision can
read is recorded with its value, so a later change of a default changes no replay. `UNRECORDED` has the values that
apply in logs of the versions that recorded only gates that differed from their default; it never changes.

`DEFAULTS` has the gates that Headgate reads and their values where a configuration does not set them; `KNOWN` has every
gate of Kueue, so that an unsupported gate is distinguished from one that does not exist.
"""

from collections.abc import Mapping

import msgspec

from headgate.core.config.fields import ConfigurationError, nearest
from headgate.core.config.gate_effects import REFUSED
from headgate.events.configuration import Configuration

ADMISSION_FAIR_SHARING = "AdmissionFairSharing"
CLEANUP_REQUESTS_ON_EVICTION = "CleanupProvisioningRequestsOnEviction"
CONCURRENT_ADMISSION = "ConcurrentAdmission"
CUSTOM_METRIC_LABELS = "CustomMetricLabels"
DISABLE_WAIT_FOR_PODS_READY = "DisableWaitForPodsReady"
ELASTIC_JOBS = "ElasticJobsViaWorkloadSlices"
FAIR_SHARING_PREEMPT_WITHIN_NOMINAL = "FairSharingPreemptWithinNominal"
FAIR_SHARING_PRIORITIZE_NON_BORROWING = "FairSharingPrioritizeNonBorrowing"
ORCHESTRATED_PREEMPTION = "MultiKueueOrchestratedPreemption"
PARTIAL_ADMISSION = "PartialAdmission"
PRESERVE_SCAN_PROGRESS = "FlavorFungibilityPreserveScanProgress"
PRIORITIZE_PREEMPTOR_WORKLOADS = "PrioritizePreemptorWorkloads"
PRIORITY_BOOST = "PriorityBoost"
PRIORITY_SORTING_WITHIN_COHORT = "PrioritySortingWithinCohort"
QUOTA_CHECK_STRATEGY = "QuotaCheckStrategy"
RECLAIMABLE_PODS = "ReclaimablePods"
RECOMPUTE_UPON_OVERLAP = "RecomputeAssignmentUponPreemptionTargetsOverlap"
SCHEDULING_EQUIVALENCE_HASHING = "SchedulingEquivalenceHashing"
SHORT_WORKLOAD_NAMES = "ShortWorkloadNames"
SKIP_REASSIGNMENT_POD_OWNED = "SkipReassignmentForPodOwnedWorkloads"
TAS_BALANCED_PLACEMENT = "TASBalancedPlacement"
TAS_FAILED_NODE_REPLACEMENT = "TASFailedNodeReplacement"
TAS_FAIL_FAST = "TASFailedNodeReplacementFailFast"
TAS_HOSTNAME_PREFIX_ENCODING = "TASAssignmentsEncodingByHostnamePrefix"
TAS_MULTI_LAYER = "TASMultiLayerTopology"
TAS_OVERLAPPING_FLAVORS = "TASHandleOverlappingFlavors"
TAS_PROFILE_MIXED = "TASProfileMixed"
TAS_RECOMPUTE_IN_CYCLE = "TASRecomputeAssignmentWithinSchedulingCycle"
TAS_REPLACE_NOT_READY_FIXED_TIME = "TASReplaceNodeDueToNotReadyOverFixedTime"
TAS_REPLACE_ON_POD_TERMINATION = "TASReplaceNodeOnPodTermination"
TAS_REPLACE_ON_TAINTS = "TASReplaceNodeOnNodeTaints"
TAS_RESPECT_AFFINITY_PREFERRED = "TASRespectNodeAffinityPreferred"
TAS_VALIDATE_SLICE_SIZE = "TASValidateWorkloadSliceSize"
TOPOLOGY_AWARE_SCHEDULING = "TopologyAwareScheduling"
UNADMITTED_EXPLICIT_STATUS = "UnadmittedWorkloadsExplicitStatus"
UNADMITTED_OBSERVABILITY = "UnadmittedWorkloadsObservability"

DEFAULTS: dict[str, bool] = {
    ADMISSION_FAIR_SHARING: True,
    CLEANUP_REQUESTS_ON_EVICTION: True,
    CONCURRENT_ADMISSION: False,
    CUSTOM_METRIC_LABELS: False,
    DISABLE_WAIT_FOR_PODS_READY: False,
    ELASTIC_JOBS: True,
    FAIR_SHARING_PREEMPT_WITHIN_NOMINAL: True,
    FAIR_SHARING_PRIORITIZE_NON_BORROWING: True,
    ORCHESTRATED_PREEMPTION: False,
    PARTIAL_ADMISSION: True,
    PRESERVE_SCAN_PROGRESS: True,
    PRIORITIZE_PREEMPTOR_WORKLOADS: False,
    PRIORITY_BOOST: False,
    PRIORITY_SORTING_WITHIN_COHORT: True,
    QUOTA_CHECK_STRATEGY: True,
    RECLAIMABLE_PODS: True,
    RECOMPUTE_UPON_OVERLAP: True,
    SCHEDULING_EQUIVALENCE_HASHING: True,
    SHORT_WORKLOAD_NAMES: False,
    SKIP_REASSIGNMENT_POD_OWNED: True,
    TAS_BALANCED_PLACEMENT: False,
    TAS_FAILED_NODE_REPLACEMENT: True,
    TAS_FAIL_FAST: True,
    TAS_HOSTNAME_PREFIX_ENCODING: True,
    TAS_MULTI_LAYER: True,
    TAS_OVERLAPPING_FLAVORS: True,
    TAS_PROFILE_MIXED: True,
    TAS_RECOMPUTE_IN_CYCLE: True,
    TAS_REPLACE_NOT_READY_FIXED_TIME: False,
    TAS_REPLACE_ON_POD_TERMINATION: True,
    TAS_REPLACE_ON_TAINTS: True,
    TAS_RESPECT_AFFINITY_PREFERRED: False,
    TAS_VALIDATE_SLICE_SIZE: True,
    TOPOLOGY_AWARE_SCHEDULING: True,
    UNADMITTED_EXPLICIT_STATUS: False,
    UNADMITTED_OBSERVABILITY: True,
}

UNRECORDED: Mapping[str, bool] = {
    ADMISSION_FAIR_SHARING: True,
    CLEANUP_REQUESTS_ON_EVICTION: True,
    CONCURRENT_ADMISSION: False,
    CUSTOM_METRIC_LABELS: False,
    DISABLE_WAIT_FOR_PODS_READY: False,
    ELASTIC_JOBS: True,
    FAIR_SHARING_PREEMPT_WITHIN_NOMINAL: True,
    FAIR_SHARING_PRIORITIZE_NON_BORROWING: True,
    ORCHESTRATED_PREEMPTION: False,
    PARTIAL_ADMISSION: True,
    PRESERVE_SCAN_PROGRESS: True,
    PRIORITIZE_PREEMPTOR_WORKLOADS: False,
    PRIORITY_BOOST: False,
    PRIORITY_SORTING_WITHIN_COHORT: True,
    QUOTA_CHECK_STRATEGY: True,
    RECLAIMABLE_PODS: True,
    RECOMPUTE_UPON_OVERLAP: True,
    SCHEDULING_EQUIVALENCE_HASHING: True,
    SHORT_WORKLOAD_NAMES: False,
    SKIP_REASSIGNMENT_POD_OWNED: False,
    TAS_BALANCED_PLACEMENT: False,
    TAS_FAILED_NODE_REPLACEMENT: False,
    TAS_FAIL_FAST: False,
    TAS_HOSTNAME_PREFIX_ENCODING: False,
    TAS_MULTI_LAYER: False,
    TAS_OVERLAPPING_FLAVORS: False,
    TAS_PROFILE_MIXED: False,
    TAS_RECOMPUTE_IN_CYCLE: False,
    TAS_REPLACE_NOT_READY_FIXED_TIME: False,
    TAS_REPLACE_ON_POD_TERMINATION: False,
    TAS_REPLACE_ON_TAINTS: False,
    TAS_RESPECT_AFFINITY_PREFERRED: False,
    TAS_VALIDATE_SLICE_SIZE: False,
    TOPOLOGY_AWARE_SCHEDULING: False,
    UNADMITTED_EXPLICIT_STATUS: False,
    UNADMITTED_OBSERVABILITY: True,
}
"""
The value of a gate that the log does not record: the defaults of the versions that did not record them all.

A gate that is added to `DEFAULTS` is added here with the value by which earlier versions decided.
"""

UNRECORDED_REQUIREMENTS: Mapping[str, str] = {
    PRESERVE_SCAN_PROGRESS: "FlavorFungibility",
    UNADMITTED_EXPLICIT_STATUS: UNADMITTED_OBSERVABILITY,
}
"""The gate without which an unrecorded gate is off, in logs of those versions."""

PREEMPTION_WAITS = "HeadgatePreemptionWaits"
"""
A gate that only Headgate has: on unless a configuration file turns it off (`Configuration.preemption_waits`).

Its value is recorded in the log separately, so that older logs, which do not have it, are decided without.
"""

ALWAYS_ON = frozenset(
    {
        "AdmissionGatedBy",
        "AssignQueueLabelsForPods",
        "FlavorFungibility",
        "VisibilityOnDemand",
        "WorkloadIdentifierAnnotations",
    }
)
"""The gates whose behaviour is always on in Headgate."""


class FeatureGate(msgspec.Struct, frozen=True):
    """A gate of Kueue: its default, the gates without which it is off, and whether it can be set at all."""

    name: str
    is_on: bool
    requires: tuple[str, ...] = ()
    is_locked: bool = False


# Name, default (a locked one cannot be changed) and the gates that it requires.
_TABLE = """
PartialAdmission on
FlavorFungibility on
VisibilityOnDemand on
DisableWaitForPodsReady off
PrioritySortingWithinCohort on
FairSharingPreemptWithinNominal on
FairSharingPrioritizeNonBorrowing on
MultiKueue on
TopologyAwareScheduling on
LocalQueueMetrics on
TASProfileMixed on TopologyAwareScheduling
AdmissionFairSharing on
TASFailedNodeReplacement on TopologyAwareScheduling
ElasticJobsViaWorkloadSlices on
ElasticJobsViaWorkloadSlicesWithTAS off ElasticJobsViaWorkloadSlices TopologyAwareScheduling
TASFailedNodeReplacementFailFast on TopologyAwareScheduling TASFailedNodeReplacement
TASReplaceNodeOnPodTermination on TopologyAwareScheduling TASFailedNodeReplacement
SkipReassignmentForPodOwnedWorkloads on
TASReplaceNodeDueToNotReadyOverFixedTime off TopologyAwareScheduling TASFailedNodeReplacement
ManagedJobsNamespaceSelectorAlwaysRespected locked
TASBalancedPlacement off TopologyAwareScheduling
TASAssignmentsEncodingByHostnamePrefix on
KueueDRAIntegration on
KueueDRAIntegrationExtendedResource on KueueDRAIntegration
KueueDRARejectWorkloadsWhenDRADisabled on
KueueDRAIntegrationPartitionableDevices on KueueDRAIntegration
KueueDRAIntegrationConsumableCapacity off KueueDRAIntegration
MultiKueueAdaptersForCustomJobs on
WorkloadRequestUseMergePatch off
MultiKueueKubeConfigPathValidation on
ReclaimablePods on
MultiKueueClusterProfile off
FailureRecoveryPolicy off
TLSOptions locked
RemoveFinalizersWithStrictPatch on
TASReplaceNodeOnNodeTaints on TopologyAwareScheduling
AssignQueueLabelsForPods on
TASMultiLayerTopology on TopologyAwareScheduling
SchedulingEquivalenceHashing on
CustomMetricLabels off
SparkApplicationIntegration off
MultiKueueOrchestratedPreemption off
PriorityBoost off
AdmissionGatedBy on
ShortWorkloadNames off
FastQuotaReleaseInPodIntegration off
RejectUpdatesToCQWithInvalidOnFlavors off
FinishOrphanedWorkloads on
MultiKueueIncrementalDispatcherConfig on
MultiKueueIncrementalDispatcherRespectConfigOrder on
ConcurrentAdmission off
QuotaCheckStrategy on
MetricForWorkloadCreationLatency on
TASRespectNodeAffinityPreferred off TopologyAwareScheduling
MultiKueueManagerQuotaAutomation off
WorkloadIdentifierAnnotations on
WorkloadPriorityClassDefaulting on
MetricsForCohorts on
CleanupProvisioningRequestsOnEviction on
TASHandleOverlappingFlavors on TopologyAwareScheduling
UnadmittedWorkloadsObservability on
TASRecomputeAssignmentWithinSchedulingCycle on TopologyAwareScheduling
UnadmittedWorkloadsExplicitStatus off UnadmittedWorkloadsObservability
DeferRayServiceFinalizationForRedisCleanup on
TASCacheNodeMatchResults on
TASCachingRemainingResources on
TASCacheTopologyTree on
SchedulerLibraryIntegration off
VectorizedResourceRequests on
WorkloadValidateResourcesAreNonNegative on
TASValidateWorkloadSliceSize on
WorkloadValidationForPodSetMetadata on
PrioritizePreemptorWorkloads off
LWSImmutableGroupSize on
FlavorFungibilityPreserveScanProgress on FlavorFungibility
SkipAncestorCheckForDeletedWorkloads on
MultiKueueRemoteSpecSync on
RecomputeAssignmentUponPreemptionTargetsOverlap on
PodIntegrationValidateGroupOwner on
ValidateRayAndSparkJobUpdates on
"""


def _read(line: str) -> FeatureGate:
    name, default, *requires = line.split()
    return FeatureGate(name, default != "off", tuple(requires), default == "locked")


KNOWN: Mapping[str, FeatureGate] = {gate.name: gate for gate in map(_read, _TABLE.strip().splitlines())}
"""Every gate of Kueue by its name."""


def enabled(configuration: Configuration, gate: str) -> bool:
    """Whether a gate is on in this log. Raises KeyError for a gate that Headgate does not support."""
    recorded = configuration.feature_gates.get(gate)
    if recorded is not None:
        return recorded
    required = UNRECORDED_REQUIREMENTS.get(gate)
    return UNRECORDED[gate] and (required is None or configuration.feature_gates.get(required, True))


def is_on(given: Mapping[str, bool], gate: str) -> bool:
    """Whether a gate of Kueue is on under a configuration that sets these. Raises KeyError for one that it has not."""
    known = KNOWN[gate]
    return given.get(gate, known.is_on) and all(is_on(given, required) for required in known.requires)


def effective(given: Mapping[str, bool]) -> dict[str, bool]:
    """
    Every gate that a decision can read, with its value under a configuration that sets these.

    A gate that is off switches off those that require it; it is an error to set one of them to true.

    :raises ConfigurationError: a gate that does not exist, that is locked, that Headgate does not support or always has
        on, or that requires one that is off.
    """
    for name in sorted(given):
        _check_gate(name, given)
    return {name: is_on(given, name) for name in sorted(DEFAULTS)}


def _check_gate(name: str, given: Mapping[str, bool]) -> None:
    field = f"featureGates.{name}"
    gate = KNOWN.get(name)
    if gate is None:
        raise ConfigurationError(field, "Kueue has no such feature gate", nearest(name, list(KNOWN)))
    if gate.is_locked and not given[name]:
        raise ConfigurationError(field, "this gate is locked to true", "remove it")
    if not given[name]:
        if name in ALWAYS_ON:
            raise ConfigurationError(field, "Headgate always does what this gate switches on", "remove it")
        return
    if name in REFUSED:
        raise ConfigurationError(field, REFUSED[name], "remove it or set it to false")
    for required in gate.requires:
        if not is_on(given, required):
            raise ConfigurationError(field, f"requires {required} to be enabled", f"set {required} to true too")
