"""
The reader of Kueue's Configuration: `config.kueue.x-k8s.io` v1beta1 and v1beta2 into `headgate.events.configuration`.

The informer bridge and `headgate plan` read a file with `read_configuration` before anything starts. There are three
kinds of fields (`components/README.md` lists them): those that affect decisions become part of the result; those
without effect on Headgate (ports, leader election, webhooks, certificates, client limits) are skipped; those that
request a feature that Headgate does not have are errors, because they would be ignored silently. Defaults and rules are
those of `apis/config/*/defaults.go` and `pkg/config/validation.go` of Kueue 0.19; v1beta1 is converted as there.
"""

from collections.abc import Mapping
from typing import Any, cast, get_args

import msgspec

from headgate.core.config import feature_gates
from headgate.core.config.fields import ConfigurationError, Fields
from headgate.core.config.frameworks import read_integrations
from headgate.core.config.metrics import read_metrics
from headgate.core.kubernetes.selectors import matches_labels
from headgate.events.configuration import (
    AdmissionFairSharingConfiguration,
    Configuration,
    FairSharingConfiguration,
    IntegrationsConfiguration,
    RequeuingStrategy,
    ResourcesConfiguration,
    ResourceTransformation,
    RetentionPolicies,
    WaitForPodsReady,
    WakePolicyName,
)
from headgate.events.facts import ConfigurationObserved
from headgate.events.objects import LabelSelector, Requirement

__all__ = ["ConfigurationError", "read_configuration", "read_document", "read_parts"]

GROUP = "config.kueue.x-k8s.io"
V1BETA1 = f"{GROUP}/v1beta1"
V1BETA2 = f"{GROUP}/v1beta2"

_STRATEGIES = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")


class Defaults(msgspec.Struct, frozen=True):
    """
    The values of fields that a file leaves out: Kueue's defaults. A file that is read with them is recorded completely.

    `..._v1beta1` are those of that version, where they differ. None means no limit, or forever.
    """

    preemption_waits: bool = True
    wake_policy: WakePolicyName = "Bounded"
    preemption_strategies: tuple[str, ...] = _STRATEGIES
    usage_half_life_ms: int = 0
    usage_sampling_interval_ms: int = 300_000
    waits_for_pods_ready: bool = True
    timeout_ms: int = 1_800_000
    timeout_ms_v1beta1: int = 300_000
    block_admission: bool = False
    block_admission_v1beta1: bool = True
    timestamp: str = "Eviction"
    backoff_limit_count: int | None = None
    backoff_base_s: int = 60
    backoff_max_s: int = 3600
    transformation_strategy: str = "Retain"
    quota_check_strategy: str = ""
    after_finished_ms: int | None = None
    after_deactivated_by_kueue_ms: int | None = None


DEFAULTS = Defaults()
_NAMESPACE_LABEL = "kubernetes.io/metadata.name"

WITHOUT_EFFECT = (
    "internalCertManagement",
    "webhook",
    "leaderElection",
    "health",
    "pprofBindAddress",
    "controller",
    "tls",
    "clientConnection",
    "visibilityServer",
)
"""How Kueue's manager runs: Headgate's processes have settings of their own for it
(`headgate.processes.runtime.settings`)."""


def read_configuration(document: Mapping[str, Any]) -> Configuration:
    """
    The configuration in a file of either version, with Kueue's defaults. Raises ConfigurationError.

    :param document: the file as parsed from YAML or JSON, with its apiVersion and kind.
    """
    root = Fields(document)
    version, kind = root.text("apiVersion"), root.text("kind")
    if version not in {V1BETA1, V1BETA2}:
        raise ConfigurationError("apiVersion", f"{version!r} is not known", f"write {V1BETA2} or {V1BETA1}")
    if kind != "Configuration":
        raise ConfigurationError("kind", f"{kind!r} is not known", "write Configuration")
    is_old = version == V1BETA1
    flags = root.flags("featureGates")
    waits = flags.pop(feature_gates.PREEMPTION_WAITS, DEFAULTS.preemption_waits)
    read = msgspec.structs.replace(_read(root, flags, is_old=is_old), preemption_waits=waits)
    if not is_old and not root.has("waitForPodsReady") and DEFAULTS.waits_for_pods_ready:
        read = msgspec.structs.replace(read, wait_for_pods_ready=_wait_for_pods_ready(Fields({}), is_old=False))
    selector = read.managed_jobs_namespace_selector or _all_but("kube-system", root.text("namespace", "kueue-system"))
    read = msgspec.structs.replace(read, managed_jobs_namespace_selector=selector)
    return _by_gates(read)


def read_document(document: Mapping[str, Any]) -> ConfigurationObserved:
    """
    The configuration fact for a file, with all that decisions need from the file. Raises ConfigurationError.

    A later version reads the recorded file again with its own defaults.
    """
    read = read_configuration(document)
    kept = {name: value for name, value in document.items() if name not in WITHOUT_EFFECT}
    return ConfigurationObserved(configuration=read, document=msgspec.json.decode(msgspec.json.encode(kept)))


