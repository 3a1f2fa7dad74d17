"""
What a process is, as data: which machine it runs and which dependencies it needs.

Each of the six has one such description in `<name>/process.py`; `headgate.processes.entry` provides the dependencies
and runs it.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import msgspec

from headgate.adapters.jetstream.connection import Connection
from headgate.adapters.jetstream.lease import JetStreamLeases
from headgate.adapters.kubernetes.transport import Transport
from headgate.adapters.log import Blobs, Log
from headgate.core.machine.contract import Machine
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.processes.runtime.api_executor import KubernetesCarrier
from headgate.processes.runtime.cell_identity import IdentityGate
from headgate.processes.runtime.cell_record import CellRecords
from headgate.processes.runtime.host_parts import Parts
from headgate.processes.runtime.process_status import Status
from headgate.processes.runtime.settings import Settings
from headgate.processes.runtime.signing_keys import ProcessKeys


class Given(msgspec.Struct, kw_only=True):
    """
    The dependencies available to a process. `transport` is set if it declared Kubernetes.

    `warn` logs where the broker is set up less safely than it should be. `gate` has cell and cluster once the process
    is a candidate; `records` is the bridge's.
    """

    settings: Settings
    status: Status
    log: Log
    blobs: Blobs
    connection: Connection
    transport: Transport | None = None
    gate: IdentityGate
    records: CellRecords | None = None
    keys: ProcessKeys
    leases: JetStreamLeases
    warn: Callable[[list[str]], None]


Build = Callable[[Given], AbstractAsyncContextManager[Parts]]


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """
    One of the six.

    `kubernetes` is set if it uses the API server. `linger_s` is how much later than others it may read the log.
    """

    producer: Producer
    build: Build
    kubernetes: bool = False
    linger_s: float = 0.0

    @property
    def name(self) -> str:
        """As on the command line and in subjects."""
        return self.producer.value


def only_appends(machine: Callable[[State], Machine]) -> Build:
    """For processes that only read the log and append."""

    @asynccontextmanager
    async def build(_: Given) -> AsyncIterator[Parts]:
        yield Parts(machine=machine)

    return build


def makes_calls(machine: Callable[[State], Machine]) -> Build:
    """For processes whose machine also calls the API server."""

    @asynccontextmanager
    async def build(given: Given) -> AsyncIterator[Parts]:
        assert given.transport is not None, "a process that makes calls asks for Kubernetes"
        carrier = KubernetesCarrier(given.transport, given.settings.kubernetes)
        given.status.probes.append(lambda: carrier.probe(given.status.started_ms))
        given.status.retries.append(carrier.retries)
        yield Parts(machine=machine, carrier=carrier)

    return build
