"""
Partial admission: a workload with fewer pods than requested (KEP-420).

The cycle calls `reduced` when a workload with a minCount does not fit at once with all its pods.
"""

from collections.abc import Callable, Sequence

from headgate.core.flavors.assignment import Assignment
from headgate.events.objects import PodSet


def may_be_reduced(pod_sets: Sequence[PodSet]) -> bool:
    """Whether a workload may be admitted with fewer pods."""
    return any(pod_set.min_count is not None for pod_set in pod_sets)


def spare_pods(pod_sets: Sequence[PodSet], counts: Sequence[int]) -> list[int]:
    """How many pods each pod set can be reduced by."""
    return [
        max(0, count - pod_set.min_count) if pod_set.min_count is not None else 0
        for pod_set, count in zip(pod_sets, counts, strict=True)
    ]


def reduced(
    pod_sets: Sequence[PodSet], counts: Sequence[int], accept: Callable[[list[int]], Assignment | None]
) -> Assignment | None:
    """
    The acceptable assignment with the most pods, when fewer than all are allowed; None when there is none.

    A binary search over the number of removed pods: all pod sets shrink evenly towards their minimum (KEP-420).
    `accept` gives the assignment of some counts, or None when they are not acceptable either.
    """
    spare = spare_pods(pod_sets, counts)
    total = sum(spare)
    if not total:
        return None
    best: Assignment | None = None
    low, high = 0, total + 1
    while low < high:
        middle = (low + high) // 2
        assignment = accept([count - each * middle // total for count, each in zip(counts, spare, strict=True)])
        if assignment is None:
            low = middle + 1
        else:
            best, high = assignment, middle
    return best