def read_parts(config: Mapping[str, Any] | None, features: Mapping[str, bool] | None) -> Configuration:
    """
    The parts of a v1beta2 Configuration in a scenario, with separate gates. Raises ConfigurationError.

    What it does not name is off: no waiting for pods, and Jobs of every namespace are managed.
    """
    parts = {**(config or {}), **({"featureGates": dict(features)} if features else {})}
    root = Fields(parts)
    return _by_gates(_read(root, root.flags("featureGates"), is_old=False))


def _read(root: Fields, flags: Mapping[str, bool], *, is_old: bool) -> Configuration:
    configuration = Configuration(
        feature_gates=feature_gates.effective(flags),
        fair_sharing=_fair_sharing(root.section("fairSharing"), is_old=is_old),
        admission_fair_sharing=_admission_fair_sharing(root.section("admissionFairSharing")),
        wait_for_pods_ready=_wait_for_pods_ready(root.section("waitForPodsReady"), is_old=is_old),
        resources=_resources(root.section("resources") or Fields({})),
        object_retention_policies=_retention(root.section("objectRetentionPolicies") or Fields({})),
        managed_jobs_namespace_selector=_managed_namespaces(root),
        integrations=_integrations(root, flags, is_old=is_old),
        metrics=read_metrics(root.section("metrics"), is_old=is_old),
        wake_policy=_wake_policy(root.section("headgate")),
        preemption_waits=False,
        manage_jobs_without_queue_name=root.flag("manageJobsWithoutQueueName"),
    )
    _multi_kueue(root.section("multiKueue"))
    root.ignore("apiVersion", "kind", "namespace", *WITHOUT_EFFECT, *(("queueVisibility",) if is_old else ()))
    root.done()
    return configuration


def _wake_policy(section: Fields | None) -> WakePolicyName:
    """The section `headgate`, which Kueue does not have."""
    if section is None:
        return DEFAULTS.wake_policy
    name = section.choice("wakePolicy", get_args(WakePolicyName), DEFAULTS.wake_policy)
    section.done()
    return cast(WakePolicyName, name)


def _by_gates(read: Configuration) -> Configuration:
    """Without the sections whose gate is off, which Kueue ignores."""
    if not feature_gates.enabled(read, feature_gates.ADMISSION_FAIR_SHARING):
        read = msgspec.structs.replace(read, admission_fair_sharing=None)
    if feature_gates.enabled(read, feature_gates.DISABLE_WAIT_FOR_PODS_READY):
        read = msgspec.structs.replace(read, wait_for_pods_ready=None)
    if not feature_gates.enabled(read, feature_gates.QUOTA_CHECK_STRATEGY):
        resources = msgspec.structs.replace(read.resources, quota_check_strategy="")
        read = msgspec.structs.replace(read, resources=resources)
    if not feature_gates.enabled(read, feature_gates.CUSTOM_METRIC_LABELS):
        read = msgspec.structs.replace(read, metrics=msgspec.UNSET)
    return read


def _managed_namespaces(root: Fields) -> LabelSelector | None:
    value = root.raw("managedJobsNamespaceSelector")
    if value is None:
        return None
    at = root.at("managedJobsNamespaceSelector")
    try:
        selector = msgspec.convert(value, LabelSelector)
    except msgspec.ValidationError as error:
        raise ConfigurationError(
            at, f"this is no label selector ({error})", "write matchLabels or matchExpressions"
        ) from None
    for namespace in ("kube-system", root.text("namespace", "kueue-system")):
        if matches_labels(selector, {_NAMESPACE_LABEL: namespace}):
            remedy = f"add an expression {{key: {_NAMESPACE_LABEL}, operator: NotIn, values: [{namespace}]}}"
            raise ConfigurationError(at, f"it must not match the namespace {namespace}", remedy)
    return selector


def _all_but(*namespaces: str) -> LabelSelector:
    return LabelSelector(match_expressions=(Requirement(key=_NAMESPACE_LABEL, operator="NotIn", values=namespaces),))


def _integrations(root: Fields, flags: Mapping[str, bool], *, is_old: bool) -> IntegrationsConfiguration:
    section = root.section("integrations")
    return read_integrations(section, flags, is_old=is_old) if section is not None else IntegrationsConfiguration()


def _multi_kueue(section: Fields | None) -> None:
    """Headgate has no MultiKueue: the defaults are accepted, everything else would have no effect."""
    if section is None:
        return
    defaults = {
        "gcInterval": 60_000,
        "workerLostTimeout": 900_000,
        "origin": "multikueue",
        "dispatcherName": "kueue.x-k8s.io/multikueue-dispatcher-all-at-once",
    }
    for name, default in defaults.items():
        value = section.duration_ms(name) if isinstance(default, int) else section.text(name) or None
        if value not in {None, default}:
            raise ConfigurationError(section.at(name), "Headgate has no MultiKueue", "remove the section multiKueue")
    for name in ("externalFrameworks", "clusterProfile", "incrementalDispatcherConfig"):
        if section.raw(name):
            raise ConfigurationError(section.at(name), "Headgate has no MultiKueue", "remove the section multiKueue")
    section.done()


