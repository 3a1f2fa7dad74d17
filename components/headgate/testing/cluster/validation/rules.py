"""
The rules of Kubernetes' own kinds: which defaults are computed and which content is refused, beyond the schema.

This is the dispatch; the rules are in `rules_core`, `rules_jobs` and `rules_pods`. Kueue's kinds have none here: their
rules are in their CustomResourceDefinitions, and what Kueue's webhooks would add is not in an API server. Rules get
whole objects and return field errors; only the hooks that take a registry read the store.
"""

from typing import Any

from headgate.testing.cluster.errors import FieldError
from headgate.testing.cluster.kinds import Kind
from headgate.testing.cluster.validation import admission
from headgate.testing.cluster.validation import rules_core as core
from headgate.testing.cluster.validation import rules_jobs as jobs
from headgate.testing.cluster.validation import rules_pods as pods
from headgate.testing.cluster.validation.registry_reader import RegistryReader
from headgate.testing.cluster.validation.rules_podspec import pod_spec_warnings

JsonObject = dict[str, Any]


def with_defaults(kind: Kind, obj: JsonObject, name: str) -> JsonObject:
    """A new object with the defaults that decoding gives it, before admission and strategy: what its writer owns."""
    match kind.resource:
        case "pods":
            return pods.pod_defaults({**obj, "spec": obj.get("spec") or {}})
        case "jobs.batch":
            return jobs.job_defaults(obj)
        case "namespaces":
            labels = {**(obj["metadata"].get("labels") or {}), "kubernetes.io/metadata.name": name}
            return {**obj, "metadata": {**obj["metadata"], "labels": labels}}
        case _:
            return obj


def on_create(registry: RegistryReader, kind: Kind, obj: JsonObject) -> JsonObject:
    """The object with what admission and the strategy of its kind fill in. Raises ApiStatusError 403."""
    match kind.resource:
        case "pods":
            return pods.pod_on_create(registry, kind, obj)
        case "jobs.batch":
            return jobs.job_on_create(obj)
        case "namespaces":
            return core.namespace_on_create(obj)
        case _:
            return core.with_defaults(registry, kind, obj, None)


def on_update(registry: RegistryReader, kind: Kind, obj: JsonObject, old: JsonObject, subresource: str) -> JsonObject:
    """The object with what the defaults and the strategy of its kind keep over an update. Raises ApiStatusError 403."""
    match (kind.resource, subresource):
        case ("namespaces", ""):
            # Finalizers of a namespace are changed through /finalize only.
            return {**obj, "spec": old.get("spec", {})}
        case ("pods", ""):
            return pods.pod_on_update(obj, old)
        case ("pods", "status"):
            return pods.pod_status_on_update(obj, old)
        case ("jobs.batch", ""):
            return jobs.job_defaults(obj)
        case (_, ""):
            return core.with_defaults(registry, kind, obj, old)
        case _:
            return obj


def create_errors(kind: Kind, obj: JsonObject) -> list[FieldError]:
    """What is wrong with a new object."""
    match kind.resource:
        case "pods":
            return pods.pod_create_errors(obj)
        case "jobs.batch":
            return jobs.job_errors(obj)
        case _:
            return _content_errors(kind, obj, None)


def require_deletable(kind: Kind, name: str) -> None:
    """Refuse to delete what every cluster has. Raises ApiStatusError 403."""
    core.require_deletable(kind, name)


def on_valid(registry: RegistryReader, kind: Kind, obj: JsonObject) -> list[str]:
    """The warnings of the API server about a valid new object. Raises ApiStatusError 403 if admission keeps it out."""
    match kind.resource:
        case "jobs.batch":
            spec = obj["spec"]["template"].get("spec") or {}
            return core.name_warnings(obj, "Pod names and hostnames") + pod_spec_warnings(spec, "spec.template.spec")
        case "pods":
            admission.validate(registry, kind, obj)
            return core.name_warnings(obj, "the Pod's hostname") + pod_spec_warnings(obj["spec"], "spec")
        case _:
            return []


def update_errors(kind: Kind, obj: JsonObject, old: JsonObject, subresource: str) -> list[FieldError]:
    """What is wrong with an update from `old` to `obj`."""
    match (kind.resource, subresource):
        case ("pods", ""):
            return pods.pod_update_errors(obj, old)
        case ("pods", "status"):
            return pods.pod_status_errors(obj, old)
        case ("jobs.batch", ""):
            return jobs.job_update_errors(obj, old)
        case ("jobs.batch", "status"):
            return jobs.job_status_errors(obj, old)
        case (resource, "status") if resource != "nodes":
            return []
        case _:
            return _content_errors(kind, obj, old)


def _content_errors(kind: Kind, obj: JsonObject, old: JsonObject | None) -> list[FieldError]:
    match kind.kind:
        case "PriorityClass":
            return core.priority_class_errors(obj, old)
        case "PodDisruptionBudget":
            return core.disruption_budget_errors(obj)
        case "ConfigMap":
            return core.config_map_errors(obj, old)
        case "Node":
            return core.node_errors(obj, old)
        case "RuntimeClass":
            return core.runtime_class_errors(obj, old)
        case "LimitRange":
            return core.limit_range_errors(obj)
        case "Lease":
            return core.lease_errors(obj)
        case _:
            return []
