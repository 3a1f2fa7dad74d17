"""The labels that an admission adds to pod templates (Kueue's), beside the annotation that names the Workload."""

from typing import Final

from headgate.core.api.names import KUEUE

CLUSTER_QUEUE_LABEL: Final = KUEUE + "cluster-queue-name"
LOCAL_QUEUE_LABEL: Final = KUEUE + "local-queue-name"
