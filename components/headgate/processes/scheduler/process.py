"""
The scheduler as a process: it reads the log and appends cycles, and where pods are placed; it calls extenders.

A cycle is one commit, whatever its size: its decisions are atomic.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

from headgate.core.machine.contract import Machine
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.machines.scheduler.decide import Scheduler
from headgate.machines.scheduler.placement import PlacementReport
from headgate.processes.runtime.extender_carrier import ExtenderCarrier
from headgate.processes.runtime.extensions import load_placement_plugins
from headgate.processes.runtime.host_parts import Parts
from headgate.processes.runtime.process import Given, Process
from headgate.processes.runtime.process_status import Phase, Status


def heads_stream(state: State) -> bool:
    """Whether a ClusterQueue has more heads on offer than one cycle decides, and nothing in it waits for quota."""
    return any(len(offered) > 1 and name not in state.sleeps for name, offered in state.index.offered.items())


class PlacementReports:
    """What is seen of the placement of pods from outside: the queue's places, and plugins that have failed."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._machine: Scheduler | None = None
        status.pending_pods = self._pending_pods
        status.plugin_failures = self._plugin_failures

    def note(self, machine: Machine) -> None:
        """The machine has decided."""
        assert isinstance(machine, Scheduler)
        self._machine = machine
        for (name, point), text in self._failures().items():
            self._status.notice(f"placement/{name}/{point}", f"{name}: {text}")

    def _report(self) -> PlacementReport | None:
        if self._machine is None or self._status.phase is not Phase.LEADING:
            return None
        return self._machine.placement_report()

    def _failures(self) -> Mapping[tuple[str, str], str]:
        report = self._report()
        return report.failures if report is not None else {}

    def _pending_pods(self) -> Iterator[tuple[float, Mapping[str, str]]]:
        report = self._report()
        for place, count in report.waiting.items() if report is not None else ():
            yield float(count), {"queue": place.value}

    def _plugin_failures(self) -> Iterator[tuple[float, Mapping[str, str]]]:
        for name, point in self._failures():
            yield 1.0, {"plugin": name, "extension_point": point}


@asynccontextmanager
async def _build(given: Given) -> AsyncIterator[Parts]:
    plugins = load_placement_plugins()
    carrier = ExtenderCarrier(given.settings.placement.configuration)

    def scheduler(state: State) -> Scheduler:
        carrier.state = state
        return Scheduler(state, plugins)

    try:
        reports = PlacementReports(given.status)
        yield Parts(machine=scheduler, carrier=carrier, hurries=heads_stream, after_decision=reports.note)
    finally:
        await carrier.aclose()


PROCESS = Process(producer=Producer.SCHEDULER, build=_build)
