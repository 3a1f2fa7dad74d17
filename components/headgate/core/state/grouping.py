"""
Groups: an index that a machine keeps for itself, of objects by what they belong to.

It follows from the state, so a new machine has the same one. Bounded by the number of members.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

Member = TypeVar("Member", bound=Hashable)
Group = TypeVar("Group", bound=Hashable)


class Groups(Generic[Member, Group]):
    """Members, each in one group or in none. A group exists as long as it has a member."""

    def __init__(self) -> None:
        self._group_of: dict[Member, Group] = {}
        self._members: dict[Group, dict[Member, None]] = {}

    def put(self, member: Member, group: Group | None) -> Group | None:
        """A member belongs to this group now, with None to no group. Returns the group that it belonged to before."""
        before = self._group_of.pop(member, None)
        if before is not None and before != group:
            members = self._members[before]
            del members[member]
            if not members:
                del self._members[before]
        if group is not None:
            self._group_of[member] = group
            self._members.setdefault(group, {})[member] = None
        return before

    def group_of(self, member: Member) -> Group | None:
        """The group of a member."""
        return self._group_of.get(member)

    def of(self, group: Group) -> Mapping[Member, None]:
        """The members of a group, in the order in which they have joined it."""
        return self._members.get(group, {})

    def groups(self) -> Iterable[Group]:
        """The groups that have members."""
        return self._members

    def members(self) -> Iterable[Member]:
        """All members, those that were put last at the end."""
        return self._group_of
