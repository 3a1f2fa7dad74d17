"""
How many objects one defect may set aside.

A defect that a few objects show costs these. One that every object shows would set all of them aside, one after the
other, while the process reports ready: that is no containment, and would go unnoticed. So the objects in quarantine
that show the same defect are counted: those over which the same process, or the fold, of the same version has failed in
the same line. Beyond the limit the next one is not set aside. The process stops with an error; those that are set aside
stay so, with their quota.

The limit is `SHARE` of the objects of the kind, so that a user with a few objects cannot stop a service for all. It is
at least `LIMIT_MIN`, because in a small cell a few are a large part, and at most `LIMIT_MAX`, because setting one aside
costs a new machine, or folding a part of the log again.
"""

from collections.abc import Collection
from typing import Final

from headgate.core.fold import quarantine
from headgate.core.fold.quarantine import FOLD, Failure
from headgate.core.state.manifests import PODS
from headgate.core.state.tables import State

LIMIT_MIN: Final = 50
LIMIT_MAX: Final = 500
SHARE: Final = 2
"""Every second object of the kind."""


class TooManyFailedError(Exception):
    """Raised when one defect has set aside as many objects as allowed, and one more fails."""

    def __init__(self, process: str, failure: Failure, count: int) -> None:
        who = "the fold" if process == FOLD else f"the {process}"
        super().__init__(
            f"{who} of version {quarantine.VERSION} has put {count} objects in quarantine with the same failure, "
            f"and fails on {failure.object.kind} {failure.object.key}, too: {failure.error} in {failure.where}. "
            f"No more are put in quarantine, and this process stops. Run a version without the defect, which retries "
            f"them; or find with `headgate quarantine list` what they have in common, and change or delete those "
            f"that have it"
        )


class Limit:
    """What may still be set aside by a process, or by the fold, as of a position."""

    __slots__ = ("_aside", "_limits", "_process")

    def __init__(self, state: State, process: str) -> None:
        self._process = process
        self._aside: dict[str, set[str]] = {}
        """By line: the names of the objects in quarantine over which this version has failed there."""
        for name, record in state.quarantine.items():
            if (record.process, record.version) == (process, quarantine.VERSION):
                self._aside.setdefault(record.where, set()).add(name)
        self._limits = _limits(state)

    def check(self, failure: Failure, others: Collection[str] = ()) -> None:
        """
        Whether one more object may be set aside; `others` have been since, over the same defect.

        Raises TooManyFailedError.
        """
        aside = self._aside.get(failure.where, set()).union(others)
        limit = self._limits.get(failure.object.kind, LIMIT_MIN)
        if failure.object.name not in aside and len(aside) >= limit:
            raise TooManyFailedError(self._process, failure, len(aside))


def _limits(state: State) -> dict[str, int]:
    """How many objects of each kind one defect may set aside; LIMIT_MIN of other kinds."""
    numbers = {
        "Workload": len(state.workloads),
        "Job": len(state.jobs),
        "Pod": max(len(state.pods), len(state.objects.get(PODS, ()))),
        "Node": len(state.nodes),
        "ClusterQueue": len(state.cluster_queues),
        "LocalQueue": len(state.local_queues),
    }
    return {kind: min(max(number // SHARE, LIMIT_MIN), LIMIT_MAX) for kind, number in numbers.items()}
