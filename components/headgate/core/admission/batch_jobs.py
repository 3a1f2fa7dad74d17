"""The rules of batch/v1 Jobs (`pkg/controller/jobs/job/job_webhook.go` of Kueue 0.19)."""

from typing import Final

from headgate.core.admission.jobs import OLD_ANNOTATIONS, JobKindRules, job_target
from headgate.core.admission.queues import IMMUTABLE
from headgate.core.admission.rules import (
    UPDATE,
    AdmissionRule,
    Default,
    ErrorType,
    FieldChange,
    annotation,
    has_annotation,
)
from headgate.core.admission.topology_requests import PREFERRED, REQUIRED, Template
from headgate.core.admission.workloads import ELASTIC_GATE
from headgate.core.api.job_kinds import BATCH_JOB
from headgate.core.api.names import COMPLETIONS_EQUAL_PARALLELISM, ELASTIC_JOB, MIN_PARALLELISM

STOPPING: Final = "kueue.x-k8s.io/stopping"

_PARALLELISM: Final = "object.spec.?parallelism.orValue(1)"
_COMPLETIONS: Final = "object.spec.?completions.orValue(1)"
PODS: Final = (
    f"(object.spec.?completions.hasValue() && object.spec.completions < {_PARALLELISM} ? "
    f"object.spec.completions : {_PARALLELISM})"
)
"""The number of pods that run at a time."""

_TEMPLATE: Final = Template(
    metadata="object.spec.template.?metadata", field="spec.template.metadata", count=PODS, name="template"
)
_SUSPENDED: Final = f"(object.spec.?suspend.orValue(false) && {annotation(STOPPING)} != 'true')"
_TRUE: Final = "['1', 't', 'T', 'TRUE', 'true', 'True']"
_FALSE: Final = "['0', 'f', 'F', 'FALSE', 'false', 'False']"


# Large: a table of rules.
def _min_parallelism() -> tuple[AdmissionRule, ...]:
    """Partial admission: how few pods are enough. It is checked when it is set, and when it changes."""
    field = f"metadata.annotations[{MIN_PARALLELISM}]"
    value = annotation(MIN_PARALLELISM)
    is_new = (
        f"{has_annotation(MIN_PARALLELISM)} && "
        f"(oldObject == null || {value} != {annotation(MIN_PARALLELISM, OLD_ANNOTATIONS)})"
    )
    is_number = f"{value}.matches('^[-+]?[0-9]{{1,18}}$')"
    return (
        AdmissionRule(
            name="min-parallelism-number",
            field=field,
            when=is_new,
            holds=is_number,
            value=value,
            detail_cel=f"'strconv.Atoi: parsing \"' + {value} + '\": invalid syntax'",
        ),
        AdmissionRule(
            name="min-parallelism",
            field=field,
            when=f"{is_new} && {is_number}",
            holds=f"int({value}) > 0 && int({value}) < {PODS}",
            value=f"int({value})",
            detail_cel=f"'should be between 0 and ' + string({PODS} - 1)",
        ),
        AdmissionRule(
            name="min-parallelism-elastic",
            field=field,
            when=is_new,
            holds="!variables.elastic",
            value=value,
            detail="partial admission and elastic job cannot be used together",
            gates=(ELASTIC_GATE,),
        ),
        AdmissionRule(
            name="parallelism-changed",
            field="spec.parallelism",
            when=has_annotation(MIN_PARALLELISM, OLD_ANNOTATIONS),
            holds=f"oldObject.spec.?suspend.orValue(false) || oldObject.spec.?parallelism.orValue(1) == {_PARALLELISM}",
            error=ErrorType.FORBIDDEN,
            detail="cannot change when partial admission is enabled and the job is not suspended",
            operations=UPDATE,
        ),
    )


def _sync_completions() -> tuple[AdmissionRule, ...]:
    field = f"metadata.annotations[{COMPLETIONS_EQUAL_PARALLELISM}]"
    value, old = annotation(COMPLETIONS_EQUAL_PARALLELISM), annotation(COMPLETIONS_EQUAL_PARALLELISM, OLD_ANNOTATIONS)
    is_on = f"{value} in {_TRUE}"
    return (
        AdmissionRule(
            name="sync-completions-boolean",
            field=field,
            when=has_annotation(COMPLETIONS_EQUAL_PARALLELISM),
            holds=f"{value} in {_TRUE} || {value} in {_FALSE}",
            value=value,
            detail_cel=f"'strconv.ParseBool: parsing \"' + {value} + '\": invalid syntax'",
        ),
        AdmissionRule(
            name="sync-completions-indexed",
            field=field,
            when=is_on,
            holds="object.spec.?completionMode.orValue('NonIndexed') != 'NonIndexed'",
            value=value,
            detail="should not be enabled for NonIndexed jobs",
        ),
        AdmissionRule(
            name="sync-completions-equal",
            field="spec.completions",
            when=is_on,
            holds=f"{_PARALLELISM} == {_COMPLETIONS}",
            value=_COMPLETIONS,
            detail=f"should be equal to parallelism when {COMPLETIONS_EQUAL_PARALLELISM} annotation is true",
        ),
        AdmissionRule(
            name="sync-completions-immutable",
            field=field,
            when="variables.suspended == variables.wasSuspended && !variables.suspended",
            holds=f"({is_on}) == ({old} in {_TRUE})",
            error=ErrorType.FORBIDDEN,
            detail=f"{IMMUTABLE} while the job is not suspended",
            operations=UPDATE,
        ),
    )


def _elastic_topology() -> tuple[AdmissionRule, ...]:
    annotations = "object.spec.template.?metadata.?annotations"
    return tuple(
        AdmissionRule(
            name=f"elastic-{word}-topology",
            field=f"spec.template.metadata.annotations.{key}",
            when="variables.elastic",
            holds=f"!{has_annotation(key, annotations)}",
            error=ErrorType.FORBIDDEN,
            detail=f"{word} topology is not supported with elastic jobs",
            gates=("TopologyAwareScheduling", ELASTIC_GATE),
        )
        for word, key in (("required", REQUIRED), ("preferred", PREFERRED))
    )


JOB: Final = job_target(
    JobKindRules(
        kind=BATCH_JOB,
        suspended=_SUSPENDED,
        templates=(_TEMPLATE,),
        supports=frozenset({"prebuilt", "elastic"}),
        rules=(*_min_parallelism(), *_sync_completions(), *_elastic_topology()),
        defaults=(
            Default(
                name="elastic-gate",
                when="variables.elastic && !object.spec.template.spec.?schedulingGates.orValue([])"
                f".exists(g, g.name == '{ELASTIC_JOB}')",
                changes=(
                    FieldChange(
                        path=("spec", "template", "spec", "schedulingGates"),
                        value=f"{{'name': '{ELASTIC_JOB}'}}",
                        appends=True,
                    ),
                ),
                gates=(ELASTIC_GATE,),
            ),
        ),
    )
)
