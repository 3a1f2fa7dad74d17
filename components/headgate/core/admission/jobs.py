"""
The rules that all kinds of jobs have (`jobframework/{defaults,validation}.go` of Kueue 0.19), and the tables of kinds.

A kind says where its suspension is, which templates it has, and what else is special; `job_target` makes its table.
"""

from typing import Final

import msgspec

from headgate.core.admission.gated_by import gated_by
from headgate.core.admission.names import subdomain
from headgate.core.admission.queues import IMMUTABLE
from headgate.core.admission.rules import (
    BOTH,
    LABELS,
    MANAGES_UNNAMED,
    UPDATE,
    AdmissionOperation,
    AdmissionRule,
    AdmissionTarget,
    Default,
    ErrorType,
    FieldChange,
    Params,
    Variable,
    annotation,
    has_annotation,
    label,
)
from headgate.core.admission.topology_requests import Template, rules_of
from headgate.core.admission.workloads import ELASTIC_GATE
from headgate.core.api.job_kinds import JOB_KINDS, JobKind
from headgate.core.api.names import ELASTIC_JOB, MAX_EXEC_TIME_LABEL, PREBUILT, PRIORITY_CLASS_LABEL, QUEUE_LABEL

DEFAULT: Final = "default"
OLD_LABELS: Final = "oldObject.metadata.?labels"
OLD_ANNOTATIONS: Final = "oldObject.metadata.?annotations"

BETWEEN: Final = "apps/v1/ReplicaSet"
"""A kind that is between a Deployment and its pods: it has the labels of these, and is no job by itself."""

OWNING_KINDS: Final = (
    *(f"{each.api_version}/{each.kind}" for each in JOB_KINDS if not each.of_pods),
    "apps/v1/Deployment",
    BETWEEN,
)
"""The kinds whose objects own jobs or pods that they run themselves, by apiVersion and kind."""

_OWNED: Final = (
    "object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) && "
    f"(o.apiVersion + '/' + o.kind) in [{', '.join(repr(each) for each in OWNING_KINDS if each != BETWEEN)}])"
)
ANCESTOR: Final = "ancestorIsManaged"
"""
The variable that tells whether an owner, or an owner of it, is a job that is managed.

The webhook looks the owners up. A policy cannot, and takes every owner of such a kind for a managed one; if it is not,
the bridge finds the job running and suspends it.
"""

POD_SETS: Final = "podSets"
"""
The variable of the pod sets of a TrainJob, which follow from its runtime: name, count and template of each.

The webhook looks the runtime up. A policy cannot, and has no rules about them.
"""

QUEUE: Final = "variables.queue"
OLD_QUEUE: Final = "variables.oldQueue"
_CLASS: Final = label(PRIORITY_CLASS_LABEL)
_OLD_CLASS: Final = label(PRIORITY_CLASS_LABEL, OLD_LABELS)


class JobKindRules(msgspec.Struct, frozen=True, kw_only=True):
    """
    What is special about a kind of jobs.

    `suspend` are the keys of the field that suspends it. `suspended` is an expression of `object`, from the keys where
    it is left out. `validates_again`: what is checked on create is checked on update too. `supports` are the features
    that not all kinds have: `prebuilt`, `elastic`.
    """

    kind: JobKind
    suspend: tuple[str, ...] = ("spec", "suspend")
    suspended: str = ""
    templates: tuple[Template, ...] = ()
    validates_again: bool = True
    supports: frozenset[str] = frozenset({"prebuilt"})
    rules: tuple[AdmissionRule, ...] = ()
    defaults: tuple[Default, ...] = ()
    variables: tuple[Variable, ...] = ()
    update_when: str = ""


def common_variables(suspended: str) -> tuple[Variable, ...]:
    """The variables of all jobs; `suspended` is the expression for `object`."""
    return (
        Variable("queue", label(QUEUE_LABEL)),
        Variable("oldQueue", label(QUEUE_LABEL, OLD_LABELS)),
        Variable("suspended", suspended),
        Variable("wasSuspended", suspended.replace("object.", "oldObject.")),
        Variable("elastic", f"{annotation(ELASTIC_JOB)} == 'true'", ELASTIC_GATE),
        Variable("wasElastic", f"{annotation(ELASTIC_JOB, OLD_ANNOTATIONS)} == 'true'", ELASTIC_GATE),
        Variable("ownedByJob", _OWNED),
        Variable(ANCESTOR, _OWNED),
        Variable("managesUnnamed", "true", MANAGES_UNNAMED),
        Variable("deleted", "object.metadata.?deletionTimestamp.hasValue()"),
    )


