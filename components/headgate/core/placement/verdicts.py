"""What the filters of an attempt said of each node (NodeToStatus)."""

from typing import Final

import numpy as np

from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.status import PluginStatus

NO_ROWS: Final[Rows] = np.zeros(0, dtype=np.intp)
NO_IDS: Final[Ints] = np.zeros(0, dtype=np.int64)


class Verdicts:
    """
    The statuses of nodes, as arrays.

    `rows` are the nodes that were looked at in the order of the scan, `ids` the ids of what was said of each; `absent`
    is the status of all other nodes.
    """

    __slots__ = ("_by_name", "_cycle", "absent", "ids", "rows")

    def __init__(self, cycle: PlacementCycle, rows: Rows, ids: Ints, absent: PluginStatus) -> None:
        self._cycle = cycle
        self.rows = rows
        self.ids = ids
        self.absent = absent
        self._by_name: dict[str, PluginStatus] | None = None

    def status_of(self, node: str) -> PluginStatus:
        """The status of a node that was rejected; that of a feasible one is `absent` too."""
        return self.rejections().get(node, self.absent)

    def rejections(self) -> dict[str, PluginStatus]:
        """The statuses of the nodes that were looked at and rejected, by name."""
        if self._by_name is None:
            name_of, status_of = self._cycle.cluster.name_of, self._cycle.statuses.status_of
            pairs = zip(self.rows.tolist(), self.ids.tolist(), strict=True)
            self._by_name = {name_of(row): status_of(number) for row, number in pairs if number}
        return self._by_name

    def counts(self) -> list[tuple[PluginStatus, int]]:
        """The distinct rejections, and of how many nodes each."""
        ids, counts = np.unique(self.ids, return_counts=True)
        pairs = zip(ids.tolist(), counts.tolist(), strict=True)
        return [(self._cycle.statuses.status_of(number), count) for number, count in pairs if number]

    def error(self) -> PluginStatus | None:
        """The first status that is an error, if any is."""
        errors = self._cycle.statuses.errors
        if not errors:
            return None
        places = np.flatnonzero(np.isin(self.ids, errors))
        return self._cycle.statuses.status_of(int(self.ids[places[0]])) if len(places) else None


def unlooked(cycle: PlacementCycle, status: PluginStatus) -> Verdicts:
    """One status for all nodes, none of which was looked at."""
    return Verdicts(cycle, NO_ROWS, NO_IDS, status)
