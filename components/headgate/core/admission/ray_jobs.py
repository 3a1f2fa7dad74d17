"""The rules of RayClusters, RayJobs, RayServices and SparkApplications (Kueue 0.19)."""

from typing import Final

from headgate.core.admission.jobs import OLD_QUEUE, QUEUE, JobKindRules, job_target
from headgate.core.admission.rules import (
    AdmissionRule,
    AdmissionTarget,
    Default,
    Each,
    ErrorType,
    FieldChange,
    Variable,
)
from headgate.core.admission.topology_requests import Template, pod_set_groups
from headgate.core.admission.workloads import ELASTIC_GATE
from headgate.core.api import job_kinds
from headgate.core.api.admission_checks import MULTI_KUEUE
from headgate.core.api.job_kinds import JobKind
from headgate.core.api.names import ELASTIC_JOB

POD_SETS_MAX: Final = 18
MANAGED: Final = f"({QUEUE} != '' || variables.managesUnnamed)"
"""Jobs of these kinds are checked only if they are managed, or were."""
WAS_MANAGED: Final = f"(oldObject == null || {MANAGED} || (variables.checksFormer && {OLD_QUEUE} != ''))"
CHECKS_FORMER: Final = Variable("checksFormer", "true", "ValidateRayAndSparkJobUpdates")
"""Whether the update by which a job loses its queue is checked."""
GATE_VALUE: Final = f"{{'name': '{ELASTIC_JOB}'}}"


def _cluster(path: str, *, shown: str = "") -> tuple[str, str, Each]:
    """The expression of a RayCluster's spec, its field, and the loop over its workers."""
    of = f"object.{path.replace('.', '.?')}"
    return of, shown or path, Each("worker", f"{of}.?workerGroupSpecs.orValue([])")


def _templates(of: str, field: str, workers: Each) -> tuple[Template, ...]:
    return (
        Template(
            name="head",
            metadata=f"{of}.?headGroupSpec.?template.?metadata",
            field=f"{field}.headGroupSpec.template.metadata",
            count="1",
        ),
        Template(
            name="worker",
            metadata="worker.?template.?metadata",
            field=f"{field}.workerGroupSpecs[].template.metadata",
            count=_COUNT,
            each=(workers,),
        ),
    )


_COUNT: Final = "(worker.?replicas.orValue(1) * (worker.?numOfHosts.orValue(0) > 1 ? worker.numOfHosts : 1))"


def _cluster_rules(of: str, field: str, workers: Each) -> tuple[AdmissionRule, ...]:
    """What a managed cluster may not be: too many groups, a worker group called `head`."""
    groups = f"size({of}.?workerGroupSpecs.orValue([])) + 1"
    return (
        AdmissionRule(
            name="worker-groups",
            field=f"{field}.workerGroupSpecs",
            when=MANAGED,
            holds=f"{groups} <= {POD_SETS_MAX}",
            error=ErrorType.TOO_MANY,
            value=groups,
            detail=f"must have at most {POD_SETS_MAX} items",
        ),
        AdmissionRule(
            name="worker-group-head",
            field=f"{field}.workerGroupSpecs[].groupName",
            when=MANAGED,
            each=(workers,),
            holds="worker.?groupName.orValue('') != 'head'",
            error=ErrorType.FORBIDDEN,
            detail='"head" is reserved for the head group',
        ),
        *pod_set_groups(
            (workers,),
            f"{field}.workerGroupSpecs[].template.metadata.annotations",
            of="worker.?template.?metadata.?annotations",
            count=_COUNT,
            with_one=f"{of}.?headGroupSpec.?template.?metadata.?annotations",
        ),
    )


def _autoscaling(of: str, field: str, detail: str) -> AdmissionRule:
    return AdmissionRule(
        name="autoscaling",
        field=f"{field}.enableInTreeAutoscaling",
        when=f"{MANAGED} && !variables.elastic",
        holds=f"!{of}.?enableInTreeAutoscaling.orValue(false)",
        value="true",
        detail=detail,
    )


