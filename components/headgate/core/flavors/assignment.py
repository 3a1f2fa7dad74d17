"""
The result of flavor assignment: what each pod set gets, and why it does not fit at once.

Made by `Assigner`, read by the cycle (mode, usage, message), the preemption search (usage, contested) and the code that
writes an admission. Messages and reasons are Kueue's.
"""

import msgspec

from headgate.core.flavors.modes import Grade, Mode
from headgate.core.state.tables import DomainUsage, FlavorResource
from headgate.core.topology.assignments import Placement
from headgate.core.topology.demands import PodSetDemand

NO_MATCHING_FLAVOR = "NoMatchingFlavor"
EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
WAITING_FOR_QUOTA = "WaitingForQuota"
TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed"

SEVERITY = {
    "": 0,
    TOPOLOGY_PLACEMENT_FAILED: 1,
    WAITING_FOR_QUOTA: 2,
    EXCEEDS_MAX_QUOTA: 3,
    NO_MATCHING_FLAVOR: 4,
}
"""The reasons of a NoFit, in ascending order of severity."""

Nomination = dict[str, dict[str, str]]
"""The flavors of an assignment: by the name of the pod set, resource -> flavor."""


class Choice(msgspec.Struct, frozen=True, gc=False):
    """The flavor of one resource. `tried` is the index where the scan stopped, -1 when no flavor is left to try."""

    flavor: str
    mode: Mode
    borrowing: int
    tried: int


class Attempt(msgspec.Struct, frozen=True):
    """
    One flavor that was tried for a resource group, and why it was not taken at once.

    `grade` is by quota alone: with the reason TopologyPlacementFailed it cannot fit, whatever its grade.
    """

    flavor: str
    group: int
    grade: Grade
    borrowing: int
    reasons: tuple[str, ...] = ()
    no_fit_reason: str = ""

    @property
    def mode(self) -> Mode:
        """How it would fit, its topology included."""
        return Mode.NO_FIT if self.no_fit_reason == TOPOLOGY_PLACEMENT_FAILED else self.grade.mode


class PodSetResult(msgspec.Struct, frozen=True):
    """
    What one pod set gets.

    `requests` are the amounts of all `count` pods. No `flavors` despite requests means that it cannot fit. `error`
    means that its pods could not be placed within a Topology, whatever the quota. `placement` are the domains of its
    pods. `delayed`: they are found in a second pass ("Pending"), or were ("Ready").
    """

    name: str
    count: int
    requests: dict[str, int]
    flavors: dict[str, Choice] = {}
    reasons: tuple[str, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    error: str = ""
    placement: Placement | None = None
    delayed: str | None = None

    @property
    def mode(self) -> Mode:
        """The worst of its resources."""
        if self.error:
            return Mode.NO_FIT
        if not self.reasons:
            return Mode.FIT
        return min((choice.mode for choice in self.flavors.values()), default=Mode.NO_FIT)


class Assignment(msgspec.Struct, frozen=True):
    """
    What a whole workload gets.

    `pod_sets` ends with the first one without a flavor. `usage` is what it would be charged, `borrowing` the height of
    the subtree that it borrows from (0: none). `no_fit_reason` is the reason of the QuotaReserved condition when it
    cannot fit. Where the workload replaces a slice of itself, `usage` is what it needs beyond that. `demands` are the
    pod sets to be placed within a Topology, `occupies` what they will occupy there beyond what the workload occupies.
    """

    pod_sets: tuple[PodSetResult, ...]
    usage: dict[FlavorResource, int]
    borrowing: int
    mode: Mode
    no_fit_reason: str = ""
    demands: tuple[PodSetDemand, ...] = ()
    occupies: tuple[DomainUsage, ...] = ()

    @property
    def contested(self) -> frozenset[FlavorResource]:
        """The flavor-resources that require preemption: those in mode PREEMPT."""
        return frozenset(
            (choice.flavor, resource)
            for pod_set in self.pod_sets
            for resource, choice in pod_set.flavors.items()
            if choice.mode is Mode.PREEMPT
        )

    @property
    def nomination(self) -> Nomination:
        """Its flavors, to which a second assignment in the same cycle is restricted."""
        return {
            pod_set.name: {resource: choice.flavor for resource, choice in pod_set.flavors.items()}
            for pod_set in self.pod_sets
        }

    @property
    def message(self) -> str:
        """
        Why it does not fit at once, in Kueue's wording; "" when it does.

        An error of placement replaces all other reasons.
        """
        for pod_set in self.pod_sets:
            if pod_set.error:
                return f"failed to assign flavors to pod set {pod_set.name}: {pod_set.error}"
        return "; ".join(
            f"couldn't assign flavors to pod set {pod_set.name}: {', '.join(sorted(pod_set.reasons))}"
            for pod_set in self.pod_sets
            if pod_set.reasons
        )

    @property
    def last_tried(self) -> tuple[dict[str, int], ...]:
        """Per pod set and resource, the index where the scan stopped; -1 when it reached the end."""
        return tuple(
            {resource: choice.tried for resource, choice in pod_set.flavors.items()} for pod_set in self.pod_sets
        )

    @property
    def considered(self) -> str:
        """The flavors that were tried and not taken at once, as Kueue's QuotaReserved event lists them; or ""."""
        lines = ((pod_set.name, ", ".join(_considered(pod_set.attempts))) for pod_set in self.pod_sets)
        return " | ".join(f"{name}: {text}" for name, text in lines if text)


def _considered(attempts: tuple[Attempt, ...]) -> list[str]:
    """One text for each flavor, by name: its mode, its borrowing level, its reasons."""
    texts = []
    for attempt in sorted(attempts, key=lambda attempt: (attempt.flavor, attempt.group)):
        if attempt.grade is Grade.FIT and not attempt.borrowing:
            continue
        borrowing = [f"borrow={attempt.borrowing}"] if attempt.borrowing else []
        texts.append(f"{attempt.flavor}({';'.join([attempt.grade.label, *borrowing, *sorted(set(attempt.reasons))])})")
    return texts


def no_fit_reason_of(pod_sets: list[PodSetResult]) -> str:
    """The most severe reason of the pod sets that cannot fit."""
    reasons = (_no_fit_reason(pod_set) for pod_set in pod_sets if pod_set.mode is Mode.NO_FIT)
    return max(reasons, key=SEVERITY.__getitem__, default="")


def _no_fit_reason(pod_set: PodSetResult) -> str:
    """The least severe reason among a group's alternatives, the most severe among groups that are all needed."""
    if not pod_set.attempts:
        return NO_MATCHING_FLAVOR
    least: dict[int, str] = {}
    for attempt in pod_set.attempts:
        if attempt.mode is Mode.NO_FIT:
            old = least.get(attempt.group)
            if old is None or SEVERITY[attempt.no_fit_reason] < SEVERITY[old]:
                least[attempt.group] = attempt.no_fit_reason
    return max(least.values(), key=SEVERITY.__getitem__, default="")
