"""The messages of pods that fit nowhere, word by word those of the kube-scheduler (FitError)."""

from collections.abc import Iterable
from typing import Final

from headgate.core.placement.framework.status import PluginStatus

NO_NODES: Final = "no nodes available to schedule pods"


def fit_error(
    nodes: int, before: str, rejections: Iterable[tuple[PluginStatus, int]], absent: PluginStatus, helped: str
) -> str:
    """
    Why a pod does not fit.

    :param nodes: how many there are
    :param before: the message of the pre-filter that rejected the pod, "" if none did
    :param rejections: the distinct statuses of nodes that were looked at, and how many nodes have each
    :param absent: the status of all other nodes
    :param helped: the message of the post-filters
    """
    parts = [f"0/{nodes} nodes are available:"]
    if before:
        parts.append(f"{before}.")
    else:
        counts: dict[str, int] = {}
        left = nodes
        for status, count in rejections:
            left -= count
            for reason in status.reasons:
                counts[reason] = counts.get(reason, 0) + count
        if left > 0:
            for reason in absent.reasons:
                counts[reason] = counts.get(reason, 0) + left
        histogram = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
        if histogram:
            parts.append(f"{histogram}.")
    if helped:
        parts.append(helped)
    return " ".join(parts)
