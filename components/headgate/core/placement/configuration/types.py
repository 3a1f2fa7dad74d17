"""
`kubescheduler.config.k8s.io/v1` KubeSchedulerConfiguration, field by field, with the API's defaults.

Fields without effect here (leader election, client connection, profiling, parallelism) are read all the same, so that a
file runs as it is and a misspelled field is an error.
"""

from typing import Any

import msgspec


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """What all parts have in common."""


class PluginReference(_Part, frozen=True):
    """`Plugin`: a name, and its weight where it scores; 0 for none given."""

    name: str
    weight: int = 0


class PluginSet(_Part, frozen=True):
    """`PluginSet`: what is enabled beside, and disabled of, the defaults; `*` disables all."""

    enabled: tuple[PluginReference, ...] = ()
    disabled: tuple[PluginReference, ...] = ()


class Plugins(_Part, frozen=True):
    """`Plugins`, per extension point; `multi_point` is for all points that a plugin takes part in."""

    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()
    multi_point: PluginSet = PluginSet()
    placement_generate: PluginSet = PluginSet()
    placement_score: PluginSet = PluginSet()


class PluginConfig(_Part, frozen=True):
    """`PluginConfig`: the arguments of a plugin, which its factory reads."""

    name: str
    args: dict[str, Any] | None = None


class KubeSchedulerProfile(_Part, frozen=True):
    """`KubeSchedulerProfile`."""

    scheduler_name: str | None = None
    percentage_of_nodes_to_score: int | None = None
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()


class ManagedResource(_Part, frozen=True):
    """`ExtenderManagedResource`."""

    name: str
    ignored_by_scheduler: bool = False


class ExtenderTls(_Part, frozen=True):
    """`ExtenderTLSConfig`; data are base64."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: str = ""
    key_data: str = ""
    ca_data: str = ""


class Extender(_Part, frozen=True):
    """`Extender`: a webhook that filters, scores, preempts or binds."""

    url_prefix: str
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: int = 0
    bind_verb: str = ""
    enable_https: bool = msgspec.field(name="enableHTTPS", default=False)
    tls_config: ExtenderTls | None = None
    http_timeout: str = "5s"
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False

    def url(self, path: str) -> str:
        """The URL of what is configured for a verb."""
        return f"{self.url_prefix.rstrip('/')}/{path}"


class LeaderElection(_Part, frozen=True):
    """`LeaderElectionConfiguration`: without effect, Headgate has its own."""

    leader_elect: bool = True
    lease_duration: str = "15s"
    renew_deadline: str = "10s"
    retry_period: str = "2s"
    resource_lock: str = "leases"
    resource_name: str = "kube-scheduler"
    resource_namespace: str = "kube-system"


class ClientConnection(_Part, frozen=True):
    """`ClientConnectionConfiguration`: without effect, the connection is that of the processes."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    qps: float = 50.0
    burst: int = 100


class KubeSchedulerConfiguration(_Part, frozen=True):
    """The document."""

    api_version: str
    kind: str
    parallelism: int = 16
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    percentage_of_nodes_to_score: int = 0
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    profiles: tuple[KubeSchedulerProfile, ...] = ()
    extenders: tuple[Extender, ...] = ()
    delay_cache_until_active: bool = False
