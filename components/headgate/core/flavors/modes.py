"""
Modes: how well a workload, or a part of it, can be admitted, and which of two alternatives is preferred.

`Mode` is what a cycle acts on. `Grade` is the same in more detail, for the scan over flavors. `preferred` and `goes_on`
are the two rules of flavor fungibility (KEP-582): whether this flavor is better than that one, and whether the scan
continues after it.
"""

import enum

from headgate.events.objects import FlavorFungibility

Rank = tuple["Grade", int]
"""A grade, and the borrowing level (0: no borrowing)."""


class Mode(enum.IntEnum):
    """How a workload, or a part of it, can be admitted. Ascending: the worst part is the mode of the whole."""

    NO_FIT = 0
    PREEMPT = 1
    FIT = 2

    @property
    def label(self) -> str:
        """As Kueue writes it: NoFit, Preempt, Fit."""
        return _LABELS[self]


_LABELS = {Mode.NO_FIT: "NoFit", Mode.PREEMPT: "Preempt", Mode.FIT: "Fit"}


class Grade(enum.IntEnum):
    """`Mode` in more detail, ascending: the scan over flavors prefers reclaiming to other preemption."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    """Would fit if others left, but there are no preemption candidates."""
    PREEMPT = 2
    """Requires preemption in the own ClusterQueue."""
    RECLAIM = 3
    """Requires preemption only of workloads that borrow in other ClusterQueues."""
    FIT = 4

    @property
    def mode(self) -> Mode:
        """The mode of this grade."""
        return _MODE_OF[self]

    @property
    def label(self) -> str:
        """As in Kueue's events: the mode, or what preemption could do."""
        return _GRADE_LABELS[self]


_MODE_OF = (Mode.NO_FIT, Mode.PREEMPT, Mode.PREEMPT, Mode.PREEMPT, Mode.FIT)
"""By grade."""

_GRADE_LABELS = (
    "NoFit",
    "preemptionMode=NoCandidates",
    "preemptionMode=Preempt",
    "preemptionMode=Reclaim",
    "Fit",
)
"""By grade."""


def preferred(left: Rank, right: Rank, fungibility: FlavorFungibility) -> bool:
    """Whether left is strictly better than right under a fungibility preference."""
    for hopeless in (Grade.NO_FIT, Grade.NO_CANDIDATES):
        if (left[0] is hopeless) != (right[0] is hopeless):
            return right[0] is hopeless
    if left[0] is Grade.NO_FIT:
        return False
    if fungibility.preference == "PreemptionOverBorrowing" and left[1] != right[1]:
        return left[1] < right[1]
    return left[0] > right[0] if left[0] != right[0] else left[1] < right[1]


def goes_on(found: Rank, fungibility: FlavorFungibility) -> bool:
    """Whether the scan tries the next flavor after this one."""
    grade, borrowing = found
    if grade is Grade.NO_FIT or grade is Grade.NO_CANDIDATES:
        return True
    if grade is not Grade.FIT and fungibility.when_can_preempt == "TryNextFlavor":
        return True
    return borrowing > 0 and fungibility.when_can_borrow == "TryNextFlavor"
