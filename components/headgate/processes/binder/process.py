"""
The binder as a process: it writes statuses, bindings and Events to the API server, and appends the outcomes.

It calls extenders that bind pods.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headgate.adapters.kubernetes.transport import Transport
from headgate.core.machine.contract import AskExtender, Completed, Machine
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.machines.binder.decide import Binder
from headgate.processes.runtime.api_executor import KubernetesCarrier
from headgate.processes.runtime.extender_carrier import ExtenderCarrier
from headgate.processes.runtime.host_parts import Parts
from headgate.processes.runtime.process import Given, Process
from headgate.processes.runtime.settings import KubernetesSettings


@asynccontextmanager
async def _build(given: Given) -> AsyncIterator[Parts]:
    assert given.transport is not None, "the binder asks for Kubernetes"
    extenders = ExtenderCarrier(given.settings.placement.configuration)
    carrier = _Carrier(given.transport, given.settings.kubernetes, extenders)

    def binder(state: State) -> Binder:
        extenders.state = state
        return Binder(state, told=given.settings.binder.events)

    given.status.probes.append(lambda: carrier.probe(given.status.started_ms))
    dropped = _Dropped(given)
    try:
        yield Parts(machine=binder, carrier=carrier, after_decision=dropped.note)
    finally:
        await extenders.aclose()


class _Carrier(KubernetesCarrier):
    """Calls to the API server, and to the extenders that bind pods."""

    def __init__(self, transport: Transport, settings: KubernetesSettings, extenders: ExtenderCarrier) -> None:
        super().__init__(transport, settings)
        self._extenders = extenders

    async def ask(self, ask: AskExtender) -> Completed:
        """See `Carrier`."""
        return await self._extenders.ask(ask)


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
