"""
The integrations of the Training Operator's kinds and of MPIJob (Kueue's pkg/controller/jobs/kubeflow and mpijob).

PyTorchJob, TFJob, XGBoostJob, PaddleJob, JAXJob (kubeflow.org/v1) and MPIJob (kubeflow.org/v2beta1) have a map of
replica types, each with a number of pods and a template, and a run policy with the field that suspends them. Each
replica type is a pod set, in an order of its kind. A job of these kinds reports as a whole whether it runs; no pods are
given back before its end.
"""

from collections.abc import Sequence
from typing import Final

from headgate.core.api.job_kinds import (
    JAX_JOB,
    MPI_JOB,
    PADDLE_JOB,
    PYTORCH_JOB,
    TF_JOB,
    XGBOOST_JOB,
    JobKind,
)
from headgate.core.jobs.integration import Json
from headgate.core.jobs.suspendable import (
    JobStatus,
    PodSetSource,
    Suspendable,
    at,
    condition_at,
    items_at,
    number_at,
)

REPLICA_INDEX_LABEL: Final = "training.kubeflow.org/replica-index"


class KubeflowJob(Suspendable):
    """The integration of one kind; `replicas_at` is its field of replica types, `replica_types` their order."""

    suspend_at = ("spec", "runPolicy", "suspend")

    def __init__(self, kind: JobKind, replicas_at: str, *replica_types: str) -> None:
        self.kind = kind
        self._replicas_at = replicas_at
        self._replica_types = replica_types

    def sources(self, obj: Json) -> list[PodSetSource]:
        """See `Suspendable`."""
        replicas = at(obj, "spec", self._replicas_at) or {}
        found = ((each, replicas.get(each)) for each in self._replica_types)
        return [self._source(name, spec) for name, spec in found if isinstance(spec, dict)]

    def _source(self, replica_type: str, spec: Json) -> PodSetSource:
        return PodSetSource(
            name=replica_type.lower(),
            count=number_at(spec, 1, "replicas"),
            template=spec.setdefault("template", {}),
            at=f"spec.{self._replicas_at}[{replica_type}].template",
            pod_index_label=REPLICA_INDEX_LABEL,
        )

    def pod_priority_class(self, obj: Json) -> str:
        """See `Suspendable`. That of the scheduling policy comes before those of the templates."""
        return str(at(obj, "spec", "runPolicy", "schedulingPolicy", "priorityClass") or "")

    def status(self, obj: Json, sources: Sequence[PodSetSource]) -> JobStatus:
        """See `Suspendable`. Of the conditions that end a job the first counts."""
        replicas = at(obj, "status", "replicaStatuses") or {}
        ended = next(
            (
                each
                for each in items_at(obj, "status", "conditions")
                if each.get("type") in ("Succeeded", "Failed") and each.get("status") == "True"
            ),
            {},
        )
        return JobStatus(
            active=any(number_at(each, 0, "active") != 0 for each in replicas.values()),
            pods_ready=condition_at(obj, "Running", "status", "conditions") is not None,
            succeeded=ended.get("type") == "Succeeded",
            failed=ended.get("type") == "Failed",
            message=str(ended.get("message", "")),
        )


KUBEFLOW_JOBS: Final = (
    KubeflowJob(PYTORCH_JOB, "pytorchReplicaSpecs", "Master", "Worker"),
    KubeflowJob(TF_JOB, "tfReplicaSpecs", "Chief", "Master", "PS", "Worker", "Evaluator"),
    KubeflowJob(XGBOOST_JOB, "xgbReplicaSpecs", "Master", "Worker"),
    KubeflowJob(PADDLE_JOB, "paddleReplicaSpecs", "Master", "Worker"),
    KubeflowJob(JAX_JOB, "jaxReplicaSpecs", "Worker"),
    KubeflowJob(MPI_JOB, "mpiReplicaSpecs", "Launcher", "Worker"),
)
"""The integrations of these kinds."""
