"""
From manifests to the initial facts of a plan.

`read_objects` reads manifests as the informer bridge reads API objects (`headgate.core.reading.decoding`), in either
version of Kueue's API. Any error raises PlanInputError with object, field and remedy; nothing is read partially.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from headgate.core.api.conversion import GROUP, VersionError, to_v1beta2
from headgate.core.api.job_kinds import JOB_KINDS
from headgate.core.reading.decoding import UnreadableObjectError, every_resource, read
from headgate.events.facts import Fact

RESOURCE_OF: Mapping[tuple[str, str], str] = {
    ("", "Namespace"): "namespaces",
    ("", "Node"): "nodes",
    ("", "Pod"): "pods",
    ("", "LimitRange"): "limitranges",
    **{(kind.group, kind.kind): kind.resource for kind in JOB_KINDS},
    ("node.k8s.io", "RuntimeClass"): "runtimeclasses",
    ("scheduling.k8s.io", "PriorityClass"): "priorityclasses",
    (GROUP, "ResourceFlavor"): "resourceflavors",
    (GROUP, "Topology"): "topologies",
    (GROUP, "AdmissionCheck"): "admissionchecks",
    (GROUP, "ProvisioningRequestConfig"): "provisioningrequestconfigs",
    (GROUP, "Cohort"): "cohorts",
    (GROUP, "ClusterQueue"): "clusterqueues",
    (GROUP, "LocalQueue"): "localqueues",
    (GROUP, "WorkloadPriorityClass"): "workloadpriorityclasses",
    (GROUP, "Workload"): "workloads",
}
"""What a plan reads, by API group and kind: the plural names of `headgate.core.reading.decoding`."""

NAMESPACED = frozenset({"pods", "limitranges", "localqueues", "workloads", *(kind.resource for kind in JOB_KINDS)})
"""The resources whose objects are in a namespace."""

Manifest = Mapping[str, Any]


class PlanInputError(Exception):
    """Raised when the input of a plan cannot be read; the message names object, field and remedy."""


def resource_of(manifest: Manifest) -> str | None:
    """The resource of an object, as `headgate.core.reading.decoding` names it; None for objects that a plan ignores."""
    group, _, version = str(manifest.get("apiVersion", "")).rpartition("/")
    return RESOURCE_OF.get((group if version else "", str(manifest.get("kind", ""))))


def read_object(manifest: Manifest) -> Fact | None:
    """
    The fact of one object; None when it is irrelevant to scheduling (a Job without a queue).

    Raises PlanInputError, also for kinds that a plan does not support.
    """
    shown = shown_as(manifest)
    resource = resource_of(manifest)
    if resource is None:
        raise PlanInputError(f"{shown}: a plan has no use for this kind: leave it out")
    try:
        renewed = to_v1beta2(manifest)
        return read(resource, msgspec.json.encode(renewed)).fact
    except (VersionError, UnreadableObjectError) as error:
        field = f", field {error.field}" if error.field else ""
        raise PlanInputError(f"{shown}{field}: {error.why}: correct it and plan again") from error


def shown_as(manifest: Manifest) -> str:
    """An object as messages name it: `ClusterQueue cq`, `Workload team-a/train`."""
    metadata = manifest.get("metadata")
    given: Mapping[str, Any] = metadata if isinstance(metadata, Mapping) else {}
    namespace, name = given.get("namespace"), given.get("name") or "(without a name)"
    return f"{manifest.get('kind')} {namespace}/{name}" if namespace else f"{manifest.get('kind')} {name}"


def in_order(facts: Iterable[tuple[str, Fact]]) -> tuple[Fact, ...]:
    """Facts, each with its resource, in the bridge's order: referenced objects come first."""
    places = {resource: place for place, resource in enumerate(every_resource())}
    return tuple(fact for _, fact in sorted(facts, key=lambda each: places[each[0]]))


def read_objects(manifests: Iterable[Manifest]) -> tuple[Fact, ...]:
    """The facts of complete manifests, as an API server would have them. Raises PlanInputError."""
    facts: list[tuple[str, Fact]] = []
    seen: set[tuple[str, str]] = set()
    for manifest in manifests:
        fact, resource = read_object(manifest), resource_of(manifest)
        assert resource is not None
        identity = (resource, shown_as(manifest))
        if identity in seen:
            raise PlanInputError(f"{identity[1]}: there are two objects of this name: leave one out")
        seen.add(identity)
        if fact is not None:
            facts.append((resource, fact))
    return in_order(facts)
