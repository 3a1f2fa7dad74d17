"""
What a plugin answers: a status code, the reasons, and the plugin that gave it.

Vector forms answer with small integers instead: `StatusTable` gives every status an id, and 0 is Success.
"""

from enum import IntEnum
from typing import Final

import msgspec

STATUSES_MAX: Final = 100_000
"""Statuses that a table keeps. Beyond it the table and all that refers to it is dropped (`StatusTable.is_full`)."""


class Code(IntEnum):
    """The codes of the scheduling framework."""

    SUCCESS = 0
    ERROR = 1
    UNSCHEDULABLE = 2
    UNSCHEDULABLE_AND_UNRESOLVABLE = 3
    WAIT = 4
    SKIP = 5
    PENDING = 6

    @property
    def label(self) -> str:
        """The code as Kubernetes writes it, e.g. `UnschedulableAndUnresolvable`."""
        return _LABELS[self]


_LABELS: Final = {
    Code.SUCCESS: "Success",
    Code.ERROR: "Error",
    Code.UNSCHEDULABLE: "Unschedulable",
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE: "UnschedulableAndUnresolvable",
    Code.WAIT: "Wait",
    Code.SKIP: "Skip",
    Code.PENDING: "Pending",
}


class PluginStatus(msgspec.Struct, frozen=True):
    """
    An answer. A plugin leaves `plugin` empty: the runtime fills it in.

    `reasons` are sorted where a plugin has several that have no order of their own.
    """

    code: Code = Code.SUCCESS
    reasons: tuple[str, ...] = ()
    plugin: str = ""

    @property
    def is_success(self) -> bool:
        """Whether the pod passes."""
        return self.code == Code.SUCCESS

    @property
    def is_skip(self) -> bool:
        """Whether the plugin has nothing to say about this pod."""
        return self.code == Code.SKIP

    @property
    def is_rejected(self) -> bool:
        """Whether the pod is refused, by no error."""
        return self.code in (Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING)

    @property
    def message(self) -> str:
        """The reasons in one line."""
        return ", ".join(self.reasons)

    def of(self, plugin: str) -> "PluginStatus":
        """The same answer under the name of the plugin that gave it."""
        return self if self.plugin == plugin else msgspec.structs.replace(self, plugin=plugin)


SUCCESS: Final = PluginStatus()
SKIP: Final = PluginStatus(Code.SKIP)


def unschedulable(*reasons: str) -> PluginStatus:
    """Not now on this node, though preemption or other pods may change that."""
    return PluginStatus(Code.UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> PluginStatus:
    """Not on this node, and no preemption would change that."""
    return PluginStatus(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)


def error(*reasons: str) -> PluginStatus:
    """The plugin could not decide; the attempt fails."""
    return PluginStatus(Code.ERROR, reasons)


class PluginError(Exception):
    """Raised where a plugin cannot answer: the attempt of its pod fails with `status`."""

    def __init__(self, status: PluginStatus) -> None:
        super().__init__(status.message)
        self.status = status


class StatusTable:
    """Ids of statuses, for arrays. 0 is Success."""

    def __init__(self) -> None:
        self._statuses: list[PluginStatus] = [SUCCESS]
        self._ids: dict[PluginStatus, int] = {SUCCESS: 0}
        self.errors: list[int] = []
        """The ids of errors."""

    def id_of(self, status: PluginStatus) -> int:
        """The id of a status; the same for equal ones."""
        known = self._ids.get(status)
        if known is None:
            known = self._ids[status] = len(self._statuses)
            self._statuses.append(status)
            if status.code == Code.ERROR:
                self.errors.append(known)
        return known

    def status_of(self, number: int) -> PluginStatus:
        """The status of an id."""
        return self._statuses[number]

    @property
    def is_full(self) -> bool:
        """Whether it is time to drop the table, and every array with ids of it."""
        return len(self._statuses) > STATUSES_MAX
