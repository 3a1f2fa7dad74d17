"""The rules of plain pods and pod groups (`pkg/controller/jobs/pod/pod_webhook.go` of Kueue 0.19)."""

from typing import Final

import msgspec

from headgate.core.admission.jobs import ANCESTOR, PREBUILT, QUEUE, JobKindRules, default_labels, job_target
from headgate.core.admission.names import subdomain
from headgate.core.admission.queues import IMMUTABLE
from headgate.core.admission.rules import (
    LABELS,
    MANAGED_LABEL,
    MANAGES_UNNAMED,
    UPDATE,
    AdmissionRule,
    AdmissionTarget,
    Default,
    ErrorType,
    FieldChange,
    Variable,
    annotation,
    has_annotation,
    label,
)
from headgate.core.admission.topology_requests import Template

PARENT: Final = "kueue.x-k8s.io/pod-suspending-parent"
GROUP_NAME: Final = "kueue.x-k8s.io/pod-group-name"
GROUP_COUNT: Final = "kueue.x-k8s.io/pod-group-total-count"
RETRIABLE: Final = "kueue.x-k8s.io/retriable-in-group"
ROLE_HASH: Final = "kueue.x-k8s.io/role-hash"
FINALIZER: Final = "kueue.x-k8s.io/managed"
ADMISSION_GATE: Final = "kueue.x-k8s.io/admission"
TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"
INDEX_LABEL_OF: Final = "kueue.x-k8s.io/pod-group-pod-index-label"
INDEX_LABEL: Final = "kueue.x-k8s.io/pod-group-pod-index"

_OLD_ANNOTATIONS: Final = "oldObject.metadata.?annotations"
_OLD_LABELS: Final = "oldObject.metadata.?labels"


def _group(annotations: str, labels: str) -> str:
    value = annotation(GROUP_NAME, annotations)
    return f"({value} != '' ? {value} : {label(GROUP_NAME, labels)})"


_GATED: Final = "object.spec.?schedulingGates.orValue([]).exists(g, g.name == '%s')"
_BY_ANNOTATION: Final = f"{annotation(GROUP_NAME)} != ''"
_PLACES: Final = (
    ("annotation", f"metadata.annotations[{GROUP_NAME}]", _BY_ANNOTATION, annotation(GROUP_NAME)),
    ("label", f"metadata.labels[{GROUP_NAME}]", f"!({_BY_ANNOTATION})", label(GROUP_NAME)),
)
_COUNT: Final = annotation(GROUP_COUNT)
_IS_NUMBER: Final = f"{_COUNT}.matches('^[-+]?[0-9]{{1,18}}$')"


# Large: a table of rules.
def _groups() -> tuple[AdmissionRule, ...]:
    """A pod of a group names the group and the number of its pods."""
    rules: list[AdmissionRule] = []
    for name, field, is_place, value in _PLACES:
        both = f"both the '{GROUP_COUNT}' annotation and the '{GROUP_NAME}' {name} should be set"
        rules += [
            AdmissionRule(
                name=f"group-name-missing-{name}",
                field=field,
                when=f"({is_place}) && {has_annotation(GROUP_COUNT)}",
                holds="variables.group != ''",
                error=ErrorType.REQUIRED,
                detail=both,
            ),
            *subdomain(
                AdmissionRule(
                    name=f"group-name-{name}",
                    field=field,
                    when=f"({is_place}) && variables.group != ''",
                    holds="",
                    value=value,
                ),
                value,
            ),
            AdmissionRule(
                name=f"group-count-missing-{name}",
                field=f"metadata.annotations[{GROUP_COUNT}]",
                when=f"({is_place}) && variables.group != ''",
                holds=has_annotation(GROUP_COUNT),
                error=ErrorType.REQUIRED,
                detail=both,
            ),
            AdmissionRule(
                name=f"group-immutable-{name}",
                field=field,
                when=f"({is_place}) && variables.oldGroup != ''",
                holds="variables.group == variables.oldGroup",
                value="variables.group",
                detail=IMMUTABLE,
                operations=UPDATE,
            ),
        ]
    return (*rules, *_counts())


def _counts() -> tuple[AdmissionRule, ...]:
    field = f"metadata.annotations[{GROUP_COUNT}]"
    when = f"variables.group != '' && {has_annotation(GROUP_COUNT)}"
    return (
        AdmissionRule(
            name="group-count-number",
            field=field,
            when=when,
            holds=_IS_NUMBER,
            value=_COUNT,
            detail_cel=f"'strconv.Atoi: parsing \"' + {_COUNT} + '\": invalid syntax'",
        ),
        AdmissionRule(
            name="group-count",
            field=field,
            when=f"{when} && {_IS_NUMBER}",
            holds=f"int({_COUNT}) >= 1",
            value=_COUNT,
            detail_cel=f"'incorrect annotation value \\'{GROUP_COUNT}=' + {_COUNT} + "
            "'\\': group total count should be greater than zero'",
        ),
    )


