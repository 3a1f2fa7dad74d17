"""Kueue's Configuration has the same meaning as for Kueue, and unsupported fields are refused by name."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.config import feature_gates
from headgate.core.config.fields import duration_ms
from headgate.core.config.reader import ConfigurationError, read_configuration, read_parts
from headgate.core.kubernetes.selectors import matches_labels
from headgate.events.configuration import (
    AdmissionFairSharingConfiguration,
    Configuration,
    FairSharingConfiguration,
    RequeuingStrategy,
    ResourcesConfiguration,
    ResourceTransformation,
    RetentionPolicies,
    WaitForPodsReady,
)

BOTH = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")
OLD, NEW = "v1beta1", "v1beta2"


def read(version: str = NEW, **fields: Any) -> Configuration:
    return read_configuration({"apiVersion": f"config.kueue.x-k8s.io/{version}", "kind": "Configuration", **fields})


# --- the two versions ----------------------------------------------------------------------------------------------


def test_the_defaults_of_v1beta2_wait_half_an_hour_for_pods_and_share_nothing() -> None:
    """apis/config/v1beta2/defaults.go: waitForPodsReady is on, without blocking; the rest is off."""
    read_default = read()
    assert read_default.wait_for_pods_ready == WaitForPodsReady(timeout_ms=1_800_000, recovery_timeout_ms=1_800_000)
    assert (read_default.fair_sharing, read_default.admission_fair_sharing) == (None, None)
    assert read_default.resources == ResourcesConfiguration()
    assert read_default.object_retention_policies == RetentionPolicies()


def test_v1beta1_switches_sections_on_by_enable() -> None:
    """apis/config/v1beta1/configuration_conversion.go: without `enable: true` a section is off."""
    off = read(OLD, fairSharing={"preemptionStrategies": list(BOTH)}, waitForPodsReady={"timeout": "1m"})
    assert (off.fair_sharing, off.wait_for_pods_ready) == (None, None)
    assert read(OLD).wait_for_pods_ready is None
    on = read(OLD, fairSharing={"enable": True}, waitForPodsReady={"enable": True})
    assert on.fair_sharing == FairSharingConfiguration(preemption_strategies=BOTH)
    assert on.wait_for_pods_ready == WaitForPodsReady(
        timeout_ms=300_000, recovery_timeout_ms=300_000, block_admission=True
    )


def test_a_section_of_v1beta2_is_on_by_being_there() -> None:
    """There is no `enable`, and blockAdmission is off unless it is set."""
    on = read(fairSharing={"preemptionStrategies": ["LessThanInitialShare"]}, waitForPodsReady={"timeout": "5m30s"})
    assert on.fair_sharing == FairSharingConfiguration(preemption_strategies=("LessThanInitialShare",))
    assert on.wait_for_pods_ready == WaitForPodsReady(timeout_ms=330_000, recovery_timeout_ms=330_000)
    with pytest.raises(ConfigurationError, match=r"fairSharing\.enable: Kueue has no such field"):
        read(fairSharing={"enable": True})


def test_everything_that_decides_is_read() -> None:
    """One file with every section that Headgate follows."""
    whole = read(
        waitForPodsReady={
            "timeout": "10m",
            "recoveryTimeout": "90s",
            "blockAdmission": True,
            "requeuingStrategy": {
                "timestamp": "Creation",
                "backoffLimitCount": 5,
                "backoffBaseSeconds": 0,
                "backoffMaxSeconds": 30,
            },
        },
        admissionFairSharing={
            "usageHalfLifeTime": "168h",
            "usageSamplingInterval": "1m",
            "resourceWeights": {"cpu": 2},
        },
        resources={
            "excludeResourcePrefixes": ["example.com/"],
            "transformations": [
                {"input": "nvidia.com/mig", "strategy": "Replace", "outputs": {"gpu-memory": "5Gi"}},
                {"input": "pods", "multiplyBy": "cpu"},
            ],
        },
        objectRetentionPolicies={"workloads": {"afterFinished": "0s", "afterDeactivatedByKueue": "24h"}},
        featureGates={"PartialAdmission": False, "PriorityBoost": True, "FlavorFungibility": True},
    )
    assert whole.wait_for_pods_ready == WaitForPodsReady(
        timeout_ms=600_000,
        recovery_timeout_ms=90_000,
        block_admission=True,
        requeuing_strategy=RequeuingStrategy(
            timestamp="Creation", backoff_limit_count=5, backoff_base_s=0, backoff_max_s=30
        ),
    )
    assert whole.admission_fair_sharing == AdmissionFairSharingConfiguration(
        usage_half_life_ms=604_800_000, usage_sampling_interval_ms=60_000, resource_weights={"cpu": 2.0}
    )
    assert whole.resources == ResourcesConfiguration(
        exclude_resource_prefixes=("example.com/",),
        transformations=(
            ResourceTransformation(input="nvidia.com/mig", strategy="Replace", outputs={"gpu-memory": "5Gi"}),
            ResourceTransformation(input="pods", strategy="Retain", multiply_by="cpu"),
        ),
    )
    assert whole.object_retention_policies == RetentionPolicies(
        after_finished_ms=0, after_deactivated_by_kueue_ms=86_400_000
    )
    assert whole.feature_gates == {**feature_gates.DEFAULTS, "PartialAdmission": False, "PriorityBoost": True}


def test_what_has_no_bearing_is_read_over() -> None:
    """How Kueue's manager listens, elects, serves and limits itself; and what repeats a default."""
    assert read(
        namespace="queueing",
        health={"healthProbeBindAddress": ":8081"},
        metrics={"bindAddress": ":8443", "enableClusterQueueResources": True},
        webhook={"port": 9443},
        leaderElection={"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
        controller={"groupKindConcurrency": {"Job.batch": 5}},
        clientConnection={"qps": 300, "burst": 500},
        internalCertManagement={"enable": False},
        pprofBindAddress=":8083",
        tls={"minVersion": "VersionTLS13"},
        visibilityServer={"bindPort": 8082},
        integrations={"frameworks": ["batch/job"], "externalFrameworks": ["Foo.v1.example.com"]},
        multiKueue={"gcInterval": "1m0s", "origin": "multikueue", "workerLostTimeout": "15m0s"},
    ) == read(namespace="queueing")
    assert read(OLD, queueVisibility={"updateIntervalSeconds": 5}, integrations={"podOptions": {}}) == read(OLD)


def test_jobs_of_the_system_namespaces_are_never_managed() -> None:
    """The default selector leaves out kube-system and Kueue's namespace; one that takes them in is refused."""
    selector = read(namespace="queueing").managed_jobs_namespace_selector
    assert [
        matches_labels(selector, {"kubernetes.io/metadata.name": name}) for name in ("kube-system", "queueing", "team")
    ] == [False, False, True]
    with pytest.raises(ConfigurationError, match="must not match the namespace kube-system"):
        read(managedJobsNamespaceSelector={})


# --- what is refused -----------------------------------------------------------------------------------------------


def test_the_labels_to_copy_are_read_in_both_versions() -> None:
    """Each once; Kueue takes any key, and one that no label can have matches none."""
    for version in (OLD, NEW):
        found = read(version, integrations={"labelKeysToCopy": ["team", "example.com/cost", "team", "no key"]})
        assert found.integrations.label_keys_to_copy == ("team", "example.com/cost", "no key")
    assert read().integrations.label_keys_to_copy is msgspec.UNSET


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a field that nobody knows": ({"fairSharin": {}}, "fairSharin", "did you mean 'fairSharing'?"),
    "a field within": (
        {"waitForPodsReady": {"requeuingStrategy": {"backoffLimit": 1}}},
        "waitForPodsReady.requeuingStrategy.backoffLimit",
        "did you mean 'backoffLimitCount'?",
    ),
    "an old field in the new version": ({"queueVisibility": {}}, "queueVisibility", "visibilityServer"),
    "no duration": ({"waitForPodsReady": {"timeout": 300}}, "waitForPodsReady.timeout", "5m"),
    "a negative duration": (
        {"objectRetentionPolicies": {"workloads": {"afterFinished": "-1s"}}},
        "objectRetentionPolicies.workloads.afterFinished",
        "0s or longer",
    ),
    "strategies in another order": (
        {"fairSharing": {"preemptionStrategies": list(reversed(BOTH))}},
        "fairSharing.preemptionStrategies",
        "LessThanOrEqualToFinalShare",
    ),
    "a timestamp that is none": (
        {"waitForPodsReady": {"requeuingStrategy": {"timestamp": "Now"}}},
        "waitForPodsReady.requeuingStrategy.timestamp",
        "Eviction or Creation",
    ),
    "a negative weight": (
        {"admissionFairSharing": {"resourceWeights": {"cpu": -1}}},
        "admissionFairSharing.resourceWeights.cpu",
        "0 or more",
    ),
    "a transformation twice": (
        {"resources": {"transformations": [{"input": "a"}, {"input": "a"}]}},
        "resources.transformations[1].input",
        "merge",
    ),
    "no quantity": (
        {"resources": {"transformations": [{"input": "a", "outputs": {"b": "much"}}]}},
        "resources.transformations[0].outputs.b",
        "quantity",
    ),
    "prefixes beside IgnoreUndeclared": (
        {"resources": {"excludeResourcePrefixes": ["a"], "quotaCheckStrategy": "IgnoreUndeclared"}},
        "resources.quotaCheckStrategy",
        "remove one of the two",
    ),
    "devices": ({"resources": {"deviceClassMappings": [{"name": "d"}]}}, "resources.deviceClassMappings", "remove it"),
    "an alpha integration without its gate": (
        {"integrations": {"frameworks": ["batch/job", "sparkoperator.k8s.io/sparkapplication"]}},
        "integrations.frameworks[1]",
        "set featureGates.SparkApplicationIntegration to true",
    ),
    "an integration that nobody has": (
        {"integrations": {"frameworks": ["batch/jobs"]}},
        "integrations.frameworks[0]",
        "did you mean 'batch/job'?",
    ),
    "an integration like none": (
        {"integrations": {"frameworks": ["?"]}},
        "integrations.frameworks[0]",
        "write one of batch/job, deployment, jobset.x-k8s.io/jobset",
    ),
    "MultiKueue": ({"multiKueue": {"origin": "here"}}, "multiKueue.origin", "remove the section"),
    "a section that is a list": ({"resources": []}, "resources", "name: value"),
    "a flag that is a string": ({"manageJobsWithoutQueueName": "no"}, "manageJobsWithoutQueueName", "true or false"),
    "a gate that nobody has": (
        {"featureGates": {"PartialAdmision": True}},
        "featureGates.PartialAdmision",
        "did you mean 'PartialAdmission'?",
    ),
    "a gate that Headgate does not have": (
        {"featureGates": {"ElasticJobsViaWorkloadSlicesWithTAS": True}},
        "featureGates.ElasticJobsViaWorkloadSlicesWithTAS",
        "set it to false",
    ),
    "a gate that Headgate cannot do without": (
        {"featureGates": {"FlavorFungibility": False}},
        "featureGates.FlavorFungibility",
        "always does what this gate switches on",
    ),
    "a locked gate": ({"featureGates": {"TLSOptions": False}}, "featureGates.TLSOptions", "remove it"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mistake_is_told_with_its_field_and_what_to_write(case: str) -> None:
    """Never silently: what Kueue refuses, and what Headgate would not do."""
    fields, field, remedy = REFUSED[case]
    with pytest.raises(ConfigurationError) as caught:
        read(**fields)
    assert caught.value.field == field
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"kind": "Configuration"}, "apiVersion"),
        ({"apiVersion": "config.kueue.x-k8s.io/v1alpha1", "kind": "Configuration"}, "apiVersion"),
        ({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Workload"}, "kind"),
    ],
)
def test_only_a_configuration_is_read(document: dict[str, str], field: str) -> None:
    """A file of another kind or version is no configuration with unknown fields."""
    with pytest.raises(ConfigurationError) as caught:
        read_configuration(document)
    assert caught.value.field == field


