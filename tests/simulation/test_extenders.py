"""Extenders of a simulated cell: functions, which machines ask as those of a real cell are asked."""

from typing import Any

import msgspec
import pytest
from tests.support.logs import START_MS
from tests.support.toys import Recorder

from headgate.core.machine.contract import AskExtender, Completed
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.ids import PodKey
from headgate.testing.world.world import FaultRates, World

X = "http://x"


def extender(path: str, body: Any) -> tuple[int, bytes]:
    return 200, msgspec.json.encode([path, body])


@pytest.mark.parametrize("failing", [False, True])
def test_an_extender_is_asked_once(failing: bool) -> None:
    """With what it is sent as JSON. A call that fails has no answer, and neither has one of an extender not there."""
    asks = [
        AskExtender(id=url, pod=PodKey("ns/p"), extender=url, path="filter", body={"names": ("n1",)})
        for url in (X, "http://y")
    ]
    machines: list[Recorder] = []

    def make(state: State) -> Recorder:
        machines.append(Recorder(state, [list(asks)]))
        return machines[-1]

    faults = FaultRates(call_error=1.0, until_ms=START_MS + 1_000) if failing else FaultRates()
    world = World(machines={Producer.SCHEDULER: make}, faults=faults, start_ms=START_MS)
    world.extenders[X] = extender
    world.run()
    refused = Completed(X, 0, b"connection refused")
    assert [made.of(Completed) for made in machines] == [
        [
            refused if failing else Completed(X, 200, b'["filter",{"names":["n1"]}]'),
            Completed("http://y", 0, b"connection refused"),
        ]
    ]