def _elastic_gates(path: tuple[str, ...]) -> tuple[Default, ...]:
    """The pods of an elastic cluster are made behind a gate."""
    of = f"object.{'.?'.join(path)}"
    head = (*path, "headGroupSpec", "template", "spec", "schedulingGates")
    gates = "%s.?schedulingGates.orValue([]).exists(g, g.name == '" + ELASTIC_JOB + "')"
    return (
        Default(
            name="elastic-gates",
            when="variables.elastic",
            changes=(
                FieldChange(
                    path=head,
                    value=GATE_VALUE,
                    appends=True,
                    when=f"{of}.?headGroupSpec.hasValue() && !{gates % f'{of}.?headGroupSpec.?template.?spec'}",
                ),
                FieldChange(
                    path=(*path, "workerGroupSpecs", "[]", "template", "spec", "schedulingGates"),
                    value=GATE_VALUE,
                    appends=True,
                    when=f"!{gates % 'item.?template.?spec'}",
                ),
            ),
            gates=(ELASTIC_GATE,),
        ),
    )


def _cluster_elastic() -> tuple[AdmissionRule, ...]:
    """An elastic RayCluster keeps its gates, and is not scaled in the tree of another cluster."""
    has_gate = "%s.?schedulingGates.orValue([]).exists(g, g.name == '" + ELASTIC_JOB + "')"
    when = f"{MANAGED} && variables.elastic"
    text = "an elastic job must have the ElasticJobSchedulingGate"
    worker = "worker.?template.?spec"
    head = "object.spec.?headGroupSpec.?template.?spec"
    return (
        AdmissionRule(
            name="elastic-worker-gate",
            field="spec.workerGroupSpecs[].template.spec.schedulingGates",
            each=(Each("worker", "object.spec.?workerGroupSpecs.orValue([])"),),
            when=when,
            holds=has_gate % worker,
            value=f"{worker}.?schedulingGates.orValue([])",
            detail=text,
        ),
        AdmissionRule(
            name="elastic-head-gate",
            field="spec.headGroupSpec.template.spec.schedulingGates",
            when=when,
            holds=has_gate % head,
            value=f"{head}.?schedulingGates.orValue([])",
            detail=text,
        ),
        AdmissionRule(
            name="elastic-elsewhere",
            field="spec.enableInTreeAutoscaling",
            when=when,
            holds="!object.spec.?enableInTreeAutoscaling.orValue(false) || "
            f"object.spec.?managedBy.orValue('') != '{MULTI_KUEUE}'",
            error=ErrorType.FORBIDDEN,
            detail="in-tree autoscaling is not supported for a MultiKueue-managed elastic RayCluster",
        ),
    )


def _ray(kind: JobKind, **more: object) -> AdmissionTarget:
    return job_target(
        JobKindRules(
            kind=kind,
            supports=frozenset({"prebuilt", "elastic"}),
            update_when=WAS_MANAGED,
            variables=(CHECKS_FORMER,),
            **more,  # type: ignore[arg-type]
        )
    )


_OF, _FIELD, _WORKERS = _cluster("spec")

RAY_CLUSTER: Final = _ray(
    job_kinds.RAY_CLUSTER,
    templates=_templates(_OF, _FIELD, _WORKERS),
    rules=(
        _autoscaling(
            _OF,
            _FIELD,
            "a kueue-managed RayCluster can use autoscaling only as an elastic job: enable the "
            f'ElasticJobsViaWorkloadSlices feature gate and set the "{ELASTIC_JOB}": "true" annotation',
        ),
        *_cluster_elastic(),
        *_cluster_rules(_OF, _FIELD, _WORKERS),
    ),
    defaults=_elastic_gates(("spec",)),
)

