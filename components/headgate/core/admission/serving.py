"""The rules of Deployments, StatefulSets and LeaderWorkerSets, whose pods wait for them (Kueue 0.19)."""

from typing import Final

from headgate.core.admission.gated_by import gated_by
from headgate.core.admission.jobs import (
    OLD_QUEUE,
    QUEUE,
    common_variables,
    default_labels,
    elastic_support,
    priority_class,
    queue_name,
    suspending,
)
from headgate.core.admission.queues import IMMUTABLE
from headgate.core.admission.rules import (
    BOTH,
    UPDATE,
    AdmissionRule,
    AdmissionTarget,
    ErrorType,
    FieldChange,
    Variable,
    label,
)
from headgate.core.admission.topology_requests import GROUP, Template, rules_of
from headgate.core.api.names import (
    MANAGED,
    POD_GROUP_SERVING,
    POD_INDEX_OFFSET,
    POD_PARENT,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
)

REPLICAS_MAX: Final = 1_000_000

_CLASS: Final = label(PRIORITY_CLASS_LABEL)
_WAS_SUSPENDED: Final = "oldObject.?status.?readyReplicas.orValue(0) == 0"
_MANAGED: Final = f"!variables.deleted && !variables.ancestorIsManaged && ({QUEUE} != '' || variables.managesUnnamed)"
_SHAPE: Final = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "runtimeClassName",
    "priority",
    "topologySpreadConstraints",
    "overhead",
    "resourceClaims",
)


def _common(gvk: str) -> tuple[AdmissionRule, ...]:
    return (
        *queue_name(BOTH),
        *elastic_support(BOTH, gvk, supported=False),
        *gated_by(),
        AdmissionRule(
            name="queue-immutable",
            field=f"metadata.labels[{QUEUE_LABEL}]",
            when=f"!({_WAS_SUSPENDED}) || {QUEUE} == ''",
            holds=f"{QUEUE} == {OLD_QUEUE}",
            value=QUEUE,
            detail=IMMUTABLE,
            operations=UPDATE,
        ),
        *priority_class(_WAS_SUSPENDED),
    )


def _pod_shape(name: str, field: str, new: str, old: str) -> tuple[AdmissionRule, ...]:
    """What decides on the resources of pods stays as it is while they are managed."""
    rules = [
        AdmissionRule(
            name=f"{name}-{key}",
            field=f"{field}.{key}",
            when=f"{_MANAGED} && {new}.hasValue() && {old}.hasValue()",
            holds=f"{new}.?{key} == {old}.?{key}",
            detail=IMMUTABLE,
            operations=UPDATE,
        )
        for key in _SHAPE
    ]
    requests = "%s.?resources.?requests.orValue({})"
    rules.append(
        AdmissionRule(
            name=f"{name}-resources",
            field=f"{field}.resources",
            when=f"{_MANAGED} && {new}.hasValue() && {old}.hasValue()",
            holds=f"{requests % new} == {requests % old}",
            detail=IMMUTABLE,
            operations=UPDATE,
        )
    )
    for containers in ("initContainers", "containers"):
        new_list, old_list = (f"{each}.?{containers}.orValue([])" for each in (new, old))
        rules.append(
            AdmissionRule(
                name=f"{name}-{containers}",
                field=f"{field}.{containers}",
                when=f"{_MANAGED} && {new}.hasValue() && {old}.hasValue()",
                holds=f"size({new_list}) == size({old_list}) && {new_list}.all(i, c, "
                f"c.?resources.?requests.orValue({{}}) == {old_list}[i].?resources.?requests.orValue({{}}) && "
                f"c.?ports == {old_list}[i].?ports)",
                detail=IMMUTABLE,
                operations=UPDATE,
            )
        )
    return tuple(rules)


def _variables(*more: Variable) -> tuple[Variable, ...]:
    return (*common_variables("false"), *more)


def _set_labels(*path: str) -> tuple[FieldChange, ...]:
    """The queue and the class of the parent, for its pods."""
    return (
        FieldChange(path=(*path, "labels", QUEUE_LABEL), value=QUEUE, when=f"{QUEUE} != ''"),
        FieldChange(path=(*path, "labels", PRIORITY_CLASS_LABEL), value=_CLASS, when=f"{_CLASS} != ''"),
    )


_TEMPLATE: Final = ("spec", "template", "metadata")

DEPLOYMENT: Final = AdmissionTarget(
    group="apps",
    version="v1",
    kind="Deployment",
    plural="deployments",
    framework="deployment",
    variables=_variables(),
    rules=_common("apps/v1, Kind=Deployment"),
    defaults=(
        *default_labels(BOTH),
        *suspending(
            FieldChange(path=(*_TEMPLATE, "annotations", POD_PARENT), value="'deployment'"),
            FieldChange(path=(*_TEMPLATE, "labels", MANAGED), value="'true'"),
            *_set_labels(*_TEMPLATE),
            operations=BOTH,
        ),
    ),
)


def _replicas() -> tuple[AdmissionRule, ...]:
    new, old = "object.spec.?replicas.orValue(1)", "oldObject.spec.?replicas.orValue(1)"
    return (
        AdmissionRule(
            name="replicas-immutable",
            field="spec.replicas",
            when=f"{_MANAGED} && {new} != 0 && {old} != 0",
            holds=f"{new} == {old}",
            value=new,
            detail=IMMUTABLE,
            operations=UPDATE,
        ),
        AdmissionRule(
            name="replicas-scaling",
            field="spec.replicas",
            when=f"{_MANAGED} && {new} > 0 && {old} == 0",
            holds="object.?status.?replicas.orValue(0) == 0",
            error=ErrorType.FORBIDDEN,
            detail="scaling down is still in progress",
            operations=UPDATE,
        ),
    )


