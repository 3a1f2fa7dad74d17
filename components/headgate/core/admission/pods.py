"""The rules of plain pods and pod groups (`pkg/controller/jobs/pod/pod_webhook.go` of Kueue 0.19)."""

from typing import Final

import msgspec

from headgate.core.admission.jobs import ANCESTOR, QUEUE, JobKindRules, default_labels, job_target
from headgate.core.admission.names import subdomain
from headgate.core.admission.queues import IMMUTABLE
from headgate.core.admission.rules import (
    LABELS,
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
from headgate.core.api import job_kinds
from headgate.core.api.names import (
    ADMISSION_GATE,
    MANAGED,
    POD_GROUP,
    POD_GROUP_INDEX,
    POD_GROUP_INDEX_LABEL,
    POD_GROUP_TOTAL,
    POD_PARENT,
    PREBUILT,
    RETRIABLE_IN_GROUP,
    ROLE_HASH,
)
from headgate.core.jobs.marks import TOPOLOGY_GATE

_OLD_ANNOTATIONS: Final = "oldObject.metadata.?annotations"
_OLD_LABELS: Final = "oldObject.metadata.?labels"


def _group(annotations: str, labels: str) -> str:
    value = annotation(POD_GROUP, annotations)
    return f"({value} != '' ? {value} : {label(POD_GROUP, labels)})"


_GATED: Final = "object.spec.?schedulingGates.orValue([]).exists(g, g.name == '%s')"
_BY_ANNOTATION: Final = f"{annotation(POD_GROUP)} != ''"
_PLACES: Final = (
    ("annotation", f"metadata.annotations[{POD_GROUP}]", _BY_ANNOTATION, annotation(POD_GROUP)),
    ("label", f"metadata.labels[{POD_GROUP}]", f"!({_BY_ANNOTATION})", label(POD_GROUP)),
)
_COUNT: Final = annotation(POD_GROUP_TOTAL)
_IS_NUMBER: Final = f"{_COUNT}.matches('^[-+]?[0-9]{{1,18}}$')"


# Large: a table of rules.
def _groups() -> tuple[AdmissionRule, ...]:
    """A pod of a group names the group and the number of its pods."""
    rules: list[AdmissionRule] = []
    for name, field, is_place, value in _PLACES:
        both = f"both the '{POD_GROUP_TOTAL}' annotation and the '{POD_GROUP}' {name} should be set"
        rules += [
            AdmissionRule(
                name=f"group-name-missing-{name}",
                field=field,
                when=f"({is_place}) && {has_annotation(POD_GROUP_TOTAL)}",
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
                field=f"metadata.annotations[{POD_GROUP_TOTAL}]",
                when=f"({is_place}) && variables.group != ''",
                holds=has_annotation(POD_GROUP_TOTAL),
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
    field = f"metadata.annotations[{POD_GROUP_TOTAL}]"
    when = f"variables.group != '' && {has_annotation(POD_GROUP_TOTAL)}"
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
            detail_cel=f"'incorrect annotation value \\'{POD_GROUP_TOTAL}=' + {_COUNT} + "
            "'\\': group total count should be greater than zero'",
        ),
    )


def _more() -> tuple[AdmissionRule, ...]:
    return (
        AdmissionRule(
            name="managed-label",
            field=f"metadata.labels[{MANAGED}]",
            when=has_annotation(MANAGED, LABELS),
            holds=f"{label(MANAGED)} == 'true'",
            error=ErrorType.FORBIDDEN,
            detail="managed label value can only be 'true'",
        ),
        AdmissionRule(
            name="managed-by-parent",
            field=f"metadata.labels[{MANAGED}]",
            when=f"{label(MANAGED)} == 'true' && !{has_annotation(POD_PARENT)}",
            holds="!variables.ownedByJob",
            detail=f"pod owner is managed by kueue, label '{MANAGED}=true' might lead to unexpected behaviour",
            is_warning=True,
        ),
        AdmissionRule(
            name="retriable-again",
            field=f"metadata.annotations[{RETRIABLE_IN_GROUP}]",
            when="variables.group != ''",
            holds=f"{annotation(RETRIABLE_IN_GROUP, _OLD_ANNOTATIONS)} != 'false' || "
            f"{annotation(RETRIABLE_IN_GROUP)} == 'false'",
            error=ErrorType.FORBIDDEN,
            detail="unretriable pod group can't be converted to retriable",
            operations=UPDATE,
        ),
        *_prebuilt_of_group(),
    )


def _prebuilt_of_group() -> tuple[AdmissionRule, ...]:
    """The Workload that a pod of a group names has the name of the group."""
    by_annotation = f"{annotation(PREBUILT)} != ''"
    places = (
        ("annotation", f"metadata.annotations[{PREBUILT}]", annotation(PREBUILT), by_annotation),
        ("label", f"metadata.labels[{PREBUILT}]", label(PREBUILT), f"!({by_annotation}) && {label(PREBUILT)} != ''"),
    )
    return tuple(
        AdmissionRule(
            name=f"prebuilt-of-group-{name}",
            field=field,
            when=f"variables.group != '' && {when}",
            holds=f"{value} == variables.group",
            value=value,
            detail="prebuilt workload and pod group should be equal",
        )
        for name, field, value, when in places
    )


def _gate(name: str) -> FieldChange:
    return FieldChange(
        path=("spec", "schedulingGates"), value=f"{{'name': '{name}'}}", appends=True, when=f"!{_GATED % name}"
    )


# Large: a table of defaults.
def _defaults() -> tuple[Default, ...]:
    """A managed pod gets a label, a finalizer and gates; one of a parent that is managed only the gates."""
    by_parent = has_annotation(POD_PARENT)
    marks = (
        FieldChange(path=("metadata", "labels", MANAGED), value="'true'"),
        FieldChange(
            path=("metadata", "finalizers"),
            value=f"'{MANAGED}'",
            appends=True,
            when=f"!('{MANAGED}' in object.metadata.?finalizers.orValue([]))",
        ),
    )
    own = f"!{by_parent} && !variables.{ANCESTOR}"
    is_waiting = (
        f"({by_parent} || {label(MANAGED)} == 'true' && '{MANAGED}' in object.metadata.?finalizers.orValue([]))"
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
            when=f"{is_waiting} && {has_annotation(POD_GROUP_INDEX_LABEL)}",
            changes=(
                FieldChange(
                    path=("metadata", "labels", POD_GROUP_INDEX),
                    value=f"{LABELS}[?object.metadata.annotations['{POD_GROUP_INDEX_LABEL}']].orValue('')",
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
            kind=job_kinds.POD,
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
    # Kueue gates every pod that names a queue, but then runs only those of the owners that imply `pod`: others wait for
    # ever. Here they are left alone.
    return msgspec.structs.replace(made, defaults=_defaults(), implied_scope=has_annotation(POD_PARENT))


POD: Final = _pod()
