"""
Pod templates inside of jobs: as their author gave them, with what an admission changes, and the topology they request.

Owned by the integrations. `put` edits a template in place; the merge patch that follows from it (`difference`) has all
of a list, and of a map only the keys that changed.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from headgate.core.api.names import KUEUE, PODSET_LABEL, WORKLOAD_ANNOTATION
from headgate.core.jobs.integration import Json, PodSetState
from headgate.core.jobs.marks import CLUSTER_QUEUE_LABEL, INJECTED_GATES, LOCAL_QUEUE_LABEL
from headgate.core.kubernetes.numbers import decimal, is_true
from headgate.events.objects import Labels, SliceConstraint

_LAYERS_MAX: Final = 3
_MARKS: Final = (WORKLOAD_ANNOTATION, PODSET_LABEL, CLUSTER_QUEUE_LABEL, LOCAL_QUEUE_LABEL)


def merged(have: Iterable[str], want: Mapping[str, str]) -> dict[str, str | None]:
    """The merge patch that turns a map which may have certain keys into another map."""
    return dict(want) | {key: None for key in have if key not in want}


def as_given(template: Json, managed_labels: Iterable[str] = ()) -> Json:
    """
    A template without the labels that its kind's controller has added (Kueue's cleanLabels).

    Also without the marks of an admission, in case its job's last Workload was deleted while it ran.
    """
    metadata = template.get("metadata") or {}
    cleaned: Json = {key: value for key, value in metadata.items() if value is not None}
    for field, unwanted in (("labels", (*managed_labels, *_MARKS)), ("annotations", _MARKS)):
        kept = {key: value for key, value in (metadata.get(field) or {}).items() if key not in unwanted}
        cleaned.pop(field, None)
        if kept:
            cleaned[field] = kept
    if is_injected(template):
        template = {**template, "spec": _without_gates(template.get("spec") or {})}
    return {**template, "metadata": cleaned} if cleaned or metadata else template


def is_injected(template: Json) -> bool:
    """Whether a template contains what an admission has injected."""
    return WORKLOAD_ANNOTATION in ((template.get("metadata") or {}).get("annotations") or {})


def _without_gates(spec: Json) -> Json:
    """The spec of a pod without the scheduling gates of an admission."""
    gates = [gate for gate in spec.get("schedulingGates") or () if gate.get("name") not in INJECTED_GATES]
    kept = {key: value for key, value in spec.items() if key != "schedulingGates"}
    return {**kept, "schedulingGates": gates} if gates else kept


def put(template: Json, pod_set: PodSetState) -> None:
    """
    Give a template, in place, the desired state of its pod set.

    What the author of the job wrote stays: labels and annotations that are not Kueue's, and every other field. A map or
    a list that becomes empty is left out.
    """
    wanted, left = pod_set.directives, pod_set.left_behind
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    for field, may_have, want in (
        ("labels", left.labels, wanted.labels),
        ("annotations", left.annotations, wanted.annotations),
    ):
        have = metadata.get(field) or {}
        removed = {*may_have, *(key for key in have if key.startswith(KUEUE))}
        set_field(metadata, field, {key: value for key, value in have.items() if key not in removed} | dict(want))
    # Of these the Workload has all, not only what is Kueue's.
    set_field(spec, "nodeSelector", dict(wanted.node_selector))
    set_field(spec, "tolerations", [msgspec.to_builtins(each) for each in wanted.tolerations])
    set_field(spec, "schedulingGates", [{"name": name} for name in wanted.scheduling_gates])
    set_field(template, "metadata", metadata)
    set_field(template, "spec", spec)


def set_field(part: Json, field: str, value: Any) -> None:
    """Set a field, or remove it where its value is empty."""
    if value:
        part[field] = value
    else:
        part.pop(field, None)


def difference(before: Json, after: Json) -> Json:
    """The JSON merge patch (RFC 7396) that turns one object into another. A value of None counts as missing."""
    patch: Json = {key: None for key, value in before.items() if value is not None and after.get(key) is None}
    for key, value in after.items():
        known = before.get(key)
        if value is None or value == known:
            continue
        if isinstance(value, dict) and isinstance(known, dict):
            patch[key] = difference(known, value)
        else:
            patch[key] = value
    return patch


def topology_request(
    annotations: Labels,
    *,
    pod_index_label: str | None = None,
    sub_group_index_label: str | None = None,
    sub_group_count: int | None = None,
) -> Json | None:
    """The topologyRequest from the annotations of a pod template (Kueue's NewPodSetTopologyRequest)."""
    request: Json = {}
    for field in ("required", "preferred", "unconstrained"):
        value = annotations.get(f"{KUEUE}podset-{field}-topology")
        if value is not None:
            request[field] = is_true(value) if field == "unconstrained" else value
            break
    slice_topology = annotations.get(KUEUE + "podset-slice-required-topology")
    slice_size = decimal(annotations.get(KUEUE + "podset-slice-size"), bits=32)
    constraints = _constraints(annotations.get(KUEUE + "podset-slice-required-topology-constraints", ""))
    if constraints:
        request["podsetSliceRequiredTopologyConstraints"] = constraints
    elif slice_topology is not None and slice_size is not None:
        request |= {"podSetSliceRequiredTopology": slice_topology, "podSetSliceSize": slice_size}
    given = {
        "podIndexLabel": pod_index_label,
        "subGroupIndexLabel": sub_group_index_label,
        "subGroupCount": sub_group_count,
    }
    request |= {field: value for field, value in given.items() if value is not None}
    group = annotations.get(KUEUE + "podset-group-name")
    if group is not None and ("required" in request or "preferred" in request):
        request["podSetGroupName"] = group
    return request or None


def _constraints(text: str) -> list[Json]:
    """The slice layers in an annotation, at most three; none where it is not such a list."""
    try:
        layers = msgspec.json.decode(text, type=list[SliceConstraint]) if text else []
    except msgspec.MsgspecError:
        return []
    return [{"topology": each.topology, "size": each.size} for each in layers] if len(layers) <= _LAYERS_MAX else []
