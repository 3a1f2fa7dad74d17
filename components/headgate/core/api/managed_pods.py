"""
Pods that are queued themselves: what their labels, annotations and status say about it.

A pod is managed if it has the label `kueue.x-k8s.io/managed: "true"`, which admission gives to pods that name a queue,
or the annotation that an owner has it queued. The values are read as in Kueue (pkg/controller/jobs/pod); one that is
invalid counts as missing, and is found when the Workload of the pod's group is to be made.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headgate.core.api.job_kinds import LEADER_WORKER_SET, STATEFUL_SET
from headgate.core.api.metadata_keys import NO_KEYS, MetadataKeys, picked
from headgate.core.api.names import (
    GATED_BY,
    LWS_GROUP_INDEX,
    LWS_LEADER_NAME,
    LWS_NAME,
    MANAGED,
    MAX_EXEC_TIME_LABEL,
    POD_GROUP,
    POD_GROUP_FAST,
    POD_GROUP_SERVING,
    POD_GROUP_TOTAL,
    POD_PARENT,
    PREBUILT,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
    RETRIABLE_IN_GROUP,
    ROLE_HASH,
)
from headgate.core.api.watched_objects import Metadata, WrongFieldError, controller_of
from headgate.core.kubernetes.conditions import parse_rfc3339
from headgate.core.kubernetes.numbers import positive
from headgate.core.kubernetes.pod_roles import role_hash
from headgate.events.ids import UnixMs
from headgate.events.objects import ApiBranch, ApiObject, ManagedPod, PodSpec

ENDED: Final = frozenset({"Succeeded", "Failed"})
"""The phases of a pod that does not run any more."""


_GIVEN_A_GROUP: Final = (STATEFUL_SET.framework, LEADER_WORKER_SET.framework)
"""The frameworks whose pods name the Workload that Headgate has made for them."""


class PodCondition(ApiObject, frozen=True):
    """A condition of a pod."""

    type: str = ""
    status: str = ""
    reason: str = ""
    last_transition_time: str | None = None


class PodStatus(ApiBranch, frozen=True):
    """The part of a pod's status that is read."""

    phase: str = "Pending"
    message: str = ""
    conditions: tuple[PodCondition, ...] | None = None


class _WholePod(msgspec.Struct, frozen=True):
    spec: dict[str, Any] = {}


def managed_of(
    meta: Metadata, status: PodStatus, spec: PodSpec, raw: bytes, keys: MetadataKeys = NO_KEYS
) -> ManagedPod | None:
    """
    What a pod shows that is queued itself; None for any other. `keys` are those that its group's Workload gets too.

    Raises WrongFieldError.
    """
    labels, annotations = meta.labels or {}, meta.annotations or {}
    parent = annotations.get(POD_PARENT, "")
    if labels.get(MANAGED) != "true" and not parent:
        return None
    group = annotations.get(POD_GROUP) or labels.get(POD_GROUP, "")
    failed = next((each for each in status.conditions or () if each.type == "ContainersReady"), PodCondition())
    has_failed = failed.status == "False" and failed.reason == "PodFailed"
    return ManagedPod(
        queue_name=labels.get(QUEUE_LABEL) or annotations.get(QUEUE_LABEL, ""),
        priority_class=labels.get(PRIORITY_CLASS_LABEL, ""),
        pod_priority_class=spec.priority_class_name,
        max_execution_time_seconds=positive(labels.get(MAX_EXEC_TIME_LABEL)),
        gated_by=annotations.get(GATED_BY, ""),
        group=group,
        total_count=positive(annotations.get(POD_GROUP_TOTAL)) if group else None,
        role=_role(annotations, raw) if group else "",
        fast_admission=bool(group) and annotations.get(POD_GROUP_FAST) == "true",
        serving=bool(group) and annotations.get(POD_GROUP_SERVING) == "true",
        unretriable=bool(group) and annotations.get(RETRIABLE_IN_GROUP) == "false",
        parent=parent,
        finalizers=meta.finalizers or (),
        has_node=spec.node_name != "",
        ready=any(each.type == "Ready" and each.status == "True" for each in status.conditions or ()),
        message=status.message if status.phase in ENDED else "",
        failed_ms=_time("status.conditions.lastTransitionTime", failed.last_transition_time if has_failed else None),
        deletes_ms=_time("metadata.deletionTimestamp", meta.deletion_timestamp),
        grace_s=(meta.deletion_grace_period_seconds or 0) if meta.deletion_timestamp is not None else 0,
        copied_labels=picked(labels, keys.labels) if group else {},
        copied_annotations=picked(annotations, keys.annotations) if group else {},
        prebuilt="" if parent in _GIVEN_A_GROUP else annotations.get(PREBUILT) or labels.get(PREBUILT, ""),
        **_place_in_set(meta, parent),
    )


def _place_in_set(meta: Metadata, parent: str) -> dict[str, Any]:
    """Which pod of a StatefulSet or LeaderWorkerSet it is; of the latter not before its operator has numbered it."""
    labels = meta.labels or {}
    if parent == STATEFUL_SET.framework:
        owner = controller_of(meta)
        of_set = owner is not None and (owner.group, owner.kind) == (STATEFUL_SET.group, STATEFUL_SET.kind)
        return {"set_name": owner.name} if owner is not None and of_set else {}
    if parent == LEADER_WORKER_SET.framework:
        index = labels.get(LWS_GROUP_INDEX, "")
        return {
            "set_name": labels.get(LWS_NAME, ""),
            "group_index": int(index) if index.isascii() and index.isdecimal() else None,
            "is_worker": LWS_LEADER_NAME in (meta.annotations or {}),
        }
    return {}


def _role(annotations: Mapping[str, str], raw: bytes) -> str:
    """The role that admission has written into the pod, or its hash; the former does not change with the spec."""
    written = annotations.get(ROLE_HASH)
    return written if written is not None else role_hash(msgspec.json.decode(raw, type=_WholePod).spec)


def _time(field: str, text: str | None) -> UnixMs:
    if text is None:
        return UnixMs(0)
    try:
        return parse_rfc3339(text)
    except ValueError as error:
        raise WrongFieldError(field, f"{text!r} is not a time such as 2026-01-15T10:00:00Z") from error