def job_target(rules: JobKindRules) -> AdmissionTarget:
    """The table of a kind of jobs."""
    path = ".?".join(rules.suspend)
    suspended = rules.suspended or f"object.{path}.orValue(false)"
    again = BOTH if rules.validates_again else (AdmissionOperation.CREATE,)
    topology = tuple(rule for each in rules.templates for rule in rules_of(each))
    every = (
        *queue_name(again),
        *_prebuilt(again, rules),
        *_max_exec_time(again),
        *elastic_support(again, rules.kind.gvk, supported="elastic" in rules.supports),
        *gated_by(),
        *_updates(),
        *rules.rules,
        *topology,
    )
    if rules.update_when:
        every = tuple(_only_when(each, rules.update_when) for each in every)
    return AdmissionTarget(
        group=rules.kind.group,
        version=rules.kind.version,
        kind=rules.kind.kind,
        plural=rules.kind.plural,
        framework=rules.kind.framework,
        variables=(*common_variables(suspended), *rules.variables),
        rules=every,
        defaults=(
            *default_labels(),
            *suspending(FieldChange(path=rules.suspend, value="true"), condition="!variables.suspended"),
            *rules.defaults,
        ),
    )


def _only_when(rule: AdmissionRule, condition: str) -> AdmissionRule:
    when = f"({condition}) && ({rule.when})" if rule.when else condition
    return msgspec.structs.replace(rule, when=when)


def queue_name(operations: tuple[AdmissionOperation, ...]) -> tuple[AdmissionRule, ...]:
    """The queue's name has the form of a name."""
    base = AdmissionRule(
        name="queue-name",
        field=f"metadata.labels[{QUEUE_LABEL}]",
        when=has_annotation(QUEUE_LABEL, LABELS),
        holds="",
        value=QUEUE,
        operations=operations,
    )
    return subdomain(base, QUEUE)


def elastic_support(
    operations: tuple[AdmissionOperation, ...], gvk: str, *, supported: bool
) -> tuple[AdmissionRule, ...]:
    """Only some kinds can be elastic."""
    if supported:
        return ()
    return (
        AdmissionRule(
            name="elastic-unsupported",
            field=f"metadata.annotations[{ELASTIC_JOB}]",
            holds="!variables.elastic",
            error=ErrorType.FORBIDDEN,
            detail=f'elastic job is not supported for "{gvk}"',
            operations=operations,
            gates=(ELASTIC_GATE,),
        ),
    )


def _prebuilt(operations: tuple[AdmissionOperation, ...], of: JobKindRules) -> tuple[AdmissionRule, ...]:
    """The name of a prebuilt Workload: the annotation's if it is set, else the label's."""
    by_annotation = f"{annotation(PREBUILT)} != ''"
    by_label = f"{annotation(PREBUILT)} == '' && {has_annotation(PREBUILT, LABELS)}"
    rules: list[AdmissionRule] = []
    places = (
        ("annotation", f"metadata.annotations[{PREBUILT}]", annotation(PREBUILT), by_annotation),
        ("label", f"metadata.labels[{PREBUILT}]", label(PREBUILT), by_label),
    )
    for name, field, value, when in places:
        is_place = by_annotation if name == "annotation" else f"!({by_annotation})"
        base = AdmissionRule(
            name=f"prebuilt-{name}", field=field, when=when, holds="", value=value, operations=operations
        )
        rules += (*subdomain(base, value), *_again(base))
        if "prebuilt" not in of.supports:
            rules.append(
                msgspec.structs.replace(
                    base,
                    name=f"prebuilt-{name}-unsupported",
                    holds=f"{value} == ''",
                    value="",
                    error=ErrorType.FORBIDDEN,
                    detail=f'Is not supported for "{of.kind.gvk}"',
                )
            )
        rules.append(
            AdmissionRule(
                name=f"prebuilt-{name}-immutable",
                field=field,
                when=f"!variables.suspended && !variables.wasElastic && ({is_place})",
                holds=f"({annotation(PREBUILT)} != '' ? {annotation(PREBUILT)} : {label(PREBUILT)}) == "
                f"({annotation(PREBUILT, OLD_ANNOTATIONS)} != '' ? {annotation(PREBUILT, OLD_ANNOTATIONS)} : "
                f"{label(PREBUILT, OLD_LABELS)})",
                value=value,
                detail=IMMUTABLE,
                operations=UPDATE,
            )
        )
    return tuple(rules)


def _again(base: AdmissionRule) -> tuple[AdmissionRule, ...]:
    """The form of a name is checked on updates too, as long as it may change, where not everything is."""
    if base.operations == BOTH:
        return ()
    when = f"({base.when}) && (variables.suspended || variables.wasElastic)"
    again = msgspec.structs.replace(base, name=f"{base.name}-again", when=when, operations=UPDATE)
    return subdomain(again, base.value)


