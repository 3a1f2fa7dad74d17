"""
The integrations, by kind of job. All lookups use this module.

`register` adds one that another package provides; that happens when a program starts, before a machine is made
(`headgate.processes.runtime.extensions`).
"""

from typing import Final

from headgate.core.api import job_kinds
from headgate.core.api.job_kinds import JobKind
from headgate.core.config import frameworks
from headgate.core.jobs.app_wrapper import AppWrapper
from headgate.core.jobs.batch_job import BatchJob
from headgate.core.jobs.integration import Integration
from headgate.core.jobs.job_set import JobSet
from headgate.core.jobs.kubeflow_jobs import KUBEFLOW_JOBS
from headgate.core.jobs.pods import PlainPod, PodGroup
from headgate.core.jobs.ray_clusters import RayCluster, RayJob, RayService
from headgate.core.jobs.serving_sets import LeaderWorkerSet, StatefulSet
from headgate.core.jobs.spark_application import SparkApplication
from headgate.core.jobs.train_job import TrainJob
from headgate.events.ids import JobKey

INTEGRATIONS: Final[dict[JobKind, Integration]] = {}
"""Every integration, by its kind."""


def register(integration: Integration) -> None:
    """
    Add an integration; its framework may be named in the configuration from now on.

    Raises ValueError where another kind has its group and kind, or its resource.
    """
    job_kinds.add(integration.kind)
    INTEGRATIONS[integration.kind] = integration
    frameworks.SUPPORTED[integration.kind.framework] = None


_OF_PODS: Final = (StatefulSet(), LeaderWorkerSet(), PlainPod(), PodGroup())
_RAY: Final = (RayJob(), RayCluster(), RayService())
for _each in (BatchJob(), JobSet(), *KUBEFLOW_JOBS, TrainJob(), *_RAY, SparkApplication(), AppWrapper(), *_OF_PODS):
    register(_each)
assert set(INTEGRATIONS) == set(job_kinds.JOB_KINDS)


def integration_of(key: JobKey) -> Integration:
    """
    The integration of a job's kind.

    Raises KeyError for a job that Headgate does not run.
    """
    return INTEGRATIONS[job_kinds.kind_of(key)]
