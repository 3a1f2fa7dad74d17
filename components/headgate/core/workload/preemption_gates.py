"""
Preemption gates: while one of a workload's gates is closed, it may not preempt.

A gate is listed in `spec.preemptionGates`; its position is in the status, where its author opens it. Kueue's
HasClosedPreemptionGate, and closeAllPreemptionGates of an eviction. The cycle calls `is_closed`; the fold closes gates
and takes over what others have opened.
"""

from msgspec.structs import replace

from headgate.core.kubernetes.conditions import parse_rfc3339
from headgate.core.state.tables import Workload
from headgate.events.objects import PreemptionGateState

OPEN, CLOSED = "Open", "Closed"


def is_closed(workload: Workload) -> bool:
    """Whether any gate of a workload is closed. One without a position is, so that workloads can be created gated."""
    if not workload.spec.preemption_gates:
        return False
    positions = {gate.name: gate.position for gate in workload.preemption_gates}
    return any(positions.get(gate.name, CLOSED) == CLOSED for gate in workload.spec.preemption_gates)


def closed(gates: tuple[PreemptionGateState, ...], now: str) -> tuple[PreemptionGateState, ...]:
    """All gates closed at a time (RFC 3339), as an eviction leaves them."""
    return tuple(replace(gate, position=CLOSED, last_transition_time=now) for gate in gates)


def opened(gates: tuple[PreemptionGateState, ...], name: str, now: str) -> tuple[PreemptionGateState, ...]:
    """One gate opened at a time (RFC 3339), the others as they are."""
    gate = PreemptionGateState(name=name, position=OPEN, last_transition_time=now)
    if any(each.name == name for each in gates):
        return tuple(gate if each.name == name else each for each in gates)
    return (*gates, gate)


def merged(
    ours: tuple[PreemptionGateState, ...], seen: tuple[PreemptionGateState, ...]
) -> tuple[PreemptionGateState, ...]:
    """
    The positions of gates merged with those that others have written: of each gate the later one counts.

    A gate that is no longer listed is dropped with its position.
    """
    before = {gate.name: gate for gate in ours}
    return tuple(gate if _is_later(gate, before.get(gate.name)) else before[gate.name] for gate in seen)


def _is_later(gate: PreemptionGateState, before: PreemptionGateState | None) -> bool:
    return before is None or _time_of(gate) >= _time_of(before)


def _time_of(gate: PreemptionGateState) -> int:
    try:
        return parse_rfc3339(gate.last_transition_time)
    except ValueError:
        return 0