def _max_exec_time(operations: tuple[AdmissionOperation, ...]) -> tuple[AdmissionRule, ...]:
    value = label(MAX_EXEC_TIME_LABEL)
    field = f"metadata.labels[{MAX_EXEC_TIME_LABEL}]"
    is_number = f"{value}.matches('^[-+]?[0-9]{{1,18}}$')"
    return (
        AdmissionRule(
            name="max-exec-time-number",
            field=field,
            when=has_annotation(MAX_EXEC_TIME_LABEL, LABELS),
            holds=is_number,
            value=value,
            detail_cel=f"'strconv.Atoi: parsing \"' + {value} + '\": invalid syntax'",
            operations=operations,
        ),
        AdmissionRule(
            name="max-exec-time",
            field=field,
            when=is_number,
            holds=f"int({value}) > 0",
            value=f"int({value})",
            detail="should be greater than 0",
            operations=operations,
        ),
        AdmissionRule(
            name="max-exec-time-immutable",
            field=field,
            when="!variables.suspended || !variables.wasSuspended",
            holds=f"{value} == {label(MAX_EXEC_TIME_LABEL, OLD_LABELS)}",
            value=value,
            detail=IMMUTABLE,
            operations=UPDATE,
        ),
    )


def priority_class(was_suspended: str) -> tuple[AdmissionRule, ...]:
    """A class is not given to a running job, and never taken away."""
    field = f"metadata.labels[{PRIORITY_CLASS_LABEL}]"
    return (
        AdmissionRule(
            name="priority-class-added",
            field=field,
            when=f"!({was_suspended})",
            holds=f"{_OLD_CLASS} != '' || {_CLASS} == ''",
            value=_CLASS,
            detail="WorkloadPriorityClass cannot be added to a non-suspended workload",
            operations=UPDATE,
        ),
        AdmissionRule(
            name="priority-class-removed",
            field=field,
            holds=f"{_CLASS} != '' || {_OLD_CLASS} == ''",
            value=_CLASS,
            detail="WorkloadPriorityClass cannot be removed from a workload",
            operations=UPDATE,
        ),
    )


def _updates() -> tuple[AdmissionRule, ...]:
    field = f"metadata.labels[{QUEUE_LABEL}]"
    return (
        AdmissionRule(
            name="queue-immutable",
            field=field,
            when="!variables.suspended",
            holds=f"{QUEUE} == {OLD_QUEUE}",
            value=QUEUE,
            detail=IMMUTABLE,
            operations=UPDATE,
        ),
        AdmissionRule(
            name="queue-removed",
            field=field,
            holds=f"{QUEUE} != '' || {OLD_QUEUE} == ''",
            value="''",
            detail="queue-name must not be empty in namespace with default queue",
            operations=UPDATE,
            params=Params.LOCAL_QUEUE,
        ),
        *priority_class("variables.suspended"),
        AdmissionRule(
            name="elastic-immutable",
            field=f"metadata.annotations[{ELASTIC_JOB}]",
            holds="variables.elastic == variables.wasElastic",
            value="variables.elastic",
            detail=IMMUTABLE,
            operations=UPDATE,
            gates=(ELASTIC_GATE,),
        ),
    )


def default_labels(
    operations: tuple[AdmissionOperation, ...] = (AdmissionOperation.CREATE,), when: str = ""
) -> tuple[Default, ...]:
    """The LocalQueue and the WorkloadPriorityClass called `default`, for objects that name none."""
    prefix = f"({when}) && " if when else ""
    return (
        Default(
            name="default-queue",
            when=f"{prefix}{QUEUE} == '' && !variables.ownedByJob",
            changes=(FieldChange(path=("metadata", "labels", QUEUE_LABEL), value=f"'{DEFAULT}'"),),
            params=Params.LOCAL_QUEUE,
            operations=operations,
            selects_namespace=True,
        ),
        Default(
            name="default-priority-class",
            when=f"{prefix}{_CLASS} == '' && !variables.ownedByJob",
            changes=(FieldChange(path=("metadata", "labels", PRIORITY_CLASS_LABEL), value=f"'{DEFAULT}'"),),
            params=Params.PRIORITY_CLASS,
            operations=operations,
            gates=("WorkloadPriorityClassDefaulting",),
        ),
    )


def suspending(
    *changes: FieldChange,
    condition: str = "",
    name: str = "suspend",
    operations: tuple[AdmissionOperation, ...] = (AdmissionOperation.CREATE,),
) -> tuple[Default, ...]:
    """What is done to a job that is to wait: one that names a queue, or any if those without a queue are managed."""
    suffix = f" && {condition}" if condition else ""
    managed = f"!variables.deleted && !variables.{ANCESTOR}"
    return (
        Default(
            name=name,
            when=f"{QUEUE} != '' && {managed}{suffix}",
            changes=changes,
            operations=operations,
        ),
        Default(
            name=f"{name}-unnamed",
            when=f"{QUEUE} == '' && {managed}{suffix}",
            changes=changes,
            operations=operations,
            gates=(MANAGES_UNNAMED,),
            selects_namespace=True,
        ),
    )
