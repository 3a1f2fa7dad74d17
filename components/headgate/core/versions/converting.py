"""
Conversion of Kueue's objects between `kueue.x-k8s.io/v1beta1` and v1beta2, for the API server.

`convert_review` answers a ConversionReview of `apiextensions.k8s.io/v1`; the webhook process calls it. `convert` is one
object. Both are pure, and nothing is lost on the way there and back:

- What both versions have, unknown fields among it, stays as it is. What only v1beta2 has (`preemptionGates`,
  `concurrentAdmissionPolicy`, `podsetSliceRequiredTopologyConstraints`, `quotaManagement`) is under the same name in
  v1beta1. Kueue's own conversion drops it there.
- What v1beta1 spells otherwise is translated as Kueue does it (apis/kueue/v1beta1/*_conversion.go).
- What v1beta2 cannot express is kept in the annotation `KEPT` of the v1beta2 object, and is back in v1beta1 as long as
  v1beta2 says the same as when it was kept: `admissionChecks`, `Borrow`, `Preempt`, a priority class without a source,
  `retryDelayMinutes`, and status that v1beta2 has no more. Kueue drops that as well. In v1beta1 the annotation does not
  exist.
- Empty fields (`""`, `[]`, `{}`) of v1beta1 that v1beta2 lacks are not kept: they mean what an absent one means.
- Topology assignments keep their domains and their order. Encoded anew, in v1beta2, they may be in other slices.

Metadata other than this annotation is never touched, as the API server demands.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from headgate.core.api.conversion import CLASS_SOURCES, V1BETA1, V1BETA2, VersionError, renew
from headgate.core.topology.assignments import Domain, Placement, expand
from headgate.core.topology.encoding import compressed
from headgate.events.objects import TopologyAssignment

JsonObject = dict[str, Any]

KEPT: Final = "headgate.dev/v1beta1"
"""The annotation of v1beta2 objects with what only v1beta1 can express: a JSON object of values by path."""

_CLASS_REFERENCES: Final = {reference: source for source, reference in CLASS_SOURCES.items()}

_ONLY_V1BETA1: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "AdmissionCheck": (("spec.retryDelayMinutes",),),
    "ClusterQueue": (
        ("spec.admissionChecks", "spec.admissionChecksStrategy"),
        ("spec.flavorFungibility.whenCanBorrow",),
        ("spec.flavorFungibility.whenCanPreempt",),
        ("status.fairSharing.admissionFairSharingStatus",),
        ("status.pendingWorkloadsStatus",),
    ),
    "Cohort": (("status.fairSharing.admissionFairSharingStatus",),),
    "LocalQueue": (("status.flavors",),),
    "MultiKueueCluster": (("spec.kubeConfig",),),
    "Workload": (("spec.priorityClassName", "spec.priorityClassSource"),),
}
"""The paths of v1beta1 that a translation to v1beta2 and back changes, by kind; each tuple is kept as one."""

_USAGE_BEFORE: Final = ("status", "fairSharing", "admissionFairSharingStatus")
"""A field of v1beta1 that only LocalQueues still have."""


# --- reviews ---------------------------------------------------------------------------------------------------------


def convert_review(review: JsonObject) -> JsonObject:
    """
    The answer to a ConversionReview: all its objects, or Failure with the name of the first that cannot be converted.

    Raises ValueError when it is no ConversionReview of `apiextensions.k8s.io/v1`.
    """
    request = review.get("request")
    if review.get("kind") != "ConversionReview" or not isinstance(request, dict):
        raise ValueError("expected a ConversionReview of apiextensions.k8s.io/v1 with a request")
    answer: JsonObject = {"uid": request.get("uid", "")}
    try:
        answer["convertedObjects"] = [
            convert(obj, str(request.get("desiredAPIVersion"))) for obj in request.get("objects") or ()
        ]
        answer["result"] = {"status": "Success"}
    except VersionError as error:
        answer["convertedObjects"] = []
        answer["result"] = {"status": "Failure", "message": str(error)}
    return {"apiVersion": review.get("apiVersion", ""), "kind": "ConversionReview", "response": answer}


def convert(obj: JsonObject, version: str) -> JsonObject:
    """
    An object of one of Kueue's versions in another (`kueue.x-k8s.io/v1beta1`). The argument is not modified.

    An object that is in that version already is returned as it is. Raises VersionError for other versions, and for an
    object of v1beta1 that v1beta2 has no meaning for (a topology domain without one value for each level).
    """
    given, kind = obj.get("apiVersion"), str(obj.get("kind"))
    if given == version:
        return obj
    if {given, version} != {V1BETA1, V1BETA2}:
        raise VersionError("apiVersion", f"no conversion from {given!r} to {version!r}", _name(obj))
    try:
        return _to_current(obj, kind) if version == V1BETA2 else _to_former(obj, kind)
    except VersionError as error:
        raise VersionError(error.field, error.why, _name(obj)) from None


def _name(obj: JsonObject) -> str:
    metadata = obj.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    return f"{obj.get('kind')} {name}"


# --- keeping what v1beta2 cannot express -----------------------------------------------------------------------------


def _to_current(former: JsonObject, kind: str) -> JsonObject:
    """To v1beta2, with what it cannot express in the annotation."""
    current = _translated_to_current(former, kind)
    back = _translated_to_former(current, kind)
    kept: JsonObject = {}
    for group in _ONLY_V1BETA1.get(kind, ()):
        values = {path: _at(former, path) for path in group}
        if any(_meant(values[path]) != _meant(_at(back, path)) for path in group):
            kept |= values
    return _annotated(current, msgspec.json.encode(kept, order="sorted").decode() if kept else None)


def _meant(value: Any) -> Any:
    """A value of v1beta1, where an empty text, list or object means nothing."""
    return None if value in ("", [], {}) else value


def _to_former(current: JsonObject, kind: str) -> JsonObject:
    """To v1beta1, with what the annotation has where it says the same as v1beta2."""
    former = _translated_to_former(current, kind)
    kept = _kept(current)
    if kept is None:
        return former
    plain = _translated_to_current(former, kind)
    for group in _ONLY_V1BETA1.get(kind, ()):
        if not any(path in kept for path in group):
            continue
        candidate = former
        for path in group:
            candidate = _with(candidate, path.split("."), kept.get(path))
        if _says(candidate, kind) == plain:
            former = candidate
    return _annotated(former, None)


def _says(former: JsonObject, kind: str) -> JsonObject | None:
    """What an object of v1beta1 is in v1beta2; None where an annotation that somebody wrote makes no sense."""
    try:
        return _translated_to_current(former, kind)
    except (VersionError, TypeError, AttributeError):
        return None


def _kept(current: JsonObject) -> JsonObject | None:
    metadata = current.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    text = annotations.get(KEPT) if isinstance(annotations, dict) else None
    if not isinstance(text, str):
        return None
    try:
        kept = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return kept if isinstance(kept, dict) else {}


def _annotated(obj: JsonObject, kept: str | None) -> JsonObject:
    """The object with this annotation, or without it."""
    metadata = obj.get("metadata") or {}
    annotations: JsonObject = dict(metadata.get("annotations") or {})
    if kept is None and KEPT not in annotations:
        return obj
    annotations.pop(KEPT, None)
    if kept is not None:
        annotations[KEPT] = kept
    rest = {name: value for name, value in metadata.items() if name != "annotations"}
    return {**obj, "metadata": rest | ({"annotations": annotations} if annotations else {})}


def _at(obj: Any, path: str) -> Any:
    for step in path.split("."):
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj


def _with(obj: JsonObject, steps: Sequence[str], value: Any) -> JsonObject:
    """A copy with a value at a path, or without one (None); objects on the way are made only for a value."""
    step, *deeper = steps
    if deeper:
        inner = obj.get(step)
        if value is None and not isinstance(inner, dict):
            return obj
        return {**obj, step: _with(inner if isinstance(inner, dict) else {}, deeper, value)}
    rest = {name: each for name, each in obj.items() if name != step}
    return rest if value is None else {**obj, step: value}


# --- translation -----------------------------------------------------------------------------------------------------


def _translated_to_current(former: JsonObject, kind: str) -> JsonObject:
    """What an object of v1beta1 is in v1beta2 to Kueue."""
    prepared = {**former, "apiVersion": V1BETA2}
    match kind:
        case "ClusterQueue":
            prepared = _with(_without_shadowed(prepared), _USAGE_BEFORE, None)
        case "Cohort":
            prepared = _with(prepared, _USAGE_BEFORE, None)
        case "MultiKueueCluster":
            prepared = _cluster_to_current(prepared)
        case "Workload":
            prepared = _encoded(prepared)
        case _:
            pass
    return renew(kind, prepared)


def _translated_to_former(current: JsonObject, kind: str) -> JsonObject:
    """What an object of v1beta2 is in v1beta1 to Kueue."""
    former = {**current, "apiVersion": V1BETA1}
    match kind:
        case "ClusterQueue":
            return _renamed(former, "spec", "cohortName", "cohort")
        case "LocalQueue":
            return _renamed(former, "status", "flavorsUsage", "flavorUsage")
        case "MultiKueueCluster":
            return _cluster_to_former(former)
        case "Workload":
            return _workload_to_former(former)
        case _:
            return former


def _without_shadowed(former: JsonObject) -> JsonObject:
    """Where both are there, `admissionChecks` takes precedence over `admissionChecksStrategy`."""
    spec = former.get("spec")
    if not isinstance(spec, dict):
        return former
    shadowed = {"admissionChecksStrategy"} if spec.get("admissionChecks") else set()
    shadowed |= {"cohortName"} if spec.get("cohort") else set()
    return {**former, "spec": {name: value for name, value in spec.items() if name not in shadowed}}


def _renamed(obj: JsonObject, part: str, old: str, new: str) -> JsonObject:
    inner = obj.get(part)
    if not isinstance(inner, dict) or old not in inner:
        return obj
    return {**obj, part: {new if name == old else name: value for name, value in inner.items()}}


def _cluster_to_current(former: JsonObject) -> JsonObject:
    spec = former.get("spec")
    if not isinstance(spec, dict):
        return former
    names = ("kubeConfig", "clusterProfileRef")
    source = {name: spec[name] for name in names if name in spec}
    if not _at(source, "kubeConfig.location"):
        source.pop("kubeConfig", None)
    rest = {name: value for name, value in spec.items() if name not in names}
    return {**former, "spec": {**rest, "clusterSource": source}}


def _cluster_to_former(current: JsonObject) -> JsonObject:
    spec = current.get("spec")
    if not isinstance(spec, dict) or not isinstance(spec.get("clusterSource"), dict):
        return current
    rest = {name: value for name, value in spec.items() if name != "clusterSource"}
    return {**current, "spec": {**rest, **spec["clusterSource"]}}


def _workload_to_former(current: JsonObject) -> JsonObject:
    former = _renamed(current, "status", "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")
    reference = _at(former, "spec.priorityClassRef")
    source = _CLASS_REFERENCES.get((_at(reference, "group"), _at(reference, "kind")))
    if source is not None:
        spec = {name: value for name, value in former["spec"].items() if name != "priorityClassRef"}
        former = {
            **former,
            "spec": {**spec, "priorityClassName": reference.get("name", ""), "priorityClassSource": source},
        }
    return _each_assignment(former, _listed)


# --- topology assignments --------------------------------------------------------------------------------------------


def _encoded(former: JsonObject) -> JsonObject:
    return _each_assignment(former, _in_slices)


def _each_assignment(workload: JsonObject, change: Callable[[JsonObject], JsonObject]) -> JsonObject:
    assignments = _at(workload, "status.admission.podSetAssignments")
    if not isinstance(assignments, list):
        return workload
    changed = [
        {**each, "topologyAssignment": change(each["topologyAssignment"])}
        if isinstance(each, dict) and isinstance(each.get("topologyAssignment"), dict)
        else each
        for each in assignments
    ]
    return _with(workload, ["status", "admission", "podSetAssignments"], changed)


def _in_slices(former: JsonObject) -> JsonObject:
    """The domains in the slices that Kueue makes of them. Raises VersionError."""
    if "domains" not in former:
        return former
    domains = tuple(_domains(former))
    rest = {name: value for name, value in former.items() if name not in {"domains", "levels", "slices"}}
    placement = Placement(tuple(former.get("levels") or ()), domains)
    encoded: JsonObject = msgspec.json.decode(msgspec.json.encode(compressed(placement, by_hostname_prefix=True)))
    return {"levels": [], "slices": [], **encoded, **rest}


def _domains(former: JsonObject) -> Iterator[Domain]:
    field, levels = "status.admission.podSetAssignments.topologyAssignment.domains", former.get("levels") or ()
    for each in former["domains"] or ():
        values, count = _at(each, "values"), _at(each, "count")
        if not isinstance(values, list) or not isinstance(count, int):
            raise VersionError(field, "each domain needs its values and its count")
        if len(values) != len(levels):
            raise VersionError(field, "each domain needs one value a level")
        yield Domain(tuple(map(str, values)), count)


def _listed(current: JsonObject) -> JsonObject:
    """One entry for each domain; slices that nobody can read stay."""
    try:
        placement = expand(msgspec.convert(current, TopologyAssignment))
    except (msgspec.ValidationError, ValueError, IndexError):
        return current
    rest = {name: value for name, value in current.items() if name != "slices"}
    return {**rest, "domains": [{"values": list(each.values), "count": each.pods} for each in placement.domains]}