_POD_SPEC: Final = "%s.?spec.?template.?spec"

STATEFUL_SET: Final = AdmissionTarget(
    group="apps",
    version="v1",
    kind="StatefulSet",
    plural="statefulsets",
    framework="statefulset",
    scope_when=f"object.?spec.?template.?metadata.?annotations[?'{POD_PARENT}'].orValue('statefulset') "
    "== 'statefulset'",
    variables=_variables(),
    rules=(
        *_common("apps/v1, Kind=StatefulSet"),
        *_pod_shape("pods", "spec.template.spec", _POD_SPEC % "object", _POD_SPEC % "oldObject"),
        *_replicas(),
    ),
    defaults=(
        *default_labels(BOTH),
        *suspending(
            FieldChange(path=(*_TEMPLATE, "annotations", POD_PARENT), value="'statefulset'"),
            operations=BOTH,
        ),
    ),
)

_LWS: Final = "spec.leaderWorkerTemplate"
_OF: Final = "object.spec.?leaderWorkerTemplate"
_LEADER: Final = f"{_OF}.?leaderTemplate"
_WORKER: Final = f"{_OF}.?workerTemplate"
_SIZE: Final = f"{_OF}.?size.orValue(1)"
_WORKERS: Final = f"({_LEADER}.hasValue() ? {_SIZE} - 1 : {_SIZE})"


def _groups(key: str) -> tuple[FieldChange, ...]:
    path = ("spec", "leaderWorkerTemplate", key, "metadata")
    return (
        *_set_labels(*path),
        FieldChange(path=(*path, "annotations", POD_PARENT), value="'leaderworkerset.x-k8s.io/leaderworkerset'"),
        FieldChange(path=(*path, "annotations", POD_GROUP_SERVING), value="'true'"),
    )


def _when(changes: tuple[FieldChange, ...], condition: str) -> tuple[FieldChange, ...]:
    return tuple(
        FieldChange(path=each.path, value=each.value, when=f"{condition} && {each.when}" if each.when else condition)
        for each in changes
    )


def _group_rules() -> tuple[AdmissionRule, ...]:
    replicas = "object.spec.?replicas.orValue(1)"
    old = "oldObject.spec.?leaderWorkerTemplate"
    return (
        AdmissionRule(
            name="replicas-negative",
            field="spec.replicas",
            holds=f"{replicas} >= 0",
            value=replicas,
            detail_cel=f"'invalid LeaderWorkerSet replicas: must be >= 0, got ' + string({replicas})",
        ),
        AdmissionRule(
            name="replicas",
            field="spec.replicas",
            holds=f"{replicas} <= {REPLICAS_MAX}",
            value=replicas,
            detail_cel=f"'invalid LeaderWorkerSet replicas: must be <= {REPLICAS_MAX}, got ' + string({replicas})",
        ),
        AdmissionRule(
            name="leader-immutable",
            field=f"{_LWS}.leaderTemplate",
            when=_MANAGED,
            holds=f"{_LEADER}.hasValue() == {old}.?leaderTemplate.hasValue()",
            detail=IMMUTABLE,
            operations=UPDATE,
        ),
        *_pod_shape("leader", f"{_LWS}.leaderTemplate.spec", f"{_LEADER}.?spec", f"{old}.?leaderTemplate.?spec"),
        *_pod_shape("worker", f"{_LWS}.workerTemplate.spec", f"{_WORKER}.?spec", f"{old}.?workerTemplate.?spec"),
        AdmissionRule(
            name="size-immutable",
            field=f"{_LWS}.size",
            when=_MANAGED,
            holds=f"{_SIZE} == {old}.?size.orValue(1)",
            value=_SIZE,
            detail=IMMUTABLE,
            operations=UPDATE,
            gates=("LWSImmutableGroupSize",),
        ),
    )


_LEADER_TEMPLATE: Final = Template(
    name="leader", metadata=f"{_LEADER}.?metadata", field=f"{_LWS}.leaderTemplate.metadata", count="1"
)
_WORKER_TEMPLATE: Final = Template(
    name="worker", metadata=f"{_WORKER}.?metadata", field=f"{_LWS}.workerTemplate.metadata", count=_WORKERS
)

LEADER_WORKER_SET: Final = AdmissionTarget(
    group="leaderworkerset.x-k8s.io",
    version="v1",
    kind="LeaderWorkerSet",
    plural="leaderworkersets",
    framework="leaderworkerset.x-k8s.io/leaderworkerset",
    variables=_variables(),
    rules=(
        *_common("leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet"),
        *_group_rules(),
        *rules_of(_LEADER_TEMPLATE),
        *rules_of(_WORKER_TEMPLATE),
    ),
    defaults=(
        *default_labels(BOTH),
        *suspending(
            *_when(_groups("leaderTemplate"), f"{_LEADER}.hasValue()"),
            *_groups("workerTemplate"),
            FieldChange(
                path=("spec", "leaderWorkerTemplate", "workerTemplate", "metadata", "annotations", POD_INDEX_OFFSET),
                value="'1'",
                when=f"{_LEADER}.hasValue() && !{_WORKER}.?metadata.?annotations[?'{GROUP}'].hasValue()",
            ),
            operations=BOTH,
        ),
    ),
)

SERVING_KINDS: Final = (DEPLOYMENT, STATEFUL_SET, LEADER_WORKER_SET)