# --- gates ---------------------------------------------------------------------------------------------------------


def test_a_gate_takes_those_along_that_require_it() -> None:
    """Off, a gate switches its dependents off; setting one explicitly beside it is a contradiction."""
    configuration = Configuration(feature_gates={"FlavorFungibility": False})
    assert not feature_gates.enabled(configuration, feature_gates.PRESERVE_SCAN_PROGRESS)
    assert feature_gates.enabled(read(), feature_gates.PRESERVE_SCAN_PROGRESS)
    off = {"TopologyAwareScheduling": False}
    without = read(featureGates=off).feature_gates
    assert {gate for gate, is_on in feature_gates.DEFAULTS.items() if is_on and not without[gate]} == {
        feature_gates.TAS_FAIL_FAST,
        feature_gates.TAS_FAILED_NODE_REPLACEMENT,
        feature_gates.TAS_MULTI_LAYER,
        feature_gates.TAS_OVERLAPPING_FLAVORS,
        feature_gates.TAS_PROFILE_MIXED,
        feature_gates.TAS_RECOMPUTE_IN_CYCLE,
        feature_gates.TAS_REPLACE_ON_POD_TERMINATION,
        feature_gates.TAS_REPLACE_ON_TAINTS,
        feature_gates.TOPOLOGY_AWARE_SCHEDULING,
    }
    with pytest.raises(ConfigurationError, match="requires TopologyAwareScheduling to be enabled"):
        read(featureGates={**off, "TASFailedNodeReplacement": True})


