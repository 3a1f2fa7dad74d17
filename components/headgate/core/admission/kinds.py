"""All kinds that are admitted by rules."""

from typing import Final

from headgate.core.admission.batch_jobs import JOB
from headgate.core.admission.pods import POD
from headgate.core.admission.queues import CLUSTER_QUEUE, COHORT, RESOURCE_FLAVOR
from headgate.core.admission.ray_jobs import RAY_JOBS
from headgate.core.admission.rules import AdmissionTarget
from headgate.core.admission.serving import SERVING_KINDS
from headgate.core.admission.training_jobs import TRAINING_JOBS
from headgate.core.admission.workloads import WORKLOAD

KUEUES_KINDS: Final = (WORKLOAD, CLUSTER_QUEUE, COHORT, RESOURCE_FLAVOR)
JOBS: Final = (JOB, *TRAINING_JOBS, *RAY_JOBS, POD, *SERVING_KINDS)
TARGETS: Final[tuple[AdmissionTarget, ...]] = (*KUEUES_KINDS, *JOBS)
