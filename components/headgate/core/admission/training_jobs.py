"""The rules of JobSets, of the jobs of Kubeflow, of TrainJobs and of AppWrappers (Kueue 0.19)."""

from typing import Final

from msgspec.structs import replace

from headgate.core.admission.jobs import POD_SETS, JobKindRules, job_target
from headgate.core.admission.rules import CREATE, AdmissionRule, AdmissionTarget, Default, Each, FieldChange, Variable
from headgate.core.admission.topology_requests import GATES, GROUP, Template, pod_set_groups, rules_of
from headgate.core.api import job_kinds
from headgate.core.api.job_kinds import JobKind
from headgate.core.api.names import POD_INDEX_OFFSET
from headgate.core.jobs.train_job import MANAGER

RUN_POLICY: Final = ("spec", "runPolicy", "suspend")

_REPLICATED: Final = Each("replicated", "object.spec.?replicatedJobs.orValue([])")
_JOB: Final = "replicated.template.spec"
_PODS_EACH: Final = (
    f"({_JOB}.?completions.hasValue() && {_JOB}.completions < {_JOB}.?parallelism.orValue(1) ? "
    f"{_JOB}.completions : {_JOB}.?parallelism.orValue(1))"
)

JOB_SET: Final = job_target(
    JobKindRules(
        kind=job_kinds.JOB_SET,
        templates=(
            Template(
                metadata=f"{_JOB}.template.?metadata",
                field="spec.replicatedJobs[].template.spec.template.metadata",
                count=f"replicated.?replicas.orValue(1) * {_PODS_EACH}",
                each=(_REPLICATED,),
            ),
        ),
        rules=pod_set_groups(
            (_REPLICATED,),
            "spec.replicatedJobs[].template.spec.template.metadata.annotations",
            of=f"{_JOB}.template.?metadata.?annotations",
            count=f"replicated.?replicas.orValue(1) * {_PODS_EACH}",
        ),
    )
)


def _replicas(field: str) -> Template:
    """The templates of a job whose replicas are a map by their type."""
    return Template(
        metadata="replica.template.?metadata",
        field=f"spec.{field}[].template.metadata",
        count="replica.?replicas.orValue(1)",
        each=(Each("replica", f"object.spec.?{field}.orValue({{}})"),),
    )


def _kubeflow(kind: JobKind, field: str, *, prebuilt: bool = True) -> AdmissionTarget:
    """A job of the Training Operator; what is checked on create is not checked again on update, but topology is."""
    return job_target(
        JobKindRules(
            kind=kind,
            suspend=RUN_POLICY,
            templates=(_replicas(field),),
            validates_again=False,
            supports=frozenset({"prebuilt"} if prebuilt else ()),
        )
    )


def _mpi_rules() -> tuple[AdmissionRule, ...]:
    each = Each("replica", "object.spec.?mpiReplicaSpecs.orValue({})")
    return pod_set_groups(
        (each,),
        "spec.mpiReplicaSpecs[].template.metadata.annotations",
        of="replica.template.?metadata.?annotations",
        count="replica.?replicas.orValue(1)",
    )


_LAUNCHER: Final = "object.spec.?mpiReplicaSpecs.?Launcher"
_WORKER: Final = "object.spec.?mpiReplicaSpecs.?Worker"

MPI_JOB: Final = job_target(
    JobKindRules(
        kind=job_kinds.MPI_JOB,
        suspend=RUN_POLICY,
        templates=(_replicas("mpiReplicaSpecs"),),
        rules=_mpi_rules(),
        defaults=(
            Default(
                name="index-offset",
                when="object.spec.?runLauncherAsWorker.orValue(false) && "
                f"{_LAUNCHER}.hasValue() && {_WORKER}.hasValue() && "
                f"!{_LAUNCHER}.?template.?metadata.?annotations[?'{GROUP}'].hasValue()",
                changes=(
                    FieldChange(
                        path=(
                            "spec",
                            "mpiReplicaSpecs",
                            "Worker",
                            "template",
                            "metadata",
                            "annotations",
                            POD_INDEX_OFFSET,
                        ),
                        value="'1'",
                    ),
                ),
                gates=GATES,
            ),
        ),
    )
)

_RUNTIME: Final = (
    '. Adjust either the "TrainJob.spec.runtimePatches" or the "TrainingRuntime.Template" annotations for the '
    "corresponding Job"
)


def _of_runtime(rule: AdmissionRule) -> AdmissionRule:
    """A rule about the pod sets of a TrainJob, which are in its runtime."""
    detail_cel = f"({rule.detail_cel}) + '{_RUNTIME}'" if rule.detail_cel else ""
    return replace(rule, detail=rule.detail + _RUNTIME, detail_cel=detail_cel, looks_up=True)


TRAIN_JOB: Final = job_target(
    JobKindRules(
        kind=job_kinds.TRAIN_JOB,
        variables=(Variable(POD_SETS, "[]"),),
        rules=tuple(
            _of_runtime(each)
            for each in rules_of(
                Template(
                    metadata="podSet.template.?metadata",
                    field="job[]",
                    count="podSet.count",
                    each=(Each("podSet", f"variables.{POD_SETS}", key="podSet.name"),),
                )
            )
        ),
        defaults=(
            Default(
                name="runtime-patch",
                when=f"!object.spec.?runtimePatches.orValue([]).exists(p, p.manager == '{MANAGER}')",
                changes=(
                    FieldChange(
                        path=("spec", "runtimePatches"),
                        value=f"{{'manager': dyn('{MANAGER}'), "
                        "'trainingRuntimeSpec': dyn({'template': {'spec': {}}})}",
                        appends=True,
                    ),
                ),
                operations=CREATE,
            ),
        ),
    )
)

APP_WRAPPER: Final = job_target(
    JobKindRules(
        kind=job_kinds.APP_WRAPPER,
        validates_again=False,
    )
)

TRAINING_JOBS: Final = (
    JOB_SET,
    _kubeflow(job_kinds.PYTORCH_JOB, "pytorchReplicaSpecs"),
    _kubeflow(job_kinds.TF_JOB, "tfReplicaSpecs"),
    _kubeflow(job_kinds.XGBOOST_JOB, "xgbReplicaSpecs"),
    _kubeflow(job_kinds.PADDLE_JOB, "paddleReplicaSpecs"),
    _kubeflow(job_kinds.JAX_JOB, "jaxReplicaSpecs", prebuilt=False),
    MPI_JOB,
    TRAIN_JOB,
    APP_WRAPPER,
)
