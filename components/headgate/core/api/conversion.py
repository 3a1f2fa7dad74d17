"""
Kueue's API versions: conversion of a `kueue.x-k8s.io/v1beta1` object to v1beta2.

`to_v1beta2` is for manifests (`headgate plan`); `renew` is the same for `headgate.core.reading.decoding`, where objects
that the API server serves as v1beta2 may have old fields: Headgate's CRDs convert nothing, they have the fields of
both. So the fields determine what is converted, not the declared version of the object. Follows
`apis/kueue/v1beta1/*_conversion.go` of Kueue: fields that v1beta2 has dropped (`retryDelayMinutes`,
`pendingWorkloadsStatus`) are dropped, as there.
"""

from collections.abc import Callable, Mapping
from typing import Any

GROUP = "kueue.x-k8s.io"
V1BETA1 = f"{GROUP}/v1beta1"
V1BETA2 = f"{GROUP}/v1beta2"

JsonObject = dict[str, Any]

OLD_FIELDS: Mapping[str, tuple[bytes, ...]] = {
    "ClusterQueue": (b'"cohort"', b'"admissionChecks"', b'"Borrow"', b'"Preempt"', b'"pendingWorkloadsStatus"'),
    "Workload": (b'"priorityClassName"', b'"accumulatedPastExexcutionTimeSeconds"', b'"domains"'),
    "LocalQueue": (b'"flavorUsage"',),
}
"""Bytes in the JSON of every object of a kind that has v1beta1 fields, and occasionally in others."""

CLASS_SOURCES: Mapping[str, tuple[str, str]] = {
    f"{GROUP}/workloadpriorityclass": (GROUP, "WorkloadPriorityClass"),
    "scheduling.k8s.io/priorityclass": ("scheduling.k8s.io", "PriorityClass"),
}
"""Group and kind of a priority class by `priorityClassSource` of v1beta1."""


class VersionError(ValueError):
    """
    Raised when an object cannot be expressed in v1beta2.

    :ivar field: its path in the object, `spec.cohort`.
    """

    def __init__(self, field: str, why: str, name: str = "") -> None:
        super().__init__(f"{name}: {field}: {why}" if name else f"{field}: {why}")
        self.field = field
        self.why = why


def to_v1beta2(manifest: Mapping[str, Any]) -> JsonObject:
    """
    An object of Kueue's v1beta1 or v1beta2 in v1beta2; one of another group unchanged. The argument is not modified.

    Raises VersionError for another version of Kueue's, and for fields of both versions that contradict each other.
    """
    version, kind = manifest.get("apiVersion"), str(manifest.get("kind"))
    if not isinstance(version, str) or version.partition("/")[0] != GROUP:
        return dict(manifest)
    name = _name(manifest)
    if version not in {V1BETA1, V1BETA2}:
        raise VersionError("apiVersion", f"{version!r} is not served: write {V1BETA2}", name)
    try:
        return renew(kind, {**manifest, "apiVersion": V1BETA2})
    except VersionError as error:
        raise VersionError(error.field, error.why, name) from None


def renew(kind: str, manifest: Mapping[str, Any]) -> JsonObject:
    """An object with every v1beta1 field converted to v1beta2. Raises VersionError as `to_v1beta2`."""
    convert = _CONVERSIONS.get(kind)
    renewed = dict(manifest)
    if convert is not None:
        for part in ("spec", "status"):
            if isinstance(manifest.get(part), Mapping):
                renewed[part] = dict(manifest[part])
        convert(renewed)
    return renewed


def _name(manifest: Mapping[str, Any]) -> str:
    metadata = manifest.get("metadata")
    given = metadata if isinstance(metadata, Mapping) else {}
    namespace, name = given.get("namespace"), given.get("name", "")
    return f"{manifest.get('kind')} {f'{namespace}/{name}' if namespace else name}"


def _part(manifest: JsonObject, part: str) -> JsonObject:
    """A part that was copied above; a value that is no object is refused by its reader."""
    value = manifest.get(part)
    return value if isinstance(value, dict) else {}