def _fair_sharing(section: Fields | None, *, is_old: bool) -> FairSharingConfiguration | None:
    if section is None:
        return None
    is_on = section.flag("enable") if is_old else True
    strategies = section.texts("preemptionStrategies") or DEFAULTS.preemption_strategies
    section.done()
    if strategies not in {_STRATEGIES, _STRATEGIES[:1], _STRATEGIES[1:]}:
        remedy = f"write [{', '.join(_STRATEGIES)}] or one of the two"
        raise ConfigurationError(section.at("preemptionStrategies"), f"{list(strategies)} is not supported", remedy)
    return FairSharingConfiguration(preemption_strategies=strategies) if is_on else None


def _admission_fair_sharing(section: Fields | None) -> AdmissionFairSharingConfiguration | None:
    if section is None:
        return None
    read = AdmissionFairSharingConfiguration(
        usage_half_life_ms=section.duration_ms("usageHalfLifeTime") or DEFAULTS.usage_half_life_ms,
        usage_sampling_interval_ms=section.duration_ms("usageSamplingInterval") or DEFAULTS.usage_sampling_interval_ms,
        resource_weights=section.weights("resourceWeights"),
    )
    section.done()
    return read


def _wait_for_pods_ready(section: Fields | None, *, is_old: bool) -> WaitForPodsReady | None:
    if section is None:
        return None
    is_on = section.flag("enable") if is_old else True
    default_ms, blocks = DEFAULTS.timeout_ms, DEFAULTS.block_admission
    if is_old:
        default_ms, blocks = DEFAULTS.timeout_ms_v1beta1, DEFAULTS.block_admission_v1beta1
    timeout_ms = section.duration_ms("timeout") or default_ms
    recovery_ms = section.duration_ms("recoveryTimeout")
    read = WaitForPodsReady(
        timeout_ms=timeout_ms,
        recovery_timeout_ms=timeout_ms if recovery_ms is None else recovery_ms,
        block_admission=section.flag("blockAdmission", default=blocks),
        requeuing_strategy=_requeuing(section.section("requeuingStrategy") or Fields({})),
    )
    section.done()
    return read if is_on else None


def _requeuing(section: Fields) -> RequeuingStrategy:
    limit = section.count("backoffLimitCount")
    base_s, max_s = section.count("backoffBaseSeconds"), section.count("backoffMaxSeconds")
    read = RequeuingStrategy(
        timestamp=section.choice("timestamp", ("Eviction", "Creation"), DEFAULTS.timestamp),
        backoff_limit_count=DEFAULTS.backoff_limit_count if limit is None else limit,
        backoff_base_s=DEFAULTS.backoff_base_s if base_s is None else base_s,
        backoff_max_s=DEFAULTS.backoff_max_s if max_s is None else max_s,
    )
    section.done()
    return read


def _resources(section: Fields) -> ResourcesConfiguration:
    read = ResourcesConfiguration(
        exclude_resource_prefixes=section.texts("excludeResourcePrefixes"),
        transformations=tuple(_transformation(each) for each in section.sections("transformations")),
        quota_check_strategy=section.choice(
            "quotaCheckStrategy", ("BlockUndeclared", "IgnoreUndeclared"), DEFAULTS.quota_check_strategy
        ),
    )
    inputs = [each.input for each in read.transformations]
    for index, name in enumerate(inputs):
        at = f"{section.at('transformations')}[{index}].input"
        if not name:
            raise ConfigurationError(at, "it is missing", "name the resource to transform")
        if name in inputs[:index]:
            raise ConfigurationError(at, f"{name!r} is transformed twice", "merge the two transformations")
    if read.exclude_resource_prefixes and read.quota_check_strategy == "IgnoreUndeclared":
        problem = "excludeResourcePrefixes is not allowed when quotaCheckStrategy is IgnoreUndeclared"
        raise ConfigurationError(section.at("quotaCheckStrategy"), problem, "remove one of the two")
    if section.raw("deviceClassMappings"):
        problem = "Headgate does not count devices of dynamic resource allocation"
        raise ConfigurationError(section.at("deviceClassMappings"), problem, "remove it")
    section.done()
    return read


def _transformation(section: Fields) -> ResourceTransformation:
    read = ResourceTransformation(
        input=section.text("input"),
        strategy=section.choice("strategy", ("Retain", "Replace"), DEFAULTS.transformation_strategy),
        multiply_by=section.text("multiplyBy"),
        outputs=section.quantities("outputs"),
    )
    section.done()
    return read


def _retention(section: Fields) -> RetentionPolicies:
    workloads = section.section("workloads") or Fields({})
    section.done()
    finished_ms = workloads.duration_ms("afterFinished")
    deactivated_ms = workloads.duration_ms("afterDeactivatedByKueue")
    read = RetentionPolicies(
        after_finished_ms=DEFAULTS.after_finished_ms if finished_ms is None else finished_ms,
        after_deactivated_by_kueue_ms=(
            DEFAULTS.after_deactivated_by_kueue_ms if deactivated_ms is None else deactivated_ms
        ),
    )
    workloads.done()
    return read
