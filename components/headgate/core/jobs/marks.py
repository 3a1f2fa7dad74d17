"""
What an admission adds to pod templates, with Kueue's names: labels, scheduling gates and the topology annotation.

Beside the annotation that names the Workload.
"""

from typing import Final

from headgate.core.api.names import ELASTIC_JOB, KUEUE

CLUSTER_QUEUE_LABEL: Final = KUEUE + "cluster-queue-name"
LOCAL_QUEUE_LABEL: Final = KUEUE + "local-queue-name"
TOPOLOGY_GATE: Final = KUEUE + "topology"
"""The scheduling gate of pods that wait for their topology domain."""
UNCONSTRAINED_TOPOLOGY: Final = KUEUE + "podset-unconstrained-topology"
"""The annotation of pods that get a topology domain though their template requests none."""
INJECTED_GATES: Final = (TOPOLOGY_GATE, ELASTIC_JOB)
"""The scheduling gates that an admission adds."""
