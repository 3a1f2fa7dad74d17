"""All kinds that are admitted by rules."""

from typing import Final

from headgate.core.admission.batch_jobs import JOB
from headgate.core.admission.queues import CLUSTER_QUEUE, COHORT, RESOURCE_FLAVOR
from headgate.core.admission.rules import Target
from headgate.core.admission.workloads import WORKLOAD

TARGETS: Final[tuple[Target, ...]] = (WORKLOAD, CLUSTER_QUEUE, COHORT, RESOURCE_FLAVOR, JOB)
