"""The binder as a process: it writes statuses, bindings and Events to the API server, and appends the outcomes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from headgate.core.machine.contract import Machine
from headgate.events.base import Producer
from headgate.machines.binder.decide import Binder
from headgate.processes.runtime.api_executor import KubernetesCarrier
from headgate.processes.runtime.host_parts import Parts
from headgate.processes.runtime.process import Given, Process


@asynccontextmanager
async def _build(given: Given) -> AsyncIterator[Parts]:
    assert given.transport is not None, "the binder asks for Kubernetes"
    carrier = KubernetesCarrier(given.transport, given.settings.kubernetes)
    given.status.probes.append(lambda: carrier.probe(given.status.started_ms))
    dropped = _Dropped(given)
    yield Parts(
        machine=partial(Binder, told=given.settings.binder.events), carrier=carrier, after_decision=dropped.note
    )


class _Dropped:
    """Counts the Events that the machines of this process have not written, over all its terms."""

    def __init__(self, given: Given) -> None:
        self._counters = given.status.counters
        self._machine: Machine | None = None
        self._seen = 0

    def note(self, machine: Machine) -> None:
        """Add the number dropped since the last call."""
        assert isinstance(machine, Binder)
        if machine is not self._machine:
            self._machine, self._seen = machine, 0
        self._counters.events_dropped += machine.events.dropped - self._seen
        self._seen = machine.events.dropped


PROCESS = Process(producer=Producer.BINDER, build=_build, kubernetes=True)
