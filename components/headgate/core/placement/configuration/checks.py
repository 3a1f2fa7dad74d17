"""
What is wrong with a KubeSchedulerConfiguration beyond the types of its fields.

Source: pkg/scheduler/apis/config/validation/validation.go. Each check raises ConfigurationError for the first thing.
"""

import re
from typing import Final

from headgate.core.config.fields import ConfigurationError, duration_ms
from headgate.core.kubernetes.label_syntax import why_no_label_key
from headgate.core.placement.configuration.types import (
    Extender,
    ExtenderTls,
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
)
from headgate.core.placement.requests import is_extended

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KIND: Final = "KubeSchedulerConfiguration"

REMOVED: Final = ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")
"""Plugins of former versions; NodeVolumeLimits does their work."""

EXTENDERS_MAX: Final = 16
"""Extenders of a configuration: their answers for one pod are kept, so their number is bounded."""

_HOST: Final = r"[^\s/?#@:\[\]]+|\[[0-9A-Fa-f:.%]+\]"
_URL: Final = re.compile(
    rf"https?://([^\s/?#@]*@)?({_HOST})(:(?P<port>[0-9]{{1,5}}))?(/[^\s?#]*)?(?P<rest>[?#]\S*)?", re.IGNORECASE
)


def check(configuration: KubeSchedulerConfiguration) -> None:
    """Raise ConfigurationError for the first field that is wrong."""
    if configuration.api_version != API_VERSION:
        raise ConfigurationError("apiVersion", f"{configuration.api_version!r} is not known", f"write {API_VERSION}")
    if configuration.kind != KIND:
        raise ConfigurationError("kind", f"{configuration.kind!r} is not known", f"write {KIND}")
    if configuration.parallelism <= 0:
        raise ConfigurationError("parallelism", f"{configuration.parallelism} cannot be", "write a number above 0")
    _check_percentage("percentageOfNodesToScore", configuration.percentage_of_nodes_to_score)
    initial, most = configuration.pod_initial_backoff_seconds, configuration.pod_max_backoff_seconds
    if initial <= 0:
        raise ConfigurationError("podInitialBackoffSeconds", f"{initial} cannot be", "write a number above 0")
    if most < initial:
        raise ConfigurationError(
            "podMaxBackoffSeconds", f"{most} is less than podInitialBackoffSeconds", f"write {initial} or more"
        )
    _check_leader_election(configuration)
    _check_profiles(configuration.profiles)
    check_extenders(configuration.extenders)


def _check_percentage(path: str, percentage: int | None) -> None:
    if percentage is not None and not 0 <= percentage <= 100:
        raise ConfigurationError(path, f"{percentage} cannot be", "write a number from 0 to 100")


def _check_leader_election(configuration: KubeSchedulerConfiguration) -> None:
    election = configuration.leader_election
    if election.leader_elect and election.resource_lock != "leases":
        raise ConfigurationError(
            "leaderElection.resourceLock", f"{election.resource_lock!r} is not supported", "write leases"
        )
    for name, value in (
        ("leaseDuration", election.lease_duration),
        ("renewDeadline", election.renew_deadline),
        ("retryPeriod", election.retry_period),
    ):
        duration_ms(f"leaderElection.{name}", value)


def _check_profiles(profiles: tuple[KubeSchedulerProfile, ...]) -> None:
    names: dict[str, int] = {}
    for index, profile in enumerate(profiles):
        path = f"profiles[{index}]"
        if not profile.scheduler_name:
            raise ConfigurationError(f"{path}.schedulerName", "it is missing", "write a name of its own")
        if profile.scheduler_name in names:
            raise ConfigurationError(
                f"{path}.schedulerName",
                f"{profile.scheduler_name!r} is that of profiles[{names[profile.scheduler_name]}] too",
                "write a name of its own",
            )
        names[profile.scheduler_name] = index
        _check_percentage(f"{path}.percentageOfNodesToScore", profile.percentage_of_nodes_to_score)
        _check_plugin_config(profile, path)


def _check_plugin_config(profile: KubeSchedulerProfile, path: str) -> None:
    seen: list[str] = []
    for index, config in enumerate(profile.plugin_config):
        at = f"{path}.pluginConfig[{index}].name"
        if config.name in seen:
            raise ConfigurationError(at, f"{config.name!r} is configured twice", "configure it once")
        seen.append(config.name)


def check_extenders(extenders: tuple[Extender, ...]) -> None:
    """Raise ConfigurationError for the first field of an extender that is wrong."""
    managed: list[str] = []
    binders = 0
    if len(extenders) > EXTENDERS_MAX:
        raise ConfigurationError("extenders", f"there are {len(extenders)}", f"write at most {EXTENDERS_MAX}")
    for index, extender in enumerate(extenders):
        path = f"extenders[{index}]"
        duration_ms(f"{path}.httpTimeout", extender.http_timeout)
        _check_url(f"{path}.urlPrefix", extender.url_prefix)
        _check_tls(f"{path}.tlsConfig", extender.tls_config or ExtenderTls())
        if extender.prioritize_verb and extender.weight <= 0:
            raise ConfigurationError(f"{path}.weight", f"{extender.weight} cannot be", "write a weight above 0")
        binders += bool(extender.bind_verb)
        for number, resource in enumerate(extender.managed_resources):
            at = f"{path}.managedResources[{number}].name"
            if why_no_label_key(resource.name) or not is_extended(resource.name):
                raise ConfigurationError(
                    at, f"{resource.name!r} is no extended resource", "write a name like example.com/gpu"
                )
            if resource.name in managed:
                raise ConfigurationError(at, f"{resource.name!r} is managed twice", "name it once")
            managed.append(resource.name)
    if binders > 1:
        raise ConfigurationError("extenders", f"{binders} of them have a bindVerb", "write one for at most one")


def _check_url(path: str, url: str) -> None:
    parts = _URL.fullmatch(url)
    if parts is None or not 0 < int(parts["port"] or 1) < 2**16:
        raise ConfigurationError(path, f"{url!r} is no URL", "write one like https://extender.example.com/scheduler")
    if parts["rest"]:
        raise ConfigurationError(path, f"{url!r} has a query or a fragment", "write the URL without it")


def _check_tls(path: str, tls: ExtenderTls) -> None:
    """What no client can be made of; that Go passes over a certificate without its key is not repeated here."""
    if tls.insecure and (tls.ca_file or tls.ca_data):
        raise ConfigurationError(
            f"{path}.insecure", "it is set beside an authority to verify the server with", "write one of them"
        )
    has_certificate, has_key = bool(tls.cert_file or tls.cert_data), bool(tls.key_file or tls.key_data)
    if has_certificate != has_key:
        missing = "key" if has_certificate else "cert"
        raise ConfigurationError(
            f"{path}.{missing}File", "it is missing, or its data", "write both a certificate and its key, or none"
        )