def _more() -> tuple[AdmissionRule, ...]:
    prebuilt = f"({annotation(PREBUILT)} != '' ? {annotation(PREBUILT)} : {label(PREBUILT)})"
    return (
        AdmissionRule(
            name="managed-label",
            field=f"metadata.labels[{MANAGED_LABEL}]",
            when=has_annotation(MANAGED_LABEL, LABELS),
            holds=f"{label(MANAGED_LABEL)} == 'true'",
            error=ErrorType.FORBIDDEN,
            detail="managed label value can only be 'true'",
        ),
        AdmissionRule(
            name="managed-by-parent",
            field=f"metadata.labels[{MANAGED_LABEL}]",
            when=f"{label(MANAGED_LABEL)} == 'true' && !{has_annotation(PARENT)}",
            holds="!variables.ownedByJob",
            detail=f"pod owner is managed by kueue, label '{MANAGED_LABEL}=true' might lead to unexpected behaviour",
            is_warning=True,
        ),
        AdmissionRule(
            name="retriable-again",
            field=f"metadata.annotations[{RETRIABLE}]",
            when="variables.group != ''",
            holds=f"{annotation(RETRIABLE, _OLD_ANNOTATIONS)} != 'false' || {annotation(RETRIABLE)} == 'false'",
            error=ErrorType.FORBIDDEN,
            detail="unretriable pod group can't be converted to retriable",
            operations=UPDATE,
        ),
        AdmissionRule(
            name="prebuilt-of-group",
            field=f"metadata.labels[{PREBUILT}]",
            when=f"variables.group != '' && {prebuilt} != ''",
            holds=f"{prebuilt} == variables.group",
            value=prebuilt,
            detail="prebuilt workload and pod group should be equal",
        ),
    )


def _gate(name: str) -> FieldChange:
    return FieldChange(
        path=("spec", "schedulingGates"), value=f"{{'name': '{name}'}}", appends=True, when=f"!{_GATED % name}"
    )


# Large: a table of defaults.
def _defaults() -> tuple[Default, ...]:
    """A managed pod gets a label, a finalizer and gates; one of a parent that is managed only the gates."""
    by_parent = has_annotation(PARENT)
    marks = (
        FieldChange(path=("metadata", "labels", MANAGED_LABEL), value="'true'"),
        FieldChange(
            path=("metadata", "finalizers"),
            value=f"'{FINALIZER}'",
            appends=True,
            when=f"!('{FINALIZER}' in object.metadata.?finalizers.orValue([]))",
        ),
    )
    own = f"!{by_parent} && !variables.{ANCESTOR}"
    is_waiting = (
        f"({by_parent} || {label(MANAGED_LABEL)} == 'true' && '{FINALIZER}' in object.metadata.?finalizers.orValue([]))"
    )
    labels = tuple(
        msgspec.structs.replace(each, selects_namespace=True) for each in default_labels(when=f"!{by_parent}")
    )
    topology = ("TopologyAwareScheduling",)
    return (
        *labels,
        Default(name="marks", when=f"{own} && {QUEUE} != ''", changes=marks, selects_namespace=True),
        Default(
            name="marks-unnamed",
            when=f"{own} && {QUEUE} == ''",
            changes=marks,
            gates=(MANAGES_UNNAMED,),
            selects_namespace=True,
        ),
        Default(name="gate", when=is_waiting, changes=(_gate(ADMISSION_GATE),)),
        Default(
            name="pod-index",
            when=f"{is_waiting} && {has_annotation(INDEX_LABEL_OF)}",
            changes=(
                FieldChange(
                    path=("metadata", "labels", INDEX_LABEL),
                    value=f"{LABELS}[?object.metadata.annotations['{INDEX_LABEL_OF}']].orValue('')",
                ),
            ),
            gates=topology,
        ),
        Default(name="topology-gate", when=is_waiting, changes=(_gate(TOPOLOGY_GATE),), gates=topology),
        Default(
            name="role-hash",
            when=is_waiting,
            changes=(
                FieldChange(path=("metadata", "annotations", ROLE_HASH), value="object.spec", computed="role_hash"),
            ),
            not_in_cel="role_hash",
        ),
    )


def _pod() -> AdmissionTarget:
    made = job_target(
        JobKindRules(
            group="",
            version="v1",
            kind="Pod",
            plural="pods",
            framework="pod",
            suspended=f"(object.?status.?phase.orValue('') in ['Succeeded', 'Failed'] || {_GATED % ADMISSION_GATE})",
            validates_again=False,
            templates=(Template(metadata="object.?metadata", field="metadata", name="pod"),),
            rules=(*_groups(), *_more()),
            variables=(
                Variable("group", _group("object.metadata.?annotations", LABELS)),
                Variable("oldGroup", _group(_OLD_ANNOTATIONS, _OLD_LABELS)),
            ),
        )
    )
    return msgspec.structs.replace(made, defaults=_defaults())


POD: Final = _pod()