def _cluster_queue(manifest: JsonObject) -> None:
    spec = _part(manifest, "spec")
    cohort = spec.pop("cohort", None)
    if cohort:
        if spec.get("cohortName", cohort) != cohort:
            raise VersionError("spec.cohort", "spec.cohortName says another: keep that one only")
        spec["cohortName"] = cohort
    checks = spec.pop("admissionChecks", None)
    if checks:
        if spec.get("admissionChecksStrategy"):
            why = "spec.admissionChecksStrategy is there as well: write all checks there"
            raise VersionError("spec.admissionChecks", why)
        if not isinstance(checks, list):
            raise VersionError("spec.admissionChecks", "expected a list of names")
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": name} for name in checks]}
    fungibility = spec.get("flavorFungibility")
    if isinstance(fungibility, Mapping):
        old = {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}
        spec["flavorFungibility"] = {
            field: "MayStopSearch" if field in old and value == old[field] else value
            for field, value in fungibility.items()
        }
    _part(manifest, "status").pop("pendingWorkloadsStatus", None)


def _local_queue(manifest: JsonObject) -> None:
    status = _part(manifest, "status")
    status.pop("flavors", None)
    usage = status.pop("flavorUsage", None)
    if usage is not None:
        status.setdefault("flavorsUsage", usage)


def _admission_check(manifest: JsonObject) -> None:
    _part(manifest, "spec").pop("retryDelayMinutes", None)


def _workload(manifest: JsonObject) -> None:
    spec, status = _part(manifest, "spec"), _part(manifest, "status")
    name, source = spec.pop("priorityClassName", None), spec.pop("priorityClassSource", None)
    if source:
        if source not in CLASS_SOURCES:
            why = f"{source!r} is not known: write {' or '.join(sorted(CLASS_SOURCES))}"
            raise VersionError("spec.priorityClassSource", why)
        group, kind = CLASS_SOURCES[source]
        if name:
            spec.setdefault("priorityClassRef", {"group": group, "kind": kind, "name": name})
    past_s = status.pop("accumulatedPastExexcutionTimeSeconds", None)
    if past_s is not None:
        status.setdefault("accumulatedPastExecutionTimeSeconds", past_s)
    admission = status.get("admission")
    if isinstance(admission, Mapping) and isinstance(admission.get("podSetAssignments"), list):
        assignments = [_assignment(each) for each in admission["podSetAssignments"]]
        status["admission"] = {**admission, "podSetAssignments": assignments}


def _assignment(assignment: Any) -> Any:
    topology = assignment.get("topologyAssignment") if isinstance(assignment, Mapping) else None
    if not isinstance(topology, Mapping) or "domains" not in topology:
        return assignment
    levels, domains = topology.get("levels") or [], topology["domains"] or []
    field = "status.admission.podSetAssignments.topologyAssignment.domains"
    try:
        rows = [([str(value) for value in each["values"]], int(each["count"])) for each in domains]
    except (TypeError, KeyError, ValueError):
        raise VersionError(field, "each domain needs its values and its count") from None
    if any(len(values) != len(levels) for values, _ in rows):
        raise VersionError(field, "each domain needs one value a level")
    return {**assignment, "topologyAssignment": {"levels": levels, "slices": [_slice(rows)] if rows else []}}


def _slice(rows: list[tuple[list[str], int]]) -> JsonObject:
    """One slice of all domains: per level one common value or one per domain, and the counts in the same form."""
    per_level = [list(values) for values in zip(*(values for values, _ in rows), strict=True)]
    counts = [count for _, count in rows]
    return {
        "domainCount": len(rows),
        "valuesPerLevel": [
            {"universal": values[0]} if len(set(values)) == 1 else {"individual": {"roots": values}}
            for values in per_level
        ],
        "podCounts": {"universal": counts[0]} if len(set(counts)) == 1 else {"individual": counts},
    }


_CONVERSIONS: Mapping[str, Callable[[JsonObject], None]] = {
    "ClusterQueue": _cluster_queue,
    "LocalQueue": _local_queue,
    "AdmissionCheck": _admission_check,
    "Workload": _workload,
}
