"""Machines for tests of the loops, which care about nothing but the promises that the loops make."""

from collections.abc import Callable
from typing import TypeVar

from headgate.core.machine.contract import (
    Append,
    Call,
    Changed,
    Command,
    Committed,
    Completed,
    Listed,
    Progressed,
    Resumed,
    Settled,
    Stimulus,
    TakeSnapshot,
    WakeAt,
)
from headgate.core.state.tables import State
from headgate.events.facts import NamespaceObserved

S = TypeVar("S")


class Counter:
    """
    Appends `namespace.observed` n1, n2, ... up to `goal`, one a commit, continuing from the state.

    It asserts what the loop promises: commits arrive in order and folded, and no `Settled` before the last own append
    is folded.
    """

    def __init__(self, state: State, goal: int = 10, *, before: Callable[[int], None] = lambda _: None) -> None:
        self.state = state
        self.goal = goal
        self.seen = state.position
        self.asked = len(state.namespaces)
        self._before = before

    def decide(self, stimulus: Stimulus) -> list[Command]:
        match stimulus:
            case Committed(logged=logged):
                assert logged.seq == self.seen + 1 == self.state.position
                self.seen = logged.seq
                return []
            case Settled():
                count = len(self.state.namespaces)
                assert count == self.asked, "settled without the last own append"
                if count >= self.goal:
                    return []
                self.asked = count + 1
                self._before(count + 1)
                return [Append(events=(NamespaceObserved(name=f"n{count + 1}"),))]
            case Completed() | Listed() | Changed() | Resumed() | Progressed():
                return []


class Recorder:
    """Returns the given commands at each `Settled`, and keeps every stimulus."""

    def __init__(self, state: State, script: list[list[Command]]) -> None:
        self.state = state
        self.script = script
        self.stimuli: list[Stimulus] = []

    def decide(self, stimulus: Stimulus) -> list[Command]:
        self.stimuli.append(stimulus)
        if isinstance(stimulus, Settled) and self.script:
            return self.script.pop(0)
        return []

    def of(self, kind: type[S]) -> list[S]:
        return [stimulus for stimulus in self.stimuli if isinstance(stimulus, kind)]


__all__ = ["Append", "Call", "Counter", "Recorder", "TakeSnapshot", "WakeAt"]
