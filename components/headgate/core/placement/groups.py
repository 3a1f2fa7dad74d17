"""
Which pods belong to which PodGroup, and how many of them have a node.

Kept by the cluster (`PlacementCluster.groups`), which tells it every pod. A group is known by `namespace/name`, whether
its PodGroup exists or not. Source: backend/cache/podgroupstate.go of the kube-scheduler.
"""

from collections.abc import Mapping
from typing import Final

from headgate.core.placement.objects.groups import PodGroupObject
from headgate.core.placement.pods import PodInfo

NOBODY: Final[Mapping[str, PodInfo]] = {}


def group_of(pod: PodInfo) -> str:
    """The PodGroup that a pod names, `namespace/name`; "" for none."""
    named = pod.spec.scheduling_group
    return f"{pod.namespace}/{named.pod_group_name}" if named is not None and named.pod_group_name else ""


class PodGroups:
    """The members of all groups: those with a node, and those that wait."""

    def __init__(self) -> None:
        self._members: dict[str, dict[str, PodInfo]] = {}
        self._placed: dict[str, int] = {}

    def members(self, group: str) -> Mapping[str, PodInfo]:
        """All pods of a group that are not over, by key."""
        return self._members.get(group, NOBODY)

    def count_placed(self, group: str) -> int:
        """How many of them have a node."""
        return self._placed.get(group, 0)

    def add(self, pod: PodInfo) -> None:
        """A pod exists; one of the same key is not here."""
        group = group_of(pod)
        if group:
            self._members.setdefault(group, {})[pod.key] = pod
            self._placed[group] = self._placed.get(group, 0) + bool(pod.node_name)

    def remove(self, pod: PodInfo) -> None:
        """A pod that was added is gone, or changes."""
        group = group_of(pod)
        members = self._members.get(group)
        if members is None or members.pop(pod.key, None) is None:
            return
        self._placed[group] -= bool(pod.node_name)
        if not members:
            del self._members[group], self._placed[group]


def lacks_members(groups: PodGroups, group: str, found: PodGroupObject) -> bool:
    """Whether there are too few pods of a gang for it to be tried."""
    return len(groups.members(group)) < found.count_min
