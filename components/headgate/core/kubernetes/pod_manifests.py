"""What the manifest of a pod shows."""

from collections.abc import Mapping
from typing import Any, Final

SCHEDULER_ERROR: Final = "SchedulerError"
"""The reason of the condition PodScheduled of a pod that an error keeps from its node."""


def shown_node(pod: Mapping[str, Any]) -> str:
    """The node that a pod is bound to, "" for none."""
    node: str = pod.get("spec", {}).get("nodeName", "")
    return node


def shown_nomination(pod: Mapping[str, Any]) -> str:
    """The node that a pod is nominated to, "" for none."""
    node: str = pod.get("status", {}).get("nominatedNodeName", "")
    return node
