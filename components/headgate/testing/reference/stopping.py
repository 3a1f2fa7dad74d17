"""
Stopping: when a plan has come to its end, and whether it comes back to where it was.

Upstream really does go in circles: two that preempt each other in turn, or a head whose message follows the flavor that
is tried in turn. So a plan stops when the same state is reached for the fifth time, not only when nothing changes.
"""

from typing import Final, Literal

import msgspec

from headgate.core.state.tables import Workload
from headgate.events.commit import digest
from headgate.events.ids import WorkloadKey
from headgate.events.objects import Admission, Condition
from headgate.testing.reference.rhythm import ReferencePlan

STABLE_AFTER: Final = 2
"""Cycles in a row that change nothing, after which a plan stops."""
LOOP_AFTER: Final = 5
"""How many times the same state may be reached."""

Stop = Literal["no-heads", "stable", "loop", "limit"]


def run(rhythm: ReferencePlan, cycles_max: int) -> Stop:
    """
    Let a plan run until it stops, and why it did.

    `no-heads`: no active ClusterQueue has a workload to try. `stable`: two cycles in a row changed nothing. `loop`: the
    same state came back for the fifth time. `limit`: there was more to try after `cycles_max` cycles.
    """
    rhythm.look()
    standing = _Standing(rhythm)
    last, unchanged = standing.now(), 0
    seen: dict[str, int] = {}
    while rhythm.has_heads() or rhythm.skip_to_gate():
        if len(rhythm.ran) >= cycles_max:
            return "limit"
        rhythm.run_cycle()
        now = standing.now()
        unchanged = unchanged + 1 if now == last else 0
        if unchanged >= STABLE_AFTER:
            return "stable"
        last = now
        seen[now] = seen.get(now, 0) + 1
        if seen[now] >= LOOP_AFTER:
            return "loop"
    return "no-heads"


class _Standing:
    """The state of a plan, as a digest of all that a cycle changes but times and counters."""

    def __init__(self, rhythm: ReferencePlan) -> None:
        self._rhythm = rhythm
        self._kept: dict[WorkloadKey, tuple[tuple[Condition, ...], Admission | None, str]] = {}

    def now(self) -> str:
        """Equal for equal conditions, reservations and queues."""
        workloads = [self._digest(workload) for workload in self._rhythm.everybody]
        return digest(_encoder.encode((workloads, self._rhythm.queued(), self._rhythm.inadmissible())))

    def _digest(self, workload: Workload) -> str:
        """The part of one workload, kept for as long as its conditions and its admission are the same objects."""
        kept = self._kept.get(workload.key)
        if kept is None or kept[0] is not workload.conditions or kept[1] is not workload.admission:
            shown = [(each.type, each.status, each.reason, each.message) for each in workload.conditions]
            made = digest(_encoder.encode((workload.key, workload.admission, shown)))
            kept = self._kept[workload.key] = (workload.conditions, workload.admission, made)
        return kept[2]


_encoder = msgspec.json.Encoder(order="deterministic")