def test_the_gate_of_a_section_switches_it_off() -> None:
    """Kueue reads the section over then."""
    sections: dict[str, Any] = {"admissionFairSharing": {"usageHalfLifeTime": "1s"}, "waitForPodsReady": {}}
    strategy: dict[str, Any] = {"resources": {"quotaCheckStrategy": "IgnoreUndeclared"}}
    off = read(
        **sections,
        **strategy,
        featureGates={"AdmissionFairSharing": False, "DisableWaitForPodsReady": True, "QuotaCheckStrategy": False},
    )
    assert (off.admission_fair_sharing, off.wait_for_pods_ready) == (None, None)
    assert off.resources == ResourcesConfiguration()
    assert read(**strategy).resources.quota_check_strategy == "IgnoreUndeclared"


def test_every_gate_that_headgate_asks_for_has_kueues_default() -> None:
    """The constants and the table of all gates agree, and no gate requires an unknown one."""
    assert {name: feature_gates.KNOWN[name].is_on for name in feature_gates.DEFAULTS} == feature_gates.DEFAULTS
    assert {required for gate in feature_gates.KNOWN.values() for required in gate.requires} <= set(feature_gates.KNOWN)


def test_every_gate_may_be_set_to_its_default() -> None:
    """And is recorded like one that the file does not name."""
    everything = {gate.name: gate.is_on for gate in feature_gates.KNOWN.values()}
    assert read(featureGates=everything).feature_gates == read().feature_gates == feature_gates.DEFAULTS


