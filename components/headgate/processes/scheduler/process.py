"""
The scheduler as a process: it reads the log and appends cycles, and where pods are placed; it calls extenders.

A cycle is one commit, whatever its size: its decisions are atomic.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.machines.scheduler.decide import Scheduler
from headgate.processes.runtime.extender_carrier import ExtenderCarrier
from headgate.processes.runtime.extensions import load_placement_plugins
from headgate.processes.runtime.host_parts import Parts
from headgate.processes.runtime.process import Given, Process


def heads_stream(state: State) -> bool:
    """Whether a ClusterQueue has more heads on offer than one cycle decides, and nothing in it waits for quota."""
    return any(len(offered) > 1 and name not in state.sleeps for name, offered in state.index.offered.items())


@asynccontextmanager
async def _build(given: Given) -> AsyncIterator[Parts]:
    plugins = load_placement_plugins()
    carrier = ExtenderCarrier(given.settings.placement.configuration)

    def scheduler(state: State) -> Scheduler:
        carrier.state = state
        return Scheduler(state, plugins)

    try:
        yield Parts(machine=scheduler, carrier=carrier, hurries=heads_stream)
    finally:
        await carrier.aclose()


PROCESS = Process(producer=Producer.SCHEDULER, build=_build)
