"""The informer bridge as a process: it watches the API server, appends facts, and creates the Workloads of jobs."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import anyio

from headgate.adapters.kubernetes.resources import watchable
from headgate.core.api.names import SCHEDULER_NAME
from headgate.core.config.reader import read_document
from headgate.core.machine.contract import Machine
from headgate.core.reading.rules import read_otherwise
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.configuration import Configuration
from headgate.events.facts import ConfigurationObserved
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.machines.informer_bridge.foreign_pods import PODS
from headgate.machines.informer_bridge.placement_objects import ALWAYS, OWN
from headgate.machines.informer_bridge.reconfiguring import refusal
from headgate.processes.informer_bridge.reloading import kueues_file, placements_file
from headgate.processes.informer_bridge.watching import Watching
from headgate.processes.runtime.api_executor import KubernetesCarrier
from headgate.processes.runtime.cell_record import keep_record
from headgate.processes.runtime.configuration_files import KUEUES_DOCUMENT, why_unusable
from headgate.processes.runtime.host_parts import Parts
from headgate.processes.runtime.leadership import Offer
from headgate.processes.runtime.process import Given, Process
from headgate.processes.runtime.process_status import Status

_LOG: Final = logging.getLogger(__name__)


# Large: the parts of the process, made in one scope because its closures share them.
@asynccontextmanager
async def _build(given: Given) -> AsyncIterator[Parts]:
    assert given.transport is not None, "the bridge asks for Kubernetes"
    settings = given.settings
    bridges: list[InformerBridge] = []
    follows, places = None, None
    if settings.bridge.configuration:
        follows = kueues_file(settings.bridge.configuration, given.status, partial(_refusal, bridges))
    if settings.placement.configuration:
        places = placements_file(settings.placement.configuration, given.status)
    carrier = KubernetesCarrier(given.transport, settings.kubernetes)
    watching = Watching(
        given.transport,
        watchable(),
        lambda: bridges[-1].resources,
        page_items=settings.bridge.page_items,
        resumes=settings.bridge.resumes,
        limiter=carrier.executor.limiter,
        listed_anew=lambda: bridges[-1].listed_anew(),
    )
    given.status.probes.append(lambda: carrier.probe(given.status.started_ms))
    given.status.probes.append(lambda: watching.probe(given.status.started_ms))
    given.status.retries.append(carrier.retries)
    given.status.watches.append(watching.counts)

    def machine(state: State) -> Machine:
        given_now = follows.at_start() if follows is not None else None
        made = InformerBridge(
            state,
            given_now,
            new_log=read_document(KUEUES_DOCUMENT),
            founding=given.gate.founding(),
            placing=places.at_start() if places is not None else None,
        )
        if made.unread:
            _LOG.warning(
                "the configuration in the log stays as it is: this version cannot read the file that it came from "
                "(%s). Start the informer bridge with a corrected file",
                made.unread,
            )
        # The one of this term, made before its feeder starts.
        bridges[:] = [made]
        return made

    async def feed(state: State, offer: Offer) -> None:
        async with anyio.create_task_group() as tasks:
            if given.records is not None:
                every_ms = settings.record.every_ms
                tasks.start_soon(partial(keep_record, given.records, state, given.log, every_ms=every_ms))
            tasks.start_soon(watching, state, offer)
            if follows is not None:
                tasks.start_soon(follows.follow, offer, partial(_list_again, watching))
            if places is not None:
                tasks.start_soon(places.follow, offer, partial(_place, watching))

    yield Parts(
        machine=machine,
        carrier=carrier,
        feeder=feed,
        after_decision=partial(_decided, Warned(), PlacementWarning(given.status)),
        stimuli_max=settings.bridge.stimuli_max,
    )


def _refusal(bridges: list[InformerBridge], configuration: Configuration) -> str:
    """Why the current machine cannot take a configuration without a restart; "" if it can."""
    return refusal(configuration, bridges[-1].at_start)


def _list_again(watching: Watching, before: ConfigurationObserved, after: ConfigurationObserved) -> None:
    watching.list_again(read_otherwise(before.configuration, after.configuration))


def _place(watching: Watching, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Watch what placement reads from now on, or no longer."""
    if bool(before) == bool(after):
        return
    if after:
        watching.begin(OWN)
        watching.list_again(ALWAYS)
    else:
        watching.end(OWN)
        watching.list_again((PODS,))


class Warned:
    """What the operator was told once."""

    unplaced = False


class PlacementWarning:
    """
    Tells the operator that no pods are placed by the log's KubeSchedulerConfiguration, because it cannot be used.

    A file is checked before it gets into the log; but a log may be of another version, or of a bridge that had plugins
    which this one lacks. The notice goes when a configuration that can be used is in effect.
    """

    def __init__(self, status: Status) -> None:
        self._status = status
        self._checked: Mapping[str, Any] | None = None

    def check(self, document: Mapping[str, Any]) -> None:
        """The configuration in effect. It costs something only when it is another one."""
        if document is self._checked:
            return
        self._checked = document
        why, text = why_unusable(document), None
        if why:
            text = (
                f"no pods are placed: this version cannot use the KubeSchedulerConfiguration in the log ({why}). "
                "Start the informer bridge with --kube-scheduler-config FILE, a corrected file"
            )
            _LOG.warning("%s", text)
        self._status.notice("KubeSchedulerConfiguration in the log", text)


def _decided(warned: Warned, placement: PlacementWarning, machine: Machine) -> None:
    report(warned, machine)
    assert isinstance(machine, InformerBridge)
    placement.check(machine.state.scheduler_configuration)


def report(warned: Warned, machine: Machine) -> None:
    """Tell the operator of objects that could not be read, which count as absent, and of a pod without a profile."""
    assert isinstance(machine, InformerBridge)
    while machine.problems:
        _LOG.warning("an object of the API server is passed over: %s", machine.problems.popleft())
    if machine.unplaced and not warned.unplaced:
        warned.unplaced = True
        happens = (
            "stays pending: no profile of the KubeSchedulerConfiguration in effect has that name. Add"
            if machine.state.scheduler_configuration
            else "stays pending: Headgate places no pods without a KubeSchedulerConfiguration. Give the informer "
            "bridge one (--kube-scheduler-config FILE, or placement.configuration in its settings), with"
        )
        _LOG.warning(
            "the pod %s names the scheduler %s and %s `profiles: [{schedulerName: %s}]`",
            machine.unplaced,
            SCHEDULER_NAME,
            happens,
            SCHEDULER_NAME,
        )


PROCESS = Process(producer=Producer.INFORMER_BRIDGE, build=_build, kubernetes=True)