# --- parts ---------------------------------------------------------------------------------------------------------


def test_parts_of_a_scenario_are_on_by_being_there() -> None:
    """`{"fairSharing": {}}` shares with the default strategies; what is not named is off."""
    assert read_parts({}, {}) == Configuration(feature_gates=feature_gates.DEFAULTS) == read_parts(None, None)
    parts = read_parts({"fairSharing": {}}, {"PartialAdmission": False})
    assert parts == Configuration(
        fair_sharing=FairSharingConfiguration(preemption_strategies=BOTH),
        feature_gates={**feature_gates.DEFAULTS, "PartialAdmission": False},
    )


# --- durations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("0", 0), ("5m30s", 330_000), ("1.5h", 5_400_000), ("300ms", 300), ("1us", 1), (".5s", 500), ("+1m", 60_000)],
)
def test_durations_are_gos(text: str, milliseconds: int) -> None:
    """Parts of a millisecond count as a whole one: a timeout never comes too early."""
    assert duration_ms("f", text) == milliseconds


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "1d", "-1s", "9999999h", 5, True, "5m-1s"])
def test_what_is_no_duration_is_refused(text: object) -> None:
    """A number without a unit is none, nor is a day."""
    with pytest.raises(ConfigurationError):
        duration_ms("f", text)


@given(hours=st.integers(0, 10_000), minutes=st.integers(0, 59), seconds=st.integers(0, 59))
def test_the_parts_of_a_duration_add_up(hours: int, minutes: int, seconds: int) -> None:
    """Whatever Go prints is read as the same time."""
    assert duration_ms("f", f"{hours}h{minutes}m{seconds}s") == ((hours * 60 + minutes) * 60 + seconds) * 1000


def test_the_wake_policy_stands_in_headgates_own_section() -> None:
    """Bounded without it; a policy that there is not is refused by the field's path."""
    assert read().wake_policy == "Bounded"
    assert read(headgate={"wakePolicy": "CohortTree"}).wake_policy == "CohortTree"
    with pytest.raises(
        ConfigurationError, match=r"headgate\.wakePolicy: 'Tree' is not supported: write Bounded or Cohor"
    ):
        read(headgate={"wakePolicy": "Tree"})
    with pytest.raises(ConfigurationError, match=r"headgate\.wakePolici: .*did you mean 'wakePolicy'"):
        read(headgate={"wakePolici": "Bounded"})