_SLICING: Final = "a kueue managed job should only use autoscaling when workload slicing is enabled"
_JOB_OF, _JOB_FIELD, _JOB_WORKERS = _cluster("spec.rayClusterSpec")
_SELECTS: Final = "size(object.spec.?clusterSelector.orValue({})) > 0"
_HAS_SPEC: Final = "object.spec.?rayClusterSpec.hasValue()"


def _ray_job() -> tuple[AdmissionRule, ...]:
    return (
        AdmissionRule(
            name="cluster-selector",
            field="spec.clusterSelector",
            when=MANAGED,
            holds=f"!({_SELECTS}) || !{_HAS_SPEC}",
            value="object.spec.clusterSelector",
            detail="a kueue managed job should not use an existing cluster",
        ),
        AdmissionRule(
            name="cluster-missing",
            field="spec.rayClusterSpec",
            when=MANAGED,
            holds=f"{_SELECTS} || {_HAS_SPEC}",
            error=ErrorType.REQUIRED,
            detail="rayClusterSpec is required for Kueue-managed jobs that don't use clusterSelector",
        ),
        AdmissionRule(
            name="shutdown",
            field="spec.shutdownAfterJobFinishes",
            when=f"{MANAGED} && !({_SELECTS}) && {_HAS_SPEC}",
            holds="object.spec.?shutdownAfterJobFinishes.orValue(false)",
            value="false",
            detail="a kueue managed job should delete the cluster after finishing",
        ),
    )


RAY_JOB: Final = _ray(
    job_kinds.RAY_JOB,
    templates=_templates(_JOB_OF, _JOB_FIELD, _JOB_WORKERS),
    rules=(
        *_ray_job(),
        _autoscaling(_JOB_OF, _JOB_FIELD, _SLICING),
        *_cluster_rules(_JOB_OF, _JOB_FIELD, _JOB_WORKERS),
    ),
)

# The field is called rayClusterConfig; Kueue's errors name it as the other kind does.
_SERVICE_OF, _SERVICE_FIELD, _SERVICE_WORKERS = _cluster("spec.rayClusterConfig", shown="spec.rayClusterSpec")

RAY_SERVICE: Final = _ray(
    job_kinds.RAY_SERVICE,
    suspend=("spec", "rayClusterConfig", "suspend"),
    templates=_templates(_SERVICE_OF, _SERVICE_FIELD, _SERVICE_WORKERS),
    rules=(
        _autoscaling(_SERVICE_OF, _SERVICE_FIELD, _SLICING),
        *_cluster_rules(_SERVICE_OF, _SERVICE_FIELD, _SERVICE_WORKERS),
    ),
    defaults=_elastic_gates(("spec", "rayClusterConfig")),
)

SPARK_APPLICATION: Final = job_target(
    JobKindRules(
        kind=job_kinds.SPARK_APPLICATION,
        supports=frozenset(),
        update_when=WAS_MANAGED,
        variables=(CHECKS_FORMER,),
        templates=(
            Template(name="driver", metadata="object.spec.?driver", field="spec.driver", count="1"),
            Template(
                name="executor",
                metadata="object.spec.?executor",
                field="spec.executor",
                count="object.spec.?executor.?instances.orValue(1)",
            ),
        ),
        rules=(
            AdmissionRule(
                name="mode",
                field="spec.mode",
                when=MANAGED,
                holds="object.spec.?mode.orValue('') == 'cluster'",
                value="object.spec.?mode.orValue('')",
                detail="only Cluster mode is supported for a kueue managed job",
            ),
            AdmissionRule(
                name="dynamic-allocation",
                field="spec.dynamicAllocation.enabled",
                when=f"{MANAGED} && !variables.elastic",
                holds="!object.spec.?dynamicAllocation.?enabled.orValue(false)",
                value="true",
                detail="a kueue managed job can use dynamicAllocation only when the ElasticJobsViaWorkloadSlices "
                "feature gate is on and the job is an elastic job",
            ),
        ),
    )
)

RAY_JOBS: Final = (RAY_CLUSTER, RAY_JOB, RAY_SERVICE, SPARK_APPLICATION)
